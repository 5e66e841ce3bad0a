//! The parts of objects that network policies read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::Status;
use client::json::or_default;
use client::{Cached, FromJson, Identity};
use compact_str::CompactString as Text;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use objects::labels::CompactLabels;
use serde::Deserialize;

use crate::protocol::protocol;
use crate::spec::Policy;

/// A port of a Pod that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPort {
    pub(crate) name: Text,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

/// A Pod as network policies see it: some 400 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodView {
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    pub(crate) uid: Text,
    pub(crate) version: Text,
    pub(crate) labels: CompactLabels,
    /// The node to which it is bound, "" for none.
    pub(crate) node: Text,
    /// Whether it has its node's addresses: then no selector selects it, and no policy holds for it.
    pub(crate) host_network: bool,
    /// Whether it has ended for good: its addresses may be another one's.
    pub(crate) ended: bool,
    /// Its addresses that can be read, in order.
    pub(crate) addresses: Box<[IpAddr]>,
    pub(crate) ports: Box<[NamedPort]>,
    /// The uid by which its node knows it if it stands for a static one, "" otherwise.
    pub(crate) mirror: Text,
}

impl PodView {
    /// Whether a runtime's uid is that of the Pod.
    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.uid == uid || (!self.mirror.is_empty() && self.mirror == uid)
    }

    /// Whether another state is the same but for its version.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let Self {
            namespace,
            name,
            uid,
            version: _,
            labels,
            node,
            host_network,
            ended,
            addresses,
            ports,
            mirror,
        } = self;
        (namespace, name, uid, labels, node)
            == (&other.namespace, &other.name, &other.uid, &other.labels, &other.node)
            && (host_network, ended, addresses) == (&other.host_network, &other.ended, &other.addresses)
            && (ports, mirror) == (&other.ports, &other.mirror)
    }
}

/// A Namespace as network policies see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpaceView {
    pub(crate) name: Text,
    pub(crate) uid: Text,
    pub(crate) version: Text,
    pub(crate) labels: CompactLabels,
}

/// A NetworkPolicy in a normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyView {
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    pub(crate) uid: Text,
    pub(crate) version: Text,
    pub(crate) policy: Policy,
}

impl From<&NetworkPolicy> for PolicyView {
    fn from(of: &NetworkPolicy) -> Self {
        let text = |of: &Option<String>| Text::from(of.as_deref().unwrap_or_default());
        Self {
            namespace: text(&of.metadata.namespace),
            name: text(&of.metadata.name),
            uid: text(&of.metadata.uid),
            version: text(&of.metadata.resource_version),
            policy: Policy::new(of),
        }
    }
}

/// The name and the version of an object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: Text,
    pub(crate) version: Text,
}

client::from_json!(Wire);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "or_default")]
    metadata: WireMetadata,
    #[serde(deserialize_with = "or_default")]
    spec: WireSpec,
    #[serde(deserialize_with = "or_default")]
    status: WireStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    #[serde(deserialize_with = "or_default")]
    namespace: Text,
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    uid: Text,
    #[serde(deserialize_with = "or_default")]
    resource_version: Text,
    labels: Option<BTreeMap<Text, Text>>,
    annotations: Option<WireAnnotations>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireAnnotations {
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<Text>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(deserialize_with = "or_default")]
    node_name: Text,
    #[serde(deserialize_with = "or_default")]
    host_network: bool,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    #[serde(deserialize_with = "or_default")]
    restart_policy: Text,
    ports: Option<Vec<WirePort>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    protocol: Text,
    #[serde(deserialize_with = "or_default")]
    container_port: i32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "or_default")]
    phase: Text,
    #[serde(rename = "podIP", deserialize_with = "or_default")]
    pod_ip: Text,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<WireIp>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireIp {
    #[serde(deserialize_with = "or_default")]
    ip: Text,
}

