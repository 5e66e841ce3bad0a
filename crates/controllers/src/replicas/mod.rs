//! ReplicaSet and ReplicationController: as many Pods as wanted, made from a template.
//!
//! Both kinds are one controller (upstream: `pkg/controller/replicaset`); [`kinds`] says how they differ.

mod kinds;
mod rank;
mod status;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Api, Change, Client, EventType, Factory, Informer, Key, Queue, Recorder};
use component::{Clock, Shutdown};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::batch::slow_start;
use crate::common::claim::claim;
use crate::common::expectations::Expectations;
use crate::common::{controller_of, controller_ref, deleting, namespace_is_terminating, pods, retry};
use kinds::Replicated;

/// The most Pods made or deleted in one go.
const BURST: usize = 500;
/// After what time a set is looked at again for which something is awaited.
const AGAIN: Duration = Duration::from_secs(30);
/// The longest name of a Pod.
const NAME_LIMIT: usize = 253;

/// Starts the controller of ReplicaSets.
pub(crate) fn start_replicasets(
    client: Client,
    clock: Clock,
    workers: usize,
    factory: &Factory,
    shutdown: &Shutdown,
) {
    start::<ReplicaSet>(client, clock, workers, factory, shutdown);
}

/// Starts the controller of ReplicationControllers.
pub(crate) fn start_replication_controllers(
    client: Client,
    clock: Clock,
    workers: usize,
    factory: &Factory,
    shutdown: &Shutdown,
) {
    start::<ReplicationController>(client, clock, workers, factory, shutdown);
}

struct Controller<T> {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    sets: Informer<T>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
    expectations: Expectations,
}

fn start<T: Replicated>(
    client: Client,
    clock: Clock,
    workers: usize,
    factory: &Factory,
    shutdown: &Shutdown,
) {
    let sets = factory.informer::<T>();
    sets.index(pods::BY_OWNER, |set| {
        controller_of(set.metadata()).map(|r| r.uid.as_str().into()).into_iter().collect()
    });
    let controller = Arc::new(Controller {
        recorder: Recorder::start(client.clone(), T::COMPONENT, "", clock, shutdown),
        client,
        clock,
        sets,
        pods: pods::informer(factory),
        queue: Queue::default(),
        expectations: Expectations::default(),
    });

    let c = controller.clone();
    controller.sets.handle(move |change| {
        let key = client::Cached::key(&**change.object());
        match change {
            Change::Deleted(_) => c.expectations.forget(&key),
            Change::Updated { old, new } if old.metadata().uid != new.metadata().uid => {
                c.expectations.forget(&key);
            }
            _ => {}
        }
        c.queue.add(key);
    });
    let c = controller.clone();
    controller.pods.handle(move |change| match change {
        Change::Added(pod) => c.pod_added(pod),
        Change::Updated { old, new } => c.pod_updated(old, new),
        Change::Deleted(pod) => c.pod_deleted(pod),
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        let queue = controller.queue.clone();
        queue.work(T::COMPONENT, workers, shutdown, move |key| {
            let controller = controller.clone();
            async move { controller.sync(key).await }
        });
    });
}

