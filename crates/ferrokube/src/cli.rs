//! The command line.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use apiserver::config;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "ferrokube", version, about = "Kubernetes in one binary", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster on this machine, in the foreground
    Up(Up),
    /// Run a control plane without a node, in the foreground
    Server(Server),
    /// Run the API server with its store alone
    #[command(name = "kube-apiserver")]
    ApiServer(ApiServer),
    /// Run the controllers alone
    #[command(name = "kube-controller-manager")]
    ControllerManager(ControllerManager),
    /// Run the scheduler alone
    #[command(name = "kube-scheduler")]
    Scheduler(Scheduler),
    /// Save the store of a running cluster to a file, restore it, or look at such a file
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Move a cluster's objects to another kind of store
    #[command(subcommand)]
    Storage(Storage),
    /// Remove everything a cluster made on this machine: containers, mounts, network, cgroups, data
    Down(Down),
}

/// What a control plane can be told.
#[derive(Debug, Args, Clone)]
pub(crate) struct Server {
    /// Where the cluster keeps everything
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
    /// Port of the API server
    #[arg(long, value_name = "N", default_value_t = 6443)]
    pub(crate) port: u16,
    /// Address the API server listens on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Write the administrator's kubeconfig here [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Addresses of Pods; each node gets a /24 of it
    #[arg(long, value_name = "CIDR", default_value = "10.244.0.0/16")]
    pub(crate) cluster_cidr: String,
    /// Addresses of Services; one range of each family, separated by commas, for two
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16", value_delimiter = ',')]
    pub(crate) service_cidr: Vec<String>,
    /// Controllers to run, separated by commas: `*` for all that run by default, `NAME` for one, `-NAME` for all but one
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Vec<String>,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// What the API server and its store are told in every form of the control plane.
#[derive(Debug, Args, Clone)]
pub(crate) struct Api {
    /// Admission plugins to turn on besides the default ones, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// What admission plugins are configured with: upstream's AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) admission_control_config_file: Option<PathBuf>,
    /// Features to turn on or off, as `A=true,B=false`; `AllAlpha` and `AllBeta` stand for those of a stage
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
    /// APIs to turn on or off, as `resource.k8s.io/v1beta1=true`; also `api/all`, `api/ga`, `api/beta` and `api/alpha`
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) runtime_config: Vec<String>,
    /// The address of this server that others are told, among those of the `kubernetes` Service [default: the first that it
    /// listens on]
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Ports of the nodes for Services of type NodePort, first and last: the same for all servers of a cluster
    #[arg(long, value_name = "RANGE", default_value = "30000-32767", value_parser = port_range)]
    pub(crate) service_node_port_range: RangeInclusive<u16>,
    /// How far back lists and watches can go, as `5m0s`; 0 for all that is kept
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration)]
    pub(crate) etcd_compaction_interval: Duration,
    /// How long Events are kept
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration)]
    pub(crate) event_ttl: Duration,
    /// When a write counts, and so what a crash of the machine can lose
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Durability::Synced)]
    pub(crate) durability: Durability,
    /// How many bytes of objects may be stored before nothing new is taken; 0 for 2 GiB, less for any number. An etcd
    /// has a quota of its own
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) quota_backend_bytes: i64,
    #[command(flatten)]
    pub(crate) etcd: Etcd,
}

/// When a write counts. A crash or kill of the process alone loses nothing at any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// Once it is synced to the disk, before anybody sees it: nothing that was acknowledged is ever lost
    Synced,
    /// At once, and synced every second: a crash of the system or the power loses up to the last second of
    /// acknowledged writes
    EverySecond,
    /// At once, and written to the disk when the system likes: a crash of the system or the power loses
    /// acknowledged writes of the last half minute, or more
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

/// What a whole cluster on this machine can be told.
#[derive(Debug, Args, Clone)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Socket of the container runtime (containerd or CRI-O)
    #[arg(long, value_name = "SOCK", default_value = "/run/containerd/containerd.sock")]
    pub(crate) container_runtime_endpoint: String,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Address of this node, or one of each family, separated by commas [default: its IPv4 address, or its IPv6 address if it has no other]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) node_ip: Vec<IpAddr>,
    /// Where the container runtime looks for its network configuration
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Port of the kubelet [default: 10250, or a free one if another cluster's kubelet has it]
    #[arg(long, value_name = "N")]
    pub(crate) kubelet_port: Option<u16>,
    /// Address the kubelet listens on, and the Node's own unless it is 0.0.0.0 [default: that of --bind-address]
    #[arg(long, value_name = "IP")]
    pub(crate) kubelet_address: Option<IpAddr>,
    /// Below which the node reports pressure, as the kubelet's flag names it; no Pod is evicted for it yet [default:
    /// upstream's]
    #[arg(long, value_name = "THRESHOLDS")]
    pub(crate) eviction_hard: Option<kubelet::node::Thresholds>,
    /// Address of the cluster's DNS server, for Pods' resolv.conf [default: the tenth address of the Services' range]
    #[arg(long, value_name = "IP")]
    pub(crate) cluster_dns: Option<IpAddr>,
    /// The resolv.conf that Pods inherit name servers from
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub(crate) resolv_conf: PathBuf,
}

