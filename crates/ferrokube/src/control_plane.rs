//! The control plane in one process: store, API server, controllers, scheduler.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::UserInfo;
use access::pki::Pki;
use anyhow::{Context, Result, anyhow, bail};
use api::{FeatureGates, Text};
use apiserver::config::{self, Config, Given};
use apiserver::served::RuntimeConfig;
use apiserver::standalone;
use client::{Client, Clients, Election};
use component::metrics::Registry;
use component::{Clock, Shutdown};
use controllers::certificates::{Authority, Signers};
use kubelet::config::VOLUME_PLUGIN_DIR;
use objects::cidr::Cidr;
use rustls::{RootCertStore, ServerConfig};

use crate::certificate_files::Files;
use crate::data_dir::DataDir;
use crate::endpoints::{About, Telling};
use crate::failure::Failure;
use crate::part_settings::PartSettings;
use crate::say::warn;
use crate::seat::{Identity, NodeFeatures, NodeParts, Seat};
use crate::{cli, endpoints, flex_drivers, machine, openapi, part_settings, signing};

/// The port that the nodes' kubelets have, unless told otherwise.
const KUBELET_PORT: u16 = 10250;

/// The settings that all forms of the control plane share.
pub(crate) struct Settings {
    /// The API server's part.
    api: Config,
    /// The certificates' files that are read again.
    files: Files,
    kubeconfig: Option<PathBuf>,
    cluster_cidr: String,
    /// The sizes of the nodes' parts of it.
    masks: controllers::MaskSizes,
    controllers: controllers::Choice,
    load_balancers: Option<controllers::LoadBalancers>,
    local_path: bool,
}

/// The controllers of a control plane. With `*`, also those of bootstrap tokens, with which nodes join; kubeadm names
/// them for its clusters, too.
fn chosen(named: &[String]) -> Result<controllers::Choice, controllers::ChoiceError> {
    let own: &[&str] =
        if named.iter().any(|n| n.trim() == "*") { &["bootstrapsigner", "tokencleaner"] } else { &[] };
    controllers::Choice::parse(named.iter().map(String::as_str).chain(own.iter().copied()))
}

impl Settings {
    /// Of the flags of a control plane; `flags` are all of them with their values.
    pub(crate) fn of_server(f: &cli::Server, flags: &BTreeMap<String, String>) -> Result<Self> {
        let masks = f.masks.sizes();
        controllers::check_ranges(&f.cluster_cidr, masks, &f.service_cidr)
            .context("--cluster-cidr cannot be used with this --service-cidr")?;
        let mut api = api_config(&f.api, &f.data_dir, (f.bind_address, f.port))?;
        api.flags.clone_from(flags);
        api.services.cidrs.clone_from(&f.service_cidr);
        api.security.bootstrap_tokens = f.enable_bootstrap_token_auth;
        Ok(Self {
            api,
            files: Files::default(),
            kubeconfig: f.write_kubeconfig.clone(),
            cluster_cidr: f.cluster_cidr.clone(),
            masks,
            controllers: chosen(&f.controllers).context("invalid --controllers")?,
            load_balancers: (!f.disable_load_balancer).then(|| controllers::LoadBalancers {
                pool: f.load_balancer_pool.clone(),
                reserved: vec![f.port, KUBELET_PORT],
            }),
            local_path: !f.disable_local_path,
        })
    }
    /// Of the flags of an API server alone.
    pub(crate) fn of_api_server(f: &cli::ApiServer, flags: &BTreeMap<String, String>) -> Result<Self> {
        let mut api = api_config(&f.api, &f.data_dir(), (f.bind_address, f.secure_port))?;
        f.security.configure(&mut api.security)?;
        f.times.configure(&mut api.limits)?;
        f.behaviour.configure(&mut api)?;
        api.flags.clone_from(flags);
        api.security.toleration_seconds = f.times.toleration_seconds();
        for warning in f.https.configure(&mut api.serving)? {
            warn(&warning);
        }
        f.security.keep_certificate(|| certificate_names(&api.serving, &f.service_cluster_ip_range))?;
        api.given = Given { named: f.https.named()?, ..f.security.given()? };
        api.shown = f.metrics.shown()?;
        api.services.cidrs.clone_from(&f.service_cluster_ip_range);
        api.security.bootstrap_tokens = f.enable_bootstrap_token_auth;
        Ok(Self {
            api,
            files: Files { named: f.https.named_files(), ..f.security.files() },
            kubeconfig: f.write_kubeconfig.clone(),
            cluster_cidr: String::new(),
            masks: controllers::MaskSizes::default(),
            controllers: controllers::Choice::parse([""; 0]).context("invalid --controllers")?,
            load_balancers: None,
            local_path: false,
        })
    }
    /// With addresses by which nodes of this machine reach it; the first is told to them.
    pub(crate) fn reached_at(mut self, addresses: &[IpAddr]) -> Self {
        let serving = &mut self.api.serving;
        serving.addresses.extend(addresses);
        serving.advertise_address = serving.advertise_address.or(addresses.first().copied());
        self
    }
}

