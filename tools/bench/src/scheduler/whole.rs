//! The scheduler with the API server, as upstream's scheduler_perf measures it: nodes and Pods are made through the API,
//! and a Pod counts when the API shows its node.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, TryStreamExt};
use serde::Deserialize;
use serde_json::{Value, json};

use super::workloads::{Workload, node};
use crate::controllers::Stream;
use crate::process;
use crate::requests::quantile;
use crate::server::Server;
use crate::target::{Op, Target};

/// The requests under way at once.
const AT_ONCE: usize = 64;
/// The pace of Pods that nobody can take.
const CHURN: Duration = Duration::from_millis(200);
/// The time in which Pods must be bound.
const LIMIT: Duration = Duration::from_mins(10);
/// The plugins that scheduler_perf's API server goes without.
const WITHOUT: &str =
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority,StorageObjectInUseProtection";
const BOUND: &str = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%21%3D";

/// The figures of a workload.
pub(super) struct Figures {
    /// Pods that are bound a second.
    pub(super) rate: f64,
    /// The scheduler's CPU time for a Pod, in microseconds.
    pub(super) cpu: f64,
    /// The API server's CPU time for a Pod, in microseconds.
    pub(super) server_cpu: f64,
}

/// An API server and a scheduler.
struct Plane {
    server: Server,
    target: Arc<Target>,
    scheduler: u32,
}

impl Plane {
    async fn start(bin: &Path, dir: &Path) -> Result<Self> {
        let mut server = Server::api_server(bin, dir, &[WITHOUT]).await?;
        let kubeconfig = format!("--kubeconfig={}", dir.join("admin.kubeconfig").display());
        let args = [
            "kube-scheduler".to_owned(),
            kubeconfig,
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        let scheduler = server.beside("kube-scheduler", dir, bin, &args)?;
        let target = Arc::new(Target::connect(server.config()?, 8).await?);
        Ok(Self { server, target, scheduler })
    }

    async fn make(&self, path: &str, objects: impl Iterator<Item = Value>) -> Result<()> {
        stream::iter(objects.map(Ok))
            .try_for_each_concurrent(AT_ONCE, |object| async move {
                self.target.call(Op::post(path_of(path, &object), object.to_string())).await.map(drop)
            })
            .await
    }

    async fn nodes(&self, workload: &Workload) -> Result<()> {
        for namespace in ["sched-0", "sched-1"] {
            let object = json!({"metadata": {"name": namespace}});
            self.target.call(Op::post("/api/v1/namespaces", object.to_string())).await?;
        }
        self.make("/api/v1/nodes", (0..workload.nodes).map(|i| node(i, workload.zones))).await
    }

    async fn bound(&self) -> Result<Stream> {
        Stream::new(Target::connect(self.server.config()?, 1).await?, BOUND).await
    }

    fn cpu(&self) -> Result<(f64, f64)> {
        let scheduler = process::cpu(&[self.scheduler])?;
        Ok((scheduler, process::cpu(&self.server.pids())? - scheduler))
    }
}

/// The path at which an object is made: that of its namespace.
fn path_of(path: &str, object: &Value) -> String {
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods"),
        None => path.to_owned(),
    }
}

/// A Pod as a client makes it.
fn plain(mut pod: Value) -> Value {
    if let Some(meta) = pod["metadata"].as_object_mut() {
        meta.remove("uid");
    }
    pod
}

