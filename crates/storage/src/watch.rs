//! Watchers and the routes by which events find them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use api::Text;
use futures::Stream;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::index::Resource;
use crate::store::{Batch, Cause, Event, Scope, Unreadable, WatchEnd, field};
use crate::view::Snapshot;

/// The number of objects of the initial state in one batch.
const INITIAL: usize = 256;

/// The interval at which stuck watchers are looked for.
pub(crate) const TICK: Duration = Duration::from_secs(15);

/// The number of ticks for which a watcher may leave its events untaken.
const PATIENCE: u64 = 4;

/// The bytes of events that may pass a watcher meanwhile. All watchers together keep in memory events of that time, so
/// that this limits their memory, too.
const PASSING: u64 = 128 << 20;

/// The bytes of events after which stuck watchers are looked for, besides the ticks.
const OFTEN: u64 = PASSING / 4;

/// The number of watchers that are woken at once without help.
const FEW: usize = 8;

/// The wishes of a watcher besides its events.
#[derive(Debug, Clone, Copy)]
pub struct WatchOptions {
    /// The number of events that may wait for the watcher before it is ended as too slow.
    pub buffer: usize,
    /// The bytes of objects that may wait for the watcher, or that it may hold without coming for more.
    pub bytes: usize,
    /// Whether the watcher wants [`Batch::Progress`] from time to time.
    pub progress: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { buffer: 8192, bytes: 16 << 20, progress: false }
    }
}

/// The queue of the events of one watcher.
#[derive(Debug)]
pub(crate) struct Queue {
    id: u64,
    scope: Scope,
    options: WatchOptions,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Arc<Event>>,
    /// Bytes of the events' objects.
    bytes: usize,
    /// Bytes of the objects that the watcher took last, and may still hold.
    taken: usize,
    /// Whether the watcher still takes the initial state, which is held for it.
    initial: bool,
    /// The last time that the watcher came, or the time since which events wait for it.
    came: Moment,
    /// The revision up to which the watcher had all events; later ones were dropped.
    lost_after: Option<u64>,
    /// Events up to this revision are known to the watcher already.
    after: u64,
    progress_due: bool,
    end: Option<WatchEnd>,
    waker: Option<Waker>,
    behind: Option<Callback>,
}

/// A point in the course of events.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Moment {
    /// The bytes of the events that passed before the moment.
    passed: u64,
    tick: u64,
}

/// The bytes that an event keeps in memory.
fn weight(event: &Event) -> usize {
    event.object.data.body.len() + 256
}

/// The function that runs when a watcher is ended as too slow.
struct Callback(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}

impl Queue {
    /// Adds an event. The waker of a waiting watcher is handed out, so that it is woken once a batch and without a lock
    /// held.
    fn push(&self, event: &Arc<Event>, now: Moment, wakers: &mut Vec<Waker>) {
        let mut waiting = self.waiting.lock();
        if waiting.end.is_some() || event.revision <= waiting.after {
            return;
        }
        if !waiting.holds() {
            waiting.came = now;
        }
        let (weight, held) = (weight(event), waiting.bytes + waiting.taken);
        let full = waiting.events.len() >= self.options.buffer
            // A single event may have any size.
            || held > 0 && held + weight > self.options.bytes;
        if full || waiting.is_stuck(now) {
            waiting.fall_behind(event.revision - 1);
        } else {
            waiting.events.push(event.clone());
            waiting.bytes += weight;
        }
        wakers.extend(waiting.waker.take());
    }

    /// Ends the watcher if it does not take its events. `delivered` is the revision up to which its queue has them.
    fn end_if_stuck(&self, now: Moment, delivered: u64, wakers: &mut Vec<Waker>) {
        let mut waiting = self.waiting.lock();
        if waiting.end.is_none() && waiting.is_stuck(now) {
            waiting.fall_behind(delivered);
            wakers.extend(waiting.waker.take());
        }
    }

    fn end(&self, end: WatchEnd, wakers: &mut Vec<Waker>) {
        let mut waiting = self.waiting.lock();
        waiting.end.get_or_insert(end);
        wakers.extend(waiting.waker.take());
    }
}

/// A delivery to watchers.
#[derive(Debug)]
pub(crate) enum Delivery {
    Event(Arc<Event>),
    /// The value of the object of a namespace and name cannot be read.
    Unreadable(Text, Text, Arc<Unreadable>),
}

