//! The contents of the table beside a naive reading of the objects, packet by packet.

use std::net::IpAddr;
use std::sync::Arc;

use client::{FromJson, Key};
use serde_json::{Value, json};

use crate::enforcer::{Attached, Enforcer, Event, Owner};
use crate::judge;
use crate::oracle::{Cluster, Packet};
use crate::protocol::protocol;
use crate::views::{Listed, PodView, PolicyView, SpaceView};

/// The node of the tests.
const NODE: &str = "me";

/// Whether the contents let a packet pass.
fn passes(enforcer: &Enforcer, packet: Packet) -> bool {
    let Packet { from, to, protocol: name, port } = packet;
    enforcer.passes(judge::Packet { from, to, protocol: protocol(Some(name)).unwrap(), port })
}

fn view<T: FromJson>(object: &impl serde::Serialize) -> Arc<T> {
    Arc::new(T::from_json(&serde_json::to_vec(object).unwrap()).unwrap())
}

/// A cluster with the enforcer that follows it.
struct Both {
    cluster: Cluster,
    enforcer: Enforcer,
}

impl Both {
    fn new() -> Self {
        Self { cluster: Cluster::default(), enforcer: Enforcer::new("t", NODE) }
    }

    fn space(&mut self, object: Value) {
        let space: k8s_openapi::api::core::v1::Namespace = serde_json::from_value(object).unwrap();
        self.enforcer.apply(Event::Space(view::<SpaceView>(&space)));
        self.cluster.spaces.retain(|one| one.metadata.name != space.metadata.name);
        self.cluster.spaces.push(space);
    }

    fn pod(&mut self, object: Value) {
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(object).unwrap();
        self.enforcer.apply(Event::Pod(view::<PodView>(&pod)));
        self.forget_pod(pod.metadata.namespace.as_deref().unwrap(), pod.metadata.name.as_deref().unwrap());
        self.cluster.pods.push(pod);
    }

    fn forget_pod(&mut self, namespace: &str, name: &str) {
        let of = |one: &k8s_openapi::api::core::v1::Pod| {
            (one.metadata.namespace.as_deref(), one.metadata.name.as_deref()) == (Some(namespace), Some(name))
        };
        self.cluster.pods.retain(|one| !of(one));
    }

    fn policy(&mut self, namespace: &str, name: &str, spec: Value) {
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
        let policy: k8s_openapi::api::networking::v1::NetworkPolicy = serde_json::from_value(object).unwrap();
        self.enforcer.apply(Event::Policy(Arc::new(PolicyView::from(&policy))));
        self.forget_policy(namespace, name);
        self.cluster.policies.push(policy);
    }

    fn forget_policy(&mut self, namespace: &str, name: &str) {
        self.cluster.policies.retain(|one| {
            (one.metadata.namespace.as_deref(), one.metadata.name.as_deref()) != (Some(namespace), Some(name))
        });
    }

    /// All addresses that tell cases apart.
    fn addresses(&self) -> Vec<IpAddr> {
        let pods = self.cluster.pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ips.as_ref()).flatten();
        let mut all: Vec<IpAddr> = pods.map(|ip| ip.ip.parse().unwrap()).collect();
        all.extend(["10.0.9.9", "192.0.2.7", "2001:db8::7"].map(|text| text.parse::<IpAddr>().unwrap()));
        all
    }

    /// Compares all packets between two addresses.
    fn check(&mut self, what: &str) {
        self.enforcer.plan();
        let all = self.addresses();
        for from in &all {
            for to in all.iter().filter(|to| to.is_ipv4() == from.is_ipv4()) {
                for protocol in ["TCP", "UDP", "SCTP"] {
                    for port in [80, 81, 82, 8080] {
                        let packet = Packet { from: *from, to: *to, protocol, port };
                        assert_eq!(
                            passes(&self.enforcer, packet),
                            self.cluster.may(packet, NODE),
                            "{what}: {packet:?}: {:#?}",
                            self.cluster
                        );
                    }
                }
            }
        }
    }

    /// Compares with an enforcer that learns the present state at once.
    fn check_fresh(&self, what: &str) {
        let mut fresh = Enforcer::new("t", NODE);
        for policy in &self.cluster.policies {
            fresh.apply(Event::Policy(Arc::new(PolicyView::from(policy))));
        }
        for pod in &self.cluster.pods {
            fresh.apply(Event::Pod(view::<PodView>(pod)));
        }
        for space in &self.cluster.spaces {
            fresh.apply(Event::Space(view::<SpaceView>(space)));
        }
        fresh.plan();
        assert_eq!(self.enforcer.contents.wanted(), fresh.contents.wanted(), "{what}");
    }
}

