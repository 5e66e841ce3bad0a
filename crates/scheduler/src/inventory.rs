//! Claims on devices, the devices, and what is known of both: the API's objects, and claims that the scheduler has
//! changed or is about to.
//!
//! The scheduler's loop writes what it hears ([`Devices::take`]); plugins read; the tasks of Pods whose claims are being
//! written wait for changes. A claim is *in flight* from the choice of its devices until they are written, and *assumed*
//! until the API shows what was written (upstream's `DefaultDRAManager` and its assume cache). Devices that are in flight
//! or assumed are allocated to everybody else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use client::Change;
use component::Clock;
use component::metrics::{Histogram, Page};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::claims::User;
use objects::{claims, devices};
use tokio::sync::Notify;

use crate::devices::allocated::Allocated;
use crate::devices::selector::Selectors;
use crate::devices::snapshot::Snapshot;
use crate::devices::stock::Slice;
use crate::events::{About, Events, Happening};

/// A change of an object that devices depend on.
#[derive(Debug)]
#[allow(missing_docs, reason = "each has the name of its kind")]
pub enum News {
    Claim(Change<ResourceClaim>),
    Slice(Change<ResourceSlice>),
    Class(Change<DeviceClass>),
    Rule(Change<DeviceTaintRule>),
}

fn text(t: Option<&String>) -> &str {
    t.map(String::as_str).unwrap_or_default()
}

fn key(meta: &ObjectMeta) -> (&str, &str) {
    (text(meta.namespace.as_ref()), text(meta.name.as_ref()))
}

/// The number of a resourceVersion; they grow.
fn version(claim: &ResourceClaim) -> u64 {
    text(claim.metadata.resource_version.as_ref()).parse().unwrap_or(0)
}

/// The devices of a claim.
pub fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// A claim as the API shows it, and as it is known to be, which may be newer.
#[derive(Debug)]
struct Known {
    shown: Arc<ResourceClaim>,
    latest: Arc<ResourceClaim>,
}

/// A slice, with the taints of rules, and as it is read.
#[derive(Debug)]
struct Published {
    object: Arc<ResourceSlice>,
    read: Arc<Slice>,
}

/// Devices that are chosen for a claim and not written yet.
#[derive(Debug)]
struct InFlight {
    allocation: AllocationResult,
    /// How many Pods are on their way with them.
    sharers: usize,
    /// The number of the turn of a group in which they were chosen.
    turn: Option<u64>,
}

/// The objects.
#[derive(Debug, Default)]
pub struct Objects {
    /// By namespace and name.
    claims: HashMap<String, HashMap<String, Known>>,
    /// The devices of claims that are in flight, by the claim's uid.
    in_flight: HashMap<String, InFlight>,
    /// How many turns of groups there were.
    turns: u64,
    /// Whether one is going on.
    in_turn: bool,
    slices: BTreeMap<String, Published>,
    rules: BTreeMap<String, Arc<DeviceTaintRule>>,
    classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
    /// The classes of extended resources that are named for them.
    by_resource: HashMap<String, String>,
    allocated: Allocated,
    /// All slices, with the use of their devices; `None` after a change.
    snapshot: Option<Snapshot>,
    /// The claims that the scheduler made for extended resources, by the uid of the Pod that owns one.
    made: HashMap<String, BTreeSet<(String, String)>>,
    consumable: bool,
    with_rules: bool,
}

/// A place in a Pod, and its claim.
pub type Claimed<'k> = (&'k PodResourceClaim, &'k Arc<ResourceClaim>);

/// The reason for which a claim is not assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAssumed {
    /// The API has not shown it.
    Unknown,
    /// Something newer is known.
    Outdated,
}

