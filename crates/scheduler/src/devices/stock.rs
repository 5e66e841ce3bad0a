//! The devices that drivers publish, read once for all turns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::quantity::Quantity;
use cel::{Opaque, Semver};
use k8s_openapi::api::resource::v1::{self as resource, CapacityRequestPolicy, ResourceSlice};

use super::allocated::Amounts;
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
}

/// A device, as far as it had to be read.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    /// Whether several claims may have parts of it.
    pub(super) multiple: bool,
    pub(super) capacity: BTreeMap<String, Capacity>,
    /// The counters that it takes, by set.
    pub(super) consumes: Vec<(String, Amounts)>,
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
        Self {
            id: DeviceId {
                driver: pool.driver.clone(),
                pool: pool.pool.clone(),
                device: device.name.as_str().into(),
            },
            multiple: device.allow_multiple_allocations == Some(true),
            capacity: capacity.collect(),
            consumes: consumes.map(|c| (c.counter_set.clone(), amounts(&c.counters))).collect(),
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
        Self { object, pool, devices, counters, ambiguous, has_conditions }
    }
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
    /// A device, as the object has it.
    pub(super) fn written(&self, device: usize) -> Option<&resource::Device> {
        self.object.spec.devices.as_ref()?.get(device)
    }
}

/// All slices, by the nodes that they may be for.
#[derive(Debug, Default)]
pub struct Stock {
    all: Vec<Arc<Slice>>,
    /// By the name of their node.
    on_node: HashMap<String, Vec<usize>>,
    /// Those for more than one node, and those with counters.
    for_many: Vec<usize>,
    by_pool: HashMap<PoolId, Vec<usize>>,
    /// The answers of expressions about devices, which are the same for all nodes and Pods.
    answers: Mutex<Answers>,
}

/// How many expressions have numbers at most.
const EXPRESSIONS: usize = 256;
/// How many answers are known at most; each takes some 40 bytes.
const ANSWERS: usize = 1 << 18;

/// The answers of expressions: by the device's slice and place and the expression's number.
#[derive(Debug, Default)]
struct Answers {
    numbers: HashMap<Box<str>, usize>,
    known: HashMap<(usize, usize, usize), bool>,
}

impl Stock {
    /// Puts slices in order.
    pub fn new(slices: impl IntoIterator<Item = Arc<Slice>>) -> Self {
        let mut stock = Self { all: slices.into_iter().collect(), ..Self::default() };
        for (i, slice) in stock.all.iter().enumerate() {
            let node = slice.object.spec.node_name.as_deref().unwrap_or_default();
            if node.is_empty() || !slice.counters.is_empty() {
                stock.for_many.push(i);
            } else {
                stock.on_node.entry(node.to_owned()).or_default().push(i);
            }
            stock.by_pool.entry(slice.pool.clone()).or_default().push(i);
        }
        stock
    }
    fn slices<'s>(&'s self, places: Option<&'s Vec<usize>>) -> impl Iterator<Item = &'s Slice> {
        places.into_iter().flatten().filter_map(|i| self.all.get(*i)).map(|slice| &**slice)
    }
    /// The slices that may be for a node.
    pub(super) fn near(&self, node: &str) -> impl Iterator<Item = &Slice> {
        self.slices(self.on_node.get(node)).chain(self.slices(Some(&self.for_many)))
    }
    /// The slices of a pool, of all generations.
    pub(super) fn of_pool(&self, pool: &PoolId) -> impl Iterator<Item = &Slice> {
        self.slices(self.by_pool.get(pool))
    }
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The number of an expression among those that were asked.
    pub(super) fn number(&self, expression: &str) -> usize {
        let mut all = self.answers();
        if let Some(number) = all.numbers.get(expression) {
            return *number;
        }
        if all.numbers.len() >= EXPRESSIONS {
            *all = Answers::default();
        }
        let next = all.numbers.len();
        all.numbers.insert(expression.into(), next);
        next
    }
    /// The answer of an expression about a device, if it is known.
    pub(super) fn answer(&self, key: (usize, usize, usize)) -> Option<bool> {
        self.answers().known.get(&key).copied()
    }
    /// Remembers an answer.
    pub(super) fn answered(&self, key: (usize, usize, usize), answer: bool) {
        let mut all = self.answers();
        if all.known.len() >= ANSWERS {
            all.known.clear();
        }
        all.known.insert(key, answer);
    }
    /// How many slices there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
