//! The command line.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use apiserver::config;
use clap::{Args, Parser, Subcommand, ValueEnum};
use objects::Cidr;

/// Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "ferrokube",
    version,
    about = "Kubernetes in one binary",
    disable_help_subcommand = true,
    propagate_version = true
)]
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
    /// Run a node of a cluster whose control plane runs elsewhere, in the foreground
    Agent(Agent),
    /// Manage the tokens with which nodes join
    #[command(subcommand)]
    Token(Token),
    /// Run the API server with its store alone
    #[command(name = "kube-apiserver")]
    ApiServer(ApiServer),
    /// Run the controllers alone
    #[command(name = "kube-controller-manager")]
    ControllerManager(ControllerManager),
    /// Run the scheduler alone
    #[command(name = "kube-scheduler")]
    Scheduler(Scheduler),
    /// Run a node's agent alone
    Kubelet(Kubelet),
    /// Run a node's Service proxy alone
    #[command(name = "kube-proxy")]
    KubeProxy(KubeProxy),
    /// Save the store of a running cluster to a file, restore it, or look at such a file
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Move a cluster's objects to another kind of store
    #[command(subcommand)]
    Storage(Storage),
    /// Remove everything a cluster made on this machine: containers, mounts, network, cgroups, data
    Down(Down),
}

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
    /// Addresses of Pods; each node gets a /24 of it
    #[arg(long, value_name = "CIDR", default_value = "10.244.0.0/16")]
    pub(crate) cluster_cidr: String,
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

/// The flags of several nodes on this machine.
#[derive(Debug, Args, Clone)]
pub(crate) struct Hosts {
    /// Number of nodes: each has a network, a containerd and an equal part of the machine for itself, and is called
    /// NODE_NAME-1, NODE_NAME-2 and so on [default: the machine itself is the one node]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=32),
        conflicts_with_all = ["node_ip", "container_runtime_endpoint", "cni_conf_dir", "cni_bin_dir"]
    )]
    pub(crate) nodes: Option<u8>,
    /// Network of the nodes of --nodes; one of each family, separated by commas, for two
    #[arg(
        long,
        value_name = "CIDR",
        default_value = "10.242.0.0/24",
        value_delimiter = ',',
        requires = "nodes"
    )]
    pub(crate) nodes_cidr: Vec<Cidr>,
    /// The program containerd, for the nodes of --nodes
    #[arg(long, value_name = "FILE", default_value = "containerd", requires = "nodes")]
    pub(crate) containerd: PathBuf,
    /// Configuration of containerd that counts more than the nodes' own, for the nodes of --nodes
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub(crate) containerd_config: Option<PathBuf>,
    /// Directory of archives of images that every node of --nodes has, also those that are put there later [default:
    /// DATA_DIR/images]
    #[arg(long, value_name = "DIR", requires = "nodes")]
    pub(crate) images: Option<PathBuf>,
}

/// The flags of a node of a cluster whose control plane runs elsewhere.
#[derive(Debug, Args, Clone)]
pub(crate) struct Agent {
    /// Address of the API server: https://HOST:PORT; the port may be left out
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Token to join with, from `ferrokube token create`
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["bootstrap_kubeconfig", "kubeconfig"])]
    pub(crate) token: Option<String>,
    /// Hash of the public key of the cluster's authority, `sha256:HEX`, from `ferrokube token create`
    #[arg(long, value_name = "HASH")]
    pub(crate) ca_hash: Vec<String>,
    /// Kubeconfig with credentials to join with, in place of a token
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    /// Kubeconfig with the node's own credentials, which somebody else keeps good
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Directory in which the node keeps everything
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
    /// Parts of the node besides the kubelet, separated by commas: network, proxy, dns [default: those that the control
    /// plane leaves to its nodes; none on one that is not FerroKube's]
    #[arg(long, value_name = "PARTS")]
    pub(crate) parts: Option<String>,
    /// Addresses of Pods in the whole cluster [default: those that the control plane tells]
    #[arg(long, value_name = "CIDR")]
    pub(crate) cluster_cidr: Option<String>,
    /// Addresses of Services [default: those that the control plane tells]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) service_cidr: Vec<String>,
    #[command(flatten)]
    pub(crate) node: Node,
    #[command(flatten)]
    pub(crate) hosted: Option<Hosted>,
}

