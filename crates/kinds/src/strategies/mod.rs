//! The rules of every built-in resource.

macro_rules! inert {
    ($kinds:literal) => {
        Some(concat!("this cluster stores ", $kinds, ", but does not act on them yet"))
    };
}

macro_rules! fields {
    ($($path:literal),*) => {
        |schema: &api::Schema, s: &api::Struct, out: &mut Vec<api::Text>| {
            $(out.push($crate::strategies::generic::text_at(schema, s, $path));)*
        }
    };
}

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
pub(crate) mod core;
mod discovery;
mod flowcontrol;
pub(crate) mod generic;
pub(crate) mod meta;
mod metrics;
mod networking;
mod node;
pub(crate) mod pod;
mod policy;
mod rbac;
mod resource;
mod rules;
mod scheduling;
mod storage;
mod storage_versions;
mod template;
mod workloads;

pub(crate) use apiextensions::{is_structural, structural_faults};
pub use autoscaling::check_scale;
pub use core::service_addresses;

use std::sync::Arc;

use api::resources::{ResourceInfo, builtin};

use crate::strategy::Strategy;
use generic::{CLUSTER, NAMESPACED, STATUS_ALONE};
use rules::{Rules, SubresourceRules, Takes};

/// The strategy of a resource; the generic one if the resource has no rules of its own.
pub fn strategy(group: &str, resource: &str) -> Arc<dyn Strategy> {
    const STATUS: &[SubresourceRules] = &[SubresourceRules { takes: Takes::BUT_SPEC, ..STATUS_ALONE }];
    static IN_NAMESPACES: Rules = Rules { subresources: STATUS, ..NAMESPACED };
    static OF_THE_CLUSTER: Rules = Rules { subresources: STATUS, ..CLUSTER };
    let own = ALL.iter().find(|s| s.group == group && s.resource == resource);
    let rules = own.unwrap_or_else(|| {
        let of_the_cluster = |r: &ResourceInfo| r.group == group && r.resource == resource && !r.namespaced;
        if builtin().iter().any(of_the_cluster) { &OF_THE_CLUSTER } else { &IN_NAMESPACES }
    });
    rules.strategy(group, resource)
}

static ALL: &[Rules] = &[
    core::CONFIG_MAP,
    core::ENDPOINTS,
    core::CORE_EVENT,
    core::NEW_EVENT,
    core::LIMIT_RANGE,
    core::NAMESPACE,
    core::NODE,
    core::PERSISTENT_VOLUME_CLAIM,
    core::PERSISTENT_VOLUME,
    pod::POD,
    core::POD_TEMPLATE,
    core::REPLICATION_CONTROLLER,
    core::RESOURCE_QUOTA,
    core::SECRET,
    core::SERVICE_ACCOUNT,
    core::SERVICE,
    core::COMPONENT_STATUS,
    core::NODE_PORTS,
    apiregistration::API_SERVICE,
    apps::CONTROLLER_REVISION,
    apps::DAEMON_SET,
    apps::DEPLOYMENT,
    apps::REPLICA_SET,
    apps::STATEFUL_SET,
    autoscaling::AUTOSCALER,
    batch::CRON_JOB,
    batch::JOB,
    certificates::REQUEST,
    networking::INGRESS_CLASS,
    networking::INGRESS,
    networking::IP_ADDRESS,
    networking::NETWORK_POLICY,
    networking::SERVICE_CIDR,
    policy::BUDGET,
    rbac::CLUSTER_ROLE_BINDING,
    rbac::CLUSTER_ROLE,
    rbac::ROLE_BINDING,
    rbac::ROLE,
    storage::CSI_DRIVER,
    storage::CSI_NODE,
    storage::CAPACITY,
    storage::STORAGE_CLASS,
    storage::ATTACHMENT,
    storage::ATTRIBUTES_CLASS,
    admissionregistration::MUTATING_POLICY,
    admissionregistration::MUTATING_BINDING,
    admissionregistration::MUTATING_WEBHOOK,
    admissionregistration::VALIDATING_POLICY,
    admissionregistration::VALIDATING_BINDING,
    admissionregistration::VALIDATING_WEBHOOK,
    apiextensions::DEFINITION,
    scheduling::PRIORITY_CLASS,
    workloads::POD_GROUP,
    workloads::WORKLOAD,
    coordination::LEASE,
    coordination::LEASE_CANDIDATE,
    storage_versions::STORAGE_VERSION,
    storage_versions::MIGRATION,
    certificates::TRUST_BUNDLE,
    certificates::POD_REQUEST,
    node::RUNTIME_CLASS,
    discovery::ENDPOINT_SLICE,
    resource::DEVICE_CLASS,
    resource::CLAIM,
    resource::CLAIM_TEMPLATE,
    resource::SLICE,
    resource::TAINT_RULE,
    resource::POOL_STATUS,
    flowcontrol::FLOW_SCHEMA,
    flowcontrol::PRIORITY_LEVEL,
    metrics::NODES,
    metrics::PODS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_warned_that_nothing_happens() {
        let check = |group: &str, resource: &str, warns: bool| {
            let warning = strategy(group, resource).facts().no_effect_yet.clone();
            assert_eq!(warning.is_some(), warns, "{resource}: {warning:?}");
        };
        // The server allocates addresses from ServiceCIDRs, and gives Pods the overhead, nodes and handler of
        // RuntimeClasses.
        check("networking.k8s.io", "servicecidrs", false);
        check("node.k8s.io", "runtimeclasses", false);
        check("networking.k8s.io", "ingresses", false);
        check("networking.k8s.io", "ingressclasses", false);
        check("apps", "deployments", false);
        check("apps", "statefulsets", false);
        check("apps", "daemonsets", false);
        check("", "replicationcontrollers", false);
        check("scheduling.k8s.io", "priorityclasses", false);
        check("networking.k8s.io", "networkpolicies", false);
        check("batch", "jobs", false);
        check("batch", "cronjobs", false);
        check("", "resourcequotas", false);
        check("", "limitranges", false);
        check("", "persistentvolumes", false);
        check("", "persistentvolumeclaims", false);
        check("storage.k8s.io", "storageclasses", false);
        check("storage.k8s.io", "csidrivers", false);
        check("storage.k8s.io", "csinodes", false);
        check("storage.k8s.io", "volumeattachments", false);
        check("storage.k8s.io", "csistoragecapacities", false);
        check("storage.k8s.io", "volumeattributesclasses", false);
        check("flowcontrol.apiserver.k8s.io", "flowschemas", false);
        check("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", false);
        check("autoscaling", "horizontalpodautoscalers", false);
    }
}
