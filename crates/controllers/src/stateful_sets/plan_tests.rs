//! Upstream's cases of `stateful_set_control_test.go`.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

use super::super::testing::stateful_set;
use super::super::world::{Mode, NOW, World};
use super::*;

const MODES: [Mode; 2] = [Mode::Monotonic, Mode::Burst];

/// The retention policies of upstream's `runTestOverPVCRetentionPolicies`.
fn policies() -> [Value; 5] {
    let policy = |scaled: &str, deleted: &str| json!({"whenScaled": scaled, "whenDeleted": deleted});
    [
        policy("Retain", "Retain"),
        policy("Delete", "Retain"),
        policy("Retain", "Delete"),
        policy("Delete", "Delete"),
        Value::Null,
    ]
}

fn with_policy(replicas: i32, policy: &Value) -> StatefulSet {
    let mut set = stateful_set(replicas);
    set.spec.as_mut().unwrap().persistent_volume_claim_retention_policy =
        serde_json::from_value(policy.clone()).unwrap();
    set
}

/// Runs a scenario in both modes, with each policy.
fn everywhere(replicas: i32, scenario: impl Fn(World, Mode)) {
    for mode in MODES {
        for policy in policies() {
            scenario(World::of(with_policy(replicas, &policy), mode), mode);
        }
    }
}

fn counts(w: &World) -> (i32, i32, i32) {
    let status = w.status();
    (status.replicas, status.ready_replicas.unwrap(), status.updated_replicas.unwrap())
}

fn with_strategy(mut set: StatefulSet, strategy: Value) -> StatefulSet {
    set.spec.as_mut().unwrap().update_strategy = serde_json::from_value(strategy).unwrap();
    set
}

/// Upstream's cases of `TestStatefulSetControl`, here and in the next tests.
#[test]
fn pods_are_made() {
    everywhere(3, |mut w, mode| {
        w.scale_up(mode).unwrap();
        assert_eq!(counts(&w), (3, 3, 3));
        for ordinal in 0..3 {
            let index = w.view(ordinal).labels.get(identity::POD_INDEX).map(str::to_owned);
            assert_eq!(index, Some(ordinal.to_string()));
        }
    });
}

#[test]
fn sets_grow() {
    everywhere(3, |mut w, mode| {
        w.scale_up(mode).unwrap();
        w.scale(4);
        w.scale_up(mode).unwrap();
        assert_eq!(counts(&w), (4, 4, 4));
    });
}

#[test]
fn sets_shrink() {
    everywhere(3, |mut w, mode| {
        w.scale_up(mode).unwrap();
        w.scale(0);
        w.scale_down(mode).unwrap();
        assert_eq!(counts(&w), (0, 0, 0));
        let kept = !set::retention(&w.set).with_pod;
        assert_eq!(w.claims.len(), if kept { 3 } else { 0 });
    });
}

/// Upstream's case of `TestStatefulSetControlScaleDownDeleteError`.
#[test]
fn sets_shrink_after_errors() {
    for policy in policies() {
        let mut w = World::of(with_policy(3, &policy), Mode::Monotonic);
        w.scale_up(Mode::Monotonic).unwrap();
        w.scale(0);
        w.failure = Some(("delete", 1));
        assert!(w.scale_down(Mode::Monotonic).is_err());
        w.scale_down(Mode::Monotonic).unwrap();
        assert_eq!(counts(&w), (0, 0, 0));
    }
}

#[test]
fn lost_pods_are_replaced() {
    everywhere(5, |mut w, mode| {
        w.scale_up(mode).unwrap();
        let of_pod = |w: &World| w.claims.values().any(|c| references(c).iter().any(|r| r.kind == "Pod"));
        assert!(!of_pod(&w));
        for ordinal in [0, 2, 4] {
            w.pods.remove(&ordinal);
        }
        for ordinal in [0, 2, 4] {
            w.sync().unwrap();
            w.set_phase(ordinal, "Running");
            w.sync().unwrap();
            w.set_ready(ordinal, 1);
        }
        w.sync().unwrap();
        assert_eq!(w.status().replicas, 5);
    });
}

