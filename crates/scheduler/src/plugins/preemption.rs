//! Preemption: which Pods would have to go so that a more important one fits (upstream's `DefaultPreemption`).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{FeatureGates, Gate};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::cache::NodeInfo;
use crate::config::args::{DefaultPreemptionArgs, PluginArgs};
use crate::events::Events;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Candidate, Cycle, Dissent, Failed, Move, PostFilter, PostFiltered};
use crate::framework::verdict::Reason;
use crate::groups::Groups;
use crate::pod::{PodInfo, PodView};

/// The plugin's name.
pub const NAME: &str = "DefaultPreemption";

/// The most important first: higher priority, then the longer running.
fn by_importance(a: &PodInfo, b: &PodInfo) -> std::cmp::Ordering {
    b.priority().cmp(&a.priority()).then_with(|| {
        let now = Timestamp::MAX;
        a.started.unwrap_or(now).cmp(&b.started.unwrap_or(now))
    })
}

/// DefaultPreemption.
struct Preemption {
    args: DefaultPreemptionArgs,
    /// Whether groups are placed within topologies.
    by_topology: bool,
    /// Whether room is made for groups as a whole.
    by_group: bool,
}

impl PostFilter for Preemption {
    fn post_filter(&self, cycle: &mut Cycle<'_>, failed: &Failed<'_>) -> PostFiltered {
        let keep = |why: &str| PostFiltered::Keep(format!("preemption: {why}"));
        let pod = cycle.pod;
        if let Some(why) = self.not_for(pod, cycle.cluster.groups()) {
            return PostFiltered::Other(format!("preemption: {why}"));
        }
        if pod.spec().and_then(|s| s.preemption_policy.as_deref()) == Some("Never") {
            return keep("not eligible due to preemptionPolicy=Never.");
        }
        let waits_for = failed.nominated.node_of(pod.uid()).unwrap_or(pod.nominated());
        if let Some(node) = cycle.cluster.node(waits_for)
            && failed.stopped.is_none()
            && !failed.verdicts.is_lost(node.index)
            && leaving(pod, node)
        {
            return keep("not eligible due to a terminating pod on the nominated node.");
        }
        let candidates = match failed.consent.candidates() {
            Some(earlier) => earlier.to_vec(),
            None => match self.find(cycle, failed) {
                Ok(candidates) => candidates,
                Err(why) => return PostFiltered::Clear(format!("preemption: {why}")),
            },
        };
        match failed.consent.agreed(pod, candidates) {
            Ok(agreed) => match agreed.into_iter().min_by_key(rank) {
                Some(candidate) => PostFiltered::Room(candidate),
                None => PostFiltered::Keep("preemption: no candidate node for preemption".to_owned()),
            },
            Err(Dissent::Asks(candidates)) => PostFiltered::Asks(candidates),
            Err(Dissent::Failed(why)) => keep(&why),
        }
    }
}

impl Preemption {
    /// Why no room is made for a Pod of a group alone.
    fn not_for(&self, pod: &PodInfo, groups: &Groups) -> Option<&'static str> {
        pod.group()?;
        if self.by_topology {
            let Some(group) = groups.of(pod) else { return Some("pod group for pod not found") };
            if group.spec.scheduling_constraints.is_some() {
                return Some("not eligible due to placement-based pod group scheduling limitation");
            }
        }
        self.by_group.then_some("not eligible due to workload aware preemption enabled")
    }

    /// How many nodes are enough on which room can be made (upstream's `calculateNumCandidates`).
    fn enough(&self, nodes: usize) -> usize {
        let number = |n: i32| usize::try_from(n).unwrap_or(0);
        let percent = nodes * number(self.args.min_candidate_nodes_percentage) / 100;
        percent.max(number(self.args.min_candidate_nodes_absolute)).min(nodes)
    }

    /// Finds where evicting less important Pods makes room: at least one node, or the reason why that can't be, in
    /// upstream's words.
    fn find(&self, cycle: &mut Cycle<'_>, failed: &Failed<'_>) -> Result<Vec<Candidate>, String> {
        let nodes = cycle.cluster.nodes();
        let resolvable =
            |i: &usize| failed.stopped.is_none() && failed.verdicts.of(*i).is_some_and(|r| !r.unresolvable);
        let possible: Vec<usize> = (0..nodes.len()).filter(resolvable).collect();
        let mut why = BTreeMap::<Reason, usize>::new();
        if possible.len() < nodes.len() {
            let others = nodes.len() - possible.len();
            why.insert("Preemption is not helpful for scheduling".into(), others);
        }
        let start = if possible.is_empty() { 0 } else { fastrand::usize(..possible.len()) };
        let (mut candidates, mut harmless) = (Vec::new(), false);
        for i in possible[start..].iter().chain(&possible[..start]) {
            match victims_on(cycle, &nodes[*i], failed) {
                Ok(candidate) => {
                    harmless |= candidate.violations == 0;
                    candidates.push(candidate);
                }
                Err(reasons) => reasons.into_iter().for_each(|r| *why.entry(r).or_default() += 1),
            }
            // As upstream: enough of them, and one among them that breaks no budget.
            if harmless && candidates.len() >= self.enough(possible.len()) {
                break;
            }
        }
        if !candidates.is_empty() {
            return Ok(candidates);
        }
        let mut parts: Vec<String> = why.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        parts.sort();
        let reasons = if parts.is_empty() { String::new() } else { format!(" {}.", parts.join(", ")) };
        Err(format!("0/{} nodes are available:{reasons}", nodes.len()))
    }
}

