//! Keeps a node's pod network in step with the Nodes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Informer, Patch, Selection};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use netlink::Routing;
use objects::Cidr;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::filter::Ranges;
use crate::firewall;
use crate::nodes::{self, Machine, Tunnel};
use crate::place::{Installed, Place};
use crate::pods::Facts;
use crate::sysctl;

/// The longest packet where no link tells.
const USUAL_MTU: u32 = 1500;

/// The time after which the machine is looked at again though no Node has changed: links and routes are others', too.
const AGAIN: Duration = Duration::from_secs(30);

/// The settings of a node's pod network.
#[derive(Debug, Clone)]
pub struct Options {
    /// The Node's name.
    pub node: String,
    /// The Pods' ranges of the whole cluster.
    pub cluster: Vec<Cidr>,
    /// Further ranges where a Pod's own address is understood: what goes there keeps it.
    pub inside: Vec<Cidr>,
    /// The tunnel to nodes that share no link with this one.
    pub tunnel: Tunnel,
    /// Whether a runtime executes the plugin, which must be there for it then; one of this process asks the agent.
    pub plugin: bool,
}

/// The API server, for those who ask it.
#[derive(Clone)]
pub struct Clients {
    /// May read all Nodes.
    pub nodes: Client,
    /// May write the status of the own Node.
    pub own: Client,
}

/// Keeps the pod network of a node in step until `shutdown`; `agent` is that of `place`.
pub async fn run(
    agent: Agent,
    clients: Clients,
    options: Options,
    place: Place,
    clock: Clock,
    shutdown: Shutdown,
) {
    let nodes: Informer<Node> = Informer::new(&clients.nodes, Selection::default());
    let changed = Arc::new(tokio::sync::Notify::new());
    let notify = changed.clone();
    nodes.handle(move |_| notify.notify_one());
    nodes.start(&shutdown);
    let follow = async {
        // Before all Nodes are known, those that are not look as if they were gone.
        nodes.synced().await;
        let mut teller = Teller::default();
        let mut done = None;
        loop {
            if let Some(node) = nodes.get("", &options.node) {
                let (own, others) = machines(&node, nodes.list().iter().map(AsRef::as_ref));
                if !own.blocks.is_empty() {
                    let wanted = (own, others);
                    let work = (place.clone(), agent.clone(), options.clone(), wanted.clone());
                    // The kernel is asked by calls that block.
                    let applied = tokio::task::spawn_blocking(move || {
                        let (place, agent, options, (own, others)) = work;
                        apply(&place, &agent, &options, &own, &others)
                    });
                    let applied = applied.await.unwrap_or_default();
                    if applied.ours {
                        tell_node(&clients.own, &node, applied.reached, clock).await;
                    }
                    teller.tell(applied.sentences);
                    done = Some(wanted);
                }
            }
            // A Node changes with each report of its kubelet; only what concerns the network counts.
            loop {
                if tokio::time::timeout(AGAIN, changed.notified()).await.is_err() {
                    break;
                }
                let Some(node) = nodes.get("", &options.node) else { continue };
                let now = machines(&node, nodes.list().iter().map(AsRef::as_ref));
                if done.as_ref() != Some(&now) {
                    break;
                }
            }
        }
    };
    let _ = shutdown.run(follow).await;
}

/// The outcome of a look at the machine.
#[derive(Default)]
struct Applied {
    /// Whether the runtime uses this network.
    ours: bool,
    /// Whether there are ways to the Pods of all nodes.
    reached: bool,
    /// The sentences that the machine's owner should read.
    sentences: Vec<String>,
}

/// Brings the machine in step.
fn apply(place: &Place, agent: &Agent, options: &Options, own: &Machine, others: &[Machine]) -> Applied {
    let mut sentences = sysctl::allow_forwarding(own.blocks.iter().any(|block| block.is_v6()));
    let link = default_mtu().unwrap_or(USUAL_MTU);
    let mut reached = nodes::reach(place, options.tunnel, link, own, others).unwrap_or_else(|error| {
        let sentence = format!("Pods of other nodes cannot be reached: {error}");
        nodes::Reached { overhead: 0, complaints: vec![sentence] }
    });
    let everybody = reached.complaints.is_empty();
    sentences.append(&mut reached.complaints);
    let mut pods = options.cluster.clone();
    pods.extend(own.blocks.iter().chain(others.iter().flat_map(|other| &other.blocks)));
    sentences.extend(nodes::overlaps(place, &pods).unwrap_or_default());
    sentences.extend(firewall::that_drops().unwrap_or_default());
    let ranges = Ranges { pods, inside: options.inside.clone() };
    let facts = Facts { blocks: own.blocks.clone(), ranges, mtu: link.saturating_sub(reached.overhead) };
    if let Err(error) = agent.learn(facts) {
        sentences.push(format!("Pods reach nothing outside, and no port of the node leads to them: {error}"));
    }
    let installed = if options.plugin { place.install() } else { Ok(place.without_plugin()) };
    let ours = match installed {
        Ok(Installed::Ours) => true,
        Ok(Installed::Foreign(path)) => {
            sentences.push(format!("{} configures the pod network, so FerroKube does not", path.display()));
            false
        }
        Err(error) => {
            sentences.push(format!("no Pod can start: the CNI plugin cannot be installed: {error}; choose other directories with --cni-bin-dir and --cni-conf-dir"));
            false
        }
    };
    Applied { ours, reached: everybody, sentences }
}