impl Objects {
    /// A claim.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<ResourceClaim>> {
        Some(&self.claims.get(namespace)?.get(name)?.latest)
    }
    /// The claims of a namespace.
    pub fn claims_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.get(namespace).into_iter().flat_map(HashMap::values).map(|known| &known.latest)
    }
    /// The claims of a Pod, each with its place; `by_group`: whether they may be those of its PodGroup.
    ///
    /// # Errors
    /// In upstream's words, if one is not there, is going, or is not the Pod's.
    pub fn claims_of<'k>(&'k self, pod: &'k Pod, by_group: bool) -> Result<Vec<Claimed<'k>>, String> {
        let namespace = text(pod.metadata.namespace.as_ref());
        let mut all = Vec::new();
        for place in claims::places(pod) {
            let Some((name, made)) = claims::name(pod, place)? else { continue };
            let claim = self.claim(namespace, name).ok_or_else(|| {
                format!("could not find ResourceClaim {}", api::go::quote(&format!("{namespace}/{name}")))
            })?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("resourceclaim {} is being deleted", api::go::quote(name)));
            }
            if made {
                claims::is_for(User::of(pod, by_group), claim)?;
            }
            all.push((place, claim));
        }
        Ok(all)
    }
    /// The devices that are chosen for a claim and not written yet.
    pub fn pending(&self, uid: &str) -> Option<&AllocationResult> {
        self.in_flight.get(uid).map(|f| &f.allocation)
    }
    /// Those that another Pod of the group has chosen in the group's turn that is going on: they are shared.
    pub fn shared(&self, uid: &str) -> Option<&AllocationResult> {
        let turn = self.in_turn.then_some(self.turns);
        self.in_flight.get(uid).filter(|f| f.turn.is_some() && f.turn == turn).map(|f| &f.allocation)
    }
    /// A group begins its turn.
    pub fn begin_turn(&mut self) {
        self.turns += 1;
        self.in_turn = true;
    }
    /// It is over.
    pub fn end_turn(&mut self) {
        self.in_turn = false;
    }
    /// The devices of all claims that are in flight, by the claims' uids.
    pub fn all_pending(&self) -> impl Iterator<Item = (&String, &AllocationResult)> {
        self.in_flight.iter().map(|(uid, f)| (uid, &f.allocation))
    }
    /// All classes, by name.
    pub fn classes(&self) -> &Arc<BTreeMap<String, Arc<DeviceClass>>> {
        &self.classes
    }
    /// The class whose devices are an extended resource: each has one of its own, and may name another.
    pub fn class_of(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        let name =
            resource.strip_prefix(claims::CLASS_PREFIX).filter(|name| self.classes.contains_key(*name));
        self.classes.get(name.or_else(|| self.by_resource.get(resource).map(String::as_str))?)
    }
    /// The devices that claims have.
    pub fn allocated(&self) -> &Allocated {
        &self.allocated
    }
    /// All slices with the use of their devices; `None` after a change, until [`Devices::ready`].
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }
    /// The claims for extended resources that a Pod owns.
    pub fn made_for(&self, uid: &str) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        let keys = self.made.get(uid).into_iter().flatten();
        keys.filter_map(|(namespace, name)| self.claim(namespace, name))
    }
    /// The number of claims and slices.
    pub fn sizes(&self) -> [usize; 2] {
        [self.claims.values().map(HashMap::len).sum(), self.slices.len()]
    }

    fn count(&mut self, allocation: Option<&AllocationResult>, more: bool) {
        let Some(allocation) = allocation else { return };
        let mut snapshot = self.snapshot.as_mut();
        self.allocated.count(allocation, self.consumable, more, |allocated, id| {
            if let Some(snapshot) = &mut snapshot {
                snapshot.update(allocated, id);
            }
        });
    }

    fn set_latest(&mut self, claim: Arc<ResourceClaim>) {
        let (namespace, name) = key(&claim.metadata);
        let Some(known) = self.claims.get_mut(namespace).and_then(|all| all.get_mut(name)) else { return };
        let before = std::mem::replace(&mut known.latest, claim.clone());
        self.own(&before, false);
        self.own(&claim, true);
        if allocation(&before) != allocation(&claim) {
            // The devices that it keeps are in use all the time.
            self.count(allocation(&claim), true);
            self.count(allocation(&before), false);
        }
    }

    /// Remembers whose claim it is, or does so no more.
    fn own(&mut self, claim: &ResourceClaim, is_there: bool) {
        let meta = &claim.metadata;
        if meta.annotations.as_ref().is_none_or(|all| !all.contains_key(claims::EXTENDED)) {
            return;
        }
        let (namespace, name) = key(meta);
        for owner in meta.owner_references.iter().flatten().filter(|o| o.controller == Some(true)) {
            let of = self.made.entry(owner.uid.clone()).or_default();
            if is_there {
                of.insert((namespace.to_owned(), name.to_owned()));
            } else {
                of.remove(&(namespace.to_owned(), name.to_owned()));
            }
            if of.is_empty() {
                self.made.remove(&owner.uid);
            }
        }
    }

    fn take_claim(&mut self, change: &Change<ResourceClaim>) {
        let claim = change.object();
        let (namespace, name) = key(&claim.metadata);
        if let Change::Deleted(_) = change {
            let Some(all) = self.claims.get_mut(namespace) else { return };
            let gone = all.remove(name);
            if all.is_empty() {
                self.claims.remove(namespace);
            }
            if let Some(Known { latest, .. }) = gone {
                self.own(&latest, false);
                self.count(allocation(&latest), false);
            }
            return;
        }
        let all = self.claims.entry(namespace.to_owned()).or_default();
        let Some(known) = all.get_mut(name) else {
            all.insert(name.to_owned(), Known { shown: claim.clone(), latest: claim.clone() });
            self.own(claim, true);
            self.count(allocation(claim), true);
            return;
        };
        known.shown = claim.clone();
        let same = known.latest.metadata.uid == claim.metadata.uid;
        if !same || version(claim) >= version(&known.latest) {
            self.set_latest(claim.clone());
        }
    }

    /// Takes in a claim as it was written, which the API shows later.
    ///
    /// # Errors
    /// If the API has not shown it yet, or shows something newer.
    pub fn assume(&mut self, claim: ResourceClaim) -> Result<(), NotAssumed> {
        let (namespace, name) = key(&claim.metadata);
        let latest = self.claim(namespace, name).ok_or(NotAssumed::Unknown)?;
        if latest.metadata.uid != claim.metadata.uid || version(&claim) < version(latest) {
            return Err(NotAssumed::Outdated);
        }
        self.set_latest(Arc::new(claim));
        Ok(())
    }
    /// Goes back to the claim that the API shows.
    pub fn restore(&mut self, namespace: &str, name: &str) {
        let known = self.claims.get(namespace).and_then(|all| all.get(name));
        if let Some(shown) = known.map(|known| known.shown.clone()) {
            self.set_latest(shown);
        }
    }
    /// Devices were chosen for a claim, and are to be written.
    pub fn set_pending(&mut self, uid: &str, allocation: AllocationResult) {
        self.count(Some(&allocation), true);
        let turn = self.in_turn.then_some(self.turns);
        let before = self.in_flight.insert(uid.to_owned(), InFlight { allocation, sharers: 1, turn });
        self.count(before.as_ref().map(|f| &f.allocation), false);
    }
    /// One more Pod is on its way with them; `false` if they are not pending.
    pub fn share_pending(&mut self, uid: &str) -> bool {
        self.in_flight.get_mut(uid).map(|f| f.sharers += 1).is_some()
    }
    /// A Pod is on its way with them no more; `false` if others are, or they were not pending.
    pub fn leave_pending(&mut self, uid: &str) -> bool {
        match self.in_flight.get_mut(uid) {
            Some(f) if f.sharers > 1 => {
                f.sharers -= 1;
                false
            }
            _ => self.end_pending(uid),
        }
    }
    /// They are written; `false` if they were not pending.
    pub fn end_pending(&mut self, uid: &str) -> bool {
        let ended = self.in_flight.remove(uid);
        self.count(ended.as_ref().map(|f| &f.allocation), false);
        ended.is_some()
    }

    fn publish(&mut self, name: &str, object: Arc<ResourceSlice>) {
        let rules = self.rules.values().map(|rule| &**rule);
        let tainted = if self.with_rules { devices::tainted(&object, rules) } else { None };
        let read = Arc::new(Slice::new(tainted.map_or_else(|| object.clone(), Arc::new)));
        self.slices.insert(name.to_owned(), Published { object, read });
        self.snapshot = None;
    }

    fn take_slice(&mut self, change: &Change<ResourceSlice>) {
        let slice = change.object();
        let name = text(slice.metadata.name.as_ref());
        if let Change::Deleted(_) = change {
            self.slices.remove(name);
            self.snapshot = None;
        } else {
            self.publish(name, slice.clone());
        }
    }

    fn take_rule(&mut self, change: &Change<DeviceTaintRule>) {
        let rule = change.object();
        let name = text(rule.metadata.name.as_ref()).to_owned();
        match change {
            Change::Deleted(_) => drop(self.rules.remove(&name)),
            _ => drop(self.rules.insert(name, rule.clone())),
        }
        let before = match change {
            Change::Updated { old, .. } => Some(old),
            _ => None,
        };
        let concerned: Vec<(String, Arc<ResourceSlice>)> = self
            .slices
            .iter()
            .filter(|(_, published)| {
                let spec = &published.object.spec;
                let mut names = spec.devices.iter().flatten().map(|d| d.name.as_str());
                let of = |rule: &DeviceTaintRule, device| {
                    devices::selects(rule, &spec.driver, &spec.pool.name, device)
                };
                names.any(|device| of(rule, device) || before.is_some_and(|rule| of(rule, device)))
            })
            .map(|(name, published)| (name.clone(), published.object.clone()))
            .collect();
        for (name, slice) in concerned {
            self.publish(&name, slice);
        }
    }

    fn take_class(&mut self, change: &Change<DeviceClass>) {
        let class = change.object();
        let name = text(class.metadata.name.as_ref()).to_owned();
        let classes = Arc::make_mut(&mut self.classes);
        match change {
            Change::Deleted(_) => drop(classes.remove(&name)),
            _ => drop(classes.insert(name, class.clone())),
        }
        // The newest class has the name of a resource, and of those the first by its name.
        let created = |class: &DeviceClass| class.metadata.creation_timestamp.as_ref().map(|t| t.0);
        let mut by_resource: HashMap<String, String> = HashMap::new();
        for (name, class) in &*self.classes {
            let Some(resource) = &class.spec.extended_resource_name else { continue };
            let other = by_resource.get(resource).and_then(|other| self.classes.get(other));
            if other.is_none_or(|other| created(class) > created(other)) {
                by_resource.insert(resource.clone(), name.clone());
            }
        }
        self.by_resource = by_resource;
    }
}