#[test]
fn ended_pods_are_made_anew() {
    for (phase, fails) in [("Failed", false), ("Succeeded", false), ("Failed", true), ("Succeeded", true)] {
        everywhere(3, |mut w, mode| {
            w.sync().unwrap();
            w.holds(mode);
            w.set_phase(0, phase);
            w.log.clear();
            if fails {
                w.failure = Some(("delete", 0));
                assert!(w.sync().is_err());
                assert_eq!(w.log, ["delete 0"]);
            }
            w.sync().unwrap();
            w.sync().unwrap();
            let want =
                if fails { &["delete 0", "delete 0", "create 0"][..] } else { &["delete 0", "create 0"] };
            assert_eq!(w.log, want, "{phase}");
            assert_eq!(w.view(0).phase, "Pending");
        });
    }
    // A Pod that has ended and goes already is waited for.
    everywhere(3, |mut w, mode| {
        w.scale_up(mode).unwrap();
        w.set_phase(1, "Failed");
        w.terminate(1);
        w.log.clear();
        w.sync().unwrap();
        assert!(w.log.is_empty(), "{:?}", w.log);
    });
}

#[test]
fn requests_fail() {
    for (what, after) in [("create", 1), ("status", 1)] {
        everywhere(3, |mut w, mode| {
            w.failure = Some((what, after));
            assert!(w.scale_up(mode).is_err());
            w.scale_up(mode).unwrap();
            assert_eq!(counts(&w), (3, 3, 3));
        });
    }
    everywhere(3, |mut w, mode| {
        w.scale_up(mode).unwrap();
        w.pods.get_mut(&0).unwrap()["metadata"]["labels"][identity::POD_NAME] = "goo-0".into();
        w.failure = Some(("mend", 0));
        assert!(w.sync().is_err());
        w.sync().unwrap();
        w.holds(mode);
    });
    everywhere(3, |mut w, mode| {
        w.scale_up(mode).unwrap();
        w.set_image("nginx-new");
        w.failure = Some(("delete", 0));
        assert!(w.sync().is_err());
        let status = w.status();
        assert_eq!(status.current_replicas, Some(3), "nothing was deleted");
        assert_ne!(status.current_revision, status.update_revision);
        w.sync().unwrap();
        assert_eq!(w.status().current_replicas, Some(2));
    });
}

#[test]
fn a_pending_pod_gets_its_claims_again() {
    everywhere(3, |mut w, mode| {
        w.sync().unwrap();
        w.claims.clear();
        w.sync().unwrap();
        w.holds(mode);
    });
}

/// Upstream's case of `TestStatefulSetControlWithStartOrdinal`.
#[test]
fn ordinals_start_where_they_are_wanted() {
    let mut w = World::new(stateful_set(3));
    w.set.spec.as_mut().unwrap().ordinals = serde_json::from_value(json!({"start": 2})).unwrap();
    w.scale_up(Mode::Monotonic).unwrap();
    assert_eq!(counts(&w), (3, 3, 3));
    assert!(w.pods.keys().eq([2, 3, 4].iter()));
    w.set.spec.as_mut().unwrap().ordinals = serde_json::from_value(json!({"start": 1})).unwrap();
    w.log.clear();
    w.sync().unwrap();
    assert_eq!(w.log, ["create 1"], "the last one goes when the first one is there");
}

/// Upstream's cases of `TestStatefulSetControl_getSetRevisions`: the images before, the present one, and the numbers
/// of the revisions and of the one that is present.
#[test]
fn revisions_of_sets() {
    let check = |before: &[&str], now: &str, count: usize, current: i64, update: i64| {
        for policy in policies() {
            let mut w = World::new(with_policy(3, &policy));
            w.set.spec.as_mut().unwrap().revision_history_limit = Some(10);
            for image in before {
                w.set_image(image);
                w.sync().unwrap();
            }
            w.set_image(now);
            w.sync().unwrap();
            let number =
                |name: Option<String>| w.revisions.iter().find(|r| r.metadata.name == name).unwrap().revision;
            let got =
                (w.revisions.len(), number(w.status().current_revision), number(w.status().update_revision));
            assert_eq!(got, (count, current, update), "{before:?} {now}");
        }
    };
    check(&[], "a", 1, 1, 1);
    check(&["a"], "b", 2, 1, 2);
    check(&["a", "b"], "b", 2, 1, 2);
    check(&["a", "b", "c"], "b", 3, 1, 4);
}

