//! The amounts that namespaces take, and their limits.

use anyhow::Result;
use api::Status;
use client::{Call, Client, ListParams, PartialObject, Patch, Resource, Verb, resource_of};
use ferrokube_simulation::{Cluster, Fault, Rule};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ReplicationController, ResourceQuota};
use serde_json::{Value, json};

use crate::common::{MINUTE, eventually, merge, pod, started};

fn quota(name: &str, hard: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard}})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}})
}

/// Returns the amounts that are used of a quota, by its status.
async fn used(cluster: &Cluster, name: &str) -> Result<Value> {
    let quota = cluster.get::<ResourceQuota>("default", name).await?;
    let status = quota.and_then(|q| q.status).unwrap_or_default();
    Ok(json!(status.used.unwrap_or_default()))
}

async fn uses(cluster: &Cluster, name: &str, want: Value) -> Result<()> {
    let what = format!("{name} uses {want}");
    eventually(&what, MINUTE, async || Ok(used(cluster, name).await? == want)).await
}

async fn cluster() -> Result<Cluster> {
    started(&["resourcequota-controller", "replicationcontroller-controller", "garbage-collector-controller"])
        .await
}

#[tokio::test(start_paused = true)]
async fn what_is_there_counts_and_what_comes_is_reserved() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create::<ConfigMap>(&map("before")).await?;
    cluster.create::<Pod>(&pod("before", json!({}))).await?;
    let hard = json!({"configmaps": "3", "count/configmaps": "3", "pods": "2", "requests.nodes/x": "1"});
    cluster.create::<ResourceQuota>(&quota("q", &hard)).await?;
    let of = |maps: &str, pods: &str| json!({"configmaps": maps, "count/configmaps": maps, "pods": pods, "requests.nodes/x": "0"});
    uses(&cluster, "q", of("1", "1")).await?;
    cluster.create::<ConfigMap>(&map("a")).await?;
    // The reservation is there before the answer.
    assert_eq!(used(&cluster, "q").await?, of("2", "1"));
    cluster.create::<ConfigMap>(&map("b")).await?;
    let error = format!("{:#}", cluster.create::<ConfigMap>(&map("c")).await.unwrap_err());
    assert!(
        error.contains(
            "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1,count/configmaps=1, \
             used: configmaps=3,count/configmaps=3, limited: configmaps=3,count/configmaps=3"
        ),
        "{error}"
    );
    cluster.take::<ConfigMap>("default", "a").await?;
    uses(&cluster, "q", of("2", "1")).await?;
    cluster.create::<ConfigMap>(&map("c")).await?;
    cluster.stop().await;
    Ok(())
}

/// A request that fails after its reservation gives it back.
#[tokio::test(start_paused = true)]
async fn reservations_without_objects_are_given_back() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create::<ResourceQuota>(&quota("q", &json!({"configmaps": "3"}))).await?;
    uses(&cluster, "q", json!({"configmaps": "0"})).await?;
    cluster.create::<ConfigMap>(&map("a")).await?;
    assert!(cluster.create::<ConfigMap>(&map("a")).await.is_err(), "the name is taken");
    assert_eq!(used(&cluster, "q").await?, json!({"configmaps": "2"}));
    uses(&cluster, "q", json!({"configmaps": "1"})).await?;
    cluster.stop().await;
    Ok(())
}

