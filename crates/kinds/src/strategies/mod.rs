//! The rules of every built-in resource.

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
pub mod generic;
mod networking;
mod node;
pub(crate) mod pod;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storage_versions;
mod template;
mod workloads;

pub use core::service_addresses;

use api::resources::{ResourceInfo, builtin};
use api::view::View;
use api::{Schema, Struct, Text};
pub use autoscaling::check_scale;
use generic::{CLUSTER, NAMESPACED, STATUS_ALONE, text_at};

use crate::strategy::Strategy;

/// The strategy of a resource; one without rules of its own has the generic one.
pub fn strategy(group: &str, resource: &str) -> &'static Strategy {
    static IN_NAMESPACES: Strategy = Strategy { subresources: &[STATUS_ALONE], ..NAMESPACED };
    static OF_THE_CLUSTER: Strategy = Strategy { subresources: &[STATUS_ALONE], ..CLUSTER };
    ALL.iter().find(|s| s.group == group && s.resource == resource).unwrap_or_else(|| {
        let of_the_cluster = |r: &ResourceInfo| r.group == group && r.resource == resource && !r.namespaced;
        if builtin().iter().any(of_the_cluster) { &OF_THE_CLUSTER } else { &IN_NAMESPACES }
    })
}

macro_rules! inert {
    ($kinds:literal) => {
        Some(concat!("this cluster stores ", $kinds, ", but does not act on them yet"))
    };
}

macro_rules! fields {
    ($($path:literal),*) => {
        |schema: &Schema, s: &Struct, out: &mut Vec<Text>| {
            $(out.push(text_at(schema, s, $path));)*
        }
    };
}

fn pod_fields(schema: &Schema, s: &Struct, out: &mut Vec<Text>) {
    let v = View::new(schema, s);
    let (spec, status) = (v.st("spec"), v.st("status"));
    let text = |b: bool| Text::from(if b { "true" } else { "false" });
    out.push(spec.str("nodeName").into());
    out.push(spec.str("restartPolicy").into());
    out.push(spec.str("schedulerName").into());
    out.push(spec.str("serviceAccountName").into());
    out.push(text(spec.bool("hostNetwork")));
    out.push(status.str("phase").into());
    let ip: Text = status.items("podIPs").next().map_or("", |i| i.str("ip")).into();
    out.push(ip.clone());
    // Upstream accepts status.podIPs in selectors, but no object has it.
    out.push(Text::default());
    out.push(status.str("nominatedNodeName").into());
}

