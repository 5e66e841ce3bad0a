//! Decides which Pods of a DaemonSet are made and deleted. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::Cached;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus, RollingUpdateDaemonSet};

use super::rule::Verdict;
use super::template;
use crate::common::retry;
use crate::common::share::scaled;
use crate::views::{NodeView, PodView};

/// The greatest number of Pods that one sync makes, and deletes.
const BURST: usize = 250;

/// Pods by the nodes for which they are.
pub(super) type Placed = BTreeMap<String, Vec<Arc<PodView>>>;

/// A DaemonSet with all nodes and its Pods.
pub(super) struct Snapshot<'a> {
    pub(super) set: &'a DaemonSet,
    /// The hash of the present template.
    pub(super) hash: &'a str,
    pub(super) nodes: &'a [(Arc<NodeView>, Verdict)],
    /// The set's Pods ([`place`]).
    pub(super) pods: Placed,
    /// The nodes on which Pods failed a short time ago, and the time until the next one may be deleted.
    pub(super) held: &'a HashMap<String, Duration>,
    pub(super) now: Timestamp,
}

/// A Pod that has ended, and is replaced.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) node: String,
    pub(super) pod: Arc<PodView>,
}

/// The work of one sync.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    /// The nodes on which Pods are made.
    pub(super) create: Vec<String>,
    /// The Pods that are deleted.
    pub(super) delete: Vec<Arc<PodView>>,
    /// Those of them that have ended.
    pub(super) ended: Vec<Ended>,
    /// The time until a Pod that is held back may be deleted.
    pub(super) again: Option<Duration>,
}

/// Places Pods on the nodes for which they are. Those that end and have ended are left out, and those for no node.
pub(super) fn place(pods: impl IntoIterator<Item = Arc<PodView>>) -> Placed {
    let mut placed = Placed::new();
    for pod in pods {
        let gone = pod.is_terminal() && pod.is_deleting();
        if !gone && !pod.target_node().is_empty() {
            placed.entry(pod.target_node().to_owned()).or_default().push(pod);
        }
    }
    for all in placed.values_mut() {
        // Bound ones first, then by age.
        all.sort_by_cached_key(|p| (p.node.is_empty(), p.created, p.meta.name.clone()));
    }
    placed
}

fn rolling(set: &DaemonSet) -> Option<&RollingUpdateDaemonSet> {
    let strategy = set.spec.as_ref()?.update_strategy.as_ref()?;
    strategy.rolling_update.as_ref().filter(|_| is_rolling(set))
}

fn is_rolling(set: &DaemonSet) -> bool {
    let strategy = set.spec.as_ref().and_then(|s| s.update_strategy.as_ref());
    strategy.and_then(|s| s.type_.as_deref()) == Some("RollingUpdate")
}

pub(super) fn min_ready(set: &DaemonSet) -> i32 {
    set.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
}

/// Returns the number of Pods beside old ones, of so many (upstream's `SurgeCount`).
fn surge(set: &DaemonSet, of: i64) -> Result<i64, String> {
    rolling(set).and_then(|r| r.max_surge.as_ref()).map_or(Ok(0), |value| scaled(value, of, true))
}

/// Returns the number of Pods that may be missing, of so many (upstream's `UnavailableCount`).
fn unavailable(set: &DaemonSet, of: i64) -> Result<i64, String> {
    rolling(set).and_then(|r| r.max_unavailable.as_ref()).map_or(Ok(0), |value| scaled(value, of, true))
}

/// The bounds of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    surge: i64,
    unavailable: i64,
    /// The number of nodes that want a Pod.
    desired: i64,
}

