//! A node's part, following the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Cached, Change, Client, EventType, Informer, Key, Recorder, Selection, events, resource_of};
use component::{Clock, Shutdown};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::{Answers, Held};
use crate::facts;
use crate::hold::{Action, Entry, Holding, Name, Outcome, Time, Timing, Wanted};
use crate::leases;
use crate::links;

/// The name of the service account, in `kube-system`.
pub const ACCOUNT: &str = "ferrokube-balancer";
/// How often the links of the node are read while addresses may be held.
const LOOK_AT_LINKS: Duration = Duration::from_secs(5);
/// When an address that was taken over is announced again: the first word may have been lost.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the Node.
    pub node: String,
    /// The clock.
    pub clock: Clock,
    /// The times of holding.
    pub timing: Timing,
}

/// Announces the addresses that this node holds, until `shutdown`; then it gives them away.
pub async fn run(config: Config, client: Client, shutdown: &Shutdown) {
    let mut node = Running::start(config, client, shutdown);
    node.follow(shutdown).await;
}

/// The changes in the cluster, in their order.
#[derive(Default)]
struct News {
    leases: Mutex<Vec<(Name, Option<Entry>)>>,
    /// Whether the addresses or their nodes may be others.
    facts: Mutex<bool>,
    changed: Notify,
}

impl News {
    fn facts_changed(&self) {
        *self.facts.lock() = true;
        self.changed.notify_one();
    }
}

/// The informers that are needed once there is something to announce.
struct Watches {
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    slices: Option<Informer<EndpointSlice>>,
}

struct Running {
    config: Config,
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    watches: Option<Watches>,
    news: Arc<News>,
    holding: Holding,
    held: Held,
    answers: Answers,
    wanted: BTreeMap<IpAddr, Wanted>,
    under_way: FuturesUnordered<BoxFuture<'static, (Action, Outcome)>>,
    /// The addresses that are to be announced again, and when.
    again: Vec<(Instant, IpAddr)>,
    links_at: Option<Instant>,
    began: Instant,
    shutdown: Shutdown,
}

impl Running {
    fn start(config: Config, client: Client, shutdown: &Shutdown) -> Self {
        let field_selector = "spec.type=LoadBalancer".to_owned();
        let services = Informer::of(
            &client,
            resource_of::<Service>(),
            Selection { field_selector, ..Selection::default() },
        );
        let news = Arc::new(News::default());
        let told = news.clone();
        services.handle(move |_| told.facts_changed());
        services.start(shutdown);
        let held = Held::default();
        Self {
            recorder: Recorder::start(client.clone(), ACCOUNT, &config.node, config.clock, shutdown),
            holding: Holding::new(&config.node, config.timing),
            answers: Answers::new(held.clone(), shutdown.clone()),
            began: config.clock.monotonic(),
            config,
            client,
            services,
            watches: None,
            news,
            held,
            wanted: BTreeMap::new(),
            under_way: FuturesUnordered::new(),
            again: Vec::new(),
            links_at: None,
            shutdown: shutdown.clone(),
        }
    }

    fn now(&self) -> Time {
        self.config.clock.monotonic().duration_since(self.began)
    }

