//! The control plane in one process: store, API server, controllers, scheduler.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use api::Text;
use apiserver::auth::StoreReader;
use apiserver::pki::{NodeIdentity, Pki, PkiConfig, server_tls, write_kubeconfig};
use apiserver::request::UserInfo;
use apiserver::security::{Security, SecurityConfig};
use apiserver::{Config, Reader, Server};
use client::Client;
use component::{Clock, Shutdown};
use storage::{Store, StoreConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cli;
use crate::data_dir::DataDir;
use crate::machine;

/// What all forms of the control plane are told.
pub(crate) struct Settings {
    data_dir: PathBuf,
    bind: IpAddr,
    port: u16,
    kubeconfig: Option<PathBuf>,
    cluster_cidr: String,
    service_cidr: String,
    enable_admission: Vec<String>,
    disable_admission: Vec<String>,
}

impl From<&cli::Server> for Settings {
    fn from(f: &cli::Server) -> Self {
        Self {
            data_dir: f.data_dir.clone(),
            bind: f.bind_address,
            port: f.port,
            kubeconfig: f.write_kubeconfig.clone(),
            cluster_cidr: f.cluster_cidr.clone(),
            service_cidr: f.service_cidr.clone(),
            enable_admission: f.enable_admission_plugins.clone(),
            disable_admission: f.disable_admission_plugins.clone(),
        }
    }
}

impl From<&cli::ApiServer> for Settings {
    fn from(f: &cli::ApiServer) -> Self {
        Self {
            data_dir: f.data_dir.clone(),
            bind: f.bind_address,
            port: f.secure_port,
            kubeconfig: f.write_kubeconfig.clone(),
            cluster_cidr: String::new(),
            service_cidr: f.service_cluster_ip_range.clone(),
            enable_admission: f.enable_admission_plugins.clone(),
            disable_admission: f.disable_admission_plugins.clone(),
        }
    }
}

/// A running control plane.
pub(crate) struct ControlPlane {
    dir: DataDir,
    pki: Pki,
    server: Server,
    store: Store,
    clock: Clock,
    address: SocketAddr,
    kubeconfig: PathBuf,
    cluster_cidr: String,
    service_cidr: String,
    /// Stops first: what speaks to the API server.
    components: Shutdown,
    /// Stops second: the API server.
    serving: Shutdown,
    /// Stops last: the store.
    storing: Shutdown,
    broken: watch::Receiver<Option<String>>,
}

impl ControlPlane {
    /// Starts store and API server, and waits until the API server is ready. `node` is the name of this
    /// machine's node, for its certificates.
    pub(crate) async fn start(settings: Settings, node: Option<&str>) -> Result<Self> {
        let clock = Clock::system();
        let dir = DataDir::open(&settings.data_dir)?;
        let own = machine::primary_address();
        let mut addresses = vec![own];
        if !settings.bind.is_unspecified() && settings.bind != own {
            addresses.push(settings.bind);
        }
        let pki = Pki::ensure(
            dir.path(),
            &PkiConfig {
                hostname: machine::hostname(),
                addresses: addresses.clone(),
                names: Vec::new(),
                service_address: Some(machine::nth_address(&settings.service_cidr, 1)?),
                cluster_domain: "cluster.local".into(),
                node: node.map(|name| NodeIdentity { name: name.to_owned(), addresses }),
                now: clock.now(),
            },
        )?;
        let listener = listen(SocketAddr::new(settings.bind, settings.port)).await?;
        let address = listener.local_addr()?;
        let (components, serving, storing) = (Shutdown::new(), Shutdown::new(), Shutdown::new());
        let store =
            Store::open(StoreConfig { clock, ..StoreConfig::new(dir.path().join("store")) }, &storing)?;
        let reader = Reader::new(store.clone())?;
        let names = api::resources::builtin().iter().filter_map(|r| {
            reader.resource(r.group, r.resource).map(|id| ((Text::from(r.group), Text::from(r.resource)), id))
        });
        let plain = Arc::new(StoreReader::new(store.clone(), names.collect::<Vec<(_, _)>>()));
        let security = SecurityConfig {
            enable_admission: settings.enable_admission,
            disable_admission: settings.disable_admission,
            clock,
            ..SecurityConfig::new(pki.ca.certificate(), pki.service_account_key_pem.clone())
        };
        let find = |group: &str, plural: &str| reader.resource(group, plural);
        let security = Security::new(security, plain, &store, find, &serving)?;
        let config = Config {
            service_cidrs: vec![settings.service_cidr.clone()],
            advertise_address: Some(own),
            port: address.port(),
            clock,
            ..Config::default()
        };
        let authorizer = security.auth.authorizer.clone();
        let server = Server::new(config, reader, security.auth, security.admission, serving.clone())?;
        let objects =
            Client::new(server.transport(superuser("system:apiserver"), "kube-apiserver"), "kube-apiserver");
        server.set_connect(apiserver::proxy::Connect::new(objects, kubelet_tls(&pki)?, authorizer));
        let tls = server_tls(&pki.apiserver, &pki.ca.certificate())?;
        let (tell, broken) = watch::channel(None);
        let (serve, stop) = (server.clone(), serving.clone());
        serving.spawn(async move {
            serve.serve(listener, tls, stop.clone()).await;
            if !stop.stopped() {
                let _ = tell.send(Some("the API server stopped listening".to_owned()));
            }
        });
        apiserver::bootstrap::ensure(&*server.transport(superuser("system:apiserver"), "kube-apiserver"))
            .await
            .map_err(|e| anyhow!("the bootstrap objects could not be written: {e}"))?;
        let kubeconfig = settings.kubeconfig.unwrap_or_else(|| dir.path().join("admin.kubeconfig"));
        let host = if settings.bind.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { settings.bind };
        let url = format!("https://{}", SocketAddr::new(host, address.port()));
        write_kubeconfig(&kubeconfig, &url, &pki.ca.certificate_pem, "kubernetes-admin", &pki.admin)
            .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        Ok(Self {
            dir,
            pki,
            server,
            store,
            clock,
            address: SocketAddr::new(host, address.port()),
            kubeconfig,
            cluster_cidr: settings.cluster_cidr,
            service_cidr: settings.service_cidr,
            components,
            serving,
            storing,
            broken,
        })
    }

    /// Starts controllers and scheduler.
    pub(crate) fn start_components(&mut self) {
        let config = controllers::Config::new(self.clock, self.pki.ca.certificate_pem.clone());
        let clients = |user: &str| self.client_as(user_of(user), "kube-controller-manager");
        controllers::run(&config, &clients, &self.components);
        let scheduler = self.client_as(user_of("system:kube-scheduler"), "kube-scheduler");
        self.components.spawn(scheduler::run::run(scheduler, self.clock, self.components.clone()));
    }

    /// A client in this process with an identity.
    pub(crate) fn client_as(&self, user: UserInfo, agent: &str) -> Client {
        Client::new(self.server.transport(user, agent), agent)
    }

    /// The administrator's client.
    pub(crate) fn admin(&self) -> Client {
        self.client_as(superuser("kubernetes-admin"), "ferrokube")
    }

    /// Where the API server is.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
    /// The data directory.
    pub(crate) fn dir(&self) -> &DataDir {
        &self.dir
    }
    /// The keys and certificates.
    pub(crate) fn pki(&self) -> &Pki {
        &self.pki
    }
    /// The clock.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
    /// The Services' range.
    pub(crate) fn service_cidr(&self) -> &str {
        &self.service_cidr
    }
    /// The Pods' range.
    pub(crate) fn cluster_cidr(&self) -> &str {
        &self.cluster_cidr
    }
    /// The shutdown of what speaks to the API server.
    pub(crate) fn shutdown(&self) -> &Shutdown {
        &self.components
    }
    /// Resolves if something broke that can't go on.
    pub(crate) fn broken(&self) -> impl Future<Output = anyhow::Error> + use<> {
        let mut broken = self.broken.clone();
        async move {
            loop {
                let why = broken.borrow_and_update().clone();
                if let Some(why) = why {
                    return anyhow!(why);
                }
                if broken.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Stops everything, in the order of who needs whom.
    pub(crate) async fn stop(self) {
        self.components.finish().await;
        self.serving.finish().await;
        self.store.close().await;
        self.storing.finish().await;
    }
}

fn superuser(name: &str) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: vec![Text::from("system:masters"), Text::from("system:authenticated")],
        ..UserInfo::default()
    }
}

/// The identity of a component's user name, with the groups that belong to it.
pub(crate) fn user_of(name: &str) -> UserInfo {
    let mut groups = vec![Text::from("system:authenticated")];
    if let Some((namespace, _)) = name.strip_prefix("system:serviceaccount:").and_then(|r| r.split_once(':'))
    {
        groups.push("system:serviceaccounts".into());
        groups.push(Text::from(format!("system:serviceaccounts:{namespace}")));
    }
    if name.starts_with("system:node:") {
        groups.push("system:nodes".into());
    }
    UserInfo { name: name.into(), groups, ..UserInfo::default() }
}

async fn listen(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("port {} is in use by another program; stop it, or choose another with --port", at.port())
        }
        std::io::ErrorKind::PermissionDenied => {
            anyhow!(
                "no permission to listen on port {}; run as root, or choose one above 1023 with --port",
                at.port()
            )
        }
        _ => anyhow!("cannot listen on {at}: {e}"),
    })
}

/// How the API server calls kubelets: with its certificate, taking only theirs from the cluster's authority.
fn kubelet_tls(pki: &Pki) -> Result<Arc<rustls::ClientConfig>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pki.ca.certificate())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = &pki.apiserver_kubelet_client;
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![client.certificate()], client.key())?;
    Ok(Arc::new(config))
}
