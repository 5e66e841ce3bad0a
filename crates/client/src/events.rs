//! The event recorder: core/v1 Events, correlated so that repetition costs the server little.
//!
//! The figures and texts are client-go's (`tools/record`): an Event like an earlier one only bumps
//! its count; ten that differ in nothing but their message within ten minutes become one; a source
//! has 25 Events about an object at once and then one in five minutes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use component::{Clock, Shutdown};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{Client, KubeObject, Patch};
use crate::rate::{Bucket, Rate};

const QUEUED: usize = 1000;
const REMEMBERED: usize = 4096;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_mins(10);
const SPAM_BURST: f64 = 25.0;
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;
const TRIES: u32 = 12;
const RETRY: Duration = Duration::from_secs(10);

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// All is as it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl EventType {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The reference by which an Event names an object.
pub fn reference<T: KubeObject>(object: &T) -> ObjectReference {
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(T::API_VERSION.to_owned()),
        kind: Some(T::KIND.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// Records Events. Clones write through the same task; it never waits, and drops what a full queue
/// of 1000 cannot take.
#[derive(Clone)]
pub struct Recorder {
    source: Arc<EventSource>,
    clock: Clock,
    queue: mpsc::Sender<Event>,
    /// The moment in the name of the last Event, in nanoseconds since 1970.
    last: Arc<AtomicI64>,
}

impl Recorder {
    /// Starts a recorder that writes through `client` until `shutdown`; `host` is "" for none.
    pub fn start(client: Client, component: &str, host: &str, clock: Clock, shutdown: &Shutdown) -> Self {
        Self::start_at(None, client, component, host, clock, shutdown)
    }

    /// Starts a recorder that writes no faster than at a rate.
    pub fn start_at(
        rate: Option<Rate>,
        client: Client,
        component: &str,
        host: &str,
        clock: Clock,
        shutdown: &Shutdown,
    ) -> Self {
        let (queue, events) = mpsc::channel(QUEUED);
        let source = EventSource {
            component: Some(component.to_owned()),
            host: Some(host.to_owned()).filter(|h| !h.is_empty()),
        };
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            let _ = stop.run(write(client, clock, events, rate.map(Bucket::new))).await;
        });
        Self { source: Arc::new(source), clock, queue, last: Arc::default() }
    }

    /// A recorder whose Events come out of the receiver instead of being written.
    pub fn channel(component: &str, clock: Clock) -> (Self, mpsc::Receiver<Event>) {
        let (queue, events) = mpsc::channel(QUEUED);
        let source = EventSource { component: Some(component.to_owned()), host: None };
        (Self { source: Arc::new(source), clock, queue, last: Arc::default() }, events)
    }

    /// Records an Event about an object.
    pub fn event<T: KubeObject>(&self, about: &T, kind: EventType, reason: &str, message: impl Into<String>) {
        self.event_about(reference(about), kind, reason, message);
    }

    /// Records an Event about what a reference names.
    pub fn event_about(
        &self,
        about: ObjectReference,
        kind: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.annotated(about, BTreeMap::new(), kind, reason, message);
    }

    /// The name of an Event: that of its object, and the moment. Two Events of one moment have moments of their own, so that
    /// none has another's name.
    fn name(&self, object: &str, now: Timestamp) -> String {
        let now = i64::try_from(now.as_nanosecond()).unwrap_or_default();
        let next = |last: i64| Some(now.max(last.saturating_add(1)));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        format!("{object}.{:x}", now.max(last.saturating_add(1)))
    }

    /// Records an Event with annotations about what a reference names.
    pub fn annotated(
        &self,
        about: ObjectReference,
        annotations: BTreeMap<String, String>,
        kind: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        if self.queue.try_send(self.made(about, annotations, kind, reason, message.into())).is_err() {
            tracing::debug!(reason, "the queue of events is full, one is dropped");
        }
    }

    /// Writes an Event at once, without looking at those before.
    ///
    /// # Errors
    /// The server's.
    pub async fn write(
        &self,
        client: &Client,
        about: ObjectReference,
        kind: EventType,
        reason: &str,
        message: impl Into<String>,
    ) -> Result<(), api::Status> {
        let event = self.made(about, BTreeMap::new(), kind, reason, message.into());
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        client.api::<Event>(&namespace).create(&event).await.map(drop)
    }

    fn made(
        &self,
        about: ObjectReference,
        annotations: BTreeMap<String, String>,
        kind: EventType,
        reason: &str,
        message: String,
    ) -> Event {
        let now = self.clock.now();
        let namespace = about.namespace.clone().filter(|n| !n.is_empty());
        Event {
            metadata: ObjectMeta {
                name: Some(self.name(about.name.as_deref().unwrap_or_default(), now)),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                annotations: Some(annotations).filter(|all| !all.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(kind.as_str().to_owned()),
            source: Some((*self.source).clone()),
            reporting_component: self.source.component.clone(),
            reporting_instance: self.source.host.clone(),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        }
    }
}

async fn write(client: Client, clock: Clock, mut events: mpsc::Receiver<Event>, mut bucket: Option<Bucket>) {
    let mut correlator = Correlator::default();
    while let Some(event) = events.recv().await {
        let Some(known) = correlator.correlate(event, Now { day: clock.now(), monotonic: clock.monotonic() })
        else {
            continue;
        };
        for attempt in 0..TRIES {
            if let Some(bucket) = &mut bucket {
                bucket.turn().await;
            }
            if write_one(&client, &known, &mut correlator).await {
                break;
            }
            // The first wait is random, so that not everybody returns at once.
            let wait = if attempt == 0 { RETRY.mul_f64(fastrand::f64()) } else { RETRY };
            tokio::time::sleep(wait).await;
        }
    }
}

/// Whether the Event is written or refused for good; otherwise it is worth another try.
async fn write_one(client: &Client, known: &Correlated, correlator: &mut Correlator) -> bool {
    let event = &known.event;
    let api = client.api::<Event>(event.metadata.namespace.as_deref().unwrap_or_default());
    let mut result = None;
    if event.count > Some(1) {
        let patch = serde_json::json!({
            "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message,
        });
        let name = event.metadata.name.as_deref().unwrap_or_default();
        match api.patch(name, &Patch::Strategic(patch)).await {
            // It expired, or was deleted.
            Err(e) if e.is_not_found() => {}
            other => result = Some(other),
        }
    }
    let result = match result {
        Some(result) => result,
        None => api.create(event).await,
    };
    match result {
        Ok(written) => {
            correlator.written(known.key.clone(), &written);
            true
        }
        Err(e) if e.code >= 500 || e.code == 429 => false,
        Err(error) => {
            tracing::debug!(%error, "the server refused an event");
            true
        }
    }
}

/// An Event to write: new, or with the name and count of the one it repeats.
#[derive(Debug)]
struct Correlated {
    event: Event,
    key: String,
}

/// When an Event comes, by both clocks.
#[derive(Clone, Copy)]
struct Now {
    /// The time of day, which is written.
    day: Timestamp,
    /// By which it is told how long something was ago.
    monotonic: Instant,
}

struct Similar {
    messages: HashSet<String>,
    last: Instant,
}

struct Seen {
    count: i32,
    first: Option<Time>,
    name: Option<String>,
}

struct Budget {
    tokens: f64,
    at: Instant,
}

#[derive(Default)]
struct Correlator {
    similar: Lru<String, Similar>,
    seen: Lru<String, Seen>,
    budgets: Lru<String, Budget>,
}

impl Correlator {
    /// The Event to be written in the place of one; `None` if its source says too much.
    fn correlate(&mut self, event: Event, now: Now) -> Option<Correlated> {
        let (mut event, key) = self.aggregate(event, now);
        if let Some(seen) = self.seen.get(&key).filter(|s| s.count > 0) {
            event.metadata.name.clone_from(&seen.name);
            event.first_timestamp.clone_from(&seen.first);
            event.count = Some(seen.count.saturating_add(1));
        }
        self.written(key.clone(), &event);
        self.within_budget(&event, now.monotonic).then_some(Correlated { event, key })
    }

    fn aggregate(&mut self, event: Event, now: Now) -> (Event, String) {
        let own = joined(&event, &[&event.involved_object.field_path, &event.reason, &event.message]);
        let group = joined(&event, &[&event.reason, &event.reporting_component, &event.reporting_instance]);
        let fresh = || Similar { messages: HashSet::new(), last: now.monotonic };
        let mut similar = self.similar.take(&group).unwrap_or_else(fresh);
        if now.monotonic.saturating_duration_since(similar.last) > SIMILAR_WITHIN {
            similar = fresh();
        }
        similar.last = now.monotonic;
        similar.messages.insert(event.message.clone().unwrap_or_default());
        let many = similar.messages.len() >= SIMILAR;
        if many && let Some(any) = similar.messages.iter().next().cloned() {
            similar.messages.remove(&any);
        }
        self.similar.put(group.clone(), similar);
        if !many {
            return (event, own);
        }
        let message = event.message.as_deref().unwrap_or_default();
        let combined = Event {
            metadata: ObjectMeta {
                name: event.metadata.name,
                namespace: event.metadata.namespace,
                ..ObjectMeta::default()
            },
            message: Some(format!("(combined from similar events): {message}")),
            first_timestamp: Some(Time(now.day)),
            last_timestamp: Some(Time(now.day)),
            count: Some(1),
            involved_object: event.involved_object,
            type_: event.type_,
            reason: event.reason,
            source: event.source,
            ..Event::default()
        };
        (combined, group)
    }

    fn within_budget(&mut self, event: &Event, now: Instant) -> bool {
        let key = joined(event, &[]);
        let mut budget = self.budgets.take(&key).unwrap_or(Budget { tokens: SPAM_BURST, at: now });
        let passed = now.saturating_duration_since(budget.at).as_secs_f64();
        budget.tokens = (budget.tokens + passed * SPAM_PER_SECOND).min(SPAM_BURST);
        budget.at = now;
        let within = budget.tokens >= 1.0;
        if within {
            budget.tokens -= 1.0;
        }
        self.budgets.put(key, budget);
        within
    }

    fn written(&mut self, key: String, event: &Event) {
        self.seen.put(
            key,
            Seen {
                count: event.count.unwrap_or(1),
                first: event.first_timestamp.clone(),
                name: event.metadata.name.clone(),
            },
        );
    }
}

/// Source, object and type of an Event, and more of its parts, as one key.
fn joined(event: &Event, more: &[&Option<String>]) -> String {
    let about = &event.involved_object;
    let (component, host) =
        event.source.as_ref().map_or((&None, &None), |source| (&source.component, &source.host));
    let mut key = String::new();
    let parts = [
        component,
        host,
        &about.kind,
        &about.namespace,
        &about.name,
        &about.uid,
        &about.api_version,
        &event.type_,
    ];
    for part in parts.into_iter().chain(more.iter().copied()) {
        key.push_str(part.as_deref().unwrap_or_default());
        key.push('\0');
    }
    key
}

/// Remembers the 4096 values used last.
struct Lru<K, V> {
    values: HashMap<K, (u64, V)>,
    used: BTreeMap<u64, K>,
    sequence: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), used: BTreeMap::new(), sequence: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, v)| v)
    }
    fn take(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.values.remove(key)?;
        self.used.remove(&used);
        Some(value)
    }
    fn put(&mut self, key: K, value: V) {
        self.take(&key);
        self.sequence += 1;
        self.used.insert(self.sequence, key.clone());
        self.values.insert(key, (self.sequence, value));
        if self.values.len() > REMEMBERED
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(object: &str, reason: &str, message: &str) -> Event {
        let (recorder, mut events) = Recorder::channel("test", Clock::from(Timestamp::UNIX_EPOCH));
        let about = ObjectReference {
            kind: Some("Pod".into()),
            namespace: Some("ns".into()),
            name: Some(object.into()),
            ..ObjectReference::default()
        };
        recorder.event_about(about, EventType::Normal, reason, message);
        events.try_recv().unwrap()
    }

    #[tokio::test]
    async fn events_of_one_moment_have_names_of_their_own() {
        let (recorder, mut events) = Recorder::channel("test", Clock::from(Timestamp::UNIX_EPOCH));
        let about = ObjectReference { name: Some("a".into()), ..ObjectReference::default() };
        for reason in ["Pulled", "Created", "Started"] {
            recorder.clone().event_about(about.clone(), EventType::Normal, reason, "x");
        }
        let names: HashSet<_> =
            std::iter::from_fn(|| events.try_recv().ok()).filter_map(|e| e.metadata.name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    /// So many seconds after the beginning; the time of day runs backwards meanwhile.
    fn at(seconds: u64) -> Now {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        let day = Timestamp::from_second(1_000_000 - seconds.cast_signed()).unwrap();
        Now { day, monotonic: *START + Duration::from_secs(seconds) }
    }

    #[tokio::test]
    async fn the_same_event_bumps_its_count() {
        let mut c = Correlator::default();
        let first = c.correlate(event("a", "Pulled", "x"), at(0)).unwrap().event;
        let again = c.correlate(event("a", "Pulled", "x"), at(5)).unwrap().event;
        let other = c.correlate(event("b", "Pulled", "x"), at(5)).unwrap().event;
        assert_eq!((first.count, again.count, other.count), (Some(1), Some(2), Some(1)));
        assert_eq!(first.metadata.name, again.metadata.name);
    }

    #[tokio::test]
    async fn ten_messages_become_one_event() {
        let mut c = Correlator::default();
        let mut last = None;
        for i in 0..12 {
            last = c.correlate(event("a", "Failed", &format!("message {i}")), at(i));
        }
        let last = last.unwrap().event;
        assert_eq!(last.message.as_deref(), Some("(combined from similar events): message 11"));
        assert_eq!(last.count, Some(3), "the tenth, eleventh and twelfth are one");
        let later = c.correlate(event("a", "Failed", "message 99"), at(700)).unwrap().event;
        assert_eq!(later.message.as_deref(), Some("message 99"), "ten minutes later it is new");
    }

    #[tokio::test]
    async fn a_source_that_says_too_much_is_cut_off() {
        let mut c = Correlator::default();
        let passed = (0..40).filter(|_| c.correlate(event("a", "Unhealthy", "x"), at(0)).is_some()).count();
        assert_eq!(passed, 25);
        assert!(c.correlate(event("b", "Unhealthy", "x"), at(0)).is_some(), "each object has its own budget");
        assert!(c.correlate(event("a", "Unhealthy", "x"), at(301)).is_some());
        assert!(c.correlate(event("a", "Unhealthy", "x"), at(302)).is_none());
    }
}