/// The flags by which `up --nodes` starts its nodes.
#[derive(Debug, Args, Clone)]
pub(crate) struct Hosted {
    /// Beginning of the paths of the files that keep the node's namespaces
    #[arg(long, value_name = "PREFIX", hide = true, required = false)]
    pub(crate) host_namespaces: PathBuf,
    /// The node's directory
    #[arg(long, value_name = "DIR", hide = true, required = false)]
    pub(crate) host_dir: PathBuf,
    /// Number of nodes that share the machine
    #[arg(long, value_name = "N", hide = true, required = false)]
    pub(crate) host_nodes: u32,
    /// The program containerd
    #[arg(long, value_name = "FILE", hide = true, required = false)]
    pub(crate) containerd: PathBuf,
    /// Directory of archives of images
    #[arg(long, value_name = "DIR", hide = true, required = false)]
    pub(crate) images: PathBuf,
}

/// The flags of a node.
#[derive(Debug, Args, Clone)]
pub(crate) struct Node {
    /// Socket of the container runtime (containerd or CRI-O)
    #[arg(long, value_name = "SOCK", default_value = "/run/containerd/containerd.sock")]
    pub(crate) container_runtime_endpoint: String,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Address of this node, or one of each family, separated by commas [default: its IPv4 address, or its IPv6 address
    /// if it has no other]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) node_ip: Vec<IpAddr>,
    /// Directory in which the container runtime looks for its network configuration
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Directory in which the container runtime looks for network plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub(crate) cni_bin_dir: PathBuf,
    /// Networks outside the cluster that know the way to Pods, separated by commas: what Pods send there keeps their
    /// addresses
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) non_masquerade_cidr: Vec<Cidr>,
    /// Number of the tunnel (VXLAN) to nodes that share no network with this one: the same on all nodes of a cluster
    #[arg(long, value_name = "N", default_value_t = 70, value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    pub(crate) vxlan_id: u32,
    /// UDP port of the tunnel: the same on all nodes of a cluster
    #[arg(long, value_name = "N", default_value_t = 8472)]
    pub(crate) vxlan_port: u16,
    /// Port of the kubelet [default: 10250, or a free one if another cluster's kubelet has it]
    #[arg(long, value_name = "N")]
    pub(crate) kubelet_port: Option<u16>,
    /// Address on which the kubelet listens, and the Node's own unless it is 0.0.0.0 [default: that of --bind-address]
    #[arg(long, value_name = "IP")]
    pub(crate) kubelet_address: Option<IpAddr>,
    /// Thresholds below which the node reports pressure, as the kubelet's flag names them; no Pod is evicted for them
    /// yet [default: upstream's]
    #[arg(long, value_name = "THRESHOLDS")]
    pub(crate) eviction_hard: Option<kubelet::node::Thresholds>,
    /// Address of a DNS server of the cluster's that somebody else runs, for Pods' resolv.conf [default: this node
    /// answers at the tenth address of the Services' range]
    #[arg(long, value_name = "IP")]
    pub(crate) cluster_dns: Option<IpAddr>,
    /// The resolv.conf from which Pods inherit name servers
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub(crate) resolv_conf: PathBuf,
    /// Upstream's KubeProxyConfiguration, for the Service proxy
    #[arg(long, value_name = "FILE")]
    pub(crate) kube_proxy_config: Option<PathBuf>,
}

/// The pod network of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    /// This program is the runtime's network plugin, unless --cni-conf-dir has another configuration
    Own,
    /// The node stays NotReady until somebody installs a network plugin
    None,
}

/// The flags of the API server alone, by upstream's names.
#[derive(Debug, Args, Clone)]
pub(crate) struct ApiServer {
    /// Directory of the store and the certificates
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
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
    pub(crate) api: Api,
}

/// The flags of every component that runs alone, by upstream's names.
#[derive(Debug, Args, Clone)]
pub(crate) struct Component {
    /// Kubeconfig with the API server's address and the component's credentials
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Address on which health and metrics are served
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Port on which health and metrics are served; 0 to serve nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) secure_port: u16,
    /// The authorities of the client certificates that this endpoint accepts
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Whether to work only when elected among several
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,
}

