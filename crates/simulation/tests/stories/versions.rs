//! Stored versions: objects that are written anew, servers that are gone; the types of policies' expressions.

use anyhow::{Context, Result, ensure};
use api::FeatureGates;
use apiserver::served::RuntimeConfig;
use client::{Patch, Resource, Verb};
use ferrokube_simulation::{Cluster, Rule};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use serde_json::{Value, json};

use super::{Stage, disturbed, disturbed_where};
use crate::common::{MINUTE, bare, bare_with, eventually};

const SYSTEM: &str = "kube-system";
/// The number of objects.
const WIDGETS: usize = 3;

fn resource(group: &str, version: &str, plural: &str) -> Resource {
    Resource { group: group.into(), version: version.into(), plural: plural.into() }
}

fn version(name: &str, storage: bool) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
}

/// A definition whose objects are stored in an old version.
async fn defined(stage: &Stage<'_>) -> Result<client::Api<Value>> {
    let api = stage
        .cluster
        .admin()
        .resource::<Value>(resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "");
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [version("v1", true), version("v2", false)]}});
    api.post::<Value, Value>("", "", &definition).await?;
    stage
        .until("it is established", async |_| {
            let all = api.get("widgets.example.com").await?["status"]["conditions"].clone();
            Ok(all
                .as_array()
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "Established" && c["status"] == "True"))
        })
        .await?;
    let widgets =
        stage.cluster.admin().resource::<Value>(resource("example.com", "v1", "widgets"), "default");
    for i in 0..WIDGETS {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": format!("w-{i}")}, "size": i});
        widgets.post::<Value, Value>("", "", &widget).await?;
    }
    let patch = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    api.patch("widgets.example.com", &Patch::Merge(patch)).await?;
    stage
        .until("both are noted", async |_| {
            Ok(api.get("widgets.example.com").await?["status"]["storedVersions"] == json!(["v1", "v2"]))
        })
        .await?;
    Ok(api)
}

/// The conditions of a migration that hold, and those that do not.
async fn conditions(cluster: &Cluster, name: &str) -> Result<Vec<(String, String, String)>> {
    let found = cluster.get::<StorageVersionMigration>("", name).await?;
    let all = found.and_then(|m| m.status?.conditions).unwrap_or_default();
    let mut all: Vec<_> = all.into_iter().map(|c| (c.type_, c.status, c.reason)).collect();
    all.sort();
    Ok(all)
}

/// Two migrations of a resource, one after the other, and one of a resource that is not there: each comes to its end, no
/// object is lost, and the definition says what is stored.
#[tokio::test(start_paused = true)]
async fn objects_are_stored_anew() -> Result<()> {
    let features = ["StorageVersionMigrator=true", "CRDObservedGenerationTracking=true"];
    let controllers = ["storage-version-migrator-controller"];
    disturbed_where(&features, &controllers, &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let definition = defined(stage).await?;
        let widgets = cluster.admin().resource::<Value>(resource("example.com", "v2", "widgets"), "default");
        let revisions = async || -> Result<Vec<Value>> {
            let mut all = Vec::new();
            for i in 0..WIDGETS {
                let widget = widgets.get(&format!("w-{i}")).await?;
                ensure!(widget["size"] == json!(i), "{widget}");
                all.push(widget["metadata"]["resourceVersion"].clone());
            }
            Ok(all)
        };
        let before = revisions().await?;
        let migration = |name: &str, plural: &str| {
            json!({"metadata": {"name": name}, "spec": {"resource": {"group": "example.com", "resource": plural}}})
        };
        for (name, plural) in [("m", "widgets"), ("n", "widgets"), ("none", "none")] {
            cluster.create::<StorageVersionMigration>(&migration(name, plural)).await?;
        }
        for (name, end) in [("m", "Succeeded"), ("n", "Succeeded"), ("none", "Failed")] {
            stage
                .until(&format!("{name} ends"), async |cluster| {
                    let all = conditions(cluster, name).await?;
                    let holds = |kind: &str, status: &str| all.iter().any(|c| c.0 == kind && c.1 == status);
                    Ok(holds(end, "True") && holds("Running", "False"))
                })
                .await?;
        }
        let after = revisions().await?;
        ensure!(before.iter().zip(&after).all(|(b, a)| b != a), "{before:?} {after:?}");
        stage.pass(MINUTE).await?;
        ensure!(revisions().await? == after, "they are written again");
        let mut end = definition.get("widgets.example.com").await?["status"].take();
        let all = end["conditions"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let told = all.iter().find(|c| c["type"] == "StorageMigrating").cloned().unwrap_or_default();
        Ok(json!([
            end["storedVersions"],
            [told["status"], told["reason"]],
            conditions(cluster, "m").await?,
            conditions(cluster, "n").await?,
            conditions(cluster, "none").await?
        ]))
    })
    .await
}

