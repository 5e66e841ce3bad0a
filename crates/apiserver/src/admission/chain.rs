//! The chain of admission plugins, in upstream's order.

use std::sync::Arc;

use api::status::Cause;
use api::view::View;
use api::{Schema, Status, Struct};
use component::FeatureGates;
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
    PodCertificateSigning,
};
use super::classes::{DefaultIngressClass, DefaultStorageClass, StorageObjectInUseProtection};
use super::devices::DeviceAdminAccess;
use super::escalation::RbacEscalation;
use super::namespace::NamespaceLifecycle;
use super::node_restriction::NodeRestriction;
use super::nodes::{PodTopologyLabels, TaintNodesByCondition};
use super::pod_groups::{PodGroupProtection, PodGroupWorkloadExists};
use super::pod_resize::PodResizeValidator;
use super::pod_security::{self, PodSecurity};
use super::priority::Priority;
use super::resize::PersistentVolumeClaimResize;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::tolerations::DefaultTolerationSeconds;
use super::{Admission, AdmissionConfig, AdmissionRequest};
use crate::auth::{Reader, UnionAuthorizer};

/// What plugins look at besides the request.
pub(super) struct Env {
    pub(super) schema: &'static Schema,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) authorizer: Arc<UnionAuthorizer>,
    pub(super) gates: FeatureGates,
    pub(super) pod_security: pod_security::Settings,
}

/// One plugin. It looks at a request and refuses it, or changes its object.
pub(super) trait Plugin: Send + Sync {
    /// Something that must be waited for before [`Plugin::mutate`] can decide; rarely anything.
    fn ready<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
        _object: &Struct,
    ) -> Option<BoxFuture<'a, ()>> {
        None
    }
    /// Before defaulting and validation; never for a deletion.
    fn mutate(
        &self,
        _env: &Env,
        _request: &AdmissionRequest<'_>,
        _object: &mut Struct,
    ) -> Result<(), Status> {
        Ok(())
    }
    /// After it; `object` is `None` for a deletion and a connect.
    fn validate(
        &self,
        _env: &Env,
        _request: &AdmissionRequest<'_>,
        _object: Option<&Struct>,
    ) -> Result<(), Status> {
        Ok(())
    }
    /// What takes long enough that others must get their turn meanwhile, after [`Plugin::validate`] let the request
    /// pass: it may warn, and not refuse.
    fn look_around<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
        _object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, ()>> {
        None
    }
}

/// The plugins of this server in upstream's order; whether each is on without being named.
const PLUGINS: [(&str, bool, &'static dyn Plugin); 23] = [
    ("NamespaceLifecycle", true, &NamespaceLifecycle),
    ("ServiceAccount", true, &ServiceAccount),
    // Upstream leaves it off; without it any node could change any other.
    ("NodeRestriction", true, &NodeRestriction),
    ("TaintNodesByCondition", true, &TaintNodesByCondition),
    ("PodSecurity", true, &PodSecurity),
    ("Priority", true, &Priority),
    ("PodGroupProtection", true, &PodGroupProtection),
    ("DefaultTolerationSeconds", true, &DefaultTolerationSeconds),
    ("DefaultStorageClass", true, &DefaultStorageClass),
    ("StorageObjectInUseProtection", true, &StorageObjectInUseProtection),
    ("PersistentVolumeClaimResize", true, &PersistentVolumeClaimResize),
    ("RuntimeClass", true, &RuntimeClass),
    ("CertificateApproval", true, &CertificateApproval),
    ("CertificateSigning", true, &CertificateSigning),
    ("ClusterTrustBundleAttest", true, &ClusterTrustBundleAttest),
    ("CertificateSubjectRestriction", true, &CertificateSubjectRestriction),
    ("DefaultIngressClass", true, &DefaultIngressClass),
    ("PodTopologyLabels", true, &PodTopologyLabels),
    ("PodGroupWorkloadExists", true, &PodGroupWorkloadExists),
    ("PodResizeValidator", true, &PodResizeValidator),
    // Upstream does this in the storage of roles and bindings, after all plugins; it cannot be turned off.
    ("", true, &RbacEscalation),
    ("", true, &PodCertificateSigning),
    ("", true, &DeviceAdminAccess),
];

/// Names that upstream knows besides.
const ELSEWHERE: [&str; 21] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "JobValidation",
];

