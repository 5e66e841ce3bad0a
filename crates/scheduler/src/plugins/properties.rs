//! Properties that hold of any Pods and nodes: no panic, and decisions that a plain reading of the rules gives too.
//!
//! The reading below is of the API's fields as they are written, for one node at a time, without any counts: for each
//! question it walks through all Pods of all nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodAffinityTerm, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{decided, decided_with, profile, scores};
use crate::cache::Cache;
use crate::cycle::{Around, Decision, Help, Part, decide};
use crate::framework::placement::{Placement, Within};
use crate::framework::verdict::{Rejection, Verdicts};
use crate::kept::Keeper;
use crate::nominated::Nominated;
use crate::pod::PodInfo;
use objects::Labels;

/// The cluster as objects: nodes, each with its Pods, and the namespaces.
struct World {
    nodes: Vec<(Node, Vec<Pod>)>,
    namespaces: Vec<Namespace>,
}

impl World {
    fn cache(&self) -> Cache {
        let mut cache = Cache::default();
        self.namespaces.iter().for_each(|n| cache.set_namespace(n));
        for (node, pods) in &self.nodes {
            cache.set_node(Arc::new(node.clone()));
            for pod in pods {
                cache.set_pod(PodInfo::new(pod.clone()), node.metadata.name.as_deref().unwrap());
            }
        }
        cache
    }
    fn placed(&self) -> impl Iterator<Item = (&Node, &Pod)> {
        self.nodes.iter().flat_map(|(n, pods)| pods.iter().map(move |p| (n, p)))
    }
}

fn label<'o>(labels: Option<&'o Labels>, key: &str) -> Option<&'o str> {
    labels.and_then(|l| l.get(key)).map(String::as_str)
}

fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else { return false };
    selector.match_labels.iter().flatten().all(|(k, v)| label(labels, k) == Some(v))
        && selector.match_expressions.iter().flatten().all(|e| {
            let listed = label(labels, &e.key).is_some_and(|v| e.values.iter().flatten().any(|x| x == v));
            match e.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label(labels, &e.key).is_some(),
                _ => label(labels, &e.key).is_none(),
            }
        })
}

/// Whether a term of `owner` speaks of `other`.
fn speaks(world: &World, owner: &Pod, term: &PodAffinityTerm, other: &Pod) -> bool {
    let there = other.metadata.namespace.as_ref();
    let named = term.namespaces.iter().flatten().any(|n| Some(n) == there);
    let namespace = world.namespaces.iter().find(|n| n.metadata.name.as_ref() == there);
    let by_label = term.namespace_selector.is_some()
        && namespace.is_some_and(|n| selects(term.namespace_selector.as_ref(), n.metadata.labels.as_ref()));
    let unsaid = term.namespaces.as_ref().is_none_or(Vec::is_empty) && term.namespace_selector.is_none();
    (named || by_label || unsaid && owner.metadata.namespace.as_ref() == there)
        && selects(term.label_selector.as_ref(), other.metadata.labels.as_ref())
}

fn same_place(a: &Node, b: &Node, key: &str) -> bool {
    let place = label(a.metadata.labels.as_ref(), key);
    place.is_some() && place == label(b.metadata.labels.as_ref(), key)
}

fn required(pod: &Pod, anti: bool) -> Vec<PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|s| s.affinity.clone()).unwrap_or_default();
    if anti {
        affinity.pod_anti_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution)
    } else {
        affinity.pod_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution)
    }
    .unwrap_or_default()
}

fn near(world: &World, pod: &Pod, node: &Node) -> bool {
    let terms = required(pod, false);
    let all_speak = |p: &Pod| terms.iter().all(|t| speaks(world, pod, t, p));
    let has_labels = terms.iter().all(|t| label(node.metadata.labels.as_ref(), &t.topology_key).is_some());
    let each_there = terms
        .iter()
        .all(|t| world.placed().any(|(n, p)| same_place(n, node, &t.topology_key) && all_speak(p)));
    let none_anywhere = !world.placed().any(|(n, p)| {
        all_speak(p) && terms.iter().any(|t| label(n.metadata.labels.as_ref(), &t.topology_key).is_some())
    });
    has_labels && (each_there || none_anywhere && all_speak(pod))
}

