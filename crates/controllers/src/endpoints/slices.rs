//! EndpointSlice controller (upstream: `staging/src/k8s.io/endpointslice`).

use std::sync::Arc;

use api::Status;
use client::{Change, Client, EventType, Informer, Key, Queue, Recorder};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use parking_lot::Mutex;

use super::hints;
use super::layout::{CONTROLLER, Template, Wanted};
use super::metrics::{Metrics, Outcome, Which};
use super::owned::{Owned, Plan, late};
use super::trigger::{Triggers, annotate};
use super::zones::{self, Said, ZONE, Zones, is_node_ready};
use super::{hostname, publishes_not_ready, selecting, target_port, target_ref};
use crate::common::labelled::Labelled;
use crate::common::{deleting, pods, retry};
use crate::config::{Config, EndpointSettings};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, PodView, nodes};

/// The controller of the EndpointSlices of Services with a selector.
pub(crate) struct Slices {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<PodView>,
    labelled: Labelled,
    nodes: Informer<NodeView>,
    slices: Arc<Owned>,
    zones: Mutex<Zones>,
    triggers: Triggers,
    metrics: Arc<Metrics>,
    settings: EndpointSettings,
    /// Looks at the zones of all nodes.
    topology: Queue<&'static str>,
}

impl Controller for Slices {
    const NAME: &'static str = "endpointslice-controller";
    const ALIASES: &'static [&'static str] = &["endpointslice"];
    const ACCOUNT: &'static str = "endpointslice-controller";
    const QUEUE: &'static str = "endpoint_slice";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let metrics = Metrics::new(Which::Slices);
        let told = metrics.clone();
        host.metrics().register("endpointslices", move |page| told.report(page));
        let pods = pods::informer(host.factory());
        Self {
            client: host.client(),
            recorder: host.recorder("endpoint-slice-controller"),
            services: host.informer(),
            labelled: Labelled::new(&pods),
            pods,
            nodes: nodes(host.factory()),
            slices: Owned::by(CONTROLLER, host.factory()),
            zones: Mutex::default(),
            triggers: Triggers::default(),
            metrics,
            settings: host.config().slices.clone(),
            topology: host.queue("endpoint_slice_topology"),
        }
    }

    fn workers(config: &Config) -> usize {
        config.slices.workers
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.services, true);
        super::follow_pods(&self.pods, &self.services, &wiring.queue(), self.settings.batch);
        self.slices.follow(&wiring.queue());
        let topology = self.topology.clone();
        self.nodes.handle(move |change| {
            if !matches!(change, Change::Updated { old, new } if same_topology(old, new)) {
                topology.add("nodes");
            }
        });
        let (c, queue) = (self.clone(), wiring.queue());
        wiring.work(&self.topology, "endpointslice-topology", 1, move |_| {
            for key in c.look_at_nodes() {
                queue.add(key);
            }
            std::future::ready(Ok(Next::Done))
        });
    }

    async fn ready(&self) {
        self.look_at_nodes();
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let existing = match self.slices.of(&self.client, &key).await {
            Ok(Some(existing)) => existing,
            Ok(None) => {
                self.metrics.synced(Outcome::Stale);
                return Err(late());
            }
            Err(status) => {
                self.metrics.synced(Outcome::Error);
                return Err(status);
            }
        };
        let result = self.look(&key, existing).await;
        self.metrics.synced(if result.is_ok() { Outcome::Success } else { Outcome::Error });
        result.map(|()| Next::Done)
    }
}

impl Slices {
    /// Takes the present nodes; returns the Services that need other hints now.
    fn look_at_nodes(&self) -> Vec<Key> {
        let nodes = self.nodes.list();
        self.zones.lock().set_nodes(nodes.iter().map(|node| &**node))
    }

