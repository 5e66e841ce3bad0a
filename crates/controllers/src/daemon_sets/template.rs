//! The Pods that a DaemonSet makes (upstream's `pkg/controller/daemon/util`).

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PodTemplateSpec, Toleration,
};
use objects::taints::{NO_EXECUTE, NO_SCHEDULE};

use crate::common::revisions::POD_REVISION;
use crate::views::PodView;

/// The label with the generation of the template, which older versions had instead of the hash.
const POD_GENERATION: &str = "pod-template-generation";
/// The annotation of a DaemonSet with the generation of its template.
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// The taints of nodes in trouble on which daemons run all the same.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];
/// The taint on which only daemons in the node's network run.
const NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE);

/// Returns the tolerations of a template with those that every daemon has.
pub(super) fn with_tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let network = (spec.host_network == Some(true)).then_some(NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let own = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let is_same = |t: &Toleration| Toleration { toleration_seconds: None, ..t.clone() } == own;
        match all.iter_mut().find(|t| is_same(t)) {
            Some(there) => *there = own,
            None => all.push(own),
        }
    }
    all
}

/// Returns the generation of a DaemonSet's template, if it tells.
pub(super) fn generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(GENERATION)?.parse().ok()
}

/// Whether a Pod is of the present template, by its hash or by its generation.
pub(super) fn is_updated(pod: &PodView, hash: &str, generation: Option<i64>) -> bool {
    let is = |label: &str, value: &str| pod.labels.get(label) == Some(value);
    (!hash.is_empty() && is(POD_REVISION, hash))
        || generation.is_some_and(|n| is(POD_GENERATION, &n.to_string()))
}

/// Returns the template of a DaemonSet's Pods, without a node.
pub(super) fn template(set: &DaemonSet, hash: &str) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default();
    let spec = template.spec.get_or_insert_default();
    spec.tolerations = Some(with_tolerations(spec));
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    if let Some(n) = generation(set) {
        labels.insert(POD_GENERATION.to_owned(), n.to_string());
    }
    if !hash.is_empty() {
        labels.insert(POD_REVISION.to_owned(), hash.to_owned());
    }
    template
}

/// Binds a Pod to a node by the scheduler: its required affinity names the node alone.
pub(super) fn aim(spec: &mut PodSpec, node: &str) {
    let name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![name]), match_expressions: None };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::daemon_sets::testing::daemon_set;
    use crate::views::tests::view;

    /// Upstream's cases of `TestIsPodUpdated`.
    #[test]
    fn updated_pods() {
        let check = |generation: Option<i64>, labels: Value, hash: &str, want: bool| {
            let pod = view(&json!({"metadata": {"labels": labels}}));
            assert_eq!(is_updated(&pod, hash, generation), want, "{generation:?} {labels} {hash}");
        };
        let of = |generation: &str, hash: &str| json!({POD_GENERATION: generation, POD_REVISION: hash});
        check(Some(12_345), of("12345", "55555"), "55555", true);
        check(Some(12_345), of("12345", "xx"), "55555", true);
        check(Some(12_345), of("xx", "55555"), "55555", true);
        check(Some(12_345), of("xx", "yy"), "55555", false);
        check(None, of("12345", "55555"), "55555", true);
        check(None, of("12345", "55555"), "xx", false);
        check(Some(12_345), json!({POD_GENERATION: "12345"}), "", true);
        check(Some(12_345), json!({POD_GENERATION: "12345"}), "55555", true);
        check(Some(12_345), json!({POD_REVISION: "55555"}), "55555", true);
        check(Some(12_345), json!({}), "55555", false);
        check(None, json!({POD_REVISION: ""}), "", false);
    }

    /// Upstream's cases of `TestCreatePodTemplate`.
    #[test]
    fn labels_of_templates() {
        let check = |generation: Option<&str>, hash: &str, want: Value| {
            let annotations = generation.map(|g| json!({GENERATION: g}));
            let set = daemon_set(json!({"metadata": {"annotations": annotations}}));
            let labels = template(&set, hash).metadata.unwrap().labels;
            assert_eq!(json!(labels), want);
        };
        check(Some("1"), "", json!({"simple-daemon": "a", POD_GENERATION: "1"}));
        check(
            Some("2"),
            "3242341807",
            json!({"simple-daemon": "a", POD_GENERATION: "2", POD_REVISION: "3242341807"}),
        );
        check(None, "h", json!({"simple-daemon": "a", POD_REVISION: "h"}));
        check(Some("x"), "", json!({"simple-daemon": "a"}));
    }

    #[test]
    fn tolerations_are_added_once() {
        let check = |given: Value, host_network: bool, count: usize| {
            let spec: PodSpec = serde_json::from_value(
                json!({"containers": [], "hostNetwork": host_network, "tolerations": given}),
            )
            .unwrap();
            let all = with_tolerations(&spec);
            assert_eq!(all.len(), count, "{given}");
            let again = PodSpec { tolerations: Some(all.clone()), ..spec };
            assert_eq!(with_tolerations(&again), all);
            assert!(all.iter().all(|t| t.toleration_seconds.is_none()));
        };
        check(json!(null), false, 6);
        check(json!(null), true, 7);
        check(json!([{"key": "other", "operator": "Exists"}]), false, 7);
        let short = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 5}]);
        check(short, false, 6);
    }

    /// Upstream's cases of `TestReplaceDaemonSetPodNodeNameNodeAffinity`.
    #[test]
    fn aims() {
        let required = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let own =
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["host_1"]}]}]);
        let check = |given: Value, want: Value| {
            let mut spec: PodSpec =
                serde_json::from_value(json!({"containers": [], "affinity": given})).unwrap();
            aim(&mut spec, "host_1");
            assert_eq!(json!(spec.affinity), want, "{given}");
        };
        let label = |value: &str| json!({"matchExpressions": [{"key": "not-host-label", "operator": "In", "values": [value]}]});
        let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["host_2", "host_3"]}]});
        let preferred = json!([{"weight": 10, "preference": {"matchFields": []}}]);
        check(json!(null), required(own.clone()));
        check(json!({}), required(own.clone()));
        check(json!({"nodeAffinity": {}}), required(own.clone()));
        check(required(json!([])), required(own.clone()));
        check(required(json!([label("a"), label("b")])), required(own.clone()));
        check(required(json!([field, label("a")])), required(own.clone()));
        let mut both = required(own);
        both["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred.clone();
        check(json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}), both);
    }
}
