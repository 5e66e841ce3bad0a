//! The MVCC index: the one owner of all objects, for readers and watchers. A backend publishes durable changes here, in
//! the order of their revisions.
//!
//! Readers see all changes up to a revision: one for all resources, where one writer publishes, and one for each
//! resource, where each is followed on its own; the larger one counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Text;
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::history::{Held, History, Limits};
use crate::store::{Cause, Compacted, Event, ResourceId, ResourceSpec, Scope, WatchEnd, WatchStart};
use crate::view::{Live, Snapshot};
use crate::watch::{Delivery, Hub, Routes, WatchOptions, Watcher};

/// The number of reconstructed past states that a resource keeps, for the pages of lists that are being read.
const PAST: usize = 4;

/// A resource with its objects.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) id: ResourceId,
    pub(crate) group: Text,
    pub(crate) plural: Text,
    live: ArcSwap<Live>,
    history: Mutex<History>,
    past: Mutex<Vec<Snapshot>>,
    pub(crate) routes: Mutex<Routes>,
    /// Held by the task that replaces `live`: a writer holds it from its checks until it published.
    writing: Mutex<()>,
    /// The revision of [`Resource::known`].
    known: AtomicU64,
    /// The revision up to which the queues of the resource's watchers were given every event, where the resource is
    /// followed on its own.
    pub(crate) delivered: AtomicU64,
}

impl Resource {
    fn new(id: ResourceId, group: &str, plural: &str, history: History) -> Self {
        Self {
            id,
            group: group.into(),
            plural: plural.into(),
            live: ArcSwap::default(),
            history: Mutex::new(history),
            past: Mutex::default(),
            routes: Mutex::default(),
            writing: Mutex::default(),
            known: AtomicU64::default(),
            delivered: AtomicU64::default(),
        }
    }

    /// The revision of `live`, where the resource is followed on its own; 0 before it was loaded.
    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// The resource's state now.
    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    resources: ArcSwap<Vec<Arc<Resource>>>,
    /// The places of the resources by group and plural; held while one is made known.
    places: Mutex<HashMap<(Text, Text), usize>>,
    limits: Limits,
    histories: Arc<Held>,
    /// The oldest readable revision if no watcher and no history is older: that of the loaded state.
    floor: AtomicU64,
    current: AtomicU64,
    seen: watch::Sender<u64>,
    pub(crate) hub: Arc<Hub>,
}

