//! The evictions that budgets allow: upstream's cases (`disruption_test.go`), and cases of faults and clock changes.

use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::{KubeObject, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, condition, eventually, pod, said, started};

struct Run(Cluster);

/// A reference to a managing controller.
fn owner(kind: &str, api_version: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

impl Run {
    async fn new() -> Result<Self> {
        Ok(Self(started(&["disruption-controller"]).await?))
    }

    /// Stores a budget for the Pods with `foo=bar`.
    async fn budget(&self, mut spec: Value) -> Result<()> {
        if spec["selector"].is_null() {
            spec["selector"] = json!({"matchLabels": {"foo": "bar"}});
        }
        let budget = json!({"metadata": {"name": "b", "namespace": "default"}, "spec": spec});
        self.0.create::<PodDisruptionBudget>(&budget).await.map(drop)
    }

    async fn pod(&self, name: &str, owner: Option<&Value>, ready: bool) -> Result<()> {
        let ready = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
        let more = json!({
            "metadata": {"labels": {"foo": "bar"}, "ownerReferences": owner},
            "status": {"conditions": ready},
        });
        self.0.put::<Pod>(&pod(name, more)).await.map(drop)
    }

    /// Stores a controller, and returns the reference to it.
    async fn controller<T: KubeObject>(&self, name: &str, replicas: i32, by: Option<Value>) -> Result<Value> {
        let labels = json!({"of": name});
        let selector =
            if T::KIND == "ReplicationController" { labels.clone() } else { json!({"matchLabels": labels}) };
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "ownerReferences": by},
            "spec": {"replicas": replicas, "selector": selector, "serviceName": "s", "template": template},
        });
        let made = self.0.create::<T>(&object).await?;
        let uid = made.metadata().uid.clone().unwrap_or_default();
        Ok(owner(T::KIND, T::API_VERSION, name, &uid))
    }

    async fn status(&self) -> Result<PodDisruptionBudgetStatus> {
        let budget = self.0.get::<PodDisruptionBudget>("default", "b").await?.context("no budget")?;
        Ok(budget.status.unwrap_or_default())
    }

    /// Waits for the numbers of allowed, healthy, desired and expected Pods.
    async fn check(&self, what: &str, want: (i32, i32, i32, i32)) -> Result<()> {
        let mut last = None;
        let done = eventually(what, MINUTE, async || {
            let s = self.status().await?;
            let got = [s.disruptions_allowed, s.current_healthy, s.desired_healthy, s.expected_pods];
            let condition = s.conditions.iter().flatten().find(|c| c.type_ == "DisruptionAllowed");
            let said = condition.map(|c| (c.status.as_str(), c.reason.as_str(), c.observed_generation));
            let allowed = if want.0 > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            let right = got == [want.0, want.1, want.2, want.3].map(Some)
                && said == Some((allowed.0, allowed.1, s.observed_generation));
            last = Some(s);
            Ok(right)
        });
        done.await.with_context(|| format!("{last:?}"))
    }
}

/// Upstream's `TestUnavailable`.
#[tokio::test(start_paused = true)]
async fn numbers_of_pods() -> Result<()> {
    let run = Run::new().await?;
    run.budget(json!({"minAvailable": 3})).await?;
    run.check("no pod", (0, 0, 3, 0)).await?;
    for i in 1..=4 {
        run.pod(&format!("yo-yo-yo-{i}"), None, true).await?;
        run.check("one more", (i32::from(i == 4), i, 3, i)).await?;
    }
    run.pod("yo-yo-yo-1", None, false).await?;
    run.check("one is not ready", (0, 3, 3, 4)).await?;
    said(&run.0, "NoPods").await?;
    let everything = Run::new().await?;
    everything.budget(json!({"minAvailable": 0, "selector": {}})).await?;
    everything.pod("any", None, true).await?;
    everything.check("an empty selector selects all", (1, 1, 0, 1)).await
}

