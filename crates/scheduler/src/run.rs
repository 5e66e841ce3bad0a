//! The scheduler at work: informers in, bindings out.
//!
//! One task owns the cache and the queue, so that a decision needs no lock; binding, preemption and
//! what is written about a failure happen in tasks of their own.

use std::sync::Arc;

use client::{Change, Client, EventType, Factory, Informer, Patch, Recorder};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cache::{Cache, PodInfo};
use crate::cycle::{self, FitError};
use crate::preemption::{self, Candidate};
use crate::queue::{Entry, Queue};

/// The only profile's name; Pods that name another scheduler are not ours.
const SCHEDULER_NAME: &str = "default-scheduler";
/// How many bindings may be under way; beyond it scheduling waits, as it would for the API server.
const BINDINGS: usize = 256;

/// What the loop hears of.
enum Input {
    Pod(Change<Pod>),
    Node(Change<Node>),
    /// A binding ended: the Pod's entry and the mark it was tried under, to go back into the queue if it failed.
    Bound(Box<Entry>, u64, Result<(), api::Status>),
}

/// Runs the scheduler until `shutdown`.
pub async fn run(client: Client, clock: Clock, shutdown: Shutdown) {
    let recorder = Recorder::start(client.clone(), SCHEDULER_NAME, "", clock, &shutdown);
    let factory = Factory::new(client.clone());
    let pods = factory.informer::<Pod>();
    let nodes = factory.informer::<Node>();
    let budgets = factory.informer::<PodDisruptionBudget>();
    // Unbounded in type, bounded in fact: an informer's handler must not block, and what waits here
    // are references to objects that the informer's own store holds.
    let (tx, rx) = mpsc::unbounded_channel();
    let sender = tx.clone();
    nodes.handle(move |change| drop(sender.send(Input::Node(change.clone()))));
    let sender = tx.clone();
    pods.handle(move |change| drop(sender.send(Input::Pod(change.clone()))));
    factory.start(&shutdown);
    let mut scheduler = Scheduler {
        client,
        clock,
        recorder,
        budgets,
        cache: Cache::default(),
        queue: Queue::default(),
        nominated: Vec::new(),
        start: 0,
        tx,
        permits: Arc::new(tokio::sync::Semaphore::new(BINDINGS)),
        shutdown: shutdown.clone(),
    };
    if shutdown.run(factory.synced()).await.is_some() {
        scheduler.work(rx).await;
    }
}

struct Scheduler {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    budgets: Informer<PodDisruptionBudget>,
    cache: Cache,
    queue: Queue,
    /// Preemptors that wait for room, with the node it is made on.
    nominated: Vec<(String, PodInfo)>,
    start: usize,
    tx: mpsc::UnboundedSender<Input>,
    permits: Arc<tokio::sync::Semaphore>,
    shutdown: Shutdown,
}

fn terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
}

fn ours(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|s| s.scheduler_name.as_deref())
        .is_none_or(|n| n.is_empty() || n == SCHEDULER_NAME)
}

impl Scheduler {
    async fn work(&mut self, mut rx: mpsc::UnboundedReceiver<Input>) {
        loop {
            let wake = self.queue.next_at(Instant::now());
            tokio::select! {
                biased;
                () = self.shutdown.wait() => return,
                input = rx.recv() => match input {
                    Some(input) => {
                        self.take(input);
                        // What else is there comes first: a decision should see the newest state.
                        while let Ok(more) = rx.try_recv() {
                            self.take(more);
                        }
                    }
                    None => return,
                },
                () = async { match wake { Some(at) => tokio::time::sleep_until(at).await, None => std::future::pending().await } } => {
                    if let Some((entry, mark)) = self.queue.pop(Instant::now()) {
                        self.try_one(entry, mark).await;
                    }
                }
            }
        }
    }

