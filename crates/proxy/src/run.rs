//! The proxy of a node, following the cluster.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::Gate;
use api::zpages::{self, Running};
use client::{Change, Client, Informer, Key, Recorder, Selection};
use component::{Shutdown, Slis};
use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use netlink::nft::{Batch, Family, Filter, Table};
use objects::Cidr;
use parking_lot::Mutex;
use serving::answer::{TEXT, asked};
use serving::plain::{Handler, answer, metrics_of, not_found, page, serve};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::config::{Config, DetectLocal, NodePortAddresses};
use crate::forward::{self, Forwarder};
use crate::health::{Health, Ports};
use crate::kernel::{self, Committer, Done, Look, Work};
use crate::known::{Event, Place};
use crate::metrics::Metrics;
use crate::proxier::Proxier;
use crate::service::{HEADLESS, OTHER_PROXY};
use crate::settings::{LocalTraffic, Settings};

/// The component's name on its pages.
const NAME: &str = "kube-proxy";
/// The paths of its pages.
const PATHS: [&str; 6] = ["/configz", "/flagz", "/healthz", "/metrics", "/proxyMode", "/statusz"];
/// The time for which changes are gathered before a commit.
const WINDOW: Duration = Duration::from_millis(2);
/// How often every element is compared with the kernel's; upstream's `FullSyncPeriod`.
const FULL_SYNC: Duration = Duration::from_hours(1);
/// How long after a failure the next try comes, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// How long after an address was in use the next try comes; upstream's.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// The annotation of a slice with the time of the change that it is about.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The taint of a node that is to go, which load balancers should leave.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The reason for which a proxy ends.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel does not do what Services need.
    #[error("the kernel refuses what Services need")]
    Kernel(#[from] netlink::Error),
    /// An address cannot be served.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// The changes that wait: the newest of each object.
#[derive(Default)]
struct Waiting {
    events: HashMap<(bool, Key), Event>,
    triggers: Vec<Timestamp>,
}

/// The informers of a proxy.
struct Watches {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    nodes: Informer<Node>,
    ranges: Informer<ServiceCIDR>,
    waiting: Arc<Mutex<Waiting>>,
    changed: Arc<Notify>,
}

/// Follows the cluster and keeps Services in force on this node, until `shutdown`. The table stays when it ends. Where
/// the kernel has no packet filter that can be used, the node forwards connections itself.
///
/// # Errors
/// If the kernel refuses, or an address cannot be served.
pub async fn run(
    config: Config,
    client: &Client,
    node_name: &str,
    shutdown: &Shutdown,
) -> Result<(), RunError> {
    let metrics = Metrics::default();
    let health = Health::new(config.clock, metrics.clone());
    config.conntrack.set();
    let mut settings = config.settings();
    if settings.localhost_node_ports
        && let Err(error) = std::fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1")
    {
        tracing::warn!(%error, "node ports are not open at 127.0.0.1: route_localnet cannot be set");
        settings.localhost_node_ports = false;
    }
    let place = Place { node: node_name.into(), zone: "".into() };
    let writer = Writer::start(&config, settings.clone(), place, &metrics, shutdown)?;
    if let Some(requests) = client.requests().cloned() {
        config.registry.register("rest-client", move |page| requests.write(page));
    }
    serve_pages(&config, writer.mode(), &health, &metrics, shutdown).await?;

    let watches = Watches::start(client, node_name, &config, &health, &metrics, shutdown);
    if shutdown.run(watches.synced()).await.is_none() {
        return Ok(());
    }
    let addresses = match &config.node_port_addresses {
        NodePortAddresses::Blocks(blocks) => Some(blocks.clone()),
        _ => None,
    };
    let recorder = Recorder::start(client.clone(), "kube-proxy", node_name, config.clock, shutdown);
    let ports = Ports::new(health.clone(), addresses, node_name, recorder, shutdown);
    let node_name = node_name.to_owned();
    let mut follower = Follower { config, settings, node_name, writer, health, metrics, ports, watches };
    let _ = shutdown.run(follower.follow()).await;
    Ok(())
}

/// Removes a proxy's table from the kernel; none is no error.
///
/// # Errors
/// If the kernel refuses.
pub fn remove(table: impl Into<String>) -> Result<(), netlink::Error> {
    let table = Table { family: Family::Inet, name: table.into() };
    forward::remove(&table.name)?;
    let mut batch = Batch::new(&table);
    batch.add_table();
    batch.delete_table();
    match Filter::open().and_then(|mut filter| filter.commit(batch)) {
        Err(error) if !error.is_unsupported() => Err(error),
        _ => Ok(()),
    }
}

/// Does work without a table.
async fn forward(forwarder: &mut Forwarder, work: Work) -> Result<Done, netlink::Error> {
    let began = Instant::now();
    if let Some((settings, place)) = work.settings {
        forwarder.set(settings, place);
    }
    for event in work.events {
        forwarder.apply(event);
    }
    forwarder.sync().await?;
    Ok(Done {
        health_ports: forwarder.health_ports(),
        without_local: forwarder.without_local(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// The way in which Services are kept in force.
enum Writer {
    /// The packet filter leads their packets.
    Table(Committer),
    /// The node leads their connections itself.
    Sockets(Box<Forwarder>),
}

impl Writer {
    fn start(
        config: &Config,
        settings: Settings,
        place: Place,
        metrics: &Metrics,
        shutdown: &Shutdown,
    ) -> Result<Self, netlink::Error> {
        if !config.forward {
            let proxier = Proxier::new(&config.table, settings.clone(), place.clone());
            match kernel::start(proxier, metrics.clone(), shutdown) {
                Ok(committer) => return Ok(Self::Table(committer)),
                Err(error) if error.is_unsupported() => {
                    tracing::warn!(
                        "the kernel has no packet filter that Services can use ({error}): this node forwards \
                         connections to them itself, and Pods see its address instead of their clients'"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self::Sockets(Box::new(Forwarder::new(&config.table, settings, place, shutdown)?)))
    }

    /// The name of the way, as `/proxyMode` tells it.
    fn mode(&self) -> &'static str {
        match self {
            Self::Table(_) => "nftables",
            Self::Sockets(_) => "userspace",
        }
    }

    /// Does work; `None` if there is nobody who would.
    async fn work(&mut self, work: Work) -> Option<Result<Done, netlink::Error>> {
        match self {
            Self::Table(committer) => committer.work(work).await,
            Self::Sockets(forwarder) => Some(forward(forwarder, work).await),
        }
    }
}

impl Watches {
    fn start(
        client: &Client,
        node_name: &str,
        config: &Config,
        health: &Health,
        metrics: &Metrics,
        shutdown: &Shutdown,
    ) -> Self {
        let own = Selection { label_selector: format!("!{HEADLESS},!{OTHER_PROXY}"), ..Selection::default() };
        let node = Selection { field_selector: format!("metadata.name={node_name}"), ..Selection::default() };
        let watches = Self {
            services: Informer::new(client, own.clone()),
            slices: Informer::new(client, own),
            nodes: Informer::new(client, node),
            ranges: Informer::new(client, Selection::default()),
            waiting: Arc::default(),
            changed: Arc::default(),
        };
        let clock = config.clock;
        let told = |service: bool| {
            let (waiting, changed) = (watches.waiting.clone(), watches.changed.clone());
            let (health, metrics) = (health.clone(), metrics.clone());
            move |key: Key, event: Event, trigger: Option<Timestamp>| {
                let mut waiting = waiting.lock();
                waiting.events.insert((service, key), event);
                waiting.triggers.extend(trigger);
                metrics.queued(service, seconds(clock.now()));
                health.queued();
                changed.notify_one();
            }
        };
        let tell = told(true);
        watches.services.handle(move |change| {
            let key = crate::service::key_of(change.object());
            let event = match change {
                Change::Deleted(_) => Event::ServiceGone(key.clone()),
                other => Event::Service(other.object().clone()),
            };
            tell(key, event, None);
        });
        let tell = told(false);
        watches.slices.handle(move |change| {
            let of = &change.object().metadata;
            let key =
                Key::new(of.namespace.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default());
            match change {
                Change::Deleted(_) => tell(key.clone(), Event::SliceGone(key), None),
                other => {
                    let trigger = of.annotations.as_ref().and_then(|a| a.get(TRIGGER)?.parse().ok());
                    tell(key, Event::Slice(other.object().clone()), trigger);
                }
            }
        });
        let notify = watches.changed.clone();
        watches.nodes.handle(move |_| notify.notify_one());
        let notify = watches.changed.clone();
        watches.ranges.handle(move |_| notify.notify_one());
        watches.services.start(shutdown);
        watches.slices.start(shutdown);
        watches.nodes.start(shutdown);
        watches.ranges.start(shutdown);
        watches
    }

    /// Waits for Services, slices and the Node; without service ranges the proxy works as well.
    async fn synced(&self) {
        self.services.synced().await;
        self.slices.synced().await;
        self.nodes.synced().await;
    }
}

struct Follower {
    config: Config,
    /// Those that do not depend on the Node.
    settings: Settings,
    node_name: String,
    writer: Writer,
    health: Health,
    metrics: Metrics,
    ports: Ports,
    watches: Watches,
}

impl Follower {
    async fn follow(&mut self) {
        let mut look = Look::Whole;
        let mut checks = interval(self.config.sync_period.max(Duration::from_secs(1)));
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut full, mut retry) = (Instant::now() + FULL_SYNC, RETRY[0]);
        loop {
            let began = Instant::now();
            if look == Look::Whole {
                full = began + FULL_SYNC;
            }
            match self.commit(look).await {
                Some(true) => {
                    (look, retry) = (Look::Not, RETRY[0]);
                }
                Some(false) => {
                    look = Look::Whole;
                    sleep(retry).await;
                    retry = (retry * 2).min(RETRY[1]);
                    continue;
                }
                None => return,
            }
            tokio::select! {
                () = self.watches.changed.notified() => {}
                _ = checks.tick() => look = Look::There,
                () = sleep_until(full) => look = Look::Whole,
            }
            sleep(WINDOW).await;
            sleep_until(began + self.config.min_sync_period).await;
        }
    }

    /// Commits all that waits; whether it went well. `None` if there is nobody who would.
    async fn commit(&mut self, look: Look) -> Option<bool> {
        let Waiting { events, triggers } = std::mem::take(&mut *self.watches.waiting.lock());
        self.metrics.taken();
        let settings = self.of_node();
        let work = Work { events: events.into_values().collect(), settings: Some(settings), look };
        match self.writer.work(work).await? {
            Ok(done) => {
                let now = self.config.clock.now();
                let full = look == Look::Whole;
                self.metrics.synced(done.seconds, full, seconds(now), done.without_local);
                for trigger in triggers {
                    self.metrics.programmed(now.duration_since(trigger).as_secs_f64());
                }
                if self.watches.waiting.lock().events.is_empty() {
                    self.health.updated();
                }
                self.ports.set(done.health_ports).await;
                Some(true)
            }
            Err(error) => {
                tracing::error!(%error, "cannot write the table of Services");
                self.metrics.failed();
                self.health.queued();
                Some(false)
            }
        }
    }

    /// The settings and the place as the Node has them now.
    fn of_node(&self) -> (Settings, Place) {
        let node = self.watches.nodes.get("", &self.node_name);
        self.health.set_eligible(node.as_deref().is_some_and(is_eligible));
        let mut settings = self.settings.clone();
        let mut place = Place { node: self.node_name.as_str().into(), zone: "".into() };
        for range in self.watches.ranges.list() {
            let cidrs = range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
            settings.service_ranges.extend(cidrs.filter_map(|text| text.parse::<Cidr>().ok()));
        }
        settings.service_ranges.sort_by_key(|block| (block.is_v6(), block.first(), block.prefix()));
        let Some(node) = node else { return (settings, place) };
        let zone = node.metadata.labels.as_ref().and_then(|l| l.get("topology.kubernetes.io/zone"));
        place.zone = zone.map(String::as_str).unwrap_or_default().into();
        settings.node_addresses = primary(&node);
        if self.config.node_port_addresses == NodePortAddresses::Primary {
            settings.node_port_addresses =
                Some(settings.node_addresses.iter().copied().map(Cidr::from).collect());
        }
        if self.config.detect_local == DetectLocal::NodeBlocks {
            let spec = node.spec.as_ref();
            let all = spec.into_iter().flat_map(|s| s.pod_cidrs.iter().flatten().chain(&s.pod_cidr));
            let mut blocks: Vec<Cidr> = Vec::new();
            for block in all.filter_map(|text| text.parse().ok()) {
                if !blocks.contains(&block) {
                    blocks.push(block);
                }
            }
            settings.local_traffic = LocalTraffic::Blocks(blocks);
        }
        (settings, place)
    }
}

/// The Node's addresses, the first of each family: internal ones before external ones.
fn primary(node: &Node) -> Vec<IpAddr> {
    let all = || node.status.iter().flat_map(|s| s.addresses.iter().flatten());
    let of = |kind: &'static str| all().filter(move |a| a.type_ == kind);
    let mut found: Vec<IpAddr> = Vec::new();
    let addresses = of("InternalIP").chain(of("ExternalIP"));
    for address in addresses.filter_map(|a| a.address.parse::<IpAddr>().ok()) {
        if found.iter().all(|known| known.is_ipv4() != address.is_ipv4()) {
            found.push(address);
        }
    }
    found
}

/// Whether load balancers may use the node.
fn is_eligible(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_none() && taints.into_iter().all(|taint| taint.key != TO_BE_DELETED)
}

fn seconds(of: Timestamp) -> f64 {
    of.as_millisecond() as f64 / 1000.0
}

/// The parameter `pretty` of a query.
fn pretty(head: &Parts) -> Option<&str> {
    head.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("pretty="))
}

/// Serves health and metrics.
async fn serve_pages(
    config: &Config,
    mode: &'static str,
    health: &Health,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<(), RunError> {
    let registry = config.registry.clone();
    let own = metrics.clone();
    registry.register("proxy", move |page| own.write(page));
    let configz = serde_json::json!({ "kubeproxy.config.k8s.io": config.shown(mode) }).to_string();
    let slis = Slis::default();
    let (gates, flags, clock, started) =
        (config.gates, config.flags.clone(), config.clock, config.clock.now());
    let pages: Arc<Handler> = Arc::new(move |head, _| {
        Some(match head.uri.path() {
            "/healthz" => {
                slis.note("ping", "healthz", true);
                answer(StatusCode::OK, TEXT, "ok")
            }
            "/metrics/slis" => {
                slis.known("ping", "healthz", true);
                answer(StatusCode::OK, component::metrics::CONTENT_TYPE, slis.page().text())
            }
            "/proxyMode" => answer(StatusCode::OK, TEXT, mode),
            "/configz" => answer(StatusCode::OK, "application/json", configz.clone()),
            "/statusz" if gates.enabled(Gate::ComponentStatusz) => {
                let running = Running {
                    component: NAME,
                    version: component::version::told(),
                    api_version: component::version::EMULATION,
                    started,
                    now: clock.now(),
                    paths: &PATHS,
                };
                page(zpages::statusz(asked(&head.headers, pretty(head)), &running))
            }
            "/flagz" if gates.enabled(Gate::ComponentFlagz) => {
                page(zpages::flagz(asked(&head.headers, pretty(head)), NAME, &flags))
            }
            "/metrics" => metrics_of(&registry),
            _ => not_found(),
        })
    });
    let own = health.clone();
    let probes: Arc<Handler> = Arc::new(move |head, _| Some(own.answer(head.uri.path())));
    for (address, handler) in [(config.metrics, pages), (config.healthz, probes)] {
        let Some(address) = address else { continue };
        match serve(handler.clone(), address, shutdown).await {
            Ok(_) => {}
            Err(source) if config.bind_address_hard_fail => return Err(RunError::Listen { address, source }),
            Err(error) => {
                tracing::warn!(%address, %error, "an address of the proxy is in use; it is tried again");
                let stop = shutdown.clone();
                shutdown.spawn(async move {
                    let again = async {
                        while serve(handler.clone(), address, &stop).await.is_err() {
                            sleep(LISTEN_AGAIN).await;
                        }
                    };
                    let _ = stop.run(again).await;
                });
            }
        }
    }
    Ok(())
}