/// Decides. Updates wait until nothing else is to be done.
///
/// # Errors
/// The settings of the update are no numbers.
pub(super) fn plan(s: &Snapshot<'_>) -> Result<Plan, Status> {
    let mut plan = manage(s);
    if plan.create.is_empty() && plan.delete.is_empty() {
        let update = update(s)?;
        plan.create = update.create;
        plan.delete = update.delete;
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    let deleted = |e: &Ended| plan.delete.iter().any(|p| p.uid() == e.pod.uid());
    plan.ended.retain(deleted);
    Ok(plan)
}

/// Decides on the Pods of each node, apart from updates.
pub(super) fn manage(s: &Snapshot<'_>) -> Plan {
    let mut plan = Plan::default();
    for (node, verdict) in s.nodes {
        s.manage(node.name(), *verdict, &mut plan);
    }
    // Pods that wait for a node that is gone.
    let gone = s.pods.iter().filter(|(node, _)| s.verdict(node).is_none());
    plan.delete.extend(gone.flat_map(|(_, pods)| pods).filter(|p| p.node.is_empty()).cloned());
    plan
}

/// Decides on the Pods that are replaced by those of another template.
pub(super) fn update(s: &Snapshot<'_>) -> Result<Plan, Status> {
    let mut plan = Plan::default();
    if is_rolling(s.set) {
        let bounds = s.bounds().map_err(retry)?;
        if bounds.surge == 0 { s.replace(bounds, &mut plan) } else { s.surge(bounds, &mut plan) }
    }
    Ok(plan)
}

impl Snapshot<'_> {
    fn on(&self, node: &str) -> &[Arc<PodView>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the verdict about a node, if there is such a node. The nodes are sorted.
    fn verdict(&self, node: &str) -> Option<Verdict> {
        let found = self.nodes.binary_search_by(|(n, _)| n.name().cmp(node));
        found.ok().map(|i| self.nodes[i].1)
    }

    fn is_available(&self, pod: &PodView) -> bool {
        pod.is_available(min_ready(self.set), self.now)
    }

    fn is_new(&self, pod: &PodView) -> bool {
        template::is_updated(pod, self.hash, template::generation(self.set))
    }

    /// Decides on the Pods of a node, apart from updates (upstream's `podsShouldBeOnNode`).
    fn manage(&self, node: &str, verdict: Verdict, plan: &mut Plan) {
        let pods = self.on(node);
        if verdict.run && pods.is_empty() {
            plan.create.push(node.to_owned());
            return;
        }
        let live = pods.iter().filter(|p| !p.is_deleting());
        if !verdict.stay {
            plan.delete.extend(live.cloned());
            return;
        }
        let mut running = Vec::new();
        for pod in live {
            match pod.phase.as_str() {
                "Failed" if self.held.contains_key(node) => {
                    plan.again = plan.again.into_iter().chain(self.held.get(node).copied()).min();
                }
                "Failed" | "Succeeded" => {
                    plan.ended.push(Ended { node: node.to_owned(), pod: pod.clone() });
                    plan.delete.push(pod.clone());
                }
                _ => running.push(pod.clone()),
            }
        }
        let surges = surge(self.set, 1).is_ok_and(|n| n > 0);
        match running.as_slice() {
            [] if surges && verdict.run => plan.create.push(node.to_owned()),
            [] | [_] => {}
            [_, rest @ ..] if !surges => plan.delete.extend(rest.iter().cloned()),
            all => self.thin(all, plan),
        }
    }

    /// Leaves one new and one old Pod on a node; the old one goes if it is broken, or if the new one is available.
    fn thin(&self, pods: &[Arc<PodView>], plan: &mut Plan) {
        let is_new =
            |p: &&Arc<PodView>| p.labels.get(crate::common::revisions::POD_REVISION) == Some(self.hash);
        let (new, old) = (pods.iter().find(is_new), pods.iter().find(|p| !is_new(p)));
        let kept = |p: &&Arc<PodView>| [new, old].into_iter().flatten().any(|k| k.uid() == p.uid());
        plan.delete.extend(pods.iter().filter(|p| !kept(p)).cloned());
        if let (Some(new), Some(old)) = (new, old)
            && (!old.is_ready() || self.is_available(new))
        {
            plan.delete.push(old.clone());
        }
    }

    fn bounds(&self) -> Result<Bounds, String> {
        let desired = self.nodes.iter().filter(|(_, v)| v.run).count();
        let desired = i64::try_from(desired).unwrap_or(i64::MAX);
        let unavailable =
            unavailable(self.set, desired).map_err(|e| format!("invalid value for MaxUnavailable: {e}"))?;
        let surge = surge(self.set, desired).map_err(|e| format!("invalid value for MaxSurge: {e}"))?;
        // An update without either would never begin.
        let unavailable = if desired > 0 && unavailable == 0 && surge == 0 { 1 } else { unavailable };
        Ok(Bounds { surge, unavailable, desired })
    }

    /// Returns the nodes that have Pods or want one, with the new and the old Pod of each; `Err` where there are more
    /// than one of either.
    fn pairs(&self) -> impl Iterator<Item = (&str, Result<Pair<'_>, ()>)> {
        let wanting = self.nodes.iter().filter(|(node, v)| v.run && self.on(node.name()).is_empty());
        let empty = wanting.map(|(node, _)| (node.name(), Ok((None, None))));
        self.pods.iter().map(|(node, pods)| (node.as_str(), self.pair(pods))).chain(empty)
    }

    fn pair<'p>(&self, pods: &'p [Arc<PodView>]) -> Result<Pair<'p>, ()> {
        let (mut new, mut old) = (None, None);
        for pod in pods.iter().filter(|p| !p.is_deleting()) {
            let place = if self.is_new(pod) { &mut new } else { &mut old };
            if place.replace(pod).is_some() {
                return Err(());
            }
        }
        Ok((new, old))
    }

    /// Deletes old Pods, those first that are broken, as long as not too many are missing.
    fn replace(&self, bounds: Bounds, plan: &mut Plan) {
        let (mut missing, mut broken, mut whole) = (0, Vec::new(), Vec::new());
        for (_, pair) in self.pairs() {
            match pair {
                Ok((Some(new), None)) if self.is_available(new) => {}
                Ok((None, Some(old))) if self.is_available(old) => whole.push(old.clone()),
                Ok((None, Some(old))) => {
                    broken.push(old.clone());
                    missing += 1;
                }
                _ => missing += 1,
            }
        }
        plan.delete.append(&mut broken);
        let room = usize::try_from(bounds.unavailable - missing).unwrap_or(0);
        plan.delete.extend(whole.into_iter().take(room));
    }

    /// Makes new Pods beside old ones, and deletes the old ones of new Pods that are available.
    fn surge(&self, bounds: Bounds, plan: &mut Plan) {
        let (mut surging, mut available) = (0, 0);
        let (mut candidates, mut leaving) = (Vec::new(), Vec::new());
        for (node, pair) in self.pairs() {
            let Ok((new, old)) = pair else {
                surging += 1;
                continue;
            };
            available += i64::from(old.or(new).is_some_and(|p| self.is_available(p)));
            match (new, old) {
                (_, None) => {}
                (Some(new), Some(_)) if !self.is_available(new) => surging += 1,
                (Some(_), Some(old)) => plan.delete.push(old.clone()),
                (None, Some(old)) => match (self.verdict(node), self.is_available(old)) {
                    // DIFFERENCE: upstream does nothing at all as long as there are Pods of a node that is gone.
                    (None, _) => {}
                    (Some(Verdict { run: false, .. }), false) => plan.delete.push(old.clone()),
                    (Some(Verdict { run: false, .. }), true) => leaving.push(old.clone()),
                    (Some(_), false) => plan.create.push(node.to_owned()),
                    (Some(_), true) => candidates.push(node.to_owned()),
                },
            }
        }
        // Pods on nodes that want none any more go only as far as enough others are available.
        let spare = usize::try_from(available - bounds.desired).unwrap_or(0);
        plan.delete.extend(leaving.into_iter().take(spare));
        let room = usize::try_from(bounds.surge - surging).unwrap_or(0);
        plan.create.extend(candidates.into_iter().take(room));
    }
}

