//! The server as a whole: its settings, the objects that it follows, and the sockets on which it answers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::{Cached, Change, Clients, Factory, Informer, KubeObject, Selection, resource_of};
use component::{Clock, Health, Registry, Shutdown};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use objects::Cidr;
use tokio::time::timeout;

use crate::cache::{Cache, Limits};
use crate::forward::{Forwarder, ResolvConf, StubDomain, Upstreams};
use crate::health::{self, Page};
use crate::limits::InFlight;
use crate::listen::Bound;
use crate::metrics::Metrics;
use crate::name::Name;
use crate::resolver::Resolver;
use crate::zone::views::{NamespaceView, PodView, ServiceView, SliceView};
use crate::zone::{Event, PodMode, Zone, ZoneConfig};

/// The account under which DNS reads the cluster: it needs to list and watch Services, EndpointSlices and namespaces,
/// and Pods if their names are verified.
pub const USER: &str = "system:node-dns";
/// How long a start waits for the whole state before it answers; CoreDNS' `startup_timeout`.
const STARTUP: Duration = Duration::from_secs(5);
/// The most sockets for datagrams of one address.
const MAX_SOCKETS: usize = 4;

/// The settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The addresses on which questions are answered, over UDP and TCP. An answer to a wildcard address may leave from
    /// another address of the machine than the one that was asked, so each address is better named.
    pub listen: Vec<SocketAddr>,
    /// The cluster's domain.
    pub domain: Name,
    /// The TTL of the cluster's records, in seconds.
    pub ttl: u32,
    /// How names of Pods are answered.
    pub pods: PodMode,
    /// The blocks of the cluster's addresses, those of Services and of Pods: nobody else is asked for their names.
    pub reverse: Vec<Cidr>,
    /// The addresses at which clients reach DNS (those of the Service `kube-dns`); if there are none, those of `listen`.
    pub nameservers: Vec<IpAddr>,
    /// The servers that are asked for other names.
    pub upstreams: Upstreams,
    /// Domains with servers of their own.
    pub stub_domains: Vec<StubDomain>,
    /// How many questions other servers are asked at a time; a client has a quarter of that.
    pub max_concurrent: usize,
    /// How much of their answers is kept.
    pub cache: Limits,
    /// The address of `/health`, usually with port 8080.
    pub health: Option<SocketAddr>,
    /// The address of `/ready`, usually with port 8181.
    pub ready: Option<SocketAddr>,
    /// The address of `/metrics`, usually with port 9153.
    pub metrics: Option<SocketAddr>,
}

impl Config {
    /// The usual settings for some addresses, without pages.
    pub fn new(listen: Vec<SocketAddr>, domain: Name) -> Self {
        Self {
            listen,
            domain,
            ttl: 5,
            pods: PodMode::default(),
            reverse: Vec::new(),
            nameservers: Vec::new(),
            upstreams: Upstreams::ResolvConf(ResolvConf::default()),
            stub_domains: Vec::new(),
            max_concurrent: 1000,
            cache: Limits::default(),
            health: None,
            ready: None,
            metrics: None,
        }
    }
}

/// A reason for which the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be used.
    #[error("cannot answer on {address}; another DNS server may be there")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// A server that answers.
pub struct Server {
    resolver: Arc<Resolver>,
    addresses: Vec<SocketAddr>,
    pages: Vec<SocketAddr>,
    registry: Registry,
    health: Health,
}

