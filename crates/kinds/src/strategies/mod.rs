//! The rules of every built-in resource.

pub(crate) mod claims;
pub mod generic;
pub(crate) mod pod;

use api::{Schema, Struct, Text};

use crate::access::View;
use crate::strategy::Strategy;
use generic::{CLUSTER, NAMESPACED, STATUS, STATUS_ALONE, text_at};

/// The strategy of a resource; one without rules of its own has the generic one.
pub fn strategy(group: &str, resource: &str) -> &'static Strategy {
    static GENERIC: Strategy = NAMESPACED;
    ALL.iter().find(|s| s.group == group && s.resource == resource).unwrap_or(&GENERIC)
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

fn count_at(schema: &Schema, s: &Struct, field: &str) -> Text {
    compact_str::format_compact!("{}", View::new(schema, s).st("status").int(field))
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

fn event_fields(schema: &Schema, s: &Struct, out: &mut Vec<Text>) {
    let v = View::new(schema, s);
    let o = v.st("involvedObject");
    for f in ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"] {
        out.push(o.str(f).into());
    }
    let reporting = v.str("reportingComponent");
    out.push(v.str("reason").into());
    out.push(reporting.into());
    let source = v.st("source").str("component");
    out.push(if source.is_empty() { reporting } else { source }.into());
    out.push(v.str("type").into());
}

const NS_WITH_STATUS: Strategy = Strategy {
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    subresources: &[STATUS],
    ..NAMESPACED
};
const NS_COUNTED: Strategy = Strategy {
    prepare_create: generic::create,
    prepare_update: generic::update,
    subresources: &[STATUS],
    ..NAMESPACED
};
const CLUSTER_COUNTED: Strategy = Strategy {
    prepare_create: generic::create,
    prepare_update: generic::update,
    subresources: &[STATUS_ALONE],
    ..CLUSTER
};
const CLUSTER_WITH_STATUS: Strategy = Strategy {
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    subresources: &[STATUS_ALONE],
    ..CLUSTER
};
/// Counted, without a status.
const CLUSTER_SPEC: Strategy =
    Strategy { prepare_create: generic::first_generation, prepare_update: generic::bump_spec, ..CLUSTER };

