//! DaemonSets: a Pod on every node that wants one.
//!
//! [`rule`] says which nodes those are, [`plan`] what becomes of the Pods, [`history`] keeps the templates; this module
//! reads the caches and carries it out (upstream: `pkg/controller/daemon`).

mod backoff;
mod history;
mod plan;
mod rule;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod world;

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Api, Cached, Change, Client, EventType, Informer, Key, Queue, Recorder, resource_of};
use component::Clock;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use objects::Selector;
use objects::taints::Tolerance;

use crate::common::batch::{self, slow_start};
use crate::common::claim::claim;
use crate::common::expectations::Expectations;
use crate::common::owners::resolve;
use crate::common::pod_control::{Deletion, PodControl, from_template};
use crate::common::pod_owners::{PodOwner, PodOwners, wait_after};
use crate::common::pods::Pods;
use crate::common::revisions::Revisions;
use crate::common::{controller_of, deleting};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, PodView, nodes};
use backoff::Backoff;
use plan::{Plan, Snapshot};
use rule::{Rule, Verdict};

const COMPONENT: &str = "daemonset-controller";
/// The time after which a set is looked at again if the cache does not show its writes.
const AGAIN: Duration = Duration::from_secs(30);

impl PodOwner for DaemonSet {
    fn selector(&self) -> Selector {
        self.spec.as_ref().map_or_else(Selector::nothing, |s| Selector::or_nothing(&s.selector))
    }
    fn pods(&self) -> usize {
        self.status.as_ref().and_then(|s| usize::try_from(s.desired_number_scheduled).ok()).unwrap_or(0)
    }
}

/// The controller of DaemonSets.
pub(crate) struct DaemonSets {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    control: PodControl,
    sets: Informer<DaemonSet>,
    pods: Pods,
    nodes: Informer<NodeView>,
    /// The nodes whose labels or taints changed.
    changed: Queue<Key>,
    revisions: Revisions,
    expectations: Arc<Expectations>,
    backoff: Backoff,
    tolerance: Tolerance,
}

impl Controller for DaemonSets {
    const NAME: &'static str = "daemonset-controller";
    const ALIASES: &'static [&'static str] = &["daemonset"];
    const ACCOUNT: &'static str = "daemon-set-controller";
    const QUEUE: &'static str = "daemonset";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.daemon_sets
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let recorder = host.recorder(COMPONENT);
        Self {
            client: host.client(),
            clock: host.clock(),
            control: PodControl::new(host.client(), recorder.clone()),
            recorder,
            sets: host.informer(),
            pods: Pods::of(host.factory()),
            nodes: nodes(host.factory()),
            changed: host.queue("daemonset-node-updates"),
            revisions: Revisions::of(host),
            expectations: Arc::default(),
            backoff: Backoff::default(),
            tolerance: Tolerance::of(host.config().gates),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.sets.handle(move |change| {
            let gone = match change {
                Change::Deleted(old) => Some(old),
                Change::Updated { old, new } => (old.uid() != new.uid()).then_some(old),
                Change::Added(_) => None,
            };
            if let Some(old) = gone {
                c.expectations.forget(old.uid());
                c.backoff.forget(old.uid());
            }
            queue.add_after(change.object().key(), wait_after(change));
        });
        let owners = PodOwners::new(&self.sets, wiring.queue(), Some(self.expectations.clone()));
        self.pods.handle(move |change| owners.take(change));
        let (queue, c) = (wiring.queue(), self.clone());
        self.revisions.informer().handle(move |change| c.revision_changed(change, &queue));
        self.watch_nodes(wiring);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(set) = self.sets.get_key(&key) else { return Ok(Next::Done) };
        if set.spec.as_ref().is_some_and(|s| s.selector == LabelSelector::default()) {
            let text = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder.event(&*set, EventType::Warning, "SelectingAll", text);
            return Ok(Next::Done);
        }
        if deleting(&set.metadata) {
            return Ok(Next::Done);
        }
        // Before anything is read: what is seen by now is in what is read.
        let satisfied = self.expectations.satisfied(set.uid());
        let pods = self.claim_pods(&set).await?;
        let revisions = self.revisions.claim(&*set, &set.selector(), true).await?;
        let history = history::present(&self.client, &self.revisions, &set, revisions, &pods).await?;
        let nodes = self.judged(&set);
        let seen = set.status.as_ref().and_then(|s| s.observed_generation).unwrap_or(0);
        let held = self.backoff.held(set.uid(), seen);
        let snapshot = Snapshot {
            set: &set,
            hash: &history.hash,
            nodes: &nodes,
            pods: plan::place(pods.iter().cloned()),
            held: &held,
            now: self.clock.now(),
        };
        let mut done = Ok(None);
        if satisfied {
            done = self.update(&snapshot).await;
            if done.is_ok() {
                let limit = set.spec.as_ref().and_then(|s| s.revision_history_limit).unwrap_or(10);
                let surplus = history::surplus(&history.old, limit, &pods);
                done = self.revisions.delete(&surplus).await.and(done);
            }
        }
        let reported = self.report(&snapshot, satisfied).await;
        let held = done?;
        reported?;
        // The cache may never show an expected write, if a new watch has missed it.
        let unseen = (!satisfied).then_some(AGAIN);
        let min_ready = plan::min_ready(&set);
        let available = pods.iter().filter_map(|p| p.available_in(min_ready, snapshot.now)).min();
        Ok(Next::at(unseen.into_iter().chain(available).chain(held).min()))
    }
}

