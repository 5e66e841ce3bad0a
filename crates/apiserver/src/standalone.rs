//! The API server with its store and its keys in one data directory: what `kube-apiserver` and
//! every form that holds a control plane starts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use access::UserInfo;
use access::pki::{self, Pki, PkiConfig, PkiError};
use access::security::{Keys, Security, SecurityError};
use access::webhook::Network;
use api::Status;
use component::Shutdown;
use storage::{EtcdConfig, EtcdOpenError, OpenError, Store, StoreConfig};

use crate::allocate;
use crate::authorization_feed;
use crate::catalog::unreadable;
use crate::catalog::webhook_converter::ConversionWebhooks;
use crate::config::{Config, Etcd, Storage};
use crate::etcd::encryption::{Encryption, EncryptionError};
use crate::etcd::{Reload, StoredForms};
use crate::health::{Check, Of};
use crate::hooks::{self, Env};
use crate::identities::{GivenError, Identities};
use crate::objects::{CatalogError, Objects};
use crate::proxy::{Connect, Own};
use crate::server::{Parts, Server, ServerError};
use crate::store_metrics::StoreSize;

pub use crate::identities::Exchange;

/// Why it cannot start. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The keys and certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// How values in etcd are encrypted.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// The store in etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdOpenError),
    /// The table of resources.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The Service ranges.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Authentication, authorization or admission.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The port.
    #[error("cannot listen on {address}: {source}; choose another port, or stop what uses this one")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// TLS.
    #[error("the certificates cannot be used for TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A key or certificate that was given.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// The first objects.
    #[error("cannot make the objects that every cluster has: {0}")]
    Bootstrap(Status),
    /// A thread that opens the store ended.
    #[error("the store could not be opened: {0}")]
    Thread(String),
}

/// A running API server.
pub struct Running {
    /// The server; [`Server::transport`] gives components of this process their clients.
    pub server: Server,
    /// The keys and certificates.
    pub pki: Arc<Pki>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The address that others are told.
    pub advertised: IpAddr,
    /// The store.
    pub store: Store,
    /// Where the server must not connect to for others.
    pub place: Own,
    /// The way to exchange certificates while the server runs.
    pub exchange: Exchange,
}

impl Running {
    /// The server's URL on this machine.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.address.port())
    }
    /// Goes through the steps of the server's end, as [`Server::end`].
    pub async fn end(&self) {
        self.server.end().await;
    }
    /// Writes the admin's kubeconfig, 0600.
    pub fn write_kubeconfig(&self, path: &std::path::Path) -> Result<(), PkiError> {
        let user = "kubernetes-admin";
        pki::write_kubeconfig(path, &self.url(), &self.pki.ca.certificate_pem, user, &self.pki.admin)
    }
}

/// An authenticated caller.
fn identity(user: &str, groups: &[&str]) -> UserInfo {
    let groups = groups.iter().copied().chain(["system:authenticated"]).map(Into::into).collect();
    UserInfo { name: user.into(), groups, ..UserInfo::default() }
}

/// The server's own identity.
pub(crate) fn own_identity() -> UserInfo {
    identity("system:apiserver", &["system:masters"])
}

/// Starts the server and returns when it is ready. It runs until the shutdown's signal.
pub async fn start(mut config: Config, shutdown: &Shutdown) -> Result<Running, StartError> {
    let listen = SocketAddr::new(config.serving.bind, config.serving.port);
    let listener = component::listen(listen, config.serving.share_port);
    let listener = listener.map_err(|source| StartError::Listen { address: listen, source })?;
    let address = listener.local_addr().map_err(|source| StartError::Listen { address: listen, source })?;
    config.serving.port = address.port();
    let advertised = config.serving.advertised();
    let (pki, store, key_services) = open(&config, shutdown).await?;
    let objects = Arc::new(Objects::new(store.clone(), &config)?);
    let identities = Identities::new(&mut config, &pki)?;
    let keys = Keys {
        client_ca: identities.client_ca.clone(),
        front_proxy_ca: identities.front_proxy_ca.clone(),
        signing_key_pem: identities.signing_key_pem.clone(),
    };
    let surroundings = (config.gates, config.clock);
    let leads_here = [
        Some(SocketAddr::new(advertised, address.port())),
        service_address(&config).map(|ip| SocketAddr::new(ip, 443)),
    ];
    let place = Own::new(address.port(), leads_here.into_iter().flatten().collect());
    let guard = place.clone();
    let network = Network::new(Arc::<Objects>::clone(&objects), move |to| guard.allows_webhook(to));
    let network = Arc::new(network);
    let live = (Arc::<Objects>::clone(&objects) as _, Arc::clone(&network));
    let security = Security::new(&config.security, keys, surroundings, live)?;
    let find = |group: &str, plural: &str| objects.id((group, plural));
    let feeds = authorization_feed::feed(&security.authorizer, &store, shutdown, find);
    let kubelet = identities.kubelet_tls()?;
    let authorizer = Arc::clone(&security.auth.authorizer);
    let connect = Connect::new(Arc::clone(&objects), kubelet, authorizer, place.clone(), &config.calls);
    let (admission, token_uses) = (Arc::clone(&security.admission), security.token_uses);
    let parts = Parts {
        objects,
        auth: security.auth,
        admission: security.admission,
        feeds: Some(feeds),
        connect: Some(connect),
        shutdown: shutdown.clone(),
    };
    let server = Server::new(&config, parts)?;
    admission.connect(server.own_clients());
    network.connect(server.own_clients());
    let conversions = Arc::new(ConversionWebhooks::new(Arc::clone(&network)));
    server.metrics().register(|registry| {
        admission.register(registry);
        conversions.register(registry);
        network.register(registry);
        registry.register(
            "aggregator_discovery_aggregation_count",
            "[ALPHA] Counter of number of times discovery was aggregated",
            server.0.objects.catalog().discovery.made().clone(),
        );
    });
    if let Some(check) = key_services {
        server.health().add("kms-providers", Of::NotLiveness, check);
    }
    if config.storage.etcd.is_none() {
        let size = StoreSize { dir: store_dir(&config), store: store.clone() };
        server.metrics().register(|registry| registry.register_collector(Box::new(size)));
    }
    let tls = identities.server_tls(&config.serving)?;
    let exchange = identities.exchange();
    let (front, stop) = (server.clone(), shutdown.clone());
    shutdown.spawn(async move { front.serve(listener, tls, stop).await });
    let env = Env {
        objects: Arc::clone(&server.0.objects),
        allocators: Arc::clone(&server.0.handlers.allocators),
        conversions,
        port: address.port(),
        node_port: config.services.kubernetes_node_port,
        endpoints: config.services.kubernetes_endpoints,
        transport: server.transport(own_identity(), "kube-apiserver"),
        advertised,
        network,
        front_proxy: Some(identities.front_proxy),
        authentication: identities.authentication,
        gates: config.gates,
        hostname: config.serving.hostname.clone(),
        token_uses,
        metrics: Arc::clone(&server.0.front.metrics),
        flow: Arc::clone(&server.0.front.flow),
        ending: server.0.front.ending.begun().clone(),
        shutdown: shutdown.clone(),
    };
    hooks::run(&server.0, env).await.map_err(StartError::Bootstrap)?;
    let compaction_interval = config.storage.compaction_interval;
    if !compaction_interval.is_zero() {
        store.compact_every(compaction_interval, shutdown);
    }
    store.end_stuck_watchers(shutdown);
    Ok(Running { server, pki: Arc::new(pki), address, advertised, store, place, exchange })
}

