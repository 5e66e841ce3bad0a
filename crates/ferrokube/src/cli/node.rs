//! The flags of a node and its parts.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use objects::Cidr;

use super::fields::Fields;
use super::images::CgroupDriver;
use super::logging::Logging;

/// The flags of several nodes on this machine.
#[derive(Debug, Args, Clone)]
pub(crate) struct Hosts {
    /// Number of nodes: each has a network, a container runtime and an equal part of the machine for itself, and is
    /// called NODE_NAME-1, NODE_NAME-2 and so on [default: the machine itself is the one node]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=32),
        conflicts_with_all = ["node_ip", "container_runtime_endpoint", "cgroup_driver", "cni_conf_dir", "cni_bin_dir"]
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
    /// The program containerd, which each node of --nodes gets in place of the built-in container runtime
    #[arg(long, value_name = "FILE", requires = "nodes", conflicts_with = "runtime_handler")]
    pub(crate) containerd: Option<PathBuf>,
    /// Configuration of containerd that counts more than the nodes' own, with --containerd
    #[arg(long, value_name = "FILE", requires = "containerd")]
    pub(crate) containerd_config: Option<PathBuf>,
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
    /// The program containerd, in place of the built-in container runtime
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) containerd: Option<PathBuf>,
}

/// The flags of a node.
#[derive(Debug, Args, Clone)]
pub(crate) struct Node {
    /// Socket of a container runtime (containerd or CRI-O) [default: this program is the runtime itself]
    #[arg(long, value_name = "SOCK")]
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Directory of the kubelet's own files: volumes, and the sockets of plugins, which drivers' manifests expect in
    /// /var/lib/kubelet. With --nodes each node has its own there [default: /var/lib/kubelet with --nodes, or for the
    /// default data directory if no other kubelet has it; otherwise DATA_DIR/kubelet]
    #[arg(long, value_name = "DIR")]
    pub(crate) root_dir: Option<PathBuf>,
    /// Directory of archives of images (docker-archive or OCI layout) that the built-in container runtime has, also those
    /// that are put there later [default: DATA_DIR/images]
    #[arg(long, value_name = "DIR")]
    pub(crate) images: Option<PathBuf>,
    /// OCI runtime (such as runc or crun) for the Pods of a RuntimeClass with this handler, and arguments for it; may be
    /// repeated
    #[arg(long, value_name = "NAME=PROGRAM[ ARGUMENTS]", conflicts_with = "container_runtime_endpoint")]
    pub(crate) runtime_handler: Vec<runtime::Handler>,
    /// Maker of the cgroups of the built-in runtime's containers and, with it, of Pods: `cgroupfs`, by directories, or
    /// `systemd`, which is asked for slices and scopes and keeps its hand on them on machines that it has started
    #[arg(
        long,
        value_name = "DRIVER",
        value_enum,
        default_value_t = CgroupDriver::Cgroupfs,
        conflicts_with = "container_runtime_endpoint"
    )]
    pub(crate) cgroup_driver: CgroupDriver,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Address of this node, or one of each family, separated by commas [default: its IPv4 address, or its IPv6 address
    /// if it has no other]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) node_ip: Vec<IpAddr>,
    /// Directory in which the container runtime looks for its network configuration [default: /etc/cni/net.d; none for
    /// the built-in runtime with this program's own Pod network]
    #[arg(long, value_name = "DIR")]
    pub(crate) cni_conf_dir: Option<PathBuf>,
    /// Directory in which the container runtime looks for network plugins [default: /opt/cni/bin]
    #[arg(long, value_name = "DIR")]
    pub(crate) cni_bin_dir: Option<PathBuf>,
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
    /// How many Pods the node takes; more than 254 need a larger part of the Pods' addresses for each node
    /// (`--node-cidr-mask-size` of `up` or `server`)
    #[arg(long, value_name = "N", default_value_t = 110, value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    pub(crate) max_pods: u32,
    /// Thresholds below which the node reports pressure and Pods are evicted, as the kubelet's flag names them [default:
    /// upstream's, but 5 % of the disks]
    #[arg(long, value_name = "THRESHOLDS")]
    pub(crate) eviction_hard: Option<kubelet::eviction::Statements>,
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
    #[command(flatten)]
    pub(crate) logging: Logging,
}

