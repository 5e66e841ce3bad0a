//! The allocator compared with a plain reading of its rules: the same is found on random devices for random claims, while
//! devices are allocated, given back and published anew.
//!
//! The plain reading keeps nothing: it gathers the slices of a node, and walks over all their devices each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, DeviceConstraint, ResourceClaim};
use objects::node_affinity::Seen;
use serde_json::{Value, json};

use super::allocated::{Allocated, Amounts, count};
use super::capacity::{all_consumed, suffices};
use super::constraint::{Values, lookup};
use super::reach::{State, is_for};
use super::request::{Request, requests};
use super::selector::Selectors;
use super::snapshot::Snapshot;
use super::stock::{Device, Slice};
use super::{AllocationError, Allocator, DeviceId, Features, Limits, Outcome, WORK, sort_of};

const FEATURES: Features = Features {
    admin_access: true,
    consumable_capacity: true,
    binding_conditions: true,
    device_taints: true,
    list_attributes: false,
    partitionable_devices: true,
    prioritized_list: true,
};
const LIMITS: Limits<'static> = Limits { work: WORK, expired: &|| false };

/// A pool as a node sees it.
struct Pool<'p> {
    state: State,
    slices: Vec<&'p Slice>,
    /// All its slices of that generation with devices.
    all: Vec<&'p Slice>,
    counters: BTreeMap<&'p str, &'p Amounts>,
}

fn is_relevant(slice: &Slice, node: Seen<'_>) -> bool {
    let spec = &slice.object.spec;
    let each = || {
        let mut devices = spec.devices.iter().flatten();
        devices.any(|d| is_for(node, d.node_name.as_deref(), d.all_nodes, d.node_selector.as_ref()))
    };
    !slice.counters.is_empty()
        || is_for(node, spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref())
        || spec.per_device_node_selection == Some(true) && each()
}

fn gather<'p>(all: &'p [Arc<Slice>], node: Seen<'_>) -> Vec<Pool<'p>> {
    let ids: BTreeSet<_> = all.iter().map(|slice| slice.pool.clone()).collect();
    let mut pools = Vec::new();
    for id in ids {
        let mut of: Vec<&Slice> = all.iter().filter(|s| s.pool == id).map(|s| &**s).collect();
        of.sort_by_key(|slice| slice.name());
        let relevant: Vec<&Slice> = of.iter().copied().filter(|s| is_relevant(s, node)).collect();
        let Some(newest) = relevant.iter().map(|s| s.generation()).max() else { continue };
        let slices: Vec<&Slice> = relevant.into_iter().filter(|s| s.generation() == newest).collect();
        let whole: Vec<&Slice> = of.iter().copied().filter(|s| s.generation() == newest).collect();
        // All of one generation say the same here.
        let count = usize::try_from(whole[0].object.spec.pool.resource_slice_count).unwrap();
        let mut pool =
            Pool { state: State::Usable, slices: Vec::new(), all: Vec::new(), counters: BTreeMap::new() };
        if slices.len() != count {
            if of.iter().any(|s| s.generation() > newest) {
                continue;
            }
            if whole.len() != count {
                pool.state = State::Incomplete;
                pools.push(pool);
                continue;
            }
        }
        let mine: Vec<&Slice> = slices.iter().copied().filter(|s| s.counters.is_empty()).collect();
        let names: Vec<&str> = mine.iter().flat_map(|s| &s.devices).map(|d| d.id.device.as_str()).collect();
        let unique = names.iter().collect::<BTreeSet<_>>().len() == names.len();
        let sets: Vec<_> = slices.iter().flat_map(|s| &s.counters).collect();
        pool.counters = sets.iter().map(|(name, counters)| (name.as_str(), counters)).collect();
        pool.all = if slices.len() == count { slices } else { whole };
        let known = pool.all.iter().flat_map(|s| &s.devices).flat_map(|d| &d.consumes).all(|(set, taken)| {
            pool.counters.get(set.as_str()).is_some_and(|c| taken.keys().all(|name| c.contains_key(name)))
        });
        if unique && known && sets.len() == pool.counters.len() {
            pool.slices = mine;
        } else {
            pool.state = State::Invalid;
        }
        pools.push(pool);
    }
    let (last, first): (Vec<_>, Vec<_>) =
        pools.into_iter().partition(|p| p.slices.iter().any(|s| s.has_conditions));
    first.into_iter().chain(last).collect()
}