/// The names of a certificate that an API server makes for itself: upstream's, and those of this machine alone.
fn certificate_names(serving: &config::Serving, services: &[String]) -> Vec<String> {
    // That of the Service `kubernetes`. A range that is none is told elsewhere.
    let service = services.first().and_then(|range| range.parse::<Cidr>().ok()?.nth(1));
    let addresses = serving.advertise_address.iter().chain(&serving.addresses).copied();
    let addresses = addresses.chain(service).chain([Ipv4Addr::LOCALHOST.into()]);
    let mut names: Vec<String> =
        ["kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"].map(str::to_owned).into();
    for address in addresses.map(|a: IpAddr| a.to_string()) {
        if !names.contains(&address) {
            names.push(address);
        }
    }
    names
}

/// The API server's configuration by its flags, on this machine.
fn api_config(f: &cli::Api, data_dir: &Path, (bind, port): (IpAddr, u16)) -> Result<Config> {
    let mut config = Config::new(data_dir);
    config.gates =
        FeatureGates::parse(f.feature_gates.iter().map(String::as_str)).context("invalid --feature-gates")?;
    config.runtime_config = RuntimeConfig::parse(f.runtime_config.iter().map(String::as_str))
        .context("invalid --runtime-config")?;
    config.serving = config::Serving {
        bind,
        port,
        advertise_address: f.advertise_address,
        hostname: machine::hostname(),
        addresses: vec![machine::primary_address()],
        ..config::Serving::default()
    };
    config.storage = config::Storage {
        etcd: f.etcd.chosen()?,
        durability: f.durability.into(),
        quota: quota(f.quota_backend_bytes),
        compaction_interval: f.etcd_compaction_interval,
        event_ttl: f.event_ttl,
        ..config::Storage::default()
    };
    config.services.node_ports = f.service_node_port_range.clone();
    config.security.enable_admission.clone_from(&f.enable_admission_plugins);
    config.security.disable_admission.clone_from(&f.disable_admission_plugins);
    config.security.admission_config.clone_from(&f.admission_control_config_file);
    config.documents = Arc::new(openapi::Builtin);
    config.limits.max_in_flight = f.max_requests_inflight;
    config.limits.max_mutating_in_flight = f.max_mutating_requests_inflight;
    config.limits.priority_and_fairness = f.enable_priority_and_fairness;
    if f.enable_priority_and_fairness && f.max_requests_inflight == 0 && f.max_mutating_requests_inflight == 0
    {
        bail!(
            "--max-requests-inflight and --max-mutating-requests-inflight leave no seat to share; raise one, or set \
             --enable-priority-and-fairness=false"
        );
    }
    Ok(config)
}

/// A running control plane.
pub(crate) struct ControlPlane {
    dir: DataDir,
    running: standalone::Running,
    clock: Clock,
    kubeconfig: PathBuf,
    cluster_cidr: String,
    masks: controllers::MaskSizes,
    service_cidrs: Vec<String>,
    gates: FeatureGates,
    controllers: controllers::Choice,
    load_balancers: Option<controllers::LoadBalancers>,
    local_path: bool,
    /// The shutdown of the API server's clients; it stops first.
    components: Shutdown,
    /// The shutdown of the API server and its store; it stops last.
    serving: Shutdown,
    failure: Failure,
}

