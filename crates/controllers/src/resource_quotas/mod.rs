//! Counts what namespaces take from their quotas (upstream: `pkg/controller/resourcequota`).
//!
//! Admission reserves what a request takes; the controller counts everything, and so finds what admission did not see,
//! and what is taken no more. It follows those resources alone that some quota names, so that a cluster without quotas
//! pays nothing, and discovers the served resources again when a definition or an APIService changes.

mod monitor;
mod plan;
#[cfg(test)]
mod tests;
mod views;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{
    Backoff, Cached, Change, Client, Factory, Informer, Key, Queue, Resource, Selection, resource_of,
};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::resource::v1::DeviceClass;
use objects::quota::{self, DeviceClasses, Kind, Usage};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::monitor::{Effect, Heard, Monitor, Origin, Selected};
use self::plan::{QUIET, plan};
use self::views::Class;
use crate::config::Config;
use crate::discovery::{Served, discover};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::Meta;

/// The time for which changes of the served resources are collected before discovery.
const SETTLE: Duration = Duration::from_millis(500);
/// The time for which a quota waits for a resource whose objects are not known yet. Then what is known counts.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time for which changes of objects are collected before a quota is counted again.
const COLLECT: Duration = Duration::from_millis(20);

/// The resources whose objects change what is served.
const SERVED_BY: [(&str, &str); 2] =
    [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];

/// The controller of ResourceQuotas.
pub(crate) struct ResourceQuotas {
    client: Client,
    clock: Clock,
    shared: Factory,
    queue: Queue<Key>,
    /// The time between two counts of everything; zero for none.
    period: Duration,
    quotas: Informer<ResourceQuota>,
    classes: Informer<Class>,
    definitions: [Informer<Meta>; 2],
    served_changed: Notify,
    wanted_changed: Notify,
    /// The served resources that quotas can count; none before they were discovered.
    served: RwLock<HashMap<Kind, Resource>>,
    known: watch::Sender<bool>,
    monitors: RwLock<HashMap<Kind, Arc<Monitor>>>,
    /// When more was last reserved, by quota and amount.
    reserved: Mutex<HashMap<Key, BTreeMap<String, Instant>>>,
}

impl Controller for ResourceQuotas {
    const NAME: &'static str = "resourcequota-controller";
    const ALIASES: &'static [&'static str] = &["resourcequota"];
    const ACCOUNT: &'static str = "resourcequota-controller";
    const QUEUE: &'static str = "resourcequota_primary";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.resource_quotas
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let definitions = SERVED_BY.map(|(group, plural)| {
            let resource = Resource { group: group.into(), version: "v1".into(), plural: plural.into() };
            host.select::<Meta>(resource, Selection::default())
        });
        Self {
            client: host.client(),
            clock: host.clock(),
            shared: host.factory().view(),
            queue: host.main_queue(),
            period: host.config().resource_quota_sync_period,
            quotas: host.informer(),
            classes: host.select::<Class>(resource_of::<DeviceClass>(), Selection::default()),
            definitions,
            served_changed: Notify::new(),
            wanted_changed: Notify::new(),
            served: RwLock::default(),
            known: watch::Sender::new(false),
            monitors: RwLock::default(),
            reserved: Mutex::default(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let c = self.clone();
        self.quotas.handle(move |change| c.quota_changed(change));
        let c = self.clone();
        self.classes.handle(move |_| {
            c.wanted_changed.notify_one();
            c.queue_all();
        });
        for definitions in &self.definitions {
            let c = self.clone();
            definitions.handle(move |_| c.served_changed.notify_one());
        }
        let c = self.clone();
        wiring.spawn_at_once(|shutdown| async move { c.follow(&shutdown).await });
        if !self.period.is_zero() {
            let c = self.clone();
            wiring.spawn(async move {
                let mut ticks = tokio::time::interval(c.period);
                loop {
                    ticks.tick().await;
                    c.queue_all();
                }
            });
        }
    }

    async fn ready(&self) {
        // The sender lives as long as `self`.
        let _ = self.known.subscribe().wait_for(|known| *known).await;
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(object) = self.quotas.get_key(&key) else {
            self.reserved.lock().remove(&key);
            return Ok(Next::Done);
        };
        let counted = match self.count(&object) {
            Ok(counted) => counted,
            Err(wait) => return Ok(Next::After(wait)),
        };
        let quiet = |name: &str| {
            let reserved = self.reserved.lock();
            reserved.get(&key).and_then(|names| names.get(name)).map(Instant::elapsed)
        };
        let plan = plan(&object, &counted.usage, quiet);
        if let Some(status) = plan.status {
            let changed = ResourceQuota { status: Some(status), ..(*object).clone() };
            match self.client.api::<ResourceQuota>(&key.namespace).update_status(&changed).await {
                Err(e) if e.is_not_found() => return Ok(Next::Done),
                other => drop(other?),
            }
        }
        Ok(Next::at(plan.wait.into_iter().chain(counted.again).min()))
    }
}