/// What is to be done about a set's Pods.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// Decides from the Pods that count and `related`, the active Pods of all sets of the same owner.
fn plan(wanted: i32, active: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Step {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    match active.len().cmp(&wanted) {
        Ordering::Less => Step::Create((wanted - active.len()).min(BURST)),
        Ordering::Equal => Step::Nothing,
        Ordering::Greater => {
            Step::Delete(rank::to_delete(active, related, (active.len() - wanted).min(BURST), now))
        }
    }
}

impl<T: Replicated> Controller<T> {
    /// The set that a Pod's reference names, if it is that set.
    fn resolve(&self, meta: &ObjectMeta) -> Option<(Key, Arc<T>)> {
        let reference = controller_of(meta).filter(|r| r.kind == T::KIND)?;
        let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), &reference.name);
        let set = self.sets.get_key(&key)?;
        (set.metadata().uid.as_ref() == Some(&reference.uid)).then_some((key, set))
    }

    /// Whoever may want to adopt an orphan.
    fn enqueue_matching(&self, pod: &Pod) {
        for set in self.sets.list_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
            let selector = set.selector();
            if !selector.is_empty() && selector.matches(pod.metadata.labels.as_ref()) {
                self.queue.add(client::Cached::key(&*set));
            }
        }
    }

    fn pod_added(&self, pod: &Pod) {
        if deleting(&pod.metadata) {
            return self.pod_deleted(pod);
        }
        if controller_of(&pod.metadata).is_none() {
            return self.enqueue_matching(pod);
        }
        if let Some((key, _)) = self.resolve(&pod.metadata) {
            self.expectations.created(&key, 1);
            self.queue.add(key);
        }
    }

    fn pod_updated(&self, old: &Pod, new: &Pod) {
        let relabelled = old.metadata.labels != new.metadata.labels;
        if deleting(&new.metadata) {
            self.pod_deleted(new);
            if relabelled {
                self.pod_deleted(old);
            }
            return;
        }
        let (before, after) = (controller_of(&old.metadata), controller_of(&new.metadata));
        if before != after
            && let Some((key, _)) = self.resolve(&old.metadata)
        {
            self.queue.add(key);
        }
        if after.is_none() {
            if relabelled || before != after {
                self.enqueue_matching(new);
            }
            return;
        }
        if let Some((key, set)) = self.resolve(&new.metadata) {
            if !pods::is_ready(old) && pods::is_ready(new) && set.min_ready() > 0 {
                let wait = u64::try_from(set.min_ready()).unwrap_or(0);
                self.queue.add_after(key.clone(), Duration::from_secs(wait));
            }
            self.queue.add(key);
        }
    }

    fn pod_deleted(&self, pod: &Pod) {
        if let Some((key, _)) = self.resolve(&pod.metadata) {
            self.expectations.deleted(&key, pod.metadata.uid.as_deref().unwrap_or_default());
            self.queue.add(key);
        }
    }

    async fn sync(&self, key: Key) -> Result<(), Status> {
        let Some(set) = self.sets.get_key(&key) else {
            self.expectations.forget(&key);
            return Ok(());
        };
        let satisfied = self.expectations.satisfied(&key);
        if !satisfied {
            // What is awaited may never be shown, if a watch that would have told of it was begun anew.
            self.queue.add_after(key.clone(), AGAIN);
        }
        let may_act = satisfied && !deleting(set.metadata());
        let selector = set.selector();
        let uid = set.metadata().uid.as_deref().unwrap_or_default();
        let mut all = self.pods.by_index(pods::BY_OWNER, uid);
        let terminating = all
            .iter()
            .filter(|p| pods::is_terminating(p) && selector.matches(p.metadata.labels.as_ref()))
            .count();
        all.extend(self.pods.by_index(pods::BY_OWNER, &pods::orphans(&key.namespace)));
        all.retain(|p| pods::is_active(p));
        let owners: Api<T> = self.client.api(&key.namespace);
        let api: Api<Pod> = self.client.api(&key.namespace);
        let active = claim(&*set, &owners, &selector, all, &api).await?;

        let now = self.clock.now();
        let step =
            if may_act { plan(set.wanted(), &active, &self.related(&set), now) } else { Step::Nothing };
        let managed = self.execute(&key, &set, &api, step).await;

        let wanted = status::of(&*set, &active, terminating, managed.as_ref().err(), now);
        let status = status::update(&owners, &set, wanted).await?;
        managed?;
        if set.min_ready() > 0 && status.ready != status.available {
            let next = pods::next_available(active.iter().map(|p| &**p), set.min_ready(), now);
            let fallback = Duration::from_secs(u64::try_from(set.min_ready()).unwrap_or(0));
            self.queue.add_after(key, next.unwrap_or(fallback));
        }
        Ok(())
    }

    /// The active Pods of every set that has the same controller.
    fn related(&self, set: &T) -> Vec<Arc<Pod>> {
        let sets = match controller_of(set.metadata()) {
            Some(owner) => self.sets.by_index(pods::BY_OWNER, &owner.uid),
            None => Vec::new(),
        };
        let mut uids: Vec<&str> = sets.iter().filter_map(|s| s.metadata().uid.as_deref()).collect();
        if uids.is_empty() {
            uids.extend(set.metadata().uid.as_deref());
        }
        let pods = uids.into_iter().flat_map(|uid| self.pods.by_index(pods::BY_OWNER, uid));
        pods.filter(|p| pods::is_active(p)).collect()
    }

    async fn execute(&self, key: &Key, set: &Arc<T>, api: &Api<Pod>, step: Step) -> Result<(), Status> {
        match step {
            Step::Nothing => Ok(()),
            Step::Create(count) => {
                let pod = set.template().map(|t| pod_of(&**set, t));
                let Some(pod) = pod.filter(|p| p.metadata.labels.as_ref().is_some_and(|l| !l.is_empty()))
                else {
                    return Err(retry("unable to create pods, no labels"));
                };
                self.expectations.expect_creations(key, count);
                let (made, result) = slow_start(count, |_| self.create(&**set, &pod, api, key)).await;
                // What was not even tried, or failed, will not be seen.
                self.expectations.created(key, count - made);
                result
            }
            Step::Delete(doomed) => {
                let uids = doomed.iter().filter_map(|p| p.metadata.uid.clone());
                self.expectations.expect_deletions(key, uids);
                let results = join_all(doomed.iter().map(|pod| self.delete(&**set, pod, api, key))).await;
                results.into_iter().collect()
            }
        }
    }

    async fn create(&self, set: &T, pod: &Pod, api: &Api<Pod>, key: &Key) -> Result<(), Status> {
        match api.create(pod).await {
            Ok(made) => {
                let name = made.metadata.name.unwrap_or_default();
                self.recorder.event(
                    set,
                    EventType::Normal,
                    "SuccessfulCreate",
                    format!("Created pod: {name}"),
                );
                Ok(())
            }
            Err(e) if namespace_is_terminating(&e) => {
                self.expectations.created(key, 1);
                Ok(())
            }
            Err(e) => {
                self.recorder.event(set, EventType::Warning, "FailedCreate", format!("Error creating: {e}"));
                Err(e)
            }
        }
    }

    async fn delete(&self, set: &T, pod: &Pod, api: &Api<Pod>, key: &Key) -> Result<(), Status> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let Err(e) = api.delete(name, None).await else {
            self.recorder.event(set, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
            return Ok(());
        };
        self.expectations.deleted(key, pod.metadata.uid.as_deref().unwrap_or_default());
        if e.is_not_found() {
            return Ok(());
        }
        self.recorder.event(set, EventType::Warning, "FailedDelete", format!("Error deleting: {e}"));
        Err(Status { message: format!("unable to delete pods: {e}"), ..e })
    }
}

/// The Pod that a set makes.
fn pod_of<T: Replicated>(set: &T, template: &PodTemplateSpec) -> Pod {
    let from = template.metadata.clone().unwrap_or_default();
    let name = set.metadata().name.as_deref().unwrap_or_default();
    let dash = if name.len() < NAME_LIMIT { "-" } else { "" };
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}{dash}")),
            namespace: set.metadata().namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![controller_ref(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans() {
        let pods = |n: usize| -> Vec<Arc<Pod>> {
            (0..n)
                .map(|i| {
                    let mut pod = Pod::default();
                    pod.metadata.uid = Some(i.to_string());
                    Arc::new(pod)
                })
                .collect()
        };
        let check = |wanted: i32, have: usize, want: (usize, usize)| {
            let got = match plan(wanted, &pods(have), &[], Timestamp::UNIX_EPOCH) {
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
}