impl ControlPlane {
    /// Starts store and API server, and waits until the API server is ready.
    pub(crate) async fn start(dir: DataDir, settings: Settings) -> Result<Self> {
        let Settings {
            mut api,
            files,
            kubeconfig,
            cluster_cidr,
            masks,
            controllers,
            load_balancers,
            local_path,
        } = settings;
        dir.path().clone_into(&mut api.data_dir);
        let clock = api.clock;
        let (service_cidrs, gates) = (api.services.cidrs.clone(), api.gates);
        // The administrator's own certificate is of no use where others are believed.
        let knows_own = api.security.client_authorities.is_none() && api.given.serving.is_none();
        if kubeconfig.is_some() && !knows_own {
            bail!(
                "--write-kubeconfig writes the server's own certificates, which are not those of --client-ca-file and \
                 --tls-cert-file; leave it out"
            );
        }
        let serving = Shutdown::new();
        let components = serving.apart();
        let running = match standalone::start(api, &serving).await {
            Ok(running) => running,
            Err(e) => {
                serving.finish().await;
                return Err(explain(e));
            }
        };
        files.follow(&running.exchange, &serving);
        let kubeconfig = kubeconfig.unwrap_or_else(|| dir.path().join("admin.kubeconfig"));
        if knows_own {
            let written = running.write_kubeconfig(&kubeconfig);
            written.with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        }
        Ok(Self {
            dir,
            running,
            clock,
            kubeconfig,
            cluster_cidr,
            masks,
            service_cidrs,
            gates,
            controllers,
            load_balancers,
            local_path,
            components,
            serving,
            failure: Failure::default(),
        })
    }

    /// Starts controllers and scheduler; if several servers share the store, once this one is elected.
    pub(crate) fn start_components(&self) -> Result<()> {
        let parts = Parts {
            server: self.running.server.clone(),
            clock: self.clock,
            root_ca: self.running.pki.ca.certificate_pem.clone(),
            signers: self.signers()?,
            token_signer: signing::token_signer(&self.running.pki.service_account_key_pem)?,
            cluster_cidr: self.cluster_cidr.clone(),
            masks: self.masks,
            service_cidrs: self.service_cidrs.clone(),
            gates: self.gates,
            controllers: self.controllers.clone(),
            load_balancers: self.load_balancers.clone(),
            local_path: self.local_path,
            elected: self.running.store.capabilities().others_write,
            controllers_tell: Telling::default(),
            scheduler_tells: Telling::default(),
        };
        let roots = self.roots()?;
        let (serving, stop) = (parts.clone(), self.components.clone());
        self.components.spawn(async move { serving.serve(&roots, &stop) });
        if !parts.elected {
            parts.controllers(&self.components, Duration::ZERO)?;
            self.components.spawn(parts.scheduler(self.components.clone()));
            return Ok(());
        }
        let controlling = parts.clone();
        let failure = self.failure();
        self.elect("kube-controller-manager", &parts.controllers_tell, move |stop: Shutdown| {
            let (parts, failure) = (controlling.clone(), failure.clone());
            async move {
                if let Err(e) = parts.controllers(&stop, controllers::SEVERAL_SERVERS) {
                    failure.report(format!("{e:#}"));
                }
                stop.wait().await;
            }
        });
        let scheduling = parts.clone();
        self.elect("kube-scheduler", &parts.scheduler_tells, move |stop| scheduling.scheduler(stop));
        Ok(())
    }

    /// The signers of certificates, all with the cluster's authority.
    fn signers(&self) -> Result<Signers> {
        let ca = &self.running.pki.ca;
        let authority = Authority::parse(ca.certificate_pem.as_bytes(), ca.key_pem.as_bytes());
        Ok(Signers::all(&authority.context("certificates cannot be signed")?))
    }

    /// Lets one of all servers at a time work as the component of this name, again and again.
    fn elect<F, R>(&self, name: &'static str, telling: &Telling, work: F)
    where
        F: Fn(Shutdown) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let identity = format!("{}_{}", machine::hostname(), uuid::Uuid::new_v4());
        let election = Election::new("kube-system", name, &identity);
        let told = election.clone();
        telling.metrics.register("leader-election", move |page| told.report(page));
        let client = self.client_as(user_of(&format!("system:{name}")), name);
        let (clock, stop) = (self.clock, self.components.clone());
        self.components.spawn(async move {
            while !stop.stopped() {
                // A server that lost the election tries again, as one of many.
                election.lead(&client, clock, &stop, &work).await;
            }
        });
    }

    /// A client in this process with an identity.
    pub(crate) fn client_as(&self, user: UserInfo, agent: &str) -> Client {
        Client::new(self.running.server.transport(user, agent), agent)
    }

    /// The administrator's client.
    pub(crate) fn admin(&self) -> Client {
        self.client_as(superuser("kubernetes-admin"), "ferrokube")
    }

