//! EndpointSlices: what they say, and that a late cache spoils nothing.

use std::time::Duration;

use anyhow::Result;
use client::{Cached, Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, bare, eventually, merge, pod, said, started};

async fn with_service(cluster: &Cluster) -> Result<()> {
    let service = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], "publishNotReadyAddresses": true},
    });
    cluster.create::<Service>(&service).await?;
    eventually("it has a slice", MINUTE, async || Ok(slices(cluster).await?.len() == 1)).await
}

async fn slices(cluster: &Cluster) -> Result<Vec<EndpointSlice>> {
    let mut all = cluster.list::<EndpointSlice>("default").await?;
    all.retain(|s| s.metadata.labels.iter().flatten().any(|l| l.1 == "web"));
    Ok(all)
}

async fn addresses(cluster: &Cluster) -> Result<Vec<String>> {
    let slices = slices(cluster).await?;
    let endpoints = slices.iter().flat_map(|s| s.endpoints.iter().flatten());
    let mut all: Vec<String> = endpoints.flat_map(|e| e.addresses.clone()).collect();
    all.sort();
    Ok(all)
}

async fn add(cluster: &Cluster, i: usize) -> Result<()> {
    labelled(cluster, i, json!({"app": "web"})).await
}

async fn labelled(cluster: &Cluster, i: usize, labels: serde_json::Value) -> Result<()> {
    let ip = format!("10.0.0.{i}");
    let more = json!({
        "metadata": {"labels": labels},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]},
    });
    cluster.put::<Pod>(&pod(&format!("p{i}"), more)).await.map(drop)
}

/// A Service has the Pods that have all of its labels, also after these changed.
#[tokio::test(start_paused = true)]
async fn slices_follow_labels() -> Result<()> {
    let cluster = started(&["endpointslice-controller", "endpoints-controller"]).await?;
    let service = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web", "tier": "front"}, "ports": [{"port": 80}],
            "publishNotReadyAddresses": true},
    });
    cluster.create::<Service>(&service).await?;
    labelled(&cluster, 1, json!({"app": "web", "tier": "front"})).await?;
    labelled(&cluster, 2, json!({"app": "web", "tier": "back"})).await?;
    labelled(&cluster, 3, json!({"app": "other", "tier": "front"})).await?;
    eventually("the first is in", MINUTE, async || Ok(addresses(&cluster).await? == ["10.0.0.1"])).await?;
    labelled(&cluster, 1, json!({"app": "web", "tier": "back"})).await?;
    labelled(&cluster, 3, json!({"app": "web", "tier": "front"})).await?;
    eventually("the third is in its place", MINUTE, async || Ok(addresses(&cluster).await? == ["10.0.0.3"]))
        .await?;
    let of_all = async || -> Result<Vec<String>> {
        let all = cluster.list::<Endpoints>("default").await?;
        let subsets = all.iter().flat_map(|e| e.subsets.iter().flatten());
        let found = subsets.flat_map(|s| s.addresses.iter().chain(&s.not_ready_addresses).flatten());
        Ok(found.map(|a| a.ip.clone()).collect())
    };
    eventually("Endpoints say so, too", MINUTE, async || Ok(of_all().await? == ["10.0.0.3"])).await
}

