//! The API server with its store and its keys in one data directory: what `kube-apiserver` and
//! every form that holds a control plane starts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::UserInfo;
use access::pki::{self, NodeIdentity, Pki, PkiConfig, PkiError};
use access::security::{Security, SecurityConfig, SecurityError};
use api::Status;
use client::Transport;
use component::Shutdown;
use rustls_pki_types::CertificateDer;
use storage::{Durability, EtcdConfig, EtcdOpenError, EtcdServers, OpenError, Store, StoreConfig};
use tokio::net::TcpListener;

use crate::allocate;
use crate::authorization_feed;
use crate::catalog::{Documents, NoDocuments, unreadable};
use crate::config::Config;
use crate::etcd::StoredForms;
use crate::etcd::encryption::{Encryption, EncryptionError};
use crate::health::{Check, Of};
use crate::hooks::{self, Env};
use crate::objects::{CatalogError, Objects};
use crate::proxy::{Connect, Own};
use crate::server::{Parts, Server, ServerError};
use crate::store_metrics::StoreSize;

/// How it is started.
pub struct Options {
    /// Where the store and the keys are; made if it does not exist.
    pub data_dir: PathBuf,
    /// Where to listen (`--bind-address`).
    pub bind: IpAddr,
    /// Port; 0 takes any (`--secure-port`).
    pub port: u16,
    /// The server. Its port is set from the listener, its advertised address is this machine's if absent.
    pub config: Config,
    /// This machine's host name.
    pub hostname: String,
    /// Addresses of this machine besides loopback; the first is advertised if nothing else is said.
    pub addresses: Vec<IpAddr>,
    /// More DNS names of the server.
    pub names: Vec<String>,
    /// DNS domain of the cluster.
    pub cluster_domain: String,
    /// The node of this machine, if it has one.
    pub node: Option<NodeIdentity>,
    /// How much history lists and watches can go back to (`--etcd-compaction-interval`); zero for all that is kept.
    pub compaction_interval: Duration,
    /// What an acknowledged write has behind it.
    pub durability: Durability,
    /// How much the store of this process may hold, in bytes; nothing for any amount.
    pub quota: Option<u64>,
    /// The etcd that holds the objects; the store in the data directory if absent.
    pub etcd: Option<EtcdOptions>,
    /// What makes the documents of OpenAPI.
    pub documents: Arc<dyn Documents>,
    /// Changes to the defaults of security, after they were made from the keys.
    pub security: Box<dyn FnOnce(&mut SecurityConfig) + Send>,
}

impl Options {
    /// The defaults, for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            bind: IpAddr::from([0, 0, 0, 0]),
            port: 6443,
            config: Config::default(),
            hostname: String::new(),
            addresses: Vec::new(),
            names: Vec::new(),
            cluster_domain: "cluster.local".into(),
            node: None,
            compaction_interval: Duration::from_mins(5),
            durability: Durability::default(),
            quota: Some(storage::DEFAULT_QUOTA),
            etcd: None,
            documents: Arc::new(NoDocuments),
            security: Box::new(|_| {}),
        }
    }
}

/// An etcd that holds the objects.
#[derive(Debug, Clone, Default)]
pub struct EtcdOptions {
    /// Where it is.
    pub servers: EtcdServers,
    /// What its keys begin with (`--etcd-prefix`).
    pub prefix: String,
    /// How values are encrypted (`--encryption-provider-config`); they are not if absent.
    pub encryption: Option<PathBuf>,
}

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
}

impl Running {
    /// The server's URL on this machine.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.address.port())
    }
    /// Writes the admin's kubeconfig, 0600.
    pub fn write_kubeconfig(&self, path: &std::path::Path) -> Result<(), PkiError> {
        let user = "kubernetes-admin";
        pki::write_kubeconfig(path, &self.url(), &self.pki.ca.certificate_pem, user, &self.pki.admin)
    }
    /// A transport with an identity in one group.
    pub fn transport(&self, user: &str, groups: &[&str], agent: &str) -> Arc<dyn Transport> {
        self.server.transport(identity(user, groups), agent)
    }
}

/// An authenticated caller.
fn identity(user: &str, groups: &[&str]) -> UserInfo {
    let groups = groups.iter().copied().chain(["system:authenticated"]).map(Into::into).collect();
    UserInfo { name: user.into(), groups, ..UserInfo::default() }
}

/// The server's own identity.
const SELF: (&str, &[&str]) = ("system:apiserver", &["system:masters"]);

