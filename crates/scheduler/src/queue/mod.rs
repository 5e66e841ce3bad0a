//! The scheduling queue: ready Pods by priority and age, Pods that back off, and Pods that wait for the
//! cluster to change. Pure: the caller passes the time.
//!
//! Waiting Pods that are alike stand in one group, and what happens is judged once for each group that waits for such a
//! thing: 10,000 Pods of one sort cost an event no more than one.

mod counts;
mod flights;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use objects::claims;
use tokio::time::Instant;

pub use counts::{Counts, Said};
pub use flights::Mark;

use crate::events::{Events, Happening};
use crate::framework::points::{QueueSort, Queued};
use crate::pod::PodInfo;

/// After this a waiting Pod is tried again although nothing happened, unless a flag says otherwise; upstream's
/// `DefaultPodMaxInUnschedulablePodsDuration`.
pub const MAX_WAIT: Duration = Duration::from_mins(5);

/// Upstream's names of what brings a Pod into a queue besides events in the cluster.
mod by {
    pub(super) const NEW: &str = "UnschedulablePodAdd";
    pub(super) const UPDATE: &str = "UnschedulablePodUpdate";
    pub(super) const FAILURE: &str = "ScheduleAttemptFailure";
    pub(super) const BACKOFF: &str = "BackoffComplete";
    pub(super) const IDLE: &str = "PopFromBackoffQ";
    pub(super) const TIMEOUT: &str = "UnschedulableTimeout";
    pub(super) const FORCE: &str = "ForceActivate";
}

/// Says whether something that happened is a reason to try a waiting Pod again.
pub type Ask<'a> = &'a mut dyn FnMut(&Entry, &Happening) -> bool;

/// A Pod in the queue.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The Pod.
    pub info: PodInfo,
    /// When it first came.
    pub since: Instant,
    /// How often it was tried.
    pub attempts: u32,
    /// When its last try began.
    pub tried: Instant,
    /// When its first try began.
    pub first_tried: Option<Instant>,
    /// The plugins that refused it then.
    pub refused_by: Vec<&'static str>,
    /// Whether its last try began since it had waited for too long (upstream's `WasFlushedFromUnschedulable`).
    pub flushed: bool,
    failed_at: Instant,
    /// Whether it was refused then, and nothing went wrong.
    refused: bool,
    /// The events that may lift the last refusal.
    waits_for: Events,
    state: State,
    /// Its group, if it waits.
    group: Option<Arc<Group>>,
}

/// The facts that Pods of a group have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Group {
    waits_for: Events,
    refused_by: Vec<&'static str>,
    priority: i32,
    /// The Pods' signature; a Pod without one is alone, by its uid.
    alike: Result<Box<str>, Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Gated,
    Ready,
    BackingOff(Instant),
    Waiting(Instant),
}

/// A Pod that is ready, in the order of its turn.
struct Ready {
    info: PodInfo,
    since: Instant,
    sort: Arc<dyn QueueSort>,
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> Ordering {
        let sorted = self.sort.compare(
            Queued { pod: &self.info, since: self.since },
            Queued { pod: &other.info, since: other.since },
        );
        sorted.then_with(|| self.info.uid().cmp(other.info.uid()))
    }
}

/// A Pod that backs off, but may have its turn before: those of one second in the order of their turns.
type Early = (u64, Ready);

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ready {}

/// The rules by which Pods wait.
pub struct Rules {
    /// The order of their turns.
    pub sort: Arc<dyn QueueSort>,
    /// Whether a Pod is held back.
    pub gated: Box<dyn Fn(&PodInfo) -> bool + Send + Sync>,
    /// How long a Pod backs off after its first try; after each further one twice as long.
    pub initial_backoff: Duration,
    /// How long it backs off at most.
    pub max_backoff: Duration,
    /// After what time a Pod that waits for a change is tried again although nothing happened.
    pub max_wait: Duration,
    /// Whether a Pod that backs off since it was refused has its turn when no other one is ready
    /// (SchedulerPopFromBackoffQ).
    pub cuts_backoff: bool,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rules({:?} to {:?})", self.initial_backoff, self.max_backoff)
    }
}

