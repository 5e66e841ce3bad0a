//! Hints of the annotation `service.kubernetes.io/topology-mode: Auto`: each zone gets a share of a Service's endpoints
//! by its share of the nodes' CPUs (upstream: `topologycache`).

use std::collections::{BTreeMap, HashMap};

use client::{EventType, Key};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::hints::{is_ready, of_zone, ready_in, remove};
use super::layout::Layout;
use crate::views::NodeView;

/// The greatest share by which an endpoint may have more to do than the average.
const OVERLOAD: f64 = 0.2;
/// The label of a node's or an endpoint's zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// The labels of nodes that do not count.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// The annotations that ask for hints; the first one counts more.
const ANNOTATIONS: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// Whether a Service asks for hints by an annotation.
pub(super) fn asked(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let value = ANNOTATIONS.iter().find_map(|name| annotations?.get(*name));
    value.is_some_and(|v| v == "Auto" || v == "auto")
}

/// The zones' shares of the CPUs.
type Shares = BTreeMap<String, f64>;
/// The numbers of endpoints by zone.
type Counts = BTreeMap<String, usize>;

/// An Event about a Service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Said {
    fn enabled(address_type: &str) -> Self {
        Self {
            kind: EventType::Normal,
            reason: "TopologyAwareHintsEnabled",
            message: format!("Topology Aware Hints has been enabled, addressType: {address_type}"),
        }
    }
    fn disabled(why: &str, address_type: &str) -> Self {
        Self {
            kind: EventType::Warning,
            reason: "TopologyAwareHintsDisabled",
            message: format!("{why}, addressType: {address_type}"),
        }
    }
}

/// The zones, and where each Service's endpoints have hints for.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// `None` if too little is known of the nodes.
    shares: Option<Shares>,
    services: HashMap<Key, Hinted>,
}

/// The hints of a Service.
#[derive(Debug, Default)]
struct Hinted {
    /// Whether an Event told that there are hints.
    told: bool,
    counts: BTreeMap<&'static str, Counts>,
}

impl Zones {
    /// Takes the nodes; returns the Services whose hints overload a zone now.
    pub(super) fn set_nodes<'n>(&mut self, nodes: impl Iterator<Item = &'n NodeView>) -> Vec<Key> {
        self.shares = shares(nodes);
        let none = Shares::new();
        let shares = self.shares.as_ref().unwrap_or(&none);
        let overloaded =
            self.services.iter().filter(|(_, s)| s.counts.values().any(|c| is_overloaded(c, shares)));
        overloaded.map(|(key, _)| key.clone()).collect()
    }

    /// Gives hints to the endpoints of one address type, or takes them where that cannot be done well.
    pub(super) fn hint(&mut self, key: &Key, address_type: &'static str, layout: &mut Layout) -> Vec<Said> {
        match assign(layout, self.shares.as_ref()) {
            Ok(counts) => {
                let hinted = self.services.entry(key.clone()).or_default();
                hinted.counts.insert(address_type, counts);
                let first = !std::mem::replace(&mut hinted.told, true);
                first.then(|| Said::enabled(address_type)).into_iter().collect()
            }
            Err(why) => {
                remove(layout);
                self.forget_type(key, address_type);
                vec![Said::disabled(&why, address_type)]
            }
        }
    }

    /// Forgets the hints of a Service that does not ask for them, or not for this address type.
    pub(super) fn unhint(&mut self, key: &Key, address_type: &'static str) -> Option<Said> {
        let told = self.services.get(key).is_some_and(|hinted| hinted.told);
        self.forget_type(key, address_type);
        told.then(|| Said::disabled("Topology Aware Hints has been disabled", address_type))
    }

    fn forget_type(&mut self, key: &Key, address_type: &'static str) {
        if let Some(hinted) = self.services.get_mut(key) {
            hinted.counts.remove(address_type);
            hinted.told = false;
            if hinted.counts.is_empty() {
                self.services.remove(key);
            }
        }
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.services.remove(key);
    }
}

/// Whether a node is ready, by its condition.
pub(super) fn is_node_ready(node: &NodeView) -> bool {
    let mut conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.find(|c| c.type_ == "Ready").is_some_and(|c| c.status == "True")
}

/// Returns the zones' shares of the CPUs; `None` if a node tells too little, or there is one zone only.
fn shares<'n>(nodes: impl Iterator<Item = &'n NodeView>) -> Option<Shares> {
    let mut cpus: BTreeMap<String, i64> = BTreeMap::new();
    for node in nodes {
        let label = |name: &str| node.metadata.labels.as_ref().and_then(|l| l.get(name));
        if EXCLUDED.iter().any(|name| label(name).is_some()) || !is_node_ready(node) {
            continue;
        }
        let zone = label(ZONE).filter(|zone| !zone.is_empty())?;
        let allocatable = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
        let cpu = objects::quantity::milli(allocatable.and_then(|a| a.cpu.as_ref()));
        if cpu == 0 {
            return None;
        }
        *cpus.entry(zone.clone()).or_default() += cpu;
    }
    let all: i64 = cpus.values().sum();
    let share = |(zone, cpu): (String, i64)| (zone, cpu as f64 / all as f64);
    (all != 0 && cpus.len() > 1).then(|| cpus.into_iter().map(share).collect())
}

/// The endpoints that a zone should have.
#[derive(Debug)]
struct Allocation {
    maximum: usize,
    desired: f64,
}

/// The least number of endpoints of a zone such that none is overloaded.
fn minimum(desired: f64) -> usize {
    (desired * (1.0 / (1.0 + OVERLOAD))).ceil() as usize
}

