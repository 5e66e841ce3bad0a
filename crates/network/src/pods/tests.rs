use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use netlink::{Address, LinkChange, Route, namespace};
use serde_json::json;
use testkit::{Host, eventually};

use super::*;
use crate::attachment::tests::blocks;
use crate::testing::{addresses, give, ip, join, place, request, seen, sees, within};

fn facts() -> Facts {
    let ranges = Ranges { pods: blocks(&["10.244.0.0/16", "fd00:244::/48"]), inside: Vec::new() };
    Facts { blocks: blocks(&["10.244.7.0/24", "fd00:244:0:7::/64"]), ranges, mtu: 1400 }
}

/// A node with its containers, and a machine outside to which it has a link.
struct Node {
    host: Host,
    outside: Host,
    pods: Pods,
}

const NODE: &str = "192.0.2.10";
const OUTSIDE: &str = "192.0.2.1";

impl Node {
    fn new() -> Self {
        let (host, outside) = (Host::new("node").unwrap(), Host::new("outside").unwrap());
        join((&host, "up0"), (&outside, "eth0"));
        within(&host, || {
            crate::sysctl::allow_forwarding(true);
            give("up0", NODE);
        });
        within(&outside, || give("eth0", OUTSIDE));
        let pods = Pods::open(place(host.dir()), Steps::default()).unwrap();
        let mut node = Self { host, outside, pods };
        let Self { host, pods, .. } = &mut node;
        within(host, || pods.learn(facts()).unwrap());
        node
    }

    fn ask(&mut self, request: &Request) -> Result<Value, CniError> {
        let Self { host, pods, .. } = self;
        within(host, || pods.answer(request))
    }

    /// Joins a container, and returns its addresses.
    fn add(&mut self, container: &str, namespace: &Path, more: Value) -> Vec<IpAddr> {
        addresses(&self.ask(&request("ADD", container, namespace, more)).unwrap())
    }
}

#[test]
fn pods_reach_each_other_the_node_and_the_world() {
    let (one, two) = (Host::new("one").unwrap(), Host::new("two").unwrap());
    let mut node = Node::new();
    let first = node.add("one", &one.network(), json!({}));
    let second = node.add("two", &two.network(), json!({}));
    assert_eq!(first, [ip("10.244.7.2"), ip("fd00:244:0:7::2")]);
    assert_eq!(second, [ip("10.244.7.3"), ip("fd00:244:0:7::3")]);
    for family in [0, 1] {
        let (a, b) = (first[family], second[family]);
        assert_eq!(sees(&two, (b, 80), &one, (b, 80)), a, "Pods keep their addresses among themselves");
        let gateway = ip(["10.244.7.1", "fd00:244:0:7::1"][family]);
        assert_eq!(sees(&one, (a, 80), &node.host, (a, 80)), gateway);
        assert_eq!(sees(&node.host, (gateway, 81), &one, (gateway, 81)), a);
    }
    assert_eq!(sees(&node.outside, (ip(OUTSIDE), 80), &one, (ip(OUTSIDE), 80)), ip(NODE));
}

#[test]
fn a_pod_has_no_address_but_its_own() {
    let one = Host::new("one").unwrap();
    let mut node = Node::new();
    let own = node.add("one", &one.network(), json!({}));
    for (family, stolen, any) in [(0, "10.244.7.77", "0.0.0.0:0"), (1, "fd00:244:0:7::77", "[::]:0")] {
        let gateway = ip(["10.244.7.1", "fd00:244:0:7::1"][family]);
        sees(&node.host, (gateway, 81), &one, (gateway, 81));
        let there = within(&node.host, || UdpSocket::bind((gateway, 4000)).unwrap());
        there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        within(&one, || {
            let mut routing = Routing::open().unwrap();
            let link = routing.link("lo").unwrap().unwrap().index;
            let prefix = if family == 0 { 32 } else { 128 };
            routing.add_address(&Address { link, address: ip(stolen), prefix }).unwrap();
            let thief = UdpSocket::bind((ip(stolen), 0)).unwrap();
            thief.send_to(b"stolen", (gateway, 4000)).unwrap();
            let honest = UdpSocket::bind(any).unwrap();
            honest.send_to(b"honest", (gateway, 4000)).unwrap();
        });
        let mut text = [0; 6];
        let (_, from) = there.recv_from(&mut text).unwrap();
        assert_eq!((&text, from.ip()), (b"honest", own[family]));
    }
}

