//! StatefulSets: Pods with a name, a place in an order, and claims of their own.
//!
//! [`plan`] decides what is to be done; [`control`] does it; this module reads the caches, keeps the history of the
//! set's template and writes the status (upstream: `pkg/controller/statefulset`).

mod claims;
mod control;
mod identity;
mod metrics;
mod plan;
mod set;
mod snapshot;
mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use api::{Gate, Status};
use client::{Api, Change, Client, Informer, Key, resource_of};
use component::Clock;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::common::claim::claim_if;
use crate::common::pod_owners::{PodOwner, PodOwners};
use crate::common::pods::Pods;
use crate::common::retry;
use crate::common::revisions::{self, Present, Revisions};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;
use control::Control;
use identity::Revision;
use metrics::Metrics;
use snapshot::Snapshot;

const COMPONENT: &str = "statefulset-controller";

/// The controller of StatefulSets.
pub(crate) struct StatefulSets {
    client: Client,
    clock: Clock,
    sets: Informer<StatefulSet>,
    pods: Pods,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Revisions,
    control: Control,
    counts_unavailable: bool,
    metrics: Metrics,
}

impl Controller for StatefulSets {
    const NAME: &'static str = "statefulset-controller";
    const ALIASES: &'static [&'static str] = &["statefulset"];
    const ACCOUNT: &'static str = "statefulset-controller";
    const QUEUE: &'static str = "statefulset";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.stateful_sets
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let metrics = Metrics::default();
        metrics.register(host.metrics());
        Self {
            client: host.client(),
            clock: host.clock(),
            sets: host.informer(),
            pods: Pods::of(host.factory()),
            revisions: Revisions::of(host),
            control: Control::new(host.client(), host.recorder(COMPONENT)),
            claims: host.informer(),
            counts_unavailable: host.config().gates.enabled(Gate::MaxUnavailableStatefulSet),
            metrics,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.sets, true);
        let owners = PodOwners::new(&self.sets, wiring.queue(), None);
        self.pods.handle(move |change| owners.take(change));
        // A Pod may wait for a claim to be made anew, or for one of an earlier Pod to go. DIFFERENCE: upstream does not
        // hear of it.
        let (queue, c) = (wiring.queue(), self.clone());
        self.claims.handle(move |change| {
            let Change::Deleted(claim) = change else { return };
            let (namespace, name) =
                (claim.metadata.namespace.as_deref().unwrap_or_default(), set::name(&claim.metadata));
            for set in c.sets.list_namespace(namespace) {
                if identity::is_claim_of(&set, name) {
                    queue.add(Key::new(namespace, set::name(&set.metadata)));
                }
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(cached) = self.sets.get_key(&key) else {
            self.metrics.forget(&key);
            return Ok(Next::Done);
        };
        let selector = cached.selector();
        let revisions = self.revisions.claim(&*cached, &selector, false).await?;
        let pods = self.claim_pods(&cached).await?;
        let history = self.present_revisions(&cached, &revisions).await?;
        let names = [history.current.name.clone(), history.update.name.clone()];
        let used: HashSet<String> =
            pods.values().map(|p| snapshot::revision_of(p).to_owned()).chain(names).collect();
        let result = Box::pin(self.update(&key, &cached, pods, history)).await;
        self.truncate(&cached, &revisions, &used).await?;
        result
    }
}

/// The revisions between which a set's Pods are.
struct History {
    current: Revision,
    update: Revision,
    collisions: i32,
}

impl StatefulSets {
    fn api(&self, set: &StatefulSet) -> Api<StatefulSet> {
        self.client.api(set.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Adopts and releases Pods, and returns the set's by their ordinals.
    async fn claim_pods(&self, set: &StatefulSet) -> Result<BTreeMap<i64, Arc<PodView>>, Status> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let selector = set.selector();
        let mut all =
            self.pods.of_owner::<StatefulSet>(namespace, set.metadata.uid.as_deref().unwrap_or_default());
        all.extend(self.pods.orphans(namespace));
        let ordinal = |pod: &PodView| identity::ordinal(set, pod.name());
        let matches = |pod: &PodView| ordinal(pod).is_some() && pod.is_selected_by(&selector);
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), namespace);
        let owned = claim_if(set, &self.api(set), matches, all, &api).await?;
        Ok(owned.into_iter().filter_map(|pod| Some((ordinal(&pod)?, pod))).collect())
    }

    /// Finds the current revision, and finds or makes that of the present template.
    async fn present_revisions(
        &self,
        set: &StatefulSet,
        all: &[Arc<ControllerRevision>],
    ) -> Result<History, Status> {
        let told = set.status.clone().unwrap_or_default();
        let mut collisions = told.collision_count.unwrap_or(0);
        let template = set.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default();
        let data = revisions::data_of(&template)?;
        let update = match revisions::find(all, &data) {
            Present::Newest(found) => set::name(&found.metadata).to_owned(),
            Present::Again(found, number) => {
                let name = set::name(&found.metadata).to_owned();
                self.revisions.renumber(&found, number).await?;
                name
            }
            Present::New(number) => {
                let hash = revisions::hash(&data, Some(collisions));
                let new = revisions::new(set, &template, data, number, (revisions::HASH, hash));
                let made = self.revisions.create(&set.metadata, &new, &mut collisions).await?;
                set::name(&made.metadata).to_owned()
            }
        };
        let update = Revision { name: update, template };
        let current = all.iter().find(|r| r.metadata.name == told.current_revision);
        let current = match current {
            Some(r) if set::name(&r.metadata) != update.name => {
                Revision { name: set::name(&r.metadata).to_owned(), template: revisions::template_of(r)? }
            }
            _ => update.clone(),
        };
        Ok(History { current, update, collisions })
    }

    /// Does what is to be done with Pods and claims, and writes the status.
    async fn update(
        &self,
        key: &Key,
        set: &StatefulSet,
        pods: BTreeMap<i64, Arc<PodView>>,
        history: History,
    ) -> Result<Next, Status> {
        let History { current, update, collisions } = history;
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let claim = |name: &str| self.claims.get_key(&Key::new(namespace, name));
        let snapshot = Snapshot {
            set,
            claim: &claim,
            pods,
            current,
            update,
            collisions,
            counts_unavailable: self.counts_unavailable,
            now: self.clock.now(),
        };
        let plan = plan::plan(&snapshot)?;
        if self.counts_unavailable {
            let may = set::max_unavailable(set).map_err(retry)?;
            self.metrics.set(key, set::is_parallel(set), snapshot.unavailable(), may);
        }
        let (replaced, done) = self.control.execute(&snapshot, &plan.phases).await;
        let mut status = plan.status;
        status.current_replicas = status.current_replicas.map(|n| n - replaced);
        status::complete(set, &mut status);
        let written = self.report(set, status).await;
        done.and(written).map(|()| Next::at(plan.again))
    }

    /// Writes the status if it differs; once more on the newest object if another write came between.
    async fn report(&self, set: &StatefulSet, status: StatefulSetStatus) -> Result<(), Status> {
        if !status::differs(set, &status) {
            return Ok(());
        }
        let api = self.api(set);
        let changed = StatefulSet { status: Some(status.clone()), ..set.clone() };
        match api.update_status(&changed).await {
            Err(e) if e.is_conflict() => {
                let fresh = api.get(set::name(&set.metadata)).await?;
                if fresh.metadata.uid != set.metadata.uid {
                    return Err(e);
                }
                api.update_status(&StatefulSet { status: Some(status), ..fresh }).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// Deletes the oldest revisions beyond the limit, but none that Pods have.
    async fn truncate(
        &self,
        set: &StatefulSet,
        all: &[Arc<ControllerRevision>],
        used: &HashSet<String>,
    ) -> Result<(), Status> {
        let Some(limit) = set::history_limit(set) else { return Ok(()) };
        self.revisions.delete(&revisions::surplus(all, limit, |name| used.contains(name))).await
    }
}