/// Requests that come together are reserved for together, and no more of them pass than fit.
#[tokio::test(start_paused = true)]
async fn many_at_once() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create::<ResourceQuota>(&quota("q", &json!({"configmaps": "20"}))).await?;
    cluster.create::<ResourceQuota>(&quota("r", &json!({"count/configmaps": "30"}))).await?;
    uses(&cluster, "q", json!({"configmaps": "0"})).await?;
    uses(&cluster, "r", json!({"count/configmaps": "0"})).await?;
    let revision = |quota: ResourceQuota| quota.metadata.resource_version.unwrap_or_default();
    let before = revision(cluster.get("default", "q").await?.unwrap());
    let made = join_all((0..64).map(|n| {
        let (cluster, object) = (&cluster, map(&format!("m{n}")));
        async move { cluster.create::<ConfigMap>(&object).await.is_ok() }
    }));
    let made = made.await.into_iter().filter(|made| *made).count();
    assert_eq!((made, cluster.list::<ConfigMap>("default").await?.len()), (20, 20));
    assert_eq!(used(&cluster, "q").await?, json!({"configmaps": "20"}));
    assert_eq!(used(&cluster, "r").await?, json!({"count/configmaps": "20"}));
    let after: u64 = revision(cluster.get("default", "q").await?.unwrap()).parse()?;
    assert!(after - before.parse::<u64>()? < 64, "there were {after} writes since {before}");
    cluster.stop().await;
    Ok(())
}

