//! A node with Pods, and a client outside: network namespaces joined by veth.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::FromJson;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netlink::conntrack::{Connections, UDP};
use netlink::namespace;
use netlink::nft::Filter;
use policy::{Changes, Enforcer, Event, PodView, PolicyView, SpaceView};
use serde_json::{Value, json};
use testkit::Host;

use crate::oracle::{Cluster, Packet};

/// How long an answer is waited for, and how long one that should not come.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

/// The name of the node.
pub(crate) const NODE: &str = "node";
/// The client outside, on whose link nobody is isolated.
pub(crate) const OUTSIDE: [&str; 2] = ["192.0.2.9", "2001:db8::9"];
/// The ports at which each Pod answers, to TCP and UDP.
pub(crate) const PORTS: [u16; 2] = [80, 81];
/// The namespaces and the Pods of each, as upstream's tests have them.
pub(crate) const SPACES: [&str; 3] = ["x", "y", "z"];
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Does work in the network namespace of a host.
pub(crate) fn within<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    let network = namespace::open(&host.network()).unwrap();
    namespace::within(network.as_fd(), work).unwrap()
}

pub(crate) fn host(name: &str) -> Host {
    let host = Host::new(name).unwrap();
    for of in ["ipv6/conf/all/accept_dad", "ipv6/conf/default/accept_dad"] {
        within(&host, || std::fs::write(format!("/proc/sys/net/{of}"), "0")).unwrap();
    }
    host
}

