//! The one writer: a thread that checks writes, numbers them, makes them durable in batches and publishes them.
//!
//! A batch is all writes that arrived while the last one was being synced; no timer is involved.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::{NewObject, Object};
use bytes::Bytes;
use component::Shutdown;
use futures::future::BoxFuture;
use imbl::OrdMap;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::backend::Backend;
use crate::engine::{Change, Engine, Record, View};
use crate::index::{Index, Resource};
use crate::quota::Quota;
use crate::store::{Cause, Event, ResourceId, Write, WriteError};
use crate::view::Live;

/// The number of writes that may wait; further callers wait until there is room.
const WAITING: usize = 4096;
/// The limit of a batch, in bytes of its objects; one write may exceed it.
const BATCH_BYTES: usize = 8 << 20;
/// The number of expired objects that one batch removes.
const EXPIRED: usize = 1024;
/// The longest time for which a batch waits for the clients that were just answered: a part of the time that the last
/// one took to become durable, and a limit.
const LINGER: (u32, Duration) = (4, Duration::from_micros(200));
/// The time after which expired objects that could not be removed are tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Tells the wall clock's time in milliseconds since 1970.
pub(crate) type Now = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The answer to a write.
pub(crate) type Answer = Result<Arc<Object>, WriteError>;

struct Pending {
    write: Write,
    done: oneshot::Sender<Answer>,
    _place: Option<OwnedSemaphorePermit>,
}

#[derive(Default)]
struct Inbox {
    writes: VecDeque<Pending>,
    /// The receivers of requests for the whole state.
    views: Vec<oneshot::Sender<View>>,
    closing: bool,
    /// Whether the clock or the condition that is waited for changed.
    nudged: bool,
}

/// The state that the writer's thread and its callers share.
#[derive(Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// Whether the thread has ended.
    ended: AtomicBool,
}

/// The callers' side of the writer.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The times at which objects expire.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    by_revision: OrdMap<u64, u64>,
    by_time: BTreeMap<(u64, u64), (ResourceId, Arc<Object>)>,
}

impl Expiries {
    /// Notes that an object expires at a time; 0 for never.
    pub(crate) fn add(&mut self, resource: ResourceId, object: &Arc<Object>, at: u64) {
        if at != 0 {
            self.by_revision.insert(object.revision, at);
            self.by_time.insert((at, object.revision), (resource, object.clone()));
        }
    }
    /// Forgets the object of this revision, which is gone or replaced.
    pub(crate) fn remove(&mut self, revision: u64) {
        if let Some(at) = self.by_revision.remove(&revision) {
            self.by_time.remove(&(at, revision));
        }
    }
    /// The times at which objects expire, by the objects' revisions.
    pub(crate) fn by_revision(&self) -> &OrdMap<u64, u64> {
        &self.by_revision
    }
    fn next(&self) -> Option<u64> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }
    fn due(&self, now: u64) -> impl Iterator<Item = &(ResourceId, Arc<Object>)> {
        self.by_time.range(..=(now, u64::MAX)).map(|(_, v)| v)
    }
}

/// The state with which the writer begins.
pub(crate) struct Start {
    pub(crate) index: Arc<Index>,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) expiries: Expiries,
    /// The last revision that was ever given out.
    pub(crate) last: u64,
    pub(crate) now: Now,
    pub(crate) progress_interval: Duration,
    pub(crate) quota: Quota,
}

impl Writer {
    /// Starts the thread. If it panics, the process is told: no write would ever be answered well again.
    pub(crate) fn start(start: Start, shutdown: &Shutdown) -> std::io::Result<Self> {
        let mut work = Work::new(start);
        let shared = work.shared.clone();
        let thread = std::thread::Builder::new().name("store-writer".into());
        let guard = shutdown.clone();
        let thread = thread.spawn(move || guard.guard(|| work.run()))?;
        Ok(Self { shared, places: Arc::new(Semaphore::new(WAITING)), thread: Mutex::new(Some(thread)) })
    }

    async fn enqueue(&self, mut write: Write) -> Answer {
        own_body(&mut write);
        let Ok(place) = self.places.clone().acquire_owned().await else { return Err(WriteError::Closed) };
        let (done, answer) = oneshot::channel();
        {
            let mut inbox = self.shared.inbox.lock();
            if inbox.closing {
                return Err(WriteError::Closed);
            }
            inbox.writes.push_back(Pending { write, done, _place: Some(place) });
        }
        self.shared.arrived.notify_one();
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    async fn ask_view(&self) -> Result<View, WriteError> {
        let (done, view) = oneshot::channel();
        {
            let mut inbox = self.shared.inbox.lock();
            if inbox.closing {
                return Err(WriteError::Closed);
            }
            inbox.views.push(done);
        }
        self.shared.arrived.notify_one();
        view.await.map_err(|_| WriteError::Closed)
    }

    fn stop(&self) {
        self.shared.inbox.lock().closing = true;
        self.places.close();
        self.shared.arrived.notify_one();
    }
}

impl Backend for Writer {
    fn commit(&self, write: Write) -> BoxFuture<'_, Answer> {
        Box::pin(self.enqueue(write))
    }

