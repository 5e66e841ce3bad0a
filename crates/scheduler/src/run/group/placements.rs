//! A try of a group in several parts of the cluster (upstream's `podGroupSchedulingPlacementAlgorithm`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::Scheduler;
use super::super::pods::{panicked, scheduler_of};
use super::{End, Outcome, Tried, UNSCHEDULABLE};
use crate::cycle::Part;
use crate::framework::placement::{Assignments, GroupCycle, Placement, Within};
use crate::framework::points::MAX_SCORE;
use crate::framework::profile::Profile;
use crate::framework::state::State;
use crate::framework::times::{Code, Point, Times};
use crate::pod::PodInfo;

impl Scheduler {
    /// Looks for nodes for a group by its rules. `only_looks`: nothing is to be found out about Pods that no node can take.
    pub(super) async fn try_all(&mut self, pods: &[PodInfo], only_looks: bool) -> Tried {
        if !self.by_topology {
            return self.try_in(pods, Part { within: None, only_looks }).await;
        }
        let (placements, state) = match self.placements(pods) {
            Ok(found) => found,
            Err(outcome) => return Tried::nobody(outcome),
        };
        let (all, mut first, mut fitting) = (self.cache.nodes().len(), None, Vec::new());
        let count = placements.len();
        for placement in placements {
            // Many placements take long; others have their turn meanwhile, and the scheduler can be stopped.
            if self.shutdown.run(tokio::task::yield_now()).await.is_none() {
                return Tried::nobody(Outcome::Error("the scheduler ends".to_owned()));
            }
            let within = match Within::new(&placement, all) {
                Ok(within) => within,
                Err(node) => {
                    let why = format!("node {node} in placement is not present in snapshot");
                    let why = format!("failed to assume pod group placement: {why}");
                    return Tried::nobody(Outcome::Error(why));
                }
            };
            let tried = self.try_in(pods, Part { within: within.as_ref(), only_looks }).await;
            match tried.outcome {
                Outcome::Error(_) => return tried,
                Outcome::Scheduled | Outcome::Refused { waits: true, .. } => fitting.push((placement, tried)),
                Outcome::Refused { .. } => {
                    first.get_or_insert(tried);
                }
            }
        }
        let best = match fitting.len() {
            0 => {
                let why =
                    format!("0/{count} placements are available, first placement status: {UNSCHEDULABLE}");
                let ends = first.map(|tried| tried.ends).unwrap_or_default();
                return Tried { ends, outcome: Outcome::refused(why) };
            }
            1 => 0,
            _ => match self.best(pods, &fitting, state) {
                Ok(best) => best,
                Err(why) => return Tried::nobody(Outcome::Error(why)),
            },
        };
        fitting.swap_remove(best).1
    }

    /// The placements for a group, and the notes of the plugin that made them.
    fn placements(&self, pods: &[PodInfo]) -> Result<(Vec<Placement>, State), Outcome> {
        let parent = Placement::all(&self.cache);
        self.with_group(pods, State::default(), |profile, cycle, times| {
            let made = match &profile.placement_generate {
                None => Ok(vec![parent]),
                Some(at) => {
                    let ask = || at.plugin.generate(cycle, &parent);
                    times.plugin(Point::PlacementGenerate, at.name, Code::of_result, ask)
                }
            };
            let code = match &made {
                Ok(none) if none.is_empty() => Code::Unschedulable,
                made => Code::of_result(made),
            };
            times.ended(Point::PlacementGenerate, code);
            match made {
                Ok(none) if none.is_empty() => Err(Outcome::refused("no feasible placements found")),
                Ok(placements) => Ok((placements, std::mem::take(&mut cycle.state))),
                Err(rejection) => Err(Outcome::rejected(&rejection)),
            }
        })
        .unwrap_or_else(|why| Err(Outcome::Error(why)))
    }

