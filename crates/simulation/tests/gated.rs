//! Controllers of features that are off by default.

use std::time::Duration;

use anyhow::Result;
use api::FeatureGates;
use apiserver::served::RuntimeConfig;
use client::{Patch, Resource};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionCondition};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::api::resource::v1alpha3::ResourcePoolStatusRequest;
use k8s_openapi::api::scheduling::v1alpha2::{PodGroup, Workload};
use k8s_openapi::api::storage::v1::CSIDriver;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, eventually, labelled, pod, said};

/// A cluster with these features and every API, and one controller.
async fn cluster(features: &[&str], controller: &str) -> Result<Cluster> {
    let gates = FeatureGates::parse(features.iter().copied())?;
    let all = RuntimeConfig::parse(["api/all=true"])?;
    let cluster = Cluster::start_with(|c| {
        c.gates = gates;
        c.runtime_config = all;
    })
    .await?;
    cluster
        .create::<ServiceAccount>(&json!({"metadata": {"name": "default", "namespace": "default"}}))
        .await?;
    cluster.controllers_with(&[controller], |c| c.gates = gates)?;
    Ok(cluster)
}

#[tokio::test(start_paused = true)]
async fn the_authorities_are_published_as_a_trust_bundle() -> Result<()> {
    let controller = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
    let cluster = cluster(&["ClusterTrustBundle=true"], controller).await?;
    let bundles = async || cluster.list::<ClusterTrustBundle>("").await;
    let whole = async || {
        let all = bundles().await?;
        let own = |b: &ClusterTrustBundle| b.spec.trust_bundle.starts_with("-----BEGIN CERTIFICATE");
        Ok::<_, anyhow::Error>(all.len() == 1 && all.iter().all(own))
    };
    eventually("it is published", MINUTE, async || whole().await).await?;
    let name = bundles().await?[0].metadata.name.clone().unwrap_or_default();
    assert!(name.starts_with("kubernetes.io:kube-apiserver-serving:"), "{name}");
    cluster.take::<ClusterTrustBundle>("", &name).await?;
    eventually("it is published again", MINUTE, async || whole().await).await?;
    let mut other = bundles().await?[0].spec.clone();
    other.signer_name = Some("kubernetes.io/kube-apiserver-serving".to_owned());
    let old = json!({"metadata": {"name": "kubernetes.io:kube-apiserver-serving:old"}, "spec": other});
    cluster.create::<ClusterTrustBundle>(&old).await?;
    eventually("an older one goes", MINUTE, async || whole().await).await
}

