//! Deployment controller: rolls from one ReplicaSet to the next.
//!
//! What to do is decided in [`plan`] (sizes), [`revision`] (which ReplicaSet is which) and [`status`]
//! (what to say about it); this module reads the caches and carries it out (upstream:
//! `pkg/controller/deployment`).

mod plan;
mod revision;
mod rollback;
mod status;

use std::sync::Arc;

use api::Status;
use client::{Api, Cached, Change, Client, EventType, Factory, Informer, Key, Queue, Recorder};
use component::{Clock, Shutdown};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::common::claim::claim;
use crate::common::selector::Selector;
use crate::common::{controller_of, controller_ref, deleting, namespace_is_terminating, pods, retry};
use plan::{Strategy, max_surge, size, strategy, wanted};
use revision::{HASH_LABEL, REVISION};

const COMPONENT: &str = "deployment-controller";
/// The longest name of a ReplicaSet.
const NAME_LIMIT: usize = 253;

struct Controller {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

/// Starts it.
pub(crate) fn start(client: Client, clock: Clock, workers: usize, factory: &Factory, shutdown: &Shutdown) {
    let controller = Arc::new(Controller {
        recorder: Recorder::start(client.clone(), COMPONENT, "", clock, shutdown),
        client,
        clock,
        deployments: factory.informer(),
        sets: factory.informer(),
        pods: pods::informer(factory),
        queue: Queue::default(),
    });
    let c = controller.clone();
    controller.deployments.handle(move |change| c.queue.add(change.object().key()));
    let c = controller.clone();
    controller.sets.handle(move |change| c.set_changed(change));
    let c = controller.clone();
    controller.pods.handle(move |change| {
        if let Change::Deleted(pod) = change {
            c.pod_deleted(pod);
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        let queue = controller.queue.clone();
        queue.work(COMPONENT, workers, shutdown, move |key| {
            let controller = controller.clone();
            async move { Box::pin(controller.sync(key)).await }
        });
    });
}

/// A Deployment in work, with its ReplicaSets.
struct Rollout {
    d: Deployment,
    /// The ReplicaSet of the present template.
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
}

impl Controller {
    fn owner(&self, meta: &ObjectMeta) -> Option<Arc<Deployment>> {
        let reference = controller_of(meta).filter(|r| r.kind == "Deployment")?;
        let d = self.deployments.get(meta.namespace.as_deref().unwrap_or_default(), &reference.name)?;
        (d.metadata.uid.as_ref() == Some(&reference.uid)).then_some(d)
    }

    fn set_changed(&self, change: &Change<ReplicaSet>) {
        let mut orphaned = false;
        for set in change.states() {
            match self.owner(&set.metadata) {
                Some(d) => self.queue.add(d.key()),
                None => orphaned |= controller_of(&set.metadata).is_none(),
            }
        }
        if orphaned && !matches!(change, Change::Deleted(_)) {
            let labels = change.object().metadata.labels.as_ref();
            for d in self.deployments.list_namespace(change.object().namespace()) {
                let selector = d.spec.as_ref().map_or_else(Selector::nothing, |s| Selector::of(&s.selector));
                if !selector.is_empty() && selector.matches(labels) {
                    self.queue.add(d.key());
                }
            }
        }
    }

    /// A Deployment that recreates waits for the end of its old Pods.
    fn pod_deleted(&self, pod: &Pod) {
        let Some(reference) = controller_of(&pod.metadata).filter(|r| r.kind == "ReplicaSet") else { return };
        let Some(set) = self.sets.get(pod.namespace(), &reference.name) else { return };
        if let Some(d) = self.owner(&set.metadata)
            && strategy(&d) == Strategy::Recreate
        {
            self.queue.add(d.key());
        }
    }

    fn api(&self, d: &Deployment) -> Api<Deployment> {
        self.client.api(d.namespace())
    }

    fn sets_api(&self, d: &Deployment) -> Api<ReplicaSet> {
        self.client.api(d.namespace())
    }

    async fn sync(&self, key: Key) -> Result<(), Status> {
        let Some(cached) = self.deployments.get_key(&key) else { return Ok(()) };
        let mut d = (*cached).clone();
        let Some(spec) = &d.spec else { return Ok(()) };
        if spec.selector == LabelSelector::default() {
            let text = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.event(&d, EventType::Warning, "SelectingAll", text);
            let observed = d.status.as_ref().and_then(|s| s.observed_generation);
            if observed < d.metadata.generation {
                d.status.get_or_insert_default().observed_generation = d.metadata.generation;
                self.api(&d).update_status(&d).await?;
            }
            return Ok(());
        }
        let selector = Selector::of(&spec.selector);
        let paused = spec.paused.unwrap_or(false);
        let candidates = self.sets.list_namespace(&key.namespace);
        let sets = claim(&d, &self.api(&d), &selector, candidates, &self.sets_api(&d)).await?;

        if deleting(&d.metadata) {
            let rollout = Box::pin(self.find(d, &sets, false)).await?;
            return self.write_status(&rollout).await;
        }
        if let Some(condition) = status::pause_condition(&d, self.clock.now()) {
            status::set_condition(d.status.get_or_insert_default(), condition);
            d = self.api(&d).update_status(&d).await?;
        }
        if paused {
            return self.scale(d, &sets).await;
        }
        if let Some(to) = rollback::requested(&d) {
            let rollout = Box::pin(self.find(d, &sets, true)).await?;
            return self.roll_back(rollout, to).await;
        }
        let scaled = sets
            .iter()
            .filter(|rs| plan::is_active(rs))
            .filter_map(|rs| plan::desired_annotation(rs))
            .any(|desired| desired != wanted(&d));
        if scaled {
            return self.scale(d, &sets).await;
        }
        match strategy(&d) {
            Strategy::Recreate => self.recreate(d, &sets).await,
            Strategy::Rolling { .. } => self.roll(d, &sets).await,
        }
    }

    /// Sorts the ReplicaSets into the new and the old ones, and brings the new one's annotations and the
    /// Deployment's revision up to date; with `create`, makes the new one if there is none.
    async fn find(
        &self,
        mut d: Deployment,
        sets: &[Arc<ReplicaSet>],
        create: bool,
    ) -> Result<Rollout, Status> {
        let (new, old) = revision::split(&d, sets);
        let next = revision::max_revision(&old) + 1;
        let Some(existing) = new else {
            if !create {
                return Ok(Rollout { d, new: None, old });
            }
            return self.create_new(d, old, next).await;
        };
        let min_ready = d.spec.as_ref().and_then(|s| s.min_ready_seconds).filter(|s| *s != 0);
        let mut changed = (*existing).clone();
        let annotated = revision::annotate_new(&d, &mut changed, next, true);
        let spec = changed.spec.get_or_insert_default();
        let differs = spec.min_ready_seconds.filter(|s| *s != 0) != min_ready;
        if annotated || differs {
            spec.min_ready_seconds = min_ready;
            let updated = self.sets_api(&d).update(&changed).await?;
            return Ok(Rollout { d, new: Some(Arc::new(updated)), old });
        }
        let own = existing.metadata.annotations.as_ref().and_then(|a| a.get(REVISION)).cloned();
        let mut write = set_revision(&mut d, own.unwrap_or_default());
        let progress = d.status.as_ref().and_then(|s| status::condition(s, status::PROGRESSING));
        if status::deadline(&d).is_some() && progress.is_none() {
            let text = format!("Found new replica set \"{}\"", existing.name());
            self.note_progress(&mut d, "True", "FoundNewReplicaSet", text);
            write = true;
        }
        if write {
            d = self.api(&d).update_status(&d).await?;
        }
        Ok(Rollout { d, new: Some(existing), old })
    }

    fn note_progress(&self, d: &mut Deployment, value: &str, reason: &str, text: String) {
        let condition = status::new_condition(status::PROGRESSING, value, reason, text, self.clock.now());
        status::set_condition(d.status.get_or_insert_default(), condition);
    }

    async fn create_new(
        &self,
        mut d: Deployment,
        old: Vec<Arc<ReplicaSet>>,
        revision: i64,
    ) -> Result<Rollout, Status> {
        let collisions = d.status.as_ref().and_then(|s| s.collision_count);
        let mut set = new_set(&d, collisions);
        let n = plan::new_size(&d, 0, plan::total(&old));
        set.spec.get_or_insert_default().replicas = Some(n);
        revision::annotate_new(&d, &mut set, revision, false);
        let name = set.name().to_owned();
        let (made, fresh) = match self.sets_api(&d).create(&set).await {
            Ok(made) => (made, true),
            Err(e) if e.is_already_exists() => {
                let there = self.sets_api(&d).get(&name).await?;
                let ours = controller_of(&there.metadata).map(|r| &r.uid) == d.metadata.uid.as_ref();
                let template = there.spec.as_ref().and_then(|s| s.template.as_ref());
                let same = d
                    .spec
                    .as_ref()
                    .is_some_and(|s| template.is_some_and(|t| revision::same_template(t, &s.template)));
                if !(ours && same) {
                    // Another template with the same hash.
                    let status = d.status.get_or_insert_default();
                    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                    self.api(&d).update_status(&d).await?;
                    return Err(e);
                }
                (there, false)
            }
            Err(e) if namespace_is_terminating(&e) => return Err(e),
            Err(e) => {
                let text = format!("Failed to create new replica set \"{name}\": {e}");
                if status::deadline(&d).is_some() {
                    self.note_progress(&mut d, "False", "ReplicaSetCreateError", text.clone());
                    if let Err(error) = self.api(&d).update_status(&d).await {
                        tracing::debug!(%error, "unable to report that a replica set cannot be made");
                    }
                }
                self.recorder.event(&d, EventType::Warning, "ReplicaSetCreateError", text);
                return Err(e);
            }
        };
        if fresh && n > 0 {
            let text = format!("Scaled up replica set {name} from 0 to {n}");
            self.recorder.event(&d, EventType::Normal, "ScalingReplicaSet", text);
        }
        let mut write = set_revision(&mut d, revision.to_string());
        if fresh && status::deadline(&d).is_some() {
            let text = format!("Created new replica set \"{name}\"");
            self.note_progress(&mut d, "True", "NewReplicaSetCreated", text);
            write = true;
        }
        if write {
            d = self.api(&d).update_status(&d).await?;
        }
        Ok(Rollout { d, new: Some(Arc::new(made)), old })
    }

    async fn roll(&self, d: Deployment, sets: &[Arc<ReplicaSet>]) -> Result<(), Status> {
        let mut r = Box::pin(self.find(d, sets, true)).await?;
        let Some(new) = r.new.clone() else { return Err(retry("the new replica set was not made")) };
        if size(&new) != wanted(&r.d) {
            let n = if size(&new) > wanted(&r.d) {
                wanted(&r.d)
            } else {
                plan::new_size(&r.d, size(&new), plan::total(r.old.iter().chain(&r.new)))
            };
            if n != size(&new) {
                r.new = Some(self.resize(&r.d, &new, n).await?);
                return self.write_rollout_status(&r).await;
            }
        }
        let resizes = plan::shrink_old(&r.d, &new, &r.old);
        if !resizes.is_empty() {
            for (set, n) in resizes {
                let updated = self.resize(&r.d, &set, n).await?;
                r.replace(updated);
            }
            return self.write_rollout_status(&r).await;
        }
        self.finish(&r).await
    }

    async fn recreate(&self, d: Deployment, sets: &[Arc<ReplicaSet>]) -> Result<(), Status> {
        let mut r = Box::pin(self.find(d, sets, false)).await?;
        let active: Vec<_> = r.old.iter().filter(|rs| plan::is_active(rs)).cloned().collect();
        if !active.is_empty() {
            for set in active {
                let updated = self.resize(&r.d, &set, 0).await?;
                r.replace(updated);
            }
            return self.write_rollout_status(&r).await;
        }
        if self.old_pods_run(&r) {
            return self.write_rollout_status(&r).await;
        }
        if r.new.is_none() {
            r = Box::pin(self.find(r.d, sets, true)).await?;
        }
        if let Some(new) = r.new.clone()
            && size(&new) != wanted(&r.d)
        {
            r.new = Some(self.resize(&r.d, &new, wanted(&r.d)).await?);
        }
        self.finish(&r).await
    }

    fn old_pods_run(&self, r: &Rollout) -> bool {
        r.old.iter().any(|set| {
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            set.status.as_ref().is_some_and(|s| s.replicas > 0)
                || self.pods.by_index(pods::BY_OWNER, uid).iter().any(|p| !pods::is_terminal(p))
        })
    }

    async fn finish(&self, r: &Rollout) -> Result<(), Status> {
        let status = r.d.status.clone().unwrap_or_default();
        if status::is_complete(&r.d, &status) {
            self.clean_up(r).await?;
        }
        self.write_rollout_status(r).await
    }

    /// Scales what there is without moving the rollout, or keeps a paused Deployment as it is.
    async fn scale(&self, d: Deployment, sets: &[Arc<ReplicaSet>]) -> Result<(), Status> {
        let mut r = Box::pin(self.find(d, sets, false)).await?;
        let (resizes, annotate) = plan::scale(&r.d, r.new.as_ref(), &r.old);
        for (set, n) in resizes {
            if n != size(&set) || annotate {
                let updated = self.resize(&r.d, &set, n).await?;
                r.replace(updated);
            }
        }
        if r.d.spec.as_ref().and_then(|s| s.paused) == Some(true) && rollback::requested(&r.d).is_none() {
            self.clean_up(&r).await?;
        }
        self.write_status(&r).await
    }

    /// Writes a ReplicaSet's size, and the sizes of its Deployment as annotations.
    async fn resize(&self, d: &Deployment, set: &Arc<ReplicaSet>, n: i32) -> Result<Arc<ReplicaSet>, Status> {
        let before = size(set);
        let mut changed = (**set).clone();
        let annotated = revision::annotate_sizes(&mut changed, wanted(d), wanted(d) + max_surge(d));
        if before == n && !annotated {
            return Ok(set.clone());
        }
        changed.spec.get_or_insert_default().replicas = Some(n);
        let updated = self.sets_api(d).update(&changed).await?;
        if before != n {
            let way = if before < n { "up" } else { "down" };
            let text = format!("Scaled {way} replica set {} from {before} to {n}", updated.name());
            self.recorder.event(d, EventType::Normal, "ScalingReplicaSet", text);
        }
        Ok(Arc::new(updated))
    }

    /// Deletes the oldest ReplicaSets beyond the revision history limit, as far as they have no Pods.
    async fn clean_up(&self, r: &Rollout) -> Result<(), Status> {
        let limit = r.d.spec.as_ref().and_then(|s| s.revision_history_limit).filter(|l| *l != i32::MAX);
        let Some(limit) = limit.and_then(|l| usize::try_from(l).ok()) else { return Ok(()) };
        let mut old: Vec<_> = r.old.iter().filter(|rs| !deleting(&rs.metadata)).cloned().collect();
        let surplus = old.len().saturating_sub(limit);
        revision::by_revision(&mut old);
        for set in &old[..surplus] {
            let status = set.status.clone().unwrap_or_default();
            let seen = status.observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0);
            if status.replicas == 0 && size(set) == 0 && seen {
                match self.sets_api(&r.d).delete(set.name(), None).await {
                    Err(e) if !e.is_not_found() => return Err(e),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn write_status(&self, r: &Rollout) -> Result<(), Status> {
        let status = status::of(&r.d, r.new.as_ref(), &r.old, self.clock.now());
        self.write(&r.d, status).await.map(drop)
    }

    async fn write_rollout_status(&self, r: &Rollout) -> Result<(), Status> {
        let now = self.clock.now();
        let status = status::of_rollout(&r.d, r.new.as_ref(), &r.old, now);
        let check = status::next_check(&r.d, &status, now);
        if !self.write(&r.d, status).await?
            && let Some(wait) = check
        {
            self.queue.add_after(r.d.key(), wait);
        }
        Ok(())
    }

    /// Whether the status had to be written.
    async fn write(&self, d: &Deployment, status: DeploymentStatus) -> Result<bool, Status> {
        if d.status.as_ref() == Some(&status) {
            return Ok(false);
        }
        let mut changed = d.clone();
        changed.status = Some(status);
        self.api(d).update_status(&changed).await.map(|_| true)
    }
}

impl Rollout {
    /// Puts a written ReplicaSet in its old state's place.
    fn replace(&mut self, set: Arc<ReplicaSet>) {
        let slot =
            self.old.iter_mut().chain(self.new.as_mut()).find(|rs| rs.metadata.uid == set.metadata.uid);
        if let Some(slot) = slot {
            *slot = set;
        }
    }
}

/// Whether the Deployment's revision changed by it.
fn set_revision(d: &mut Deployment, revision: String) -> bool {
    let annotations = d.metadata.annotations.get_or_insert_default();
    if annotations.get(REVISION) == Some(&revision) {
        return false;
    }
    annotations.insert(REVISION.to_owned(), revision);
    true
}

/// The ReplicaSet of a Deployment's template, still without size and annotations. Its name follows from
/// the template, so that it is not made twice.
fn new_set(d: &Deployment, collisions: Option<i32>) -> ReplicaSet {
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
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            namespace: d.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![controller_ref(d)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: None,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}