    /// The best of placements in which the group fits; of equals, any.
    fn best(&self, pods: &[PodInfo], fitting: &[(Placement, Tried)], state: State) -> Result<usize, String> {
        let proposed: Vec<Vec<(PodInfo, String)>> =
            fitting.iter().map(|(_, tried)| proposed(pods, &tried.ends)).collect();
        let assigned = fitting.iter().zip(&proposed);
        let assigned: Vec<Assignments<'_>> =
            assigned.map(|((placement, _), proposed)| Assignments { placement, proposed }).collect();
        let scores = self.with_group(pods, state, |profile, cycle, times| {
            let scores = scores(profile, cycle, &assigned, times);
            times.ended(Point::PlacementScore, Code::of_try(&scores));
            scores
        })??;
        let most = scores.iter().copied().max().unwrap_or(0);
        let equals: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] == most).collect();
        Ok(fastrand::choice(equals).unwrap_or(0))
    }

    /// Asks plugins about a group. A plugin that panics costs the group its turn, and nobody else.
    fn with_group<T>(
        &self,
        pods: &[PodInfo],
        state: State,
        ask: impl FnOnce(&Profile, &mut GroupCycle<'_>, &mut Times) -> T,
    ) -> Result<T, String> {
        let Some(one) = pods.first() else { return Err("the group has no pods".to_owned()) };
        let name = scheduler_of(one);
        let Some(profile) = self.profiles.get(name) else {
            return Err(format!("profile not found for scheduler name {name:?}"));
        };
        let group = self.cache.groups().of(one);
        let mut cycle = GroupCycle { pods, group, cluster: &self.cache, state };
        let mut times = Times::default();
        // As upstream has it: turns of groups are few.
        times.begin(true);
        let answer = catch_unwind(AssertUnwindSafe(|| ask(profile, &mut cycle, &mut times)));
        self.metrics.took(name, &times);
        answer.map_err(|panic| panicked(one, &*panic))
    }
}

/// The Pods that would have nodes, with these.
fn proposed(pods: &[PodInfo], ends: &[End]) -> Vec<(PodInfo, String)> {
    let pairs = pods.iter().zip(ends).filter_map(|(pod, end)| match end {
        End::Node { node, .. } => Some((pod.clone(), node.clone())),
        End::Room { candidate, .. } => Some((pod.clone(), candidate.node.clone())),
        End::Refused(..) | End::Error(_) => None,
    });
    pairs.collect()
}

/// The weighted sum of the scores of each placement (upstream's `RunPlacementScorePlugins`).
pub(super) fn scores(
    profile: &Profile,
    cycle: &GroupCycle<'_>,
    assigned: &[Assignments<'_>],
    times: &mut Times,
) -> Result<Vec<i64>, String> {
    let mut columns = Vec::with_capacity(profile.placement_score.len());
    for at in &profile.placement_score {
        let failed =
            |e: String| format!("running PlacementScore plugins: plugin {:?} failed with: {e}", at.name);
        let column = assigned.iter().map(|of| {
            let ask = || at.plugin.score(cycle, of);
            times.plugin(Point::PlacementScore, at.name, Code::of_try, ask).map_err(failed)
        });
        columns.push(column.collect::<Result<Vec<i64>, String>>()?);
    }
    let mut total = vec![0; assigned.len()];
    for (at, mut column) in profile.placement_score.iter().zip(columns) {
        if at.plugin.normalizes() {
            let ask = || at.plugin.normalize(cycle, &mut column);
            let point = Point::PlacementScoreExtensionNormalize;
            times.plugin(point, at.name, Code::of_try, ask).map_err(|e| {
                format!(
                    "running NormalizePlacementScore on PlacementScore plugins: plugin {:?} failed with: {e}",
                    at.name
                )
            })?;
        }
        if let Some(wrong) = column.iter().find(|s| !(0..=MAX_SCORE).contains(*s)) {
            return Err(format!(
                "applying score defaultWeights on PlacementScore plugins: plugin {:?} returns an invalid score {wrong}, it should in the range of [0, {MAX_SCORE}] after normalizing",
                at.name
            ));
        }
        for (sum, score) in total.iter_mut().zip(column) {
            *sum += at.weight * score;
        }
    }
    Ok(total)
}
