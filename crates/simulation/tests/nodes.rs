//! Nodes that fall silent or go, their Pods, and their blocks of addresses.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use api::Status;
use client::Verb;
use ferrokube_simulation::{Cluster, Fault, Rule};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, bare, condition, eventually, pod, started};

const LEASES: &str = "kube-node-lease";

async fn lifecycle() -> Result<Cluster> {
    let cluster = started(&["node-lifecycle-controller"]).await?;
    cluster.put::<Namespace>(&json!({"metadata": {"name": LEASES}})).await?;
    Ok(cluster)
}

async fn node(cluster: &Cluster, name: &str) -> Result<()> {
    let now = cluster.clock().now().to_string();
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now});
    cluster
        .put::<Node>(&json!({"metadata": {"name": name}, "status": {"conditions": [ready]}}))
        .await
        .map(drop)
}

async fn renew(cluster: &Cluster, name: &str) -> Result<()> {
    let now = cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({"metadata": {"name": name, "namespace": LEASES}, "spec": {"renewTime": now}});
    cluster.put::<Lease>(&lease).await.map(drop)
}

/// Lets these nodes renew their leases for 70 seconds.
async fn live(cluster: &Cluster, names: &[String]) -> Result<()> {
    for _ in 0..7 {
        for name in names {
            renew(cluster, name).await?;
        }
        sleep(Duration::from_secs(10)).await;
    }
    Ok(())
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i:02}")).collect()
}

/// Returns the readiness of each node, and whether its Pods go.
async fn states(cluster: &Cluster) -> Result<Vec<(String, bool)>> {
    let nodes = cluster.list::<Node>("").await?;
    let state = |n: &Node| {
        let conditions = n.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions.filter(|c| c.type_ == "Ready").map(|c| c.status.clone()).next();
        let taints = n.spec.iter().flat_map(|s| s.taints.iter().flatten());
        let mut taints = taints.filter(|t| t.key == "node.kubernetes.io/unreachable");
        (ready.unwrap_or_default(), taints.any(|t| t.effect == "NoExecute"))
    };
    Ok(nodes.iter().map(state).collect())
}

fn healthy(count: usize) -> Vec<(String, bool)> {
    vec![("True".to_owned(), false); count]
}

/// NTP, an operator or the resume of a machine sets the clock: every node stays as it is.
#[tokio::test(start_paused = true)]
async fn the_time_of_day_is_set() -> Result<()> {
    let cluster = lifecycle().await?;
    let all = names("n", 3);
    for name in &all {
        node(&cluster, name).await?;
        renew(&cluster, name).await?;
    }
    sleep(Duration::from_secs(1)).await;
    cluster.faults().record();
    for hours in [0, 1, -1, -1, 1, 24, -48] {
        cluster.clock().step(SignedDuration::from_hours(hours));
        for _ in 0..7 {
            for name in &all {
                renew(&cluster, name).await?;
            }
            sleep(Duration::from_secs(10)).await;
            let states = states(&cluster).await?;
            assert!(states.iter().all(|s| s.0 == "True" && !s.1), "{hours} {states:?}");
        }
    }
    let seen = cluster.faults().seen();
    let writes: Vec<_> =
        seen.iter().filter(|c| !matches!(c.verb, Verb::Get | Verb::List | Verb::Watch)).collect();
    assert!(writes.is_empty(), "{writes:?}");
    Ok(())
}

/// Upstream's case of `TestNodeEventGeneration`, and the end of a node: Events are about the node with its uid.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_and_go_are_told() -> Result<()> {
    let cluster = lifecycle().await?;
    node(&cluster, "node0").await?;
    let uid = cluster.get::<Node>("", "node0").await?.and_then(|n| n.metadata.uid);
    let told = async |reason: &str| {
        eventually(reason, MINUTE, async || {
            let all = cluster.list::<Event>("").await?;
            let mut all = all.iter().filter(|e| e.reason.as_deref() == Some(reason));
            Ok(all
                .any(|e| e.involved_object.uid == uid && e.involved_object.name.as_deref() == Some("node0")))
        })
        .await
    };
    told("RegisteredNode").await?;
    cluster.take::<Node>("", "node0").await?;
    told("RemovingNode").await
}

