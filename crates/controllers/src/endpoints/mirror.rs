//! EndpointSlice mirroring controller (upstream: `pkg/controller/endpointslicemirroring`): makes EndpointSlices of the
//! Endpoints that a client writes for a Service without a selector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Recorder};
use component::Clock;
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::layout::Figures;
use super::metrics::{Metrics, Which};
use super::owned::{MANAGED_BY, Owned, Plan, PortKey, SERVICE, generate_name, late, port_key};
use crate::common::{addresses, controller_ref, deleting};
use crate::config::{Config, EndpointSettings};
use crate::host::{Controller, Host, Next, Wiring};

const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// The annotations that slices do not get.
const NOT_MIRRORED: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];
/// The controller of the EndpointSlices of Services without a selector.
pub(crate) struct Mirror {
    client: Client,
    recorder: Recorder,
    endpoints: Informer<Endpoints>,
    services: Informer<Service>,
    slices: Arc<Owned>,
    metrics: Arc<Metrics>,
    settings: EndpointSettings,
    clock: Clock,
}

impl Controller for Mirror {
    const NAME: &'static str = "endpointslice-mirroring-controller";
    const ALIASES: &'static [&'static str] = &["endpointslicemirroring"];
    const ACCOUNT: &'static str = "endpointslicemirroring-controller";
    const QUEUE: &'static str = "endpoint_slice_mirroring";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let metrics = Metrics::new(Which::Mirror);
        let told = metrics.clone();
        host.metrics().register("mirrored-endpointslices", move |page| told.report(page));
        Self {
            client: host.client(),
            recorder: host.recorder("endpoint-slice-mirroring-controller"),
            endpoints: host.informer(),
            services: host.informer(),
            slices: Owned::by(CONTROLLER, host.factory()),
            metrics,
            settings: host.config().mirroring.clone(),
            clock: host.clock(),
        }
    }

    fn workers(config: &Config) -> usize {
        config.mirroring.workers
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c, batch) = (wiring.queue(), self.clone(), self.settings.batch);
        self.endpoints.handle(move |change| {
            let key = change.object().key();
            if matches!(change, Change::Deleted(_)) {
                c.slices.forget(&key);
            }
            // Endpoints that hold locks of leaders change every few seconds, and are not mirrored.
            if change.states().any(|e| is_mirrored(e)) {
                if batch.is_zero() {
                    queue.add(key);
                } else {
                    queue.add_after(key, batch);
                }
            }
        });
        let queue = wiring.queue();
        self.services.handle(move |change| {
            let selects = |s: &Service| s.spec.as_ref().is_some_and(|s| s.selector.is_some());
            let concerns = match change {
                Change::Updated { old, new } => selects(old) != selects(new),
                other => !selects(other.object()),
            };
            if concerns {
                queue.add(change.object().key());
            }
        });
        self.slices.follow(&wiring.queue());
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let began = self.clock.monotonic();
        let result = self.look(&key).await;
        self.metrics.took(began.elapsed().as_secs_f64());
        result.map(|()| Next::Done)
    }
}

impl Mirror {
    async fn look(&self, key: &Key) -> Result<(), Status> {
        let mut existing = self.slices.of(&self.client, key).await?.ok_or_else(late)?;
        existing.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let by_hand = |s: &Service| s.spec.as_ref().is_some_and(|s| s.selector.is_none());
        let mirrored = self.services.get_key(key).filter(|s| by_hand(s));
        let endpoints = mirrored.and_then(|_| self.endpoints.get_key(key)).filter(|e| is_mirrored(e));
        let plan = match &endpoints {
            None => {
                self.metrics.forget(key);
                Plan { delete: existing, ..Plan::default() }
            }
            Some(endpoints) => {
                let (plan, left_out) = plan(endpoints, &existing, self.settings.limit);
                let (figures, updated) = figures(&existing, &plan);
                self.metrics.laid_out(key, "", figures);
                self.metrics.observe("endpoints_updated_per_sync", updated);
                self.metrics.observe("addresses_skipped_per_sync", left_out.invalid + left_out.over);
                self.tell(endpoints, left_out);
                plan
            }
        };
        self.metrics.planned(&plan);
        self.slices.execute(&self.client, key, plan).await
    }
}