#[derive(Clone, Copy)]
struct Candidate<'p> {
    pool: usize,
    slice: &'p Slice,
    place: usize,
}

impl<'p> Candidate<'p> {
    fn device(&self) -> &'p Device {
        &self.slice.devices[self.place]
    }
}

struct Chosen<'p> {
    claim: usize,
    request: usize,
    alternative: usize,
    candidate: Candidate<'p>,
    /// `None`: the whole device.
    consumed: Option<Amounts>,
    /// Whether it takes counters.
    counted: bool,
}

struct Plain<'p> {
    node: Seen<'p>,
    claims: &'p [&'p ResourceClaim],
    pools: &'p [Pool<'p>],
    allocated: &'p Allocated,
    classes: &'p BTreeMap<String, Arc<DeviceClass>>,
    selectors: &'p Selectors,
    chosen: Vec<Chosen<'p>>,
    /// The devices for requests that want all, by claim, request and alternative.
    all: BTreeMap<[usize; 3], Vec<Candidate<'p>>>,
}

/// Something is wrong with an expression, or with a request for all devices.
struct Failed;

impl<'p> Plain<'p> {
    fn candidates(&self) -> Vec<Candidate<'p>> {
        let mut all = Vec::new();
        for (pool, p) in self.pools.iter().enumerate() {
            for slice in &p.slices {
                all.extend((0..slice.devices.len()).map(|place| Candidate { pool, slice, place }));
            }
        }
        all
    }

    fn selects(&self, request: &Request<'_>, candidate: Candidate<'_>) -> Result<bool, Failed> {
        let class = &self.classes[request.class_name];
        for selector in class.spec.selectors.iter().flatten().chain(request.selectors) {
            let expression = &selector.cel.as_ref().unwrap().expression;
            let place = u32::try_from(candidate.place).unwrap();
            // A copy of the slice knows no answers.
            let slice = Slice::new(candidate.slice.object.clone());
            if !self.selectors.answer(expression, &slice, place).0.map_err(|_| Failed)? {
                return Ok(false);
            }
        }
        let device = candidate.slice.written(candidate.place).unwrap();
        Ok(candidate.slice.object.spec.per_device_node_selection != Some(true)
            || is_for(
                self.node,
                device.node_name.as_deref(),
                device.all_nodes,
                device.node_selector.as_ref(),
            ))
    }

    fn of(&self, id: &DeviceId) -> impl Iterator<Item = &Chosen<'p>> {
        self.chosen.iter().filter(move |c| c.candidate.device().id == *id)
    }

    fn in_use(&self, claim: usize, request: &Request<'_>, device: &Device) -> bool {
        let mut whole = self.of(&device.id).filter(|c| c.consumed.is_none());
        if request.is_admin() {
            return whole.any(|c| c.claim == claim);
        }
        self.allocated.has(&device.id) || whole.next().is_some()
    }

    fn suffices(&self, request: &Request<'_>, device: &Device) -> bool {
        let (none, mut taken) = (Amounts::new(), Amounts::new());
        self.of(&device.id).filter_map(|c| c.consumed.as_ref()).for_each(|c| count(&mut taken, c, true));
        let wanted = request.capacity.as_ref().unwrap_or(&none);
        suffices(wanted, &device.capacity, [self.allocated.consumed(&device.id), Some(&taken)])
    }

    /// Whether the pool has no less of any counter than is taken.
    fn has_counters(&self, candidate: Candidate<'_>) -> bool {
        let pool = &self.pools[candidate.pool];
        let devices = pool.all.iter().flat_map(|s| &s.devices);
        let allocated =
            devices.filter(|d| self.allocated.has(&d.id) || self.allocated.consumed(&d.id).is_some());
        let mine = self.chosen.iter().filter(|c| c.counted && c.candidate.pool == candidate.pool);
        let all = allocated.chain(mine.map(|c| c.candidate.device())).chain([candidate.device()]);
        let taken: Vec<_> = all.flat_map(|device| &device.consumes).collect();
        pool.counters.iter().all(|(set, counters)| {
            counters.iter().all(|(name, counter)| {
                let mut left = counter.clone();
                taken
                    .iter()
                    .filter(|(s, _)| s == set)
                    .filter_map(|(_, t)| t.get(name))
                    .for_each(|t| left.sub(t));
                left.sign() >= 0
            })
        })
    }

    fn is_allowed(&self, claim: usize, of: (usize, usize), candidate: Candidate<'_>) -> bool {
        let said = self.claims[claim].spec.devices.as_ref().and_then(|d| d.constraints.as_ref());
        said.into_iter().flatten().all(|constraint| self.agrees(constraint, claim, of, candidate))
    }

    fn agrees(
        &self,
        constraint: &DeviceConstraint,
        claim: usize,
        (request, alternative): (usize, usize),
        candidate: Candidate<'_>,
    ) -> bool {
        let concerns = |request: usize, alternative: usize| {
            let asked = &Request::all(&requests(self.claims[claim])[request])[alternative];
            let parent = if asked.parent.is_empty() { asked.name } else { asked.parent };
            let names = constraint.requests.as_deref().unwrap_or_default();
            names.is_empty() || names.iter().any(|n| n == parent || *n == asked.full_name())
        };
        if !concerns(request, alternative) {
            return true;
        }
        let matching = constraint.match_attribute.as_deref();
        let attribute = matching.or(constraint.distinct_attribute.as_deref()).unwrap();
        let value = |c: Candidate<'_>| {
            let found = lookup(c.slice.written(c.place).unwrap(), &c.device().id, attribute)?;
            Some(Values::of(found, false))
        };
        let Some(mine) = value(candidate) else { return false };
        let mut others =
            self.chosen.iter().filter(|c| c.claim == claim && concerns(c.request, c.alternative));
        others.all(|other| (value(other.candidate).unwrap() == mine) == matching.is_some())
    }

    /// Whether a device takes counters: one of which parts are in use has taken them.
    fn is_counted(&self, device: &Device) -> bool {
        let has_parts = self.allocated.consumed(&device.id).is_some()
            || self.of(&device.id).any(|c| c.consumed.is_some());
        !(device.consumes.is_empty() || device.multiple && has_parts)
    }

    /// Whether nothing but constraints is against a device.
    fn would_do(&self, claim: usize, request: &Request<'_>, candidate: Candidate<'_>) -> bool {
        let device = candidate.device();
        let written = candidate.slice.written(candidate.place).unwrap();
        !(self.in_use(claim, request, device) && !(device.multiple && request.is_admin()))
            && !objects::devices::is_kept_from(written, request.tolerations)
            && self.suffices(request, device)
            && (!self.is_counted(device) || self.has_counters(candidate))
    }

    /// Chooses a device, if nothing is against it.
    fn choose(&mut self, at: [usize; 3], request: &Request<'_>, candidate: Candidate<'p>) -> bool {
        let [claim, r, alternative] = at;
        if !self.would_do(claim, request, candidate) || !self.is_allowed(claim, (r, alternative), candidate) {
            return false;
        }
        let (device, none) = (candidate.device(), Amounts::new());
        let wanted = request.capacity.as_ref().unwrap_or(&none);
        let consumed = device.multiple.then(|| all_consumed(wanted, &device.capacity));
        let counted = self.is_counted(device);
        self.chosen.push(Chosen { claim, request: r, alternative, candidate, consumed, counted });
        true
    }

    fn all(&self, request: &Request<'_>) -> Result<Vec<Candidate<'p>>, Failed> {
        let mut all = Vec::new();
        for candidate in self.candidates() {
            if self.selects(request, candidate)? && self.suffices(request, candidate.device()) {
                all.push(candidate);
            }
        }
        Ok(all)
    }

    /// Looks for a device, and for all that come after it, from a candidate on.
    fn find(&mut self, at: [usize; 3], device: usize, from: usize) -> Result<bool, Failed> {
        let [claim, r, alternative] = at;
        let claims = self.claims;
        let Some(object) = claims.get(claim) else { return Ok(true) };
        let Some(written) = requests(object).get(r) else { return self.find([claim + 1, 0, 0], 0, 0) };
        let alternatives = Request::all(written);
        let request = &alternatives[alternative];
        let candidates = self.all.get(&at).cloned().unwrap_or_else(|| self.candidates());
        let wanted =
            if request.wants_all() { candidates.len() } else { usize::try_from(request.count).unwrap() };
        let next_alternative = |me: &mut Self, from: usize| -> Result<bool, Failed> {
            for other in from..alternatives.len() {
                if me.find([claim, r, other], 0, usize::MAX)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        // All alternatives, one after the other.
        if device == 0 && from == 0 && alternative == 0 && !request.parent.is_empty() {
            return next_alternative(self, 0);
        }
        let from = if from == usize::MAX { 0 } else { from };
        if request.wants_all() && candidates.is_empty() {
            return Ok(false);
        }
        if device >= wanted {
            return self.find([claim, r + 1, 0], 0, 0);
        }
        if request.wants_all() {
            if !self.choose(at, request, candidates[device]) {
                let of = (r, alternative);
                // It fails if only a constraint is against it.
                let against = !self.is_allowed(claim, of, candidates[device]);
                return if against && self.would_do(claim, request, candidates[device]) {
                    Err(Failed)
                } else {
                    Ok(false)
                };
            }
            let found = self.find(at, device + 1, usize::MAX)?;
            if !found {
                self.chosen.pop();
            }
            return Ok(found);
        }
        for (i, candidate) in candidates.iter().enumerate().skip(from) {
            if self.in_use(claim, request, candidate.device())
                || !self.selects(request, *candidate)?
                || !self.choose(at, request, *candidate)
            {
                continue;
            }
            if self.find(at, device + 1, i + 1)? {
                return Ok(true);
            }
            self.chosen.pop();
        }
        Ok(false)
    }

    /// The devices for each claim: request, device, and what is taken of it.
    fn run(mut self) -> Result<Option<Vec<String>>, &'static str> {
        let claims = self.claims;
        for (c, claim) in claims.iter().enumerate() {
            for (r, request) in requests(claim).iter().enumerate() {
                for (a, request) in Request::all(request).iter().enumerate().filter(|(_, r)| r.wants_all()) {
                    if self.pools.iter().any(|pool| pool.state != State::Usable) {
                        return Err("failed");
                    }
                    let all = self.all(request).map_err(|Failed| "failed")?;
                    self.all.insert([c, r, a], all);
                }
            }
        }
        match self.find([0, 0, 0], 0, 0) {
            Err(Failed) => Err("failed"),
            Ok(false) if self.pools.iter().any(|p| p.state == State::Invalid) => Err("unusable"),
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(self.chosen.iter().map(|c| self.told(c)).collect())),
        }
    }

    fn told(&self, chosen: &Chosen<'_>) -> String {
        let request = &Request::all(&requests(self.claims[chosen.claim])[chosen.request])[chosen.alternative];
        let consumed = chosen.consumed.iter().flatten().map(|(name, q)| format!("{name}={q}"));
        let consumed: Vec<String> = consumed.collect();
        format!("{} {} {} {consumed:?}", chosen.claim, request.full_name(), chosen.candidate.device().id)
    }
}

