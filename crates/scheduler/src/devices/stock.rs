//! The devices that drivers publish, read once for all turns.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::quantity::Quantity;
use cel::{Opaque, Semver};
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{self as resource, CapacityRequestPolicy, ResourceSlice};

use super::allocated::Amounts;
use super::bits::Bits;
use super::terms::{DeviceId, PoolId};

/// A ResourceSlice.
#[derive(Debug)]
pub struct Slice {
    /// The object.
    pub object: Arc<ResourceSlice>,
    pub(super) pool: PoolId,
    pub(super) devices: Vec<Device>,
    /// The counters that devices of the pool share, by set.
    pub(super) counters: Vec<(String, Amounts)>,
    /// Whether two devices have one name.
    pub(super) ambiguous: bool,
    /// Whether a device has to be attached first.
    pub(super) has_conditions: bool,
    /// The answers of expressions about the devices, which last as long as the slice.
    answers: Mutex<Vec<Answers>>,
}

/// The answers of one expression, by the device's place in the slice.
#[derive(Debug)]
struct Answers {
    expression: u64,
    known: Bits,
    yes: Bits,
}

/// The expressions at most whose answers a slice knows.
const EXPRESSIONS: usize = 32;

/// A device, as far as it had to be read.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    /// Whether several claims may have parts of it.
    pub(super) multiple: bool,
    pub(super) capacity: BTreeMap<String, Capacity>,
    /// The counters that it takes, by set.
    pub(super) consumes: Vec<(String, Amounts)>,
    /// Whether an amount of it is below zero: then what is taken of it may make more of it.
    pub(super) odd: bool,
    /// By domain and name; or why an expression cannot be asked about it.
    pub(super) attributes: Result<Vec<(Named, Attribute)>, String>,
}

/// The domain and the name of an attribute or capacity.
pub(super) type Named = (String, String);

/// The value of an attribute, as expressions see it.
#[derive(Debug, Clone)]
pub(super) enum Attribute {
    Int(i64),
    Bool(bool),
    Text(String),
    Version(Arc<Opaque>),
}

/// A capacity of a device.
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) named: Named,
    pub(super) value: Arc<Opaque>,
    pub(super) amount: Quantity,
    pub(super) policy: Option<Policy>,
}

/// The rules for requests of a capacity.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) default: Option<Quantity>,
    pub(super) range: Option<Bounds>,
    pub(super) values: Option<Vec<Quantity>>,
}

#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) min: Quantity,
    pub(super) max: Option<Quantity>,
    pub(super) step: Option<Quantity>,
}

type Written = k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A quantity of an object that the API took, so it can be read.
fn quantity(written: &Written) -> Quantity {
    Quantity::parse(&written.0).unwrap_or_default()
}

fn amounts(counters: &BTreeMap<String, resource::Counter>) -> Amounts {
    counters.iter().map(|(name, c)| (name.clone(), quantity(&c.value))).collect()
}

/// A name with its domain, which is the driver's unless it says otherwise.
fn named(name: &str, driver: &str) -> Named {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    (domain.to_owned(), id.to_owned())
}

fn attribute(attribute: &resource::DeviceAttribute) -> Result<Attribute, String> {
    if let Some(i) = attribute.int {
        return Ok(Attribute::Int(i));
    }
    if let Some(b) = attribute.bool {
        return Ok(Attribute::Bool(b));
    }
    if let Some(text) = &attribute.string {
        return Ok(Attribute::Text(text.clone()));
    }
    let version = attribute.version.as_ref().ok_or("unsupported attribute value")?;
    let version = Semver::parse(version).map_err(|e| format!("parse semantic version: {e}"))?;
    Ok(Attribute::Version(Arc::new(Opaque::Semver(version))))
}

impl Policy {
    fn of(policy: &CapacityRequestPolicy) -> Self {
        let all = |written: &Vec<Written>| written.iter().map(quantity).collect();
        Self {
            default: policy.default.as_ref().map(quantity),
            range: policy.valid_range.as_ref().map(|range| Bounds {
                min: quantity(&range.min),
                max: range.max.as_ref().map(quantity),
                step: range.step.as_ref().map(quantity),
            }),
            values: policy.valid_values.as_ref().map(all),
        }
    }
}

impl Capacity {
    fn is_odd(&self) -> bool {
        let policy = self.policy.iter();
        let said = policy.flat_map(|p| {
            let range =
                p.range.iter().flat_map(|r| [Some(&r.min), r.max.as_ref(), r.step.as_ref()]).flatten();
            p.default.iter().chain(p.values.iter().flatten()).chain(range)
        });
        said.chain([&self.amount]).any(|amount| amount.sign() < 0)
    }
}

