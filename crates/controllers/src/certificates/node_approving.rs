//! The approver of a node's other certificates: that with which its kubelet serves, and those of its other parts.
//!
//! DIFFERENCE: upstream leaves them to an administrator.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Cached, Client, FromJson, Identity, Informer, Key, Selection, resource_of};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::Cidr;
use serde::Deserialize;

use super::node_rules::{self, Kind, Reported, Reserved};
use super::request::Request;
use super::{approving, is_open};
use crate::host::{Controller, Host, Next, Shared, Wiring};

/// The time after which a request that was left is looked at again: its Node may report the addresses by then.
const AGAIN: Duration = Duration::from_mins(5);

/// The approver of a node's other certificates.
pub(crate) struct NodeApproving {
    client: Client,
    requests: Informer<CertificateSigningRequest>,
    nodes: Informer<Addresses>,
    /// The slices of the Service `kubernetes`, which lead to the API servers.
    servers: Informer<EndpointSlice>,
    ranges: Vec<Cidr>,
}

impl Controller for NodeApproving {
    const NAME: &'static str = "node-certificate-approving-controller";
    const ACCOUNT: &'static str = "node-certificate-approver";
    const QUEUE: &'static str = "node_certificate";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        let servers = Selection {
            namespace: "default".into(),
            label_selector: "kubernetes.io/service-name=kubernetes".into(),
            ..Selection::default()
        };
        let config = host.config();
        let clusters = config.cluster_cidr.split(',').map(str::trim);
        Self {
            client: host.client(),
            requests: host.informer(),
            nodes: host.select(resource_of::<Node>(), Selection::default()),
            servers: host.select(resource_of::<EndpointSlice>(), servers),
            ranges: config
                .service_cidrs
                .iter()
                .map(String::as_str)
                .chain(clusters)
                .filter_map(|range| range.parse().ok())
                .collect(),
        }
    }

    fn wanted(shared: &Shared) -> bool {
        shared.config.node_certificates
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.requests, false);
        let (queue, requests) = (wiring.queue(), self.requests.clone());
        self.nodes.handle(move |change| {
            let node = change.object().metadata.name.as_deref().unwrap_or_default();
            let user = format!("system:node:{node}");
            for csr in requests.list() {
                if csr.spec.username.as_ref() == Some(&user) && is_open(&csr) {
                    queue.add(csr.key());
                }
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(csr) = self.requests.get_key(&key).filter(|csr| is_open(csr)) else { return Ok(Next::Done) };
        let Ok(request) = Request::parse(&csr.spec.request.0) else { return Ok(Next::Done) };
        let Some((kind, node)) = node_rules::kind(&csr, &request) else { return Ok(Next::Done) };
        let nodes: Vec<Reported> = self.nodes.list().iter().map(|n| n.reported()).collect();
        let judged = match kind {
            Kind::Serving => node_rules::serving(&csr, &request, node, &nodes, &self.reserved()),
            Kind::Account => node_rules::account(&csr, &request, node, &nodes),
        };
        if let Err(why) = judged {
            tracing::info!(csr = %key, %why, "a certificate request of a node is left to an administrator");
            return Ok(Next::After(AGAIN));
        }
        let message = match kind {
            Kind::Serving => {
                "Auto approving kubelet serving certificate for the node's own name and addresses."
            }
            Kind::Account if approving::allowed(&self.client, &csr, "nodeaccount").await? => {
                "Auto approving client certificate of a part of the node after SubjectAccessReview."
            }
            Kind::Account => return Ok(Next::After(AGAIN)),
        };
        approving::approve(&self.client, &csr, message).await?;
        Ok(Next::Done)
    }
}

impl NodeApproving {
    fn reserved(&self) -> Reserved {
        let slices = self.servers.list();
        let addresses =
            slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).flat_map(|e| &e.addresses);
        let servers: BTreeSet<IpAddr> = addresses.filter_map(|a| a.parse().ok()).collect();
        Reserved { ranges: self.ranges.clone(), servers }
    }
}

/// The part of a Node with its addresses.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Addresses {
    metadata: ObjectMeta,
    status: Option<AddressStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct AddressStatus {
    addresses: Option<Vec<NodeAddress>>,
}

client::from_json!(Addresses);

impl Addresses {
    fn reported(&self) -> Reported {
        let mut all =
            Reported { name: self.metadata.name.clone().unwrap_or_default(), ..Reported::default() };
        for address in self.status.iter().flat_map(|s| s.addresses.iter().flatten()) {
            if address.type_.ends_with("IP") {
                all.addresses.extend(address.address.parse::<IpAddr>().map(|ip| ip.to_canonical()));
            } else {
                all.names.insert(address.address.to_ascii_lowercase());
            }
        }
        all
    }
}

impl Cached for Addresses {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let mut node = Self::from_json(json)?;
        node.metadata.managed_fields = None;
        Ok(node)
    }
    fn identity(&self) -> Identity<'_> {
        Identity::of(&self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_node_reports() {
        let node = json!({"metadata": {"name": "n"}, "status": {"images": 7, "addresses": [
            {"type": "InternalIP", "address": "192.0.2.1"}, {"type": "ExternalIP", "address": "::ffff:192.0.2.2"},
            {"type": "InternalIP", "address": "nonsense"}, {"type": "Hostname", "address": "N"},
            {"type": "ExternalDNS", "address": "a.example"}]}});
        let reported = Addresses::decode(node.to_string().as_bytes()).unwrap().reported();
        assert_eq!(reported.names.iter().map(String::as_str).collect::<Vec<_>>(), ["a.example", "n"]);
        let addresses: Vec<String> = reported.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(
            (reported.name.as_str(), &addresses[..]),
            ("n", &["192.0.2.1".to_owned(), "192.0.2.2".to_owned()][..])
        );
        assert_eq!(Addresses::decode(b"{}").unwrap().reported(), Reported::default());
    }
}
