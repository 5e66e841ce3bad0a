//! The Node object of this machine: registration, status, heartbeats.

mod lease;
pub mod machine;
pub mod pressure;
pub mod status;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Api, Backoff, EventType, Patch, Recorder};
use component::Shutdown;
use cri::runtime as pb;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, ObjectReference, Taint};
use serde_json::json;
use tokio::time::Instant;

use self::machine::{Filesystem, Machine, Pids};
use self::pressure::{Reported, Room};
pub use self::pressure::{Threshold, Thresholds};
use self::status::{Image, Observation, REPORT, RuntimeState};
use crate::Kubelet;

/// How often the status is made; upstream's `nodeStatusUpdateFrequency`.
pub(crate) const UPDATE: Duration = Duration::from_secs(10);
/// How often the runtime is asked while the node is not ready. A new node waits for its pod network,
/// which comes within moments, and nothing announces that the runtime has seen it.
const UPDATE_STARTING: Duration = Duration::from_millis(100);
/// For how long it is asked that often.
const STARTING: Duration = Duration::from_secs(30);
/// How often images are listed.
const LIST_IMAGES: SignedDuration = SignedDuration::from_secs(30);
/// After this time without an answer the runtime counts as down.
const RUNTIME_DOWN: SignedDuration = SignedDuration::from_secs(30);

/// How the Node is registered.
#[derive(Debug, Clone)]
pub struct Options {
    /// The host name it reports; its own name without.
    pub hostname: Option<String>,
    /// The port of this kubelet's server.
    pub port: u16,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new Node.
    pub taints: Vec<Taint>,
    /// What is kept free, and when the node is short of something.
    pub eviction_hard: Thresholds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hostname: None,
            port: 10250,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            eviction_hard: Thresholds::default(),
        }
    }
}

/// Registers the Node and reports it until `shutdown`.
pub fn start(kubelet: Arc<Kubelet>, recorder: Recorder, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        let _ = stop.run(Box::pin(report(kubelet, recorder))).await;
    });
}

async fn report(kubelet: Arc<Kubelet>, recorder: Recorder) {
    let mut observer = Observer::new(kubelet.clone());
    let name = kubelet.config.node_name.clone();
    let options = &kubelet.config.node;
    let nodes: Api<Node> = kubelet.client.api("");
    let about = ObjectReference {
        kind: Some("Node".into()),
        name: Some(name.clone()),
        // Upstream's kubelet gives its name as uid, and clients select its Events by it.
        uid: Some(name.clone()),
        ..ObjectReference::default()
    };
    let mut reporter =
        Reporter { name: name.clone(), nodes, recorder, about, conditions: Vec::new(), sent: None };
    let mut initial = status::initial(&name, options, &observer.machine);
    let observation = observer.observe().await;
    initial.status = Some(status::status(&name, options, &observation, &[]));
    let uid = reporter.register(&initial).await;
    let alive = lease::keep(kubelet.client.clone(), kubelet.clock, &name, &uid);
    let keep = async {
        let began = Instant::now();
        loop {
            let ready = reporter.sent.as_ref().is_some_and(|(status, _)| status::is_ready(status));
            let pause = if ready || began.elapsed() > STARTING { UPDATE } else { UPDATE_STARTING };
            tokio::time::sleep(pause).await;
            let observation = observer.observe().await;
            let next = status::status(&name, options, &observation, &reporter.conditions);
            reporter.send(next, observation.now).await;
        }
    };
    tokio::join!(alive, keep);
}

/// Writes the Node.
struct Reporter {
    name: String,
    nodes: Api<Node>,
    recorder: Recorder,
    about: ObjectReference,
    /// The conditions reported last.
    conditions: Vec<NodeCondition>,
    /// What the API server has, and since when.
    sent: Option<(NodeStatus, Timestamp)>,
}