/// The watchers of a resource, each in the one list that fits it best.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    all: Vec<Arc<Queue>>,
    by_namespace: HashMap<Text, Vec<Arc<Queue>>>,
    by_name: HashMap<(Text, Text), Vec<Arc<Queue>>>,
    by_field: HashMap<usize, HashMap<Text, Vec<Arc<Queue>>>>,
    closed: bool,
}

impl Routes {
    fn list(&mut self, scope: &Scope) -> &mut Vec<Arc<Queue>> {
        if !scope.name.is_empty() {
            self.by_name.entry((scope.namespace.clone(), scope.name.clone())).or_default()
        } else if let Some((at, value)) = &scope.field {
            self.by_field.entry(*at).or_default().entry(value.clone()).or_default()
        } else if scope.namespace.is_empty() {
            &mut self.all
        } else {
            self.by_namespace.entry(scope.namespace.clone()).or_default()
        }
    }

    fn add(&mut self, queue: Arc<Queue>) {
        if self.closed {
            queue.waiting.lock().end = Some(WatchEnd::Closed);
        }
        self.list(&queue.scope).push(queue);
    }

    fn remove(&mut self, queue: &Queue) {
        let list = self.list(&queue.scope);
        // Ids ascend in every list.
        if let Ok(at) = list.binary_search_by_key(&queue.id, |q| q.id) {
            list.remove(at);
        }
        if !list.is_empty() {
            return;
        }
        let scope = &queue.scope;
        if !scope.name.is_empty() {
            self.by_name.remove(&(scope.namespace.clone(), scope.name.clone()));
        } else if let Some((at, value)) = &scope.field {
            if let Some(values) = self.by_field.get_mut(at) {
                values.remove(value);
            }
            self.by_field.retain(|_, values| !values.is_empty());
        } else if !scope.namespace.is_empty() {
            self.by_namespace.remove(&scope.namespace);
        }
    }

    /// Ends the watchers that do not take their events.
    pub(crate) fn end_stuck(&self, now: Moment, delivered: u64, wakers: &mut Vec<Waker>) {
        for queue in self.each() {
            queue.end_if_stuck(now, delivered, wakers);
        }
    }

