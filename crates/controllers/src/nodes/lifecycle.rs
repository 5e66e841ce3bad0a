//! Node lifecycle: says of silent nodes that nothing is known of them, and taints nodes by their
//! conditions (upstream: `pkg/controller/nodelifecycle`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{
    Change, Client, EventType, Factory, Informer, Key, Patch, Queue, Recorder, Selection, resource_of,
};
use component::{Clock, Shutdown};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use super::health::{Grace, Health, look, readiness, silenced};
use super::taints::{self, Swap};
pub use super::zones::EvictionRates;
use super::zones::{Disruption, Zones, zone_of};
use crate::common::pods;

const LEASES: &str = "kube-node-lease";
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// Figures; upstream's by default.
#[derive(Debug, Clone, Copy)]
pub struct NodeMonitor {
    /// Time between two looks at all nodes.
    pub period: Duration,
    /// How long a node may be silent.
    pub grace: Duration,
    /// How long a node may be silent before it has posted a status at all.
    pub startup_grace: Duration,
    /// How fast Pods are evicted.
    pub rates: EvictionRates,
}

impl Default for NodeMonitor {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(5),
            grace: Duration::from_secs(50),
            startup_grace: Duration::from_mins(1),
            rates: EvictionRates::default(),
        }
    }
}

/// Starts it.
pub(crate) fn start(
    client: Client,
    clock: Clock,
    figures: NodeMonitor,
    factory: &Factory,
    shutdown: &Shutdown,
) {
    let nodes = factory.informer::<Node>();
    let queue = Queue::<Key>::default();
    let enqueue = queue.clone();
    nodes.handle(move |change| {
        let node = change.object();
        if !matches!(change, Change::Deleted(_)) && !taints::no_schedule(node).is_empty() {
            enqueue.add(client::Cached::key(&**node));
        }
    });
    let leases = Selection { namespace: LEASES.to_owned(), ..Selection::default() };
    let mut monitor = Monitor {
        recorder: Recorder::start(client.clone(), "node-controller", "", clock, shutdown),
        client: client.clone(),
        clock,
        figures,
        leases: factory.select(resource_of::<Lease>(), leases),
        pods: pods::informer(factory),
        nodes: nodes.clone(),
        known: HashMap::new(),
        health: HashMap::new(),
        unmarked: HashSet::new(),
        zones: Zones::default(),
    };
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("node-lifecycle", 8, shutdown, move |key| {
            let swap = nodes.get_key(&key).map(|n| taints::no_schedule(&n)).unwrap_or_default();
            let client = client.clone();
            async move {
                if swap.is_empty() {
                    return Ok(());
                }
                taints::write(&client, &key.name, &swap, clock.now()).await
            }
        });
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            let _ = stop.run(monitor.follow()).await;
        });
    });
}

struct Monitor {
    client: Client,
    clock: Clock,
    figures: NodeMonitor,
    recorder: Recorder,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    /// The nodes that were told to be registered.
    known: HashMap<String, Arc<Node>>,
    health: HashMap<String, Health>,
    /// Nodes whose Pods still have to be marked as not ready.
    unmarked: HashSet<String>,
    zones: Zones,
}

impl Monitor {
    async fn follow(&mut self) {
        let mut tick = tokio::time::interval(self.figures.period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let nodes = self.nodes.list();
            self.register(&nodes);
            let mut states = Vec::with_capacity(nodes.len());
            for node in nodes {
                states.push(self.check(node).await);
            }
            self.taint(&states).await;
        }
    }

    fn register(&mut self, nodes: &[Arc<Node>]) {
        let now: HashMap<String, Arc<Node>> =
            nodes.iter().map(|n| (n.metadata.name.clone().unwrap_or_default(), n.clone())).collect();
        for (name, node) in &now {
            if !self.known.contains_key(name) {
                let text = format!("Node {name} event: Registered Node {name} in Controller");
                self.recorder.event_about(super::reference(node), EventType::Normal, "RegisteredNode", text);
            }
        }
        for (name, node) in &self.known {
            if !now.contains_key(name) {
                let text = format!("Node {name} event: Removing Node {name} from Controller");
                self.recorder.event_about(super::reference(node), EventType::Normal, "RemovingNode", text);
            }
        }
        self.health.retain(|name, _| now.contains_key(name));
        self.unmarked.retain(|name| now.contains_key(name));
        self.known = now;
    }