/// The flags of the controllers alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10257")))]
pub(crate) struct ControllerManager {
    #[command(flatten)]
    pub(crate) component: Component,
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
    /// Addresses of Pods, of which each node gets a part [default: nodes get none]
    #[arg(long, value_name = "CIDR", default_value = "", hide_default_value = true)]
    pub(crate) cluster_cidr: String,
    /// Addresses of Services, which nodes do not get
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) service_cluster_ip_range: Vec<String>,
    /// The authorities by which Pods verify the API server [default: those of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// Whether each controller works as its own service account
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) use_service_account_credentials: bool,
    #[command(flatten)]
    pub(crate) endpoints: Endpoints,
    #[command(flatten)]
    pub(crate) workers: Workers,
    #[command(flatten)]
    pub(crate) signing: Signing,
}

/// The flags that say how much controllers do at a time.
#[derive(Debug, Args, Clone)]
pub(crate) struct Workers {
    /// How many DaemonSets are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_daemonset_syncs: u16,
    /// How many StatefulSets are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_statefulset_syncs: u16,
    /// How many Jobs are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_job_syncs: u16,
    /// How many CronJobs are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_cron_job_syncs: u16,
    /// How many ResourceQuotas are counted at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_resource_quota_syncs: u16,
    /// After what time all ResourceQuotas are counted again; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) resource_quota_sync_period: Duration,
    /// How many ended Jobs are removed at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_ttl_after_finished_syncs: u16,
}

impl Workers {
    /// Puts the flags into the controllers' configuration.
    pub(crate) fn configure(&self, config: &mut controllers::Config) {
        config.workers.daemon_sets = self.concurrent_daemonset_syncs.into();
        config.workers.stateful_sets = self.concurrent_statefulset_syncs.into();
        config.workers.jobs = self.concurrent_job_syncs.into();
        config.workers.cron_jobs = self.concurrent_cron_job_syncs.into();
        config.workers.resource_quotas = self.concurrent_resource_quota_syncs.into();
        config.resource_quota_sync_period = self.resource_quota_sync_period;
        config.workers.ttl_after_finished = self.concurrent_ttl_after_finished_syncs.into();
    }
}

/// The flags of the controllers of endpoints.
#[derive(Debug, Args, Clone)]
pub(crate) struct Endpoints {
    /// How many Services' Endpoints are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_endpoint_syncs: u16,
    /// How long the Endpoints of a Service wait for further changes of its Pods
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) endpoint_updates_batch_period: Duration,
    /// How many Services' EndpointSlices are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) concurrent_service_endpoint_syncs: u16,
    /// How long the EndpointSlices of a Service wait for further changes of its Pods
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) endpointslice_updates_batch_period: Duration,
    /// How many endpoints an EndpointSlice has at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) max_endpoints_per_slice: u16,
    /// How many Endpoints are mirrored to EndpointSlices at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) mirroring_concurrent_service_endpoint_syncs: u16,
    /// How long the mirroring of Endpoints waits for further changes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) mirroring_endpointslice_updates_batch_period: Duration,
    /// How many addresses of a subset of Endpoints are mirrored at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) mirroring_max_endpoints_per_subset: u16,
}

impl Endpoints {
    /// Puts the flags into the controllers' configuration.
    pub(crate) fn configure(&self, config: &mut controllers::Config) {
        config.endpoints.workers = self.concurrent_endpoint_syncs.into();
        config.endpoints.batch = self.endpoint_updates_batch_period;
        config.slices = controllers::EndpointSettings {
            limit: self.max_endpoints_per_slice.into(),
            workers: self.concurrent_service_endpoint_syncs.into(),
            batch: self.endpointslice_updates_batch_period,
        };
        config.mirroring = controllers::EndpointSettings {
            limit: self.mirroring_max_endpoints_per_subset.into(),
            workers: self.mirroring_concurrent_service_endpoint_syncs.into(),
            batch: self.mirroring_endpointslice_updates_batch_period,
        };
    }
}

/// The flags of the signers of certificates, by upstream's names.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct Signing {
    /// Certificate of the authority that signs certificates [default: none are signed]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_key_file: Option<PathBuf>,
    /// Longest life of a certificate
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration)]
    pub(crate) cluster_signing_duration: Duration,
    /// Certificate of the authority for kubernetes.io/kubelet-serving alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// Certificate of the authority for kubernetes.io/kube-apiserver-client-kubelet alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// Certificate of the authority for kubernetes.io/kube-apiserver-client alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// Certificate of the authority for kubernetes.io/legacy-unknown alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

