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
    /// Before defaulting and validation; never for a deletion.
    fn mutate(
        &self,
        _env: &Env,
        _request: &AdmissionRequest<'_>,
        _object: &mut Struct,
    ) -> Result<(), Status> {
        Ok(())
    }
    /// The part of [`Plugin::mutate`] that has to wait for something, after it; nothing where nothing is waited for.
    fn mutate_waiting<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
        _object: &'a mut Struct,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        None
    }
    /// After defaulting and validation; `object` is `None` for a deletion.
    fn validate(
        &self,
        _env: &Env,
        _request: &AdmissionRequest<'_>,
        _object: Option<&Struct>,
    ) -> Result<(), Status> {
        Ok(())
    }
    /// The part of [`Plugin::validate`] that has to wait for something, or takes so long that others must get their
    /// turn meanwhile, after it; nothing where neither is the case.
    fn validate_waiting<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
        _object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        None
    }
}

/// A place in the order of admission.
struct Place {
    name: &'static str,
    /// Whether it is on without being named.
    default: bool,
    /// What does it; nothing for what upstream has and this server has not: it may be named to be off, not to be on.
    plugin: Option<&'static dyn Plugin>,
}

const fn on(name: &'static str, plugin: &'static dyn Plugin) -> Place {
    Place { name, default: true, plugin: Some(plugin) }
}

const fn absent(name: &'static str) -> Place {
    Place { name, default: false, plugin: None }
}

/// All of upstream's plugins, in upstream's order (`AllOrderedPlugins`). Each mutates or validates at its place, so that
/// policies and webhooks come after everything that is compiled in, and the quota after all that may still refuse.
static ORDER: [Place; 41] = [
    absent("AlwaysAdmit"),
    absent("NamespaceAutoProvision"),
    on("NamespaceLifecycle", &NamespaceLifecycle),
    absent("NamespaceExists"),
    absent("LimitPodHardAntiAffinityTopology"),
    absent("LimitRanger"),
    on("ServiceAccount", &ServiceAccount),
    // Upstream leaves it off; without it any node could change any other.
    on("NodeRestriction", &NodeRestriction),
    on("TaintNodesByCondition", &TaintNodesByCondition),
    absent("AlwaysPullImages"),
    absent("ImagePolicyWebhook"),
    on("PodSecurity", &PodSecurity),
    absent("PodNodeSelector"),
    on("Priority", &Priority),
    on("DefaultTolerationSeconds", &DefaultTolerationSeconds),
    absent("PodTolerationRestriction"),
    absent("EventRateLimit"),
    absent("ExtendedResourceToleration"),
    on("DefaultStorageClass", &DefaultStorageClass),
    on("StorageObjectInUseProtection", &StorageObjectInUseProtection),
    on("PodGroupProtection", &PodGroupProtection),
    absent("OwnerReferencesPermissionEnforcement"),
    on("PersistentVolumeClaimResize", &PersistentVolumeClaimResize),
    on("RuntimeClass", &RuntimeClass),
    on("CertificateApproval", &CertificateApproval),
    on("CertificateSigning", &CertificateSigning),
    on("ClusterTrustBundleAttest", &ClusterTrustBundleAttest),
    on("CertificateSubjectRestriction", &CertificateSubjectRestriction),
    on("DefaultIngressClass", &DefaultIngressClass),
    absent("DenyServiceExternalIPs"),
    on("PodTopologyLabels", &PodTopologyLabels),
    on("PodGroupWorkloadExists", &PodGroupWorkloadExists),
    absent("NodeDeclaredFeatureValidator"),
    absent("JobValidation"),
    on("PodResizeValidator", &PodResizeValidator),
    absent("MutatingAdmissionPolicy"),
    absent("MutatingAdmissionWebhook"),
    absent("ValidatingAdmissionPolicy"),
    absent("ValidatingAdmissionWebhook"),
    absent("ResourceQuota"),
    absent("AlwaysDeny"),
];

/// What upstream does in the storage of resources, after all plugins; it cannot be turned off.
static OF_STORAGE: [&dyn Plugin; 3] = [&RbacEscalation, &PodCertificateSigning, &DeviceAdminAccess];

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
        let place = |name: &str| ORDER.iter().find(|place| place.name == name);
        if let Some(name) = enable.iter().find(|n| place(n).is_none_or(|place| place.plugin.is_none())) {
            return Err(ChainError::Unknown(name.clone()));
        }
        if let Some(name) = disable.iter().find(|n| place(n).is_none()) {
            return Err(ChainError::Unknown(name.clone()));
        }
        if let Some(name) = enable.iter().find(|n| disable.contains(n)) {
            return Err(ChainError::Both(name.clone()));
        }
        let on = |name: &str, default: bool| {
            enable.iter().any(|e| e == name) || default && !disable.iter().any(|d| d == name)
        };
        let in_order = ORDER.iter().filter(|place| on(place.name, place.default)).filter_map(|p| p.plugin);
        let plugins = in_order.chain(OF_STORAGE).collect();
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
                plugin.mutate(&self.env, request, object)?;
                if let Some(rest) = plugin.mutate_waiting(&self.env, request, object) {
                    rest.await?;
                }
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
                if let Some(rest) = plugin.validate_waiting(&self.env, request, object) {
                    rest.await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_upstreams() {
        // `AllOrderedPlugins` of pkg/kubeapiserver/options/plugins.go.
        let upstream = "AlwaysAdmit NamespaceAutoProvision NamespaceLifecycle NamespaceExists \
            LimitPodHardAntiAffinityTopology LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition \
            AlwaysPullImages ImagePolicyWebhook PodSecurity PodNodeSelector Priority DefaultTolerationSeconds \
            PodTolerationRestriction EventRateLimit ExtendedResourceToleration DefaultStorageClass \
            StorageObjectInUseProtection PodGroupProtection OwnerReferencesPermissionEnforcement \
            PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning \
            ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass DenyServiceExternalIPs \
            PodTopologyLabels PodGroupWorkloadExists NodeDeclaredFeatureValidator JobValidation \
            PodResizeValidator MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy \
            ValidatingAdmissionWebhook ResourceQuota AlwaysDeny";
        let ours: Vec<&str> = ORDER.iter().map(|place| place.name).collect();
        assert_eq!(ours, upstream.split_whitespace().collect::<Vec<_>>());
    }
}
