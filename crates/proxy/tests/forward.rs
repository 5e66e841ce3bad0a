//! Real connections to Services without a packet filter.

use std::net::{IpAddr, SocketAddr};

use component::Shutdown;
use proxy::{Event, Forwarder, LocalTraffic, Place, Settings};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::network::{Answer, NODE, Network, OUTSIDE, PATIENCE, within};
use crate::objects::{merge, open, service, slice};

const CLUSTER: &str = "172.30.0.41";
const PODS: [&str; 4] = ["10.180.0.1", "10.180.0.2", "10.180.0.3", "2001:db8::21"];

/// A node that forwards, in a network of its own.
struct Node {
    network: Network,
    runtime: Runtime,
    forwarder: Forwarder,
}

fn settings() -> Settings {
    Settings {
        local_traffic: LocalTraffic::Blocks(vec!["10.0.0.0/8".parse().unwrap()]),
        localhost_node_ports: true,
        service_ranges: vec!["172.30.0.0/16".parse().unwrap(), "fd30::/112".parse().unwrap()],
        node_addresses: vec![NODE.into()],
        ..Settings::default()
    }
}

impl Node {
    fn new(settings: Settings) -> Self {
        let network = Network::new(&PODS);
        for (pod, name) in PODS.iter().zip(["one", "two", "three", "six"]) {
            network.serve(SocketAddr::new(pod.parse().unwrap(), 8080), name);
        }
        // The threads of a runtime are of the network in which it was made.
        let (runtime, forwarder) = within(&network.node, || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let place = Place { node: "me".into(), zone: "".into() };
            (runtime.unwrap(), Forwarder::new("test", settings, place, &Shutdown::new()).unwrap())
        });
        Self { network, runtime, forwarder }
    }

    fn apply(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.forwarder.apply(event);
        }
        let (runtime, forwarder) = (&self.runtime, &mut self.forwarder);
        within(&self.network.node, || runtime.block_on(forwarder.sync())).unwrap();
    }

    /// Where a connection or a datagram from `from` to `to` ends: `NAME CLIENT`, or `refused`, or `silence`.
    fn ask(&self, udp: bool, from: &str, to: &str) -> String {
        let (from, to) = (address(from), to.parse().unwrap());
        let answer =
            if udp { self.network.ask(from, to, PATIENCE) } else { self.network.connect(from, to, PATIENCE) };
        match answer {
            Answer::From(name, client) => format!("{name} {client}"),
            Answer::Refused => "refused".to_owned(),
            Answer::Silence => "silence".to_owned(),
        }
    }

    /// Checks the servers that answer in turn to connections and datagrams: `NAME,NAME`, or how they end.
    fn check(&self, what: &str, from: &str, to: &str, want: &str) {
        for udp in [false, true] {
            let tries = 2 * want.split(',').count();
            let mut seen: Vec<String> = (0..tries)
                .map(|_| {
                    let answer = self.ask(udp, from, to);
                    answer.split(' ').next().unwrap_or_default().to_owned()
                })
                .collect();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.join(","), want, "{what}: {from} to {to}, udp {udp}");
        }
    }
}

fn address(word: &str) -> IpAddr {
    match word {
        "pod" => PODS[2].parse().unwrap(),
        "node" => NODE.into(),
        "outside" => OUTSIDE.into(),
        other => other.parse().unwrap(),
    }
}

const WAYS: [&str; 4] = ["172.30.0.41:80", "192.0.2.1:30080", "198.51.100.7:80", "198.51.100.8:80"];

#[test]
fn all_ways_lead_to_endpoints() {
    let mut node = Node::new(settings());
    node.apply([slice("s", &["10.180.0.1", "10.180.0.2@other"]), open("s", CLUSTER, json!({}))]);
    for from in ["pod", "node", "outside"] {
        for way in WAYS {
            node.check("policy Cluster", from, way, "one,two");
        }
    }
    node.check("localhost", "node", "127.0.0.1:30080", "one,two");
    // An endpoint sees the node.
    assert!(node.ask(false, "pod", WAYS[0]).ends_with(" 192.0.2.1"));
    for to in ["172.30.0.41:81", "172.30.0.42:80", "192.0.2.1:30081"] {
        assert_eq!(node.ask(false, "pod", to), "refused", "{to}");
    }

    node.apply([slice("s", &["10.180.0.1!", "10.180.0.2@other"])]);
    node.check("one ends", "pod", WAYS[0], "two");
    node.apply([slice("s", &[])]);
    for way in WAYS {
        assert_eq!(node.ask(false, "pod", way), "refused", "{way}");
    }
    node.apply([slice("s", &["10.180.0.1"])]);
    node.check("one is back", "pod", WAYS[0], "one");
    node.apply([Event::ServiceGone(client::Key::new("ns", "s"))]);
    assert_eq!(node.ask(false, "node", WAYS[1]), "refused");
}

