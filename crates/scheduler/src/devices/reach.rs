//! The devices that a node can use, in the order in which they are tried (upstream's `GatherPools`).
//!
//! Most nodes see the same of what is not their own, so that this is worked out once for all of them ([`Pools`]); a node
//! has a row of parts of it, with its own pools in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSelector};
use objects::node_affinity::{self, Seen};

use super::allocated::Available;
use super::stock::{Rule, Slot, Stock};
use super::terms::Features;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Usable,
    /// Its driver is about to publish more slices.
    Incomplete,
    /// Its slices do not go together.
    Invalid,
}

/// A pool, as nodes see it.
#[derive(Debug)]
pub(super) struct View {
    /// Its number among the views of the stock.
    pub(super) number: u64,
    pub(super) pool: u32,
    pub(super) state: State,
    /// The slices with devices that the node can use.
    slices: Vec<u32>,
    /// The other slices with devices that take counters.
    others: Vec<u32>,
    /// The counters of the pool, by set.
    pub(super) counters: Available,
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
        ("", Some(selector)) => is_selected(node, selector),
        ("", None) => false,
        (name, _) => node.name == name,
    }
}

fn is_selected(node: Seen<'_>, selector: &NodeSelector) -> bool {
    selector.node_selector_terms.iter().any(|term| node_affinity::matches(term, node))
}

impl Rule {
    fn includes(&self, node: Seen<'_>, stock: &Stock) -> bool {
        match self {
            Self::All => true,
            Self::Selected(selector) => is_selected(node, selector),
            Self::Devices(slice) => stock.slice(*slice).object.spec.devices.iter().flatten().any(|device| {
                is_for(node, device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref())
            }),
        }
    }
}

impl View {
    /// A pool of which these slices have something for the node; `None`: a newer generation has nothing for it.
    fn of(number: u64, slices: &[u32], stock: &Stock, features: Features) -> Option<Self> {
        let generation = |slice: u32| stock.slice(slice).generation();
        let now = slices.iter().map(|s| generation(*s)).max()?;
        let mut slices: Vec<u32> = slices.iter().copied().filter(|s| generation(*s) == now).collect();
        let first = *slices.first()?;
        let count = stock.slice(first).object.spec.pool.resource_slice_count;
        let pool = stock.pool_of(first);
        let mut view = Self {
            number,
            pool,
            state: State::Usable,
            slices: Vec::new(),
            others: Vec::new(),
            counters: Available::new(),
        };
        let is_whole = |n: usize| i64::try_from(n).is_ok_and(|n| n == count);
        let mut all = Vec::new();
        if !is_whole(slices.len()) {
            if stock.of_pool(pool).any(|slice| generation(slice) > now) {
                return None;
            }
            all = stock.of_pool(pool).filter(|slice| generation(*slice) == now).collect();
            if !is_whole(all.len()) {
                view.state = State::Incomplete;
                return Some(view);
            }
        }
        // Those of a pool are in the order of their names.
        slices.sort_unstable();
        if view.fill(&slices, &all, stock, features).is_none() {
            view.state = State::Invalid;
            (view.slices, view.others, view.counters) = Default::default();
        }
        Some(view)
    }

    /// `None`: it cannot be used.
    fn fill(&mut self, slices: &[u32], all: &[u32], stock: &Stock, features: Features) -> Option<()> {
        let advanced = features.partitionable_devices;
        let (counting, with_devices): (Vec<u32>, Vec<u32>) =
            slices.iter().partition(|slice| advanced && !stock.slice(**slice).counters.is_empty());
        self.slices = with_devices;
        if self.slices.iter().any(|slice| stock.slice(*slice).ambiguous)
            || self.slices.len() > 1 && !are_unique(stock, &self.slices)
        {
            return None;
        }
        if !advanced {
            return Some(());
        }
        for (name, counters) in counting.iter().flat_map(|slice| &stock.slice(*slice).counters) {
            if self.counters.insert(name.clone(), counters.clone()).is_some() {
                return None;
            }
        }
        self.others = all.iter().copied().filter(|slice| !slices.contains(slice)).collect();
        let mut all = slices.iter().chain(&self.others).flat_map(|slice| &stock.slice(*slice).devices);
        let known = all.all(|device| {
            device.consumes.iter().all(|(set, counters)| {
                let known = self.counters.get(set.as_str());
                known.is_some_and(|known| counters.keys().all(|name| known.contains_key(name)))
            })
        });
        known.then_some(())
    }

