//! Rollback by annotation, which the old API versions' `rollbackTo` left behind.

use std::sync::Arc;

use client::Cached;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::revision::{self, HASH_LABEL, ROLLBACK};

/// Returns the revision asked for; 0 for the one before the newest.
pub(super) fn requested(d: &Deployment) -> Option<i64> {
    d.metadata.annotations.as_ref()?.get(ROLLBACK)?.parse().ok()
}

/// The outcome of a rollback.
#[derive(Debug, PartialEq)]
pub(super) struct Rollback {
    /// The Deployment as it is to be written: without the annotation, and with the template of the revision.
    pub(super) d: Deployment,
    /// Reason and text of the Event, a warning if the Deployment stays as it is.
    pub(super) reason: &'static str,
    pub(super) text: String,
    /// Whether the Deployment has another template.
    pub(super) done: bool,
}

/// Decides about a rollback to a revision.
pub(super) fn plan(d: &Deployment, sets: &[Arc<ReplicaSet>], to: i64) -> Rollback {
    const MISSING: &str = "DeploymentRollbackRevisionNotFound";
    let mut d = d.clone();
    if let Some(annotations) = &mut d.metadata.annotations {
        annotations.remove(ROLLBACK);
    }
    let found = if to == 0 { revision::last_revision(sets) } else { to };
    let target = sets.iter().find(|rs| found != 0 && revision::revision(rs) == Some(found));
    let template = target.and_then(|rs| rs.spec.as_ref()?.template.clone());
    let stays = |d, reason, text: String| Rollback { d, reason, text, done: false };
    let (Some(set), Some(mut template)) = (target, template) else {
        let what = if found == 0 { "last revision." } else { "the revision to rollback to." };
        return stays(d, MISSING, format!("Unable to find {what}"));
    };
    if d.spec.as_ref().is_some_and(|s| revision::same_template(&s.template, &template)) {
        let name = d.name().to_owned();
        let text =
            format!("The rollback revision contains the same template as current deployment \"{name}\"");
        return stays(d, "DeploymentRollbackTemplateUnchanged", text);
    }
    if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
        labels.remove(HASH_LABEL);
    }
    d.spec.get_or_insert_default().template = template;
    revision::restore_annotations(&mut d, set);
    if let Some(annotations) = &mut d.metadata.annotations {
        annotations.remove(ROLLBACK);
    }
    let text = format!("Rolled back deployment \"{}\" to revision {found}", d.name());
    Rollback { d, reason: "DeploymentRollback", text, done: true }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
    }

    fn set(revision: &str, image: &str) -> Arc<ReplicaSet> {
        let annotations = json!({revision::REVISION: revision, "note": revision});
        let mut template = template(image);
        template["metadata"]["labels"][HASH_LABEL] = json!("x");
        let set = json!({"metadata": {"name": image, "annotations": annotations}, "spec": {"selector": {}, "template": template}});
        Arc::new(serde_json::from_value(set).unwrap())
    }

    #[test]
    fn rollbacks() {
        let sets = [set("1", "one"), set("2", "two"), set("3", "three")];
        let check = |to: i64, sets: &[Arc<ReplicaSet>], reason: &str, text: &str, image: &str| {
            let annotations = json!({ROLLBACK: to.to_string(), revision::REVISION: "3"});
            let d = json!({"metadata": {"name": "d", "annotations": annotations},
                "spec": {"selector": {}, "template": template("three")}});
            let d: Deployment = serde_json::from_value(d).unwrap();
            assert_eq!(requested(&d), Some(to));
            let got = plan(&d, sets, to);
            assert_eq!((got.reason, got.text.as_str()), (reason, text));
            assert_eq!(requested(&got.d), None, "it is not asked for twice");
            let spec = got.d.spec.unwrap();
            assert_eq!(spec.template.spec.unwrap().containers[0].image.as_deref(), Some(image));
            assert!(!spec.template.metadata.unwrap().labels.unwrap().contains_key(HASH_LABEL));
            assert_eq!(got.done, image != "three");
            let annotations = got.d.metadata.annotations.unwrap();
            assert_eq!(annotations[revision::REVISION], "3");
            assert_eq!(annotations.contains_key("note"), got.done);
        };
        let done = "DeploymentRollback";
        check(1, &sets, done, "Rolled back deployment \"d\" to revision 1", "one");
        check(0, &sets, done, "Rolled back deployment \"d\" to revision 2", "two");
        let missing = "DeploymentRollbackRevisionNotFound";
        check(7, &sets, missing, "Unable to find the revision to rollback to.", "three");
        check(0, &sets[2..], missing, "Unable to find last revision.", "three");
        let same = "The rollback revision contains the same template as current deployment \"d\"";
        check(3, &sets, "DeploymentRollbackTemplateUnchanged", same, "three");
    }
}