pub(super) fn plugin(args: &PluginArgs, gates: FeatureGates) -> Result<Plugin, String> {
    let PluginArgs::DefaultPreemption(args) = args else {
        return Err("want args to be of type DefaultPreemptionArgs".to_owned());
    };
    let plugin = Arc::new(Preemption {
        args: args.clone(),
        by_topology: gates.enabled(Gate::TopologyAwareWorkloadScheduling),
        by_group: gates.enabled(Gate::WorkloadAwarePreemption),
    });
    // The plugins that refused the Pod say when room was made.
    let points = Points { post_filter: Some(plugin), ..Points::default() };
    Ok(Plugin::new(NAME, points).lifted_by(Events::NONE))
}

/// Whether Pods that are less important are leaving the node since they were preempted.
fn leaving(pod: &PodInfo, node: &NodeInfo) -> bool {
    node.pods.values().any(|p| p.priority() < pod.priority() && p.leaving && p.preempted)
}

/// The best comes first: fewest budget violations, least important most important victim,
/// smallest sum of priorities, fewest victims, and the victim that started latest.
fn rank(c: &Candidate) -> (usize, i32, i64, usize, std::cmp::Reverse<Timestamp>) {
    let highest = c.victims.first().map_or(i32::MIN, |v| v.priority());
    let sum = c.victims.iter().map(|v| i64::from(v.priority()) + i64::from(i32::MAX) + 1).sum();
    let earliest = c
        .victims
        .iter()
        .filter(|v| v.priority() == highest)
        .map(|v| v.started.unwrap_or(Timestamp::MAX))
        .min()
        .unwrap_or(Timestamp::MAX);
    (c.violations, highest, sum, c.victims.len(), std::cmp::Reverse(earliest))
}

/// The fewest Pods that must leave a node, keeping the more important and the protected where possible. The notes of
/// plugins are afterwards as they were.
fn victims_on(cycle: &mut Cycle<'_>, node: &NodeInfo, failed: &Failed<'_>) -> Result<Candidate, Vec<Reason>> {
    let priority = cycle.pod.priority();
    let lower: Vec<PodInfo> = node.pods.values().filter(|p| p.priority() < priority).cloned().collect();
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    let mut rest = node.clone();
    for other in &lower {
        rest.remove(other.uid());
        failed.simulation.count(cycle, Move { other, node, by: -1 });
    }
    let result = reprieve(cycle, &mut rest, lower.clone(), failed);
    for other in lower.iter().filter(|p| !rest.pods.contains_key(p.uid())) {
        failed.simulation.count(cycle, Move { other, node, by: 1 });
    }
    result
}

/// Lets Pods that were taken off a node stay, one after the other, while the preemptor still fits.
fn reprieve(
    cycle: &mut Cycle<'_>,
    rest: &mut NodeInfo,
    mut lower: Vec<PodInfo>,
    failed: &Failed<'_>,
) -> Result<Candidate, Vec<Reason>> {
    failed.simulation.fits(cycle, rest).map_err(|r| r.reasons)?;
    lower.sort_by(by_importance);
    let mut victims = Vec::new();
    let mut violations = 0;
    let (protected, free) = split_by_budget(lower, failed.budgets);
    for (candidate, violates) in
        protected.into_iter().map(|p| (p, true)).chain(free.into_iter().map(|p| (p, false)))
    {
        rest.add(candidate.clone());
        failed.simulation.count(cycle, Move { other: &candidate, node: rest, by: 1 });
        if failed.simulation.fits(cycle, rest).is_err() {
            rest.remove(candidate.uid());
            failed.simulation.count(cycle, Move { other: &candidate, node: rest, by: -1 });
            violations += usize::from(violates);
            victims.push(candidate);
        }
    }
    victims.sort_by(by_importance);
    Ok(Candidate { node: rest.name().to_owned(), victims, violations })
}

