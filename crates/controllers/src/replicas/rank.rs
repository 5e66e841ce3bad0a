//! The order in which Pods are deleted when there are too many.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::views::PodView;

/// Whether a Pod's annotation of its cost counts: the gate `PodDeletionCost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    ByCost,
    Plain,
}

/// Returns the `count` Pods whose loss is felt least.
pub(super) fn to_delete(
    active: &[Arc<PodView>],
    related: &[Arc<PodView>],
    count: usize,
    order: Order,
    now: Timestamp,
) -> Vec<Arc<PodView>> {
    let mut chosen = active.to_vec();
    if count < chosen.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        for pod in related.iter().filter(|p| p.is_active()) {
            *on_node.entry(pod.node.as_str()).or_default() += 1;
        }
        let neighbours = |pod: &PodView| on_node.get(pod.node.as_str()).copied().unwrap_or(0);
        chosen.sort_by_cached_key(|pod| rank(pod, neighbours(pod), order, now));
        chosen.truncate(count);
    }
    chosen
}

/// Makes a key of upstream's order (`ActivePodsWithRanks`), smallest first: without a node; pending, unknown, running;
/// not ready; lowest cost; most neighbours; ready for the shortest time; most restarts; youngest.
///
/// Times count by their logarithm, so that neighbours in age go in no order but their uid's. DIFFERENCE: upstream
/// compares uids where only the ready times' logarithms agree, before it looks at restarts, which is no order at all
/// for some triples; here all else is compared first.
fn rank(pod: &PodView, neighbours: usize, order: Order, now: Timestamp) -> impl Ord + use<> {
    let phase = match pod.phase.as_str() {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let ready = pod.is_ready();
    let created = pod.created.map(|t| age(t, now));
    let ready_for = if ready { Some(pod.ready_since().map(|t| age(t, now))) } else { None };
    (
        !pod.node.is_empty(),
        phase,
        ready,
        if order == Order::ByCost { pod.cost } else { 0 },
        Reverse(neighbours),
        ready_for,
        Reverse(pod.restarts),
        created,
        pod.meta.uid.clone(),
    )
}

/// Returns the binary logarithm of an age in nanoseconds; -1 for none.
fn age(since: Timestamp, now: Timestamp) -> i64 {
    let nanos = now.duration_since(since).as_nanos();
    u128::try_from(nanos).ok().and_then(u128::checked_ilog2).map_or(-1, i64::from)
}

/// The ages of ready Pods that are chosen out of more, in whole multiples of that of the youngest ready one; upstream's
/// measure of the order.
pub(super) fn age_ratios(active: &[Arc<PodView>], chosen: &[Arc<PodView>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Arc<PodView>| {
        let age = now.duration_since(pod.created.filter(|_| pod.is_ready())?).as_millis();
        (age > 0).then_some(age)
    };
    let youngest = active.iter().filter_map(age).min();
    let Some(youngest) = youngest.filter(|_| chosen.len() < active.len()) else { return Vec::new() };
    chosen.iter().filter_map(age).map(|age| (age / youngest) as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use serde_json::{Value, json};

    fn pod(name: &str, node: &str, phase: &str, more: Value) -> Arc<PodView> {
        let mut value = json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase},
        });
        fn merge(into: &mut Value, from: &Value) {
            match (into, from) {
                (Value::Object(into), Value::Object(from)) => {
                    for (k, v) in from {
                        merge(into.entry(k.clone()).or_insert(Value::Null), v);
                    }
                }
                (into, from) => *into = from.clone(),
            }
        }
        merge(&mut value, &more);
        Arc::new(view(&value))
    }

    fn ready(at: i64) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": "True",
            "lastTransitionTime": Timestamp::from_second(at).unwrap().to_string()}]}})
    }

    /// The order of upstream's `TestSortingActivePodsWithRanks`, pair by pair.
    #[test]
    fn order() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let restarted = |n: i32| {
            let mut v = ready(5);
            v["status"]["containerStatuses"] = json!([
                {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": n}]);
            v
        };
        let cost = |c: &str| {
            let mut v = ready(5);
            v["metadata"] = json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": c}});
            v
        };
        let created = |at: i64| {
            let mut v = ready(5);
            v["metadata"] = json!({"creationTimestamp": Timestamp::from_second(at).unwrap().to_string()});
            v
        };
        let check = |first: Arc<PodView>, second: Arc<PodView>| {
            for pods in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
                let chosen = to_delete(&pods, &[], 1, Order::ByCost, now);
                assert_eq!(chosen[0].name(), first.name());
            }
        };
        check(pod("unscheduled", "", "Pending", json!({})), pod("scheduled", "n", "Pending", json!({})));
        check(pod("pending", "n", "Pending", json!({})), pod("unknown", "n", "Unknown", json!({})));
        check(pod("unknown", "n", "Unknown", json!({})), pod("running", "n", "Running", json!({})));
        check(pod("unready", "n", "Running", json!({})), pod("ready", "n", "Running", ready(5)));
        check(pod("z-late", "n", "Running", ready(999_990)), pod("a-early", "n", "Running", ready(5)));
        check(pod("restarts", "n", "Running", restarted(3)), pod("none", "n", "Running", restarted(0)));
        check(pod("cheap", "n", "Running", cost("-1")), pod("dear", "n", "Running", cost("10")));
        check(pod("young", "n", "Running", created(999_999)), pod("old", "n", "Running", created(5)));
    }

    /// The order of upstream's `TestSortingActivePods`, in which restarts of sidecars come after those of containers.
    #[test]
    fn upstreams_order() {
        let now = Timestamp::from_second(10_000_000).unwrap();
        let (then, late) = (7_000_000, 10_000_000);
        let stamp = |at: i64| Timestamp::from_second(at).unwrap().to_string();
        let counts = |name: &str, n: i32| json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": n});
        let ready = |since: Option<i64>, restarts: [i32; 2], sidecar: Option<i32>, created: Option<i64>| {
            let condition =
                json!({"type": "Ready", "status": "True", "lastTransitionTime": since.map(stamp)});
            let init: Vec<_> = sidecar.iter().map(|n| counts("sidecar", *n)).collect();
            let sidecars: Vec<_> =
                sidecar.iter().map(|_| json!({"name": "sidecar", "restartPolicy": "Always"})).collect();
            json!({
                "metadata": {"creationTimestamp": created.map(stamp)},
                "spec": {"initContainers": sidecars},
                "status": {"conditions": [condition], "initContainerStatuses": init,
                    "containerStatuses": [counts("a", restarts[0]), counts("b", restarts[1])]},
            })
        };
        let running = |name: &str, more: Value| pod(name, "foo", "Running", more);
        let all = [
            pod("unscheduled", "", "Pending", json!({})),
            pod("scheduledButPending", "bar", "Pending", json!({})),
            pod("unknownPhase", "foo", "Unknown", json!({})),
            running("runningButNotReady", json!({})),
            running("runningNoLastTransitionTime", ready(None, [3, 0], None, None)),
            running("runningWithLastTransitionTime", ready(Some(late), [3, 0], None, None)),
            running("runningLongerTime", ready(Some(then), [3, 0], None, None)),
            running("lowerSidecarContainerRestartCount", ready(Some(then), [2, 1], Some(2), Some(late))),
            running("lowerContainerRestartCount", ready(Some(then), [2, 1], None, Some(late))),
            running("oldest", ready(Some(then), [2, 1], None, Some(then))),
        ];
        let names = |pods: &[Arc<PodView>]| pods.iter().map(|p| p.name().to_owned()).collect::<Vec<_>>();
        let mut mixed = all.to_vec();
        for round in 0..all.len() {
            mixed.rotate_left(3);
            mixed.swap(0, round);
            for count in 1..all.len() {
                let chosen = to_delete(&mixed, &[], count, Order::ByCost, now);
                assert_eq!(names(&chosen), names(&all[..count]));
            }
        }
    }

    #[test]
    fn crowded_nodes_are_thinned() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let (a, b) = (pod("a", "one", "Running", ready(5)), pod("b", "two", "Running", ready(5)));
        let related = [a.clone(), b.clone(), pod("c", "two", "Running", ready(5))];
        assert_eq!(to_delete(&[a, b.clone()], &related, 1, Order::ByCost, now), [b]);
    }
    /// Upstream's case `with PodDeletionCost disabled` of `TestSortingActivePodsWithRanks`, and its measure of ages.
    #[test]
    fn costs_may_not_count() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let made = |name: &str, at: i64, cost: &str| {
            let mut more = ready(5);
            more["metadata"] = json!({"creationTimestamp": Timestamp::from_second(at).unwrap().to_string(),
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}});
            pod(name, "n", "Running", more)
        };
        let (young, old) = (made("young", 999_900, "10"), made("old", 999_000, "-10"));
        let all = [young.clone(), old.clone()];
        let check = |order: Order, want: &Arc<PodView>, ratio: f64| {
            let chosen = to_delete(&all, &[], 1, order, now);
            assert_eq!(chosen, std::slice::from_ref(want));
            assert_eq!(age_ratios(&all, &chosen, now), [ratio]);
        };
        check(Order::ByCost, &old, 10.0);
        check(Order::Plain, &young, 1.0);
        assert!(age_ratios(&all, &all, now).is_empty(), "nothing was chosen");
        let unready = [pod("a", "n", "Running", json!({}))];
        assert!(age_ratios(&unready, &[], now).is_empty());
    }
    /// Upstream's cases of `TestGetPodsToDelete`: the Pods, and the related ones, by letters: unscheduled, pending,
    /// not ready, ready on the nodes 1 and 2.
    #[test]
    fn the_first_to_go() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let condition =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let made = |letter: char| match letter {
            'u' => pod("u", "", "Pending", json!({})),
            'p' => pod("p", "fake-node", "Pending", json!({})),
            'n' => pod("n", "fake-node", "Running", condition("False")),
            '1' => pod("1", "fake-node-1", "Running", condition("True")),
            _ => pod("2", "fake-node-2", "Running", condition("True")),
        };
        let all = |letters: &str| letters.chars().map(made).collect::<Vec<_>>();
        let check = |pods: &str, related: &str, count: usize, want: &str| {
            let got = to_delete(&all(pods), &all(related), count, Order::ByCost, now);
            assert_eq!(got.iter().map(|p| p.name()).collect::<String>(), want, "{pods} {related}");
        };
        check("", "", 0, "");
        check("n1", "n1", 2, "n1");
        check("1n", "1n", 1, "n");
        check("112npu", "112npu", 6, "112npu");
        check("112npu", "", 6, "112npu");
        check("pu", "pu", 1, "u");
        check("1nn", "1nn", 2, "nn");
        check("12", "122", 1, "2");
        check("pn", "pn", 1, "p");
        check("12npu", "12npu", 3, "upn");
    }
}