/// Nothing is reserved by a dry run.
#[tokio::test(start_paused = true)]
async fn dry_runs() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create::<ResourceQuota>(&quota("q", &json!({"configmaps": "1"}))).await?;
    uses(&cluster, "q", json!({"configmaps": "0"})).await?;
    let transport = cluster.admin().transport().clone();
    let call = |name: &str| {
        let mut object = map(name);
        merge(&mut object, &json!({"apiVersion": "v1", "kind": "ConfigMap"}));
        let query = vec![("dryRun".into(), "All".to_owned())];
        Call { query, ..creates(resource_of::<ConfigMap>(), "default", &object) }
    };
    transport.call(call("a")).await?;
    assert_eq!(used(&cluster, "q").await?, json!({"configmaps": "0"}));
    cluster.create::<ConfigMap>(&map("a")).await?;
    let error = transport.call(call("b")).await.unwrap_err();
    assert!(error.message.contains("exceeded quota: q"), "{error}");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_count_by_scope_until_they_end() -> Result<()> {
    let cluster = cluster().await?;
    let scoped = |name: &str, scope: &str| {
        let mut quota = quota(name, &json!({"pods": "5"}));
        quota["spec"]["scopes"] = json!([scope]);
        quota
    };
    for (name, scope) in [("best", "BestEffort"), ("long", "NotTerminating"), ("short", "Terminating")] {
        cluster.create::<ResourceQuota>(&scoped(name, scope)).await?;
        uses(&cluster, name, json!({"pods": "0"})).await?;
    }
    cluster.create::<Pod>(&pod("a", json!({"spec": {"activeDeadlineSeconds": 100}}))).await?;
    let asks = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    cluster.create::<Pod>(&pod("b", asks)).await?;
    for name in ["best", "long", "short"] {
        uses(&cluster, name, json!({"pods": "1"})).await?;
    }
    let mut ended = cluster.get::<Pod>("default", "a").await?.unwrap();
    ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    cluster.admin().api::<Pod>("default").update_status(&ended).await?;
    uses(&cluster, "best", json!({"pods": "0"})).await?;
    uses(&cluster, "short", json!({"pods": "0"})).await?;
    uses(&cluster, "long", json!({"pods": "1"})).await?;
    cluster.stop().await;
    Ok(())
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

fn resource(group: &str, plural: &str) -> Resource {
    Resource { group: group.into(), version: "v1".into(), plural: plural.into() }
}

/// A request that makes an object of any kind.
fn creates(resource: Resource, namespace: &str, object: &Value) -> Call {
    Call {
        verb: Verb::Create,
        resource,
        namespace: namespace.into(),
        name: "".into(),
        subresource: "".into(),
        query: Vec::new(),
        body: object.to_string().into(),
    }
}

async fn make(client: &Client, resource: Resource, namespace: &str, object: &Value) -> Result<()> {
    client.transport().call(creates(resource, namespace, object)).await?;
    Ok(())
}

/// A quota counts custom resources, also if their definition comes later.
#[tokio::test(start_paused = true)]
async fn custom_resources() -> Result<()> {
    let cluster = cluster().await?;
    let admin = cluster.admin();
    cluster.create::<ResourceQuota>(&quota("q", &json!({"count/widgets.example.com": "1"}))).await?;
    eventually("the quota's status", MINUTE, async || {
        let quota = cluster.get::<ResourceQuota>("default", "q").await?.unwrap();
        Ok(quota.status.is_some_and(|s| s.hard.is_some()))
    })
    .await?;
    assert_eq!(used(&cluster, "q").await?, json!({}));
    make(&admin, resource("apiextensions.k8s.io", "customresourcedefinitions"), "", &definition()).await?;
    uses(&cluster, "q", json!({"count/widgets.example.com": "0"})).await?;
    let widget = |name: &str| {
        let mut widget = map(name);
        merge(&mut widget, &json!({"apiVersion": "example.com/v1", "kind": "Widget"}));
        widget
    };
    let widgets = || resource("example.com", "widgets");
    make(&admin, widgets(), "default", &widget("a")).await?;
    assert_eq!(used(&cluster, "q").await?, json!({"count/widgets.example.com": "1"}));
    let error = format!("{:#}", make(&admin, widgets(), "default", &widget("b")).await.unwrap_err());
    assert!(error.contains("exceeded quota: q, requested: count/widgets.example.com=1"), "{error}");
    admin.resource::<PartialObject>(widgets(), "default").delete("a", None).await?;
    uses(&cluster, "q", json!({"count/widgets.example.com": "0"})).await?;
    cluster.stop().await;
    Ok(())
}

/// Conflicts and lost answers of the controller leave no wrong number behind.
#[tokio::test(start_paused = true)]
async fn faults_of_the_controller() -> Result<()> {
    let cluster = cluster().await?;
    let lost = || Fault::Lose(Status::internal("lost"));
    let conflict = || Fault::Refuse(Status::conflict("", "resourcequotas", "q", "changed"));
    for fault in [lost(), conflict()] {
        cluster.faults().add(Rule::new(fault).resource("resourcequotas").writes().times(2));
    }
    cluster.create::<ResourceQuota>(&quota("q", &json!({"configmaps": "5"}))).await?;
    cluster.create::<ConfigMap>(&map("a")).await?;
    uses(&cluster, "q", json!({"configmaps": "1"})).await?;
    cluster.faults().add(Rule::new(lost()).resource("resourcequotas").writes().times(2));
    cluster.take::<ConfigMap>("default", "a").await?;
    uses(&cluster, "q", json!({"configmaps": "0"})).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_refused_replica_is_reported() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create::<ResourceQuota>(&quota("condition-test", &json!({"pods": "2"}))).await?;
    uses(&cluster, "condition-test", json!({"pods": "0"})).await?;
    let labels = json!({"app": "x"});
    let controller = json!({
        "metadata": {"name": "rc", "namespace": "default"},
        "spec": {"replicas": 3, "selector": labels, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    cluster.create::<ReplicationController>(&controller).await?;
    let failure = |rc: &ReplicationController| {
        let conditions = rc.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.filter(|c| c.type_ == "ReplicaFailure").find_map(|c| c.message.clone())
    };
    cluster
        .until::<ReplicationController>(MINUTE, "default", |all| {
            all.iter().any(|rc| failure(rc).is_some_and(|m| m.contains("exceeded quota: condition-test")))
        })
        .await?;
    assert_eq!(cluster.list::<Pod>("default").await?.len(), 2);
    let scales = cluster.admin().api::<ReplicationController>("default");
    scales.patch("rc", &Patch::Merge(json!({"spec": {"replicas": 2}}))).await?;
    cluster
        .until::<ReplicationController>(MINUTE, "default", |all| all.iter().all(|rc| failure(rc).is_none()))
        .await?;
    cluster.stop().await;
    Ok(())
}

/// Ranges set defaults before quotas count.
#[tokio::test(start_paused = true)]
async fn defaults_count() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create::<ResourceQuota>(&quota("q", &json!({"requests.cpu": "1"}))).await?;
    uses(&cluster, "q", json!({"requests.cpu": "0"})).await?;
    let silent = format!("{:#}", cluster.create::<Pod>(&pod("a", json!({}))).await.unwrap_err());
    assert!(silent.contains("failed quota: q: must specify requests.cpu for: c"), "{silent}");
    let range = json!({"metadata": {"name": "l", "namespace": "default"}, "spec": {"limits": [
        {"type": "Container", "defaultRequest": {"cpu": "300m"}, "max": {"cpu": "500m"}, "default": {"cpu": "400m"}}]}});
    cluster.create::<k8s_openapi::api::core::v1::LimitRange>(&range).await?;
    let made = cluster.create::<Pod>(&pod("a", json!({}))).await?;
    let resources = json!(made.spec.unwrap().containers[0].resources);
    assert_eq!(resources, json!({"requests": {"cpu": "300m"}, "limits": {"cpu": "400m"}}));
    assert_eq!(used(&cluster, "q").await?, json!({"requests.cpu": "300m"}));
    let greedy =
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}});
    let error = format!("{:#}", cluster.create::<Pod>(&pod("b", greedy)).await.unwrap_err());
    assert!(error.contains("maximum cpu usage per Container is 500m, but limit is 2"), "{error}");
    let all = cluster.admin().api::<Pod>("default").list(&ListParams::default()).await?;
    assert_eq!(all.items.len(), 1);
    cluster.stop().await;
    Ok(())
}