impl Device {
    fn of(device: &resource::Device, pool: &PoolId) -> Self {
        let attributes = device.attributes.iter().flatten().map(|(name, value)| {
            let value = attribute(value).map_err(|e| format!("attribute {name}: {e}"))?;
            Ok((named(name, &pool.driver), value))
        });
        let capacity = device.capacity.iter().flatten().map(|(name, capacity)| {
            let amount = quantity(&capacity.value);
            let value = Arc::new(Opaque::Quantity(amount.clone()));
            let policy = capacity.request_policy.as_ref().map(Policy::of);
            (name.clone(), Capacity { named: named(name, &pool.driver), value, amount, policy })
        });
        let consumes = device.consumes_counters.iter().flatten();
        let consumes: Vec<_> = consumes.map(|c| (c.counter_set.clone(), amounts(&c.counters))).collect();
        let capacity: BTreeMap<String, Capacity> = capacity.collect();
        let odd = capacity.values().any(Capacity::is_odd)
            || consumes.iter().flat_map(|(_, taken)| taken.values()).any(|taken| taken.sign() < 0);
        Self {
            id: DeviceId {
                driver: pool.driver.clone(),
                pool: pool.pool.clone(),
                device: device.name.as_str().into(),
            },
            multiple: device.allow_multiple_allocations == Some(true),
            capacity,
            consumes,
            odd,
            attributes: attributes.collect(),
        }
    }
}

impl Slice {
    /// Reads a slice.
    pub fn new(object: Arc<ResourceSlice>) -> Self {
        let spec = &object.spec;
        let pool = PoolId { driver: spec.driver.as_str().into(), pool: spec.pool.name.as_str().into() };
        let devices: Vec<Device> = spec.devices.iter().flatten().map(|d| Device::of(d, &pool)).collect();
        let names: BTreeSet<&str> = devices.iter().map(|d| d.id.device.as_str()).collect();
        let ambiguous = names.len() < devices.len();
        let has_conditions = spec.devices.iter().flatten().any(|d| d.binding_conditions.is_some());
        let sets = spec.shared_counters.iter().flatten();
        let counters = sets.map(|set| (set.name.clone(), amounts(&set.counters))).collect();
        Self { object, pool, devices, counters, ambiguous, has_conditions, answers: Mutex::default() }
    }
    fn answers(&self) -> MutexGuard<'_, Vec<Answers>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The answer of an expression about a device, if it is known.
    pub(super) fn answer(&self, expression: u64, place: u32) -> Option<bool> {
        let all = self.answers();
        let of = all.iter().find(|a| a.expression == expression)?;
        of.known.has(place).then(|| of.yes.has(place))
    }
    /// Remembers an answer.
    pub(super) fn answered(&self, expression: u64, place: u32, answer: bool) {
        let mut all = self.answers();
        let at = all.iter().position(|a| a.expression == expression).unwrap_or_else(|| {
            if all.len() >= EXPRESSIONS {
                all.clear();
            }
            all.push(Answers { expression, known: Bits::default(), yes: Bits::default() });
            all.len() - 1
        });
        if let Some(of) = all.get_mut(at) {
            of.known.set(place, true);
            of.yes.set(place, answer);
        }
    }
    /// The generation of its pool.
    pub(super) fn generation(&self) -> i64 {
        self.object.spec.pool.generation
    }
    /// Whether its devices have nodes of their own.
    pub(super) fn is_split(&self) -> bool {
        self.object.spec.per_device_node_selection == Some(true)
    }
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
    /// A device, as the object has it.
    pub(super) fn written(&self, device: usize) -> Option<&resource::Device> {
        self.object.spec.devices.as_ref()?.get(device)
    }
}

/// The number of a device in a stock: devices are in the order of their pools, of the slices' names, and of their places.
pub(super) type Slot = u32;
/// The number of a device's name; more than one device has it where slices do not go together.
pub(super) type Name = u32;

/// All slices, by the nodes that they may be for, and which of their devices have changed.
#[derive(Debug, Default)]
pub struct Stock {
    /// By pool and name.
    slices: Vec<Arc<Slice>>,
    /// The number of each slice's first device, and then that of all devices.
    first: Vec<Slot>,
    pools: Vec<Pool>,
    /// The slice and the name of each device.
    devices: Vec<(u32, Name)>,
    names: HashMap<DeviceId, Name>,
    /// The devices of each name.
    slots: Vec<Vec<Slot>>,
    /// By the name of their node.
    on_node: HashMap<String, Vec<u32>>,
    /// Those for more than one node, and those with counters, by the rule for which nodes they are.
    for_many: Vec<(Rule, Vec<u32>)>,
    changes: Mutex<Changes>,
    /// The number of the last change in any pool that more than one node may see.
    shared: AtomicU64,
}

