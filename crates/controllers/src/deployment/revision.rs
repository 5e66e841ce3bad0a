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
}