fn apart(world: &World, pod: &Pod, node: &Node) -> bool {
    let hates = |owner: &Pod, other: &Pod, n: &Node| {
        required(owner, true)
            .iter()
            .any(|t| same_place(n, node, &t.topology_key) && speaks(world, owner, t, other))
    };
    !world.placed().any(|(n, p)| hates(pod, p, n) || hates(p, pod, n))
}

fn tolerated(pod: &Pod, node: &Node) -> bool {
    let spec = pod.spec.as_ref().unwrap();
    let taints = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    taints.iter().all(|t| {
        t.effect == "PreferNoSchedule"
            || spec.tolerations.iter().flatten().any(|have| {
                let number = |text: &Option<String>| text.as_deref().and_then(|s| s.parse::<i64>().ok());
                have.key.as_deref() == Some(&t.key)
                    && (have.operator.as_deref() != Some("Gt") || number(&t.value) > number(&have.value))
            })
    })
}

fn wanted(pod: &Pod, node: &Node) -> bool {
    let selector = pod.spec.as_ref().and_then(|s| s.node_selector.as_ref());
    selector.into_iter().flatten().all(|(k, v)| label(node.metadata.labels.as_ref(), k) == Some(v))
}

fn spread(world: &World, pod: &Pod, node: &Node) -> bool {
    let all: Vec<TopologySpreadConstraint> =
        pod.spec.as_ref().and_then(|s| s.topology_spread_constraints.clone()).unwrap_or_default();
    let hard: Vec<_> = all.into_iter().filter(|c| c.when_unsatisfiable == "DoNotSchedule").collect();
    hard.iter().all(|c| {
        let counts_node = |n: &Node| {
            hard.iter().all(|c| label(n.metadata.labels.as_ref(), &c.topology_key).is_some())
                && (c.node_affinity_policy.as_deref() == Some("Ignore") || wanted(pod, n))
                && (c.node_taints_policy.as_deref() != Some("Honor") || tolerated(pod, n))
        };
        let mine = pod.metadata.labels.as_ref();
        let alike = |p: &Pod| {
            selects(c.label_selector.as_ref(), p.metadata.labels.as_ref())
                && c.match_label_keys.iter().flatten().all(|k| {
                    label(mine, k).is_none() || label(mine, k) == label(p.metadata.labels.as_ref(), k)
                })
        };
        let asks_nothing = |s: &LabelSelector| {
            s.match_labels.iter().flatten().count() + s.match_expressions.iter().flatten().count() == 0
        };
        let all_alike = c.label_selector.as_ref().is_some_and(asks_nothing)
            && c.match_label_keys.iter().flatten().all(|k| label(mine, k).is_none());
        let pods_in = |domain: &str| {
            let counts = |(n, p): &(&Node, &Pod)| {
                counts_node(n)
                    && label(n.metadata.labels.as_ref(), &c.topology_key) == Some(domain)
                    && p.metadata.namespace == pod.metadata.namespace
                    && p.metadata.deletion_timestamp.is_none()
                    && alike(p)
                    && !all_alike
            };
            world.placed().filter(counts).count() as i64
        };
        let domains: BTreeSet<&str> = world
            .nodes
            .iter()
            .filter(|(n, _)| counts_node(n))
            .filter_map(|(n, _)| label(n.metadata.labels.as_ref(), &c.topology_key))
            .collect();
        let few = (domains.len() as i64) < i64::from(c.min_domains.unwrap_or(1));
        let fewest = if few { 0 } else { domains.iter().map(|d| pods_in(d)).min().unwrap_or(0) };
        let Some(here) = label(node.metadata.labels.as_ref(), &c.topology_key) else { return false };
        pods_in(here) + i64::from(alike(pod)) - fewest <= i64::from(c.max_skew)
    })
}

fn may_run(world: &World, pod: &Pod, node: &Node) -> bool {
    tolerated(pod, node)
        && wanted(pod, node)
        && spread(world, pod, node)
        && near(world, pod, node)
        && apart(world, pod, node)
}

const KEYS: [&str; 3] = ["zone", "host", "rack"];

fn labels() -> impl Strategy<Value = Value> {
    vec((0..2usize, 0..3u8), 0..3).prop_map(|all| {
        all.into_iter().map(|(k, v)| (["app", "tier"][k].to_owned(), json!(v.to_string()))).collect()
    })
}

