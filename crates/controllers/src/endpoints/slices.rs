//! EndpointSlice controller (upstream: `staging/src/k8s.io/endpointslice`).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Recorder};
use k8s_openapi::api::core::v1::{Node, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::owned::{MANAGED_BY, Owned, Plan, PortKey, SERVICE, generate_name, port_key};
use super::{
    HEADLESS, hostname, is_headless, publishes_not_ready, selecting, selector, target_port, target_ref,
};
use crate::common::{controller_ref, deleting, pods, retry};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The greatest number of endpoints of a slice.
const SLICE: usize = 100;

/// The controller of the EndpointSlices of Services with a selector.
pub(crate) struct Slices {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<PodView>,
    nodes: Informer<Node>,
    slices: Arc<Owned>,
}

impl Controller for Slices {
    const NAME: &'static str = "endpointslice-controller";
    const ALIASES: &'static [&'static str] = &["endpointslice"];
    const ACCOUNT: &'static str = "endpointslice-controller";
    const QUEUE: &'static str = "endpoint_slice";
    const WORKERS: usize = 5;
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            client: host.client(),
            recorder: host.recorder("endpoint-slice-controller"),
            services: host.informer(),
            pods: pods::informer(host.factory()),
            nodes: host.informer(),
            slices: Owned::by(CONTROLLER, host.factory()),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.services.handle(move |change| {
            let key = change.object().key();
            if matches!(change, Change::Deleted(_)) {
                c.slices.forget(&key);
            }
            queue.add(key);
        });
        super::follow_pods(&self.pods, &self.services, &wiring.queue());
        self.slices.follow(&wiring.queue());
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        // A deleted Service's slices are collected with it: the Service owns them.
        let Some(service) = self.services.get_key(&key) else { return Ok(Next::Done) };
        let Some(spec) = selecting(&service) else { return Ok(Next::Done) };
        if deleting(&service.metadata) {
            return Ok(Next::Done);
        }
        let existing = self.slices.of(&self.client, &key).await?;
        let selector = selector(spec);
        let mut pods = self.pods.list_namespace(&key.namespace);
        pods.retain(|p| p.is_selected_by(&selector) && !p.is_terminal());
        let (known, lost): (Vec<_>, Vec<_>) = pods
            .into_iter()
            .partition(|p| publishes_not_ready(spec) || self.nodes.get("", &p.node).is_some());
        let zone = |node: &str| {
            let node = self.nodes.get("", node)?;
            node.metadata.labels.as_ref()?.get(ZONE).cloned()
        };
        let plan = plan(&service, spec, &known, &existing, zone);
        self.execute(&key, &service, plan).await?;
        match lost.iter().find(|p| !p.addresses.is_empty()) {
            Some(pod) => Err(retry(format_args!(
                "skipping Pod {} for Service {key}: Node {} Not Found",
                pod.name(),
                pod.node
            ))),
            None => Ok(Next::Done),
        }
    }
}

impl Slices {
    async fn execute(&self, key: &Key, service: &Service, plan: Plan) -> Result<(), Status> {
        let result = self.slices.execute(&self.client, key, plan).await;
        if let Err(e) = &result
            && !e.is_conflict()
        {
            let text = format!("Error updating Endpoint Slices for Service {key}: {e}");
            self.recorder.event(service, EventType::Warning, "FailedToUpdateEndpointSlices", text);
        }
        result
    }
}

/// Returns the address types of a Service.
fn address_types(spec: &ServiceSpec) -> Vec<&'static str> {
    let families = spec.ip_families.as_deref().unwrap_or_default();
    let mut types: Vec<_> = families.iter().map(|f| if f == "IPv6" { "IPv6" } else { "IPv4" }).collect();
    if types.is_empty() {
        types.push(if spec.cluster_ip.as_ref().is_some_and(|ip| ip.contains(':')) { "IPv6" } else { "IPv4" });
    }
    types
}

/// The identity of an endpoint, whatever its conditions: its addresses and its Pod.
fn identity(e: &Endpoint) -> (Vec<String>, Option<String>) {
    (e.addresses.clone(), e.target_ref.as_ref().and_then(|t| t.uid.clone()))
}

