//! What network policies allow, read from the objects as the API describes it, one question at a time.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use objects::Cidr;

/// A packet that begins a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
}

/// All objects.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cluster {
    pub(crate) spaces: Vec<Namespace>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) policies: Vec<NetworkPolicy>,
}

type Labels = BTreeMap<String, String>;

fn selects(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let value = |key: &String| labels.and_then(|labels| labels.get(key));
    let equal = selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
    equal
        && selector.match_expressions.iter().flatten().all(|term| {
            let listed = |value: &String| term.values.iter().flatten().any(|one| one == value);
            match term.operator.as_str() {
                "In" => value(&term.key).is_some_and(listed),
                "NotIn" => !value(&term.key).is_some_and(listed),
                "Exists" => value(&term.key).is_some(),
                "DoesNotExist" => value(&term.key).is_none(),
                _ => false,
            }
        })
}

impl Cluster {
    /// The Pod of the pod network that has an address.
    fn pod(&self, address: IpAddr) -> Option<&Pod> {
        self.pods.iter().find(|pod| {
            let spec = pod.spec.as_ref();
            let status = pod.status.as_ref();
            let phase = status.and_then(|s| s.phase.as_deref());
            !spec.and_then(|s| s.host_network).unwrap_or_default()
                && !matches!(phase, Some("Succeeded" | "Failed"))
                && status
                    .and_then(|s| s.pod_ips.as_ref())
                    .is_some_and(|ips| ips.iter().any(|ip| ip.ip.parse() == Ok(address)))
        })
    }

    fn is_peer(&self, peer: &NetworkPolicyPeer, namespace: &str, address: IpAddr) -> bool {
        if let Some(block) = &peer.ip_block {
            let within = |text: &String| text.parse().is_ok_and(|b: Cidr| b.contains(Cidr::from(address)));
            return within(&block.cidr) && !block.except.iter().flatten().any(within);
        }
        let Some(pod) = self.pod(address) else { return false };
        let own = pod.metadata.namespace.as_deref().unwrap_or_default();
        let space = self.spaces.iter().find(|space| space.metadata.name.as_deref() == Some(own));
        let in_space = match &peer.namespace_selector {
            Some(selector) => space.is_some_and(|space| selects(selector, space.metadata.labels.as_ref())),
            None => own == namespace,
        };
        in_space && peer.pod_selector.as_ref().is_none_or(|s| selects(s, pod.metadata.labels.as_ref()))
    }

    fn is_port(&self, port: &NetworkPolicyPort, packet: Packet) -> bool {
        if port.protocol.as_deref().unwrap_or("TCP") != packet.protocol {
            return false;
        }
        match &port.port {
            None => true,
            Some(IntOrString::Int(first)) => {
                (*first..=port.end_port.unwrap_or(*first)).contains(&i32::from(packet.port))
            }
            Some(IntOrString::String(name)) => {
                let containers = self.pod(packet.to).and_then(|pod| pod.spec.as_ref()).map(|s| &s.containers);
                let ports = containers.into_iter().flatten().flat_map(|c| c.ports.iter().flatten());
                ports.into_iter().any(|one| {
                    one.name.as_ref() == Some(name)
                        && one.protocol.as_deref().unwrap_or("TCP") == packet.protocol
                        && one.container_port == i32::from(packet.port)
                })
            }
        }
    }

    /// Whether the policies of one end allow a packet.
    fn allowed(&self, packet: Packet, ingress: bool, node: &str) -> bool {
        let (own, peer) = if ingress { (packet.to, packet.from) } else { (packet.from, packet.to) };
        let Some(pod) = self.pod(own) else { return true };
        if pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) != Some(node) {
            return true;
        }
        let mut isolated = false;
        for policy in &self.policies {
            let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
            let Some(spec) = &policy.spec else { continue };
            let everybody = LabelSelector::default();
            let selector = spec.pod_selector.as_ref().unwrap_or(&everybody);
            if pod.metadata.namespace.as_deref() != Some(namespace)
                || !selects(selector, pod.metadata.labels.as_ref())
                || !isolates(spec, ingress)
            {
                continue;
            }
            isolated = true;
            let rules: Vec<_> = if ingress {
                spec.ingress.iter().flatten().map(|rule| (&rule.from, &rule.ports)).collect()
            } else {
                spec.egress.iter().flatten().map(|rule| (&rule.to, &rule.ports)).collect()
            };
            for (peers, ports) in rules {
                let peers = peers.as_deref().unwrap_or_default();
                let ports = ports.as_deref().unwrap_or_default();
                if (peers.is_empty() || peers.iter().any(|one| self.is_peer(one, namespace, peer)))
                    && (ports.is_empty() || ports.iter().any(|one| self.is_port(one, packet)))
                {
                    return true;
                }
            }
        }
        !isolated
    }

    /// Whether a node lets a packet pass that it forwards.
    pub(crate) fn may(&self, packet: Packet, node: &str) -> bool {
        let itself = packet.from == packet.to;
        itself || (self.allowed(packet, false, node) && self.allowed(packet, true, node))
    }
}

fn isolates(spec: &NetworkPolicySpec, ingress: bool) -> bool {
    match spec.policy_types.as_deref().unwrap_or_default() {
        [] => ingress || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
        types => types.iter().any(|t| t == if ingress { "Ingress" } else { "Egress" }),
    }
}
