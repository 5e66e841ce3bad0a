use std::net::UdpSocket;

use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use testkit::Host;

use super::*;
use crate::attachment::tests::blocks;
use crate::filter::Ranges;
use crate::pods::{Facts, Pods};
use crate::steps::Steps;
use crate::testing::{addresses, give, ip, join, place, request, sees, within};

const TUNNEL: Tunnel = Tunnel { id: 70, port: 8472 };

fn machine(name: &str, address: &[&str], block: &[&str]) -> Machine {
    Machine { name: name.into(), addresses: address.iter().map(|a| ip(a)).collect(), blocks: blocks(block) }
}

#[test]
fn ways_to_nodes() {
    let local = |link, address: &str, prefix| Address { link, address: ip(address), prefix };
    let addresses = [
        local(1, "127.0.0.1", 8),
        local(2, "192.0.2.1", 24),
        local(2, "2001:db8::1", 64),
        local(3, "10.0.0.1", 32),
    ];
    let own = machine("a", &["192.0.2.1", "2001:db8::1"], &["10.244.0.0/24"]);
    let check = |addresses_of: &[&str], block: &str, expected: Option<Way>| {
        let other = machine("b", addresses_of, &[block]);
        let (found, complaints) = ways(&own, &[other], &addresses);
        assert_eq!(found.first().map(|(_, way)| *way), expected, "{addresses_of:?} {block}");
        assert_eq!(complaints.len(), usize::from(expected.is_none()));
    };
    let near = |gateway: &str| Some(Way::Link { link: 2, gateway: ip(gateway) });
    let far = |node: &str| Some(Way::Tunnel { node: ip(node) });
    check(&["192.0.2.2"], "10.244.1.0/24", near("192.0.2.2"));
    check(&["192.0.2.2", "2001:db8::2"], "fd00:1::/64", near("2001:db8::2"));
    check(&["192.0.2.2"], "fd00:1::/64", far("192.0.2.2"));
    check(&["198.51.100.2"], "10.244.1.0/24", far("198.51.100.2"));
    check(&["10.0.0.2"], "10.244.1.0/24", far("10.0.0.2"));
    check(&["127.0.0.5"], "10.244.1.0/24", far("127.0.0.5"));
    check(&["2001:db8:1::2"], "10.244.1.0/24", None);
    check(&[], "10.244.1.0/24", None);
    assert_ne!(hardware(ip("192.0.2.1")), hardware(ip("192.0.2.2")));
}

/// A node of several, with one Pod.
struct Node {
    host: Host,
    pod: Host,
    machine: Machine,
    pods: Pods,
    addresses: Vec<IpAddr>,
}

impl Node {
    fn new(number: u8) -> Self {
        let host = Host::new(&format!("n{number}")).unwrap();
        let pod = Host::new(&format!("p{number}")).unwrap();
        let pods = Pods::open(place(host.dir()), Steps::default()).unwrap();
        let block = [format!("10.244.{number}.0/24"), format!("fd00:244:0:{number}::/64")];
        let machine = machine(&format!("n{number}"), &[], &[&block[0], &block[1]]);
        within(&host, || crate::sysctl::allow_forwarding(true));
        Self { host, pod, machine, pods, addresses: Vec::new() }
    }

    /// Learns of the others, and joins its Pod the first time.
    fn reach(&mut self, others: &[Machine]) -> Reached {
        let Self { host, pod, machine, pods, addresses: own } = self;
        within(host, || {
            let reached = reach(&place(host.dir()), TUNNEL, 1500, machine, others).unwrap();
            let mut cluster = machine.blocks.clone();
            cluster.extend(others.iter().flat_map(|other| &other.blocks));
            let ranges = Ranges { pods: cluster, inside: Vec::new() };
            let blocks = machine.blocks.clone();
            pods.learn(Facts { blocks, ranges, mtu: 1500 - reached.overhead }).unwrap();
            let add = request("ADD", "c", &pod.network(), serde_json::json!({}));
            *own = addresses(&pods.answer(&add).unwrap());
            reached
        })
    }

    /// The networks to which routes lead, but for its own Pods'.
    fn routes(&self) -> Vec<String> {
        within(&self.host, || {
            let routes = Routing::open().unwrap().routes().unwrap();
            let ours = |r: &&Route| r.protocol == PROTOCOL && !matches!(r.prefix, 32 | 128);
            routes.iter().filter(ours).map(network).collect()
        })
    }
}

/// Sends a datagram that must not be cut, as large as the link lets it, and tells whether it arrived.
fn whole_packet_arrives(from: &Host, to: (&Host, IpAddr), length: usize) -> bool {
    let there = within(to.0, || UdpSocket::bind((to.1, 4000)).unwrap());
    there.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
    let sent = within(from, || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO).unwrap();
        rustix::net::sockopt::set_ip_ttl(&socket, 8).unwrap();
        socket.send_to(&vec![7; length], (to.1, 4000))
    });
    sent.is_ok() && there.recv(&mut [0; 2000]).is_ok_and(|got| got == length)
}

