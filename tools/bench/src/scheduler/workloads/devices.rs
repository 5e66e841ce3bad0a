//! Pods with claims on devices (upstream's `dra`).

use serde_json::{Value, json};

use super::objects::{asking, light, marked, namespace, node_for, with};
use super::{Step, Workload};
use std::time::Duration;

const API: &str = "resource.k8s.io/v1";
const DRIVER: &str = "test-driver.cdi.k8s.io";
const CLASS: &str = "test-class";
/// The time of workloads that stay as they are.
const WHILE: Duration = Duration::from_secs(10);
/// The nodes with devices.
const NODES: usize = 500;

fn node(i: usize) -> Value {
    marked(node_for(&format!("scheduler-perf-dra-{i}"), 110), json!({"node-with-dra": "true"}), &[])
}

fn space(i: usize) -> Value {
    namespace(["init", "test"][i % 2], &json!({}))
}

/// The devices of a node: so many of one model.
fn devices(node: usize, count: usize) -> Value {
    let name = format!("scheduler-perf-dra-{node}");
    let device = |i: usize| {
        json!({
            "name": format!("instance-{i}"),
            "attributes": {
                "model": {"string": "A100"}, "family": {"string": "GPU"}, "driverVersion": {"version": "1.2.3"},
                "dra.example.com/numa": {"int": i},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        })
    };
    let devices: Vec<Value> = (0..count).map(device).collect();
    json!({
        "apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {
            "driver": DRIVER, "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 0, "resourceSliceCount": 1},
        },
    })
}

fn ten_devices(i: usize) -> Value {
    devices(i, 10)
}

fn two_devices(i: usize) -> Value {
    devices(i, 2)
}

/// Devices that any node with devices can use, in a slice of its own pool.
fn everywhere(i: usize, slice: &str, slices: u32, of: &str, what: Value) -> Value {
    let expression = json!({"key": "node-with-dra", "operator": "In", "values": ["true"]});
    let pool = json!({"name": format!("resourceslice-{i}"), "generation": 1, "resourceSliceCount": slices});
    let mut all = json!({
        "apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": format!("{slice}-{i}")},
        "spec": {
            "driver": DRIVER, "pool": pool,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]},
        },
    });
    all["spec"][of] = what;
    all
}

fn shareable(i: usize) -> Value {
    let policy = json!({"default": "1Gi", "validRange": {"min": "1Gi"}});
    let device = json!({
        "name": "shareable-device", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
    });
    everywhere(i, "resourceslice", 1, "devices", json!([device]))
}

fn counters(i: usize) -> Value {
    let one = json!({"value": "1"});
    let set = json!({"name": "counter-set", "counters": {
        "counter1": one, "counter2": one, "counter3": one, "counter4": one,
    }});
    everywhere(i, "resourceslice-countersets", 2, "sharedCounters", json!([set]))
}

/// Two devices of two counters each, and four of one.
fn parts(i: usize) -> Value {
    let device = |name: &str, of: &[u32], first: bool| {
        let counters: serde_json::Map<String, Value> =
            of.iter().map(|c| (format!("counter{c}"), json!({"value": "1"}))).collect();
        json!({
            "name": name,
            "attributes": {"preallocate": {"bool": first}, "dra.example.com/slice": {"int": i}},
            "capacity": {"counters": {"value": of.len().to_string()}},
            "consumesCounters": [{"counterSet": "counter-set", "counters": counters}],
        })
    };
    let devices = json!([
        device(HALF, &[1, 2], true),
        device("device-2-counters-2", &[3, 4], false),
        device("device-1-counter-1", &[1], false),
        device("device-1-counter-2", &[2], false),
        device("device-1-counter-3", &[3], false),
        device("device-1-counter-4", &[4], false),
    ]);
    everywhere(i, "resourceslice-devices", 2, "devices", devices)
}

const HALF: &str = "device-2-counters-1";

