//! Addresses of Services of type LoadBalancer, from a pool or, without one, those of the nodes (upstream, for events,
//! finalizer and status: `cloud-provider/controllers/service`).
//!
//! An address from the pool is announced by the nodes' agents, which know such a Service by the annotation
//! `ferrokube.io/load-balancer`. The addresses of Services are known again from their status at the start, the oldest first.

pub(crate) mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use api::Status;
use client::{Cached, Client, EventType, Informer, Key, Patch, Queue, Recorder};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::pool::{Claim, Given, Range};
use crate::common::{deleting, finalizers};
use crate::config::LoadBalancers;
use crate::host::{Controller, Host, Next, Shared, Wiring};
use crate::views::{NodeView, nodes};

/// The finalizer of a Service that has a load balancer; upstream's.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The annotation of a Service that has the finalizer by us: `pool` if its addresses are from the pool, `nodes` if they
/// are those of nodes, `none` if it can have none. Controllers of other classes have the same finalizer.
const ANNOTATION: &str = "ferrokube.io/load-balancer";
/// The annotations by which Services share an address; the second one is MetalLB's.
const SHARING: [&str; 2] = ["ferrokube.io/allow-shared-ip", "metallb.io/allow-shared-ip"];
/// The class of Services that are ours, beside those without a class.
const CLASS: &str = "ferrokube.io/l2";
/// The label of nodes that load balancers leave.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The label of a slice's Service.
const SLICE_OF: &str = "kubernetes.io/service-name";

/// The controller of the addresses of load balancers.
pub(crate) struct Balancers {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    nodes: Informer<NodeView>,
    slices: Informer<EndpointSlice>,
    settings: LoadBalancers,
    given: Mutex<Given>,
    /// The Services that could not have what they need.
    waiting: Mutex<BTreeSet<Key>>,
    queue: Queue<Key>,
}

impl Controller for Balancers {
    const NAME: &'static str = "service-lb-controller";
    const ALIASES: &'static [&'static str] = &["service"];
    const ACCOUNT: &'static str = "service-controller";
    const QUEUE: &'static str = "service";
    type Key = Key;

    fn wanted(shared: &Shared) -> bool {
        shared.config.load_balancers.is_some()
    }

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            client: host.client(),
            recorder: host.recorder("service-controller"),
            services: host.informer(),
            nodes: nodes(host.factory()),
            slices: host.informer(),
            settings: host.config().load_balancers.clone().unwrap_or_default(),
            given: Mutex::default(),
            waiting: Mutex::default(),
            queue: host.main_queue(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.services, true);
        if !self.settings.pool.is_empty() {
            return;
        }
        let c = self.clone();
        self.nodes.handle(move |change| {
            if !matches!(change, client::Change::Updated { old, new } if same_node(old, new)) {
                c.services.list().iter().filter(|s| is_ours(s)).for_each(|s| c.queue.add(s.key()));
            }
        });
        let c = self.clone();
        self.slices.handle(move |change| {
            let slice = change.object();
            let name = slice.metadata.labels.as_ref().and_then(|l| l.get(SLICE_OF));
            let key = name.map(|name| Key::new(slice.namespace(), name.as_str()));
            if let Some(key) = key.filter(|key| c.services.get_key(key).is_some_and(|s| is_ours(&s))) {
                c.queue.add(key);
            }
        });
    }

    async fn ready(&self) {
        let mut all = self.services.list();
        all.retain(|s| is_ours(s) && !deleting(&s.metadata) && !ingress(s).is_empty());
        all.sort_by_key(|s| (s.metadata.creation_timestamp.as_ref().map(|t| t.0), s.key()));
        for service in all {
            let _ = self.assign(&service);
        }
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(service) = self.services.get_key(&key) else {
            self.release(&key);
            return Ok(Next::Done);
        };
        if !is_ours(&service) || deleting(&service.metadata) {
            return self.take_away(&service).await.map(|()| Next::Done);
        }
        let ingress = match self.assign(&service) {
            Ok(ingress) => ingress,
            Err(why) => {
                self.waiting.lock().insert(key);
                let text = format!("Error syncing load balancer: failed to ensure load balancer: {why}");
                self.recorder.event(&*service, EventType::Warning, "SyncLoadBalancerFailed", text);
                Vec::new()
            }
        };
        self.ensure(&service, &ingress).await.map(|()| Next::Done)
    }
}

