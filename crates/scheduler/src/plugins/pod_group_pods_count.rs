//! PodGroupPodsCount: of several placements the one is best in which most Pods of the group are (upstream's
//! `plugins/podgrouppodscount`). It is one of the default plugins where the gate TopologyAwareWorkloadScheduling is on.

use std::sync::Arc;

use crate::events::Events;
use crate::framework::placement::{Assignments, GroupCycle};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{MAX_SCORE, PlacementScore};
use crate::groups::Members;

/// The plugin's name.
pub const NAME: &str = "PodGroupPodsCount";

struct Count;

impl PlacementScore for Count {
    /// Pods that have nodes count, too, so that one Pod more makes little difference to a large group.
    fn score(&self, cycle: &GroupCycle<'_>, of: &Assignments<'_>) -> Result<i64, String> {
        let one = cycle.pods.first();
        let placed = one.map_or(0, |pod| cycle.cluster.groups().members(pod, Members::count_placed));
        Ok((placed + of.proposed.len()) as i64)
    }
    fn normalize(&self, _cycle: &GroupCycle<'_>, scores: &mut [i64]) -> Result<(), String> {
        let most = scores.iter().copied().max().unwrap_or(0);
        if most <= 0 {
            let why = "no pods from pod group are assigned to any of the candidate placements";
            return Err(why.to_owned());
        }
        scores.iter_mut().for_each(|score| *score = *score * MAX_SCORE / most);
        Ok(())
    }
    fn normalizes(&self) -> bool {
        true
    }
}

pub(super) fn plugin() -> Plugin {
    let points = Points { placement_score: Some(Arc::new(Count)), ..Points::default() };
    Plugin::new(NAME, points).lifted_by(Events::NONE)
}
