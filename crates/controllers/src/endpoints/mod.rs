//! The Pods behind a Service: Endpoints and EndpointSlices.

mod legacy;
mod mirror;
mod owned;
mod slices;

pub(crate) use legacy::Selected;
pub(crate) use mirror::Mirror;
pub(crate) use slices::Slices;

use std::net::IpAddr;
use std::sync::Arc;

use client::{Cached, Informer, Key, Queue};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::common::pods;
use objects::Selector;

const HEADLESS: &str = "service.kubernetes.io/headless";

/// Returns the spec of a Service whose Pods are found by selector; `None` for any other.
fn selecting(service: &Service) -> Option<&ServiceSpec> {
    let spec = service.spec.as_ref()?;
    (spec.type_.as_deref() != Some("ExternalName") && spec.selector.is_some()).then_some(spec)
}

/// Makes the selector of a Service; an empty one selects everything.
fn selector(spec: &ServiceSpec) -> Selector {
    spec.selector.as_ref().map_or_else(Selector::nothing, Selector::exactly)
}

fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
}

fn publishes_not_ready(spec: &ServiceSpec) -> bool {
    spec.publish_not_ready_addresses == Some(true)
}

/// Returns the addresses of a Pod.
fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all: Vec<IpAddr> = status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect();
    if all.is_empty() { status.pod_ip.iter().filter_map(|ip| ip.parse().ok()).collect() } else { all }
}

/// Returns the number of the port to which a Service's port leads in a Pod; `None` if the Pod has no port of that name.
fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(n)) => return Some(*n),
        Some(IntOrString::String(name)) => name,
    };
    let protocol = |p: Option<&str>| p.unwrap_or("TCP").to_owned();
    let wanted = protocol(port.protocol.as_deref());
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|c| c.ports.iter().flatten())
        .find(|p| p.name.as_ref() == Some(name) && protocol(p.protocol.as_deref()) == wanted)
        .map(|p| p.container_port)
}

/// Returns the name of a headless Service's Pod in DNS, if it has one.
fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let named = spec.hostname.as_ref().filter(|h| !h.is_empty())?;
    (spec.subdomain.as_deref() == service.metadata.name.as_deref()
        && pod.metadata.namespace == service.metadata.namespace)
        .then(|| named.clone())
}

/// Makes the reference of an endpoint to its Pod.
fn target_ref(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns the parts of a Pod that decide about endpoints.
fn projection(pod: &Pod) -> impl PartialEq + use<> {
    let spec = pod.spec.as_ref();
    (
        pod.metadata.labels.clone(),
        pod.metadata.deletion_timestamp.is_some(),
        pods::is_ready(pod),
        pods::is_terminal(pod),
        addresses(pod),
        pods::node_name(pod).to_owned(),
        spec.and_then(|s| s.hostname.clone()),
        spec.and_then(|s| s.subdomain.clone()),
    )
}

/// Adds the Services that select a changed Pod, before or after the change, to a queue.
fn follow_pods(pods: &Informer<Pod>, services: &Informer<Service>, queue: &Queue<Key>) {
    let (services, queue) = (services.clone(), queue.clone());
    pods.handle(move |change| {
        if let client::Change::Updated { old, new } = change
            && projection(old) == projection(new)
        {
            return;
        }
        for pod in change.states() {
            for service in matching(&services, pod) {
                queue.add(service.key());
            }
        }
    });
}

fn matching(services: &Informer<Service>, pod: &Pod) -> Vec<Arc<Service>> {
    let mut all = services.list_namespace(pod.namespace());
    all.retain(|s| selecting(s).is_some_and(|spec| selector(spec).matches(pod.metadata.labels.as_ref())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "a", "ports": [{"name": "web", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
        ], "initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 9}]},
            {"name": "i", "ports": [{"name": "init", "containerPort": 8}]}]}}))
        .unwrap();
        let check = |port: serde_json::Value, want: Option<i32>| {
            let parsed: ServicePort = serde_json::from_value(port.clone()).unwrap();
            assert_eq!(target_port(&pod, &parsed), want, "{port}");
        };
        check(json!({"port": 80}), Some(80));
        check(json!({"port": 80, "targetPort": 81}), Some(81));
        check(json!({"port": 80, "targetPort": "web"}), Some(8080));
        check(json!({"port": 53, "targetPort": "dns"}), None);
        check(json!({"port": 53, "targetPort": "dns", "protocol": "UDP"}), Some(53));
        check(json!({"port": 80, "targetPort": "side"}), Some(9));
        check(json!({"port": 80, "targetPort": "init"}), None);
    }
}
