//! The flags of the API server, of a whole server, and of its store.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use apiserver::config;
use apiserver::etcd::Media;
use clap::{Args, Subcommand, ValueEnum};

use super::behaviour::Behaviour;
use super::controllers::Masks;
use super::https::Https;
use super::logging::Logging;
use super::metrics::Metrics;
use super::node::{Hosts, Network, Node};
use super::security::Security;
use super::times::Times;
use super::values::{duration, port_range};

/// The flags of a control plane.
#[derive(Debug, Args, Clone)]
pub(crate) struct Server {
    /// Directory in which the cluster keeps everything
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
    /// Port of the API server
    #[arg(long, value_name = "N", default_value_t = 6443)]
    pub(crate) port: u16,
    /// Address on which the API server listens
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Write the administrator's kubeconfig here [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Addresses of Pods, of which each node gets a part
    #[arg(long, value_name = "CIDR", default_value = "10.244.0.0/16")]
    pub(crate) cluster_cidr: String,
    #[command(flatten)]
    pub(crate) masks: Masks,
    /// Addresses of Services; one range of each family, separated by commas, for two
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16", value_delimiter = ',')]
    pub(crate) service_cidr: Vec<String>,
    /// Controllers to run, separated by commas: `*` for all that run by default, `NAME` for one, `-NAME` for all but
    /// one
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Vec<String>,
    /// Addresses for Services of type LoadBalancer, as `192.0.2.0/28` or `192.0.2.10-192.0.2.20`, separated by commas;
    /// a node whose link has the network announces each [default: such Services get the addresses of the nodes]
    #[arg(long, value_name = "RANGES", value_delimiter = ',')]
    pub(crate) load_balancer_pool: Vec<controllers::Range>,
    /// Leave Services of type LoadBalancer to somebody else
    #[arg(long)]
    pub(crate) disable_load_balancer: bool,
    /// Make no class of volumes in directories of nodes, and no such volumes
    #[arg(long)]
    pub(crate) disable_local_path: bool,
    /// Whether nodes may join with bootstrap tokens
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// Run no DNS server: the cluster has another one (CoreDNS) at the tenth address of the Services' range
    #[arg(long)]
    pub(crate) disable_dns: bool,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// The flags of the API server and its store in every form of the control plane.
#[derive(Debug, Args, Clone)]
pub(crate) struct Api {
    /// Admission plugins to turn on besides the default ones, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// Configuration of the admission plugins: upstream's AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) admission_control_config_file: Option<PathBuf>,
    /// Features to turn on or off, as `A=true,B=false`; `AllAlpha` and `AllBeta` stand for those of a stage
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
    /// APIs to turn on or off, as `resource.k8s.io/v1beta1=true`; also `api/all`, `api/ga`, `api/beta` and `api/alpha`
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) runtime_config: Vec<String>,
    /// Address of this server among those of the `kubernetes` Service, by which others reach it [default: the first on
    /// which it listens]
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Ports of the nodes for Services of type NodePort, first and last: the same for all servers of a cluster
    #[arg(long, value_name = "RANGE", default_value = "30000-32767", value_parser = port_range)]
    pub(crate) service_node_port_range: RangeInclusive<u16>,
    /// Age of the history in which lists and watches can go back, as `5m0s`; 0 for all that is kept
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration)]
    pub(crate) etcd_compaction_interval: Duration,
    /// Time for which Events are kept
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration)]
    pub(crate) event_ttl: Duration,
    /// Level of durability of an acknowledged write, on which depends the loss in a crash of the machine
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Durability::Synced)]
    pub(crate) durability: Durability,
    /// Bytes of objects that may be stored before new ones are refused; 0 for 2 GiB, less than 0 for no limit. An etcd
    /// has a quota of its own
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) quota_backend_bytes: i64,
    /// Requests at once that read; together with those that write, the seats that priority levels share. Without these,
    /// 0 for any number
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(crate) max_requests_inflight: usize,
    /// Requests at once that write
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) max_mutating_requests_inflight: usize,
    /// Whether FlowSchemas and PriorityLevelConfigurations decide which requests run and which wait; otherwise those that
    /// are too many are refused
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_priority_and_fairness: bool,
    #[command(flatten)]
    pub(crate) etcd: Etcd,
}