/// Runs a workload.
pub(super) async fn measure(bin: &Path, workload: &Workload) -> Result<Figures> {
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let plane = Plane::start(bin, dir.path()).await?;
    plane.nodes(workload).await?;
    let mut bound = plane.bound().await?;
    plane.make("", (0..workload.initial.0).map(|i| plain(workload.initial.1(i)))).await?;
    bound.count(workload.initial.0).await?;
    drop(bound);
    // From here on, each Pod is seen first when it is bound.
    let mut bound = plane.bound().await?;
    bound.count(workload.initial.0).await?;
    let (begun, before) = (Instant::now(), plane.cpu()?);
    let churn = async {
        let Some(churn) = workload.churn else { return std::future::pending::<Result<()>>().await };
        for i in 0.. {
            plane.make("", std::iter::once(plain(churn(i)))).await?;
            tokio::time::sleep(CHURN).await;
        }
        Ok(())
    };
    let all = async {
        let make = plane.make("", (0..workload.measured.0).map(|i| plain(workload.measured.1(i))));
        let (made, seen) = tokio::join!(make, bound.count(workload.measured.0));
        made.and(seen)
    };
    let work = async {
        tokio::select! {
            done = all => done,
            failed = churn => failed,
        }
    };
    tokio::time::timeout(LIMIT, work).await.context("not all Pods are bound")??;
    let (seconds, after) = (begun.elapsed().as_secs_f64(), plane.cpu()?);
    let count = workload.measured.0 as f64;
    Ok(Figures {
        rate: count / seconds,
        cpu: (after.0 - before.0) / count * 1e6,
        server_cpu: (after.1 - before.1) / count * 1e6,
    })
}

/// The figures at a pace, and at rest.
pub(super) struct Pace {
    /// Milliseconds from a Pod's creation until the API shows its node.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Bytes of the scheduler's memory for a node, and for a Pod.
    pub(super) node: f64,
    pub(super) pod: f64,
    /// The scheduler's CPU at rest, in percent of a core.
    pub(super) rest: f64,
}

#[derive(Deserialize)]
struct Event {
    object: Named,
}

#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

/// Makes Pods at a pace of so many a second on so many nodes, then more until there are `pods`, and looks at the
/// scheduler at rest.
pub(super) async fn at_pace(
    bin: &Path,
    workload: &Workload,
    each_second: usize,
    pods: usize,
) -> Result<Pace> {
    const SECONDS: usize = 10;
    const REST: Duration = Duration::from_secs(20);
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let plane = Plane::start(bin, dir.path()).await?;
    let memory = || process::memory(&[plane.scheduler]).map(|m| m.rss * f64::from(1 << 20));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let empty = memory()?;
    plane.nodes(workload).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let with_nodes = memory()?;
    let mut bound = plane.bound().await?;
    let count = each_second * SECONDS;
    let made = Arc::new(parking_lot::Mutex::new(HashMap::with_capacity(count)));
    let paced = async {
        let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / each_second as u64));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        let mut under_way = tokio::task::JoinSet::new();
        for i in 0..count {
            tick.tick().await;
            let pod = plain(workload.measured.1(i));
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            made.lock().insert(name, Instant::now());
            let target = plane.target.clone();
            under_way.spawn(async move { target.call(Op::post(path_of("", &pod), pod.to_string())).await });
        }
        while let Some(done) = under_way.join_next().await {
            done??;
        }
        Ok::<_, anyhow::Error>(())
    };
    let mut times = Vec::with_capacity(count);
    let seen = async {
        while times.len() < count {
            let name = bound.next::<Event>().await?.object.metadata.name;
            if let Some(at) = made.lock().remove(&name) {
                times.push(at.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    let both = async { tokio::try_join!(paced, seen) };
    tokio::time::timeout(LIMIT, both).await.context("not all Pods are bound")??;
    times.sort_by(f64::total_cmp);
    // The rest of the Pods are there already, on nodes: nobody has to find these a place.
    ensure!(pods >= count, "there are more Pods at the pace than in all");
    plane
        .make(
            "",
            (count..pods).map(|i| {
                let mut pod = plain(workload.measured.1(i));
                pod["spec"]["nodeName"] = format!("scheduler-perf-{}", i % workload.nodes).into();
                pod
            }),
        )
        .await?;
    // Nobody read the watch meanwhile: another one tells of all.
    drop(bound);
    let mut bound = plane.bound().await?;
    bound.count(pods).await?;
    drop(bound);
    tokio::time::sleep(REST).await;
    let with_pods = memory()?;
    let before = process::cpu(&[plane.scheduler])?;
    tokio::time::sleep(REST).await;
    let rest = (process::cpu(&[plane.scheduler])? - before) / REST.as_secs_f64() * 100.0;
    Ok(Pace {
        p50: quantile(&times, 0.5),
        p99: quantile(&times, 0.99),
        node: (with_nodes - empty) / workload.nodes as f64,
        pod: (with_pods - with_nodes) / pods as f64,
        rest,
    })
}