    /// The devices that take counters of the pool, the node's and others.
    pub(super) fn devices(&self, stock: &Stock) -> impl Iterator<Item = Slot> {
        self.slices.iter().chain(&self.others).flat_map(|slice| stock.of_slice(*slice))
    }

    fn has_conditions(&self, stock: &Stock) -> bool {
        self.slices.iter().any(|slice| stock.slice(*slice).has_conditions)
    }
}

/// Whether no two devices have one name.
fn are_unique(stock: &Stock, slices: &[u32]) -> bool {
    let mut names = BTreeSet::new();
    slices.iter().flat_map(|slice| stock.of_slice(*slice)).all(|slot| names.insert(stock.name_of(slot)))
}

/// A part of the way through all devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// Devices whose numbers follow each other, of one pool or more.
    Devices(Range<Slot>),
    /// A pool that cannot be used.
    Bad(u32, State),
}

impl Item {
    fn pool(&self, stock: &Stock) -> u32 {
        match self {
            Self::Devices(range) => stock.pool_of(stock.slice_of(range.start)),
            Self::Bad(pool, _) => *pool,
        }
    }
}

/// Pools that go together, in the order in which they are tried.
#[derive(Debug, Default)]
pub(super) struct Pools {
    /// By pool.
    views: Vec<Arc<View>>,
    /// The way through the devices; then that through those that have to be attached first, which are tried last.
    ways: [Vec<Item>; 2],
    has_invalid: bool,
}

impl Pools {
    /// Pools of which these slices have something for a node.
    fn of(slices: impl Iterator<Item = u32>, next: &mut u64, stock: &Stock, features: Features) -> Self {
        let mut by_pool: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for slice in slices {
            let read = stock.slice(slice);
            let advanced = read.object.spec.per_device_node_selection.is_some() || !read.counters.is_empty();
            if features.partitionable_devices || !advanced {
                by_pool.entry(stock.pool_of(slice)).or_default().push(slice);
            }
        }
        let mut pools = Self::default();
        for slices in by_pool.values() {
            *next += 1;
            let Some(view) = View::of(*next, slices, stock, features) else { continue };
            let way = &mut pools.ways[usize::from(view.has_conditions(stock))];
            if view.state != State::Usable {
                way.push(Item::Bad(view.pool, view.state));
                pools.has_invalid |= view.state == State::Invalid;
            }
            for slice in &view.slices {
                let range = stock.of_slice(*slice);
                match way.last_mut() {
                    Some(Item::Devices(before)) if before.end == range.start => before.end = range.end,
                    _ if range.is_empty() => {}
                    _ => way.push(Item::Devices(range)),
                }
            }
            pools.views.push(Arc::new(view));
        }
        pools
    }

    fn view(&self, pool: u32) -> Option<&Arc<View>> {
        let at = self.views.binary_search_by_key(&pool, |view| view.pool).ok()?;
        self.views.get(at)
    }
}

/// A part of one of the ways of pools.
#[derive(Debug, Clone)]
struct Part {
    pools: Arc<Pools>,
    way: usize,
    items: Range<usize>,
}

impl Part {
    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pools, &other.pools)
            && self.way == other.way
            && self.items.start == other.items.start
    }
}

/// A place on the way through the devices of a node: the part, the item there, and the first device that was not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) part: usize,
    pub(super) item: usize,
    pub(super) slot: Slot,
}

