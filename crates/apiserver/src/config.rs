//! How a server is set up. The command line fills this in; the defaults are upstream's.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::security::SecurityConfig;
use api::FeatureGates;
use api::resources::ResourceInfo;
use client::Offer;
use component::Clock;
use futures::future::BoxFuture;
use storage::{Durability, EtcdServers};

use crate::catalog::{Documents, NoDocuments};
use crate::etcd::Media;
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
    /// How nodes and backends are called.
    pub calls: Calls,
    /// Authentication, authorization and admission.
    pub security: SecurityConfig,
    /// Keys and certificates in place of the server's own.
    pub given: Given,
    /// Whether containers may be privileged (`--allow-privileged`).
    pub privileged: bool,
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
    /// The files of this machine's logs, if they are served (`--enable-logs-handler`).
    pub logs: Option<LogFiles>,
    /// The flags of the command line with their values, for `/flagz`.
    pub flags: BTreeMap<String, String>,
    /// The wall clock.
    pub clock: Clock,
}

/// Answers for a path below `/logs/`.
pub type LogFiles = Arc<dyn Fn(String) -> BoxFuture<'static, http::Response<LogBody>> + Send + Sync>;
/// The body of such an answer.
pub type LogBody = http_body_util::combinators::BoxBody<bytes::Bytes, Box<dyn Error + Send + Sync>>;

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
    /// The host that others are told in URLs, in place of the address (`--external-hostname`).
    pub external_host: Option<String>,
    /// The versions, ciphers and key exchanges of TLS that are offered (`--tls-min-version`, `--tls-cipher-suites`,
    /// `--tls-curve-preferences`).
    pub offer: Offer,
    /// Whether HTTP/2 is offered (`--disable-http2-serving`).
    pub http2: bool,
    /// How many requests a client may have under way on a connection of HTTP/2; the server's own number if it is zero
    /// (`--http2-max-streams-per-connection`).
    pub http2_streams: u32,
    /// Whether other processes may listen on the same address and port (`--permit-port-sharing`).
    pub share_port: bool,
    /// The directives of `Strict-Transport-Security`, which is not sent without any
    /// (`--strict-transport-security-directives`).
    pub transport_security: Vec<String>,
    /// The origins whose scripts may ask, as expressions of RE2 (`--cors-allowed-origins`).
    pub origins: Vec<String>,
    /// The part of the requests after which a connection of HTTP/2 is to be made anew (`--goaway-chance`).
    pub goaway_chance: f64,
}

/// A certificate, those that signed it, and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificates, the own one first.
    pub certificate_pem: String,
    /// The key.
    pub key_pem: String,
}

/// A certificate for certain names.
#[derive(Clone)]
pub struct NamedPair {
    /// The certificate and its key.
    pub pair: Pair,
    /// The domains, also as `*.example.com`, and addresses; none for the domains in the certificate.
    pub names: Vec<String>,
}

/// Keys and certificates that others made. The server's own take the place of those that are absent.
#[derive(Clone, Default)]
pub struct Given {
    /// With which to serve (`--tls-cert-file`, `--tls-private-key-file`, `--cert-dir`).
    pub serving: Option<Pair>,
    /// With which to serve clients that ask for certain names, the more important first (`--tls-sni-cert-key`).
    pub named: Vec<NamedPair>,
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
    /// Whether somebody removes the dependents of objects: without that, a deletion leaves no finalizer that asks for it
    /// (`--enable-garbage-collector`).
    pub garbage_collector: bool,
}

/// An etcd that holds the objects.
#[derive(Debug, Clone)]
pub struct Etcd {
    /// Where it is.
    pub servers: EtcdServers,
    /// The beginning of all its keys (`--etcd-prefix`).
    pub prefix: String,
    /// How values are encrypted (`--encryption-provider-config`); they are not if absent.
    pub encryption: Option<PathBuf>,
    /// Whether the file of encryption is read again when it changes (`--encryption-provider-config-automatic-reload`).
    pub reload: bool,
    /// The form of values for which there is a choice (`--storage-media-type`).
    pub media: Media,
    /// Within what time it must answer for `/livez` and `/healthz` (`--etcd-healthcheck-timeout`).
    pub health_timeout: Duration,
    /// Within what time it must answer for `/readyz` besides (`--etcd-readycheck-timeout`).
    pub ready_timeout: Duration,
}

/// The time in which etcd answers, if nothing else is said.
const ETCD_ANSWERS: Duration = Duration::from_secs(2);