#[tokio::test(start_paused = true)]
async fn a_pod_group_stays_as_long_as_its_pods() -> Result<()> {
    let cluster = cluster(&["GenericWorkload=true"], "podgroup-protection-controller").await?;
    let group = json!({"metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}}});
    cluster.create::<PodGroup>(&group).await?;
    cluster
        .create::<Pod>(&pod(
            "p",
            json!({"spec": {"schedulingGroup": {"podGroupName": "g"}, "nodeName": "n"}}),
        ))
        .await?;
    cluster.admin().api::<PodGroup>("default").delete("g", None).await?;
    sleep(10 * MINUTE).await;
    assert!(cluster.get::<PodGroup>("default", "g").await?.is_some());
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    cluster.admin().api::<Pod>("default").patch_status("p", &ended).await?;
    eventually("it goes", MINUTE, async || Ok(cluster.get::<PodGroup>("default", "g").await?.is_none())).await
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_pools_gets_an_answer_for_an_hour() -> Result<()> {
    let cluster = cluster(&["DRAResourcePoolStatus=true"], "resourcepoolstatusrequest-controller").await?;
    let slice = |name: &str, count: i64| {
        json!({"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": count},
            "devices": [{"name": format!("{name}-0")}, {"name": format!("{name}-1")}]}})
    };
    cluster.create::<ResourceSlice>(&slice("a", 2)).await?;
    let ask = json!({"metadata": {"name": "r"}, "spec": {"driver": "gpu.example.com"}});
    cluster.create::<ResourcePoolStatusRequest>(&ask).await?;
    let get = async || cluster.get::<ResourcePoolStatusRequest>("", "r").await;
    sleep(Duration::from_secs(10)).await;
    assert!(get().await?.is_some_and(|r| r.status.is_none()), "a slice is missing");
    cluster.create::<ResourceSlice>(&slice("b", 2)).await?;
    eventually("it is answered", 20 * MINUTE, async || {
        let status = get().await?.and_then(|r| r.status);
        Ok(status.is_some_and(|s| s.pools.iter().flatten().any(|p| p.total_devices == Some(4))))
    })
    .await?;
    sleep(80 * MINUTE).await;
    assert!(get().await?.is_none(), "it has had its time");
    Ok(())
}

/// Objects of a definition that are stored in its old version are stored in the new one after a migration.
#[tokio::test(start_paused = true)]
async fn objects_are_stored_in_the_new_version() -> Result<()> {
    let features = ["StorageVersionMigrator=true", "CRDObservedGenerationTracking=true"];
    let cluster = cluster(&features, "storage-version-migrator-controller").await?;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let resource = |version: &str| Resource {
        group: "example.com".into(),
        version: version.into(),
        plural: "widgets".into(),
    };
    let definitions = Resource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        plural: "customresourcedefinitions".into(),
    };
    let api = cluster.admin().resource::<Value>(definitions, "");
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [version("v1", true), version("v2", false)]}});
    api.post::<Value, Value>("", "", &definition).await?;
    let get = async || api.get("widgets.example.com").await;
    eventually("it is established", MINUTE, async || {
        let all = get().await?["status"]["conditions"].clone();
        Ok(all.as_array().into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True"))
    })
    .await?;
    let widgets = |version: &str| cluster.admin().resource::<Value>(resource(version), "default");
    for i in 0..7 {
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": format!("w-{i}")}});
        widgets("v1").post::<Value, Value>("", "", &widget).await?;
    }
    let patch = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    api.patch("widgets.example.com", &Patch::Merge(patch)).await?;
    eventually("both are noted", MINUTE, async || {
        Ok(get().await?["status"]["storedVersions"] == json!(["v1", "v2"]))
    })
    .await?;
    let before = widgets("v2").get("w-0").await?["metadata"]["resourceVersion"].clone();
    let migration = json!({"metadata": {"name": "m"}, "spec": {"resource": {"group": "example.com", "resource": "widgets"}}});
    cluster.create::<StorageVersionMigration>(&migration).await?;
    let holds = async |name: &str, kind: &str| {
        let found = cluster.get::<StorageVersionMigration>("", name).await?;
        let all = found.and_then(|m| m.status?.conditions).unwrap_or_default();
        Ok::<_, anyhow::Error>(all.iter().any(|c| c.type_ == kind && c.status == "True"))
    };
    eventually("it succeeds", 10 * MINUTE, async || {
        Ok(holds("m", "Succeeded").await? && !holds("m", "Running").await?)
    })
    .await?;
    let now = get().await?;
    assert_eq!(now["status"]["storedVersions"], json!(["v2"]), "{now}");
    assert_ne!(widgets("v2").get("w-0").await?["metadata"]["resourceVersion"], before, "it was written anew");
    // A resource that is not there fails its migration after a minute.
    let missing = json!({"metadata": {"name": "none"}, "spec": {"resource": {"group": "example.com", "resource": "none"}}});
    cluster.create::<StorageVersionMigration>(&missing).await?;
    eventually("it fails", 10 * MINUTE, async || holds("none", "Failed").await).await
}

/// Upstream's 4 cases of `TestTypeChecking` of the status of policies: expressions about Deployments, and which of them are
/// warned of, with parts of the warning.
#[tokio::test(start_paused = true)]
async fn types_of_expressions() -> Result<()> {
    let cluster = cluster(&[], "validatingadmissionpolicy-status-controller").await?;
    let resource = Resource {
        group: "admissionregistration.k8s.io".into(),
        version: "v1".into(),
        plural: "validatingadmissionpolicies".into(),
    };
    let policies = cluster.admin().resource::<Value>(resource, "");
    let check = async |name: &str, expressions: &[&str], wanted: &[(usize, &[&str])]| -> Result<()> {
        let all: Vec<Value> = expressions.iter().map(|e| json!({ "expression": e })).collect();
        let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]});
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": all}});
        policies.post::<Value, Value>("", "", &policy).await?;
        let mut told = Value::Null;
        eventually(name, MINUTE, async || {
            told = policies.get(name).await?["status"]["typeChecking"].take();
            Ok(!told.is_null())
        })
        .await?;
        let warnings = told["expressionWarnings"].as_array().cloned().unwrap_or_default();
        assert_eq!(warnings.len(), wanted.len(), "{name}: {warnings:?}");
        for (warning, (at, parts)) in warnings.iter().zip(wanted) {
            assert_eq!(warning["fieldRef"], format!("spec.validations[{at}].expression"));
            let text = warning["warning"].as_str().unwrap_or_default();
            assert!(parts.iter().all(|part| text.contains(part)), "{name}: {text}");
        }
        Ok(())
    };
    let confused = "found no matching overload for '_>_' applied to '(int, string)'";
    check("right", &["object.spec.replicas > 1"], &[]).await?;
    let second = ["object.spec.replicas < 100", "object.spec.replicas > '1'"];
    check("second", &second, &[(1, &[confused])]).await?;
    let both = ["object.spec.nonExistingFirst > 1", "object.spec.replicas > '1'"];
    check("both", &both, &[(0, &["undefined field 'nonExistingFirst'"]), (1, &[confused])]).await?;
    let twice = ["object.spec.replicas < 100", "object.spec.replicas > '1' && object.spec.nonExisting == 1"];
    check("twice", &twice, &[(1, &["undefined field 'nonExisting'", confused])]).await
}

