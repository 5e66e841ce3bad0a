//! The table of all controllers.

use client::Client;

use super::{Controller, Host, Shared};
use crate::account_tokens::{AccountTokens, LegacyTokens};
use crate::attach_detach::AttachDetach;
use crate::bootstrap::{Signer, TokenCleaner};
use crate::certificates::{Approving, Cleaner, NodeApproving, PodCleaner, Signing, TrustBundles};
use crate::clusterroles::ClusterRoles;
use crate::cron_jobs::CronJobs;
use crate::daemon_sets::DaemonSets;
use crate::deployment::Deployments;
use crate::device_taints::DeviceTaintEviction;
use crate::disruption::Disruption;
use crate::endpoints::{Mirror, Selected, Slices};
use crate::ephemeral_volumes::EphemeralVolumes;
use crate::expand::Expander;
use crate::gc::Collector;
use crate::jobs::Jobs;
use crate::load_balancers::Balancers;
use crate::local_path::LocalPath;
use crate::namespace::Namespaces;
use crate::nodes::eviction::TaintEviction;
use crate::nodes::ipam::Ipam;
use crate::nodes::lifecycle::Lifecycle;
use crate::nodes::podgc::PodGc;
use crate::nodes::ttl::Ttl;
use crate::persistent_volumes::Binder;
use crate::pod_autoscalers::PodAutoscalers;
use crate::pod_groups::PodGroups;
use crate::policy_status::PolicyStatus;
use crate::pool_status::PoolStatus;
use crate::protection::{Claims, Classes, Volumes};
use crate::replicas::{ReplicaSets, ReplicationControllers};
use crate::resource_claims::ResourceClaims;
use crate::resource_quotas::ResourceQuotas;
use crate::root_ca::RootCa;
use crate::selinux_warnings::SelinuxWarnings;
use crate::service_cidrs::ServiceCidrs;
use crate::serviceaccounts::ServiceAccounts;
use crate::stateful_sets::StatefulSets;
use crate::storage_migration::StorageMigration;
use crate::storage_versions::StorageVersions;
use crate::ttl_after_finished::TtlAfterFinished;

/// A controller's names and defaults.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// The controller's name.
    pub name: &'static str,
    /// Other names of the controller.
    pub aliases: &'static [&'static str],
    /// The controller's service account in `kube-system`; "" for the controllers' common user.
    pub account: &'static str,
    /// Whether the controller runs unless `--controllers` says otherwise.
    pub by_default: bool,
    /// Starts the controller; whether it has anything to do.
    pub(super) start: fn(Client, &Shared) -> bool,
}

const fn on<C: Controller>() -> Named {
    Named {
        name: C::NAME,
        aliases: C::ALIASES,
        account: C::ACCOUNT,
        by_default: true,
        start: |client, shared| {
            let wanted = C::wanted(shared);
            if wanted {
                Host::of::<C>(client, shared).run::<C>();
            }
            wanted
        },
    }
}

/// A controller that runs only where it is named.
const fn off<C: Controller>() -> Named {
    Named { by_default: false, ..on::<C>() }
}

/// All controllers, in the order in which upstream starts them.
const ALL: [Named; 52] = [
    on::<AccountTokens>(),
    on::<Selected>(),
    on::<Slices>(),
    on::<Mirror>(),
    on::<ReplicationControllers>(),
    on::<PodGc>(),
    on::<ResourceQuotas>(),
    on::<Namespaces>(),
    on::<ServiceAccounts>(),
    on::<Collector>(),
    on::<DaemonSets>(),
    on::<Jobs>(),
    on::<PodGroups>(),
    on::<Deployments>(),
    on::<ReplicaSets>(),
    on::<PodAutoscalers>(),
    on::<Disruption>(),
    on::<StatefulSets>(),
    on::<CronJobs>(),
    on::<Signing>(),
    on::<Approving>(),
    on::<NodeApproving>(),
    on::<Cleaner>(),
    on::<PodCleaner>(),
    on::<Ttl>(),
    off::<Signer>(),
    off::<TokenCleaner>(),
    on::<Ipam>(),
    on::<Lifecycle>(),
    on::<TaintEviction>(),
    on::<DeviceTaintEviction>(),
    on::<Binder>(),
    on::<AttachDetach>(),
    on::<Expander>(),
    on::<ClusterRoles>(),
    on::<Claims>(),
    on::<Volumes>(),
    on::<Classes>(),
    on::<EphemeralVolumes>(),
    on::<ResourceClaims>(),
    on::<TtlAfterFinished>(),
    on::<RootCa>(),
    on::<TrustBundles>(),
    on::<StorageVersions>(),
    on::<PoolStatus>(),
    on::<LegacyTokens>(),
    on::<ServiceCidrs>(),
    on::<StorageMigration>(),
    on::<PolicyStatus>(),
    off::<SelinuxWarnings>(),
    on::<Balancers>(),
    on::<LocalPath>(),
];

/// The controllers that upstream's kube-controller-manager knows by name and leaves to a cloud's own manager, with their
/// older names.
const OF_CLOUDS: &[&str] =
    &["node-route-controller", "route", "cloud-node-lifecycle-controller", "cloud-node-lifecycle"];

/// Returns all controllers.
pub fn known() -> &'static [Named] {
    &ALL
}

/// Finds the controller of a name, or of an older name.
pub(super) fn find(name: &str) -> Option<&'static Named> {
    ALL.iter().find(|c| c.name == name || c.aliases.contains(&name))
}

/// Whether a name is that of a controller that never runs here.
pub(super) fn is_of_clouds(name: &str) -> bool {
    OF_CLOUDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_told_apart() {
        let all: Vec<&str> = ALL
            .iter()
            .flat_map(|c| c.aliases.iter().copied().chain([c.name]))
            .chain(OF_CLOUDS.iter().copied())
            .collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for controller in &ALL {
            assert!(controller.name.ends_with("-controller"), "{}", controller.name);
        }
    }

    /// Upstream's `isDisabledByDefault`.
    #[test]
    fn some_run_only_where_they_are_named() {
        let off: Vec<&str> = ALL.iter().filter(|c| !c.by_default).map(|c| c.name).collect();
        assert_eq!(
            off,
            ["bootstrap-signer-controller", "token-cleaner-controller", "selinux-warning-controller"]
        );
    }
}
