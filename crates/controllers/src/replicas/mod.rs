//! ReplicaSet and ReplicationController: keep the wanted number of Pods, made from a template.
//!
//! Both kinds have one controller (upstream: `pkg/controller/replicaset`); [`kinds`] has the differences.

mod kinds;
mod rank;
mod status;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use api::{Gate, Status};
use client::{Api, Change, Client, Index, Informer, Key, resource_of};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::common::batch::{self, slow_start};
use crate::common::claim::claim;
use crate::common::counters::{Counters, Metric};
use crate::common::expectations::Expectations;
use crate::common::pod_control::{Deletion, PodControl, from_template};
use crate::common::pod_owners::{PodOwners, wait_after};
use crate::common::pods::Pods;
use crate::common::{controller_of, deleting};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;
use kinds::Replicated;
use rank::Order;

/// The greatest number of Pods that are made or deleted in one sync.
const BURST: usize = 500;
/// The time after which a set is looked at again if the cache does not show its writes.
const AGAIN: Duration = Duration::from_secs(30);

const AGE_RATIO: &str = "replicaset_controller_sorting_deletion_age_ratio";
const AGES: &[(Metric, &[f64])] = &[(
    (
        AGE_RATIO,
        &[],
        "[ALPHA] The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Only Ready pods count.",
    ),
    &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
)];

/// The controller of ReplicaSets.
pub(crate) type ReplicaSets = Replicas<ReplicaSet>;
/// The controller of ReplicationControllers.
pub(crate) type ReplicationControllers = Replicas<ReplicationController>;

/// The controller of ReplicaSets or of ReplicationControllers.
pub(crate) struct Replicas<T> {
    client: Client,
    clock: Clock,
    control: PodControl,
    sets: Informer<T>,
    sets_by_owner: Index<T>,
    pods: Pods,
    expectations: Arc<Expectations>,
    /// Whether statuses count the Pods that are being deleted.
    counts_terminating: bool,
    order: Order,
    /// Of ReplicaSets alone, as the metrics' names say.
    counters: Arc<Counters>,
}

impl<T: Replicated> Controller for Replicas<T> {
    const NAME: &'static str = T::CONTROLLER;
    const ALIASES: &'static [&'static str] = T::ALIASES;
    const ACCOUNT: &'static str = T::COMPONENT;
    const QUEUE: &'static str = T::QUEUE;
    type Key = Key;

    fn workers(config: &Config) -> usize {
        T::workers(&config.workers)
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let gates = host.config().gates;
        let counters = Arc::new(Counters::new(&[], AGES));
        if T::TERMINATING {
            let told = counters.clone();
            host.metrics().register("replicaset-controller/figures", move |page| told.report(page));
        }
        let sets = host.informer::<T>();
        let sets_by_owner = sets.index("owner", |set| {
            controller_of(set.metadata()).map(|r| siblings(set, r).into()).into_iter().collect()
        });
        Self {
            client: host.client(),
            clock: host.clock(),
            control: PodControl::new(host.client(), host.recorder(T::COMPONENT)),
            sets,
            sets_by_owner,
            pods: Pods::of(host.factory()),
            expectations: Arc::default(),
            counts_terminating: T::TERMINATING
                && gates.enabled(Gate::DeploymentReplicaSetTerminatingReplicas),
            order: if gates.enabled(Gate::PodDeletionCost) { Order::ByCost } else { Order::Plain },
            counters,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.sets.handle(move |change| {
            let key = change.object().key();
            match change {
                Change::Deleted(old) => c.expectations.forget(uid(&**old)),
                Change::Updated { old, new } if uid(&**old) != uid(&**new) => {
                    c.expectations.forget(uid(&**old));
                }
                _ => {}
            }
            queue.add_after(key, wait_after(change));
        });
        let owners = PodOwners::new(&self.sets, wiring.queue(), Some(self.expectations.clone()));
        self.pods.handle(move |change| owners.take(change));
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(set) = self.sets.get_key(&key) else { return Ok(Next::Done) };
        let satisfied = self.expectations.satisfied(uid(&*set));
        let may_act = satisfied && !deleting(set.metadata());
        let selector = set.selector();
        let mut all = self.pods.of_owner::<T>(&key.namespace, uid(&*set));
        let terminating = all.iter().filter(|p| p.is_terminating() && p.is_selected_by(&selector)).count();
        all.extend(self.pods.orphans(&key.namespace));
        all.retain(|p| p.is_active());
        let owners: Api<T> = self.client.api(&key.namespace);
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), &key.namespace);
        let active = claim(&*set, &owners, &selector, all, &api).await?;

        let now = self.clock.now();
        let step = if may_act {
            plan(set.wanted(), &active, &self.related(&set), self.order, now)
        } else {
            Step::Nothing
        };
        if let Step::Delete(doomed) = &step {
            for ratio in rank::age_ratios(&active, doomed, now) {
                self.counters.observe(AGE_RATIO, &[], ratio);
            }
        }
        let managed = self.execute(&set, step).await;

        let terminating = self.counts_terminating.then_some(terminating);
        let wanted = status::of(&*set, &active, terminating, managed.as_ref().err(), now);
        let status = status::update(&owners, &set, wanted).await?;
        managed?;
        // The cache may never show an expected write, if a new watch has missed it.
        let unseen = (!satisfied).then_some(AGAIN);
        let waits = set.min_ready() > 0 && status.ready != status.available;
        let available = waits.then(|| {
            let next = active.iter().filter_map(|p| p.available_in(set.min_ready(), now)).min();
            next.unwrap_or(Duration::from_secs(u64::try_from(set.min_ready()).unwrap_or(0)))
        });
        Ok(Next::at(unseen.into_iter().chain(available).min()))
    }
}

