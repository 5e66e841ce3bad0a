//! A server on loopback, and clients of it.

mod coredns;
mod follow;
mod forward;
mod hostile;
mod records;
mod spec;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use client::{Cached, Change};
use component::Shutdown;
use dns::zone::views::{NamespaceView, PodView, ServiceView, SliceView};
use dns::{Config, Event, Server, Upstreams, Zone};
use ferrokube_dns as dns;
use hickory_proto::op::Message;
use hickory_proto::rr::Record;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// A server that stops with the test.
pub(crate) struct Run {
    pub(crate) server: Server,
    pub(crate) shutdown: Shutdown,
}

/// The address of a free port.
pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The usual settings, without servers to forward to.
pub(crate) fn config() -> Config {
    Config { upstreams: Upstreams::None, ..Config::new(vec![loopback()], "cluster.local".parse().unwrap()) }
}

pub(crate) async fn start(config: Config) -> Run {
    let shutdown = Shutdown::new();
    let server = Server::start(config, &shutdown).await.unwrap();
    Run { server, shutdown }
}

impl Run {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }
    pub(crate) fn zone(&self) -> &Arc<Zone> {
        self.server.zone()
    }
    pub(crate) fn metrics(&self) -> String {
        self.server.registry().page().text()
    }
}

fn decode<T: Cached>(object: &Value) -> Arc<T> {
    Arc::new(T::decode(object.to_string().as_bytes()).unwrap())
}

pub(crate) fn apply(zone: &Zone, event: Event) {
    zone.apply(&event, "2017-07-06T13:30:23Z".parse().unwrap());
}

pub(crate) fn namespace(zone: &Zone, name: &str) {
    apply(
        zone,
        Event::Namespace(Change::Added(decode::<NamespaceView>(&json!({"metadata": {"name": name}})))),
    );
}

/// The object of a Service `NAME.NAMESPACE`.
pub(crate) fn service_view(name: &str, spec: &Value) -> Arc<ServiceView> {
    let (name, namespace) = name.split_once('.').unwrap();
    decode(&json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}))
}

pub(crate) fn service(zone: &Zone, name: &str, spec: &Value) {
    apply(zone, Event::Service(Change::Added(service_view(name, spec))));
}

/// The object of a slice of the Service `NAME.NAMESPACE`.
pub(crate) fn slice_view(service: &str, n: usize, ports: &Value, endpoints: &Value) -> Arc<SliceView> {
    let (name, namespace) = service.split_once('.').unwrap();
    let first = endpoints[0]["addresses"][0].as_str().unwrap_or_default();
    let family = if first.contains(':') { "IPv6" } else { "IPv4" };
    decode(&json!({
        "metadata": {"name": format!("{name}-{n}"), "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": family, "ports": ports, "endpoints": endpoints,
    }))
}

pub(crate) fn slice(zone: &Zone, service: &str, n: usize, ports: &Value, endpoints: &Value) {
    apply(zone, Event::Slice(Change::Added(slice_view(service, n, ports, endpoints))));
}

pub(crate) fn pod(zone: &Zone, namespace: &str, address: &str) {
    let object =
        json!({"metadata": {"name": "p", "namespace": namespace}, "status": {"podIPs": [{"ip": address}]}});
    apply(zone, Event::Pod(Change::Added(decode::<PodView>(&object))));
}

/// Endpoints with these addresses, each with a hostname behind `=` if there is one.
pub(crate) fn endpoints(all: &[&str]) -> Value {
    all.iter()
        .map(|one| {
            let (address, hostname) = one.split_once('=').map_or((*one, None), |(a, h)| (a, Some(h)));
            json!({"addresses": [address], "hostname": hostname})
        })
        .collect()
}

/// A question as a packet, with EDNS if the client takes so long datagrams.
pub(crate) fn question(id: u16, name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut packet = Vec::new();
    for word in [id, 0x0100, 1, 0, 0, u16::from(edns.is_some())] {
        packet.extend(word.to_be_bytes());
    }
    for label in name.trim_end_matches('.').split('.').filter(|l| !l.is_empty()) {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    if let Some(size) = edns {
        packet.extend([0, 0, 41]);
        packet.extend(size.to_be_bytes());
        packet.extend([0; 6]);
    }
    packet
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a datagram; the answer.
pub(crate) async fn udp(server: SocketAddr, packet: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind(loopback()).await.unwrap();
    socket.connect(server).await.unwrap();
    socket.send(packet).await.unwrap();
    let mut answer = vec![0; 65536];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut answer)).await.expect("an answer").unwrap();
    answer.truncate(length);
    answer
}

pub(crate) async fn send_framed(stream: &mut TcpStream, packet: &[u8]) {
    let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], packet].concat()).await.unwrap();
}

