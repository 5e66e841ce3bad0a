//! How a server is set up. The command line fills this in; the defaults are upstream's.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::security::SecurityConfig;
use api::FeatureGates;
use api::resources::ResourceInfo;
use component::Clock;
use storage::{Durability, EtcdServers};

use crate::catalog::{Documents, NoDocuments};
use crate::served::RuntimeConfig;
use crate::usage::Pages;

/// How a server is set up.
pub struct Config {
    /// Where the store and the keys are; made if it does not exist.
    pub data_dir: PathBuf,
    /// Where the server is, for others.
    pub serving: Serving,
    /// Where objects are, and for how long.
    pub storage: Storage,
    /// The addresses and ports of Services.
    pub services: Services,
    /// The limits of requests.
    pub limits: Limits,
    /// Authentication, authorization and admission.
    pub security: SecurityConfig,
    /// Keys and certificates in place of the server's own.
    pub given: Given,
    /// Which features are on (`--feature-gates`).
    pub gates: FeatureGates,
    /// Which metrics are shown (`--disabled-metrics`, `--allow-metric-labels`).
    pub shown: component::Shown,
    /// Which APIs are on (`--runtime-config`).
    pub runtime_config: RuntimeConfig,
    /// The maker of the documents of OpenAPI.
    pub documents: Arc<dyn Documents>,
    /// The source of what nodes tell of their use of resources, instead of their kubelets.
    pub pages: Option<Arc<dyn Pages>>,
    /// The wall clock.
    pub clock: Clock,
}

/// Where a server is, for others.
#[derive(Debug, Clone)]
pub struct Serving {
    /// Where to listen (`--bind-address`).
    pub bind: IpAddr,
    /// Port; 0 takes any (`--secure-port`).
    pub port: u16,
    /// The address of this server in the `kubernetes` Endpoints (`--advertise-address`); by default the one that it
    /// listens on, or the first of this machine.
    pub advertise_address: Option<IpAddr>,
    /// This machine's host name.
    pub hostname: String,
    /// Addresses of this machine besides loopback.
    pub addresses: Vec<IpAddr>,
    /// More DNS names of the server.
    pub names: Vec<String>,
    /// DNS domain of the cluster.
    pub cluster_domain: String,
}

/// A certificate, those that signed it, and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificates, the own one first.
    pub certificate_pem: String,
    /// The key.
    pub key_pem: String,
}

/// Keys and certificates that others made. The server's own take the place of those that are absent.
#[derive(Clone, Default)]
pub struct Given {
    /// With which to serve (`--tls-cert-file`, `--tls-private-key-file`, `--cert-dir`).
    pub serving: Option<Pair>,
    /// Which is shown to aggregated servers (`--proxy-client-cert-file`, `--proxy-client-key-file`).
    pub front_proxy: Option<Pair>,
    /// Which is shown to kubelets (`--kubelet-client-certificate`, `--kubelet-client-key`).
    pub kubelet_client: Option<Pair>,
    /// The authorities of the certificates with which kubelets serve, PEM (`--kubelet-certificate-authority`).
    pub kubelet_authorities: Option<String>,
    /// The key that signs tokens, PEM (`--service-account-signing-key-file`).
    pub signing_key: Option<String>,
}

/// Where objects are, and for how long.
#[derive(Debug, Clone)]
pub struct Storage {
    /// The etcd that holds the objects; the store in the data directory if absent.
    pub etcd: Option<Etcd>,
    /// The durability of an acknowledged write.
    pub durability: Durability,
    /// How much the store of this process may hold, in bytes; nothing for any amount (`--quota-backend-bytes`).
    pub quota: Option<u64>,
    /// How much history lists and watches can go back to (`--etcd-compaction-interval`); zero for all that is kept.
    pub compaction_interval: Duration,
    /// How long Events are kept (`--event-ttl`).
    pub event_ttl: Duration,
}

/// An etcd that holds the objects.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    /// Where it is.
    pub servers: EtcdServers,
    /// The beginning of all its keys (`--etcd-prefix`).
    pub prefix: String,
    /// How values are encrypted (`--encryption-provider-config`); they are not if absent.
    pub encryption: Option<PathBuf>,
}

/// The addresses and ports of Services.
#[derive(Debug, Clone)]
pub struct Services {
    /// Where ClusterIPs come from, the first being the default family (`--service-cluster-ip-range`).
    pub cidrs: Vec<String>,
    /// Where node ports come from (`--service-node-port-range`).
    pub node_ports: RangeInclusive<u16>,
}

/// The limits of requests.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Reading requests at once (`--max-requests-inflight`).
    pub max_in_flight: usize,
    /// Writing requests at once (`--max-mutating-requests-inflight`).
    pub max_mutating_in_flight: usize,
    /// Whether priority levels share out the places of both (`--enable-priority-and-fairness`). Without them, what is
    /// too much is refused.
    pub priority_and_fairness: bool,
    /// A watch without `timeoutSeconds` ends after this to twice this (`--min-request-timeout`).
    pub min_request_timeout: Duration,
    /// Bytes for encoded forms that are kept.
    pub form_budget: usize,
    /// Whether long work is done by threads of its own. Without them, as on a paused clock, a request does it itself.
    pub threads: bool,
}

/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

impl Config {
    /// The defaults, for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            serving: Serving::default(),
            storage: Storage::default(),
            services: Services::default(),
            limits: Limits::default(),
            security: SecurityConfig::default(),
            given: Given::default(),
            gates: FeatureGates::default(),
            shown: component::Shown::default(),
            runtime_config: RuntimeConfig::default(),
            documents: Arc::new(NoDocuments),
            pages: None,
            clock: Clock::system(),
        }
    }
    /// The built-in resources that are served, in discovery's order.
    pub fn resources(&self) -> Vec<ResourceInfo> {
        self.runtime_config.resources(self.gates)
    }
}

impl Default for Serving {
    fn default() -> Self {
        Self {
            bind: IpAddr::from([0, 0, 0, 0]),
            port: 6443,
            advertise_address: None,
            hostname: String::new(),
            addresses: Vec::new(),
            names: Vec::new(),
            cluster_domain: "cluster.local".into(),
        }
    }
}

impl Serving {
    /// The address that others are told.
    pub(crate) fn advertised(&self) -> IpAddr {
        self.advertise_address
            .or_else(|| (!self.bind.is_unspecified()).then_some(self.bind))
            .or_else(|| self.addresses.iter().copied().find(|a| a.is_ipv4()))
            .unwrap_or(IpAddr::from([127, 0, 0, 1]))
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            etcd: None,
            durability: Durability::default(),
            quota: Some(storage::DEFAULT_QUOTA),
            compaction_interval: Duration::from_mins(5),
            event_ttl: Duration::from_hours(1),
        }
    }
}

impl Default for Services {
    fn default() -> Self {
        Self { cidrs: vec!["10.96.0.0/12".into()], node_ports: 30000..=32767 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_flight: 400,
            max_mutating_in_flight: 200,
            priority_and_fairness: true,
            min_request_timeout: Duration::from_mins(30),
            form_budget: 16 << 20,
            threads: true,
        }
    }
}