/// Counts what a plan changes, and the endpoints that it changes in place.
fn figures(existing: &[Arc<EndpointSlice>], plan: &Plan) -> (Figures, usize) {
    let all = |slice: &EndpointSlice| -> Vec<(Vec<String>, Endpoint)> {
        slice.endpoints.iter().flatten().map(|e| (e.addresses.clone(), e.clone())).collect()
    };
    let before: BTreeMap<Vec<String>, Endpoint> = existing.iter().flat_map(|s| all(s)).collect();
    let stays = |slice: &&Arc<EndpointSlice>| {
        let same = |other: &EndpointSlice| other.metadata.name == slice.metadata.name;
        !plan.update.iter().any(same) && !plan.delete.iter().any(|s| same(s))
    };
    let kept: Vec<_> = existing.iter().filter(stays).collect();
    let after: BTreeMap<Vec<String>, Endpoint> = kept
        .iter()
        .flat_map(|s| all(s))
        .chain(plan.create.iter().chain(&plan.update).flat_map(all))
        .collect();
    let slices = kept.len() + plan.create.len() + plan.update.len();
    let figures = Figures {
        added: after.keys().filter(|a| !before.contains_key(*a)).count(),
        removed: before.keys().filter(|a| !after.contains_key(*a)).count(),
        endpoints: after.len(),
        slices,
        // A subset has one slice of each family.
        ideal: slices,
    };
    let changed = after.iter().filter(|(a, e)| before.get(*a).is_some_and(|old| old != *e)).count();
    (figures, changed)
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let m = &endpoints.metadata;
    m.labels.as_ref().is_none_or(|l| l.get(SKIP).is_none_or(|v| v != "true"))
        && m.annotations.as_ref().is_none_or(|a| !a.contains_key(LEADER))
}

impl Mirror {
    fn tell(&self, endpoints: &Endpoints, LeftOut { invalid, over }: LeftOut) {
        if invalid > 0 {
            let text = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.event(endpoints, EventType::Warning, "InvalidIPAddress", text);
        }
        if over > 0 {
            let text = format!(
                "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                self.settings.limit,
                over + invalid
            );
            self.recorder.event(endpoints, EventType::Warning, "TooManyAddressesToMirror", text);
        }
    }
}

/// The numbers of addresses that are not mirrored.
#[derive(Debug, Default, PartialEq)]
struct LeftOut {
    /// Texts that are no addresses.
    invalid: usize,
    /// Addresses over the limit.
    over: usize,
}

/// The identity of an address in a subset: the address and its Pod.
type Who = (String, Option<String>);
type Ports = Vec<EndpointPort>;

/// Repacks the subsets such that each address of a port is in one subset, with all addresses of the same ports.
fn repack(endpoints: &Endpoints) -> Vec<(Ports, Vec<(EndpointAddress, bool)>)> {
    let mut known: BTreeMap<Who, EndpointAddress> = BTreeMap::new();
    // `None` stands for a subset without ports.
    let mut by_port: BTreeMap<PortKey, (Option<EndpointPort>, BTreeMap<Who, bool>)> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = subset.ports.iter().flatten().map(|p| EndpointPort {
            name: Some(p.name.clone().unwrap_or_default()),
            port: Some(p.port),
            protocol: p.protocol.clone(),
            app_protocol: p.app_protocol.clone(),
        });
        let mut ports: Vec<Option<EndpointPort>> = ports.map(Some).collect();
        if ports.is_empty() {
            ports.push(None);
        }
        let sides = [(&subset.addresses, true), (&subset.not_ready_addresses, false)];
        let all = sides.iter().flat_map(|(side, ready)| side.iter().flatten().map(move |a| (a, *ready)));
        let all: Vec<(&EndpointAddress, bool)> = all.collect();
        for port in ports {
            let key = port_key(port.as_slice());
            let group = &mut by_port.entry(key).or_insert_with(|| (port, BTreeMap::new())).1;
            for (address, ready) in &all {
                let who = (address.ip.clone(), address.target_ref.as_ref().and_then(|t| t.uid.clone()));
                known.entry(who.clone()).or_insert_with(|| (*address).clone());
                group.insert(who, *ready);
            }
        }
    }
    let mut groups: BTreeMap<BTreeMap<Who, bool>, Ports> = BTreeMap::new();
    for (port, addresses) in by_port.into_values() {
        groups.entry(addresses).or_default().extend(port);
    }
    let with = |(who, ready): (Who, bool)| Some((known.get(&who)?.clone(), ready));
    groups.into_iter().map(|(group, ports)| (ports, group.into_iter().filter_map(with).collect())).collect()
}