fn labels() -> Value {
    let mut all = serde_json::Map::new();
    for key in ["a", "b"] {
        if fastrand::bool() {
            all.insert(key.to_owned(), json!(["1", "2", "3"][fastrand::usize(..3)]));
        }
    }
    all.into()
}

fn selector() -> Value {
    let key = ["a", "b"][fastrand::usize(..2)];
    let value = ["1", "2", "3"][fastrand::usize(..3)];
    match fastrand::u8(..7) {
        0 | 1 => json!({}),
        2 => json!({"matchLabels": labels()}),
        3 => json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value, "1"]}]}),
        4 => json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}),
        5 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
        _ => json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}),
    }
}

fn some(most: usize, make: impl Fn() -> Value) -> Value {
    (0..fastrand::usize(..=most)).map(|_| make()).collect()
}

fn peer() -> Value {
    match fastrand::u8(..6) {
        0 => json!({"podSelector": selector()}),
        1 => json!({"namespaceSelector": selector()}),
        2 | 3 => json!({"namespaceSelector": selector(), "podSelector": selector()}),
        4 => json!({"ipBlock": {"cidr": "10.0.0.0/16", "except": ["10.0.1.0/24", "10.0.2.2/32"]}}),
        _ => [
            json!({"ipBlock": {"cidr": "192.0.2.0/24"}}),
            json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.2.0/24"]}}),
            json!({"ipBlock": {"cidr": "fd00::/16", "except": ["fd00::1:0/112"]}}),
        ][fastrand::usize(..3)]
        .clone(),
    }
}

fn port() -> Value {
    let protocol = [json!(null), json!("TCP"), json!("UDP"), json!("SCTP")][fastrand::usize(..4)].clone();
    match fastrand::u8(..5) {
        0 => json!({"protocol": protocol}),
        1 | 2 => json!({"protocol": protocol, "port": 80 + fastrand::u8(..3)}),
        3 => json!({"protocol": protocol, "port": 80, "endPort": 81 + fastrand::u8(..2)}),
        _ if fastrand::bool() => json!({"protocol": protocol, "port": "web"}),
        _ => json!({"protocol": protocol, "port": "other"}),
    }
}

fn spec() -> Value {
    let types = [json!(null), json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])];
    json!({
        "podSelector": selector(),
        "policyTypes": types[fastrand::usize(..4)],
        "ingress": some(2, || json!({"from": some(2, peer), "ports": some(2, port)})),
        "egress": some(2, || json!({"to": some(2, peer), "ports": some(2, port)})),
    })
}

const SPACES: [&str; 3] = ["x", "y", "z"];

fn pod(space: usize, name: usize) -> Value {
    let number = if fastrand::u8(..8) == 0 { 9 } else { name };
    let ips = match fastrand::u8(..6) {
        0 => json!([]),
        1 => json!([{"ip": format!("fd00::{space}:{number}")}]),
        2 => json!([{"ip": format!("10.0.{space}.{number}")}]),
        _ => json!([{"ip": format!("10.0.{space}.{number}")}, {"ip": format!("fd00::{space}:{number}")}]),
    };
    json!({
        "metadata": {"namespace": SPACES[space], "name": format!("p{name}"), "labels": labels(),
            "uid": fastrand::u64(..).to_string()},
        "spec": {
            "nodeName": if fastrand::u8(..4) == 0 { "other" } else { NODE },
            "hostNetwork": fastrand::u8(..10) == 0,
            "containers": [{"name": "c", "ports": [
                {"name": "web", "containerPort": if fastrand::bool() { 80 } else { 8080 }},
                {"name": "other", "protocol": "UDP", "containerPort": 81},
            ]}],
        },
        "status": {"phase": if fastrand::u8(..10) == 0 { "Succeeded" } else { "Running" }, "podIPs": ips},
    })
}

