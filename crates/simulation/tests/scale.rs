//! Many nodes and Pods in simulated time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use ferrokube_simulation::Shape;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;

use crate::workloads::{cluster, deployment, node_of, phase};

/// Nodes and Pods, as far as the time of a test allows; `FERROKUBE_SIMULATED_NODES` says otherwise.
const NODES: usize = 500;
const PODS_PER_NODE: usize = 10;

#[tokio::test(start_paused = true)]
async fn many_pods_run_on_many_nodes() -> Result<()> {
    let nodes = match std::env::var("FERROKUBE_SIMULATED_NODES") {
        Ok(count) => count.parse()?,
        Err(_) => NODES,
    };
    let pods = nodes * PODS_PER_NODE;
    let (began, simulated) = (Instant::now(), tokio::time::Instant::now());
    let (cluster, _fleet) = cluster(nodes, &Shape::default()).await?;
    println!("{nodes} nodes: {:.1?}, simulated {:.1?}", began.elapsed(), simulated.elapsed());
    let (began, simulated) = (Instant::now(), tokio::time::Instant::now());
    for n in 0..10 {
        let replicas = u32::try_from(pods / 10)?;
        cluster.create::<Deployment>(&deployment(&format!("web-{n}"), replicas, "100m")).await?;
    }
    let runs = |all: &[Deployment]| -> i32 {
        all.iter().filter_map(|d| d.status.as_ref()?.available_replicas).sum()
    };
    let all = i32::try_from(pods)?;
    cluster.until::<Deployment>(Duration::from_mins(30), "default", |d| runs(d) == all).await?;
    println!("{pods} Pods run: {:.1?}, simulated {:.1?}", began.elapsed(), simulated.elapsed());
    let mut on: BTreeMap<String, usize> = BTreeMap::new();
    for pod in cluster.list::<Pod>("default").await? {
        assert_eq!(phase(&pod), "Running");
        *on.entry(node_of(&pod).to_owned()).or_default() += 1;
    }
    assert_eq!((on.len(), on.values().sum::<usize>()), (nodes, pods));
    let most = on.values().max().copied().unwrap_or_default();
    assert!(most <= 2 * PODS_PER_NODE, "a node has {most}");
    cluster.stop().await;
    Ok(())
}
