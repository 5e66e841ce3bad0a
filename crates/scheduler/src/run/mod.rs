//! The scheduler at work: informers in, bindings out.
//!
//! One task owns the cache and the queue, so that a decision needs no lock; binding, preemption and
//! what is written about a failure happen in tasks of their own.

mod bind;
mod devices;
mod evict;
mod extend;
mod group;
mod metrics;
mod pods;
mod preemptor;
mod settings;
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
mod way;
mod worth;
mod writes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::{FeatureGates, Gate};
use client::{Cached, Change, Client, Clients, EventType, Informer, Recorder, Selection, resource_of};
use component::{Clock, Registry, Shutdown};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::cycle::{Around, Decision, FitError, Help, Part, Step, decide_with};
use crate::events::{self, About, Events, Happening, Pair};
use crate::extender::{Extender, Talk};
use crate::framework::points::Prospects;
use crate::framework::profile::Profile;
use crate::framework::times::{Code, Point, Times, sampled};
use crate::framework::verdict::{Rejection, Verdicts};
use crate::framework::waiting::Waiting;
use crate::inventory;
use crate::kept::Keeper;
use crate::nominated::Nominated;
use crate::owners::{Kind, Selecting};
use crate::plugins::preemption::NAME as PREEMPTION;
use crate::pod::{PodInfo, PodView};
use crate::queue::{Counts, Entry, MAX_WAIT, Mark, Queue, Rules};
use crate::resources;
use crate::storage::News;
use metrics::{Metrics, Result as Turn};
use pods::{panic_text, panicked, scheduler_of};
use preemptor::{Evicted, Preemptor};
pub use settings::Settings;
use way::Bound;
use worth::Worth;
use writes::{Nominate, Report, Writes};

/// How many bindings may be under way; beyond it scheduling waits, as it would for the API server.
const BINDINGS: usize = 256;

/// The news that the loop hears.
enum Input {
    Pod(Change<PodView>),
    Node(Change<Node>),
    Namespace(Change<Namespace>),
    Storage(News),
    Devices(inventory::News),
    Group(Change<PodGroup>),
    Owner(Kind, Change<Selecting>),
    /// A binding ended.
    Bound(Box<Bound>),
    /// A report about a Pod was written, or could not be: namespace, name, uid.
    Written(String, String, String),
    /// The victims of a preemptor are gone, or some could not be deleted.
    Evicted(Evicted),
}

/// The user that the scheduler works as.
pub const USER: &str = "system:kube-scheduler";

/// Runs the scheduler of the default configuration until `shutdown`, with the client of [`USER`] and these features. Its
/// metrics go into `metrics`.
pub async fn run(gates: FeatureGates, clients: Clients, clock: Clock, metrics: Registry, shutdown: Shutdown) {
    match Settings::standard_with(gates) {
        Ok(settings) => run_with(settings, clients, clock, metrics, shutdown).await,
        Err(why) => tracing::error!(error = why, "the scheduler cannot start"),
    }
}