/// Two Pods never have one address but for moments; the oracle does not know of such.
fn is_free(both: &Both, pod: &Value) -> bool {
    let has = |address: &IpAddr| {
        both.cluster.pods.iter().any(|one| {
            let same = pod["metadata"]["name"] == json!(one.metadata.name)
                && pod["metadata"]["namespace"] == json!(one.metadata.namespace);
            let ips = one.status.as_ref().and_then(|s| s.pod_ips.as_ref()).into_iter().flatten();
            !same && ips.into_iter().any(|ip| ip.ip.parse() == Ok(*address))
        })
    };
    let ips = pod["status"]["podIPs"].as_array().unwrap();
    !ips.iter().any(|ip| has(&ip["ip"].as_str().unwrap().parse().unwrap()))
}

fn random_change(both: &mut Both) {
    let (space, name) = (fastrand::usize(..3), 1 + fastrand::usize(..3));
    match fastrand::u8(..10) {
        0 => both.space(json!({"metadata": {"name": SPACES[space], "labels": labels()}})),
        1 => {
            both.enforcer.apply(Event::SpaceGone(SPACES[space].into()));
            both.cluster.spaces.retain(|one| one.metadata.name.as_deref() != Some(SPACES[space]));
        }
        2..=4 => {
            let pod = pod(space, name);
            if is_free(both, &pod) {
                both.pod(pod);
            }
        }
        5 => {
            let name = format!("p{name}");
            both.enforcer.apply(Event::PodGone(Key::new(SPACES[space], &name)));
            both.forget_pod(SPACES[space], &name);
        }
        6..=8 => both.policy(SPACES[space], &format!("n{name}"), spec()),
        _ => {
            let name = format!("n{name}");
            both.enforcer.apply(Event::PolicyGone(Key::new(SPACES[space], &name)));
            both.forget_policy(SPACES[space], &name);
        }
    }
}

#[test]
fn contents_say_what_objects_mean_after_any_changes() {
    for seed in 0..60 {
        fastrand::seed(seed);
        let mut both = Both::new();
        for space in SPACES {
            both.space(json!({"metadata": {"name": space, "labels": labels()}}));
        }
        for step in 0..25 {
            for _ in 0..=fastrand::usize(..6) {
                random_change(&mut both);
            }
            let what = format!("seed {seed}, step {step}");
            both.check(&what);
            both.check_fresh(&what);
        }
        for space in SPACES {
            for number in 1..=3 {
                both.enforcer.apply(Event::PolicyGone(Key::new(space, format!("n{number}"))));
            }
        }
        both.enforcer.plan();
        assert!(both.enforcer.uses.is_empty() && both.enforcer.selections.is_empty(), "seed {seed}");
        assert_eq!(
            both.enforcer.contents.wanted(),
            Enforcer::new("t", NODE).contents.wanted(),
            "seed {seed}"
        );
    }
}

/// Whether TCP packets to port 80 pass.
fn reaches(enforcer: &mut Enforcer, from: &str, to: &str) -> bool {
    enforcer.plan();
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    passes(enforcer, Packet { from, to, protocol: "TCP", port: 80 })
}

fn plain_pod(name: &str, uid: &str, ips: &[&str]) -> Event {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    Event::Pod(view::<PodView>(&json!({
        "metadata": {"namespace": "n", "name": name, "uid": uid, "labels": {"app": name}},
        "spec": {"nodeName": NODE, "containers": []},
        "status": {"podIPs": ips},
    })))
}