/// Upstream's `TestSyncServiceNoSelector`, `TestSyncServiceWithSelector`, `TestSyncServicePodSelection` and
/// `TestSyncServicePendingDeletion`, and its 4 cases of `TestServiceExternalNameTypeSync`: what a Service says, whether it
/// is being deleted, and the addresses of its one slice, if it has one. The first Pod has the Service's label.
#[tokio::test(start_paused = true)]
async fn services_and_their_first_slice() -> Result<()> {
    let check = async |spec: serde_json::Value, goes: bool, want: Option<&[&str]>| -> Result<()> {
        let cluster = bare().await?;
        cluster.put::<Node>(&json!({"metadata": {"name": "n"}})).await?;
        labelled(&cluster, 1, json!({"app": "web"})).await?;
        labelled(&cluster, 2, json!({"app": "other"})).await?;
        let meta = json!({"name": "web", "namespace": "default", "finalizers": ["example.com/stay"]});
        cluster.create::<Service>(&json!({"metadata": meta, "spec": spec})).await?;
        if goes {
            cluster.admin().api::<Service>("default").delete("web", None).await?;
        }
        cluster.controllers(&["endpointslice-controller"])?;
        sleep(MINUTE).await;
        let made = slices(&cluster).await?;
        assert_eq!(made.len(), usize::from(want.is_some()), "{spec} {goes}");
        assert_eq!(addresses(&cluster).await?, want.unwrap_or_default(), "{spec} {goes}");
        for slice in &made {
            let told = "endpoints.kubernetes.io/last-change-trigger-time";
            assert!(slice.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(told)), "{slice:?}");
            assert!(slice.name().starts_with("web-"), "{slice:?}");
        }
        cluster.stop().await;
        Ok(())
    };
    let ports = json!([{"port": 80}]);
    let selector = json!({"app": "web"});
    check(json!({ "ports": ports }), false, None).await?;
    let selects = json!({"selector": selector, "ports": ports, "publishNotReadyAddresses": true});
    check(selects.clone(), false, Some(&["10.0.0.1"])).await?;
    check(selects, true, None).await?;
    check(json!({"selector": {"app": "nobody"}, "ports": ports}), false, Some(&[])).await?;
    let external = |more: serde_json::Value| {
        let mut spec = json!({"type": "ExternalName", "externalName": "example.com"});
        merge(&mut spec, &more);
        spec
    };
    check(external(json!({"selector": selector, "ports": ports})), false, None).await?;
    check(external(json!({ "ports": ports })), false, None).await?;
    check(external(json!({ "selector": selector })), false, None).await?;
    check(external(json!({})), false, None).await
}

/// Upstream's 5 slices of `TestSyncServiceEndpointSliceLabelSelection`, and the one of
/// `TestSyncServiceEndpointSlicePendingDeletion`: of two that are the controller's own for the Service one is used and the
/// other goes; those of other controllers and Services stay as they are, and one that is being deleted is not written.
#[tokio::test(start_paused = true)]
async fn slices_that_are_there() -> Result<()> {
    let cluster = bare().await?;
    let service = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let service = cluster.create::<Service>(&service).await?;
    let owner = json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": service.uid(),
        "controller": true, "blockOwnerDeletion": true}]);
    let own = Some("endpointslice-controller.k8s.io");
    for (name, of, by, held) in [
        ("matching-1", "web", own, false),
        ("matching-2", "web", own, false),
        ("partially-matching-1", "web", None, false),
        ("not-matching-1", "something-else", own, false),
        ("not-matching-2", "web", Some("something-else"), false),
        ("going", "web", own, true),
    ] {
        let mut meta = json!({"name": name, "namespace": "default", "ownerReferences": owner,
            "labels": {"kubernetes.io/service-name": of, "endpointslice.kubernetes.io/managed-by": by}});
        if by.is_none() {
            meta["labels"] = json!({ "kubernetes.io/service-name": of });
        }
        if held {
            meta["finalizers"] = json!(["example.com/stay"]);
        }
        let slice = json!({"metadata": meta, "addressType": "IPv4", "endpoints": []});
        cluster.create::<EndpointSlice>(&slice).await?;
    }
    cluster.admin().api::<EndpointSlice>("default").delete("going", None).await?;
    cluster.faults().record();
    cluster.controllers(&["endpointslice-controller"])?;
    sleep(MINUTE).await;
    let seen = cluster.faults().seen();
    let written = seen.iter().filter(|c| {
        c.resource.plural == "endpointslices" && !matches!(c.verb, Verb::Get | Verb::List | Verb::Watch)
    });
    let mut written: Vec<_> = written.map(|c| (c.verb, c.name.to_string())).collect();
    written.sort_by_key(|(verb, _)| format!("{verb:?}"));
    let verbs: Vec<Verb> = written.iter().map(|w| w.0).collect();
    assert_eq!(verbs, [Verb::Delete, Verb::Update], "{written:?}");
    let mut names: Vec<&str> = written.iter().map(|w| w.1.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["matching-1", "matching-2"]);
    Ok(())
}