/// The devices of allocations, in the same form.
fn told(all: &[AllocationResult]) -> Vec<String> {
    let mut told = Vec::new();
    for (claim, allocation) in all.iter().enumerate() {
        for result in allocation.devices.iter().flat_map(|d| d.results.iter().flatten()) {
            let consumed =
                result.consumed_capacity.iter().flatten().map(|(name, q)| format!("{name}={}", q.0));
            let consumed: Vec<String> = consumed.collect();
            let id = DeviceId::new(&result.driver, &result.pool, &result.device);
            told.push(format!("{claim} {} {id} {consumed:?}", result.request));
        }
    }
    told
}

fn some(rng: &mut Rng, part: u32) -> bool {
    rng.u32(..100) < part
}

fn where_to(rng: &mut Rng) -> Value {
    match rng.u32(..4) {
        0 => json!({"allNodes": true}),
        1 => json!({"nodeName": format!("n{}", rng.u32(..3))}),
        _ => {
            let zone = ["a", "b"][rng.usize(..2)];
            let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            json!({"nodeSelector": {"nodeSelectorTerms": [term]}})
        }
    }
}

fn join(mut object: Value, more: Value) -> Value {
    let (Value::Object(all), Value::Object(more)) = (&mut object, more) else { panic!("no objects") };
    all.extend(more);
    object
}