impl Balancers {
    /// Gives a Service its addresses; returns those of its status.
    fn assign(&self, service: &Service) -> Result<Vec<IpAddr>, String> {
        let spec = service.spec.clone().unwrap_or_default();
        let before = ingress(service);
        let key = service.key();
        if !self.settings.pool.is_empty() {
            return self.given.lock().assign(&key, claim(service, &spec), &before, &self.settings.pool);
        }
        // All Services share the nodes as long as their ports differ.
        let claim = Claim {
            families: vec![false],
            sharing: Some(String::new()),
            local: None,
            asked: Vec::new(),
            ..claim(service, &spec)
        };
        let reserved = |port: &i32| self.settings.reserved.iter().any(|r| i32::from(*r) == *port);
        if let Some((_, port)) = claim.ports.iter().find(|(_, port)| reserved(port)) {
            self.release(&key);
            return Err(format!("the nodes need port {port} themselves"));
        }
        let nodes = Range::from_address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.given.lock().assign(&key, claim, &[], &[nodes]).map_err(|_| {
            "another Service has one of the ports on the nodes; --load-balancer-pool gives each an address".to_owned()
        })?;
        let local = spec.external_traffic_policy.as_deref() == Some("Local");
        let with_endpoints = local.then(|| self.nodes_of(&key));
        let mut all = self.nodes.list();
        all.retain(|node| {
            is_candidate(node) && with_endpoints.as_ref().is_none_or(|n| n.contains(node.name()))
        });
        all.sort_by(|a, b| a.name().cmp(b.name()));
        let families = families(&spec);
        let addresses = all.iter().flat_map(|node| node_addresses(node));
        Ok(addresses.filter(|address| families.contains(&address.is_ipv6())).collect())
    }

    /// The nodes with an endpoint of a Service that is ready.
    fn nodes_of(&self, key: &Key) -> BTreeSet<String> {
        let mut slices = self.slices.list_namespace(&key.namespace);
        slices.retain(|s| {
            s.metadata.labels.as_ref().and_then(|l| l.get(SLICE_OF)) == Some(&key.name.to_string())
        });
        let endpoints = slices.iter().flat_map(|s| s.endpoints.iter().flatten());
        let ready = endpoints.filter(|e| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false)));
        ready.filter_map(|e| e.node_name.clone()).collect()
    }

    /// Frees a Service's addresses, for which others may wait.
    fn release(&self, key: &Key) {
        self.waiting.lock().remove(key);
        if self.given.lock().release(key) {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            for key in waiting {
                self.queue.add(key);
            }
        }
    }

    /// Makes the status of a Service, and its finalizer, be so.
    async fn ensure(&self, service: &Service, addresses: &[IpAddr]) -> Result<(), Status> {
        let mark = match addresses {
            [] => "none",
            _ if self.settings.pool.is_empty() => "nodes",
            _ => "pool",
        };
        let there = ingress(service);
        let is_held = finalizers::has(&service.metadata, FINALIZER);
        let is_right = is_held && there == addresses && marked(service) == Some(mark);
        if is_right || (!is_held && there.is_empty() && addresses.is_empty()) {
            return Ok(());
        }
        let event = |reason: &str, text: &str| self.recorder.event(service, EventType::Normal, reason, text);
        if !addresses.is_empty() {
            event("EnsuringLoadBalancer", "Ensuring load balancer");
        }
        let all = addresses.iter().map(|a| json!({"ip": a.to_string(), "ipMode": "VIP"})).collect::<Vec<_>>();
        let all = if all.is_empty() { Value::Null } else { all.into() };
        let patch = json!({
            "metadata": {"finalizers": [FINALIZER], "annotations": {ANNOTATION: mark}},
            "status": {"loadBalancer": {"ingress": all}},
        });
        self.patch(service, patch).await?;
        if !addresses.is_empty() {
            event("EnsuredLoadBalancer", "Ensured load balancer");
        }
        Ok(())
    }

    /// Takes the addresses of a Service that is ours no more. A Service that never was is left alone.
    async fn take_away(&self, service: &Service) -> Result<(), Status> {
        if marked(service).is_some() && finalizers::has(&service.metadata, FINALIZER) {
            let event =
                |reason: &str, text: &str| self.recorder.event(service, EventType::Normal, reason, text);
            event("DeletingLoadBalancer", "Deleting load balancer");
            let patch = json!({
                "metadata": {
                    "annotations": {ANNOTATION: null},
                    "$deleteFromPrimitiveList/finalizers": [FINALIZER],
                },
                "status": {"loadBalancer": {"ingress": null}},
            });
            self.patch(service, patch).await?;
            event("DeletedLoadBalancer", "Deleted load balancer");
        }
        self.release(&service.key());
        Ok(())
    }

    async fn patch(&self, service: &Service, mut patch: Value) -> Result<(), Status> {
        // The uid makes the server refuse if the name belongs to another Service by now.
        patch["metadata"]["uid"] = json!(service.uid());
        let api = self.client.api::<Service>(service.namespace());
        match api.patch_status(service.name(), &Patch::Strategic(patch)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }
}

