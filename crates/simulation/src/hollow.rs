//! Hollow nodes: they register, renew their leases, say that the Pods bound to them run, and let Pods go that are
//! deleted. Nothing runs on them. They ask as nodes do, so that the Node authorizer and NodeRestriction bound them.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Status;
use client::{Client, Informer, Key, Patch, Queue, RateLimit, Selection};
use component::{Clock, Shutdown};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, MicroTime, ObjectMeta};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// How often a lease is renewed, and how long it lasts; the kubelet's.
const RENEW: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// How long a node waits after the server refused something.
const RETRY: Duration = Duration::from_secs(1);
/// How many Pods a node looks at at a time.
const WORKERS: usize = 4;

/// The shape of a node.
#[derive(Debug, Clone)]
pub struct Shape {
    /// CPUs.
    pub cpu: u32,
    /// GiB of memory.
    pub memory: u32,
    /// How many Pods it takes.
    pub pods: u32,
    /// Labels besides the host's name.
    pub labels: BTreeMap<String, String>,
    /// How long a Pod takes from its binding until it runs.
    pub start: Duration,
}

impl Default for Shape {
    fn default() -> Self {
        Self { cpu: 8, memory: 32, pods: 110, labels: BTreeMap::new(), start: Duration::from_secs(2) }
    }
}

/// The nodes of a cluster.
pub struct Fleet {
    nodes: Mutex<BTreeMap<String, Shutdown>>,
}

impl Fleet {
    /// Starts nodes `PREFIX-0`, `PREFIX-1`, ….
    pub fn start(cluster: &Cluster, prefix: &str, count: usize, shape: &Shape) -> Self {
        let clients = cluster.clients();
        let nodes = (0..count).map(|n| {
            let name = format!("{prefix}-{n}");
            let stop = cluster.shutdown().child();
            let client = clients.of(&format!("system:node:{name}"));
            let node = Hollow {
                client,
                clock: cluster.clock(),
                name: name.clone(),
                shape: shape.clone(),
                number: n,
            };
            let running = stop.clone();
            stop.spawn(async move { node.run(&running).await });
            (name, stop)
        });
        Self { nodes: Mutex::new(nodes.collect()) }
    }

    /// Lets a node fall silent, as one does that lost its power; whether there was such a node.
    pub fn fail(&self, name: &str) -> bool {
        let node = self.nodes.lock().remove(name);
        node.inspect(Shutdown::stop).is_some()
    }
}

#[derive(Clone)]
struct Hollow {
    client: Client,
    clock: Clock,
    name: String,
    shape: Shape,
    number: usize,
}

impl Hollow {
    async fn run(&self, stop: &Shutdown) {
        let work = async {
            while let Err(error) = self.register().await {
                refused(&self.name, &error);
                tokio::time::sleep(RETRY).await;
            }
            self.follow_pods(stop);
            loop {
                let wait = match self.renew().await {
                    Ok(()) => RENEW,
                    Err(error) => {
                        refused(&self.name, &error);
                        RETRY
                    }
                };
                tokio::time::sleep(wait).await;
            }
        };
        let _ = stop.run(work).await;
    }

    async fn register(&self) -> Result<(), Status> {
        let Shape { cpu, memory, pods, labels, .. } = &self.shape;
        let resources =
            json!({"cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": pods.to_string()});
        let now = api::time::format(self.clock.now());
        let mut node = json!({
            "metadata": {"name": self.name, "labels": labels},
            "status": {
                "capacity": resources, "allocatable": resources,
                "addresses": [{"type": "InternalIP", "address": self.address()}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    "lastHeartbeatTime": now.as_str(), "lastTransitionTime": now.as_str()}],
            },
        });
        node["metadata"]["labels"]["kubernetes.io/hostname"] = self.name.as_str().into();
        match self.client.api::<Node>("").create(&typed(&node)?).await {
            Err(e) if !e.is_already_exists() => Err(e),
            _ => Ok(()),
        }
    }

    async fn renew(&self) -> Result<(), Status> {
        let leases = self.client.api::<Lease>("kube-node-lease");
        let now = Some(MicroTime(self.clock.now()));
        match leases.get(&self.name).await {
            Ok(mut lease) => {
                lease.spec.get_or_insert_default().renew_time = now;
                leases.update(&lease).await.map(drop)
            }
            Err(e) if e.is_not_found() => {
                let spec = LeaseSpec {
                    holder_identity: Some(self.name.clone()),
                    lease_duration_seconds: Some(LEASE_SECONDS),
                    renew_time: now,
                    ..LeaseSpec::default()
                };
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                leases.create(&Lease { metadata, spec: Some(spec) }).await.map(drop)
            }
            Err(e) => Err(e),
        }
    }

    fn follow_pods(&self, stop: &Shutdown) {
        let selection =
            Selection { field_selector: format!("spec.nodeName={}", self.name), ..Selection::default() };
        let pods: Informer<Pod> = Informer::new(&self.client, selection);
        let queue = Queue::<Key>::new(RateLimit::UPSTREAM);
        let (seen, start) = (queue.clone(), self.shape.start);
        pods.handle(move |change| {
            let pod = change.object();
            let key = client::Cached::key(&**pod);
            let waits =
                matches!(change, client::Change::Added(_)) && pod.metadata.deletion_timestamp.is_none();
            if waits { seen.add_after(key, start) } else { seen.add(key) }
        });
        let (node, known) = (self.clone(), pods.clone());
        queue.work("hollow-node", WORKERS, stop, move |key: Key| {
            let (node, pod) = (node.clone(), known.get_key(&key));
            async move {
                match pod {
                    Some(pod) => node.sync(&pod).await,
                    None => Ok(()),
                }
            }
        });
        pods.start(stop);
    }

    /// Lets a Pod run, or go.
    async fn sync(&self, pod: &Pod) -> Result<(), Status> {
        let meta = &pod.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let api = self.client.api::<Pod>(meta.namespace.as_deref().unwrap_or_default());
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
        let done = if meta.deletion_timestamp.is_some() {
            let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            api.delete(name, Some(&at_once)).await
        } else if phase == "Pending" {
            let status = running(pod, &self.address(), self.clock.now());
            let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
            api.patch_status(name, &Patch::Strategic(patch)).await.map(drop)
        } else {
            Ok(())
        };
        match done {
            // Another Pod by now, or none.
            Err(e) if e.is_not_found() || e.is_conflict() => Ok(()),
            done => done,
        }
    }

    fn address(&self) -> String {
        let n = self.number;
        format!("10.{}.{}.{}", 128 + (n >> 16), (n >> 8) & 255, n & 255)
    }
}

/// The status of a Pod whose containers all run.
fn running(pod: &Pod, host: &str, now: Timestamp) -> Value {
    let now = api::time::format(now);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now.as_str()});
    let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
    let containers = pod.spec.iter().flat_map(|s| &s.containers).map(|c| {
        json!({"name": c.name, "image": c.image, "imageID": c.image, "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": now.as_str()}}})
    });
    json!({
        "phase": "Running", "startTime": now.as_str(), "hostIP": host, "hostIPs": [{"ip": host}],
        "conditions": conditions,
        "containerStatuses": containers.collect::<Vec<_>>(),
    })
}

fn typed<T: client::FromJson>(object: &Value) -> Result<T, Status> {
    T::from_json(object.to_string().as_bytes())
}

fn refused(node: &str, error: &Status) {
    tracing::debug!(node, %error, "a hollow node is refused");
}
