//! The Node object as this kubelet reports it; pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSwapStatus, NodeSystemInfo,
    Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use objects::features;
use serde_json::{Map, Value};

use super::machine::{Filesystem, Machine};
use super::options::Options;
use crate::config::Config;
pub use crate::device_manager::Offer;
use crate::eviction::Signal;

/// The most names of an image.
const MAX_NAMES: usize = 5;

const READY: &str = "Ready";
/// The annotation of a node whose volumes the controller manager attaches; upstream's.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// The annotation by which an external cloud provider learns which addresses the node is to have; upstream's.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
/// The labels of a Node that is there already which this kubelet has a word on; upstream's list.
const OWN_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// An image of the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Digests first, then tags.
    pub names: Vec<String>,
    /// Size in bytes.
    pub size: u64,
}

/// The state of the runtime, as the runtime tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeState {
    /// `name://version`.
    pub version: String,
    /// Why it cannot run Pods; empty if it can.
    pub errors: Vec<String>,
    /// Its handlers: name, recursive read-only mounts, user namespaces.
    pub handlers: Vec<(String, bool, bool)>,
    /// Whether it knows supplemental groups policies; none if it does not say.
    pub supplemental_groups_policy: Option<bool>,
    /// Whether it gives users of their own to Pods in the node's network.
    pub host_network_users: bool,
    /// Its images; none before it was asked.
    pub images: Option<Vec<Image>>,
}

/// The things that the node is short of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressures {
    /// `MemoryPressure`.
    pub memory: bool,
    /// `DiskPressure`.
    pub disk: bool,
    /// `PIDPressure`.
    pub pids: bool,
}

/// Everything a status is made of.
#[derive(Debug, Clone)]
pub struct Observation {
    /// When.
    pub now: Timestamp,
    /// The machine.
    pub machine: Machine,
    /// The file system of the kubelet's directory.
    pub nodefs: Option<Filesystem>,
    /// Pressures to report.
    pub pressures: Pressures,
    /// The runtime.
    pub runtime: RuntimeState,
    /// The node's addresses, the primary one first.
    pub addresses: Vec<String>,
    /// How many Pods it takes.
    pub max_pods: u32,
    /// The volumes that its Pods use, of those that are attached to nodes.
    pub volumes_in_use: Vec<String>,
    /// The devices that plugins offer.
    pub devices: Offer,
}

/// A bytes quantity as Go's canonical form of a binary one.
pub(crate) fn binary(bytes: u64) -> Quantity {
    let mut value = bytes;
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi"] {
        if value == 0 || !value.is_multiple_of(1024) {
            break;
        }
        value /= 1024;
        suffix = next;
    }
    Quantity(format!("{value}{suffix}"))
}