/// A new slice is deleted by another client, and the informer hears of neither: the slices go on to follow the Pods.
#[tokio::test(start_paused = true)]
async fn slices_do_not_freeze() -> Result<()> {
    let cluster = started(&["endpointslice-controller"]).await?;
    sleep(MINUTE).await;
    cluster.faults().hold_events("endpointslices");
    add(&cluster, 1).await?;
    with_service(&cluster).await?;
    eventually("a Pod is in a slice", MINUTE, async || Ok(addresses(&cluster).await?.len() == 1)).await?;
    let name = slices(&cluster).await?[0].name().to_owned();
    cluster.take::<EndpointSlice>("default", &name).await?;
    add(&cluster, 2).await?;
    eventually("both are in another", MINUTE, async || {
        Ok(addresses(&cluster).await? == ["10.0.0.1", "10.0.0.2"])
    })
    .await
}

/// While the informer has not shown an own write, no slice is written from what it shows.
#[tokio::test(start_paused = true)]
async fn a_late_cache_makes_no_second_slice() -> Result<()> {
    let cluster = started(&["endpointslice-controller"]).await?;
    with_service(&cluster).await?;
    cluster.faults().hold_events("endpointslices");
    for i in 1..=3 {
        add(&cluster, i).await?;
        sleep(MINUTE).await;
    }
    assert_eq!(slices(&cluster).await?.len(), 1);
    cluster.faults().let_events_come("endpointslices");
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    eventually("all are in it", 5 * MINUTE, async || Ok(addresses(&cluster).await? == all)).await?;
    assert_eq!(slices(&cluster).await?.len(), 1);
    // The watch ends, and goes on where it was.
    cluster.faults().record();
    cluster.faults().end_watches("endpointslices");
    cluster
        .faults()
        .add(Rule::new(Fault::Delay(MINUTE)).resource("endpointslices").verb(Verb::Watch).times(1));
    add(&cluster, 4).await?;
    eventually("the fourth too", 5 * MINUTE, async || Ok(addresses(&cluster).await?.len() == 4)).await?;
    let watched = |c: &client::Call| c.verb == Verb::Watch && c.resource.plural == "endpointslices";
    assert!(cluster.faults().seen().iter().any(watched));
    Ok(())
}

/// A node of a zone, with a number of CPUs.
async fn node(cluster: &Cluster, name: &str, zone: &str, cpu: u32) -> Result<()> {
    let node = json!({
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": cpu.to_string()}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    cluster.put::<Node>(&node).await.map(drop)
}

/// A ready Pod of a node.
async fn ready_on(cluster: &Cluster, name: &str, node: &str, ips: &[&str], since: &str) -> Result<()> {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let more = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]},
    });
    cluster.put::<Pod>(&pod(name, more)).await.map(drop)
}

/// The addresses of the Service's endpoints, with the zones and nodes that they are for.
async fn hinted(cluster: &Cluster) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for endpoint in slices(cluster).await?.iter().flat_map(|s| s.endpoints.iter().flatten()) {
        let hints = endpoint.hints.clone().unwrap_or_default();
        let zones = hints.for_zones.into_iter().flatten().map(|z| z.name);
        let nodes = hints.for_nodes.into_iter().flatten().map(|n| n.name);
        let text: Vec<String> = endpoint.addresses.iter().cloned().chain(zones).chain(nodes).collect();
        all.push(text.join(" "));
    }
    all.sort();
    Ok(all)
}

