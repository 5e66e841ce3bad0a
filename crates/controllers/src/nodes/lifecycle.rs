//! Node lifecycle: writes that silent nodes' conditions are unknown, taints nodes by their conditions, and keeps older
//! labels in step with newer ones (upstream: `pkg/controller/nodelifecycle`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{
    Cached, Change, Client, EventType, Informer, Key, Patch, Queue, Recorder, Selection, resource_of,
};
use component::Clock;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::health::{Grace, Health, Now, is_silent, look, readiness, unknown};
use super::taints::{self, Swap};
use super::zones::{Disruption, Zones, zone_of};
use super::{labels, metrics};
use crate::common::pods::Pods;
use crate::common::within;
use crate::config::NodeMonitor;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, PodView, Truth, nodes};

const LEASES: &str = "kube-node-lease";
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// The number of nodes that are written at a time, for each kind of write.
const WORKERS: usize = 8;
/// The number of nodes whose Pods are marked at a time, and of Pods of each node.
const POD_WORKERS: usize = 4;
/// The time for which changes of several nodes are gathered before a look.
const GATHER: Duration = Duration::from_millis(50);

/// The controller, which keeps the NoSchedule taints and the labels of each node in step with its state, and has a
/// [`Monitor`] look at all nodes.
pub(crate) struct Lifecycle {
    writer: Arc<Writer>,
    /// The monitor, until its task starts.
    monitor: Mutex<Option<Monitor>>,
}

impl Controller for Lifecycle {
    const NAME: &'static str = "node-lifecycle-controller";
    const ALIASES: &'static [&'static str] = &["nodelifecycle"];
    const ACCOUNT: &'static str = "node-controller";
    const QUEUE: &'static str = "node_lifecycle_controller";
    const WORKERS: usize = WORKERS;
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let leases = Selection { namespace: LEASES.to_owned(), ..Selection::default() };
        let writer = Arc::new(Writer {
            recorder: host.recorder("node-controller"),
            client: host.client(),
            clock: host.clock(),
            pods: Pods::of(host.factory()),
            nodes: nodes(host.factory()),
            silent: host.queue("node_lifecycle_controller_silent"),
            unmarked: host.queue("node_lifecycle_controller_pods"),
            bound: host.queue("node_lifecycle_controller_bound_pods"),
            tainted: host.queue("node_lifecycle_controller_taints"),
            swaps: Mutex::default(),
            metrics: metrics::Lifecycle::default(),
        });
        let reported = writer.clone();
        host.metrics().register(Self::NAME, move |page| reported.metrics.report(page));
        let monitor = Monitor {
            writer: writer.clone(),
            figures: host.config().node_monitor,
            leases: host.select(resource_of::<Lease>(), leases),
            known: HashMap::new(),
            health: HashMap::new(),
            zones: Zones::default(),
        };
        Self { writer, monitor: Mutex::new(Some(monitor)) }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, woken) = (wiring.queue(), Arc::new(Notify::new()));
        let wake = woken.clone();
        self.writer.nodes.handle(move |change| {
            let node = change.object();
            let lacks = || !taints::no_schedule(node).is_empty() || !labels::missing(node).is_empty();
            if !matches!(change, Change::Deleted(_)) && lacks() {
                queue.add(node.key());
            }
            if let Change::Updated { old, new } = change
                && readiness(old) != readiness(new)
            {
                wake.notify_one();
            }
        });
        let w = self.writer.clone();
        self.writer.pods.handle(move |change| {
            if let Some(pod) = comes_ready(change) {
                w.bound.add(pod.key());
            }
        });
        self.writer.work(wiring);
        if let Some(mut monitor) = self.monitor.lock().take() {
            wiring.spawn(async move { monitor.follow(&woken).await });
        }
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let w = &self.writer;
        let Some(node) = w.nodes.get_key(&key) else { return Ok(Next::Done) };
        let swap = taints::no_schedule(&node);
        if !swap.is_empty() {
            within(taints::write(&w.client, &key.name, &swap, w.clock.now())).await?;
        }
        let labels = labels::missing(&node);
        if !labels.is_empty() {
            w.label(&node, &json!(labels)).await?;
        }
        Ok(Next::Done)
    }
}