/// The amounts that were counted for a quota.
struct Found {
    usage: Usage,
    /// The time after which the count is another, though nothing changes.
    again: Option<Duration>,
}

impl ResourceQuotas {
    fn quota_changed(&self, change: &Change<ResourceQuota>) {
        let quota = change.object();
        let key = quota.key();
        if let Change::Deleted(_) = change {
            self.queue.add(key);
            self.wanted_changed.notify_one();
            return;
        }
        let old = match change {
            Change::Updated { old, .. } => Some(old),
            _ => None,
        };
        let hard = |q: &ResourceQuota| quota::read(q.spec.as_ref().and_then(|s| s.hard.as_ref()));
        if old.is_none_or(|old| hard(old) != hard(quota)) {
            self.wanted_changed.notify_one();
            self.queue.add(key.clone());
        }
        if self.note_reservations(&key, old.map(|old| &**old), quota) {
            // A request that failed has reserved for nothing.
            self.queue.add_after(key, QUIET);
        }
    }

    /// Notes the amounts of which more is reserved than before; whether there are any.
    fn note_reservations(&self, key: &Key, old: Option<&ResourceQuota>, new: &ResourceQuota) -> bool {
        let used = |q: &ResourceQuota| quota::read(q.status.as_ref().and_then(|s| s.used.as_ref()));
        let before = old.map(used).unwrap_or_default();
        let more = used(new).into_iter().filter(|(name, now)| match before.get(name) {
            Some(before) => now > before,
            None => !now.is_zero(),
        });
        let more: Vec<String> = more.map(|(name, _)| name).collect();
        if more.is_empty() {
            return false;
        }
        let now = Instant::now();
        let mut reserved = self.reserved.lock();
        let of_quota = reserved.entry(key.clone()).or_default();
        of_quota.retain(|_, at| at.elapsed() < QUIET);
        of_quota.extend(more.into_iter().map(|name| (name, now)));
        true
    }

    fn queue_all(&self) {
        for quota in self.quotas.list() {
            self.queue.add(quota.key());
        }
    }

    fn device_classes(&self) -> DeviceClasses {
        let mut classes = DeviceClasses::default();
        for class in self.classes.list() {
            classes.insert(class.name(), &class.resource);
        }
        classes
    }

    /// Counts what a quota counts; or the time to wait, if its objects are not known yet.
    fn count(&self, object: &ResourceQuota) -> Result<Found, Duration> {
        let devices = self.device_classes();
        let spec = object.spec.clone().unwrap_or_default();
        let names: Vec<&String> = spec.hard.iter().flat_map(|hard| hard.keys()).collect();
        let scopes = quota::scopes(&spec);
        let now = self.clock.now();
        let selected = Selected { namespace: object.namespace(), scopes: &scopes, now };
        let monitors = self.monitors.read();
        let kinds: HashSet<Kind> = names.iter().flat_map(|name| Kind::counted_as(name, &devices)).collect();
        let (mut usage, mut until) = (Usage::new(), None);
        let mut unknown = HashSet::new();
        for kind in &kinds {
            let Some(monitor) = monitors.get(kind) else {
                if self.served.read().contains_key(kind) {
                    // It is followed in a moment.
                    return Err(PATIENCE);
                }
                unknown.insert(kind);
                continue;
            };
            if !monitor.is_synced() {
                let left = PATIENCE.checked_sub(monitor.started.elapsed()).filter(|left| !left.is_zero());
                if let Some(left) = left {
                    return Err(left);
                }
                unknown.insert(kind);
                continue;
            }
            let sum = monitor.sum(&selected, &devices, monitors.get(&Kind::Pods).map(|pods| &**pods));
            quota::add(&mut usage, &sum.usage);
            until = until.into_iter().chain(sum.until).min();
        }
        // An amount that is counted in no object is zero, if all that might count are known.
        usage.retain(|name, _| names.contains(&name));
        for name in names {
            let counts = Kind::counted_as(name, &devices);
            if counts.is_empty() || counts.iter().any(|kind| unknown.contains(kind)) {
                usage.remove(name);
            } else {
                usage.entry(name.clone()).or_default();
            }
        }
        let again = until.map(|until| {
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            left + Duration::from_millis(1)
        });
        Ok(Found { usage, again })
    }