#[test]
fn policies_and_source_ranges() {
    let mut node = Node::new(settings());
    let endpoints = || slice("s", &["10.180.0.1", "10.180.0.2@other"]);
    node.apply([endpoints(), open("s", CLUSTER, json!({"externalTrafficPolicy": "Local"}))]);
    node.check("external Local", "outside", WAYS[1], "one");
    node.check("external Local", "pod", WAYS[1], "one,two");
    node.check("external Local", "outside", WAYS[0], "one,two");
    node.apply([open("s", CLUSTER, json!({"internalTrafficPolicy": "Local"}))]);
    node.check("internal Local", "pod", WAYS[0], "one");
    node.check("internal Local", "outside", WAYS[2], "one,two");
    assert_eq!(node.forwarder.without_local(), [0, 0]);
    node.apply([open("s", CLUSTER, json!({"loadBalancerSourceRanges": ["10.180.0.0/16"]}))]);
    node.check("source ranges", "pod", WAYS[3], "one,two");
    assert_eq!(node.ask(false, "outside", WAYS[3]), "refused");
    node.check("other addresses", "outside", WAYS[2], "one,two");
}

#[test]
fn a_client_stays_with_its_endpoint() {
    let mut node = Node::new(settings());
    let mut spec = json!({"sessionAffinity": "ClientIP"});
    merge(&mut spec, &json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}));
    node.apply([slice("s", &["10.180.0.1", "10.180.0.2"]), service("s", CLUSTER, spec)]);
    let first = node.ask(false, "pod", WAYS[0]);
    for _ in 0..6 {
        assert_eq!(node.ask(false, "pod", WAYS[0]), first);
    }
    // A change of the Service's other endpoints changes nothing for the client; without its own it gets another.
    node.apply([slice("s", &["10.180.0.1", "10.180.0.2", "10.180.0.3"])]);
    assert_eq!(node.ask(false, "pod", WAYS[0]), first);
    let (mine, other) = if first.starts_with("one") { ("one", "10.180.0.2") } else { ("two", "10.180.0.1") };
    node.apply([slice("s", &[other])]);
    assert!(!node.ask(false, "pod", WAYS[0]).starts_with(mine));
}

#[test]
fn an_endpoint_that_does_not_answer_is_passed_over() {
    let mut node = Node::new(settings());
    // Nobody listens at this Pod's port for the second endpoint.
    node.apply([slice("s", &["10.180.0.1", "192.0.2.9"]), service("s", CLUSTER, json!({}))]);
    for _ in 0..4 {
        assert_eq!(node.ask(false, "pod", WAYS[0]), "one 192.0.2.1");
    }
}

#[test]
fn flows_of_datagrams_leave_endpoints_that_are_gone() {
    let mut node = Node::new(settings());
    node.apply([slice("s", &["10.180.0.1"]), service("s", CLUSTER, json!({}))]);
    let to: SocketAddr = WAYS[0].parse().unwrap();
    let socket = node.network.client(address("pod"), to);
    let ask = |socket| match Network::ask_by(socket, PATIENCE) {
        Answer::From(name, _) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(&socket), "one");
    node.apply([slice("s", &["10.180.0.1", "10.180.0.2"])]);
    assert_eq!(ask(&socket), "one");
    node.apply([slice("s", &["10.180.0.2"])]);
    assert_eq!(ask(&socket), "two");
}

#[test]
fn ipv6_and_what_a_former_one_left() {
    let mut node = Node::new(settings());
    node.apply([slice("s", &["2001:db8::21"]), open("s", "fd30::41", json!({"externalIPs": []}))]);
    assert_eq!(node.ask(false, "node", "[fd30::41]:80"), "six 2001:db8::1");
    assert_eq!(node.ask(true, "node", "[fd30::41]:80"), "six 2001:db8::1");
    assert_eq!(node.ask(false, "node", "[fd30::42]:80"), "refused");
    node.apply([open("v4", CLUSTER, json!({})), slice("v4", &["10.180.0.1"])]);
    let routes = |network: &Network| {
        within(&network.node, || netlink::Routing::open().unwrap().local_routes().unwrap())
            .into_iter()
            .filter(|route| route.protocol == 70)
            .map(|route| format!("{}/{}", route.destination, route.prefix))
            .collect::<Vec<_>>()
    };
    assert_eq!(routes(&node.network), ["172.30.0.0/16", "198.51.100.7/32", "198.51.100.8/32", "fd30::/112"]);
    let Node { network, runtime, forwarder } = node;
    drop((runtime, forwarder));
    // The next one finds them, and takes those away that nobody wants any more.
    within(&network.node, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let place = Place { node: "me".into(), zone: "".into() };
        let mut next = Forwarder::new("test", settings(), place, &Shutdown::new()).unwrap();
        runtime.block_on(next.sync()).unwrap();
    });
    assert_eq!(routes(&network), ["172.30.0.0/16", "fd30::/112"]);
}
