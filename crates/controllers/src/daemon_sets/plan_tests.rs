//! Upstream's cases of `daemon_controller_test.go` and `update_test.go`.

use serde_json::{Value, json};

use super::super::world::World;
use super::*;
use crate::common::revisions::POD_REVISION;

fn strategy(parameters: Value) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": parameters}})
}

fn replacing(unavailable: impl Into<Value>) -> Value {
    strategy(json!({"maxUnavailable": unavailable.into(), "maxSurge": null}))
}

fn surging(surge: impl Into<Value>) -> Value {
    strategy(json!({"maxSurge": surge.into(), "maxUnavailable": 0}))
}

/// Each of upstream's `updateStrategies`.
fn everywhere(nodes: usize, scenario: impl Fn(World)) {
    scenario(World::new(json!({}), nodes));
    scenario(World::new(json!({"spec": replacing(1)}), nodes));
}

fn names(pods: &[Arc<PodView>]) -> Vec<&str> {
    let mut all: Vec<_> = pods.iter().map(|p| p.name()).collect();
    all.sort_unstable();
    all
}

/// The labels of a Pod of an earlier template.
fn old() -> Value {
    json!({"metadata": {"labels": {POD_REVISION: "old"}}})
}

fn both(a: Value, b: &Value) -> Value {
    super::super::testing::merged(a, b)
}

/// Upstream's cases of `TestSimpleDaemonSetLaunchesPods`, `TestSimpleDaemonSetScheduleDaemonSetPodsLaunchesPods`
/// and `TestNoNodesDoesNothing`.
#[test]
fn a_pod_on_every_node() {
    everywhere(5, |mut w| {
        w.expect(5, 0);
        let targets: Vec<_> = w.with(|s| s.pods.keys().cloned().collect());
        assert!(targets.iter().eq(w.nodes.keys()));
        w.expect(0, 0);
    });
    everywhere(0, |mut w| w.expect(0, 0));
    let plan = World::new(json!({}), 600).plan();
    assert_eq!(plan.create.len(), BURST);
}

/// Upstream's case of `TestDealsWithExistingPods`.
#[test]
fn pods_that_are_there_already() {
    everywhere(5, |mut w| {
        w.add("a", 1, json!({}));
        for i in 0..2 {
            w.add(&format!("b-{i}"), 2, json!({}));
        }
        for i in 0..5 {
            w.add(&format!("c-{i}"), 3, json!({}));
        }
        let plan = w.plan();
        assert_eq!(plan.create, ["node-000", "node-004"]);
        assert_eq!(names(&plan.delete), ["b-1", "c-1", "c-2", "c-3", "c-4"], "the oldest stay");
    });
    // A bound Pod is worth more than an older one that is not.
    let mut w = World::new(json!({}), 1);
    let aims = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-000"]}]}]}}});
    w.add("waits", 0, json!({"spec": {"nodeName": "", "affinity": aims}}));
    w.add("bound", 0, json!({}));
    assert_eq!(names(&w.plan().delete), ["waits"]);
}

/// Upstream's cases of `TestNoScheduleTaintedDoesntEvicitRunningIntolerantPod` and
/// `TestNoExecuteTaintedDoesEvicitRunningIntolerantPod`, and Pods on nodes that are not selected.
#[test]
fn nodes_that_want_no_pod() {
    let labelled =
        |w: &mut World, n: usize| w.set_node(n, json!({"metadata": {"labels": {"color": "blue"}}}));
    everywhere(5, |mut w| {
        w.change(json!({"template": {"spec": {"nodeSelector": {"color": "blue"}}}}));
        labelled(&mut w, 0);
        w.expect(1, 0);
        w.expect(0, 0);
        w.add("not-here", 3, json!({}));
        assert_eq!(w.status().number_misscheduled, 1);
        w.expect(0, 1);
    });
    // A taint that keeps new Pods away leaves the others; another one does not.
    for (effect, deleted) in [("NoSchedule", 0), ("NoExecute", 1)] {
        everywhere(1, |mut w| {
            w.expect(1, 0);
            w.set_node(0, json!({"spec": {"taints": [{"key": "k", "effect": effect}]}}));
            let status = w.status();
            assert_eq!((status.desired_number_scheduled, status.number_misscheduled), (0, 1));
            w.expect(0, deleted);
            w.expect(0, 0);
        });
    }
}

