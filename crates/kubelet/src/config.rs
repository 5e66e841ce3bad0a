//! The settings of a kubelet.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use api::FeatureGates;
pub use client::Rate;
pub use serving::auth::Trust;

pub use crate::backoff::RestartBackoff;
pub use crate::credential_providers::CredentialProviders;
pub use crate::enforcement::{Enforcement, MemoryQos, Swap};
pub use crate::eviction::Settings as Eviction;
use crate::eviction::Signal;
pub use crate::garbage::policy::{ContainerPolicy, ImagePolicy};
pub use crate::images::{PatternError, Verification};
use crate::node::Options as NodeOptions;
pub use crate::node_shutdown::{GracePeriod, two_periods};
use crate::resource_managers::Options as ManagersOptions;
use crate::server::Options as ServerOptions;
use crate::sources::manifest::Statics;

/// Upstream's place of drivers of FlexVolumes.
pub const VOLUME_PLUGIN_DIR: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/";

/// A kubelet's settings. Two kubelets on one machine differ in node name, root directory, cgroup root, runtime socket, and in
/// the directory of logs or the name by which each marks its own there.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the Node object.
    pub node_name: String,
    /// Addresses of the node, the primary one first; what `status.hostIPs` reports.
    pub node_ips: Vec<IpAddr>,
    /// Where Pods' volumes and files live; upstream's `--root-dir`, `/var/lib/kubelet`.
    pub root_dir: PathBuf,
    /// Where the volumes are that the cluster's own provisioner makes on this node; `None` if there are none.
    pub local_volumes: Option<PathBuf>,
    /// Where drivers of FlexVolumes are; upstream's `volumePluginDir`,
    /// `/usr/libexec/kubernetes/kubelet-plugins/volume/exec/`.
    pub volume_plugin_dir: PathBuf,
    /// Where containers' logs are written; upstream's `podLogsDir`, `/var/log/pods`.
    pub pod_logs_dir: PathBuf,
    /// Where links to them are, for collectors of logs; upstream's is always `/var/log/containers`.
    pub container_logs_dir: PathBuf,
    /// The name by which this kubelet marks its directories in `pod_logs_dir`, where others may have logs, too: then it
    /// removes no others, and no links to others' logs. Without, it removes the logs of all Pods that it does not know, as
    /// upstream's does. A part of a file's name.
    pub logs_owner: Option<String>,
    /// Where an earlier version of this kubelet had Pods' logs, alone; they are removed with their Pods.
    pub former_pod_logs_dir: Option<PathBuf>,
    /// The CRI socket: `unix:///path` or a path.
    pub container_runtime_endpoint: String,
    /// The socket of the image service, if it is not the runtime's; upstream's `imageServiceEndpoint`.
    pub image_service_endpoint: Option<String>,
    /// How long a call of the runtime may take; upstream's `runtimeRequestTimeout`, 2 min.
    pub runtime_request_timeout: Duration,
    /// After which times a container that ended is started again.
    pub restart_backoff: RestartBackoff,
    /// Whether containers without a profile of system calls have the runtime's; upstream's `seccompDefault`.
    pub seccomp_default: bool,
    /// How many pulls of images may begin; upstream's `registryPullQPS`, 5, and `registryBurst`, 10.
    pub pull_rate: Option<Rate>,
    /// How many Events are written; upstream's `eventRecordQPS`, 50, and `eventBurst`, 100.
    pub event_rate: Option<Rate>,
    /// How long nothing may go through a stream of exec, attach or port-forward; upstream's
    /// `streamingConnectionIdleTimeout`, 4 h.
    pub streaming_idle: Duration,
    /// The release whose hidden metrics are shown, which are none here; upstream's `showHiddenMetricsForVersion`.
    pub hidden_metrics_for: String,
    /// How long the API server's word on callers is believed.
    pub trust: Trust,
    /// The callers that are served.
    pub callers: Callers,
    /// Where everybody may read without TLS what the kubelet tells of Pods and itself; upstream's `readOnlyPort`.
    pub read_only: Option<SocketAddr>,
    /// How changes of ConfigMaps and Secrets are seen; upstream's `configMapAndSecretChangeDetectionStrategy`.
    pub change_detection: Detection,
    /// After which time Pods are looked at again whose ConfigMaps and Secrets are not watched; upstream's `syncFrequency`,
    /// 1 min.
    pub sync_frequency: Duration,
    /// Name servers of Pods whose DNS policy is `ClusterFirst`; empty where no cluster DNS runs.
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's DNS domain, `cluster.local`.
    pub cluster_domain: String,
    /// The resolver configuration that Pods inherit; upstream's `resolvConf`, `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// The cgroup below which `kubepods` lives, "/" for the root of the hierarchy.
    pub cgroup_root: String,
    /// Whether Pods and their classes of service have cgroups; upstream's `cgroupsPerQOS`.
    pub pod_cgroups: bool,
    /// The cgroup in which the kubelet puts itself, "" to stay where it is; upstream's `kubeletCgroups`.
    pub kubelet_cgroups: String,
    /// The cgroup in which processes are put that are in none, "" to leave them; upstream's `systemCgroups`.
    pub system_cgroups: String,
    /// The addresses of Pods of which the runtime is told at the start, "" for none; upstream's `podCIDR`.
    pub pod_cidr: String,
    /// How many ids a Pod with users of its own has, a multiple of 65536; upstream's `userNamespaces.idsPerPod`, 65536.
    pub ids_per_pod: u32,
    /// The settings of the process's log, which the kubelet only tells.
    pub logging: component::logging::Config,
    /// How many Pods the node takes; upstream's `maxPods`, 110.
    pub max_pods: u32,
    /// How limits of Pods are enforced.
    pub enforcement: Enforcement,
    /// Kernel parameters that Pods may set beside the safe ones, each a name or the beginning of one with `*`; upstream's
    /// `allowedUnsafeSysctls`.
    pub allowed_sysctls: Vec<String>,
    /// Whether exec, attach, logs and port-forward are served; upstream's `enableDebuggingHandlers`.
    pub debugging_handlers: bool,
    /// Whether the node's own logs are served; upstream's `enableSystemLogHandler`.
    pub system_log_handler: bool,
    /// Whether the journal is served, too; upstream's `enableSystemLogQuery`.
    pub system_log_query: bool,
    /// Whether the log's verbosity may be changed over the server; upstream's `enableDebugFlagsHandler`.
    pub debug_flags_handler: bool,
    /// Where `/healthz` is served in plain HTTP; upstream's `healthzBindAddress` and `healthzPort`.
    pub healthz: Option<SocketAddr>,
    /// How many images are pulled at once; upstream's `maxParallelImagePulls`.
    pub max_parallel_image_pulls: usize,
    /// The images whose users are asked for their credentials; upstream's
    /// `imagePullCredentialsVerificationPolicy`.
    pub image_verification: Verification,
    /// Docker's configuration files, of which the first that can be read has the node's own credentials for images; one
    /// that is called `.dockercfg` has the older form.
    pub docker_config: Vec<PathBuf>,
    /// The programs that are asked for the credentials of images, if any are; upstream's
    /// `--image-credential-provider-config`.
    pub credential_providers: Option<CredentialProviders>,
    /// Size at which a container's log is rotated, in bytes; upstream's `containerLogMaxSize`, 10 MiB.
    pub container_log_max_size: u64,
    /// How many logs of a container are kept; upstream's `containerLogMaxFiles`, 5.
    pub container_log_max_files: u32,
    /// How many logs are rotated at once; upstream's `containerLogMaxWorkers`, 1.
    pub container_log_max_workers: usize,
    /// How often the sizes of logs are looked at; upstream's `containerLogMonitorInterval`, 10 s.
    pub container_log_monitor_interval: Duration,
    /// How many containers that have ended are kept.
    pub container_gc: ContainerPolicy,
    /// When images that nobody uses are removed.
    pub image_gc: ImagePolicy,
    /// How often the room that a Pod's volumes and logs take is measured; upstream's `volumeStatsAggPeriod`, 1 min, and
    /// never if there is none.
    pub volume_stats_period: Option<Duration>,
    /// How Pods are evicted.
    pub eviction: Eviction,
    /// The time that Pods have to end before the machine is shut down, by their priority; without, it is not waited for
    /// them. Upstream's `shutdownGracePeriod`, `shutdownGracePeriodCriticalPods` and `shutdownGracePeriodByPodPriority`.
    pub shutdown_grace_periods: Vec<GracePeriod>,
    /// Where static Pods come from; none if there are none.
    pub statics: Option<Statics>,
    /// Whether there is no API server: then there are static Pods alone, and no Node.
    pub standalone: bool,
    /// How processors, memory and devices are given to Pods.
    pub managers: ManagersOptions,
    /// The features that are on.
    pub gates: FeatureGates,
    /// Whether volumes have the trust anchors of ClusterTrustBundles; upstream's gate `ClusterTrustBundleProjection`.
    pub trust_bundles: bool,
    /// Whether certificates are asked for Pods; upstream's gate `PodCertificateRequest`.
    pub pod_certificates: bool,
    /// How the Node is registered.
    pub node: NodeOptions,
    /// The certificates that are exchanged in time, for the metrics about them.
    pub certificates: Certificates,
    /// Where this kubelet serves, and with which certificates; without, it does not.
    pub server: Option<ServerOptions>,
}

