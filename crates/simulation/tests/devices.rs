//! Claims on devices: made of templates, allocated by the scheduler, given back; taints of devices.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use api::FeatureGates;
use apiserver::served::RuntimeConfig;
use client::{ListParams, Patch};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use scheduler::run::Settings;
use serde_json::{Value, json};

use crate::common::{MINUTE, bare, condition, eventually, merge, pod, said};

const CLAIMS: &str = "resourceclaim-controller";
const COLLECTOR: &str = "garbage-collector-controller";
const TAINTS: &str = "device-taint-eviction-controller";
const DRIVER: &str = "gpu.example.com";
/// Longer than any back-off.
const LONG: Duration = Duration::from_mins(20);

/// Nodes `n1` and `n2`, the class `gpu`, and the template `one` of a claim on one device.
async fn start() -> Result<Cluster> {
    let cluster = bare().await?;
    prepare(&cluster).await?;
    Ok(cluster)
}

async fn prepare(cluster: &Cluster) -> Result<()> {
    for name in ["n1", "n2"] {
        let room = json!({"cpu": "4", "pods": "400"});
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": room, "capacity": room}});
        cluster.put::<Node>(&node).await?;
    }
    let selectors = json!([{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]);
    let class = json!({"metadata": {"name": "gpu"},
        "spec": {"selectors": selectors, "extendedResourceName": "example.com/gpu"}});
    cluster.create::<DeviceClass>(&class).await?;
    let template = json!({"metadata": {"name": "one", "namespace": "default"},
        "spec": {"metadata": {"labels": {"of": "template"}}, "spec": one()}});
    cluster.create::<ResourceClaimTemplate>(&template).await.map(drop)
}

/// The spec of a claim on one device.
fn one() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}})
}

