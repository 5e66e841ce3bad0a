//! The backends of a Service, from its EndpointSlices (upstream: `pkg/proxy/endpointslicecache.go`), and the choice
//! between them ([`choice`]).
//!
//! A Service that publishes addresses that are not ready needs no rule of its own here: its slices say that they are
//! ready.

pub mod choice;

use std::collections::BTreeMap;
use std::net::IpAddr;

use compact_str::CompactString as Text;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

pub use choice::{Choice, Policies, Viewpoint, choose, usable};

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
    /// The address type of slices of this family.
    pub fn address_type(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// The name by which a Service's port finds its backends: a Service may give one name to two protocols.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName {
    /// The port's name, "" for the only one without.
    pub name: Text,
    /// The protocol.
    pub protocol: Text,
}

/// An address that serves a Service's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The node that it is on, "" if that is not known.
    pub node: Text,
    /// Whether it takes new connections: it serves and stays, or its Service does not ask.
    pub ready: bool,
    /// Whether it serves, even if it is to go.
    pub serving: bool,
    /// Whether it is to go.
    pub terminating: bool,
    /// The zones whose traffic it is meant for; none if nobody gave it any.
    pub zones: Box<[Text]>,
    /// The nodes whose traffic it is meant for; none if nobody gave it any.
    pub nodes: Box<[Text]>,
}

/// Reads the backends of each port from all slices of one Service, in the order of their addresses and ports.
///
/// Slices of another family, ports without a name or number, and addresses to which no Service may lead are passed
/// over. Of endpoints with one address and port, one that stays is taken before one that is to go, and then the one of
/// the later slice: an address may be in use again before the Pod that had it is gone.
pub fn by_port<'s>(
    slices: impl IntoIterator<Item = &'s EndpointSlice>,
    family: Family,
) -> BTreeMap<PortName, Vec<Backend>> {
    let mut slices: Vec<_> = slices.into_iter().filter(|s| s.address_type == family.address_type()).collect();
    slices.sort_by_key(|s| &s.metadata.name);
    let mut found: BTreeMap<PortName, BTreeMap<(IpAddr, u16), Backend>> = BTreeMap::new();
    for slice in slices {
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        for port in slice.ports.iter().flatten() {
            let number = port.port.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
            let (Some(name), Some(number)) = (&port.name, number) else { continue };
            let protocol = port.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP");
            let name = PortName { name: name.into(), protocol: protocol.into() };
            let known = found.entry(name).or_default();
            for backend in endpoints.iter().filter_map(|e| backend(e, number, family)) {
                let at = (backend.address, backend.port);
                if !backend.terminating || !known.contains_key(&at) {
                    known.insert(at, backend);
                }
            }
        }
    }
    let all = found.into_iter().map(|(name, all)| (name, all.into_values().collect::<Vec<_>>()));
    all.filter(|(_, all)| !all.is_empty()).collect()
}

/// Whether an endpoint may have an address (upstream's `ValidateEndpointIP`).
fn may_serve(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let link_local_multicast = a.octets()[..3] == [224, 0, 0];
            !(a.is_unspecified() || a.is_loopback() || a.is_link_local() || link_local_multicast)
        }
        IpAddr::V6(a) => {
            // Such an address is an IPv4 one in disguise.
            if let Some(v4) = a.to_ipv4_mapped() {
                return may_serve(v4.into());
            }
            let link_local_multicast = a.segments()[0] & 0xff0f == 0xff02;
            !(a.is_unspecified() || a.is_loopback() || a.is_unicast_link_local() || link_local_multicast)
        }
    }
}