/// How changes of ConfigMaps and Secrets are seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detection {
    /// They are watched.
    #[default]
    Watch,
    /// They are read each time that a Pod needs them.
    Get,
    /// They are read if what was read before is older than the Node says in its annotation
    /// `node.alpha.kubernetes.io/ttl`, or than a minute.
    Cache,
}

impl Detection {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Watch => "Watch",
            Self::Get => "Get",
            Self::Cache => "Cache",
        }
    }
}

/// The callers that the server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Callers {
    /// Whether callers without credentials are served, too; upstream's `authentication.anonymous.enabled`, false.
    pub anonymous: bool,
    /// Whether the API server is asked whose a token is; without, tokens are not read. Upstream's
    /// `authentication.webhook.enabled`, true.
    pub tokens: bool,
    /// Whether the API server is asked who may do what; without, everybody who is served may do everything. Upstream's
    /// `authorization.mode`, `Webhook`.
    pub authorized: bool,
}

impl Default for Callers {
    fn default() -> Self {
        Self { anonymous: false, tokens: true, authorized: true }
    }
}

/// The places of the certificates that a kubelet has exchanged; none where there is no such certificate.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// With which it asks the API server.
    pub client: Option<client::Certificate>,
    /// With which it serves.
    pub server: Option<client::Certificate>,
}