    async fn follow(&mut self, shutdown: &Shutdown) {
        while !shutdown.stopped() {
            if std::mem::take(&mut *self.news.facts.lock()) {
                self.look_at_facts();
            }
            for (name, entry) in std::mem::take(&mut *self.news.leases.lock()) {
                self.holding.observe(&name, entry, self.now());
            }
            self.look_at_links().await;
            self.act();
            self.answer();
            let wake = self.wake();
            tokio::select! {
                () = shutdown.wait() => {}
                () = self.news.changed.notified() => {}
                Some((action, outcome)) = self.under_way.next() => {
                    let now = self.now();
                    self.holding.done(action, &outcome, now);
                }
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        self.held.set(None);
        if let Some(last) = self.holding.leave() {
            leases::carry_out(&self.client, self.config.clock, self.config.timing.lease, &last).await;
        }
    }

    /// When to look again, if nothing happens before.
    fn wake(&self) -> Option<Instant> {
        let deciding = self.holding.wake(self.now()).map(|time| self.began + time);
        let answering = self.holding.answers(self.now()).map(|(_, until)| self.began + until);
        let again = self.again.iter().map(|(at, _)| *at).min();
        let links = self.links_at.map(|at| at + LOOK_AT_LINKS);
        deciding.into_iter().chain(answering).chain(again).chain(links).min()
    }

    /// Works out what is to be announced. Nodes, Leases and slices are watched from the first such Service on.
    fn look_at_facts(&mut self) {
        let mut services = self.services.list();
        services.retain(|service| !facts::addresses(service).is_empty());
        if services.is_empty() && self.watches.is_none() {
            return;
        }
        let any_local = services.iter().any(|service| facts::is_local(service));
        let watches = self.watches.get_or_insert_with(|| watch(&self.client, &self.news, &self.shutdown));
        if any_local && watches.slices.is_none() {
            watches.slices = Some(watch_slices(&self.client, &self.news, &self.shutdown));
        }
        let is_known = watches.nodes.is_synced() && watches.leases.is_synced();
        if !is_known || watches.slices.as_ref().is_some_and(|slices| !slices.is_synced()) {
            return;
        }
        let nodes = watches.nodes.list();
        let nodes: BTreeSet<String> = nodes
            .iter()
            .filter(|node| facts::is_candidate(node))
            .map(|node| node.name().to_owned())
            .collect();
        let slices = watches.slices.as_ref();
        let nodes_of = |key: &Key| {
            let mut all = slices.map(|slices| slices.list_namespace(&key.namespace)).unwrap_or_default();
            all.retain(|slice| facts::service_of(slice).as_ref() == Some(key));
            facts::nodes_with_endpoints(all.iter().map(|slice| &**slice))
        };
        let wanted = facts::wanted(services.iter().map(|service| &**service), &nodes, nodes_of);
        if !wanted.keys().eq(self.wanted.keys()) {
            // Another address may be on another link.
            self.links_at = None;
        }
        self.wanted = wanted;
        self.holding.set_wanted(self.wanted.clone());
    }

    /// Reads the links of the node, now and then, while there is something to announce.
    async fn look_at_links(&mut self) {
        if self.wanted.is_empty() {
            self.links_at = None;
            self.answers.set_places(&[]).await;
            return;
        }
        let now = self.config.clock.monotonic();
        if self.links_at.is_some_and(|at| now < at + LOOK_AT_LINKS) {
            return;
        }
        self.links_at = Some(now);
        let mut places = match links::read() {
            Ok(places) => places,
            Err(error) => {
                tracing::warn!(%error, "the links of this node cannot be read");
                return;
            }
        };
        places.retain(|place| self.wanted.keys().any(|address| place.network.contains((*address).into())));
        self.answers.set_places(&places).await;
        self.holding.set_networks(places.iter().map(|place| place.network).collect());
    }

    /// Begins what is to be done.
    fn act(&mut self) {
        let now = self.now();
        let actions = self.holding.decide(now, &mut || uuid::Uuid::new_v4().simple().to_string());
        for action in actions {
            let (client, clock, lease) = (self.client.clone(), self.config.clock, self.config.timing.lease);
            self.under_way.push(Box::pin(async move {
                let outcome = leases::carry_out(&client, clock, lease, &action).await;
                (action, outcome)
            }));
        }
    }

    /// Answers for what is held now, and tells of what is new.
    fn answer(&mut self) {
        let now = self.config.clock.monotonic();
        let held = self.holding.answers(self.now());
        let held = held.map(|(all, until)| (all, self.began + until));
        let addresses = held.as_ref().map(|(all, _)| all.clone()).unwrap_or_default();
        self.answers.listen_for(&addresses);
        for address in self.held.set(held) {
            tracing::info!(%address, "this node announces an address");
            self.answers.tell(address);
            self.again.extend(AGAIN.map(|after| (now + after, address)));
            self.record(address);
        }
        let (due, later): (Vec<_>, Vec<_>) = self.again.drain(..).partition(|(at, _)| *at <= now);
        self.again = later;
        for (_, address) in due {
            if addresses.contains(&address) {
                self.answers.tell(address);
            }
        }
    }

    /// Makes an Event about the Services of an address; its reason is MetalLB's.
    fn record(&self, address: IpAddr) {
        for service in self.services.list() {
            if facts::addresses(&service).contains(&address) {
                let text = format!("announcing {address} from node {:?}", self.config.node);
                let about = events::reference(&*service);
                self.recorder.event_about(about, EventType::Normal, "nodeAssigned", text);
            }
        }
    }
}

fn watch(client: &Client, news: &Arc<News>, shutdown: &Shutdown) -> Watches {
    let nodes = Informer::new(client, Selection::default());
    let told = news.clone();
    nodes.handle(move |change: &Change<Node>| {
        let is_same = |old: &Node, new: &Node| facts::is_candidate(old) == facts::is_candidate(new);
        if !matches!(change, Change::Updated { old, new } if is_same(old, new)) {
            told.facts_changed();
        }
    });
    let of_ours = Selection { namespace: leases::NAMESPACE.into(), ..Selection::default() };
    let leases: Informer<Lease> = Informer::new(client, of_ours);
    let told = news.clone();
    leases.handle(move |change| {
        let lease = change.object();
        let Some(name) = leases::name_of(lease) else { return };
        let entry = (!matches!(change, Change::Deleted(_))).then(|| leases::entry(lease));
        told.leases.lock().push((name, entry));
        told.changed.notify_one();
    });
    nodes.start(shutdown);
    leases.start(shutdown);
    tell_when_synced(news, shutdown, &nodes);
    tell_when_synced(news, shutdown, &leases);
    Watches { nodes, leases, slices: None }
}

fn watch_slices(client: &Client, news: &Arc<News>, shutdown: &Shutdown) -> Informer<EndpointSlice> {
    let slices = Informer::new(client, Selection::default());
    let told = news.clone();
    slices.handle(move |_: &Change<EndpointSlice>| told.facts_changed());
    slices.start(shutdown);
    tell_when_synced(news, shutdown, &slices);
    slices
}

/// Looks at the facts once an informer shows a whole state.
fn tell_when_synced<T: Cached>(news: &Arc<News>, shutdown: &Shutdown, informer: &Informer<T>) {
    let (told, informer, stop) = (news.clone(), informer.clone(), shutdown.clone());
    shutdown.spawn(async move {
        if stop.run(informer.synced()).await.is_some() {
            told.facts_changed();
        }
    });
}