/// The nodes that slices are for.
#[derive(Debug)]
pub(super) enum Rule {
    All,
    Selected(NodeSelector),
    /// Those that a device of this slice is for.
    Devices(u32),
}

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    pub(super) slices: Range<usize>,
    /// The node that all of its slices are for.
    pub(super) home: Option<Box<str>>,
    /// Whether it is all there, so that each node sees the same of it, and no device makes more of its counters.
    pub(super) is_regular: bool,
    /// The number of the last change of the use of its devices.
    changed: AtomicU64,
}

impl Pool {
    /// The number of the last change of the use of its devices.
    pub(super) fn last_change(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }
}

/// The names of the devices whose use has changed, the last ones.
#[derive(Debug, Default)]
struct Changes {
    /// How many changes there were before.
    before: u64,
    last: VecDeque<Name>,
}

/// How many changes are known at most.
const CHANGES: usize = 1 << 14;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Stock {
    /// Puts slices in order.
    pub fn new(slices: impl IntoIterator<Item = Arc<Slice>>) -> Self {
        let mut slices: Vec<Arc<Slice>> = slices.into_iter().collect();
        slices.sort_by(|a, b| (&a.pool, a.name()).cmp(&(&b.pool, b.name())));
        let mut stock = Self { first: vec![0], ..Self::default() };
        let mut by_selector: HashMap<String, usize> = HashMap::new();
        for (i, slice) in slices.iter().enumerate() {
            let spec = &slice.object.spec;
            let node = spec.node_name.as_deref().unwrap_or_default();
            if node.is_empty() || !slice.counters.is_empty() {
                stock.add_for_many(number(i), slice, &mut by_selector);
            } else {
                stock.on_node.entry(node.to_owned()).or_default().push(number(i));
            }
            for device in &slice.devices {
                let slot = number(stock.devices.len());
                let next = number(stock.slots.len());
                let name = *stock.names.entry(device.id.clone()).or_insert(next);
                if name == next {
                    stock.slots.push(Vec::with_capacity(1));
                }
                stock.slots[name as usize].push(slot);
                stock.devices.push((number(i), name));
            }
            stock.first.push(number(stock.devices.len()));
        }
        let mut from = 0;
        for all in slices.chunk_by(|a, b| a.pool == b.pool) {
            stock.pools.push(Pool::of(all, from));
            from += all.len();
        }
        stock.slices = slices;
        stock
    }

    fn add_for_many(&mut self, i: u32, slice: &Slice, by_selector: &mut HashMap<String, usize>) {
        let spec = &slice.object.spec;
        // Without its counters, a pool cannot be used.
        let rule = if !slice.counters.is_empty() || spec.all_nodes == Some(true) {
            Rule::All
        } else if let Some(selector) = &spec.node_selector {
            Rule::Selected(selector.clone())
        } else if slice.is_split() {
            Rule::Devices(i)
        } else {
            return; // Something newer says for which nodes it is.
        };
        let text = match &rule {
            Rule::All => String::new(),
            Rule::Selected(selector) => serde_json::to_string(selector).unwrap_or_default(),
            Rule::Devices(i) => i.to_string(),
        };
        let next = self.for_many.len();
        let at = *by_selector.entry(text).or_insert(next);
        if at == next {
            self.for_many.push((rule, Vec::new()));
        }
        self.for_many[at].1.push(i);
    }

    /// A slice.
    pub(super) fn slice(&self, i: u32) -> &Slice {
        &self.slices[i as usize]
    }
    /// The slices of a node.
    pub(super) fn on_node(&self, node: &str) -> &[u32] {
        self.on_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }
    /// The others, by the rule for which nodes they are.
    pub(super) fn for_many(&self) -> &[(Rule, Vec<u32>)] {
        &self.for_many
    }
    /// All pools, by id.
    pub(super) fn pools(&self) -> &[Pool] {
        &self.pools
    }
    /// The number of a slice's pool.
    pub(super) fn pool_of(&self, slice: u32) -> u32 {
        number(self.pools.partition_point(|p| p.slices.end <= slice as usize))
    }
    /// The slices of a pool, of all generations.
    pub(super) fn of_pool(&self, pool: u32) -> impl Iterator<Item = u32> + use<> {
        self.pools[pool as usize].slices.clone().map(number)
    }
    /// The devices of a slice.
    pub(super) fn of_slice(&self, slice: u32) -> Range<Slot> {
        self.first[slice as usize]..self.first[slice as usize + 1]
    }
    /// The devices of a pool's slices.
    pub(super) fn devices_of(&self, pool: u32) -> Range<Slot> {
        let slices = &self.pools[pool as usize].slices;
        self.first[slices.start]..self.first[slices.end]
    }
    /// A device.
    pub(super) fn device(&self, slot: Slot) -> Option<&Device> {
        let slice = self.slice_of(slot);
        let place = slot.checked_sub(self.of_slice(slice).start)?;
        self.slice(slice).devices.get(place as usize)
    }
    /// A device's slice.
    pub(super) fn slice_of(&self, slot: Slot) -> u32 {
        self.devices[slot as usize].0
    }
    /// The number of a device's name.
    pub(super) fn name_of(&self, slot: Slot) -> Name {
        self.devices[slot as usize].1
    }
    /// The number of a name, if any device has it.
    pub(super) fn name(&self, id: &DeviceId) -> Option<Name> {
        self.names.get(id).copied()
    }
    /// The devices of a name.
    pub(super) fn slots(&self, name: Name) -> impl Iterator<Item = Slot> {
        self.slots[name as usize].iter().copied()
    }
    /// How many devices there are.
    pub(super) fn devices(&self) -> Slot {
        number(self.devices.len())
    }

    /// The use of a device has changed; how many changes there were with this.
    pub(super) fn changed(&self, name: Name) -> u64 {
        let mut changes = lock(&self.changes);
        if changes.last.len() >= CHANGES {
            changes.last.pop_front();
            changes.before += 1;
        }
        changes.last.push_back(name);
        let now = changes.before + changes.last.len() as u64;
        for slot in self.slots(name) {
            self.changed_in(self.pool_of(self.slice_of(slot)), now);
        }
        now
    }
    fn changed_in(&self, pool: u32, now: u64) {
        let Some(pool) = self.pools.get(pool as usize) else { return };
        pool.changed.store(now, Ordering::Relaxed);
        if pool.home.is_none() {
            self.shared.store(now, Ordering::Relaxed);
        }
    }
    /// Nothing is known of changes before; how many there were.
    pub(super) fn forget_changes(&self) -> u64 {
        let mut changes = lock(&self.changes);
        changes.before += changes.last.len() as u64 + 1;
        changes.last.clear();
        (0..number(self.pools.len())).for_each(|pool| self.changed_in(pool, changes.before));
        changes.before
    }
    /// The devices whose use has changed between two of these numbers, if that is known.
    pub(super) fn changes(&self, from: u64, to: u64) -> Option<Vec<Name>> {
        let changes = lock(&self.changes);
        let at = |n: u64| n.checked_sub(changes.before).and_then(|n| usize::try_from(n).ok());
        let (from, to) = (at(from)?, at(to)?);
        (from <= to && to <= changes.last.len()).then(|| changes.last.range(from..to).copied().collect())
    }
    /// The number of the last change in any pool that more than one node may see.
    pub(super) fn shared_change(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }
    /// How many slices there are.
    pub fn len(&self) -> usize {
        self.slices.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }
}

impl Pool {
    fn of(slices: &[Arc<Slice>], from: usize) -> Self {
        let node = |slice: &Arc<Slice>| {
            let name = slice.object.spec.node_name.clone().unwrap_or_default();
            (!name.is_empty() && slice.counters.is_empty()).then_some(name)
        };
        let mut homes = slices.iter().map(node);
        let home = homes.next().flatten().filter(|home| homes.all(|other| other.as_ref() == Some(home)));
        let pool = |slice: &Arc<Slice>| {
            let pool = &slice.object.spec.pool;
            (pool.generation, pool.resource_slice_count)
        };
        let mut said = slices.iter().map(pool);
        let now = said.next();
        let is_whole = now.is_some_and(|(_, n)| usize::try_from(n).is_ok_and(|n| n == slices.len()))
            && said.all(|other| Some(other) == now);
        Self {
            id: slices.first().map_or_else(PoolId::default, |slice| slice.pool.clone()),
            slices: from..from + slices.len(),
            home: home.map(Into::into),
            is_regular: is_whole && !slices.iter().flat_map(|s| &s.devices).any(|d| d.odd),
            changed: AtomicU64::new(0),
        }
    }
}
