//! Revisions: the ReplicaSet of each version of a Deployment, and the annotations that say so.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::sizes::{DESIRED, MAX, by_age, max_surge, wanted};
use crate::common::fnv::Fnv;
use crate::common::safe_letters;

pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const ROLLBACK: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The greatest length of the history, enough for about a hundred revisions.
const HISTORY_LIMIT: usize = 2000;

type Annotations = BTreeMap<String, String>;

fn annotations(meta: &mut ObjectMeta) -> &mut Annotations {
    meta.annotations.get_or_insert_default()
}

/// Whether an annotation belongs to the Deployment or the ReplicaSet alone.
pub(super) fn stays(key: &str) -> bool {
    matches!(key, LAST_APPLIED | REVISION | HISTORY | DESIRED | MAX | ROLLBACK)
}

/// Returns a ReplicaSet's revision; 0 for none, `None` for one that is no number.
pub(super) fn revision(rs: &ReplicaSet) -> Option<i64> {
    match rs.metadata.annotations.as_ref().and_then(|a| a.get(REVISION)) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

pub(super) fn max_revision(sets: &[Arc<ReplicaSet>]) -> i64 {
    sets.iter().filter_map(|rs| revision(rs)).max().unwrap_or(0).max(0)
}

/// Returns the revision before the newest; 0 if there is none.
pub(super) fn last_revision(sets: &[Arc<ReplicaSet>]) -> i64 {
    let mut all: Vec<i64> = sets.iter().filter_map(|rs| revision(rs)).collect();
    all.sort_unstable();
    all.iter().rev().nth(1).copied().unwrap_or(0).max(0)
}

/// Sorts ReplicaSets by revision, the oldest first.
pub(super) fn by_revision(sets: &mut [Arc<ReplicaSet>]) {
    by_age(sets, |rs| rs);
    sets.sort_by_key(|rs| revision(rs).unwrap_or(0));
}

/// Whether two templates make the same Pods: the label that distinguishes ReplicaSets does not count.
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let bare = |t: &PodTemplateSpec| {
        let mut t = t.clone();
        let meta = t.metadata.get_or_insert_default();
        meta.creation_timestamp = None;
        if let Some(labels) = &mut meta.labels {
            labels.remove(HASH_LABEL);
        }
        // An empty map is the same as none.
        meta.labels = meta.labels.take().filter(|l| !l.is_empty());
        meta.annotations = meta.annotations.take().filter(|a| !a.is_empty());
        t
    };
    bare(a) == bare(b)
}

/// Returns the ReplicaSet that makes the Pods the Deployment wants now, the oldest if there are several, and all
/// others.
pub(super) fn split(
    d: &Deployment,
    sets: &[Arc<ReplicaSet>],
) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    let mut old = sets.to_vec();
    by_age(&mut old, |rs| rs);
    let template = d.spec.as_ref().map(|s| &s.template);
    let same = |rs: &Arc<ReplicaSet>| match (template, rs.spec.as_ref().and_then(|s| s.template.as_ref())) {
        (Some(a), Some(b)) => same_template(a, b),
        _ => false,
    };
    let new = old.iter().position(same).map(|at| old.remove(at));
    (new, old)
}

/// Writes the Deployment's annotations and the revision into its new ReplicaSet; returns whether any changed.
pub(super) fn annotate_new(d: &Deployment, rs: &mut ReplicaSet, new_revision: i64, exists: bool) -> bool {
    let mut changed = false;
    let into = annotations(&mut rs.metadata);
    for (key, value) in d.metadata.annotations.iter().flatten().filter(|(k, _)| !stays(k)) {
        if into.get(key) != Some(value) {
            into.insert(key.clone(), value.clone());
            changed = true;
        }
    }
    let before = into.get(REVISION).cloned();
    let number = match before.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            // Another client wrote this revision; upstream leaves it and all that follows alone.
            Err(_) => return false,
        },
    };
    if number < new_revision {
        into.insert(REVISION.to_owned(), new_revision.to_string());
        changed = true;
        // The ReplicaSet has a revision already: the Deployment is rolled back to it, and its old revisions are kept.
        if let Some(before) = before
            && let Some(history) = history(into.get(HISTORY).map_or("", String::as_str), &before)
        {
            into.insert(HISTORY.to_owned(), history);
        }
    }
    if !exists {
        changed |= annotate_sizes(rs, wanted(d), wanted(d) + max_surge(d));
    }
    changed
}

/// Adds a revision to a history, and drops the oldest if it is too long; `None` if there is no room at all.
fn history(old: &str, revision: &str) -> Option<String> {
    if old.is_empty() {
        return Some(revision.to_owned());
    }
    let mut rest = old;
    while rest.len() + revision.len() + 1 > HISTORY_LIMIT {
        rest = rest.split_once(',')?.1;
    }
    Some(format!("{rest},{revision}"))
}