/// The versions that a server told go with the server's Lease, those of others stay.
#[tokio::test(start_paused = true)]
async fn versions_of_servers() -> Result<()> {
    let features = ["StorageVersionAPI=true", "APIServerIdentity=true"];
    let controllers = ["storageversion-garbage-collector-controller"];
    disturbed_where(&features, &controllers, &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let now = cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        for name in ["apiserver-own", "apiserver-gone"] {
            let meta = json!({"name": name, "namespace": SYSTEM,
                "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}});
            let spec = json!({"holderIdentity": name, "renewTime": now, "leaseDurationSeconds": 36000});
            cluster.create::<Lease>(&json!({"metadata": meta, "spec": spec})).await?;
        }
        let said = |server: &str, version: &str| json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": ["v1", "v2"]});
        let (own, same, other) =
            (said("apiserver-own", "v1"), said("apiserver-gone", "v1"), said("apiserver-gone", "v2"));
        for (name, all, common) in [
            ("test.example.com.same", json!([own, same]), Some("v1")),
            ("test.example.com.other", json!([own, other]), None),
            ("test.example.com.only", json!([same]), Some("v1")),
        ] {
            let status = json!({"storageVersions": all, "commonEncodingVersion": common});
            cluster
                .put::<StorageVersion>(&json!({"metadata": {"name": name}, "spec": {}, "status": status}))
                .await?;
        }
        stage.pass(MINUTE).await?;
        let of_test = |v: &StorageVersion| v.metadata.name.as_ref().is_some_and(|n| n.starts_with("test."));
        let all = cluster.list::<StorageVersion>("").await?;
        ensure!(all.iter().filter(|v| of_test(v)).count() == 3, "their servers are there");
        cluster.take::<Lease>(SYSTEM, "apiserver-gone").await?;
        let state = async |cluster: &Cluster| {
            let mut all = Vec::new();
            for version in cluster.list::<StorageVersion>("").await?.into_iter().filter(|v| of_test(v)) {
                let status = version.status.unwrap_or_default();
                let servers = status.storage_versions.into_iter().flatten().map(|s| s.api_server_id);
                let conditions = status.conditions.into_iter().flatten().map(|c| (c.type_, c.status));
                all.push(json!([
                    version.metadata.name,
                    servers.collect::<Vec<_>>(),
                    status.common_encoding_version,
                    conditions.collect::<Vec<_>>()
                ]));
            }
            anyhow::Ok(all)
        };
        let wanted = ["test.example.com.other", "test.example.com.same"]
            .map(|name| json!([name, ["apiserver-own"], "v1", [["AllEncodingVersionsEqual", "True"]]]));
        stage.until("its versions go", async |cluster| Ok(state(cluster).await? == wanted)).await?;
        stage.pass(MINUTE).await?;
        ensure!(state(cluster).await? == wanted, "they stay so");
        Ok(Value::Null)
    })
    .await
}

/// A policy is told what is wrong with its types, and that it is right when it is; one of the same name that is made anew is
/// looked at for itself.
#[tokio::test(start_paused = true)]
async fn types_of_policies() -> Result<()> {
    disturbed(&["validatingadmissionpolicy-status-controller"], async |stage| {
        let cluster = stage.cluster;
        let spec = |expression: &str| {
            json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["deployments"]}]},
                "validations": [{"expression": expression}]})
        };
        let (right, wrong) = ("object.spec.replicas > 1", "object.spec.replicas > '1'");
        let policies = cluster.admin().resource::<Value>(
            resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
            "",
        );
        let until = async |what: &str, generation: i64, warnings: usize| {
            stage
                .until(what, async |_| {
                    let policy = policies.get("p").await?;
                    let (at, told) = (&policy["metadata"]["generation"], &policy["status"]);
                    let seen = told["observedGeneration"].as_i64().unwrap_or(0);
                    ensure!(*at == generation && seen <= generation, "{policy}");
                    let all = told["typeChecking"]["expressionWarnings"].as_array();
                    Ok(seen == generation && all.map_or(0, Vec::len) == warnings)
                })
                .await
        };
        let create = async |expression: &str| -> Result<()> {
            let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": spec(expression)});
            policies.post::<Value, Value>("", "", &policy).await?;
            Ok(())
        };
        create(wrong).await?;
        until("it is told", 1, 1).await?;
        for (generation, expression, warnings) in [(2, right, 0), (3, wrong, 1)] {
            policies.patch("p", &Patch::Merge(json!({"spec": spec(expression)}))).await?;
            until("it is told again", generation, warnings).await?;
        }
        // Another of its name comes while the old one is still looked at.
        policies.patch("p", &Patch::Merge(json!({"spec": spec(right)}))).await?;
        policies.delete("p", None).await?;
        create(wrong).await?;
        until("the new one is told", 1, 1).await?;
        stage.pass(MINUTE).await?;
        until("it stays so", 1, 1).await?;
        Ok(Value::Null)
    })
    .await
}