/// The level of durability of an acknowledged write. A crash or kill of the process alone loses nothing at any level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// A write is synced to the disk before anybody sees it: nothing that was acknowledged is ever lost
    Synced,
    /// A write is acknowledged at once, and synced every second: a crash of the system or the power loses up to the
    /// last second of acknowledged writes
    EverySecond,
    /// A write is acknowledged at once, and written to the disk at a time of the system's choice: a crash of the system
    /// or the power loses acknowledged writes of the last half minute, or more
    Os,
}

impl From<Durability> for storage::Durability {
    fn from(flag: Durability) -> Self {
        match flag {
            Durability::Synced => Self::Synced,
            Durability::EverySecond => Self::EverySecond,
            Durability::Os => Self::Os,
        }
    }
}

/// The flags of a whole cluster on this machine.
#[derive(Debug, Args, Clone)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) node: Node,
    /// Pod network: this program's own, or one that somebody installs
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Network::Own)]
    pub(crate) network: Network,
    /// Run no Service proxy: the cluster has another one
    #[arg(long)]
    pub(crate) disable_kube_proxy: bool,
    /// Enforce no network policies: Pods start without waiting for the rules of theirs
    #[arg(long)]
    pub(crate) disable_network_policy: bool,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
}

/// The flags of the API server alone, by upstream's names.
#[derive(Debug, Args, Clone)]
pub(crate) struct ApiServer {
    /// Directory of the store and the certificates [default: CERT_DIR/ferrokube if there is a --cert-dir, or
    /// /var/lib/ferrokube]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Port of the API server
    #[arg(long, value_name = "N", default_value_t = 6443)]
    pub(crate) secure_port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Addresses of Services; one range of each family, separated by commas, for two
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16", value_delimiter = ',')]
    pub(crate) service_cluster_ip_range: Vec<String>,
    /// Write the administrator's kubeconfig here [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Whether bootstrap tokens authenticate: the Secrets of kube-system of the type bootstrap.kubernetes.io/token
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_bootstrap_token_auth: bool,
    #[command(flatten)]
    pub(crate) security: Security,
    #[command(flatten)]
    pub(crate) https: Https,
    #[command(flatten)]
    pub(crate) times: Times,
    #[command(flatten)]
    pub(crate) behaviour: Behaviour,
    #[command(flatten)]
    pub(crate) api: Api,
    #[command(flatten)]
    pub(crate) metrics: Metrics,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

impl ApiServer {
    /// The directory of the store and the certificates.
    pub(crate) fn data_dir(&self) -> PathBuf {
        let chosen = self.data_dir.clone().or_else(|| self.security.data_dir());
        chosen.unwrap_or_else(|| "/var/lib/ferrokube".into())
    }
}

/// The flags of the etcd that holds the objects in place of this program's own store; named as upstream's.
#[derive(Debug, Args, Clone)]
pub(crate) struct Etcd {
    /// Client URLs of the etcd that holds the objects, separated by commas [default: a store in the data directory]
    #[arg(long, value_delimiter = ',', value_name = "URLS")]
    pub(crate) etcd_servers: Vec<String>,
    /// The authority of etcd's certificates
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Certificate with which to authenticate at etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Key of the certificate for etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
    /// Encryption of the values in etcd: upstream's EncryptionConfiguration
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Whether the configuration of encryption is read again when its file changes
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) encryption_provider_config_automatic_reload: bool,
    /// Form of the values in etcd, where there is a choice: application/vnd.kubernetes.protobuf, application/json or
    /// application/yaml
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    pub(crate) storage_media_type: String,
    /// Time within which etcd must answer for /livez and /healthz
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) etcd_healthcheck_timeout: Duration,
    /// Time within which etcd must answer for /readyz
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) etcd_readycheck_timeout: Duration,
}