fn device(rng: &mut Rng, name: &str, split: bool, counters: bool) -> Value {
    let mut device = json!({"name": name, "attributes": {"a": {"int": rng.u32(..3)}}});
    if some(rng, 10) {
        device["attributes"] = json!({"b": {"bool": true}});
    }
    if some(rng, 50) {
        device["capacity"] = json!({"m": {"value": (1 + rng.u32(..4)).to_string()}});
    }
    if some(rng, 25) {
        device["allowMultipleAllocations"] = true.into();
        device["capacity"] =
            json!({"m": {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}});
    }
    if some(rng, 8) {
        device["taints"] = json!([{"key": "t", "effect": "NoSchedule"}]);
    }
    if some(rng, 5) {
        device["bindingConditions"] = json!(["c"]);
    }
    if counters && some(rng, 70) {
        let taken = json!({["x", "y"][rng.usize(..2)]: {"value": (1 + rng.u32(..2)).to_string()}});
        device["consumesCounters"] = json!([{"counterSet": "set", "counters": taken}]);
    }
    if split { join(device, where_to(rng)) } else { device }
}

/// The slices of a pool.
fn pool(rng: &mut Rng, number: usize) -> Vec<Value> {
    let counters = some(rng, 40);
    let (local, count) = (some(rng, 50), 1 + rng.usize(..2));
    let all = count + usize::from(counters);
    let said = if some(rng, 8) { all + 1 } else { all };
    let generation = rng.u32(1..3);
    let home = format!("n{}", rng.u32(..3));
    let slice = |name: String, more: Value| {
        let spec = json!({"driver": "d", "pool": {
            "name": format!("p{number}"), "generation": generation, "resourceSliceCount": said,
        }});
        json!({"metadata": {"name": name}, "spec": join(spec, more)})
    };
    let mut slices = Vec::new();
    for i in 0..count {
        let split = !local && some(rng, 15);
        let devices: Vec<Value> = (0..=rng.usize(..4))
            .map(|n| {
                let name = if some(rng, 3) { "same".to_owned() } else { format!("{i}-{n}") };
                device(rng, &name, split, counters)
            })
            .collect();
        let place = match (local, split) {
            (true, _) => json!({"nodeName": home}),
            (_, true) => json!({"perDeviceNodeSelection": true}),
            _ => where_to(rng),
        };
        slices.push(slice(format!("s{number}-{i}"), join(json!({"devices": devices}), place)));
    }
    if counters {
        let set = json!({"name": "set", "counters": {"x": {"value": "3"}, "y": {"value": "2"}}});
        slices.push(slice(format!("s{number}-c"), json!({"sharedCounters": [set], "allNodes": true})));
    }
    slices
}