/// Notes in a ReplicaSet the sizes that its Deployment has now; returns whether they changed.
pub(super) fn annotate_sizes(rs: &mut ReplicaSet, desired: i32, max: i32) -> bool {
    let into = annotations(&mut rs.metadata);
    let mut changed = false;
    for (key, value) in [(DESIRED, desired), (MAX, max)] {
        let value = value.to_string();
        if into.get(key) != Some(&value) {
            into.insert(key.to_owned(), value);
            changed = true;
        }
    }
    changed
}

/// Copies a ReplicaSet's annotations back to the Deployment that is rolled back to it.
pub(super) fn restore_annotations(d: &mut Deployment, rs: &ReplicaSet) {
    let into = annotations(&mut d.metadata);
    into.retain(|k, _| stays(k));
    let from = rs.metadata.annotations.iter().flatten().filter(|(k, _)| !stays(k));
    into.extend(from.map(|(k, v)| (k.clone(), v.clone())));
}

/// The value of the label that distinguishes a Deployment's ReplicaSets: a hash of the template, as upstream a 32-bit
/// FNV-1a in letters and digits that make no words. Clients can rely only on its being the same for the same template.
pub(super) fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut hash = Fnv::default();
    hash.write(&serde_json::to_vec(template).unwrap_or_default());
    if let Some(n) = collisions {
        hash.write(&n.to_le_bytes());
        hash.write(&[0; 4]);
    }
    safe_letters(hash.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(annotations: serde_json::Value) -> ReplicaSet {
        serde_json::from_value(json!({"metadata": {"name": "rs", "annotations": annotations}})).unwrap()
    }

    #[test]
    fn hashes_differ_with_template_and_collisions() {
        let template = |image: &str| -> PodTemplateSpec {
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "image": image}]}})).unwrap()
        };
        let all = [
            template_hash(&template("a"), None),
            template_hash(&template("b"), None),
            template_hash(&template("a"), Some(0)),
            template_hash(&template("a"), Some(1)),
        ];
        assert_eq!(all[0], template_hash(&template("a"), None));
        for (i, a) in all.iter().enumerate() {
            assert!(!a.is_empty() && a.len() <= 10 && a.bytes().all(|b| b.is_ascii_alphanumeric()));
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn histories() {
        assert_eq!(history("", "1").unwrap(), "1");
        assert_eq!(history("1,3", "5").unwrap(), "1,3,5");
        let long = vec!["1234567890"; 181].join(",");
        let next = history(&long, "42").unwrap();
        assert!(next.len() <= HISTORY_LIMIT && next.ends_with(",42"), "{}", next.len());
    }

    #[test]
    fn annotations_of_the_new_set() {
        let d: Deployment = serde_json::from_value(json!({
            "metadata": {"annotations": {"a": "b", LAST_APPLIED: "x", REVISION: "7"}},
            "spec": {"replicas": 3, "selector": {}, "template": {}},
        }))
        .unwrap();
        let mut rs = set(json!({}));
        assert!(annotate_new(&d, &mut rs, 2, false));
        let got = rs.metadata.annotations.clone().unwrap();
        let want = json!({"a": "b", REVISION: "2", DESIRED: "3", MAX: "3"});
        assert_eq!(serde_json::to_value(got).unwrap(), want);
        assert!(!annotate_new(&d, &mut rs, 2, true));
        assert!(annotate_new(&d, &mut rs, 5, true));
        assert_eq!(rs.metadata.annotations.as_ref().unwrap()[HISTORY], "2");
        assert!(!annotate_new(&d, &mut rs, 4, true), "a revision never goes back");
    }

    #[test]
    fn revisions() {
        let sets: Vec<Arc<ReplicaSet>> =
            [json!({REVISION: "3"}), json!({}), json!({REVISION: "x"}), json!({REVISION: "10"})]
                .into_iter()
                .map(|a| Arc::new(set(a)))
                .collect();
        assert_eq!((max_revision(&sets), last_revision(&sets)), (10, 3));
        assert_eq!(last_revision(&sets[..1]), 0);
    }

    fn template(name: &str, node: &str, annotations: &[&str], labels: serde_json::Value) -> PodTemplateSpec {
        let annotations: Annotations =
            annotations.iter().map(|a| ((*a).to_owned(), "value".to_owned())).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations, "labels": labels},
            "spec": {"nodeName": node, "containers": []},
        }))
        .unwrap()
    }

    /// Upstream's cases of `TestEqualIgnoreHash`, in both orders.
    #[test]
    fn templates_that_are_the_same() {
        let check = |a: &PodTemplateSpec, b: &PodTemplateSpec, want: bool| {
            assert_eq!((same_template(a, b), same_template(b, a)), (want, want), "{a:?} {b:?}");
        };
        let labels = |hash: Option<&str>, other: bool| {
            let mut labels = json!({});
            if let Some(hash) = hash {
                labels[HASH_LABEL] = hash.into();
            }
            if other {
                labels["something"] = "else".into();
            }
            labels
        };
        let foo = |hash: Option<&str>, other: bool| template("foo", "foo-node", &[], labels(hash, other));
        check(&foo(Some("value-1"), true), &foo(Some("value-1"), true), true);
        check(&foo(Some("value-1"), true), &foo(Some("value-2"), true), true);
        check(&foo(None, true), &foo(Some("value-2"), true), true);
        check(&foo(None, true), &foo(Some("value-2"), false), false);
        check(&foo(Some("value-1"), false), &foo(None, true), false);
        check(&foo(Some("value-1"), false), &foo(Some("value-1"), true), false);
        let annotated =
            |annotation: &str| template("foo", "foo-node", &[annotation], labels(Some("value-1"), true));
        check(&annotated("former"), &annotated("latter"), false);
        let named = |name: &str, hash: &str| template(name, "foo-node", &[], labels(Some(hash), true));
        check(&named("foo-1", "value-1"), &named("foo-2", "value-2"), false);
        let bare = template("foo-1", "foo-node-1", &[], labels(None, true));
        check(&bare, &template("foo-2", "foo-node-2", &[], labels(Some("value-2"), true)), false);
        let on = |node: &str, key: &str| template("foo", node, &[], json!({ key: "else" }));
        check(&on("foo-node-1", "something"), &on("foo-node-2", "nothing"), false);
    }

    /// Upstream's cases of `TestFindNewReplicaSet` and `TestFindOldReplicaSets`: ReplicaSets by name, the new one, the old
    /// ones, and those of them that have Pods. The newest one is as large as one Pod, and made after its double.
    #[test]
    fn new_and_old_sets() {
        let made = |name: &str| -> Arc<ReplicaSet> {
            let (second, image, replicas) = match name {
                "old" => (1, "nginx-old-1", 0),
                "double" => (2, "nginx", 0),
                _ => (3, "nginx", 1),
            };
            let labels = json!({"name": "nginx", HASH_LABEL: name});
            let containers = json!([{"name": image, "image": "nginx"}]);
            let created = jiff::Timestamp::from_second(second).unwrap().to_string();
            let set = json!({
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"replicas": replicas, "selector": {},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}},
            });
            Arc::new(serde_json::from_value(set).unwrap())
        };
        let d: Deployment =
            serde_json::from_value(json!({"metadata": {"name": "nginx"}, "spec": {"selector": {},
            "template": {"metadata": {"labels": {"name": "nginx"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}}}}))
            .unwrap();
        let check = |sets: &[&str], new: Option<&str>, old: &[&str], active: &[&str]| {
            let all: Vec<_> = sets.iter().map(|name| made(name)).collect();
            let (got, others) = split(&d, &all);
            let name = |rs: &Arc<ReplicaSet>| rs.metadata.name.clone().unwrap();
            assert_eq!(got.as_ref().map(name).as_deref(), new, "{sets:?}");
            assert_eq!(others.iter().map(name).collect::<Vec<_>>(), old, "{sets:?}");
            let large = others.iter().filter(|rs| crate::deployment::sizes::is_active(rs));
            assert_eq!(large.map(name).collect::<Vec<_>>(), active, "{sets:?}");
        };
        check(&["new", "old"], Some("new"), &["old"], &[]);
        check(&["new", "old", "double"], Some("double"), &["old", "new"], &["new"]);
        check(&["old"], None, &["old"], &[]);
        check(&["new"], Some("new"), &[], &[]);
    }

    /// Upstream's cases of `TestAnnotationUtils` and `TestReplicasAnnotationsNeedUpdate`. The history may be as long as it
    /// really may, where upstream's test takes five letters.
    #[test]
    fn annotations_of_sets() {
        let d: Deployment = serde_json::from_value(json!({"metadata": {"annotations": {REVISION: "1"}},
            "spec": {"replicas": 1, "selector": {}, "template": {}}}))
        .unwrap();
        let mut rs = set(json!({}));
        let mut history = Vec::new();
        for i in 10..20 {
            assert!(annotate_new(&d, &mut rs, i + 1, true));
            let all = rs.metadata.annotations.as_ref().unwrap();
            assert_eq!(all[REVISION], (i + 1).to_string());
            assert_eq!(all.get(HISTORY).cloned().unwrap_or_default(), history.join(","));
            history.push((i + 1).to_string());
        }
        let check = |annotations: serde_json::Value, want: bool| {
            let mut rs = set(annotations.clone());
            assert_eq!(annotate_sizes(&mut rs, 10, 20), want, "{annotations}");
            let all = rs.metadata.annotations.unwrap();
            assert_eq!((all[DESIRED].as_str(), all[MAX].as_str()), ("10", "20"));
        };
        check(json!(null), true);
        check(json!({DESIRED: "8", MAX: "20"}), true);
        check(json!({DESIRED: "10", MAX: "16"}), true);
        check(json!({DESIRED: "10", MAX: "20"}), false);
    }
}
