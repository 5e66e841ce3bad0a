//! Autoscalers follow the load on their Pods.

use std::time::Duration;

use anyhow::Result;
use api::Status;
use client::{Call, Resource, Verb};
use ferrokube_simulation::{Cluster, Fault, Fleet, Rule, Shape};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::{Value, json};

use crate::common::{MINUTE, eventually, merge, said};
use crate::workloads::{cluster, deployment, phase};

const CONTROLLER: &str = "horizontal-pod-autoscaler-controller";

/// An autoscaler that keeps the Pods of a Deployment at half of what they request.
fn autoscaler(name: &str, more: Value) -> Value {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let mut autoscaler = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 20, "metrics": [cpu],
        },
    });
    merge(&mut autoscaler, &more);
    autoscaler
}

/// The status and the reason of a condition of an autoscaler.
fn condition(of: &[HorizontalPodAutoscaler], kind: &str) -> Option<(String, String)> {
    let status = of.first()?.status.as_ref()?;
    let condition = status.conditions.iter().flatten().find(|c| c.type_ == kind)?;
    Some((condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

fn is(of: &[HorizontalPodAutoscaler], kind: &str, status: &str, reason: &str) -> bool {
    condition(of, kind) == Some((status.to_owned(), reason.to_owned()))
}

async fn runs(cluster: &Cluster, pods: usize, limit: Duration) -> Result<()> {
    let running = |all: &[Pod]| all.len() == pods && all.iter().all(|p| phase(p) == "Running");
    cluster.until::<Pod>(limit, "default", running).await?;
    Ok(())
}

async fn loaded(cores: f64) -> Result<(Cluster, Fleet)> {
    let (cluster, fleet) = cluster(2, &Shape::default()).await?;
    cluster.create::<Deployment>(&deployment("web", 1, "100m")).await?;
    cluster.loads().set("web", cores).await?;
    Ok((cluster, fleet))
}

#[tokio::test(start_paused = true)]
async fn a_deployment_follows_its_load_up_and_down() -> Result<()> {
    let (cluster, _fleet) = loaded(0.5).await?;
    cluster.create::<HorizontalPodAutoscaler>(&autoscaler("web", json!({}))).await?;
    // Ten Pods have half of what they request. The size doubles at most, and first becomes four.
    runs(&cluster, 10, 10 * MINUTE).await?;
    said(&cluster, "SuccessfulRescale").await?;
    cluster
        .until::<HorizontalPodAutoscaler>(5 * MINUTE, "default", |all| {
            is(all, "AbleToScale", "True", "ReadyForNewScale")
                && is(all, "ScalingActive", "True", "ValidMetricFound")
                && is(all, "ScalingLimited", "False", "DesiredWithinRange")
        })
        .await?;
    let texts: Vec<String> =
        cluster.list::<Event>("default").await?.into_iter().filter_map(|e| e.message).collect();
    let first = "New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(texts.iter().any(|text| text == first), "{texts:?}");
    // It goes down only when nothing more was recommended for five minutes.
    cluster.loads().set("web", 0.09).await?;
    let held = |all: &[HorizontalPodAutoscaler]| is(all, "AbleToScale", "True", "ScaleDownStabilized");
    cluster.until::<HorizontalPodAutoscaler>(MINUTE, "default", held).await?;
    runs(&cluster, 2, 10 * MINUTE).await?;
    let all = cluster.list::<HorizontalPodAutoscaler>("default").await?;
    let status = all[0].status.clone().unwrap_or_default();
    assert!(status.last_scale_time.is_some() && status.desired_replicas == 2, "{status:?}");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rules_bound_how_fast_a_size_changes() -> Result<()> {
    let (cluster, _fleet) = loaded(1.0).await?;
    let one_a_minute = json!([{"type": "Pods", "value": 1, "periodSeconds": 60}]);
    let behavior = json!({"spec": {"maxReplicas": 4, "behavior": {"scaleUp": {"policies": one_a_minute}}}});
    cluster.create::<HorizontalPodAutoscaler>(&autoscaler("web", behavior)).await?;
    let limited = |all: &[HorizontalPodAutoscaler]| is(all, "ScalingLimited", "True", "ScaleUpLimit");
    cluster.until::<HorizontalPodAutoscaler>(5 * MINUTE, "default", limited).await?;
    runs(&cluster, 2, MINUTE).await?;
    let took = cluster
        .until::<Deployment>(10 * MINUTE, "default", |all| {
            all.iter().all(|d| d.spec.as_ref().and_then(|s| s.replicas) == Some(4))
        })
        .await?;
    assert!(took > MINUTE, "{took:?}");
    let many = |all: &[HorizontalPodAutoscaler]| is(all, "ScalingLimited", "True", "TooManyReplicas");
    cluster.until::<HorizontalPodAutoscaler>(5 * MINUTE, "default", many).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_said() -> Result<()> {
    let (cluster, fleet) = loaded(0.2).await?;
    let lost = json!({"spec": {"scaleTargetRef": {"name": "other"}}});
    cluster.create::<HorizontalPodAutoscaler>(&autoscaler("lost", lost)).await?;
    let failed = |all: &[HorizontalPodAutoscaler]| is(all, "AbleToScale", "False", "FailedGetScale");
    cluster.until::<HorizontalPodAutoscaler>(2 * MINUTE, "default", failed).await?;
    cluster.take::<HorizontalPodAutoscaler>("default", "lost").await?;
    // Nobody tells of nodes that are gone.
    runs(&cluster, 1, MINUTE).await?;
    let strange = json!({"spec": {"metrics": [{"type": "External", "external":
        {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "1"}}}]}});
    let mut strange = autoscaler("web", strange);
    strange["spec"]["metrics"] = json!([strange["spec"]["metrics"][0]]);
    cluster.create::<HorizontalPodAutoscaler>(&strange).await?;
    let unknown =
        |all: &[HorizontalPodAutoscaler]| is(all, "ScalingActive", "False", "FailedGetExternalMetric");
    cluster.until::<HorizontalPodAutoscaler>(2 * MINUTE, "default", unknown).await?;
    // FailedComputeMetricsReplicas is told in the same instant of the simulated clock, and so under the same name.
    for reason in ["FailedGetScale", "FailedGetExternalMetric"] {
        said(&cluster, reason).await?;
    }
    // Two that scale the same Pods do nothing.
    let mut second = autoscaler("second", json!({"spec": {"scaleTargetRef": {"name": "web"}}}));
    second["metadata"]["namespace"] = "default".into();
    cluster.create::<HorizontalPodAutoscaler>(&second).await?;
    said(&cluster, "AmbiguousSelector").await?;
    drop(fleet);
    cluster.stop().await;
    Ok(())
}

/// Upstream's `TestConditionAmbiguousSelectorWhenPartialSelectorOverlapBetweenHPAs`,
/// `TestConditionNoAmbiguousSelectorWhenNoSelectorOverlapBetweenHPAs`, `TestMultipleHPAs` and
/// `TestHPARescaleWithSuccessfulConflictRetry`: two autoscalers whose selectors select a Pod both do nothing, many that do
/// not work each for itself, and a conflict is overcome.
#[tokio::test(start_paused = true)]
async fn autoscalers_beside_each_other() -> Result<()> {
    let (cluster, _fleet) = loaded(0.2).await?;
    runs(&cluster, 1, MINUTE).await?;
    // A Deployment whose own selector selects the other's Pods, too, since they have both labels.
    let mut other = deployment("other", 1, "100m");
    other["spec"]["selector"] = json!({"matchLabels": {"cheddar": "cheese"}});
    other["spec"]["template"]["metadata"]["labels"] = json!({"cheddar": "cheese"});
    cluster.create::<Deployment>(&other).await?;
    let both = client::Patch::Merge(json!({"metadata": {"labels": {"cheddar": "cheese"}}}));
    for pod in cluster.list::<Pod>("default").await? {
        if pod.metadata.labels.is_some_and(|l| l.contains_key("app")) {
            let name = pod.metadata.name.unwrap_or_default();
            cluster.admin().api::<Pod>("default").patch(&name, &both).await?;
        }
    }
    let conflict = Status::conflict("", "deployments", "web", "simulated conflict");
    let rule = || Rule::new(Fault::Refuse(conflict.clone())).resource("deployments").subresource("scale");
    cluster.faults().add(rule().verb(Verb::Update).times(1));
    for name in ["web", "other"] {
        cluster.create::<HorizontalPodAutoscaler>(&autoscaler(name, json!({}))).await?;
    }
    let state = |of: &[HorizontalPodAutoscaler], name: &str| {
        let of: Vec<_> = of.iter().filter(|a| a.metadata.name.as_deref() == Some(name)).cloned().collect();
        condition(&of, "ScalingActive").map(|c| c.1).unwrap_or_default()
    };
    let ambiguous = |of: &[HorizontalPodAutoscaler]| {
        ["web", "other"].iter().all(|name| state(of, name) == "AmbiguousSelector")
    };
    cluster.until::<HorizontalPodAutoscaler>(5 * MINUTE, "default", ambiguous).await?;
    let size = async |name: &str| {
        let found = cluster.get::<Deployment>("default", name).await?.unwrap_or_default();
        anyhow::Ok(found.spec.and_then(|s| s.replicas))
    };
    let before = (size("web").await?, size("other").await?);
    tokio::time::sleep(5 * MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!((size("web").await?, size("other").await?), before);
    // Each selects its own Pods alone now.
    cluster.take::<Deployment>("default", "other").await?;
    cluster.loads().set("other", 0.1).await?;
    cluster.create::<Deployment>(&deployment("other", 1, "100m")).await?;
    eventually("both follow their load", 10 * MINUTE, async || {
        Ok((size("web").await?, size("other").await?) == (Some(4), Some(2)))
    })
    .await?;
    assert!(cluster.faults().met() > 0, "no scale was written over a conflict");
    cluster.stop().await;
    Ok(())
}

/// The controller ends between the write of the scale and that of the status.
#[tokio::test(start_paused = true)]
async fn a_controller_that_ends_in_between_is_replaced() -> Result<()> {
    let (cluster, _fleet) = loaded(0.2).await?;
    for skip in [0, 1] {
        cluster.faults().add(Rule::new(Fault::Hang).resource("horizontalpodautoscalers").writes().skip(skip));
    }
    cluster.create::<HorizontalPodAutoscaler>(&autoscaler("web", json!({}))).await?;
    runs(&cluster, 4, 5 * MINUTE).await?;
    cluster.faults().clear();
    let stop = cluster.shutdown().child();
    cluster.controllers_until(&stop, &[CONTROLLER], |_| {})?;
    cluster
        .until::<HorizontalPodAutoscaler>(5 * MINUTE, "default", |all| {
            is(all, "ScalingActive", "True", "ValidMetricFound")
        })
        .await?;
    runs(&cluster, 4, MINUTE).await?;
    cluster.stop().await;
    Ok(())
}

/// Any resource with a scale can be a target.
#[tokio::test(start_paused = true)]
async fn custom_resources_are_scaled() -> Result<()> {
    let (cluster, _fleet) = loaded(0.2).await?;
    let call = |verb, (group, version, plural): (&str, &str, &str), namespace: &str, body: &Value| {
        let resource = Resource { group: group.into(), version: version.into(), plural: plural.into() };
        let mut call = Call::new(verb, resource, namespace, "", "");
        call.body = body.to_string().into();
        call
    };
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "fleets", "kind": "Fleet", "singular": "fleet", "listKind": "FleetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": free},
                "subresources": {"scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}}]},
    });
    let admin = cluster.admin();
    let crds = ("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    admin.transport().call(call(Verb::Create, crds, "", &definition)).await?;
    let fleets = ("example.com", "v1", "fleets");
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "f", "namespace": "default"},
        "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=web"},
    });
    eventually("a definition is served", MINUTE, async || {
        Ok(admin.transport().call(call(Verb::Create, fleets, "default", &object)).await.is_ok())
    })
    .await?;
    let target = json!({"spec": {"scaleTargetRef":
        {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f"}}});
    cluster.create::<HorizontalPodAutoscaler>(&autoscaler("fleet", target)).await?;
    let resource = Resource { group: "example.com".into(), version: "v1".into(), plural: "fleets".into() };
    let api = admin.resource::<Scale>(resource, "default");
    eventually("a custom resource is scaled", 5 * MINUTE, async || {
        let scale: Scale = api.get_subresource("f", "scale").await?;
        Ok(scale.spec.and_then(|s| s.replicas) == Some(4))
    })
    .await?;
    cluster.stop().await;
    Ok(())
}