/// Upstream's `TestIntegerMaxUnavailable`, `TestNakedPod`, `TestStatusForUnmanagedPod` and `TestTotalUnmanagedPods`.
#[tokio::test(start_paused = true)]
async fn pods_without_a_controller() -> Result<()> {
    for spec in [json!({"maxUnavailable": 1}), json!({"minAvailable": "28%"})] {
        let run = Run::new().await?;
        run.budget(spec).await?;
        run.check("no pod", (0, 0, 0, 0)).await?;
        run.pod("naked", None, true).await?;
        run.check("one without a controller", (0, 1, 0, 0)).await?;
        said(&run.0, "UnmanagedPods").await?;
    }
    Ok(())
}

/// Upstream's `TestIntegerMaxUnavailableWithScaling`, `TestReplicationController` and `TestStatefulSetController`.
#[tokio::test(start_paused = true)]
async fn the_scale_of_controllers() -> Result<()> {
    let run = Run::new().await?;
    run.budget(json!({"maxUnavailable": 2})).await?;
    let set = run.controller::<ReplicaSet>("rs", 7, None).await?;
    run.pod("pod", Some(&set), true).await?;
    run.check("a set", (0, 1, 5, 7)).await?;
    let sets = run.0.admin().api::<ReplicaSet>("default");
    sets.patch("rs", &client::Patch::Merge(json!({"spec": {"replicas": 5}}))).await?;
    run.pod("pod", Some(&set), false).await?;
    run.check("a smaller set", (0, 0, 3, 5)).await?;

    let run = Run::new().await?;
    run.budget(json!({"minAvailable": "34%"})).await?;
    let controller = run.controller::<ReplicationController>("rc", 3, None).await?;
    run.check("no pod tells of a controller", (0, 0, 0, 0)).await?;
    for i in 1..=3 {
        run.pod(&format!("p{i}"), Some(&controller), true).await?;
        run.check("a controller", (i32::from(i == 3), i, 2, 3)).await?;
    }
    run.pod("rogue", None, true).await?;
    run.check("a pod without one", (2, 4, 2, 3)).await?;

    let run = Run::new().await?;
    run.budget(json!({"minAvailable": "34%"})).await?;
    let set = run.controller::<StatefulSet>("ss", 3, None).await?;
    for i in 1..=3 {
        run.pod(&format!("p{i}"), Some(&set), true).await?;
        run.check("a stateful set", (i32::from(i == 3), i, 2, 3)).await?;
    }
    Ok(())
}

/// Upstream's `TestTwoControllers`. Eleven Pods of a controller and eleven of another: 28 % are 4, then 7.
#[tokio::test(start_paused = true)]
async fn two_controllers() -> Result<()> {
    let run = Run::new().await?;
    run.budget(json!({"minAvailable": "28%"})).await?;
    let one = run.controller::<ReplicationController>("rc", 11, None).await?;
    for i in 1..=11 {
        run.pod(&format!("a{i}"), Some(&one), i > 6).await?;
        let ready = (i - 6).max(0);
        run.check("of one", (i32::from(ready > 4), ready, 4, 11)).await?;
    }
    let deployment = run.controller::<Deployment>("d", 11, None).await?;
    let set = run.controller::<ReplicaSet>("rs", 3, Some(deployment)).await?;
    for i in 1..=11 {
        run.pod(&format!("b{i}"), Some(&set), i > 7).await?;
        let ready = 5 + (i - 7).max(0);
        run.check("of both", ((ready - 7).max(0), ready, 7, 22)).await?;
    }
    run.pod("a11", Some(&one), false).await?;
    run.check("one less", (1, 8, 7, 22)).await?;
    run.pod("a10", Some(&one), false).await?;
    run.check("two less", (0, 7, 7, 22)).await?;
    run.pod("a11", Some(&one), true).await?;
    run.check("one again", (1, 8, 7, 22)).await
}

