//! Addresses of Services of type LoadBalancer.

use anyhow::Result;
use client::Patch;
use controllers::LoadBalancers;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};

use crate::common::{MINUTE, bare, eventually, merge, said};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

async fn cluster(pool: &str) -> Result<Cluster> {
    let cluster = bare().await?;
    start(&cluster, pool)?;
    Ok(cluster)
}

fn start(cluster: &Cluster, pool: &str) -> Result<()> {
    let pool = pool.split(',').filter(|range| !range.is_empty()).map(|range| range.parse());
    let pool = pool.collect::<Result<Vec<controllers::Range>, String>>().map_err(anyhow::Error::msg)?;
    cluster.controllers_with(&["service-lb-controller"], |config| {
        config.load_balancers = Some(LoadBalancers { pool, reserved: vec![6443] });
    })?;
    Ok(())
}

async fn service(cluster: &Cluster, name: &str, more: Value) -> Result<()> {
    let mut service = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]},
    });
    merge(&mut service, &more);
    cluster.create::<Service>(&service).await.map(drop)
}

/// The addresses of a Service's status, and whether it has the finalizer.
async fn state(cluster: &Cluster, name: &str) -> Result<(Vec<String>, bool)> {
    let service = cluster.get::<Service>("default", name).await?.unwrap_or_default();
    let ingress = service.status.and_then(|s| s.load_balancer).and_then(|l| l.ingress).unwrap_or_default();
    assert!(ingress.iter().all(|i| i.ip_mode.as_deref() == Some("VIP")));
    let held = service.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER);
    Ok((ingress.into_iter().filter_map(|i| i.ip).collect(), held))
}

async fn becomes(cluster: &Cluster, name: &str, expected: &[&str]) -> Result<()> {
    eventually(&format!("{name}: {expected:?}"), MINUTE, async || {
        let (addresses, held) = state(cluster, name).await?;
        Ok(addresses == expected && (held || expected.is_empty()))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn addresses_of_a_pool() -> Result<()> {
    let cluster = cluster("192.0.2.1-192.0.2.2,2001:db8::1-2001:db8::9").await?;
    let families = json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}});
    service(&cluster, "a", families).await?;
    becomes(&cluster, "a", &["192.0.2.1", "2001:db8::1"]).await?;
    // Of two Events of one moment, which this clock makes possible, the first one is kept.
    said(&cluster, "EnsuringLoadBalancer").await?;
    // Another class is left alone, ours is not; one may ask for an address.
    service(&cluster, "other", json!({"spec": {"loadBalancerClass": "example.com/x"}})).await?;
    service(
        &cluster,
        "b",
        json!({"spec": {"loadBalancerClass": "ferrokube.io/l2", "loadBalancerIP": "192.0.2.2"}}),
    )
    .await?;
    becomes(&cluster, "b", &["192.0.2.2"]).await?;
    assert_eq!(state(&cluster, "other").await?, (Vec::new(), false));
    // The pool is empty: who waits gets an address when one is given back.
    service(&cluster, "c", json!({})).await?;
    said(&cluster, "SyncLoadBalancerFailed").await?;
    assert_eq!(state(&cluster, "c").await?, (Vec::new(), false));
    let api = cluster.admin().api::<Service>("default");
    api.patch("a", &Patch::Merge(json!({"spec": {"type": "ClusterIP"}}))).await?;
    becomes(&cluster, "c", &["192.0.2.1"]).await?;
    eventually("it is freed", MINUTE, async || Ok(state(&cluster, "a").await? == (Vec::new(), false)))
        .await?;
    cluster.take::<Service>("default", "b").await?;
    eventually("it is gone", MINUTE, async || Ok(cluster.get::<Service>("default", "b").await?.is_none()))
        .await?;
    said(&cluster, "DeletingLoadBalancer").await?;
    // A status that somebody else wrote is put right.
    let foreign = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1", "ipMode": "VIP"}]}}});
    api.patch_status("c", &Patch::Merge(foreign)).await?;
    becomes(&cluster, "c", &["192.0.2.1"]).await
}

/// Another leader goes on with what the status says, and gives nothing twice.
#[tokio::test(start_paused = true)]
async fn another_start() -> Result<()> {
    let cluster = bare().await?;
    for (name, address) in [("a", "192.0.2.2"), ("b", "192.0.2.1"), ("c", "192.0.2.2")] {
        service(&cluster, name, json!({})).await?;
        let api = cluster.admin().api::<Service>("default");
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
        api.patch_status(name, &Patch::Merge(status)).await?;
    }
    start(&cluster, "192.0.2.1-192.0.2.9")?;
    becomes(&cluster, "a", &["192.0.2.2"]).await?;
    becomes(&cluster, "b", &["192.0.2.1"]).await?;
    becomes(&cluster, "c", &["192.0.2.3"]).await
}

#[tokio::test(start_paused = true)]
async fn addresses_of_the_nodes() -> Result<()> {
    let cluster = cluster("").await?;
    let node = async |name: &str, address: &str, ready: &str, labels: Value| {
        let node = json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": ready}],
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]},
        });
        cluster.put::<Node>(&node).await.map(drop)
    };
    node("n1", "10.0.0.1", "True", json!({})).await?;
    node("n2", "10.0.0.2", "True", json!({})).await?;
    service(&cluster, "a", json!({})).await?;
    becomes(&cluster, "a", &["10.0.0.1", "10.0.0.2"]).await?;
    // The ports of the nodes are one Service's each, and the cluster's own are nobody's.
    service(&cluster, "b", json!({"spec": {"ports": [{"port": 81}]}})).await?;
    becomes(&cluster, "b", &["10.0.0.1", "10.0.0.2"]).await?;
    service(&cluster, "c", json!({})).await?;
    service(&cluster, "d", json!({"spec": {"ports": [{"port": 6443}]}})).await?;
    service(&cluster, "local", json!({"spec": {"ports": [{"port": 82}], "externalTrafficPolicy": "Local"}}))
        .await?;
    said(&cluster, "SyncLoadBalancerFailed").await?;
    for name in ["c", "d", "local"] {
        assert_eq!(state(&cluster, name).await?.0, Vec::<String>::new(), "{name}");
    }
    node("n2", "10.0.0.2", "False", json!({})).await?;
    becomes(&cluster, "a", &["10.0.0.1"]).await?;
    node("n2", "10.0.0.2", "True", json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""}))
        .await?;
    node("n3", "10.0.0.3", "True", json!({})).await?;
    becomes(&cluster, "a", &["10.0.0.1", "10.0.0.3"]).await?;
    let slice = json!({
        "metadata": {"name": "local-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "local"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": "n3", "conditions": {"ready": true}}],
    });
    cluster.create::<k8s_openapi::api::discovery::v1::EndpointSlice>(&slice).await?;
    becomes(&cluster, "local", &["10.0.0.3"]).await?;
    cluster.take::<Service>("default", "a").await?;
    becomes(&cluster, "c", &["10.0.0.1", "10.0.0.3"]).await
}