#[tokio::test(start_paused = true)]
async fn silent_nodes_are_told_and_come_back() -> Result<()> {
    let cluster = lifecycle().await?;
    let all = names("n", 3);
    for name in &all {
        node(&cluster, name).await?;
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    cluster.put::<Pod>(&pod("p", json!({"spec": {"nodeName": all[0]}, "status": ready}))).await?;
    live(&cluster, &all[1..]).await?;
    let mut want = healthy(3);
    want[0] = ("Unknown".to_owned(), true);
    assert_eq!(states(&cluster).await?, want);
    let marked = cluster.get::<Pod>("default", "p").await?.unwrap_or_default();
    assert_eq!(condition(&marked, "Ready").map(|c| c.status.as_str()), Some("False"));
    assert!(cluster.reasons().await?.contains(&"NodeNotReady".to_owned()));
    node(&cluster, &all[0]).await?;
    live(&cluster, &all).await?;
    assert_eq!(states(&cluster).await?, healthy(3));
    Ok(())
}

/// Upstream's 3 cases of `TestProcessPodMarkPodNotReady`: what a node says of itself, and whether a Pod that is there when
/// the controller starts is marked as not ready. The node's sign of life is new.
#[tokio::test(start_paused = true)]
async fn pods_of_nodes_that_are_not_ready() -> Result<()> {
    let check = async |ready: Option<&str>, marked: bool| -> Result<()> {
        let cluster = bare().await?;
        let now = api::time::format(cluster.clock().now());
        let conditions: Vec<_> = ready
            .map(|status| json!({"type": "Ready", "status": status, "lastHeartbeatTime": now}))
            .into_iter()
            .collect();
        cluster
            .put::<Node>(&json!({"metadata": {"name": "node0"}, "status": {"conditions": conditions}}))
            .await?;
        let is_ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        cluster.put::<Pod>(&pod("pod0", json!({"spec": {"nodeName": "node0"}, "status": is_ready}))).await?;
        cluster.controllers(&["node-lifecycle-controller"])?;
        sleep(Duration::from_secs(10)).await;
        let pod = cluster.get::<Pod>("default", "pod0").await?.unwrap_or_default();
        let want = if marked { "False" } else { "True" };
        assert_eq!(condition(&pod, "Ready").map(|c| c.status.as_str()), Some(want), "{ready:?}");
        cluster.stop().await;
        Ok(())
    };
    check(None, false).await?;
    check(Some("True"), false).await?;
    check(Some("False"), true).await
}

/// Upstream's 3 cases of `TestMonitorNodeHealthMarkPodsNotReadyRetry`, and that the controller ends before it marks the
/// Pods of a node of which it has just said that nothing is known: the next one does.
#[tokio::test(start_paused = true)]
async fn pods_of_a_silent_node_are_marked_in_the_end() -> Result<()> {
    for (failures, ends) in [(0, false), (1, false), (3, false), (0, true)] {
        let cluster = bare().await?;
        cluster.put::<Namespace>(&json!({"metadata": {"name": LEASES}})).await?;
        let stop = cluster.shutdown().child();
        cluster.controllers_until(&stop, &["node-lifecycle-controller"], |_| {})?;
        let all = names("n", 2);
        for name in &all {
            node(&cluster, name).await?;
        }
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        for (name, on) in [("a", &all[0]), ("b", &all[0]), ("c", &all[1])] {
            cluster.put::<Pod>(&pod(name, json!({"spec": {"nodeName": on}, "status": ready}))).await?;
        }
        let of_pods = |fault: Fault| Rule::new(fault).resource("pods").subresource("status").writes();
        let error = Status::failure(500, "InternalError", "fake error");
        cluster.faults().add(of_pods(Fault::Refuse(error)).times(failures));
        if ends {
            cluster.faults().add(of_pods(Fault::Hang));
        }
        live(&cluster, &all[1..]).await?;
        if ends {
            stop.stop();
            cluster.faults().clear();
            cluster.controllers(&["node-lifecycle-controller"])?;
            live(&cluster, &all[1..]).await?;
        }
        assert_eq!(states(&cluster).await?[0].0, "Unknown", "{failures} {ends}");
        for (name, want) in [("a", "False"), ("b", "False"), ("c", "True")] {
            let pod = cluster.get::<Pod>("default", name).await?.unwrap_or_default();
            let status = condition(&pod, "Ready").map(|c| c.status.as_str());
            assert_eq!(status, Some(want), "{failures} {ends} {name}");
        }
        cluster.stop().await;
    }
    Ok(())
}

/// Requests about one node are never answered: the other nodes' Events, taints and Pods are handled all the same.
#[tokio::test(start_paused = true)]
async fn one_slow_node_holds_up_no_other() -> Result<()> {
    let cluster = lifecycle().await?;
    let all = names("n", 40);
    for name in &all {
        node(&cluster, name).await?;
    }
    cluster.faults().add(Rule::new(Fault::Hang).resource("nodes").name("n00"));
    let silent = 12;
    live(&cluster, &all[silent..]).await?;
    let told =
        async || -> Result<usize> { Ok(states(&cluster).await?.iter().filter(|s| s.0 == "Unknown").count()) };
    assert_eq!(told().await?, silent - 1);
    for name in &all {
        renew(&cluster, name).await?;
        node(&cluster, name).await?;
    }
    // All but the first go on, and what is wanted of it is made once the server answers again.
    live(&cluster, &all[1..]).await?;
    assert_eq!(told().await?, 0);
    cluster.faults().clear();
    live(&cluster, &all[1..]).await?;
    live(&cluster, &all[1..]).await?;
    assert_eq!(states(&cluster).await?[0], ("Unknown".to_owned(), true));
    assert_eq!(told().await?, 1);
    Ok(())
}

/// One node is missing, the requests about one Pod are never answered, and the time of day is set: the other Pods go
/// after their time, and not before.
#[tokio::test(start_paused = true)]
async fn what_is_orphaned_goes_in_time() -> Result<()> {
    for hours in [0, 1, -1] {
        let cluster = bare().await?;
        for i in 0..40 {
            let more = json!({"spec": {"nodeName": "gone"}, "status": {"phase": "Running"}});
            cluster.put::<Pod>(&pod(&format!("p{i}"), more)).await?;
        }
        cluster.faults().add(Rule::new(Fault::Hang).resource("pods").name("p7"));
        cluster.controllers_with(&["pod-garbage-collector-controller"], |c| c.terminated_pods = 0)?;
        let left = async || -> Result<usize> { Ok(cluster.list::<Pod>("default").await?.len()) };
        sleep(Duration::from_secs(30)).await;
        cluster.clock().step(SignedDuration::from_hours(hours));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(left().await?, 40, "{hours}");
        sleep(Duration::from_secs(20)).await;
        assert_eq!(left().await?, 1, "{hours}");
        cluster.faults().clear();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(left().await?, 0, "{hours}");
    }
    Ok(())
}

/// The first write of each node's block fails in a way that leaves its success open.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_gives_no_block_twice() -> Result<()> {
    let error = || Status::failure(504, "Timeout", "the request may have been done");
    for fault in [Fault::Refuse(error()), Fault::Lose(error()), Fault::Hang] {
        let cluster = Cluster::start().await?;
        let ipam = ["node-ipam-controller"];
        cluster.controllers_with(&ipam, |c| "10.0.0.0/21".clone_into(&mut c.cluster_cidr))?;
        cluster.faults().add(Rule::new(fault).resource("nodes").verb(Verb::StrategicPatch).first_of_each());
        let make = async |name: &str| cluster.create::<Node>(&json!({"metadata": {"name": name}})).await;
        let block = |n: &Node| n.spec.as_ref().and_then(|s| s.pod_cidr.clone());
        for name in names("n", 8) {
            make(&name).await?;
        }
        sleep(Duration::from_mins(2)).await;
        let nodes = cluster.list::<Node>("").await?;
        let blocks: BTreeSet<String> = nodes.iter().filter_map(block).collect();
        assert_eq!(blocks.len(), 8, "each has its own, and none is lost: {blocks:?}");
        // The block of a node that goes is given to the next node.
        cluster.take::<Node>("", "n03").await?;
        make("late").await?;
        sleep(Duration::from_mins(2)).await;
        let late = cluster.get::<Node>("", "late").await?;
        assert!(late.as_ref().and_then(block).is_some_and(|b| blocks.contains(&b)));
    }
    Ok(())
}

