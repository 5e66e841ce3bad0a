//! Rollback by annotation, which the old API versions' `rollbackTo` left behind.

use api::Status;
use client::{Cached, EventType};
use k8s_openapi::api::apps::v1::Deployment;

use super::revision::{self, HASH_LABEL, ROLLBACK};
use super::{Controller, Rollout};

/// The revision asked for; 0 for the one before the newest.
pub(super) fn requested(d: &Deployment) -> Option<i64> {
    d.metadata.annotations.as_ref()?.get(ROLLBACK)?.parse().ok()
}

impl Controller {
    pub(super) async fn roll_back(&self, r: Rollout, to: i64) -> Result<(), Status> {
        let warn = |d: &Deployment, reason: &str, text: String| {
            self.recorder.event(d, EventType::Warning, reason, text);
        };
        let sets: Vec<_> = r.old.iter().chain(&r.new).cloned().collect();
        let mut d = r.d;
        let missing = "DeploymentRollbackRevisionNotFound";
        let to = if to == 0 { revision::last_revision(&sets) } else { to };
        let target = sets.iter().find(|rs| to != 0 && revision::revision(rs) == Some(to));
        let template = target.and_then(|rs| rs.spec.as_ref()?.template.clone());
        let mut done = false;
        match (target, template) {
            (Some(set), Some(mut template)) => {
                let spec = d.spec.get_or_insert_default();
                if revision::same_template(&spec.template, &template) {
                    let text = format!(
                        "The rollback revision contains the same template as current deployment \"{}\"",
                        d.name()
                    );
                    warn(&d, "DeploymentRollbackTemplateUnchanged", text);
                } else {
                    if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
                        labels.remove(HASH_LABEL);
                    }
                    spec.template = template;
                    revision::restore_annotations(&mut d, set);
                    done = true;
                }
            }
            _ if to == 0 => warn(&d, missing, "Unable to find last revision.".to_owned()),
            _ => warn(&d, missing, "Unable to find the revision to rollback to.".to_owned()),
        }
        if let Some(annotations) = &mut d.metadata.annotations {
            annotations.remove(ROLLBACK);
        }
        self.api(&d).update(&d).await?;
        if done {
            let text = format!("Rolled back deployment \"{}\" to revision {to}", d.name());
            self.recorder.event(&d, EventType::Normal, "DeploymentRollback", text);
        }
        Ok(())
    }
}