/// Upstream's cases of `TestStatefulSetControlRollingUpdate` and `TestStatefulSetControlRollback`: replicas before and
/// after.
#[test]
fn rolling_updates_and_rollbacks() {
    for mode in MODES {
        for (before, after) in [(3, 3), (3, 5), (5, 3)] {
            let mut w = World::of(stateful_set(before), mode);
            w.scale_up(mode).unwrap();
            w.set_image("foo");
            w.scale(after);
            w.update().unwrap();
            let all = usize::try_from(after).unwrap();
            assert_eq!(w.images(), vec!["foo"; all]);
            assert_eq!(w.status().current_revision, w.status().update_revision);
            let first = revisions_first(&w);
            w.set_image(&first);
            w.update().unwrap();
            assert_eq!(w.images(), vec!["nginx"; all], "the template of the first revision");
        }
    }
}

/// Returns the image of a set's first revision.
fn revisions_first(w: &World) -> String {
    let mut all = w.revisions.clone();
    crate::common::revisions::sort(&mut all);
    let template = crate::common::revisions::template_of(&all[0]).unwrap();
    template.spec.unwrap().containers[0].image.clone().unwrap()
}

/// Upstream's cases of `TestStatefulSetControlOnDeleteUpdate`.
#[test]
fn updates_on_deletion() {
    for mode in MODES {
        for policy in policies() {
            for (before, after) in [(3, 3), (3, 5), (5, 3)] {
                let set = with_strategy(with_policy(before, &policy), json!({"type": "OnDelete"}));
                let mut w = World::of(set, mode);
                w.scale_up(mode).unwrap();
                w.set_image("foo");
                w.scale(after);
                w.update().unwrap();
                w.collect_claims();
                let all = usize::try_from(after).unwrap();
                let old = usize::try_from(before.min(after)).unwrap();
                let want = (0..all).map(|i| if i < old { "nginx" } else { "foo" });
                assert!(w.images().iter().eq(want), "{:?}", w.images());
                w.scale(0);
                w.scale_down(mode).unwrap();
                w.scale(after);
                w.scale_up(mode).unwrap();
                assert_eq!(w.images(), vec!["foo"; all]);
            }
        }
    }
}

/// Upstream's cases of `TestStatefulSetControlRollingUpdateWithPartition`.
#[test]
fn partitions() {
    for mode in MODES {
        for policy in policies() {
            for after in [3, 5] {
                let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
                let mut w = World::of(with_strategy(with_policy(3, &policy), rolling), mode);
                w.scale_up(mode).unwrap();
                w.set_image("foo");
                w.scale(after);
                w.update().unwrap();
                let want = (0..after).map(|i| if i < 2 { "nginx" } else { "foo" });
                assert!(w.images().iter().eq(want), "{:?}", w.images());
                // A lost Pod below the partition comes back with the current revision.
                w.pods.remove(&0);
                w.sync().unwrap();
                assert_eq!(w.images()[0], "nginx");
            }
        }
    }
}

