//! The scheduler's metrics, with upstream's names (`pkg/scheduler/metrics`).
//!
//! DIFFERENCE: those that could only ever be zero here are not reported; the tests name them with the reasons
//! (`MEANINGLESS`). Of the calls that upstream's dispatcher makes the patches of a Pod's status are counted: a binding is made
//! by the Pod's own task, as upstream does where its gate SchedulerAsyncAPICalls is off.

mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use component::metrics::Histogram;

use crate::events::Events;
use crate::framework::profile::Profile;
use crate::framework::times::{BUCKETS, CODES, COUNTED, Code, POINTS, Point, Times};

/// Seconds from 1 ms, each bound twice the one before.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// Seconds from 10 ms, each bound twice the one before.
const LONG: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68,
    655.36, 1310.72, 2621.44, 5242.88,
];
/// Seconds from 0.1 ms, each bound twice the one before.
const SHORT: &[f64] =
    &[0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048];
const TRIES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

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

/// The tasks that are counted as long as they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// The way of a Pod to its node.
    Binding,
    /// An extender is asked for scores.
    Prioritizing,
}

/// The names of [`Task`].
const TASKS: [&str; 2] = ["binding", "prioritizing_extender"];

/// A task that runs.
pub(super) struct Running(Arc<[AtomicUsize; 2]>, Task);

