//! EndpointSlices of Services whose controller's cache is late.

use anyhow::Result;
use client::{Cached, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, eventually, pod, started};

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
    let ip = format!("10.0.0.{i}");
    let more = json!({
        "metadata": {"labels": {"app": "web"}},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]},
    });
    cluster.put::<Pod>(&pod(&format!("p{i}"), more)).await.map(drop)
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