fn plan(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodView>],
    existing: &[Arc<EndpointSlice>],
    zone: impl Fn(&str) -> Option<String>,
) -> Plan {
    let mut plan = Plan::default();
    let types = address_types(spec);
    let owned = |s: &EndpointSlice| {
        s.metadata
            .owner_references
            .iter()
            .flatten()
            .any(|r| r.kind == "Service" && Some(&r.uid) == service.metadata.uid.as_ref())
    };
    plan.delete
        .extend(existing.iter().filter(|s| !types.contains(&s.address_type.as_str()) || !owned(s)).cloned());
    for kind in types {
        let mut desired: BTreeMap<PortKey, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
        for pod in pods {
            let ips = pod.addresses.iter().filter(|a| a.is_ipv6() == (kind == "IPv6"));
            let ips: Vec<String> = ips.map(ToString::to_string).collect();
            if ips.is_empty() {
                continue;
            }
            let ports = ports(spec, pod);
            let group = desired.entry(port_key(&ports)).or_insert_with(|| (ports, Vec::new()));
            group.1.push(endpoint(service, spec, pod, ips, &zone));
        }
        let mut slices: BTreeMap<PortKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing.iter().filter(|s| s.address_type == kind && owned(s)) {
            let key = port_key(slice.ports.as_deref().unwrap_or_default());
            slices.entry(key).or_default().push(slice.clone());
        }
        let before = plan.create.len();
        let mut kept = 0;
        let mut surplus: Vec<Arc<EndpointSlice>> = Vec::new();
        for (key, (ports, endpoints)) in desired {
            let there = slices.remove(&key).unwrap_or_default();
            kept += fill(service, spec, kind, ports, endpoints, there, &mut plan, &mut surplus);
        }
        surplus.extend(slices.into_values().flatten());
        // A Service always has a slice, if an empty one, as a sign that it is looked after.
        if kept == 0 && plan.create.len() == before {
            let empty = new_slice(service, spec, kind, Vec::new(), Vec::new());
            let same = |s: &Arc<EndpointSlice>| {
                s.endpoints.as_ref().is_none_or(Vec::is_empty)
                    && s.ports.as_ref().is_none_or(Vec::is_empty)
                    && s.metadata.labels == empty.metadata.labels
            };
            match surplus.iter().position(same) {
                Some(at) => drop(surplus.remove(at)),
                None => plan.create.push(empty),
            }
        }
        // New slices take the place of slices that would be deleted.
        while plan.create.len() > before
            && let Some(old) = surplus.pop()
            && let Some(new) = plan.create.pop()
        {
            let mut reused = (*old).clone();
            reused.endpoints = new.endpoints;
            reused.ports = new.ports;
            reused.metadata.labels = new.metadata.labels;
            plan.update.push(reused);
        }
        plan.delete.extend(surplus);
    }
    plan
}

/// Puts the endpoints of one set of ports into its slices; returns the number of slices that stay.
#[allow(clippy::too_many_arguments, reason = "one step of the plan, called once")]
fn fill(
    service: &Service,
    spec: &ServiceSpec,
    kind: &'static str,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
    there: Vec<Arc<EndpointSlice>>,
    plan: &mut Plan,
    surplus: &mut Vec<Arc<EndpointSlice>>,
) -> usize {
    let labels = labels(service, spec);
    let mut wanted: BTreeMap<_, Endpoint> = endpoints.into_iter().map(|e| (identity(&e), e)).collect();
    let mut slices = Vec::with_capacity(there.len());
    for old in there {
        let mut new = (*old).clone();
        let kept = old.endpoints.iter().flatten().filter_map(|e| wanted.remove(&identity(e)));
        new.endpoints = Some(kept.collect());
        new.metadata.labels = Some(labels.clone());
        slices.push((old, new));
    }
    let count = |s: &EndpointSlice| s.endpoints.as_ref().map_or(0, Vec::len);
    let mut rest: Vec<Endpoint> = wanted.into_values().collect();
    // Slices that are written anyway take new endpoints first, then the fullest of the others.
    slices.sort_by_key(|(old, new)| (**old == *new, std::cmp::Reverse(count(new))));
    for (old, new) in &mut slices {
        let empty = count(new) == 0 && count(old) > 0;
        let room = SLICE.saturating_sub(count(new)).min(rest.len());
        if room > 0 && !empty {
            new.endpoints.get_or_insert_default().extend(rest.drain(..room));
        }
    }
    for (_, new) in &mut slices {
        let room = SLICE.saturating_sub(count(new)).min(rest.len());
        new.endpoints.get_or_insert_default().extend(rest.drain(..room));
    }
    let mut kept = 0;
    for (old, new) in slices {
        if count(&new) == 0 {
            surplus.push(old);
            continue;
        }
        kept += 1;
        if *old != new {
            plan.update.push(new);
        }
    }
    while !rest.is_empty() {
        let part = rest.drain(..rest.len().min(SLICE)).collect();
        plan.create.push(new_slice(service, spec, kind, ports.clone(), part));
    }
    kept
}

fn labels(service: &Service, spec: &ServiceSpec) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE.to_owned(), service.name().to_owned());
    labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
    labels
}