fn uid<T: Replicated>(set: &T) -> &str {
    set.metadata().uid.as_deref().unwrap_or_default()
}

/// The value under which the sets of a controller stand: they are in its namespace.
fn siblings<T: Replicated>(set: &T, controller: &OwnerReference) -> String {
    let namespace = set.metadata().namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}/{}", controller.kind, controller.uid)
}

/// The next step for a set's Pods.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<PodView>>),
}

/// Decides on the step from the Pods that count and `related`, the active Pods of all sets of the same owner.
fn plan(
    wanted: i32,
    active: &[Arc<PodView>],
    related: &[Arc<PodView>],
    order: Order,
    now: Timestamp,
) -> Step {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    match active.len().cmp(&wanted) {
        Ordering::Less => Step::Create((wanted - active.len()).min(BURST)),
        Ordering::Equal => Step::Nothing,
        Ordering::Greater => {
            let count = (active.len() - wanted).min(BURST);
            Step::Delete(rank::to_delete(active, related, count, order, now))
        }
    }
}

impl<T: Replicated> Replicas<T> {
    /// Returns the active Pods of every set that has the same controller.
    fn related(&self, set: &T) -> Vec<Arc<PodView>> {
        let sets = match controller_of(set.metadata()) {
            Some(owner) => self.sets_by_owner.get(&siblings(set, owner)),
            None => Vec::new(),
        };
        let mut uids: Vec<&str> = sets.iter().map(|s| uid(&**s)).collect();
        if uids.is_empty() {
            uids.push(uid(set));
        }
        let namespace = set.metadata().namespace.as_deref().unwrap_or_default();
        let pods = uids.into_iter().flat_map(|uid| self.pods.of_owner::<T>(namespace, uid));
        pods.filter(|p| p.is_active()).collect()
    }

    async fn execute(&self, set: &Arc<T>, step: Step) -> Result<(), Status> {
        let owner = uid(&**set);
        match step {
            Step::Nothing => Ok(()),
            Step::Create(count) => {
                let pod = from_template(&**set, set.template())?;
                self.expectations.expect_creations(owner, count);
                let (made, result) = slow_start(count, |_| async {
                    if !self.control.create(&**set, &pod).await? {
                        self.expectations.created(owner, 1);
                    }
                    Ok(())
                })
                .await;
                // Pods that were not tried, or failed, will not be seen.
                self.expectations.created(owner, count - made);
                result
            }
            Step::Delete(doomed) => {
                self.expectations.expect_deletions(owner, doomed.iter().map(|p| p.uid().to_owned()));
                let deletions = doomed.iter().map(|pod| async {
                    let deleted = self.control.delete(&**set, pod.name()).await;
                    // The informer will not show this Pod's deletion.
                    if !matches!(deleted, Ok(Deletion::Begun)) {
                        self.expectations.deleted(owner, pod.uid());
                    }
                    deleted.map(drop)
                });
                batch::all(deletions).await.into_iter().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use serde_json::json;

    #[test]
    fn plans() {
        let pods = |n: usize| -> Vec<Arc<PodView>> {
            (0..n).map(|i| Arc::new(view(&json!({"metadata": {"uid": i.to_string()}})))).collect()
        };
        let check = |wanted: i32, have: usize, want: (usize, usize)| {
            let got = match plan(wanted, &pods(have), &[], Order::ByCost, Timestamp::UNIX_EPOCH) {
                Step::Nothing => (0, 0),
                Step::Create(n) => (n, 0),
                Step::Delete(d) => (0, d.len()),
            };
            assert_eq!(got, want, "{have} of {wanted}");
        };
        check(2, 2, (0, 0));
        check(2, 0, (2, 0));
        check(1, 4, (0, 3));
        check(0, 1, (0, 1));
        check(9000, 0, (500, 0));
        check(0, 600, (0, 500));
    }

    /// Upstream's cases of `TestSyncReplicaSetDoesNothing`, `TestSyncReplicaSetDormancy` and
    /// `TestControllerBurstReplicas`: a set's size and Pods, and the Pods that each sync makes or deletes until it is right.
    /// The syncs of the second case before the cache shows the writes are left out.
    /// The number of one sync is upstream's, where its tests take a smaller one.
    #[test]
    fn sizes_are_reached() {
        let pods = |n: usize| -> Vec<Arc<PodView>> {
            (0..n).map(|i| Arc::new(view(&json!({"metadata": {"uid": i.to_string()}})))).collect()
        };
        let check = |wanted: i32, have: usize, steps: &[i64]| {
            let mut all = i64::try_from(have).unwrap();
            for step in steps.iter().chain([&0]) {
                let have = pods(usize::try_from(all).unwrap());
                let change = match plan(wanted, &have, &[], Order::ByCost, Timestamp::UNIX_EPOCH) {
                    Step::Nothing => 0,
                    Step::Create(n) => i64::try_from(n).unwrap(),
                    Step::Delete(doomed) => -i64::try_from(doomed.len()).unwrap(),
                };
                assert_eq!(change, *step, "{all} of {wanted}");
                all += change;
            }
        };
        check(2, 2, &[]);
        check(2, 1, &[1]);
        check(2, 0, &[2]);
        check(1200, 0, &[500, 500, 200]);
        check(0, 1200, &[-500, -500, -200]);
        check(500, 30, &[470]);
    }
}
