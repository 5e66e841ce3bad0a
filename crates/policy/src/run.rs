//! The enforcer of a node, following the cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Cached, Change, Client, Informer, Key, ListParams, Selection, resource_of};
use component::{Registry, Shutdown};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netlink::nft::{Batch, Family, Filter, Table};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::enforcer::{Enforcer, Event};
use crate::gate::{Admission, Call, Gate};
use crate::kernel::{self, Committer, Look, Work};
use crate::metrics::Metrics;
use crate::views::{Listed, PodView, PolicyView, SpaceView};

/// The time for which changes are gathered before a commit.
const WINDOW: Duration = Duration::from_millis(2);
/// How often it is looked whether the table is there.
const CHECK: Duration = Duration::from_secs(30);
/// How often every element is compared with the kernel's.
const FULL_SYNC: Duration = Duration::from_hours(1);
/// How long after a failure the next try comes, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// How long after a list of policies that did not come to be known the next is asked for.
const LIST_AGAIN: Duration = Duration::from_secs(1);

/// The settings of a node's enforcer.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the table of the packet filter that is the enforcer's alone.
    pub table: String,
    /// The Node's name.
    pub node: String,
    /// The gate of the node's containers. Nothing is written before it was told which there are.
    pub gate: Gate,
    /// Where metrics are told.
    pub registry: Registry,
}

/// The reason for which an enforcer ends.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no packet filter.
    #[error("the kernel has no packet filter that network policies can use (nftables)")]
    Kernel(#[from] netlink::Error),
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Pod,
    Space,
    Policy,
}

/// The changes that wait: the newest of each object.
type Waiting = Arc<Mutex<HashMap<(Kind, Key), Event>>>;

/// Follows the cluster and keeps network policies in force on this node, until `shutdown`. The table stays when it ends.
///
/// # Errors
/// If there is no packet filter. Then the gate lets nobody in.
pub async fn run(config: Config, client: &Client, shutdown: &Shutdown) -> Result<(), RunError> {
    let enforcer = Enforcer::new(&config.table, &config.node);
    let committer = match kernel::start(enforcer, shutdown) {
        Ok(committer) => committer,
        Err(error) => {
            config.gate.close(format!("the kernel has no usable packet filter (nftables): {error}"));
            return Err(error.into());
        }
    };
    let metrics = Metrics::default();
    let own = metrics.clone();
    config.registry.register("network-policy", move |page| own.write(page));
    let watches = Watches::start(client, shutdown);
    let begin = async {
        watches.synced().await;
        config.gate.adopted().await;
    };
    if shutdown.run(begin).await.is_none() {
        return Ok(());
    }
    let (client, shutdown) = (client.clone(), shutdown.clone());
    let mut follower =
        Follower { gate: config.gate, committer, metrics, watches, client, shutdown: shutdown.clone() };
    let _ = shutdown.run(follower.follow()).await;
    Ok(())
}

/// Removes an enforcer's table from the kernel; none is no error.
///
/// # Errors
/// If the kernel refuses.
pub fn remove(table: impl Into<String>) -> Result<(), netlink::Error> {
    let table = Table { family: Family::Inet, name: table.into() };
    let mut batch = Batch::new(&table);
    batch.add_table();
    batch.delete_table();
    Filter::open()?.commit(batch)
}

/// The informers of an enforcer.
struct Watches {
    pods: Informer<PodView>,
    spaces: Informer<SpaceView>,
    policies: Informer<PolicyView>,
    waiting: Waiting,
    changed: Arc<Notify>,
}

impl Watches {
    fn start(client: &Client, shutdown: &Shutdown) -> Self {
        let all = Selection::default;
        let watches = Self {
            pods: Informer::of(client, resource_of::<Pod>(), all()),
            spaces: Informer::of(client, resource_of::<Namespace>(), all()),
            policies: Informer::of(client, resource_of::<NetworkPolicy>(), all()),
            waiting: Arc::default(),
            changed: Arc::default(),
        };
        watches.tell(Kind::Pod, &watches.pods, PodView::is_as, Event::Pod, Event::PodGone);
        let gone = |key: Key| Event::SpaceGone(key.name);
        watches.tell(Kind::Space, &watches.spaces, |a, b| a.labels == b.labels, Event::Space, gone);
        watches.tell(Kind::Policy, &watches.policies, |_, _| false, Event::Policy, Event::PolicyGone);
        watches.pods.start(shutdown);
        watches.spaces.start(shutdown);
        watches.policies.start(shutdown);
        watches
    }

