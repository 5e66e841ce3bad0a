//! The eviction manager: looks at the node again and again, and evicts Pods where it runs short.

use std::sync::Arc;
use std::time::Duration;

use client::EventType;
use component::Clock;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Settings;
use super::layout::{Layout, Reclaim};
use super::limits::{self, Exceeded};
use super::message::{REASON, Why, why};
use super::observe::{Observations, met, observations};
use super::pressure::Pressure;
use super::rank::{Candidate, rank};
use super::state::State;
use super::threshold::Threshold;
use crate::garbage::Collectors;
use crate::metrics::{self, Metrics};
use crate::pods::spec;
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::recorder::{self, PodRecorder};
use crate::stats::PodStats;
use crate::stats::collect::Collector;
use crate::status::generate::Failure;

/// How often the node is looked at; upstream's.
const PERIOD: Duration = Duration::from_secs(10);
/// The least time between two looks.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the end of evicted Pods is waited for, and how often it is looked for; upstream's.
const CLEANED: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);
/// The grace in seconds of Pods that are evicted at once; upstream's.
const IMMEDIATE: i64 = 1;
/// The message of the condition, and of the Event of the Node.
const MET: &str = "EvictionThresholdMet";

/// The node short of something.
struct Short {
    thresholds: Vec<Threshold>,
    seen: Observations,
    /// The thresholds for which something is to be done, the most urgent first.
    act: Vec<Threshold>,
    layout: Layout,
}

/// Evicts Pods.
pub(crate) struct Evictor {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) node: String,
    pub(crate) collector: Arc<Collector>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) recorder: PodRecorder,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) collectors: Arc<Collectors>,
    pub(crate) metrics: Metrics,
    pub(crate) state: Mutex<State>,
}

