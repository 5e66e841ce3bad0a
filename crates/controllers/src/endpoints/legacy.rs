//! Endpoints controller (upstream: `pkg/controller/endpoint`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Recorder};
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::trigger::{Triggers, annotate};
use super::{HEADLESS, hostname, is_headless, publishes_not_ready, selecting, target_port, target_ref};
use crate::common::labelled::Labelled;
use crate::common::{namespace_is_terminating, pods};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses of an Endpoints object.
const CAPACITY: usize = 1000;

/// The controller of the Endpoints of Services with a selector.
pub(crate) struct Selected {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<PodView>,
    labelled: Labelled,
    endpoints: Informer<Endpoints>,
    triggers: Triggers,
    batch: Duration,
}

impl Controller for Selected {
    const NAME: &'static str = "endpoints-controller";
    const ALIASES: &'static [&'static str] = &["endpoint"];
    const ACCOUNT: &'static str = "endpoint-controller";
    const QUEUE: &'static str = "endpoint";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let pods = pods::informer(host.factory());
        Self {
            client: host.client(),
            recorder: host.recorder(MANAGED_BY.1),
            services: host.informer(),
            labelled: Labelled::new(&pods),
            pods,
            endpoints: host.informer(),
            triggers: Triggers::default(),
            batch: host.config().endpoints.batch,
        }
    }

    fn workers(config: &Config) -> usize {
        config.endpoints.workers
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.services, true);
        super::follow_pods(&self.pods, &self.services, &wiring.queue(), self.batch);
        let queue = wiring.queue();
        self.endpoints.handle(move |change| match change {
            Change::Deleted(endpoints) => queue.add(endpoints.key()),
            // The Service of such an object may have gone while the controller did not run.
            // DIFFERENCE: upstream deletes those without a Service that clients wrote, too, but only when it starts.
            Change::Added(endpoints) if is_ours(endpoints) => queue.add(endpoints.key()),
            _ => {}
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let api = self.client.api::<Endpoints>(&key.namespace);
        let current = self.endpoints.get_key(&key);
        let Some(service) = self.services.get_key(&key) else {
            self.triggers.forget(&key);
            if current.is_some() {
                match api.delete(&key.name, None).await {
                    Err(e) if !e.is_not_found() => return Err(e),
                    _ => {}
                }
            }
            return Ok(Next::Done);
        };
        let Some(spec) = selecting(&service) else { return Ok(Next::Done) };
        let labels = spec.selector.as_ref();
        let pods = labels.map(|labels| self.labelled.of(&key.namespace, labels)).unwrap_or_default();
        let change = self.triggers.last_change(&service, &pods);
        let (result, reason, verb, wanted) = match plan(&service, spec, &pods, current.as_deref()) {
            Action::Nothing => return Ok(Next::Done),
            Action::Create(mut e) => {
                annotate(&mut e.metadata, change);
                (api.create(&e).await, "FailedToCreateEndpoint", "create endpoint for service", e)
            }
            Action::Update(mut e) => {
                annotate(&mut e.metadata, change);
                (api.update(&e).await, "FailedToUpdateEndpoint", "update endpoint", e)
            }
        };
        match result {
            Ok(_) => Ok(Next::Done),
            Err(e) if namespace_is_terminating(&e) => Ok(Next::Done),
            // The cache is late: the object that it lacks is there already.
            Err(e) if e.is_conflict() || e.is_already_exists() => Err(e),
            Err(e) => {
                self.recorder.event(
                    &wanted,
                    EventType::Warning,
                    reason,
                    format!("Failed to {verb} {key}: {e}"),
                );
                Err(e)
            }
        }
    }
}

fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().is_some_and(|l| l.get(MANAGED_BY.0).is_some_and(|v| v == MANAGED_BY.1))
}

#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create(Endpoints),
    Update(Endpoints),
}

fn plan(service: &Service, spec: &ServiceSpec, pods: &[Arc<PodView>], current: Option<&Endpoints>) -> Action {
    let (subsets, truncated) = subsets(service, spec, pods);
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    if is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    } else {
        labels.remove(HEADLESS);
    }
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());

    let mut wanted = current.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    wanted.subsets = Some(subsets).filter(|s| !s.is_empty());
    wanted.metadata.labels = Some(labels);
    let mut annotations = wanted.metadata.annotations.take().unwrap_or_default();
    if truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    wanted.metadata.annotations = Some(annotations).filter(|a| !a.is_empty());
    match current {
        None => Action::Create(wanted),
        Some(current) if says_the_same(current, &wanted) => Action::Nothing,
        Some(_) => Action::Update(wanted),
    }
}

