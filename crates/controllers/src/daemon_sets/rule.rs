//! The nodes on which a DaemonSet's Pods run.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{PodSpec, Taint, Toleration};
use objects::node_affinity::{Seen, spec_admits};
use objects::taints::{NO_EXECUTE, NO_SCHEDULE, Tolerance};

use super::template::with_tolerations;
use crate::views::NodeView;

/// The judgement about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Verdict {
    /// Whether a Pod is to run there.
    pub(super) run: bool,
    /// Whether a Pod that runs there may stay.
    pub(super) stay: bool,
}

/// The rule of a DaemonSet (upstream's `NodeShouldRunDaemonPod`).
pub(super) struct Rule<'a> {
    /// The template's spec; `None` admits no node.
    spec: Option<&'a PodSpec>,
    tolerations: Vec<Toleration>,
    tolerance: Tolerance,
}

impl<'a> Rule<'a> {
    /// The rule of a DaemonSet, where tolerations cover taints by `tolerance`.
    pub(super) fn of(set: &'a DaemonSet, tolerance: Tolerance) -> Self {
        let spec = set.spec.as_ref().and_then(|s| s.template.spec.as_ref());
        Self { spec, tolerations: spec.map(with_tolerations).unwrap_or_default(), tolerance }
    }

    /// Judges a node.
    pub(super) fn judge(&self, node: &NodeView) -> Verdict {
        let Some(spec) = self.spec else { return Verdict::default() };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let wanted = spec.node_name.as_deref().unwrap_or_default();
        let seen = Seen { name, labels: node.metadata.labels.as_ref() };
        if !(wanted.is_empty() || wanted == name) || !spec_admits(spec, seen) {
            return Verdict::default();
        }
        let bars = |effects: &[&str]| {
            let bad = |t: &&Taint| effects.contains(&t.effect.as_str());
            self.tolerance.uncovered(node.taints().iter().filter(bad), &self.tolerations).is_some()
        };
        Verdict { run: !bars(&[NO_EXECUTE, NO_SCHEDULE]), stay: !bars(&[NO_EXECUTE]) }
    }
}

/// Whether a set is to look at a node that changed: `scheduled` says whether it has a Pod there, `misscheduled` whether
/// it counts Pods where none should be.
///
/// DIFFERENCE: upstream does not look where a Pod only should not be, and so counts it later.
pub(super) fn concerns(verdict: Verdict, scheduled: bool, misscheduled: bool) -> bool {
    if scheduled { !verdict.run || misscheduled } else { verdict.run }
}

/// Whether a node is for the rules as it was: its heartbeats change neither labels nor taints.
pub(super) fn is_alike(old: &NodeView, new: &NodeView) -> bool {
    old.metadata.labels == new.metadata.labels && old.taints() == new.taints()
}

#[cfg(test)]
mod tests {
    use api::{FeatureGates, Gate};
    use client::Cached;
    use serde_json::{Value, json};

    use super::*;
    use crate::daemon_sets::testing::{daemon_set, merged, node};

    fn judge(spec: Value, on: Value) -> (bool, bool) {
        let set = daemon_set(json!({"spec": {"template": {"spec": spec}}}));
        let node = node("test-node", on);
        let Verdict { run, stay } = Rule::of(&set, Tolerance::default()).judge(&node);
        (run, stay)
    }

    fn taints(all: &[(&str, &str)]) -> Value {
        let taint = |(key, effect): &(&str, &str)| json!({"key": key, "effect": effect});
        json!({"spec": {"taints": all.iter().map(taint).collect::<Vec<_>>()}})
    }

    fn labels(key: &str, value: &str) -> Value {
        json!({"metadata": {"labels": {key: value}}})
    }