static ALL: &[Strategy] = &[
    Strategy { resource: "configmaps", fields: &[], ..NAMESPACED },
    Strategy { resource: "endpoints", create_on_update: true, ..NAMESPACED },
    Strategy {
        resource: "events",
        create_on_update: true,
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        field_values: event_fields,
        ..NAMESPACED
    },
    Strategy {
        resource: "limitranges",
        create_on_update: true,
        no_effect_yet: inert!("LimitRanges"),
        ..NAMESPACED
    },
    Strategy {
        resource: "namespaces",
        fields: &["status.phase", "name"],
        field_values: fields!("status.phase", "metadata.name"),
        subresources: &[STATUS],
        ..CLUSTER
    },
    Strategy {
        resource: "nodes",
        fields: &["spec.unschedulable"],
        field_values: |schema, s, out| {
            let on = View::new(schema, s).st("spec").bool("unschedulable");
            out.push(Text::from(if on { "true" } else { "false" }));
        },
        subresources: &[STATUS],
        ..CLUSTER
    },
    Strategy {
        resource: "persistentvolumeclaims",
        no_effect_yet: inert!("PersistentVolumeClaims"),
        ..NS_WITH_STATUS
    },
    Strategy {
        resource: "persistentvolumes",
        no_effect_yet: inert!("PersistentVolumes"),
        ..CLUSTER_WITH_STATUS
    },
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
    Strategy { resource: "podtemplates", prepare_create: generic::first_generation, ..NAMESPACED },
    Strategy {
        resource: "replicationcontrollers",
        fields: &["status.replicas"],
        field_values: |schema, s, out| out.push(count_at(schema, s, "replicas")),
        ..NS_COUNTED
    },
    Strategy { resource: "resourcequotas", no_effect_yet: inert!("ResourceQuotas"), ..NS_WITH_STATUS },
    Strategy { resource: "secrets", fields: &["type"], field_values: fields!("type"), ..NAMESPACED },
    Strategy { resource: "serviceaccounts", ..NAMESPACED },
    Strategy {
        resource: "services",
        create_on_update: true,
        fields: &["spec.clusterIP", "spec.type"],
        field_values: fields!("spec.clusterIP", "spec.type"),
        ..NS_WITH_STATUS
    },
    Strategy {
        group: "apiregistration.k8s.io",
        resource: "apiservices",
        no_effect_yet: inert!("APIServices"),
        ..CLUSTER_WITH_STATUS
    },
    Strategy { group: "apps", resource: "controllerrevisions", ..NAMESPACED },
    Strategy { group: "apps", resource: "daemonsets", no_effect_yet: inert!("DaemonSets"), ..NS_COUNTED },
    Strategy { group: "apps", resource: "deployments", ..NS_COUNTED },
    Strategy {
        group: "apps",
        resource: "replicasets",
        fields: &["status.replicas"],
        field_values: |schema, s, out| out.push(count_at(schema, s, "replicas")),
        ..NS_COUNTED
    },
    Strategy { group: "apps", resource: "statefulsets", no_effect_yet: inert!("StatefulSets"), ..NS_COUNTED },
    Strategy {
        group: "autoscaling",
        resource: "horizontalpodautoscalers",
        no_effect_yet: inert!("HorizontalPodAutoscalers"),
        ..NS_WITH_STATUS
    },
    Strategy { group: "batch", resource: "cronjobs", no_effect_yet: inert!("CronJobs"), ..NS_COUNTED },
    Strategy {
        group: "batch",
        resource: "jobs",
        fields: &["status.successful"],
        field_values: |schema, s, out| out.push(count_at(schema, s, "succeeded")),
        no_effect_yet: inert!("Jobs"),
        ..NS_COUNTED
    },
    Strategy {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        fields: &["spec.signerName"],
        field_values: fields!("spec.signerName"),
        subresources: &[STATUS, generic::APPROVAL],
        no_effect_yet: inert!("CertificateSigningRequests"),
        ..CLUSTER_WITH_STATUS
    },
    Strategy {
        group: "networking.k8s.io",
        resource: "ingressclasses",
        no_effect_yet: inert!("IngressClasses"),
        ..CLUSTER_SPEC
    },
    Strategy {
        group: "networking.k8s.io",
        resource: "ingresses",
        no_effect_yet: inert!("Ingresses"),
        ..NS_COUNTED
    },
    Strategy { group: "networking.k8s.io", resource: "ipaddresses", ..CLUSTER },
    Strategy {
        group: "networking.k8s.io",
        resource: "networkpolicies",
        prepare_create: generic::first_generation,
        prepare_update: generic::bump_spec,
        no_effect_yet: inert!("NetworkPolicies"),
        ..NAMESPACED
    },
    Strategy {
        group: "networking.k8s.io",
        resource: "servicecidrs",
        no_effect_yet: inert!("ServiceCIDRs"),
        ..CLUSTER_WITH_STATUS
    },
    Strategy {
        group: "policy",
        resource: "poddisruptionbudgets",
        unconditional_update: false,
        no_effect_yet: inert!("PodDisruptionBudgets"),
        ..NS_COUNTED
    },
    Strategy {
        group: "rbac.authorization.k8s.io",
        resource: "clusterrolebindings",
        create_on_update: true,
        ..CLUSTER
    },
    Strategy {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        create_on_update: true,
        ..CLUSTER
    },
    Strategy {
        group: "rbac.authorization.k8s.io",
        resource: "rolebindings",
        create_on_update: true,
        ..NAMESPACED
    },
    Strategy { group: "rbac.authorization.k8s.io", resource: "roles", create_on_update: true, ..NAMESPACED },
    Strategy {
        group: "storage.k8s.io",
        resource: "csidrivers",
        unconditional_update: false,
        no_effect_yet: inert!("CSIDrivers"),
        ..CLUSTER
    },
    Strategy {
        group: "storage.k8s.io",
        resource: "csinodes",
        unconditional_update: false,
        no_effect_yet: inert!("CSINodes"),
        ..CLUSTER
    },
    Strategy {
        group: "storage.k8s.io",
        resource: "csistoragecapacities",
        unconditional_update: false,
        no_effect_yet: inert!("CSIStorageCapacities"),
        ..NAMESPACED
    },
    Strategy {
        group: "storage.k8s.io",
        resource: "storageclasses",
        no_effect_yet: inert!("StorageClasses"),
        ..CLUSTER
    },
    Strategy {
        group: "storage.k8s.io",
        resource: "volumeattachments",
        unconditional_update: false,
        no_effect_yet: inert!("VolumeAttachments"),
        ..CLUSTER_WITH_STATUS
    },
    Strategy {
        group: "storage.k8s.io",
        resource: "volumeattributesclasses",
        no_effect_yet: inert!("VolumeAttributesClasses"),
        ..CLUSTER
    },
    Strategy {
        group: "admissionregistration.k8s.io",
        resource: "mutatingadmissionpolicies",
        unconditional_update: false,
        no_effect_yet: inert!("MutatingAdmissionPolicies"),
        ..CLUSTER_SPEC
    },
    Strategy {
        group: "admissionregistration.k8s.io",
        resource: "mutatingadmissionpolicybindings",
        unconditional_update: false,
        no_effect_yet: inert!("MutatingAdmissionPolicyBindings"),
        ..CLUSTER_SPEC
    },
    Strategy {
        group: "admissionregistration.k8s.io",
        resource: "mutatingwebhookconfigurations",
        unconditional_update: false,
        no_effect_yet: inert!("MutatingWebhookConfigurations"),
        prepare_create: generic::first_generation,
        prepare_update: |c, new, old| generic::bump_if_changed(c, new, old, &["webhooks"]),
        ..CLUSTER
    },
    Strategy {
        group: "admissionregistration.k8s.io",
        resource: "validatingadmissionpolicies",
        unconditional_update: false,
        no_effect_yet: inert!("ValidatingAdmissionPolicies"),
        ..CLUSTER_COUNTED
    },
    Strategy {
        group: "admissionregistration.k8s.io",
        resource: "validatingadmissionpolicybindings",
        unconditional_update: false,
        no_effect_yet: inert!("ValidatingAdmissionPolicyBindings"),
        ..CLUSTER_SPEC
    },
    Strategy {
        group: "admissionregistration.k8s.io",
        resource: "validatingwebhookconfigurations",
        unconditional_update: false,
        no_effect_yet: inert!("ValidatingWebhookConfigurations"),
        prepare_create: generic::first_generation,
        prepare_update: |c, new, old| generic::bump_if_changed(c, new, old, &["webhooks"]),
        ..CLUSTER
    },
    Strategy {
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        unconditional_update: false,
        no_effect_yet: inert!("CustomResourceDefinitions"),
        ..CLUSTER_COUNTED
    },
    Strategy {
        group: "scheduling.k8s.io",
        resource: "priorityclasses",
        prepare_create: generic::first_generation,
        ..CLUSTER
    },
    Strategy {
        group: "coordination.k8s.io",
        resource: "leases",
        create_on_update: true,
        unconditional_update: false,
        ..NAMESPACED
    },
    Strategy {
        group: "node.k8s.io",
        resource: "runtimeclasses",
        create_on_update: true,
        unconditional_update: false,
        no_effect_yet: inert!("RuntimeClasses"),
        ..CLUSTER
    },
    Strategy {
        group: "discovery.k8s.io",
        resource: "endpointslices",
        prepare_create: generic::first_generation,
        prepare_update: |c, new, old| {
            generic::bump_if_changed(c, new, old, &["addressType", "endpoints", "ports"])
        },
        ..NAMESPACED
    },
    Strategy {
        group: "resource.k8s.io",
        resource: "deviceclasses",
        no_effect_yet: inert!("DeviceClasses"),
        ..CLUSTER_SPEC
    },
    Strategy {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        no_effect_yet: inert!("ResourceClaims"),
        ..NS_WITH_STATUS
    },
    Strategy {
        group: "resource.k8s.io",
        resource: "resourceclaimtemplates",
        no_effect_yet: inert!("ResourceClaimTemplates"),
        ..NAMESPACED
    },
    Strategy {
        group: "resource.k8s.io",
        resource: "resourceslices",
        fields: &["spec.nodeName", "spec.driver"],
        field_values: fields!("spec.nodeName", "spec.driver"),
        no_effect_yet: inert!("ResourceSlices"),
        ..CLUSTER_SPEC
    },
    Strategy {
        group: "flowcontrol.apiserver.k8s.io",
        resource: "flowschemas",
        no_effect_yet: inert!("FlowSchemas"),
        ..CLUSTER_COUNTED
    },
    Strategy {
        group: "flowcontrol.apiserver.k8s.io",
        resource: "prioritylevelconfigurations",
        no_effect_yet: inert!("PriorityLevelConfigurations"),
        ..CLUSTER_COUNTED
    },
];