fn exactly(rng: &mut Rng) -> Value {
    let class = ["any", "one"][rng.usize(..2)];
    let mut asked =
        json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1 + rng.u32(..2)});
    if some(rng, 10) {
        asked["allocationMode"] = "All".into();
        asked["count"] = Value::Null;
    }
    if some(rng, 30) {
        asked["capacity"] = json!({"requests": {"m": (1 + rng.u32(..3)).to_string()}});
    }
    if some(rng, 20) {
        let expression = [
            "has(device.attributes[\"d\"].a) && device.attributes[\"d\"].a > 0",
            "device.attributes[\"d\"].a > 0",
        ];
        asked["selectors"] = json!([{"cel": {"expression": expression[rng.usize(..2)]}}]);
    }
    if some(rng, 15) {
        asked["tolerations"] = json!([{"operator": "Exists"}]);
    }
    asked
}

fn claim(rng: &mut Rng) -> ResourceClaim {
    let requests: Vec<Value> = (0..=rng.usize(..2))
        .map(|i| {
            if some(rng, 20) {
                let mut subs = Vec::new();
                for n in 0..2 {
                    subs.push(join(exactly(rng), json!({"name": format!("s{n}")})));
                }
                return json!({"name": format!("r{i}"), "firstAvailable": subs});
            }
            let mut asked = exactly(rng);
            if some(rng, 10) {
                asked["adminAccess"] = true.into();
            }
            json!({"name": format!("r{i}"), "exactly": asked})
        })
        .collect();
    let mut devices = json!({"requests": requests});
    if some(rng, 40) {
        let kind = ["matchAttribute", "distinctAttribute"][rng.usize(..2)];
        let names = if some(rng, 50) { json!(["r0"]) } else { Value::Null };
        devices["constraints"] = json!([{kind: "d/a", "requests": names}]);
    }
    serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": devices}}))
        .unwrap()
}