/// The Node to register.
pub fn initial(name: &str, options: &Options, machine: &Machine) -> Node {
    let hostname = options.hostname.clone().unwrap_or_else(|| name.to_owned());
    let mut labels: BTreeMap<String, String> = [
        ("beta.kubernetes.io/arch", machine.architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", machine.architecture),
        ("kubernetes.io/hostname", hostname.as_str()),
        ("kubernetes.io/os", "linux"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect();
    labels.extend(options.labels.clone());
    let annotations = options.controller_attaches.then(|| [(MANAGED.to_owned(), "true".to_owned())].into());
    let mut taints = options.taints.clone();
    if options.external_cloud {
        // The cloud provider takes it away once it has told the machine's addresses.
        taints.push(Taint {
            key: "node.cloudprovider.kubernetes.io/uninitialized".into(),
            value: Some("true".into()),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
    }
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations,
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(taints).filter(|taints| !taints.is_empty()),
            provider_id: options.provider_id.clone(),
            ..NodeSpec::default()
        }),
        status: None,
    }
}

/// The status for an observation, given the one that the Node has: what others put there stays.
pub fn status(name: &str, config: &Config, o: &Observation, old: &NodeStatus) -> NodeStatus {
    let options = &config.node;
    let capacity = with_others(capacity(config, o), old);
    let allocatable = allocatable(config, o, &capacity, old);
    let hostname = options.hostname.clone().unwrap_or_else(|| name.to_owned());
    // A cloud provider's word counts more; until it is there, only addresses that were asked for are told.
    let told = old.addresses.clone().filter(|all| options.external_cloud && !all.is_empty());
    let own = o.addresses.iter().filter(|_| !options.external_cloud || options.own_addresses);
    let addresses = told.unwrap_or_else(|| {
        own.map(|ip| NodeAddress { type_: "InternalIP".into(), address: ip.clone() })
            .chain([NodeAddress { type_: "Hostname".into(), address: hostname }])
            .collect()
    });
    let machine = &o.machine;
    let policy = o.runtime.supplemental_groups_policy;
    NodeStatus {
        capacity: Some(capacity),
        allocatable: Some(allocatable),
        addresses: Some(addresses),
        conditions: Some(conditions(
            o,
            old.conditions.as_deref().unwrap_or_default(),
            config.eviction.local_storage,
        )),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(options.port) }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: machine.architecture.to_owned(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: o.runtime.version.clone(),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: component::version::told().to_owned(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            swap: (machine.swap > 0).then_some(NodeSwapStatus { capacity: Some(machine.swap as i64) }),
            system_uuid: machine.system_uuid.clone(),
        }),
        images: match &o.runtime.images {
            Some(all) => Some(images(all, options.max_images)).filter(|images| !images.is_empty()),
            None => old.images.clone(),
        },
        runtime_handlers: (!o.runtime.handlers.is_empty()).then(|| {
            let handler = |(name, read_only, namespaces): &(String, bool, bool)| NodeRuntimeHandler {
                name: Some(name.clone()),
                features: Some(NodeRuntimeHandlerFeatures {
                    recursive_read_only_mounts: Some(*read_only),
                    user_namespaces: Some(*namespaces),
                }),
            };
            o.runtime.handlers.iter().map(handler).collect()
        }),
        features: match policy {
            Some(policy) => Some(NodeFeatures { supplemental_groups_policy: Some(policy) }),
            None => old.features.clone(),
        },
        volumes_in_use: Some(o.volumes_in_use.clone()).filter(|all| !all.is_empty()),
        declared_features: match features::offered(config.gates, o.runtime.host_network_users) {
            Some(all) => {
                Some(all.into_iter().map(str::to_owned).collect::<Vec<_>>()).filter(|a| !a.is_empty())
            }
            None => old.declared_features.clone(),
        },
        ..old.clone()
    }
}

/// Own resources beside those that others put into the Node's capacity.
fn with_others(own: BTreeMap<String, Quantity>, old: &NodeStatus) -> BTreeMap<String, Quantity> {
    let others = old.capacity.iter().flatten().filter(|(name, _)| {
        // Sizes of pages that the machine does not have any more go.
        !name.starts_with("hugepages-") && !own.contains_key(*name)
    });
    let others: Vec<_> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    own.into_iter().chain(others).collect()
}

/// Whether a resource is neither Kubernetes' own nor a quota's name; upstream's rule.
pub(crate) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// Processors in thousandths, as Kubernetes writes them.
pub(crate) fn processors(milli: u64) -> Quantity {
    Quantity(if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") })
}

fn hugepage_name(size: u64) -> String {
    format!("hugepages-{}", binary(size).0)
}

fn capacity(config: &Config, o: &Observation) -> BTreeMap<String, Quantity> {
    let mut all = BTreeMap::from([
        ("cpu".to_owned(), processors(o.machine.milli_cpus)),
        ("memory".to_owned(), binary(o.machine.memory)),
        ("pods".to_owned(), Quantity(o.max_pods.to_string())),
    ]);
    if let Some(fs) = o.nodefs.filter(|_| config.eviction.local_storage) {
        all.insert("ephemeral-storage".to_owned(), binary(fs.capacity));
    }
    all.extend(o.machine.hugepages.iter().map(|(size, bytes)| (hugepage_name(*size), binary(*bytes))));
    all.extend(counts(&o.devices.capacity));
    // A resource whose plugin is gone stays, so that it is seen that there was one.
    all.extend(o.devices.removed.iter().map(|name| (name.clone(), Quantity("0".into()))));
    all
}

fn counts(devices: &BTreeMap<String, usize>) -> impl Iterator<Item = (String, Quantity)> {
    devices.iter().map(|(name, count)| (name.clone(), Quantity(count.to_string())))
}

/// Capacity without what the thresholds keep free; huge pages are not available as memory.
fn allocatable(
    config: &Config,
    o: &Observation,
    capacity: &BTreeMap<String, Quantity>,
    old: &NodeStatus,
) -> BTreeMap<String, Quantity> {
    let mut all = old.allocatable.clone().unwrap_or_default();
    all.retain(|name, _| {
        capacity.contains_key(name) || !(is_extended(name) || name.starts_with("hugepages-"))
    });
    // Others may put resources into the capacity; less than none of one cannot be given.
    let given = |amount: &Quantity| {
        if objects::quantity::value(Some(amount)) < 0 { Quantity("0".into()) } else { amount.clone() }
    };
    all.extend(capacity.iter().map(|(name, amount)| (name.clone(), given(amount))));
    let hugepages: u64 = o.machine.hugepages.values().sum();
    let own = config.node.reserved;
    all.insert("cpu".to_owned(), processors(o.machine.milli_cpus.saturating_sub(own.milli_cpus)));
    let reserved = config.kept_for_evictions(Signal::Memory, o.machine.memory).saturating_add(own.memory);
    all.insert(
        "memory".to_owned(),
        binary(o.machine.memory.saturating_sub(reserved).saturating_sub(hugepages)),
    );
    if let Some(fs) = o.nodefs.filter(|_| config.eviction.local_storage) {
        let reserved = config.kept_for_evictions(Signal::NodeFs, fs.capacity).saturating_add(own.storage);
        all.insert("ephemeral-storage".to_owned(), binary(fs.capacity.saturating_sub(reserved)));
    }
    all.extend(counts(&o.devices.allocatable));
    all
}

/// The largest images, and the first names of each.
fn images(all: &[Image], most: Option<usize>) -> Vec<ContainerImage> {
    let mut all: Vec<&Image> = all.iter().collect();
    all.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.names.cmp(&b.names)));
    all.iter()
        .take(most.unwrap_or(usize::MAX))
        .map(|image| ContainerImage {
            names: Some(image.names.iter().take(MAX_NAMES).cloned().collect()),
            size_bytes: Some(image.size as i64),
        })
        .collect()
}