/// The number of Pods that the owner of a Pod wants, by the owner's reference: upstream's `TestBasicFinderFunctions` and
/// `TestDeploymentFinderFunction`.
#[tokio::test(start_paused = true)]
async fn finders() -> Result<()> {
    let run = Run::new().await?;
    let uid = |reference: &Value| reference[0]["uid"].as_str().unwrap_or_default().to_owned();
    let rs = uid(&run.controller::<ReplicaSet>("rs", 10, None).await?);
    let rc = uid(&run.controller::<ReplicationController>("rc", 12, None).await?);
    let ss = uid(&run.controller::<StatefulSet>("ss", 14, None).await?);
    let d = uid(&run.controller::<Deployment>("d", 16, None).await?);
    let mut sets = Vec::new();
    for (name, kind, group) in [
        ("of-d", "Deployment", "extensions/v1"),
        ("of-group", "Deployment", "deployment/v1"),
        ("of-kind", "InvalidKind", "extensions/v1"),
    ] {
        let set = run.controller::<ReplicaSet>(name, 5, Some(owner(kind, group, "d", &d))).await?;
        sets.push((name, uid(&set)));
    }
    let [(_, of_d), (_, of_group), (_, of_kind)] = &sets[..] else { anyhow::bail!("three sets") };
    let cases = [
        ("apps/v1", "ReplicaSet", "rs", &rs, Some(10)),
        ("invalid/v1", "ReplicaSet", "rs", &rs, None),
        ("v1", "ReplicationController", "rc", &rc, Some(12)),
        ("apps/v1", "ReplicationController", "rc", &rc, None),
        ("apps/v1", "StatefulSet", "ss", &ss, Some(14)),
        ("apps/v1", "ReplicaSet", "ss", &ss, None),
        ("apps/v1", "ReplicaSet", "of-d", of_d, Some(16)),
        ("invalid/v1", "ReplicaSet", "of-d", of_d, None),
        ("apps/v1", "InvalidKind", "of-d", of_d, None),
        ("extensions/v1", "ReplicaSet", "of-kind", of_kind, Some(5)),
        // The server has no such kind in that group: it is asked for what the caches do not tell.
        ("extensions/v1", "ReplicaSet", "of-group", of_group, None),
    ];
    for (i, (api_version, kind, name, uid, want)) in cases.into_iter().enumerate() {
        let (case, label) = (format!("{api_version} {kind} {name}"), json!({"case": i.to_string()}));
        let reference = owner(kind, api_version, name, uid);
        let more = json!({"metadata": {"labels": label, "ownerReferences": reference}});
        run.0.put::<Pod>(&pod(&format!("p{i}"), more)).await?;
        let budget = json!({
            "metadata": {"name": format!("b{i}"), "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": label}},
        });
        run.0.create::<PodDisruptionBudget>(&budget).await?;
        let found = |b: &PodDisruptionBudget| {
            let status = b.status.as_ref()?;
            let failed = status.conditions.iter().flatten().any(|c| c.reason == "SyncFailed");
            Some(if failed { None } else { status.expected_pods })
        };
        eventually(&case, MINUTE, async || {
            let budget = run.0.get::<PodDisruptionBudget>("default", &format!("b{i}")).await?;
            Ok(budget.as_ref().and_then(found).is_some_and(|got| got == want))
        })
        .await?;
    }
    Ok(())
}

fn serve_custom(run: &Run, entries: &Value) {
    let groups = json!({"groups": [{"name": "custom.k8s.io", "versions": [{"version": "v1"}]}]});
    let resources = json!({ "resources": entries });
    run.0.faults().add(Rule::new(Fault::Answer(resources)).path("/apis/custom.k8s.io/v1"));
    run.0.faults().add(Rule::new(Fault::Answer(groups)).path("/apis"));
}