impl DaemonSets {
    fn watch_nodes(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.nodes.handle(move |change| match change {
            Change::Added(node) => c.changed.add(node.key()),
            Change::Updated { old, new } if rule::is_alike(old, new) => {}
            Change::Updated { new, .. } => c.changed.add(new.key()),
            // DIFFERENCE: upstream's status counts the node until something else changes.
            Change::Deleted(node) => {
                for set in c.sets.list().iter().filter(|set| Rule::of(set, c.tolerance).judge(node).run) {
                    queue.add(set.key());
                }
            }
        });
        let (queue, c) = (wiring.queue(), self.clone());
        wiring.work(&self.changed, "daemonset-node-updates", 1, move |key: Key| {
            c.node_changed(&key, &queue);
            std::future::ready(Ok(Next::Done))
        });
    }

    /// Queues the sets whose Pods a node lacks, or has and does not want any more.
    fn node_changed(&self, key: &Key, queue: &Queue<Key>) {
        let Some(node) = self.nodes.get_key(key) else { return };
        let on_node = self.pods.on_node(node.name());
        for set in self.sets.list() {
            let scheduled = on_node.iter().any(|p| p.controller().is_some_and(|r| r.uid == set.uid()));
            let misscheduled = set.status.as_ref().is_some_and(|s| s.number_misscheduled > 0);
            if rule::concerns(Rule::of(&set, self.tolerance).judge(&node), scheduled, misscheduled) {
                queue.add(set.key());
            }
        }
    }

    /// Queues the sets that a revision belonged or belongs to, or that may want to adopt it.
    fn revision_changed(&self, change: &Change<ControllerRevision>, queue: &Queue<Key>) {
        // A set makes its own revisions.
        if matches!(change, Change::Added(r) if controller_of(&r.metadata).is_some()) {
            return;
        }
        for revision in change.states() {
            if let Some((key, _)) =
                resolve(&self.sets, revision.namespace(), controller_of(&revision.metadata))
            {
                queue.add(key);
            }
        }
        let revision = change.object();
        if controller_of(&revision.metadata).is_none() && !matches!(change, Change::Deleted(_)) {
            for set in self.sets.list_namespace(revision.namespace()) {
                if set.selector().matches(revision.metadata.labels.as_ref()) {
                    queue.add(set.key());
                }
            }
        }
    }

    fn api(&self, set: &DaemonSet) -> Api<DaemonSet> {
        self.client.api(set.namespace())
    }