fn new_slice(
    service: &Service,
    spec: &ServiceSpec,
    kind: &str,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(service.name())),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service, spec)),
            owner_references: Some(vec![controller_ref(service)]),
            ..ObjectMeta::default()
        },
        address_type: kind.to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports),
    }
}

fn ports(spec: &ServiceSpec, pod: &PodView) -> Vec<EndpointPort> {
    let all = spec.ports.iter().flatten().filter_map(|p| {
        Some(EndpointPort {
            name: Some(p.name.clone().unwrap_or_default()),
            port: Some(target_port(pod, p)?),
            protocol: Some(p.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: p.app_protocol.clone(),
        })
    });
    all.collect()
}

fn endpoint(
    service: &Service,
    spec: &ServiceSpec,
    pod: &PodView,
    addresses: Vec<String>,
    zone: &impl Fn(&str) -> Option<String>,
) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.is_deleting());
    let node = pod.node.as_str();
    Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publishes_not_ready(spec) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(pod, service),
        node_name: Some(node.to_owned()).filter(|n| !n.is_empty()),
        target_ref: Some(target_ref(pod)),
        zone: zone(node),
        deprecated_topology: None,
        hints: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Meta;
    use crate::views::tests::view;
    use serde_json::json;

    fn pod(i: usize) -> Arc<PodView> {
        Arc::new(view(&json!({
            "metadata": {"name": format!("p{i}"), "namespace": "ns", "uid": format!("p{i}")},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "podIPs": [{"ip": format!("10.1.{}.{}", i / 250, i % 250)}],
                "conditions": [{"type": "Ready", "status": "True"}]},
        })))
    }

    fn service() -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
            "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {}, "ports": [{"port": 80}]},
        }))
        .unwrap()
    }

    fn run(pods: &[Arc<PodView>], existing: &[Arc<EndpointSlice>]) -> Plan {
        let s = service();
        plan(&s, s.spec.as_ref().unwrap(), pods, existing, |_| Some("z".into()))
    }

    /// Returns the slices after a plan was carried out.
    fn apply(existing: &[Arc<EndpointSlice>], plan: Plan) -> Vec<Arc<EndpointSlice>> {
        let mut all: Vec<_> =
            existing.iter().filter(|s| !plan.delete.iter().any(|d| Arc::ptr_eq(d, s))).cloned().collect();
        for new in plan.update {
            let at = all.iter().position(|s| s.metadata.name == new.metadata.name).unwrap();
            all[at] = Arc::new(new);
        }
        for mut new in plan.create {
            new.metadata.name = Some(format!("s-{}", all.len()));
            new.metadata.uid.clone_from(&new.metadata.name);
            all.push(Arc::new(new));
        }
        all
    }

    fn counts(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
        slices.iter().map(|s| s.endpoints.as_ref().map_or(0, Vec::len)).collect()
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice() {
        let slices = apply(&[], run(&[], &[]));
        assert_eq!(counts(&slices), [0]);
        assert_eq!(run(&[], &slices), Plan::default());
        let filled = apply(&slices, run(&[pod(1)], &slices));
        assert_eq!(counts(&filled), [1], "the empty slice is used, not replaced");
        assert_eq!(counts(&apply(&filled, run(&[], &filled))), [0]);
    }

    #[test]
    fn slices_hold_a_hundred_and_stay_put() {
        let pods: Vec<_> = (0..250).map(pod).collect();
        let slices = apply(&[], run(&pods, &[]));
        assert_eq!(counts(&slices), [100, 100, 50]);
        assert_eq!(run(&pods, &slices), Plan::default());
        let less = run(&pods[1..], &slices);
        assert_eq!((less.create.len(), less.update.len(), less.delete.len()), (0, 1, 0));
        let more: Vec<_> = (0..260).map(pod).collect();
        let grown = apply(&slices, run(&more, &slices));
        assert_eq!(counts(&grown), [100, 100, 60]);
    }

    #[test]
    fn conditions_of_an_endpoint() {
        let s = service();
        let mut gone = (*pod(1)).clone();
        gone.meta = Arc::new(Meta { deleting: true, ..(*gone.meta).clone() });
        let e = endpoint(&s, s.spec.as_ref().unwrap(), &gone, vec![], &|_| None);
        let c = e.conditions.unwrap();
        assert_eq!((c.ready, c.serving, c.terminating), (Some(false), Some(true), Some(true)));
    }

    #[test]
    fn slices_of_another_service_of_the_name_go() {
        let mut foreign = (*apply(&[], run(&[pod(1)], &[]))[0]).clone();
        foreign.metadata.owner_references.as_mut().unwrap()[0].uid = "old".into();
        let plan = run(&[pod(1)], &[Arc::new(foreign)]);
        assert_eq!((plan.create.len(), plan.delete.len()), (1, 1));
    }
}
