//! The chain of admission plugins, in upstream's order.

use std::sync::Arc;

use api::{FeatureGates, Schema, Status, Struct};
use client::Client;
use component::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
    PodCertificateSigning,
};
use super::claim_status::ClaimStatusAuthorization;
use super::classes::{DefaultIngressClass, DefaultStorageClass, StorageObjectInUseProtection};
use super::declared_features::NodeDeclaredFeatureValidator;
use super::devices::DeviceAdminAccess;
use super::durations::{Durations, Step};
use super::escalation::RbacEscalation;
use super::event_rate::EventRateLimit;
use super::external_ips::DenyServiceExternalIps;
use super::jobs::JobValidation;
use super::limit_ranger::LimitRanger;
use super::loopback::Loopback;
use super::namespace::{NamespaceAutoProvision, NamespaceExists, NamespaceLifecycle};
use super::node_restriction::NodeRestriction;
use super::nodes::{PodTopologyLabels, TaintNodesByCondition};
use super::owner_references::OwnerReferencesPermissionEnforcement;
use super::plugin::{Env, Plugin};
use super::pod_groups::{PodGroupProtection, PodGroupWorkloadExists};
use super::pod_placement::{LimitPodHardAntiAffinityTopology, PodNodeSelector};
use super::pod_resize::PodResizeValidator;
use super::pod_security::PodSecurity;
use super::policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
use super::priority::Priority;
use super::pull_images::AlwaysPullImages;
use super::reinvocation::Reinvocation;
use super::resize::PersistentVolumeClaimResize;
use super::resource_quota::ResourceQuota;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::toleration_restriction::PodTolerationRestriction;
use super::tolerations::{DefaultTolerationSeconds, ExtendedResourceToleration};
use super::verdicts::{AlwaysAdmit, AlwaysDeny};
use super::webhooks::metrics::Metrics as WebhookMetrics;
use super::webhooks::{MutatingWebhooks, ValidatingWebhooks};
use super::{Admission, AdmissionConfig, AdmissionRequest, Operation, expressions};
use crate::auth::UnionAuthorizer;
use crate::reader::Reader;
use crate::webhook::Network;

/// A place in the order of admission.
struct Place {
    name: &'static str,
    /// Whether the plugin is on without being named.
    default: bool,
    /// Makes the plugin. `None` for a plugin of upstream's that this server does not have: it may be named to be off,
    /// not to be on.
    plugin: Option<Make>,
}

/// Makes a plugin from its configuration.
type Make = fn(&AdmissionConfig) -> Result<Box<dyn Plugin>, String>;

/// Makes a plugin that has no configuration.
fn plain<P: Plugin + Default + 'static>(_: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
    Ok(Box::<P>::default())
}

const fn on(name: &'static str, plugin: Make) -> Place {
    Place { name, default: true, plugin: Some(plugin) }
}

const fn off(name: &'static str, plugin: Make) -> Place {
    Place { name, default: false, plugin: Some(plugin) }
}

const fn absent(name: &'static str) -> Place {
    Place { name, default: false, plugin: None }
}

/// All of upstream's plugins, in upstream's order (`AllOrderedPlugins`). Each mutates or validates at its place, so
/// that policies and webhooks come after all compiled-in plugins, and the quota after all plugins that may still
/// refuse.
static ORDER: [Place; 41] = [
    off("AlwaysAdmit", plain::<AlwaysAdmit>),
    off("NamespaceAutoProvision", plain::<NamespaceAutoProvision>),
    on("NamespaceLifecycle", plain::<NamespaceLifecycle>),
    off("NamespaceExists", plain::<NamespaceExists>),
    off("LimitPodHardAntiAffinityTopology", plain::<LimitPodHardAntiAffinityTopology>),
    on("LimitRanger", plain::<LimitRanger>),
    on("ServiceAccount", plain::<ServiceAccount>),
    // Upstream leaves it off; without it any node could change any other.
    on("NodeRestriction", plain::<NodeRestriction>),
    on("TaintNodesByCondition", plain::<TaintNodesByCondition>),
    off("AlwaysPullImages", plain::<AlwaysPullImages>),
    absent("ImagePolicyWebhook"),
    on("PodSecurity", PodSecurity::made),
    off("PodNodeSelector", PodNodeSelector::made),
    on("Priority", plain::<Priority>),
    on("DefaultTolerationSeconds", DefaultTolerationSeconds::made),
    off("PodTolerationRestriction", PodTolerationRestriction::made),
    off("EventRateLimit", EventRateLimit::made),
    off("ExtendedResourceToleration", plain::<ExtendedResourceToleration>),
    on("DefaultStorageClass", plain::<DefaultStorageClass>),
    on("StorageObjectInUseProtection", plain::<StorageObjectInUseProtection>),
    on("PodGroupProtection", plain::<PodGroupProtection>),
    off("OwnerReferencesPermissionEnforcement", plain::<OwnerReferencesPermissionEnforcement>),
    on("PersistentVolumeClaimResize", plain::<PersistentVolumeClaimResize>),
    on("RuntimeClass", plain::<RuntimeClass>),
    on("CertificateApproval", plain::<CertificateApproval>),
    on("CertificateSigning", plain::<CertificateSigning>),
    on("ClusterTrustBundleAttest", plain::<ClusterTrustBundleAttest>),
    on("CertificateSubjectRestriction", plain::<CertificateSubjectRestriction>),
    on("DefaultIngressClass", plain::<DefaultIngressClass>),
    off("DenyServiceExternalIPs", plain::<DenyServiceExternalIps>),
    on("PodTopologyLabels", plain::<PodTopologyLabels>),
    on("PodGroupWorkloadExists", plain::<PodGroupWorkloadExists>),
    on("NodeDeclaredFeatureValidator", plain::<NodeDeclaredFeatureValidator>),
    on("JobValidation", plain::<JobValidation>),
    on("PodResizeValidator", plain::<PodResizeValidator>),
    on("MutatingAdmissionPolicy", plain::<MutatingAdmissionPolicy>),
    on("MutatingAdmissionWebhook", MutatingWebhooks::made),
    on("ValidatingAdmissionPolicy", plain::<ValidatingAdmissionPolicy>),
    on("ValidatingAdmissionWebhook", ValidatingWebhooks::made),
    on("ResourceQuota", ResourceQuota::made),
    off("AlwaysDeny", plain::<AlwaysDeny>),
];