/// Writes to single nodes. Nothing waits for it: each node has its own attempts.
struct Writer {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    nodes: Informer<NodeView>,
    pods: Pods,
    /// The nodes whose conditions must become unknown.
    silent: Queue<Silent>,
    /// The nodes whose Pods must be marked as not ready, in the state before their conditions became unknown.
    unmarked: Queue<Silent>,
    /// The Pods that came to a node as ready ones, which it may not be. After a start these are all: the controller before
    /// may have ended between a node and its Pods.
    bound: Queue<Key>,
    /// The nodes whose NoExecute taints must change, as `swaps` has it.
    tainted: Queue<Key>,
    swaps: Mutex<HashMap<String, Swap>>,
    metrics: metrics::Lifecycle,
}

/// A silent node in one state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Silent {
    name: String,
    /// The version of the node; after another write, perhaps a heartbeat, the next look decides.
    resource_version: String,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Writer {
    fn work(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let w = self.clone();
        wiring.work(&self.silent, "node-lifecycle-silent", WORKERS, move |silent| {
            let w = w.clone();
            async move { w.say_silent(silent).await.map(|()| Next::Done) }
        });
        let w = self.clone();
        wiring.work(&self.unmarked, "node-lifecycle-pods", POD_WORKERS, move |silent| {
            let w = w.clone();
            async move { w.mark_pods(&silent).await.map(|()| Next::Done) }
        });
        let w = self.clone();
        wiring.work(&self.bound, "node-lifecycle-bound-pods", POD_WORKERS, move |key: Key| {
            let w = w.clone();
            async move { w.look_at_bound(&key).await.map(|()| Next::Done) }
        });
        let w = self.clone();
        wiring.work(&self.tainted, "node-lifecycle-taints", WORKERS, move |key: Key| {
            let w = w.clone();
            async move { w.swap(&key.name).await.map(|()| Next::Done) }
        });
    }

    /// Writes that the conditions of a node are unknown.
    async fn say_silent(&self, silent: Silent) -> Result<(), Status> {
        let Some(node) = self.nodes.get("", &silent.name) else { return Ok(()) };
        if node.metadata.resource_version.as_deref() != Some(&silent.resource_version) {
            return Ok(());
        }
        let was_ready = readiness(&node) == "True";
        let conditions = unknown(&node, self.clock.now());
        let patch = json!({
            "metadata": {"uid": node.metadata.uid, "resourceVersion": silent.resource_version},
            "status": {"conditions": conditions},
        });
        let api = self.client.resource::<NodeView>(resource_of::<Node>(), "");
        match within(api.patch_status(&silent.name, &Patch::Strategic(patch))).await {
            Ok(_) => {
                if was_ready {
                    super::record_status(&self.recorder, &node, "NodeNotReady");
                    self.unmarked.add(silent);
                }
                Ok(())
            }
            Err(e) if e.is_not_found() || e.is_conflict() => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Marks a node's Pods as not ready, unless the node has become ready.
    async fn mark_pods(&self, silent: &Silent) -> Result<(), Status> {
        let Some(node) = self.nodes.get("", &silent.name) else { return Ok(()) };
        let late = node.metadata.resource_version.as_deref() == Some(&silent.resource_version);
        if readiness(&node) == "True" && !late {
            return Ok(());
        }
        let pods = self.pods.on_node(&silent.name);
        let marks = stream::iter(pods).map(|pod| async move { self.mark(&pod).await });
        let results: Vec<_> = marks.buffer_unordered(POD_WORKERS).collect().await;
        results.into_iter().collect()
    }

    /// Marks a Pod as not ready if its node is not. A node that says nothing of it yet is new.
    async fn look_at_bound(&self, key: &Key) -> Result<(), Status> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(()) };
        let Some(node) = self.nodes.get("", &pod.node) else { return Ok(()) };
        if matches!(readiness(&node), "" | "True") {
            return Ok(());
        }
        self.mark(&pod).await
    }

    async fn mark(&self, pod: &PodView) -> Result<(), Status> {
        if pod.ready.as_ref().is_none_or(|c| c.status == Truth::False) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"uid": pod.uid()},
            "status": {"conditions": [{
                "type": "Ready", "status": "False", "lastTransitionTime": Time(self.clock.now()),
            }]},
        });
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), pod.namespace());
        match within(api.patch_status(pod.name(), &Patch::Strategic(patch))).await {
            Ok(_) => {
                let about = pod.reference();
                self.recorder.event_about(about, EventType::Warning, "NodeNotReady", "Node is not ready");
            }
            Err(e) if e.is_not_found() || e.is_conflict() => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Writes labels of a node.
    async fn label(&self, node: &NodeView, labels: &serde_json::Value) -> Result<(), Status> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {"uid": node.metadata.uid, "labels": labels}});
        let api = self.client.resource::<NodeView>(resource_of::<Node>(), "");
        match within(api.patch(name, &Patch::Strategic(patch))).await {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(()),
        }
    }

    /// Queues a change of a node's NoExecute taints, or removes it from the queue if the change is empty.
    fn want(&self, name: &str, swap: Swap) {
        let mut swaps = self.swaps.lock();
        if swap.is_empty() {
            swaps.remove(name);
        } else if swaps.insert(name.to_owned(), swap.clone()) != Some(swap) {
            self.tainted.add(Key::new("", name));
        }
    }

    async fn swap(&self, name: &str) -> Result<(), Status> {
        let Some(swap) = self.swaps.lock().get(name).cloned() else { return Ok(()) };
        within(taints::write(&self.client, name, &swap, self.clock.now())).await?;
        if let Some(node) = self.nodes.get("", name).filter(|_| swap.remove.is_empty()) {
            self.metrics.evicted(&zone_of(&node));
        }
        let mut swaps = self.swaps.lock();
        if swaps.get(name) == Some(&swap) {
            swaps.remove(name);
        }
        Ok(())
    }
}