/// The flags of a Service proxy that upstream's KubeProxyConfiguration has fields for.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct ProxyFields {
    /// `nftables` (`iptables` and `ipvs` are taken for it), or `userspace`: the node forwards connections itself, as it
    /// does where the kernel has no packet filter [default: nftables]
    #[arg(long, value_name = "MODE")]
    pub(crate) proxy_mode: Option<String>,
    /// Features to turn on or off, as `A=true,B=false`: those of the log
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
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
    /// The release before this one, to see the metrics that this one hides
    #[arg(long, value_name = "VERSION")]
    pub(crate) show_hidden_metrics_for_version: Option<String>,
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
    /// Where the API server is, and the credentials of the node; with --bootstrap-kubeconfig the kubelet writes it [default:
    /// there is no API server, and the kubelet runs static Pods alone]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Kubeconfig with credentials to get the node's certificate with, unless --kubeconfig leads to one that is good
    #[arg(long, value_name = "FILE")]
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of the node's certificates that --bootstrap-kubeconfig gets, and that are exchanged in time
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/pki")]
    pub(crate) cert_dir: PathBuf,
    /// Upstream's KubeletConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of files ending in .conf, each a part of a KubeletConfiguration: they count more than --config, the last
    /// one by its name most
    #[arg(long, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// Name of the Node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname_override: Option<String>,
    /// Address of the node, or one of each family, separated by commas [default: its IPv4 address, or its IPv6 address if it has no other]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) node_ip: Vec<IpAddr>,
    /// Labels of a new Node, as `key=value`, separated by commas
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub(crate) node_labels: Vec<String>,
    /// `external` if a cloud provider outside the kubelet initializes the Node
    #[arg(long, value_name = "PROVIDER", default_value = "")]
    pub(crate) cloud_provider: String,
    /// Where Pods' volumes and files are
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub(crate) root_dir: PathBuf,
    /// The least age of a container that has ended before it is removed
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = super::values::duration)]
    pub(crate) minimum_container_ttl_duration: Duration,
    /// How many containers that have ended are kept of each container of a Pod; all if it is negative
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) maximum_dead_containers_per_container: i32,
    /// How many containers that have ended are kept in all; all if it is negative
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub(crate) maximum_dead_containers: i32,
    /// File, or directory of files ending in .json, .yaml and .yml, that names the programs which are asked for the
    /// credentials of images (a CredentialProviderConfig)
    #[arg(long, value_name = "PATH")]
    pub(crate) image_credential_provider_config: Option<PathBuf>,
    /// Directory of these programs
    #[arg(long, value_name = "DIR")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,
    /// File that the kubelet locks before it begins; it waits until nobody else holds the lock
    #[arg(long, value_name = "FILE")]
    pub(crate) lock_file: Option<PathBuf>,
    /// End when somebody else opens or removes --lock-file
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true"
    )]
    pub(crate) exit_on_lock_contention: bool,
    /// Files of which the first one that is there has the machine's id, separated by commas
    #[arg(
        long,
        value_name = "FILES",
        value_delimiter = ',',
        default_value = "/etc/machine-id,/var/lib/dbus/machine-id"
    )]
    pub(crate) machine_id_file: Vec<PathBuf>,
    /// Files of which the first one that is there has the id of the machine's boot, separated by commas
    #[arg(
        long,
        value_name = "FILES",
        value_delimiter = ',',
        default_value = "/proc/sys/kernel/random/boot_id"
    )]
    pub(crate) boot_id_file: Vec<PathBuf>,
    /// Give Pods also the room that --eviction-hard keeps free
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true"
    )]
    pub(crate) experimental_allocatable_ignore_eviction: bool,
    #[command(flatten)]
    pub(crate) fields: Fields,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