fn allocations(shares: Option<&Shares>, endpoints: usize) -> Result<BTreeMap<String, Allocation>, String> {
    let shares = shares
        .ok_or("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")?;
    let figures = || format!("({endpoints} endpoints, {} zones)", shares.len());
    if shares.len() > endpoints {
        return Err(format!("Insufficient number of endpoints {}", figures()));
    }
    let desired = |share: &f64| share * endpoints as f64;
    let least: usize = shares.values().map(|share| minimum(desired(share))).sum();
    if least > endpoints {
        return Err(format!(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold {}",
            figures()
        ));
    }
    let allocation = |share: &f64| {
        let (desired, minimum) = (desired(share), minimum(desired(share)));
        Allocation { maximum: minimum + endpoints - least, desired: desired.max(minimum as f64) }
    };
    Ok(shares.iter().map(|(zone, share)| (zone.clone(), allocation(share))).collect())
}

/// Gives every ready endpoint a hint; returns the number of endpoints for each zone, or the reason why not.
fn assign(layout: &mut Layout, shares: Option<&Shares>) -> Result<Counts, String> {
    let allocations = allocations(shares, ready_in(layout.all()))?;
    let mut counts = Counts::new();
    layout.touch(|slice| match counts_of(slice, &counts, &allocations) {
        Some(more) => {
            for (zone, count) in more {
                *counts.entry(zone).or_default() += count;
            }
            false
        }
        None => true,
    });
    // Each endpoint is for its own zone at first.
    for endpoint in layout.written().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        endpoint.hints = None;
        if is_ready(endpoint) {
            let zone = endpoint.zone.as_deref().filter(|zone| !zone.is_empty());
            let zone = zone.ok_or("One or more endpoints do not have a zone specified")?;
            *counts.entry(zone.to_owned()).or_default() += 1;
            endpoint.hints = Some(of_zone(zone));
        }
    }
    let (giving, receiving) = moves(&allocations, &counts);
    redistribute(layout, giving, receiving, &mut counts);
    if counts.is_empty() { Err("No hints allocated for zones".to_owned()) } else { Ok(counts) }
}

/// Returns the hints of a slice by zone; `None` if they cannot stay: one is missing, is for a zone that needs none, or
/// there are too many of a zone.
fn counts_of(
    slice: &EndpointSlice,
    others: &Counts,
    allocations: &BTreeMap<String, Allocation>,
) -> Option<Counts> {
    let mut counts = Counts::new();
    for endpoint in slice.endpoints.iter().flatten().filter(|e| is_ready(e)) {
        let zones = endpoint.hints.as_ref().and_then(|h| h.for_zones.as_ref()).filter(|z| !z.is_empty())?;
        for zone in zones {
            allocations.get(&zone.name)?;
            *counts.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = counts.iter().all(|(zone, count)| {
        let there = others.get(zone).copied().unwrap_or(0);
        allocations.get(zone).is_some_and(|a| count + there <= a.maximum)
    });
    fits.then_some(counts)
}

/// Returns the zone with the greatest number above 0.
fn most(zones: &Shares) -> Option<(&String, f64)> {
    let mut best: Option<(&String, f64)> = None;
    for (zone, number) in zones {
        if *number > best.map_or(0.0, |(_, most)| most) {
            best = Some((zone, *number));
        }
    }
    best
}

/// Returns the numbers of endpoints that zones give to others, and that others receive.
fn moves(allocations: &BTreeMap<String, Allocation>, counts: &Counts) -> (Counts, Counts) {
    let (mut above, mut below) = (Shares::new(), Shares::new());
    for (zone, allocation) in allocations {
        let has = counts.get(zone).copied().unwrap_or(0) as f64;
        if has > allocation.desired {
            above.insert(zone.clone(), has - allocation.desired);
        } else if has < allocation.desired {
            below.insert(zone.clone(), allocation.desired - has);
        }
    }
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    while let (Some((giver, gives)), Some((receiver, receives))) = (most(&above), most(&below)) {
        if (gives < 1.0 && receives < 1.0) || gives < 0.5 || receives < 0.5 {
            break;
        }
        let (giver, receiver) = (giver.clone(), receiver.clone());
        for (zone, numbers, wanted) in
            [(giver, &mut giving, &mut above), (receiver, &mut receiving, &mut below)]
        {
            *wanted.entry(zone.clone()).or_default() -= 1.0;
            *numbers.entry(zone).or_default() += 1;
        }
    }
    (giving, receiving)
}

/// Moves hints of written endpoints from zones that give to zones that receive.
fn redistribute(layout: &mut Layout, mut giving: Counts, mut receiving: Counts, counts: &mut Counts) {
    fn take(numbers: &mut Counts, zone: &str) {
        if let Some(left) = numbers.get_mut(zone) {
            *left -= 1;
            if *left == 0 {
                numbers.remove(zone);
            }
        }
    }
    for endpoint in layout.written().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        let Some(zone) = endpoint.zone.clone().filter(|z| is_ready(endpoint) && giving.contains_key(z))
        else {
            continue;
        };
        let Some(receiver) = receiving.keys().next().cloned() else { return };
        endpoint.hints = Some(of_zone(&receiver));
        take(&mut giving, &zone);
        take(&mut receiving, &receiver);
        *counts.entry(receiver).or_default() += 1;
        if let Some(count) = counts.get_mut(&zone) {
            *count = count.saturating_sub(1);
        }
    }
}

fn is_overloaded(counts: &Counts, shares: &Shares) -> bool {
    let all: usize = counts.values().sum();
    let too_few = |(zone, share): (&String, &f64)| {
        counts.get(zone).is_none_or(|count| *count < minimum(all as f64 * share))
    };
    !counts.is_empty() && (shares.is_empty() || shares.iter().any(too_few))
}

#[cfg(test)]
mod tests;