/// The devices of a cluster, and the claims on them. Clones share it.
#[derive(Debug, Clone)]
pub struct Devices(Arc<Shared>);

/// The counts of what was done about claims.
#[derive(Debug, Default)]
struct Counts {
    /// Claims that were made, and those that were not.
    made: [u64; 2],
    /// By profile, driver and status: how many devices were waited for, and how long.
    waited: BTreeMap<(String, String, &'static str), (u64, Option<Histogram>)>,
}

/// Seconds from 0.1, each bound twice the one before.
const WAITS: &[f64] = &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];

#[derive(Debug)]
struct Shared {
    objects: RwLock<Objects>,
    counts: Mutex<Counts>,
    /// Those that wait for changes of claims, by the claim's namespace and name.
    watches: Mutex<HashMap<ClaimKey, Vec<Arc<Notify>>>>,
    clock: OnceLock<Clock>,
    selectors: Arc<Selectors>,
}

impl Default for Devices {
    fn default() -> Self {
        let objects = Objects { consumable: true, ..Objects::default() };
        Self(Arc::new(Shared {
            objects: RwLock::new(objects),
            counts: Mutex::default(),
            watches: Mutex::default(),
            clock: OnceLock::new(),
            selectors: Arc::default(),
        }))
    }
}

impl Devices {
    /// The objects, to be read.
    pub fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.0.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// The objects, for assumptions.
    pub fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.0.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// Sets the clock, once, and whether devices have parts and rules taint them.
    pub fn begin(&self, clock: Clock, consumable: bool, with_rules: bool) {
        let _ = self.0.clock.set(clock);
        let mut objects = self.write();
        (objects.consumable, objects.with_rules) = (consumable, with_rules);
    }
    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.0.clock.get_or_init(Clock::system).now()
    }
    /// The expressions that select devices.
    pub fn selectors(&self) -> &Arc<Selectors> {
        &self.0.selectors
    }
    /// The objects, with all slices in order.
    pub fn ready(&self) -> RwLockReadGuard<'_, Objects> {
        loop {
            let objects = self.read();
            if objects.snapshot.is_some() {
                return objects;
            }
            drop(objects);
            let mut objects = self.write();
            if objects.snapshot.is_none() {
                let slices: Vec<Arc<Slice>> = objects.slices.values().map(|p| p.read.clone()).collect();
                objects.snapshot = Some(Snapshot::new(slices, &objects.allocated));
            }
        }
    }
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Counts a claim that was made, or was not.
    pub fn made(&self, done: bool) {
        self.counts().made[usize::from(!done)] += 1;
    }
    /// Counts the wait for a claim's devices: for each device by its driver, and again for each that was waited for.
    pub fn waited<'d>(
        &self,
        (profile, status): (&str, &'static str),
        all: impl Iterator<Item = &'d str>,
        waited: &[&str],
        took: Duration,
    ) {
        let mut counts = self.counts();
        let key = |driver: &str| (profile.to_owned(), driver.to_owned(), status);
        for driver in all {
            let (_, times) = counts.waited.entry(key(driver)).or_default();
            times.get_or_insert_with(|| Histogram::new(WAITS)).observe(took.as_secs_f64());
        }
        for driver in waited {
            counts.waited.entry(key(driver)).or_default().0 += 1;
        }
    }
    /// Writes the counts down, with upstream's names.
    pub fn report(&self, page: &mut Page) {
        const ALLOCATIONS: &str = "scheduler_dra_bindingconditions_allocations_total";
        const WAITED: &str = "scheduler_dra_bindingconditions_wait_duration_seconds";
        let counts = self.counts();
        let name = "scheduler_resourceclaim_creates_total";
        page.metric(name, "counter", "Number of ResourceClaims creation requests within scheduler");
        for (status, n) in ["success", "failure"].into_iter().zip(counts.made).filter(|(_, n)| *n != 0) {
            page.value(name, &[("status", status)], n as f64);
        }
        page.metric(ALLOCATIONS, "counter", "Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt");
        for ((profile, driver, status), (n, _)) in counts.waited.iter().filter(|(_, (n, _))| *n != 0) {
            page.value(
                ALLOCATIONS,
                &[("profile", profile), ("driver", driver), ("status", status)],
                *n as f64,
            );
        }
        page.metric(
            WAITED,
            "histogram",
            "Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
        );
        for ((profile, driver, status), (_, took)) in &counts.waited {
            let labels = [("profile", profile.as_str()), ("driver", driver), ("status", status)];
            if let Some(took) = took {
                page.histogram(WAITED, &labels, took);
            }
        }
    }
    /// Hears of every later change of these claims, by namespace and name.
    pub fn watch(&self, claims: Vec<ClaimKey>) -> Watch {
        let watch = Watch { of: self.clone(), claims, changed: Arc::default() };
        let mut all = self.watches();
        for claim in &watch.claims {
            all.entry(claim.clone()).or_default().push(watch.changed.clone());
        }
        drop(all);
        watch
    }
    fn watches(&self) -> MutexGuard<'_, HashMap<ClaimKey, Vec<Arc<Notify>>>> {
        self.0.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes in a change; says what happened.
    pub fn take(&self, news: &News) -> Happening {
        let mut objects = self.write();
        match news {
            News::Claim(change) => objects.take_claim(change),
            News::Slice(change) => objects.take_slice(change),
            News::Class(change) => objects.take_class(change),
            News::Rule(change) => objects.take_rule(change),
        }
        drop(objects);
        if let News::Claim(change) = news {
            let (namespace, name) = key(&change.object().metadata);
            let watches = self.watches();
            let its = watches.get(&(namespace.to_owned(), name.to_owned()));
            its.into_iter().flatten().for_each(|changed| changed.notify_one());
        }
        meaning(news)
    }
}