    /// Looks whether a node is heard of, and says so if not; the node as it is then.
    async fn check(&mut self, mut node: Arc<Node>) -> Arc<Node> {
        let name = node.metadata.name.clone().unwrap_or_default();
        let renewed = self.leases.get(LEASES, &name).and_then(|l| l.spec.as_ref()?.renew_time.clone());
        let now = self.clock.now();
        let health = look(self.health.get(&name), &node, renewed.map(|t| t.0), now);
        let grace = Grace { running: self.figures.grace, starting: self.figures.startup_grace };
        if let Some(conditions) = silenced(&node, &health, grace, now) {
            let was_ready = readiness(&node) == "True";
            let mut changed = (*node).clone();
            changed.status.get_or_insert_default().conditions = Some(conditions);
            match self.client.api::<Node>("").update_status(&changed).await {
                Ok(updated) => {
                    node = Arc::new(updated);
                    if was_ready {
                        super::record_status(&self.recorder, &node, "NodeNotReady");
                        self.unmarked.insert(name.clone());
                    }
                }
                // Another write came between, perhaps a heartbeat: the next look tells.
                Err(error) => tracing::debug!(node = name, %error, "unable to write a node's status"),
            }
        }
        self.health.insert(name.clone(), health);
        if readiness(&node) == "True" {
            self.unmarked.remove(&name);
        } else if self.unmarked.contains(&name) {
            match self.mark_pods(&name).await {
                Ok(()) => {
                    self.unmarked.remove(&name);
                }
                Err(error) => tracing::debug!(node = name, %error, "unable to mark pods as not ready"),
            }
        }
        node
    }

    /// Says of a node's Pods that they are not ready.
    async fn mark_pods(&self, node: &str) -> Result<(), Status> {
        let mut result = Ok(());
        for pod in self.pods.by_index(pods::BY_NODE, node) {
            if pods::condition(&pod, "Ready").is_none_or(|c| c.status == "False") {
                continue;
            }
            let patch = json!({
                "metadata": {"uid": pod.metadata.uid},
                "status": {"conditions": [{
                    "type": "Ready", "status": "False", "lastTransitionTime": Time(self.clock.now()),
                }]},
            });
            let api = self.client.api::<Pod>(pod.metadata.namespace.as_deref().unwrap_or_default());
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            match api.patch_status(name, &Patch::Strategic(patch)).await {
                Ok(_) => self.recorder.event(&*pod, EventType::Warning, "NodeNotReady", "Node is not ready"),
                Err(e) if e.is_not_found() => {}
                Err(e) => result = Err(e),
            }
        }
        result
    }

    /// Gives and takes the NoExecute taints.
    async fn taint(&mut self, nodes: &[Arc<Node>]) {
        let now = self.clock.now();
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for node in nodes.iter().filter(|n| !is_excluded(n)) {
            let count = counts.entry(zone_of(node)).or_default();
            if readiness(node) == "True" {
                count.0 += 1;
            } else {
                count.1 += 1;
            }
        }
        match self.zones.count(&counts, &self.figures.rates, now) {
            Disruption::None => {}
            Disruption::Begins => {
                for node in nodes {
                    self.swap(node, &taints::no_execute(node, "True")).await;
                }
                return;
            }
            Disruption::Ends => self.health.values_mut().for_each(|h| h.alive = now),
        }
        for node in nodes {
            let swap = taints::no_execute(node, readiness(node));
            let name = node.metadata.name.as_deref().unwrap_or_default();
            // A taint that only changes its name is changed at once, as one that goes.
            let waits = !swap.add.is_empty() && swap.remove.is_empty();
            self.zones.want(&zone_of(node), name, waits);
            if !waits {
                self.swap(node, &swap).await;
            }
        }
        for name in self.zones.due(now) {
            if let Some(node) = nodes.iter().find(|n| n.metadata.name.as_deref() == Some(&name)) {
                self.swap(node, &taints::no_execute(node, readiness(node))).await;
            }
        }
    }

    async fn swap(&self, node: &Node, swap: &Swap) {
        if swap.is_empty() {
            return;
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Err(error) = taints::write(&self.client, name, swap, self.clock.now()).await {
            tracing::debug!(node = name, %error, "unable to write a node's taints, will retry");
        }
    }
}

fn is_excluded(node: &Node) -> bool {
    node.metadata.labels.as_ref().is_some_and(|l| l.contains_key(EXCLUDED))
}