impl Server {
    /// Begins to answer, from a zone that somebody else fills.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub async fn start(config: Config, shutdown: &Shutdown) -> Result<Self, StartError> {
        let (mut server, bound) = Self::bind(config.clone(), shutdown)?;
        server.serve_pages(&config, shutdown).await?;
        server.serve(bound, shutdown)?;
        Ok(server)
    }

    /// Binds the addresses.
    fn bind(config: Config, shutdown: &Shutdown) -> Result<(Self, Vec<Bound>), StartError> {
        let sockets = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_SOCKETS));
        let mut bound = Vec::new();
        for address in config.listen {
            let one =
                Bound::bind(address, sockets).map_err(|source| StartError::Listen { address, source })?;
            bound.push(one);
        }
        let addresses: Vec<SocketAddr> = bound.iter().map(|b| b.address).collect();
        let mut nameservers = config.nameservers;
        if nameservers.is_empty() {
            nameservers.extend(addresses.iter().map(SocketAddr::ip).filter(|a| !a.is_unspecified()));
        }
        let metrics = Metrics::new(addresses.first().map_or(53, SocketAddr::port), config.domain.to_string());
        let zone = Arc::new(Zone::new(ZoneConfig {
            domain: config.domain,
            ttl: config.ttl,
            pods: config.pods,
            reverse: config.reverse,
            nameservers,
        }));
        let resolver = Arc::new(Resolver {
            zone: zone.clone(),
            cache: Arc::new(Cache::new(config.cache)),
            forwarder: Forwarder::new(config.upstreams, config.stub_domains, addresses.clone(), shutdown),
            flights: InFlight::new(config.max_concurrent),
            metrics,
            shutdown: shutdown.clone(),
        });
        let (registry, health) = (Registry::default(), Health::default());
        let report = resolver.clone();
        registry.register("dns", move |page| report.report(page));
        health.add("kubernetes", move || {
            if zone.is_synced() { Ok(()) } else { Err("the cluster's state is not whole yet".to_owned()) }
        });
        Ok((Self { resolver, addresses, pages: Vec::new(), registry, health }, bound))
    }

    /// Begins to answer.
    fn serve(&self, bound: Vec<Bound>, shutdown: &Shutdown) -> Result<(), StartError> {
        for one in bound {
            let address = one.address;
            one.serve(&self.resolver, shutdown).map_err(|source| StartError::Listen { address, source })?;
        }
        self.resolver.forwarder.start();
        Ok(())
    }

    async fn serve_pages(&mut self, config: &Config, shutdown: &Shutdown) -> Result<(), StartError> {
        let pages = [
            (config.health, Page::Health),
            (config.ready, Page::Ready(self.health.clone())),
            (config.metrics, Page::Metrics(self.registry.clone())),
        ];
        for (address, page) in pages {
            let Some(address) = address else { continue };
            let served = health::serve(page, address, shutdown).await;
            self.pages.push(served.map_err(|source| StartError::Listen { address, source })?);
        }
        Ok(())
    }

    /// The zone.
    pub fn zone(&self) -> &Arc<Zone> {
        &self.resolver.zone
    }
    /// Its way of answering, without the sockets.
    pub fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }
    /// The addresses on which it answers.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
    /// The addresses of its pages, in the order `/health`, `/ready`, `/metrics`, without those that are off.
    pub fn pages(&self) -> &[SocketAddr] {
        &self.pages
    }
    /// Its metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
    /// Its checks; `kubernetes` is the readiness.
    pub fn health(&self) -> &Health {
        &self.health
    }
}

/// Follows the cluster and answers until `shutdown`. Returns once it answers: when the zone is whole, or after five
/// seconds, from when on it says SERVFAIL to names that it does not know yet. Its informers are those of [`USER`], for
/// what the process shares under that name.
///
/// # Errors
/// If an address cannot be used.
pub async fn run(
    config: Config,
    clients: &Clients,
    clock: Clock,
    shutdown: &Shutdown,
) -> Result<Server, StartError> {
    let (mut server, bound) = Server::bind(config.clone(), shutdown)?;
    let factory = clients.factory(USER).view();
    let follower = Arc::new(Follower {
        zone: server.zone().clone(),
        metrics: server.resolver.metrics.clone(),
        clock,
        waiting: AtomicUsize::new(3 + usize::from(config.pods == PodMode::Verified)),
    });
    follower.follow::<Namespace, NamespaceView>(&factory, Event::Namespace, shutdown);
    follower.follow::<Service, ServiceView>(&factory, Event::Service, shutdown);
    follower.follow::<EndpointSlice, SliceView>(&factory, Event::Slice, shutdown);
    if config.pods == PodMode::Verified {
        follower.follow::<Pod, PodView>(&factory, Event::Pod, shutdown);
    }
    let report = factory.clone();
    server.registry.register("informers", move |page| report.report(page));
    factory.start(shutdown);
    // The pages tell of a start that waits.
    server.serve_pages(&config, shutdown).await?;
    if timeout(STARTUP, shutdown.run(factory.synced())).await.is_err() {
        tracing::warn!(
            "the API server does not tell the cluster's state; names that are not known yet get SERVFAIL"
        );
    }
    server.serve(bound, shutdown)?;
    Ok(server)
}

/// Puts changes into the zone.
struct Follower {
    zone: Arc<Zone>,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// So many informers have not seen a whole state.
    waiting: AtomicUsize,
}

impl Follower {
    fn follow<K: KubeObject, V: Cached>(
        self: &Arc<Self>,
        factory: &Factory,
        event: fn(Change<V>) -> Event,
        shutdown: &Shutdown,
    ) {
        let informer: Informer<V> = factory.select(resource_of::<K>(), Selection::default());
        let follower = self.clone();
        informer.handle(move |change| follower.apply(&event(change.clone())));
        let (follower, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            // Its handlers have heard of the whole state when it is synced.
            let synced = stop.run(informer.synced()).await.is_some();
            if synced && follower.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
                follower.zone.set_synced();
            }
        });
    }

    fn apply(&self, event: &Event) {
        let now = self.clock.now();
        self.zone.apply(event, now);
        let Event::Slice(Change::Added(slice) | Change::Updated { new: slice, .. }) = event else { return };
        // The first state tells of changes that others have served long ago.
        let Some(triggered) = slice.triggered.filter(|_| self.zone.is_synced()) else { return };
        if let Some(headless) = self.zone.is_headless(&slice.service, &slice.id.namespace) {
            let took = Duration::try_from(now.duration_since(triggered)).unwrap_or_default();
            self.metrics.programmed(headless, took);
        }
    }
}
