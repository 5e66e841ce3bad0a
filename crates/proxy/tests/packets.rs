//! Real packets.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use netlink::conntrack::Connections;
use proxy::{Event, LocalTraffic, Place, Proxier, Settings};
use serde_json::{Value, json};

use crate::network::{Answer, NODE, Network, OUTSIDE, PATIENCE, SHORT, within};
use crate::objects::{merge, open, service, slice};

const CLUSTER: &str = "172.30.0.41";
const PODS: [&str; 3] = ["10.180.0.1", "10.180.0.2", "10.180.0.3"];

fn settings() -> Settings {
    Settings {
        local_traffic: LocalTraffic::Blocks(vec!["10.0.0.0/8".parse().unwrap()]),
        localhost_node_ports: true,
        service_ranges: vec!["172.30.0.0/16".parse().unwrap()],
        node_addresses: vec![NODE.into()],
        ..Settings::default()
    }
}

fn proxier(settings: Settings) -> Proxier {
    Proxier::new("proxy-test", settings, Place { node: "me".into(), zone: "".into() })
}

fn network() -> Network {
    let network = Network::new(&PODS);
    for (pod, name) in PODS.iter().zip(["one", "two", "three"]) {
        network.serve(SocketAddr::new(pod.parse().unwrap(), 8080), name);
    }
    network
}

fn address(word: &str) -> IpAddr {
    match word {
        "pod" => PODS[2].parse().unwrap(),
        "one" => PODS[0].parse().unwrap(),
        "node" => NODE.into(),
        "outside" => OUTSIDE.into(),
        other => other.parse().unwrap(),
    }
}

/// Where TCP connections and datagrams from `from` to `to` end: `NAME,NAME` of servers that all answer in the end, with
/// `masquerade` if none sees the client's address; `refused`, `dropped`.
fn check(network: &Network, what: &str, from: &str, to: &str, want: &str) {
    let (from_address, to_address): (IpAddr, SocketAddr) = (address(from), to.parse().unwrap());
    let servers: BTreeSet<String> =
        want.split(' ').next().unwrap_or_default().split(',').map(str::to_owned).collect();
    let tries = if servers.len() > 1 { 24 } else { 1 };
    let patience = if want == "dropped" { SHORT } else { PATIENCE };
    for udp in [false, true] {
        let mut seen = BTreeSet::new();
        for _ in 0..tries {
            let answer = if udp {
                network.ask(from_address, to_address, patience)
            } else {
                network.connect(from_address, to_address, patience)
            };
            match answer {
                Answer::From(name, client) => {
                    let changed = client != from_address;
                    assert_eq!(
                        changed,
                        want.contains("masquerade"),
                        "{what}: {from} to {to}: {client}, udp {udp}"
                    );
                    seen.insert(name);
                }
                Answer::Refused => drop(seen.insert("refused".to_owned())),
                Answer::Silence => drop(seen.insert("dropped".to_owned())),
            }
            if seen == servers {
                break;
            }
        }
        assert_eq!(seen, servers, "{what}: {from} to {to}, udp {udp}");
    }
}

const WAYS: [&str; 4] = ["172.30.0.41:80", "192.0.2.1:30080", "198.51.100.7:80", "198.51.100.8:80"];

/// Checks the ways to a Service from a Pod, the node and outside: cluster address, node port, external address,
/// balancer's address.
fn check_ways(network: &Network, what: &str, wanted: [(&str, [&str; 4]); 3]) {
    for (from, wanted) in wanted {
        for (to, want) in WAYS.iter().zip(wanted) {
            check(network, what, from, to, want);
        }
    }
}

