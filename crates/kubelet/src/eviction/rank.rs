//! The order in which Pods are evicted.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::layout::{Layout, Part};
use super::signal::{Condition, Signal};
use crate::pods::spec;
use crate::stats::PodStats;
use crate::stats::disks::is_local_ephemeral;
use crate::stats::tree::Taken;

/// A Pod that runs, with its use of resources, if that is known.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) pod: Arc<Pod>,
    pub(crate) stats: Option<PodStats>,
}

/// Puts the Pods in the order in which they are evicted for a signal: those that take more than they asked for, the
/// least important ones, those that are the most above what they asked for. A Pod whose use is not known comes first.
pub(crate) fn rank(candidates: &mut [Candidate], signal: Signal, layout: Layout) {
    match signal.condition() {
        Condition::Memory => order(candidates, memory, true),
        Condition::Pid => order(candidates, |c| (processes(c), 0), false),
        Condition::Disk => {
            let parts = layout.measured(signal);
            order(candidates, |c| disk(c, parts, signal), true);
        }
    }
}

/// Sorts by `of`: what a Pod uses, and what it uses above its request. `exceeding`: those that use more than they asked
/// for come before the others.
fn order(candidates: &mut [Candidate], of: impl Fn(&Candidate) -> (i64, i64), exceeding: bool) {
    candidates.sort_by(|a, b| {
        let (of_a, of_b) = (of(a), of(b));
        let unknown = b.stats.is_none().cmp(&a.stats.is_none());
        let known = a.stats.is_some() && b.stats.is_some();
        let exceeds = (of_b.1 > 0).cmp(&(of_a.1 > 0));
        let first = match (known, exceeding) {
            (false, true) => unknown,
            (true, true) => exceeds,
            (_, false) => Ordering::Equal,
        };
        let larger = if known { of_b.0.cmp(&of_a.0) } else { unknown };
        first.then_with(|| priority(&a.pod).cmp(&priority(&b.pod))).then(larger)
    });
}

/// The importance of a Pod.
pub(crate) fn priority(pod: &Pod) -> i32 {
    spec::spec(pod).priority.unwrap_or_default()
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Memory above the request, twice.
fn memory(candidate: &Candidate) -> (i64, i64) {
    let used = candidate.stats.as_ref().and_then(|s| s.usage.working_set).map_or(0, number);
    let above = used.saturating_sub(spec::pod_request(&candidate.pod, "memory"));
    (above, above)
}

fn processes(candidate: &Candidate) -> i64 {
    candidate.stats.as_ref().and_then(|s| s.processes).map_or(0, number)
}

/// The room that a Pod takes of the disks in the parts that count.
pub(crate) fn taken(pod: &Pod, stats: &PodStats, parts: &[Part]) -> Taken {
    let mut total = Taken::default();
    for container in &stats.containers {
        if parts.contains(&Part::Layers) {
            total.add(container.layer.unwrap_or_default());
        }
        if parts.contains(&Part::Logs) {
            total.add(container.logs.unwrap_or_default());
        }
    }
    if parts.contains(&Part::Volumes) {
        let local = spec::spec(pod).volumes.iter().flatten();
        for volume in local.filter(|v| v.host_path.is_some() || is_local_ephemeral(v)) {
            if let Some(found) = stats.volumes.iter().find(|v| v.name == volume.name) {
                total.add(found.taken);
            }
        }
    }
    total
}

/// The amounts that a Pod takes above its request of the disk, and above its request of what is short: inodes are not asked for.
/// The first is taken off inodes, too, as upstream does.
fn disk(candidate: &Candidate, parts: &[Part], signal: Signal) -> (i64, i64) {
    let request = spec::pod_request(&candidate.pod, "ephemeral-storage");
    let taken = candidate.stats.as_ref().map(|s| taken(&candidate.pod, s, parts)).unwrap_or_default();
    let used = number(if signal.is_bytes() { taken.bytes } else { taken.inodes });
    let asked = if signal.is_bytes() { request } else { 0 };
    (used.saturating_sub(request), used.saturating_sub(asked))
}