/// Upstream's cases of `TestGetNodesToDaemonPods` and `TestDeleteUnscheduledPodForNotExistingNode`.
#[test]
fn pods_and_their_nodes() {
    let mut w = World::new(json!({}), 2);
    let aim = |name: &str| {
        json!({"spec": {"nodeName": "", "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}})
    };
    let time = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    w.add("bound", 0, json!({}));
    w.add("waits", 1, aim("node-001"));
    w.add("nowhere", 1, json!({"spec": {"nodeName": ""}}));
    w.add("lost", 1, aim("node-gone"));
    w.add("bound-to-lost", 7, json!({}));
    w.add("ends", 0, time.clone());
    w.add("ended", 0, both(time, &json!({"status": {"phase": "Failed"}})));
    let placed = w.with(|s| {
        s.pods.iter().map(|(node, pods)| (node.clone(), names(pods).join(","))).collect::<Vec<_>>()
    });
    let want = [
        ("node-000", "bound,ends"),
        ("node-001", "waits"),
        ("node-007", "bound-to-lost"),
        ("node-gone", "lost"),
    ];
    assert!(placed.iter().map(|(a, b)| (a.as_str(), b.as_str())).eq(want), "{placed:?}");
    let plan = w.plan();
    assert_eq!((plan.create.len(), names(&plan.delete)), (0, vec!["lost"]));
}

/// Upstream's cases of `TestDaemonKillFailedPods` and `TestDaemonKillFailedPodsBackoff`.
#[test]
fn ended_pods() {
    let check = |failed: usize, normal: usize, creates: usize, deletes: usize| {
        let mut w = World::new(json!({}), 1);
        (0..failed).for_each(|i| w.add(&format!("failed-{i}"), 0, json!({"status": {"phase": "Failed"}})));
        (0..normal).for_each(|i| w.add(&format!("normal-{i}"), 0, json!({})));
        let plan = w.plan();
        assert_eq!((plan.create.len(), plan.delete.len()), (creates, deletes), "{failed} {normal}");
        assert_eq!(plan.ended.len(), failed);
    };
    check(0, 1, 0, 0);
    check(1, 0, 0, 1);
    check(1, 3, 0, 3);
    check(2, 1, 0, 2);
    let mut w = World::new(json!({}), 1);
    w.add("failed", 0, json!({"status": {"phase": "Failed"}}));
    w.held.insert("node-000".to_owned(), Duration::from_secs(4));
    let plan = w.plan();
    assert_eq!((plan.delete.len(), plan.ended.len(), plan.again), (0, 0, Some(Duration::from_secs(4))));
    w.pods.clear();
    w.add("succeeded", 0, json!({"status": {"phase": "Succeeded"}}));
    assert_eq!(names(&w.plan().delete), ["succeeded"], "there is no delay for those");
}

/// Upstream's cases of `TestNumberReadyStatus`, `TestSimpleDaemonSetUpdatesStatusAfterLaunchingPods` and others.
#[test]
fn statuses() {
    let counts = |w: &World| {
        let s = w.status();
        let of = |n: Option<i32>| n.unwrap();
        [
            s.desired_number_scheduled,
            s.current_number_scheduled,
            s.number_misscheduled,
            s.number_ready,
            of(s.updated_number_scheduled),
            of(s.number_available),
            of(s.number_unavailable),
        ]
    };
    let mut w = World::new(json!({"spec": {"minReadySeconds": 10}}), 3);
    assert_eq!(counts(&w), [3, 0, 0, 0, 0, 0, 3]);
    w.expect(3, 0);
    assert_eq!(counts(&w), [3, 3, 0, 0, 3, 0, 3]);
    w.set_ready(true, 2, |_| true);
    assert_eq!(counts(&w), [3, 3, 0, 2, 3, 0, 3]);
    w.now += 10;
    assert_eq!(counts(&w), [3, 3, 0, 2, 3, 2, 1]);
    w.set_image("other");
    assert_eq!(counts(&w), [3, 3, 0, 2, 0, 2, 1]);
    w.set_node(0, json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    assert_eq!(counts(&w)[..3], [2, 2, 1]);
    // Of several Pods the one that is bound counts.
    w.add("bound", 1, json!({}));
    assert_eq!(counts(&w)[4], 1);
}

#[test]
fn statuses_that_differ() {
    let told = DaemonSetStatus { number_ready: 1, ..DaemonSetStatus::default() };
    assert!(!differs(&told, &DaemonSetStatus { number_available: Some(0), ..told.clone() }));
    assert!(differs(&told, &DaemonSetStatus { number_available: Some(1), ..told.clone() }));
    assert!(differs(&told, &DaemonSetStatus { desired_number_scheduled: 1, ..told.clone() }));
}

/// Upstream's cases of `TestGetUnavailableNumbers`.
#[test]
fn bounds() {
    let check = |spec: Value, nodes: usize, surge: i64, unavailable: i64| {
        let w = World::new(json!({ "spec": spec }), nodes);
        let desired = i64::try_from(nodes).unwrap();
        assert_eq!(w.with(|s| s.bounds()), Ok(Bounds { surge, unavailable, desired }), "{spec} {nodes}");
    };
    check(replacing(0), 0, 0, 0);
    check(replacing(1), 2, 0, 1);
    check(replacing(0), 2, 0, 1);
    check(surging(0), 2, 0, 1);
    check(replacing("50%"), 2, 0, 1);
    check(surging("50%"), 2, 1, 0);
    check(surging("100%"), 2, 2, 0);
    check(replacing("50%"), 3, 0, 2);
    check(json!({}), 2, 0, 1);
    let odd = World::new(json!({"spec": replacing("x")}), 1);
    assert!(odd.with(|s| s.bounds()).unwrap_err().starts_with("invalid value for MaxUnavailable: "));
}

/// Upstream's case of `TestDaemonSetUpdatesPods`, and an update when somebody deletes the Pods.
#[test]
fn updates_replace_pods() {
    let mut w = World::new(json!({}), 5);
    w.expect(5, 0);
    w.all_ready();
    w.set_image("foo2/bar2");
    w.expect(0, 0);
    w.change(replacing(2));
    for n in [2, 2, 1] {
        w.expect(0, n);
        w.expect(n, 0);
        w.expect(0, 0);
        w.all_ready();
    }
    w.expect(0, 0);
    assert_eq!(w.status().updated_number_scheduled, Some(5));
    w.change(replacing(3));
    w.expect(0, 0);
}

/// Upstream's cases of `TestDaemonSetUpdatesPodsWithMaxSurge` and
/// `TestDaemonSetUpdatesPodsNotMatchTainstWithMaxSurge`.
#[test]
fn updates_surge() {
    let mut w = World::new(json!({}), 5);
    w.expect(5, 0);
    w.all_ready();
    w.set_image("foo2/bar2");
    w.change(surging(2));
    for (created, deleted) in [(2, 0), (2, 2), (1, 2), (0, 1)] {
        w.expect(created, deleted);
        w.expect(0, 0);
        w.all_ready();
    }
    w.expect(0, 0);

    let tolerations = |all: Value| json!({"template": {"spec": {"tolerations": all}}});
    let mut w = World::new(json!({"spec": surging(1)}), 5);
    w.change(tolerations(json!([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}])));
    w.set_node(0, json!({"spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}}));
    w.expect(5, 0);
    w.all_ready();
    w.change(tolerations(Value::Null));
    for (created, deleted) in [(1, 1), (1, 1), (1, 1), (1, 1), (0, 1)] {
        w.expect(created, deleted);
        w.expect(0, 0);
        w.all_ready();
    }
}

/// Upstream's cases of `TestDaemonSetUpdatesWhenNewPodIsNotReady`, `TestDaemonSetUpdatesAllOldPodsNotReady` and
/// `TestDaemonSetUpdatesSomeOldPodsNotReady`.
#[test]
fn broken_pods_in_updates() {
    let updated = |ready: bool, unavailable: i32| {
        let mut w = World::new(json!({}), 5);
        w.expect(5, 0);
        if ready {
            w.all_ready();
        }
        w.set_image("foo2/bar2");
        w.change(replacing(unavailable));
        w
    };
    let mut w = updated(true, 3);
    w.expect(0, 3);
    w.expect(3, 0);
    w.expect(0, 0);
    let mut w = updated(false, 3);
    w.expect(0, 5);
    w.expect(5, 0);
    w.expect(0, 0);
    let mut w = updated(true, 2);
    for image in ["foo2/bar3", "foo2/bar4"] {
        w.expect(0, 2);
        w.expect(2, 0);
        w.expect(0, 0);
        w.set_image(image);
    }
    assert_eq!(w.status().number_ready, 3, "those that run are left alone");
}

/// Upstream's case of `TestDaemonSetUpdatesSaveOldHealthyPods`.
#[test]
fn updates_spare_healthy_pods() {
    let mut w = World::new(json!({}), 20);
    w.expect(20, 0);
    w.all_ready();
    w.set_image("foo2/bar2");
    w.change(replacing(10));
    let healthy = |w: &World| {
        let ready = |pod: &&Value| crate::views::tests::view(pod).is_ready();
        w.pods.values().filter(ready).map(|p| p["metadata"]["name"].to_string()).collect::<Vec<_>>()
    };
    w.expect(0, 10);
    w.expect(10, 0);
    w.expect(0, 0);
    let before = healthy(&w);
    for i in 0..10 {
        w.change(replacing(i));
        w.set_image(&format!("foo2/bar3-{i}"));
        w.expect(0, 10);
        w.expect(10, 0);
        w.expect(0, 0);
        assert_eq!(healthy(&w), before, "{i}");
    }
    w.change(replacing(11));
    w.set_image("foo2/bar4");
    w.expect(0, 11);
    w.expect(11, 0);
    w.expect(0, 0);
    assert_eq!(healthy(&w).len(), 9);
}

/// Upstream's case of `TestDaemonSetUpdatesAllOldNotReadyPodsAndNewNotReadyPods`.
#[test]
fn old_broken_pods_go_beyond_the_bound() {
    let mut w = World::new(json!({}), 100);
    w.expect(100, 0);
    w.all_ready();
    let before = w.hash();
    w.set_image("foo2/bar2");
    w.change(replacing(10));
    for _ in 0..10 {
        w.expect(0, 10);
        w.expect(10, 0);
        w.all_ready();
    }
    w.expect(0, 0);
    let readiness = w.readiness(false);
    for (i, pod) in w.pods.values_mut().enumerate() {
        if i >= 10 {
            *pod = both(pod.clone(), &readiness);
        }
        if i < 12 {
            pod["metadata"]["labels"][POD_REVISION] = before.clone().into();
        }
    }
    w.expect(0, 2);
    w.expect(2, 0);
    w.expect(0, 0);
}

/// Upstream's case of `TestDaemonSetUpdatesAllOldPodsNotReadyMaxSurge`.
#[test]
fn surges_wait_for_min_ready_seconds() {
    let mut w = World::new(json!({}), 5);
    w.expect(5, 0);
    w.set_image("foo2/bar2");
    w.change(surging(3));
    w.now = 100;
    w.expect(5, 0);
    w.now = 200;
    w.expect(0, 5);
    w.set_ready(true, 5, |_| true);
    w.change(json!({"minReadySeconds": 15}));
    w.set_image("foo3/bar3");
    w.now = 300;
    w.expect(3, 0);
    let hash = w.hash();
    let is_new = move |p: &PodView| p.labels.get(POD_REVISION) == Some(hash.as_str());
    let updated: Vec<String> = w
        .pods
        .values()
        .map(crate::views::tests::view)
        .filter(|p| is_new(p))
        .map(|p| p.target_node().to_owned())
        .collect();
    w.set_ready(true, 2, &is_new);
    w.set_ready(false, 1, |p| !is_new(p) && !updated.contains(&p.target_node().to_owned()));
    w.now = 310;
    w.expect(1, 0);
    w.now = 320;
    w.expect(1, 3);
    w.set_ready(true, 3, &is_new);
    w.now = 340;
    w.expect(0, 2);
    w.now = 350;
    w.expect(0, 0);
}

/// A DaemonSet that surges by one on five nodes, with a new Pod on `node-001`.
fn surging_world() -> World {
    let mut w = World::new(json!({"spec": surging(1)}), 5);
    w.add("new", 1, json!({"metadata": {"creationTimestamp": "1970-01-01T00:01:40Z"}}));
    w
}

/// Upstream's cases of `TestSurgeDealsWithExistingPods`, `TestSurgePreservesReadyOldPods`,
/// `TestSurgeDeletesUnreadyOldPods`, `TestSurgePreservesOldReadyWithUnsatisfiedMinReady` and
/// `TestSurgeDeletesOldReadyWithUnsatisfiedMinReady`: whether the new Pod and the oldest old one
/// are ready, the seconds since then, and the Pods that go.
#[test]
fn several_pods_on_a_node() {
    let check = |new: Option<bool>, oldest: bool, passed: i64, want: &[&str]| {
        let mut w = surging_world();
        w.change(json!({"minReadySeconds": 15}));
        if let Some(ready) = new {
            w.set_ready(ready, 1, |_| true);
        }
        let created =
            |second: &str| json!({"metadata": {"creationTimestamp": format!("1970-01-01T00:00:{second}Z")}});
        w.add("oldest", 1, both(both(old(), &created("50")), &w.readiness(oldest)));
        w.add("older", 1, both(both(old(), &created("59")), &w.readiness(true)));
        w.add("other", 2, json!({}));
        w.now += passed;
        let plan = w.plan();
        assert_eq!((plan.create.len(), names(&plan.delete)), (3, want.to_vec()), "{new:?} {oldest} {passed}");
    };
    check(None, true, 20, &["older"]);
    check(None, false, 20, &["older", "oldest"]);
    check(Some(true), true, 10, &["older"]);
    check(Some(true), true, 20, &["older", "oldest"]);
    check(Some(true), false, 10, &["older", "oldest"]);
    let mut w = World::new(json!({"spec": surging(1)}), 5);
    for (node, count) in [(1, 1), (2, 2), (3, 5)] {
        (0..count).for_each(|i| w.add(&format!("{node}-{i}"), node, json!({})));
    }
    let plan = w.plan();
    assert_eq!((plan.create.len(), plan.delete.len()), (2, 5));
}

/// Upstream's case of `TestSurgeCreatesNewPodWhenAtMaxSurgeAndOldPodDeleted`.
#[test]
fn a_deleted_pod_is_replaced_beyond_the_surge() {
    let mut w = World::new(json!({"spec": surging(1)}), 5);
    w.add("new", 0, w.readiness(false));
    w.add("old", 0, both(old(), &w.readiness(true)));
    for n in 1..5 {
        let mut more = both(old(), &w.readiness(true));
        if n == 4 {
            more["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:31Z".into();
        }
        w.add(&format!("old-{n}"), n, more);
    }
    let plan = w.plan();
    assert_eq!((plan.create, plan.delete.len()), (vec!["node-004".to_owned()], 0));
}

/// Pods of a node that is gone hold up no update.
#[test]
fn updates_go_on_without_a_node() {
    let mut w = World::new(json!({"spec": surging(1)}), 2);
    w.expect(2, 0);
    w.all_ready();
    w.add("lost", 9, json!({}));
    w.set_image("foo2/bar2");
    w.expect(1, 0);
}

/// The spec of a DaemonSet's Pods.
fn pods(spec: Value) -> Value {
    json!({"template": {"spec": spec}})
}

/// Upstream's cases of `TestSelectorDaemonLaunchesPods`, `TestSelectorDaemonSetLaunchesPods`,
/// `TestSelectorDaemonDeletesUnselectedPods`, `TestSelectorDaemonDealsWithExistingPods`, `TestBadSelectorDaemonDoesNothing`,
/// `TestNameDaemonSetLaunchesPods`, `TestBadNameDaemonSetDoesNothing`, `TestNameAndSelectorDaemonSetLaunchesPods`,
/// `TestInconsistentNameSelectorDaemonSetDoesNothing` and `TestNodeAffinityDaemonLaunchesPods`: the numbers of nodes
/// without and with the label, the Pods' spec, the numbers of Pods on nodes, and those that are made and deleted. Pods of
/// other labels, which upstream's tests add, are released before.
#[test]
fn nodes_that_are_chosen() {
    let check =
        |bare: usize, labelled: usize, spec: Value, there: &[(usize, usize)], want: (usize, usize)| {
            everywhere(bare + labelled, |mut w| {
                for n in bare..bare + labelled {
                    w.set_node(n, json!({"metadata": {"labels": {"color": "blue", "speed": "fast"}}}));
                }
                w.change(pods(spec.clone()));
                for (node, count) in there {
                    (0..*count).for_each(|i| w.add(&format!("{node}-{i}"), *node, json!({})));
                }
                w.expect(want.0, want.1);
            });
        };
    let label = || json!({"nodeSelector": {"color": "blue", "speed": "fast"}});
    let both = |name: &str| both(label(), &json!({ "nodeName": name }));
    check(4, 3, label(), &[], (3, 0));
    check(5, 5, label(), &[(1, 3), (4, 1)], (5, 4));
    check(5, 5, label(), &[(0, 1), (1, 3), (2, 4), (6, 13), (9, 1)], (3, 20));
    check(4, 3, json!({"nodeSelector": {"color": "red", "speed": "fast"}}), &[], (0, 0));
    check(5, 0, json!({"nodeName": "node-000"}), &[], (1, 0));
    check(5, 0, json!({"nodeName": "node-010"}), &[], (0, 0));
    check(4, 3, both("node-006"), &[], (1, 0));
    check(4, 3, both("node-000"), &[], (0, 0));
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "color", "operator": "In", "values": ["blue"]}]}]}}}});
    check(4, 3, affinity, &[], (3, 0));
}