/// Upstream's cases of `TestStatefulSetControlLimitsHistory` and `TestStatefulSetHonorRevisionHistoryLimit`.
#[test]
fn histories_are_limited() {
    for (limit, most) in [(2, Some(4)), (0, Some(2)), (-2, None), (5, Some(7))] {
        for mode in MODES {
            for fails in [false, true] {
                let mut w = World::of(stateful_set(3), mode);
                w.set.spec.as_mut().unwrap().revision_history_limit = Some(limit);
                w.scale_up(mode).unwrap();
                for i in 0..10 {
                    w.set_image(&format!("foo-{i}"));
                    w.failure = fails.then_some(("status", 1));
                    let updated = w.update();
                    assert!(fails || updated.is_ok());
                    w.failure = None;
                    w.sync().unwrap();
                    assert!(
                        most.is_none_or(|most| w.revisions.len() <= most),
                        "{} {limit}",
                        w.revisions.len()
                    );
                }
                assert!(most.is_some() || w.revisions.len() == 11);
            }
        }
    }
}

/// Upstream's cases of `TestStatefulSetAvailability`, `TestStatefulSetRollingUpdateRespectsMinReadySeconds`,
/// `TestStatefulSetScaleDownRespectsMinReadySeconds`, `TestStatefulSetOnDeleteStrategyIgnoresMinReadySeconds`,
/// `TestStatefulSetZeroMinReadySeconds` and `TestStatefulSetPartitionRollingUpdateWithMinReadySeconds`: the seconds since when the
/// Pods are ready, whether they are available, and what the next sync does.
#[test]
fn available_pods() {
    let rolling = json!({"type": "RollingUpdate"});
    let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    let check = |strategy: &Value, min_ready: i32, seconds: i64, available: i32, want: &[&str]| {
        let mut w = World::new(with_strategy(stateful_set(4), strategy.clone()));
        w.scale_up(Mode::Monotonic).unwrap();
        w.set.spec.as_mut().unwrap().min_ready_seconds = Some(min_ready);
        for ordinal in 0..4 {
            w.set_ready(ordinal, seconds);
        }
        w.set_image("new");
        w.log.clear();
        let again = w.plan().again;
        w.sync().unwrap();
        assert_eq!(w.status().available_replicas, Some(available));
        assert_eq!(w.log, want);
        let left = i64::from(min_ready) - seconds;
        assert_eq!(again, (left > 0).then(|| Duration::from_secs(u64::try_from(left).unwrap())));
    };
    check(&rolling, 3600, 7200, 4, &["delete 3"]);
    check(&rolling, 3600, 1800, 0, &[]);
    check(&rolling, 30, 10, 0, &[]);
    check(&rolling, 30, 60, 4, &["delete 3"]);
    check(&rolling, 0, 0, 4, &["delete 3"]);
    check(&partition, 30, 10, 0, &[]);
    check(&partition, 30, 60, 4, &["delete 3"]);
    check(&json!({"type": "OnDelete"}), 30, 10, 0, &[]);
    check(&json!({"type": "OnDelete"}), 30, 60, 4, &[]);
    // A set shrinks only when its Pods are available.
    for (seconds, want) in [(10, &[][..]), (60, &["delete 3"])] {
        let mut w = World::new(stateful_set(4));
        w.scale_up(Mode::Monotonic).unwrap();
        w.set.spec.as_mut().unwrap().min_ready_seconds = Some(30);
        (0..4).for_each(|ordinal| w.set_ready(ordinal, seconds));
        w.scale(1);
        w.log.clear();
        w.sync().unwrap();
        assert_eq!(w.log, want);
    }
}

/// Upstream's cases of `TestParallelScale`: two syncs are enough.
#[test]
fn many_pods_at_once() {
    for (before, after) in [(3, 30), (10, 1), (501, 0), (0, 1000)] {
        let mut w = World::of(stateful_set(before), Mode::Burst);
        let settle = |w: &mut World| (0..3).for_each(|_| w.sync().unwrap());
        settle(&mut w);
        assert_eq!(w.status().replicas, before);
        w.scale(after);
        settle(&mut w);
        assert_eq!(w.status().replicas, after);
        w.holds(Mode::Burst);
    }
}

#[test]
fn no_size_is_too_large() {
    for mode in MODES {
        let mut w = World::of(stateful_set(i32::MAX), mode);
        w.set.spec.as_mut().unwrap().ordinals = serde_json::from_value(json!({"start": i32::MAX})).unwrap();
        let plan = w.plan();
        let made: usize = plan.phases.iter().map(|p| p.steps.len()).sum();
        assert_eq!(made, if mode == Mode::Burst { BURST } else { 1 });
    }
}