    /// Discovers what is served, and follows what quotas name.
    async fn follow(self: Arc<Self>, shutdown: &Shutdown) {
        // By then the other controllers have told what they read.
        self.shared.started().await;
        self.quotas.synced().await;
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        loop {
            let complete = match discover(&self.client).await {
                Ok(found) => {
                    let complete = found.failed.is_empty();
                    let now = found
                        .resources
                        .into_iter()
                        .filter(is_counted)
                        .map(|s| (Kind::of(&s.resource.group, &s.resource.plural), s.resource));
                    let mut served = self.served.write();
                    if complete {
                        served.clear();
                    }
                    served.extend(now);
                    complete
                }
                Err(error) => {
                    tracing::debug!(%error, "unable to discover what is served");
                    false
                }
            };
            loop {
                self.retarget(shutdown);
                if !self.served.read().is_empty() {
                    self.known.send_replace(true);
                }
                let again = async {
                    if complete {
                        std::future::pending::<()>().await;
                    }
                    tokio::time::sleep(backoff.delay()).await;
                };
                tokio::select! {
                    () = self.wanted_changed.notified() => {}
                    () = again => break,
                    () = self.served_changed.notified() => {
                        tokio::time::sleep(SETTLE).await;
                        break;
                    }
                }
            }
            if complete {
                backoff.reset();
            }
        }
    }

    /// Follows those served resources that some quota names, and no others.
    fn retarget(self: &Arc<Self>, shutdown: &Shutdown) {
        let served = self.served.read();
        let devices = self.device_classes();
        let mut wanted: HashSet<Kind> = HashSet::new();
        for quota in self.quotas.list() {
            let names = quota.spec.iter().filter_map(|s| s.hard.as_ref()).flat_map(|hard| hard.keys());
            wanted.extend(names.flat_map(|name| Kind::counted_as(name, &devices)));
        }
        if wanted.contains(&Kind::DeviceClaims) {
            // A claim may stand for what its Pod takes already.
            wanted.insert(Kind::Pods);
        }
        let stays = |kind: &Kind, monitor: &Monitor| {
            wanted.contains(kind) && served.get(kind) == Some(&monitor.resource)
        };
        let mut monitors = self.monitors.write();
        monitors.retain(|kind, monitor| stays(kind, monitor) || !monitor.stop());
        for (kind, resource) in wanted.iter().filter_map(|kind| Some((kind, served.get(kind)?))) {
            if monitors.contains_key(kind) {
                continue;
            }
            let origin = Origin { shared: &self.shared, client: &self.client, shutdown };
            let monitor = Arc::new(Monitor::start(kind, resource, &origin, self.heard(kind)));
            monitors.insert(kind.clone(), monitor.clone());
            let (c, kind, stop) = (self.clone(), kind.clone(), shutdown.clone());
            shutdown.spawn_one(async move {
                if stop.run(monitor.synced()).await.is_some() {
                    c.queue_those_of(&kind, None, |queue, key| queue.add(key));
                }
            });
        }
    }

    /// Makes the hearer of a resource's changes.
    fn heard(self: &Arc<Self>, kind: &Kind) -> Heard {
        let (c, kind) = (self.clone(), kind.clone());
        Arc::new(move |namespace, effect| {
            let delay = if effect == Effect::More { QUIET } else { COLLECT };
            c.queue_those_of(&kind, Some(namespace), |queue, key| queue.add_after(key, delay));
        })
    }

    /// Queues the quotas that count a resource, of one namespace or of all.
    fn queue_those_of(&self, kind: &Kind, namespace: Option<&str>, add: impl Fn(&Queue<Key>, Key)) {
        let quotas = match namespace {
            Some(namespace) => self.quotas.list_namespace(namespace),
            None => self.quotas.list(),
        };
        if quotas.is_empty() {
            return;
        }
        let devices = self.device_classes();
        for quota in quotas {
            let mut names = quota.spec.iter().filter_map(|s| s.hard.as_ref()).flat_map(|hard| hard.keys());
            // A Pod may change what a claim of devices takes.
            let counts = |name: &String| {
                kind.counts(name, &devices)
                    || *kind == Kind::Pods && Kind::DeviceClaims.counts(name, &devices)
            };
            if names.any(counts) {
                add(&self.queue, quota.key());
            }
        }
    }
}

/// Whether quotas can count a resource.
fn is_counted(served: &Served) -> bool {
    served.namespaced
        && ["create", "list", "watch", "delete"].iter().all(|verb| served.can(verb))
        && !Kind::of(&served.resource.group, &served.resource.plural).is_ignored()
}