/// The addresses and ports of Services.
#[derive(Debug, Clone)]
pub struct Services {
    /// Where ClusterIPs come from, the first being the default family (`--service-cluster-ip-range`).
    pub cidrs: Vec<String>,
    /// Where node ports come from (`--service-node-port-range`).
    pub node_ports: RangeInclusive<u16>,
    /// The port on which nodes lead to the `kubernetes` Service; zero for none (`--kubernetes-service-node-port`).
    pub kubernetes_node_port: u16,
    /// Whether the endpoints of the `kubernetes` Service are kept (`--endpoint-reconciler-type`).
    pub kubernetes_endpoints: bool,
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
    /// How long a request that does not go on may take, its answer included (`--request-timeout`).
    pub request_timeout: Duration,
    /// A watch without `timeoutSeconds` ends after this to twice this, at once if it is zero (`--min-request-timeout`).
    pub min_request_timeout: Duration,
    /// How long after the start `/livez` takes it that what the server begins with will be done (`--livez-grace-period`).
    pub livez_grace: Duration,
    /// How the server ends.
    pub ending: Ending,
    /// Bytes for encoded forms that are kept.
    pub form_budget: usize,
    /// Whether long work is done by threads of its own. Without them, as on a paused clock, a request does it itself.
    pub threads: bool,
}

/// How nodes and backends are called.
#[derive(Debug, Clone)]
pub struct Calls {
    /// The types of a Node's addresses of which the first that it has leads to its kubelet
    /// (`--kubelet-preferred-address-types`).
    ///
    /// `DIFFERENCE`: upstream's list begins with `Hostname`; a node registers its own name as that, and few networks
    /// resolve it.
    pub kubelet_addresses: Vec<String>,
    /// How many bytes a second go each way at most on a connection that lasts; any number if it is zero
    /// (`--max-connection-bytes-per-sec`).
    pub bytes_per_second: u64,
    /// Whether clients never get redirects of aggregated API servers (`--aggregator-reject-forwarding-redirect`).
    pub reject_redirects: bool,
}

impl Default for Calls {
    fn default() -> Self {
        let types = ["InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP", "Hostname"];
        Self {
            kubelet_addresses: types.map(Into::into).to_vec(),
            bytes_per_second: 0,
            reject_redirects: true,
        }
    }
}

/// How a server ends.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// How long it goes on, not ready, before it takes no more requests (`--shutdown-delay-duration`).
    pub delay: Duration,
    /// Whether it listens on until the requests under way are answered, and tells others to come again elsewhere
    /// (`--shutdown-send-retry-after`).
    pub retry_after: bool,
    /// Within what time watches are ended one after the other; all at once, and last, if it is zero
    /// (`--shutdown-watch-termination-grace-period`).
    pub watches: Duration,
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
            calls: Calls::default(),
            security: SecurityConfig::default(),
            given: Given::default(),
            privileged: true,
            gates: FeatureGates::default(),
            shown: component::Shown::default(),
            runtime_config: RuntimeConfig::default(),
            documents: Arc::new(NoDocuments),
            pages: None,
            logs: None,
            flags: BTreeMap::new(),
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
            external_host: None,
            offer: Offer::default(),
            http2: true,
            http2_streams: 0,
            share_port: false,
            transport_security: Vec::new(),
            origins: Vec::new(),
            goaway_chance: 0.0,
        }
    }
}

impl Serving {
    /// The host and port that others are told.
    pub(crate) fn external_address(&self) -> String {
        let Some(host) = &self.external_host else {
            return SocketAddr::new(self.advertised(), self.port).to_string();
        };
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        let bracketed = name.starts_with('[') && name.ends_with(']');
        if !port.is_empty() && (bracketed || !name.contains(':')) {
            host.clone()
        } else if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }
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
            garbage_collector: true,
        }
    }
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            servers: EtcdServers::default(),
            prefix: String::new(),
            encryption: None,
            reload: false,
            media: Media::default(),
            health_timeout: ETCD_ANSWERS,
            ready_timeout: ETCD_ANSWERS,
        }
    }
}

impl Default for Services {
    fn default() -> Self {
        Self {
            cidrs: vec!["10.96.0.0/12".into()],
            node_ports: 30000..=32767,
            kubernetes_node_port: 0,
            kubernetes_endpoints: true,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_flight: 400,
            max_mutating_in_flight: 200,
            priority_and_fairness: true,
            request_timeout: Duration::from_mins(1),
            min_request_timeout: Duration::from_mins(30),
            livez_grace: Duration::ZERO,
            ending: Ending::default(),
            form_budget: 16 << 20,
            threads: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_the_external_host() {
        let check = |host: Option<&str>, expected: &str| {
            let serving = Serving {
                advertise_address: Some([192, 0, 2, 1].into()),
                external_host: host.map(Into::into),
                ..Serving::default()
            };
            assert_eq!(serving.external_address(), expected);
        };
        check(None, "192.0.2.1:6443");
        check(Some("api.example.com"), "api.example.com:6443");
        check(Some("api.example.com:443"), "api.example.com:443");
        check(Some("2001:db8::1"), "[2001:db8::1]:6443");
        check(Some("[2001:db8::1]:443"), "[2001:db8::1]:443");
    }
}