fn ip(host: &Host, arguments: &[&str]) {
    let network = format!("--net={}", host.network().display());
    let out = Command::new("nsenter").arg(network).args(["--", "ip"]).args(arguments).output().unwrap();
    assert!(out.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The addresses of a Pod.
pub(crate) fn addresses(space: usize, name: usize) -> [String; 2] {
    [format!("10.181.{space}.{}", name + 1), format!("fd00:181::{space}:{}", name + 1)]
}

/// A node, its Pods, and who knows which packets should pass.
pub(crate) struct Network {
    pub(crate) node: Host,
    others: Vec<(Host, [String; 2])>,
    pub(crate) enforcer: Enforcer,
    pub(crate) cluster: Cluster,
}

impl Network {
    /// All Pods of all namespaces, which answer at all ports.
    pub(crate) fn new() -> Self {
        let enforcer = Enforcer::new("policy-test", NODE);
        let mut all = Self { node: host("node"), others: Vec::new(), enforcer, cluster: Cluster::default() };
        all.join(OUTSIDE.map(str::to_owned));
        for (number, space) in SPACES.iter().enumerate() {
            all.space(space, json!({"ns": space, "kubernetes.io/metadata.name": space}));
            for (place, name) in NAMES.iter().enumerate() {
                all.join(addresses(number, place));
                all.pod(number, place, json!({ "pod": name }));
            }
        }
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            within(&all.node, || std::fs::write(format!("/proc/sys/net/{name}"), "1")).unwrap();
        }
        all
    }

    /// Joins a host to the node, and answers there.
    fn join(&mut self, addresses: [String; 2]) {
        let host = host("other");
        let link = format!("v{}", self.others.len());
        let path = host.network();
        let pid = path.to_str().unwrap().split('/').nth(2).unwrap().to_owned();
        ip(&self.node, &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
        ip(&self.node, &["link", "set", &link, "up"]);
        ip(&self.node, &["address", "add", "192.0.2.1/32", "dev", &link]);
        ip(&self.node, &["address", "add", "2001:db8::1/128", "dev", &link, "nodad"]);
        ip(&host, &["link", "set", "eth0", "up"]);
        for (address, width, gateway) in
            [(&addresses[0], 32, "192.0.2.1"), (&addresses[1], 128, "2001:db8::1")]
        {
            let own = format!("{address}/{width}");
            let family = if width == 32 { "-4" } else { "-6" };
            let mut add = vec!["address", "add", &own, "dev", "eth0"];
            if width == 128 {
                add.push("nodad");
            }
            ip(&host, &add);
            ip(&host, &[family, "route", "add", gateway, "dev", "eth0"]);
            ip(&host, &[family, "route", "add", "default", "via", gateway, "dev", "eth0"]);
            ip(&self.node, &[family, "route", "add", &own, "dev", &link]);
            for port in PORTS {
                serve(&host, SocketAddr::new(address.parse().unwrap(), port));
            }
        }
        self.others.push((host, addresses));
    }

    pub(crate) fn space(&mut self, name: &str, labels: Value) {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        let space: Namespace = serde_json::from_value(object.clone()).unwrap();
        self.cluster.spaces.retain(|one| one.metadata.name != space.metadata.name);
        self.cluster.spaces.push(space);
        self.enforcer.apply(Event::Space(view::<SpaceView>(&object)));
    }

    pub(crate) fn pod(&mut self, space: usize, name: usize, labels: Value) {
        let port = |number: u16, protocol: &str| {
            let name = format!("serve-{number}-{}", protocol.to_lowercase());
            json!({"name": name, "containerPort": number, "protocol": protocol})
        };
        let ports = PORTS.map(|number| ["TCP", "UDP"].map(|protocol| port(number, protocol))).concat();
        let ips = addresses(space, name).map(|address| json!({ "ip": address }));
        let object = json!({
            "metadata": {"namespace": SPACES[space], "name": NAMES[name], "labels": labels, "uid": "u"},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "ports": ports}]},
            "status": {"phase": "Running", "podIPs": ips},
        });
        let pod: Pod = serde_json::from_value(object.clone()).unwrap();
        self.cluster.pods.retain(|one| {
            (&one.metadata.namespace, &one.metadata.name) != (&pod.metadata.namespace, &pod.metadata.name)
        });
        self.cluster.pods.push(pod);
        self.enforcer.apply(Event::Pod(view::<PodView>(&object)));
    }

    pub(crate) fn policy(&mut self, namespace: &str, name: &str, spec: Value) {
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
        let policy: NetworkPolicy = serde_json::from_value(object).unwrap();
        self.enforcer.apply(Event::Policy(Arc::new(PolicyView::from(&policy))));
        self.cluster.policies.retain(|one| {
            (&one.metadata.namespace, &one.metadata.name)
                != (&policy.metadata.namespace, &policy.metadata.name)
        });
        self.cluster.policies.push(policy);
    }

    /// Removes all policies.
    pub(crate) fn clear(&mut self) {
        for policy in std::mem::take(&mut self.cluster.policies) {
            let (namespace, name) = (policy.metadata.namespace.unwrap(), policy.metadata.name.unwrap());
            self.enforcer.apply(Event::PolicyGone(client::Key::new(namespace, name)));
        }
    }

    /// Writes the table of the node.
    pub(crate) fn sync(&mut self) -> Changes {
        within(&self.node, || self.enforcer.sync(&mut Filter::open().unwrap())).unwrap()
    }

    /// Forgets what policies forbid; returns how many flows there were.
    pub(crate) fn forget_forbidden(&self) -> usize {
        within(&self.node, || {
            self.enforcer.forget_forbidden(&mut netlink::conntrack::Connections::open().unwrap()).unwrap()
        })
    }

    /// Forgets connections of UDP: a new socket may have the port of one before, whose flow would go on.
    pub(crate) fn forget_flows(&self) {
        let forget = || Connections::open()?.delete_all(|flow| flow.protocol == UDP);
        within(&self.node, forget).unwrap();
    }

    /// Sends a packet of each kind from everybody to every Pod; returns those that did not go as they should, and how
    /// many passed. `family` is 0 for IPv4, 1 for IPv6.
    pub(crate) fn probe(&self, family: usize) -> (Vec<Packet>, usize) {
        let pods: Vec<IpAddr> = self.others[1..].iter().map(|(_, of)| of[family].parse().unwrap()).collect();
        let results: Vec<(Packet, bool, bool)> = std::thread::scope(|scope| {
            let each = self.others.iter().map(|(host, of)| {
                let from: IpAddr = of[family].parse().unwrap();
                let (cluster, pods) = (&self.cluster, &pods);
                scope.spawn(move || within(host, || probe_from(cluster, from, pods)))
            });
            let threads: Vec<_> = each.collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let wrong = results.iter().filter(|(_, got, should)| got != should).map(|(packet, ..)| *packet);
        (wrong.collect(), results.iter().filter(|(_, got, _)| *got).count())
    }

    /// Whether the node itself reaches an address.
    pub(crate) fn node_reaches(&self, to: SocketAddr) -> bool {
        within(&self.node, || connects(to, PATIENCE))
    }

    /// The host with an address of IPv4.
    pub(crate) fn host(&self, address: &str) -> &Host {
        &self.others.iter().find(|(_, of)| of[0] == address).unwrap().0
    }
}

/// Sends packets to all Pods at once, from the network namespace of this thread.
fn probe_from(cluster: &Cluster, from: IpAddr, pods: &[IpAddr]) -> Vec<(Packet, bool, bool)> {
    let mut packets = Vec::new();
    for to in pods.iter().filter(|to| **to != from) {
        for port in PORTS {
            packets.extend(["TCP", "UDP"].map(|protocol| Packet { from, to: *to, protocol, port }));
        }
    }
    std::thread::scope(|scope| {
        let one = |packet: Packet| {
            let should = cluster.may(packet, NODE);
            let patience = if should { PATIENCE } else { SHORT };
            let to = SocketAddr::new(packet.to, packet.port);
            let got = if packet.protocol == "TCP" { connects(to, patience) } else { answers(to, patience) };
            (packet, got, should)
        };
        let threads: Vec<_> = packets.into_iter().map(|packet| scope.spawn(move || one(packet))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(crate) fn view<T: FromJson>(object: &Value) -> Arc<T> {
    Arc::new(T::from_json(object.to_string().as_bytes()).unwrap())
}

fn serve(host: &Host, at: SocketAddr) {
    let (tcp, udp) = within(host, || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()));
    std::thread::spawn(move || {
        for mut connection in tcp.incoming().flatten() {
            // A client that says something is answered, as long as it stays.
            std::thread::spawn(move || {
                let mut room = [0; 8];
                while connection.read(&mut room).is_ok_and(|length| length > 0) {
                    if connection.write_all(b"!").is_err() {
                        return;
                    }
                }
            });
        }
    });
    std::thread::spawn(move || {
        let mut room = [0; 8];
        while let Ok((_, peer)) = udp.recv_from(&mut room) {
            let _ = udp.send_to(b"!", peer);
        }
    });
}

fn connects(to: SocketAddr, patience: Duration) -> bool {
    TcpStream::connect_timeout(&to, patience).is_ok()
}

fn answers(to: SocketAddr, patience: Duration) -> bool {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send(b"?").is_ok() && socket.recv(&mut [0; 8]).is_ok()
}
