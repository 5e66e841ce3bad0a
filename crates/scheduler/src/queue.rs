//! The scheduling queue: ready Pods by priority and age, Pods that back off, and Pods that wait for the
//! cluster to change. Pure: the caller passes the time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::events::{Events, KINDS};
use crate::framework::points::{QueueSort, Queued};
use crate::pod::PodInfo;

/// After this a waiting Pod is tried again although nothing happened (upstream's `podMaxInUnschedulablePodsDuration`).
const MAX_WAIT: Duration = Duration::from_mins(5);

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
    failed_at: Instant,
    /// The events that may lift the last refusal.
    waits_for: Events,
    state: State,
}

/// How often each kind of event had happened when a Pod was taken out of the queue.
pub type Mark = [u64; KINDS];

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
    timers: BTreeMap<Instant, BTreeSet<String>>,
    /// How many Pods there are in each state.
    sizes: [usize; 4],
    /// Counts what happened in the cluster, so that a change during a Pod's own cycle is not missed.
    happened: Mark,
}

impl Queue {
    /// An empty queue.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            entries: HashMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeMap::new(),
            sizes: [0; 4],
            happened: [0; KINDS],
        }
    }
    fn order(&self, e: &Entry) -> Ready {
        Ready { info: e.info.clone(), since: e.since, sort: self.rules.sort.clone() }
    }
    fn gated(&self, info: &PodInfo) -> bool {
        (self.rules.gated)(info)
    }
    fn leave(&mut self, e: &Entry) {
        self.sizes[place(e.state)] -= 1;
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
            State::Gated => {}
        }
    }
    fn enter(&mut self, mut e: Entry, state: State) {
        e.state = state;
        self.sizes[place(state)] += 1;
        let uid = e.info.uid().to_owned();
        match state {
            State::Ready => {
                let order = self.order(&e);
                self.ready.insert(order);
            }
            State::BackingOff(at) | State::Waiting(at) => {
                self.timers.entry(at).or_default().insert(uid.clone());
            }
            State::Gated => {}
        }
        self.entries.insert(uid, e);
    }
    fn backoff(&self, attempts: u32) -> Duration {
        let Rules { initial_backoff, max_backoff, .. } = self.rules;
        initial_backoff.saturating_mul(1 << attempts.saturating_sub(1).min(30)).min(max_backoff)
    }
    /// Takes in a new or changed Pod. `spec_changed` says whether the change could make it schedulable.
    pub fn set(&mut self, info: PodInfo, spec_changed: bool, now: Instant) {
        let Some(mut e) = self.entries.remove(info.uid()) else {
            let state = if self.gated(&info) { State::Gated } else { State::Ready };
            self.enter(
                Entry {
                    info,
                    since: now,
                    attempts: 0,
                    tried: now,
                    first_tried: None,
                    refused_by: Vec::new(),
                    failed_at: now,
                    waits_for: Events::ALL,
                    state,
                },
                state,
            );
            return;
        };
        self.leave(&e);
        e.info = info;
        let state = match e.state {
            _ if self.gated(&e.info) => State::Gated,
            State::Gated => State::Ready,
            State::Waiting(_) if spec_changed => self.after_failure(&e, now),
            same => same,
        };
        self.enter(e, state);
    }
    fn after_failure(&self, e: &Entry, now: Instant) -> State {
        let until = e.failed_at + self.backoff(e.attempts);
        if until > now { State::BackingOff(until) } else { State::Ready }
    }
    /// Forgets a Pod.
    pub fn remove(&mut self, uid: &str) -> Option<Entry> {
        let e = self.entries.remove(uid)?;
        self.leave(&e);
        Some(e)
    }
    /// The next Pod to try, and the mark to give back with [`Queue::refused`].
    pub fn pop(&mut self, now: Instant) -> Option<(Entry, Mark)> {
        self.flush(now);
        let first = self.ready.pop_first()?;
        let mut e = self.entries.remove(first.info.uid())?;
        self.sizes[place(e.state)] -= 1;
        e.attempts += 1;
        e.tried = now;
        e.first_tried.get_or_insert(now);
        Some((e, self.happened))
    }
    /// Puts back a Pod that did not fit. It waits for one of these events, or only backs off if one happened since
    /// `mark`.
    pub fn refused(&mut self, e: Entry, mark: &Mark, waits_for: Events, now: Instant) {
        let missed = waits_for.kinds().any(|k| mark[k] != self.happened[k]);
        self.put_back(Entry { waits_for, failed_at: now, ..e }, missed, now);
    }
    /// Puts back a Pod that could not be judged or bound. It is tried again after its back-off.
    pub fn errored(&mut self, e: Entry, now: Instant) {
        self.put_back(Entry { waits_for: Events::ALL, failed_at: now, ..e }, true, now);
    }
    /// Puts back a Pod that is not to be tried before [`Queue::activate`] says so; this was no try.
    pub fn held(&mut self, e: Entry, now: Instant) {
        let attempts = e.attempts.saturating_sub(1);
        self.put_back(Entry { waits_for: Events::NONE, attempts, ..e }, false, now);
    }
    fn put_back(&mut self, e: Entry, again: bool, now: Instant) {
        if self.entries.contains_key(e.info.uid()) {
            return; // it came anew while it was tried
        }
        let state = if self.gated(&e.info) {
            State::Gated
        } else if again {
            self.after_failure(&e, now)
        } else {
            State::Waiting(now + MAX_WAIT)
        };
        self.enter(e, state);
    }
    /// Something happened: each Pod that waits for such a thing is to be tried again.
    pub fn happened(&mut self, events: Events, now: Instant) {
        self.happened_to(events, |_| true, now);
    }
    /// The same, but for the Pod by which it happened.
    pub fn happened_to_others(&mut self, events: Events, by: &str, now: Instant) {
        self.happened_to(events, |pod| pod.uid() != by, now);
    }
    /// Something happened that concerns some Pods alone.
    pub fn happened_to(&mut self, events: Events, concerns: impl Fn(&PodInfo) -> bool, now: Instant) {
        for kind in events.kinds() {
            self.happened[kind] += 1;
        }
        if events.is_empty() {
            return;
        }
        let waiting: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, e)| matches!(e.state, State::Waiting(_)) && e.waits_for.meets(events))
            .filter(|(_, e)| concerns(&e.info))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in waiting {
            self.wake(&uid, now);
        }
    }
    /// Looks again at Pods that are held back.
    pub fn look_again(&mut self, concerned: impl Fn(&PodInfo) -> bool) {
        let held = self.entries.iter().filter(|(_, e)| e.state == State::Gated && concerned(&e.info));
        let free: Vec<String> =
            held.filter(|(_, e)| !self.gated(&e.info)).map(|(uid, _)| uid.clone()).collect();
        for uid in free {
            if let Some(e) = self.remove(&uid) {
                self.enter(e, State::Ready);
            }
        }
    }
    /// A waiting Pod is to be tried again.
    pub fn activate(&mut self, uid: &str, now: Instant) {
        if self.entries.get(uid).is_some_and(|e| matches!(e.state, State::Waiting(_))) {
            self.wake(uid, now);
        }
    }
    /// Whether the Pod is in the queue.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }
    fn wake(&mut self, uid: &str, now: Instant) {
        if let Some(e) = self.entries.remove(uid) {
            self.leave(&e);
            let state = self.after_failure(&e, now);
            self.enter(e, state);
        }
    }
    fn flush(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry().filter(|t| *t.key() <= now) {
            for uid in entry.get().clone() {
                self.wake(&uid, now);
            }
        }
    }
    /// When [`Queue::pop`] may next have something although nothing happens: now if there is a ready Pod.
    pub fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.ready.is_empty() { self.timers.keys().next().copied() } else { Some(now) }
    }
    /// How many Pods there are: ready, backing off, waiting, gated (upstream's `scheduler_pending_pods`).
    pub fn counts(&self) -> [usize; 4] {
        self.sizes
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::Devices;

    fn pod(uid: &str, priority: i32, gates: serde_json::Value) -> PodInfo {
        let pod = json!({"metadata": {"uid": uid}, "spec": {"priority": priority, "schedulingGates": gates, "containers": []}});
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

    fn queue() -> Queue {
        let profile = crate::plugins::tests::profile();
        let sort = profile.queue_sort.clone();
        let devices = Devices::default();
        let gated = move |p: &PodInfo| {
            profile.pre_enqueue.iter().any(|at| at.plugin.pre_enqueue(p, &devices).is_err())
        };
        Queue::new(Rules {
            sort,
            gated: Box::new(gated),
            initial_backoff: INITIAL_BACKOFF,
            max_backoff: Duration::from_secs(10),
        })
    }

    fn popped(q: &mut Queue, now: Instant) -> Option<String> {
        q.pop(now).map(|(e, _)| e.info.uid().to_owned())
    }

    #[test]
    fn priority_then_age() {
        let (mut q, t) = (queue(), Instant::now());
        q.set(pod("old", 0, json!([])), false, t);
        q.set(pod("new", 0, json!([])), false, t + Duration::from_millis(1));
        q.set(pod("high", 5, json!([])), false, t + Duration::from_millis(2));
        q.set(pod("gated", 9, json!([{"name": "g"}])), false, t);
        let order: Vec<_> = std::iter::from_fn(|| popped(&mut q, t)).collect();
        assert_eq!(order, ["high", "old", "new"]);
        assert_eq!(q.counts(), [0, 0, 0, 1]);
        q.set(pod("gated", 9, json!([])), true, t);
        assert_eq!(popped(&mut q, t).as_deref(), Some("gated"));
    }

    #[test]
    fn waits_for_change_and_backs_off() {
        let (mut q, t) = (queue(), Instant::now());
        q.set(pod("p", 0, json!([])), false, t);
        let (e, mark) = q.pop(t).unwrap();
        q.refused(e, &mark, Events::NODE_ADDED | Events::POD_DELETED, t);
        assert_eq!(q.next_at(t), Some(t + MAX_WAIT));
        q.happened(Events::POD_ADDED, t);
        assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "this helps others");
        q.happened_to_others(Events::POD_DELETED, "p", t);
        assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "it is the one that went");
        q.happened(Events::POD_DELETED, t);
        assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF));
        assert_eq!(popped(&mut q, t), None);
        let (e, mark) = q.pop(t + INITIAL_BACKOFF).unwrap();
        q.happened(Events::NODE_ADDED, t + INITIAL_BACKOFF);
        q.refused(e, &mark, Events::NODE_ADDED, t + INITIAL_BACKOFF);
        assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF * 3), "a change during the cycle is not missed");
        let (e, mark) = q.pop(t + MAX_WAIT).unwrap();
        q.happened(Events::NODE_ADDED, t + MAX_WAIT);
        q.refused(e, &mark, Events::CLAIM_ADDED, t + MAX_WAIT);
        assert_eq!(q.next_at(t), Some(t + MAX_WAIT * 2), "and one that does not concern it is");
        q.happened_to(Events::CLAIM_ADDED, |p| p.uid() != "p", t + MAX_WAIT);
        assert_eq!(q.next_at(t), Some(t + MAX_WAIT * 2), "nor does another Pod's");
        assert_eq!(q.counts(), [0, 0, 1, 0]);
        assert!(q.remove("p").is_some() && q.remove("p").is_none());
        assert_eq!((q.next_at(t), q.counts()), (None, [0; 4]));
    }

    #[test]
    fn errors_back_off_and_held_pods_wait() {
        let (mut q, t) = (queue(), Instant::now());
        q.set(pod("p", 0, json!([])), false, t);
        let (e, _) = q.pop(t).unwrap();
        q.errored(e, t);
        assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF));
        let t = t + INITIAL_BACKOFF;
        let (e, _) = q.pop(t).unwrap();
        assert_eq!(e.attempts, 2);
        q.held(e, t);
        q.happened(Events::ALL, t);
        assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "nothing that happens wakes it");
        q.activate("p", t);
        let (e, _) = q.pop(t).expect("it was no try, so there is nothing to back off from");
        assert_eq!(e.attempts, 2);
        q.set(pod("p", 0, json!([])), true, t);
        q.errored(e, t);
        assert_eq!(popped(&mut q, t).as_deref(), Some("p"), "it came anew meanwhile");
    }
}