/// The rules of rates: hundreds of nodes in four zones, most of which fall silent at once.
#[tokio::test(start_paused = true)]
async fn zones_lose_their_nodes_at_their_own_rates() -> Result<()> {
    // The zone, its nodes, how many of them fall silent, and how many are tainted in the first five minutes after that:
    // at 0.1 a second where the whole zone is silent, or few nodes are; at 0.01 where many are in a large zone; none
    // where many are in a small one. A zone may give one away at once.
    const ZONES: [(&str, usize, usize, std::ops::RangeInclusive<usize>); 4] = [
        ("all", 60, 60, 28..=32),
        ("large", 100, 60, 3..=5),
        ("small", 40, 30, 0..=1),
        ("few", 60, 5, 5..=5),
    ];
    let cluster = lifecycle().await?;
    let mut alive = Vec::new();
    for (zone, count, silent, _) in &ZONES {
        for i in 0..*count {
            let name = format!("{zone}-{i:03}");
            node(&cluster, &name).await?;
            let labels = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
            cluster.admin().api::<Node>("").patch(&name, &client::Patch::Merge(labels)).await?;
            renew(&cluster, &name).await?;
            if i >= *silent {
                alive.push(name);
            }
        }
    }
    let tainted = async |zone: &str| -> Result<usize> {
        let all = cluster.list::<Node>("").await?;
        let of_zone =
            all.iter().filter(|n| n.metadata.name.as_ref().is_some_and(|name| name.starts_with(zone)));
        let gone = |n: &&Node| {
            let taints = n.spec.iter().flat_map(|s| s.taints.iter().flatten());
            taints.clone().any(|t| t.key == "node.kubernetes.io/unreachable" && t.effect == "NoExecute")
        };
        Ok(of_zone.filter(gone).count())
    };
    let live_for = async |seconds: u64| -> Result<()> {
        for _ in 0..seconds / 20 {
            for name in &alive {
                renew(&cluster, name).await?;
            }
            sleep(Duration::from_secs(20)).await;
        }
        Ok(())
    };
    live_for(60).await?;
    live_for(300).await?;
    for (zone, _, _, wanted) in &ZONES {
        let found = tainted(zone).await?;
        assert!(wanted.contains(&found), "{zone}: {found} instead of {wanted:?}");
    }
    // All nodes of all zones fall silent: nothing is taken away any more, and what was comes back.
    sleep(Duration::from_mins(3)).await;
    for (zone, ..) in &ZONES {
        assert_eq!(tainted(zone).await?, 0, "{zone}");
    }
    // One gives a sign of life: each zone goes on by its own rule, and each node has its grace once more.
    renew(&cluster, "few-059").await?;
    node(&cluster, "few-059").await?;
    for _ in 0..6 {
        sleep(Duration::from_secs(20)).await;
        renew(&cluster, "few-059").await?;
    }
    let found = tainted("all").await?;
    assert!((6..=14).contains(&found), "{found} in two minutes");
    Ok(())
}