    fn take(&mut self, input: Input) {
        let now = Instant::now();
        match input {
            Input::Node(Change::Deleted(node)) => {
                self.cache.remove_node(node.metadata.name.as_deref().unwrap_or_default());
            }
            Input::Node(change) => {
                let changed = match &change {
                    Change::Updated { old, new } => node_matters(old, new),
                    _ => true,
                };
                self.cache.set_node(change.object().clone());
                if changed {
                    self.queue.cluster_changed(now);
                }
            }
            Input::Pod(change) => self.take_pod(&change, now),
            Input::Bound(entry, mark, result) => {
                let uid = entry.info.uid().to_owned();
                if let Err(status) = result {
                    // Room was held for it meanwhile: what waits may fit now.
                    if self.cache.forget(&uid) {
                        self.queue.cluster_changed(now);
                    }
                    if !status.is_not_found() {
                        self.report(&entry.info.pod, "SchedulerError", &status.message, None);
                        self.queue.failed(*entry, mark, true, now);
                    }
                }
            }
        }
    }

    fn take_pod(&mut self, change: &Change<Pod>, now: Instant) {
        let pod = change.object();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let gone = matches!(change, Change::Deleted(_)) || terminal(pod);
        if let Some(node) = node_of(pod) {
            self.queue.remove(&uid);
            self.nominated.retain(|(_, p)| p.uid() != uid);
            if gone {
                self.cache.remove_pod(&uid);
                self.queue.cluster_changed(now);
                return;
            }
            let info = PodInfo::new(pod.clone());
            // A Pod that now asks for less leaves room for others.
            let frees = match change {
                Change::Updated { old, .. } => {
                    node_of(old).is_some() && PodInfo::new(old.clone()).requests != info.requests
                }
                _ => false,
            };
            self.cache.set_pod(info, node);
            if frees {
                self.queue.cluster_changed(now);
            }
            return;
        }
        if gone || pod.metadata.deletion_timestamp.is_some() || !ours(pod) {
            self.queue.remove(&uid);
            if gone || pod.metadata.deletion_timestamp.is_some() {
                self.nominated.retain(|(_, p)| p.uid() != uid);
                self.cache.remove_pod(&uid);
            }
            return;
        }
        if self.cache.is_assumed(&uid) {
            return; // its binding is under way
        }
        let changed = match change {
            Change::Updated { old, new } => {
                old.spec != new.spec || old.metadata.labels != new.metadata.labels
            }
            _ => true,
        };
        self.queue.set(PodInfo::new(pod.clone()), changed, now);
    }

    /// One Pod's turn.
    async fn try_one(&mut self, entry: Entry, mark: u64) {
        let mut pick = |n: usize| fastrand::usize(..n);
        match cycle::schedule(&entry.info, &self.cache, &self.nominated, self.start, &mut pick) {
            Ok((node, next)) => {
                self.start = next;
                self.cache.assume(entry.info.clone(), &node);
                self.nominated.retain(|(_, p)| p.uid() != entry.info.uid());
                let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
                self.bind(entry, mark, node, permit);
            }
            Err(error) => self.failed(entry, mark, error),
        }
    }