fn backend(endpoint: &Endpoint, port: u16, family: Family) -> Option<Backend> {
    // Further addresses of an endpoint have no meaning.
    let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    if Family::of(address) != family || !may_serve(address) {
        return None;
    }
    let said = endpoint.conditions.as_ref();
    let hints = endpoint.hints.as_ref();
    Some(Backend {
        address,
        port,
        node: endpoint.node_name.as_deref().unwrap_or_default().into(),
        ready: said.and_then(|c| c.ready).unwrap_or(true),
        serving: said.and_then(|c| c.serving).unwrap_or(true),
        terminating: said.and_then(|c| c.terminating).unwrap_or(false),
        zones: hints
            .iter()
            .flat_map(|h| h.for_zones.iter().flatten())
            .map(|z| z.name.as_str().into())
            .collect(),
        nodes: hints
            .iter()
            .flat_map(|h| h.for_nodes.iter().flatten())
            .map(|n| n.name.as_str().into())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A slice as upstream's tests make it: `count` addresses `10.0.NET.1`…, of which every so many are not ready or
    /// are to go, on the hosts in turn, with the ports `port-0`, ….
    struct Made<'a> {
        name: &'a str,
        net: u8,
        count: u8,
        unready: u8,
        terminating: u8,
        hosts: &'a [&'a str],
        ports: &'a [Option<i32>],
    }

    const PLAIN: Made<'static> = Made {
        name: "svc1-1",
        net: 1,
        count: 3,
        unready: 255,
        terminating: 255,
        hosts: &[],
        ports: &[Some(80)],
    };

    fn slice(m: &Made<'_>) -> Value {
        let endpoint = |i: u8| {
            let (ready, going) = (i % m.unready != 0, i % m.terminating == 0);
            let mut endpoint = json!({
                "addresses": [format!("10.0.{}.{i}", m.net)],
                "conditions": {"ready": ready && !going, "serving": ready, "terminating": going},
            });
            if !m.hosts.is_empty() {
                endpoint["nodeName"] = json!(m.hosts[usize::from(i) % m.hosts.len()]);
            }
            endpoint
        };
        let port = |(i, n): (usize, &Option<i32>)| json!({"name": format!("port-{i}"), "port": n, "protocol": "TCP"});
        json!({
            "metadata": {"name": m.name}, "addressType": "IPv4",
            "endpoints": (1..=m.count).map(endpoint).collect::<Vec<_>>(),
            "ports": m.ports.iter().enumerate().map(port).collect::<Vec<_>>(),
        })
    }

    /// Compares what slices give with lines `NAME/PROTOCOL ADDRESS:PORT FLAGS`: `l` local to `host1`, `r` ready, `s`
    /// serving, `t` terminating.
    fn check(what: &str, slices: &[Value], want: &[&str]) {
        check_family(what, slices, Family::V4, want);
    }

    fn check_family(what: &str, slices: &[Value], family: Family, want: &[&str]) {
        let slices: Vec<EndpointSlice> =
            slices.iter().map(|s| serde_json::from_value(s.clone()).unwrap()).collect();
        let mut got = Vec::new();
        for (port, all) in by_port(&slices, family) {
            for b in all {
                let flags =
                    [(b.node == "host1", 'l'), (b.ready, 'r'), (b.serving, 's'), (b.terminating, 't')];
                let flags: String = flags.into_iter().filter(|f| f.0).map(|f| f.1).collect();
                let at = std::net::SocketAddr::new(b.address, b.port);
                got.push(format!("{}/{} {at} {flags}", port.name, port.protocol));
            }
        }
        assert_eq!(got, want, "{what}");
    }

    /// The cases of upstream's `TestEndpointsMapFromESC` and `TestEndpointInfoByServicePort`. The caller picks the
    /// slices of a Service, and what two states of a slice have in common is the informer's to know: the cases of
    /// other Services and of `TestEsDataChanged` have no place here.
    #[test]
    fn upstream_cases() {
        let hosts: &[&str] = &["host1", "host2"];
        let two_ports = Made { hosts, ports: &[Some(80), Some(443)], ..PLAIN };
        check(
            "1 slice, 2 hosts, ports 80,443",
            &[slice(&two_ports)],
            &[
                "port-0/TCP 10.0.1.1:80 rs",
                "port-0/TCP 10.0.1.2:80 lrs",
                "port-0/TCP 10.0.1.3:80 rs",
                "port-1/TCP 10.0.1.1:443 rs",
                "port-1/TCP 10.0.1.2:443 lrs",
                "port-1/TCP 10.0.1.3:443 rs",
            ],
        );
        check(
            "2 slices, same port",
            &[slice(&PLAIN), slice(&Made { name: "svc1-2", net: 2, ..PLAIN })],
            &[
                "port-0/TCP 10.0.1.1:80 rs",
                "port-0/TCP 10.0.1.2:80 rs",
                "port-0/TCP 10.0.1.3:80 rs",
                "port-0/TCP 10.0.2.1:80 rs",
                "port-0/TCP 10.0.2.2:80 rs",
                "port-0/TCP 10.0.2.3:80 rs",
            ],
        );
        check(
            "2 overlapping slices, same port",
            &[slice(&PLAIN), slice(&Made { name: "svc1-2", count: 4, ..PLAIN })],
            &[
                "port-0/TCP 10.0.1.1:80 rs",
                "port-0/TCP 10.0.1.2:80 rs",
                "port-0/TCP 10.0.1.3:80 rs",
                "port-0/TCP 10.0.1.4:80 rs",
            ],
        );
        let overlapping = |unready: [u8; 2], terminating: u8| {
            let [first, second] = unready;
            [
                slice(&Made { count: 10, unready: first, terminating, ..PLAIN }),
                slice(&Made { name: "svc1-2", count: 10, unready: second, terminating, ..PLAIN }),
            ]
        };
        let flags = |flags: [&str; 10]| -> Vec<String> {
            (1..=10).zip(flags).map(|(i, f)| format!("port-0/TCP 10.0.1.{i}:80 {f}")).collect()
        };
        let check_flags = |what: &str, slices: &[Value], all: [&str; 10]| {
            let all = flags(all);
            check(what, slices, &all.iter().map(String::as_str).collect::<Vec<_>>());
        };
        check_flags(
            "2 slices, overlapping endpoints, some endpoints unready in 1 or both",
            &overlapping([3, 6], 255),
            ["rs", "rs", "rs", "rs", "rs", "", "rs", "rs", "rs", "rs"],
        );
        check_flags(
            "2 slices, overlapping endpoints, some endpoints unready and some endpoints terminating",
            &overlapping([3, 6], 5),
            ["rs", "rs", "rs", "rs", "st", "", "rs", "rs", "rs", "st"],
        );
        check_flags("2 slices, overlapping endpoints, all unready", &overlapping([1, 1], 255), [""; 10]);
        check("Nil port should not break anything", &[slice(&Made { hosts, ports: &[None], ..PLAIN })], &[]);
        let twice = |name, port| Made { name, count: 2, hosts, ports: port, ..PLAIN };
        check(
            "Different endpoints with duplicate IPs should not be filtered",
            &[slice(&twice("svc1-1", &[Some(80)])), slice(&twice("svc1-2", &[Some(8080)]))],
            &[
                "port-0/TCP 10.0.1.1:80 rs",
                "port-0/TCP 10.0.1.1:8080 rs",
                "port-0/TCP 10.0.1.2:80 lrs",
                "port-0/TCP 10.0.1.2:8080 lrs",
            ],
        );
        let mut three = slice(&Made { count: 1, hosts: &["host1"], ..PLAIN });
        let state = |ready: bool, serving: bool, terminating: bool| {
            let conditions = json!({"ready": ready, "serving": serving, "terminating": terminating});
            json!({"addresses": ["10.0.1.1"], "nodeName": "host1", "conditions": conditions})
        };
        three["endpoints"] =
            json!([state(false, true, true), state(true, true, false), state(false, false, true)]);
        check("with duplicate Endpoints, prefer non-terminating", &[three], &["port-0/TCP 10.0.1.1:80 lrs"]);
    }

    #[test]
    fn odd_slices() {
        let with = |address: Value, port: Value, kind: &str| json!({"metadata": {"name": "s"}, "addressType": kind, "endpoints": [{"addresses": address}], "ports": [port]});
        let port = json!({"name": "", "port": 80});
        check(
            "absent conditions and protocol",
            &[with(json!(["10.0.0.1"]), port.clone(), "IPv4")],
            &["/TCP 10.0.0.1:80 rs"],
        );
        check(
            "the first address counts",
            &[with(json!(["10.0.0.1", "10.0.0.2"]), port.clone(), "IPv4")],
            &["/TCP 10.0.0.1:80 rs"],
        );
        for address in
            ["127.0.0.1", "169.254.1.1", "224.0.0.5", "0.0.0.0", "10.0.0", "x", "", "fd00::1", "010.0.0.1"]
        {
            check(address, &[with(json!([address]), port.clone(), "IPv4")], &[]);
        }
        check("no address", &[with(json!([]), port.clone(), "IPv4")], &[]);
        for port in [
            json!({"port": 80}),
            json!({"name": "a"}),
            json!({"name": "a", "port": 0}),
            json!({"name": "a", "port": 65536}),
            json!({"name": "a", "port": -1}),
        ] {
            check("odd port", &[with(json!(["10.0.0.1"]), port, "IPv4")], &[]);
        }
        check("a name", &[with(json!(["example.com"]), port.clone(), "FQDN")], &[]);
        let both =
            [with(json!(["10.0.0.1"]), port.clone(), "IPv4"), with(json!(["fd00::1"]), port.clone(), "IPv6")];
        check_family("one family", &both, Family::V4, &["/TCP 10.0.0.1:80 rs"]);
        check_family("the other family", &both, Family::V6, &["/TCP [fd00::1]:80 rs"]);
        for address in ["::1", "fe80::1", "ff02::1", "::"] {
            check_family(address, &[with(json!([address]), port.clone(), "IPv6")], Family::V6, &[]);
        }
        let dns = |protocol: &str| {
            with(json!(["10.0.0.1"]), json!({"name": "dns", "port": 53, "protocol": protocol}), "IPv4")
        };
        check(
            "one name, two protocols",
            &[dns("UDP"), dns("TCP")],
            &["dns/TCP 10.0.0.1:53 rs", "dns/UDP 10.0.0.1:53 rs"],
        );
    }
}
