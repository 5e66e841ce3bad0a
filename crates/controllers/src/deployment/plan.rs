//! Decides on the next step of a Deployment's rollout. Pure.
//!
//! A sync asks for a [`Step`], carries it out, puts the server's answer into the [`Snapshot`], and asks again until
//! only the report is left.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use client::Cached;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::revision::{self, HASH_LABEL, REVISION};
use super::rollback::{self, Rollback};
use super::sizes::{self, Resize, Strategy, size, strategy, wanted};
use super::status;
use crate::common::{controller_of, controller_ref, deleting};

/// The greatest length of a ReplicaSet's name.
const NAME_LIMIT: usize = 253;

/// A Deployment and the objects that belong to it, as they were read or written last.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) d: Deployment,
    /// The Deployment's ReplicaSets.
    pub(super) sets: Vec<Arc<ReplicaSet>>,
    /// The uids of the ReplicaSets that have Pods which have not ended; only known where Pods are recreated.
    pub(super) running: HashSet<String>,
    pub(super) now: Timestamp,
    pub(super) done: Done,
}

/// The steps that were done in this sync. No step is done twice in one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// The new ReplicaSet was made.
    pub(super) created: bool,
    /// The new ReplicaSet's annotations and the Deployment's revision were brought up to date.
    pub(super) noted: bool,
    /// ReplicaSets were resized.
    pub(super) resized: bool,
    /// Old ReplicaSets were deleted.
    pub(super) cleaned: bool,
}

/// The next step of a sync.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Do nothing, since the Deployment selects everything; write its status, if there is one.
    Refuse(Option<Box<Deployment>>),
    /// Write the Deployment's status with its revision, and go on.
    Write(Box<Deployment>),
    /// Write a ReplicaSet's annotations, and go on.
    Annotate(Box<ReplicaSet>),
    /// Make the new ReplicaSet, and go on.
    Create(Box<ReplicaSet>),
    /// Give ReplicaSets these sizes and note the Deployment's, and go on.
    Resize(Vec<Resize>),
    /// Delete ReplicaSets, and go on.
    CleanUp(Vec<Arc<ReplicaSet>>),
    /// Write the Deployment with another template, and end the sync.
    RollBack(Box<Rollback>),
    /// Write this status if it differs, and end the sync. If it does not differ, look again after this time.
    Report(Box<DeploymentStatus>, Option<Duration>),
}

/// Whether a Deployment selects everything, and so may own no ReplicaSet.
pub(super) fn selects_all(d: &Deployment) -> bool {
    d.spec.as_ref().is_none_or(|s| s.selector == LabelSelector::default())
}

/// Decides on the next step.
pub(super) fn plan(s: &Snapshot) -> Step {
    let d = &s.d;
    if selects_all(d) {
        let observed = d.status.as_ref().and_then(|s| s.observed_generation);
        let seen = observed >= d.metadata.generation;
        let mut d = d.clone();
        d.status.get_or_insert_default().observed_generation = d.metadata.generation;
        return Step::Refuse((!seen).then(|| Box::new(d)));
    }
    if deleting(&d.metadata) {
        return s.note(false).unwrap_or_else(|| s.report(false));
    }
    if let Some(condition) = status::pause_condition(d, s.now) {
        let mut d = d.clone();
        status::set_condition(d.status.get_or_insert_default(), condition);
        return Step::Write(Box::new(d));
    }
    if s.is_paused() {
        return s.scale();
    }
    if let Some(to) = rollback::requested(d) {
        let rollback = || Step::RollBack(Box::new(rollback::plan(d, &s.sets, to)));
        return s.note(true).unwrap_or_else(rollback);
    }
    let mut desired =
        s.sets.iter().filter(|rs| sizes::is_active(rs)).filter_map(|rs| sizes::desired_annotation(rs));
    if !s.done.resized && desired.any(|desired| desired != wanted(d)) {
        return s.scale();
    }
    match strategy(d) {
        Strategy::Recreate => s.recreate(),
        Strategy::Rolling { .. } => s.roll(),
    }
}