pub(crate) async fn read_framed(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut answer).await.unwrap();
    answer
}

/// Sends a message over TCP; the answer.
pub(crate) async fn tcp(server: SocketAddr, packet: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    send_framed(&mut stream, packet).await;
    tokio::time::timeout(PATIENCE, read_framed(&mut stream)).await.expect("an answer")
}

/// An answer in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) rcode: String,
    pub(crate) answers: Vec<String>,
    pub(crate) authority: Vec<String>,
    pub(crate) additional: Vec<String>,
}

pub(crate) fn message(packet: &[u8]) -> Message {
    Message::from_vec(packet).unwrap_or_else(|e| panic!("{e}: {packet:?}"))
}

fn lines(records: &[Record]) -> Vec<String> {
    let mut lines: Vec<String> = records.iter().map(ToString::to_string).collect();
    lines.sort();
    lines
}

impl From<&[u8]> for Words {
    fn from(packet: &[u8]) -> Self {
        let message = message(packet);
        Self {
            rcode: dns::packet::Rcode::name(u16::from(message.metadata.response_code)).to_owned(),
            answers: lines(&message.answers),
            authority: lines(&message.authorities),
            additional: lines(&message.additionals),
        }
    }
}

/// The number of a type.
pub(crate) fn number(kind: &str) -> u16 {
    let all = [
        ("A", 1),
        ("NS", 2),
        ("CNAME", 5),
        ("SOA", 6),
        ("PTR", 12),
        ("HINFO", 13),
        ("MX", 15),
        ("TXT", 16),
        ("AAAA", 28),
        ("SRV", 33),
        ("HTTPS", 65),
        ("AXFR", 252),
        ("IXFR", 251),
        ("ANY", 255),
    ];
    all.iter().find(|(name, _)| *name == kind).unwrap_or_else(|| panic!("{kind}")).1
}

/// Asks `NAME TYPE` over UDP and TCP, which answer the same.
pub(crate) async fn ask(run: &Run, asked: &str) -> Words {
    let (name, kind) = asked.split_once(' ').unwrap();
    let packet = question(7, name, number(kind), Some(1232));
    let over_udp = Words::from(&udp(run.address(), &packet).await[..]);
    let over_tcp = Words::from(&tcp(run.address(), &packet).await[..]);
    assert_eq!(over_udp, over_tcp, "{asked}");
    over_udp
}

/// Checks rows of `NAME TYPE`, a code, the answers, and additional records.
pub(crate) async fn check(run: &Run, rows: &[(&str, &str, &[&str], &[&str])]) {
    for (asked, rcode, answers, additional) in rows {
        let got = ask(run, asked).await;
        let sorted = |rows: &[&str]| {
            let mut rows: Vec<String> = rows.iter().map(|r| (*r).to_owned()).collect();
            rows.sort();
            rows
        };
        assert_eq!((got.rcode.as_str(), &got.answers), (*rcode, &sorted(answers)), "{asked}");
        assert_eq!(got.additional, sorted(additional), "{asked}");
        // A denial has the start of its zone, and nothing else has.
        assert_eq!(got.authority.len(), usize::from(answers.is_empty()), "{asked}: {:?}", got.authority);
    }
}
