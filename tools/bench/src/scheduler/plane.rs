//! An API server and a scheduler, and what is known of the Pods there.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::stream::{self, TryStreamExt};
use http::Method;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::workloads::{Change, Make};
use crate::controllers::Stream;
use crate::process;
use crate::server::Server;
use crate::target::{Op, Target};

/// The requests under way at once.
const AT_ONCE: usize = 64;
/// The time in which at least one of the Pods that are awaited must be bound.
const STALL: Duration = Duration::from_mins(1);
/// The plugins that scheduler_perf's API server goes without.
const WITHOUT: &str =
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority,StorageObjectInUseProtection";
const BOUND: &str = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%21%3D";
const UNBOUND: &str = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The Pods that get a node, by namespace and name.
#[derive(Default)]
pub(super) struct Board {
    /// When those were made that are awaited.
    awaited: HashMap<String, Instant>,
    /// The milliseconds that each of the others took.
    times: Vec<f64>,
    failed: Option<anyhow::Error>,
}

impl Board {
    /// A Pod is about to be made that will get a node.
    pub(super) fn add(&mut self, pod: &Value) {
        self.awaited.insert(key(pod), Instant::now());
    }

    fn see(&mut self, pod: &str) {
        if let Some(made) = self.awaited.remove(pod) {
            self.times.push(made.elapsed().as_secs_f64() * 1e3);
        }
    }

    /// How many are bound.
    pub(super) fn bound(&self) -> usize {
        self.times.len()
    }

