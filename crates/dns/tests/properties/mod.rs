//! Properties that hold for any packet. The fuzz targets in `fuzz/` run these, too.

use std::sync::OnceLock;

use ferrokube_dns::cache::Question;
use ferrokube_dns::forward::message;
use ferrokube_dns::packet::{self, Query, Rcode, Transport, Writer};
use ferrokube_dns::zone::{Cached, Change, Event, Lookup, PodMode, Zone, ZoneConfig};
use hickory_proto::op::Message;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 2] = [("dns_packet", dns_packet), ("dns_answer", dns_answer)];

fn decode<T: Cached>(object: &Value) -> std::sync::Arc<T> {
    let Ok(view) = T::decode(object.to_string().as_bytes()) else { panic!("{object} is no object") };
    std::sync::Arc::new(view)
}

/// A small cluster, in which everything has a name.
fn zone() -> &'static Zone {
    static ZONE: OnceLock<Zone> = OnceLock::new();
    ZONE.get_or_init(|| {
        let (Ok(domain), Ok(reverse), Ok(nameserver)) =
            ("cluster.local".parse(), "10.0.0.0/16".parse(), "10.0.0.10".parse())
        else {
            panic!("these are good");
        };
        let config = ZoneConfig { domain, ttl: 5, pods: PodMode::Insecure, reverse: vec![reverse], nameservers: vec![nameserver] };
        let zone = Zone::new(config);
        let service = |name: &str, spec: Value| {
            let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
            zone.apply(&Event::Service(Change::Added(decode(&object))), Timestamp::UNIX_EPOCH);
        };
        let namespace = json!({"metadata": {"name": "ns"}});
        zone.apply(&Event::Namespace(Change::Added(decode(&namespace))), Timestamp::UNIX_EPOCH);
        let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        service("a", json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ports": ports}));
        service("h", json!({"clusterIP": "None", "ports": ports}));
        service("x", json!({"type": "ExternalName", "externalName": "a.ns.svc.cluster.local"}));
        service("e", json!({"type": "ExternalName", "externalName": "example.com"}));
        for n in 0..3u8 {
            let endpoints: Vec<Value> = (0..30u8)
                .map(|i| json!({"addresses": [format!("10.0.{n}.{i}")], "hostname": (i % 2 == 0).then(|| format!("host-{i}"))}))
                .collect();
            let object = json!({
                "metadata": {"name": format!("h-{n}"), "namespace": "ns", "labels": {"kubernetes.io/service-name": "h"}},
                "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
            });
            zone.apply(&Event::Slice(Change::Added(decode(&object))), Timestamp::UNIX_EPOCH);
        }
        zone.set_synced();
        zone
    })
}

/// Any packet is answered within the client's limit, by what another implementation can read, or by nothing.
pub fn dns_packet(data: &[u8]) {
    let Ok(query) = Query::read(data) else { return };
    for transport in [Transport::Udp, Transport::Tcp] {
        let (limit, mut out) = (query.limit(transport), Vec::new());
        let mut writer = Writer::new(&query, limit, &mut out);
        let lookup = zone().answer(&mut writer);
        let rcode = match lookup {
            Lookup::Answered(rcode) => rcode,
            _ => Rcode::NoError,
        };
        writer.finish(rcode, true);
        assert!(out.len() <= limit, "{} of {limit} bytes", out.len());
        let Ok(message) = Message::from_vec(&out) else { panic!("not readable: {out:?}") };
        assert_eq!((message.metadata.id, message.edns.is_some()), (query.id, query.edns.is_some()));
        assert_eq!(message.queries.len(), 1);
        assert!(!message.metadata.truncation || transport == Transport::Udp);
        let mut empty = Vec::new();
        packet::empty(&query, Rcode::ServFail, &mut empty);
        assert!(Message::from_vec(&empty).is_ok());
    }
}

/// Whatever another server sends is passed on only if it can be read, within the client's limit, and to the question.
pub fn dns_answer(data: &[u8]) {
    let question =
        Question { name: b"\x03www\x07example\0"[..].into(), kind: 1, dnssec: false, unchecked: false };
    let mut packet = message::ask(&question, 7, false);
    // The first bytes are flags and counts; so most packets are answers to the question.
    let (head, records) = data.split_at(data.len().min(8));
    packet[2] = 0x80 | head.first().copied().unwrap_or(0) & 0x07;
    packet[3] = head.get(1).copied().unwrap_or(0);
    for (at, byte) in [7, 9, 11].into_iter().zip(head.iter().skip(2)) {
        packet[at] = *byte;
    }
    packet.extend(records);
    let Ok(answer) = message::read(&packet, &question, 7, false) else { return };
    let Ok(query) = Query::read(&message::ask(&question, 9, true)) else { panic!("our own question") };
    for transport in [Transport::Udp, Transport::Tcp] {
        let (limit, mut out) = (query.limit(transport), Vec::new());
        packet::adapt(&answer.message, &query, limit, Some(3), &mut out);
        assert!(out.len() <= limit);
        let Ok(message) = Message::from_vec(&out) else { panic!("not readable: {out:?}") };
        assert!(message.all_sections().all(|r| r.ttl == 3));
        assert_eq!((message.metadata.id, message.edns.is_some()), (9, true));
    }
    let mut cnames = Vec::new();
    let mut writer = Writer::new(&query, 512, &mut cnames);
    writer.record(packet::Section::Answer, packet::ASKED, packet::kind::CNAME, 5, |d| d.extend(b"\x01a\0"));
    writer.finish(Rcode::NoError, true);
    if let Some(joined) = message::join(&cnames, &answer, 3) {
        assert!(Message::from_vec(&joined).is_ok());
    }
}
