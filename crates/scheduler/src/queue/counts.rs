//! The queue's metrics, with upstream's names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use component::metrics::{Histogram, Page};

use super::flights::Flights;
use crate::framework::times::BUCKETS;

/// The answer of a plugin about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    /// The Pod is worth another try.
    Queue,
    /// It is not.
    QueueSkip,
    /// The plugin cannot say; the Pod is tried.
    Error,
}

impl Said {
    fn name(self) -> &'static str {
        match self {
            Self::Queue => "Queue",
            Self::QueueSkip => "QueueSkip",
            Self::Error => "Error",
        }
    }
}

/// The counts of a queue. Clones are the same.
#[derive(Clone, Default)]
pub struct Counts {
    inner: Arc<Mutex<Inner>>,
    pub(super) flights: Flights,
}

#[derive(Default)]
struct Inner {
    /// By queue and event: how many Pods came.
    incoming: BTreeMap<(&'static str, &'static str), u64>,
    /// By plugin, event and answer.
    hints: BTreeMap<(&'static str, &'static str, Said), Histogram>,
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A Pod came into a queue by an event.
    pub(super) fn came(&self, queue: &'static str, event: &'static str) {
        *self.lock().incoming.entry((queue, event)).or_default() += 1;
    }
    /// A plugin was asked about an event, and said this after so long.
    pub fn hinted(&self, plugin: &'static str, event: &'static str, said: Said, took: Duration) {
        let mut inner = self.lock();
        let times = inner.hints.entry((plugin, event, said)).or_insert_with(|| Histogram::new(BUCKETS));
        times.observe(took.as_secs_f64());
    }
    /// Writes them down.
    pub fn report(&self, page: &mut Page) {
        const HINTS: &str = "scheduler_queueing_hint_execution_duration_seconds";
        const INCOMING: &str = "scheduler_queue_incoming_pods_total";
        const IN_FLIGHT: &str = "scheduler_inflight_events";
        let inner = self.lock();
        page.metric(HINTS, "histogram", "Duration for running a queueing hint function of a plugin.");
        for ((plugin, event, said), took) in &inner.hints {
            let labels = [("event", *event), ("hint", said.name()), ("plugin", *plugin)];
            page.histogram(HINTS, &labels, took);
        }
        page.metric(
            INCOMING,
            "counter",
            "Number of pods added to scheduling queues by event and queue type.",
        );
        for ((queue, event), n) in &inner.incoming {
            page.value(INCOMING, &[("event", event), ("queue", queue)], *n as f64);
        }
        page.metric(IN_FLIGHT, "gauge", "Number of events currently tracked in the scheduling queue.");
        let (pods, events) = self.flights.counts();
        page.value(IN_FLIGHT, &[("event", "PodPopped")], pods as f64);
        for (event, n) in events {
            page.value(IN_FLIGHT, &[("event", event)], n as f64);
        }
    }
}
