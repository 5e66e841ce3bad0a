//! Settings of the controllers that flags change: what each does.

use std::time::Duration;

use anyhow::Result;
use client::Verb;
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, bare, eventually, pod};

const LEASES: &str = "kube-node-lease";

/// A node that has said once that it is ready, or has said nothing.
async fn node(cluster: &Cluster, name: &str, ready: bool) -> Result<()> {
    let now = cluster.clock().now().to_string();
    let said = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now});
    let conditions = if ready { vec![said] } else { Vec::new() };
    let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
    cluster.put::<Node>(&node).await.map(drop)
}

/// The readiness of a node, and whether its Pods go.
async fn state(cluster: &Cluster, name: &str) -> Result<(String, bool)> {
    let node = cluster.get::<Node>("", name).await?.unwrap_or_default();
    let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ready = conditions.filter(|c| c.type_ == "Ready").map(|c| c.status.clone()).next();
    let mut taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    let goes = taints.any(|t| t.key == "node.kubernetes.io/unreachable" && t.effect == "NoExecute");
    Ok((ready.unwrap_or_default(), goes))
}

/// How many seconds pass until a condition holds, up to five minutes.
async fn seconds_until(mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<u64> {
    for second in 0..300 {
        if holds().await? {
            return Ok(second);
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(300)
}

/// Silent nodes count as unhealthy after the time that a flag names, looked at as often as another one says.
#[tokio::test(start_paused = true)]
async fn nodes_may_be_silent_for_as_long_as_flags_say() -> Result<()> {
    for (grace, startup, period) in [(50, 60, 5), (20, 30, 2), (100, 10, 5)] {
        let cluster = Cluster::start().await?;
        cluster.put::<Namespace>(&json!({"metadata": {"name": LEASES}})).await?;
        cluster.controllers_with(&["node-lifecycle-controller"], |c| {
            c.node_monitor.period = Duration::from_secs(period);
            c.node_monitor.grace = Duration::from_secs(grace);
            c.node_monitor.startup_grace = Duration::from_secs(startup);
        })?;
        node(&cluster, "said", true).await?;
        node(&cluster, "mute", false).await?;
        let unknown = async |name: &str| Ok(state(&cluster, name).await?.0 == "Unknown");
        let first = if startup < grace { ("mute", startup) } else { ("said", grace) };
        let second = if startup < grace { ("said", grace) } else { ("mute", startup) };
        let begun = cluster.clock().monotonic();
        for (name, after) in [first, second] {
            seconds_until(async || unknown(name).await).await?;
            let passed = begun.elapsed().as_secs();
            let most = after + 2 * period + 2;
            assert!((after..=most).contains(&passed), "{name}: {passed} of {after}, every {period}");
        }
    }
    Ok(())
}

/// The Pods of several silent nodes go one after the other, at the rate of a flag; and not at all in a small zone of
/// which more than a part is silent, which flags name, too.
#[tokio::test(start_paused = true)]
async fn pods_go_at_the_rate_that_flags_say() -> Result<()> {
    type Set = fn(&mut controllers::EvictionRates);
    let cases: [(Set, std::ops::RangeInclusive<u64>); 4] = [
        // Three of four are silent: the zone is unhealthy and small, so nobody goes.
        (|_| {}, 300..=300),
        (|rates| rates.unhealthy = 0.9, 15..=30),
        (|rates| (rates.unhealthy, rates.normal) = (0.9, 1.0), 0..=14),
        (|rates| (rates.large, rates.secondary) = (3, 0.05), 31..=60),
    ];
    for (i, (set, within)) in cases.into_iter().enumerate() {
        let cluster = Cluster::start().await?;
        cluster.put::<Namespace>(&json!({"metadata": {"name": LEASES}})).await?;
        cluster.controllers_with(&["node-lifecycle-controller"], |c| set(&mut c.node_monitor.rates))?;
        let silent = ["a", "b", "c"];
        for name in silent {
            node(&cluster, name, true).await?;
        }
        let alive = async || node(&cluster, "alive", true).await;
        alive().await?;
        let all = async |goes: bool| {
            alive().await?;
            for name in silent {
                let (ready, gone) = state(&cluster, name).await?;
                if ready != "Unknown" || (goes && !gone) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        assert!(seconds_until(async || all(false).await).await? < 70, "case {i}");
        let took = seconds_until(async || all(true).await).await?;
        assert!(within.contains(&took), "case {i}: {took}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn without_a_garbage_collector_dependents_stay() -> Result<()> {
    for collects in [true, false] {
        let cluster = Cluster::start().await?;
        cluster.controllers_with(&["garbage-collector-controller"], |c| c.garbage_collector = collects)?;
        let owner = json!({"metadata": {"name": "owner", "namespace": "default"}});
        let owner = cluster.create::<ConfigMap>(&owner).await?;
        cluster
            .create::<ConfigMap>(
                &json!({"metadata": {"name": "dependent", "namespace": "default", "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}]}}),
            )
            .await?;
        sleep(MINUTE).await;
        cluster.take::<ConfigMap>("default", "owner").await?;
        sleep(MINUTE).await;
        let stays = cluster.get::<ConfigMap>("default", "dependent").await?.is_some();
        assert_eq!(stays, !collects);
    }
    Ok(())
}

/// Each controller begins after the interval, and before it is over twice.
#[tokio::test(start_paused = true)]
async fn controllers_begin_after_their_interval() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.controllers_with(&["serviceaccount-controller"], |c| c.start_interval = MINUTE)?;
    cluster.create::<Namespace>(&json!({"metadata": {"name": "n"}})).await?;
    let has_account = async || Ok(cluster.get::<ServiceAccount>("n", "default").await?.is_some());
    let begun = seconds_until(has_account).await?;
    assert!((60..=122).contains(&begun), "{begun}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn as_many_ended_pods_are_kept_as_a_flag_says() -> Result<()> {
    for (threshold, left) in [(0, 4), (2, 2), (3, 3)] {
        let cluster = bare().await?;
        cluster.controllers_with(&["pod-garbage-collector-controller"], |c| c.terminated_pods = threshold)?;
        node(&cluster, "n", true).await?;
        for name in ["a", "b", "c", "d"] {
            let ended = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}});
            cluster.put::<Pod>(&pod(name, ended)).await?;
        }
        sleep(MINUTE).await;
        assert_eq!(cluster.list::<Pod>("default").await?.len(), left, "{threshold}");
    }
    Ok(())
}

/// A look that hangs holds the next ones up where one is made at a time, and only there.
#[tokio::test(start_paused = true)]
async fn as_many_are_looked_at_at_a_time_as_a_flag_says() -> Result<()> {
    for workers in [1, 2] {
        let cluster = Cluster::start().await?;
        cluster.controllers_with(&["deployment-controller"], |c| c.workers.deployments = workers)?;
        sleep(Duration::from_secs(5)).await;
        cluster.faults().add(Rule::new(Fault::Hang).resource("replicasets").verb(Verb::Create).times(1));
        for name in ["first", "second"] {
            let labels = json!({"app": name});
            let deployment = json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
            });
            cluster.create::<Deployment>(&deployment).await?;
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs(2)).await;
        let sets = cluster.list::<ReplicaSet>("default").await?.len();
        assert_eq!(sets, workers - 1);
    }
    Ok(())
}

/// Nodes get blocks of the sizes that flags name, of both families.
#[tokio::test(start_paused = true)]
async fn nodes_get_blocks_of_the_sizes_that_flags_say() -> Result<()> {
    let cluster = Cluster::start().await?;
    let range = "10.0.0.0/16,fd00::/56";
    cluster.controllers_with(&["node-ipam-controller"], |c| {
        let sizes = controllers::MaskSizes { v4: 26, v6: 72, only: 0 };
        (c.node_prefix_v4, c.node_prefix_v6) = controllers::node_prefixes(range, sizes).unwrap();
        range.clone_into(&mut c.cluster_cidr);
    })?;
    for name in ["a", "b"] {
        node(&cluster, name, true).await?;
        eventually("it has its blocks", MINUTE, async || {
            let node = cluster.get::<Node>("", name).await?.unwrap_or_default();
            Ok(node.spec.is_some_and(|spec| spec.pod_cidrs.is_some_and(|all| all.len() == 2)))
        })
        .await?;
    }
    let mut blocks: Vec<String> = Vec::new();
    for node in cluster.list::<Node>("").await? {
        blocks.extend(node.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default());
    }
    assert_eq!(blocks, ["10.0.0.0/26", "fd00::/72", "10.0.0.64/26", "fd00::100:0:0:0/72"]);
    Ok(())
}