    /// The milliseconds that Pods took, without the first so many.
    pub(super) fn times(&self, without: usize) -> Vec<f64> {
        self.times.get(without..).unwrap_or_default().to_vec()
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value["metadata"][name].as_str().unwrap_or_default()
}

/// A Pod's namespace and name; it is the last of several objects.
pub(super) fn key(made: &Value) -> String {
    let pod = made.as_array().and_then(|all| all.last()).unwrap_or(made);
    format!("{}/{}", text(pod, "namespace"), text(pod, "name"))
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Pod,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    namespace: String,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

impl Pod {
    fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// The words of the scheduler, or of the API server about gates.
    fn verdict(&self) -> Option<&str> {
        self.status.conditions.iter().find(|c| c.kind == "PodScheduled").map(|c| c.message.as_str())
    }
}

/// A client that knows where objects are.
pub(super) struct Client(Target);

impl Client {
    /// The path of an object's kind.
    fn path(object: &Value) -> Result<String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (plural, namespaced) = match kind {
            "Node" => ("nodes", false),
            "Namespace" => ("namespaces", false),
            "Pod" => ("pods", true),
            "Service" => ("services", true),
            "PersistentVolume" => ("persistentvolumes", false),
            "PersistentVolumeClaim" => ("persistentvolumeclaims", true),
            "CSINode" => ("csinodes", false),
            "ResourceSlice" => ("resourceslices", false),
            "DeviceClass" => ("deviceclasses", false),
            "ResourceClaim" => ("resourceclaims", true),
            "ResourceClaimTemplate" => ("resourceclaimtemplates", true),
            other => bail!("nobody knows where objects of the kind {other:?} are"),
        };
        let root = match object["apiVersion"].as_str().unwrap_or_default() {
            "v1" => "/api/v1".to_owned(),
            group => format!("/apis/{group}"),
        };
        Ok(if namespaced {
            format!("{root}/namespaces/{}/{plural}", text(object, "namespace"))
        } else {
            format!("{root}/{plural}")
        })
    }

    fn own_path(object: &Value) -> Result<String> {
        Ok(format!("{}/{}", Self::path(object)?, text(object, "name")))
    }

    /// Makes an object with its status, or several, one after the other.
    pub(super) async fn make(&self, object: &Value) -> Result<()> {
        for object in object.as_array().map_or(std::slice::from_ref(object), Vec::as_slice) {
            let mut body = object.clone();
            if let Some(meta) = body["metadata"].as_object_mut() {
                meta.remove("uid");
            }
            self.0.call(Op::post(Self::path(object)?, body.to_string())).await?;
            // Nodes are made with their status.
            if object["status"].is_object() && object["kind"] != "Node" {
                self.change(object, Change::Status).await?;
            }
        }
        Ok(())
    }

    /// Changes an object as this one says.
    pub(super) async fn change(&self, object: &Value, change: Change) -> Result<()> {
        let path = Self::own_path(object)?;
        let op = match change {
            Change::Object => Op::with(Method::PATCH, path, MERGE, object.to_string()),
            Change::Status => {
                let body = json!({"status": object["status"]}).to_string();
                Op::with(Method::PATCH, format!("{path}/status"), MERGE, body)
            }
            Change::Resize => {
                let body = json!({"spec": object["spec"]}).to_string();
                Op::with(Method::PATCH, format!("{path}/resize"), STRATEGIC, body)
            }
        };
        self.0.call(op).await.map(drop)
    }

    /// Removes an object, of several the last one.
    pub(super) async fn remove(&self, object: &Value) -> Result<()> {
        let object = object.as_array().and_then(|all| all.last()).unwrap_or(object);
        let body = json!({"gracePeriodSeconds": 0}).to_string();
        self.0
            .call(Op::with(Method::DELETE, Self::own_path(object)?, "application/json", body))
            .await
            .map(drop)
    }
}

/// An API server and a scheduler.
pub(super) struct Plane {
    server: Server,
    pub(super) target: Arc<Client>,
    /// The scheduler's process.
    pub(super) scheduler: u32,
    /// The process of the controller of claims.
    claims: Option<u32>,
    board: Arc<Mutex<Board>>,
    /// A Pod that was awaited is bound.
    seen: Arc<Notify>,
    _watch: JoinSet<()>,
}

impl Plane {
    /// Starts them, with the controller that makes claims by templates where it is needed.
    pub(super) async fn start(bin: &Path, dir: &Path, claims: bool) -> Result<Self> {
        let mut server = Server::api_server(bin, dir, &[WITHOUT]).await?;
        let args = |program: &str| {
            vec![
                program.to_owned(),
                format!("--kubeconfig={}", dir.join("admin.kubeconfig").display()),
                "--secure-port=0".to_owned(),
                "--leader-elect=false".to_owned(),
            ]
        };
        let scheduler = server.beside("kube-scheduler", dir, bin, &args("kube-scheduler"))?;
        let claims = if claims {
            let mut args = args("kube-controller-manager");
            args.push("--controllers=resourceclaim-controller".to_owned());
            Some(server.beside("kube-controller-manager", dir, bin, &args)?)
        } else {
            None
        };
        let target = Arc::new(Client(Target::connect(server.config()?, 8).await?));
        let (board, seen) = (Arc::new(Mutex::new(Board::default())), Arc::new(Notify::new()));
        let mut pods = Stream::new(Target::connect(server.config()?, 1).await?, BOUND).await?;
        let mut watch = JoinSet::new();
        let (to, wake) = (board.clone(), seen.clone());
        watch.spawn(async move {
            loop {
                match pods.next::<Event>().await {
                    Ok(event) if event.kind == "DELETED" => continue,
                    Ok(event) => to.lock().see(&event.object.key()),
                    Err(error) => {
                        to.lock().failed = Some(error);
                        return wake.notify_one();
                    }
                }
                wake.notify_one();
            }
        });
        Ok(Self { server, target, scheduler, claims, board, seen, _watch: watch })
    }

    /// The Pods and their times.
    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock()
    }

    /// Makes objects; of Pods, whether they will get a node.
    pub(super) async fn make(&self, numbers: Range<usize>, make: Make, bound: bool) -> Result<()> {
        if bound {
            return self.make_each(numbers, make).await;
        }
        stream::iter(numbers.map(Ok))
            .try_for_each_concurrent(AT_ONCE, |i| async move { self.target.make(&make(i)).await })
            .await
    }