/// Runs a look; a panic about one odd node must not end the care for all others.
fn guarded(about: &str, look: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(look)).is_err() {
        tracing::error!(controller = "node-lifecycle", about, "a look panicked, will retry");
    }
}

struct Monitor {
    writer: Arc<Writer>,
    figures: NodeMonitor,
    leases: Informer<Lease>,
    /// The nodes about whose registration an Event was sent.
    known: HashMap<String, Arc<NodeView>>,
    health: HashMap<String, Health>,
    zones: Zones,
}

impl Monitor {
    /// Looks at all nodes again and again, and when the readiness of one changes. It waits for no answer.
    async fn follow(&mut self, woken: &Notify) {
        let mut tick = tokio::time::interval(self.figures.period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                // Changes of many nodes at once are handled in one look.
                () = woken.notified() => tokio::time::sleep(GATHER).await,
            }
            let begun = self.writer.clock.monotonic();
            guarded("all nodes", || self.look_at_all());
            self.writer.metrics.looked_at_all(self.writer.clock.monotonic() - begun);
        }
    }

    fn look_at_all(&mut self) {
        let clock = self.writer.clock;
        let now = Now { monotonic: clock.monotonic(), day: clock.now() };
        let nodes = self.writer.nodes.list();
        self.register(&nodes);
        for node in &nodes {
            let begun = clock.monotonic();
            guarded(node.metadata.name.as_deref().unwrap_or_default(), || self.check(node, now));
            self.writer.metrics.looked(clock.monotonic() - begun);
        }
        self.taint(&nodes, now);
    }

    fn register(&mut self, nodes: &[Arc<NodeView>]) {
        let recorder = &self.writer.recorder;
        for node in nodes {
            let name = name_of(node);
            if let Some(known) = self.known.get_mut(name) {
                if !Arc::ptr_eq(known, node) {
                    *known = Arc::clone(node);
                }
                continue;
            }
            let text = format!("Node {name} event: Registered Node {name} in Controller");
            recorder.event_about(super::reference(node), EventType::Normal, "RegisteredNode", text);
            self.known.insert(name.to_owned(), Arc::clone(node));
        }
        if self.known.len() == nodes.len() {
            return;
        }
        let there: HashSet<&str> = nodes.iter().map(|node| name_of(node)).collect();
        self.known.retain(|name, node| {
            let stays = there.contains(name.as_str());
            if !stays {
                let text = format!("Node {name} event: Removing Node {name} from Controller");
                recorder.event_about(super::reference(node), EventType::Normal, "RemovingNode", text);
            }
            stays
        });
        self.health.retain(|name, _| there.contains(name.as_str()));
        self.writer.swaps.lock().retain(|name, _| there.contains(name.as_str()));
    }

    /// Looks for a node's signs of life, and queues it if it is silent.
    fn check(&mut self, node: &NodeView, now: Now) {
        let name = name_of(node);
        let lease = self.leases.get(LEASES, name);
        let renewed = lease.and_then(|l| l.spec.as_ref()?.renew_time.as_ref().map(|t| t.0));
        let health = look(self.health.get(name), node, renewed, now);
        let grace = Grace { running: self.figures.grace, starting: self.figures.startup_grace };
        if is_silent(node, &health, grace, now) {
            let resource_version = node.metadata.resource_version.clone().unwrap_or_default();
            self.writer.silent.add(Silent { name: name.to_owned(), resource_version });
        }
        match self.health.get_mut(name) {
            Some(known) => *known = health,
            None => drop(self.health.insert(name.to_owned(), health)),
        }
    }

    /// Queues the necessary changes of NoExecute taints.
    fn taint(&mut self, nodes: &[Arc<NodeView>], now: Now) {
        let zones: Vec<String> = nodes.iter().map(|node| zone_of(node)).collect();
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (node, zone) in nodes.iter().zip(&zones).filter(|(node, _)| !is_excluded(node)) {
            let ready = readiness(node) == "True";
            let one = (usize::from(ready), usize::from(!ready));
            match counts.get_mut(zone) {
                Some(count) => *count = (count.0 + one.0, count.1 + one.1),
                None => drop(counts.insert(zone.clone(), one)),
            }
        }
        self.writer.metrics.zones(&counts);
        match self.zones.count(&counts, &self.figures.rates, now.monotonic) {
            Disruption::None => {}
            Disruption::Begins => {
                for node in nodes {
                    self.writer.want(name_of(node), taints::no_execute(node, "True"));
                }
                return;
            }
            Disruption::Ends => self.health.values_mut().for_each(|h| h.revive(now)),
        }
        for (node, zone) in nodes.iter().zip(&zones) {
            let (name, swap) = (name_of(node), taints::no_execute(node, readiness(node)));
            // A taint that only changes its name is changed at once, like one that goes.
            let waits = !swap.add.is_empty() && swap.remove.is_empty();
            let begun = waits && self.writer.swaps.lock().get(name) == Some(&swap);
            self.zones.want(zone, name, waits && !begun);
            if !begun {
                self.writer.want(name, if waits { Swap::default() } else { swap });
            }
        }
        let due: HashSet<String> = self.zones.due(now.monotonic).into_iter().collect();
        for node in nodes.iter().filter(|node| due.contains(name_of(node))) {
            self.writer.want(name_of(node), taints::no_execute(node, readiness(node)));
        }
    }
}