    async fn look(&self, key: &Key, existing: Vec<Arc<EndpointSlice>>) -> Result<(), Status> {
        let Some(service) = self.services.get_key(key) else {
            // A deleted Service's slices are collected with it: the Service owns them.
            self.triggers.forget(key);
            self.metrics.forget(key);
            self.zones.lock().forget(key);
            self.slices.forget(key);
            return Ok(());
        };
        let Some(spec) = selecting(&service) else { return Ok(()) };
        let labels = spec.selector.as_ref();
        let mut pods = labels.map(|labels| self.labelled.of(&key.namespace, labels)).unwrap_or_default();
        let change = self.triggers.last_change(&service, &pods);
        pods.retain(|p| !p.is_terminal() && !p.addresses.is_empty());
        let node = |pod: &PodView| self.nodes.get("", &pod.node);
        let (known, lost): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|p| publishes_not_ready(spec) || node(p).is_some());
        let mut plan = Plan::default();
        let mut said = Vec::new();
        let types = address_types(spec);
        for slice in existing.iter().filter(|s| !types.contains(&s.address_type.as_str())) {
            plan.delete.push(slice.clone());
        }
        for kind in ["IPv4", "IPv6"] {
            if !types.contains(&kind) {
                self.zones.lock().unhint(key, kind);
                continue;
            }
            let of_kind: Vec<_> = existing.iter().filter(|s| s.address_type == kind).cloned().collect();
            let template = Template::new(&service, spec, kind, self.settings.limit);
            let mut layout = template.lay_out(wanted(&service, spec, kind, &known, node), &of_kind);
            self.metrics.laid_out(key, kind, layout.figures);
            let distribution = distribution(&service, spec);
            said.extend(self.hint(key, &service, kind, &mut layout));
            layout.recycle(&template);
            if deleting(&service.metadata) {
                // The garbage collector takes the slices; new ones would race with it.
                layout.create.clear();
            }
            let writes = layout.create.len() + layout.update.len() + layout.delete.len();
            self.metrics.hinted(key, zones::asked(&service), distribution, writes);
            plan.create.append(&mut layout.create);
            plan.update.append(&mut layout.update);
            plan.delete.append(&mut layout.delete);
        }
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            annotate(&mut slice.metadata, change);
        }
        self.metrics.planned(&plan);
        let mut result = self.slices.execute(&self.client, key, plan).await;
        for Said { kind, reason, message } in said {
            self.recorder.event(&*service, kind, reason, message);
        }
        if let (Ok(()), Some(pod)) = (&result, lost.first()) {
            let (pod, node) = (pod.name(), &pod.node);
            result = Err(retry(format_args!("skipping Pod {pod} for Service {key}: Node {node} Not Found")));
        }
        if let Err(error) = &result
            && !error.is_conflict()
        {
            let text = format!("Error updating Endpoint Slices for Service {key}: {error}");
            self.recorder.event(&*service, EventType::Warning, "FailedToUpdateEndpointSlices", text);
        }
        result
    }

    /// Gives the endpoints the hints for which a Service asks, and takes others.
    fn hint(
        &self,
        key: &Key,
        service: &Service,
        kind: &'static str,
        layout: &mut super::layout::Layout,
    ) -> Vec<Said> {
        if zones::asked(service) {
            return self.zones.lock().hint(key, kind, layout);
        }
        let said = self.zones.lock().unhint(key, kind);
        match service.spec.as_ref().and_then(|spec| distribution(service, spec)) {
            Some(how) => hints::keep_close(layout, how == "PreferSameNode"),
            None => hints::remove(layout),
        }
        said.into_iter().collect()
    }
}

/// Returns the `trafficDistribution` of a Service, if it is known and no annotation counts more.
fn distribution<'s>(service: &Service, spec: &'s ServiceSpec) -> Option<&'s str> {
    let how = spec.traffic_distribution.as_deref()?;
    let is_known = matches!(how, "PreferClose" | "PreferSameZone" | "PreferSameNode");
    (is_known && !zones::asked(service)).then_some(how)
}

/// Whether two states of a node are the same for the zones.
fn same_topology(old: &NodeView, new: &NodeView) -> bool {
    let zone = |node: &NodeView| node.metadata.labels.as_ref().and_then(|l| l.get(ZONE).cloned());
    let cpu = |node: &NodeView| node.status.as_ref().map(|s| s.allocatable.clone());
    is_node_ready(old) == is_node_ready(new) && zone(old) == zone(new) && cpu(old) == cpu(new)
}

/// Returns the address types of a Service.
fn address_types(spec: &ServiceSpec) -> Vec<&'static str> {
    let families = spec.ip_families.as_deref().unwrap_or_default();
    let types: Vec<_> = families.iter().map(|f| if f == "IPv6" { "IPv6" } else { "IPv4" }).collect();
    match spec.cluster_ip.as_deref() {
        _ if !types.is_empty() => types,
        None | Some("" | "None") => vec!["IPv4", "IPv6"],
        Some(ip) => vec![if ip.contains(':') { "IPv6" } else { "IPv4" }],
    }
}

