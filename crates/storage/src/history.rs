//! The recent events of a resource: for watches that start in the past, and for lists at an older revision.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};
use std::time::Duration;

use imbl::Vector;

use crate::store::{Cause, Compacted, Event};

/// The limits of a resource's history; the first one that is exceeded counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of events.
    pub(crate) events: usize,
    /// Bytes of the objects that only the history still holds: replaced and deleted ones.
    pub(crate) bytes: usize,
    /// The greatest age, checked when an event comes.
    pub(crate) age: Duration,
    /// The number of the newest events that keep their encoded forms, if they are small enough together.
    pub(crate) encoded: usize,
    /// The limit of these events' objects, in bytes.
    pub(crate) encoded_bytes: usize,
    /// The limit of the histories of all resources together, in bytes.
    pub(crate) all: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Upstream compacts every 5 minutes, and its watch cache holds up to 100 Ki events of any size.
        Self {
            events: 16 << 10,
            bytes: 16 << 20,
            age: Duration::from_mins(5),
            encoded: 256,
            encoded_bytes: 16 << 20,
            all: 256 << 20,
        }
    }
}

/// The size of the histories of all resources together.
#[derive(Debug, Default)]
pub(crate) struct Held(AtomicUsize);

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(AtomicOrdering::Relaxed)
    }
}

#[derive(Debug, Clone)]
struct Kept {
    event: Arc<Event>,
    /// The time at which the event came, in milliseconds.
    at: u64,
}

/// The events of a resource above [`History::low`], without a gap.
#[derive(Debug)]
pub(crate) struct History {
    events: Vector<Kept>,
    bytes: usize,
    /// The number of the newest events that keep their encoded forms, and the bytes of their objects.
    encoded: (usize, usize),
    low: u64,
    limits: Limits,
    all: Arc<Held>,
    /// The part of `all` that is this history's.
    counted: usize,
}

impl History {
    /// Makes a history of the events after revision `low`.
    pub(crate) fn new(low: u64, limits: Limits, all: Arc<Held>) -> Self {
        Self { events: Vector::new(), bytes: 0, encoded: (0, 0), low, limits, all, counted: 0 }
    }

    /// The oldest revision since which the history knows all changes.
    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    /// The bytes that only this history keeps in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The size that counts: the history's bytes, and the possible size of its newest events' encoded forms.
    pub(crate) fn held(&self) -> usize {
        self.bytes + self.encoded.1
    }

    /// Adds the history's present size to the sum of all.
    fn count(&mut self) {
        let held = self.held();
        // The two steps are in this order so that the sum is never too low.
        self.all.0.fetch_add(held, AtomicOrdering::Relaxed);
        self.all.0.fetch_sub(self.counted, AtomicOrdering::Relaxed);
        self.counted = held;
    }

    /// Drops the oldest half of the history, in bytes.
    pub(crate) fn halve(&mut self) {
        let half = self.held() / 2;
        while self.held() > half && !self.events.is_empty() {
            self.pop();
        }
        self.count();
    }

    pub(crate) fn push(&mut self, event: Arc<Event>, now: u64) {
        self.bytes += weight(&event);
        self.encoded.0 += 1;
        self.encoded.1 += event.object.data.body.len();
        self.events.push_back(Kept { event, at: now });
        while self.encoded.0 > self.limits.encoded
            || self.encoded.0 > 1 && self.encoded.1 > self.limits.encoded_bytes
        {
            self.forget_encoded();
        }
        let age = u64::try_from(self.limits.age.as_millis()).unwrap_or(u64::MAX);
        while let Some(first) = self.events.front()
            && (self.events.len() > self.limits.events
                || self.bytes > self.limits.bytes
                || now.saturating_sub(first.at) > age)
        {
            self.pop();
        }
        self.count();
    }

    /// Drops the events up to and with a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        while self.events.front().is_some_and(|k| k.event.revision <= revision) {
            self.pop();
        }
        self.low = self.low.max(revision);
        self.count();
    }

    /// Drops all events; from now on the history begins after a revision, which may be an older one.
    pub(crate) fn restart(&mut self, revision: u64) {
        (self.events, self.bytes, self.encoded, self.low) = (Vector::new(), 0, (0, 0), revision);
        self.count();
    }

    /// The events after a revision.
    pub(crate) fn after(&self, revision: u64) -> Result<Past, Compacted> {
        if revision < self.low {
            return Err(Compacted { oldest: self.low });
        }
        let older = |k: &Kept| if k.event.revision <= revision { Ordering::Less } else { Ordering::Greater };
        let start = self.events.binary_search_by(older).unwrap_or_else(|at| at);
        Ok(Past(self.events.skip(start)))
    }

    /// Drops the encoded forms of the oldest of the events that keep them.
    fn forget_encoded(&mut self) {
        let oldest = self.events.len() - self.encoded.0;
        self.encoded.0 -= 1;
        if let Some(kept) = self.events.get(oldest) {
            kept.event.forget_encoded();
            self.encoded.1 -= kept.event.object.data.body.len();
        }
    }

    fn pop(&mut self) {
        if self.encoded.0 == self.events.len() && self.encoded.0 > 0 {
            self.forget_encoded();
        }
        if let Some(kept) = self.events.pop_front() {
            self.bytes -= weight(&kept.event);
            self.low = self.low.max(kept.event.revision);
        }
    }
}

/// The bytes that only an event keeps in memory.
fn weight(event: &Event) -> usize {
    match (&event.previous, event.cause) {
        (Some(previous), _) => previous.data.body.len() + 256,
        (None, Cause::Deleted) => event.object.data.body.len() + 256,
        (None, _) => 256,
    }
}

/// A part of the history, which can be read without the history's lock.
pub(crate) struct Past(Vector<Kept>);

impl Past {
    /// The part's events, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.0.iter().map(|k| &k.event)
    }
}