/// The queue.
pub struct Queue {
    rules: Rules,
    entries: HashMap<String, Entry>,
    ready: BTreeSet<Ready>,
    /// Those that back off since they were refused.
    early: BTreeSet<Early>,
    /// The time from which the seconds of those are counted.
    origin: Option<Instant>,
    timers: BTreeMap<Instant, BTreeSet<String>>,
    /// The uids of waiting Pods by group.
    groups: HashMap<Arc<Group>, BTreeSet<String>>,
    /// The uids of Pods that are held back, by namespace and name of their claims on devices.
    held: HashMap<(String, String), BTreeSet<String>>,
    /// How many Pods there are in each state.
    sizes: [usize; 4],
    counts: Counts,
}

impl Queue {
    /// An empty queue.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            entries: HashMap::new(),
            ready: BTreeSet::new(),
            early: BTreeSet::new(),
            origin: None,
            timers: BTreeMap::new(),
            groups: HashMap::new(),
            held: HashMap::new(),
            sizes: [0; 4],
            counts: Counts::default(),
        }
    }
    /// Its metrics.
    pub fn metrics(&self) -> Counts {
        self.counts.clone()
    }
    fn order(&self, e: &Entry) -> Ready {
        Ready { info: e.info.clone(), since: e.since, sort: self.rules.sort.clone() }
    }
    fn gated(&self, info: &PodInfo) -> bool {
        (self.rules.gated)(info)
    }
    /// Its place among those that back off and may have their turn before.
    fn early(&self, e: &Entry) -> Option<Early> {
        let State::BackingOff(at) = e.state else { return None };
        let origin = self.origin.filter(|_| e.refused && self.rules.cuts_backoff)?;
        Some((at.saturating_duration_since(origin).as_secs(), self.order(e)))
    }
    fn leave(&mut self, e: &mut Entry) {
        self.sizes[place(e.state)] -= 1;
        if let Some(early) = self.early(e) {
            self.early.remove(&early);
        }
        match e.state {
            State::Ready => {
                let order = self.order(e);
                self.ready.remove(&order);
            }
            State::BackingOff(at) | State::Waiting(at) => {
                if let Some(set) = self.timers.get_mut(&at) {
                    set.remove(e.info.uid());
                    if set.is_empty() {
                        self.timers.remove(&at);
                    }
                }
            }
            State::Gated => {
                for key in claims_of(&e.info) {
                    if let Some(uids) = self.held.get_mut(&key) {
                        uids.remove(e.info.uid());
                        if uids.is_empty() {
                            self.held.remove(&key);
                        }
                    }
                }
            }
        }
        if let Some(group) = e.group.take()
            && let Some(uids) = self.groups.get_mut(&group)
        {
            uids.remove(e.info.uid());
            if uids.is_empty() {
                self.groups.remove(&group);
            }
        }
    }
    /// Puts a Pod where its state says; `event` brought it there, unless it was there before.
    fn enter(&mut self, mut e: Entry, state: State, event: Option<&'static str>) {
        e.state = state;
        self.sizes[place(state)] += 1;
        if let Some(event) = event {
            self.counts.came(["active", "backoff", "unschedulable", "unschedulable"][place(state)], event);
        }
        let uid = e.info.uid().to_owned();
        if let State::BackingOff(at) = state {
            self.origin.get_or_insert(at);
        }
        self.early.extend(self.early(&e));
        match state {
            State::Ready => {
                let order = self.order(&e);
                self.ready.insert(order);
            }
            State::BackingOff(at) | State::Waiting(at) => {
                self.timers.entry(at).or_default().insert(uid.clone());
            }
            State::Gated => {
                for key in claims_of(&e.info) {
                    self.held.entry(key).or_default().insert(uid.clone());
                }
            }
        }
        if let State::Waiting(_) = state {
            e.group = Some(self.join(&e));
        }
        self.entries.insert(uid, e);
    }
    /// The group of a Pod, which it joins.
    fn join(&mut self, e: &Entry) -> Arc<Group> {
        let group = Group {
            waits_for: e.waits_for,
            refused_by: e.refused_by.clone(),
            priority: e.info.priority(),
            alike: e.info.signature().map(Box::from).ok_or_else(|| e.info.uid().into()),
        };
        let known = self.groups.get_key_value(&group).map(|(known, _)| known.clone());
        let group = known.unwrap_or_else(|| Arc::new(group));
        self.groups.entry(group.clone()).or_default().insert(e.info.uid().to_owned());
        group
    }
    fn backoff(&self, attempts: u32) -> Duration {
        let Rules { initial_backoff, max_backoff, .. } = self.rules;
        initial_backoff.saturating_mul(1 << attempts.saturating_sub(1).min(30)).min(max_backoff)
    }
    /// Takes in a new or changed Pod, of which `own` says how it changed.
    pub fn set(&mut self, info: PodInfo, own: &Happening, now: Instant, ask: Ask<'_>) {
        let Some(mut e) = self.entries.remove(info.uid()) else {
            let state = if self.gated(&info) { State::Gated } else { State::Ready };
            let e = Entry {
                info,
                since: now,
                attempts: 0,
                tried: now,
                first_tried: None,
                refused_by: Vec::new(),
                flushed: false,
                failed_at: now,
                refused: false,
                waits_for: Events::ALL,
                state,
                group: None,
            };
            self.enter(e, state, Some(by::NEW));
            return;
        };
        self.leave(&mut e);
        e.info = info;
        let state = match e.state {
            _ if self.gated(&e.info) => State::Gated,
            State::Gated => State::Ready,
            State::Waiting(_) if e.waits_for.meets(own.kinds) && ask(&e, own) => self.after_failure(&e, now),
            same => same,
        };
        let moved = place(state) != place(e.state);
        let label = own.kinds.labels().next().unwrap_or(by::UPDATE);
        self.enter(e, state, moved.then_some(label));
    }
    fn after_failure(&self, e: &Entry, now: Instant) -> State {
        let until = e.failed_at + self.backoff(e.attempts);
        if until > now { State::BackingOff(until) } else { State::Ready }
    }
    /// Forgets a Pod.
    pub fn remove(&mut self, uid: &str) -> Option<Entry> {
        let mut e = self.entries.remove(uid)?;
        self.leave(&mut e);
        Some(e)
    }
    /// The next Pod to try, and the mark to give back with [`Queue::refused`]; what happens is kept until it is dropped.
    pub fn pop(&mut self, now: Instant) -> Option<(Entry, Mark)> {
        self.flush(now);
        if self.ready.is_empty()
            && let Some(uid) = self.early.first().map(|(_, early)| early.info.uid().to_owned())
            && let Some(e) = self.remove(&uid)
        {
            self.enter(e, State::Ready, Some(by::IDLE));
        }
        let first = self.ready.pop_first()?;
        let mut e = self.entries.remove(first.info.uid())?;
        self.sizes[place(e.state)] -= 1;
        e.attempts += 1;
        e.tried = now;
        e.first_tried.get_or_insert(now);
        Some((e, self.counts.flights.go()))
    }
    /// Takes a Pod out for its turn out of order, unless it is held back.
    pub fn pop_this(&mut self, uid: &str, now: Instant) -> Option<(Entry, Mark)> {
        self.entries.get(uid).filter(|e| e.state != State::Gated)?;
        let mut e = self.remove(uid)?;
        e.attempts += 1;
        e.tried = now;
        e.first_tried.get_or_insert(now);
        Some((e, self.counts.flights.go()))
    }
    /// Puts back a Pod that did not fit. It waits for one of these events, or only backs off if one happened since
    /// `mark` that is a reason to try it again.
    pub fn refused(&mut self, e: Entry, mark: &Mark, waits_for: Events, now: Instant, ask: Ask<'_>) {
        let (happened, cut) = mark.missed();
        let concerns = |what: &Happening| what.own().is_none_or(|uid| uid == e.info.uid());
        let missed = waits_for.meets(cut)
            || happened.iter().any(|what| waits_for.meets(what.kinds) && concerns(what) && ask(&e, what));
        self.put_back(Entry { waits_for, failed_at: now, refused: true, ..e }, missed, now);
    }
    /// Puts back a Pod that could not be judged or bound. It is tried again after its back-off.
    pub fn errored(&mut self, e: Entry, now: Instant) {
        self.put_back(Entry { waits_for: Events::ALL, failed_at: now, refused: false, ..e }, true, now);
    }
    /// Puts back a Pod that is not to be tried before [`Queue::activate`] says so; this was no try.
    pub fn held(&mut self, e: Entry, now: Instant) {
        let attempts = e.attempts.saturating_sub(1);
        self.put_back(Entry { waits_for: Events::NONE, attempts, ..e }, false, now);
    }
    fn put_back(&mut self, mut e: Entry, again: bool, now: Instant) {
        if self.entries.contains_key(e.info.uid()) {
            return; // it came anew while it was tried
        }
        e.flushed = false;
        let state = if self.gated(&e.info) {
            State::Gated
        } else if again {
            self.after_failure(&e, now)
        } else {
            // Nobody is tried again before its back-off is over.
            State::Waiting(now + self.rules.max_wait.max(self.backoff(e.attempts)))
        };
        self.enter(e, state, Some(by::FAILURE));
    }
    /// Something happened: each Pod that waits for such a thing, and for which it is a reason, is to be tried again; but not
    /// the Pod by which it happened.
    pub fn happened(&mut self, what: &Happening, by: Option<&str>, now: Instant, ask: Ask<'_>) {
        if what.kinds.is_empty() {
            return;
        }
        self.counts.flights.note(what);
        let mut woken = Vec::new();
        for (_, uids) in self.groups.iter().filter(|(group, _)| group.waits_for.meets(what.kinds)) {
            let others = || uids.iter().filter(|uid| Some(uid.as_str()) != by);
            if let Some(one) = others().next().and_then(|uid| self.entries.get(uid))
                && ask(one, what)
            {
                woken.extend(others().cloned());
            }
        }
        for uid in woken {
            let waits_for = self.entries.get(&uid).map_or(Events::NONE, |e| e.waits_for);
            self.wake(&uid, now, waits_for.label(what.kinds));
        }
    }
    /// Something happened to a Pod that is out of the queue.
    pub fn note(&self, own: &Happening) {
        self.counts.flights.note(own);
    }
    /// Looks again at Pods that are held back, after an event.
    pub fn look_again(&mut self, event: Events, concerned: impl Fn(&PodInfo) -> bool) {
        let held = self.entries.iter().filter(|(_, e)| e.state == State::Gated && concerned(&e.info));
        let free: Vec<String> =
            held.filter(|(_, e)| !self.gated(&e.info)).map(|(uid, _)| uid.clone()).collect();
        self.free(free, event);
    }
    /// Looks again at Pods that are held back and use a claim on devices, after an event of that.
    pub fn look_again_for(&mut self, event: Events, namespace: &str, claim: &str) {
        let uids = self.held.get(&(namespace.to_owned(), claim.to_owned())).into_iter().flatten();
        let held = uids.filter_map(|uid| self.entries.get_key_value(uid));
        let free: Vec<String> =
            held.filter(|(_, e)| !self.gated(&e.info)).map(|(uid, _)| uid.clone()).collect();
        self.free(free, event);
    }
    fn free(&mut self, uids: Vec<String>, event: Events) {
        for uid in uids {
            if let Some(e) = self.remove(&uid) {
                self.enter(e, State::Ready, Some(event.label(Events::ALL)));
            }
        }
    }
    /// A waiting Pod is to be tried again.
    pub fn activate(&mut self, uid: &str, now: Instant) {
        if self.entries.get(uid).is_some_and(|e| matches!(e.state, State::Waiting(_))) {
            self.wake(uid, now, by::FORCE);
        }
    }
    /// Whether the Pod is in the queue.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }
    fn wake(&mut self, uid: &str, now: Instant, event: &'static str) {
        if let Some(e) = self.remove(uid) {
            let state = self.after_failure(&e, now);
            self.enter(e, state, Some(event));
        }
    }
    fn flush(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry().filter(|t| *t.key() <= now) {
            for uid in entry.get().clone() {
                let Some(e) = self.entries.get_mut(&uid) else { continue };
                e.flushed = matches!(e.state, State::Waiting(_));
                let event = if e.flushed { by::TIMEOUT } else { by::BACKOFF };
                self.wake(&uid, now, event);
            }
        }
    }
    /// When [`Queue::pop`] may next have something although nothing happens: now if there is a ready Pod.
    pub fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.ready.is_empty() && self.early.is_empty() {
            self.timers.keys().next().copied()
        } else {
            Some(now)
        }
    }
    /// How many Pods there are: ready, backing off, waiting, gated (upstream's `scheduler_pending_pods`).
    pub fn counts(&self) -> [usize; 4] {
        self.sizes
    }
}

/// The namespaces and names of the claims on devices of a Pod that waits. Those of templates have none before they are
/// made.
fn claims_of(pod: &PodInfo) -> impl Iterator<Item = (String, String)> {
    let whole = pod.whole();
    let names = claims::places(whole).iter().filter_map(|place| claims::name(whole, place).ok().flatten());
    names.map(|(name, _)| (pod.namespace().to_owned(), name.to_owned()))
}

/// The place of a state among the counts.
fn place(state: State) -> usize {
    match state {
        State::Ready => 0,
        State::BackingOff(_) => 1,
        State::Waiting(_) => 2,
        State::Gated => 3,
    }
}
