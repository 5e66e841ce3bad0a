//! The addresses that are to be announced, and the nodes that may, by the objects of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use client::{Cached, Key};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::hold::Wanted;

/// The annotation of a Service whose addresses are from the pool, and its value.
const POOLED: (&str, &str) = ("ferrokube.io/load-balancer", "pool");
/// The label of nodes that load balancers leave.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The label of a slice's Service.
pub(crate) const SLICE_OF: &str = "kubernetes.io/service-name";

/// Whether a Service's packets stay on the node that gets them.
pub(crate) fn is_local(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|s| s.external_traffic_policy.as_deref() == Some("Local"))
}

/// The addresses of a Service that are to be announced.
pub(crate) fn addresses(service: &Service) -> Vec<IpAddr> {
    let annotations = service.metadata.annotations.as_ref();
    if annotations.and_then(|a| a.get(POOLED.0)).is_none_or(|value| value != POOLED.1) {
        return Vec::new();
    }
    let status = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let ingress = status.and_then(|l| l.ingress.as_ref()).into_iter().flatten();
    let vips = ingress.filter(|i| i.ip_mode.as_deref().unwrap_or("VIP") == "VIP");
    vips.filter_map(|i| i.ip.as_ref()?.parse().ok()).collect()
}

/// The addresses with the nodes that may hold them. An address that Services share needs a node that does for all.
pub(crate) fn wanted<'s>(
    services: impl Iterator<Item = &'s Service>,
    nodes: &BTreeSet<String>,
    nodes_of: impl Fn(&Key) -> BTreeSet<String>,
) -> BTreeMap<IpAddr, Wanted> {
    let mut all: BTreeMap<IpAddr, Wanted> = BTreeMap::new();
    for service in services {
        let mut may = nodes.clone();
        if is_local(service) {
            let with_endpoints = nodes_of(&Key::new(
                service.metadata.namespace.as_deref().unwrap_or_default(),
                service.metadata.name.as_deref().unwrap_or_default(),
            ));
            may.retain(|node| with_endpoints.contains(node));
        }
        for address in addresses(service) {
            let there = all.entry(address).or_insert_with(|| Wanted { nodes: may.clone() });
            there.nodes.retain(|node| may.contains(node));
        }
    }
    all
}

/// Whether load balancers may use a node.
pub(crate) fn is_candidate(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let excluded = node.metadata.labels.as_ref().is_some_and(|l| l.contains_key(EXCLUDED));
    !excluded && conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The nodes with an endpoint that is ready, of a Service's slices.
pub(crate) fn nodes_with_endpoints<'s>(slices: impl Iterator<Item = &'s EndpointSlice>) -> BTreeSet<String> {
    let endpoints = slices.flat_map(|s| s.endpoints.iter().flatten());
    let ready = endpoints.filter(|e| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false)));
    ready.filter_map(|e| e.node_name.clone()).collect()
}

/// The key of a slice's Service.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(SLICE_OF)?;
    Some(Key::new(slice.namespace(), name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::serde_json::{Value, from_value, json};

    fn service(name: &str, mark: &str, policy: &str, ingress: &Value) -> Service {
        from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "annotations": {POOLED.0: mark}},
            "spec": {"externalTrafficPolicy": policy},
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
        .unwrap()
    }

    #[test]
    fn addresses_and_nodes() {
        let nodes: BTreeSet<String> = ["n1", "n2"].map(str::to_owned).into();
        let check = |services: &[Service], expected: &[(&str, &[&str])]| {
            let all = wanted(services.iter(), &nodes, |key| match &*key.name {
                "here" => ["n2".to_owned()].into(),
                "there" => ["n1".to_owned()].into(),
                _ => BTreeSet::new(),
            });
            let got: Vec<(String, Vec<String>)> =
                all.into_iter().map(|(a, w)| (a.to_string(), w.nodes.into_iter().collect())).collect();
            let expected: Vec<(String, Vec<String>)> = expected
                .iter()
                .map(|(a, nodes)| ((*a).to_owned(), nodes.iter().map(|n| (*n).to_owned()).collect()))
                .collect();
            assert_eq!(got, expected);
        };
        let one = json!([{"ip": "192.0.2.1"}]);
        check(&[service("a", "pool", "Cluster", &one)], &[("192.0.2.1", &["n1", "n2"])]);
        check(&[service("a", "nodes", "Cluster", &one)], &[]);
        check(
            &[service(
                "a",
                "pool",
                "Cluster",
                &json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}, {"hostname": "x"}]),
            )],
            &[],
        );
        check(&[service("a", "pool", "Local", &one)], &[("192.0.2.1", &[])]);
        check(&[service("here", "pool", "Local", &one)], &[("192.0.2.1", &["n2"])]);
        check(
            &[service("here", "pool", "Local", &one), service("b", "pool", "Cluster", &one)],
            &[("192.0.2.1", &["n2"])],
        );
        check(
            &[service("here", "pool", "Local", &one), service("there", "pool", "Local", &one)],
            &[("192.0.2.1", &[])],
        );
        let both = json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"ip": "2001:db8::1"}]);
        let all: &[&str] = &["n1", "n2"];
        check(&[service("a", "pool", "Cluster", &both)], &[("192.0.2.1", all), ("2001:db8::1", all)]);
    }

    #[test]
    fn candidates() {
        let check = |ready: &str, labels: Value, expected: bool| {
            let node = json!({"metadata": {"labels": labels}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            assert_eq!(is_candidate(&from_value(node).unwrap()), expected, "{ready} {labels}");
        };
        check("True", json!({}), true);
        check("True", json!({EXCLUDED: ""}), false);
        check("False", json!({}), false);
        check("Unknown", json!({}), false);
    }
}
