//! Deployment controller: rolls from one ReplicaSet to the next.
//!
//! [`plan`] decides on the next step, with the help of [`sizes`], [`revision`] (the ReplicaSet of each revision) and
//! [`status`] (the text about it); this module reads the caches and carries the steps out (upstream:
//! `pkg/controller/deployment`).

mod plan;
mod revision;
mod rollback;
mod sizes;
mod status;

use std::collections::HashSet;
use std::sync::Arc;

use api::{Gate, Status};
use client::{Api, Cached, Change, Client, EventType, Informer, Key, Queue, Recorder};
use component::Clock;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use objects::Selector;

use crate::common::claim::claim;
use crate::common::owners::resolve;
use crate::common::pods::Pods;
use crate::common::selecting::Selecting;
use crate::common::{controller_of, namespace_is_terminating, retry};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use plan::{Done, Snapshot, Step};
use rollback::Rollback;
use sizes::{Strategy, max_surge, size, strategy, wanted};

const COMPONENT: &str = "deployment-controller";
/// The most steps of a sync; each kind of step is wanted once, but for a status that another client writes too.
const STEPS: usize = 10;

/// The Deployment controller.
pub(crate) struct Deployments {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    deployments: Informer<Deployment>,
    selecting: Selecting<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Pods,
    /// Whether statuses count the Pods that are being deleted.
    counts_terminating: bool,
}