/// Whether a Service asks for a load balancer, and for none of somebody else's.
fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() == Some("LoadBalancer")
        && spec.load_balancer_class.as_deref().is_none_or(|c| c == CLASS)
}

/// The mark that we gave a Service.
fn marked(service: &Service) -> Option<&str> {
    service.metadata.annotations.as_ref()?.get(ANNOTATION).map(String::as_str)
}

/// The addresses in a Service's status.
fn ingress(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let all = status.and_then(|l| l.ingress.as_ref()).into_iter().flatten();
    all.filter_map(|i| i.ip.as_ref()?.parse().ok()).collect()
}

/// The families of a Service, by whether they are IPv6.
fn families(spec: &ServiceSpec) -> Vec<bool> {
    let all: Vec<bool> = spec.ip_families.iter().flatten().map(|f| f == "IPv6").collect();
    if all.is_empty() { vec![false] } else { all }
}

fn claim(service: &Service, spec: &ServiceSpec) -> Claim {
    let annotations = service.metadata.annotations.as_ref();
    let ports = spec.ports.iter().flatten();
    let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
    Claim {
        families: families(spec),
        all: spec.ip_family_policy.as_deref() != Some("PreferDualStack"),
        asked: spec.load_balancer_ip.iter().filter_map(|ip| ip.parse().ok()).collect(),
        sharing: SHARING.iter().find_map(|name| annotations?.get(*name).cloned()),
        ports: ports.map(|p| (p.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), p.port)).collect(),
        local: is_local.then(|| spec.selector.clone().unwrap_or_default()),
    }
}

/// Whether load balancers may use a node.
fn is_candidate(node: &NodeView) -> bool {
    let mut conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let excluded = node.metadata.labels.as_ref().is_some_and(|l| l.contains_key(EXCLUDED));
    !excluded && conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The addresses by which others reach a node: its external ones, else its internal ones.
fn node_addresses(node: &NodeView) -> Vec<IpAddr> {
    let mut kinds: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
    for address in node.status.iter().flat_map(|s| s.addresses.iter().flatten()) {
        if let Ok(ip) = address.address.parse() {
            kinds.entry(&address.type_).or_default().push(ip);
        }
    }
    ["ExternalIP", "InternalIP"].iter().find_map(|kind| kinds.remove(kind)).unwrap_or_default()
}

fn same_node(old: &NodeView, new: &NodeView) -> bool {
    is_candidate(old) == is_candidate(new) && node_addresses(old) == node_addresses(new)
}