/// The devices that a node can use.
#[derive(Debug)]
pub(super) struct Reach {
    pools: Vec<Arc<Pools>>,
    parts: Vec<Part>,
    pub(super) has_invalid: bool,
    /// Its number among those of the stock, which another one may have that is not known any more.
    pub(super) number: usize,
    /// Whether other nodes may use any of the pools, and those that none may.
    shared: bool,
    own: Vec<u32>,
}

impl Reach {
    fn of(pools: Vec<Arc<Pools>>, number: usize, stock: &Stock) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for way in 0..2 {
            let mut left: Vec<Part> = pools
                .iter()
                .map(|p| Part { pools: p.clone(), way, items: 0..p.ways[way].len() })
                .filter(|part| !part.items.is_empty())
                .collect();
            loop {
                let pool = |part: &Part| part.pools.ways[part.way][part.items.start].pool(stock);
                let Some(first) = (0..left.len()).min_by_key(|i| pool(&left[*i])) else { break };
                let until = left.iter().enumerate().filter(|(i, _)| *i != first).map(|(_, p)| pool(p)).min();
                let part = &mut left[first];
                let items = &part.pools.ways[way][part.items.clone()];
                let count =
                    until.map_or(items.len(), |until| items.partition_point(|i| i.pool(stock) < until));
                let mut now = part.clone();
                now.items.end = now.items.start + count.max(1);
                part.items.start = now.items.end;
                if part.items.is_empty() {
                    left.remove(first);
                }
                parts.push(now);
            }
        }
        let has_invalid = pools.iter().any(|p| p.has_invalid);
        let has_home = |pool: u32| stock.pools().get(pool as usize).is_some_and(|p| p.home.is_some());
        let all: Vec<u32> = pools.iter().flat_map(|p| &p.views).map(|view| view.pool).collect();
        let shared = all.iter().any(|pool| !has_home(*pool));
        let own = all.into_iter().filter(|pool| has_home(*pool)).collect();
        Self { pools, parts, has_invalid, number, shared, own }
    }

    /// Whether the use of no device has changed since a version.
    pub(super) fn is_as(&self, version: u64, stock: &Stock) -> bool {
        let mut own = self.own.iter().filter_map(|pool| stock.pools().get(*pool as usize));
        own.all(|pool| pool.last_change() <= version) && (!self.shared || stock.shared_change() <= version)
    }

    /// A pool as the node sees it.
    pub(super) fn view(&self, pool: u32) -> Option<&Arc<View>> {
        self.pools.iter().find_map(|pools| pools.view(pool))
    }

    /// The parts of the way from a place on, each with its place.
    pub(super) fn from(&self, from: Place) -> impl Iterator<Item = (Place, &Item)> {
        self.parts.iter().enumerate().skip(from.part).flat_map(move |(p, part)| {
            let here = p == from.part;
            let skip = if here { from.item } else { 0 };
            let items = &part.pools.ways[part.way][part.items.clone()];
            items.iter().enumerate().skip(skip).map(move |(i, item)| {
                let slot = if here && i == from.item { from.slot } else { 0 };
                (Place { part: p, item: i, slot }, item)
            })
        })
    }

    /// Whether another node's way is the same up to a place; `None`: to the end.
    pub(super) fn goes_with(&self, other: &Self, to: Option<Place>) -> bool {
        let Some(to) = to else {
            let same = |(a, b): (&Part, &Part)| a.is_of(b) && a.items.end == b.items.end;
            return self.parts.len() == other.parts.len() && self.parts.iter().zip(&other.parts).all(same);
        };
        (0..=to.part).all(|p| match (self.parts.get(p), other.parts.get(p)) {
            (Some(a), Some(b)) if p < to.part => a.is_of(b) && a.items.end == b.items.end,
            (Some(a), Some(b)) => a.is_of(b) && to.item < a.items.len().min(b.items.len()),
            (None, None) => true,
            _ => false,
        })
    }
}

