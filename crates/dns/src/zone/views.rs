//! The parts of objects that DNS needs, as informers keep them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::Status;
use client::Cached;
use client::FromJson;
use compact_str::CompactString as Text;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::name::Name;

/// The label by which a slice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The annotation with the time of the change that a slice follows.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// An object's identity. The resourceVersion tells a new object of the same name, so no uid is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// `metadata.namespace`.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.resourceVersion`.
    pub version: Text,
}

impl From<ObjectMeta> for Identity {
    fn from(meta: ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.unwrap_or_default().into(),
            name: meta.name.unwrap_or_default().into(),
            version: meta.resource_version.unwrap_or_default().into(),
        }
    }
}

macro_rules! cached {
    ($($view:ty: $object:ty),* $(,)?) => {$(
        impl Cached for $view {
            fn decode(json: &[u8]) -> Result<Self, Status> {
                <$object>::from_json(json).map(Self::from)
            }
            fn identity(&self) -> client::Identity<'_> {
                client::Identity { namespace: &self.id.namespace, name: &self.id.name, uid: "", resource_version: &self.id.version }
            }
        }
    )*};
}
cached!(ServiceView: Service, SliceView: EndpointSlice, NamespaceView: Namespace, PodView: Pod);

/// A named port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name; "" for a Service's only port.
    pub name: Text,
    /// Protocol, in lower case.
    pub protocol: Text,
    /// Number; `None` where a slice leaves it to its reader.
    pub number: Option<u16>,
}

impl Port {
    fn new(name: Option<String>, protocol: Option<String>, number: Option<i32>) -> Self {
        let mut protocol = protocol.unwrap_or_else(|| "tcp".to_owned());
        protocol.make_ascii_lowercase();
        Self {
            name: name.unwrap_or_default().into(),
            protocol: protocol.into(),
            number: number.and_then(|n| u16::try_from(n).ok()),
        }
    }
}

/// How a Service is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// By its own addresses.
    Cluster(Box<[IpAddr]>),
    /// By those of its endpoints.
    Headless,
    /// By another name.
    External(Name),
    /// Not yet, or never: it has no address, or its external name is none.
    Nothing,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    /// Identity.
    pub id: Identity,
    /// How it is reached.
    pub reach: Reach,
    /// Its ports.
    pub ports: Box<[Port]>,
}

impl From<Service> for ServiceView {
    fn from(service: Service) -> Self {
        let spec = service.spec.unwrap_or_default();
        let mut addresses = spec.cluster_ips.unwrap_or_default();
        if addresses.is_empty() {
            addresses.extend(spec.cluster_ip);
        }
        let external = || spec.external_name.as_deref().unwrap_or_default();
        let reach = if spec.type_.as_deref() == Some("ExternalName") {
            // An address is no name, as CoreDNS has it.
            let name = Some(external()).filter(|n| n.parse::<IpAddr>().is_err());
            name.and_then(|n| n.parse().ok()).map_or(Reach::Nothing, Reach::External)
        } else if addresses.iter().any(|a| a == "None") {
            Reach::Headless
        } else {
            let addresses: Box<[IpAddr]> = addresses.iter().filter_map(|a| a.parse().ok()).collect();
            if addresses.is_empty() { Reach::Nothing } else { Reach::Cluster(addresses) }
        };
        let ports = spec.ports.into_iter().flatten().map(|p| Port::new(p.name, p.protocol, Some(p.port)));
        Self { id: service.metadata.into(), reach, ports: ports.collect() }
    }
}

/// The addresses of a slice, which are of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4(Box<[Ipv4Addr]>),
    /// IPv6.
    V6(Box<[Ipv6Addr]>),
}

