//! Nodes: their blocks of addresses, and the Pods of one that falls silent and goes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::disturbed_with;
use crate::common::MINUTE;
use crate::workloads::{deployment, node_of, phase};

/// A node falls silent, and its Pods are made anew elsewhere after their time; it goes, and so do they.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_lost() -> Result<()> {
    let controllers = [
        "node-ipam-controller",
        "taint-eviction-controller",
        "pod-garbage-collector-controller",
        "ttl-controller",
        "deployment-controller",
        "replicaset-controller",
        "garbage-collector-controller",
    ];
    let set = |c: &mut controllers::Config| "10.0.0.0/16".clone_into(&mut c.cluster_cidr);
    disturbed_with(&controllers, &set, async |stage| {
        let cluster = stage.cluster;
        stage
            .until("each node has a block", async |cluster| {
                let block = |n: &Node| n.spec.as_ref().and_then(|s| s.pod_cidr.clone());
                let all = cluster.list::<Node>("").await?;
                Ok(all.iter().filter_map(block).collect::<BTreeSet<_>>().len() == 2)
            })
            .await?;
        // Minutes pass: a look every 100 ms would be most of the work.
        let until = async |what: &str, holds: &dyn Fn(&[Pod]) -> bool| {
            let look = async |cluster: &Cluster| Ok(holds(&cluster.list::<Pod>("default").await?));
            stage.until_every(Duration::from_secs(2), what, look).await
        };
        // One of the two on each node.
        let mut web = deployment("web", 2, "5");
        web["spec"]["strategy"] = json!({"type": "Recreate"});
        cluster.create::<Deployment>(&web).await?;
        let on = |all: &[Pod]| -> BTreeSet<String> {
            let runs = |p: &&Pod| phase(p) == "Running" && p.metadata.deletion_timestamp.is_none();
            all.iter().filter(runs).map(|p| node_of(p).to_owned()).collect()
        };
        until("one runs on each", &|all| all.len() == 2 && on(all).len() == 2).await?;
        ensure!(stage.fleet.fail("node-1"), "there is such a node");
        let lost = |all: &[Pod]| all.iter().filter(|p| p.metadata.deletion_timestamp.is_some()).count();
        // Nothing else has room for it.
        until("its Pod is evicted", &|all| lost(all) == 1 && all.len() == 3).await?;
        stage.pass(MINUTE).await?;
        until("another one waits", &|all| {
            let waits = all.iter().filter(|p| phase(p) == "Pending" && node_of(p).is_empty()).count();
            all.len() == 3 && lost(all) == 1 && waits == 1 && on(all) == BTreeSet::from(["node-0".to_owned()])
        })
        .await?;
        cluster.take::<Node>("", "node-1").await?;
        until("it goes with its node", &|all| all.len() == 2 && lost(all) == 0).await?;
        cluster.admin().api::<Deployment>("default").delete("web", None).await?;
        until("no Pod is left", &<[_]>::is_empty).await?;
        let mut node = cluster.get::<Node>("", "node-0").await?.unwrap_or_default();
        let spec = node.spec.take().unwrap_or_default();
        ensure!(spec.pod_cidrs.is_some_and(|all| all.len() == 1), "it keeps its block");
        let ttl = node.metadata.annotations.and_then(|a| a.get("node.alpha.kubernetes.io/ttl").cloned());
        Ok(json!([ttl, spec.taints]))
    })
    .await
}

/// Nothing is written when nothing is to be done.
#[tokio::test(start_paused = true)]
async fn nodes_at_rest() -> Result<()> {
    let controllers = ["node-ipam-controller", "taint-eviction-controller", "ttl-controller"];
    let set = |c: &mut controllers::Config| "10.0.0.0/16".clone_into(&mut c.cluster_cidr);
    disturbed_with(&controllers, &set, async |stage| {
        let blocks = async || {
            let all = stage.cluster.list::<Node>("").await?;
            anyhow::Ok(all.into_iter().filter_map(|n| n.spec?.pod_cidr).collect::<BTreeSet<_>>())
        };
        stage.until("each node has a block", async |_| Ok(blocks().await?.len() == 2)).await?;
        stage.pass(MINUTE).await?;
        let before = blocks().await?;
        let writes = stage.cluster.faults().controller_writes();
        stage.pass(10 * MINUTE).await?;
        ensure!(blocks().await? == before, "a block changed");
        ensure!(stage.cluster.faults().controller_writes() == writes, "something was written");
        Ok(Value::Null)
    })
    .await
}