/// A world of six Pods whose update may take two at a time, from the fourth on.
fn two_at_a_time(mode: Mode) -> World {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3, "maxUnavailable": 2}});
    let mut w = World::of(with_strategy(stateful_set(6), rolling), mode);
    w.counts_unavailable = true;
    w.scale_up(mode).unwrap();
    w.set_image("foo");
    w.log.clear();
    w
}

/// Upstream's case of `TestStatefulSetControlRollingUpdateWithMaxUnavailable`.
#[test]
fn several_at_a_time() {
    let mut w = two_at_a_time(Mode::Burst);
    w.sync().unwrap();
    w.sync().unwrap();
    assert_eq!(w.log, ["delete 5", "delete 4", "create 4", "create 5"]);
    w.set_ready(4, 1);
    w.sync().unwrap();
    w.sync().unwrap();
    assert_eq!(w.log[4..], ["delete 3", "create 3"]);
    for ordinal in [3, 5] {
        w.set_ready(ordinal, 1);
    }
    w.sync().unwrap();
    assert_eq!(w.log.len(), 6, "the others are below the partition");

    let mut w = two_at_a_time(Mode::Monotonic);
    w.sync().unwrap();
    w.sync().unwrap();
    assert_eq!(w.log, ["delete 5", "delete 4", "create 4"]);
    w.set_ready(4, 1);
    w.sync().unwrap();
    assert_eq!(w.log[3..], ["create 5"]);
    w.set_ready(5, 1);
    w.sync().unwrap();
    assert_eq!(w.log[4..], ["delete 3"]);
}

/// Upstream's cases of `TestStatefulSetControlRollingUpdateWithMaxUnavailableInOrderedModeVerifyInvariant`. There the
/// function alone is tested: in order, an update waits for all Pods anyway.
#[test]
fn pods_that_go_anyway_count() {
    for gone in [&[][..], &[5], &[3], &[4], &[5, 4], &[5, 3], &[4, 3], &[5, 4, 3], &[2], &[1]] {
        let mut w = two_at_a_time(Mode::Burst);
        for ordinal in gone {
            w.terminate(*ordinal);
        }
        w.sync().unwrap();
        assert_eq!(w.log.len(), 2_usize.saturating_sub(gone.len()), "{gone:?} {:?}", w.log);
        assert!(w.log.iter().all(|l| l.starts_with("delete")));
    }
}

#[test]
fn one_at_a_time_without_the_feature() {
    // The Pod that the update stopped at holds it up, and none behind it.
    let mut w = World::of(stateful_set(4), Mode::Burst);
    w.scale_up(Mode::Burst).unwrap();
    w.set_image("foo");
    w.log.clear();
    w.set_phase(1, "Pending");
    w.sync().unwrap();
    assert_eq!(w.log, ["delete 3"]);
    w.sync().unwrap();
    w.sync().unwrap();
    assert_eq!(w.log, ["delete 3", "create 3"], "the new one is not ready");
    // A broken one is replaced by its turn.
    w.set_phase(3, "Running");
    w.set_image("bar");
    w.sync().unwrap();
    assert_eq!(w.log[2..], ["delete 3"]);
}

#[test]
fn what_a_shrinking_set_waits_for() {
    let check = |change: fn(&mut World), want: &[&str]| {
        let mut w = World::new(stateful_set(5));
        w.scale_up(Mode::Monotonic).unwrap();
        w.scale(2);
        w.log.clear();
        change(&mut w);
        w.sync().unwrap();
        assert_eq!(w.log, want);
    };
    check(|_| {}, &["delete 4"]);
    check(|w| w.terminate(4), &[]);
    check(|w| w.set_phase(4, "Pending"), &["delete 4"]);
    // The first broken Pod is not the last one, which waits for it.
    check(
        |w| {
            w.set_phase(3, "Pending");
            w.set_phase(4, "Pending");
        },
        &[],
    );
    check(|w| w.set_phase(3, "Pending"), &["delete 4"]);
    // A Pod that is to stay comes first.
    check(|w| w.set_phase(1, "Pending"), &[]);
    check(|w| w.terminate(0), &[]);
}

