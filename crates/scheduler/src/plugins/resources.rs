//! NodeResourcesFit and NodeResourcesBalancedAllocation: whether a node has room, and how well it would be used.

use std::sync::Arc;

use api::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::DeviceClass;
use objects::claims::CLASS_PREFIX;
use objects::quantity;
use objects::resources::{Amount, Resources};

use crate::cache::{Cache, NodeInfo};
use crate::config::args::{NodeResourcesFitArgs, PluginArgs, ResourceSpec, ScoringStrategy, ShapePoint};
use crate::events::{About, Events, Happening, Pair};
use crate::framework::hint::Hint;
use crate::framework::placement::{Assignments, GroupCycle};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, MAX_SCORE, PlacementScore, PreScore, Score};
use crate::framework::verdict::{Reason, Rejection};
use crate::pod::PodInfo;

/// The plugin that says whether there is room.
pub const FIT: &str = "NodeResourcesFit";
/// The plugin that wants resources to be used alike.
pub const BALANCED: &str = "NodeResourcesBalancedAllocation";

const MOST: Amount = MAX_SCORE as Amount;

struct Fit {
    args: NodeResourcesFitArgs,
    /// Whether classes of devices may stand for extended resources.
    by_devices: bool,
}

/// Whether a resource is one that its vendor named: those of Kubernetes have no domain or that of kubernetes.io.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

impl Fit {
    fn ignores(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or_default();
        is_extended(name)
            && (self.args.ignored_resources.iter().any(|r| r == name)
                || self.args.ignored_resource_groups.iter().any(|g| g == group))
    }
}

impl Fit {
    /// Whether a resource stands for devices of a class.
    fn are_devices(&self, cluster: &Cache, name: &str) -> bool {
        self.by_devices && cluster.devices().read().class_of(name).is_some()
    }
}

impl Fit {
    /// The resources that a node lacks for a Pod, where others use this much of what it offers; and whether it would lack it without
    /// them, too.
    fn lacks(
        &self,
        pod: &PodInfo,
        [have, used]: [&Resources; 2],
        full: bool,
        cluster: &Cache,
    ) -> (Vec<Reason>, bool) {
        let want = &pod.requests.fit;
        let mut reasons: Vec<Reason> = Vec::new();
        let mut unresolvable = false;
        if full {
            reasons.push("Too many pods".into());
        }
        let mut lack = |reason: fn(&str) -> Reason, name: &str, [want, have, used]: [Amount; 3]| {
            if want > 0 && want > have - used {
                reasons.push(reason(name));
                unresolvable |= want > have;
            }
        };
        lack(|_| "Insufficient cpu".into(), "", [want.milli_cpu, have.milli_cpu, used.milli_cpu]);
        lack(|_| "Insufficient memory".into(), "", [want.memory, have.memory, used.memory]);
        let storage = [want.ephemeral_storage, have.ephemeral_storage, used.ephemeral_storage];
        lack(|_| "Insufficient ephemeral-storage".into(), "", storage);
        for (name, amount) in want.scalar.iter().filter(|(name, _)| !self.ignores(name)) {
            let of = |r: &Resources| r.scalar.get(name).copied().unwrap_or(0);
            if of(have) <= 0 && self.are_devices(cluster, name) {
                continue; // DynamicResources looks for them
            }
            lack(|name| format!("Insufficient {name}").into(), name, [*amount, of(have), of(used)]);
        }
        (reasons, unresolvable)
    }
}

impl Filter for Fit {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let full = node.pods.len() as i64 + 1 > node.max_pods;
        let amounts = [&node.allocatable, &node.requested];
        let (reasons, unresolvable) = self.lacks(cycle.pod, amounts, full, cycle.cluster);
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection { plugin: FIT, reasons, unresolvable, failed: false })
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

/// The resources that a node offers, and to how many Pods.
fn offer(node: &Node) -> (Resources, i64) {
    let all = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
    (Resources::from_list(all), quantity::value(all.and_then(|a| a.get("pods"))))
}