/// The API server alone, with upstream's flag names.
#[derive(Debug, Args, Clone)]
pub(crate) struct ApiServer {
    /// Where the store and the certificates are
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
    /// Port
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
    #[command(flatten)]
    pub(crate) api: Api,
}

/// What every component that runs alone can be told, with upstream's flag names.
#[derive(Debug, Args, Clone)]
pub(crate) struct Component {
    /// Where the API server is, and as whom to work
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Address to serve health and metrics on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Port to serve them on; 0 to serve nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) secure_port: u16,
    /// The authorities of client certificates that this endpoint takes
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Whether to work only when elected among several
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,
}

/// The controllers alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10257")))]
pub(crate) struct ControllerManager {
    #[command(flatten)]
    pub(crate) component: Component,
    /// Controllers to run, separated by commas: `*` for all that run by default, `NAME` for one, `-NAME` for all but one
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Vec<String>,
    /// Addresses of Pods, of which each node gets a part [default: nodes get none]
    #[arg(long, value_name = "CIDR", default_value = "", hide_default_value = true)]
    pub(crate) cluster_cidr: String,
    /// Addresses of Services, which nodes do not get
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) service_cluster_ip_range: Vec<String>,
    /// The authorities that Pods verify the API server by [default: those of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// Whether each controller works as its own service account
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) use_service_account_credentials: bool,
}

/// The scheduler alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10259")))]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) component: Component,
}

/// The etcd that holds the objects, in place of a store of our own; flags as upstream's.
#[derive(Debug, Args, Clone)]
pub(crate) struct Etcd {
    /// Client URLs of the etcd that holds the objects, separated by commas [default: a store in the data directory]
    #[arg(long, value_delimiter = ',', value_name = "URLS")]
    pub(crate) etcd_servers: Vec<String>,
    /// The authority of etcd's certificates
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Certificate to show etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd begin with
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
    /// Which values in etcd are encrypted, and how: upstream's EncryptionConfiguration
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
}

impl Etcd {
    /// The etcd that was chosen; `None` if the store is our own.
    pub(crate) fn chosen(&self) -> Option<config::Etcd> {
        (!self.etcd_servers.is_empty()).then(|| config::Etcd {
            servers: storage::EtcdServers {
                endpoints: self.etcd_servers.clone(),
                ca_file: self.etcd_cafile.clone(),
                cert_file: self.etcd_certfile.clone(),
                key_file: self.etcd_keyfile.clone(),
            },
            prefix: self.etcd_prefix.clone(),
            encryption: self.encryption_provider_config.clone(),
        })
    }
}

/// What to do with a snapshot.
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
    /// Read a snapshot, check it, and tell what it holds
    Status(SnapshotStatus),
}

/// From where to save, and to where.
#[derive(Debug, Args, Clone)]
pub(crate) struct SnapshotSave {
    /// The file to write, which must not exist yet
    pub(crate) file: PathBuf,
    /// Whom to ask, as whom [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// From where to restore, and to where.
#[derive(Debug, Args, Clone)]
pub(crate) struct SnapshotRestore {
    /// The snapshot
    pub(crate) file: PathBuf,
    /// The new cluster's data directory; it must not hold a store yet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// What to look at.
#[derive(Debug, Args, Clone)]
pub(crate) struct SnapshotStatus {
    /// The snapshot
    pub(crate) file: PathBuf,
}

/// What to do with a store.
#[derive(Debug, Subcommand, Clone)]
pub(crate) enum Storage {
    /// Move all objects between a data directory and an etcd, in upstream's layout there
    ///
    /// Stop the cluster first. The revision goes on above the old store's, and nothing before it can be watched:
    /// caches that were filled from the old cluster get "410 Gone" and list anew. The old store is left as it
    /// is. Keys and certificates are not moved.
    Migrate(Migrate),
}

/// From where to move, and to where.
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
    /// Certificate to show etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd begin with
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
    /// Which values in etcd are encrypted, and how: upstream's EncryptionConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Features to turn on or off, as `A=true,B=false`: `KMSv1` lets values be encrypted by the first version of KMS
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
}

/// What to remove.
#[derive(Debug, Args, Clone)]
pub(crate) struct Down {
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// A range of ports as upstream takes it: `30000-32767`, or the first and how many follow: `30000+2767`.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let read = || {
        let (first, last) = if let Some((first, last)) = text.split_once('-') {
            (first.trim().parse().ok()?, last.trim().parse().ok()?)
        } else {
            let (first, more) = text.split_once('+')?;
            let (first, more): (u16, u16) = (first.trim().parse().ok()?, more.trim().parse().ok()?);
            (first, first.checked_add(more)?)
        };
        (first > 0 && first <= last).then_some(first..=last)
    };
    read().ok_or_else(|| "not a range of ports such as 30000-32767".to_owned())
}

/// A duration as Go writes it.
fn duration(text: &str) -> Result<Duration, String> {
    api::time::parse_duration(text)
        .and_then(|d| Duration::try_from(d).ok())
        .ok_or_else(|| "not a duration such as 5m0s".to_owned())
}