/// The flags of the scheduler alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10259")))]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) component: Component,
    /// Upstream's KubeSchedulerConfiguration: profiles, plugins and their arguments; its kubeconfig comes before
    /// --kubeconfig, and either may say that there is no election
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// A node's Service proxy alone, with upstream's flag names.
#[derive(Debug, Args, Clone)]
pub(crate) struct KubeProxy {
    /// Where the API server is, and the credentials of the proxy [default: the one that --config names]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Upstream's KubeProxyConfiguration; beside it, flags that it has fields for have no effect
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the Node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname_override: Option<String>,
    /// Remove the rules of Services and end
    #[arg(long)]
    pub(crate) cleanup: bool,
    #[command(flatten)]
    pub(crate) fields: ProxyFields,
}

/// The flags of a Service proxy that upstream's KubeProxyConfiguration has fields for.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct ProxyFields {
    /// `nftables` (`iptables` and `ipvs` are taken for it), or `userspace`: the node forwards connections itself, as it
    /// does where the kernel has no packet filter [default: nftables]
    #[arg(long, value_name = "MODE")]
    pub(crate) proxy_mode: Option<String>,
    /// Addresses of Pods, by which traffic from outside is known
    #[arg(long, value_name = "CIDR")]
    pub(crate) cluster_cidr: Option<String>,
    /// How traffic of Pods is known: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix [default: ClusterCIDR]
    #[arg(long, value_name = "MODE")]
    pub(crate) detect_local_mode: Option<String>,
    /// The Pods' bridge, for BridgeInterface
    #[arg(long, value_name = "NAME")]
    pub(crate) pod_bridge_interface: Option<String>,
    /// The beginning of the names of Pods' interfaces, for InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX")]
    pub(crate) pod_interface_name_prefix: Option<String>,
    /// Blocks of the node's addresses at which node ports are open, or `primary` [default: all]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub(crate) nodeport_addresses: Vec<String>,
    /// Whether all traffic to cluster addresses gets the node's address
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) masquerade_all: Option<bool>,
    /// Bit of the packet's mark that asks for the node's address [default: 14]
    #[arg(long, value_name = "N")]
    pub(crate) iptables_masquerade_bit: Option<u8>,
    /// Whether node ports are open at 127.0.0.1 [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) iptables_localhost_nodeports: Option<bool>,
    /// How often the rules are looked at [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) iptables_sync_period: Option<String>,
    /// Least time between two changes of the rules [default: 0s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) iptables_min_sync_period: Option<String>,
    /// Address of /healthz and /livez, "" for none [default: 0.0.0.0:10256]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) healthz_bind_address: Option<String>,
    /// Address of /metrics, /proxyMode and /configz, "" for none [default: 127.0.0.1:10249]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Option<String>,
    /// Whether an address in use is an error
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) bind_address_hard_fail: Option<bool>,
    /// Tracked connections for each processor, 0 to leave the kernel's limit [default: 32768]
    #[arg(long, value_name = "N")]
    pub(crate) conntrack_max_per_core: Option<u32>,
    /// Least limit of tracked connections [default: 131072]
    #[arg(long, value_name = "N")]
    pub(crate) conntrack_min: Option<u32>,
    /// Whether packets out of a connection's window are let through
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) conntrack_tcp_be_liberal: Option<bool>,
    /// Time after which a half-closed TCP connection is forgotten [default: 1h0m0s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_tcp_timeout_close_wait: Option<String>,
    /// Time after which an idle TCP connection is forgotten [default: 24h0m0s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_tcp_timeout_established: Option<String>,
    /// Time after which UDP without an answer is forgotten [default: the kernel's]
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_udp_timeout: Option<String>,
    /// Time after which UDP with answers is forgotten [default: the kernel's]
    #[arg(long, value_name = "DURATION")]
    pub(crate) conntrack_udp_timeout_stream: Option<String>,
}