impl Fit {
    /// Whether a node offers more of anything that the Pod asks for, or takes more Pods (upstream's
    /// `haveAnyRequestedResourcesIncreased`).
    fn offers_more(&self, pod: &PodInfo, [old, new]: [&Node; 2], cluster: &Cache) -> bool {
        let ((old, old_pods), (new, new_pods)) = (offer(old), offer(new));
        let want = &pod.requests.fit;
        let more = |name: &str| want.get(name) > 0 && new.get(name) > old.get(name);
        let devices = |name: &String| new.get(name) == 0 && self.are_devices(cluster, name);
        let mut wanted = want.scalar.iter().filter(|(_, n)| **n != 0).map(|(name, _)| name);
        new_pods > old_pods
            || ["cpu", "memory", "ephemeral-storage"].into_iter().any(more)
            || wanted.any(|name| more(name) || devices(name))
    }
}

impl Hint for Fit {
    fn lifts(&self, pod: &PodInfo, what: &Happening, cluster: &Cache) -> Result<bool, String> {
        let want = &pod.requests.fit;
        Ok(match &what.about {
            // It must fit if nobody else is there, and must not have fit before.
            About::Node(Pair { old, new: Some(new) }) => {
                let (have, pods) = offer(new);
                self.lacks(pod, [&have, &Resources::default()], pods < 1, cluster).0.is_empty()
                    && old.as_ref().is_none_or(|old| self.offers_more(pod, [old, new], cluster))
            }
            // It asks for less itself, or another one for less of what it asks for.
            About::Pod(Pair { old: Some(old), new: Some(new) }) => {
                let less = |name: &str| {
                    want.get(name) != 0 && old.requests.fit.get(name) > new.requests.fit.get(name)
                };
                let named = ["cpu", "memory", "ephemeral-storage"].into_iter();
                new.uid() == pod.uid() || named.chain(want.scalar.keys().map(String::as_str)).any(less)
            }
            About::DeviceClass(Pair { old, new: Some(new) }) => stands_for(old.as_deref(), new, pod),
            _ => true,
        })
    }
}

/// Whether a class of devices stands for a resource that the Pod asks for, and did not before.
fn stands_for(old: Option<&DeviceClass>, new: &DeviceClass, pod: &PodInfo) -> bool {
    let named = |class: &DeviceClass| class.spec.extended_resource_name.clone().unwrap_or_default();
    let asks = |name: &str| pod.requests.fit.scalar.contains_key(name);
    let class = new.metadata.name.as_deref().unwrap_or_default();
    match old {
        Some(old) if named(old) == named(new) => false,
        None if asks(&format!("{CLASS_PREFIX}{class}")) => true,
        _ => asks(&named(new)),
    }
}

/// A resource that is scored: requested with the Pod, requested without it, offered. It is left out if the node offers
/// none, or if it is one that the Pod does not ask for.
fn scored(
    spec: &ResourceSpec,
    pod: &PodInfo,
    node: &NodeInfo,
    assumed: bool,
) -> Option<(Amount, Amount, Amount)> {
    let name = spec.name.as_str();
    let want = &pod.requests;
    let (want, used) = match name {
        "cpu" if assumed => (want.nonzero_milli_cpu, node.nonzero.0),
        "memory" if assumed => (want.nonzero_memory, node.nonzero.1),
        _ => (want.fit.get(name), node.requested.get(name)),
    };
    let own = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    let have = node.allocatable.get(name);
    (have > 0 && (own || want != 0)).then_some((used + want, used, have))
}