/// `trafficDistribution` and the annotation give hints, take them, and take turns; changes of nodes count.
#[tokio::test(start_paused = true)]
async fn hints_follow_the_service_and_the_nodes() -> Result<()> {
    const LONG_AGO: &str = "2020-01-01T00:00:00Z";
    let cluster = started(&["endpointslice-controller"]).await?;
    node(&cluster, "n1", "a", 2).await?;
    node(&cluster, "n2", "b", 2).await?;
    ready_on(&cluster, "p1", "n1", &["10.0.0.1"], LONG_AGO).await?;
    ready_on(&cluster, "p2", "n1", &["10.0.0.2"], LONG_AGO).await?;
    ready_on(&cluster, "p3", "n1", &["10.0.0.3"], LONG_AGO).await?;
    ready_on(&cluster, "p4", "n2", &["10.0.0.4"], LONG_AGO).await?;
    with_service(&cluster).await?;
    let api = cluster.admin().api::<Service>("default");
    let set = async |service: serde_json::Value| -> Result<()> {
        Ok(api.patch("web", &client::Patch::Merge(service)).await.map(drop)?)
    };
    let become_so = async |expected: [&str; 4]| {
        eventually(&expected.join(", "), MINUTE, async || Ok(hinted(&cluster).await? == expected)).await
    };
    let mode = |mode: serde_json::Value| json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": mode}}});
    become_so(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]).await?;
    set(json!({"spec": {"trafficDistribution": "PreferSameNode"}})).await?;
    become_so(["10.0.0.1 a n1", "10.0.0.2 a n1", "10.0.0.3 a n1", "10.0.0.4 b n2"]).await?;
    set(json!({"spec": {"trafficDistribution": "PreferClose"}})).await?;
    become_so(["10.0.0.1 a", "10.0.0.2 a", "10.0.0.3 a", "10.0.0.4 b"]).await?;
    // The annotation counts more, and one endpoint of the full zone is for the other.
    set(mode(json!("Auto"))).await?;
    become_so(["10.0.0.1 b", "10.0.0.2 a", "10.0.0.3 a", "10.0.0.4 b"]).await?;
    said(&cluster, "TopologyAwareHintsEnabled").await?;
    // A zone of which too little is known takes all hints, and the Service is told.
    cluster.take::<Node>("", "n2").await?;
    node(&cluster, "n2", "", 2).await?;
    become_so(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]).await?;
    said(&cluster, "TopologyAwareHintsDisabled").await?;
    node(&cluster, "n2", "b", 2).await?;
    set(json!({"metadata": {"labels": {"again": ""}}})).await?;
    become_so(["10.0.0.1 b", "10.0.0.2 a", "10.0.0.3 a", "10.0.0.4 b"]).await?;
    set(mode(serde_json::Value::Null)).await?;
    become_so(["10.0.0.1 a", "10.0.0.2 a", "10.0.0.3 a", "10.0.0.4 b"]).await
}

/// The annotation tells the time of the change: that of the Service at first, then that of a Pod's readiness; a write
/// without such a change has none.
#[tokio::test(start_paused = true)]
async fn the_time_of_the_change_is_told() -> Result<()> {
    const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
    let cluster = started(&["endpointslice-controller", "endpoints-controller"]).await?;
    with_service(&cluster).await?;
    let service = cluster.get::<Service>("default", "web").await?.unwrap_or_default();
    let created = service.metadata.creation_timestamp.map(|t| t.0.to_string());
    let told = async || -> Result<[Option<String>; 2]> {
        let of = |m: &ObjectMeta| m.annotations.as_ref().and_then(|a| a.get(TRIGGER).cloned());
        let legacy = cluster.get::<Endpoints>("default", "web").await?.and_then(|e| of(&e.metadata));
        Ok([slices(&cluster).await?.first().and_then(|s| of(&s.metadata)), legacy])
    };
    let become_so = async |expected: Option<String>| {
        let both = [expected.clone(), expected];
        eventually(&format!("{both:?}"), MINUTE, async || Ok(told().await? == both)).await
    };
    become_so(created).await?;
    node(&cluster, "n1", "a", 2).await?;
    let ready = "2099-01-02T03:04:05Z";
    ready_on(&cluster, "p1", "n1", &["10.0.0.1"], ready).await?;
    become_so(Some(ready.to_owned())).await?;
    cluster.take::<Pod>("default", "p1").await?;
    become_so(None).await
}