/// A class of all devices of the driver.
fn class_of(name: &str, more: &str) -> Value {
    let expression = format!("device.driver == \"{DRIVER}\"{more}");
    json!({
        "apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

fn class(_: usize) -> Value {
    class_of(CLASS, "")
}

fn shareable_class(_: usize) -> Value {
    class_of(CLASS, " && device.allowMultipleAllocations == true")
}

fn numbered_class(i: usize) -> Value {
    class_of(&format!("{CLASS}-{i}"), "")
}

fn named_class(i: usize) -> Value {
    with(numbered_class(i), "spec/extendedResourceName", json!(format!("example.com/gpu-{i}")))
}

fn template_of(namespace: &str, devices: &Value) -> Value {
    json!({
        "apiVersion": API, "kind": "ResourceClaimTemplate",
        "metadata": {"name": "test-claim-template", "namespace": namespace},
        "spec": {"spec": {"devices": devices}},
    })
}

fn one() -> Value {
    json!({"requests": [{"name": "req-0", "exactly": {"deviceClassName": CLASS}}]})
}

fn template(i: usize) -> Value {
    template_of(["init", "test"][i % 2], &one())
}

fn template_of_memory(_: usize) -> Value {
    let request = |name: &str| {
        let capacity = json!({"requests": {"memory": "40Gi"}});
        json!({"name": name, "exactly": {"deviceClassName": CLASS, "capacity": capacity}})
    };
    template_of("test", &json!({"requests": [request("req-0"), request("req-1")]}))
}

fn template_of_two(_: usize) -> Value {
    template_of(
        "test",
        &json!({
            "requests": [{"name": "req-0", "exactly": {"deviceClassName": CLASS, "count": 2}}],
            "constraints": [{"requests": ["req-0"], "matchAttribute": "dra.example.com/slice"}],
        }),
    )
}

fn claim(namespace: &str, i: usize) -> Value {
    json!({
        "apiVersion": API, "kind": "ResourceClaim",
        "metadata": {"name": format!("test-claim-{i}"), "namespace": namespace}, "spec": {"devices": one()},
    })
}

fn allocated(claim: Value, pool: &str, device: &str, nodes: Value) -> Value {
    let result = json!({"request": "req-0", "driver": DRIVER, "pool": pool, "device": device});
    let selector = json!({"nodeSelectorTerms": [nodes]});
    with(claim, "status/allocation", json!({"devices": {"results": [result]}, "nodeSelector": selector}))
}

/// A claim that has a device, on each node in turn.
fn allocated_claim(i: usize) -> Value {
    let node = format!("scheduler-perf-dra-{}", i % NODES);
    let nodes = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    allocated(claim("init", i), &node, &format!("instance-{}", i / NODES), nodes)
}

/// A claim that has half of the counters of the slice of its number.
fn half_claim(i: usize) -> Value {
    let nodes = json!({"matchExpressions": [{"key": "node-with-dra", "operator": "In", "values": ["true"]}]});
    allocated(claim("init", i), &format!("resourceslice-{i}"), HALF, nodes)
}

fn claiming(namespace: &str, i: usize, field: &str, value: String) -> Value {
    let pod = light(namespace, &format!("test-dra-{i}"));
    let container = json!({
        "name": "pause", "image": "registry.k8s.io/pause:3.10.1", "resources": {"claims": [{"name": "resource"}]},
    });
    let pod = with(pod, "spec/containers", json!([container]));
    with(pod, "spec/resourceClaims", json!([{"name": "resource", field: value}]))
}

fn by_template(namespace: &str, i: usize) -> Value {
    claiming(namespace, i, "resourceClaimTemplateName", "test-claim-template".to_owned())
}

fn in_test(i: usize) -> Value {
    by_template("test", i)
}

/// Five Pods share a claim.
fn sharing(namespace: &str, i: usize) -> Value {
    claiming(namespace, i, "resourceClaimName", format!("test-claim-{}", i / 5))
}

fn extended(namespace: &str, i: usize, resource: &str) -> Value {
    asking(namespace, &format!("test-dra-{i}"), &json!({resource: "1"}))
}

fn named(namespace: &str, i: usize, classes: usize) -> Value {
    extended(namespace, i, &format!("example.com/gpu-{}", i % classes))
}

fn implicit(namespace: &str, i: usize) -> Value {
    extended(namespace, i, &format!("deviceclass.resource.kubernetes.io/{CLASS}-{}", i % 25))
}

pub(super) const ALL: &[Workload] = &[
    Workload::new(
        "SchedulingWithResourceClaimTemplate/5000pods_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(1, class),
            Step::Make(2, space),
            Step::Make(2, template),
            Step::Place(2500, |i| by_template("init", i)),
            Step::Measure,
            Step::Place(2500, in_test),
        ],
    )
    .with_claims()
    .floor(56),
    Workload::new(
        "SteadyStateClusterResourceClaimTemplate/empty_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(1, class),
            Step::Make(2, space),
            Step::Make(2, template),
            Step::Measure,
            Step::Steady(WHILE, 10, in_test),
        ],
    )
    .with_claims()
    .floor(64),
    Workload::new(
        "SteadyStateClusterResourceClaimTemplate/half_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(1, class),
            Step::Make(2, space),
            Step::Make(2500, allocated_claim),
            Step::Make(2, template),
            Step::Measure,
            Step::Steady(WHILE, 10, in_test),
        ],
    )
    .with_claims()
    .floor(60),
    Workload::new(
        "SteadyStateClusterResourceClaimTemplate/full_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(1, class),
            Step::Make(2, space),
            Step::Make(4990, allocated_claim),
            Step::Make(2, template),
            Step::Measure,
            Step::Steady(WHILE, 10, in_test),
        ],
    )
    .with_claims()
    .floor(60),
    Workload::new(
        "SchedulingWithResourceClaim/5000pods_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, two_devices),
            Step::Make(1, class),
            Step::Make(2, space),
            Step::Make(500, |i| claim("init", i)),
            Step::Place(2500, |i| sharing("init", i)),
            Step::Make(500, |i| claim("test", i)),
            Step::Measure,
            Step::Place(2500, |i| sharing("test", i)),
        ],
    )
    .with_claims(),
    Workload::new(
        "ExtendedResource_25Classes/5000pods_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(25, named_class),
            Step::Make(2, space),
            Step::Place(2500, |i| named("init", i, 25)),
            Step::Measure,
            Step::Place(2500, |i| named("test", i, 25)),
        ],
    )
    .with_claims(),
    Workload::new(
        "ExtendedResource_50Classes/5000pods_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(50, named_class),
            Step::Make(2, space),
            Step::Place(2500, |i| named("init", i, 50)),
            Step::Measure,
            Step::Place(2500, |i| named("test", i, 50)),
        ],
    )
    .with_claims(),
    Workload::new(
        "ImplicitExtendedResource_25Classes/5000pods_500nodes",
        &[
            Step::Make(NODES, node),
            Step::Make(NODES, ten_devices),
            Step::Make(25, numbered_class),
            Step::Make(2, space),
            Step::Place(2500, |i| implicit("init", i)),
            Step::Measure,
            Step::Place(2500, |i| implicit("test", i)),
        ],
    )
    .with_claims(),
    Workload::new(
        "ConsumableCapacity/2000pods_100nodes",
        &[
            Step::Make(100, node),
            Step::Make(100, |i| devices(i, 20)),
            Step::Make(2000, shareable),
            Step::Make(1, shareable_class),
            Step::Make(2, space),
            Step::Make(1, template_of_memory),
            Step::Measure,
            Step::Steady(WHILE, 2000, in_test),
        ],
    )
    .with_claims(),
    Workload::new(
        "Partitionable/2000pods_100nodes",
        &[
            Step::Make(100, node),
            Step::Make(2000, counters),
            Step::Make(2000, parts),
            Step::Make(1, class),
            Step::Make(2, space),
            Step::Make(2000, half_claim),
            Step::Make(1, template_of_two),
            Step::Measure,
            Step::Steady(WHILE, 2000, in_test),
        ],
    )
    .with_claims(),
];