static ALL: &[Strategy] = &[
    core::CONFIG_MAP,
    core::ENDPOINTS,
    core::CORE_EVENT,
    core::NEW_EVENT,
    Strategy { no_effect_yet: inert!("LimitRanges"), ..core::LIMIT_RANGE },
    Strategy {
        fields: &["status.phase", "name"],
        field_values: fields!("status.phase", "metadata.name"),
        ..core::NAMESPACE
    },
    core::NODE,
    Strategy { no_effect_yet: inert!("PersistentVolumeClaims"), ..core::PERSISTENT_VOLUME_CLAIM },
    Strategy { no_effect_yet: inert!("PersistentVolumes"), ..core::PERSISTENT_VOLUME },
    Strategy {
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        field_values: pod_fields,
        ..pod::POD
    },
    core::POD_TEMPLATE,
    core::REPLICATION_CONTROLLER,
    Strategy { no_effect_yet: inert!("ResourceQuotas"), ..core::RESOURCE_QUOTA },
    Strategy { fields: &["type"], field_values: fields!("type"), ..core::SECRET },
    core::SERVICE_ACCOUNT,
    core::SERVICE,
    Strategy { no_effect_yet: inert!("APIServices"), ..apiregistration::API_SERVICE },
    apps::CONTROLLER_REVISION,
    Strategy { no_effect_yet: inert!("DaemonSets"), ..apps::DAEMON_SET },
    apps::DEPLOYMENT,
    apps::REPLICA_SET,
    Strategy { no_effect_yet: inert!("StatefulSets"), ..apps::STATEFUL_SET },
    Strategy { no_effect_yet: inert!("HorizontalPodAutoscalers"), ..autoscaling::AUTOSCALER },
    Strategy { no_effect_yet: inert!("CronJobs"), ..batch::CRON_JOB },
    Strategy { no_effect_yet: inert!("Jobs"), ..batch::JOB },
    Strategy { no_effect_yet: inert!("CertificateSigningRequests"), ..certificates::REQUEST },
    // Whoever wants Ingresses installs what acts on them, here as anywhere.
    networking::INGRESS_CLASS,
    networking::INGRESS,
    networking::IP_ADDRESS,
    Strategy { no_effect_yet: inert!("NetworkPolicies"), ..networking::NETWORK_POLICY },
    networking::SERVICE_CIDR,
    policy::BUDGET,
    rbac::CLUSTER_ROLE_BINDING,
    rbac::CLUSTER_ROLE,
    rbac::ROLE_BINDING,
    rbac::ROLE,
    Strategy { no_effect_yet: inert!("CSIDrivers"), ..storage::CSI_DRIVER },
    Strategy { no_effect_yet: inert!("CSINodes"), ..storage::CSI_NODE },
    Strategy { no_effect_yet: inert!("CSIStorageCapacities"), ..storage::CAPACITY },
    Strategy { no_effect_yet: inert!("StorageClasses"), ..storage::STORAGE_CLASS },
    Strategy { no_effect_yet: inert!("VolumeAttachments"), ..storage::ATTACHMENT },
    Strategy { no_effect_yet: inert!("VolumeAttributesClasses"), ..storage::ATTRIBUTES_CLASS },
    Strategy { no_effect_yet: inert!("MutatingAdmissionPolicies"), ..admissionregistration::MUTATING_POLICY },
    Strategy {
        no_effect_yet: inert!("MutatingAdmissionPolicyBindings"),
        ..admissionregistration::MUTATING_BINDING
    },
    Strategy {
        no_effect_yet: inert!("MutatingWebhookConfigurations"),
        ..admissionregistration::MUTATING_WEBHOOK
    },
    Strategy {
        no_effect_yet: inert!("ValidatingAdmissionPolicies"),
        ..admissionregistration::VALIDATING_POLICY
    },
    Strategy {
        no_effect_yet: inert!("ValidatingAdmissionPolicyBindings"),
        ..admissionregistration::VALIDATING_BINDING
    },
    Strategy {
        no_effect_yet: inert!("ValidatingWebhookConfigurations"),
        ..admissionregistration::VALIDATING_WEBHOOK
    },
    Strategy { no_effect_yet: inert!("CustomResourceDefinitions"), ..apiextensions::DEFINITION },
    scheduling::PRIORITY_CLASS,
    Strategy { no_effect_yet: inert!("PodGroups"), ..workloads::POD_GROUP },
    Strategy { no_effect_yet: inert!("Workloads"), ..workloads::WORKLOAD },
    coordination::LEASE,
    Strategy { no_effect_yet: inert!("LeaseCandidates"), ..coordination::LEASE_CANDIDATE },
    Strategy { no_effect_yet: inert!("StorageVersions"), ..storage_versions::STORAGE_VERSION },
    Strategy { no_effect_yet: inert!("StorageVersionMigrations"), ..storage_versions::MIGRATION },
    Strategy { no_effect_yet: inert!("ClusterTrustBundles"), ..certificates::TRUST_BUNDLE },
    Strategy { no_effect_yet: inert!("PodCertificateRequests"), ..certificates::POD_REQUEST },
    node::RUNTIME_CLASS,
    discovery::ENDPOINT_SLICE,
    Strategy { no_effect_yet: inert!("DeviceClasses"), ..resource::DEVICE_CLASS },
    Strategy { no_effect_yet: inert!("ResourceClaims"), ..resource::CLAIM },
    Strategy { no_effect_yet: inert!("ResourceClaimTemplates"), ..resource::CLAIM_TEMPLATE },
    Strategy { no_effect_yet: inert!("ResourceSlices"), ..resource::SLICE },
    Strategy { no_effect_yet: inert!("DeviceTaintRules"), ..resource::TAINT_RULE },
    Strategy { no_effect_yet: inert!("ResourcePoolStatusRequests"), ..resource::POOL_STATUS },
    Strategy { no_effect_yet: inert!("FlowSchemas"), ..flowcontrol::FLOW_SCHEMA },
    Strategy { no_effect_yet: inert!("PriorityLevelConfigurations"), ..flowcontrol::PRIORITY_LEVEL },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_warned_that_nothing_happens() {
        let check = |group: &str, resource: &str, warns: bool| {
            let warning = strategy(group, resource).no_effect_yet;
            assert_eq!(warning.is_some(), warns, "{resource}: {warning:?}");
        };
        // Addresses are given from it, and Pods get its overhead, its nodes and its handler.
        check("networking.k8s.io", "servicecidrs", false);
        check("node.k8s.io", "runtimeclasses", false);
        check("networking.k8s.io", "ingresses", false);
        check("networking.k8s.io", "ingressclasses", false);
        check("apps", "deployments", false);
        check("", "replicationcontrollers", false);
        check("scheduling.k8s.io", "priorityclasses", false);
        check("networking.k8s.io", "networkpolicies", true);
        check("", "resourcequotas", true);
    }
}
