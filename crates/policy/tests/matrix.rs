//! Real packets from every Pod, and from outside, to every Pod and port, under the policies of upstream's suite.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::network::{Network, OUTSIDE, SPACES, addresses, within};

/// All packets that nobody forbids: 10 senders, 9 Pods, 2 ports, 2 protocols, without those of Pods to themselves.
const ALL: usize = (10 * 9 - 9) * 4;

fn pod(name: &str) -> Value {
    json!({"matchLabels": {"pod": name}})
}

fn ns(name: &str) -> Value {
    json!({"matchLabels": {"ns": name}})
}

fn any_of(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

fn ingress(pods: Value, rules: Value) -> Value {
    json!({"podSelector": pods, "policyTypes": ["Ingress"], "ingress": rules})
}

fn egress(pods: Value, rules: Value) -> Value {
    json!({"podSelector": pods, "policyTypes": ["Egress"], "egress": rules})
}

fn deny_all() -> Value {
    json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
}

/// A Pod gets packets of 9 senders at 4 ports, and sends them to 8 Pods.
const TO_ONE: usize = 9 * 4;
const FROM_ONE: usize = 8 * 4;

/// A name, policies of namespace x, and the number of packets that pass, counted by hand.
type Case = (&'static str, Vec<Value>, usize);

fn from_a(rule: Value) -> Vec<Value> {
    vec![ingress(pod("a"), json!([rule]))]
}

fn port(number: Value, protocol: &str) -> Value {
    json!({"ports": [{"port": number, "protocol": protocol}]})
}

fn cases_of_peers() -> Vec<Case> {
    vec![
        ("deny-ingress", vec![ingress(json!({}), json!([]))], ALL - 3 * TO_ONE),
        ("deny-all", vec![deny_all()], ALL - 3 * TO_ONE - 3 * 6 * 4),
        ("x-a-allows-x-b", from_a(json!({"from": [{"podSelector": pod("b")}]})), ALL - TO_ONE + 4),
        (
            "deny-all, allow-all-to-a",
            vec![
                ingress(json!({}), json!([])),
                ingress(pod("a"), json!([{"from": [{"podSelector": {}, "namespaceSelector": {}}]}])),
            ],
            // Outside is no Pod.
            ALL - 3 * TO_ONE + FROM_ONE,
        ),
        ("from all namespaces", from_a(json!({"from": [{"namespaceSelector": {}}]})), ALL - 4),
        ("from namespace y", from_a(json!({"from": [{"namespaceSelector": ns("y")}]})), ALL - TO_ONE + 3 * 4),
        (
            "pods by expression",
            from_a(json!({"from": [{"podSelector": any_of("pod", "In", &["b"])}]})),
            ALL - TO_ONE + 4,
        ),
        (
            "namespaces by expression",
            from_a(json!({"from": [{"namespaceSelector": any_of("ns", "NotIn", &["x"])}]})),
            ALL - TO_ONE + 6 * 4,
        ),
        (
            "pod or namespace",
            from_a(json!({"from": [{"podSelector": pod("b")}, {"namespaceSelector": ns("y")}]})),
            ALL - TO_ONE + 4 * 4,
        ),
        (
            "pod and namespace",
            from_a(json!({"from": [{"podSelector": pod("b"), "namespaceSelector": ns("y")}]})),
            ALL - TO_ONE + 4,
        ),
        (
            "multiple pods and namespaces",
            from_a(json!({"from": [{
                "podSelector": any_of("pod", "In", &["b", "c"]),
                "namespaceSelector": any_of("ns", "NotIn", &["x"]),
            }]})),
            ALL - TO_ONE + 4 * 4,
        ),
    ]
}

fn cases_of_ports() -> Vec<Case> {
    vec![
        ("port 81", from_a(port(json!(81), "TCP")), ALL - TO_ONE + 9),
        (
            "stacked: port 81 of y, port 80 of y",
            vec![
                ingress(
                    pod("a"),
                    json!([{"from": [{"namespaceSelector": ns("y")}], "ports": [{"port": 81}]}]),
                ),
                ingress(
                    pod("a"),
                    json!([{"from": [{"namespaceSelector": ns("y")}], "ports": [{"port": 80}]}]),
                ),
            ],
            ALL - TO_ONE + 6,
        ),
        ("allow-all", vec![ingress(json!({}), json!([{}]))], ALL),
        ("named port", from_a(port(json!("serve-81-tcp"), "TCP")), ALL - TO_ONE + 9),
        ("named port of another protocol", from_a(port(json!("serve-81-tcp"), "UDP")), ALL - TO_ONE),
        (
            "named port to peers",
            vec![egress(json!({}), json!([port(json!("serve-80-udp"), "UDP")]))],
            ALL - 3 * FROM_ONE + 3 * 8,
        ),
        ("range of ports", from_a(json!({"ports": [{"port": 70, "endPort": 80}]})), ALL - TO_ONE + 9),
        (
            "range of ports, all UDP",
            from_a(json!({"ports": [{"port": 81, "endPort": 90}, {"protocol": "UDP"}]})),
            ALL - TO_ONE + 27,
        ),
        ("SCTP alone", from_a(port(json!(80), "SCTP")), ALL - TO_ONE),
        (
            "SCTP beside TCP",
            from_a(json!({"ports": [{"protocol": "SCTP"}, {"port": 80, "protocol": "TCP"}]})),
            ALL - TO_ONE + 9,
        ),
        ("UDP on port 81", from_a(port(json!(81), "UDP")), ALL - TO_ONE + 9),
    ]
}

fn cases_of_egress_and_blocks() -> Vec<Case> {
    let [xb, _] = addresses(0, 1);
    vec![
        ("deny-egress-pod-a", vec![egress(pod("a"), json!([]))], ALL - FROM_ONE),
        ("deny-egress", vec![egress(json!({}), json!([]))], ALL - 3 * FROM_ONE),
        (
            "egress to y/a",
            vec![egress(
                pod("a"),
                json!([{"to": [{"namespaceSelector": ns("y"), "podSelector": pod("a")}]}]),
            )],
            ALL - FROM_ONE + 4,
        ),
        (
            "egress by default only with rules",
            vec![json!({"podSelector": pod("a"), "egress": [{"to": [{"podSelector": pod("b")}]}]})],
            ALL - TO_ONE - FROM_ONE + 4,
        ),
        (
            "egress to a block",
            vec![egress(pod("a"), json!([{"to": [{"ipBlock": {"cidr": format!("{xb}/32")}}]}]))],
            ALL - FROM_ONE + 4,
        ),
        (
            "egress to a block but for one",
            vec![egress(
                pod("a"),
                json!([{"to": [{"ipBlock": {"cidr": "10.181.0.0/24", "except": [format!("{xb}/32")]}}]}]),
            )],
            ALL - FROM_ONE + 4,
        ),
        (
            "blocks add up",
            vec![
                egress(
                    pod("a"),
                    json!([{"to": [{"ipBlock": {"cidr": "10.181.0.0/24", "except": [format!("{xb}/32")]}}]}]),
                ),
                egress(pod("a"), json!([{"to": [{"ipBlock": {"cidr": format!("{xb}/32")}}]}])),
            ],
            ALL - FROM_ONE + 8,
        ),
        (
            "ingress from outside",
            from_a(json!({"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]})),
            ALL - TO_ONE + 4,
        ),
        (
            "egress and ingress, both ends",
            vec![
                egress(pod("a"), json!([{"to": [{"podSelector": pod("b")}]}])),
                ingress(pod("b"), json!([{"from": [{"podSelector": pod("a")}]}])),
            ],
            ALL - FROM_ONE + 4 - (9 - 1) * 4,
        ),
        (
            "a rule without meaning",
            from_a(json!({"from": [{"podSelector": any_of("pod", "Like", &["a"])}]})),
            ALL - TO_ONE,
        ),
    ]
}

#[test]
fn reachability_before_and_after_each_policy() {
    let mut network = Network::new();
    network.sync();
    assert_eq!(network.probe(0), (Vec::new(), ALL), "no policy");
    for (what, policies, passing) in
        [cases_of_peers(), cases_of_ports(), cases_of_egress_and_blocks()].into_iter().flatten()
    {
        for (number, spec) in policies.into_iter().enumerate() {
            network.policy("x", &format!("p{number}"), spec);
        }
        network.sync();
        network.forget_flows();
        assert_eq!(network.probe(0), (Vec::new(), passing), "{what}");
        network.clear();
    }
    network.sync();
    assert_eq!(network.probe(0), (Vec::new(), ALL), "no policy again");
    network.policy("x", "p", deny_all());
    network.policy(
        "x",
        "q",
        ingress(pod("a"), json!([{"from": [{"ipBlock": {"cidr": "2001:db8::/32"}}, {"podSelector": {}}]}])),
    );
    network.policy("x", "r", egress(json!({}), json!([{"to": [{"podSelector": {}}]}])));
    network.sync();
    network.forget_flows();
    assert_eq!(network.probe(1), (Vec::new(), ALL - 3 * 36 - 72 + 4 + 8), "IPv6");
    assert_eq!(network.probe(0).0, Vec::new(), "IPv4 beside it");
}

#[test]
fn changes_of_labels_and_policies_count_at_once() {
    let mut network = Network::new();
    let allow = |network: &mut Network, of: Value| {
        network.policy("x", "p", ingress(pod("a"), json!([{"from": [of]}])));
    };
    let check = |network: &mut Network, what: &str, passing: usize| {
        network.sync();
        network.forget_flows();
        assert_eq!(network.probe(0), (Vec::new(), ALL - 36 + passing), "{what}");
    };
    allow(&mut network, json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}));
    check(&mut network, "nobody is blue", 0);
    network.space(SPACES[1], json!({"ns": "y", "team": "blue"}));
    check(&mut network, "a namespace becomes blue", 12);
    network.space(SPACES[1], json!({"ns": "y"}));
    check(&mut network, "and is not any more", 0);
    allow(&mut network, json!({"podSelector": {"matchLabels": {"team": "blue"}}}));
    network.pod(0, 1, json!({"pod": "b", "team": "blue"}));
    check(&mut network, "a Pod becomes blue", 4);
    network.pod(0, 1, json!({"pod": "b"}));
    check(&mut network, "and is not any more", 0);
    network.pod(0, 0, json!({"pod": "a", "free": "yes"}));
    network.policy("x", "p", ingress(json!({"matchLabels": {"free": "no"}}), json!([])));
    check(&mut network, "no Pod is selected", 36);
    network.pod(0, 0, json!({"pod": "a", "free": "no"}));
    check(&mut network, "a Pod is", 0);
    network.policy("x", "p", ingress(json!({}), json!([{}])));
    check(&mut network, "all is allowed", 36);
}

#[test]
fn the_node_reaches_its_pods_and_connections_go_on() {
    let mut network = Network::new();
    network.sync();
    let [xa, xa6] = addresses(0, 0);
    let to: SocketAddr = format!("{xa}:80").parse().unwrap();
    let mut open = within(network.host(OUTSIDE[0]), || TcpStream::connect(to)).unwrap();
    open.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut talk = || {
        open.write_all(b"?").unwrap();
        open.read_exact(&mut [0]).unwrap();
    };
    talk();
    network.policy("x", "p", deny_all());
    network.sync();
    talk();
    assert!(network.node_reaches(to) && network.node_reaches(format!("[{xa6}]:80").parse().unwrap()));
    assert_eq!(network.probe(0).0, Vec::new());
}

#[test]
fn a_flow_of_udp_ends_with_the_policy_that_forbids_it() {
    let mut network = Network::new();
    network.sync();
    let flow = |network: &Network, to: &str| {
        let socket = within(network.host(OUTSIDE[0]), || UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.connect(format!("{to}:80")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send(b"?").unwrap();
        socket.recv(&mut [0; 8]).unwrap();
        socket
    };
    let ([xa, _], [ya, _]) = (addresses(0, 0), addresses(1, 0));
    let (forbidden, allowed) = (flow(&network, &xa), flow(&network, &ya));
    let mut tcp = within(network.host(OUTSIDE[0]), || TcpStream::connect(format!("{xa}:80")).unwrap());
    assert_eq!(network.forget_forbidden(), 0, "nothing is forbidden");
    network.policy("x", "p", ingress(json!({}), json!([{"from": [{"podSelector": {}}]}])));
    network.sync();
    assert_eq!(network.forget_forbidden(), 1);
    forbidden.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    forbidden.send(b"?").unwrap();
    assert!(forbidden.recv(&mut [0; 8]).is_err(), "its next packet is judged anew");
    allowed.send(b"?").unwrap();
    allowed.recv(&mut [0; 8]).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    tcp.write_all(b"?").unwrap();
    tcp.read_exact(&mut [0]).unwrap();
}