impl Snapshot {
    /// Puts a written ReplicaSet in the place of its old state, or beside the others.
    pub(super) fn take(&mut self, set: ReplicaSet) {
        let set = Arc::new(set);
        match self.sets.iter_mut().find(|rs| rs.metadata.uid == set.metadata.uid) {
            Some(slot) => *slot = set,
            None => self.sets.push(set),
        }
    }

    fn is_paused(&self) -> bool {
        self.d.spec.as_ref().and_then(|s| s.paused) == Some(true)
    }

    /// Returns the ReplicaSet of the present template, and the others.
    fn split(&self) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
        revision::split(&self.d, &self.sets)
    }

    /// Brings the new ReplicaSet's annotations and the Deployment's revision up to date; with `create`, makes the new
    /// ReplicaSet if there is none.
    fn note(&self, create: bool) -> Option<Step> {
        let (new, old) = self.split();
        let next = revision::max_revision(&old) + 1;
        let Some(new) = new else {
            return create.then(|| Step::Create(Box::new(new_set(&self.d, &old, next))));
        };
        if self.done.noted {
            return None;
        }
        let min_ready = self.d.spec.as_ref().and_then(|s| s.min_ready_seconds).filter(|s| *s != 0);
        let mut changed = (*new).clone();
        let annotated = revision::annotate_new(&self.d, &mut changed, next, true);
        let spec = changed.spec.get_or_insert_default();
        if annotated || spec.min_ready_seconds.filter(|s| *s != 0) != min_ready {
            spec.min_ready_seconds = min_ready;
            return Some(Step::Annotate(Box::new(changed)));
        }
        let own = new.metadata.annotations.as_ref().and_then(|a| a.get(REVISION)).cloned();
        let mut d = self.d.clone();
        let mut write = set_revision(&mut d, own.unwrap_or_default());
        let told = d.status.as_ref().and_then(|s| status::condition(s, status::PROGRESSING)).is_some();
        if status::deadline(&d).is_some() && (self.done.created || !told) {
            let (reason, text) = if self.done.created {
                ("NewReplicaSetCreated", format!("Created new replica set \"{}\"", new.name()))
            } else {
                ("FoundNewReplicaSet", format!("Found new replica set \"{}\"", new.name()))
            };
            status::note_progress(&mut d, "True", reason, text, self.now);
            write = true;
        }
        write.then(|| Step::Write(Box::new(d)))
    }

    fn roll(&self) -> Step {
        if self.done.resized {
            return self.report(true);
        }
        if let Some(step) = self.note(true) {
            return step;
        }
        let (new, old) = self.split();
        let Some(new) = new else { return self.report(true) };
        let (has, wanted) = (size(&new), wanted(&self.d));
        if has != wanted {
            let all = sizes::total(old.iter().chain([&new]));
            let n = if has > wanted { wanted } else { sizes::new_size(&self.d, has, all) };
            if n != has {
                return Step::Resize(vec![(new, n)]);
            }
        }
        let resizes = sizes::shrink_old(&self.d, &new, &old);
        if resizes.is_empty() { self.finish() } else { Step::Resize(resizes) }
    }

    fn recreate(&self) -> Step {
        if self.done.resized {
            return self.report(true);
        }
        if let Some(step) = self.note(false) {
            return step;
        }
        let (new, old) = self.split();
        let active = old.iter().filter(|rs| sizes::is_active(rs));
        let resizes: Vec<Resize> = active.map(|rs| (rs.clone(), 0)).collect();
        if !resizes.is_empty() {
            return Step::Resize(resizes);
        }
        let runs = |set: &ReplicaSet| {
            set.status.as_ref().is_some_and(|s| s.replicas > 0) || self.running.contains(set.uid())
        };
        if old.iter().any(|set| runs(set)) {
            return self.report(true);
        }
        if let Some(step) = self.note(true) {
            return step;
        }
        match new {
            Some(new) if size(&new) != wanted(&self.d) => Step::Resize(vec![(new, wanted(&self.d))]),
            _ => self.finish(),
        }
    }

    /// Scales the present ReplicaSets without moving the rollout, or keeps a paused Deployment as it is.
    fn scale(&self) -> Step {
        if !self.done.resized {
            if let Some(step) = self.note(false) {
                return step;
            }
            let (new, old) = self.split();
            let (mut resizes, annotate) = sizes::scale(&self.d, new.as_ref(), &old);
            resizes.retain(|(set, n)| *n != size(set) || annotate);
            if !resizes.is_empty() {
                return Step::Resize(resizes);
            }
        }
        let idle = self.is_paused() && rollback::requested(&self.d).is_none();
        idle.then(|| self.clean_up()).flatten().unwrap_or_else(|| self.report(false))
    }

    fn finish(&self) -> Step {
        let status = self.d.status.clone().unwrap_or_default();
        let complete = status::is_complete(&self.d, &status);
        complete.then(|| self.clean_up()).flatten().unwrap_or_else(|| self.report(true))
    }

    /// Deletes the oldest ReplicaSets beyond the revision history limit, as far as they have no Pods.
    fn clean_up(&self) -> Option<Step> {
        let limit = self.d.spec.as_ref().and_then(|s| s.revision_history_limit).filter(|l| *l != i32::MAX);
        let limit = limit.and_then(|l| usize::try_from(l).ok()).filter(|_| !self.done.cleaned)?;
        let (_, mut old) = self.split();
        old.retain(|rs| !deleting(&rs.metadata));
        let surplus = old.len().saturating_sub(limit);
        revision::by_revision(&mut old);
        old.truncate(surplus);
        old.retain(|set| {
            let status = set.status.clone().unwrap_or_default();
            let seen = status.observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0);
            status.replicas == 0 && size(set) == 0 && seen
        });
        (!old.is_empty()).then_some(Step::CleanUp(old))
    }

    fn report(&self, rollout: bool) -> Step {
        let (new, old) = self.split();
        if !rollout {
            return Step::Report(Box::new(status::of(&self.d, new.as_ref(), &old, self.now)), None);
        }
        let status = status::of_rollout(&self.d, new.as_ref(), &old, self.now);
        let check = status::next_check(&self.d, &status, self.now);
        Step::Report(Box::new(status), check)
    }
}