/// A Service of two families has slices of both; what is over the limit of a slice goes into another.
#[tokio::test(start_paused = true)]
async fn slices_of_two_families_with_a_limit() -> Result<()> {
    let cluster = bare().await?;
    let running = cluster.controllers_with(&["endpointslice-controller"], |config| {
        config.slices.limit = 2;
        config.slices.batch = Duration::from_secs(5);
    })?;
    node(&cluster, "n1", "a", 2).await?;
    let service = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "clusterIP": "None", "ipFamilyPolicy": "RequireDualStack",
            "ipFamilies": ["IPv4", "IPv6"]},
    });
    cluster.create::<Service>(&service).await?;
    for i in 1..=3 {
        let ips = [format!("10.0.0.{i}"), format!("fd00::{i}")];
        ready_on(&cluster, &format!("p{i}"), "n1", &[&ips[0], &ips[1]], "2020-01-01T00:00:00Z").await?;
    }
    eventually("all are in slices", MINUTE, async || Ok(addresses(&cluster).await?.len() == 6)).await?;
    let mut shapes = Vec::new();
    for slice in slices(&cluster).await? {
        let labels = slice.metadata.labels.unwrap_or_default();
        assert!(labels.contains_key("service.kubernetes.io/headless"));
        shapes.push((slice.address_type, slice.endpoints.map_or(0, |e| e.len())));
    }
    shapes.sort();
    let expected = [("IPv4", 1), ("IPv4", 2), ("IPv6", 1), ("IPv6", 2)];
    assert_eq!(shapes, expected.map(|(kind, count)| (kind.to_owned(), count)));
    let page = running.metrics.page().text();
    for line in
        ["endpoint_slice_controller_endpoints_desired 6", "endpoint_slice_controller_num_endpoint_slices 4"]
    {
        assert!(page.lines().any(|l| l == line), "{line}: {page}");
    }
    Ok(())
}

/// Upstream's cases of `TestPodAddsBatching`, `TestPodUpdatesBatching` and `TestPodDeleteBatching` of both controllers: the
/// milliseconds for which changes are collected, those before each of three changes, and the number of writes.
#[tokio::test(start_paused = true)]
async fn changes_that_come_close_together() -> Result<()> {
    let cases = [(0, [200, 100, 100], 3), (1000, [200, 100, 100], 1), (1000, [200, 100, 1000], 2)];
    for (batch, delays, writes) in cases {
        for change in ["add", "update", "delete"] {
            let cluster = bare().await?;
            cluster.controllers_with(&["endpointslice-controller", "endpoints-controller"], |config| {
                config.slices.batch = Duration::from_millis(batch);
                config.endpoints.batch = config.slices.batch;
            })?;
            with_service(&cluster).await?;
            for i in 1..=10 {
                add(&cluster, i).await?;
            }
            sleep(MINUTE).await; // in which they are told of, in simulated time
            cluster.faults().record();
            let pods = cluster.admin().api::<Pod>("default");
            for (i, delay) in (1..).zip(delays) {
                sleep(Duration::from_millis(delay)).await; // the pace of changes, in simulated time
                match change {
                    "add" => add(&cluster, 10 + i).await?,
                    "update" => {
                        let ip = format!("10.0.1.{i}");
                        let moved = Patch::Merge(json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}));
                        pods.patch_status(&format!("p{i}"), &moved).await.map(drop)?;
                    }
                    _ => cluster.take::<Pod>("default", &format!("p{i}")).await?,
                }
            }
            sleep(MINUTE).await; // in which all of it is told, in simulated time
            for plural in ["endpointslices", "endpoints"] {
                let seen = cluster.faults().seen();
                let written = seen.iter().filter(|c| c.resource.plural == plural && c.verb == Verb::Update);
                assert_eq!(written.count(), writes, "{plural} {change} {batch} {delays:?}");
            }
            cluster.stop().await;
        }
    }
    Ok(())
}

/// Endpoints that a client wrote for the Service `web`, with so many addresses.
async fn by_hand(cluster: &Cluster, labels: serde_json::Value, addresses: usize) -> Result<()> {
    let addresses: Vec<_> =
        (0..addresses).map(|i| json!({"ip": format!("10.0.{}.{}", i / 255, i % 255)})).collect();
    // The API refuses a subset without addresses.
    let subsets = if addresses.is_empty() {
        json!([])
    } else {
        json!([{"ports": [{"port": 80}], "addresses": addresses}])
    };
    let endpoints =
        json!({"metadata": {"name": "web", "namespace": "default", "labels": labels}, "subsets": subsets});
    cluster.create::<Endpoints>(&endpoints).await.map(drop)
}