impl Controller for Deployments {
    const NAME: &'static str = "deployment-controller";
    const ALIASES: &'static [&'static str] = &["deployment"];
    const ACCOUNT: &'static str = "deployment-controller";
    const QUEUE: &'static str = "deployment";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.deployments
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let deployments = host.informer();
        Self {
            client: host.client(),
            clock: host.clock(),
            recorder: host.recorder(COMPONENT),
            selecting: Selecting::new(&deployments, selector),
            deployments,
            sets: host.informer(),
            pods: Pods::of(host.factory()),
            counts_terminating: host.config().gates.enabled(Gate::DeploymentReplicaSetTerminatingReplicas),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.deployments, true);
        let (queue, c) = (wiring.queue(), self.clone());
        self.sets.handle(move |change| c.set_changed(change, &queue));
        // A Deployment with the strategy Recreate waits for the end of its old Pods.
        let (queue, c) = (wiring.queue(), self.clone());
        self.pods.handle(move |change| {
            if let Change::Deleted(pod) = change
                && let Some((_, set)) = resolve(&c.sets, pod.namespace(), pod.controller())
                && let Some((key, d)) = resolve(&c.deployments, set.namespace(), controller_of(&set.metadata))
                && strategy(&d) == Strategy::Recreate
            {
                queue.add(key);
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(cached) = self.deployments.get_key(&key) else { return Ok(Next::Done) };
        let mut s = self.snapshot(&cached).await?;
        for _ in 0..STEPS {
            match plan::plan(&s) {
                Step::Refuse(status) => return self.refuse(&s.d, status).await,
                Step::Write(d) => {
                    s.d = self.api(&s.d).update_status(&d).await?;
                    s.done.noted |= s.done.created;
                }
                Step::Annotate(set) => {
                    s.take(self.sets_api(&s.d).update(&*set).await?);
                    s.done.noted = true;
                }
                Step::Create(set) => {
                    let (made, created) = self.create(&mut s, *set).await?;
                    s.take(made);
                    s.done.created = created;
                }
                Step::Resize(resizes) => {
                    for (set, n) in resizes {
                        if let Some(resized) = self.resize(&s.d, &set, n).await? {
                            s.take(resized);
                        }
                    }
                    s.done.resized = true;
                }
                Step::CleanUp(sets) => {
                    self.delete(&s.d, &sets).await?;
                    s.done.cleaned = true;
                }
                Step::RollBack(rollback) => return self.roll_back(*rollback).await,
                Step::Report(mut status, check) => {
                    if !self.counts_terminating {
                        status.terminating_replicas = None;
                    }
                    let written = self.report(&s.d, *status).await?;
                    return Ok(Next::at(check.filter(|_| !written)));
                }
            }
        }
        Err(retry(format_args!("the status of Deployment {key} does not stay as it was written")))
    }
}

fn selector(d: &Deployment) -> Selector {
    d.spec.as_ref().map_or_else(Selector::nothing, |s| Selector::or_nothing(&s.selector))
}

impl Deployments {
    fn set_changed(&self, change: &Change<ReplicaSet>, queue: &Queue<Key>) {
        let mut orphaned = false;
        for set in change.states() {
            match resolve(&self.deployments, set.namespace(), controller_of(&set.metadata)) {
                Some((key, _)) => queue.add(key),
                None => orphaned |= controller_of(&set.metadata).is_none(),
            }
        }
        if orphaned && !matches!(change, Change::Deleted(_)) {
            let labels = change.object().metadata.labels.iter().flatten();
            let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
            for d in self.selecting.of(change.object().namespace(), labels) {
                if !selector(&d).is_everything() {
                    queue.add(d.key());
                }
            }
        }
    }

    fn api(&self, d: &Deployment) -> Api<Deployment> {
        self.client.api(d.namespace())
    }

    fn sets_api(&self, d: &Deployment) -> Api<ReplicaSet> {
        self.client.api(d.namespace())
    }

    /// Adopts a Deployment's ReplicaSets, and returns it with all that belongs to it.
    async fn snapshot(&self, d: &Deployment) -> Result<Snapshot, Status> {
        let mut sets = Vec::new();
        if let Some(spec) = d.spec.as_ref().filter(|_| !plan::selects_all(d)) {
            let candidates = self.sets.list_namespace(d.namespace());
            let selector = Selector::or_nothing(&spec.selector);
            sets = claim(d, &self.api(d), &selector, candidates, &self.sets_api(d)).await?;
        }
        let mut running = HashSet::new();
        if strategy(d) == Strategy::Recreate {
            let runs = |uid: &&str| {
                self.pods.of_owner::<ReplicaSet>(d.namespace(), uid).iter().any(|p| !p.is_terminal())
            };
            running.extend(sets.iter().map(|rs| rs.uid()).filter(runs).map(str::to_owned));
        }
        Ok(Snapshot { d: d.clone(), sets, running, now: self.clock.now(), done: Done::default() })
    }

    async fn refuse(&self, d: &Deployment, status: Option<Box<Deployment>>) -> Result<Next, Status> {
        if d.spec.is_some() {
            let text = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.event(d, EventType::Warning, "SelectingAll", text);
        }
        if let Some(status) = status {
            self.api(d).update_status(&status).await?;
        }
        Ok(Next::Done)
    }

    /// Makes the new ReplicaSet, or finds it; also returns whether it was made.
    async fn create(&self, s: &mut Snapshot, set: ReplicaSet) -> Result<(ReplicaSet, bool), Status> {
        let (name, n) = (set.name().to_owned(), size(&set));
        match self.sets_api(&s.d).create(&set).await {
            Ok(made) => {
                if n > 0 {
                    let text = format!("Scaled up replica set {name} from 0 to {n}");
                    self.recorder.event(&s.d, EventType::Normal, "ScalingReplicaSet", text);
                }
                Ok((made, true))
            }
            Err(e) if e.is_already_exists() => {
                let there = self.sets_api(&s.d).get(&name).await?;
                if plan::is_new_set(&s.d, &there) {
                    return Ok((there, false));
                }
                // The ReplicaSet is of another template with the same hash.
                let status = s.d.status.get_or_insert_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.api(&s.d).update_status(&s.d).await?;
                Err(e)
            }
            Err(e) if namespace_is_terminating(&e) => Err(e),
            Err(e) => {
                let text = format!("Failed to create new replica set \"{name}\": {e}");
                if status::deadline(&s.d).is_some() {
                    status::note_progress(&mut s.d, "False", "ReplicaSetCreateError", text.clone(), s.now);
                    if let Err(error) = self.api(&s.d).update_status(&s.d).await {
                        tracing::debug!(%error, "unable to report that a replica set cannot be made");
                    }
                }
                self.recorder.event(&s.d, EventType::Warning, "ReplicaSetCreateError", text);
                Err(e)
            }
        }
    }

    /// Writes a ReplicaSet's size, and the sizes of its Deployment as annotations; `None` if all are written already.
    async fn resize(&self, d: &Deployment, set: &ReplicaSet, n: i32) -> Result<Option<ReplicaSet>, Status> {
        let before = size(set);
        let mut changed = set.clone();
        let annotated = revision::annotate_sizes(&mut changed, wanted(d), wanted(d) + max_surge(d));
        if before == n && !annotated {
            return Ok(None);
        }
        changed.spec.get_or_insert_default().replicas = Some(n);
        let updated = self.sets_api(d).update(&changed).await?;
        if before != n {
            let way = if before < n { "up" } else { "down" };
            let text = format!("Scaled {way} replica set {} from {before} to {n}", updated.name());
            self.recorder.event(d, EventType::Normal, "ScalingReplicaSet", text);
        }
        Ok(Some(updated))
    }

    async fn delete(&self, d: &Deployment, sets: &[Arc<ReplicaSet>]) -> Result<(), Status> {
        for set in sets {
            match self.sets_api(d).delete(set.name(), None).await {
                Err(e) if !e.is_not_found() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    async fn roll_back(&self, rollback: Rollback) -> Result<Next, Status> {
        let Rollback { d, reason, text, done } = rollback;
        let kind = if done { EventType::Normal } else { EventType::Warning };
        if !done {
            self.recorder.event(&d, kind, reason, text.clone());
        }
        self.api(&d).update(&d).await?;
        if done {
            self.recorder.event(&d, kind, reason, text);
        }
        Ok(Next::Done)
    }

    /// Writes the status; returns whether that was necessary.
    async fn report(&self, d: &Deployment, status: DeploymentStatus) -> Result<bool, Status> {
        if d.status.as_ref() == Some(&status) {
            return Ok(false);
        }
        let changed = Deployment { status: Some(status), ..d.clone() };
        self.api(d).update_status(&changed).await.map(|_| true)
    }
}
