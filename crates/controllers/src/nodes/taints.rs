//! Taints and tolerations, and the writes of a node's taints.

use crate::views::NodeView;
use api::Status;
use client::{Client, Patch, resource_of};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub(super) use objects::taints::{NO_EXECUTE, NO_SCHEDULE};
use serde_json::json;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The conditions with the status that taints, and the taint's key.
const CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// A taint's key and effect.
pub(super) type Mark = (&'static str, &'static str);

/// A change of a node's taints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) add: Vec<Mark>,
    pub(super) remove: Vec<Mark>,
}

impl Swap {
    pub(super) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

pub(super) fn has(node: &NodeView, mark: Mark) -> bool {
    node.taints().iter().any(|t| (t.key.as_str(), t.effect.as_str()) == mark)
}

/// Returns the difference between a node's NoSchedule taints and those that its conditions and `spec.unschedulable`
/// demand.
pub(super) fn no_schedule(node: &NodeView) -> Swap {
    let conditions = || node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let mut swap = Swap::default();
    let mut want = |key: &'static str, wanted: bool| {
        let mark = (key, NO_SCHEDULE);
        match (wanted, has(node, mark)) {
            (true, false) => swap.add.push(mark),
            (false, true) => swap.remove.push(mark),
            _ => {}
        }
    };
    for (condition, status, key) in CONDITIONS {
        want(key, conditions().any(|c| c.type_ == condition && c.status == status));
    }
    want(UNSCHEDULABLE, node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true));
    swap
}

/// Returns the change to the NoExecute taints that a node's readiness demands: `not-ready` or `unreachable`, never
/// both.
pub(super) fn no_execute(node: &NodeView, ready: &str) -> Swap {
    let wanted = match ready {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    };
    let mut swap = Swap::default();
    for key in [NOT_READY, UNREACHABLE] {
        match (wanted == Some(key), has(node, (key, NO_EXECUTE))) {
            (true, false) => swap.add.push((key, NO_EXECUTE)),
            (false, true) => swap.remove.push((key, NO_EXECUTE)),
            _ => {}
        }
    }
    swap
}