/// Why a chain cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// No such plugin.
    #[error("unknown admission plugin {0:?}")]
    Unknown(String),
    /// Named in both lists.
    #[error("admission plugin {0:?} is both enabled and disabled")]
    Both(String),
    /// What the configuration says of a plugin.
    #[error("{0}")]
    Configuration(String),
}

/// The plugins that are on.
pub struct Chain {
    env: Env,
    plugins: Vec<&'static dyn Plugin>,
}

impl Chain {
    /// The plugins that are on by default, with those of `enable` and without those of `disable`
    /// (`--enable-admission-plugins`, `--disable-admission-plugins`). Of a plugin that is off, `config` is not looked at.
    pub fn new(
        schema: &'static Schema,
        reader: Arc<dyn Reader>,
        authorizer: Arc<UnionAuthorizer>,
        gates: FeatureGates,
        enable: &[String],
        disable: &[String],
        config: &AdmissionConfig,
    ) -> Result<Self, ChainError> {
        let ours = |name: &str| !name.is_empty() && PLUGINS.iter().any(|p| p.0 == name);
        if let Some(name) = enable.iter().find(|n| !ours(n)) {
            return Err(ChainError::Unknown(name.clone()));
        }
        if let Some(name) = disable.iter().find(|n| !ours(n) && !ELSEWHERE.contains(&n.as_str())) {
            return Err(ChainError::Unknown(name.clone()));
        }
        if let Some(name) = enable.iter().find(|n| disable.contains(n)) {
            return Err(ChainError::Both(name.clone()));
        }
        let on = |name: &str, default: bool| {
            enable.iter().any(|e| e == name) || default && !disable.iter().any(|d| d == name)
        };
        let plugins = PLUGINS.iter().filter(|(name, default, _)| on(name, *default)).map(|p| p.2).collect();
        let document = config.of("PodSecurity").filter(|_| on("PodSecurity", true));
        let pod_security = pod_security::Settings::new(document).map_err(ChainError::Configuration)?;
        Ok(Self { env: Env { schema, reader, authorizer, gates, pod_security }, plugins })
    }
    /// Registers the metrics of the plugins.
    pub fn register(&self, registry: &mut Registry) {
        self.env.pod_security.register(registry);
    }
}

impl Admission for Chain {
    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            for plugin in &self.plugins {
                if let Some(ready) = plugin.ready(&self.env, request, object) {
                    ready.await;
                }
                plugin.mutate(&self.env, request, object)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            for plugin in &self.plugins {
                plugin.validate(&self.env, request, object)?;
                if let Some(look) = plugin.look_around(&self.env, request, object) {
                    look.await;
                }
            }
            Ok(())
        }
        .boxed()
    }
}

impl Env {
    /// A tree to read.
    pub(super) fn view<'a>(&'a self, of: &'a Struct) -> View<'a> {
        View::new(self.schema, of)
    }
    /// A 403 about the object of a request; upstream's `admission.NewForbidden`.
    pub(super) fn forbidden(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
        why: impl std::fmt::Display,
    ) -> Status {
        let mut name = request.name;
        if name.is_empty()
            && let Some(object) = object
        {
            let meta = self.view(object).st("metadata");
            name = meta.str("name");
            if name.is_empty() {
                name = meta.str("generateName");
            }
        }
        if name.is_empty() {
            name = "Unknown";
        }
        Status::forbidden(&request.info.group, request.resource, name, why)
    }
}

impl AdmissionRequest<'_> {
    /// Whether it is about this resource itself.
    pub(super) fn is(&self, group: &str, resource: &str) -> bool {
        self.is_with(group, resource, "")
    }
    /// Whether it is about this subresource.
    pub(super) fn is_with(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.resource == resource && self.subresource == subresource && self.info.group == group
    }
}

/// Adds a cause to an error.
pub(super) fn with_cause(mut status: Status, reason: &str, message: String, field: &str) -> Status {
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: reason.into(), message, field: field.into() });
    }
    status
}
