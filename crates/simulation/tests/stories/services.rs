//! Services and their endpoints.

use anyhow::Result;
use client::Patch;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::{disturbed, state};
use crate::common::{MINUTE, pod};

async fn add(cluster: &Cluster, i: usize) -> Result<()> {
    let ip = format!("10.0.0.{i}");
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let more = json!({
        "metadata": {"labels": {"app": "web"}},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]},
    });
    cluster.put::<Pod>(&pod(&format!("p{i}"), more)).await.map(drop)
}

/// The addresses and ports of all slices of a Service, and how many slices there are.
async fn slices(cluster: &Cluster, service: &str) -> Result<(usize, Vec<String>)> {
    let mut all = cluster.list::<EndpointSlice>("default").await?;
    all.retain(|s| s.metadata.labels.iter().flatten().any(|l| l.1 == service));
    let mut told = Vec::new();
    for slice in &all {
        let port = slice.ports.iter().flatten().find_map(|p| p.port).unwrap_or_default();
        let addresses = slice.endpoints.iter().flatten().flat_map(|e| &e.addresses);
        told.extend(addresses.map(|a| format!("{a}:{port}")));
    }
    told.sort();
    Ok((all.len(), told))
}

async fn endpoints(cluster: &Cluster, service: &str) -> Result<Vec<String>> {
    let found = cluster.get::<Endpoints>("default", service).await?.unwrap_or_default();
    let mut told = Vec::new();
    for subset in found.subsets.into_iter().flatten() {
        let port = subset.ports.iter().flatten().map(|p| p.port).next().unwrap_or_default();
        told.extend(subset.addresses.into_iter().flatten().map(|a| format!("{}:{port}", a.ip)));
    }
    told.sort();
    Ok(told)
}

#[tokio::test(start_paused = true)]
async fn a_service_and_its_pods() -> Result<()> {
    let controllers = ["endpoints-controller", "endpointslice-controller", "garbage-collector-controller"];
    disturbed(&controllers, async |stage| {
        let cluster = stage.cluster;
        let service = |port: u16| {
            json!({"metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": port}]}})
        };
        cluster.create::<Service>(&service(8080)).await?;
        add(cluster, 1).await?;
        add(cluster, 2).await?;
        let both = async |wanted: &[&str]| {
            stage
                .until(&format!("{wanted:?} are told"), async |cluster| {
                    let (count, told) = slices(cluster, "web").await?;
                    Ok(count == 1 && told == wanted && endpoints(cluster, "web").await? == wanted)
                })
                .await
        };
        both(&["10.0.0.1:8080", "10.0.0.2:8080"]).await?;
        cluster.put::<Service>(&service(9090)).await?;
        both(&["10.0.0.1:9090", "10.0.0.2:9090"]).await?;
        cluster.take::<Pod>("default", "p1").await?;
        add(cluster, 3).await?;
        let away = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
        cluster.admin().api::<Pod>("default").patch("p2", &away).await?;
        both(&["10.0.0.3:9090"]).await?;
        stage.pass(MINUTE).await?;
        both(&["10.0.0.3:9090"]).await?;
        cluster.admin().api::<Service>("default").delete("web", None).await?;
        stage
            .until("nothing is left", async |cluster| {
                Ok(slices(cluster, "web").await?.0 == 0
                    && cluster.get::<Endpoints>("default", "web").await?.is_none())
            })
            .await?;
        Ok(Value::Null)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_a_user_writes() -> Result<()> {
    let controllers =
        ["endpointslice-mirroring-controller", "endpoints-controller", "garbage-collector-controller"];
    disturbed(&controllers, async |stage| {
        let cluster = stage.cluster;
        let meta = json!({"name": "web", "namespace": "default"});
        cluster.create::<Service>(&json!({"metadata": meta, "spec": {"ports": [{"port": 80}]}})).await?;
        let written = |ips: &[&str]| {
            let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
            json!({"metadata": meta, "subsets": [{"addresses": ips, "ports": [{"port": 80}]}]})
        };
        let told = async |wanted: &[&str]| {
            stage
                .until(&format!("{wanted:?} are told"), async |cluster| {
                    let (count, told) = slices(cluster, "web").await?;
                    Ok(count == usize::from(!wanted.is_empty()) && told == wanted)
                })
                .await
        };
        cluster.put::<Endpoints>(&written(&["10.1.0.1", "10.1.0.2"])).await?;
        told(&["10.1.0.1:80", "10.1.0.2:80"]).await?;
        cluster.put::<Endpoints>(&written(&["10.1.0.2", "10.1.0.3"])).await?;
        told(&["10.1.0.2:80", "10.1.0.3:80"]).await?;
        stage.pass(MINUTE).await?;
        let end = state::<EndpointSlice>(cluster).await?;
        cluster.admin().api::<Endpoints>("default").delete("web", None).await?;
        told(&[]).await?;
        Ok(json!(end.as_array().map(Vec::len)))
    })
    .await
}
