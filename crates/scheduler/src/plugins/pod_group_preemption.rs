//! Preemption for a whole PodGroup: which less important Pods and groups would have to go so that it fits (upstream's
//! `framework/preemption/podgrouppreemption.go`). It is DefaultPreemption's part with the gate WorkloadAwarePreemption.
//!
//! A victim is a Pod, or all Pods of a group whose mode of disruption is that of a group: those go together or stay
//! together, and their priority is the group's.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use super::preemption::Allowed;
use crate::cache::Cache;
use crate::pod::PodInfo;

/// Pods that go together.
#[derive(Debug, Clone)]
pub struct Victim {
    /// The Pods; there is one at least.
    pub pods: Vec<PodInfo>,
    /// The Pod's priority, or the group's.
    pub priority: i32,
    /// When the first of them started; [`Timestamp::MAX`] if none did.
    ///
    /// DIFFERENCE: upstream looks at the group's first Pod that it comes upon.
    pub started: Timestamp,
}

/// The cluster of a simulation.
pub trait Room {
    /// Takes a victim's Pods off their nodes.
    fn take(&mut self, victim: &Victim);
    /// Puts them back.
    fn put_back(&mut self, victim: &Victim);
    /// Looks whether the group fits now.
    fn fits(&mut self) -> impl Future<Output = Fit>;
}

/// Whether a group fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Yes,
    /// It does not, for this reason.
    No(String),
    /// There can be no decision.
    Error(String),
}

/// The priority of a group.
pub fn priority(group: &PodGroup) -> i32 {
    group.spec.priority.unwrap_or(0)
}

/// The group of a Pod, if its Pods go together.
fn whole(pod: &PodInfo, cluster: &Cache) -> Option<Arc<PodGroup>> {
    pod.group()?;
    let group = cluster.groups().of(pod)?;
    (group.spec.disruption_mode.as_deref() == Some("PodGroup")).then_some(group)
}

/// All possible victims of a cluster (upstream's `newDomainForWorkloadPreemption`), in no particular order.
pub fn victims(cluster: &Cache) -> Vec<Victim> {
    let mut all: Vec<Victim> = Vec::new();
    let mut groups: HashMap<String, usize> = HashMap::new();
    for pod in cluster.nodes().iter().flat_map(|node| node.pods.values()) {
        let started = pod.started.unwrap_or(Timestamp::MAX);
        let alone = |priority| Victim { pods: vec![pod.clone()], priority, started };
        let Some(group) = whole(pod, cluster) else {
            all.push(alone(pod.priority()));
            continue;
        };
        let uid = group.metadata.uid.clone().unwrap_or_default();
        match groups.get(&uid).and_then(|at| all.get_mut(*at)) {
            Some(victim) => {
                victim.pods.push(pod.clone());
                victim.started = victim.started.min(started);
            }
            None => {
                groups.insert(uid, all.len());
                all.push(alone(priority(&group)));
            }
        }
    }
    all
}

/// The most important first (upstream's `moreImportantVictim`): higher priority; Pods of groups before others; of single
/// Pods the longer running; of groups the larger, then the longer running.
fn by_importance(a: &Victim, b: &Victim) -> Ordering {
    let grouped = |v: &Victim| v.pods.first().is_some_and(|p| p.group().is_some());
    let size = |v: &Victim| if grouped(v) { v.pods.len() } else { 0 };
    (b.priority.cmp(&a.priority))
        .then_with(|| grouped(b).cmp(&grouped(a)))
        .then_with(|| size(b).cmp(&size(a)))
        .then_with(|| a.started.cmp(&b.started))
}

/// The fewest victims that must go for a group of Pods with this priority, the most important first. All that was taken is
/// put back but these.
///
/// # Errors
/// If that would not help or is not allowed, in upstream's words; or there can be no decision.
pub async fn select(
    (pods, priority): (&[PodInfo], i32),
    mut victims: Vec<Victim>,
    budgets: &[Arc<PodDisruptionBudget>],
    room: &mut impl Room,
) -> Result<Vec<Victim>, Fit> {
    let never = |pod: &PodInfo| pod.spec().and_then(|s| s.preemption_policy.as_deref()) == Some("Never");
    if pods.iter().any(never) {
        return Err(Fit::No("not eligible due to preemptionPolicy=Never.".to_owned()));
    }
    victims.retain(|v| v.priority < priority);
    if victims.is_empty() {
        return Err(Fit::No("No preemption victims found for incoming preemptor".to_owned()));
    }
    victims.iter().for_each(|v| room.take(v));
    match room.fits().await {
        Fit::Yes => {}
        no => {
            victims.iter().for_each(|v| room.put_back(v));
            return Err(no);
        }
    }
    victims.sort_by(by_importance);
    let mut allowed = Allowed::new(budgets);
    let mut broken = |v: &Victim| v.pods.iter().any(|pod| allowed.takes(pod).any(|broken| broken));
    let (protected, free): (Vec<Victim>, Vec<Victim>) = victims.into_iter().partition(|v| broken(v));
    let mut gone = Vec::new();
    for victim in protected.into_iter().chain(free) {
        room.put_back(&victim);
        if room.fits().await != Fit::Yes {
            room.take(&victim);
            gone.push(victim);
        }
    }
    gone.sort_by(by_importance);
    Ok(gone)
}
