//! The Pods behind a Service: Endpoints and EndpointSlices.

mod hints;
mod layout;
mod legacy;
mod metrics;
mod mirror;
mod owned;
mod slices;
mod trigger;
mod zones;

pub(crate) use legacy::Selected;
pub(crate) use mirror::Mirror;
pub(crate) use slices::Slices;

use std::time::Duration;

use client::{Cached, Informer, Key, Queue};
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::common::selecting::{Selecting, label_pairs};
use crate::views::PodView;
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

/// Returns the number of the port to which a Service's port leads in a Pod; `None` if the Pod has no port of that name.
fn target_port(pod: &PodView, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(n)) => return Some(*n),
        Some(IntOrString::String(name)) => name,
    };
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    pod.named_ports().iter().find(|p| p.name == name.as_str() && p.protocol == protocol).map(|p| p.port)
}

/// Returns the name of a headless Service's Pod in DNS, if it has one.
fn hostname(pod: &PodView, service: &Service) -> Option<String> {
    let named = !pod.hostname().is_empty()
        && pod.subdomain() == service.name()
        && pod.namespace() == service.namespace();
    named.then(|| pod.hostname().to_owned())
}

/// Makes the reference of an endpoint to its Pod.
fn target_ref(pod: &PodView) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace().to_owned()),
        name: Some(pod.name().to_owned()),
        uid: Some(pod.uid().to_owned()),
        ..ObjectReference::default()
    }
}

/// Whether two states of a Pod make the same endpoints.
fn same_endpoints(old: &PodView, new: &PodView) -> bool {
    let facts = |p: &PodView| (p.is_deleting(), p.is_ready(), p.is_terminal());
    let names = |p: &PodView| (p.node.clone(), p.hostname().to_owned(), p.subdomain().to_owned());
    facts(old) == facts(new)
        && names(old) == names(new)
        && old.labels == new.labels
        && old.addresses == new.addresses
}

/// Adds the Services that select a changed Pod, before or after the change, to a queue, after a time in which further
/// changes may come.
fn follow_pods(pods: &Informer<PodView>, services: &Informer<Service>, queue: &Queue<Key>, batch: Duration) {
    let (services, queue) = (selecting_services(services), queue.clone());
    pods.handle(move |change| {
        if let client::Change::Updated { old, new } = change
            && same_endpoints(old, new)
        {
            return;
        }
        for pod in change.states() {
            for service in services.of(pod.namespace(), label_pairs(&pod.labels)) {
                if batch.is_zero() {
                    queue.add(service.key());
                } else {
                    queue.add_after(service.key(), batch);
                }
            }
        }
    });
}

/// Finds the Services that select Pods.
fn selecting_services(services: &Informer<Service>) -> Selecting<Service> {
    Selecting::new(services, |service| selecting(service).map_or_else(Selector::nothing, selector))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use serde_json::json;

    #[test]
    fn ports() {
        let pod = view(&json!({"metadata": {}, "spec": {"containers": [
            {"name": "a", "ports": [{"name": "web", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
        ], "initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 9}]},
            {"name": "i", "ports": [{"name": "init", "containerPort": 8}]}]}}));
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