    /// Makes Pods that will get a node.
    pub(super) async fn make_each(&self, numbers: Range<usize>, make: impl Fn(usize) -> Value) -> Result<()> {
        stream::iter(numbers.map(|i| Ok(make(i))))
            .try_for_each_concurrent(AT_ONCE, |object| async move {
                self.board().add(&object);
                self.target.make(&object).await
            })
            .await
    }

    /// Waits until all Pods that will get a node have one, or those of a namespace and name. If not, the error says how many
    /// are missing, and what the scheduler says of one of them.
    pub(super) async fn bound(&self, only: Option<Vec<String>>) -> Result<()> {
        let mut only = only.map(|all| all.into_iter().peekable());
        let (mut before, mut since) = (usize::MAX, Instant::now());
        loop {
            let (left, failed) = {
                let mut board = self.board();
                let done = only.as_mut().is_some_and(|all| {
                    while all.next_if(|pod| !board.awaited.contains_key(pod)).is_some() {}
                    all.peek().is_none()
                });
                (if done { 0 } else { board.awaited.len() }, board.failed.take())
            };
            if let Some(error) = failed {
                return Err(error.context("the watch of Pods ended"));
            }
            if left == 0 {
                return Ok(());
            }
            if left != before {
                (before, since) = (left, Instant::now());
            }
            let rest = STALL.saturating_sub(since.elapsed());
            if tokio::time::timeout(rest, self.seen.notified()).await.is_err() {
                return self.missing().await;
            }
        }
    }

    async fn missing(&self) -> Result<()> {
        let (left, bound, one) = {
            let board = self.board();
            (board.awaited.len(), board.bound(), board.awaited.keys().min().cloned().unwrap_or_default())
        };
        let (namespace, name) = one.split_once('/').unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let said = match self.target.0.json(Op::get(path)).await {
            Ok(pod) => {
                serde_json::from_value::<Pod>(pod)?.verdict().unwrap_or("nothing is said of it").to_owned()
            }
            Err(error) => format!("{error:#}"),
        };
        bail!("{left} of {} Pods have no node after {STALL:?} without one; {one}: {said}", left + bound)
    }

    /// Removes objects.
    pub(super) async fn remove(&self, numbers: Range<usize>, make: Make) -> Result<()> {
        stream::iter(numbers.map(Ok))
            .try_for_each_concurrent(AT_ONCE, |i| async move { self.target.remove(&make(i)).await })
            .await
    }

    /// Waits until every Pod that is awaited has been tried.
    pub(super) async fn tried(&self) -> Result<()> {
        let target = Target::connect(self.server.config()?, 1).await?;
        let mut pods = Stream::new(target, UNBOUND).await?;
        let mut tried = HashSet::new();
        loop {
            let left = self.board().awaited.keys().filter(|pod| !tried.contains(*pod)).count();
            if left == 0 {
                return Ok(());
            }
            for _ in 0..left {
                let event = tokio::time::timeout(STALL, pods.next::<Event>()).await;
                let event = event.with_context(|| format!("{left} Pods are not tried after {STALL:?}"))??;
                // A Pod that leaves the selection has a node, or is gone.
                if event.kind == "DELETED" || event.object.verdict().is_some() {
                    tried.insert(event.object.key());
                }
            }
        }
    }

    /// The CPU time of the scheduler and of the API server, in seconds.
    pub(super) fn cpu(&self) -> Result<(f64, f64)> {
        let scheduler = process::cpu(&[self.scheduler])?;
        let claims = self.claims.map_or(Ok(0.0), |pid| process::cpu(&[pid]))?;
        Ok((scheduler, process::cpu(&self.server.pids())? - scheduler - claims))
    }
}