/// The new and the old Pod of a node.
type Pair<'a> = (Option<&'a Arc<PodView>>, Option<&'a Arc<PodView>>);

/// Counts the Pods.
pub(super) fn status(s: &Snapshot<'_>) -> DaemonSetStatus {
    let mut status = s.set.status.clone().unwrap_or_default();
    let (mut desired, mut current, mut wrong, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
    for (node, verdict) in s.nodes {
        // The oldest one counts.
        let pod = s.on(node.name()).first();
        if !verdict.run {
            wrong += i32::from(pod.is_some());
            continue;
        }
        desired += 1;
        let Some(pod) = pod else { continue };
        current += 1;
        ready += i32::from(pod.is_ready());
        available += i32::from(s.is_available(pod));
        updated += i32::from(s.is_new(pod));
    }
    status.desired_number_scheduled = desired;
    status.current_number_scheduled = current;
    status.number_misscheduled = wrong;
    status.number_ready = ready;
    status.updated_number_scheduled = Some(updated);
    status.number_available = Some(available);
    status.number_unavailable = Some(desired - available);
    status
}

/// Whether two statuses count differently.
pub(super) fn differs(told: &DaemonSetStatus, wanted: &DaemonSetStatus) -> bool {
    let counts = |s: &DaemonSetStatus| {
        let of = |n: Option<i32>| n.unwrap_or(0);
        [
            s.desired_number_scheduled,
            s.current_number_scheduled,
            s.number_misscheduled,
            s.number_ready,
            of(s.updated_number_scheduled),
            of(s.number_available),
            of(s.number_unavailable),
        ]
    };
    counts(told) != counts(wanted)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