/// Splits Pods into those whose going would break a disruption budget and the others, in order.
fn split_by_budget(pods: Vec<PodInfo>, budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<PodInfo>, Vec<PodInfo>) {
    let mut allowed = Allowed::new(budgets);
    // Each budget of a Pod counts it, whether or not another is broken.
    pods.into_iter().partition(|p| allowed.takes(p).filter(|broken| *broken).count() > 0)
}

/// The disruptions that budgets still allow.
pub(super) struct Allowed<'a>(Vec<(&'a PodDisruptionBudget, i32)>);

impl<'a> Allowed<'a> {
    pub(super) fn new(budgets: &'a [Arc<PodDisruptionBudget>]) -> Self {
        let left =
            |b: &PodDisruptionBudget| b.status.as_ref().map_or(0, |s| s.disruptions_allowed.unwrap_or(0));
        Self(budgets.iter().map(|b| (&**b, left(b))).collect())
    }

    /// Takes a disruption off each budget that the Pod's going concerns, as they are asked for: whether it is broken.
    pub(super) fn takes(&mut self, pod: &PodView) -> impl Iterator<Item = bool> {
        self.0.iter_mut().filter_map(move |(budget, left)| {
            let done = budget
                .status
                .as_ref()
                .and_then(|s| s.disrupted_pods.as_ref())
                .is_some_and(|d| d.contains_key(pod.name()));
            if budget.metadata.namespace.as_deref().unwrap_or_default() != pod.namespace()
                || !selects(budget, pod)
                || done
            {
                return None;
            }
            *left -= 1;
            Some(*left < 0)
        })
    }
}