fn selector() -> impl Strategy<Value = Value> {
    let expression = (0..2usize, 0..4usize, 0..3u8).prop_map(|(key, operator, value)| {
        let values = if operator < 2 { json!([value.to_string()]) } else { json!(null) };
        let operator = ["In", "NotIn", "Exists", "DoesNotExist"][operator];
        json!({"matchExpressions": [{"key": (["app", "tier"][key]), "operator": operator, "values": values}]})
    });
    prop_oneof![
        4 => expression,
        3 => labels().prop_map(|l| json!({"matchLabels": l})),
        1 => Just(json!({})),
        1 => Just(json!(null)),
    ]
}

fn term() -> impl Strategy<Value = Value> {
    let namespaces = prop_oneof![
        5 => Just((json!(null), json!(null))),
        1 => Just((json!(["a"]), json!(null))),
        1 => Just((json!(null), json!({}))),
        2 => selector().prop_map(|s| (json!(["b"]), s)),
        2 => selector().prop_map(|s| (json!(null), s)),
    ];
    (selector(), 0..3usize, namespaces).prop_map(|(selector, key, (names, by_label))| {
        json!({
            "labelSelector": selector, "topologyKey": (KEYS[key]), "namespaces": names, "namespaceSelector": by_label
        })
    })
}

fn constraint() -> impl Strategy<Value = Value> {
    let policy = || prop_oneof![Just(json!(null)), Just(json!("Honor")), Just(json!("Ignore"))];
    let keys = prop_oneof![3 => Just(json!(null)), 1 => Just(json!(["app"]))];
    (selector(), 0..2usize, 1..4, 0..4, (policy(), policy()), keys, 0..4u8).prop_map(
        |(selector, key, skew, domains, (affinity, taints), keys, soft)| {
            json!({
                "labelSelector": selector, "topologyKey": (KEYS[key]), "maxSkew": skew,
                "minDomains": if domains == 0 { json!(null) } else { json!(domains) },
                "nodeAffinityPolicy": affinity, "nodeTaintsPolicy": taints, "matchLabelKeys": keys,
                "whenUnsatisfiable": if soft == 0 { "ScheduleAnyway" } else { "DoNotSchedule" },
            })
        },
    )
}

fn a_pod() -> impl Strategy<Value = Value> {
    let rules = (vec(term(), 0..3), vec(term(), 0..2), vec(constraint(), 0..3));
    (labels(), 0..3usize, rules, 0..12u8, 0..4i32).prop_map(
        |(labels, ns, (with, without, spread), odd, priority)| {
            let mut pod = json!({
                "metadata": {"namespace": (["a", "b", "c"][ns]), "labels": labels},
                "spec": {
                    "containers": [], "priority": priority, "topologySpreadConstraints": spread,
                    "affinity": {
                        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": with},
                        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": without},
                    },
                },
            });
            match odd {
                0 => pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                1 => pod["spec"]["nodeSelector"] = json!({"zone": "0"}),
                2 => pod["spec"]["tolerations"] = json!([{"key": "t", "operator": "Exists"}]),
                3 | 4 => {
                    let least = if odd == 3 { "4" } else { "5" };
                    pod["spec"]["tolerations"] = json!([{"key": "t", "operator": "Gt", "value": least}]);
                }
                _ => {}
            }
            pod
        },
    )
}

fn a_node() -> impl Strategy<Value = Value> {
    (vec(0..3u8, 3), 0..8u8).prop_map(|(places, odd)| {
        let mut labels: serde_json::Map<String, Value> =
            KEYS.iter().zip(&places).map(|(k, v)| ((*k).to_owned(), json!(v.to_string()))).collect();
        if odd < 2 {
            labels.remove(KEYS[usize::from(odd)]);
        }
        let taints = match odd {
            2 => json!([{"key": "t", "effect": "NoSchedule"}]),
            3 => json!([{"key": "t", "value": "5", "effect": "NoSchedule"}]),
            _ => json!([]),
        };
        json!({
            "metadata": {"labels": labels}, "spec": {"taints": taints}, "status": {"allocatable": {"pods": "99"}}
        })
    })
}