fn addresses(status: &WireStatus) -> Box<[IpAddr]> {
    let all = status.pod_ips.iter().flatten().map(|one| &one.ip).chain([&status.pod_ip]);
    let mut found: Vec<IpAddr> = all
        .filter_map(|text| text.parse().ok())
        // No packet of a Pod has one of these.
        .filter(|a: &IpAddr| !a.is_unspecified() && !a.is_loopback() && !a.is_multicast())
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into()
}

fn ports(spec: &WireSpec) -> Box<[NamedPort]> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy == "Always");
    let all = spec.containers.iter().flatten().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let mut found: Vec<NamedPort> = all
        .filter(|port| !port.name.is_empty())
        .filter_map(|port| {
            Some(NamedPort {
                name: port.name.clone(),
                protocol: protocol(Some(&port.protocol))?,
                port: u16::try_from(port.container_port).ok()?,
            })
        })
        .collect();
    found.sort_unstable_by(|a, b| (&a.name, a.protocol, a.port).cmp(&(&b.name, b.protocol, b.port)));
    found.dedup();
    found.into()
}

impl From<Wire> for PodView {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            labels: metadata.labels.into_iter().flatten().collect(),
            mirror: metadata.annotations.and_then(|a| a.mirror).unwrap_or_default(),
            host_network: spec.host_network,
            ended: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            addresses: addresses(&status),
            ports: ports(&spec),
            node: spec.node_name,
        }
    }
}

impl FromJson for PodView {
    fn from_json(json: &[u8]) -> Result<Self, Status> {
        Wire::from_json(json).map(Self::from)
    }
}

impl FromJson for SpaceView {
    fn from_json(json: &[u8]) -> Result<Self, Status> {
        let metadata = Wire::from_json(json)?.metadata;
        Ok(Self {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            labels: metadata.labels.into_iter().flatten().collect(),
        })
    }
}

impl FromJson for Listed {
    fn from_json(json: &[u8]) -> Result<Self, Status> {
        let metadata = Wire::from_json(json)?.metadata;
        Ok(Self { name: metadata.name, version: metadata.resource_version })
    }
}

impl FromJson for PolicyView {
    fn from_json(json: &[u8]) -> Result<Self, Status> {
        NetworkPolicy::from_json(json).map(|policy| Self::from(&policy))
    }
}

impl Cached for PodView {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        Self::from_json(json)
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.version,
        }
    }
}

impl Cached for SpaceView {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        Self::from_json(json)
    }
    fn identity(&self) -> Identity<'_> {
        Identity { namespace: "", name: &self.name, uid: &self.uid, resource_version: &self.version }
    }
}

impl Cached for PolicyView {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        Self::from_json(json)
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.version,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_a_pod() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "annotations": {"kubernetes.io/config.mirror": "m"}},
            "spec": {"nodeName": "me", "containers": [{"name": "c", "ports": [
                {"name": "http", "containerPort": 80},
                {"name": "dns", "protocol": "UDP", "containerPort": 53},
                {"containerPort": 9},
                {"name": "bad", "containerPort": 70000},
            ]}], "initContainers": [
                {"name": "i", "ports": [{"name": "gone", "containerPort": 1}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 2}]},
            ]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [
                {"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "x"}, {"ip": "127.0.0.1"},
            ]},
        });
        let pod = PodView::decode(pod.to_string().as_bytes()).unwrap();
        let names: Vec<&str> = pod.ports.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["dns", "http", "side"]);
        assert_eq!(pod.addresses.len(), 2);
        assert_eq!((pod.key(), pod.resource_version()), (client::Key::new("n", "p"), "7"));
        assert!(pod.has_uid("u") && pod.has_uid("m") && !pod.has_uid("") && !pod.ended && !pod.host_network);
        let odd = PodView::decode(br#"{"spec":null,"status":{"phase":"Failed","podIPs":null}}"#).unwrap();
        assert!(odd.ended && odd.addresses.is_empty());
        assert!(PodView::decode(b"[").is_err());
    }
}