/// The versions that a server told go with the server.
#[tokio::test(start_paused = true)]
async fn versions_of_a_server_that_is_gone_go() -> Result<()> {
    let features = ["StorageVersionAPI=true", "APIServerIdentity=true"];
    let cluster = cluster(&features, "storageversion-garbage-collector-controller").await?;
    let meta = json!({"name": "apiserver-own", "namespace": "kube-system",
        "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}});
    let now = cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = |name: &str| {
        let mut meta = meta.clone();
        meta["name"] = name.into();
        json!({"metadata": meta, "spec": {"holderIdentity": name, "renewTime": now, "leaseDurationSeconds": 3600}})
    };
    for name in ["apiserver-own", "apiserver-gone"] {
        cluster.create::<Lease>(&lease(name)).await?;
    }
    let said = |server: &str, version: &str| json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": ["v1", "v2"]});
    let (own, same, other) =
        (said("apiserver-own", "v1"), said("apiserver-gone", "v1"), said("apiserver-gone", "v2"));
    let version = |name: &str, all: Value, common: Option<&str>| json!({"metadata": {"name": name}, "spec": {}, "status": {"storageVersions": all, "commonEncodingVersion": common}});
    for (name, all, common) in [
        ("test.example.com.same", json!([own, same]), Some("v1")),
        ("test.example.com.other", json!([own, other]), None),
        ("test.example.com.only", json!([same]), Some("v1")),
    ] {
        cluster.put::<StorageVersion>(&version(name, all, common)).await?;
    }
    sleep(10 * MINUTE).await;
    let get = async |name: &str| cluster.get::<StorageVersion>("", name).await;
    assert!(get("test.example.com.only").await?.is_some(), "its server is there");
    cluster.take::<Lease>("kube-system", "apiserver-gone").await?;
    eventually("that of the server alone is gone", MINUTE, async || {
        Ok(get("test.example.com.only").await?.is_none())
    })
    .await?;
    for name in ["test.example.com.same", "test.example.com.other"] {
        eventually(name, MINUTE, async || {
            let status = get(name).await?.and_then(|v| v.status).unwrap_or_default();
            let servers: Vec<_> =
                status.storage_versions.into_iter().flatten().map(|s| s.api_server_id).collect();
            let equal =
                |c: &StorageVersionCondition| c.type_ == "AllEncodingVersionsEqual" && c.status == "True";
            Ok(servers == ["apiserver-own"]
                && status.common_encoding_version.as_deref() == Some("v1")
                && status.conditions.iter().flatten().any(equal))
        })
        .await?;
    }
    Ok(())
}

/// The Pods of an indexed Job are in one group, those too that are made later; those of other Jobs are in none.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_job_are_scheduled_together() -> Result<()> {
    let cluster = cluster(&["GenericWorkload=true", "WorkloadWithJob=true"], "job-controller").await?;
    let job = |name: &str, count: i32| {
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"completionMode": "Indexed",
            "parallelism": count, "completions": count, "backoffLimit": 9, "template": {"spec":
            {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    cluster.create::<Job>(&job("gang", 3)).await?;
    cluster.create::<Job>(&job("single", 1)).await?;
    let groups = async || {
        let of = |p: Pod| p.spec.and_then(|s| s.scheduling_group).and_then(|g| g.pod_group_name);
        let mut all: Vec<Option<String>> =
            cluster.list::<Pod>("default").await?.into_iter().map(of).collect();
        all.sort();
        Ok::<_, anyhow::Error>(all)
    };
    eventually("the Pods are made", MINUTE, async || Ok(groups().await?.len() == 4)).await?;
    said(&cluster, "WorkloadCreated").await?;
    let workloads = cluster.list::<Workload>("default").await?;
    let podgroups = cluster.list::<PodGroup>("default").await?;
    assert_eq!((workloads.len(), podgroups.len()), (1, 1), "the single Pod needs none");
    let gang = podgroups[0].spec.scheduling_policy.gang.as_ref().map(|g| g.min_count);
    assert_eq!(gang, Some(3));
    let name = podgroups[0].metadata.name.clone();
    assert_eq!(groups().await?, [None, name.clone(), name.clone(), name.clone()]);
    let pods = cluster.list::<Pod>("default").await?;
    let first = pods.iter().find(|p| p.metadata.generate_name.as_deref() == Some("gang-0-"));
    let first = first.and_then(|p| p.metadata.name.clone()).unwrap_or_default();
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    cluster.admin().api::<Pod>("default").patch_status(&first, &failed).await?;
    eventually("the Pod that failed has a successor", MINUTE, async || Ok(groups().await?.len() == 5))
        .await?;
    assert_eq!(groups().await?.iter().filter(|g| **g == name).count(), 4);
    assert_eq!(cluster.list::<Workload>("default").await?.len(), 1);
    Ok(())
}

/// A claim tells since when no Pod that has not ended names it.
#[tokio::test(start_paused = true)]
async fn claims_tell_that_nobody_names_them() -> Result<()> {
    let features = ["PersistentVolumeClaimUnusedSinceTime=true"];
    let cluster = cluster(&features, "persistentvolumeclaim-protection-controller").await?;
    let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec":
        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create::<PersistentVolumeClaim>(&claim).await?;
    let until = async |status: &str, reason: &str| {
        eventually(reason, MINUTE, async || {
            let claim = cluster.get::<PersistentVolumeClaim>("default", "c").await?;
            let all = claim.and_then(|c| c.status).and_then(|s| s.conditions).unwrap_or_default();
            Ok(all
                .iter()
                .any(|c| c.type_ == "Unused" && c.status == status && c.reason.as_deref() == Some(reason)))
        })
        .await
    };
    until("True", "NoPodsUsingPVC").await?;
    let volumes = json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    cluster.create::<Pod>(&pod("p", volumes)).await?;
    until("False", "PodUsingPVC").await?;
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    cluster.admin().api::<Pod>("default").patch_status("p", &ended).await?;
    until("True", "NoPodsUsingPVC").await
}

/// Pods that use a volume with labels of which only one can hold are told so, once the driver mounts with labels.
#[tokio::test(start_paused = true)]
async fn labels_that_exclude_each_other_are_told() -> Result<()> {
    let cluster = cluster(&[], "selinux-warning-controller").await?;
    let driver = |mounts: bool| json!({"metadata": {"name": "d.io"}, "spec": {"seLinuxMount": mounts}});
    cluster.create::<CSIDriver>(&driver(false)).await?;
    let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": {"volumeName": "v",
        "accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = cluster.create::<PersistentVolumeClaim>(&claim).await?;
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"], "csi": {"driver": "d.io", "volumeHandle": "h"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c",
        "uid": claim.metadata.uid}}});
    cluster.create::<PersistentVolume>(&volume).await?;
    let labelled = async |name: &str, level: &str| cluster.create::<Pod>(&labelled(name, level)).await;
    labelled("one", "s0:c1").await?;
    labelled("two", "s0:c2").await?;
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    cluster.admin().api::<PersistentVolumeClaim>("default").patch_status("c", &bound).await?;
    sleep(MINUTE).await;
    assert!(cluster.reasons().await?.is_empty(), "the driver labels nothing");
    let mounts = Patch::Merge(json!({"spec": {"seLinuxMount": true}}));
    cluster.admin().api::<CSIDriver>("").patch("d.io", &mounts).await?;
    // The first of them that is looked at again does what the other one does not yet.
    said(&cluster, "SELinuxChangePolicyConflict").await?;
    sleep(MINUTE).await;
    labelled("three", "s0:c3").await?;
    let text = "SELinuxLabel \":::s0:c1\" conflicts with pod three that uses the same volume as this pod with SELinuxLabel \":::s0:c3\". If both pods land on the same node, only one of them may access the volume.";
    let told = async || {
        let events = cluster.list::<Event>("default").await?;
        let is = |e: &Event| {
            e.involved_object.name.as_deref() == Some("one")
                && e.reason.as_deref() == Some("SELinuxLabelConflict")
                && e.message.as_deref() == Some(text)
        };
        Ok::<_, anyhow::Error>(events.iter().any(is))
    };
    eventually("the Pod is told of the third one", MINUTE, async || told().await).await
}

/// Statuses count the Pods that are being deleted unless the gate is off.
#[tokio::test(start_paused = true)]
async fn terminating_replicas_are_counted_with_their_gate() -> Result<()> {
    for (on, expected) in [("true", Some(0)), ("false", None)] {
        let feature = format!("DeploymentReplicaSetTerminatingReplicas={on}");
        let cluster = cluster(&[&feature], "replicaset-controller").await?;
        let set = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"replicas": 1,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        cluster.create::<ReplicaSet>(&set).await?;
        let status = async || {
            Ok::<_, anyhow::Error>(cluster.get::<ReplicaSet>("default", "s").await?.and_then(|s| s.status))
        };
        eventually("its Pod counts", MINUTE, async || Ok(status().await?.is_some_and(|s| s.replicas == 1)))
            .await?;
        assert_eq!(status().await?.and_then(|s| s.terminating_replicas), expected, "{on}");
    }
    Ok(())
}
