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

    /// Upstream's cases of `TestFindPort`: containers and sidecars by their ports, the port that is looked for, and its
    /// number.
    #[test]
    fn ports_by_name() {
        let container = |i: usize, ports: &[(&str, i32, &str)]| {
            let port = |(name, n, protocol): &(&str, i32, &str)| json!({"name": name, "containerPort": n, "protocol": protocol});
            json!({"name": format!("c{i}"), "ports": ports.iter().map(port).collect::<Vec<_>>()})
        };
        let check_all = |containers: &[&[(&str, i32, &str)]],
                         init: &[(&str, i32, &str)],
                         restarts: Option<&str>,
                         port: serde_json::Value,
                         want: Option<i32>| {
            let all: Vec<_> = containers.iter().enumerate().map(|(i, c)| container(i, c)).collect();
            let mut first = container(9, init);
            first["restartPolicy"] = json!(restarts);
            let pod = view(&json!({"metadata": {}, "spec": {"containers": all, "initContainers": [first]}}));
            let port: ServicePort =
                serde_json::from_value(json!({"port": 1, "protocol": "TCP", "targetPort": port})).unwrap();
            assert_eq!(target_port(&pod, &port), want, "{containers:?} {port:?}");
        };
        let check = |containers: &[&[(&str, i32, &str)]], port: serde_json::Value, want: Option<i32>| {
            check_all(containers, &[], None, port, want);
        };
        let two: &[(&str, i32, &str)] = &[("", 11, "TCP"), ("p", 22, "TCP")];
        let three: &[(&str, i32, &str)] = &[("", 11, "UDP"), ("p", 22, "TCP"), ("q", 33, "TCP")];
        check(&[&[]], json!(93), Some(93));
        check(&[two], json!(93), Some(93));
        check(&[&[]], json!("p"), None);
        check(&[three], json!("q"), Some(33));
        check(&[&[], three], json!("q"), Some(33));
        check(&[&[], &[("", 11, "UDP"), ("p", 22, "TCP"), ("q", 22, "TCP")]], json!("q"), Some(22));
        check(&[&[], &[("a", 11, "snmp")]], json!("a"), None);
        check(&[&[], &[("a", 11, "TCP")]], json!("a"), Some(11));
        check(&[&[], &[("a", -1, "TCP")]], json!("a"), Some(-1));
        let side: &[(&str, i32, &str)] = &[("a", 80, "TCP")];
        check_all(&[], side, Some("Always"), json!("a"), Some(80));
        check_all(&[], side, None, json!("a"), None);
        check_all(&[&[("a", 81, "TCP")], &[("a", 82, "TCP")]], side, Some("Always"), json!("a"), Some(81));
    }

    /// Upstream's cases of `TestShouldSetHostname`: a Pod's namespace, hostname and subdomain, and the Service's.
    #[test]
    fn hostnames() {
        let check = |pod: [&str; 3], service: [&str; 2], want: Option<&str>| {
            let [namespace, hostname, subdomain] = pod;
            let pod = view(&json!({"metadata": {"namespace": namespace},
                "spec": {"hostname": hostname, "subdomain": subdomain, "containers": []}}));
            let service = json!({"metadata": {"namespace": service[0], "name": service[1]}});
            let service: Service = serde_json::from_value(service).unwrap();
            assert_eq!(
                super::hostname(&pod, &service).as_deref(),
                want,
                "{namespace} {hostname} {subdomain}"
            );
        };
        check(["ns", "foo", "svc-name"], ["ns", "svc-name"], Some("foo"));
        check(["ns", "", "svc-name"], ["ns", "svc-name"], None);
        check(["ns", "hostname", "subdomain"], ["ns", "name"], None);
        check(["ns1", "hostname", "svc-name"], ["ns2", "svc-name"], None);
    }

    /// Upstream's cases of `Test_podChanged`: two states of a Pod, and whether its Services are looked at.
    #[test]
    fn changes_of_pods() {
        let check = |old: serde_json::Value, new: serde_json::Value, want: bool| {
            let pod = |more: &serde_json::Value| {
                let mut pod = json!({
                    "metadata": {"namespace": "test", "name": "pod", "labels": {"foo": "bar"}},
                    "spec": {"containers": []},
                    "status": {"conditions": [{"type": "Ready", "status": "False"}]},
                });
                for part in ["metadata", "spec", "status"] {
                    for (key, value) in more[part].as_object().into_iter().flatten() {
                        pod[part][key] = value.clone();
                    }
                }
                view(&pod)
            };
            assert_eq!(!same_endpoints(&pod(&old), &pod(&new)), want, "{old} {new}");
        };
        let none = || json!({});
        let ips = |all: &[&str]| {
            let ip = |ip: &&str| json!({ "ip": ip });
            json!({"status": {"podIP": all[0], "podIPs": all.iter().map(ip).collect::<Vec<_>>()}})
        };
        let labels = |text: &str| json!({"metadata": {"labels": {"foo": "bar", "label": text}}});
        check(none(), none(), false);
        check(none(), json!({"metadata": {"resourceVersion": "changed"}}), false);
        for (first, second) in [("1.2.3.4", "2.3.4.5"), ("fd00:10:96::1", "fd00:10:96::2")] {
            check(none(), ips(&[first]), true);
            check(ips(&[first]), ips(&[second]), true);
        }
        let (one, two, other) =
            (&["1.2.3.4"][..], &["1.2.3.4", "fd00:10:96::1"][..], &["1.2.3.4", "fd00:10:96::2"][..]);
        check(ips(one), ips(two), true);
        check(ips(two), ips(other), true);
        check(ips(two), ips(one), true);
        check(none(), json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), true);
        check(none(), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true);
        check(none(), labels("new"), true);
        check(labels("old"), labels("new"), true);
        check(labels("old"), none(), true);
        // DIFFERENCE: upstream does not look when a Pod gets its node, but when it gets its address later.
        check(none(), json!({"spec": {"nodeName": "changed"}}), true);
    }
}