/// The devices that nodes can use, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Reaches {
    features: Features,
    /// By the node's place among all nodes, with the node as it was.
    places: Vec<Option<(Arc<Node>, Arc<Reach>)>>,
    /// The pools that are for more than one node, by the rules that include the node.
    shared: HashMap<Vec<usize>, Arc<Pools>>,
    /// The same, for nodes that have nothing else.
    whole: HashMap<Vec<usize>, Arc<Reach>>,
    views: u64,
    number: usize,
}

/// How many nodes are known at most, and how many numbers there are.
const NODES: usize = 1 << 15;
/// How many different sets of rules are known at most.
const SETS: usize = 1 << 10;

impl Reaches {
    /// Nothing is known yet.
    pub(super) fn new(features: Features) -> Self {
        Self { features, ..Self::default() }
    }

    /// The devices that a node can use; its place among all nodes is likely this.
    pub(super) fn of(&mut self, (node, place): (&Arc<Node>, usize), stock: &Stock) -> Arc<Reach> {
        if let Some(Some((known, reach))) = self.places.get_mut(place) {
            if Arc::ptr_eq(known, node) {
                return reach.clone();
            }
            let (a, b) = (&known.metadata, &node.metadata);
            if a.name == b.name && a.labels == b.labels {
                *known = node.clone();
                return reach.clone();
            }
        }
        let reach = self.find(Seen::of(node), stock);
        if place >= self.places.len() && place < NODES {
            self.places.resize_with(place + 1, || None);
        }
        if let Some(known) = self.places.get_mut(place) {
            *known = Some((node.clone(), reach.clone()));
        }
        reach
    }

    fn next(&mut self) -> usize {
        self.number = (self.number + 1) % NODES;
        self.number
    }

    fn find(&mut self, node: Seen<'_>, stock: &Stock) -> Arc<Reach> {
        let features = self.features;
        let rules = stock.for_many().iter().enumerate();
        let rules: Vec<usize> =
            rules.filter(|(_, (rule, _))| rule.includes(node, stock)).map(|(i, _)| i).collect();
        let for_many = || {
            let all = rules.iter().filter_map(|i| stock.for_many().get(*i));
            // As they are listed: by name within a pool.
            let all: BTreeSet<u32> = all.flat_map(|(_, slices)| slices).copied().collect();
            all.into_iter()
        };
        if self.shared.len() >= SETS {
            self.shared.clear();
            self.whole.clear();
        }
        let views = &mut self.views;
        let shared = self.shared.entry(rules.clone());
        let shared = shared.or_insert_with(|| Arc::new(Pools::of(for_many(), views, stock, features)));
        let shared = shared.clone();
        let own = stock.on_node(node.name);
        // Devices with nodes of their own make a difference between nodes of the same rules.
        let split = rules.iter().any(|i| matches!(stock.for_many().get(*i), Some((Rule::Devices(_), _))));
        if own.is_empty() && !split {
            if let Some(known) = self.whole.get(&rules) {
                return known.clone();
            }
            let reach = Arc::new(Reach::of(vec![shared], self.next(), stock));
            self.whole.insert(rules, reach.clone());
            return reach;
        }
        let apart = own.iter().map(|slice| stock.pool_of(*slice)).all(|pool| {
            let has_home = stock.pools().get(pool as usize).is_some_and(|p| p.home.is_some());
            has_home || for_many().all(|other| stock.pool_of(other) != pool)
        });
        let views = &mut self.views;
        let pools = if apart {
            let own = Pools::of(own.iter().copied(), views, stock, features);
            vec![shared, Arc::new(own)]
        } else {
            let all = own.iter().copied().chain(for_many());
            vec![Arc::new(Pools::of(all, views, stock, features))]
        };
        Arc::new(Reach::of(pools, self.next(), stock))
    }
}
