//! Upstream's cases of `preemption_test.go`: 12 of the choice, 4 of the distance, 5 of what is left, 5 of the order.

use serde_json::json;

use super::*;

/// Class, priority, cpu in thousandths and memory in MiB.
fn pod(name: &str) -> Arc<Pod> {
    let (priority, cpu, memory, limited) = match name {
        "clusterCritical" => (2_000_000_000, 100, 100, false),
        "nodeCritical" => (2_000_001_000, 100, 100, false),
        "burstable" => (0, 100, 100, false),
        "highRequestBurstable" => (0, 300, 300, false),
        "guaranteed" => (0, 100, 100, true),
        "highRequestGuaranteed" => (0, 300, 300, true),
        _ => (0, 0, 0, false),
    };
    sized(name, priority, cpu, memory, limited)
}

fn sized(name: &str, priority: i32, cpu: u32, memory: u32, limited: bool) -> Arc<Pod> {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    let resources = match (cpu + memory > 0, limited) {
        (false, _) => json!({}),
        (true, false) => json!({"requests": amounts}),
        (true, true) => json!({"requests": amounts, "limits": amounts}),
    };
    let value = json!({
        "metadata": {"name": name},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
    });
    Arc::new(serde_json::from_value(value).unwrap())
}

/// cpu in thousandths, memory in MiB, Pods; those that are zero are not wanted.
fn wanted(cpu: i64, memory: i64, pods: i64) -> Vec<Requirement> {
    let all = [("cpu", cpu), ("memory", memory << 20), ("pods", pods)];
    let some = all.into_iter().filter(|(_, amount)| *amount > 0);
    some.map(|(name, amount)| Requirement { name: name.into(), amount }).collect()
}

/// Upstream's 6 cases of `TestPreemptable`, of `TestIsCriticalPod` and its 2 of `TestIsCriticalPodBasedOnPriority`. A Pod has a
/// source, and a priority or none.
#[test]
fn pods_that_others_make_room_for() {
    let system = spec::SYSTEM_CRITICAL;
    let pod = |(source, priority): (&str, Option<i32>)| -> Pod {
        let annotations = match source {
            "" => serde_json::json!(null),
            "mirror" => serde_json::json!({"kubernetes.io/config.mirror": "mirror"}),
            source => serde_json::json!({"kubernetes.io/config.source": source}),
        };
        let pod = serde_json::json!({"metadata": {"name": "p", "annotations": annotations},
            "spec": {"priority": priority, "containers": []}});
        serde_json::from_value(pod).unwrap()
    };
    for (of, expected) in [
        (("file", None), true),
        (("mirror", None), true),
        (("", Some(system)), true),
        (("", Some(system + 1000)), true),
        (("api", None), false),
        (("", None), false),
        (("", Some(1_000_000_000)), false),
    ] {
        assert_eq!(spec::is_critical(&pod(of)), expected, "{of:?}");
    }
    let (high, low) = (Some(system + 1000), Some(system));
    for (preemptor, other, expected) in [
        (("file", None), ("", None), true),
        (("file", high), ("file", low), true),
        (("api", high), ("file", low), true),
        (("file", low), ("file", high), false),
        (("file", None), ("file", None), false),
        (("file", low), ("file", low), false),
    ] {
        assert_eq!(may_preempt(&pod(preemptor), &pod(other)), expected, "{preemptor:?} {other:?}");
    }
}

#[test]
fn as_few_as_may_be_of_the_least_class() {
    let check = |preemptor: &str, others: &[&str], needs: [i64; 3], expected: Option<&[&str]>| {
        let others: Vec<_> = others.iter().map(|name| pod(name)).collect();
        let got = victims(&pod(preemptor), &others, &wanted(needs[0], needs[1], needs[2]));
        let got = got.map(|all| all.iter().map(|p| spec::name(p).to_owned()).collect::<Vec<_>>());
        let expected = expected.map(|all| all.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(got.ok(), expected, "{preemptor} {others:?} {needs:?}");
    };
    let critical = "clusterCritical";
    let all = ["bestEffort", "burstable", "highRequestBurstable", "guaranteed", "highRequestGuaranteed"];
    check(critical, &[], [0, 0, 0], Some(&[]));
    check(critical, &[], [0, 0, 1], None);
    check(critical, &["burstable"], [100, 100, 1], Some(&["burstable"]));
    check(critical, &["burstable"], [200, 200, 2], None);
    check(critical, &["burstable", "bestEffort"], [0, 0, 1], Some(&["bestEffort"]));
    check(critical, &["burstable", "guaranteed"], [0, 0, 1], Some(&["burstable"]));
    let three = ["bestEffort", "highRequestBurstable", "burstable"];
    check(critical, &three, [100, 100, 0], Some(&["burstable"]));
    check(critical, &three, [150, 150, 0], Some(&["highRequestBurstable"]));
    check(critical, &all, [350, 350, 0], Some(&["highRequestBurstable", "burstable"]));
    check(critical, &all, [0, 550, 0], Some(&["highRequestBurstable", "highRequestGuaranteed"]));
    check("nodeCritical", &[critical], [100, 0, 0], Some(&[critical]));
    check(critical, &["nodeCritical"], [100, 0, 0], None);
    check(critical, &[critical], [0, 0, 1], None);
    let error = victims(&pod(critical), &[], &wanted(100, 0, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 100), (res: pods, q: 1), ]"
    );
}

#[test]
fn distances() {
    let check = |needs: [i64; 3], of: &str, expected: f64| {
        let got = distance(&wanted(needs[0], needs[1], needs[2]), &pod(of));
        assert!((got - expected).abs() < 1e-9, "{needs:?} {of}: {got}");
    };
    check([0, 0, 0], "burstable", 0.0);
    check([100, 100, 1], "bestEffort", 2.0);
    check([100, 100, 1], "burstable", 0.0);
    check([50, 50, 0], "burstable", 0.0);
}

#[test]
fn what_is_left() {
    let check = |needs: [i64; 3], of: &str, expected: [i64; 3]| {
        let got = left(&wanted(needs[0], needs[1], needs[2]), std::iter::once(&pod(of)));
        assert_eq!(got, wanted(expected[0], expected[1], expected[2]), "{needs:?} {of}");
    };
    check([0, 0, 0], "burstable", [0, 0, 0]);
    check([100, 100, 1], "bestEffort", [100, 100, 0]);
    check([100, 100, 1], "burstable", [0, 0, 0]);
    check([50, 50, 0], "burstable", [0, 0, 0]);
    check([200, 200, 1], "burstable", [100, 100, 0]);
}

#[test]
fn memory_decides_which_is_smaller() {
    let check = |own: (u32, u32), other: (u32, u32), expected: bool| {
        let made = |(cpu, memory)| sized("p", 0, cpu, memory, false);
        assert_eq!(is_smaller(&made(own), &made(other)), expected, "{own:?} {other:?}");
    };
    let (low, high_memory, high_cpu) = ((100, 50), (100, 200), (200, 50));
    check(low, (0, 0), false);
    check(low, high_memory, true);
    check(high_memory, high_cpu, false);
    check(low, low, true);
    check(low, high_cpu, true);
}