fn a_world() -> impl Strategy<Value = World> {
    let pods =
        || prop_oneof![1 => Just(Vec::new()), 3 => vec(prop_oneof![labels().prop_map(plain), a_pod()], 0..4)];
    let nodes = vec((a_node(), pods()), 1..6);
    (nodes, vec(labels(), 3)).prop_map(|(nodes, of_namespaces)| {
        let mut uid = 0;
        let mut named = |mut pod: Value| {
            uid += 1;
            pod["metadata"]["uid"] = json!(format!("u{uid}"));
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let nodes = nodes.into_iter().enumerate().map(|(i, (mut node, pods))| {
            node["metadata"]["name"] = json!(format!("n{i}"));
            (serde_json::from_value(node).unwrap(), pods.into_iter().map(&mut named).collect())
        });
        let nodes = nodes.collect();
        let namespaces = ["a", "b", "c"].iter().zip(of_namespaces).map(|(name, labels)| {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        });
        World { nodes, namespaces: namespaces.collect() }
    })
}

fn plain(labels: Value) -> Value {
    json!({"metadata": {"namespace": "a", "labels": labels}, "spec": {"containers": []}})
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for n in &self.namespaces {
            writeln!(f, "namespace {}", serde_json::to_string(&n.metadata).unwrap_or_default())?;
        }
        for (n, pods) in &self.nodes {
            writeln!(f, "node {}", serde_json::to_string(n).unwrap_or_default())?;
            for p in pods {
                writeln!(f, "  pod {}", serde_json::to_string(p).unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

fn incoming(pod: Value) -> Pod {
    let mut pod: Pod = serde_json::from_value(pod).unwrap();
    pod.metadata.uid = Some("incoming".into());
    pod.metadata.deletion_timestamp = None;
    pod
}

/// The filters' answers beside the plain reading, node by node.
fn check_filters(world: &World, cache: &Cache, pod: &Pod) -> Result<(), TestCaseError> {
    check_verdicts(world, cache, pod, &mut Keeper::default())
}

/// The same with a memory of Pods that are alike; each node is judged alone, too.
fn check_verdicts(world: &World, cache: &Cache, pod: &Pod, keeper: &mut Keeper) -> Result<(), TestCaseError> {
    let (info, profile) = (PodInfo::new(pod.clone()), profile());
    let (mut kept, mut cycle) = keeper.begin(&info, &profile, cache);
    for (i, at) in profile.pre_filter.iter().enumerate() {
        kept.pre_filter(i, &mut cycle, at).unwrap();
    }
    let mut verdicts = Verdicts::all(cache.nodes().len());
    kept.filter(&cycle, &profile, &BTreeSet::new(), &mut verdicts);
    for (node, _) in &world.nodes {
        let here = cache.node(node.metadata.name.as_deref().unwrap()).unwrap();
        let one: Result<(), Rejection> =
            profile.filter.iter().try_for_each(|at| at.plugin.filter(&cycle, here));
        let all = verdicts.of(here.index);
        prop_assert_eq!(all, one.as_ref().err(), "{}: together and alone", here.name());
        prop_assert_eq!(one.is_ok(), may_run(world, pod, node), "{}: {:?}", here.name(), one);
    }
    keeper.end(cycle, kept);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decisions_are_those_of_the_rules(world in a_world(), pod in a_pod()) {
        let (cache, pod) = (world.cache(), incoming(pod));
        check_filters(&world, &cache, &pod)?;
        let fits: BTreeSet<&str> = world.nodes.iter()
            .filter(|(n, _)| may_run(&world, &pod, n))
            .filter_map(|(n, _)| n.metadata.name.as_deref())
            .collect();
        let info = PodInfo::new(pod);
        match decided(&info, &cache) {
            Decision::Node(node) => prop_assert!(fits.contains(node.as_str()), "{node}, not one of {fits:?}"),
            other => prop_assert!(fits.is_empty(), "{other:?}, but {fits:?}"),
        }
    }

    /// Preemption keeps its promise: without the victims the Pod fits, by the plain reading. And one simulation
    /// leaves nothing behind for the next.
    #[test]
    fn without_the_victims_it_fits(world in a_world(), pod in a_pod()) {
        let (cache, mut pod) = (world.cache(), incoming(pod));
        pod.spec.as_mut().unwrap().priority = Some(3);
        let info = PodInfo::new(pod.clone());
        let none = Nominated::default();
        if let Decision::Unschedulable(_, Help::Room(candidate)) = decided_with(&info, &cache, &none, &[]) {
            let gone: BTreeSet<&str> = candidate.victims.iter().map(|v| v.uid()).collect();
            prop_assert!(!gone.is_empty());
            let mut after = world;
            for (_, pods) in &mut after.nodes {
                pods.retain(|p| !gone.contains(p.metadata.uid.as_deref().unwrap()));
            }
            let node = after.nodes.iter().find(|(n, _)| n.metadata.name.as_ref() == Some(&candidate.node));
            prop_assert!(may_run(&after, &pod, &node.unwrap().0), "on {} without {gone:?}", candidate.node);
            check_filters(&after, &after.cache(), &pod)?;
        }
    }

    /// Nominated Pods count for whoever is not more important, on the node they wait for.
    #[test]
    fn nominated_pods_count(world in a_world(), pod in a_pod(), waiting in a_pod(), on in 0..5usize) {
        let (cache, pod, mut waiting) = (world.cache(), incoming(pod), incoming(waiting));
        waiting.metadata.uid = Some("waiting".into());
        waiting.spec.as_mut().unwrap().priority = Some(9);
        let on = on % world.nodes.len();
        let name = world.nodes[on].0.metadata.name.clone().unwrap();
        let mut nominated = Nominated::default();
        nominated.set(PodInfo::new(waiting.clone()), &name);
        let info = PodInfo::new(pod.clone());
        let chosen = match decided_with(&info, &cache, &nominated, &[]) {
            Decision::Node(node) => Some(node),
            _ => None,
        };
        let without: Vec<bool> = world.nodes.iter().map(|(n, _)| may_run(&world, &pod, n)).collect();
        let mut world = world;
        world.nodes[on].1.push(waiting);
        for (i, (node, _)) in world.nodes.iter().enumerate() {
            if node.metadata.name == chosen {
                prop_assert!(without[i] && (i != on || may_run(&world, &pod, node)));
            }
        }
    }
}

/// A change of the cluster, by numbers that are read as indices.
#[derive(Debug, Clone)]
enum Step {
    Come(usize, Value),
    Go(usize),
    Relabel(usize, Value),
    Join(Value),
    Leave(usize),
}

fn a_step() -> impl Strategy<Value = Step> {
    let pod = prop_oneof![labels().prop_map(plain), a_pod()];
    prop_oneof![
        6 => (0..9usize, pod).prop_map(|(on, pod)| Step::Come(on, pod)),
        4 => (0..9usize).prop_map(Step::Go),
        1 => (0..9usize, a_node()).prop_map(|(on, node)| Step::Relabel(on, node)),
        1 => a_node().prop_map(Step::Join),
        1 => (0..9usize).prop_map(Step::Leave),
    ]
}

impl World {
    /// Takes a step in the objects and in the cache.
    fn step(&mut self, number: usize, step: Step, cache: &mut Cache) {
        let len = self.nodes.len().max(1);
        let named = |mut node: Value, name: &str| -> Node {
            node["metadata"]["name"] = json!(name);
            serde_json::from_value(node).unwrap()
        };
        match step {
            Step::Come(on, mut pod) => {
                let Some((node, pods)) = self.nodes.get_mut(on % len) else { return };
                pod["metadata"]["uid"] = json!(format!("s{number}"));
                let pod: Pod = serde_json::from_value(pod).unwrap();
                cache.set_pod(PodInfo::new(pod.clone()), node.metadata.name.as_deref().unwrap());
                pods.push(pod);
            }
            Step::Go(which) => {
                let count: usize = self.nodes.iter().map(|(_, pods)| pods.len()).sum();
                let mut left = which % count.max(1);
                for (_, pods) in &mut self.nodes {
                    if left < pods.len() {
                        cache.remove_pod(pods.remove(left).metadata.uid.as_deref().unwrap());
                        return;
                    }
                    left -= pods.len();
                }
            }
            Step::Relabel(on, node) => {
                let Some((known, _)) = self.nodes.get_mut(on % len) else { return };
                *known = named(node, known.metadata.name.as_deref().unwrap());
                cache.set_node(Arc::new(known.clone()));
            }
            Step::Join(node) => {
                let node = named(node, &format!("j{number}"));
                cache.set_node(Arc::new(node.clone()));
                self.nodes.push((node, Vec::new()));
            }
            Step::Leave(which) if self.nodes.len() > 1 => {
                let (node, pods) = self.nodes.remove(which % len);
                cache.remove_node(node.metadata.name.as_deref().unwrap());
                for pod in &pods {
                    cache.remove_pod(pod.metadata.uid.as_deref().unwrap());
                }
            }
            Step::Leave(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A memory of Pods that are alike says what a fresh look says: the same verdicts, the same scores, the same victims,
    /// whatever happens in between.
    #[test]
    fn what_is_kept_is_true(world in a_world(), pods in vec(a_pod(), 1..3), steps in vec(a_step(), 1..12)) {
        let (mut world, mut keeper) = (world, Keeper::default());
        let mut cache = world.cache();
        let (profile, none) = (profile(), Nominated::default());
        let pods: Vec<Pod> = pods.into_iter().map(incoming).collect();
        for (number, step) in steps.into_iter().enumerate() {
            world.step(number, step, &mut cache);
            let mut pod = pods[number % pods.len()].clone();
            pod.metadata.uid = Some(format!("incoming-{number}"));
            check_verdicts(&world, &cache, &pod, &mut keeper)?;
            let info = PodInfo::new(pod);
            let all: Vec<usize> = (0..cache.nodes().len()).collect();
            let (mut kept, mut cycle) = keeper.begin(&info, &profile, &cache);
            let got = kept.score(&mut cycle, &profile, &all);
            keeper.end(cycle, kept);
            prop_assert_eq!(got, scores(&info, &cache));
            let around = Around { profile: &profile, cluster: &cache, nominated: &none, budgets: &[], part: Part::default() };
            let shown = |d: Decision| match d {
                // Equals may be taken in any order.
                Decision::Unschedulable(e, Help::Room(c)) => {
                    let priorities: Vec<i32> = c.victims.iter().map(|v| v.priority()).collect();
                    let sum: i32 = priorities.iter().sum();
                    format!("{} {:?} {sum} {} {e}", c.violations, priorities.iter().max(), priorities.len())
                }
                Decision::Unschedulable(e, help) => format!("{e} {help:?}"),
                other => format!("{other:?}"),
            };
            let kept = shown(decide(&info, around, &mut keeper, &mut |_| 0));
            let fresh = shown(decide(&info, around, &mut Keeper::default(), &mut |_| 0));
            prop_assert_eq!(kept, fresh);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A turn within a placement is one in which the other nodes are no choice: they count, but nobody goes there, and
    /// nothing is said of them. Other turns leave things behind that change nothing.
    #[test]
    fn nobody_leaves_a_placement(
        world in a_world(), pod in a_pod(), inside in vec(any::<bool>(), 8), steps in vec(a_step(), 0..3),
    ) {
        let (mut world, mut keeper, pod) = (world, Keeper::default(), incoming(pod));
        let mut cache = world.cache();
        let (profile, none, info) = (profile(), Nominated::default(), PodInfo::new(pod.clone()));
        for (number, step) in std::iter::once(None).chain(steps.into_iter().map(Some)).enumerate() {
            if let Some(step) = step {
                world.step(number, step, &mut cache);
            }
            let all = cache.nodes().len();
            let nodes: Vec<usize> = (0..all).filter(|i| inside[i % inside.len()]).collect();
            let within = Within::new(&Placement { name: "p".into(), nodes: nodes.clone() }, all).unwrap();
            let part = Part { within: within.as_ref(), only_looks: true };
            let around = Around { profile: &profile, cluster: &cache, nominated: &none, budgets: &[], part };
            let is_in = |name: &str| cache.node(name).is_some_and(|n| nodes.contains(&n.index));
            let fits: BTreeSet<&str> = world.nodes.iter()
                .filter(|(n, _)| may_run(&world, &pod, n))
                .filter_map(|(n, _)| n.metadata.name.as_deref())
                .filter(|name| is_in(name))
                .collect();
            match decide(&info, around, &mut keeper, &mut |_| 0) {
                Decision::Node(node) => prop_assert!(fits.contains(node.as_str()), "{} of {:?}", node, fits),
                Decision::Unschedulable(error, help) => {
                    prop_assert!(fits.is_empty(), "{:?}: {}", fits, error);
                    prop_assert!(matches!(help, Help::Keep) && error.post_filter.is_empty());
                    let said: usize = error.verdicts.counts().map(|(_, n)| n).sum();
                    prop_assert_eq!(error.nodes, nodes.len());
                    prop_assert!(error.stopped.is_some() || said == nodes.len(), "{}: {}", nodes.len(), error);
                }
                Decision::Error(why) => prop_assert!(false, "{}", why),
            }
        }
    }
}

/// Anything that decodes, also what validation refuses today.
fn odd_pod() -> impl Strategy<Value = Value> {
    let quantity = prop_oneof![
        Just("9223372036854775807"),
        Just("-9223372036854775808"),
        Just("9E"),
        Just("1e400"),
        Just("nonsense"),
        Just("0"),
    ];
    let text = prop_oneof![Just(""), Just("zone"), Just("{{.bad-value.}}"), Just("é\u{0}"), Just("Exists")];
    let number = prop_oneof![Just(i32::MIN), Just(-1), Just(0), Just(1), Just(i32::MAX)];
    (vec(quantity, 3), vec(text, 8), vec(number, 5)).prop_map(|(q, t, n)| {
        let selector = json!({
            "matchLabels": {(t[0]): t[1]}, "matchExpressions": [{"key": t[2], "operator": t[3], "values": [t[4]]}]
        });
        let term = json!({
            "labelSelector": selector, "topologyKey": t[5], "namespaceSelector": selector, "namespaces": [t[6]]
        });
        json!({
            "metadata": {"uid": "odd", "namespace": t[6], "labels": {(t[0]): t[1]}},
            "spec": {
                "priority": n[0],
                "overhead": {"cpu": q[0], "memory": q[1]},
                "containers": [
                    {"name": "a", "resources": {"requests": {"cpu": q[0], "memory": q[1], "x/y": q[2]}},
                     "ports": [{"hostPort": n[1], "containerPort": n[2]}], "image": t[7]},
                    {"name": "b", "resources": {"requests": {"cpu": q[1], "memory": q[2], "x/y": q[2]}}},
                ],
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": n[3], "podAffinityTerm": term}
                    ]},
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": t[3], "values": [t[4]]}]},
                        {"matchExpressions": [{"key": t[5], "operator": "Gt", "values": [q[0]]}]},
                    ]}},
                },
                "topologySpreadConstraints": [{
                    "maxSkew": n[3], "minDomains": n[4], "topologyKey": t[5], "labelSelector": selector,
                    "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": [t[0]], "nodeTaintsPolicy": t[1],
                }],
                "tolerations": [{"key": t[0], "operator": t[3], "value": t[1]}],
            },
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(odd in vec(odd_pod(), 1..4), pod in odd_pod(), cpu in 0..5usize) {
        let amount = ["9E", "-9E", "0", "4", "nonsense"][cpu];
        let node = json!({
            "metadata": {"name": "n", "labels": {"zone": "a", "": "é"}},
            "spec": {"taints": [{"key": "", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": amount, "memory": amount, "pods": amount, "x/y": amount},
                "images": [{"names": ["zone:latest"], "sizeBytes": i64::MAX}, {"names": [":latest"], "sizeBytes": i64::MIN}],
            },
        });
        let mut cache = Cache::default();
        for name in ["n", "m"] {
            let mut node = node.clone();
            node["metadata"]["name"] = json!(name);
            cache.set_node(Arc::new(serde_json::from_value(node).unwrap()));
        }
        for (i, mut p) in odd.into_iter().enumerate() {
            p["metadata"]["uid"] = json!(i.to_string());
            // One of them is on a node that nobody knows.
            cache.set_pod(PodInfo::new(serde_json::from_value(p).unwrap()), ["n", "m", "unknown"][i]);
        }
        let info = PodInfo::new(serde_json::from_value(pod).unwrap());
        if let Decision::Unschedulable(error, _) = decided(&info, &cache) {
            let _ = error.to_string();
        }
        let _ = scores(&info, &cache);
        cache.remove_node("n");
        cache.remove_pod("0");
        prop_assert_eq!(cache.nodes().len(), 1);
    }
}