/// The Node's conditions with this kubelet's own, Ready last if it is new. A node that gives storage to Pods must know how
/// much it has.
fn conditions(o: &Observation, old: &[NodeCondition], gives_storage: bool) -> Vec<NodeCondition> {
    let pressure = |kind: &str, on: bool, yes: (&str, &str), no: (&str, &str)| {
        let (status, (reason, message)) = if on { ("True", yes) } else { ("False", no) };
        condition(o.now, old, kind, status, reason, message)
    };
    let mut all = vec![
        pressure(
            "MemoryPressure",
            o.pressures.memory,
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        pressure(
            "DiskPressure",
            o.pressures.disk,
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        pressure(
            "PIDPressure",
            o.pressures.pids,
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
    ];
    let mut errors = o.runtime.errors.clone();
    if o.nodefs.is_none() && gives_storage {
        errors.push("missing node capacity for resources: ephemeral-storage".into());
    }
    all.push(match errors.as_slice() {
        [] => condition(o.now, old, READY, "True", "KubeletReady", "kubelet is posting ready status"),
        [one] => condition(o.now, old, READY, "False", "KubeletNotReady", one),
        many => condition(o.now, old, READY, "False", "KubeletNotReady", &format!("[{}]", many.join(", "))),
    });
    let mut merged = old.to_vec();
    for own in all {
        match merged.iter_mut().find(|c| c.type_ == own.type_) {
            Some(there) => *there = own,
            None => merged.push(own),
        }
    }
    merged
}

fn condition(
    now: Timestamp,
    old: &[NodeCondition],
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> NodeCondition {
    let since = old
        .iter()
        .find(|c| c.type_ == kind && c.status == status)
        .and_then(|c| c.last_transition_time.clone())
        .unwrap_or(Time(now));
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(since),
    }
}

/// The reasons of the events for what changed between two states of the conditions.
pub fn events(old: &[NodeCondition], new: &[NodeCondition]) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for c in new {
        let before = old.iter().find(|o| o.type_ == c.type_);
        if before.is_some_and(|b| b.status == c.status) {
            continue;
        }
        let reason = match (c.type_.as_str(), c.status.as_str()) {
            ("MemoryPressure", "True") => "NodeHasInsufficientMemory",
            ("MemoryPressure", _) => "NodeHasSufficientMemory",
            ("DiskPressure", "True") => "NodeHasDiskPressure",
            ("DiskPressure", _) => "NodeHasNoDiskPressure",
            ("PIDPressure", "True") => "NodeHasInsufficientPID",
            ("PIDPressure", _) => "NodeHasSufficientPID",
            // The first Ready is no change.
            (READY, _) if before.is_none() => continue,
            (READY, "True") => "NodeReady",
            (READY, _) => "NodeNotReady",
            _ => continue,
        };
        reasons.push(reason);
    }
    reasons
}

/// Whether two statuses differ in more than their heartbeats. An empty field counts as an absent one.
pub fn differ(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for c in status.conditions.iter_mut().flatten() {
            c.last_heartbeat_time = None;
        }
        // Their order does not matter.
        if let Some(conditions) = &mut status.conditions {
            conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        }
        serde_json::to_value(status).ok().and_then(filled)
    };
    still(a) != still(b)
}

/// A value without what is empty in it.
fn filled(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().filter_map(filled).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(fields) => {
            let fields: Map<String, Value> =
                fields.into_iter().filter_map(|(key, value)| Some((key, filled(value)?))).collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        other => Some(other),
    }
}

/// The labels that a Node must always have and this one has not.
pub fn required_labels(node: &Node, machine: &Machine) -> BTreeMap<&'static str, &'static str> {
    let labels = node.metadata.labels.as_ref();
    [("kubernetes.io/os", "linux"), ("kubernetes.io/arch", machine.architecture)]
        .into_iter()
        .filter(|(key, value)| labels.and_then(|l| l.get(*key)).is_none_or(|v| v != value))
        .collect()
}

/// The change of a registered Node's annotations by which it says who attaches volumes: none if it says so already.
pub fn managed_attach(wanted: &Node, found: &Node) -> BTreeMap<&'static str, Option<String>> {
    let told = |node: &Node| node.metadata.annotations.as_ref().and_then(|all| all.get(MANAGED)).cloned();
    let wanted = told(wanted);
    if wanted == told(found) { BTreeMap::new() } else { BTreeMap::from([(MANAGED, wanted)]) }
}