impl Index {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            resources: ArcSwap::default(),
            places: Mutex::default(),
            limits,
            histories: Arc::default(),
            floor: AtomicU64::new(0),
            current: AtomicU64::new(0),
            seen: watch::Sender::new(0),
            hub: Arc::new(Hub::new()),
        }
    }

    /// Makes a resource known; other indexed fields than before rebuild its index.
    pub(crate) fn register(&self, spec: &ResourceSpec) -> ResourceId {
        let mut places = self.places.lock();
        let (resource, new) = self.resource_named(&mut places, &spec.group, &spec.plural);
        if !new && resource.live.load().indexed().eq(spec.indexed.iter().copied()) {
            return resource.id;
        }
        let writing = resource.writing.lock();
        let mut live = Live::clone(&resource.live.load());
        live.index_by(&spec.indexed);
        resource.live.store(Arc::new(live));
        drop(writing);
        resource.id
    }

    /// The resource with the name of a record, which is made known if it is not; for loading.
    pub(crate) fn named(&self, group: &str, plural: &str) -> ResourceId {
        self.resource_named(&mut self.places.lock(), group, plural).0.id
    }

    fn resource_named(
        &self,
        places: &mut HashMap<(Text, Text), usize>,
        group: &str,
        plural: &str,
    ) -> (Arc<Resource>, bool) {
        let resources = self.resources.load();
        let place = *places.entry((group.into(), plural.into())).or_insert(resources.len());
        if let Some(known) = resources.get(place) {
            return (known.clone(), false);
        }
        let id = ResourceId(u32::try_from(resources.len()).unwrap_or(u32::MAX));
        let low = self.floor.load(Ordering::Acquire);
        let history = History::new(low, self.limits, Arc::clone(&self.histories));
        let resource = Arc::new(Resource::new(id, group, plural, history));
        let mut all = Vec::clone(&resources);
        all.push(resource.clone());
        self.resources.store(Arc::new(all));
        (resource, true)
    }

    pub(crate) fn resource(&self, id: ResourceId) -> Option<Arc<Resource>> {
        self.resources.load().get(id.0 as usize).cloned()
    }

    pub(crate) fn resources(&self) -> Arc<Vec<Arc<Resource>>> {
        self.resources.load_full()
    }

    /// The newest revision that readers see of every resource.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// The newest revision that readers see of a resource.
    pub(crate) fn current_of(&self, id: ResourceId) -> u64 {
        let of_it = self.resources.load().get(id.0 as usize).map_or(0, |r| r.known());
        of_it.max(self.current())
    }

    /// The newest revision that readers see of any resource.
    pub(crate) fn newest(&self) -> u64 {
        self.resources.load().iter().map(|r| r.known()).max().unwrap_or(0).max(self.current())
    }

    /// The size of the objects that only the histories hold, in bytes.
    pub(crate) fn history_bytes(&self) -> usize {
        self.resources.load().iter().map(|r| r.history.lock().bytes()).sum()
    }

    /// A receiver of the changes of [`Index::current`].
    pub(crate) fn seen(&self) -> watch::Receiver<u64> {
        self.seen.subscribe()
    }

    /// Sets the revision of the loaded state; no older one is known.
    pub(crate) fn loaded(&self, floor: u64, current: u64) {
        self.floor.store(floor, Ordering::Release);
        for resource in self.resources.load().iter() {
            resource.history.lock().compact(floor);
        }
        self.bound_histories();
        self.current.store(current, Ordering::Release);
        self.hub.delivered.store(current, Ordering::Release);
        self.seen.send_replace(current);
    }

    /// The state of a resource, to be changed and then published or dropped, with the lock for it.
    pub(crate) fn edit(resource: &Resource) -> (MutexGuard<'_, ()>, Live) {
        let writing = resource.writing.lock();
        let live = Live::clone(&resource.live.load());
        (writing, live)
    }

    /// Adds an event of the past to the history; for loading.
    pub(crate) fn remember(resource: &Resource, event: Arc<Event>, now: u64) {
        resource.history.lock().push(event, now);
    }

    /// Shows a resource's new state and the events that led to it, which must be durable.
    pub(crate) fn show<'e>(
        resource: &Resource,
        live: Live,
        events: impl Iterator<Item = &'e Arc<Event>>,
        now: u64,
    ) {
        // The history goes first: a reader who has seen a state can find the events that led to it.
        let mut history = resource.history.lock();
        let before = history.low();
        for event in events {
            history.push(event.clone(), now);
        }
        let low = history.low();
        drop(history);
        resource.live.store(Arc::new(live));
        if low > before {
            resource.past.lock().retain(|s| s.revision() >= low);
        }
    }

    /// Sets the revision up to which all changes are shown.
    pub(crate) fn advance(&self, revision: u64) {
        self.current.store(revision, Ordering::Release);
        self.seen.send_replace(revision);
    }

    /// Hands shown events to the watchers, in their order.
    pub(crate) fn deliver(&self, events: &[(ResourceId, Arc<Event>)], revision: u64) {
        let resources = self.resources.load();
        let mut wakers = Vec::new();
        for run in events.chunk_by(|a, b| a.0 == b.0) {
            let Some(resource) = run.first().and_then(|(id, _)| resources.get(id.0 as usize)) else {
                continue;
            };
            let routes = resource.routes.lock();
            for (_, event) in run {
                routes.deliver(event, self.hub.pass(event), &mut wakers);
            }
        }
        self.hub.delivered.store(revision, Ordering::Release);
        self.hub.wake(wakers);
        self.bound_histories();
    }

    /// Drops the older halves of histories, the largest ones first, while all are too large together.
    fn bound_histories(&self) {
        if self.histories.bytes() <= self.limits.all {
            return;
        }
        let resources = self.resources.load();
        // The histories shrink so far below the limit that this loop, which looks at each resource, runs seldom.
        let enough = self.limits.all - self.limits.all / 8;
        while self.histories.bytes() > enough {
            let held = |resource: &Arc<Resource>| resource.history.lock().held();
            let Some(most) = resources.iter().max_by_key(|r| held(r)) else { return };
            let mut history = most.history.lock();
            if history.held() == 0 {
                return;
            }
            history.halve();
            let low = history.low();
            drop(history);
            most.past.lock().retain(|s| s.revision() >= low);
        }
    }

    /// Sets the revision of a resource's state that is shown.
    pub(crate) fn advance_one(resource: &Resource, revision: u64) {
        resource.known.fetch_max(revision, Ordering::AcqRel);
    }

    /// Hands the events of a resource up to a revision to its watchers.
    pub(crate) fn deliver_one(&self, resource: &Resource, deliveries: &[Delivery], revision: u64) {
        let mut wakers = Vec::new();
        if !deliveries.is_empty() {
            let routes = resource.routes.lock();
            for delivery in deliveries {
                match delivery {
                    Delivery::Event(event) => routes.deliver(event, self.hub.pass(event), &mut wakers),
                    Delivery::Unreadable(namespace, name, why) => {
                        routes.fail((namespace, name), why, &mut wakers);
                    }
                }
            }
        }
        resource.delivered.fetch_max(revision, Ordering::AcqRel);
        self.hub.wake(wakers);
        self.bound_histories();
    }

    /// Replaces the state of a resource by another one without a known past. The resource's watchers end, since the
    /// events that led to the state are not known.
    pub(crate) fn replace_one(&self, resource: &Resource, mut live: Live, revision: u64) {
        let writing = resource.writing.lock();
        let indexed: Vec<_> = resource.live.load().indexed().collect();
        live.index_by(&indexed);
        live.last = live.last.max(revision);
        resource.history.lock().restart(revision);
        resource.past.lock().clear();
        resource.live.store(Arc::new(live));
        resource.known.store(revision, Ordering::Release);
        resource.delivered.store(revision, Ordering::Release);
        drop(writing);
        let mut wakers = Vec::new();
        resource.routes.lock().end(&WatchEnd::Compacted, &mut wakers);
        self.hub.wake(wakers);
    }

    /// Tells progress to the watchers that asked for it.
    pub(crate) fn progress(&self) {
        let mut wakers = Vec::new();
        for resource in self.resources.load().iter() {
            resource.routes.lock().progress(&mut wakers);
        }
        self.hub.wake(wakers);
    }

    /// Ends the watchers that do not take their events.
    pub(crate) fn end_stuck(&self) {
        let (mut wakers, now) = (Vec::new(), self.hub.now());
        for resource in self.resources.load().iter() {
            let routes = resource.routes.lock();
            let of_it = resource.delivered.load(Ordering::Acquire);
            routes.end_stuck(now, of_it.max(self.hub.delivered.load(Ordering::Acquire)), &mut wakers);
        }
        self.hub.wake(wakers);
    }

    /// Ends all watchers.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        for resource in self.resources.load().iter() {
            resource.routes.lock().close(&mut wakers);
        }
        self.hub.wake(wakers);
    }

    pub(crate) fn get(&self, id: ResourceId, namespace: &str, name: &str) -> Option<Arc<api::Object>> {
        let resources = self.resources.load();
        let live = resources.get(id.0 as usize)?.live.load();
        live.get(namespace, name).cloned()
    }

    /// The revision of the deletion of an object that was last written at `revision`, if the history has it.
    pub(crate) fn deleted_at(
        &self,
        id: ResourceId,
        (namespace, name): (&str, &str),
        revision: u64,
    ) -> Option<u64> {
        let resource = self.resource(id)?;
        let past = resource.history.lock().after(revision).ok()?;
        let found = past.iter().rev().find(|event| {
            let data = &event.object.data;
            event.cause == Cause::Deleted
                && (&*data.namespace, &*data.name) == (namespace, name)
                && event.previous.as_ref().is_some_and(|previous| previous.revision == revision)
        });
        found.map(|event| event.revision)
    }

    pub(crate) fn snapshot(&self, id: ResourceId) -> Snapshot {
        // The order matters: all changes up to `current` are in the state that is taken after it.
        let current = self.current_of(id);
        let live = self.resource(id).map(|r| r.live.load_full()).unwrap_or_default();
        let revision = current.max(live.last);
        Snapshot::new(live, revision)
    }

    pub(crate) fn snapshot_at(&self, id: ResourceId, revision: u64) -> Option<Snapshot> {
        let now = self.snapshot(id);
        if revision > now.revision() {
            return None;
        }
        let resource = self.resource(id)?;
        let past = resource.history.lock().after(revision).ok()?;
        if let Some(known) = resource.past.lock().iter().find(|s| s.revision() == revision) {
            return Some(known.clone());
        }
        let mut live = Live::clone(now.live());
        let last = live.last;
        if last <= revision {
            return Some(Snapshot::new(now.live().clone(), revision));
        }
        for event in past.iter().rev().filter(|e| e.revision <= last) {
            live.undo(event);
        }
        live.last = revision;
        let snapshot = Snapshot::new(Arc::new(live), revision);
        let mut kept = resource.past.lock();
        if kept.len() >= PAST {
            kept.remove(0);
        }
        kept.push(snapshot.clone());
        Some(snapshot)
    }

    pub(crate) fn compact(&self, revision: u64) {
        let current = self.current();
        self.floor.fetch_max(revision.min(current), Ordering::AcqRel);
        for resource in self.resources.load().iter() {
            let revision = revision.min(resource.known().max(current));
            resource.history.lock().compact(revision);
            resource.past.lock().retain(|s| s.revision() >= revision);
        }
    }

    pub(crate) fn watch(
        &self,
        id: ResourceId,
        scope: Scope,
        start: WatchStart,
        options: WatchOptions,
    ) -> Result<Watcher, Compacted> {
        // An id that `register` did not return has no objects and never any events.
        let nothing = || Arc::new(Resource::new(id, "", "", History::new(0, self.limits, Arc::default())));
        let resource = self.resource(id).unwrap_or_else(nothing);
        let begin = resource.clone();
        Watcher::join(resource, self.hub.clone(), scope, options, |scope| match start {
            WatchStart::Now => {
                let snapshot = self.snapshot(id);
                let revision = snapshot.revision();
                Ok((Some(snapshot), Vec::new(), revision))
            }
            WatchStart::After(revision) => {
                let past = begin.history.lock().after(revision)?;
                let after = past.iter().next_back().map_or(revision, |e| e.revision);
                Ok((None, past.iter().filter(|e| scope.concerns(e)).cloned().collect(), after))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::Cause;

    /// A deletion's event of so many bytes.
    fn gone(name: &str, revision: u64, size: usize) -> Arc<Event> {
        let data = api::NewObject {
            name: name.into(),
            namespace: "".into(),
            uid: "".into(),
            labels: Box::default(),
            owners: Box::default(),
            fields: Box::default(),
            deleting: false,
            finalizers: false,
            stamp: 0,
            body: Bytes::from(vec![0; size]),
            rv_at: 0,
        };
        Arc::new(Event::new(Cause::Deleted, Arc::new(api::Object { data, revision }), None))
    }

    #[test]
    fn the_histories_of_all_resources_have_one_budget() {
        const ALL: usize = 1 << 20;
        let index = Index::new(Limits { all: ALL, ..Limits::default() });
        let resources: Vec<_> = (0..1000)
            .map(|i| {
                let spec = ResourceSpec {
                    group: "".into(),
                    plural: format!("r{i}").as_str().into(),
                    indexed: vec![],
                };
                index.resource(index.register(&spec)).unwrap()
            })
            .collect();
        let mut revision = 0;
        let mut happen = |resource: &Arc<Resource>, size: usize| {
            revision += 1;
            let event = gone("a", revision, size);
            Index::show(resource, Live::default(), [&event].into_iter(), 0);
            index.advance(revision);
            index.deliver(&[(resource.id, event)], revision);
            revision
        };
        let quiet = happen(&resources[0], 100);
        for _ in 0..3 {
            for resource in &resources[1..] {
                happen(resource, 10_000);
                let held: usize = resources.iter().map(|r| r.history.lock().held()).sum();
                assert!(held <= ALL && held == index.histories.bytes(), "{held}");
            }
        }
        let newest = resources[999].history.lock().low();
        assert!(newest > 0, "its older events made room");
        assert!(resources[0].history.lock().after(quiet - 1).is_ok(), "a small history is kept");
        let all_gone = happen(&resources[5], ALL * 2);
        assert!(index.histories.bytes() <= ALL, "also if one event alone is too much");
        assert!(resources[5].history.lock().after(all_gone - 1).is_err());
        index.compact(all_gone);
        assert_eq!(index.histories.bytes(), 0);
    }
}
