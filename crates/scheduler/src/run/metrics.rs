//! The scheduler's metrics, with upstream's names (`pkg/scheduler/metrics`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use component::metrics::{Histogram, Page};

/// Seconds from 1 ms, each bound twice the one before.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// Seconds from 10 ms, each bound twice the one before.
const LONG: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68,
    655.36, 1310.72, 2621.44, 5242.88,
];
const TRIES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The queues of Pods, in the order of [`Queue::counts`](crate::queue::Queue::counts).
const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Result {
    Scheduled,
    Unschedulable,
    Error,
}

impl Result {
    fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// The metrics. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<Mutex<Inner>>);

struct Inner {
    /// By profile and result: how many turns, and how long they took.
    attempts: HashMap<String, BTreeMap<Result, (u64, Histogram)>>,
    algorithm: Histogram,
    tries: Histogram,
    /// By the number of tries.
    waited: BTreeMap<u32, Histogram>,
    victims: Histogram,
    preemptions: u64,
    /// By result.
    permits: BTreeMap<&'static str, Histogram>,
    pending: [usize; 4],
    /// Nodes, Pods, assumed Pods.
    cached: [usize; 3],
    /// By plugin and profile.
    refused: BTreeMap<(&'static str, String), u64>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            attempts: HashMap::new(),
            algorithm: Histogram::new(SECONDS),
            tries: Histogram::new(TRIES),
            waited: BTreeMap::new(),
            victims: Histogram::new(VICTIMS),
            preemptions: 0,
            permits: BTreeMap::new(),
            pending: [0; 4],
            cached: [0; 3],
            refused: BTreeMap::new(),
        }
    }
}

/// More tries than these are counted together.
const MANY: u32 = 15;

impl Metrics {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn found a node in this time.
    pub(super) fn decided(&self, took: Duration) {
        self.lock().algorithm.observe(took.as_secs_f64());
    }

    /// A turn ended, with the binding if there was one.
    pub(super) fn ended(&self, profile: &str, result: Result, took: Duration) {
        let mut inner = self.lock();
        if !inner.attempts.contains_key(profile) {
            inner.attempts.insert(profile.to_owned(), BTreeMap::new());
        }
        if let Some(all) = inner.attempts.get_mut(profile) {
            let (turns, times) = all.entry(result).or_insert_with(|| (0, Histogram::new(SECONDS)));
            *turns += 1;
            times.observe(took.as_secs_f64());
        }
    }

    /// A Pod was bound after so many tries and this time.
    pub(super) fn bound(&self, tries: u32, waited: Duration) {
        let mut inner = self.lock();
        inner.tries.observe(f64::from(tries));
        let waits = inner.waited.entry(tries.min(MANY)).or_insert_with(|| Histogram::new(LONG));
        waits.observe(waited.as_secs_f64());
    }

    /// Preemption was tried, and so many Pods have to go.
    pub(super) fn preempted(&self, victims: Option<usize>) {
        let mut inner = self.lock();
        inner.preemptions += 1;
        if let Some(victims) = victims {
            inner.victims.observe(victims as f64);
        }
    }

    /// A Pod waited so long for a permission, with this result.
    pub(super) fn permitted(&self, result: &'static str, waited: Duration) {
        let mut inner = self.lock();
        let waits = inner.permits.entry(result).or_insert_with(|| Histogram::new(SECONDS));
        waits.observe(waited.as_secs_f64());
    }

    /// The Pods in the queues, and the nodes, Pods and assumed Pods that are known.
    pub(super) fn sizes(&self, pending: [usize; 4], cached: [usize; 3]) {
        let mut inner = self.lock();
        (inner.pending, inner.cached) = (pending, cached);
    }