/// Returns the endpoints of one address type that Pods make.
fn wanted(
    service: &Service,
    spec: &ServiceSpec,
    kind: &str,
    pods: &[Arc<PodView>],
    node: impl Fn(&PodView) -> Option<Arc<NodeView>>,
) -> Wanted {
    let mut wanted = Wanted::default();
    for pod in pods {
        let addresses = pod.addresses.iter().filter(|a| a.is_ipv6() == (kind == "IPv6"));
        let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
        let zone = || node(pod)?.metadata.labels.as_ref()?.get(ZONE).filter(|zone| !zone.is_empty()).cloned();
        let made = (!addresses.is_empty()).then(|| endpoint(service, spec, pod, addresses, zone()));
        wanted.add(ports(spec, pod), made);
    }
    wanted
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
    zone: Option<String>,
) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.is_deleting());
    Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publishes_not_ready(spec) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(pod, service),
        node_name: Some(pod.node.to_string()).filter(|n| !n.is_empty()),
        target_ref: Some(target_ref(pod)),
        zone,
        deprecated_topology: None,
        hints: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use serde_json::{Value, json};

    /// The conditions of an endpoint: ready, serving, terminating.
    #[test]
    fn conditions_of_an_endpoint() {
        let check = |ready: bool, deleting: bool, publishes: bool, expected: [bool; 3]| {
            let spec = ServiceSpec { publish_not_ready_addresses: Some(publishes), ..ServiceSpec::default() };
            let service = Service { spec: Some(spec.clone()), ..Service::default() };
            let mut pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}});
            if deleting {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let made = endpoint(&service, &spec, &view(&pod), vec![], None).conditions.unwrap();
            assert_eq!([made.ready, made.serving, made.terminating], expected.map(Some), "{pod} {publishes}");
        };
        check(true, false, false, [true, true, false]);
        check(true, true, false, [false, true, true]);
        check(false, false, false, [false, false, false]);
        check(false, true, false, [false, false, true]);
        check(false, false, true, [true, false, false]);
        check(true, true, true, [true, true, true]);
        check(false, true, true, [true, false, true]);
    }

    /// Upstream's cases of `TestGetAddressTypesForService`.
    #[test]
    fn families() {
        let check = |spec: Value, expected: &[&str]| {
            let parsed: ServiceSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(address_types(&parsed), expected, "{spec}");
        };
        check(json!({"ipFamilies": ["IPv4"]}), &["IPv4"]);
        check(json!({"ipFamilies": ["IPv6"]}), &["IPv6"]);
        check(json!({"ipFamilies": ["IPv6", "IPv4"]}), &["IPv6", "IPv4"]);
        check(json!({"clusterIP": "10.0.0.10"}), &["IPv4"]);
        check(json!({"clusterIP": "2001:beef::1"}), &["IPv6"]);
        check(json!({"clusterIP": "None"}), &["IPv4", "IPv6"]);
        check(json!({}), &["IPv4", "IPv6"]);
    }

    /// A Pod has an endpoint of each family of which it has an address.
    #[test]
    fn endpoints_of_a_family() {
        let service: Service =
            serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u"},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}))
            .unwrap();
        let spec = service.spec.as_ref().unwrap();
        let pod = |ips: Value| {
            Arc::new(view(&json!({"metadata": {"name": "p", "namespace": "ns"}, "status": {"podIPs": ips}})))
        };
        let pods = [pod(json!([{"ip": "1.2.3.4"}, {"ip": "1234::5678:0000:0000:9abc:def0"}]))];
        let check = |kind: &'static str, expected: &[&str]| {
            let layout = Template::new(&service, spec, kind, 100)
                .lay_out(wanted(&service, spec, kind, &pods, |_| None), &[]);
            let addresses: Vec<_> = layout
                .all()
                .flat_map(|s| s.endpoints.iter().flatten())
                .flat_map(|e| e.addresses.clone())
                .collect();
            assert_eq!(addresses, expected);
        };
        check("IPv4", &["1.2.3.4"]);
        check("IPv6", &["1234::5678:0:0:9abc:def0"]);
    }

    #[test]
    fn distributions() {
        let check = |how: Option<&str>, mode: Option<&str>, expected: Option<&str>| {
            let mut service = Service::default();
            let spec = ServiceSpec { traffic_distribution: how.map(str::to_owned), ..ServiceSpec::default() };
            service.metadata.annotations =
                mode.map(|m| [("service.kubernetes.io/topology-mode".to_owned(), m.to_owned())].into());
            assert_eq!(distribution(&service, &spec), expected, "{how:?} {mode:?}");
        };
        check(None, None, None);
        for how in ["PreferClose", "PreferSameZone", "PreferSameNode"] {
            check(Some(how), None, Some(how));
            check(Some(how), Some("Disabled"), Some(how));
            check(Some(how), Some("Auto"), None);
        }
        check(Some("example.com/far"), None, None);
    }
}

#[cfg(test)]
mod upstream;