/// The weighted mean of the scores of resources (upstream's `leastResourceScorer` and its siblings).
fn allocation(strategy: &ScoringStrategy, pod: &PodInfo, node: &NodeInfo) -> i64 {
    let shape = strategy.requested_to_capacity_ratio.as_ref().map(|r| r.shape.as_slice()).unwrap_or_default();
    let (mut sum, mut weights) = (0, 0);
    for spec in &strategy.resources {
        let Some((with, _, have)) = scored(spec, pod, node, true) else { continue };
        let score = match strategy.type_.as_str() {
            "MostAllocated" => with.clamp(0, have) * MOST / have,
            "RequestedToCapacityRatio" => {
                let utilization = if with > have { MOST } else { with * MOST / have };
                by_shape(shape, utilization)
            }
            _ if with > have => 0,
            _ => (have - with.max(0)) * MOST / have,
        };
        if strategy.type_ == "RequestedToCapacityRatio" && score <= 0 {
            continue;
        }
        sum += score * Amount::from(spec.weight);
        weights += Amount::from(spec.weight);
    }
    if weights == 0 {
        return 0;
    }
    if strategy.type_ == "RequestedToCapacityRatio" {
        return (sum as f64 / weights as f64).round() as i64;
    }
    (sum / weights) as i64
}

/// The value of a broken line at a utilization; scores in the configuration are from 0 to 10.
pub(super) fn by_shape(shape: &[ShapePoint], at: Amount) -> Amount {
    let point = |p: &ShapePoint| (Amount::from(p.utilization), Amount::from(p.score) * MOST / 10);
    let mut before: Option<(Amount, Amount)> = None;
    for (utilization, score) in shape.iter().map(point) {
        if at <= utilization {
            return before.map_or(score, |(u, s)| s + (score - s) * (at - u) / (utilization - u).max(1));
        }
        before = Some((utilization, score));
    }
    before.map_or(0, |(_, score)| score)
}

impl Score for Fit {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        Ok(allocation(&self.args.scoring_strategy, cycle.pod, node))
    }
    fn normalizes(&self, _pod: &PodInfo) -> bool {
        false
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

/// How full a placement would be, in percent: the weighted mean of its resources as if it were one node (upstream's
/// `scorePlacement`, always by MostAllocated).
fn fullness(resources: &[ResourceSpec], cluster: &Cache, of: &Assignments<'_>) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for spec in resources {
        let name = spec.name.as_str();
        let wanted = of.proposed.iter().map(|(pod, _)| match name {
            "cpu" => pod.requests.nonzero_milli_cpu,
            "memory" => pod.requests.nonzero_memory,
            _ => pod.requests.fit.get(name),
        });
        let wanted: Amount = wanted.sum();
        let own = matches!(name, "cpu" | "memory" | "ephemeral-storage");
        if !own && wanted == 0 {
            continue;
        }
        let (mut used, mut have) = (wanted, 0);
        for node in of.placement.nodes(cluster) {
            let offered = node.allocatable.get(name);
            if offered <= 0 {
                continue;
            }
            have += offered;
            used += match name {
                "cpu" => node.nonzero.0,
                "memory" => node.nonzero.1,
                _ => node.requested.get(name),
            };
        }
        if have > 0 {
            sum += used.clamp(0, have) * MOST / have * Amount::from(spec.weight);
            weights += Amount::from(spec.weight);
        }
    }
    if weights == 0 { 0 } else { (sum / weights) as i64 }
}

impl PlacementScore for Fit {
    fn score(&self, cycle: &GroupCycle<'_>, of: &Assignments<'_>) -> Result<i64, String> {
        Ok(fullness(&self.args.scoring_strategy.resources, cycle.cluster, of))
    }
}

struct Balanced {
    resources: Vec<ResourceSpec>,
}

impl PreScore for Balanced {
    /// A Pod that asks for nothing changes no balance.
    fn pre_score(&self, cycle: &mut Cycle<'_>, _feasible: &[usize], _kept: bool) -> Result<bool, String> {
        Ok(self.resources.iter().any(|r| cycle.pod.requests.fit.get(&r.name) != 0))
    }
}