    /// Hands on the changes of an informer, but for those that leave an object the same.
    fn tell<T: Cached>(
        &self,
        kind: Kind,
        informer: &Informer<T>,
        same: impl Fn(&T, &T) -> bool + Send + Sync + 'static,
        there: impl Fn(Arc<T>) -> Event + Send + Sync + 'static,
        gone: impl Fn(Key) -> Event + Send + Sync + 'static,
    ) {
        let (waiting, changed) = (self.waiting.clone(), self.changed.clone());
        informer.handle(move |change| {
            let key = change.object().key();
            let event = match change {
                Change::Updated { old, new } if same(old, new) => return,
                Change::Added(object) | Change::Updated { new: object, .. } => there(object.clone()),
                Change::Deleted(_) => gone(key.clone()),
            };
            waiting.lock().insert((kind, key), event);
            changed.notify_one();
        });
    }

    async fn synced(&self) {
        self.pods.synced().await;
        self.spaces.synced().await;
        self.policies.synced().await;
    }
}

struct Follower {
    gate: Gate,
    committer: Committer,
    metrics: Metrics,
    watches: Watches,
    client: Client,
    shutdown: Shutdown,
}

impl Follower {
    async fn follow(&mut self) {
        let mut look = Look::Whole;
        let mut checks = interval(CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut full, mut retry) = (Instant::now() + FULL_SYNC, RETRY[0]);
        loop {
            if look == Look::Whole {
                full = Instant::now() + FULL_SYNC;
            }
            let waits = match self.commit(look).await {
                Some(Ok(waits)) => {
                    (look, retry) = (Look::Not, RETRY[0]);
                    waits
                }
                Some(Err(())) => {
                    look = Look::Whole;
                    sleep(retry).await;
                    retry = (retry * 2).min(RETRY[1]);
                    continue;
                }
                None => return,
            };
            tokio::select! {
                () = self.watches.changed.notified() => {}
                () = self.gate.changed() => {}
                // A list of policies may name one that is gone by now.
                () = sleep(LIST_AGAIN), if waits => {}
                _ = checks.tick() => look = Look::There,
                () = sleep_until(full) => look = Look::Whole,
            }
            sleep(WINDOW).await;
        }
    }

    /// Commits all that waits; tells whether containers wait still, or that the kernel refused. `None` if there is
    /// nobody who would commit.
    async fn commit(&mut self, look: Look) -> Option<Result<bool, ()>> {
        let mut calls = self.gate.take();
        // Calls are taken first: what happened before one is an event by then, or comes later and is waited for.
        let events = std::mem::take(&mut *self.watches.waiting.lock());
        for call in &mut calls {
            if let Call::Admit(one) = call
                && one.listed.as_ref().is_some_and(|(asked, _)| asked.elapsed() >= LIST_AGAIN)
            {
                one.listed = None;
            }
        }
        let is_unasked = |call: &mut Call| matches!(call, Call::Admit(one) if one.listed.is_none());
        for call in calls.extract_if(.., is_unasked) {
            if let Call::Admit(one) = call {
                self.ask(one);
            }
        }
        let work = Work { events: events.into_values().collect(), calls, look };
        match self.committer.work(work).await? {
            Ok(done) => {
                self.metrics.synced(done.seconds, done.policies, done.size);
                done.admitted.iter().for_each(|seconds| self.metrics.admitted(*seconds));
                let waits = !done.unready.is_empty();
                for one in done.unready {
                    self.gate.wait(one, false);
                }
                Some(Ok(waits))
            }
            Err(error) => {
                tracing::error!(%error, "cannot write the table of network policies");
                self.metrics.failed();
                Some(Err(()))
            }
        }
    }

    /// Asks the API server for the policies that must be known before a container is let in: an informer may not have
    /// heard of the newest ones yet.
    fn ask(&self, mut one: Admission) {
        let namespace = one.attached.pod.key.namespace.clone();
        let policies = self.client.resource::<Listed>(resource_of::<NetworkPolicy>(), &namespace);
        let gate = self.gate.clone();
        let stop = self.shutdown.clone();
        self.shutdown.spawn_one(async move {
            let ask = async {
                let asked = std::time::Instant::now();
                match policies.list(&ListParams::default()).await {
                    Ok(found) => one.listed = Some((asked, found.items)),
                    Err(status) => {
                        tracing::debug!(%status, "the policies of a new Pod are not known");
                        sleep(LIST_AGAIN).await;
                    }
                }
                if !one.is_over() {
                    gate.wait(one, true);
                }
            };
            let _ = stop.run(ask).await;
        });
    }
}
