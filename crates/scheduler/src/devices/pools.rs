//! The pools of devices that a node can use (upstream's `GatherPools`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelector;
use objects::node_affinity::{self, Seen};

use super::allocated::Amounts;
use super::stock::{Slice, Stock};
use super::terms::{Features, PoolId};

/// A pool, as a node sees it.
#[derive(Debug)]
pub(super) struct Pool<'s> {
    pub(super) id: PoolId,
    pub(super) state: State,
    /// The slices with devices that the node can use.
    pub(super) slices: Vec<&'s Slice>,
    /// The other slices with devices that take counters.
    pub(super) others: Vec<&'s Slice>,
    /// The counters of the pool, by set.
    pub(super) counters: BTreeMap<&'s str, &'s Amounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Usable,
    /// Its driver is about to publish more slices.
    Incomplete,
    /// Its slices do not go together.
    Invalid,
}

/// Whether something is for a node.
pub(super) fn is_for(
    node: Seen<'_>,
    name: Option<&str>,
    all_nodes: Option<bool>,
    selector: Option<&NodeSelector>,
) -> bool {
    match (name.unwrap_or_default(), selector) {
        ("", _) if all_nodes == Some(true) => true,
        ("", Some(selector)) => {
            selector.node_selector_terms.iter().any(|term| node_affinity::matches(term, node))
        }
        ("", None) => false,
        (name, _) => node.name == name,
    }
}

/// Whether a slice has something for a node.
fn is_relevant(slice: &Slice, node: Seen<'_>) -> bool {
    let spec = &slice.object.spec;
    if !slice.counters.is_empty() {
        return true; // without its counters, a pool cannot be used
    }
    let (name, selector) = (spec.node_name.as_deref(), spec.node_selector.as_ref());
    if name.is_some_and(|n| !n.is_empty()) || spec.all_nodes == Some(true) || selector.is_some() {
        return is_for(node, name, spec.all_nodes, selector);
    }
    // Something newer may say nothing of that.
    spec.per_device_node_selection == Some(true)
        && spec.devices.iter().flatten().any(|device| {
            is_for(node, device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref())
        })
}

/// The pools that a node can use, in the order in which they are tried.
pub(super) fn gather<'s>(stock: &'s Stock, node: Seen<'_>, features: Features) -> Vec<Pool<'s>> {
    let mut found: BTreeMap<&PoolId, Vec<&Slice>> = BTreeMap::new();
    for slice in stock.near(node.name) {
        let advanced = slice.object.spec.per_device_node_selection.is_some() || !slice.counters.is_empty();
        if !features.partitionable_devices && advanced || !is_relevant(slice, node) {
            continue;
        }
        let known = found.entry(&slice.pool).or_default();
        match known.first().map(|first| generation(first).cmp(&generation(slice))) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Less) => *known = vec![slice],
            _ => known.push(slice),
        }
    }
    let pools = found.into_iter().filter_map(|(id, slices)| Pool::of(id, slices, stock, features));
    // Devices that have to be attached first are tried last.
    let (last, first): (Vec<_>, Vec<_>) = pools.partition(Pool::has_conditions);
    first.into_iter().chain(last).collect()
}

fn generation(slice: &Slice) -> i64 {
    slice.object.spec.pool.generation
}

impl<'s> Pool<'s> {
    /// `None`: a newer generation has nothing for the node.
    fn of(id: &PoolId, mut slices: Vec<&'s Slice>, stock: &'s Stock, features: Features) -> Option<Self> {
        let first = slices.first()?;
        let (now, count) = (generation(first), first.object.spec.pool.resource_slice_count);
        let mut pool = Self {
            id: id.clone(),
            state: State::Usable,
            slices: Vec::new(),
            others: Vec::new(),
            counters: BTreeMap::new(),
        };
        let is_whole = |n: usize| i64::try_from(n).is_ok_and(|n| n == count);
        let mut all = Vec::new();
        if !is_whole(slices.len()) {
            if stock.of_pool(id).any(|slice| generation(slice) > now) {
                return None;
            }
            all = stock.of_pool(id).filter(|slice| generation(slice) == now).collect();
            if !is_whole(all.len()) {
                pool.state = State::Incomplete;
                return Some(pool);
            }
        }
        slices.sort_by_key(|slice| slice.name());
        if pool.fill(&slices, &all, features).is_none() {
            pool.state = State::Invalid;
            (pool.slices, pool.others, pool.counters) = Default::default();
        }
        Some(pool)
    }

    /// `None`: it cannot be used.
    fn fill(&mut self, slices: &[&'s Slice], all: &[&'s Slice], features: Features) -> Option<()> {
        let advanced = features.partitionable_devices;
        let (counting, with_devices): (Vec<&Slice>, Vec<&Slice>) =
            slices.iter().partition(|slice| advanced && !slice.counters.is_empty());
        self.slices = with_devices;
        if self.slices.iter().any(|slice| slice.ambiguous)
            || self.slices.len() > 1 && !are_unique(&self.slices)
        {
            return None;
        }
        if !advanced {
            return Some(());
        }
        for (name, counters) in counting.iter().flat_map(|slice| &slice.counters) {
            if self.counters.insert(name, counters).is_some() {
                return None;
            }
        }
        if !all.is_empty() {
            let names: BTreeSet<&str> = slices.iter().map(|slice| slice.name()).collect();
            self.others = all.iter().copied().filter(|slice| !names.contains(slice.name())).collect();
        }
        let mut all = slices.iter().chain(&self.others).flat_map(|slice| &slice.devices);
        let known = all.all(|device| {
            device.consumes.iter().all(|(set, counters)| {
                let known = self.counters.get(set.as_str());
                known.is_some_and(|known| counters.keys().all(|name| known.contains_key(name)))
            })
        });
        known.then_some(())
    }

    fn has_conditions(&self) -> bool {
        self.slices.iter().any(|slice| slice.has_conditions)
    }
}

/// Whether no two devices have one name.
fn are_unique(slices: &[&Slice]) -> bool {
    let mut names = BTreeSet::new();
    slices.iter().flat_map(|slice| &slice.devices).all(|device| names.insert(device.id.device.as_str()))
}