/// Whether a ReplicaSet belongs to the Deployment and has its present template.
pub(super) fn is_new_set(d: &Deployment, set: &ReplicaSet) -> bool {
    let template = set.spec.as_ref().and_then(|s| s.template.as_ref());
    controller_of(&set.metadata).map(|r| &r.uid) == d.metadata.uid.as_ref()
        && d.spec.as_ref().is_some_and(|s| template.is_some_and(|t| revision::same_template(t, &s.template)))
}

/// Sets a Deployment's revision; returns whether it changed.
fn set_revision(d: &mut Deployment, revision: String) -> bool {
    let annotations = d.metadata.annotations.get_or_insert_default();
    if annotations.get(REVISION) == Some(&revision) {
        return false;
    }
    annotations.insert(REVISION.to_owned(), revision);
    true
}

/// Makes the ReplicaSet of a Deployment's template, to be written beside the old ones. Its name follows from the
/// template, so that it is not made twice.
fn new_set(d: &Deployment, old: &[Arc<ReplicaSet>], revision: i64) -> ReplicaSet {
    let collisions = d.status.as_ref().and_then(|s| s.collision_count);
    let spec = d.spec.clone().unwrap_or_default();
    let mut template = spec.template;
    let hash = revision::template_hash(&template, collisions);
    let labels = {
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        labels.clone()
    };
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let mut prefix = d.name().to_owned();
    prefix.truncate(NAME_LIMIT - 1 - hash.len());
    let mut set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            namespace: d.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![controller_ref(d)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(sizes::new_size(d, 0, sizes::total(old))),
            selector,
            template: Some(template),
        }),
        status: None,
    };
    revision::annotate_new(d, &mut set, revision, false);
    set
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