/// A slice of a node with devices, as its driver publishes it.
fn slice(node: &str, devices: &Value) -> Value {
    json!({"metadata": {"name": node}, "spec": {"driver": DRIVER, "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
}

async fn publish(cluster: &Cluster, node: &str, devices: Value) -> Result<()> {
    cluster.put::<ResourceSlice>(&slice(node, &devices)).await.map(drop)
}

/// A Pod with a claim.
fn using(name: &str, claim: &Value) -> Value {
    let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let mut place = json!({"name": "device"});
    merge(&mut place, claim);
    pod(name, json!({"spec": {"tolerations": tolerations, "resourceClaims": [place]}}))
}

fn of_template() -> Value {
    json!({"resourceClaimTemplateName": "one"})
}

async fn create(cluster: &Cluster, pod: &Value) -> Result<()> {
    cluster.create::<Pod>(pod).await.map(drop)
}

async fn claims(cluster: &Cluster) -> Result<Vec<ResourceClaim>> {
    cluster.list::<ResourceClaim>("default").await
}

/// The devices of a claim.
fn devices(claim: &ResourceClaim) -> Vec<String> {
    let allocation = claim.status.iter().filter_map(|s| s.allocation.as_ref());
    let results = allocation.flat_map(|a| &a.devices).flat_map(|d| d.results.iter().flatten());
    results.map(|r| format!("{}/{}", r.pool, r.device)).collect()
}

fn reserved(claim: &ResourceClaim) -> Vec<String> {
    let status = claim.status.as_ref();
    status.iter().flat_map(|s| s.reserved_for.iter().flatten()).map(|c| c.name.clone()).collect()
}

fn protected(claim: &ResourceClaim) -> bool {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|f| f == "resource.kubernetes.io/delete-protection")
}

async fn node_of(cluster: &Cluster, name: &str) -> Result<Option<String>> {
    Ok(cluster.get::<Pod>("default", name).await?.and_then(|p| p.spec?.node_name))
}

async fn bound(cluster: &Cluster, name: &str) -> Result<String> {
    let mut node = None;
    eventually(&format!("{name} has a node"), LONG, async || {
        node = node_of(cluster, name).await?;
        Ok(node.is_some())
    })
    .await?;
    node.context("a node")
}

/// Waits until a Pod is refused for a reason.
async fn refused(cluster: &Cluster, name: &str, why: &str) -> Result<()> {
    eventually(&format!("{name}: {why}"), MINUTE, async || {
        let pod = cluster.get::<Pod>("default", name).await?;
        let said = pod.as_ref().and_then(|p| condition(p, "PodScheduled"));
        let message = said.filter(|c| c.status == "False").and_then(|c| c.message.as_deref());
        Ok(message.is_some_and(|m| m.contains(why)))
    })
    .await
}

async fn phase(cluster: &Cluster, name: &str, phase: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    cluster.admin().api::<Pod>("default").patch_status(name, &patch).await?;
    Ok(())
}

async fn gone(cluster: &Cluster) -> Result<()> {
    eventually("no claim is left", LONG, async || Ok(claims(cluster).await?.is_empty())).await
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_template_comes_and_goes_with_its_pod() -> Result<()> {
    for ends in [false, true] {
        let cluster = start().await?;
        let running = cluster.controllers(&[CLAIMS, COLLECTOR])?;
        cluster.scheduler();
        publish(&cluster, "n1", json!([{"name": "a"}])).await?;
        create(&cluster, &using("p", &of_template())).await?;
        assert_eq!(bound(&cluster, "p").await?, "n1");
        let [claim] = &claims(&cluster).await?[..] else { panic!("not one claim") };
        let (meta, pod) = (&claim.metadata, cluster.get::<Pod>("default", "p").await?.context("the Pod")?);
        let name = meta.name.clone().unwrap();
        assert!(name.starts_with("p-device-") && name.len() == "p-device-".len() + 5, "{name}");
        assert_eq!(meta.labels.as_ref().and_then(|l| l.get("of")).map(String::as_str), Some("template"));
        let place = meta.annotations.as_ref().and_then(|a| a.get("resource.kubernetes.io/pod-claim-name"));
        assert_eq!(place.map(String::as_str), Some("device"));
        let owners: Vec<&str> = meta
            .owner_references
            .iter()
            .flatten()
            .filter(|o| o.controller == Some(true))
            .map(|o| o.uid.as_str())
            .collect();
        assert_eq!(owners, [pod.metadata.uid.as_deref().unwrap()]);
        let told = serde_json::to_value(pod.status.unwrap().resource_claim_statuses)?;
        assert_eq!(told, json!([{"name": "device", "resourceClaimName": name}]));
        assert_eq!((devices(claim), reserved(claim)), (vec!["n1/a".to_owned()], vec!["p".to_owned()]));
        assert!(protected(claim));
        let page = running.metrics.page().text();
        let line = "resourceclaim_controller_creates_total{status=\"success\",admin_access=\"false\"} 1";
        assert!(page.lines().any(|l| l == line), "{page}");
        if ends {
            phase(&cluster, "p", "Succeeded").await?;
        } else {
            cluster.take::<Pod>("default", "p").await?;
        }
        gone(&cluster).await?;
        create(&cluster, &using("q", &of_template())).await?;
        assert_eq!(bound(&cluster, "q").await?, "n1");
        cluster.stop().await;
    }
    Ok(())
}

/// A claim that somebody deletes is made anew, and a Pod's place gets none from a claim of another's.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_lost_is_made_anew() -> Result<()> {
    let cluster = start().await?;
    cluster.controllers(&[CLAIMS, COLLECTOR])?;
    create(&cluster, &using("p", &of_template())).await?;
    let told = async || {
        let pod = cluster.get::<Pod>("default", "p").await?.context("the Pod")?;
        let statuses = pod.status.and_then(|s| s.resource_claim_statuses).unwrap_or_default();
        Ok::<_, anyhow::Error>(statuses.into_iter().find_map(|s| s.resource_claim_name).unwrap_or_default())
    };
    eventually("it has a claim", MINUTE, async || Ok(!told().await?.is_empty())).await?;
    let first = told().await?;
    cluster.take::<ResourceClaim>("default", &first).await?;
    eventually("it has another", MINUTE, async || {
        let now = told().await?;
        Ok(now != first && cluster.get::<ResourceClaim>("default", &now).await?.is_some())
    })
    .await?;
    // A Pod whose template comes later.
    let later = json!({"resourceClaimTemplateName": "later"});
    create(&cluster, &using("q", &later)).await?;
    said(&cluster, "FailedResourceClaimCreation").await?;
    let template = json!({"metadata": {"name": "later", "namespace": "default"}, "spec": {"spec": one()}});
    cluster.create::<ResourceClaimTemplate>(&template).await?;
    eventually("both have claims", MINUTE, async || Ok(claims(&cluster).await?.len() == 2)).await?;
    cluster.stop().await;
    Ok(())
}

/// The control plane ends before each of its writes in turn, and another one begins: each Pod has one claim.
#[tokio::test(start_paused = true)]
async fn claims_are_made_once_wherever_their_controller_ended() -> Result<()> {
    for skip in 0..40 {
        let cluster = start().await?;
        publish(&cluster, "n1", json!([{"name": "a"}])).await?;
        let stop = cluster.shutdown().child();
        cluster.faults().add(Rule::new(Fault::Hang).writes().skip(skip));
        cluster.controllers_until(&stop, &[CLAIMS, COLLECTOR], |_| {})?;
        cluster.scheduler_until(&stop);
        create(&cluster, &using("p", &of_template())).await?;
        let has_node = async || Ok(node_of(&cluster, "p").await?.is_some());
        let in_peace = eventually("it has a node", MINUTE, has_node).await.is_ok();
        if in_peace {
            cluster.take::<Pod>("default", "p").await?;
            let _ =
                eventually("no claim is left", MINUTE, async || Ok(claims(&cluster).await?.is_empty())).await;
        }
        let met = cluster.faults().met() > 0;
        stop.finish().await;
        cluster.faults().clear();
        cluster.controllers(&[CLAIMS, COLLECTOR])?;
        cluster.scheduler();
        if !in_peace {
            assert_eq!(bound(&cluster, "p").await?, "n1", "{skip}");
            let [claim] = &claims(&cluster).await?[..] else { panic!("{skip}: not one claim") };
            assert_eq!(reserved(claim), ["p"], "{skip}");
            cluster.take::<Pod>("default", "p").await?;
        }
        gone(&cluster).await?;
        cluster.stop().await;
        if !met {
            assert!(skip > 5, "{skip} writes are too few");
            return Ok(());
        }
    }
    anyhow::bail!("too many writes")
}

#[tokio::test(start_paused = true)]
async fn no_two_claims_have_one_device() -> Result<()> {
    let cluster = start().await?;
    cluster.controllers(&[CLAIMS, COLLECTOR])?;
    cluster.scheduler();
    publish(&cluster, "n1", json!([{"name": "a"}, {"name": "b"}])).await?;
    publish(&cluster, "n2", json!([{"name": "a"}])).await?;
    for i in 0..6 {
        create(&cluster, &using(&format!("p{i}"), &of_template())).await?;
    }
    let with_node = async || -> Result<Vec<String>> {
        let pods = cluster.list::<Pod>("default").await?;
        let bound = pods.into_iter().filter(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_some()));
        Ok(bound.filter_map(|p| p.metadata.name).collect())
    };
    eventually("three Pods have nodes", LONG, async || Ok(with_node().await?.len() == 3)).await?;
    tokio::time::sleep(MINUTE).await; // in which nothing else may happen, in simulated time
    let all: Vec<String> = claims(&cluster).await?.iter().flat_map(devices).collect();
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (3, 3), "{all:?}");
    let first = with_node().await?;
    let waits = (0..6).map(|i| format!("p{i}")).find(|name| !first.contains(name)).unwrap();
    refused(&cluster, &waits, "0/2 nodes are available: 2 cannot allocate all claims.").await?;
    // A device that is given back is another's.
    cluster.take::<Pod>("default", &first[0]).await?;
    eventually("three Pods have nodes again", LONG, async || Ok(with_node().await?.len() == 3)).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_share_a_claim_that_they_name() -> Result<()> {
    let cluster = start().await?;
    cluster.controllers(&[CLAIMS, COLLECTOR])?;
    cluster.scheduler();
    publish(&cluster, "n1", json!([{"name": "a"}])).await?;
    let named = json!({"resourceClaimName": "shared"});
    for name in ["p", "q"] {
        create(&cluster, &using(name, &named)).await?;
    }
    tokio::time::sleep(MINUTE).await; // in which nothing may happen, in simulated time
    assert_eq!(node_of(&cluster, "p").await?, None, "there is no claim");
    let claim = json!({"metadata": {"name": "shared", "namespace": "default"}, "spec": one()});
    cluster.create::<ResourceClaim>(&claim).await?;
    for name in ["p", "q"] {
        assert_eq!(bound(&cluster, name).await?, "n1");
    }
    let shared = async || cluster.get::<ResourceClaim>("default", "shared").await?.context("the claim");
    let users: BTreeSet<String> = reserved(&shared().await?).into_iter().collect();
    assert_eq!(users, BTreeSet::from(["p".to_owned(), "q".to_owned()]));
    cluster.take::<Pod>("default", "p").await?;
    eventually("q uses it alone", MINUTE, async || Ok(reserved(&shared().await?) == ["q"])).await?;
    assert_eq!(devices(&shared().await?), ["n1/a"]);
    cluster.take::<Pod>("default", "q").await?;
    let free = async || {
        let claim = shared().await?;
        Ok(devices(&claim).is_empty() && reserved(&claim).is_empty() && !protected(&claim))
    };
    eventually("nobody uses it", MINUTE, free).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn devices_stand_for_extended_resources() -> Result<()> {
    let cluster = start().await?;
    cluster.controllers(&[CLAIMS, COLLECTOR])?;
    cluster.scheduler();
    let requests = json!({"cpu": "1", "example.com/gpu": "2"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": {"example.com/gpu": "2"}}});
    let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let wants = pod("p", json!({"spec": {"tolerations": tolerations, "containers": [container]}}));
    create(&cluster, &wants).await?;
    refused(&cluster, "p", "cannot allocate all claims").await?;
    publish(&cluster, "n1", json!([{"name": "a"}, {"name": "b"}])).await?;
    assert_eq!(bound(&cluster, "p").await?, "n1");
    let [claim] = &claims(&cluster).await?[..] else { panic!("not one claim") };
    let name = claim.metadata.name.clone().unwrap();
    assert!(name.starts_with("p-extended-resources-"), "{name}");
    assert_eq!((devices(claim).len(), reserved(claim)), (2, vec!["p".to_owned()]));
    let status = cluster.get::<Pod>("default", "p").await?.and_then(|p| p.status).unwrap();
    let told = serde_json::to_value(status.extended_resource_claim_status)?;
    let mapping = json!({"containerName": "c", "requestName": "container-0-request-1", "resourceName": "example.com/gpu"});
    assert_eq!(told, json!({"resourceClaimName": name, "requestMappings": [mapping]}));
    phase(&cluster, "p", "Succeeded").await?;
    gone(&cluster).await?;
    cluster.stop().await;
    Ok(())
}

/// The driver says in the claim how far a device is.
async fn tell(cluster: &Cluster, claim: &str, device: &str, kind: &str) -> Result<()> {
    let condition = json!({"type": kind, "status": "True", "reason": "Told", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let device = json!({"driver": DRIVER, "pool": "n1", "device": device, "conditions": [condition]});
    let patch = Patch::Merge(json!({"status": {"devices": [device]}}));
    cluster.admin().api::<ResourceClaim>("default").patch_status(claim, &patch).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_its_device_is_attached() -> Result<()> {
    let cluster = start().await?;
    cluster.controllers(&[CLAIMS, COLLECTOR])?;
    cluster.scheduler();
    let attached = |name: &str| json!({"name": name, "bindsToNode": true, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]});
    publish(&cluster, "n1", json!([attached("a"), attached("b")])).await?;
    create(&cluster, &using("p", &of_template())).await?;
    said(&cluster, "BindingConditionsPending").await?;
    tokio::time::sleep(MINUTE).await; // in which nothing may happen, in simulated time
    assert_eq!(node_of(&cluster, "p").await?, None);
    let [claim] = &claims(&cluster).await?[..] else { panic!("not one claim") };
    let name = claim.metadata.name.clone().unwrap();
    assert_eq!(devices(claim), ["n1/a"]);
    // It is given back, and looked for again.
    tell(&cluster, &name, "a", "Broken").await?;
    let again = async || {
        let claim = cluster.get::<ResourceClaim>("default", &name).await?.context("the claim")?;
        let devices = claim.status.as_ref().and_then(|s| s.devices.as_ref()).is_none_or(Vec::is_empty);
        Ok(devices && !reserved(&claim).is_empty())
    };
    eventually("there is another device", LONG, again).await?;
    assert_eq!(node_of(&cluster, "p").await?, None);
    let claim = cluster.get::<ResourceClaim>("default", &name).await?.context("the claim")?;
    let device = devices(&claim)[0].split_once('/').unwrap().1.to_owned();
    tell(&cluster, &name, &device, "Attached").await?;
    assert_eq!(bound(&cluster, "p").await?, "n1");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_leave_tainted_devices() -> Result<()> {
    let cluster = start().await?;
    let running = cluster.controllers(&[CLAIMS, COLLECTOR, TAINTS])?;
    cluster.scheduler();
    let taint = json!({"key": "broken", "effect": "NoExecute"});
    let device = |name: &str| json!({"name": name});
    publish(&cluster, "n1", json!([device("a"), device("b"), device("c")])).await?;
    let tolerating = |seconds: Option<i64>| {
        let mut toleration = json!({"key": "broken", "operator": "Exists", "effect": "NoExecute"});
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = json!(seconds);
        }
        let exactly = json!({"deviceClassName": "gpu", "tolerations": [toleration]});
        json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
    };
    for (name, spec) in [("now", one()), ("later", tolerating(Some(300))), ("never", tolerating(None))] {
        let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        cluster.create::<ResourceClaim>(&claim).await?;
        create(&cluster, &using(name, &json!({"resourceClaimName": name}))).await?;
        bound(&cluster, name).await?;
    }
    let tainted = |name: &str| json!({"name": name, "taints": [taint]});
    publish(&cluster, "n1", json!([tainted("a"), tainted("b"), tainted("c")])).await?;
    let left = async || -> Result<Vec<String>> {
        let pods = cluster.list::<Pod>("default").await?.into_iter();
        let here = pods.filter(|p| p.metadata.deletion_timestamp.is_none());
        Ok(here.filter_map(|p| p.metadata.name).collect())
    };
    eventually("one has gone", MINUTE, async || Ok(left().await? == ["later", "never"])).await?;
    said(&cluster, "DeviceTaintManagerEviction").await?;
    let target = cluster.get::<Pod>("default", "now").await?;
    if let Some(pod) = &target {
        let said = condition(pod, "DisruptionTarget").context("a condition")?;
        assert_eq!(said.reason.as_deref(), Some("DeletionByDeviceTaintManager"));
    }
    tokio::time::sleep(MINUTE).await; // in which nothing may happen, in simulated time
    assert_eq!(left().await?, ["later", "never"]);
    eventually("two have gone", LONG, async || Ok(left().await? == ["never"])).await?;
    let page = running.metrics.page().text();
    let line = "device_taint_eviction_controller_pod_deletions_total 2";
    assert!(page.lines().any(|l| l == line), "{page}");
    // A device that is tainted is for nobody.
    create(&cluster, &using("p", &of_template())).await?;
    refused(&cluster, "p", "cannot allocate all claims").await?;
    cluster.stop().await;
    Ok(())
}

/// A claim of a PodGroup is made once and shared by its Pods, which go where its device is; it stays as long as the group
/// does, and a taint of the device concerns all of them.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_group_share_its_claim() -> Result<()> {
    let features =
        ["GenericWorkload=true", "GangScheduling=true", "DRAWorkloadResourceClaims=true"].into_iter();
    let gates = FeatureGates::parse(features)?;
    let all = RuntimeConfig::parse(["api/all=true"])?;
    let cluster = Cluster::start_with(|c| (c.gates, c.runtime_config) = (gates, all)).await?;
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.create::<ServiceAccount>(&account).await?;
    prepare(&cluster).await?;
    cluster.controllers_with(&[CLAIMS, COLLECTOR, TAINTS, "podgroup-protection-controller"], |c| {
        c.gates = gates;
    })?;
    cluster.scheduler_with(Settings::standard_with(gates).map_err(Error::msg)?);
    publish(&cluster, "n1", json!([{"name": "a"}])).await?;
    let grouped = |name: &str| {
        let mut pod = using(name, &of_template());
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        pod
    };
    let names = ["p", "q", "r"];
    for name in names {
        create(&cluster, &grouped(name)).await?;
    }
    let mut place = json!({"name": "device"});
    merge(&mut place, &of_template());
    let group = json!({"metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "resourceClaims": [place]}});
    let group = cluster.create::<PodGroup>(&group).await?;
    for name in names {
        assert_eq!(bound(&cluster, name).await?, "n1");
    }
    let [claim] = &claims(&cluster).await?[..] else { panic!("not one claim") };
    let name = claim.metadata.name.clone().unwrap_or_default();
    assert!(name.starts_with("g-device-"), "{name}");
    assert_eq!((devices(claim), reserved(claim)), (vec!["n1/a".to_owned()], vec!["g".to_owned()]));
    let owner = claim.metadata.owner_references.as_ref().and_then(|all| all.first());
    assert_eq!(owner.map(|o| Some(&o.uid)), Some(group.metadata.uid.as_ref()));
    let shown = cluster.get::<PodGroup>("default", "g").await?.context("the group")?;
    let told = serde_json::to_value(shown.status.and_then(|s| s.resource_claim_statuses))?;
    assert_eq!(told, json!([{"name": "device", "resourceClaimName": name}]));
    for gone in ["p", "q"] {
        cluster.take::<Pod>("default", gone).await?;
    }
    tokio::time::sleep(10 * MINUTE).await; // in which nothing may happen, in simulated time
    let [claim] = &claims(&cluster).await?[..] else { panic!("not one claim") };
    assert_eq!(reserved(claim), ["g"]);
    publish(&cluster, "n1", json!([{"name": "a", "taints": [{"key": "broken", "effect": "NoExecute"}]}]))
        .await?;
    eventually("the last one goes", MINUTE, async || {
        let pod = cluster.get::<Pod>("default", "r").await?;
        Ok(pod.is_none_or(|p| p.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    said(&cluster, "DeviceTaintManagerEviction").await?;
    if cluster.get::<Pod>("default", "r").await?.is_some() {
        cluster.take::<Pod>("default", "r").await?;
    }
    cluster.admin().api::<PodGroup>("default").delete("g", None).await?;
    gone(&cluster).await?;
    cluster.stop().await;
    Ok(())
}

/// Odd classes, claims and slices cost the Pods that use them, and nobody else.
#[tokio::test(start_paused = true)]
async fn nonsense_costs_its_own_pod() -> Result<()> {
    let cluster = start().await?;
    cluster.controllers(&[CLAIMS, COLLECTOR])?;
    cluster.scheduler();
    let devices: Vec<Value> =
        (0..128).map(|i| json!({"name": format!("d{i}"), "attributes": {"n": {"int": i}}})).collect();
    publish(&cluster, "n1", json!(devices)).await?;
    let claim = |name: &str, exactly: Value| {
        let request = json!({"name": "r", "exactly": exactly});
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}})
    };
    let selecting = |expression: &str, count: i64| json!({"deviceClassName": "gpu", "count": count, "selectors": [{"cel": {"expression": expression}}]});
    for (name, exactly) in [
        ("absent", json!({"deviceClassName": "absent"})),
        ("wrong", selecting("device.attributes['gpu.example.com'].m > 1", 1)),
        ("none", selecting("device.attributes['gpu.example.com'].n > 1000", 1)),
        ("good", selecting("device.attributes['gpu.example.com'].n > 100", 8)),
    ] {
        cluster.create::<ResourceClaim>(&claim(name, exactly)).await?;
        create(&cluster, &using(name, &json!({"resourceClaimName": name}))).await?;
    }
    // Its constraint cannot be met, which takes all combinations to find out.
    let mut hard = claim("hard", selecting("device.attributes['gpu.example.com'].n < 64", 32));
    hard["spec"]["devices"]["constraints"] = json!([{"distinctAttribute": "gpu.example.com/m"}]);
    hard["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(32);
    cluster.create::<ResourceClaim>(&hard).await?;
    create(&cluster, &using("hard", &json!({"resourceClaimName": "hard"}))).await?;
    assert_eq!(bound(&cluster, "good").await?, "n1");
    refused(&cluster, "absent", "request r: device class absent does not exist").await?;
    refused(&cluster, "wrong", "claim default/wrong: selector #0: CEL runtime error: no such key: m").await?;
    refused(&cluster, "none", "cannot allocate all claims").await?;
    refused(&cluster, "hard", "cannot allocate all claims").await?;
    let all = cluster.admin().api::<ResourceClaim>("default").list(&ListParams::default()).await?;
    let allocated = all.items.iter().filter(|c| !self::devices(c).is_empty());
    assert_eq!(allocated.filter_map(|c| c.metadata.name.clone()).collect::<Vec<_>>(), ["good"]);
    cluster.stop().await;
    Ok(())
}