#[test]
fn ports_of_the_node_lead_to_a_pod() {
    let (one, two) = (Host::new("one").unwrap(), Host::new("two").unwrap());
    let mut node = Node::new();
    let mappings = json!({ "runtimeConfig": { "portMappings": [
        { "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
        { "hostPort": 8081, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1" },
    ]}});
    let own = node.add("one", &one.network(), mappings);
    let other = node.add("two", &two.network(), json!({}));
    let at = (own[0], 80);
    assert_eq!(sees(&one, at, &node.outside, (ip(NODE), 8080)), ip(OUTSIDE));
    assert_eq!(sees(&one, at, &two, (ip(NODE), 8080)), other[0]);
    assert_eq!(sees(&one, at, &one, (ip(NODE), 8080)), ip("10.244.7.1"), "by the node to itself");
    for port in [8080, 8081] {
        assert_eq!(sees(&one, at, &node.host, (ip("127.0.0.1"), port)), ip("10.244.7.1"));
    }
    assert_eq!(sees(&one, at, &node.host, (ip(NODE), 8080)), ip(NODE));
    let six = (own[1], 80);
    assert_eq!(sees(&one, six, &node.host, (ip("fd00:244:0:7::1"), 8080)), ip("fd00:244:0:7::1"));
    assert!(seen(&one, at.into(), &node.outside, (ip(NODE), 8081).into()).is_err(), "loopback's alone");
    node.ask(&request("DEL", "one", &one.network(), json!({}))).unwrap();
    let refused = within(&node.outside, || TcpStream::connect((ip(NODE), 8080)).unwrap_err());
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn answers_to_a_runtime() {
    let (one, two) = (Host::new("one").unwrap(), Host::new("two").unwrap());
    let mut node = Node::new();
    let ask = |node: &mut Node, command, more| node.ask(&request(command, "one", &one.network(), more));
    let result = ask(&mut node, "ADD", json!({})).unwrap();
    assert_eq!(ask(&mut node, "ADD", json!({})).unwrap(), result, "a call may be made twice");
    ask(&mut node, "CHECK", json!({ "prevResult": result })).unwrap();
    let other = json!({ "ips": [{ "address": "10.244.7.9/32" }] });
    assert_eq!(
        ask(&mut node, "CHECK", json!({ "prevResult": other })).unwrap_err().code,
        code::CONFIGURATION
    );
    let missing = node.ask(&request("CHECK", "two", &two.network(), json!({ "prevResult": result })));
    assert_eq!(missing.unwrap_err().code, code::UNKNOWN_CONTAINER);
    within(&one, || {
        let mut routing = Routing::open().unwrap();
        let routes = routing.routes().unwrap();
        let default = routes.iter().find(|r| r.prefix == 0 && r.destination.is_ipv4()).unwrap();
        routing.delete_route(default).unwrap();
    });
    let error = ask(&mut node, "CHECK", json!({ "prevResult": result })).unwrap_err();
    assert_eq!(error.details, "the container's default route via 10.244.7.1 is missing");
    // The next start repairs it.
    let Node { host, pods, .. } = &mut node;
    within(host, || {
        *pods = Pods::open(place(host.dir()), Steps::default()).unwrap();
        pods.adopt();
    });
    let error = ask(&mut node, "ADD", json!({})).unwrap_err();
    assert_eq!((error.code, error.msg.as_str()), (code::LATER, "the node has no pod CIDR yet"));
    let error = ask(&mut node, "STATUS", json!({})).unwrap_err();
    assert_eq!(error.code, code::UNAVAILABLE);
    let Node { host, pods, .. } = &mut node;
    within(host, || pods.learn(facts()).unwrap());
    ask(&mut node, "STATUS", json!({})).unwrap();
    ask(&mut node, "CHECK", json!({ "prevResult": result })).unwrap();

    let valid = json!({ "cni.dev/valid-attachments": [{ "containerID": "one", "ifname": "eth0" }] });
    node.add("two", &two.network(), json!({}));
    ask(&mut node, "GC", valid).unwrap();
    assert_eq!(node.pods.records.all().map(|one| one.container.as_str()).collect::<Vec<_>>(), ["one"]);
    ask(&mut node, "DEL", json!({})).unwrap();
    ask(&mut node, "DEL", json!({})).unwrap();
    let gone = request("ADD", "one", Path::new("/run/netns/gone"), json!({}));
    let error = node.ask(&gone).unwrap_err();
    assert_eq!(error.code, code::IO);
    assert_eq!(node.pods.records.all().count(), 0, "a failed ADD leaves nothing");
    // A container that has such a link already.
    within(&one, || {
        let mut routing = Routing::open().unwrap();
        routing.add_veth("eth0", &LinkChange::default(), "x", &LinkChange::default()).unwrap();
    });
    let error = ask(&mut node, "ADD", json!({})).unwrap_err();
    assert_eq!(error.details, "the container has a link eth0 already");
}

/// The node's links to containers, and routes to their addresses.
fn left(links: &str) -> (usize, usize) {
    let mut routing = Routing::open().unwrap();
    let count = routing.links().unwrap().iter().filter(|link| link.name.starts_with(links)).count();
    let routes = |r: &&Route| r.protocol == pod_link::PROTOCOL;
    (count, routing.routes().unwrap().iter().filter(routes).count())
}

#[test]
fn a_process_that_dies_at_any_step_leaves_no_address_behind() {
    let host = Host::new("node").unwrap();
    let containers: Vec<Host> = (0..3).map(|n| Host::new(&format!("c{n}")).unwrap()).collect();
    let at = place(host.dir());
    let mut random = 7_u64;
    let mut chance = move |below: usize| {
        random = (random * 1_103_515_245 + 12345) % (1 << 31);
        (random >> 8) as usize % below
    };
    let mut alive: std::collections::BTreeSet<usize> = std::collections::BTreeSet::new();
    let mut deaths = 0;
    within(&host, || {
        let rounds = std::env::var("FERROKUBE_ATTACHMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
        for round in 0..rounds {
            // Each step of an ADD and of a DEL in turn, then any.
            let allowed = if round < 60 { round / 2 } else { chance(30) };
            let which = chance(containers.len());
            let (name, namespace) = (format!("c{which}"), containers[which].network());
            let steps = Steps::dying_after(allowed);
            let mut pods = Pods::open(at.clone(), steps.clone()).unwrap();
            pods.facts = facts();
            let command = if alive.contains(&which) { "DEL" } else { "ADD" };
            let done = pods.answer(&request(command, &name, &namespace, json!({})));
            drop(pods);
            deaths += usize::from(steps.dead());
            let mut next = Pods::open(at.clone(), Steps::default()).unwrap();
            next.facts = facts();
            next.adopt();
            match (command, done) {
                ("ADD", Ok(_)) => drop(alive.insert(which)),
                ("DEL", Ok(_)) => drop(alive.remove(&which)),
                (_, Ok(_)) => unreachable!(),
                // A runtime takes a container out when its ADD fails, and tries a DEL that failed again.
                (_, Err(_)) => {
                    next.answer(&request("DEL", &name, &namespace, json!({}))).unwrap();
                    alive.remove(&which);
                }
            }
            let recorded = next.records.all().count();
            assert_eq!(
                (recorded, left(&at.links())),
                (alive.len(), (alive.len(), 2 * alive.len())),
                "{round}"
            );
        }
    });
    assert!(deaths > 100, "{deaths}");
    println!("{deaths} deaths");
}

#[test]
fn a_container_whose_namespace_is_gone_is_forgotten() {
    let host = Host::new("node").unwrap();
    let at = place(host.dir());
    let container = Host::new("c").unwrap();
    let path = container.network();
    within(&host, || {
        let mut pods = Pods::open(at.clone(), Steps::default()).unwrap();
        pods.learn(facts()).unwrap();
        pods.answer(&request("ADD", "c", &path, json!({}))).unwrap();
        // A runtime's file goes with the namespace; this one goes with the process.
        drop(container);
        let gone = || Ok(namespace::open(&path).is_err().then_some(()));
        eventually("the namespace goes", gone).unwrap();
        let mut next = Pods::open(at.clone(), Steps::default()).unwrap();
        next.adopt();
        assert_eq!(next.records.all().count(), 0);
        eventually("the link goes with its namespace", || Ok((left(&at.links()).0 == 0).then_some(())))
            .unwrap();
    });
}

#[test]
fn a_name_that_another_namespace_has_since_leads_nowhere() {
    let host = Host::new("node").unwrap();
    let at = place(host.dir());
    let (container, other) = (Host::new("c").unwrap(), Host::new("other").unwrap());
    // As the number of a process that is another one's after the machine was started again.
    let name = host.dir().join("namespace");
    let lead_to = |of: &Host| {
        let _ = std::fs::remove_file(&name);
        std::os::unix::fs::symlink(of.network(), &name).unwrap();
    };
    // Records of former versions know nothing of what the name meant.
    let age = || {
        for entry in std::fs::read_dir(at.records()).unwrap() {
            let path = entry.unwrap().path();
            let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert!(record.as_object_mut().unwrap().remove("identity").is_some());
            std::fs::write(&path, record.to_string()).unwrap();
        }
    };
    let check = |since: &Host, old: bool, kept: usize| {
        lead_to(&container);
        within(&host, || {
            let mut pods = Pods::open(at.clone(), Steps::default()).unwrap();
            pods.learn(facts()).unwrap();
            pods.answer(&request("ADD", "c", &name, json!({}))).unwrap();
            if old {
                age();
            }
            lead_to(since);
            let mut next = Pods::open(at.clone(), Steps::default()).unwrap();
            next.adopt();
            assert_eq!((next.records.all().count(), left(&at.links()).0), (kept, kept));
            next.answer(&request("DEL", "c", &name, json!({}))).unwrap();
        });
        for untouched in [&host, &other] {
            within(untouched, || assert!(Routing::open().unwrap().link("eth0").unwrap().is_none()));
        }
    };
    check(&container, false, 1);
    check(&container, true, 1);
    check(&other, false, 0);
    check(&host, false, 0);
    check(&host, true, 0);
}

#[test]
fn a_pod_gets_and_sends_no_faster_than_it_may() {
    let one = Host::new("one").unwrap();
    let mut node = Node::new();
    let limits = json!({ "runtimeConfig": { "bandwidth": {
        "ingressRate": 1_600_000, "ingressBurst": 8, "egressRate": 1_600_000, "egressBurst": 8,
    }}});
    let own = node.add("one", &one.network(), limits);
    let gateway = ip("10.244.7.1");
    sees(&one, (own[0], 80), &node.host, (own[0], 80));
    for (from, to, address) in [(&node.host, &one, own[0]), (&one, &node.host, gateway)] {
        let there = within(to, || UdpSocket::bind((address, 4000)).unwrap());
        there.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let started = std::time::Instant::now();
        within(from, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..120 {
                socket.send_to(&[0; 1000], (address, 4000)).unwrap();
            }
        });
        for _ in 0..120 {
            there.recv(&mut [0; 1500]).unwrap();
        }
        // 125,040 bytes with their headers, of which 65,536 go at once; 200,000 a second.
        let took = started.elapsed();
        assert!(took > Duration::from_millis(270), "{took:?}");
    }
}