    fn view(&self) -> BoxFuture<'_, Result<View, WriteError>> {
        Box::pin(self.ask_view())
    }

    fn healthy(&self) -> Result<(), String> {
        if self.shared.ended.load(Ordering::Acquire) {
            Err("the store's writer has ended".into())
        } else {
            Ok(())
        }
    }

    fn nudge(&self) {
        self.shared.inbox.lock().nudged = true;
        self.shared.arrived.notify_one();
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let closed = tokio::task::spawn_blocking(move || {
                self.stop();
                let thread = self.thread.lock().take();
                if thread.is_some_and(|t| t.join().is_err()) {
                    tracing::error!("the store's writer ended in a panic");
                }
            });
            if let Err(error) = closed.await {
                tracing::error!(%error, "cannot wait for the store's writer");
            }
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for Work {
    /// Ends the thread's side; also after a panic no caller waits for an answer that does not come.
    fn drop(&mut self) {
        let mut inbox = self.shared.inbox.lock();
        inbox.closing = true;
        inbox.writes.clear();
        inbox.views.clear();
        self.shared.ended.store(true, Ordering::Release);
    }
}

/// The store keeps a body for long: not as a part of something larger.
fn own_body(write: &mut Write) {
    if let Write::Create { object, .. } | Write::Update { object, .. } = write {
        object.body = Bytes::from(Box::<[u8]>::from(object.body.as_ref()));
    }
}

/// The writer's work, in whatever thread it runs.
pub(crate) struct Work {
    shared: Arc<Shared>,
    start: Start,
    /// The next time at which watchers are told their progress; `None` while no watcher wants to know.
    progress_at: Option<Instant>,
    retry_at: Option<Instant>,
    /// The number of writes in the last batch, with those that came meanwhile, and the time that its commit took.
    recent: (usize, Duration),
}

/// A resource whose state a batch changes.
struct Edit<'r> {
    id: ResourceId,
    resource: &'r Resource,
    live: Live,
    writing: MutexGuard<'r, ()>,
}

/// An answer that waits until the writes on which it rests are durable.
struct Waiting {
    done: Option<oneshot::Sender<Answer>>,
    answer: Answer,
}

impl Waiting {
    fn send(self) {
        // A caller that went away does not want the answer.
        self.done.map(|done| done.send(self.answer));
    }
}

impl Work {
    /// With what a writer begins with.
    pub(crate) fn new(start: Start) -> Self {
        Self { shared: Arc::default(), start, progress_at: None, retry_at: None, recent: (0, Duration::ZERO) }
    }

    /// Ends the engine and the watchers of the index.
    pub(crate) fn close(&mut self) {
        self.start.engine.close();
        self.start.index.close();
    }

    /// The whole state.
    pub(crate) fn view(&self) -> View {
        view(&self.start.index, &self.start.expiries, self.start.last)
    }

    /// Makes one write at once.
    pub(crate) fn one(&mut self, mut write: Write) -> Answer {
        own_body(&mut write);
        let (done, mut answer) = oneshot::channel();
        self.batch(vec![Pending { write, done, _place: None }]);
        answer.try_recv().unwrap_or(Err(WriteError::Closed))
    }

    fn run(&mut self) {
        loop {
            let (writes, closing) = self.wait();
            if writes.is_empty() && closing {
                break;
            }
            let count = writes.len();
            self.batch(writes);
            self.recent.0 = count + self.shared.inbox.lock().writes.len();
            if self.start.engine.due().is_some_and(|at| at <= Instant::now()) {
                self.start.engine.tick();
                self.maintain();
            }
            self.tell_progress(Instant::now());
        }
        self.close();
    }

    /// Tells progress to the watchers that want it, if it is time: the first time an interval after the watcher came.
    fn tell_progress(&mut self, now: Instant) {
        if self.start.index.hub.progress.load(Ordering::Relaxed) == 0 {
            self.progress_at = None;
            return;
        }
        let at = *self.progress_at.get_or_insert(now + self.start.progress_interval);
        if at <= now {
            self.progress_at = Some(now + self.start.progress_interval);
            self.start.index.progress();
        }
    }