/// The change of a registered Node's labels: of those that this kubelet has a word on. An empty label goes.
pub fn changed_labels(wanted: &Node, found: &Node) -> BTreeMap<&'static str, Option<String>> {
    let of = |node: &Node, label: &str| node.metadata.labels.as_ref().and_then(|all| all.get(label)).cloned();
    let changed = |label: &'static str| {
        let wanted = of(wanted, label)?;
        let same = wanted == of(found, label).unwrap_or_default();
        (!same).then(|| (label, Some(wanted).filter(|value| !value.is_empty())))
    };
    OWN_LABELS.into_iter().filter_map(changed).collect()
}

/// The change of a Node's annotations by which a cloud provider learns its addresses, `addresses` being the node's: none if
/// it is right.
///
/// DIFFERENCE: where `0.0.0.0` or `::` is asked for, the address that was found is told, too; upstream tells none.
pub fn provided_addresses(
    options: &Options,
    addresses: &[String],
    node: &Node,
) -> BTreeMap<&'static str, Option<String>> {
    let told = node.metadata.annotations.as_ref().and_then(|all| all.get(PROVIDED)).cloned();
    let wanted = (options.external_cloud && options.own_addresses).then(|| addresses.join(","));
    if wanted == told { BTreeMap::new() } else { BTreeMap::from([(PROVIDED, wanted)]) }
}