fn name_of(node: &NodeView) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The Pod of a change by which it came to a node, if it says that it is ready, or perhaps.
fn comes_ready(change: &Change<PodView>) -> Option<&PodView> {
    let pod = match change {
        Change::Added(pod) => pod,
        Change::Updated { old, new } if old.node != new.node => new,
        Change::Updated { .. } | Change::Deleted(_) => return None,
    };
    let ready = pod.ready.as_ref().is_some_and(|c| c.status != Truth::False);
    (ready && !pod.node.is_empty()).then_some(pod)
}

fn is_excluded(node: &NodeView) -> bool {
    node.metadata.labels.as_ref().is_some_and(|l| l.contains_key(EXCLUDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods are looked at when they come to a node (upstream's `podUpdated`), not when they say something later.
    #[test]
    fn pods_that_come_to_a_node() {
        let pod = |node: &str, ready: Option<&str>| {
            let conditions = ready.map(|status| json!([{"type": "Ready", "status": status}]));
            let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": []},
                "status": {"conditions": conditions}});
            Arc::new(crate::views::tests::view(&pod))
        };
        let check = |change: Change<PodView>, want: bool| {
            assert_eq!(comes_ready(&change).is_some(), want, "{change:?}");
        };
        check(Change::Added(pod("n", Some("True"))), true);
        check(Change::Added(pod("n", Some("Unknown"))), true);
        check(Change::Added(pod("n", Some("False"))), false);
        check(Change::Added(pod("n", None)), false);
        check(Change::Added(pod("", Some("True"))), false);
        check(Change::Deleted(pod("n", Some("True"))), false);
        let changed = |node: &str| Change::Updated { old: pod(node, None), new: pod("n", Some("True")) };
        check(changed(""), true);
        check(changed("n"), false);
    }

    /// Upstream's cases of `Test_isNodeExcludedFromDisruptionChecks`.
    #[test]
    fn nodes_that_do_not_count() {
        let check = |labels: serde_json::Value, want: bool| {
            let node = json!({"metadata": {"name": "master-abc", "labels": labels},
                "status": {"conditions": [{"type": "Test", "status": "True"}]}});
            let node: NodeView = serde_json::from_value(node).unwrap();
            assert_eq!(is_excluded(&node), want, "{labels}");
        };
        check(json!({}), false);
        check(json!(null), false);
        check(json!({EXCLUDED: ""}), true);
    }
}