/// Upstream's `TestScaleFinderNoResource`, and `TestScaleResource` with three Pods more.
#[tokio::test(start_paused = true)]
async fn any_resource_with_a_scale() -> Result<()> {
    let scale = json!({"name": "customs/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"});
    let of_kind = |name: &str| json!({"name": name, "kind": "Custom"});
    let scales = json!([of_kind("customs/status"), scale, of_kind("customs")]);
    for version in ["v1", "v2"] {
        let run = Run::new().await?;
        serve_custom(&run, &scales);
        let stored = json!({
            "metadata": {"name": "c", "namespace": "default", "uid": "uid-c"}, "spec": {"replicas": 10},
        });
        run.0.faults().add(Rule::new(Fault::Answer(stored)).resource("customs").subresource("scale"));
        run.budget(json!({"maxUnavailable": 5})).await?;
        let reference = owner("Custom", &format!("custom.k8s.io/{version}"), "c", "uid-c");
        for i in 0..7 {
            run.pod(&format!("p{i}"), Some(&reference), true).await?;
        }
        run.check(version, (2, 7, 5, 10)).await?;
    }
    let check = async |entries: Value, want: &str| -> Result<()> {
        let run = Run::new().await?;
        serve_custom(&run, &entries);
        let missing = Status::not_found("custom.k8s.io", "customs", "c");
        run.0.faults().add(Rule::new(Fault::Refuse(missing)).resource("customs"));
        run.budget(json!({"maxUnavailable": 5})).await?;
        run.pod("p", Some(&owner("Custom", "custom.k8s.io/v1", "c", "uid-c")), true).await?;
        eventually(want, MINUTE, async || {
            let status = run.status().await?;
            Ok(status.conditions.iter().flatten().any(|c| c.reason == "SyncFailed" && c.message == want))
        })
        .await
    };
    check(scales, r#"found no controllers for pod "p""#).await?;
    let without = "customs.custom.k8s.io does not implement the scale subresource";
    check(json!([of_kind("customs"), of_kind("customs/scale")]), without).await?;
    check(json!([of_kind("customs")]), without).await?;
    check(json!([]), r#"no matches for kind "Custom" in version "custom.k8s.io/v1""#).await
}

/// Upstream's `TestUnsupportedControllerPod`, and that it ends.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_counted_allows_nothing_and_is_tried_again() -> Result<()> {
    let run = Run::new().await?;
    run.budget(json!({"minAvailable": "28%"})).await?;
    let set = run.controller::<ReplicaSet>("rs", 1, None).await?;
    run.pod("known", Some(&set), true).await?;
    run.pod("known-too", Some(&set), true).await?;
    run.check("one of two", (1, 2, 1, 1)).await?;
    run.pod("odd", Some(&owner("TestWorkload", "apps.test.io/v1", "fake", "u")), true).await?;
    let no_match = r#"no matches for kind "TestWorkload" in version "apps.test.io/v1""#;
    eventually("it fails", MINUTE, async || {
        let s = run.status().await?;
        let failed = s.conditions.iter().flatten().any(|c| {
            (c.status.as_str(), c.reason.as_str(), c.message.as_str()) == ("False", "SyncFailed", no_match)
        });
        Ok(failed && s.disruptions_allowed == Some(0))
    })
    .await?;
    said(&run.0, "CalculateExpectedPodCountFailed").await?;
    run.0.faults().record();
    sleep(5 * MINUTE).await;
    let asked = run.0.faults().seen();
    let writes =
        asked.iter().filter(|c| c.resource.plural == "poddisruptionbudgets" && c.verb != Verb::Watch);
    assert_eq!(writes.count(), 0, "an unchanged status is not written again");
    run.0.take::<Pod>("default", "odd").await?;
    run.check("it counts again", (1, 2, 1, 1)).await
}

/// Upstream's `TestUpdateDisruptedPods`.
#[tokio::test(start_paused = true)]
async fn pods_that_were_allowed_to_go() -> Result<()> {
    let run = Run::new().await?;
    let now = run.0.clock().now();
    let ago = |minutes: i64| json!((now - SignedDuration::from_mins(minutes)).to_string());
    for name in ["p2", "p3"] {
        run.pod(name, None, true).await?;
    }
    // A finalizer keeps the deleted one.
    let kept = json!({"metadata": {"labels": {"foo": "bar"}, "finalizers": ["example.com/stay"]}});
    run.0.put::<Pod>(&pod("p1", kept)).await?;
    run.pod("p1", None, true).await?;
    run.0.take::<Pod>("default", "p1").await?;
    let budget = json!({
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {}},
        "status": {"disruptedPods": {"p1": ago(0), "p2": ago(3), "p3": ago(1), "notthere": ago(0)},
            "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0},
    });
    run.0.put::<PodDisruptionBudget>(&budget).await?;
    let going = async || -> Result<Vec<String>> {
        Ok(run.status().await?.disrupted_pods.unwrap_or_default().into_keys().collect())
    };
    run.check("one is deleted, one was kept, one may still go", (0, 1, 1, 3)).await?;
    assert_eq!(going().await?, ["p3"]);
    said(&run.0, "NotDeleted").await?;
    // The last Pod stays too; a change of the clock does not change the time at which that is written.
    for hours in [1, -2, 1] {
        run.0.clock().step(SignedDuration::from_hours(hours));
        sleep(Duration::from_secs(1)).await;
        run.check("the time of day was set", (0, 1, 1, 3)).await?;
    }
    sleep(Duration::from_secs(40)).await;
    assert_eq!(going().await?, ["p3"], "it may still go");
    sleep(Duration::from_secs(21)).await;
    run.check("two were kept", (1, 2, 1, 3)).await?;
    assert!(going().await?.is_empty());
    Ok(())
}

/// A count of an older state than the API server's evictions is not written: upstream's `TestUpdatePDBStatusRetries`.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_comes_between_is_not_undone() -> Result<()> {
    let run = Run::new().await?;
    run.budget(json!({"minAvailable": 1})).await?;
    for name in ["moe", "larry", "curly"] {
        run.pod(name, None, true).await?;
    }
    run.check("three", (2, 3, 1, 3)).await?;
    let write = |fault| Rule::new(fault).resource("poddisruptionbudgets").verb(Verb::Update);
    let held = run.0.faults().hold(write);
    run.0.take::<Pod>("default", "moe").await?;
    sleep(Duration::from_secs(1)).await;
    let at = run.0.clock().now().to_string();
    let evicted = json!({"status": {"disruptionsAllowed": 0, "disruptedPods": {"larry": at, "curly": at}}});
    let budgets = run.0.admin().api::<PodDisruptionBudget>("default");
    budgets.patch_status("b", &client::Patch::Merge(evicted)).await?;
    held.open(Ok(()));
    run.check("counted anew", (0, 0, 1, 2)).await?;
    let going = run.status().await?.disrupted_pods.unwrap_or_default();
    assert_eq!(going.into_keys().collect::<Vec<_>>(), ["curly", "larry"]);
    Ok(())
}