/// Runs the scheduler until `shutdown`, with the client of [`USER`]. Its metrics go into `metrics`.
pub async fn run_with(
    settings: Settings,
    clients: Clients,
    clock: Clock,
    metrics: Registry,
    shutdown: Shutdown,
) {
    let client = clients.of(USER);
    let profiles = Arc::new(settings.profiles);
    let recorders: HashMap<String, Recorder> = profiles
        .keys()
        .map(|name| (name.clone(), Recorder::start(client.clone(), name, "", clock, &shutdown)))
        .collect();
    let cache = Cache::default();
    let (devices, storage) = (cache.devices().clone(), cache.storage().clone());
    let on = |gate| settings.gates.enabled(gate);
    devices.begin(clock, on(Gate::DRAConsumableCapacity), on(Gate::DRADeviceTaintRules));
    let told = Metrics::new(&profiles);
    let backoff = (settings.initial_backoff, settings.max_backoff);
    let prospects = Prospects { devices: devices.clone(), groups: cache.groups().clone() };
    let cuts_backoff = on(Gate::SchedulerPopFromBackoffQ);
    let Some(rules) = rules(&profiles, prospects, &told, backoff) else { return };
    let rules = Rules { cuts_backoff, max_wait: settings.max_wait, ..rules };
    let factory = clients.factory(USER);
    let pods = factory.select::<PodView>(resource_of::<Pod>(), Selection::default());
    let budgets = factory.informer::<PodDisruptionBudget>();
    // Unbounded in type, bounded in fact: an informer's handler must not block, and what waits here
    // are references to objects that the informer's own store holds.
    let (tx, rx) = mpsc::unbounded_channel();
    // Pods come last: what they are judged by is known before.
    follow(&factory.informer(), &tx, Input::Namespace);
    follow(&factory.informer(), &tx, |c| Input::Storage(News::Class(c)));
    follow(&factory.informer(), &tx, |c| Input::Storage(News::Driver(c)));
    follow(&factory.informer(), &tx, |c| Input::Storage(News::Capacity(c)));
    follow(&factory.informer(), &tx, |c| Input::Storage(News::Volume(c)));
    follow(&factory.informer(), &tx, |c| Input::Storage(News::Claim(c)));
    follow(&factory.informer(), &tx, |c| Input::Storage(News::Attachment(c)));
    follow(&factory.informer(), &tx, |c| Input::Storage(News::CsiNode(c)));
    follow(&factory.informer(), &tx, |c| Input::Devices(inventory::News::Class(c)));
    follow(&factory.informer(), &tx, |c| Input::Devices(inventory::News::Slice(c)));
    if settings.gates.enabled(Gate::GenericWorkload) {
        follow(&factory.informer(), &tx, Input::Group);
    }
    if settings.gates.enabled(Gate::DRADeviceTaintRules) {
        follow(&factory.informer(), &tx, |c| Input::Devices(inventory::News::Rule(c)));
    }
    follow(&factory.informer(), &tx, |c| Input::Devices(inventory::News::Claim(c)));
    follow(&factory.informer(), &tx, Input::Node);
    Scheduler::follow_owners(&factory, &tx);
    follow(&pods, &tx, Input::Pod);
    let followed = factory.clone();
    metrics.register("informers", move |page| followed.report(page));
    let queue = Queue::new(rules);
    let (own, counts) = (told.clone(), queue.metrics());
    metrics.register("scheduler", move |page| {
        own.report(page);
        counts.report(page);
        devices.report(page);
        storage.report(page);
    });
    factory.start(&shutdown);
    let mut scheduler = Scheduler {
        keepers: profiles.keys().map(|name| (name.clone(), Keeper::default())).collect(),
        profiles,
        waiting: settings.waiting,
        extenders: settings.extenders,
        metrics: told,
        client,
        clock,
        recorders,
        pods,
        budgets,
        cache,
        counts: queue.metrics(),
        queue,
        nominated: Nominated::default(),
        preempting: HashSet::new(),
        unseen: HashMap::new(),
        ways: HashMap::new(),
        writes: Writes::default(),
        grouped: settings.gates.enabled(Gate::GenericWorkload),
        by_topology: settings.gates.enabled(Gate::TopologyAwareWorkloadScheduling),
        by_group: settings.gates.enabled(Gate::WorkloadAwarePreemption),
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

/// The rules of the queue: all profiles have the same order, and each its own reasons to hold Pods back.
fn rules(
    profiles: &Arc<BTreeMap<String, Profile>>,
    prospects: Prospects,
    metrics: &Metrics,
    (initial_backoff, max_backoff): (Duration, Duration),
) -> Option<Rules> {
    let sort = profiles.values().next()?.queue_sort.clone();
    let (profiles, metrics) = (profiles.clone(), metrics.clone());
    let gated = move |pod: &PodInfo| {
        let Some(profile) = profiles.get(scheduler_of(pod)) else { return false };
        let mut times = Times::default();
        times.begin(sampled());
        let asked = || {
            profile.pre_enqueue.iter().try_for_each(|at| {
                let ask = || at.plugin.pre_enqueue(pod, &prospects);
                times.plugin(Point::PreEnqueue, at.name, Code::of_result, ask)
            })
        };
        // A plugin that panics holds its Pod back, and nobody else.
        match catch_unwind(AssertUnwindSafe(asked)) {
            Ok(answer) => {
                times.ended(Point::PreEnqueue, Code::of_result(&answer));
                metrics.took(&profile.name, &times);
                answer.is_err()
            }
            Err(panic) => {
                let (name, namespace) = (pod.name(), pod.namespace());
                tracing::error!(
                    pod = name,
                    namespace,
                    panic = panic_text(panic.as_ref()),
                    "a plugin panicked"
                );
                true
            }
        }
    };
    let gated = Box::new(gated);
    Some(Rules { sort, gated, initial_backoff, max_backoff, max_wait: MAX_WAIT, cuts_backoff: false })
}

/// Resolves when the queue may have a Pod. A timer fires up to two milliseconds late, which would be all that a Pod that
/// is ready waits for; without one, other tasks still get their turn.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) if at <= Instant::now() => tokio::task::consume_budget().await,
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct Scheduler {
    profiles: Arc<BTreeMap<String, Profile>>,
    keepers: HashMap<String, Keeper>,
    waiting: Waiting,
    extenders: Arc<[Extender]>,
    metrics: Metrics,
    client: Client,
    clock: Clock,
    /// By the name of the scheduler.
    recorders: HashMap<String, Recorder>,
    pods: Informer<PodView>,
    budgets: Informer<PodDisruptionBudget>,
    cache: Cache,
    queue: Queue,
    /// The queue's metrics.
    counts: Counts,
    nominated: Nominated,
    /// Preemptors, Pods and groups by uid, whose victims are being deleted: they are not tried before that is done.
    preempting: HashSet<String>,
    /// Preemptions of which a victim was deleted and is not yet seen to go, by that one's uid.
    unseen: HashMap<String, Vec<Evicted>>,
    /// Pods that may be on their way to a node for long, by uid: they are told when they are deleted.
    ways: HashMap<Arc<str>, watch::Sender<bool>>,
    writes: Writes,
    /// Whether the Pods of a PodGroup have their turn together.
    grouped: bool,
    /// Whether a group is tried in each placement for it.
    by_topology: bool,
    /// Whether room is made for groups as a whole.
    by_group: bool,
    tx: mpsc::UnboundedSender<Input>,
    permits: Arc<tokio::sync::Semaphore>,
    shutdown: Shutdown,
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
                () = due(wake) => {
                    if let Some((entry, mark)) = self.queue.pop(Instant::now()) {
                        self.try_one(entry, mark).await;
                    }
                }
            }
            self.metrics.sizes(self.queue.counts(), self.cache.sizes(), self.writes.pending());
        }
    }

    fn take(&mut self, input: Input) {
        let (now, start) = (Instant::now(), std::time::Instant::now());
        let events = match input {
            Input::Node(change) => self.take_node(&change, now),
            Input::Pod(change) => self.take_pod(&change, now),
            Input::Namespace(change) => self.take_namespace(&change, now),
            Input::Owner(kind, change) => {
                self.cache.owners_mut().take(kind, &change);
                Events::NONE
            }
            Input::Storage(news) => {
                let what = self.cache.storage().take(&news);
                self.happened(&what, None, now)
            }
            Input::Devices(news) => self.take_devices(&news, now),
            Input::Group(change) => self.take_group(&change, now),
            Input::Bound(bound) => {
                self.bound(*bound, now);
                Events::NONE
            }
            Input::Written(namespace, name, uid) => {
                if let Some(next) = self.writes.done(&uid) {
                    self.write(namespace, name, uid, next);
                }
                Events::NONE
            }
            Input::Evicted(evicted) => {
                self.evicted(evicted, now);
                Events::NONE
            }
        };
        self.metrics.handled(events, start.elapsed());
    }

    fn take_group(&mut self, change: &Change<PodGroup>, now: Instant) -> Events {
        let what = self.cache.groups().take(change);
        let meta = &change.object().metadata;
        let within = |pod: &PodInfo| {
            meta.namespace.as_deref() == Some(pod.namespace()) && meta.name.as_deref() == pod.group()
        };
        self.queue.look_again(what.kinds, within);
        self.happened(&what, None, now)
    }

    fn take_node(&mut self, change: &Change<Node>, now: Instant) -> Events {
        let node = change.object();
        let events = match change {
            Change::Deleted(_) => {
                self.cache.remove_node(node.metadata.name.as_deref().unwrap_or_default());
                Events::NODE_DELETED
            }
            Change::Added(_) => {
                self.cache.set_node(node.clone());
                Events::NODE_ADDED
            }
            Change::Updated { old, new } => {
                self.cache.set_node(node.clone());
                events::of_node(old, new)
            }
        };
        self.happened(&Happening::new(events, About::Node(change.into())), None, now)
    }

    fn take_namespace(&mut self, change: &Change<Namespace>, now: Instant) -> Events {
        match change {
            Change::Deleted(namespace) => {
                self.cache.remove_namespace(namespace.metadata.name.as_deref().unwrap_or_default());
                return Events::NONE;
            }
            _ => self.cache.set_namespace(change.object()),
        }
        match change {
            Change::Updated { old, new } if old.metadata.labels == new.metadata.labels => Events::NONE,
            // Other terms speak of its Pods now.
            _ => self.happened(&Happening::new(Events::NAMESPACE, About::Nothing), None, now),
        }
    }

    /// Wakes the Pods for which something that happened is a reason to be tried again, but not the one by which it
    /// happened. The kinds of what happened.
    fn happened(&mut self, what: &Happening, by: Option<&str>, now: Instant) -> Events {
        let asked = Worth::of(&self.profiles, &self.cache, &self.counts);
        self.queue.happened(what, by, now, &mut |entry, what| asked.says(entry, what));
        what.kinds
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
        let leaving = gone || pod.leaving;
        if let Some(node) = pod.node() {
            let events = self.take_placed(change, node, gone, now);
            if leaving {
                self.seen_to_go(&uid, now);
            }
            return events;
        }
        if leaving || !self.profiles.contains_key(scheduler_of(pod)) {
            self.unqueue(&uid);
            return if leaving { self.take_leaving(&PodInfo::from(pod.clone()), now) } else { Events::NONE };
        }
        let info = PodInfo::from(pod.clone());
        let own = match change {
            Change::Updated { old, new } => {
                Happening::new(events::of_own(old, new), About::Pod(change.into()))
            }
            _ => Happening::nothing(),
        };
        if self.cache.is_assumed(&uid) {
            // Its binding is under way; if that fails the newest state is read again.
            self.queue.note(&own);
            return own.kinds;
        }
        let before = match change {
            Change::Updated { old, .. } => Some(old.nominated().to_owned()),
            _ => None,
        };
        self.nominated.follow(&info, before.as_deref());
        let comes = !matches!(change, Change::Updated { .. });
        let joins = comes && self.grouped && info.group().is_some();
        self.cache.groups().waits(&info);
        let asked = Worth::of(&self.profiles, &self.cache, &self.counts);
        self.queue.set(info.clone(), &own, now, &mut |entry, what| asked.says(entry, what));
        if !joins {
            return if comes { Events::UNPLACED_ADDED } else { own.kinds };
        }
        // It may be the last one for which others wait.
        let pair = Pair { old: None, new: Some(info.shared()) };
        let what = Happening::new(Events::UNPLACED_ADDED, About::Pod(pair));
        let within = |pod: &PodInfo| pod.namespace() == info.namespace() && pod.group() == info.group();
        self.queue.look_again(what.kinds, within);
        self.happened(&what, Some(info.uid()), now)
    }

    /// A Pod that has no node goes.
    fn take_leaving(&mut self, pod: &PodInfo, now: Instant) -> Events {
        let uid = pod.uid();
        // The room that was kept for it is free for others.
        let freed = if self.cache.is_assumed(uid) {
            Some(Happening::left(pod))
        } else {
            self.nominated.node_of(uid).map(|_| Happening::room_given_back(pod))
        };
        self.nominated.remove(uid);
        self.cache.groups().waits_no_more(pod);
        self.cache.remove_pod(uid);
        self.waiting.remove(uid);
        if let Some(way) = self.ways.get(uid) {
            way.send_replace(true);
        }
        freed.map_or(Events::NONE, |what| self.happened(&what, None, now))
    }

    /// A Pod that has a node.
    fn take_placed(&mut self, change: &Change<PodView>, node: &str, gone: bool, now: Instant) -> Events {
        let pod = change.object();
        let uid = pod.shared_uid();
        let info = PodInfo::from(pod.clone());
        let elsewhere = self.nominated.node_of(&uid).is_some_and(|n| n != node);
        self.unqueue(&uid);
        self.nominated.remove(&uid);
        self.cache.groups().waits_no_more(&info);
        let mut events = Events::NONE;
        if gone {
            self.cache.remove_pod(&uid);
            return self.happened(&Happening::left(&info), None, now);
        }
        let mut kinds = Events::NONE;
        match change {
            Change::Updated { old, new } if old.node().is_some() => {
                // Rules about other Pods see its labels, and whether it is leaving.
                if old.labels != new.labels || old.leaving != new.leaving {
                    kinds |= Events::POD_LABELS;
                }
                if resources::is_reduced(&old.requests.fit, &info.requests.fit) {
                    kinds |= Events::POD_SCALED_DOWN;
                }
            }
            _ => kinds |= Events::POD_ADDED,
        }
        self.cache.set_pod(info.clone(), node);
        if elsewhere {
            // The room that was kept there.
            events |= self.happened(&Happening::room_given_back(&info), None, now);
        }
        let pair = if kinds.meets(Events::POD_ADDED) {
            Pair { old: None, new: Some(info.shared()) }
        } else {
            change.into()
        };
        events | self.happened(&Happening::new(kinds, About::Pod(pair)), None, now)
    }

    /// A try of a Pod's turn. Neither a Pod nor a plugin may end the scheduler: a panic costs this Pod alone.
    fn step(&mut self, info: &PodInfo, talk: &Talk, part: Part<'_>) -> Step {
        let name = scheduler_of(info);
        let (Some(profile), Some(keeper)) = (self.profiles.get(name), self.keepers.get_mut(name)) else {
            let why = format!("there is no profile for scheduler name {name:?}");
            return Step::Decided(Decision::Error(why));
        };
        let budgets = self.budgets.list();
        let (cluster, nominated) = (&self.cache, &self.nominated);
        let around = Around { profile, cluster, nominated, budgets: &budgets, part };
        // Only the keeper is changed in there, and what a turn uses of it is taken out before.
        let decision = || decide_with(info, around, talk, keeper, &mut |n| fastrand::usize(..n));
        match catch_unwind(AssertUnwindSafe(decision)) {
            Ok(step) => {
                if !around.cluster.nodes().is_empty() {
                    self.metrics.took(name, keeper.times());
                }
                step
            }
            Err(panic) => Step::Decided(Decision::Error(panicked(info, &*panic))),
        }
    }

    /// One Pod's turn.
    async fn try_one(&mut self, mut entry: Entry, mark: Mark) {
        let refused = std::mem::take(&mut entry.refused_by);
        self.metrics.refused(&refused, scheduler_of(&entry.info), false);
        if self.is_preempting(&entry.info) {
            self.queue.held(entry, Instant::now());
            return;
        }
        if self.grouped && entry.info.group().is_some() {
            Box::pin(self.try_group(entry, mark)).await;
            return;
        }
        match self.decide(&entry.info, Part::default()).await {
            Decision::Node(node) => self.placed(entry, mark, node).await,
            Decision::Unschedulable(error, help) => self.failed(entry, &mark, *error, help),
            Decision::Error(why) => self.errored(entry, &why),
        }
    }

    /// A node was found for the Pod.
    async fn placed(&mut self, entry: Entry, mark: Mark, node: String) {
        self.metrics.decided(entry.tried.elapsed());
        self.cache.assume(entry.info.clone(), &node);
        let kept = self.nominated.node_of(entry.info.uid()).is_some_and(|n| n != node);
        self.nominated.remove(entry.info.uid());
        if kept {
            self.happened(&Happening::room_given_back(&entry.info), None, Instant::now());
        }
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        self.bind(entry, mark, node, permit);
    }

    /// A Pod as it is now, if it is still the same one and is to be placed.
    fn current(&self, info: &PodInfo) -> Option<PodInfo> {
        let pod = self.pods.get(info.namespace(), info.name())?;
        let to_place = pod.uid() == info.uid() && pod.node().is_none() && !pod.leaving && !pod.ended;
        to_place.then(|| PodInfo::from(pod))
    }

    /// There was no decision, or it could not be carried out.
    fn errored(&mut self, entry: Entry, why: &str) {
        self.metrics.ended(scheduler_of(&entry.info), Turn::Error, entry.tried.elapsed());
        self.report(&entry.info, "SchedulerError", why, Nominate::Keep);
        self.queue.errored(entry, Instant::now());
    }

    /// Counts a refusal.
    fn refused(&self, entry: &mut Entry, error: &FitError) {
        let profile = scheduler_of(&entry.info);
        self.metrics.ended(profile, Turn::Unschedulable, entry.tried.elapsed());
        let plugins: Vec<&'static str> = error.plugins().into_iter().collect();
        self.metrics.refused(&plugins, profile, true);
        entry.refused_by = plugins;
    }

    /// The Pod waits no more.
    fn unqueue(&mut self, uid: &str) {
        if let Some(entry) = self.queue.remove(uid) {
            self.metrics.refused(&entry.refused_by, scheduler_of(&entry.info), false);
        }
    }

    /// Nothing fits: makes room if that is allowed, and says why.
    fn failed(&mut self, mut entry: Entry, mark: &Mark, error: FitError, help: Help) {
        self.refused(&mut entry, &error);
        let (pod, uid) = (entry.info.clone(), entry.info.uid().to_owned());
        error.errands.iter().for_each(|errand| self.send(errand.clone(), Some(&uid)));
        let profile = self.profiles.get(scheduler_of(&pod));
        let waits_for = profile.map_or(Events::ALL, |p| p.lift(error.plugins()));
        if error.nodes != 0 && profile.is_some_and(|p| p.post_filter.iter().any(|at| at.name == PREEMPTION)) {
            let victims = match &help {
                Help::Room(candidate) => Some(candidate.victims.len()),
                _ => None,
            };
            self.metrics.preempted(victims);
        }
        if error.nodes == 0 {
            self.report(&pod, "Unschedulable", "no nodes available to schedule pods", Nominate::Keep);
            self.refuse(entry, mark, waits_for);
            return;
        }
        let nominate = match help {
            Help::Room(candidate) => {
                let node = candidate.node.clone();
                self.nominate(&entry.info, &node);
                self.evict(&candidate.victims, Preemptor::pod(&entry.info, candidate.node));
                Nominate::Node(node)
            }
            Help::Keep => Nominate::Keep,
            Help::Clear => {
                // Others may have the room that was kept for it.
                if self.nominated.node_of(&uid).is_some() {
                    self.nominated.remove(&uid);
                    self.happened(&Happening::room_given_back(&pod), None, Instant::now());
                }
                Nominate::Node(String::new())
            }
        };
        self.report(&pod, "Unschedulable", &error.to_string(), nominate);
        self.refuse(entry, mark, waits_for);
    }

    /// Puts a Pod back that waits for one of these events.
    fn refuse(&mut self, entry: Entry, mark: &Mark, waits_for: Events) {
        let asked = Worth::of(&self.profiles, &self.cache, &self.counts);
        let ask = &mut |entry: &Entry, what: &Happening| asked.says(entry, what);
        self.queue.refused(entry, mark, waits_for, Instant::now(), ask);
    }

    /// A plugin refused the node that was chosen.
    fn turned_away(&mut self, mut entry: Entry, mark: &Mark, rejection: Rejection) {
        let mut verdicts = Verdicts::all(1);
        verdicts.set(0, Err(rejection));
        let error = FitError { nodes: 1, verdicts, ..FitError::default() };
        self.refused(&mut entry, &error);
        let waits_for =
            self.profiles.get(scheduler_of(&entry.info)).map_or(Events::ALL, |p| p.lift(error.plugins()));
        self.report(&entry.info, "Unschedulable", &error.to_string(), Nominate::Keep);
        self.refuse(entry, mark, waits_for);
    }

    /// Records an Event about a Pod, in the name of its scheduler.
    fn event(&self, pod: &PodView, kind: EventType, reason: &str, message: String) {
        if let Some(recorder) = self.recorders.get(scheduler_of(pod)) {
            recorder.event_about(pod.reference(), kind, reason, message);
        }
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
        self.event(pod, EventType::Warning, "FailedScheduling", writes::note(message));
        let report = Report { condition: Some((reason, message.to_owned())), nominate };
        self.submit(pod, report);
    }
}
