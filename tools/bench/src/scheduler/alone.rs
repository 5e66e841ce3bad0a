//! The scheduler's decisions alone: cache, plugins, choice and assumption, without an API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::scheduler::cache::Cache;
use ::scheduler::config::defaults::{self, SCHEDULER_NAME};
use ::scheduler::config::document::Document;
use ::scheduler::cycle::{Around, Decision, Help, Part, decide};
use ::scheduler::framework::profile::{Profile, profiles};
use ::scheduler::kept::Keeper;
use ::scheduler::nominated::Nominated;
use ::scheduler::plugins;
use ::scheduler::pod::PodInfo;
use serde_json::Value;

use super::workloads::{Workload, node};

/// The pace of Pods that nobody can take.
const CHURN: Duration = Duration::from_millis(200);

/// The figures of a workload.
pub(crate) struct Figures {
    /// Pods placed a second.
    pub(crate) rate: f64,
    /// Pods placed in a second of CPU time.
    pub(crate) cpu_rate: f64,
    /// The 99th percentile of the time of a turn.
    pub(crate) p99: Duration,
    /// Pods that found no place.
    pub(crate) unplaced: usize,
}

struct Run {
    profile: Profile,
    cluster: Cache,
    nominated: Nominated,
    keeper: Keeper,
}

/// Runs a workload.
pub(crate) fn measure(workload: &Workload) -> Result<Figures, String> {
    let mut config = Document::default();
    defaults::complete(&mut config);
    let mut all = profiles(&config, &plugins::registry()?)?;
    let profile = all.remove(SCHEDULER_NAME).ok_or("there is no default profile")?;
    let mut run = Run {
        profile,
        cluster: Cache::default(),
        nominated: Nominated::default(),
        keeper: Keeper::default(),
    };
    for i in 0..workload.nodes {
        let node = serde_json::from_value(node(i, workload.zones)).map_err(|e| e.to_string())?;
        run.cluster.set_node(Arc::new(node));
    }
    for i in 0..workload.initial.0 {
        run.place(&read(workload.initial.1(i))?)?;
    }
    let measured: Result<Vec<PodInfo>, String> =
        (0..workload.measured.0).map(|i| read(workload.measured.1(i))).collect();
    let measured = measured?;
    let (mut times, mut unplaced, mut churned) = (Vec::with_capacity(measured.len()), 0, 0);
    let (start, cpu) = (Instant::now(), cpu_time()?);
    for pod in &measured {
        let turn = Instant::now();
        unplaced += usize::from(!run.place(pod)?);
        times.push(turn.elapsed());
        if let Some(churn) = workload.churn
            && start.elapsed() > CHURN * churned
        {
            run.place(&read(churn(churned as usize))?)?;
            churned += 1;
        }
    }
    let (elapsed, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
    times.sort();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let rate = |time: Duration| measured.len() as f64 / time.as_secs_f64();
    Ok(Figures { rate: rate(elapsed), cpu_rate: rate(cpu), p99, unplaced })
}

/// The CPU time of this thread.
fn cpu_time() -> Result<Duration, String> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").map_err(|e| e.to_string())?;
    let nanos = stat.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or("no CPU time")?;
    Ok(Duration::from_nanos(nanos))
}

fn read(pod: Value) -> Result<PodInfo, String> {
    serde_json::from_value(pod).map(PodInfo::new).map_err(|e| e.to_string())
}

impl Run {
    /// One Pod's turn, and a second one where room was made for it; whether it has a node then.
    fn place(&mut self, pod: &PodInfo) -> Result<bool, String> {
        for _ in 0..2 {
            let around = Around {
                profile: &self.profile,
                cluster: &self.cluster,
                nominated: &self.nominated,
                budgets: &[],
                part: Part::default(),
            };
            match decide(pod, around, &mut self.keeper, &mut |n| fastrand::usize(..n)) {
                Decision::Node(node) => {
                    self.nominated.remove(pod.uid());
                    self.cluster.assume(pod.clone(), &node);
                    return Ok(true);
                }
                Decision::Unschedulable(_, Help::Room(candidate)) => {
                    candidate.victims.iter().for_each(|v| self.cluster.remove_pod(v.uid()));
                    self.nominated.set(pod.clone(), &candidate.node);
                }
                Decision::Unschedulable(error, _) => {
                    // The text is made as it would be written.
                    std::hint::black_box(error.to_string());
                    return Ok(false);
                }
                Decision::Error(why) => return Err(why),
            }
        }
        Ok(false)
    }
}