/// Two nodes on one network, and a third behind a router.
fn three() -> ([Node; 3], Host) {
    let mut nodes = [Node::new(1), Node::new(2), Node::new(3)];
    let router = Host::new("router").unwrap();
    for (node, name) in nodes.iter().zip(["r1", "r2", "r3"]) {
        join((&node.host, "eth0"), (&router, name));
    }
    let up = netlink::LinkChange { up: Some(true), ..netlink::LinkChange::default() };
    within(&router, || {
        crate::sysctl::allow_forwarding(false);
        let mut routing = Routing::open().unwrap();
        routing.add_bridge("lan", &up).unwrap();
        let lan = routing.link("lan").unwrap().unwrap().index;
        for name in ["r1", "r2"] {
            let port = routing.link(name).unwrap().unwrap().index;
            routing.change_link(port, &netlink::LinkChange { master: Some(lan), ..up }).unwrap();
        }
        give("lan", "192.0.2.254");
        give("r3", "198.51.100.254");
    });
    let places =
        [("192.0.2.1", "192.0.2.254"), ("192.0.2.2", "192.0.2.254"), ("198.51.100.3", "198.51.100.254")];
    for (node, (own, gateway)) in nodes.iter_mut().zip(places) {
        node.machine.addresses = vec![ip(own)];
        within(&node.host, || {
            give("eth0", own);
            let mut routing = Routing::open().unwrap();
            let link = routing.link("eth0").unwrap().unwrap().index;
            routing.replace_route(&Route::via(ip(gateway), link, ip("0.0.0.0"), 0)).unwrap();
        });
    }
    (nodes, router)
}

#[test]
fn pods_of_all_nodes_reach_each_other() {
    let (mut nodes, router) = three();
    let all: Vec<Machine> = nodes.iter().map(|node| node.machine.clone()).collect();
    let others = |number: usize| -> Vec<Machine> {
        all.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, machine)| machine.clone()).collect()
    };
    for (number, node) in nodes.iter_mut().enumerate() {
        let reached = node.reach(&others(number));
        assert_eq!(
            (reached.overhead, reached.complaints),
            (50, Vec::new()),
            "the third node is far from all"
        );
        // A second time changes nothing.
        let before = node.routes();
        node.reach(&others(number));
        assert_eq!((node.routes(), before.len()), (before, 4));
    }
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        let (a, b) = (&nodes[from], &nodes[to]);
        for family in [0, 1] {
            let (near, far) = (a.addresses[family], b.addresses[family]);
            assert_eq!(sees(&b.pod, (far, 80), &a.pod, (far, 80)), near, "{from} to {to}");
        }
        sees(&b.pod, (b.addresses[0], 80), &a.host, (b.addresses[0], 80));
        // 28 bytes are the headers'.
        assert!(whole_packet_arrives(&a.pod, (&b.pod, b.addresses[0]), 1450 - 28), "{from} to {to}");
    }

    // A node is gone, and another one comes back elsewhere.
    let away = machine("n3", &["198.51.100.3"], &["10.244.3.0/24"]);
    let moved = Machine { addresses: vec![ip("192.0.2.77")], ..nodes[1].machine.clone() };
    nodes[0].reach(std::slice::from_ref(&away));
    assert_eq!(nodes[0].routes(), ["10.244.3.0/24"]);
    within(&nodes[1].host, || give("eth0", "192.0.2.77"));
    let reached = nodes[0].reach(std::slice::from_ref(&moved));
    assert_eq!(reached.overhead, 50, "of IPv6 by the tunnel: the node has no such address");
    let (a, b) = (&nodes[0], &nodes[1]);
    assert_eq!(sees(&b.pod, (b.addresses[0], 80), &a.pod, (b.addresses[0], 80)), a.addresses[0]);
    let only = Machine { blocks: blocks(&["10.244.2.0/24"]), ..moved };
    assert_eq!(nodes[0].reach(std::slice::from_ref(&only)).overhead, 0);
    within(&nodes[0].host, || {
        let at = place(nodes[0].host.dir());
        assert_eq!(Routing::open().unwrap().link(&tunnel_name(&at)).unwrap(), None, "nobody is far");
        leave(&at).unwrap();
    });
    assert_eq!(nodes[0].routes(), [""; 0]);
    drop(router);
}

#[test]
fn routes_of_the_host_that_pods_hide() {
    let host = Host::new("node").unwrap();
    let at = place(host.dir());
    let other = Host::new("other").unwrap();
    join((&host, "eth0"), (&other, "eth0"));
    within(&host, || {
        give("eth0", "10.244.9.1");
        let sentences = overlaps(&at, &blocks(&["10.244.0.0/16"])).unwrap();
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].contains("10.244.9.0/24 behind eth0"), "{sentences:?}");
        assert_eq!(overlaps(&at, &blocks(&["10.1.0.0/16", "fd00::/48"])).unwrap(), [""; 0]);
    });
}
