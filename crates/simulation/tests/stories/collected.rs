//! Objects that go because others go: namespaces, owners.

use anyhow::{Result, ensure};
use client::{KubeObject, Resource};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};

use super::disturbed;
use crate::common::{MINUTE, pod};

const COLLECTOR: &str = "garbage-collector-controller";

fn propagation(policy: &str) -> DeleteOptions {
    DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() }
}

fn names<T: KubeObject>(all: &[T]) -> Vec<&str> {
    let mut names: Vec<&str> = all.iter().filter_map(|o| o.metadata().name.as_deref()).collect();
    names.sort_unstable();
    names
}

#[tokio::test(start_paused = true)]
async fn a_namespace() -> Result<()> {
    disturbed(&["namespace-controller", "serviceaccount-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        cluster.create::<Namespace>(&json!({"metadata": {"name": "team"}})).await?;
        stage
            .until("it has an account", async |cluster| {
                Ok(!cluster.list::<ServiceAccount>("team").await?.is_empty())
            })
            .await?;
        for i in 0..3 {
            let meta = json!({"name": format!("o{i}"), "namespace": "team"});
            cluster.create::<ConfigMap>(&json!({ "metadata": meta })).await?;
            cluster.create::<Service>(&json!({"metadata": meta, "spec": {"ports": [{"port": 80}]}})).await?;
            let mut pod = pod(&format!("o{i}"), json!({}));
            pod["metadata"] = meta;
            cluster.create::<Pod>(&pod).await?;
        }
        stage
            .until("its Pods run", async |cluster| {
                let pods = cluster.list::<Pod>("team").await?;
                Ok(pods.iter().all(|p| crate::workloads::phase(p) == "Running"))
            })
            .await?;
        cluster.admin().api::<Namespace>("").delete("team", None).await?;
        stage
            .until("it is gone", async |cluster| Ok(cluster.get::<Namespace>("", "team").await?.is_none()))
            .await?;
        let left = [
            cluster.list::<ConfigMap>("team").await?.len(),
            cluster.list::<Service>("team").await?.len(),
            cluster.list::<Pod>("team").await?.len(),
            cluster.list::<ServiceAccount>("team").await?.len(),
        ];
        ensure!(left == [0; 4], "{left:?} are left");
        Ok(Value::Null)
    })
    .await
}

/// Makes a ConfigMap with these owners.
async fn owned(cluster: &Cluster, name: &str, owners: &[&ConfigMap]) -> Result<ConfigMap> {
    let owners: Vec<Value> = owners
        .iter()
        .map(|o| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o.metadata.name, "uid": o.metadata.uid,
                "blockOwnerDeletion": true})
        })
        .collect();
    let meta = json!({"name": name, "namespace": "default", "ownerReferences": owners});
    cluster.create::<ConfigMap>(&json!({ "metadata": meta })).await
}

#[tokio::test(start_paused = true)]
async fn owners_of_every_sort() -> Result<()> {
    disturbed(&[COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        let maps = cluster.admin().api::<ConfigMap>("default");
        // Chains with a fork, one for each policy.
        let mut roots = Vec::new();
        for policy in ["background", "foreground", "orphan"] {
            let root = owned(cluster, policy, &[]).await?;
            let child = owned(cluster, &format!("{policy}-child"), &[&root]).await?;
            owned(cluster, &format!("{policy}-other"), &[&root]).await?;
            owned(cluster, &format!("{policy}-grandchild"), &[&child]).await?;
            roots.push(root);
        }
        // The collector knows them.
        stage.pass(MINUTE).await?;
        maps.delete("background", Some(&propagation("Background"))).await?;
        maps.delete("foreground", Some(&propagation("Foreground"))).await?;
        maps.delete("orphan", Some(&propagation("Orphan"))).await?;
        let kept = ["orphan-child", "orphan-grandchild", "orphan-other"];
        stage.all::<ConfigMap>("the right ones are left", |all| names(all) == kept).await?;
        stage.pass(MINUTE).await?;
        stage.all::<ConfigMap>("the right ones are left", |all| names(all) == kept).await?;
        let left = cluster.list::<ConfigMap>("default").await?;
        let owners = |name: &str| {
            let of = left.iter().find(|m| m.metadata.name.as_deref() == Some(name));
            of.map(|m| {
                m.metadata.owner_references.iter().flatten().map(|o| o.name.clone()).collect::<Vec<_>>()
            })
        };
        let end = json!(kept.map(owners));
        // An object whose owner never was goes.
        let nobody = ConfigMap { metadata: roots[1].metadata.clone(), ..ConfigMap::default() };
        owned(cluster, "late", &[&nobody]).await?;
        stage.all::<ConfigMap>("the late one is gone", |all| names(all) == kept).await?;
        Ok(end)
    })
    .await
}

/// Objects of a definition go with it, and with their owners of a built-in kind.
#[tokio::test(start_paused = true)]
async fn objects_of_a_definition() -> Result<()> {
    disturbed(&[COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        let definitions = Resource {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            plural: "customresourcedefinitions".into(),
        };
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
        let api = cluster.admin().resource::<Value>(definitions, "");
        api.post::<Value, Value>("", "", &definition).await?;
        stage
            .until("it is established", async |_| {
                let all = api.get("widgets.example.com").await?["status"]["conditions"].clone();
                Ok(all.as_array().into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True"))
            })
            .await?;
        let widgets = Resource { group: "example.com".into(), version: "v1".into(), plural: "widgets".into() };
        let widgets = cluster.admin().resource::<Value>(widgets, "default");
        let owner = owned(cluster, "owner", &[]).await?;
        let by = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}]);
        for (name, owners) in [("free", json!([])), ("owned", by)] {
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"name": name, "ownerReferences": owners}});
            widgets.post::<Value, Value>("", "", &widget).await?;
        }
        let free = widgets.get("free").await?;
        let by = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "free", "uid": free["metadata"]["uid"]}]);
        let map = json!({"metadata": {"name": "of-widget", "namespace": "default", "ownerReferences": by}});
        cluster.create::<ConfigMap>(&map).await?;
        stage.pass(2 * MINUTE).await?;
        cluster.admin().api::<ConfigMap>("default").delete("owner", None).await?;
        stage
            .until("the owned one is gone", async |_| {
                Ok(widgets.get("owned").await.is_err_and(|e| e.is_not_found()) && widgets.get("free").await.is_ok())
            })
            .await?;
        widgets.delete("free", None).await?;
        stage.all::<ConfigMap>("no map is left", <[_]>::is_empty).await?;
        Ok(Value::Null)
    })
    .await
}
