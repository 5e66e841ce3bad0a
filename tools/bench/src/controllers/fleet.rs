//! Nodes on which nothing runs: one client says for all of them that their Pods run, or have ended.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::plane::Plane;
use super::stream::Stream;
use crate::target::{Op, Target};

/// The requests under way at once.
const AT_ONCE: usize = 64;
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// The time between two renewals of a node's Lease; the kubelet's.
const RENEW: Duration = Duration::from_secs(10);

/// This is what becomes of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Those that have a node run.
    Run,
    /// All succeed at once.
    Succeed,
}

/// The nodes. They end with this value.
pub(super) struct Fleet {
    tasks: JoinSet<Result<()>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Kind,
    object: Pod,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    phase: String,
}

impl Fleet {
    /// Lets the Pods of a control plane meet a fate.
    pub(super) async fn start(plane: &Plane, fate: Fate) -> Result<Self> {
        let (send, receive) = mpsc::channel::<Op>(4096);
        let mut pods = Stream::new(plane.connect(1).await?, "/api/v1/pods?watch=true").await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                if let Some(op) = step(&pods.next::<Event>().await?, fate) {
                    send.send(op).await.context("nobody sends")?;
                }
            }
        });
        let target = Arc::new(plane.connect(4).await?);
        tasks.spawn(async move {
            let ops = stream::unfold(receive, |mut r| async move { r.recv().await.map(|op| (op, r)) });
            ops.for_each_concurrent(AT_ONCE, |op| {
                let target = target.clone();
                // A Pod that is gone, or another by now, is none of ours.
                async move { drop(target.call(op).await) }
            })
            .await;
            Ok(())
        });
        Ok(Self { tasks })
    }

    /// Renews the Leases of nodes, each every ten seconds.
    pub(super) async fn renew(&mut self, plane: &Plane, nodes: usize) -> Result<()> {
        let target = Arc::new(plane.connect(4).await?);
        self.tasks.spawn(async move {
            let mut tick = tokio::time::interval(RENEW / 100);
            let mut first = 0;
            loop {
                tick.tick().await;
                // A hundredth of the nodes has its turn.
                let turn: Vec<usize> = (first..nodes).step_by(100).collect();
                first = (first + 1) % 100;
                let renewals = stream::iter(turn).for_each_concurrent(AT_ONCE, |i| {
                    let target = target.clone();
                    async move {
                        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
                        let body = json!({"spec": {"renewTime": now}}).to_string();
                        let path = format!("{LEASES}/{}", name(i));
                        drop(
                            target
                                .call(Op::with(Method::PATCH, path, "application/merge-patch+json", body))
                                .await,
                        );
                    }
                });
                renewals.await;
            }
        });
        Ok(())
    }
}

/// The request by which a node answers to an event.
fn step(event: &Event, fate: Fate) -> Option<Op> {
    let Pod { metadata: meta, spec, status } = &event.object;
    let path = format!("/api/v1/namespaces/{}/pods/{}", meta.namespace, meta.name);
    match (&event.kind, fate) {
        (Kind::Deleted | Kind::Bookmark | Kind::Error, _) => None,
        _ if meta.deletion_timestamp.is_some() => {
            let now = json!({"gracePeriodSeconds": 0}).to_string();
            Some(Op::with(Method::DELETE, path, "application/json", now))
        }
        (_, Fate::Run) if spec.node_name.is_empty() => None,
        _ if !matches!(status.phase.as_str(), "" | "Pending") => None,
        (_, Fate::Run) => Some(status_of(&path, &running())),
        (_, Fate::Succeed) => Some(status_of(&path, &json!({"phase": "Succeeded"}))),
    }
}

fn status_of(path: &str, status: &Value) -> Op {
    let body = json!({ "status": status }).to_string();
    Op::with(Method::PATCH, format!("{path}/status"), STRATEGIC_PATCH, body)
}

fn running() -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
    json!({"phase": "Running", "startTime": now, "conditions": conditions})
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn name(i: usize) -> String {
    format!("hollow-{i}")
}

/// Makes nodes that are ready and have room for so many Pods each, with their Leases.
pub(super) async fn nodes(target: &Target, count: usize, pods: usize) -> Result<()> {
    let room = json!({"cpu": "1000", "memory": "1000Gi", "pods": pods.to_string()});
    let make = |i: usize| {
        let room = room.clone();
        async move {
            let now = jiff::Timestamp::now();
            let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": seconds, "lastTransitionTime": seconds});
            let status = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
            let labels = json!({"kubernetes.io/hostname": name(i)});
            let node = json!({"metadata": {"name": name(i), "labels": labels}, "status": status});
            target.call(Op::post("/api/v1/nodes", node.to_string())).await?;
            let micros = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            let spec = json!({"holderIdentity": name(i), "leaseDurationSeconds": 40, "renewTime": micros});
            let lease = json!({"metadata": {"name": name(i)}, "spec": spec});
            target.call(Op::post(LEASES, lease.to_string())).await.map(drop)
        }
    };
    stream::iter((0..count).map(make).map(Ok)).try_for_each_concurrent(AT_ONCE, |made| made).await
}