impl Drop for Running {
    fn drop(&mut self) {
        self.0[self.1 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// The metrics. Clones are the same.
#[derive(Clone)]
pub(super) struct Metrics {
    inner: Arc<Mutex<Inner>>,
    running: Arc<[AtomicUsize; 2]>,
}

/// The metrics of a profile.
struct Of {
    /// The names of plugins, by the points that count them.
    names: [Vec<&'static str>; COUNTED],
    asked: [Vec<u64>; COUNTED],
    /// By result: how many turns, and how long they took.
    attempts: BTreeMap<Result, (u64, Histogram)>,
    /// By point and code.
    points: [[Option<Histogram>; CODES]; POINTS],
}

impl Of {
    fn new(profile: &Profile) -> Self {
        let names = [
            profile.pre_filter.iter().map(|at| at.name).collect(),
            profile.filter.iter().map(|at| at.name).collect(),
            profile.pre_score.iter().map(|at| at.name).collect(),
            profile.score.iter().map(|at| at.name).collect::<Vec<_>>(),
        ];
        Self {
            asked: names.each_ref().map(|all| vec![0; all.len()]),
            names,
            attempts: BTreeMap::new(),
            points: [const { [const { None }; CODES] }; POINTS],
        }
    }

    fn point(&mut self, point: Point, code: Code, took: Duration) {
        let place = &mut self.points[point as usize][code as usize];
        place.get_or_insert_with(|| Histogram::new(SHORT)).observe(took.as_secs_f64());
    }
}

struct Inner {
    profiles: BTreeMap<String, Of>,
    plugins: BTreeMap<(&'static str, Point, Code), Histogram>,
    algorithm: Histogram,
    tries: Histogram,
    /// By the number of tries.
    waited: BTreeMap<u32, Histogram>,
    /// By profile and result.
    groups: BTreeMap<(String, &'static str), (u64, Histogram)>,
    group_algorithm: Histogram,
    /// Pods that were bound after nothing but long waiting.
    flushed: u64,
    /// By event.
    events: BTreeMap<&'static str, Histogram>,
    victims: Histogram,
    preemptions: u64,
    /// By result.
    evictions: BTreeMap<&'static str, (u64, Histogram)>,
    /// By result.
    permits: BTreeMap<&'static str, Histogram>,
    /// By result.
    patches: BTreeMap<&'static str, (u64, Histogram)>,
    /// Patches that wait for another one.
    pending_patches: usize,
    pending: [usize; 4],
    /// Nodes, Pods, assumed Pods.
    cached: [usize; 3],
    /// By plugin and profile.
    refused: BTreeMap<(&'static str, String), u64>,
}

/// More tries than these are counted together.
const MANY: u32 = 15;

/// The result of a task.
fn result(ok: bool) -> &'static str {
    if ok { "success" } else { "error" }
}

/// Counts a task with its time.
fn count(
    all: &mut BTreeMap<&'static str, (u64, Histogram)>,
    ok: bool,
    took: Duration,
    bounds: &'static [f64],
) {
    let (n, times) = all.entry(result(ok)).or_insert_with(|| (0, Histogram::new(bounds)));
    *n += 1;
    times.observe(took.as_secs_f64());
}

impl Metrics {
    /// The metrics of a scheduler with these profiles.
    pub(super) fn new(profiles: &BTreeMap<String, Profile>) -> Self {
        let inner = Inner {
            profiles: profiles.iter().map(|(name, profile)| (name.clone(), Of::new(profile))).collect(),
            plugins: BTreeMap::new(),
            algorithm: Histogram::new(SECONDS),
            tries: Histogram::new(TRIES),
            waited: BTreeMap::new(),
            groups: BTreeMap::new(),
            group_algorithm: Histogram::new(SECONDS),
            flushed: 0,
            events: BTreeMap::new(),
            victims: Histogram::new(VICTIMS),
            preemptions: 0,
            evictions: BTreeMap::new(),
            permits: BTreeMap::new(),
            patches: BTreeMap::new(),
            pending_patches: 0,
            pending: [0; 4],
            cached: [0; 3],
            refused: BTreeMap::new(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), running: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a task as long as the result lives.
    pub(super) fn runs(&self, task: Task) -> Running {
        self.running[task as usize].fetch_add(1, Ordering::Relaxed);
        Running(self.running.clone(), task)
    }

    /// Takes in the notes of a turn, or of a Pod's way to its node.
    pub(super) fn took(&self, profile: &str, times: &Times) {
        let mut inner = self.lock();
        let Inner { profiles, plugins, .. } = &mut *inner;
        let Some(of) = profiles.get_mut(profile) else { return };
        times.points().for_each(|(point, code, took)| of.point(point, code, took));
        for (sums, counts) in of.asked.iter_mut().zip(times.counts()) {
            sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        for (plugin, point, code, took) in times.plugins() {
            let times = plugins.entry((plugin, *point, *code)).or_insert_with(|| Histogram::new(BUCKETS));
            times.observe(took.as_secs_f64());
        }
    }

    /// A turn found a node in this time.
    pub(super) fn decided(&self, took: Duration) {
        self.lock().algorithm.observe(took.as_secs_f64());
    }

    /// A turn ended, with the binding if there was one.
    pub(super) fn ended(&self, profile: &str, result: Result, took: Duration) {
        let mut inner = self.lock();
        let Some(of) = inner.profiles.get_mut(profile) else { return };
        let (turns, times) = of.attempts.entry(result).or_insert_with(|| (0, Histogram::new(SECONDS)));
        *turns += 1;
        times.observe(took.as_secs_f64());
    }

    /// Events of these kinds were taken in.
    pub(super) fn handled(&self, events: Events, took: Duration) {
        if events.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for label in events.labels() {
            let times = inner.events.entry(label).or_insert_with(|| Histogram::new(SHORT));
            times.observe(took.as_secs_f64());
        }
    }

    /// A Pod was bound after so many tries and this time; `flushed`: the last try came of nothing but long waiting.
    pub(super) fn bound(&self, tries: u32, flushed: bool, waited: Duration) {
        let mut inner = self.lock();
        inner.flushed += u64::from(flushed);
        inner.tries.observe(f64::from(tries));
        let waits = inner.waited.entry(tries.min(MANY)).or_insert_with(|| Histogram::new(LONG));
        waits.observe(waited.as_secs_f64());
    }

    /// The decision about a group took so long.
    pub(super) fn group_decided(&self, took: Duration) {
        self.lock().group_algorithm.observe(took.as_secs_f64());
    }

    /// The turn of a group ended.
    pub(super) fn group_ended(&self, profile: &str, result: &'static str, took: Duration) {
        let mut inner = self.lock();
        let all = inner.groups.entry((profile.to_owned(), result));
        let (turns, times) = all.or_insert_with(|| (0, Histogram::new(SECONDS)));
        *turns += 1;
        times.observe(took.as_secs_f64());
    }

    /// Preemption was tried, and so many Pods have to go.
    pub(super) fn preempted(&self, victims: Option<usize>) {
        let mut inner = self.lock();
        inner.preemptions += 1;
        if let Some(victims) = victims {
            inner.victims.observe(victims as f64);
        }
    }

    /// So many Pods have to go for a group.
    pub(super) fn victims(&self, victims: usize) {
        self.lock().victims.observe(victims as f64);
    }

    /// The victims of a preemption were deleted in this time, or one could not be.
    ///
    /// DIFFERENCE: upstream reads the result and the time when the deletion begins.
    pub(super) fn evicted(&self, ok: bool, took: Duration) {
        count(&mut self.lock().evictions, ok, took, LONG);
    }

    /// A Pod's status was patched in this time, or could not be.
    pub(super) fn patched(&self, ok: bool, took: Duration) {
        count(&mut self.lock().patches, ok, took, SECONDS);
    }

    /// A Pod waited so long for a permission, with this result.
    pub(super) fn permitted(&self, result: &'static str, waited: Duration) {
        let mut inner = self.lock();
        let waits = inner.permits.entry(result).or_insert_with(|| Histogram::new(SECONDS));
        waits.observe(waited.as_secs_f64());
    }

    /// The Pods in the queues, the nodes, Pods and assumed Pods that are known, and the patches that wait.
    pub(super) fn sizes(&self, pending: [usize; 4], cached: [usize; 3], patches: usize) {
        let mut inner = self.lock();
        (inner.pending, inner.cached, inner.pending_patches) = (pending, cached, patches);
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
}