/// Writes the Node's condition of its network unless it says so.
async fn tell_node(client: &Client, node: &Node, reached: bool, clock: Clock) {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let Some(condition) = condition(conditions.unwrap_or_default(), reached, &clock.now().to_string()) else {
        return;
    };
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let name = node.metadata.name.as_deref().unwrap_or_default();
    // It is written again at the next look.
    if let Err(error) = client.api::<Node>("").patch_status(name, &patch).await {
        tracing::debug!(%error, "the Node's network condition cannot be written");
    }
}

/// The condition of a Node whose Pods reach all others or not, in upstream's words; none if it is there; pure.
fn condition(old: &[NodeCondition], reached: bool, now: &str) -> Option<Value> {
    let (status, reason, message) = if reached {
        ("False", "RouteCreated", "RouteController created a route")
    } else {
        ("True", "NoRouteCreated", "RouteController failed to create a route")
    };
    let old = old.iter().find(|condition| condition.type_ == "NetworkUnavailable");
    if old.is_some_and(|old| old.status == status && old.reason.as_deref() == Some(reason)) {
        return None;
    }
    Some(json!({
        "type": "NetworkUnavailable",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }))
}

/// Tells each sentence once, until it was not true for a while.
#[derive(Default)]
struct Teller(Vec<String>);

impl Teller {
    fn tell(&mut self, sentences: Vec<String>) {
        for sentence in sentences.iter().filter(|sentence| !self.0.contains(sentence)) {
            tracing::warn!("{sentence}");
        }
        self.0 = sentences;
    }
}

/// The longest packet of the link of the default route, by which Pods' packets leave.
fn default_mtu() -> Option<u32> {
    let mut routing = Routing::open().ok()?;
    let routes = routing.routes().ok()?;
    let default =
        routes.iter().filter(|route| route.prefix == 0 && route.link != 0).min_by_key(|r| r.metric)?;
    Some(routing.link_by_index(default.link).ok()??.mtu)
}

/// The own machine, and those of the other Nodes by name; pure.
fn machines<'a>(own: &Node, all: impl Iterator<Item = &'a Node>) -> (Machine, Vec<Machine>) {
    let name = own.metadata.name.as_deref();
    let mut others: Vec<Machine> =
        all.filter(|node| node.metadata.name.as_deref() != name).map(machine).collect();
    others.retain(|other| !other.blocks.is_empty());
    others.sort_by(|a, b| a.name.cmp(&b.name));
    (machine(own), others)
}

fn machine(node: &Node) -> Machine {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    Machine {
        name: node.metadata.name.clone().unwrap_or_default(),
        addresses: internal.filter_map(|address| address.address.parse::<IpAddr>().ok()).collect(),
        blocks: pod_cidrs(node),
    }
}

/// The Node's ranges of Pods' addresses; one that is malformed is left out.
fn pod_cidrs(node: &Node) -> Vec<Cidr> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = match (&spec.pod_cidrs, &spec.pod_cidr) {
        (Some(all), _) if !all.is_empty() => all.clone(),
        (_, one) => one.iter().cloned().collect(),
    };
    all.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_nodes_say() {
        let own = node(json!({"metadata": {"name": "a"}, "spec": {"podCIDR": "10.244.0.0/24"}}));
        let other = node(json!({
            "metadata": {"name": "b"},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "x", "fd00::/64"]},
            "status": {"addresses": [
                {"type": "Hostname", "address": "b"},
                {"type": "InternalIP", "address": "192.0.2.2"},
                {"type": "InternalIP", "address": "bad"},
            ]},
        }));
        let silent = node(json!({"metadata": {"name": "c"}}));
        let (machine, others) = machines(&own, [&own, &silent, &other].into_iter());
        assert_eq!((machine.name.as_str(), machine.blocks.len()), ("a", 1));
        assert_eq!(others.len(), 1);
        assert_eq!(others[0].addresses, [IpAddr::from([192, 0, 2, 2])]);
        let blocks: Vec<String> = others[0].blocks.iter().map(ToString::to_string).collect();
        assert_eq!(blocks, ["10.244.1.0/24", "fd00::/64"]);
    }

    #[test]
    fn condition_of_a_node() {
        let now = "2026-01-01T00:00:00Z";
        let made = condition(&[], true, now).unwrap();
        assert_eq!((&made["status"], &made["reason"]), (&json!("False"), &json!("RouteCreated")));
        let old: NodeCondition = serde_json::from_value(made).unwrap();
        assert_eq!(condition(std::slice::from_ref(&old), true, now), None);
        assert_eq!(condition(&[old], false, now).unwrap()["reason"], "NoRouteCreated");
    }
}