/// The cases of upstream's `TestInternalExternalMasquerade`, by real packets: one endpoint of this node, one of another.
#[test]
fn traffic_policies_and_masquerading() {
    let network = network();
    let both = "one,two";
    let changed = "one,two masquerade";
    let mut proxier = proxier(settings());
    proxier.apply(slice("s", &["10.180.0.1", "10.180.0.2@other"]));
    proxier.apply(open("s", CLUSTER, json!({})));
    network.sync(&mut proxier);
    check_ways(
        &network,
        "Cluster",
        [("pod", [both, changed, changed, changed]), ("node", [both; 4]), ("outside", [changed; 4])],
    );
    // The node's own address is the one that it gets instead.
    check(&network, "localhost", "node", "127.0.0.1:30080", both);
    check(&network, "ipMode Proxy", "pod", "198.51.100.9:80", "dropped");

    proxier.apply(open("s", CLUSTER, json!({"externalTrafficPolicy": "Local"})));
    network.sync(&mut proxier);
    check_ways(
        &network,
        "externalTrafficPolicy Local",
        [("pod", [both; 4]), ("node", [both; 4]), ("outside", [changed, "one", "one", "one"])],
    );

    proxier.apply(open("s", CLUSTER, json!({"internalTrafficPolicy": "Local"})));
    network.sync(&mut proxier);
    check_ways(
        &network,
        "internalTrafficPolicy Local",
        [
            ("pod", ["one", changed, changed, changed]),
            ("node", ["one", both, both, both]),
            ("outside", ["one masquerade", changed, changed, changed]),
        ],
    );

    let policies = json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"});
    proxier.apply(open("s", CLUSTER, policies.clone()));
    proxier.apply(slice("s", &["10.180.0.2@other"]));
    network.sync(&mut proxier);
    check_ways(
        &network,
        "no endpoint of this node",
        [
            ("pod", ["dropped", "two", "two", "two"]),
            ("node", ["dropped", "two", "two", "two"]),
            ("outside", ["dropped"; 4]),
        ],
    );

    proxier.apply(slice("s", &["10.180.0.1!", "10.180.0.2@other"]));
    network.sync(&mut proxier);
    check(&network, "one that is to go", "outside", "192.0.2.1:30080", "one");

    proxier.apply(slice("s", &[]));
    network.sync(&mut proxier);
    for from in ["pod", "outside", "node"] {
        for to in WAYS {
            check(&network, "no endpoints", from, to, "refused");
        }
    }

    proxier.apply(slice("s", &["10.180.0.1"]));
    proxier.apply(open("s", CLUSTER, json!({})));
    proxier
        .set(Settings { masquerade_all: true, ..settings() }, Place { node: "me".into(), zone: "".into() });
    network.sync(&mut proxier);
    check(&network, "masqueradeAll", "pod", "172.30.0.41:80", "one masquerade");
    check(&network, "another port of a cluster address", "pod", "172.30.0.41:81", "refused");
    check(&network, "an address that no Service has", "pod", "172.30.0.42:80", "dropped");
    check(&network, "an address that no Service has", "node", "172.30.0.42:80", "dropped");
    network.ip(&["address", "add", "172.30.0.42/32", "dev", "lo"]);
    network.serve("172.30.0.42:80".parse().unwrap(), "node");
    for from in ["pod", "node"] {
        let to = "172.30.0.42:80".parse().unwrap();
        let answer = network.connect(address(from), to, PATIENCE);
        assert!(matches!(answer, Answer::From(..)), "an address of the node itself: {from}: {answer:?}");
    }
}

#[test]
fn hairpins_and_sources() {
    let network = network();
    let mut proxier = proxier(settings());
    proxier.apply(slice("s", &["10.180.0.1"]));
    proxier.apply(open("s", CLUSTER, json!({"loadBalancerSourceRanges": [" 192.0.2.9/32", "fd00::/8"]})));
    network.sync(&mut proxier);
    check(&network, "to itself", "one", "172.30.0.41:80", "one masquerade");
    check(&network, "a source in range", "outside", "198.51.100.8:80", "one masquerade");
    check(&network, "a source out of range", "pod", "198.51.100.8:80", "dropped");
    check(&network, "other ways", "pod", "198.51.100.7:80", "one masquerade");
    proxier.apply(open("s", CLUSTER, json!({"loadBalancerSourceRanges": ["0.0.0.0/0", "192.0.2.0/32"]})));
    network.sync(&mut proxier);
    check(&network, "all sources", "pod", "198.51.100.8:80", "one masquerade");
    let only = Settings { node_port_addresses: Some(vec!["203.0.113.0/24".parse().unwrap()]), ..settings() };
    proxier.set(only, Place { node: "me".into(), zone: "".into() });
    network.sync(&mut proxier);
    check(&network, "an address without node ports", "outside", "192.0.2.1:30080", "refused");
}