    fn bind(&self, entry: Entry, mark: u64, node: String, permit: tokio::sync::OwnedSemaphorePermit) {
        let (client, recorder, tx) = (self.client.clone(), self.recorder.clone(), self.tx.clone());
        self.shutdown.spawn(async move {
            let _permit = permit;
            let pod = entry.info.pod.clone();
            let (name, namespace) = names(&pod);
            let binding = Binding {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    namespace: Some(namespace.to_owned()),
                    uid: pod.metadata.uid.clone(),
                    ..ObjectMeta::default()
                },
                target: ObjectReference {
                    kind: Some("Node".into()),
                    name: Some(node.clone()),
                    ..ObjectReference::default()
                },
            };
            let result = client.api::<Pod>(namespace).bind(name, &binding).await;
            if result.is_ok() {
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                recorder.event(&*pod, EventType::Normal, "Scheduled", message);
            }
            let _ = tx.send(Input::Bound(Box::new(entry), mark, result));
        });
    }

    /// Nothing fits: makes room if that is allowed, and says why.
    fn failed(&mut self, entry: Entry, mark: u64, mut error: FitError) {
        let pod = entry.info.pod.clone();
        let mut nominate = None;
        if error.nodes == 0 {
            self.report(&pod, "Unschedulable", "no nodes available to schedule pods", None);
        } else {
            match preemption::find(&entry.info, &self.cache, &error, &self.budgets.list()) {
                Ok(candidate) => {
                    nominate = Some(candidate.node.clone());
                    self.nominated.retain(|(_, p)| p.uid() != entry.info.uid());
                    self.nominated.push((candidate.node.clone(), entry.info.clone()));
                    self.evict(candidate, &entry.info);
                }
                Err(why) => error.post_filter = format!("no new claims to deallocate, {why}"),
            }
            self.report(&pod, "Unschedulable", &error.to_string(), nominate.as_deref());
        }
        self.queue.failed(entry, mark, false, Instant::now());
    }

    /// Deletes the victims of a preemption.
    fn evict(&self, candidate: Candidate, preemptor: &PodInfo) {
        let (client, recorder, now) = (self.client.clone(), self.recorder.clone(), self.clock.now());
        let uid = preemptor.uid().to_owned();
        self.shutdown.spawn(async move {
            for victim in candidate.victims {
                let pod = &victim.pod;
                if pod.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let (name, namespace) = names(pod);
                let api = client.api::<Pod>(namespace);
                let condition = json!({"status": {"conditions": [{
                    "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                    "message": format!("{SCHEDULER_NAME}: preempting to accommodate a higher priority pod"),
                    "lastTransitionTime": api::time::format(now).as_str(),
                }]}});
                // The Pod goes either way; without the condition only the reason is missing.
                if let Err(e) = api.patch_status(name, &Patch::Strategic(condition)).await {
                    tracing::debug!(pod = name, namespace, error = %e, "the victim's condition was not written");
                }
                let options = DeleteOptions {
                    preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() }),
                    ..DeleteOptions::default()
                };
                match api.delete(name, Some(&options)).await {
                    Ok(()) => recorder.event(
                        &**pod,
                        EventType::Normal,
                        "Preempted",
                        format!("Preempted by pod {uid} on node {}", candidate.node),
                    ),
                    Err(e) if e.is_not_found() || e.is_conflict() => {}
                    Err(e) => tracing::warn!(pod = name, namespace, error = %e, "a victim could not be deleted"),
                }
            }
        });
    }

    /// Writes a Pod's `PodScheduled` condition and Event, unless it says so already.
    fn report(&self, pod: &Arc<Pod>, reason: &'static str, message: &str, nominate: Option<&str>) {
        self.recorder.event(&**pod, EventType::Warning, "FailedScheduling", message);
        let status = pod.status.as_ref();
        let same = status.and_then(|s| s.conditions.as_ref()).is_some_and(|c| {
            c.iter().any(|c| {
                c.type_ == "PodScheduled"
                    && c.status == "False"
                    && c.reason.as_deref() == Some(reason)
                    && c.message.as_deref() == Some(message)
            })
        });
        let nominated = status.and_then(|s| s.nominated_node_name.as_deref());
        if same && nominate.is_none_or(|n| nominated == Some(n)) {
            return;
        }
        let transition = status
            .and_then(|s| s.conditions.as_ref())
            .and_then(|c| c.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False"))
            .and_then(|c| c.last_transition_time.as_ref())
            .map_or_else(|| self.clock.now(), |t| t.0);
        let mut patch = json!({"status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": api::time::format(transition).as_str(), "lastProbeTime": null,
            "observedGeneration": pod.metadata.generation,
        }]}});
        if let Some(node) = nominate {
            patch["status"]["nominatedNodeName"] = node.into();
        }
        let (client, pod) = (self.client.clone(), pod.clone());
        self.shutdown.spawn(async move {
            let (name, namespace) = names(&pod);
            match client.api::<Pod>(namespace).patch_status(name, &Patch::Strategic(patch)).await {
                Err(e) if !e.is_not_found() => {
                    tracing::warn!(pod = name, namespace, error = %e, "the condition PodScheduled was not written");
                }
                _ => {}
            }
        });
    }
}

fn names(pod: &Pod) -> (&str, &str) {
    (pod.metadata.name.as_deref().unwrap_or_default(), pod.metadata.namespace.as_deref().unwrap_or_default())
}

/// Whether a node's change can make room: not its heartbeat alone.
fn node_matters(old: &Node, new: &Node) -> bool {
    let allocatable = |n: &Node| n.status.as_ref().and_then(|s| s.allocatable.clone());
    old.spec != new.spec || old.metadata.labels != new.metadata.labels || allocatable(old) != allocatable(new)
}