/// Whether two states of an object say the same, in whatever order, whatever versions of Pods they name.
fn says_the_same(a: &Endpoints, b: &Endpoints) -> bool {
    a.metadata == b.metadata && (a.subsets == b.subsets || normal(a) == normal(b))
}

/// Returns an object's subsets in an order of their own: ready addresses, others, ports.
fn normal(endpoints: &Endpoints) -> Vec<[Vec<String>; 3]> {
    fn sorted<T: serde::Serialize>(all: impl Iterator<Item = T>) -> Vec<String> {
        let mut texts: Vec<String> = all.filter_map(|t| serde_json::to_string(&t).ok()).collect();
        texts.sort_unstable();
        texts
    }
    let bare = |address: &EndpointAddress| {
        let mut bare = address.clone();
        bare.node_name = bare.node_name.filter(|n| !n.is_empty());
        if let Some(pod) = &mut bare.target_ref {
            pod.resource_version = None;
            pod.uid = pod.uid.take().filter(|uid| !uid.is_empty());
        }
        bare
    };
    let side = |all: &Option<Vec<EndpointAddress>>| sorted(all.iter().flatten().map(bare));
    let subset = |s: &EndpointSubset| {
        [side(&s.addresses), side(&s.not_ready_addresses), sorted(s.ports.iter().flatten())]
    };
    let mut all: Vec<_> = endpoints.subsets.iter().flatten().map(subset).collect();
    all.sort_unstable();
    all
}

/// Whether a Pod's IPv6 address is to be told. A Service that came before its defaults has no family: its own address
/// tells it, or the Pod's first one.
fn wants_v6(spec: &ServiceSpec, pod: &PodView) -> bool {
    if let Some(family) = spec.ip_families.as_ref().and_then(|f| f.first()) {
        return family == "IPv6";
    }
    if is_headless(spec) {
        return pod.addresses.first().is_some_and(std::net::IpAddr::is_ipv6);
    }
    spec.cluster_ip.as_ref().is_some_and(|ip| ip.contains(':'))
}

/// Returns the numbers of ready and other addresses of each subset that have room, if not all have (upstream's
/// `truncateEndpoints`). Ready addresses come first, because they serve; each subset loses as large a share.
fn kept(sizes: &[[usize; 2]]) -> Option<Vec<[usize; 2]>> {
    let total = |side: usize| sizes.iter().map(|size| size[side]).sum::<usize>();
    let (ready, others) = (total(0), total(1));
    if ready + others <= CAPACITY {
        return None;
    }
    let (side, room, of) =
        if ready > CAPACITY { (0, CAPACITY, ready) } else { (1, CAPACITY - ready, others) };
    let mut left = room;
    let share = |size: &[usize; 2]| {
        let share = (size[side] * room).div_ceil(of).min(left);
        left -= share;
        if side == 0 { [share, 0] } else { [size[0], share] }
    };
    Some(sizes.iter().map(share).collect())
}

/// The sort key of a port: name, number, protocol, application protocol.
type PortKey = (String, i32, String, Option<String>);