/// Plans the slices of Endpoints, with at most `limit` addresses of a subset.
fn plan(endpoints: &Endpoints, existing: &[Arc<EndpointSlice>], limit: usize) -> (Plan, LeftOut) {
    let mut left_out = LeftOut::default();
    // The slices are grouped by address type and ports.
    let mut desired: BTreeMap<(&'static str, PortKey), (Ports, Vec<Endpoint>)> = BTreeMap::new();
    for (ports, mut addresses) in repack(endpoints) {
        // Ready addresses come first, because they serve.
        addresses.sort_by_key(|(_, ready)| !ready);
        let mut room = limit;
        for (address, ready) in addresses {
            if room == 0 {
                left_out.over += 1;
                continue;
            }
            let Some(ip) = addresses::read(&address.ip) else {
                left_out.invalid += 1;
                continue;
            };
            room -= 1;
            let kind = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
            let group =
                desired.entry((kind, port_key(&ports))).or_insert_with(|| (ports.clone(), Vec::new()));
            group.1.push(Endpoint {
                addresses: vec![ip.to_string()],
                conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
                hostname: address.hostname.filter(|h| !h.is_empty()),
                node_name: address.node_name,
                target_ref: address.target_ref,
                ..Endpoint::default()
            });
        }
    }

    let mut there: BTreeMap<(String, PortKey), Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing {
        let key = (slice.address_type.clone(), port_key(slice.ports.as_deref().unwrap_or_default()));
        there.entry(key).or_default().push(slice.clone());
    }
    let mut plan = Plan::default();
    for ((kind, key), (ports, mut wanted)) in desired {
        wanted.truncate(limit);
        let mut new = slice(endpoints, kind, ports, wanted);
        let mut old = there.remove(&(kind.to_owned(), key)).unwrap_or_default().into_iter();
        match old.next() {
            None => plan.create.push(new),
            Some(old) if says_the_same(&old, &new) => {}
            Some(old) => {
                take_place(&mut new, &old);
                plan.update.push(new);
            }
        }
        plan.delete.extend(old);
    }
    plan.delete.extend(there.into_values().flatten());
    if deleting(&endpoints.metadata) {
        plan.create.clear();
    }
    // New slices take the place of slices that would be deleted.
    for mut new in std::mem::take(&mut plan.create) {
        match plan.delete.iter().position(|old| old.address_type == new.address_type) {
            None => plan.create.push(new),
            Some(at) => {
                take_place(&mut new, &plan.delete.remove(at));
                plan.update.push(new);
            }
        }
    }
    (plan, left_out)
}

/// Makes a new slice the next state of an old one.
fn take_place(new: &mut EndpointSlice, old: &EndpointSlice) {
    let made = std::mem::replace(&mut new.metadata, old.metadata.clone());
    new.metadata.labels = made.labels;
    new.metadata.annotations = made.annotations;
    new.metadata.owner_references = made.owner_references;
}

fn says_the_same(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    let set = |s: &EndpointSlice| -> BTreeSet<String> {
        s.endpoints.iter().flatten().filter_map(|e| serde_json::to_string(e).ok()).collect()
    };
    let owner = |s: &EndpointSlice| {
        s.metadata.owner_references.iter().flatten().map(|r| r.uid.clone()).collect::<Vec<_>>()
    };
    let of_none = |m: &Option<BTreeMap<String, String>>| m.clone().unwrap_or_default();
    of_none(&old.metadata.labels) == of_none(&new.metadata.labels)
        && of_none(&old.metadata.annotations) == of_none(&new.metadata.annotations)
        && owner(old) == owner(new)
        && set(old) == set(new)
}

fn slice(endpoints: &Endpoints, kind: &str, ports: Ports, all: Vec<Endpoint>) -> EndpointSlice {
    let name = endpoints.name();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_MIRRORED.contains(&key.as_str()));
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(name)),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|a| !a.is_empty()),
            owner_references: Some(vec![controller_ref(endpoints)]),
            ..ObjectMeta::default()
        },
        address_type: kind.to_owned(),
        endpoints: Some(all),
        ports: Some(ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MAX_PER_SUBSET: usize = 1000;

    fn endpoints(subsets: Value) -> Endpoints {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "u", "labels": {"a": "b"},
                "annotations": {"c": "d", NOT_MIRRORED[0]: "x", NOT_MIRRORED[1]: "y"}},
            "subsets": subsets,
        }))
        .unwrap()
    }

    fn text(slice: &EndpointSlice) -> String {
        let ports = slice.ports.iter().flatten().map(|p| p.port.unwrap().to_string()).collect::<Vec<_>>();
        let addresses = slice.endpoints.iter().flatten().map(|e| {
            let ready = e.conditions.as_ref().unwrap().ready.unwrap();
            format!("{}{}", e.addresses[0], if ready { "" } else { "?" })
        });
        format!("{} {}:{}", slice.address_type, ports.join("+"), addresses.collect::<Vec<_>>().join(","))
    }

    fn check(subsets: Value, want: &[&str]) -> Vec<Arc<EndpointSlice>> {
        let (plan, left_out) = plan(&endpoints(subsets.clone()), &[], MAX_PER_SUBSET);
        assert_eq!(plan.create.iter().map(text).collect::<Vec<_>>(), want, "{subsets}");
        assert_eq!(left_out, LeftOut::default());
        let made = plan.create.into_iter().enumerate().map(|(i, mut slice)| {
            slice.metadata.name = Some(format!("s-{i}"));
            Arc::new(slice)
        });
        let made: Vec<_> = made.collect();
        assert_eq!(
            super::plan(&endpoints(subsets.clone()), &made, MAX_PER_SUBSET).0,
            Plan::default(),
            "{subsets}"
        );
        made
    }

    #[test]
    fn a_slice_of_each_family_and_set_of_ports() {
        let port = |n: i32| json!({"port": n, "protocol": "TCP"});
        let ip = |ip: &str| json!({"ip": ip});
        check(json!([]), &[]);
        let made = check(
            json!([{"addresses": [ip("10.0.0.1"), ip("fd00::1")], "notReadyAddresses": [ip("10.0.0.2")],
                "ports": [port(80), port(81)]}]),
            &["IPv4 80+81:10.0.0.1,10.0.0.2?", "IPv6 80+81:fd00::1"],
        );
        let labels = serde_json::to_value(made[0].metadata.labels.as_ref().unwrap()).unwrap();
        assert_eq!(labels, json!({"a": "b", SERVICE: "s", MANAGED_BY: CONTROLLER}));
        let annotations = serde_json::to_value(made[0].metadata.annotations.as_ref().unwrap()).unwrap();
        assert_eq!(annotations, json!({"c": "d"}));
        check(json!([{"addresses": [ip("10.0.0.1")]}]), &["IPv4 :10.0.0.1"]);
        // The same addresses with other ports are one subset.
        check(
            json!([{"addresses": [ip("10.0.0.1")], "ports": [port(80)]},
                {"addresses": [ip("10.0.0.1")], "ports": [port(81)]}]),
            &["IPv4 80+81:10.0.0.1"],
        );
    }

    #[test]
    fn changes_are_made_in_place() {
        let subset = |ip: &str, port: i32| json!([{"addresses": [{"ip": ip}], "ports": [{"port": port}]}]);
        let made = check(subset("10.0.0.1", 80), &["IPv4 80:10.0.0.1"]);
        for after in [subset("10.0.0.2", 80), subset("10.0.0.1", 81)] {
            let (plan, _) = plan(&endpoints(after), &made, MAX_PER_SUBSET);
            assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 1, 0));
            assert_eq!(plan.update[0].metadata.name.as_deref(), Some("s-0"));
        }
        let (plan, _) = plan(&endpoints(json!([])), &made, MAX_PER_SUBSET);
        assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 0, 1));
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let ips: Vec<Value> =
            (0..1203).map(|i| json!({"ip": format!("10.0.{}.{}", i / 250, i % 250)})).collect();
        let (made, left_out) = plan(&endpoints(json!([{"addresses": ips}])), &[], MAX_PER_SUBSET);
        assert_eq!(made.create[0].endpoints.as_ref().unwrap().len(), MAX_PER_SUBSET);
        assert_eq!(left_out, LeftOut { invalid: 0, over: 203 });
        let (made, left_out) =
            plan(&endpoints(json!([{"addresses": [{"ip": "x"}, {"ip": "10.0.0.1"}]}])), &[], MAX_PER_SUBSET);
        assert_eq!(made.create.iter().map(text).collect::<Vec<_>>(), ["IPv4 :10.0.0.1"]);
        assert_eq!(left_out, LeftOut { invalid: 1, over: 0 });
    }
}

#[cfg(test)]
mod upstream;