#[test]
fn a_claim_of_an_earlier_pod_holds_its_successor() {
    for mode in MODES {
        let mut w = World::of(with_policy(2, &policies()[1]), mode);
        w.scale_up(mode).unwrap();
        w.scale(1);
        w.sync().unwrap();
        assert!(references(&w.claims["datadir-foo-1"]).iter().any(|r| r.name == "foo-1"));
        w.scale(2);
        w.log.clear();
        w.sync().unwrap();
        assert!(w.log.is_empty(), "the claim goes with the Pod before");
        w.collect_claims();
        w.sync().unwrap();
        assert_eq!(w.log, ["create 1"]);
    }
}

#[test]
fn nothing_is_done_to_a_set_that_goes() {
    let mut w = World::new(stateful_set(3));
    w.set.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    w.sync().unwrap();
    assert!(w.log.is_empty() && w.pods.is_empty());
}

/// Upstream's cases of `TestStatefulSetControllerCreates`, `TestStatefulSetControllerDeletes` and
/// `TestStatefulSetControllerRespectsTermination`.
#[test]
fn pods_that_go_already() {
    let mut w = World::new(stateful_set(5));
    w.scale_up(Mode::Monotonic).unwrap();
    w.scale(3);
    w.terminate(3);
    w.terminate(4);
    w.log.clear();
    w.sync().unwrap();
    assert_eq!((w.pods.len(), w.log.len()), (5, 0), "{:?}", w.log);
    w.pods.retain(|ordinal, _| *ordinal < 3);
    w.sync().unwrap();
    assert_eq!(w.status().replicas, 3);
    w.scale(0);
    w.scale_down(Mode::Monotonic).unwrap();
    assert_eq!(w.status().replicas, 0);
}

/// Upstream's case of `TestStatefulSetControllerBlocksScaling`.
#[test]
fn a_pod_that_goes_holds_up_the_set() {
    let mut w = World::new(stateful_set(3));
    w.scale_up(Mode::Monotonic).unwrap();
    w.scale(5);
    w.terminate(0);
    w.log.clear();
    w.sync().unwrap();
    assert_eq!((w.pods.len(), w.log.len()), (3, 0));
    w.pods.remove(&0);
    w.sync().unwrap();
    assert_eq!((w.pods.len(), &w.log[..]), (3, &["create 0".to_owned()][..]));
}

/// Upstream's cases of `TestStaleOwnerRefOnScaleup`.
#[test]
fn a_stale_claim_holds_its_pod() {
    for policy in [1, 3] {
        let mut w = World::new(with_policy(3, &policies()[policy]));
        w.scale_up(Mode::Monotonic).unwrap();
        w.scale(2);
        w.sync().unwrap();
        w.sync().unwrap();
        assert_eq!(w.status().replicas, 2);
        let claim = Arc::make_mut(w.claims.get_mut("datadir-foo-2").unwrap());
        let refs = claim.metadata.owner_references.as_mut().unwrap();
        assert_eq!((refs.len(), refs[0].name.as_str()), (1, "foo-2"));
        refs[0].uid = "stale".to_owned();
        w.scale(3);
        (0..10).for_each(|_| w.sync().unwrap());
        assert_eq!(w.status().replicas, 2);
        assert_eq!(references(&w.claims["datadir-foo-2"])[0].uid, "stale");
        w.claims.remove("datadir-foo-2");
        w.scale_up(Mode::Monotonic).unwrap();
        assert_eq!(w.status().replicas, 3);
    }
}