/// Starts the server and returns when it is ready. It runs until the shutdown's signal.
pub async fn start(options: Options, shutdown: &Shutdown) -> Result<Running, StartError> {
    let Options {
        data_dir,
        bind,
        port,
        mut config,
        hostname,
        addresses,
        names,
        cluster_domain,
        node,
        compaction_interval,
        durability,
        quota,
        etcd,
        documents,
        security,
    } = options;
    let listen = SocketAddr::new(bind, port);
    let listener =
        TcpListener::bind(listen).await.map_err(|source| StartError::Listen { address: listen, source })?;
    let address = listener.local_addr().map_err(|source| StartError::Listen { address: listen, source })?;
    config.port = address.port();
    let advertised = config
        .advertise_address
        .or_else(|| (!bind.is_unspecified()).then_some(bind))
        .or_else(|| addresses.iter().copied().find(|a| a.is_ipv4()))
        .unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let service_address =
        config.service_cidrs.first().and_then(|c| allocate::Cidr::parse(c).ok()).map(|c| c.first());
    let mut all = addresses;
    if !all.contains(&advertised) {
        all.push(advertised);
    }
    let pki_config = PkiConfig {
        hostname,
        addresses: all,
        names,
        service_address,
        cluster_domain,
        node,
        now: config.clock.now(),
    };
    let (dir, stop) = (data_dir.clone(), shutdown.clone());
    let (clock, store_dir) = (config.clock, data_dir.join("store"));
    let local = etcd.is_none();
    let files = store_dir.clone();
    let opened = tokio::task::spawn_blocking(move || -> Result<(Pki, Option<Store>), StartError> {
        let pki = Pki::ensure(&dir, &pki_config)?;
        let config = StoreConfig { clock, durability, quota, ..StoreConfig::new(store_dir) };
        let store = if local { Some(Store::open(config, &stop)?) } else { None };
        Ok((pki, store))
    });
    let (pki, store) = opened.await.map_err(|e| StartError::Thread(e.to_string()))??;
    let (store, key_services) = match store {
        Some(store) => (store, None),
        None => open_etcd(etcd.unwrap_or_default(), &config, shutdown).await?,
    };
    let objects = Arc::new(Objects::new(store.clone(), &config, documents)?);
    let mut security_config = SecurityConfig::new(pki.ca.certificate(), pki.service_account_key_pem.clone());
    security_config.clock = config.clock;
    security_config.gates = config.gates.clone();
    security(&mut security_config);
    let security = Security::new(security_config, Arc::<Objects>::clone(&objects))?;
    let find = |group: &str, plural: &str| objects.id((group, plural));
    let feeds = authorization_feed::feed(&security.authorizer, &store, shutdown, find);
    let authorizer = Arc::clone(&security.auth.authorizer);
    let admission = Arc::clone(&security.admission);
    let kubelet = kubelet_tls(&pki.ca.certificate(), &pki.apiserver_kubelet_client)?;
    let leads_here = [
        Some(SocketAddr::new(advertised, address.port())),
        service_address.map(|ip| SocketAddr::new(ip, 443)),
    ];
    let place = Own::new(address.port(), leads_here.into_iter().flatten().collect());
    let connect = Connect::new(Arc::clone(&objects), kubelet, authorizer, place.clone());
    let parts = Parts {
        objects,
        auth: security.auth,
        admission: security.admission,
        feeds: Some(feeds),
        connect: Some(connect),
        shutdown: shutdown.clone(),
    };
    let server = Server::new(&config, parts)?;
    server.metrics().register(|registry| admission.register(registry));
    if let Some(check) = key_services {
        server.health().add("kms-providers", Of::NotLiveness, check);
    }
    if local {
        let size = StoreSize { dir: files, store: store.clone() };
        server.metrics().register(|registry| registry.register_collector(Box::new(size)));
    }
    let tls = pki::server_tls(&pki.apiserver, &pki.ca.certificate())?;
    let (front, stop) = (server.clone(), shutdown.clone());
    shutdown.spawn(async move { front.serve(listener, tls, stop).await });
    let env = Env {
        objects: Arc::clone(&server.0.objects),
        allocators: Arc::clone(&server.0.handlers.allocators),
        port: address.port(),
        transport: server.transport(identity(SELF.0, SELF.1), "kube-apiserver"),
        advertised,
        shutdown: shutdown.clone(),
    };
    hooks::run(&server.0, env).await.map_err(StartError::Bootstrap)?;
    if !compaction_interval.is_zero() {
        store.compact_every(compaction_interval, shutdown);
    }
    store.end_stuck_watchers(shutdown);
    Ok(Running { server, pki: Arc::new(pki), address, advertised, store, place })
}

/// Opens the store in an etcd; with it, what tells whether the services of its keys answer, if it has any.
async fn open_etcd(
    options: EtcdOptions,
    config: &Config,
    shutdown: &Shutdown,
) -> Result<(Store, Option<Check>), StartError> {
    let forms = StoredForms::builtin().ok_or_else(|| CatalogError::lacks("ObjectMeta"))?;
    let EtcdOptions { servers, prefix, encryption } = options;
    let encryption = match encryption {
        Some(file) => Encryption::from_file(&file, &config.gates)?,
        None => Encryption::default(),
    };
    encryption.start(shutdown).await;
    let key_services = encryption.health();
    let forms = Arc::new(forms.encrypted(encryption));
    let config = EtcdConfig {
        prefix,
        clock: config.clock,
        allow_sealed: config.gates.enabled(unreadable::GATE),
        ..EtcdConfig::new(servers, forms)
    };
    Ok((Store::open_etcd(config, shutdown).await?, key_services))
}

/// How kubelets are called: with the client certificate, verified against the cluster's authority.
fn kubelet_tls(
    ca: &CertificateDer<'static>,
    client: &pki::Credential,
) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![client.certificate()], client.key())?;
    Ok(Arc::new(config))
}