impl Config {
    /// Upstream's defaults for a node of that name.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            node_ips: Vec::new(),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            local_volumes: None,
            volume_plugin_dir: PathBuf::from(VOLUME_PLUGIN_DIR),
            pod_logs_dir: PathBuf::from("/var/log/pods"),
            container_logs_dir: PathBuf::from("/var/log/containers"),
            logs_owner: None,
            former_pod_logs_dir: None,
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".into(),
            image_service_endpoint: None,
            runtime_request_timeout: Duration::from_mins(2),
            restart_backoff: RestartBackoff::default(),
            seccomp_default: false,
            pull_rate: Some(Rate { per_second: 5.0, burst: 10 }),
            event_rate: Some(Rate { per_second: 50.0, burst: 100 }),
            streaming_idle: Duration::from_hours(4),
            hidden_metrics_for: String::new(),
            trust: Trust::default(),
            callers: Callers::default(),
            read_only: None,
            change_detection: Detection::default(),
            sync_frequency: Duration::from_mins(1),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            cgroup_root: "/".into(),
            pod_cgroups: true,
            kubelet_cgroups: String::new(),
            system_cgroups: String::new(),
            pod_cidr: String::new(),
            ids_per_pod: 65536,
            logging: component::logging::Config::default(),
            max_pods: 110,
            enforcement: Enforcement::default(),
            allowed_sysctls: Vec::new(),
            debugging_handlers: true,
            system_log_handler: true,
            system_log_query: false,
            debug_flags_handler: true,
            healthz: None,
            max_parallel_image_pulls: 4,
            image_verification: Verification::default(),
            docker_config: Vec::new(),
            credential_providers: None,
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            container_log_max_workers: 1,
            container_log_monitor_interval: Duration::from_secs(10),
            container_gc: ContainerPolicy::default(),
            image_gc: ImagePolicy::default(),
            volume_stats_period: Some(Duration::from_mins(1)),
            eviction: Eviction::default(),
            shutdown_grace_periods: Vec::new(),
            statics: None,
            standalone: false,
            managers: ManagersOptions::default(),
            gates: FeatureGates::default(),
            trust_bundles: false,
            pod_certificates: false,
            node: NodeOptions::default(),
            certificates: Certificates::default(),
            server: None,
        }
    }
    /// The amount of a resource, such as memory in bytes, that is kept from Pods so that they need not be evicted;
    /// `capacity` is all that there is.
    pub(crate) fn kept_for_evictions(&self, signal: Signal, capacity: u64) -> u64 {
        if self.node.kept_for_evictions { self.eviction.reserved(signal, capacity) } else { 0 }
    }
    /// The directory of a Pod's files.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(uid)
    }
    /// The directory that holds those of all Pods' files.
    pub fn pods_dir(&self) -> PathBuf {
        self.root_dir.join("pods")
    }
    /// The directory of a Pod's logs.
    pub fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.pod_logs_dir.join(format!("{namespace}_{name}_{uid}"))
    }
}