/// A node's agent alone, with upstream's flag names. A flag counts more than the file of --config.
#[derive(Debug, Args, Clone)]
pub(crate) struct Kubelet {
    /// Where the API server is, and the credentials of the node; with --bootstrap-kubeconfig the kubelet writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Kubeconfig with credentials to get the node's certificate with, unless --kubeconfig leads to one that is good
    #[arg(long, value_name = "FILE")]
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of the node's certificates that --bootstrap-kubeconfig gets, and that are exchanged in time
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/pki")]
    pub(crate) cert_dir: PathBuf,
    /// Upstream's KubeletConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the Node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname_override: Option<String>,
    /// Address of the node, or one of each family, separated by commas [default: its IPv4 address, or its IPv6 address if it has no other]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) node_ip: Vec<IpAddr>,
    /// Labels of a new Node, as `key=value`, separated by commas
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub(crate) node_labels: Vec<String>,
    /// Taints of a new Node, as `key=value:effect`, separated by commas
    #[arg(long, value_name = "TAINTS", value_delimiter = ',')]
    pub(crate) register_with_taints: Vec<String>,
    /// Where Pods' volumes and files are
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub(crate) root_dir: PathBuf,
    /// Address to serve on [default: all]
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<IpAddr>,
    /// Port to serve on [default: 10250]
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Certificate to serve with [default: one that signs itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// The authorities of client certificates that are taken
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "SOCK")]
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Addresses of the cluster's DNS servers, for Pods' resolv.conf
    #[arg(long, value_name = "IPS", value_delimiter = ',')]
    pub(crate) cluster_dns: Vec<IpAddr>,
    /// The cluster's DNS domain [default: cluster.local]
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) cluster_domain: Option<String>,
    /// The resolv.conf that Pods inherit name servers from [default: /etc/resolv.conf]
    #[arg(long, value_name = "FILE")]
    pub(crate) resolv_conf: Option<PathBuf>,
    /// The cgroup below which those of Pods are [default: the root]
    #[arg(long, value_name = "CGROUP")]
    pub(crate) cgroup_root: Option<String>,
    /// How many Pods the node takes [default: 110]
    #[arg(long, value_name = "N")]
    pub(crate) max_pods: Option<u32>,
    /// Size at which a container's log is rotated [default: 10Mi]
    #[arg(long, value_name = "SIZE")]
    pub(crate) container_log_max_size: Option<String>,
    /// How many logs of a container are kept [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) container_log_max_files: Option<u32>,
    /// Below which the node reports pressure; no Pod is evicted for it yet
    #[arg(long, value_name = "THRESHOLDS")]
    pub(crate) eviction_hard: Option<kubelet::node::Thresholds>,
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

/// The work on tokens.
#[derive(Debug, Subcommand, Clone)]
pub(crate) enum Token {
    /// Make a token, and print the command with which a node joins
    Create(TokenCreate),
    /// List the tokens
    List(ClusterOf),
    /// Delete tokens: who has one cannot join with it any more
    Delete {
        /// The tokens, or their ids
        #[arg(required = true)]
        tokens: Vec<String>,
        #[command(flatten)]
        at: ClusterOf,
    },
}

/// The token to make.
#[derive(Debug, Args, Clone)]
pub(crate) struct TokenCreate {
    /// The token, of the form "[a-z0-9]{6}.[a-z0-9]{16}" [default: a random one]
    pub(crate) token: Option<String>,
    /// Time after which it is deleted, as `24h`; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "24h0m0s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Its uses, separated by commas
    #[arg(long, value_name = "USAGES", default_value = "signing,authentication", value_delimiter = ',')]
    pub(crate) usages: Vec<String>,
    /// The groups of who authenticates with it, separated by commas
    #[arg(long, value_name = "GROUPS", default_value = client::bootstrap::NODE_GROUP, value_delimiter = ',')]
    pub(crate) groups: Vec<String>,
    /// A description of its use
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) description: String,
    /// Whether to print the whole command with which a node joins, and not the token alone
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) print_join_command: bool,
    #[command(flatten)]
    pub(crate) at: ClusterOf,
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

/// The cluster to remove.
#[derive(Debug, Args, Clone)]
pub(crate) struct Down {
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}

/// Reads a range of ports as upstream takes it: `30000-32767`, or the first and how many follow: `30000+2767`.
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

/// Reads a duration as Go writes it.
fn duration(text: &str) -> Result<Duration, String> {
    api::time::parse_duration(text)
        .and_then(|d| Duration::try_from(d).ok())
        .ok_or_else(|| "not a duration such as 5m0s".to_owned())
}