/// The checks that upstream makes in the storage of resources, after all plugins; they cannot be turned off.
static OF_STORAGE: [Make; 4] = [
    plain::<RbacEscalation>,
    plain::<PodCertificateSigning>,
    plain::<DeviceAdminAccess>,
    plain::<ClaimStatusAuthorization>,
];

/// The reason for which a chain cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// There is no plugin of this name.
    #[error("unknown admission plugin {0:?}")]
    Unknown(String),
    /// The plugin is named in both lists.
    #[error("admission plugin {0:?} is both enabled and disabled")]
    Both(String),
    /// The configuration of a plugin is wrong.
    #[error("{0}")]
    Configuration(String),
}

/// The chain of the plugins that are on.
pub struct Chain {
    env: Env,
    plugins: Vec<Box<dyn Plugin>>,
    durations: Durations,
}

impl Chain {
    /// Makes the chain of the plugins that are on by default, with the plugins of `enable` and without those of
    /// `disable` (`--enable-admission-plugins`, `--disable-admission-plugins`). The part of `config` about a plugin
    /// that is off is not looked at.
    pub fn new(
        schema: &'static Schema,
        (reader, network): (Arc<dyn Reader>, Arc<Network>),
        authorizer: Arc<UnionAuthorizer>,
        (gates, clock): (FeatureGates, Clock),
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
        let in_order =
            || ORDER.iter().filter(|place| place.plugin.is_some() && on(place.name, place.default));
        let durations = Durations::new(in_order().map(|place| place.name));
        let plugins = in_order()
            .filter_map(|place| place.plugin)
            .chain(OF_STORAGE)
            .map(|make| make(config))
            .collect::<Result<_, _>>();
        let plugins = plugins.map_err(ChainError::Configuration)?;
        let loopback = Loopback::default();
        let (webhooks, conditions) = (WebhookMetrics::default(), expressions::Metrics::default());
        let env = Env { schema, reader, authorizer, gates, clock, loopback, network, webhooks, conditions };
        Ok(Self { env, plugins, durations })
    }
    /// Shows plugins the way to the own server: a client that works as the server itself, `None` once that is gone.
    pub fn connect(&self, client: impl Fn() -> Option<Client> + Send + Sync + 'static) {
        self.env.loopback.connect(client);
    }
    /// Registers the metrics of the plugins.
    pub fn register(&self, registry: &mut Registry) {
        self.env.webhooks.register(registry);
        self.env.conditions.register(registry);
        self.durations.register(registry);
        for plugin in &self.plugins {
            plugin.register(registry);
        }
    }
}

impl Admission for Chain {
    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            let mut again = Reinvocation::default();
            let mut running = self.durations.begin(Step::Admit, request.operation);
            let outcome = async {
                loop {
                    for (at, plugin) in self.plugins.iter().enumerate() {
                        let mut outcome = plugin.mutate(&self.env, request, object);
                        if outcome.is_ok()
                            && let Some(rest) = plugin.mutate_waiting(&self.env, request, object, &mut again)
                        {
                            outcome = rest.await;
                        }
                        running.done(at, &outcome);
                        outcome?;
                    }
                    if !again.begin() {
                        return Ok(());
                    }
                }
            };
            let outcome: Result<(), Status> = outcome.await;
            running.end(&outcome);
            outcome
        }
        .boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            if request.operation == Operation::Delete {
                let mut running = self.durations.begin(Step::Admit, request.operation);
                let outcome = async {
                    for (at, plugin) in self.plugins.iter().enumerate() {
                        let outcome = match plugin.admit_deletion(&self.env, request) {
                            Some(answer) => answer.await,
                            None => Ok(()),
                        };
                        running.done(at, &outcome);
                        outcome?;
                    }
                    Ok(())
                };
                let outcome: Result<(), Status> = outcome.await;
                running.end(&outcome);
                outcome?;
            }
            let mut running = self.durations.begin(Step::Validate, request.operation);
            let outcome = async {
                for (at, plugin) in self.plugins.iter().enumerate() {
                    let mut outcome = plugin.validate(&self.env, request, object);
                    if outcome.is_ok()
                        && let Some(rest) = plugin.validate_waiting(&self.env, request, object)
                    {
                        outcome = rest.await;
                    }
                    running.done(at, &outcome);
                    outcome?;
                }
                Ok(())
            };
            let outcome: Result<(), Status> = outcome.await;
            running.end(&outcome);
            outcome
        }
        .boxed()
    }
}

/// The names of the plugins that can be on.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ORDER.iter().filter(|place| place.plugin.is_some()).map(|place| place.name)
}

/// The names of all places, in their order.
#[cfg(test)]
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    ORDER.iter().map(|place| place.name)
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
