//! Which Pods make room for one that the node depends on; upstream's rules.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::spec::{self, Qos};

/// An amount of a resource that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// The resource.
    pub(crate) name: String,
    /// cpu in thousandths, everything else in units.
    pub(crate) amount: i64,
}

/// There are no Pods whose end would be enough.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {0}"
)]
pub(crate) struct NotEnough(String);

fn text(requirements: &[Requirement]) -> String {
    let each = requirements.iter().map(|r| format!("(res: {}, q: {}), ", r.name, r.amount));
    format!("[{}]", each.collect::<String>())
}

/// Whether one Pod may end another for its own sake.
fn may_preempt(preemptor: &Pod, other: &Pod) -> bool {
    if spec::is_critical(preemptor) && !spec::is_critical(other) {
        return true;
    }
    match (spec::spec(preemptor).priority, spec::spec(other).priority) {
        (Some(own), Some(other)) => own > other,
        _ => false,
    }
}

fn request(pod: &Pod, name: &str) -> i64 {
    // Every Pod takes a place.
    if name == "pods" { 1 } else { spec::pod_request(pod, name) }
}

/// The requirements that are left once Pods are gone.
fn left<'a>(
    requirements: &[Requirement],
    gone: impl Iterator<Item = &'a Arc<Pod>> + Clone,
) -> Vec<Requirement> {
    let after = |r: &Requirement| {
        let freed: i64 = gone.clone().map(|pod| request(pod, &r.name)).fold(0, i64::saturating_add);
        Requirement { amount: r.amount.saturating_sub(freed), ..r.clone() }
    };
    requirements.iter().map(after).filter(|r| r.amount > 0).collect()
}

/// How far a Pod's end is from what is wanted; each requirement weighs the same.
fn distance(requirements: &[Requirement], pod: &Pod) -> f64 {
    let of = |r: &Requirement| {
        let short = r.amount.saturating_sub(request(pod, &r.name));
        if short > 0 { (short as f64 / r.amount as f64).powi(2) } else { 0.0 }
    };
    requirements.iter().map(of).sum()
}

/// Whether a Pod asks for less than another, memory first.
fn is_smaller(pod: &Pod, other: &Pod) -> bool {
    for name in ["memory", "cpu"] {
        let (own, theirs) = (request(pod, name), request(other, name));
        if own != theirs {
            return own < theirs;
        }
    }
    true
}

/// Those of `pods` that are nearest to what is wanted, until it is enough.
fn nearest(mut pods: Vec<Arc<Pod>>, mut wanted: Vec<Requirement>) -> Result<Vec<Arc<Pod>>, NotEnough> {
    let mut chosen = Vec::new();
    while !wanted.is_empty() {
        let mut best: Option<(usize, f64)> = None;
        for (at, pod) in pods.iter().enumerate() {
            let far = distance(&wanted, pod);
            let nearer = match best {
                None => true,
                Some((of, least)) => {
                    far < least || (far.total_cmp(&least).is_eq() && is_smaller(pod, &pods[of]))
                }
            };
            if nearer {
                best = Some((at, far));
            }
        }
        let Some((at, _)) = best else { return Err(NotEnough(text(&wanted))) };
        let pod = pods.swap_remove(at);
        wanted = left(&wanted, std::iter::once(&pod));
        chosen.push(pod);
    }
    Ok(chosen)
}

/// The Pods that make room for `pod`: as few as may be, of the least class of service.
///
/// # Errors
/// All of them together are not enough.
pub(crate) fn victims(
    pod: &Pod,
    others: &[Arc<Pod>],
    wanted: &[Requirement],
) -> Result<Vec<Arc<Pod>>, NotEnough> {
    let of = |class: Qos| -> Vec<Arc<Pod>> {
        let mine = |other: &&Arc<Pod>| may_preempt(pod, other) && spec::qos(other) == class;
        others.iter().filter(mine).cloned().collect()
    };
    let (best_effort, burstable, guaranteed) = (of(Qos::BestEffort), of(Qos::Burstable), of(Qos::Guaranteed));
    let all = best_effort.iter().chain(&burstable).chain(&guaranteed);
    let unmet = left(wanted, all);
    if !unmet.is_empty() {
        return Err(NotEnough(text(&unmet)));
    }
    let lesser = left(wanted, best_effort.iter().chain(&burstable));
    let of_guaranteed = nearest(guaranteed, lesser)?;
    let of_burstable = nearest(burstable, left(wanted, best_effort.iter().chain(&of_guaranteed)))?;
    let of_best_effort = nearest(best_effort, left(wanted, of_burstable.iter().chain(&of_guaranteed)))?;
    Ok(of_best_effort.into_iter().chain(of_burstable).chain(of_guaranteed).collect())
}

#[cfg(test)]
#[path = "preemption_tests.rs"]
mod tests;