    /// Waits for something to do; returns the writes, and whether the store closes.
    fn wait(&mut self) -> (Vec<Pending>, bool) {
        let shared = self.shared.clone();
        let mut inbox = shared.inbox.lock();
        while inbox.writes.is_empty()
            && inbox.views.is_empty()
            && !inbox.closing
            && !std::mem::take(&mut inbox.nudged)
        {
            match self.next_deadline() {
                Some(deadline) if deadline <= Instant::now() => break,
                Some(deadline) => {
                    shared.arrived.wait_until(&mut inbox, deadline);
                }
                None => shared.arrived.wait(&mut inbox),
            }
        }
        for done in std::mem::take(&mut inbox.views) {
            // A caller that went away does not want the answer.
            let _ = done.send(self.view());
        }
        self.linger(&mut inbox);
        let mut bytes = 0;
        let mut count = 0;
        for pending in &inbox.writes {
            if let Write::Create { object, .. } | Write::Update { object, .. } = &pending.write {
                bytes += object.body.len();
            }
            if bytes > BATCH_BYTES && count > 0 {
                break;
            }
            count += 1;
        }
        (inbox.writes.drain(..count).collect(), inbox.closing)
    }

    /// Gives the clients that were just answered the chance to be in the next batch, if they write again at once:
    /// otherwise they would always be in one batch and those that waited meanwhile in the next, each half as large as
    /// it could be. One writer alone never waits.
    fn linger(&self, inbox: &mut MutexGuard<'_, Inbox>) {
        let (expected, took) = self.recent;
        let (part, limit) = LINGER;
        let until = Instant::now() + (took / part).min(limit);
        while !inbox.writes.is_empty()
            && inbox.writes.len() < expected
            && !inbox.closing
            && Instant::now() < until
        {
            MutexGuard::unlocked(inbox, std::thread::yield_now);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let expiry = self.start.expiries.next().map(|at| {
            let left = at.saturating_sub((self.start.now)());
            (Instant::now() + Duration::from_millis(left)).max(self.retry_at.unwrap_or_else(Instant::now))
        });
        [expiry, self.progress_at, self.start.engine.due()].into_iter().flatten().min()
    }

    fn batch(&mut self, writes: Vec<Pending>) {
        let index = self.start.index.clone();
        let resources = index.resources();
        let now = (self.start.now)();
        let mut edits: Vec<Edit<'_>> = Vec::new();
        let mut records = Vec::new();
        let mut events = Vec::new();
        let mut waiting = Vec::new();
        let mut live = self.start.quota.live();

        let expired = self.expired(now);
        let expired = expired.into_iter().map(|write| (write, None));
        for (write, done) in writes.into_iter().map(|p| (p.write, Some(p.done))).chain(expired) {
            let answer = match edit(&mut edits, &resources, write.resource()) {
                None => Err(WriteError::NotFound),
                Some(edit) => self.check(&edit.live, write).and_then(|verdict| match verdict {
                    Verdict::Nothing(object) => Ok(object),
                    Verdict::Write(step) => {
                        live = self.room(live, &step)?;
                        self.start.last += 1;
                        let (event, record) = apply(edit, step, self.start.last, now);
                        let object = event.object.clone();
                        events.push((edit.id, Arc::new(event)));
                        records.push(record);
                        Ok(object)
                    }
                }),
            };
            let answer = Waiting { done, answer };
            // A refusal because of an earlier write must not be known before that write is durable.
            if records.is_empty() { answer.send() } else { waiting.push(answer) }
        }
        if records.is_empty() {
            return;
        }
        let begun = Instant::now();
        let committed = self.start.engine.commit(&records);
        self.recent.1 = begun.elapsed();
        if let Err(e) = committed {
            tracing::error!(error = %e, writes = records.len(), "the store cannot write");
            self.retry_at = Some(Instant::now() + RETRY);
            for answer in waiting {
                Waiting { answer: Err(WriteError::Engine(e.0.clone())), ..answer }.send();
            }
            return;
        }
        self.retry_at = None;
        self.start.quota.set(live);
        for Edit { id, resource, live, writing } in edits {
            let of_it = events.iter().filter(|(of, _)| *of == id).map(|(_, event)| event);
            Index::show(resource, live, of_it, now);
            drop(writing);
        }
        index.advance(self.start.last);
        for answer in waiting {
            answer.send();
        }
        for ((id, event), record) in events.iter().zip(&records) {
            if let Some(previous) = &event.previous {
                self.start.expiries.remove(previous.revision);
            }
            if let Change::Put { object, expires } = &record.change {
                self.start.expiries.add(*id, object, *expires);
            }
        }
        index.deliver(&events, self.start.last);
        self.maintain();
    }

    fn maintain(&mut self) {
        let Start { index, engine, expiries, last, .. } = &mut self.start;
        engine.maintain(&mut || view(index, expiries, *last));
    }

    /// Deletions of the expired objects.
    fn expired(&self, now: u64) -> Vec<Write> {
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return Vec::new();
        }
        let delete = |(resource, object): &(ResourceId, Arc<Object>)| Write::Delete {
            resource: *resource,
            namespace: object.data.namespace.clone(),
            name: object.data.name.clone(),
            expect: object.revision,
        };
        self.start.expiries.due(now).take(EXPIRED).map(delete).collect()
    }