/// A cluster's devices.
struct World {
    rng: Rng,
    slices: BTreeMap<String, Arc<Slice>>,
    nodes: Vec<Arc<Node>>,
    classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
    selectors: Arc<Selectors>,
    allocated: Allocated,
    given: Vec<AllocationResult>,
    snapshot: Snapshot,
    /// How often devices were found, none were, and an answer could not be had.
    ends: [usize; 3],
}

impl World {
    fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        let node = |i: usize| {
            let zone = ["a", "b"][i % 2];
            let meta = json!({"name": format!("n{i}"), "labels": {"zone": zone}});
            Arc::new(serde_json::from_value(json!({"metadata": meta})).unwrap())
        };
        let class = |name: &str, expression: &str| {
            let spec = json!({"selectors": [{"cel": {"expression": expression}}]});
            let class = json!({"metadata": {"name": name}, "spec": spec});
            (name.to_owned(), Arc::new(serde_json::from_value(class).unwrap()))
        };
        let has_a = "!has(device.attributes[\"d\"].a) || device.attributes[\"d\"].a != 2";
        let mut world = Self {
            rng,
            slices: BTreeMap::new(),
            nodes: (0..3).map(node).collect(),
            classes: Arc::new(BTreeMap::from([class("any", "device.driver == \"d\""), class("one", has_a)])),
            selectors: Arc::default(),
            allocated: Allocated::default(),
            given: Vec::new(),
            snapshot: Snapshot::new([], &Allocated::default()),
            ends: [0; 3],
        };
        for i in 0..4 {
            world.publish(i);
        }
        world
    }

    /// Publishes a pool anew.
    fn publish(&mut self, number: usize) {
        let old = format!("s{number}-");
        // Now and then one of before stays there.
        let stays = some(&mut self.rng, 10);
        self.slices.retain(|name, _| !name.starts_with(&old) || stays);
        for slice in pool(&mut self.rng, number) {
            let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
            self.slices.insert(name, Arc::new(Slice::new(Arc::new(serde_json::from_value(slice).unwrap()))));
        }
        let newest = |slice: &Slice| (slice.pool.clone(), slice.generation());
        let mut counts: BTreeMap<_, i64> = BTreeMap::new();
        for slice in self.slices.values() {
            counts.entry(newest(slice)).or_insert(slice.object.spec.pool.resource_slice_count);
        }
        // All of one generation say the same.
        for slice in self.slices.values_mut() {
            let count = counts[&newest(slice)];
            if slice.object.spec.pool.resource_slice_count != count {
                let mut object = (*slice.object).clone();
                object.spec.pool.resource_slice_count = count;
                *slice = Arc::new(Slice::new(Arc::new(object)));
            }
        }
        self.snapshot = Snapshot::new(self.slices.values().cloned(), &self.allocated);
    }

    fn count(&mut self, allocation: &AllocationResult, more: bool) {
        let snapshot = &mut self.snapshot;
        self.allocated.count(allocation, true, more, |all, id| snapshot.update(all, id));
    }

    /// Compares what is found for claims on each node; the last allocations are given.
    fn compare(&mut self, claims: &[ResourceClaim], seed: u64) {
        let claims: Vec<&ResourceClaim> = claims.iter().collect();
        let sort = sort_of(&claims);
        let listed = claims.iter().flat_map(|c| requests(c)).any(|r| r.exactly.is_none());
        let allocator = Allocator::new(
            FEATURES,
            self.snapshot.clone(),
            self.classes.clone(),
            self.selectors.clone(),
            || "share".to_owned(),
        );
        let slices: Vec<Arc<Slice>> = self.slices.values().cloned().collect();
        let mut found = None;
        for (i, node) in self.nodes.iter().enumerate() {
            let seen = Seen::of(node);
            let pools = gather(&slices, seen);
            let plain = Plain {
                node: seen,
                claims: &claims,
                pools: &pools,
                allocated: &self.allocated,
                classes: &self.classes,
                selectors: &self.selectors,
                chosen: Vec::new(),
                all: BTreeMap::new(),
            };
            let expected = plain.run();
            let error = |e: AllocationError| match e {
                AllocationError::Node(_) => "unusable",
                AllocationError::Failed(_) => "failed",
                AllocationError::TimedOut => "timed out",
            };
            let got = allocator.allocate((node, 0), &claims, LIMITS).map_err(error);
            let about =
                || format!("seed {seed}, node {}, {}", seen.name, serde_json::to_string(&claims).unwrap());
            assert_eq!(got.as_ref().map(|r| r.as_deref().map(told)).map_err(|e| *e), expected, "{}", about());
            // Twice, as for another Pod.
            for _ in 0..2 {
                let judged = match allocator.judge((node, i), (&claims, &sort, listed), LIMITS) {
                    Ok(Outcome::Found(results)) => {
                        assert_eq!(results.is_some(), listed);
                        if let Some(results) = results {
                            assert_eq!(Ok(Some(told(&results))), expected, "judged: {}", about());
                        }
                        Ok(true)
                    }
                    Ok(Outcome::Nothing) => Ok(false),
                    Ok(Outcome::Unusable(_)) => Err("unusable"),
                    Err(e) => Err(error(e)),
                };
                assert_eq!(
                    judged,
                    expected.as_ref().map(Option::is_some).map_err(|e| *e),
                    "judged: {}",
                    about()
                );
            }
            self.ends[got.as_ref().map_or(2, |found| usize::from(found.is_none()))] += 1;
            found = got.ok().flatten().or(found);
        }
        drop(allocator);
        for allocation in found.into_iter().flatten() {
            self.count(&allocation, true);
            self.given.push(allocation);
        }
    }

    fn run(&mut self, seed: u64) {
        let sorts: Vec<Vec<ResourceClaim>> =
            (0..3).map(|_| (0..=self.rng.usize(..2)).map(|_| claim(&mut self.rng)).collect()).collect();
        for _ in 0..12 {
            match self.rng.u32(..10) {
                0 => {
                    let number = self.rng.usize(..4);
                    self.publish(number);
                }
                1 => {
                    let i = self.rng.usize(..3);
                    let mut node = (*self.nodes[i]).clone();
                    let zone = ["a", "b"][self.rng.usize(..2)].to_owned();
                    node.metadata.labels = Some(BTreeMap::from([("zone".to_owned(), zone)]));
                    self.nodes[i] = Arc::new(node);
                }
                2 | 3 if !self.given.is_empty() => {
                    let i = self.rng.usize(..self.given.len());
                    let allocation = self.given.swap_remove(i);
                    self.count(&allocation, false);
                }
                _ => {
                    let claims = sorts[self.rng.usize(..sorts.len())].clone();
                    self.compare(&claims, seed);
                }
            }
        }
    }
}

#[test]
fn the_same_is_found_as_by_the_plain_reading() {
    let mut ends = [0; 3];
    for seed in 0..300 {
        let mut world = World::new(seed);
        world.run(seed);
        ends.iter_mut().zip(world.ends).for_each(|(all, n)| *all += n);
    }
    assert!(ends.iter().all(|n| *n > 500), "all kinds of ends are met: {ends:?}");
}