impl Etcd {
    /// The etcd that was chosen; `None` if the store is our own.
    pub(crate) fn chosen(&self) -> Result<Option<config::Etcd>> {
        if self.encryption_provider_config_automatic_reload && self.encryption_provider_config.is_none() {
            bail!(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            );
        }
        // As upstream: an empty name is the usual one.
        let media = Some(self.storage_media_type.as_str()).filter(|name| !name.is_empty());
        let Some(media) = media.map_or(Some(Media::Protobuf), Media::named) else {
            bail!(
                "--storage-media-type {:?} invalid, allowed values: application/json, application/vnd.kubernetes.protobuf, \
                 application/yaml",
                self.storage_media_type
            );
        };
        // As upstream: no time is the usual one.
        let time = |given: Duration| if given.is_zero() { Duration::from_secs(2) } else { given };
        Ok((!self.etcd_servers.is_empty()).then(|| config::Etcd {
            servers: storage::EtcdServers {
                endpoints: self.etcd_servers.clone(),
                ca_file: self.etcd_cafile.clone(),
                cert_file: self.etcd_certfile.clone(),
                key_file: self.etcd_keyfile.clone(),
            },
            prefix: self.etcd_prefix.clone(),
            encryption: self.encryption_provider_config.clone(),
            reload: self.encryption_provider_config_automatic_reload,
            media,
            health_timeout: time(self.etcd_healthcheck_timeout),
            ready_timeout: time(self.etcd_readycheck_timeout),
        }))
    }
}

/// The cluster that a command is about.
#[derive(Debug, Args, Clone)]
pub(crate) struct ClusterOf {
    /// Kubeconfig of the cluster [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// The work on a store.
#[derive(Debug, Subcommand, Clone)]
pub(crate) enum Storage {
    /// Move all objects between a data directory and an etcd, in upstream's layout there
    ///
    /// Stop the cluster first. The revision goes on above the old store's, and nothing before it can be watched:
    /// caches that were filled from the old cluster get "410 Gone" and list anew. The old store is left as it
    /// is. Keys and certificates are not moved.
    Migrate(Migrate),
}

/// The source and the target of a move.
#[derive(Debug, Args, Clone)]
pub(crate) struct Migrate {
    /// A data directory, or the client URLs of an etcd
    #[arg(long, value_name = "DIR|URLS")]
    pub(crate) from: String,
    /// A fresh data directory, or the client URLs of an etcd without objects
    #[arg(long, value_name = "DIR|URLS")]
    pub(crate) to: String,
    /// The authority of etcd's certificates
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Certificate with which to authenticate at etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Key of the certificate for etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
    /// Encryption of the values in etcd: upstream's EncryptionConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Features to turn on or off, as `A=true,B=false`: `KMSv1` lets values be encrypted by the first version of KMS
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
}

/// The work on a snapshot.
#[derive(Debug, Subcommand, Clone)]
pub(crate) enum Snapshot {
    /// Save every object of a running cluster, as of one revision
    ///
    /// The file holds every Secret, and is made readable for its owner only. Keys and certificates are
    /// not in it: keep DATA_DIR/pki as well, or tokens and kubeconfigs end with the old cluster.
    Save(SnapshotSave),
    /// Make the store of a fresh data directory from a snapshot
    ///
    /// The revision goes on far above the snapshot's, and nothing before it can be watched: caches that
    /// were filled from the old cluster get "410 Gone" and list anew.
    Restore(SnapshotRestore),
    /// Read a snapshot, check it, and print a summary of its content
    Status(SnapshotStatus),
}

/// The source and the target of a snapshot.
#[derive(Debug, Args, Clone)]
pub(crate) struct SnapshotSave {
    /// The file to write, which must not exist yet
    pub(crate) file: PathBuf,
    /// Kubeconfig of the cluster [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// The source and the target of a restore.
#[derive(Debug, Args, Clone)]
pub(crate) struct SnapshotRestore {
    /// The snapshot
    pub(crate) file: PathBuf,
    /// The new cluster's data directory; it must not hold a store yet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// The snapshot to look at.
#[derive(Debug, Args, Clone)]
pub(crate) struct SnapshotStatus {
    /// The snapshot
    pub(crate) file: PathBuf,
}