/// The rows of upstream's `TestSyncEndpoints` that need a Service, an event or other slices (6 of its 9; the rest is in the
/// controller's own table): the Service's selector (none: no Service), labels and the number of addresses of the
/// Endpoints, another controller's slice, and the number of slices of this controller.
#[tokio::test(start_paused = true)]
async fn endpoints_that_are_mirrored() -> Result<()> {
    const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
    let check = async |selector: Option<serde_json::Value>,
                       labels,
                       count,
                       theirs: bool,
                       want: usize|
           -> Result<()> {
        let cluster = started(&["endpointslice-mirroring-controller"]).await?;
        let case = format!("{selector:?} {labels} {count} {theirs}");
        if let Some(selector) = &selector {
            let service = json!({"metadata": {"name": "web", "namespace": "default"},
                "spec": {"selector": selector, "ports": [{"port": 80}]}});
            cluster.create::<Service>(&service).await?;
        }
        if theirs {
            let labels = json!({"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "something-else"});
            let slice = json!({"metadata": {"name": "theirs", "namespace": "default", "labels": labels},
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]});
            cluster.create::<EndpointSlice>(&slice).await?;
        }
        by_hand(&cluster, labels, count).await?;
        sleep(MINUTE).await;
        let all = slices(&cluster).await?;
        let ours = all.iter().filter(|s| s.metadata.name.as_deref() != Some("theirs")).count();
        assert_eq!((ours, all.len() - ours), (want, usize::from(theirs)), "{case}");
        let told = cluster.reasons().await?.contains(&"TooManyAddressesToMirror".to_owned());
        assert_eq!(told, count > 1000, "{case}");
        cluster.stop().await;
        Ok(())
    };
    let none = || Some(json!(null));
    check(none(), json!({SKIP: "true"}), 1, false, 0).await?;
    check(none(), json!({SKIP: "false"}), 1, false, 1).await?;
    check(None, json!({}), 1, false, 0).await?;
    check(Some(json!({"foo": "bar"})), json!({}), 1, false, 0).await?;
    check(none(), json!({}), 0, true, 0).await?;
    check(none(), json!({}), 1001, false, 1).await
}

/// 4 of upstream's 6 cases of `TestEndpointSlicesMirroredForService`: the labels of a slice that is there, and whether it is
/// one of the controller's for that Service, which it removes where nothing is mirrored. In the two others the slice is of
/// another Service, whose own look removes it.
#[tokio::test(start_paused = true)]
async fn slices_of_the_mirroring_controller() -> Result<()> {
    const OWN: &str = "endpointslicemirroring-controller.k8s.io";
    let check = async |service: Option<&str>, manager: Option<&str>, gone: bool| -> Result<()> {
        let cluster = bare().await?;
        let object =
            json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
        cluster.create::<Service>(&object).await?;
        by_hand(&cluster, json!({}), 0).await?;
        let mut labels = serde_json::Map::new();
        labels.extend(service.map(|s| ("kubernetes.io/service-name".to_owned(), json!(s))));
        labels.extend(manager.map(|m| ("endpointslice.kubernetes.io/managed-by".to_owned(), json!(m))));
        let slice = json!({"metadata": {"name": "example-1", "namespace": "default", "labels": labels},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]});
        cluster.create::<EndpointSlice>(&slice).await?;
        cluster.controllers(&["endpointslice-mirroring-controller"])?;
        sleep(MINUTE).await;
        // A look at the Service, whatever the slice says.
        let touched = client::Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
        cluster.admin().api::<Endpoints>("default").patch("web", &touched).await?;
        sleep(MINUTE).await;
        let left = cluster.get::<EndpointSlice>("default", "example-1").await?;
        assert_eq!(left.is_none(), gone, "{service:?} {manager:?}");
        cluster.stop().await;
        Ok(())
    };
    check(Some("web"), Some(OWN), true).await?;
    check(Some("web"), Some(&format!("{OWN}foo")), false).await?;
    check(Some("web"), None, false).await?;
    check(None, Some(OWN), false).await
}