impl Reporter {
    /// Makes the Node, or takes over the one that is there; returns its uid. Tries until it succeeds.
    async fn register(&mut self, initial: &Node) -> String {
        self.recorder.event_about(self.about.clone(), EventType::Normal, "Starting", "Starting kubelet.");
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7));
        loop {
            match self.try_register(initial).await {
                Ok(node) => {
                    let status = initial.status.clone().unwrap_or_default();
                    let now = status
                        .conditions
                        .iter()
                        .flatten()
                        .find_map(|c| c.last_heartbeat_time.as_ref().map(|t| t.0))
                        .unwrap_or(Timestamp::UNIX_EPOCH);
                    self.reported(status, now);
                    tracing::info!(node = %self.name, "registered the node");
                    return node.metadata.uid.unwrap_or_default();
                }
                Err(error) => {
                    let delay = backoff.delay();
                    tracing::warn!(node = %self.name, %error, "unable to register the node, will retry");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn try_register(&mut self, initial: &Node) -> Result<Node, Status> {
        match self.nodes.create(initial).await {
            Err(e) if e.is_already_exists() => {}
            answer => return answer,
        }
        let found = self.nodes.get(&self.name).await?;
        let labels = status::missing_labels(initial, &found);
        let annotations = initial.metadata.annotations.clone().unwrap_or_default();
        if !labels.is_empty() {
            let patch = json!({ "metadata": { "labels": labels, "annotations": annotations } });
            self.nodes.patch(&self.name, &Patch::Strategic(patch)).await?;
        }
        self.conditions = found.status.and_then(|s| s.conditions).unwrap_or_default();
        let status = initial.status.clone().unwrap_or_default();
        self.patch(None, &status).await
    }

    /// Sends a status if it is new, or if the last one is old.
    async fn send(&mut self, next: NodeStatus, now: Timestamp) {
        let due = match &self.sent {
            None => true,
            Some((sent, at)) => status::differ(sent, &next) || now.duration_since(*at) >= REPORT,
        };
        if !due {
            return;
        }
        let sent = self.sent.as_ref().map(|(status, _)| status.clone());
        match self.patch(sent.as_ref(), &next).await {
            Ok(_) => self.reported(next, now),
            Err(error) => {
                // The server may have another state than the last one sent.
                self.sent = None;
                tracing::warn!(node = %self.name, %error, "cannot report the node's status, will retry");
            }
        }
    }

    /// Patches what differs from the status that the server has.
    async fn patch(&self, sent: Option<&NodeStatus>, next: &NodeStatus) -> Result<Node, Status> {
        let fields = |status: &NodeStatus| match serde_json::to_value(status) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let before = sent.map(fields).unwrap_or_default();
        let mut after = fields(next);
        after.retain(|key, value| key == "conditions" || before.get(key) != Some(value));
        // Addresses merge by type; only what is listed may stay.
        if let Some(serde_json::Value::Array(addresses)) = after.get_mut("addresses") {
            addresses.push(json!({ "$patch": "replace" }));
        }
        let patch = json!({ "status": after });
        self.nodes.patch_status(&self.name, &Patch::Strategic(patch)).await
    }

    /// Notes a status that the server has taken, and tells of what changed.
    fn reported(&mut self, status: NodeStatus, now: Timestamp) {
        let conditions = status.conditions.clone().unwrap_or_default();
        for reason in status::events(&self.conditions, &conditions) {
            let message = format!("Node {} status is now: {reason}", self.name);
            self.recorder.event_about(self.about.clone(), EventType::Normal, reason, message);
        }
        self.conditions = conditions;
        self.sent = Some((status, now));
    }
}

/// Looks at the machine and the runtime.
struct Observer {
    kubelet: Arc<Kubelet>,
    machine: Machine,
    addresses: Vec<String>,
    reported: Reported,
    runtime: RuntimeState,
    answered: Timestamp,
    listed: Option<Timestamp>,
    image_dir: Option<PathBuf>,
}

impl Observer {
    fn new(kubelet: Arc<Kubelet>) -> Self {
        let config = &kubelet.config;
        let addresses = if config.node_ips.is_empty() {
            machine::default_address().iter().map(ToString::to_string).collect()
        } else {
            config.node_ips.iter().map(ToString::to_string).collect()
        };
        let version = &kubelet.runtime.version;
        let runtime = RuntimeState {
            version: format!(
                "{}://{}",
                version.runtime_name,
                version.runtime_version.trim_start_matches('v')
            ),
            ..RuntimeState::default()
        };
        Self {
            machine: Machine::read(),
            addresses,
            reported: Reported::default(),
            runtime,
            answered: kubelet.clock.now(),
            listed: None,
            image_dir: None,
            kubelet,
        }
    }

    async fn observe(&mut self) -> Observation {
        let now = self.kubelet.clock.now();
        self.ask_runtime(now).await;
        if self.listed.is_none_or(|at| now.duration_since(at) >= LIST_IMAGES) {
            self.list_images(now).await;
        }
        let nodefs = Filesystem::of(existing(&self.kubelet.config.root_dir));
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let room = Room {
            memory: machine::memory_available(&meminfo).map(|available| (self.machine.memory, available)),
            nodefs,
            imagefs: self.image_dir.as_deref().and_then(Filesystem::of),
            pids: Pids::read(),
        };
        let seen = self.kubelet.config.node.eviction_hard.check(&room);
        Observation {
            now,
            machine: self.machine.clone(),
            nodefs,
            pressures: self.reported.observe(now, seen),
            runtime: self.runtime.clone(),
            addresses: self.addresses.clone(),
            max_pods: self.kubelet.config.max_pods,
        }
    }

    async fn ask_runtime(&mut self, now: Timestamp) {
        let request = pb::StatusRequest { verbose: false };
        match self.kubelet.runtime.service().status(request).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                self.answered = now;
                self.runtime.errors = runtime_errors(&answer.status.unwrap_or_default().conditions);
                self.runtime.supplemental_groups_policy =
                    answer.features.map(|f| f.supplemental_groups_policy);
                self.runtime.handlers = answer
                    .runtime_handlers
                    .into_iter()
                    .map(|h| {
                        let features = h.features.unwrap_or_default();
                        (h.name, features.recursive_read_only_mounts, features.user_namespaces)
                    })
                    .collect();
            }
            Err(error) => {
                tracing::warn!(error = error.message(), "the container runtime does not answer");
                if now.duration_since(self.answered) >= RUNTIME_DOWN {
                    self.runtime.errors = vec!["container runtime is down".into()];
                }
            }
        }
    }

    async fn list_images(&mut self, now: Timestamp) {
        let mut images = self.kubelet.runtime.images();
        if let Ok(answer) = images.list_images(pb::ListImagesRequest { filter: None }).await {
            self.listed = Some(now);
            let image = |i: pb::Image| Image {
                names: i.repo_digests.into_iter().chain(i.repo_tags).collect(),
                size: i.size,
            };
            self.runtime.images = answer.into_inner().images.into_iter().map(image).collect();
        }
        if let Ok(answer) = images.image_fs_info(pb::ImageFsInfoRequest {}).await {
            let mount = answer.into_inner().image_filesystems.into_iter().next().and_then(|fs| fs.fs_id);
            self.image_dir = mount.map(|id| PathBuf::from(id.mountpoint));
        }
    }
}

/// The conditions that keep a runtime from running Pods, as the Ready condition words them.
fn runtime_errors(conditions: &[pb::RuntimeCondition]) -> Vec<String> {
    let mut errors = Vec::new();
    for (kind, what) in [("RuntimeReady", "container runtime"), ("NetworkReady", "container runtime network")]
    {
        match conditions.iter().find(|c| c.r#type == kind) {
            None => errors.push(format!("{what} not ready: condition {kind} is not reported")),
            Some(c) if !c.status => errors.push(format!(
                "{what} not ready: {kind}={} reason:{} message:{}",
                c.status, c.reason, c.message
            )),
            Some(_) => {}
        }
    }
    errors
}

/// The nearest directory above a path that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes() {
        let condition = |kind: &str, status: bool| pb::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: "NetworkPluginNotReady".into(),
            message: "no network".into(),
        };
        assert_eq!(
            runtime_errors(&[condition("RuntimeReady", true), condition("NetworkReady", false)]),
            [
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no network"
            ]
        );
        assert!(
            runtime_errors(&[condition("RuntimeReady", true), condition("NetworkReady", true)]).is_empty()
        );
        assert_eq!(runtime_errors(&[]).len(), 2);
    }
}