    /// Hands an event to the watchers that want it.
    pub(crate) fn deliver(&self, event: &Arc<Event>, now: Moment, wakers: &mut Vec<Waker>) {
        let data = &event.object.data;
        for queue in &self.all {
            queue.push(event, now, wakers);
        }
        for queue in self.by_namespace.get(&data.namespace).into_iter().flatten() {
            queue.push(event, now, wakers);
        }
        if !self.by_name.is_empty() {
            let mut key = (data.namespace.clone(), data.name.clone());
            for _ in 0..2 {
                for queue in self.by_name.get(&key).into_iter().flatten() {
                    if queue.scope.concerns(event) {
                        queue.push(event, now, wakers);
                    }
                }
                if key.0.is_empty() {
                    break;
                }
                key.0 = Text::const_new("");
            }
        }
        for (at, values) in &self.by_field {
            let is = field(&event.object, *at);
            let before = event.previous.as_ref().map(|p| field(p, *at)).filter(|b| *b != is);
            for value in [Some(is), before].into_iter().flatten() {
                for queue in values.get(value).into_iter().flatten() {
                    if queue.scope.concerns(event) {
                        queue.push(event, now, wakers);
                    }
                }
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = &Arc<Queue>> {
        let fields = self.by_field.values().flat_map(|v| v.values());
        let lists = self.by_namespace.values().chain(self.by_name.values()).chain(fields);
        lists.flatten().chain(&self.all)
    }

    /// Tells progress to the watchers that asked for it.
    pub(crate) fn progress(&self, wakers: &mut Vec<Waker>) {
        for queue in self.each().filter(|q| q.options.progress) {
            let mut waiting = queue.waiting.lock();
            waiting.progress_due = true;
            wakers.extend(waiting.waker.take());
        }
    }

    /// Ends all present watchers.
    pub(crate) fn end(&self, end: &WatchEnd, wakers: &mut Vec<Waker>) {
        for queue in self.each() {
            queue.end(end.clone(), wakers);
        }
    }

    /// Ends the watchers to which an object's value would go, which cannot be read.
    pub(crate) fn fail(
        &self,
        (namespace, name): (&str, &str),
        why: &Arc<Unreadable>,
        wakers: &mut Vec<Waker>,
    ) {
        for queue in self.each().filter(|q| q.scope.may_have(namespace, name)) {
            if queue.waiting.lock().after < why.revision {
                queue.end(WatchEnd::Unreadable(why.clone()), wakers);
            }
        }
    }

    /// Whether a watcher wants to hear of progress.
    pub(crate) fn wants_progress(&self) -> bool {
        self.each().any(|q| q.options.progress)
    }

    /// Ends all watchers, also future ones.
    pub(crate) fn close(&mut self, wakers: &mut Vec<Waker>) {
        self.closed = true;
        for queue in self.each() {
            queue.end(WatchEnd::Closed, wakers);
        }
    }
}

/// The state that the watchers of a store share.
#[derive(Debug)]
pub(crate) struct Hub {
    /// The revision up to which every watcher's queue was given every event.
    pub(crate) delivered: AtomicU64,
    /// The number of watchers that want to hear of progress.
    pub(crate) progress: AtomicUsize,
    ids: AtomicU64,
    /// The bytes of all events that passed.
    passed: AtomicU64,
    ticks: AtomicU64,
    /// Notified when many bytes passed since stuck watchers were last looked for.
    pub(crate) much_passed: Notify,
    /// The runtime in which watchers are woken, if there is one.
    runtime: Option<Handle>,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self {
            delivered: AtomicU64::default(),
            progress: AtomicUsize::default(),
            ids: AtomicU64::default(),
            passed: AtomicU64::default(),
            ticks: AtomicU64::default(),
            much_passed: Notify::new(),
            runtime: Handle::try_current().ok(),
        }
    }

    /// Counts an event on its way to the watchers.
    pub(crate) fn pass(&self, event: &Event) -> Moment {
        let weight = weight(event) as u64;
        let before = self.passed.fetch_add(weight, Ordering::Relaxed);
        if before / OFTEN != (before + weight) / OFTEN {
            self.much_passed.notify_one();
        }
        self.now()
    }

    /// Counts a tick.
    pub(crate) fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Moment {
        let (passed, tick) = (self.passed.load(Ordering::Relaxed), self.ticks.load(Ordering::Relaxed));
        Moment { passed, tick }
    }

    /// Wakes watchers. Many are woken from inside the runtime: from outside, each costs the runtime's lock.
    pub(crate) fn wake(&self, wakers: Vec<Waker>) {
        let many = wakers.len() > FEW;
        let all = move || wakers.into_iter().for_each(Waker::wake);
        match &self.runtime {
            Some(runtime) if many => {
                runtime.spawn(async move { all() });
            }
            _ => all(),
        }
    }
}

/// A stream of `Result<Batch, WatchEnd>`; an error is its last item.
pub struct Watcher {
    resource: Arc<Resource>,
    hub: Arc<Hub>,
    queue: Arc<Queue>,
    initial: Option<Initial>,
    /// Whether the watcher is the first of those that want to hear of progress.
    pub(crate) first: bool,
    done: bool,
}

struct Initial {
    snapshot: Snapshot,
    last: Option<(Text, Text)>,
}

impl Watcher {
    /// Joins the watchers of a resource. `start` gives the first items, and runs when no event can pass unseen any
    /// more: a snapshot, or the events since a revision; then the revision up to which they go.
    pub(crate) fn join<E>(
        resource: Arc<Resource>,
        hub: Arc<Hub>,
        scope: Scope,
        options: WatchOptions,
        start: impl FnOnce(&Scope) -> Result<(Option<Snapshot>, Vec<Arc<Event>>, u64), E>,
    ) -> Result<Self, E> {
        let first = options.progress && hub.progress.fetch_add(1, Ordering::Relaxed) == 0;
        let queue;
        {
            // The lists are in the order of ids because the lock is held while one is taken.
            let mut routes = resource.routes.lock();
            let id = hub.ids.fetch_add(1, Ordering::Relaxed);
            queue = Arc::new(Queue { id, scope, options, waiting: Mutex::default() });
            routes.add(queue.clone());
        }
        let mut watcher = Self { resource, hub, queue, initial: None, first, done: false };
        let (snapshot, events, after) = start(&watcher.queue.scope)?;
        watcher.initial = snapshot.map(|snapshot| Initial { snapshot, last: None });
        let mut waiting = watcher.queue.waiting.lock();
        let meanwhile = std::mem::replace(&mut waiting.events, events);
        waiting.events.extend(meanwhile.into_iter().filter(|e| e.revision > after));
        waiting.bytes = waiting.events.iter().map(|e| weight(e)).sum();
        waiting.initial = watcher.initial.is_some();
        waiting.came = watcher.hub.now();
        waiting.after = after;
        drop(waiting);
        Ok(watcher)
    }

    /// Sets a function that runs once the watcher is ended as too slow: a caller that does not take events does not
    /// poll the watcher either, and so would not hear of it. The function runs where events are handed out and must not
    /// wait.
    pub fn on_behind(&self, tell: impl FnOnce() + Send + 'static) {
        let mut waiting = self.queue.waiting.lock();
        if waiting.end == Some(WatchEnd::Behind) {
            tell();
        } else {
            waiting.behind = Some(Callback(Box::new(tell)));
        }
    }

    /// The revision up to which every event of the scope was taken from the watcher.
    pub fn progress(&self) -> u64 {
        let delivered = self.delivered();
        let waiting = self.queue.waiting.lock();
        self.initial.as_ref().map_or_else(|| waiting.progress(delivered), |_| 0)
    }

    fn delivered(&self) -> u64 {
        let of_it = self.resource.delivered.load(Ordering::Acquire);
        of_it.max(self.hub.delivered.load(Ordering::Acquire))
    }

    fn poll_initial(&mut self) -> Option<Batch> {
        let initial = self.initial.as_mut()?;
        {
            let mut waiting = self.queue.waiting.lock();
            waiting.came = self.hub.now();
            // A watcher that fell behind begins anew anyway.
            if waiting.lost_after.is_some() {
                self.initial = None;
                return None;
            }
        }
        let after = initial.last.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let events: Vec<_> = initial
            .snapshot
            .scan(&self.queue.scope, after)
            .take(INITIAL)
            .map(|o| Arc::new(Event::new(Cause::Added, o.clone(), None)))
            .collect();
        let Some(last) = events.last() else {
            let revision = initial.snapshot.revision();
            self.initial = None;
            self.queue.waiting.lock().initial = false;
            return Some(Batch::Synced(revision));
        };
        initial.last = Some((last.object.data.namespace.clone(), last.object.data.name.clone()));
        Some(Batch::Events(events))
    }
}

impl Waiting {
    /// Whether memory is kept for the watcher.
    fn holds(&self) -> bool {
        self.initial || self.taken > 0 || !self.events.is_empty()
    }

    fn is_stuck(&self, now: Moment) -> bool {
        let since = self.came;
        let long = now.tick.saturating_sub(since.tick) > PATIENCE;
        self.holds() && (long || now.passed.saturating_sub(since.passed) > PASSING)
    }

    /// Ends the watcher, and drops its events: it goes on from those that it has taken. Everything up to `delivered`
    /// was there for it.
    fn fall_behind(&mut self, delivered: u64) {
        self.lost_after = Some(self.events.first().map_or(delivered, |e| e.revision - 1));
        self.end = Some(WatchEnd::Behind);
        self.events = Vec::new();
        self.bytes = 0;
        if let Some(Callback(tell)) = self.behind.take() {
            tell();
        }
    }

    fn progress(&self, delivered: u64) -> u64 {
        if let Some(lost_after) = self.lost_after {
            return lost_after;
        }
        self.events.first().map_or_else(|| self.after.max(delivered), |e| e.revision - 1)
    }
}

impl Stream for Watcher {
    type Item = Result<Batch, WatchEnd>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        if let Some(batch) = this.poll_initial() {
            return Poll::Ready(Some(Ok(batch)));
        }
        // The revision is read before the queue: the queue then has all events up to it.
        let delivered = this.delivered();
        let mut waiting = this.queue.waiting.lock();
        waiting.taken = 0;
        if !waiting.events.is_empty() {
            waiting.came = this.hub.now();
            waiting.taken = std::mem::take(&mut waiting.bytes);
            return Poll::Ready(Some(Ok(Batch::Events(std::mem::take(&mut waiting.events)))));
        }
        if let Some(end) = waiting.end.clone() {
            this.done = true;
            return Poll::Ready(Some(Err(end)));
        }
        if std::mem::take(&mut waiting.progress_due) {
            return Poll::Ready(Some(Ok(Batch::Progress(waiting.progress(delivered)))));
        }
        if !waiting.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            waiting.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.queue.options.progress {
            self.hub.progress.fetch_sub(1, Ordering::Relaxed);
        }
        self.resource.routes.lock().remove(&self.queue);
    }
}