impl Score for Balanced {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        let mut fractions = (Vec::with_capacity(4), Vec::with_capacity(4));
        for (with, without, have) in
            self.resources.iter().filter_map(|spec| scored(spec, cycle.pod, node, false))
        {
            let fraction = |used: Amount| (used as f64 / have as f64).clamp(0.0, 1.0);
            fractions.0.push(fraction(with));
            fractions.1.push(fraction(without));
        }
        let (with, without) = (balance(&fractions.0), balance(&fractions.1));
        Ok(MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2)
    }
    fn normalizes(&self, _pod: &PodInfo) -> bool {
        false
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

/// How alike fractions are: 100 if they are all the same.
fn balance(fractions: &[f64]) -> i64 {
    let deviation = match fractions {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        many => {
            let mean = many.iter().sum::<f64>() / many.len() as f64;
            (many.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / many.len() as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

pub(super) fn node_resources_fit(args: &PluginArgs, gates: FeatureGates) -> Result<Plugin, String> {
    let PluginArgs::NodeResourcesFit(args) = args else {
        return Err("want args to be of type NodeResourcesFitArgs".to_owned());
    };
    let by_devices = gates.enabled(Gate::DRAExtendedResource);
    let fit = || Fit { args: args.clone(), by_devices };
    let plugin = Arc::new(fit());
    let points = Points {
        filter: Some(plugin.clone()),
        score: Some(plugin.clone()),
        placement_score: Some(plugin),
        ..Points::default()
    };
    let pods = Events::POD_DELETED | Events::POD_SCALED_DOWN | Events::OWN_SCALED_DOWN;
    let mut events = Events::NODE_ADDED | Events::NODE_ALLOCATABLE | pods;
    if by_devices {
        events |= Events::DEVICE_CLASS_ADDED | Events::DEVICE_CLASS_CHANGED;
    }
    Ok(Plugin::new(FIT, points).lifted_by(events).hinted(fit()))
}

pub(super) fn balanced_allocation(args: &PluginArgs) -> Result<Plugin, String> {
    let PluginArgs::NodeResourcesBalancedAllocation(args) = args else {
        return Err("want args to be of type NodeResourcesBalancedAllocationArgs".to_owned());
    };
    let plugin = Arc::new(Balanced { resources: args.resources.clone() });
    Ok(Plugin::new(
        BALANCED,
        Points { pre_score: Some(plugin.clone()), score: Some(plugin), ..Points::default() },
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::framework::placement::Placement;

    fn pod(cpu: &str, memory: &str) -> PodInfo {
        let requests = json!({"cpu": cpu, "memory": memory});
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
        PodInfo::new(serde_json::from_value(json!({"metadata": {"uid": cpu}, "spec": spec})).unwrap())
    }

    /// The score of a node of 4 CPUs and 10,000 bytes with a Pod of 1 CPU and 2,000 bytes, for one of the same size.
    fn check(strategy: Value, expected: i64) {
        let PluginArgs::NodeResourcesFit(args) =
            PluginArgs::parse(FIT, json!({ "scoringStrategy": strategy })).unwrap()
        else {
            panic!("another type");
        };
        let node = json!({"status": {"allocatable": {"cpu": "4", "memory": "10000"}}});
        let mut node = NodeInfo::new(Arc::new(serde_json::from_value(node).unwrap()));
        node.add(pod("1", "2000"));
        let got = allocation(&args.scoring_strategy, &pod("1", "2000"), &node);
        assert_eq!(got, expected, "{strategy}");
    }

    #[test]
    fn strategies() {
        check(json!({}), 55); // (50 + 60) / 2
        check(json!({"resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]}), 52);
        check(json!({"type": "MostAllocated"}), 45); // (50 + 40) / 2
        let shape = json!([{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]);
        let ratio = |shape: &Value| json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}});
        check(ratio(&shape), 45);
        check(ratio(&json!([{"utilization": 0, "score": 10}, {"utilization": 50, "score": 0}])), 20); // only memory counts
        check(json!({"resources": [{"name": "example.com/x"}]}), 0);
    }

    /// The seven cases of upstream's `TestScorePlacement_Resources`.
    #[test]
    fn upstreams_placements() {
        let asks = |uid: &str, [cpu, memory, gpus]: [&str; 3]| {
            let requests = json!({"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpus});
            let spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
            PodInfo::new(serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap())
        };
        let check = |nodes: &[usize],
                     pods: [[&str; 3]; 2],
                     on: [&str; 2],
                     others: &[[&str; 3]],
                     weights: &[(&str, i64)],
                     expected: i64| {
            let mut cluster = Cache::default();
            for name in ["node1", "node2", "node3"] {
                let room = json!({"cpu": "5", "memory": "5000", "nvidia.com/gpu": "5"});
                let node = json!({"metadata": {"name": name}, "status": {"allocatable": room}});
                cluster.set_node(Arc::new(serde_json::from_value(node).unwrap()));
            }
            for other in others {
                cluster.set_pod(asks("baz", *other), "node1");
            }
            let pods = [("foo", pods[0], on[0]), ("bar", pods[1], on[1])];
            let proposed = pods.map(|(uid, pod, node)| (asks(uid, pod), node.to_owned()));
            let placement = Placement { name: "p".into(), nodes: nodes.to_vec() };
            let of = Assignments { placement: &placement, proposed: &proposed };
            let resources: Vec<ResourceSpec> = weights
                .iter()
                .map(|(name, weight)| {
                    serde_json::from_value(json!({"name": name, "weight": weight})).unwrap()
                })
                .collect();
            assert_eq!(fullness(&resources, &cluster, &of), expected, "{weights:?}");
        };
        let (equal, by_cpu) = ([("cpu", 1), ("memory", 1)], [("cpu", 4), ("memory", 1)]);
        let with_gpus = [("cpu", 1), ("memory", 1), ("nvidia.com/gpu", 1)];
        let pods = [["1", "0", "0"], ["2", "2000", "0"]];
        let apart = ["node1", "node2"];
        check(&[0, 1], pods, apart, &[], &equal, 25);
        check(&[0, 1], pods, apart, &[], &by_cpu, 28);
        check(&[0, 1], pods, ["node1", "node1"], &[], &by_cpu, 28);
        // In all other cases the third node is not in the placement.
        check(&[0, 1, 2], pods, apart, &[], &equal, 16);
        check(&[0, 1], pods, apart, &[["1", "0", "0"]], &equal, 30);
        let (none, one) = (["1", "2000", "0"], ["1", "2000", "1"]);
        check(&[0, 1], [["1", "0", "0"], one], apart, &[["1", "0", "0"]], &with_gpus, 20);
        check(&[0, 1], [["1", "0", "0"], none], apart, &[["1", "0", "1"]], &with_gpus, 25);
    }

    #[test]
    fn ignored_resources() {
        let args = json!({"ignoredResources": ["a.com/x"], "ignoredResourceGroups": ["b.com"]});
        let PluginArgs::NodeResourcesFit(args) = PluginArgs::parse(FIT, args).unwrap() else {
            panic!("another type")
        };
        let fit = Fit { args, by_devices: false };
        let ignored: Vec<&str> = ["a.com/x", "a.com/y", "b.com/z", "x.kubernetes.io/q", "hugepages-2Mi"]
            .into_iter()
            .filter(|n| fit.ignores(n))
            .collect();
        assert_eq!(ignored, ["a.com/x", "b.com/z"]);
    }

    #[test]
    fn deviation() {
        for (fractions, expected) in
            [(&[][..], 100), (&[0.4], 100), (&[0.2, 0.8], 70), (&[0.0, 0.5, 1.0], 59)]
        {
            assert_eq!(balance(fractions), expected, "{fractions:?}");
        }
    }
}