/// Upstream's `TestKeepExistingPDBConditionDuringSync`.
#[tokio::test(start_paused = true)]
async fn other_conditions_are_kept() -> Result<()> {
    let run = Run::new().await?;
    let mine = json!({"type": "Mine", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"});
    let budget = json!({
        "metadata": {"name": "b", "namespace": "default"}, "spec": {"minAvailable": 3, "selector": {}},
        "status": {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0, "conditions": [mine]},
    });
    run.0.put::<PodDisruptionBudget>(&budget).await?;
    run.pod("p", None, true).await?;
    run.check("counted", (0, 1, 3, 1)).await?;
    let conditions = run.status().await?.conditions.unwrap_or_default();
    let kinds: Vec<&str> = conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(kinds, ["Mine", "DisruptionAllowed"]);
    Ok(())
}

/// Upstream's `TestStalePodDisruption`.
#[tokio::test(start_paused = true)]
async fn pods_that_were_said_to_go_and_stay() -> Result<()> {
    // The condition's status and reason, the phase, whether the Pod is being deleted, and the results before and after
    // two minutes.
    let cases = [
        ("True", "", "Running", false, "True", "False"),
        ("True", "", "Running", true, "True", "True"),
        ("True", "TerminationByKubelet", "Running", false, "True", "True"),
        ("True", "", "Failed", false, "True", "True"),
        ("False", "", "Running", false, "False", "False"),
    ];
    for hours in [0, 1, -1] {
        let run = Run::new().await?;
        let now = run.0.clock().now().to_string();
        for (i, (status, reason, phase, deleted, ..)) in cases.iter().enumerate() {
            let said = json!({"type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": now});
            let name = format!("p{i}");
            let more = json!({
                "metadata": {"finalizers": ["example.com/stay"]},
                "status": {"phase": phase, "conditions": [said]},
            });
            run.0.put::<Pod>(&pod(&name, more)).await?;
            if *deleted {
                run.0.take::<Pod>("default", &name).await?;
            }
        }
        let check = async |what: &str, want: &[&str]| -> Result<()> {
            let pods = run.0.list::<Pod>("default").await?;
            let got: Vec<_> =
                pods.iter().filter_map(|p| Some(condition(p, "DisruptionTarget")?.status.as_str())).collect();
            assert_eq!(got, want, "{what} {hours}");
            Ok(())
        };
        sleep(Duration::from_secs(1)).await;
        run.0.clock().step(SignedDuration::from_hours(hours));
        sleep(Duration::from_secs(118)).await;
        check("before", &cases.map(|c| c.4)).await?;
        sleep(Duration::from_secs(2)).await;
        check("after", &cases.map(|c| c.5)).await?;
    }
    Ok(())
}

/// The whole controller: budgets follow their Pods, and a Pod that has two gets an Event.
#[tokio::test(start_paused = true)]
async fn budgets_follow_pods() -> Result<()> {
    let cluster = started(&["disruption-controller"]).await?;
    let budget = async |name: &str| {
        let budget = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        });
        cluster.create::<PodDisruptionBudget>(&budget).await
    };
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let put = async |name: &str, app: &str| {
        cluster.put::<Pod>(&pod(name, json!({"metadata": {"labels": {"app": app}}, "status": ready}))).await
    };
    let allows = async |name: &str, wanted: i32| -> Result<()> {
        eventually(&format!("{name} allows {wanted}"), MINUTE, async || {
            let budget = cluster.get::<PodDisruptionBudget>("default", name).await?;
            Ok(budget.and_then(|b| b.status?.disruptions_allowed) == Some(wanted))
        })
        .await
    };
    budget("a").await?;
    put("p", "x").await?;
    put("q", "x").await?;
    allows("a", 1).await?;
    put("q", "y").await?;
    allows("a", 0).await?;
    put("q", "x").await?;
    allows("a", 1).await?;
    assert!(!cluster.reasons().await?.contains(&"MultiplePodDisruptionBudgets".to_owned()));
    budget("b").await?;
    allows("b", 1).await?;
    cluster.take::<Pod>("default", "q").await?;
    allows("a", 0).await?;
    allows("b", 0).await?;
    put("r", "x").await?;
    said(&cluster, "MultiplePodDisruptionBudgets").await?;
    allows("a", 1).await?;
    // A request that fails is made again.
    let down = Fault::Refuse(Status::failure(503, "ServiceUnavailable", "down"));
    cluster.faults().add(Rule::new(down).verb(Verb::Update));
    cluster.take::<Pod>("default", "r").await?;
    sleep(Duration::from_secs(1)).await;
    allows("a", 1).await?;
    cluster.faults().clear();
    allows("a", 0).await
}