    /// The URL of the API server.
    pub(crate) fn url(&self) -> String {
        self.running.url()
    }
    /// The port of the API server.
    pub(crate) fn port(&self) -> u16 {
        self.running.address.port()
    }
    /// The data directory.
    pub(crate) fn dir(&self) -> &DataDir {
        &self.dir
    }
    /// The clock of all parts.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
    /// The URL of the API server for other machines.
    pub(crate) fn advertised_url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.running.advertised, self.running.address.port()))
    }
    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
    /// The keys and certificates.
    pub(crate) fn pki(&self) -> &Pki {
        &self.running.pki
    }
    /// Sets the port on which this machine's kubelet listens, which is reached there even by loopback.
    pub(crate) fn kubelet_at(&self, port: u16) {
        self.running.place.set_kubelet(port);
    }
    /// The Services' ranges, that of their default family first.
    pub(crate) fn service_cidrs(&self) -> &[String] {
        &self.service_cidrs
    }
    /// The Pods' range.
    pub(crate) fn cluster_cidr(&self) -> &str {
        &self.cluster_cidr
    }
    /// The shutdown of the API server's clients.
    pub(crate) fn shutdown(&self) -> &Shutdown {
        &self.components
    }
    /// The place where parts report that they can't go on.
    pub(crate) fn failure(&self) -> Failure {
        self.failure.clone()
    }

    /// The authority of clients.
    pub(crate) fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.pki().ca.certificate())?;
        Ok(roots)
    }

    /// The features of this cluster's kubelets.
    pub(crate) fn node_features(&self) -> NodeFeatures {
        NodeFeatures::of(self.gates)
    }

    /// The surroundings of this machine's node, whose kubelet listens where the API server does unless told otherwise,
    /// with this TLS.
    pub(crate) fn seat(&self, bind: IpAddr, node: Identity, parts: NodeParts, tls: ServerConfig) -> Seat<'_> {
        let server = self.running.server.clone();
        Seat {
            name: node.name,
            addresses: node.addresses,
            dir: &self.dir,
            clients: Arc::new(move |agent| clients(&server, agent)),
            admin: Some(self.admin()),
            kubeconfig: self.kubeconfig.clone(),
            bind,
            cluster_cidr: self.cluster_cidr.clone(),
            service_cidrs: self.service_cidrs.clone(),
            tls,
            certificates: kubelet::config::Certificates::default(),
            parts,
            features: self.node_features(),
            cluster_dns: None,
            pod_network: None,
            nodes_of_machine: 1,
            clock: self.clock,
            shutdown: self.components.clone(),
            failure: self.failure(),
        }
    }

    /// Stops all parts, each before those that it needs.
    pub(crate) async fn stop(self) {
        self.components.finish().await;
        self.running.end().await;
        self.serving.finish().await;
        self.running.store.close().await;
    }
}

/// The parts from which controllers and scheduler are started.
#[derive(Clone)]
struct Parts {
    server: apiserver::Server,
    clock: Clock,
    root_ca: String,
    signers: Signers,
    token_signer: Arc<dyn controllers::TokenSigner>,
    cluster_cidr: String,
    masks: controllers::MaskSizes,
    service_cidrs: Vec<String>,
    gates: FeatureGates,
    controllers: controllers::Choice,
    load_balancers: Option<controllers::LoadBalancers>,
    local_path: bool,
    /// Whether the servers of a cluster elect the one whose parts work.
    elected: bool,
    controllers_tell: Telling,
    scheduler_tells: Telling,
}

impl Parts {
    /// Starts the controllers; a namespace's deletion waits for `namespace_delay`.
    fn controllers(&self, stop: &Shutdown, namespace_delay: Duration) -> Result<()> {
        let (node_prefix_v4, node_prefix_v6) = controllers::node_prefixes(&self.cluster_cidr, self.masks)?;
        let config = controllers::Config {
            namespace_delay,
            service_cidrs: self.service_cidrs.clone(),
            cluster_cidr: self.cluster_cidr.clone(),
            node_prefix_v4,
            node_prefix_v6,
            controllers: self.controllers.clone(),
            load_balancers: self.load_balancers.clone(),
            local_path: self.local_path,
            flex_drivers: Some(flex_drivers::in_dir(Path::new(VOLUME_PLUGIN_DIR))),
            signers: self.signers.clone(),
            token_signer: Some(Arc::clone(&self.token_signer)),
            node_certificates: true,
            gates: self.gates,
            ..controllers::Config::new(self.clock, self.root_ca.clone())
        };
        let told = &self.controllers_tell;
        let clients = self.clients("kube-controller-manager", &told.metrics);
        controllers::run(&config, &clients, &told.metrics, &told.health, stop)
            .with_context(|| format!("--cluster-cidr {:?} can't be used", self.cluster_cidr))
    }