impl Addresses {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::V4(all) => all.len(),
            Self::V6(all) => all.len(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// One of them.
    pub fn get(&self, at: usize) -> Option<IpAddr> {
        match self {
            Self::V4(all) => all.get(at).copied().map(IpAddr::V4),
            Self::V6(all) => all.get(at).copied().map(IpAddr::V6),
        }
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

/// The ready endpoints of an EndpointSlice. (Those of a Service that publishes addresses that are not ready are
/// marked as ready by the slice's controller.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceView {
    /// Identity.
    pub id: Identity,
    /// The Service's name.
    pub service: Text,
    /// The time of the change that the slice follows.
    pub triggered: Option<Timestamp>,
    /// The ports; none if the endpoints have none.
    pub ports: Box<[Port]>,
    /// The addresses of its endpoints.
    pub addresses: Addresses,
    /// The hostnames of those that have one, in lower case, by the number of the address, ascending.
    pub hostnames: Box<[(u32, Box<str>)]>,
}

impl SliceView {
    /// The hostname of an address.
    pub fn hostname(&self, at: usize) -> Option<&str> {
        let at = u32::try_from(at).ok()?;
        let found = self.hostnames.binary_search_by_key(&at, |(n, _)| *n).ok()?;
        self.hostnames.get(found).map(|(_, name)| &**name)
    }
}

impl From<EndpointSlice> for SliceView {
    fn from(mut slice: EndpointSlice) -> Self {
        let (mut v4, mut v6, mut hostnames) = (Vec::new(), Vec::new(), Vec::new());
        let is_v6 = slice.address_type == "IPv6";
        let ready = |e: &k8s_openapi::api::discovery::v1::Endpoint| {
            e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)
        };
        // DIFFERENCE: upstream serves addresses of type FQDN as if they were IP addresses, which they are not.
        for endpoint in slice.endpoints.into_iter().flatten().filter(ready) {
            for address in endpoint.addresses {
                match address.parse() {
                    Ok(IpAddr::V4(a)) if !is_v6 => v4.push(a),
                    Ok(IpAddr::V6(a)) if is_v6 => v6.push(a),
                    _ => continue,
                }
                if let Some(name) = endpoint.hostname.as_deref().filter(|n| !n.is_empty()) {
                    hostnames.push(((v4.len() + v6.len() - 1) as u32, name.to_ascii_lowercase().into()));
                }
            }
        }
        let label = slice.metadata.labels.as_mut().and_then(|l| l.remove(SERVICE_NAME));
        let time = slice.metadata.annotations.as_ref().and_then(|a| a.get(TRIGGER_TIME));
        let ports = slice.ports.into_iter().flatten().map(|p| Port::new(p.name, p.protocol, p.port));
        Self {
            triggered: time.and_then(|t| t.parse().ok()),
            id: slice.metadata.into(),
            service: label.unwrap_or_default().into(),
            ports: ports.collect(),
            addresses: if is_v6 { Addresses::V6(v6.into()) } else { Addresses::V4(v4.into()) },
            hostnames: hostnames.into(),
        }
    }
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceView {
    /// Identity.
    pub id: Identity,
}

impl From<Namespace> for NamespaceView {
    fn from(namespace: Namespace) -> Self {
        Self { id: namespace.metadata.into() }
    }
}

/// A Pod's addresses; one that is to go has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Identity.
    pub id: Identity,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
}

impl From<Pod> for PodView {
    fn from(pod: Pod) -> Self {
        let there = pod.metadata.deletion_timestamp.is_none();
        let status = pod.status.filter(|_| there).unwrap_or_default();
        let mut addresses: Vec<IpAddr> =
            status.pod_ips.into_iter().flatten().filter_map(|p| p.ip.parse().ok()).collect();
        if addresses.is_empty() {
            addresses.extend(status.pod_ip.and_then(|ip| ip.parse::<IpAddr>().ok()));
        }
        Self { id: pod.metadata.into(), addresses: addresses.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> ServiceView {
        let object =
            json!({"metadata": {"name": "s", "namespace": "n", "resourceVersion": "7"}, "spec": spec});
        ServiceView::decode(object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn reaches() {
        let check = |spec: Value, want: Reach| assert_eq!(service(spec.clone()).reach, want, "{spec}");
        let cluster = |all: &[&str]| Reach::Cluster(all.iter().map(|a| a.parse().unwrap()).collect());
        check(json!({"clusterIP": "10.0.0.1"}), cluster(&["10.0.0.1"]));
        check(
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}),
            cluster(&["10.0.0.1", "fd00::1"]),
        );
        check(json!({"clusterIP": "None", "clusterIPs": ["None"]}), Reach::Headless);
        check(
            json!({"type": "ExternalName", "externalName": "A.example"}),
            Reach::External("a.example".parse().unwrap()),
        );
        check(json!({"type": "ExternalName", "externalName": "10.0.0.1"}), Reach::Nothing);
        check(json!({"type": "ExternalName", "externalName": ""}), Reach::Nothing);
        check(json!({}), Reach::Nothing);
    }

    #[test]
    fn slices_have_what_is_ready() {
        let slice = json!({
            "metadata": {
                "name": "s-1", "namespace": "n", "labels": {"kubernetes.io/service-name": "s"},
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "any"}],
            "endpoints": [
                {"addresses": ["10.0.0.1"]},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3", "fd00::1", "x"], "conditions": {"ready": true}, "hostname": "Pet"},
            ],
        });
        let slice = SliceView::decode(slice.to_string().as_bytes()).unwrap();
        assert_eq!(
            slice.addresses.iter().map(|a| a.to_string()).collect::<Vec<_>>(),
            ["10.0.0.1", "10.0.0.3"]
        );
        assert_eq!((slice.hostname(0), slice.hostname(1)), (None, Some("pet")));
        assert_eq!(slice.service, "s");
        assert_eq!(slice.triggered, Some("2026-01-02T03:04:05Z".parse().unwrap()));
        let ports: Vec<_> =
            slice.ports.iter().map(|p| (p.name.as_str(), p.protocol.as_str(), p.number)).collect();
        assert_eq!(ports, [("http", "tcp", Some(80)), ("any", "tcp", None)]);
    }
}