/// Returns a node's taints after a change; `None` if the change has no effect.
fn swapped(node: &NodeView, swap: &Swap, now: Timestamp) -> Option<Vec<Taint>> {
    let mut taints = node.taints().to_vec();
    let before = taints.clone();
    taints.retain(|t| !swap.remove.contains(&(t.key.as_str(), t.effect.as_str())));
    for (key, effect) in &swap.add {
        if !taints.iter().any(|t| t.key == *key && t.effect == *effect) {
            taints.push(Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    (taints != before).then_some(taints)
}

/// Writes a change of a node's taints, on the node's newest state.
pub(super) async fn write(client: &Client, name: &str, swap: &Swap, now: Timestamp) -> Result<(), Status> {
    const TRIES: usize = 5;
    let api = client.resource::<NodeView>(resource_of::<Node>(), "");
    let mut last = Ok(());
    for _ in 0..TRIES {
        let node = match api.get(name).await {
            Err(e) if e.is_not_found() => return Ok(()),
            other => other?,
        };
        let Some(taints) = swapped(&node, swap, now) else { return Ok(()) };
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        });
        match api.patch(name, &Patch::Merge(patch)).await {
            Err(e) if e.is_conflict() => last = Err(e),
            other => return other.map(drop),
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: &[(&str, &str)], conditions: &[(&str, &str)], unschedulable: bool) -> NodeView {
        let taints: Vec<_> = taints.iter().map(|(k, e)| json!({"key": k, "effect": e})).collect();
        let conditions: Vec<_> = conditions.iter().map(|(t, s)| json!({"type": t, "status": s})).collect();
        serde_json::from_value(json!({
            "spec": {"taints": taints, "unschedulable": unschedulable}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn no_schedule_follows_conditions() {
        let check = |node: NodeView, add: &[&str], remove: &[&str]| {
            let swap = no_schedule(&node);
            let keys =
                |marks: &[Mark]| marks.iter().map(|m| m.0.rsplit('/').next().unwrap()).collect::<Vec<_>>();
            assert_eq!((keys(&swap.add), keys(&swap.remove)), (add.to_vec(), remove.to_vec()));
        };
        check(node(&[], &[("Ready", "True")], false), &[], &[]);
        check(
            node(&[], &[("Ready", "False"), ("DiskPressure", "True")], false),
            &["not-ready", "disk-pressure"],
            &[],
        );
        check(
            node(&[(NOT_READY, NO_SCHEDULE)], &[("Ready", "Unknown")], false),
            &["unreachable"],
            &["not-ready"],
        );
        check(node(&[(UNSCHEDULABLE, NO_SCHEDULE)], &[], false), &[], &["unschedulable"]);
        check(
            node(&[("mine", NO_SCHEDULE), (NOT_READY, NO_EXECUTE)], &[("Ready", "True")], true),
            &["unschedulable"],
            &[],
        );
    }

    #[test]
    fn no_execute_follows_readiness() {
        let check = |taints: &[(&str, &str)], ready: &str, add: usize, remove: usize| {
            let swap = no_execute(&node(taints, &[], false), ready);
            assert_eq!((swap.add.len(), swap.remove.len()), (add, remove), "{taints:?} {ready}");
        };
        check(&[], "True", 0, 0);
        check(&[], "False", 1, 0);
        check(&[(NOT_READY, NO_EXECUTE)], "Unknown", 1, 1);
        check(&[(UNREACHABLE, NO_EXECUTE)], "True", 0, 1);
        check(&[(UNREACHABLE, NO_SCHEDULE)], "True", 0, 0);
    }

    /// Upstream's cases of `TestTaintsNodeByCondition`: conditions, and the one taint.
    #[test]
    fn taints_by_condition() {
        let check = |conditions: &[(&str, &str)], want: &str| {
            let node = node(&[], conditions, false);
            let swap = no_schedule(&node);
            assert_eq!(swap, Swap { add: swap.add.clone(), remove: Vec::new() });
            let taints = swapped(&node, &swap, Timestamp::UNIX_EPOCH).unwrap();
            let shown: Vec<_> = taints.iter().map(|t| (t.key.as_str(), t.effect.as_str())).collect();
            assert_eq!(shown, [(want, NO_SCHEDULE)], "{conditions:?}");
        };
        let network = "node.kubernetes.io/network-unavailable";
        check(&[("Ready", "True"), ("NetworkUnavailable", "True")], network);
        check(&[("Ready", "False")], NOT_READY);
        check(&[("Ready", "Unknown")], UNREACHABLE);
    }

    /// Upstream's 6 cases of `TestRemoveTaintOffNode` and 6 of its 8 of `TestAddOrUpdateTaintOnNode`: a node's taints by
    /// their keys, those to add and to remove, and what is written. In the two others the node has changed or is gone, which
    /// `write` sees when it reads the node anew.
    #[test]
    fn taints_come_and_go() {
        let marks = |keys: &[&'static str]| keys.iter().map(|key| (*key, NO_EXECUTE)).collect::<Vec<_>>();
        let check =
            |there: &[&'static str], add: &[&'static str], remove: &[&'static str], want: Option<&[&str]>| {
                let swap = Swap { add: marks(add), remove: marks(remove) };
                let after = swapped(&node(&marks(there), &[], false), &swap, Timestamp::UNIX_EPOCH);
                let keys = after.as_ref().map(|all| all.iter().map(|t| t.key.as_str()).collect::<Vec<_>>());
                assert_eq!(keys.as_deref(), want, "{there:?} {add:?} {remove:?}");
            };
        let four = ["key1", "key2", "key3", "key4"];
        check(&four[..2], &[], &["key2"], Some(&["key1"]));
        check(&four, &[], &["key2", "key3"], Some(&["key1", "key4"]));
        check(&four[..2], &[], &["key4"], None);
        check(&[], &[], &["key2"], None);
        check(&[], &[], &[], None);
        check(&four[..2], &[], &[], None);
        check(&["key1"], &["key2"], &[], Some(&["key1", "key2"]));
        check(&four[..2], &["key3", "key4"], &[], Some(&four));
        check(&four[..2], &["key2"], &[], None);
        check(&[], &["key3"], &[], Some(&["key3"]));
    }

    /// Upstream's cases of `TestApplyNoExecuteTaints`, `TestApplyNoExecuteTaintsToUnreachableNode` and
    /// `TestSwapUnreachableNotReadyTaints`: a node's readiness (none: the condition is gone), one after the other, and its
    /// taints after each.
    #[test]
    fn taints_by_readiness() {
        let check = |steps: &[(&str, &[&str])]| {
            let mut now: Vec<(String, String)> = Vec::new();
            for (ready, want) in steps {
                let before: Vec<_> = now.iter().map(|(k, e)| (k.as_str(), e.as_str())).collect();
                let node = node(&before, &[], false);
                if let Some(after) = swapped(&node, &no_execute(&node, ready), Timestamp::UNIX_EPOCH) {
                    now = after.into_iter().map(|t| (t.key, t.effect)).collect();
                }
                let keys: Vec<_> = now.iter().map(|(key, _)| key.as_str()).collect();
                assert_eq!(keys, *want, "{steps:?} {ready}");
                assert!(now.iter().all(|(_, effect)| effect == NO_EXECUTE));
            }
        };
        check(&[("Unknown", &[UNREACHABLE])]);
        check(&[("False", &[NOT_READY]), ("True", &[])]);
        check(&[("True", &[]), ("", &[])]);
        check(&[("True", &[]), ("Unknown", &[UNREACHABLE]), ("True", &[])]);
        check(&[("Unknown", &[UNREACHABLE]), ("False", &[NOT_READY])]);
    }
}