/// The versions of a resource stay if another server says something while those of one that is gone are taken away.
#[tokio::test(start_paused = true)]
async fn a_server_that_comes_meanwhile() -> Result<()> {
    let gates = FeatureGates::parse(["StorageVersionAPI=true", "APIServerIdentity=true"])?;
    let served = RuntimeConfig::parse(["api/all=true"])?;
    let cluster = bare_with(|c| (c.gates, c.runtime_config) = (gates, served)).await?;
    let now = cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let meta = json!({"name": "apiserver-own", "namespace": SYSTEM,
        "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}});
    let spec = json!({"holderIdentity": "own", "renewTime": now, "leaseDurationSeconds": 36000});
    cluster.create::<Lease>(&json!({"metadata": meta, "spec": spec})).await?;
    let said = |servers: &[&str]| {
        let all = servers
            .iter()
            .map(|s| json!({"apiServerID": s, "encodingVersion": "v1", "decodableVersions": ["v1"]}));
        json!({"metadata": {"name": "test.example.com"}, "spec": {},
            "status": {"storageVersions": all.collect::<Vec<_>>(), "commonEncodingVersion": "v1"}})
    };
    let gate = cluster.faults().hold(|fault| Rule::new(fault).resource("storageversions").verb(Verb::Delete));
    cluster.put::<StorageVersion>(&said(&["apiserver-gone"])).await?;
    cluster.controllers_with(&["storageversion-garbage-collector-controller"], |c| c.gates = gates)?;
    tokio::time::sleep(MINUTE).await; // the time in which it is to be removed, in simulated time
    ensure!(cluster.faults().met() == 1, "nobody removes it");
    cluster.put::<StorageVersion>(&said(&["apiserver-gone", "apiserver-own"])).await?;
    gate.open(Ok(()));
    eventually("the own version is left", MINUTE, async || {
        let found = cluster.get::<StorageVersion>("", "test.example.com").await?;
        let status = found.context("it is gone")?.status.unwrap_or_default();
        let servers = status.storage_versions.into_iter().flatten().map(|s| s.api_server_id);
        Ok(servers.eq(["apiserver-own"]))
    })
    .await?;
    cluster.stop().await;
    Ok(())
}

/// A policy that is made anew while the last one of its name is looked at is not told of that one.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_made_anew_meanwhile() -> Result<()> {
    let cluster = bare().await?;
    let plural = "validatingadmissionpolicies";
    let policies =
        cluster.admin().resource::<Value>(resource("admissionregistration.k8s.io", "v1", plural), "");
    let create = async |expression: &str| -> Result<()> {
        let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["deployments"]});
        let spec = json!({"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression}]});
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "p"}, "spec": spec});
        policies.post::<Value, Value>("", "", &policy).await?;
        Ok(())
    };
    create("object.spec.replicas > 1").await?;
    let gate = cluster.faults().hold(|fault| Rule::new(fault).resource(plural).subresource("status"));
    cluster.controllers(&["validatingadmissionpolicy-status-controller"])?;
    tokio::time::sleep(MINUTE).await; // the time in which it is looked at, in simulated time
    ensure!(cluster.faults().met() == 1, "nobody looks at it");
    policies.delete("p", None).await?;
    create("object.spec.replicas > '1'").await?;
    gate.open(Ok(()));
    eventually("the new one is told", 20 * MINUTE, async || {
        let status = policies.get("p").await?["status"].take();
        let warnings = status["typeChecking"]["expressionWarnings"].as_array().map_or(0, Vec::len);
        Ok(status["observedGeneration"] == 1 && warnings == 1)
    })
    .await?;
    cluster.stop().await;
    Ok(())
}