    fn affinity(list: &str, key: &str, operator: &str, values: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{list: [{"key": key, "operator": operator, "values": values}]}]}}}})
    }

    /// Upstream's cases of `TestNodeShouldRunDaemonPod`, and those of `daemon_controller_test.go` that are about nodes.
    #[test]
    fn nodes() {
        let check = |spec: Value, on: Value, want: (bool, bool)| {
            assert_eq!(judge(spec.clone(), on.clone()), want, "{spec} {on}");
        };
        let (all, none, stays) = ((true, true), (false, false), (false, true));
        check(json!({}), json!({}), all);
        check(json!({"nodeName": "other-node"}), json!({}), none);
        check(json!({"nodeName": "test-node"}), json!({}), all);
        // Resources and ports are the scheduler's business.
        check(
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000"}}}]}),
            json!({}),
            all,
        );
        check(
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 666}]}]}),
            json!({}),
            all,
        );
        check(json!({"nodeSelector": {"type": "test"}}), labels("type", "production"), none);
        check(json!({"nodeSelector": {"type": "production"}}), labels("type", "production"), all);
        let selector =
            merged(json!({"nodeName": "other-node"}), &json!({"nodeSelector": {"type": "production"}}));
        check(selector, labels("type", "production"), none);
        let selector = merged(json!({"nodeName": "test-node"}), &json!({"nodeSelector": {"type": "test"}}));
        check(selector, labels("type", "production"), none);
        let by_label = |operator: &str| affinity("matchExpressions", "type", operator, json!(["test"]));
        check(by_label("NotIn"), labels("type", "test"), none);
        check(by_label("In"), labels("type", "test"), all);
        let by_name = |name: &str| affinity("matchFields", "metadata.name", "In", json!([name]));
        check(by_name("test-node"), json!({}), all);
        check(by_name("other-node"), json!({}), none);
        check(json!({}), json!({"spec": {"unschedulable": true}}), all);
        check(json!({}), taints(&[("node.kubernetes.io/unschedulable", NO_SCHEDULE)]), all);
        check(json!({}), taints(&[("foo", NO_SCHEDULE)]), stays);
        check(json!({}), taints(&[("foo", NO_EXECUTE)]), none);
        check(json!({}), taints(&[("foo", "PreferNoSchedule")]), all);
        check(json!({}), taints(&[("foo", NO_SCHEDULE), ("bar", NO_EXECUTE)]), none);
        let tolerates =
            |effect: &str| json!({"tolerations": [{"key": "foo", "operator": "Exists", "effect": effect}]});
        check(tolerates(NO_SCHEDULE), taints(&[("foo", NO_SCHEDULE)]), all);
        check(tolerates(NO_SCHEDULE), taints(&[("foo", NO_EXECUTE)]), none);
        check(tolerates(NO_EXECUTE), taints(&[("foo", NO_EXECUTE)]), all);
        // The taints of nodes in trouble, which every DaemonSet tolerates.
        for (key, effect) in [
            ("not-ready", NO_EXECUTE),
            ("unreachable", NO_EXECUTE),
            ("disk-pressure", NO_SCHEDULE),
            ("memory-pressure", NO_SCHEDULE),
            ("pid-pressure", NO_SCHEDULE),
        ] {
            check(json!({}), taints(&[(&format!("node.kubernetes.io/{key}"), effect)]), all);
        }
        let network = taints(&[("node.kubernetes.io/network-unavailable", NO_SCHEDULE)]);
        check(json!({}), network.clone(), stays);
        check(json!({"hostNetwork": true}), network, all);
        assert_eq!(
            Rule::of(&DaemonSet::default(), Tolerance::default()).judge(&node("n", json!({}))),
            Verdict::default()
        );
    }

    /// Numbers are compared only where the gate is on.
    #[test]
    fn tolerations_that_compare_numbers() {
        let check = |compares: bool, operator: &str, effect: &str, want: (bool, bool)| {
            let gates = FeatureGates::default().with(Gate::TaintTolerationComparisonOperators, compares);
            let toleration = json!({"key": "sla", "operator": operator, "value": "750", "effect": effect});
            let set = daemon_set(json!({"spec": {"template": {"spec": {"tolerations": [toleration]}}}}));
            let node =
                node("n", json!({"spec": {"taints": [{"key": "sla", "value": "950", "effect": effect}]}}));
            let Verdict { run, stay } = Rule::of(&set, Tolerance::of(gates)).judge(&node);
            assert_eq!((run, stay), want, "{compares} {operator} {effect}");
        };
        check(true, "Gt", NO_SCHEDULE, (true, true));
        check(true, "Lt", NO_SCHEDULE, (false, true));
        check(true, "Gt", NO_EXECUTE, (true, true));
        check(true, "Lt", NO_EXECUTE, (false, false));
        check(false, "Gt", NO_SCHEDULE, (false, true));
        check(false, "Gt", NO_EXECUTE, (false, false));
    }

    /// Upstream's cases of `TestUpdateNode` and `TestAddNode`.
    #[test]
    fn nodes_that_concern_a_set() {
        let check = |run: bool, stay: bool, scheduled: bool, misscheduled: bool, want: bool| {
            assert_eq!(concerns(Verdict { run, stay }, scheduled, misscheduled), want);
        };
        check(true, true, false, false, true);
        check(false, false, false, false, false);
        check(true, true, true, false, false);
        check(true, true, true, true, true);
        check(false, false, true, false, true);
        check(false, true, true, false, true);
        check(false, true, false, true, false);
    }

    /// Upstream's cases of `TestShouldIgnoreNodeUpdate`.
    #[test]
    fn changes_that_matter() {
        let check = |old: Value, new: Value, want: bool| {
            assert_eq!(is_alike(&node("n", old.clone()), &node("n", new.clone())), want, "{old} {new}");
        };
        check(json!({}), json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), true);
        check(
            json!({"metadata": {"resourceVersion": "1"}}),
            json!({"metadata": {"resourceVersion": "2"}}),
            true,
        );
        check(json!({}), json!({"spec": {"unschedulable": true}}), true);
        check(labels("a", "b"), labels("a", "b"), true);
        check(labels("a", "b"), labels("a", "c"), false);
        check(json!({}), taints(&[("a", NO_SCHEDULE)]), false);
        check(taints(&[]), json!({}), true);
        assert_eq!(node("n", json!({})).name(), "n");
    }
}
