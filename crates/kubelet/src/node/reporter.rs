//! Registers the Node and brings its status up to date, from the Node as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::gate::Gate;
use client::{Api, Backoff, Client, EventType, Informer, Patch, Recorder};
use k8s_openapi::api::core::v1::{Node, NodeStatus, ObjectReference};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use super::status::{self, Observation};
use crate::config::Config;
use crate::recorder;

/// How often an update is tried at once; upstream's.
const ATTEMPTS: usize = 5;

/// Writes the Node.
pub(super) struct Reporter {
    name: String,
    config: Arc<Config>,
    nodes: Api<Node>,
    /// The Node as the watch shows it.
    lister: Informer<Node>,
    recorder: Recorder,
    about: ObjectReference,
    /// The Node as the last write left it; the watch may not have shown it yet.
    written: Option<Node>,
    reported: Option<Instant>,
    /// How much later than after `report` the next heartbeat is due, so that nodes that changed
    /// together do not report together. In seconds, and may be negative.
    delay: f64,
    unschedulable: bool,
    rebooted: bool,
}

fn revision(node: &Node) -> u64 {
    node.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// The newer of two states; that of the watch decides which Node it is.
fn newer(seen: Option<&Node>, written: Option<&Node>) -> Option<Node> {
    match (seen, written) {
        (Some(seen), Some(written))
            if seen.metadata.uid == written.metadata.uid && revision(written) > revision(seen) =>
        {
            Some(written.clone())
        }
        (Some(seen), _) => Some(seen.clone()),
        (None, _) => None,
    }
}

impl Reporter {
    pub(super) fn new(
        client: &Client,
        lister: Informer<Node>,
        recorder: Recorder,
        config: &Arc<Config>,
    ) -> Self {
        let name = config.node_name.clone();
        Self {
            about: recorder::node(&name),
            name,
            config: config.clone(),
            nodes: client.api(""),
            lister,
            recorder,
            written: None,
            reported: None,
            delay: 0.0,
            unschedulable: false,
            rebooted: false,
        }
    }

    /// Makes the Node, or takes over the one that is there. Tries until it succeeds. A machine that is `new` knows of no
    /// devices yet.
    pub(super) async fn register(&mut self, initial: &Node, new: bool) {
        self.recorder.event_about(self.about.clone(), EventType::Normal, "Starting", "Starting kubelet.");
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7));
        loop {
            match self.try_register(initial, new).await {
                Ok(()) => {
                    tracing::info!(node = %self.name, "registered the node");
                    return;
                }
                Err(error) => {
                    let delay = backoff.delay();
                    tracing::warn!(node = %self.name, %error, "unable to register the node, will retry");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn try_register(&mut self, initial: &Node, new: bool) -> Result<(), Status> {
        match self.nodes.create(initial).await {
            Err(e) if e.is_already_exists() => {}
            // A kubelet that may not make Nodes may have one that somebody else made.
            Err(e)
                if e.code == 403 && !self.config.gates.enabled(Gate::KubeletRegistrationGetOnExistsOnly) => {}
            Err(e) => return Err(e),
            Ok(node) => {
                let status = node.status.clone().unwrap_or_default();
                self.tell(&NodeStatus::default(), &status);
                self.reported = Some(Instant::now());
                self.written = Some(node);
                return Ok(());
            }
        }
        let found = self.nodes.get(&self.name).await?;
        let found = match takeover(initial, &found, new) {
            Some(patch) => self.nodes.patch_status(&self.name, &Patch::Strategic(patch)).await?,
            None => found,
        };
        self.written = Some(found);
        Ok(())
    }

    /// Brings the Node to what was observed: begins with the Node as it is, whoever wrote it last.
    pub(super) async fn sync(&mut self, o: &Observation) {
        for attempt in 0..ATTEMPTS {
            let synced = timeout(self.config.node.update, self.try_sync(o, attempt == 0)).await;
            match synced.unwrap_or_else(|_| Err(Status::failure(504, "Timeout", "context deadline exceeded")))
            {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(node = %self.name, %error, "cannot report the node's status, will retry");
                    // An API server that hangs is asked again in the next round.
                    if error.code == 504 {
                        return;
                    }
                }
            }
        }
    }

    async fn try_sync(&mut self, o: &Observation, from_watch: bool) -> Result<(), Status> {
        let node = if from_watch {
            let seen = self.lister.get("", &self.name);
            let known = if self.lister.is_synced() || seen.is_some() {
                newer(seen.as_deref(), self.written.as_ref())
            } else {
                self.written.clone()
            };
            match known {
                Some(node) => node,
                None => self.nodes.get(&self.name).await?,
            }
        } else {
            self.nodes.get(&self.name).await?
        };
        self.tell_of_node(&node, o);
        let old = node.status.clone().unwrap_or_default();
        let next = status::status(&self.name, &self.config, o, &old);
        let labels = status::required_labels(&node, &o.machine);
        let annotations = status::provided_addresses(&self.config.node, &o.addresses, &node);
        let changed = !labels.is_empty() || !annotations.is_empty() || status::differ(&old, &next);
        let due = self.reported.is_none_or(|at| {
            at.elapsed().as_secs_f64() >= self.config.node.report.as_secs_f64() + self.delay
        });
        if !changed && !due {
            return Ok(());
        }
        self.delay = if changed || self.reported.is_none() {
            self.config.node.report.as_secs_f64() * (fastrand::f64() - 0.5)
        } else {
            0.0
        };
        let mut patch = json!({ "status": difference(&old, &next) });
        if !labels.is_empty() {
            patch["metadata"]["labels"] = json!(labels);
        }
        if !annotations.is_empty() {
            patch["metadata"]["annotations"] = json!(annotations);
        }
        let answer = self.nodes.patch_status(&self.name, &Patch::Strategic(patch)).await?;
        self.reported = Some(Instant::now());
        self.tell(&old, &next);
        self.written = Some(answer);
        Ok(())
    }

    fn event(&self, kind: EventType, reason: &str, message: String) {
        self.recorder.event_about(self.about.clone(), kind, reason, message);
    }

    /// Tells of conditions that changed.
    fn tell(&self, old: &NodeStatus, new: &NodeStatus) {
        let conditions = |s: &NodeStatus| s.conditions.clone().unwrap_or_default();
        for reason in status::events(&conditions(old), &conditions(new)) {
            self.event(EventType::Normal, reason, format!("Node {} status is now: {reason}", self.name));
        }
    }

    /// Tells of a new boot, and of what others decided about the Node.
    fn tell_of_node(&mut self, node: &Node, o: &Observation) {
        let boot = node.status.as_ref().and_then(|s| s.node_info.as_ref()).map(|i| i.boot_id.as_str());
        if !self.rebooted && boot.is_some_and(|b| !b.is_empty() && b != o.machine.boot_id) {
            self.rebooted = true;
            let message = format!("Node {} has been rebooted, boot id: {}", self.name, o.machine.boot_id);
            self.event(EventType::Warning, "Rebooted", message);
        }
        let unschedulable = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or_default();
        if std::mem::replace(&mut self.unschedulable, unschedulable) != unschedulable {
            let reason = if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
            self.event(EventType::Normal, reason, format!("Node {} status is now: {reason}", self.name));
        }
    }
}

/// A strategic merge patch by which a Node that is there becomes this kubelet's; none if nothing changes.
fn takeover(initial: &Node, found: &Node, new: bool) -> Option<Value> {
    let labels = status::changed_labels(initial, found);
    let annotations = status::managed_attach(initial, found);
    let gone = if new { status::zeroed(found) } else { BTreeMap::new() };
    let changes = !(labels.is_empty() && annotations.is_empty() && gone.is_empty());
    changes.then(|| {
        json!({
            "metadata": { "labels": labels, "annotations": annotations },
            "status": { "capacity": gone, "allocatable": gone },
        })
    })
}

/// A strategic merge patch from one status to another.
fn difference(old: &NodeStatus, new: &NodeStatus) -> Map<String, Value> {
    let fields = |status: &NodeStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let mut patch = merge(&fields(old), &fields(new));
    if let Some(conditions) = patch.get_mut("conditions").and_then(Value::as_array_mut) {
        // They merge by type: those of others stay as they are.
        let before = old.conditions.clone().unwrap_or_default();
        let before: Vec<Value> = before.iter().filter_map(|c| serde_json::to_value(c).ok()).collect();
        conditions.retain(|c| !before.contains(c));
    }
    // Addresses merge by type; only what is listed may stay.
    if let Some(addresses) = patch.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.push(json!({ "$patch": "replace" }));
    }
    patch
}

/// The fields of an object that must be set, and those that must go.
fn merge(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, value) in new {
        match (old.get(key), value) {
            (Some(before), _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(key.clone(), Value::Object(merge(before, after)));
            }
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}