/// Upstream's case of `TestStatefulSetAvailabilityCheck`: the next look is when the next Pod is available.
#[test]
fn the_next_pod_that_is_available() {
    let mut w = World::of(stateful_set(4), Mode::Burst);
    w.set.spec.as_mut().unwrap().min_ready_seconds = Some(5);
    w.sync().unwrap();
    w.set_phase(0, "Running");
    for (ordinal, millis) in [(1, 0), (2, 2000), (3, 4300)] {
        w.set_ready(ordinal, 0);
        let since = Timestamp::from_millisecond(NOW * 1000 - millis).unwrap().to_string();
        w.pods.get_mut(&ordinal).unwrap()["status"]["conditions"][0]["lastTransitionTime"] = since.into();
    }
    let plan = w.plan();
    assert_eq!((plan.status.ready_replicas, plan.status.available_replicas), (Some(3), Some(0)));
    assert_eq!(plan.again, Some(Duration::from_millis(700)));
}

/// Upstream's cases of `TestStatefulSetMetrics`: the Pods, how many may be missing, how many are, and the two figures.
#[test]
fn figures_of_updates() {
    let check = |mode: Mode, pods: i32, may: Value, missing: i64, want: (i64, i64)| {
        let strategy = if may.is_null() {
            json!({"type": "OnDelete"})
        } else {
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": may}})
        };
        let mut w = World::of(with_strategy(stateful_set(pods), strategy), mode);
        w.counts_unavailable = true;
        w.scale_up(mode).unwrap();
        w.set_image("foo");
        for ordinal in 0..missing {
            match mode {
                Mode::Monotonic => w.set_phase(ordinal, "Running"),
                Mode::Burst => w.terminate(ordinal),
            }
        }
        let got = w.ask(|s| (set::max_unavailable(s.set).unwrap(), s.unavailable()));
        assert_eq!(got, want, "{mode:?} {pods} {may}");
    };
    check(Mode::Monotonic, 5, json!(2), 1, (2, 1));
    check(Mode::Burst, 10, json!("20%"), 3, (2, 3));
    check(Mode::Monotonic, 6, json!(3), 3, (3, 3));
    check(Mode::Burst, 4, json!(1), 0, (1, 0));
    check(Mode::Monotonic, 8, json!("25%"), 1, (2, 1));
    check(Mode::Burst, 5, json!("80%"), 4, (4, 4));
    check(Mode::Monotonic, 2, json!(1), 1, (1, 1));
    check(Mode::Burst, 1, json!(1), 1, (1, 1));
    check(Mode::Monotonic, 3, Value::Null, 2, (1, 2));
}

/// Upstream's cases of `TestStatefulPodControlNoOpUpdate`, `TestStatefulPodControlUpdatesIdentity`,
/// `TestStatefulPodControlUpdatesPodStorage` and `TestUpdateIdentity`: changes of a Pod, and the steps of a sync.
#[test]
fn pods_are_mended() {
    let check = |change: fn(&mut Value), want: &[&str]| {
        let mut w = World::new(stateful_set(3));
        w.scale_up(Mode::Monotonic).unwrap();
        w.log.clear();
        change(w.pods.get_mut(&0).unwrap());
        w.sync().unwrap();
        assert_eq!(w.log, want);
        w.holds(Mode::Monotonic);
        w.log.clear();
        w.sync().unwrap();
        assert!(w.log.is_empty());
    };
    check(|_| {}, &[]);
    check(|pod| pod["metadata"]["labels"][identity::POD_NAME] = "goo-0".into(), &["mend 0"]);
    check(
        |pod| {
            pod["metadata"]["labels"].as_object_mut().unwrap().remove(identity::POD_NAME);
        },
        &["mend 0"],
    );
    check(|pod| pod["spec"]["volumes"] = json!([]), &["mend 0"]);
}

/// Upstream's case of `TestIsRunningAndReady`.
#[test]
fn running_and_ready() {
    let mut w = World::new(stateful_set(1));
    w.sync().unwrap();
    assert!(!is_running_and_ready(&w.view(0)));
    w.set_phase(0, "Running");
    assert!(!is_running_and_ready(&w.view(0)));
    w.set_ready(0, 0);
    assert!(is_running_and_ready(&w.view(0)));
}