fn deny(name: &str) -> Event {
    let policy = json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "5"},
        "spec": {"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Ingress", "Egress"]}});
    Event::Policy(view::<PolicyView>(&policy))
}

fn attached(container: &str, pod: &str, uid: &str, ip: &str) -> Attached {
    let pod = Owner { key: Key::new("n", pod), uid: uid.into() };
    Attached { container: container.into(), pod, addresses: vec![ip.parse().unwrap()] }
}

#[test]
fn a_container_has_its_pods_policies_before_the_api_has_its_address_and_until_it_is_gone() {
    let mut enforcer = Enforcer::new("t", NODE);
    enforcer.apply(deny("a"));
    enforcer.apply(plain_pod("a", "u1", &[]));
    assert!(reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(Event::Attached(attached("c1", "a", "u1", "10.0.0.1")));
    assert!(!reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    assert!(!reaches(&mut enforcer, "10.0.0.1", "10.0.0.9"));
    assert!(reaches(&mut enforcer, "10.0.0.1", "10.0.0.1"), "itself");
    enforcer.apply(plain_pod("a", "u1", &["10.0.0.1"]));
    assert!(!reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    // Its containers outlive it.
    enforcer.apply(Event::PodGone(Key::new("n", "a")));
    assert!(!reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    // Another one of its name: the container of the first one has nobody to speak for it.
    enforcer.apply(Event::PolicyGone(Key::new("n", "a")));
    enforcer.apply(plain_pod("a", "u2", &[]));
    assert!(!reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(Event::Attached(attached("c2", "a", "u2", "10.0.0.2")));
    assert!(reaches(&mut enforcer, "10.0.0.9", "10.0.0.2"));
    enforcer.apply(Event::Released("c1".into()));
    assert!(reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(Event::Released("c2".into()));
    enforcer.apply(Event::PodGone(Key::new("n", "a")));
    enforcer.plan();
    assert_eq!(enforcer.contents.wanted(), Enforcer::new("t", NODE).contents.wanted());
}

#[test]
fn an_address_is_that_of_the_container_that_has_it() {
    let mut enforcer = Enforcer::new("t", NODE);
    enforcer.apply(deny("old"));
    enforcer.apply(plain_pod("old", "u1", &["10.0.0.1"]));
    enforcer.apply(plain_pod("new", "u2", &[]));
    assert!(!reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(Event::Attached(attached("c2", "new", "u2", "10.0.0.1")));
    assert!(reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(plain_pod("old", "u1", &["10.0.0.1"]));
    assert!(reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(deny("new"));
    assert!(!reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
    enforcer.apply(Event::Released("c2".into()));
    enforcer.apply(Event::PolicyGone(Key::new("n", "old")));
    assert!(reaches(&mut enforcer, "10.0.0.9", "10.0.0.1"));
}

#[test]
fn a_container_is_let_in_when_its_pod_and_the_listed_policies_are_known() {
    let mut enforcer = Enforcer::new("t", NODE);
    let one = attached("c", "a", "u1", "10.0.0.1");
    let listed = |version: &str| vec![Listed { name: "a".into(), version: version.into() }];
    enforcer.apply(Event::Space(view::<SpaceView>(&json!({"metadata": {"name": "n"}}))));
    assert!(!enforcer.knows(&one, &[]));
    enforcer.apply(plain_pod("a", "u0", &[]));
    assert!(!enforcer.knows(&one, &[]), "another one of its name");
    enforcer.apply(plain_pod("a", "u1", &[]));
    assert!(enforcer.knows(&one, &[]));
    assert!(!enforcer.knows(&one, &listed("5")));
    enforcer.apply(deny("a"));
    assert!(enforcer.knows(&one, &listed("5")) && !enforcer.knows(&one, &listed("6")));
    enforcer.apply(Event::SpaceGone("n".into()));
    assert!(!enforcer.knows(&one, &[]));
}
