//! The scheduler at work: informers in, bindings out.
//!
//! One task owns the cache and the queue, so that a decision needs no lock; binding, preemption and
//! what is written about a failure happen in tasks of their own.

mod evict;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_told() {
        let caught = |f: fn()| catch_unwind(f).map_err(|p| panic_text(p.as_ref()).to_owned()).unwrap_err();
        assert_eq!(caught(|| panic!("plain")), "plain");
        assert_eq!(caught(|| panic!("{}", "made".repeat(2))), "mademade");
        assert_eq!(caught(|| std::panic::panic_any(7)), "a panic without a message");
    }
}
mod writes;

use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use client::{Cached, Change, Client, Clients, EventType, Informer, Recorder, Selection, resource_of};
use component::{Clock, Registry, Shutdown};
use k8s_openapi::api::core::v1::{Binding, Namespace, Node, ObjectReference, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::cycle::{self, Failure, FitError};
use crate::events::{self, Events};
use crate::nominated::Nominated;
use crate::pod::{PodInfo, PodView};
use crate::preemption::{self, Candidate, Refusal};
use crate::queue::{Entry, Mark, Queue};
use writes::{Nominate, Report, Writes};

/// The only profile's name; Pods that name another scheduler are not ours.
const SCHEDULER_NAME: &str = "default-scheduler";
/// How many bindings may be under way; beyond it scheduling waits, as it would for the API server.
const BINDINGS: usize = 256;

/// The news that the loop hears.
enum Input {
    Pod(Change<PodView>),
    Node(Change<Node>),
    Namespace(Change<Namespace>),
    Claim(Change<PersistentVolumeClaim>),
    Class(Change<StorageClass>),
    /// A binding ended.
    Bound(Box<Entry>, Result<(), api::Status>),
    /// A report about a Pod was written, or could not be: namespace, name, uid.
    Written(String, String, String),
    /// The victims of a preemptor (by uid) are gone, or some could not be deleted.
    Evicted(String),
}

/// The user that the scheduler works as.
pub const USER: &str = "system:kube-scheduler";

/// Runs the scheduler until `shutdown`, with the client of [`USER`]. Its metrics go into `metrics`.
pub async fn run(clients: Clients, clock: Clock, metrics: Registry, shutdown: Shutdown) {
    let client = clients.of(USER);
    let recorder = Recorder::start(client.clone(), SCHEDULER_NAME, "", clock, &shutdown);
    let factory = clients.factory(USER);
    let pods = factory.select::<PodView>(resource_of::<Pod>(), Selection::default());
    let budgets = factory.informer::<PodDisruptionBudget>();
    // Unbounded in type, bounded in fact: an informer's handler must not block, and what waits here
    // are references to objects that the informer's own store holds.
    let (tx, rx) = mpsc::unbounded_channel();
    // Pods come last: what they are judged by is known before.
    follow(&factory.informer(), &tx, Input::Namespace);
    follow(&factory.informer(), &tx, Input::Class);
    follow(&factory.informer(), &tx, Input::Claim);
    follow(&factory.informer(), &tx, Input::Node);
    follow(&pods, &tx, Input::Pod);
    let told = factory.clone();
    metrics.register("informers", move |page| told.report(page));
    factory.start(&shutdown);
    let mut scheduler = Scheduler {
        client,
        clock,
        recorder,
        pods,
        budgets,
        cache: Cache::default(),
        queue: Queue::default(),
        nominated: Nominated::default(),
        preempting: HashSet::new(),
        writes: Writes::default(),
        start: 0,
        tx,
        permits: Arc::new(tokio::sync::Semaphore::new(BINDINGS)),
        shutdown: shutdown.clone(),
    };
    if shutdown.run(factory.synced()).await.is_some() {
        scheduler.work(rx).await;
    }
}

fn follow<T: Cached>(
    informer: &Informer<T>,
    tx: &mpsc::UnboundedSender<Input>,
    input: fn(Change<T>) -> Input,
) {
    let tx = tx.clone();
    informer.handle(move |change| drop(tx.send(input(change.clone()))));
}

struct Scheduler {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    pods: Informer<PodView>,
    budgets: Informer<PodDisruptionBudget>,
    cache: Cache,
    queue: Queue,
    nominated: Nominated,
    /// Preemptors, by uid, whose victims are being deleted: they are not tried before that is done.
    preempting: HashSet<String>,
    writes: Writes,
    start: usize,
    tx: mpsc::UnboundedSender<Input>,
    permits: Arc<tokio::sync::Semaphore>,
    shutdown: Shutdown,
}

/// The decision of a cycle.
enum Decision {
    /// The node, and where the next cycle begins to look.
    Node(String, usize),
    /// Nothing fits; what can be done about it.
    Unschedulable(Box<FitError>, Result<Candidate, Refusal>),
    /// No decision.
    Error(String),
}

fn ours(pod: &PodView) -> bool {
    pod.spec().and_then(|s| s.scheduler_name.as_deref()).is_none_or(|n| n.is_empty() || n == SCHEDULER_NAME)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
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
                        // The other news comes first: a decision should see the newest state.
                        while let Ok(more) = rx.try_recv() {
                            self.take(more);
                        }
                    }
                    None => return,
                },
                () = async { match wake { Some(at) => tokio::time::sleep_until(at).await, None => std::future::pending().await } } => {
                    if let Some((entry, mark)) = self.queue.pop(Instant::now()) {
                        self.try_one(entry, &mark).await;
                    }
                }
            }
        }
    }

    fn take(&mut self, input: Input) {
        let now = Instant::now();
        let events = match input {
            Input::Node(change) => self.take_node(&change),
            Input::Pod(change) => self.take_pod(&change, now),
            Input::Namespace(change) => {
                if let Change::Deleted(namespace) = &change {
                    self.cache.remove_namespace(namespace.metadata.name.as_deref().unwrap_or_default());
                    Events::NONE
                } else {
                    self.cache.set_namespace(change.object());
                    // Other terms speak of its Pods now.
                    Events::POD_LABELS
                }
            }
            Input::Claim(change) => {
                let meta = &change.object().metadata;
                let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
                match &change {
                    Change::Deleted(_) => self.cache.claims_mut().claims.remove(&key),
                    _ => self.cache.claims_mut().claims.insert(key, change.object().clone()),
                };
                Events::CLAIMS
            }
            Input::Class(change) => {
                let name = change.object().metadata.name.clone().unwrap_or_default();
                match &change {
                    Change::Deleted(_) => self.cache.claims_mut().classes.remove(&name),
                    _ => self.cache.claims_mut().classes.insert(name, change.object().clone()),
                };
                Events::CLAIMS
            }
            Input::Bound(entry, result) => self.bound(*entry, result, now),
            Input::Written(namespace, name, uid) => {
                if let Some(next) = self.writes.done(&uid) {
                    self.write(namespace, name, uid, next);
                }
                Events::NONE
            }
            Input::Evicted(uid) => {
                self.preempting.remove(&uid);
                // Whether they went or not: it is tried again, and decides by what it sees then.
                self.queue.activate(&uid, now);
                Events::NONE
            }
        };
        self.queue.happened(events, now);
    }

    fn take_node(&mut self, change: &Change<Node>) -> Events {
        let node = change.object();
        match change {
            Change::Deleted(_) => {
                self.cache.remove_node(node.metadata.name.as_deref().unwrap_or_default());
                return Events::NODE_DELETED;
            }
            Change::Added(_) | Change::Updated { .. } => self.cache.set_node(node.clone()),
        }
        match change {
            Change::Updated { old, new } => events::of_node(old, new),
            _ => Events::NODE_ADDED,
        }
    }

    fn take_pod(&mut self, change: &Change<PodView>, now: Instant) -> Events {
        // Deleted and made anew while nobody looked.
        if let Change::Updated { old, new } = change
            && old.uid() != new.uid()
        {
            let events = self.take_pod(&Change::Deleted(old.clone()), now);
            return events | self.take_pod(&Change::Added(new.clone()), now);
        }
        let pod = change.object();
        let uid = pod.shared_uid();
        let gone = matches!(change, Change::Deleted(_)) || pod.ended;
        if let Some(node) = pod.node() {
            return self.take_placed(change, node, gone);
        }
        let leaving = gone || pod.leaving;
        if leaving || !ours(pod) {
            self.queue.remove(&uid);
            if !leaving {
                return Events::NONE;
            }
            // The room that was kept for it is free for others.
            let kept = self.cache.is_assumed(&uid) || self.nominated.node_of(&uid).is_some();
            self.nominated.remove(&uid);
            self.cache.remove_pod(&uid);
            return if kept { Events::POD_DELETED } else { Events::NONE };
        }
        if self.cache.is_assumed(&uid) {
            return Events::NONE; // its binding is under way; if that fails the newest state is read again
        }
        let info = PodInfo::from(pod.clone());
        let (before, changed) = match change {
            Change::Updated { old, new } => {
                (Some(old.nominated().to_owned()), old.spec() != new.spec() || old.labels != new.labels)
            }
            _ => (None, true),
        };
        self.nominated.follow(&info, before.as_deref());
        self.queue.set(info, changed, now);
        Events::NONE
    }

    /// A Pod that has a node.
    fn take_placed(&mut self, change: &Change<PodView>, node: &str, gone: bool) -> Events {
        let pod = change.object();
        let uid = pod.shared_uid();
        let mut events = Events::NONE;
        if self.nominated.node_of(&uid).is_some_and(|n| n != node) {
            events |= Events::POD_DELETED; // the room that was kept elsewhere
        }
        self.queue.remove(&uid);
        self.nominated.remove(&uid);
        if gone {
            self.cache.remove_pod(&uid);
            return events | Events::POD_DELETED;
        }
        let info = PodInfo::from(pod.clone());
        match change {
            Change::Updated { old, new } if old.node().is_some() => {
                // Rules about other Pods see its labels, and whether it is leaving.
                if old.labels != new.labels || old.leaving != new.leaving {
                    events |= Events::POD_LABELS;
                }
                if old.requests != info.requests {
                    events |= Events::POD_SCALED_DOWN;
                }
            }
            _ => events |= Events::POD_ADDED,
        }
        self.cache.set_pod(info, node);
        events
    }

    /// Decides about a Pod. No Pod that the API lets through may end the scheduler: a panic costs this Pod alone.
    fn decide(&self, info: &PodInfo) -> Decision {
        let decide = || match cycle::schedule(info, &self.cache, &self.nominated, self.start, &mut |n| {
            fastrand::usize(..n)
        }) {
            Ok((node, next)) => Decision::Node(node, next),
            Err(Failure::Error(why)) => Decision::Error(why),
            Err(Failure::Unschedulable(error)) => {
                let budgets = self.budgets.list();
                let room = preemption::find(info, &self.cache, &self.nominated, &error, &budgets);
                Decision::Unschedulable(error, room)
            }
        };
        // Nothing is changed in there, so nothing can be left half changed.
        catch_unwind(AssertUnwindSafe(decide)).unwrap_or_else(|panic| {
            let (name, namespace) = (info.name(), info.namespace());
            let text = panic_text(panic.as_ref());
            tracing::error!(pod = name, namespace, panic = text, "a scheduling cycle panicked");
            Decision::Error(format!("the scheduling cycle panicked: {text}"))
        })
    }

    /// One Pod's turn.
    async fn try_one(&mut self, entry: Entry, mark: &Mark) {
        if self.preempting.contains(entry.info.uid()) {
            self.queue.held(entry, Instant::now());
            return;
        }
        match self.decide(&entry.info) {
            Decision::Node(node, next) => {
                self.start = next;
                self.cache.assume(entry.info.clone(), &node);
                let kept = self.nominated.node_of(entry.info.uid()).is_some_and(|n| n != node);
                self.nominated.remove(entry.info.uid());
                if kept {
                    self.queue.happened(Events::POD_DELETED, Instant::now());
                }
                let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
                self.bind(entry, node, permit);
            }
            Decision::Unschedulable(error, room) => self.failed(entry, mark, *error, room),
            Decision::Error(why) => self.errored(entry, &why),
        }
    }

    fn bind(&mut self, entry: Entry, node: String, permit: tokio::sync::OwnedSemaphorePermit) {
        let (client, recorder, tx) = (self.client.clone(), self.recorder.clone(), self.tx.clone());
        let written = self.writes.last(entry.info.uid());
        self.shutdown.spawn(async move {
            let _permit = permit;
            // A condition that says it can't be placed must not arrive after it was.
            let _written = match &written {
                Some(lock) => Some(lock.lock().await),
                None => None,
            };
            let pod = entry.info.clone();
            let (name, namespace) = (pod.name(), pod.namespace());
            let binding = Binding {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    namespace: Some(namespace.to_owned()),
                    uid: Some(pod.uid().to_owned()),
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
                recorder.event_about(pod.reference(), EventType::Normal, "Scheduled", message);
            }
            let _ = tx.send(Input::Bound(Box::new(entry), result));
        });
    }

    /// A binding ended. If it failed, the Pod goes back into the queue as it is now, unless it is gone or has a node.
    fn bound(&mut self, mut entry: Entry, result: Result<(), api::Status>, now: Instant) -> Events {
        let Err(status) = result else { return Events::NONE };
        // Room was held for it meanwhile: what waits may fit now.
        let freed = if self.cache.forget(entry.info.uid()) { Events::POD_DELETED } else { Events::NONE };
        self.queue.happened(freed, now);
        if let Some(info) = self.current(&entry.info)
            && !status.is_not_found()
        {
            let why = format!("running Bind plugin \"DefaultBinder\": {}", status.message);
            entry.info = info;
            self.errored(entry, &why);
        }
        Events::NONE
    }

    /// A Pod as it is now, if it is still the same one and is to be placed.
    fn current(&self, info: &PodInfo) -> Option<PodInfo> {
        let pod = self.pods.get(info.namespace(), info.name())?;
        let to_place = pod.uid() == info.uid() && pod.node().is_none() && !pod.leaving && !pod.ended;
        to_place.then(|| PodInfo::from(pod))
    }

    /// There was no decision, or it could not be carried out.
    fn errored(&mut self, entry: Entry, why: &str) {
        self.report(&entry.info, "SchedulerError", why, Nominate::Keep);
        self.queue.errored(entry, Instant::now());
    }

    /// Nothing fits: makes room if that is allowed, and says why.
    fn failed(&mut self, entry: Entry, mark: &Mark, mut error: FitError, room: Result<Candidate, Refusal>) {
        let (pod, uid) = (entry.info.clone(), entry.info.uid().to_owned());
        let waits_for = events::that_lift(error.plugins());
        if error.nodes == 0 {
            self.report(&pod, "Unschedulable", "no nodes available to schedule pods", Nominate::Keep);
            self.queue.refused(entry, mark, waits_for, Instant::now());
            return;
        }
        let nominate = match room {
            Ok(candidate) => {
                let node = candidate.node.clone();
                self.nominate(&entry.info, &node);
                self.evict(candidate, &entry.info);
                Nominate::Node(node)
            }
            Err(refusal) => {
                error.post_filter = format!("no new claims to deallocate, {refusal}");
                match refusal {
                    Refusal::NotEligible(_) => Nominate::Keep,
                    Refusal::NoCandidate(_) => {
                        // Others may have the room that was kept for it.
                        if self.nominated.node_of(&uid).is_some() {
                            self.nominated.remove(&uid);
                            self.queue.happened(Events::POD_DELETED, Instant::now());
                        }
                        Nominate::Node(String::new())
                    }
                }
            }
        };
        self.report(&pod, "Unschedulable", &error.to_string(), nominate);
        self.queue.refused(entry, mark, waits_for, Instant::now());
    }

    /// Keeps a node's room for a preemptor. Less important Pods that wait for the same node must look anew.
    fn nominate(&mut self, pod: &PodInfo, node: &str) {
        let lower: Vec<PodInfo> =
            self.nominated.on(node).filter(|p| p.priority() < pod.priority()).cloned().collect();
        for other in lower {
            self.nominated.remove(other.uid());
            let report = Report { condition: None, nominate: Nominate::Node(String::new()) };
            self.submit(&other, report);
            self.queue.activate(other.uid(), Instant::now());
        }
        self.nominated.set(pod.clone(), node);
    }

    /// Says why a Pod is not placed: in an Event and in its `PodScheduled` condition.
    fn report(&mut self, pod: &PodInfo, reason: &'static str, message: &str, nominate: Nominate) {
        self.recorder.event_about(
            pod.reference(),
            EventType::Warning,
            "FailedScheduling",
            writes::note(message),
        );
        let report = Report { condition: Some((reason, message.to_owned())), nominate };
        self.submit(pod, report);
    }
}
