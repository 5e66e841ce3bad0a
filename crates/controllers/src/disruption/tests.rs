//! Upstream's cases (`disruption_test.go`), and cases of faults and clock changes.

use client::{Call, Verb};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, from_value, json};
use tokio::time::{advance, sleep};

use super::count::{Counts, counts};
use super::*;
use crate::fake::{Cluster, Fault, eventually};

struct Run {
    cluster: Cluster,
    c: Arc<Disruption>,
}

fn time(t: Timestamp) -> Value {
    json!(Time(t))
}

fn owner(kind: &str, api_version: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true})
}

fn rs(name: &str) -> Option<Value> {
    Some(owner("ReplicaSet", "apps/v1", name))
}

impl Run {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let c = cluster.wire::<Disruption>();
        cluster.follow().await;
        Self { cluster, c }
    }

    /// Stores a budget for the Pods with `foo=bar`.
    fn budget(&self, mut spec: Value) {
        if spec["selector"].is_null() {
            spec["selector"] = json!({"matchLabels": {"foo": "bar"}});
        }
        let budget = json!({"metadata": {"name": "b", "namespace": "default"}, "spec": spec});
        self.cluster.fake.put::<PodDisruptionBudget>(&from_value(budget).unwrap());
    }

    fn pod(&self, name: &str, owner: Option<Value>, ready: bool) {
        let conditions = if ready { json!([{"type": "Ready", "status": "True"}]) } else { json!([]) };
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"foo": "bar"}, "ownerReferences": owner.map(|o| vec![o])},
            "spec": {"containers": []}, "status": {"conditions": conditions},
        });
        self.cluster.fake.put::<Pod>(&from_value(pod).unwrap());
    }

    fn controller<T: client::KubeObject>(&self, name: &str, replicas: i32, owner: Option<Value>) {
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "ownerReferences": owner.map(|o| vec![o])},
            "spec": {"replicas": replicas, "selector": {}, "serviceName": "s", "template": {}},
        });
        self.cluster.fake.put::<T>(&T::from_json(object.to_string().as_bytes()).unwrap());
    }

    /// Waits until the caches show all stored objects.
    async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    async fn sync(&self) -> Result<Next, Status> {
        self.settle().await;
        // Events of one moment would have the same name.
        advance(Duration::from_millis(1)).await;
        let result = self.c.sync(Key::new("default", "b")).await;
        self.settle().await;
        result
    }

    fn status(&self) -> PodDisruptionBudgetStatus {
        self.cluster.fake.get::<PodDisruptionBudget>("default", "b").unwrap().status.unwrap_or_default()
    }

    /// Syncs, and compares the numbers of allowed, healthy, desired and expected Pods.
    async fn check(&self, what: &str, want: (i32, i32, i32, i32)) {
        self.sync().await.unwrap();
        let s = self.status();
        let got = [s.disruptions_allowed, s.current_healthy, s.desired_healthy, s.expected_pods];
        assert_eq!(got, [want.0, want.1, want.2, want.3].map(Some), "{what}");
        let condition = &s.conditions.unwrap()[0];
        let said = (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str());
        let allowed = if want.0 > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        assert_eq!(said, ("DisruptionAllowed", allowed.0, allowed.1), "{what}");
        assert_eq!((condition.observed_generation, s.observed_generation), (Some(1), Some(1)), "{what}");
    }

    async fn says(&self, reason: &str) {
        let fake = &self.cluster.fake;
        eventually(reason, || fake.reasons().iter().any(|r| r == reason)).await;
    }
}

#[test]
fn arithmetic() {
    let check = |spec: Value, matching: usize, scale: i64, want: Result<(i32, i32), &str>| {
        let got = counts(&from_value(spec.clone()).unwrap(), matching, scale);
        let want = want.map(|(expected, desired)| Counts { expected, desired }).map_err(str::to_owned);
        assert_eq!(got, want, "{spec} {matching} {scale}");
    };
    check(json!({"minAvailable": 3}), 2, 99, Ok((2, 3)));
    check(json!({"minAvailable": "28%"}), 2, 11, Ok((11, 4)));
    check(json!({"minAvailable": "28%"}), 2, 22, Ok((22, 7)));
    check(json!({"minAvailable": "34%"}), 0, 3, Ok((3, 2)));
    check(json!({"minAvailable": "100%"}), 0, 0, Ok((0, 0)));
    check(json!({"maxUnavailable": 2}), 1, 7, Ok((7, 5)));
    check(json!({"maxUnavailable": 9}), 1, 7, Ok((7, 0)));
    check(json!({"maxUnavailable": "30%"}), 1, 7, Ok((7, 4)));
    check(json!({"maxUnavailable": "30%"}), 1, 3, Ok((3, 2)));
    check(json!({}), 5, 5, Ok((0, 0)));
    // A server lets none of these in, or they could exceed 32 bits.
    check(json!({"minAvailable": "1000000000%"}), 1, i64::from(i32::MAX), Ok((i32::MAX, i32::MAX)));
    check(json!({"maxUnavailable": "1%"}), 1, i64::from(i32::MAX) * 10_000, Ok((i32::MAX, i32::MAX)));
    check(json!({"maxUnavailable": i32::MIN}), 1, 5, Ok((5, i32::MAX)));
    check(json!({"minAvailable": i32::MIN}), 1, 5, Ok((1, i32::MIN)));
    let no_percent = "invalid value for IntOrString: invalid type: string is not a percentage";
    check(json!({"maxUnavailable": "x"}), 1, 5, Err(no_percent));
}