/// Upstream's case of `TestDiscoverySync`, fault by fault: nothing can be discovered, or not all of it, or a resource cannot
/// be listed. The rest counts all the same, and what failed counts later.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_discovered_holds_up_nothing_else() -> Result<()> {
    let error = || Fault::Refuse(Status::internal(":-/"));
    let missing = || Fault::Refuse(Status::not_found("", "deployments", ""));
    let hard = json!({"configmaps": "3", "count/deployments.apps": "3"});
    let all = json!({"configmaps": "1", "count/deployments.apps": "0"});
    let maps = json!({"configmaps": "1"});
    // Before the start of the controller, and while it runs.
    for late in [false, true] {
        let faults = [
            (Rule::new(error()).path("/apis"), json!({})),
            (Rule::new(error()).path("/apis/apps/v1"), maps.clone()),
            (Rule::new(missing()).resource("deployments"), maps.clone()),
        ];
        for (rule, known) in faults {
            let cluster = crate::common::bare().await?;
            cluster.create::<ConfigMap>(&map("a")).await?;
            if !late {
                cluster.faults().add(rule.clone());
            }
            cluster.controllers(&["resourcequota-controller"])?;
            tokio::time::sleep(MINUTE).await;
            if late {
                cluster.faults().add(rule.clone());
                // The resources that are served may have changed: they are discovered again.
                make(
                    &cluster.admin(),
                    resource("apiextensions.k8s.io", "customresourcedefinitions"),
                    "",
                    &definition(),
                )
                .await?;
                tokio::time::sleep(MINUTE).await;
            }
            cluster.create::<ResourceQuota>(&quota("q", &hard)).await?;
            tokio::time::sleep(MINUTE).await;
            // Resources that were discovered once are known, but for those that cannot be listed.
            let listed = !format!("{rule:?}").contains("deployments");
            let want = if late && listed { &all } else { &known };
            assert_eq!(used(&cluster, "q").await?, *want, "{late} {rule:?}");
            cluster.faults().clear();
            let what = format!("all is counted after {rule:?}");
            eventually(&what, 5 * MINUTE, async || Ok(used(&cluster, "q").await? == all)).await?;
            cluster.stop().await;
        }
    }
    Ok(())
}