impl Evictor {
    /// Looks until the end.
    pub(crate) async fn keep(&self) {
        loop {
            let evicted = self.look().await;
            if evicted.is_empty() {
                tokio::time::sleep(SETTLE).await;
                tokio::select! {
                    () = tokio::time::sleep(PERIOD.saturating_sub(SETTLE)) => {}
                    () = self.collector.disks.measured.notified() => {}
                }
                continue;
            }
            let until = Instant::now() + CLEANED;
            while Instant::now() < until && !evicted.iter().all(|worker| worker.state.lock().cleaned) {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Looks once; answers the Pods that were evicted.
    async fn look(&self) -> Vec<Arc<Worker>> {
        let layout = self.layout();
        let thresholds = layout.with_layers(&self.settings.thresholds);
        let seen = observations(&self.collector.room(), self.clock.now());
        let transition = self.settings.transition;
        let verdict = self.state.lock().observe(&thresholds, transition, seen.clone(), Instant::now());
        self.pressure.set(verdict.conditions.clone());
        let candidates: Vec<Arc<Worker>> =
            self.workers.all().into_iter().filter(|w| w.to_run() && w.active()).collect();
        if self.settings.local_storage {
            let evicted = self.over_limits(&candidates, layout).await;
            if !evicted.is_empty() {
                return evicted;
            }
        }
        if verdict.act.is_empty() {
            return Vec::new();
        }
        let short = Short { thresholds, seen, act: verdict.act, layout };
        self.reclaim(&candidates, &short).await.into_iter().collect()
    }

    fn layout(&self) -> Layout {
        let device = |path: &std::path::Path| rustix::fs::stat(path).ok().map(|stat| stat.st_dev);
        let (images, containers) = self.collector.health.file_systems();
        let of_node = device(crate::stats::room::existing(&self.collector.config.root_dir));
        let of_images = images.as_deref().and_then(device);
        let of_containers = containers.as_deref().and_then(device).or(of_images);
        let dedicated = of_images.is_some() && of_images != of_node;
        Layout::of(dedicated, of_containers != of_images)
    }

    /// Evicts the Pods that take more of the disks than they may.
    async fn over_limits(&self, candidates: &[Arc<Worker>], layout: Layout) -> Vec<Arc<Worker>> {
        let limited = limits::kinds(candidates.iter().map(|w| w.given()));
        let all = match limited {
            limits::Kinds::None => return Vec::new(),
            limits::Kinds::Volumes => Vec::new(),
            limits::Kinds::Containers => match self.collector.pods().await {
                Ok(all) => all,
                Err(error) => {
                    tracing::warn!(error = error.message(), "the use of disks by containers is not known");
                    Vec::new()
                }
            },
        };
        let mut evicted = Vec::new();
        for worker in candidates {
            let pod = worker.given();
            let found = all.iter().find(|stats| stats.uid == worker.uid).cloned();
            let Some(stats) = found.or_else(|| self.of_volumes(&worker.uid)) else { continue };
            let Some(over) = limits::exceeded(&pod, &stats, layout.dedicated_images()) else { continue };
            let Exceeded { signal, message } = over;
            if self.evict(worker, IMMEDIATE, &Why { message, ..Why::default() }, false) {
                self.metrics.count(&metrics::EVICTIONS, &[signal]);
                evicted.push(worker.clone());
            }
        }
        evicted
    }

    /// A Pod's use of the disks as far as it is known without the runtime.
    fn of_volumes(&self, uid: &str) -> Option<PodStats> {
        let found = self.collector.disks.of(uid)?;
        Some(PodStats { volumes: found.volumes.clone(), ..PodStats::default() })
    }

    /// Makes room for the first threshold: by what the node can do without, and otherwise by a Pod.
    async fn reclaim(&self, workers: &[Arc<Worker>], short: &Short) -> Option<Arc<Worker>> {
        let threshold = short.act.first()?;
        let resource = threshold.signal.resource();
        tracing::info!(resource, signal = %threshold.signal, "attempting to reclaim");
        let about = recorder::node(&self.node);
        self.recorder.0.event_about(
            about,
            EventType::Warning,
            MET,
            format!("Attempting to reclaim {resource}"),
        );
        let reclaims = short.layout.reclaims(threshold.signal);
        for part in reclaims {
            match part {
                Reclaim::Containers => self.collectors.remove_unused_containers().await,
                Reclaim::Images => self.collectors.remove_unused_images().await,
            }
        }
        let now = || observations(&self.collector.room(), self.clock.now());
        if !reclaims.is_empty() && met(&short.thresholds, &now(), true).is_empty() {
            tracing::info!(resource, "there is enough again without an eviction");
            return None;
        }
        let mut all = match self.collector.pods().await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(error = error.message(), "the use of resources by Pods is not known");
                return None;
            }
        };
        let mut candidates: Vec<Candidate> = workers
            .iter()
            .map(|worker| {
                let stats = all.iter().position(|stats| stats.uid == worker.uid);
                Candidate { pod: worker.given(), stats: stats.map(|at| all.swap_remove(at)) }
            })
            .collect();
        rank(&mut candidates, threshold.signal, short.layout);
        for t in &short.act {
            if let Some(at) = short.seen.get(&t.signal).and_then(|seen| seen.at) {
                let age = self.clock.now().duration_since(at).as_secs_f64();
                self.metrics.observe(&metrics::EVICTION_STATS_AGE_SECONDS, &[t.signal.name()], age);
            }
        }
        for candidate in &candidates {
            let Some(worker) = workers.iter().find(|w| w.uid == spec::uid(&candidate.pod)) else { continue };
            let pod = &candidate.pod;
            let why = why(resource, pod, candidate.stats.as_ref(), &short.act, &short.seen);
            if self.evict(worker, self.grace(threshold, pod), &why, true) {
                self.metrics.count(&metrics::EVICTIONS, &[threshold.signal.name()]);
                return Some(worker.clone());
            }
        }
        tracing::warn!(resource, "there is no Pod that can be evicted");
        None
    }

    fn grace(&self, threshold: &Threshold, pod: &Pod) -> i64 {
        if threshold.is_hard() {
            return IMMEDIATE;
        }
        let most = self.settings.max_pod_grace;
        spec::spec(pod).termination_grace_period_seconds.map_or(most, |own| own.min(most))
    }

    /// Evicts a Pod, unless it is critical.
    fn evict(&self, worker: &Worker, grace: i64, why: &Why, disrupted: bool) -> bool {
        let pod = worker.pod();
        if spec::is_critical(&pod) {
            tracing::warn!(pod = spec::full_name(&pod), "a critical Pod cannot be evicted");
            return false;
        }
        self.recorder.annotated(&pod, why.annotations.clone(), "Warning", REASON, why.message.clone());
        tracing::info!(pod = spec::full_name(&pod), message = why.message, "a Pod is evicted");
        let disruption = disrupted.then(|| why.message.clone());
        worker.fail(
            Failure { reason: REASON.into(), message: why.message.clone(), disruption, keeps_success: false },
            Some(grace.max(IMMEDIATE)),
        );
        true
    }
}
