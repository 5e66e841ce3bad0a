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
        for score in scores {
            *score = *score * MAX_SCORE / most;
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cache::Cache;
    use crate::framework::placement::Placement;
    use crate::framework::state::State;
    use crate::pod::PodInfo;

    fn pod(uid: &str) -> PodInfo {
        let pod = json!({"metadata": {"namespace": "default", "name": uid, "uid": uid},
            "spec": {"containers": [], "schedulingGroup": {"podGroupName": "pg1"}}});
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    /// The four cases of upstream's `TestScorePlacement`.
    #[test]
    fn upstreams_scores() {
        for (assigned, assumed, expected) in
            [(&["p2", "p3"][..], &["p1"][..], 5), (&["p1"], &[], 3), (&[], &["p1"], 3), (&[], &[], 2)]
        {
            let (mut cluster, pods) = (Cache::default(), [pod("p-new")]);
            for uid in assigned {
                cluster.set_pod(pod(uid), "node1");
            }
            for uid in assumed {
                cluster.assume(pod(uid), "node1");
            }
            let proposed = ["node1", "node2"].map(|node| (pod(&format!("proposed-{node}")), node.to_owned()));
            for (pod, _) in &proposed {
                cluster.groups().waits(pod);
            }
            let cycle = GroupCycle { pods: &pods, group: None, cluster: &cluster, state: State::default() };
            let of = Assignments { placement: &Placement::default(), proposed: &proposed };
            assert_eq!(Count.score(&cycle, &of), Ok(expected), "{assigned:?} {assumed:?}");
        }
    }

    /// The five cases of upstream's `TestNormalizePlacementScore`.
    #[test]
    fn upstreams_normalized_scores() {
        let why = "no pods from pod group are assigned to any of the candidate placements".to_owned();
        for (scores, expected) in [
            (&[10, 50, 110][..], Ok(&[9, 45, 100][..])),
            (&[50, 50], Ok(&[100, 100])),
            (&[50], Ok(&[100])),
            (&[11, 100, 101, 102], Ok(&[10, 98, 99, 100])),
            (&[0, 0], Err(why)),
        ] {
            let (cluster, mut got) = (Cache::default(), scores.to_vec());
            let cycle = GroupCycle { pods: &[], group: None, cluster: &cluster, state: State::default() };
            let answer = Count.normalize(&cycle, &mut got);
            assert_eq!(answer.map(|()| got.as_slice()), expected, "{scores:?}");
        }
    }
}