/// A claim's namespace and name.
pub type ClaimKey = (String, String);

/// Hears of changes of claims, as long as it is there.
#[derive(Debug)]
pub struct Watch {
    of: Devices,
    claims: Vec<ClaimKey>,
    changed: Arc<Notify>,
}

impl Watch {
    /// Waits for a change after the last one that was heard of.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.of.watches();
        for claim in &self.claims {
            let Some(its) = all.get_mut(claim) else { continue };
            its.retain(|other| !Arc::ptr_eq(other, &self.changed));
            if its.is_empty() {
                all.remove(claim);
            }
        }
    }
}

/// The event of a change.
///
/// DIFFERENCE: a claim that goes with its devices is an event, too.
fn meaning(news: &News) -> Happening {
    match news {
        News::Claim(change) => {
            let kinds = match change {
                Change::Added(_) => Events::DEVICE_CLAIM_ADDED,
                Change::Updated { .. } => Events::DEVICE_CLAIM_CHANGED,
                Change::Deleted(_) => Events::DEVICE_CLAIM_DELETED,
            };
            Happening::new(kinds, About::DeviceClaim(change.into()))
        }
        News::Class(Change::Deleted(_)) | News::Slice(Change::Deleted(_)) => Happening::nothing(),
        News::Class(change @ Change::Added(_)) => {
            Happening::new(Events::DEVICE_CLASS_ADDED, About::DeviceClass(change.into()))
        }
        News::Class(change @ Change::Updated { .. }) => {
            Happening::new(Events::DEVICE_CLASS_CHANGED, About::DeviceClass(change.into()))
        }
        News::Slice(Change::Added(_)) => Happening::new(Events::SLICE_ADDED, About::Nothing),
        News::Slice(Change::Updated { .. }) | News::Rule(_) => {
            Happening::new(Events::SLICE_CHANGED, About::Nothing)
        }
    }
}

#[cfg(test)]
mod tests;
