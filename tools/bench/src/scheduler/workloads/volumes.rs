//! Pods with volumes (upstream's `volumes`).

use serde_json::{Value, json};

use super::misc::{high, low};
use super::objects::{node, pod, with};
use super::{Step, Workload};

const DRIVER: &str = "ebs.csi.aws.com";

fn with_secret(name: &str, i: usize) -> Value {
    let volumes = json!([{"name": "secret", "secret": {"secretName": "secret"}}]);
    with(pod("default", &format!("{name}-{i}")), "spec/volumes", volumes)
}

/// A Pod with the claim of its number.
pub(super) fn with_claim(pod: Value, claim: &str) -> Value {
    with(pod, "spec/volumes", json!([{"name": "vol", "persistentVolumeClaim": {"claimName": claim}}]))
}

fn claiming(name: &str, i: usize) -> Value {
    with_claim(pod("default", &format!("{name}-{i}")), &format!("pvc-{name}-{i}"))
}

/// A claim that has its volume.
pub(super) fn claim(namespace: &str, name: &str, volume: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name, "namespace": namespace, "annotations": {"pv.kubernetes.io/bind-completed": "true"},
        },
        "spec": {
            "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume,
            "storageClassName": "",
        },
        "status": {"phase": "Bound"},
    })
}

/// A volume that has its claim.
pub(super) fn volume(
    name: &str,
    [namespace, claim]: [&str; 2],
    mode: &str,
    source: &str,
    what: Value,
) -> Value {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": [mode], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
        },
        "status": {"phase": "Bound"},
    });
    volume["spec"][source] = what;
    volume
}

/// The source of a volume of a CSI driver.
pub(super) fn csi(handle: &str) -> Value {
    json!({"driver": DRIVER, "volumeHandle": handle})
}

const SHARED: &str = "ReadOnlyMany";

fn its_claim(name: &str, i: usize) -> Value {
    claim("default", &format!("pvc-{name}-{i}"), &format!("pv-{name}-{i}"), SHARED)
}

fn its_ebs(name: &str, i: usize) -> Value {
    let of = format!("pvc-{name}-{i}");
    let what = json!({"volumeID": format!("vol-{name}-{i}")});
    volume(&format!("pv-{name}-{i}"), ["default", &of], SHARED, "awsElasticBlockStore", what)
}

fn its_csi(name: &str, i: usize) -> Value {
    let (of, handle) = (format!("pvc-{name}-{i}"), format!("vol-{name}-{i}"));
    volume(&format!("pv-{name}-{i}"), ["default", &of], SHARED, "csi", csi(&handle))
}

fn with_ebs(name: &str, i: usize) -> Value {
    json!([its_claim(name, i), its_ebs(name, i), claiming(name, i)])
}

fn with_csi(name: &str, i: usize) -> Value {
    json!([its_claim(name, i), its_csi(name, i), claiming(name, i)])
}

/// The volumes that a node takes of the driver.
pub(super) fn csi_node(i: usize, count: u32, migrated: &str) -> Value {
    let name = format!("scheduler-perf-{i}");
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": name, "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated}},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "allocatable": {"count": count}, "topologyKeys": null}]},
    })
}

fn important(i: usize) -> Value {
    with_claim(high(i), &format!("pvc-high-{i}"))
}

pub(super) const ALL: &[Workload] = &[
    Workload::new(
        "SchedulingSecrets/5000Nodes_10000Pods",
        &[
            Step::Make(5000, node),
            Step::Place(1000, |i| with_secret("before", i)),
            Step::Measure,
            Step::Place(10_000, |i| with_secret("measured", i)),
        ],
    )
    .floor(260),
    Workload::new(
        "SchedulingInTreePVs/5000Nodes_2000Pods",
        &[
            Step::Make(5000, node),
            Step::Place(1000, |i| with_ebs("before", i)),
            Step::Measure,
            Step::Place(2000, |i| with_ebs("measured", i)),
        ],
    )
    .floor(90),
    Workload::new(
        "SchedulingMigratedInTreePVs/5000Nodes_5000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(5000, |i| csi_node(i, 39, "kubernetes.io/aws-ebs")),
            Step::Place(5000, |i| with_ebs("before", i)),
            Step::Measure,
            Step::Place(5000, |i| with_ebs("measured", i)),
        ],
    )
    .floor(35),
    Workload::new(
        "SchedulingCSIPVs/5000Nodes_5000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(5000, |i| csi_node(i, 39, "")),
            Step::Place(5000, |i| with_csi("before", i)),
            Step::Measure,
            Step::Place(5000, |i| with_csi("measured", i)),
        ],
    )
    .floor(48),
    Workload::new(
        "PreemptionPVs/1000Nodes",
        &[
            Step::Make(1000, node),
            Step::Place(4000, low),
            Step::Measure,
            Step::Place(1000, |i| json!([its_claim("high", i), its_ebs("high", i), important(i)])),
        ],
    ),
];