/// Upstream's cases of `TestOneNodeDaemonLaunchesPod`, `TestNotReadyNodeDaemonDoesLaunchPod`,
/// `TestInsufficientCapacityNodeDaemonDoesNotUnscheduleRunningPod`,
/// `TestInsufficientCapacityNodeSufficientCapacityWithNodeLabelDaemonLaunchPod`,
/// `TestNetworkUnavailableNodeDaemonLaunchesPod`, `TestPortConflictWithSameDaemonPodDoesNotDeletePod`,
/// `TestNoPortConflictNodeDaemonLaunchesPod`, `TestTaintedNodeDaemonDoesNotLaunchIntolerantPod`,
/// `TestTaintedNodeDaemonLaunchesToleratePod`, `TestNotReadyNodeDaemonLaunchesPod`, `TestUnreachableNodeDaemonLaunchesPod`,
/// `TestNodeDaemonLaunchesToleratePod`, `TestTaintPressureNodeDaemonLaunchesPod` and `TestDaemonSetRespectsTermination`:
/// one node, the Pods' spec, a Pod of the set that is there, and the Pods that are made.
#[test]
fn one_node() {
    let check = |node: Value, spec: Value, there: Option<Value>, want: usize| {
        everywhere(1, |mut w| {
            w.set_node(0, node.clone());
            w.change(pods(spec.clone()));
            if let Some(pod) = &there {
                w.add("there", 0, pod.clone());
            }
            w.expect(want, 0);
        });
    };
    let condition =
        |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    let taints = |all: &[(&str, &str)]| {
        let taint = |(key, effect): &(&str, &str)| json!({"key": key, "effect": effect});
        json!({"spec": {"taints": all.iter().map(taint).collect::<Vec<_>>()}})
    };
    check(json!({}), json!({}), None, 1);
    check(condition("Ready", "False"), json!({}), None, 1);
    let large =
        json!({"containers": [{"name": "c", "resources": {"requests": {"memory": "75M", "cpu": "75m"}}}]});
    let small = json!({"status": {"allocatable": {"memory": "100M", "cpu": "200m"}}});
    check(small, large, None, 1);
    check(condition("NetworkUnavailable", "True"), json!({}), None, 1);
    let port =
        |n: i32| json!({"containers": [{"name": "c", "ports": [{"containerPort": n, "hostPort": n}]}]});
    check(json!({}), port(666), Some(json!({})), 0);
    check(json!({}), port(6662), None, 1);
    let ours =
        || json!({"spec": {"taints": [{"key": "dedicated", "value": "user1", "effect": "NoSchedule"}]}});
    check(ours(), json!({}), None, 0);
    let tolerates = json!({"tolerations": [{"key": "dedicated", "value": "user1", "effect": "NoSchedule"}]});
    check(ours(), tolerates.clone(), None, 1);
    check(json!({}), tolerates, None, 1);
    for (key, ready) in [("not-ready", "False"), ("unreachable", "Unknown")] {
        let taint = taints(&[(&format!("node.kubernetes.io/{key}"), "NoExecute")]);
        check(both(taint, &condition("Ready", ready)), json!({}), None, 1);
    }
    let pressed =
        ["disk-pressure", "memory-pressure", "pid-pressure"].map(|p| format!("node.kubernetes.io/{p}"));
    let pressed: Vec<_> = pressed.iter().map(|p| (p.as_str(), "NoSchedule")).collect();
    check(taints(&pressed), json!({}), None, 1);
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check(json!({}), json!({}), Some(going), 0);
}

/// Upstream's case of `TestDaemonSetUpdatesNoTemplateChanged`.
#[test]
fn the_strategy_alone_changes() {
    let mut w = World::new(json!({}), 5);
    w.expect(5, 0);
    w.change(replacing(3));
    w.expect(0, 0);
}