    fn scheduler(&self, stop: Shutdown) -> impl Future<Output = ()> + Send + use<> {
        let metrics = self.scheduler_tells.metrics.clone();
        let clients = self.clients("kube-scheduler", &metrics);
        scheduler::run::run(self.gates, clients, self.clock, metrics, stop)
    }

    /// Clients in this process, by user name; their requests are among the metrics.
    fn clients(&self, agent: &'static str, metrics: &Registry) -> Clients {
        let clients = clients(&self.server, agent);
        let requests = clients.requests().clone();
        metrics.register("rest-client", move |page| requests.write(page));
        clients
    }

    /// The settings by which the controllers act.
    fn controllers_settings(&self) -> Result<PartSettings> {
        part_settings::of_controllers(&[
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("leader-elect", self.elected.to_string()),
            ("controllers", self.controllers.names().join(",")),
            ("cluster-cidr", self.cluster_cidr.clone()),
            ("node-cidr-mask-size", self.masks.only.to_string()),
            ("node-cidr-mask-size-ipv4", self.masks.v4.to_string()),
            ("node-cidr-mask-size-ipv6", self.masks.v6.to_string()),
            ("service-cluster-ip-range", self.service_cidrs.join(",")),
            ("allocate-node-cidrs", (!self.cluster_cidr.is_empty()).to_string()),
            ("use-service-account-credentials", "true".to_owned()),
            ("feature-gates", self.gates.changed().join(",")),
        ])
    }

    /// The settings by which the scheduler acts.
    fn scheduler_settings(&self) -> Result<PartSettings> {
        let given = [
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("leader-elect", self.elected.to_string()),
            ("feature-gates", self.gates.changed().join(",")),
        ];
        part_settings::of_scheduler(&given, self.elected)
    }

    /// Serves the endpoints of controllers and scheduler on upstream's ports of this machine, for this machine alone.
    /// If another cluster has the ports, this one goes on without.
    fn serve(&self, roots: &RootCertStore, stop: &Shutdown) {
        let all = [
            ("kube-controller-manager", self.controllers_settings(), 10257, &self.controllers_tell),
            ("kube-scheduler", self.scheduler_settings(), 10259, &self.scheduler_tells),
        ];
        for (name, settings, port, telling) in all {
            let client = clients(&self.server, name).of(&format!("system:{name}"));
            let served = settings.and_then(|PartSettings { settings, flags }| {
                let about = About { name, settings, flags, gates: self.gates, tolerant: true };
                endpoints::serve_here(about, telling, client, port, roots.clone(), self.clock, stop)
            });
            if let Err(error) = served {
                tracing::info!(error = format!("{error:#}"), "a component goes without its endpoint");
            }
        }
    }
}

/// The limit of the store, by etcd's flag.
fn quota(bytes: i64) -> Option<u64> {
    match bytes {
        0 => Some(storage::DEFAULT_QUOTA),
        bytes => u64::try_from(bytes).ok(),
    }
}

/// Adds the remedy to a failed start, if the cause is one of this command's flags.
fn explain(e: standalone::StartError) -> anyhow::Error {
    if let standalone::StartError::Listen { address, source } = &e {
        let port = address.port();
        return match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                anyhow!("port {port} is in use by another program; stop it, or choose another with --port")
            }
            std::io::ErrorKind::PermissionDenied => {
                anyhow!(
                    "no permission to listen on port {port}; run as root, or choose one above 1023 with --port"
                )
            }
            _ => anyhow!("cannot listen on {address}: {source}"),
        };
    }
    e.into()
}

fn superuser(name: &str) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: vec![Text::from("system:masters"), Text::from("system:authenticated")],
        ..UserInfo::default()
    }
}

/// Clients of a server in this process, by user name.
fn clients(server: &apiserver::Server, agent: &'static str) -> Clients {
    let server = server.clone();
    Clients::new(move |user| Client::new(server.transport(user_of(user), agent), agent))
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