/// The first address of the Services' range, which the `kubernetes` Service has.
fn service_address(config: &Config) -> Option<IpAddr> {
    let range = config.services.cidrs.first()?;
    Some(allocate::Cidr::parse(range).ok()?.first())
}

/// Where the store of this process is.
fn store_dir(config: &Config) -> PathBuf {
    config.data_dir.join("store")
}

/// Opens keys and store; with them, what tells whether the services of the store's keys answer, if it has any.
async fn open(config: &Config, shutdown: &Shutdown) -> Result<(Pki, Store, Option<Check>), StartError> {
    let serving = &config.serving;
    let mut addresses = serving.addresses.clone();
    if !addresses.contains(&serving.advertised()) {
        addresses.push(serving.advertised());
    }
    let pki_config = PkiConfig {
        hostname: serving.hostname.clone(),
        addresses,
        names: serving.names.clone(),
        service_address: service_address(config),
        cluster_domain: serving.cluster_domain.clone(),
        now: config.clock.now(),
    };
    let Storage { durability, quota, .. } = config.storage;
    let local = config.storage.etcd.is_none();
    let store_config =
        StoreConfig { clock: config.clock, durability, quota, ..StoreConfig::new(store_dir(config)) };
    let (dir, stop) = (config.data_dir.clone(), shutdown.clone());
    let opened = tokio::task::spawn_blocking(move || -> Result<(Pki, Option<Store>), StartError> {
        let pki = Pki::ensure(&dir, &pki_config)?;
        let store = if local { Some(Store::open(store_config, &stop)?) } else { None };
        Ok((pki, store))
    });
    let (pki, store) = opened.await.map_err(|e| StartError::Thread(e.to_string()))??;
    match (store, &config.storage.etcd) {
        (None, Some(etcd)) => {
            let (store, key_services) = open_etcd(etcd, config, shutdown).await?;
            Ok((pki, store, key_services))
        }
        (Some(store), _) => Ok((pki, store, None)),
        (None, None) => Err(StartError::Thread("it was not opened".into())),
    }
}

/// Opens the store in an etcd; with it, what tells whether the services of its keys answer, if it has any.
async fn open_etcd(
    etcd: &Etcd,
    config: &Config,
    shutdown: &Shutdown,
) -> Result<(Store, Option<Check>), StartError> {
    let forms = StoredForms::builtin().ok_or_else(|| CatalogError::lacks("ObjectMeta"))?;
    let Etcd { servers, prefix, encryption, reload, media, .. } = etcd;
    let (encryption, reload) = match encryption {
        Some(file) if *reload => {
            let (encryption, reload) = Reload::new(file.clone(), config.gates, shutdown).await?;
            (encryption, Some(reload))
        }
        Some(file) => (Encryption::from_file(file, config.gates)?, None),
        None => (Encryption::default(), None),
    };
    if reload.is_none() {
        encryption.start(shutdown).await;
    }
    // Another configuration may have plugins.
    let checked = reload.is_some() || encryption.has_plugins();
    let forms = Arc::new(forms.encrypted(encryption).in_media(*media));
    let key_services = checked.then(|| {
        let forms = Arc::clone(&forms);
        Arc::new(move || forms.encryption().healthy()) as Check
    });
    if let Some(reload) = reload {
        reload.follow(Arc::clone(&forms), shutdown);
    }
    let config = EtcdConfig {
        prefix: prefix.clone(),
        clock: config.clock,
        allow_sealed: config.gates.enabled(unreadable::GATE),
        ..EtcdConfig::new(servers.clone(), forms)
    };
    Ok((Store::open_etcd(config, shutdown).await?, key_services))
}