/// Whether a budget selects a Pod; an empty or absent selector selects none.
fn selects(budget: &PodDisruptionBudget, pod: &PodView) -> bool {
    let Some(selector) = budget.spec.as_ref().and_then(|s| s.selector.as_ref()) else { return false };
    let (exact, expressions) =
        (selector.match_labels.iter().flatten(), selector.match_expressions.iter().flatten());
    let have = |key: &str| pod.labels.get(key);
    let empty = selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none();
    !empty
        && !pod.labels.is_empty()
        && exact.into_iter().all(|(k, v)| have(k) == Some(v.as_str()))
        && expressions.into_iter().all(|e| {
            let listed = |v: &str| e.values.iter().flatten().any(|x| x == v);
            match e.operator.as_str() {
                "In" => have(&e.key).is_some_and(listed),
                "NotIn" => !have(&e.key).is_some_and(listed),
                "Exists" => have(&e.key).is_some(),
                "DoesNotExist" => have(&e.key).is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cache::Cache;
    use crate::cycle::{Decision, Help};
    use crate::nominated::Nominated;
    use crate::plugins::tests::decided_with;

    fn pod(uid: &str, priority: i32, cpu: &str) -> PodInfo {
        let pod = serde_json::from_value(json!({
            "metadata": {"uid": uid, "name": uid, "namespace": "d", "labels": {"app": uid}},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        }));
        PodInfo::new(pod.unwrap())
    }

    fn check(
        placed: &[(&str, PodInfo)],
        incoming: &PodInfo,
        budgets: serde_json::Value,
    ) -> Result<(String, Vec<String>), String> {
        let mut cache = Cache::default();
        for name in ["a", "b"] {
            let node =
                json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
            cache.set_node(Arc::new(serde_json::from_value(node).unwrap()));
        }
        for (node, p) in placed {
            cache.set_pod(p.clone(), node);
        }
        let budgets: Vec<_> = serde_json::from_value::<Vec<PodDisruptionBudget>>(budgets)
            .unwrap()
            .into_iter()
            .map(Arc::new)
            .collect();
        let Decision::Unschedulable(error, help) =
            decided_with(incoming, &cache, &Nominated::default(), &budgets)
        else {
            panic!("another decision");
        };
        let Help::Room(found) = help else { return Err(error.post_filter) };
        Ok((found.node, found.victims.iter().map(|v| v.uid().to_owned()).collect()))
    }

    #[test]
    fn evicts_the_least_important() {
        let placed = [("a", pod("low", 1, "2")), ("a", pod("mid", 5, "2")), ("b", pod("high", 9, "4"))];
        assert_eq!(check(&placed, &pod("x", 10, "2"), json!([])), Ok(("a".into(), vec!["low".into()])));
        assert_eq!(
            check(&placed, &pod("x", 1, "2"), json!([])).unwrap_err(),
            "no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
        );
        assert_eq!(
            check(&placed, &pod("x", 10, "5"), json!([])).unwrap_err(),
            "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        );
    }

    #[test]
    fn respects_budgets_where_it_can() {
        let placed = [("a", pod("one", 1, "4")), ("b", pod("two", 2, "4"))];
        let budget = json!([{
            "metadata": {"namespace": "d"}, "spec": {"selector": {"matchLabels": {"app": "one"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        }]);
        assert_eq!(check(&placed, &pod("x", 10, "2"), budget), Ok(("b".into(), vec!["two".into()])));
    }

    /// A Pod that asks for an amount of what there is ten of on each node.
    fn asking(name: &str, priority: i32, amount: u32, mut spec: serde_json::Value) -> PodInfo {
        spec["priority"] = json!(priority);
        spec["containers"] =
            json!([{"name": "c", "resources": {"requests": {"example.com/r": amount.to_string()}}}]);
        let pod = json!({
            "metadata": {"uid": name, "name": name, "namespace": "d", "labels": {"app": "x"}}, "spec": spec
        });
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    /// Pods `(name, priority, amount, node)` on two nodes. Gives the node and the victims.
    fn check_rules(
        placed: &[(&str, i32, u32, &str)],
        incoming: &PodInfo,
        nominated: &Nominated,
    ) -> Result<(String, Vec<String>), String> {
        let mut cache = Cache::default();
        for name in ["a", "b"] {
            let node = json!({
                "metadata": {"name": name, "labels": {"host": name}},
                "status": {"allocatable": {"example.com/r": "10", "pods": "9"}}
            });
            cache.set_node(Arc::new(serde_json::from_value(node).unwrap()));
        }
        for (name, priority, amount, node) in placed {
            cache.set_pod(asking(name, *priority, *amount, json!({})), node);
        }
        let Decision::Unschedulable(error, help) = decided_with(incoming, &cache, nominated, &[]) else {
            panic!("another decision");
        };
        let Help::Room(found) = help else { return Err(error.post_filter) };
        let mut victims: Vec<String> = found.victims.iter().map(|v| v.uid().to_owned()).collect();
        victims.sort();
        Ok((found.node, victims))
    }

    #[test]
    fn two_preemptors_do_not_count_on_the_same_room() {
        let placed = [("low", 1, 10, "a"), ("high", 9, 10, "b")];
        let (incoming, mut nominated) = (asking("incoming", 5, 3, json!({})), Nominated::default());
        nominated.set(asking("less", 4, 10, json!({})), "a");
        assert_eq!(check_rules(&placed, &incoming, &nominated), Ok(("a".into(), vec!["low".into()])));
        nominated.set(asking("more", 6, 10, json!({})), "a");
        assert_eq!(
            check_rules(&placed, &incoming, &nominated).unwrap_err(),
            "no new claims to deallocate, preemption: 0/2 nodes are available: 1 Insufficient example.com/r, 1 No preemption victims found for incoming pod."
        );
    }

    #[test]
    fn makes_room_for_rules_about_other_pods() {
        let spread = json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        }]});
        let with = |placed: &[(&str, i32, u32, &str)], amount: u32, rules: serde_json::Value| {
            check_rules(placed, &asking("incoming", 5, amount, rules), &Nominated::default())
        };
        // As in upstream's end-to-end test: one victim makes room enough, but only two make it even.
        let placed = [("high", 9, 9, "a"), ("low-1", 1, 3, "b"), ("low-2", 1, 3, "b"), ("low-3", 1, 3, "b")];
        let (node, victims) = with(&placed, 3, spread).unwrap();
        assert_eq!((node.as_str(), victims.len()), ("b", 2), "{victims:?}");
        let rule = |kind: &str| {
            json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "host"}
            ]}}})
        };
        let placed = [("high", 9, 1, "a"), ("low", 1, 1, "b"), ("lower", 0, 1, "b")];
        let all = vec!["low".to_owned(), "lower".to_owned()];
        assert_eq!(with(&placed, 1, rule("podAntiAffinity")), Ok(("b".into(), all)));
        // A Pod that the new one wants near is not evicted for it.
        let placed = [("low", 1, 9, "a"), ("high", 9, 9, "b")];
        assert_eq!(
            with(&placed, 3, rule("podAffinity")).unwrap_err(),
            "no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 node(s) didn't match pod affinity rules."
        );
    }
}