/// Returns the addresses behind a Service, addresses with the same ports together, and whether some had to be left out.
fn subsets(service: &Service, spec: &ServiceSpec, pods: &[Arc<PodView>]) -> (Vec<EndpointSubset>, bool) {
    let mut groups: BTreeMap<Vec<PortKey>, [Vec<EndpointAddress>; 2]> = BTreeMap::new();
    for pod in pods {
        let usable = !pod.is_terminal() && (publishes_not_ready(spec) || !pod.is_deleting());
        let v6 = wants_v6(spec, pod);
        let Some(ip) = pod.addresses.iter().find(|a| a.is_ipv6() == v6).filter(|_| usable) else {
            continue;
        };
        let mut ports: Vec<PortKey> = spec
            .ports
            .iter()
            .flatten()
            .filter_map(|p| {
                let protocol = p.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                let name = p.name.clone().unwrap_or_default();
                Some((name, target_port(pod, p)?, protocol, p.app_protocol.clone()))
            })
            .collect();
        let portless = spec.ports.iter().flatten().next().is_none() && is_headless(spec);
        if ports.is_empty() && !portless {
            continue;
        }
        ports.sort();
        let ready = publishes_not_ready(spec) || pod.is_ready();
        groups.entry(ports).or_default()[usize::from(!ready)].push(EndpointAddress {
            ip: ip.to_string(),
            hostname: hostname(pod, service),
            node_name: Some(pod.node.to_string()).filter(|n| !n.is_empty()),
            target_ref: Some(target_ref(pod)),
        });
    }
    for side in groups.values_mut().flatten() {
        side.sort_by_cached_key(|a| {
            (a.ip.parse::<std::net::IpAddr>().ok(), a.target_ref.as_ref().and_then(|t| t.uid.clone()))
        });
    }
    let sizes: Vec<[usize; 2]> = groups.values().map(|g| [g[0].len(), g[1].len()]).collect();
    let kept = kept(&sizes);
    let truncated = kept.is_some();
    for (group, [ready, others]) in groups.values_mut().zip(kept.unwrap_or_default()) {
        group[0].truncate(ready);
        group[1].truncate(others);
    }
    let subsets = groups.into_iter().filter(|(_, g)| g.iter().any(|side| !side.is_empty())).map(
        |(ports, [ready, not_ready])| EndpointSubset {
            addresses: Some(ready).filter(|a| !a.is_empty()),
            not_ready_addresses: Some(not_ready).filter(|a| !a.is_empty()),
            ports: Some(ports.into_iter().map(port).collect()).filter(|p: &Vec<_>| !p.is_empty()),
        },
    );
    (subsets.collect(), truncated)
}

fn port((name, port, protocol, app_protocol): PortKey) -> EndpointPort {
    EndpointPort { name: Some(name).filter(|n| !n.is_empty()), port, protocol: Some(protocol), app_protocol }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use serde_json::{Value, json};

    fn pod(name: &str, ip: &str, ready: bool) -> Arc<PodView> {
        Arc::new(view(&json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "podIP": ip,
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        })))
    }

    fn service(spec: Value) -> Service {
        serde_json::from_value(
            json!({"metadata": {"name": "s", "namespace": "ns", "labels": {"a": "b"}}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn ready_and_not() {
        let s = service(json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80, "targetPort": 8080}]}));
        let pods = [
            pod("b", "10.1.0.10", true),
            pod("a", "10.1.0.9", true),
            pod("c", "10.1.0.1", false),
            pod("d", "", true),
        ];
        let Action::Create(made) = plan(&s, s.spec.as_ref().unwrap(), &pods, None) else {
            panic!("to be made")
        };
        let subsets = made.subsets.as_ref().unwrap();
        assert_eq!(subsets.len(), 1);
        let ips =
            |a: &Option<Vec<EndpointAddress>>| a.iter().flatten().map(|a| a.ip.clone()).collect::<Vec<_>>();
        assert_eq!(ips(&subsets[0].addresses), ["10.1.0.9", "10.1.0.10"]);
        assert_eq!(ips(&subsets[0].not_ready_addresses), ["10.1.0.1"]);
        assert_eq!(subsets[0].ports.as_ref().unwrap()[0].port, 8080);
        assert_eq!(
            serde_json::to_value(made.metadata.labels.as_ref().unwrap()).unwrap(),
            json!({"a": "b", MANAGED_BY.0: MANAGED_BY.1})
        );
        assert_eq!(plan(&s, s.spec.as_ref().unwrap(), &pods, Some(&made)), Action::Nothing);
        assert!(matches!(plan(&s, s.spec.as_ref().unwrap(), &pods[..1], Some(&made)), Action::Update(_)));
    }

    #[test]
    fn headless_without_ports() {
        let s = service(json!({"clusterIP": "None"}));
        let Action::Create(made) = plan(&s, s.spec.as_ref().unwrap(), &[pod("a", "10.1.0.9", true)], None)
        else {
            panic!("to be made")
        };
        assert_eq!(made.subsets.as_ref().unwrap()[0].ports, None);
        assert!(made.metadata.labels.unwrap().contains_key(HEADLESS));
    }

    #[test]
    fn too_many_addresses() {
        let s = service(json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}));
        let pods: Vec<_> = (0..1200)
            .map(|i| pod(&i.to_string(), &format!("10.1.{}.{}", i / 250, i % 250), i >= 600))
            .collect();
        let (subsets, truncated) = subsets(&s, s.spec.as_ref().unwrap(), &pods);
        assert!(truncated);
        let n = |a: &Option<Vec<EndpointAddress>>| a.as_ref().map_or(0, Vec::len);
        assert_eq!((n(&subsets[0].addresses), n(&subsets[0].not_ready_addresses)), (600, 400));
    }
}

#[cfg(test)]
mod upstream;