/// The extended resources of a registered Node, of which it has none until somebody offers them.
pub fn zeroed(found: &Node) -> BTreeMap<String, Quantity> {
    let capacity = found.status.iter().flat_map(|s| s.capacity.iter().flatten());
    let extended = capacity.filter(|(name, _)| is_extended(name));
    extended.map(|(name, _)| (name.clone(), Quantity("0".into()))).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::options::Reserved;
    use super::*;

    fn observation() -> Observation {
        Observation {
            now: "2024-01-01T00:00:00Z".parse().unwrap(),
            machine: Machine {
                milli_cpus: 2000,
                memory: 4 << 30,
                hugepages: [(2 << 20, 0), (1 << 30, 1 << 30)].into(),
                architecture: "amd64",
                ..Machine::default()
            },
            nodefs: Some(Filesystem { capacity: 10_000 * 1024, ..Filesystem::default() }),
            pressures: Pressures::default(),
            runtime: RuntimeState { version: "containerd://2.1.4".into(), ..RuntimeState::default() },
            addresses: vec!["10.0.0.1".into()],
            max_pods: 110,
            volumes_in_use: Vec::new(),
            devices: Offer::default(),
        }
    }

    fn of(o: &Observation, old: &NodeStatus) -> NodeStatus {
        status("n", &Config::new("n"), o, old)
    }

    #[test]
    fn quantities() {
        let check = |bytes: u64, text: &str| assert_eq!(binary(bytes).0, text);
        check(0, "0");
        check(1000, "1000");
        check(1024, "1Ki");
        check(16_393_244 * 1024, "16393244Ki");
        check(2 << 30, "2Gi");
    }

    #[test]
    fn resources() {
        let status = of(&observation(), &NodeStatus::default());
        let get = |map: &Option<BTreeMap<String, Quantity>>, key: &str| map.as_ref().unwrap()[key].0.clone();
        let check = |key: &str, capacity: &str, allocatable: &str| {
            assert_eq!(get(&status.capacity, key), capacity);
            assert_eq!(get(&status.allocatable, key), allocatable);
        };
        check("cpu", "2", "2");
        check("memory", "4Gi", "2972Mi");
        check("pods", "110", "110");
        check("hugepages-2Mi", "0", "0");
        check("hugepages-1Gi", "1Gi", "1Gi");
        check("ephemeral-storage", "10000Ki", "9000Ki");
    }

    #[test]
    fn a_machine_that_nodes_share() {
        let check = |nodes: u32, cpu: &str, memory: &str, allocatable: &str, hugepages: &str| {
            let mut o = observation();
            o.machine = o.machine.shared_by(nodes);
            let status = of(&o, &NodeStatus::default());
            let (capacity, rest) = (status.capacity.unwrap(), status.allocatable.unwrap());
            let found = [&capacity["cpu"], &capacity["memory"], &rest["memory"], &rest["hugepages-1Gi"]];
            assert_eq!(found.map(|q| q.0.as_str()), [cpu, memory, allocatable, hugepages], "{nodes}");
            assert_eq!(capacity["cpu"], rest["cpu"]);
        };
        check(1, "2", "4Gi", "2972Mi", "1Gi");
        check(2, "1", "2Gi", "1948Mi", "0");
        check(3, "666m", "1365Mi", "1265Mi", "0");
    }

    #[test]
    fn readiness_and_its_events() {
        let mut o = observation();
        o.runtime.errors = vec!["a".into(), "b".into()];
        let was = of(&o, &NodeStatus::default());
        let first = was.conditions.clone().unwrap();
        let ready = first.last().unwrap();
        assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "False"));
        assert_eq!(ready.message.as_deref(), Some("[a, b]"));
        assert_eq!(
            events(&[], &first),
            ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]
        );
        o.runtime.errors.clear();
        o.now += SignedDuration::from_secs(10);
        o.pressures.disk = true;
        let status = of(&o, &was);
        let second = status.conditions.clone().unwrap();
        assert_eq!(events(&first, &second), ["NodeHasDiskPressure", "NodeReady"]);
        assert_eq!(second[0].last_transition_time, first[0].last_transition_time);
        assert_eq!(second[1].last_transition_time, Some(Time(o.now)));
        o.now += SignedDuration::from_secs(10);
        assert!(!differ(&status, &of(&o, &status)), "only the heartbeats differ");
        o.max_pods = 5;
        assert!(differ(&status, &of(&o, &status)));
    }

    #[test]
    fn what_others_wrote_is_put_right_or_kept() {
        let mut o = observation();
        let was = of(&o, &NodeStatus::default());
        let mut edited = was.clone();
        let later = "2024-01-01T00:01:00Z".parse().unwrap();
        for c in edited.conditions.iter_mut().flatten() {
            c.status = "Unknown".into();
            c.last_transition_time = Some(Time(later));
        }
        edited.conditions.as_mut().unwrap().insert(
            0,
            NodeCondition { type_: "Theirs".into(), status: "True".into(), ..NodeCondition::default() },
        );
        let capacity = edited.capacity.as_mut().unwrap();
        capacity.insert("example.com/dongle".into(), Quantity("4".into()));
        capacity.insert("cpu".into(), Quantity("64".into()));
        capacity.insert("hugepages-64Ki".into(), Quantity("0".into()));
        let allocatable = edited.allocatable.as_mut().unwrap();
        allocatable.insert("example.com/gone".into(), Quantity("1".into()));
        edited.node_info.as_mut().unwrap().kubelet_version = "v0".into();
        edited.addresses = None;
        o.now = "2024-01-01T00:02:00Z".parse().unwrap();
        let next = of(&o, &edited);
        let amount = |map: &Option<BTreeMap<String, Quantity>>, key: &str| {
            map.as_ref().unwrap().get(key).map(|q| q.0.clone())
        };
        let check = |key: &str, expected: Option<&str>| {
            assert_eq!(amount(&next.capacity, key).as_deref(), expected, "{key}");
            assert_eq!(amount(&next.allocatable, key).as_deref(), expected, "{key}");
        };
        check("example.com/dongle", Some("4"));
        check("example.com/gone", None);
        check("cpu", Some("2"));
        check("hugepages-64Ki", None);
        assert_eq!((&next.node_info, &next.addresses), (&was.node_info, &was.addresses));
        let conditions = next.conditions.unwrap();
        assert_eq!((conditions.len(), conditions[0].type_.as_str()), (5, "Theirs"));
        let ready = conditions.iter().find(|c| c.type_ == READY).unwrap();
        assert_eq!(
            (ready.status.as_str(), &ready.last_transition_time),
            ("True", &Some(Time(o.now))),
            "it became ready when it was seen ready again"
        );
    }

    /// Upstream's cases of `TestMachineInfo` but for seven: pages and storage are the machine's own here, so they have no name
    /// that is nobody's; a machine without processors or memory cannot be asked; what Pods per core mean is computed before
    /// (`options.rs`); and the Event of a reboot is the reporter's. The columns are the resources of the Node before, those of
    /// plugins, and the ones that are told.
    #[test]
    fn resources_of_others() {
        type Amounts<'a> = &'a [(&'a str, &'a str)];
        let list = |amounts: Amounts<'_>| -> Option<BTreeMap<String, Quantity>> {
            let one = |(name, amount): &(&str, &str)| ((*name).to_owned(), Quantity((*amount).to_owned()));
            (!amounts.is_empty()).then(|| amounts.iter().map(one).collect())
        };
        let check = |old: [Amounts<'_>; 2], devices: Offer, told: [Amounts<'_>; 2]| {
            let [capacity, allocatable] = old.map(list);
            let old = NodeStatus { capacity, allocatable, ..NodeStatus::default() };
            let mut o = Observation { devices, ..observation() };
            (o.machine.memory, o.machine.hugepages) = (1024, BTreeMap::new());
            let mut config = Config::new("n");
            config.eviction.local_storage = false;
            config.node.kept_for_evictions = false;
            config.node.reserved = Reserved { milli_cpus: 1, memory: 1, storage: 1, pids: 0 };
            let next = status("n", &config, &o, &old);
            let own = |[cpu, memory]: [&'static str; 2]| [("cpu", cpu), ("memory", memory), ("pods", "110")];
            let whole = |own: [(&'static str, &'static str); 3], more: Amounts<'_>| {
                list(&own.iter().chain(more).copied().collect::<Vec<_>>())
            };
            assert_eq!(next.capacity, whole(own(["2", "1Ki"]), told[0]));
            assert_eq!(next.allocatable, whole(own(["1999m", "1023"]), told[1]));
        };
        let none = Offer::default;
        check([&[], &[]], none(), [&[], &[]]);
        check(
            [&[("negative-resource", "-1")], &[]],
            none(),
            [&[("negative-resource", "-1")], &[("negative-resource", "0")]],
        );
        check([&[], &[("example.com/extended", "1")]], none(), [&[], &[]]);
        let counts = |count| BTreeMap::from([("device-plugin".to_owned(), count)]);
        let devices = Offer { capacity: counts(2), allocatable: counts(1), ..none() };
        check([&[], &[]], devices, [&[("device-plugin", "2")], &[("device-plugin", "1")]]);
        let gone = Offer { removed: ["inactive".to_owned()].into_iter().collect(), ..none() };
        check([&[("inactive", "1")], &[]], gone, [&[("inactive", "0")], &[("inactive", "0")]]);
    }

    /// Upstream's cases of `TestImages` but for the error: images that are not known leave those that the Node has.
    #[test]
    fn the_largest_images() {
        let sizes = |most: Option<usize>| {
            let all = [3, 1, 4, 2].map(|size| Image { names: Vec::new(), size });
            images(&all, most).into_iter().filter_map(|image| image.size_bytes).collect::<Vec<_>>()
        };
        assert_eq!((sizes(None), sizes(Some(1)), sizes(Some(0))), (vec![4, 3, 2, 1], vec![4], Vec::new()));
        let image = |n: usize| Image { names: vec![format!("i{n}"); 7], size: n as u64 };
        let all: Vec<Image> = (0..60).map(image).collect();
        let kept = images(&all, Some(50));
        assert_eq!((kept.len(), kept[0].size_bytes), (50, Some(59)));
        assert_eq!(kept[0].names.as_ref().unwrap().len(), 5);
    }

    #[test]
    fn labels() {
        let options = Options { labels: [("a".into(), "b".into())].into(), ..Options::default() };
        let wanted = initial("n", &options, &observation().machine);
        let mut found = wanted.clone();
        found.metadata.labels.as_mut().unwrap().insert("mine".into(), "x".into());
        found.metadata.labels.as_mut().unwrap().remove("kubernetes.io/os");
        found.metadata.labels.as_mut().unwrap().remove("a");
        assert_eq!(changed_labels(&wanted, &found), [("kubernetes.io/os", Some("linux".into()))].into());
        assert_eq!(wanted.metadata.labels.unwrap()["kubernetes.io/hostname"], "n");
    }

    /// 10 of upstream's 11 cases of `TestReadyCondition`; the other one is about a warning that nobody gives here. A machine
    /// always has processors, memory and Pods.
    #[test]
    fn ready_or_why_not() {
        let check =
            |errors: &[&str], storage: (bool, bool), was: Option<&str>, expected: (&str, &str, bool)| {
                let mut o = observation();
                o.runtime.errors = errors.iter().map(|e| (*e).to_owned()).collect();
                let (known, given) = storage;
                o.nodefs = o.nodefs.filter(|_| known);
                let before: Timestamp = "2023-12-31T23:59:59Z".parse().unwrap();
                let old: Vec<_> =
                    was.map(|status| condition(before, &[], READY, status, "", "")).into_iter().collect();
                let now = conditions(&o, &old, given);
                let ready = now.iter().find(|c| c.type_ == READY).unwrap();
                let since = ready.last_transition_time.clone().unwrap().0;
                let got = (ready.status.as_str(), ready.message.as_deref().unwrap(), since == before);
                assert_eq!(got, expected, "{errors:?} {was:?}");
                let told: Vec<_> = events(&old, &now)
                    .into_iter()
                    .filter(|e| matches!(*e, "NodeReady" | "NodeNotReady"))
                    .collect();
                let changed = was.is_some_and(|was| was != ready.status);
                assert_eq!(told.len(), usize::from(changed), "{told:?}");
            };
        let (all, posting) = ((true, true), "kubelet is posting ready status");
        check(&[], all, None, ("True", posting, false));
        check(&["some storage error"], all, None, ("False", "some storage error", false));
        check(&["node is shutting down"], all, None, ("False", "node is shutting down", false));
        check(&["runtime", "network"], all, None, ("False", "[runtime, network]", false));
        let missing = "missing node capacity for resources: ephemeral-storage";
        check(&[], (false, true), None, ("False", missing, false));
        check(&[], (false, false), None, ("True", posting, false));
        check(&[], all, Some("False"), ("True", posting, false));
        check(&["foo"], all, Some("True"), ("False", "foo", false));
        check(&[], all, Some("True"), ("True", posting, true));
        check(&["foo"], all, Some("False"), ("False", "foo", true));
    }

    /// Upstream's cases of `TestReconcileCMADAnnotationWithExistingNode` in kubelet_node_status_test.go.
    #[test]
    fn the_attacher_of_volumes_is_told() {
        let registered = |controller_attaches: bool| {
            let options = Options { controller_attaches, ..Options::default() };
            initial("n", &options, &observation().machine)
        };
        let check = |wanted: bool, found: Option<&str>, expected: Option<Option<&str>>| {
            let mut node = registered(false);
            node.metadata.annotations = found.map(|value| [(MANAGED.to_owned(), value.to_owned())].into());
            let got = managed_attach(&registered(wanted), &node);
            let expected = expected.map(|value| (MANAGED, value.map(str::to_owned)));
            assert_eq!(got, expected.into_iter().collect(), "{wanted} {found:?}");
        };
        check(true, None, Some(Some("true")));
        check(true, Some("true"), None);
        check(true, Some("false"), Some(Some("true")));
        check(false, None, None);
        check(false, Some("true"), Some(None));
    }

    /// Upstream's 7 cases of `TestUpdateDefaultLabels`: the labels before, and those that change.
    #[test]
    fn own_labels_of_a_node_that_is_there() {
        const NEW: [(&str, &str); 9] = [
            ("kubernetes.io/hostname", "new-hostname"),
            ("topology.kubernetes.io/zone", "new-zone"),
            ("topology.kubernetes.io/region", "new-region"),
            ("failure-domain.beta.kubernetes.io/zone", "new-zone"),
            ("failure-domain.beta.kubernetes.io/region", "new-region"),
            ("node.kubernetes.io/instance-type", "new-type"),
            ("beta.kubernetes.io/instance-type", "new-type"),
            ("kubernetes.io/os", "new-os"),
            ("kubernetes.io/arch", "new-arch"),
        ];
        let node = |labels: Option<Vec<(&str, &str)>>| {
            let labels = labels.map(|l| l.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
            Node { metadata: ObjectMeta { labels, ..ObjectMeta::default() }, ..Node::default() }
        };
        let check = |wanted: Vec<(&str, &str)>,
                     found: Option<Vec<(&str, &str)>>,
                     expected: &[(&str, Option<&str>)]| {
            let got = changed_labels(&node(Some(wanted)), &node(found.clone()));
            let expected: BTreeMap<_, _> = expected.iter().map(|(k, v)| (*k, v.map(str::to_owned))).collect();
            assert_eq!(got, expected, "{found:?}");
        };
        let all: Vec<_> = NEW.iter().map(|(key, value)| (*key, Some(*value))).collect();
        let with = |more: (&'static str, &'static str)| NEW.into_iter().chain([more]).collect::<Vec<_>>();
        check(NEW.into(), Some(Vec::new()), &all);
        check(NEW.into(), Some(NEW.iter().map(|(key, _)| (*key, "old")).collect()), &all);
        check(NEW.into(), Some(with(("please-persist", "foo"))), &[]);
        check(Vec::new(), Some(with(("please-persist", "foo"))), &[]);
        check(NEW.into(), Some(NEW.into()), &[]);
        check(NEW.into(), None, &all);
        let before = [NEW[0], NEW[3], NEW[4], NEW[6]];
        check(NEW.into(), Some(before.into()), &[all[1], all[2], all[5], all[7], all[8]]);
        // An empty one goes, and the others of the options are those of a new Node alone.
        check(
            vec![("kubernetes.io/hostname", ""), ("mine", "x")],
            Some(NEW.into()),
            &[("kubernetes.io/hostname", None)],
        );
        check(vec![("kubernetes.io/hostname", "")], None, &[]);
    }

    /// The 9 of upstream's 12 cases of `TestNodeStatusHasChanged` that have a status.
    #[test]
    fn statuses_that_differ() {
        let time = |minute: i64| Some(Time(Timestamp::from_second(60 * minute).unwrap()));
        let of = |type_: &str, status: &str, heartbeat: i64, transition: i64| NodeCondition {
            type_: type_.into(),
            status: status.into(),
            last_heartbeat_time: time(heartbeat),
            last_transition_time: time(transition),
            ..NodeCondition::default()
        };
        let check = |before: &[&NodeCondition], after: &[&NodeCondition], expected: bool| {
            let status = |all: &[&NodeCondition]| NodeStatus {
                conditions: Some(all.iter().map(|c| (*c).clone()).collect()),
                ..NodeStatus::default()
            };
            assert_eq!(differ(&status(before), &status(after)), expected, "{before:?} {after:?}");
        };
        let (ready, pressure) = (of(READY, "True", 0, 0), of("MemoryPressure", "False", 0, 0));
        let (later, changed, not) =
            (of(READY, "True", 1, 0), of(READY, "True", 1, 1), of(READY, "False", 0, 0));
        check(&[], &[], false);
        check(&[&ready, &pressure], &[&ready, &pressure], false);
        check(&[&ready, &pressure], &[&later, &pressure], false);
        check(&[&ready, &pressure], &[&pressure, &later], false);
        check(&[&ready, &pressure], &[&not, &pressure], true);
        check(&[&ready, &pressure], &[&changed, &pressure], true);
        check(&[&ready], &[&ready, &pressure], true);
        assert!(!differ(&NodeStatus::default(), &NodeStatus::default()));
        let phase = |phase: &str| NodeStatus { phase: Some(phase.into()), ..NodeStatus::default() };
        assert!(differ(&phase("Pending"), &phase("Running")));
    }

    /// The 15 of upstream's 17 cases of `TestNodeAddress` that say something here, with the addresses that were found: the
    /// cloud, whether addresses were asked for, those, the annotation before and after. The other two ask for `0.0.0.0` and
    /// `::` of a cloud, which differ in the annotation.
    #[test]
    fn addresses() {
        let check = |(cloud, asked): (bool, bool),
                     ips: &[&str],
                     was: Option<&str>,
                     told: &[&str],
                     is: Option<&str>| {
            let mut config = Config::new("n");
            (config.node.external_cloud, config.node.own_addresses) = (cloud, asked);
            let o =
                Observation { addresses: ips.iter().map(|ip| (*ip).to_owned()).collect(), ..observation() };
            let addresses = status("n", &config, &o, &NodeStatus::default()).addresses.unwrap();
            let addresses: Vec<_> =
                addresses.iter().map(|a| (a.type_.as_str(), a.address.as_str())).collect();
            let internal = told.iter().map(|ip| ("InternalIP", *ip));
            assert_eq!(addresses, internal.chain([("Hostname", "n")]).collect::<Vec<_>>(), "{ips:?}");
            let mut node = Node::default();
            node.metadata.annotations = was.map(|text| [(PROVIDED.to_owned(), text.to_owned())].into());
            let change = provided_addresses(&config.node, &o.addresses, &node);
            let after = change.get(PROVIDED).cloned().unwrap_or_else(|| was.map(str::to_owned));
            assert_eq!(after.as_deref(), is, "{ips:?} {was:?}");
        };
        let (cloud, none, unasked) = ((true, true), (false, true), (true, false));
        check(cloud, &["10.0.0.1"], None, &["10.0.0.1"], Some("10.0.0.1"));
        check(none, &["10.0.0.2"], None, &["10.0.0.2"], None);
        check(none, &["2001:db2::2"], None, &["2001:db2::2"], None);
        check((false, false), &["10.0.0.2"], None, &["10.0.0.2"], None);
        check((false, false), &["2001:db2::2"], None, &["2001:db2::2"], None);
        check(unasked, &["10.0.0.2"], None, &[], None);
        check(unasked, &["2001:db2::2"], None, &[], None);
        check(cloud, &["10.1.1.1"], None, &["10.1.1.1"], Some("10.1.1.1"));
        check(none, &["10.1.1.1"], None, &["10.1.1.1"], None);
        check(none, &["10.1.1.1"], Some("10.1.1.3"), &["10.1.1.1"], None);
        check(cloud, &["10.1.1.1"], Some("10.1.1.3"), &["10.1.1.1"], Some("10.1.1.1"));
        let (v6, v4) = ("2600:1f14:1d4:d101::ba3d", "10.1.1.2");
        check(cloud, &[v6, v4], None, &[v6, v4], Some("2600:1f14:1d4:d101::ba3d,10.1.1.2"));
        let both = "10.1.1.2,2600:1f14:1d4:d101::ba3d";
        check(cloud, &[v4, v6], Some(v4), &[v4, v6], Some(both));
        check(cloud, &[v4], Some(both), &[v4], Some(v4));

        let mut config = Config::new("n");
        (config.node.external_cloud, config.node.own_addresses) = cloud;
        let address = NodeAddress { type_: String::new(), address: "10.1.1.2".into() };
        let old = NodeStatus { addresses: Some(vec![address.clone()]), ..NodeStatus::default() };
        assert_eq!(status("n", &config, &observation(), &old).addresses, Some(vec![address]));
    }

    /// Upstream's 3 cases of `TestReconcileExtendedResource`.
    #[test]
    fn devices_of_an_earlier_machine_are_gone() {
        let check = |capacity: &[(&str, &str)], allocatable: bool, expected: &[&str]| {
            let list: BTreeMap<_, _> = capacity
                .iter()
                .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
                .collect();
            let status = NodeStatus {
                allocatable: Some(list.clone()).filter(|_| allocatable),
                capacity: Some(list),
                ..NodeStatus::default()
            };
            let zeroed = zeroed(&Node { status: Some(status), ..Node::default() });
            assert!(zeroed.values().all(|amount| amount.0 == "0"));
            assert_eq!(zeroed.keys().map(String::as_str).collect::<Vec<_>>(), expected);
        };
        let own = [("cpu", "2"), ("memory", "10G"), ("ephemeral-storage", "5000")];
        let more = [("test.com/resource1", "2"), ("test.com/resource2", "10")];
        let all: Vec<_> = own.into_iter().chain(more).collect();
        check(&own, true, &[]);
        check(&all, true, &["test.com/resource1", "test.com/resource2"]);
        check(&all, false, &["test.com/resource1", "test.com/resource2"]);
    }
}