#[tokio::test(start_paused = true)]
async fn numbers_of_pods() {
    let run = Run::new().await;
    run.budget(json!({"minAvailable": 3}));
    run.check("no pod", (0, 0, 3, 0)).await;
    for i in 1..=4 {
        run.pod(&format!("yo-yo-yo-{i}"), None, true);
        run.check("one more", (i32::from(i == 4), i, 3, i)).await;
    }
    run.pod("yo-yo-yo-1", None, false);
    run.check("one is not ready", (0, 3, 3, 4)).await;
    run.says("NoPods").await;
    let everything = Run::new().await;
    everything.budget(json!({"minAvailable": 0, "selector": {}}));
    everything.pod("any", None, true);
    everything.check("an empty selector selects all", (1, 1, 0, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_controller() {
    for spec in [json!({"maxUnavailable": 1}), json!({"minAvailable": "28%"})] {
        let run = Run::new().await;
        run.budget(spec);
        run.check("no pod", (0, 0, 0, 0)).await;
        run.pod("naked", None, true);
        run.check("one without a controller", (0, 1, 0, 0)).await;
        run.says("UnmanagedPods").await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_scale_of_controllers() {
    let run = Run::new().await;
    run.budget(json!({"maxUnavailable": 2}));
    run.controller::<ReplicaSet>("rs", 7, None);
    run.pod("pod", rs("rs"), true);
    run.check("a set", (0, 1, 5, 7)).await;
    run.controller::<ReplicaSet>("rs", 5, None);
    run.check("a smaller set", (0, 1, 3, 5)).await;

    let run = Run::new().await;
    run.budget(json!({"minAvailable": "34%"}));
    run.controller::<ReplicationController>("rc", 3, None);
    run.check("no pod tells of a controller", (0, 0, 0, 0)).await;
    for i in 1..=3 {
        run.pod(&format!("p{i}"), Some(owner("ReplicationController", "v1", "rc")), true);
        run.check("a controller", (i32::from(i == 3), i, 2, 3)).await;
    }
    run.pod("rogue", None, true);
    run.check("a pod without one", (2, 4, 2, 3)).await;

    let run = Run::new().await;
    run.budget(json!({"minAvailable": "34%"}));
    run.controller::<StatefulSet>("ss", 3, None);
    for i in 1..=3 {
        run.pod(&format!("p{i}"), Some(owner("StatefulSet", "apps/v1", "ss")), true);
        run.check("a stateful set", (i32::from(i == 3), i, 2, 3)).await;
    }
}

/// Eleven Pods of a controller and eleven of another: 28 % are 4, then 7.
#[tokio::test(start_paused = true)]
async fn two_controllers() {
    let run = Run::new().await;
    run.budget(json!({"minAvailable": "28%"}));
    run.controller::<ReplicationController>("rc", 11, None);
    for i in 1..=11 {
        run.pod(&format!("a{i}"), Some(owner("ReplicationController", "v1", "rc")), i > 6);
        let ready = (i - 6).max(0);
        run.check("of one", (i32::from(ready > 4), ready, 4, 11)).await;
    }
    run.controller::<Deployment>("d", 11, None);
    run.controller::<ReplicaSet>("rs", 3, Some(owner("Deployment", "apps/v1", "d")));
    for i in 1..=11 {
        run.pod(&format!("b{i}"), rs("rs"), i > 7);
        let ready = 5 + (i - 7).max(0);
        run.check("of both", ((ready - 7).max(0), ready, 7, 22)).await;
    }
    run.pod("a11", Some(owner("ReplicationController", "v1", "rc")), false);
    run.check("one less", (1, 8, 7, 22)).await;
    run.pod("a10", Some(owner("ReplicationController", "v1", "rc")), false);
    run.check("two less", (0, 7, 7, 22)).await;
    run.pod("a11", Some(owner("ReplicationController", "v1", "rc")), true);
    run.check("one again", (1, 8, 7, 22)).await;
}

#[tokio::test(start_paused = true)]
async fn finders() {
    let run = Run::new().await;
    run.controller::<ReplicaSet>("rs", 10, None);
    run.controller::<ReplicationController>("rc", 12, None);
    run.controller::<StatefulSet>("ss", 14, None);
    run.controller::<Deployment>("d", 16, None);
    for (name, kind, group) in [
        ("of-d", "Deployment", "extensions/v1"),
        ("of-group", "Deployment", "deployment/v1"),
        ("of-kind", "InvalidKind", "extensions/v1"),
    ] {
        run.controller::<ReplicaSet>(name, 5, Some(owner(kind, group, "d")));
    }
    run.settle().await;
    let check = async |api_version: &str, kind: &str, name: &str, want: Option<(&str, i32)>| {
        let reference: OwnerReference = from_value(owner(kind, api_version, name)).unwrap();
        let got = run.c.owners.wants(&reference, "default").await.ok().flatten();
        let got = got.as_ref().map(|w| (w.uid.as_str(), w.pods));
        assert_eq!(got, want, "{api_version} {kind} {name}");
    };
    check("apps/v1", "ReplicaSet", "rs", Some(("uid-rs", 10))).await;
    check("invalid/v1", "ReplicaSet", "rs", None).await;
    check("/v1", "ReplicationController", "rc", Some(("uid-rc", 12))).await;
    check("apps/v1", "ReplicationController", "rc", None).await;
    check("apps/v1", "StatefulSet", "ss", Some(("uid-ss", 14))).await;
    check("apps/v1", "ReplicaSet", "ss", None).await;
    check("apps/v1", "ReplicaSet", "of-d", Some(("uid-d", 16))).await;
    check("invalid/v1", "ReplicaSet", "of-d", None).await;
    check("apps/v1", "InvalidKind", "of-d", None).await;
    check("extensions/v1", "ReplicaSet", "of-group", None).await;
    check("extensions/v1", "ReplicaSet", "of-kind", Some(("uid-of-kind", 5))).await;
    check("a/b/c", "ReplicaSet", "rs", None).await;
}

fn serve_custom(run: &Run, entries: &Value) {
    run.cluster.fake.serve("/apis/custom.k8s.io/v1", json!({"resources": entries}));
    let groups = json!({"groups": [{"name": "custom.k8s.io", "versions": [{"version": "v1"}]}]});
    run.cluster.fake.serve("/apis", groups);
}

#[tokio::test(start_paused = true)]
async fn any_resource_with_a_scale() {
    let scale = json!({"name": "customs/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"});
    let of_kind = |name: &str| json!({"name": name, "kind": "Custom"});
    let scales = json!([of_kind("customs/status"), scale, of_kind("customs")]);
    for version in ["v1", "v2"] {
        let run = Run::new().await;
        serve_custom(&run, &scales);
        let stored = json!({
            "metadata": {"name": "c", "namespace": "default", "uid": "uid-c"}, "spec": {"replicas": 10},
        });
        run.cluster.fake.put_value("customs/scale", &stored);
        run.budget(json!({"maxUnavailable": 5}));
        for i in 0..7 {
            run.pod(&format!("p{i}"), Some(owner("Custom", &format!("custom.k8s.io/{version}"), "c")), true);
        }
        run.check(version, (2, 7, 5, 10)).await;
    }
    let check = async |entries: Value, want: &str| {
        let run = Run::new().await;
        serve_custom(&run, &entries);
        let reference = from_value(owner("Custom", "custom.k8s.io/v1", "c")).unwrap();
        let got = run.c.owners.wants(&reference, "default").await;
        assert_eq!(got.map_err(|e| e.message), if want.is_empty() { Ok(None) } else { Err(want.to_owned()) });
    };
    check(scales, "").await;
    let without = "customs.custom.k8s.io does not implement the scale subresource";
    check(json!([of_kind("customs"), of_kind("customs/scale")]), without).await;
    check(json!([of_kind("customs")]), without).await;
    check(json!([]), r#"no matches for kind "Custom" in version "custom.k8s.io/v1""#).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_counted_allows_nothing_and_is_tried_again() {
    let run = Run::new().await;
    run.budget(json!({"minAvailable": "28%"}));
    run.controller::<ReplicaSet>("rs", 1, None);
    run.pod("known", rs("rs"), true);
    run.pod("known-too", rs("rs"), true);
    run.check("one of two", (1, 2, 1, 1)).await;
    run.pod("odd", Some(owner("TestWorkload", "apps.test.io/v1", "fake")), true);
    run.cluster.fake.serve("/apis", json!({"groups": []}));
    let no_match = r#"no matches for kind "TestWorkload" in version "apps.test.io/v1""#;
    assert_eq!(run.sync().await.unwrap_err().message, no_match);
    let s = run.status();
    let condition = &s.conditions.as_ref().unwrap()[0];
    assert_eq!((s.disruptions_allowed, condition.status.as_str()), (Some(0), "False"));
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", no_match));
    run.says("CalculateExpectedPodCountFailed").await;
    let writes = run.cluster.fake.writes().len();
    run.sync().await.unwrap_err();
    assert_eq!(run.cluster.fake.writes().len(), writes, "an unchanged status is not written again");
    run.cluster.fake.take::<Pod>("default", "odd");
    run.check("it counts again", (1, 2, 1, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn selectors_that_are_invalid() {
    for selector in [
        json!({"matchLabels": {"k8s.io/too/many/slashes": "value"}}),
        json!({"matchExpressions": [{"key": "foo", "operator": "illegal", "values": ["bar"]}]}),
    ] {
        let run = Run::new().await;
        run.budget(json!({"minAvailable": 3, "selector": selector}));
        run.pod("any", None, true);
        run.sync().await.unwrap_err();
        let s = run.status();
        assert_eq!(s.disruptions_allowed, Some(0));
        assert_eq!(s.conditions.unwrap()[0].reason, "SyncFailed");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_allowed_to_go() {
    let run = Run::new().await;
    let now = run.cluster.clock.now();
    let ago = |minutes: i64| time(now - SignedDuration::from_mins(minutes));
    for name in ["p1", "p2", "p3"] {
        run.pod(name, None, true);
    }
    let mut deleted: Pod = run.cluster.fake.get("default", "p1").unwrap();
    deleted.metadata.deletion_timestamp = Some(Time(now));
    run.cluster.fake.put(&deleted);
    let budget = json!({
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {}},
        "status": {"disruptedPods": {"p1": ago(0), "p2": ago(3), "p3": ago(1), "notthere": ago(0)},
            "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0},
    });
    run.cluster.fake.put::<PodDisruptionBudget>(&from_value(budget).unwrap());
    let kept = |run: &Run| run.status().disrupted_pods.unwrap_or_default().into_keys().collect::<Vec<_>>();
    run.check("one is deleted, one was kept, one may still go", (0, 1, 1, 3)).await;
    assert_eq!(kept(&run), ["p3"]);
    run.says("NotDeleted").await;
    // The last Pod stays too; a change of the clock does not change the time at which that is written.
    for hours in [1, -2, 1] {
        run.cluster.clock.step(SignedDuration::from_hours(hours));
        run.check("the time of day was set", (0, 1, 1, 3)).await;
    }
    advance(Duration::from_secs(50)).await;
    run.check("it may still go", (0, 1, 1, 3)).await;
    advance(Duration::from_secs(11)).await;
    run.check("two were kept", (1, 2, 1, 3)).await;
    assert!(kept(&run).is_empty());
}

/// A count of an older state than the API server's evictions is not written.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_comes_between_is_not_undone() {
    let run = Run::new().await;
    run.budget(json!({"minAvailable": 1}));
    for name in ["moe", "larry", "curly"] {
        run.pod(name, None, true);
    }
    run.check("three", (2, 3, 1, 3)).await;
    run.cluster.fake.take::<Pod>("default", "moe");
    let fake = run.cluster.fake.clone();
    let once = std::sync::atomic::AtomicBool::new(true);
    let (evicting, at) = (Arc::downgrade(&fake), run.cluster.clock.now());
    fake.fail(move |call: &Call| {
        if call.verb == Verb::Update && once.swap(false, std::sync::atomic::Ordering::SeqCst) {
            let fake = evicting.upgrade()?;
            let mut budget: PodDisruptionBudget = fake.get("default", "b")?;
            let status = budget.status.as_mut()?;
            status.disruptions_allowed = Some(0);
            let both = ["larry", "curly"].map(|name| (name.to_owned(), Time(at)));
            status.disrupted_pods = Some(BTreeMap::from(both));
            fake.put(&budget);
        }
        None
    });
    assert!(run.sync().await.unwrap_err().is_conflict());
    assert_eq!(run.status().disruptions_allowed, Some(0));
    run.check("counted anew", (0, 0, 1, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn other_conditions_are_kept() {
    let run = Run::new().await;
    let budget = json!({
        "metadata": {"name": "b", "namespace": "default"}, "spec": {"minAvailable": 3, "selector": {}},
        "status": {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0,
            "conditions": [{"type": "Mine", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": time(Timestamp::UNIX_EPOCH)}]},
    });
    run.cluster.fake.put::<PodDisruptionBudget>(&from_value(budget).unwrap());
    run.sync().await.unwrap();
    let conditions = run.status().conditions.unwrap();
    assert_eq!(
        conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(),
        ["Mine", "DisruptionAllowed"]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_said_to_go_and_stay() {
    let condition =
        |status: &str, reason: &str| json!({"type": "DisruptionTarget", "status": status, "reason": reason});
    // The condition, the phase, whether the Pod is being deleted, the age of the condition, and the result.
    let cases = [
        (condition("True", ""), "Running", false, 121, "False"),
        (condition("True", ""), "Running", false, 119, "True"),
        (condition("True", ""), "Running", true, 121, "True"),
        (condition("True", "TerminationByKubelet"), "Running", false, 121, "True"),
        (condition("True", ""), "Failed", false, 121, "True"),
        (condition("False", ""), "Running", false, 121, "False"),
    ];
    for (mut condition, phase, deleting, passed, want) in cases {
        for hours in [0, 1, -1] {
            let cluster = Cluster::new();
            cluster.run::<Disruption>();
            cluster.follow().await;
            let now = cluster.clock.now();
            condition["lastTransitionTime"] = time(now);
            let pod = json!({
                "metadata": {"name": "p", "namespace": "default", "deletionTimestamp": deleting.then(|| time(now))},
                "status": {"phase": phase, "conditions": [condition]},
            });
            cluster.fake.put::<Pod>(&from_value(pod).unwrap());
            sleep(Duration::from_secs(1)).await;
            cluster.clock.step(SignedDuration::from_hours(hours));
            sleep(Duration::from_secs(passed - 1)).await;
            let pod: Pod = cluster.fake.get("default", "p").unwrap();
            let said = objects::pod::condition(&pod, "DisruptionTarget").unwrap();
            assert_eq!(said.status, want, "{condition} {phase} {deleting} {passed} {hours}");
        }
    }
}

/// The whole controller: budgets follow their Pods, and a Pod that has two gets an Event.
#[tokio::test(start_paused = true)]
async fn budgets_follow_pods() {
    let cluster = Cluster::new();
    cluster.run::<Disruption>();
    cluster.follow().await;
    let budget = |name: &str| {
        let budget = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        });
        cluster.fake.put::<PodDisruptionBudget>(&from_value(budget).unwrap());
    };
    let pod = |name: &str, app: &str| {
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        cluster.fake.put::<Pod>(&from_value(pod).unwrap());
    };
    let allowed = |name: &str| {
        let budget: PodDisruptionBudget = cluster.fake.get("default", name).unwrap();
        budget.status.and_then(|s| s.disruptions_allowed)
    };
    budget("a");
    pod("p", "x");
    pod("q", "x");
    eventually("one may go", || allowed("a") == Some(1)).await;
    pod("q", "y");
    eventually("a Pod left by its labels", || allowed("a") == Some(0)).await;
    pod("q", "x");
    eventually("it is back", || allowed("a") == Some(1)).await;
    assert!(!cluster.fake.reasons().contains(&"MultiplePodDisruptionBudgets".to_owned()));
    budget("b");
    eventually("the other counts too", || allowed("b") == Some(1)).await;
    cluster.fake.take::<Pod>("default", "q");
    eventually("both know", || allowed("a") == Some(0) && allowed("b") == Some(0)).await;
    pod("r", "x");
    let fake = cluster.fake.clone();
    eventually("two budgets", || fake.reasons().contains(&"MultiplePodDisruptionBudgets".to_owned())).await;
    // A request that fails is made again.
    cluster.fake.fail(|call| {
        (call.verb == Verb::Update).then(|| Fault::Refuse(Status::failure(503, "ServiceUnavailable", "down")))
    });
    cluster.fake.take::<Pod>("default", "r");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(allowed("a"), Some(1));
    cluster.fake.fail(|_| None);
    eventually("it was made again", || allowed("a") == Some(0)).await;
}