    /// The size of the live objects after a step, if there is room for it.
    fn room(&mut self, live: u64, step: &Step) -> Result<u64, WriteError> {
        match step {
            Step::Put { object, previous, .. } => {
                let old = previous.as_ref().map(|p| &p.data);
                self.start.quota.with(live, object, old).ok_or(WriteError::NoSpace)
            }
            Step::Delete { previous } => Ok(Quota::without(live, &previous.data)),
        }
    }

    /// Whether a write is allowed in a state.
    fn check(&self, live: &Live, write: Write) -> Result<Verdict, WriteError> {
        let at_revision = |namespace: &str, name: &str, expect: u64| match live.get(namespace, name) {
            None => Err(WriteError::NotFound),
            Some(o) if o.revision != expect => Err(WriteError::Changed(o.clone())),
            Some(o) => Ok(o.clone()),
        };
        match write {
            Write::Create { object, ttl, .. } => match live.get(&object.namespace, &object.name) {
                Some(existing) => Err(WriteError::Exists(existing.clone())),
                None => Ok(Verdict::Write(Step::Put { object, ttl, previous: None })),
            },
            Write::Update { object, expect, ttl, .. } => {
                let previous = at_revision(&object.namespace, &object.name, expect)?;
                let same = previous.data.body == object.body && previous.data.stamp == object.stamp;
                if same && ttl.is_none() && !self.start.expiries.by_revision.contains_key(&previous.revision)
                {
                    return Ok(Verdict::Nothing(previous));
                }
                Ok(Verdict::Write(Step::Put { object, ttl, previous: Some(previous) }))
            }
            Write::Delete { namespace, name, expect, .. } => {
                Ok(Verdict::Write(Step::Delete { previous: at_revision(&namespace, &name, expect)? }))
            }
        }
    }
}

/// The whole state, between two batches.
fn view(index: &Index, expiries: &Expiries, last: u64) -> View {
    let resources = index.resources();
    View {
        revision: last,
        resources: resources.iter().map(|r| (r.group.clone(), r.plural.clone(), r.live())).collect(),
        expiries: expiries.by_revision.clone(),
    }
}

enum Verdict {
    /// The write changes something.
    Write(Step),
    /// The write would change nothing.
    Nothing(Arc<Object>),
}

/// A write that is allowed.
enum Step {
    Put { object: NewObject, ttl: Option<Duration>, previous: Option<Arc<Object>> },
    Delete { previous: Arc<Object> },
}

/// The batch's own state of a resource.
fn edit<'e, 'r>(
    edits: &'e mut Vec<Edit<'r>>,
    resources: &'r [Arc<Resource>],
    id: ResourceId,
) -> Option<&'e mut Edit<'r>> {
    if let Some(at) = edits.iter().position(|e| e.id == id) {
        return edits.get_mut(at);
    }
    let resource = resources.get(id.0 as usize)?;
    let (writing, live) = Index::edit(resource);
    edits.push(Edit { id, resource, live, writing });
    edits.last_mut()
}

/// Changes the batch's state.
fn apply(edit: &mut Edit<'_>, step: Step, revision: u64, now: u64) -> (Event, Record) {
    let (event, change) = match step {
        Step::Put { object, ttl, previous } => {
            let object = Arc::new(Object { data: object, revision });
            edit.live.put(object.clone());
            let cause = if previous.is_some() { Cause::Modified } else { Cause::Added };
            let expires = ttl.map_or(0, |ttl| expiry(now, ttl));
            (Event::new(cause, object.clone(), previous), Change::Put { object, expires })
        }
        Step::Delete { previous } => {
            let data = previous.data.clone();
            let (namespace, name) = (data.namespace.clone(), data.name.clone());
            edit.live.remove(&namespace, &name, revision);
            let object = Arc::new(Object { data, revision });
            (Event::new(Cause::Deleted, object, Some(previous)), Change::Delete { namespace, name })
        }
    };
    let (group, plural) = (edit.resource.group.clone(), edit.resource.plural.clone());
    (event, Record { group, plural, revision, change })
}

/// The time at which an object expires that lives for `ttl`. It is rounded up, as upstream's shared leases do, by at
/// most a minute or a twentieth of the time, so that many objects go in one batch.
fn expiry(now: u64, ttl: Duration) -> u64 {
    let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2);
    let step = (ttl / 20).clamp(1, 60_000);
    (now + ttl).div_ceil(step) * step
}