    /// Adopts and releases Pods, and returns the set's.
    async fn claim_pods(&self, set: &DaemonSet) -> Result<Vec<Arc<PodView>>, Status> {
        let mut all = self.pods.of_owner::<DaemonSet>(set.namespace(), set.uid());
        all.extend(self.pods.orphans(set.namespace()));
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), set.namespace());
        claim(set, &self.api(set), &set.selector(), all, &api).await
    }

    /// Judges all nodes, in the order of their names.
    fn judged(&self, set: &DaemonSet) -> Vec<(Arc<NodeView>, Verdict)> {
        let rule = Rule::of(set, self.tolerance);
        let mut all: Vec<_> = self.nodes.list().into_iter().map(|n| (n.clone(), rule.judge(&n))).collect();
        all.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
        all
    }

    /// Does what is planned; returns the time until a Pod that is held back may be deleted.
    async fn update(&self, s: &Snapshot<'_>) -> Result<Option<Duration>, Status> {
        let plan = plan::plan(s)?;
        let seen = s.set.status.as_ref().and_then(|s| s.observed_generation).unwrap_or(0);
        for plan::Ended { node, pod } in &plan.ended {
            let (namespace, name) = (pod.namespace(), pod.name());
            if pod.phase == "Failed" {
                self.backoff.failed(s.set.uid(), seen, node);
                let text =
                    format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
                self.recorder.event(s.set, EventType::Warning, "FailedDaemonPod", text);
            } else {
                let text = format!(
                    "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it"
                );
                self.recorder.event(s.set, EventType::Normal, "SucceededDaemonPod", text);
            }
        }
        self.execute(s, &plan).await?;
        Ok(plan.again)
    }

    async fn execute(&self, s: &Snapshot<'_>, plan: &Plan) -> Result<(), Status> {
        let Plan { create, delete, .. } = plan;
        if create.is_empty() && delete.is_empty() {
            return Ok(());
        }
        let pod = from_template(s.set, Some(&template::template(s.set, s.hash)))?;
        let owner = s.set.uid();
        self.expectations.expect(owner, create.len(), delete.iter().map(|p| p.uid().to_owned()));
        let (made, created) = slow_start(create.len(), |i| {
            let mut pod = pod.clone();
            template::aim(pod.spec.get_or_insert_default(), &create[i]);
            async move {
                if !self.control.create(s.set, &pod).await? {
                    self.expectations.created(owner, 1);
                }
                Ok(())
            }
        })
        .await;
        // Pods that were not tried, or failed, will not be seen.
        self.expectations.created(owner, create.len() - made);
        let deletions = delete.iter().map(|pod| async {
            let deleted = self.control.delete(s.set, pod.name()).await;
            // The informer will not show this Pod's deletion.
            if !matches!(deleted, Ok(Deletion::Begun)) {
                self.expectations.deleted(owner, pod.uid());
            }
            deleted.map(drop)
        });
        let deleted: Result<(), Status> = batch::all(deletions).await.into_iter().collect();
        created.and(deleted)
    }

    /// Writes the status if it differs; once more on the newest object if that fails. With `observed`, it is that of
    /// the present generation.
    async fn report(&self, s: &Snapshot<'_>, observed: bool) -> Result<(), Status> {
        let told = s.set.status.clone().unwrap_or_default();
        let mut wanted = plan::status(s);
        if observed {
            wanted.observed_generation = s.set.metadata.generation;
        }
        if !plan::differs(&told, &wanted) && told.observed_generation >= s.set.metadata.generation {
            return Ok(());
        }
        let api = self.api(s.set);
        let changed = DaemonSet { status: Some(wanted.clone()), ..s.set.clone() };
        if api.update_status(&changed).await.is_ok() {
            return Ok(());
        }
        let mut fresh = api.get(s.set.name()).await?;
        // Others count collisions.
        wanted.collision_count = fresh.status.as_ref().and_then(|s| s.collision_count);
        fresh.status = Some(wanted);
        api.update_status(&fresh).await.map(drop)
    }
}