    /// These plugins refuse a Pod now, or do no more.
    pub(super) fn refused(&self, plugins: &[&'static str], profile: &str, more: bool) {
        if plugins.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for plugin in plugins {
            let pods = inner.refused.entry((plugin, profile.to_owned())).or_default();
            *pods = if more { *pods + 1 } else { pods.saturating_sub(1) };
        }
    }

    /// Writes them down.
    pub(super) fn report(&self, page: &mut Page) {
        let inner = self.lock();
        inner.report_turns(page);
        inner.report_state(page);
    }
}

impl Inner {
    fn report_turns(&self, page: &mut Page) {
        const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
        const DURATION: &str = "scheduler_scheduling_attempt_duration_seconds";
        const WAITED: &str = "scheduler_pod_scheduling_sli_duration_seconds";
        const PERMIT: &str = "scheduler_permit_wait_duration_seconds";
        page.metric(ATTEMPTS, "counter", "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.");
        page.metric(
            DURATION,
            "histogram",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
        );
        for (profile, results) in &self.attempts {
            for (result, (turns, took)) in results {
                let labels = [("profile", profile.as_str()), ("result", result.name())];
                page.value(ATTEMPTS, &labels, *turns as f64);
                page.histogram(DURATION, &labels, took);
            }
        }
        let name = "scheduler_scheduling_algorithm_duration_seconds";
        page.metric(name, "histogram", "Scheduling algorithm latency in seconds").histogram(
            name,
            &[],
            &self.algorithm,
        );
        let name = "scheduler_pod_scheduling_attempts";
        page.metric(name, "histogram", "Number of attempts to successfully schedule a pod.").histogram(
            name,
            &[],
            &self.tries,
        );
        page.metric(WAITED, "histogram", "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.");
        for (tries, waited) in &self.waited {
            let tries = if *tries == MANY { format!("{MANY}+") } else { tries.to_string() };
            page.histogram(WAITED, &[("attempts", &tries)], waited);
        }
        let name = "scheduler_preemption_victims";
        page.metric(name, "histogram", "Number of selected preemption victims").histogram(
            name,
            &[],
            &self.victims,
        );
        let name = "scheduler_preemption_attempts_total";
        page.metric(name, "counter", "Total preemption attempts in the cluster till now");
        page.value(name, &[], self.preemptions as f64);
        page.metric(PERMIT, "histogram", "Duration of waiting on permit.");
        for (result, waited) in &self.permits {
            page.histogram(PERMIT, &[("result", result)], waited);
        }
    }

    fn report_state(&self, page: &mut Page) {
        let name = "scheduler_pending_pods";
        page.metric(name, "gauge", "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.");
        for (queue, pods) in QUEUES.iter().zip(self.pending) {
            page.value(name, &[("queue", queue)], pods as f64);
        }
        let name = "scheduler_cache_size";
        page.metric(name, "gauge", "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.");
        for (what, count) in ["nodes", "pods", "assumed_pods"].iter().zip(self.cached) {
            page.value(name, &[("type", what)], count as f64);
        }
        let name = "scheduler_unschedulable_pods";
        page.metric(name, "gauge", "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.");
        for ((plugin, profile), pods) in &self.refused {
            page.value(name, &[("plugin", plugin), ("profile", profile)], *pods as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page() {
        let metrics = Metrics::default();
        let second = Duration::from_secs(1);
        metrics.decided(second);
        metrics.ended("p", Result::Scheduled, second);
        metrics.ended("p", Result::Scheduled, second);
        metrics.ended("p", Result::Error, second);
        metrics.bound(20, second);
        metrics.preempted(Some(3));
        metrics.preempted(None);
        metrics.permitted("allowed", second);
        metrics.sizes([1, 2, 3, 4], [5, 6, 7]);
        metrics.refused(&["Fit", "Taint"], "p", true);
        metrics.refused(&["Fit"], "p", true);
        metrics.refused(&["Taint"], "p", false);
        let mut page = Page::default();
        metrics.report(&mut page);
        let text = page.text();
        for line in [
            "scheduler_schedule_attempts_total{profile=\"p\",result=\"scheduled\"} 2",
            "scheduler_schedule_attempts_total{profile=\"p\",result=\"error\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"p\",result=\"scheduled\",le=\"1.024\"} 2",
            "scheduler_scheduling_algorithm_duration_seconds_count 1",
            "scheduler_pod_scheduling_attempts_sum 20",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
            "scheduler_preemption_attempts_total 2",
            "scheduler_preemption_victims_sum 3",
            "scheduler_permit_wait_duration_seconds_count{result=\"allowed\"} 1",
            "scheduler_pending_pods{queue=\"gated\"} 4",
            "scheduler_cache_size{type=\"assumed_pods\"} 7",
            "scheduler_unschedulable_pods{plugin=\"Fit\",profile=\"p\"} 2",
            "scheduler_unschedulable_pods{plugin=\"Taint\",profile=\"p\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