/// The server that answers a client, each time the same.
fn sticky(network: &Network, from: &str, to: &str) -> String {
    let names: BTreeSet<String> = (0..12)
        .map(|_| match network.connect(address(from), to.parse().unwrap(), PATIENCE) {
            Answer::From(name, _) => name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    names.into_iter().next().unwrap()
}

#[test]
fn clients_stay_with_their_endpoint_as_long_as_it_is_there() {
    let network = network();
    let mut proxier = proxier(settings());
    let affinity = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}});
    let all = PODS.to_vec();
    proxier.apply(slice("s", &all));
    proxier.apply(open("s", CLUSTER, affinity.clone()));
    network.sync(&mut proxier);
    let first = sticky(&network, "outside", "172.30.0.41:80");
    for way in &WAYS[1..] {
        assert_eq!(sticky(&network, "outside", way), first, "{way}");
    }
    let place = ["one", "two", "three"].iter().position(|name| *name == first).unwrap();
    // Others come and go.
    let other = PODS[(place + 1) % 3];
    proxier.apply(slice("s", &[PODS[place], other]));
    network.sync(&mut proxier);
    assert_eq!(sticky(&network, "outside", "172.30.0.41:80"), first);
    // Another process goes on with the same clients.
    let mut next = proxier_of(&[slice("s", &[PODS[place], other]), open("s", CLUSTER, affinity)]);
    assert!(network.sync(&mut next).is_empty());
    assert_eq!(sticky(&network, "outside", "172.30.0.41:80"), first);
    next.apply(slice("s", &[other]));
    network.sync(&mut next);
    let second = sticky(&network, "outside", "172.30.0.41:80");
    assert_ne!(second, first);
    next.apply(slice("s", &all));
    network.sync(&mut next);
    assert_eq!(sticky(&network, "outside", "172.30.0.41:80"), second);
}

fn proxier_of(events: &[Event]) -> Proxier {
    let mut proxier = proxier(settings());
    for event in events {
        proxier.apply(event.clone());
    }
    proxier
}

#[test]
fn both_families() {
    let network = Network::new(&["10.180.0.1", "fd00:180::1"]);
    network.serve("10.180.0.1:8080".parse().unwrap(), "four");
    network.serve("[fd00:180::1]:8080".parse().unwrap(), "six");
    let mut spec = json!({"clusterIPs": [CLUSTER, "fd00:30::41"], "type": "NodePort"});
    merge(
        &mut spec,
        &json!({"ports": [
            {"name": "t", "port": 80, "protocol": "TCP", "nodePort": 30080},
            {"name": "u", "port": 80, "protocol": "UDP", "nodePort": 30080},
        ]}),
    );
    let mut proxier = proxier(settings());
    proxier.apply(service("s", CLUSTER, spec.clone()));
    proxier.apply(slice("s", &["10.180.0.1"]));
    let six = |spec: &Value| {
        let mut spec = spec.clone();
        merge(&mut spec, &json!({"sessionAffinity": "ClientIP"}));
        spec
    };
    network.sync(&mut proxier);
    let far = |to: &str| network.connect(OUTSIDE.into(), to.parse().unwrap(), PATIENCE);
    assert_eq!(far("[fd00:30::41]:80"), Answer::Refused);
    let Event::Slice(more) = slice("s", &["fd00:180::1"]) else { panic!() };
    let mut more = (*more).clone();
    more.metadata.name = Some("s-six".into());
    proxier.apply(Event::Slice(more.into()));
    network.sync(&mut proxier);
    let masked = |to: &str| match far(to) {
        Answer::From(name, _) => name,
        other => format!("{other:?}"),
    };
    for spec in [spec.clone(), six(&spec)] {
        proxier.apply(service("s", CLUSTER, spec));
        network.sync(&mut proxier);
        assert_eq!(masked("172.30.0.41:80"), "four");
        assert_eq!(masked("192.0.2.1:30080"), "four");
        assert_eq!(masked("[fd00:30::41]:80"), "six");
        assert_eq!(masked("[2001:db8::1]:30080"), "six");
    }
}

#[test]
fn datagrams_leave_endpoints_that_are_gone() {
    let network = network();
    let mut proxier = proxier(settings());
    proxier.apply(open("s", CLUSTER, json!({})));
    proxier.apply(slice("s", &["10.180.0.1"]));
    network.sync(&mut proxier);
    for way in WAYS {
        let to: SocketAddr = way.parse().unwrap();
        let socket = network.client(OUTSIDE.into(), to);
        let name = || match Network::ask_by(&socket, PATIENCE) {
            Answer::From(name, _) => name,
            other => format!("{other:?}"),
        };
        proxier.apply(slice("s", &["10.180.0.1"]));
        network.sync(&mut proxier);
        forget(&network, &mut proxier);
        assert_eq!(name(), "one", "{way}");
        proxier.apply(slice("s", &["10.180.0.2"]));
        network.sync(&mut proxier);
        assert_eq!(name(), "one", "{way}: the connection is tracked");
        assert_eq!(forget(&network, &mut proxier), Some(1), "{way}");
        assert_eq!(name(), "two", "{way}");
        assert_eq!(forget(&network, &mut proxier), None, "{way}: nothing changed");
    }
}

fn forget(network: &Network, proxier: &mut Proxier) -> Option<usize> {
    within(&network.node, || proxier.forget_stale(&mut Connections::open().unwrap())).unwrap()
}
