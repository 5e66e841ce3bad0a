//! The fields of upstream's KubeletConfiguration that are honoured.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::FeatureGates;
use api::gate::Gate;
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Taint;
use kubelet::config::{
    Callers, Detection, Enforcement, Eviction, GracePeriod, ImagePolicy, MemoryQos, Rate, RestartBackoff,
    Swap, Trust, Verification,
};
use kubelet::eviction::{Statement, Statements, default_hard};
use kubelet::node::{self, Others, ReservedCgroup};
use kubelet::server::Offer;
use kubelet::sources::{Manifests, Statics};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::logging::LoggingConfiguration;

/// The parts of `enforceNodeAllocatable`.
pub(super) const PODS: &str = "pods";
pub(super) const NONE: &str = "none";
pub(super) const SYSTEM: &str = "system-reserved";
pub(super) const SYSTEM_COMPRESSIBLE: &str = "system-reserved-compressible";
pub(super) const KUBE: &str = "kube-reserved";
pub(super) const KUBE_COMPRESSIBLE: &str = "kube-reserved-compressible";

/// The amounts that are kept of a NUMA node.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ReservedMemory {
    pub(super) numa_node: u32,
    /// Quantities, which may be written as numbers.
    pub(super) limits: BTreeMap<String, serde_json::Value>,
}

/// A duration as Go writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) jiff::SignedDuration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = api::time::parse_duration(&text);
        read.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is no duration such as 1m30s")))
    }
}

impl Time {
    /// The duration; none if it is below zero.
    fn positive(self) -> Option<Duration> {
        Duration::try_from(self.0).ok()
    }
}

/// The fields that are honoured, by their paths.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) logging: LoggingConfiguration,
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<i32>,
    pub(super) tls_cert_file: PathBuf,
    pub(super) tls_private_key_file: PathBuf,
    #[serde(rename = "authentication.x509.clientCAFile")]
    pub(super) client_ca_file: PathBuf,
    pub(super) pod_logs_dir: Option<PathBuf>,
    pub(super) volume_plugin_dir: PathBuf,
    pub(super) container_runtime_endpoint: Option<String>,
    #[serde(rename = "serverTLSBootstrap")]
    pub(super) server_tls_bootstrap: bool,
    #[serde(rename = "clusterDNS")]
    pub(super) cluster_dns: Vec<IpAddr>,
    pub(super) cluster_domain: Option<String>,
    pub(super) resolv_conf: Option<PathBuf>,
    pub(super) cgroup_root: Option<String>,
    pub(super) kubelet_cgroups: String,
    pub(super) system_cgroups: String,
    #[serde(rename = "podCIDR")]
    pub(super) pod_cidr: String,
    pub(super) max_pods: Option<i32>,
    pub(super) max_parallel_image_pulls: Option<i32>,
    pub(super) image_pull_credentials_verification_policy: Option<String>,
    pub(super) preloaded_images_verification_allowlist: Vec<String>,
    pub(super) container_log_max_size: Option<String>,
    pub(super) container_log_max_files: Option<i32>,
    pub(super) container_log_max_workers: Option<i32>,
    pub(super) container_log_monitor_interval: Option<Time>,
    pub(super) eviction_hard: Option<BTreeMap<String, String>>,
    pub(super) eviction_soft: BTreeMap<String, String>,
    pub(super) eviction_soft_grace_period: BTreeMap<String, String>,
    pub(super) eviction_minimum_reclaim: BTreeMap<String, String>,
    pub(super) eviction_max_pod_grace_period: Option<i64>,
    pub(super) eviction_pressure_transition_period: Option<Time>,
    pub(super) merge_default_eviction_settings: bool,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub(super) image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub(super) image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "imageMinimumGCAge")]
    pub(super) image_minimum_gc_age: Option<Time>,
    #[serde(rename = "imageMaximumGCAge")]
    pub(super) image_maximum_gc_age: Option<Time>,
    pub(super) local_storage_capacity_isolation: Option<bool>,
    pub(super) volume_stats_agg_period: Option<Time>,
    pub(super) register_with_taints: Vec<Taint>,
    pub(super) static_pod_path: PathBuf,
    #[serde(rename = "staticPodURL")]
    pub(super) static_pod_url: String,
    #[serde(rename = "staticPodURLHeader")]
    pub(super) static_pod_url_header: BTreeMap<String, Vec<String>>,
    pub(super) file_check_frequency: Option<Time>,
    pub(super) http_check_frequency: Option<Time>,
    pub(super) register_node: Option<bool>,
    pub(super) enable_controller_attach_detach: Option<bool>,
    #[serde(rename = "providerID")]
    pub(super) provider_id: String,
    pub(super) node_status_update_frequency: Option<Time>,
    pub(super) node_status_report_frequency: Option<Time>,
    pub(super) node_lease_duration_seconds: Option<i32>,
    pub(super) node_status_max_images: Option<i32>,
    pub(super) kube_reserved: BTreeMap<String, String>,
    pub(super) system_reserved: BTreeMap<String, String>,
    pub(super) enforce_node_allocatable: Option<Vec<String>>,
    pub(super) pods_per_core: Option<i32>,
    pub(super) pod_pids_limit: Option<i64>,
    pub(super) allowed_unsafe_sysctls: Vec<String>,
    pub(super) enable_debugging_handlers: Option<bool>,
    pub(super) enable_system_log_handler: Option<bool>,
    pub(super) enable_server: Option<bool>,
    pub(super) healthz_bind_address: Option<IpAddr>,
    pub(super) healthz_port: Option<i32>,
    #[serde(rename = "failCgroupV1")]
    pub(super) fail_cgroup_v1: Option<bool>,
    pub(super) fail_swap_on: Option<bool>,
    pub(super) serialize_image_pulls: Option<bool>,
    pub(super) oom_score_adj: Option<i32>,
    pub(super) max_open_files: Option<i64>,
    pub(super) shutdown_grace_period: Option<Time>,
    pub(super) shutdown_grace_period_critical_pods: Option<Time>,
    pub(super) shutdown_grace_period_by_pod_priority: Vec<ByPriority>,
    pub(super) feature_gates: BTreeMap<String, bool>,
    pub(super) system_reserved_cgroup: String,
    pub(super) kube_reserved_cgroup: String,
    pub(super) qos_reserved: BTreeMap<String, String>,
    #[serde(rename = "cpuCFSQuota")]
    pub(super) cpu_cfs_quota: Option<bool>,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub(super) cpu_cfs_quota_period: Option<Time>,
    #[serde(rename = "memorySwap.swapBehavior")]
    pub(super) swap_behavior: Option<String>,
    pub(super) memory_throttling_factor: Option<f64>,
    pub(super) memory_reservation_policy: Option<String>,
    #[serde(rename = "singleProcessOOMKill")]
    pub(super) single_process_oom_kill: Option<bool>,
    pub(super) seccomp_default: bool,
    pub(super) protect_kernel_defaults: bool,
    pub(super) image_service_endpoint: String,
    #[serde(rename = "crashLoopBackOff.maxContainerRestartPeriod")]
    pub(super) max_container_restart_period: Option<Time>,
    pub(super) runtime_request_timeout: Option<Time>,
    pub(super) streaming_connection_idle_timeout: Option<Time>,
    pub(super) tls_cipher_suites: Vec<String>,
    pub(super) tls_min_version: String,
    pub(super) tls_curve_preferences: Vec<i32>,
    pub(super) show_hidden_metrics_for_version: String,
    pub(super) read_only_port: Option<i32>,
    #[serde(rename = "registryPullQPS")]
    pub(super) registry_pull_qps: Option<i32>,
    pub(super) registry_burst: Option<i32>,
    #[serde(rename = "eventRecordQPS")]
    pub(super) event_record_qps: Option<i32>,
    pub(super) event_burst: Option<i32>,
    #[serde(rename = "authentication.anonymous.enabled")]
    pub(super) anonymous: bool,
    #[serde(rename = "authentication.webhook.enabled")]
    pub(super) token_webhook: Option<bool>,
    #[serde(rename = "authorization.mode")]
    pub(super) authorization_mode: Option<String>,
    #[serde(rename = "authentication.webhook.cacheTTL")]
    pub(super) token_ttl: Option<Time>,
    #[serde(rename = "authorization.webhook.cacheAuthorizedTTL")]
    pub(super) allowed_ttl: Option<Time>,
    #[serde(rename = "authorization.webhook.cacheUnauthorizedTTL")]
    pub(super) denied_ttl: Option<Time>,
    /// These have no effect, but a value that upstream refuses is refused.
    #[serde(rename = "kubeAPIQPS")]
    pub(super) kube_api_qps: Option<i32>,
    #[serde(rename = "kubeAPIBurst")]
    pub(super) kube_api_burst: Option<i32>,
    pub(super) iptables_drop_bit: Option<i32>,
    pub(super) iptables_masquerade_bit: Option<i32>,
    pub(super) hairpin_mode: String,
    pub(super) enable_system_log_query: bool,
    pub(super) config_map_and_secret_change_detection_strategy: Option<String>,
    pub(super) sync_frequency: Option<Time>,
    pub(super) enable_debug_flags_handler: Option<bool>,
    #[serde(rename = "cgroupsPerQOS")]
    pub(super) cgroups_per_qos: Option<bool>,
    /// Upstream has given it up: it must not be set.
    pub(super) run_once: bool,
    #[serde(rename = "userNamespaces.idsPerPod")]
    pub(super) ids_per_pod: Option<i64>,
    pub(super) cpu_manager_policy: String,
    pub(super) cpu_manager_policy_options: BTreeMap<String, String>,
    pub(super) cpu_manager_reconcile_period: Option<Time>,
    #[serde(rename = "reservedSystemCPUs")]
    pub(super) reserved_system_cpus: String,
    pub(super) memory_manager_policy: String,
    pub(super) reserved_memory: Vec<ReservedMemory>,
    pub(super) topology_manager_policy: String,
    pub(super) topology_manager_policy_options: BTreeMap<String, String>,
    pub(super) topology_manager_scope: String,
}

/// The time that Pods of a priority have before the machine goes down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ByPriority {
    priority: i32,
    shutdown_grace_period_seconds: i64,
}

/// Upstream's default of `oomScoreAdj` and of `maxOpenFiles`.
const OOM_SCORE: i32 = -999;
const OPEN_FILES: i64 = 1_000_000;
/// As many images as a semaphore can count.
const ALL_IMAGES: usize = usize::MAX >> 4;

/// The features that this kubelet switches.
const HONOURED_GATES: [Gate; 44] = [
    Gate::CPUManagerPolicyAlphaOptions,
    Gate::CPUManagerPolicyBetaOptions,
    Gate::CRIListStreaming,
    Gate::CSIVolumeHealth,
    Gate::ChangeContainerStatusOnKubeletRestart,
    Gate::ClusterTrustBundle,
    Gate::ClusterTrustBundleProjection,
    Gate::ComponentFlagz,
    Gate::ComponentStatusz,
    Gate::ContainerStopSignals,
    Gate::CustomCPUCFSQuotaPeriod,
    Gate::DRAWorkloadResourceClaims,
    Gate::DisableCPUQuotaWithExclusiveCPUs,
    Gate::ExtendWebSocketsToKubelet,
    Gate::GracefulNodeShutdown,
    Gate::GracefulNodeShutdownBasedOnPodPriority,
    Gate::ImageVolumeWithDigest,
    Gate::InPlacePodLevelResourcesVerticalScaling,
    Gate::InPlacePodVerticalScalingExclusiveCPUs,
    Gate::InPlacePodVerticalScalingExclusiveMemory,
    Gate::InPlacePodVerticalScalingInitContainers,
    Gate::KubeletCrashLoopBackOffMax,
    Gate::KubeletEnsureSecretPulledImages,
    Gate::KubeletPodResourcesListUseActivePods,
    Gate::KubeletRegistrationGetOnExistsOnly,
    Gate::KubeletServiceAccountTokenForCredentialProviders,
    Gate::LoggingAlphaOptions,
    Gate::LoggingBetaOptions,
    Gate::MemoryQoS,
    Gate::NodeDeclaredFeatures,
    Gate::PodAndContainerStatsFromCRI,
    Gate::PodCertificateRequest,
    Gate::PodLevelResourceManagers,
    Gate::PodLevelResources,
    Gate::PodLogsQuerySplitStreams,
    Gate::PreventStaticPodAPIReferences,
    Gate::QOSReserved,
    Gate::ReduceDefaultCrashLoopBackOffDecay,
    Gate::RestartAllContainersOnContainerExits,
    Gate::RotateKubeletServerCertificate,
    Gate::SELinuxMount,
    Gate::TaintTolerationComparisonOperators,
    Gate::TopologyManagerPolicyAlphaOptions,
    Gate::TopologyManagerPolicyBetaOptions,
];

/// Features that are always as their gates make them when they are on, and why.
const ALWAYS: [(Gate, &str); 2] = [
    (Gate::EventedPLEG, "the events of the container runtime are always used, if it sends any"),
    (
        Gate::KubeletInUserNamespace,
        "the kubelet never sets the kernel's parameters and goes on where it cannot read the kernel's log, so nothing of that fails in a user namespace",
    ),
];

/// The kernel's parameters that upstream wants, each with its value.
const KERNEL: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// The kernel's parameters that are not as upstream wants them, in its words; `read` reads one.
fn kernel_errors(read: impl Fn(&str) -> Option<i64>) -> Vec<String> {
    let wrong = |(name, wanted): (&str, i64)| match read(name) {
        Some(value) if value == wanted => None,
        Some(value) => {
            Some(format!("invalid kernel flag: {name}, expected value: {wanted}, actual value: {value}"))
        }
        None => Some(format!("invalid kernel flag: {name}, expected value: {wanted}, it cannot be read")),
    };
    KERNEL.into_iter().filter_map(wrong).collect()
}

/// The sums of amounts that the node keeps.
///
/// # Errors
/// A resource cannot be kept, or its amount is none.
fn reserved<'a>(amounts: impl Iterator<Item = (&'a String, &'a String)>) -> Result<node::Reserved> {
    let mut all = node::Reserved::default();
    for (name, text) in amounts {
        let wrong = || format!("{name}={text} cannot be reserved: it is no amount");
        let quantity = Quantity::parse(text).ok().filter(|q| q.sign() >= 0).with_context(wrong)?;
        let whole = u64::try_from(quantity.value()).unwrap_or_default();
        let milli = u64::try_from(quantity.milli_value()).unwrap_or_default();
        match name.as_str() {
            "cpu" => all.milli_cpus = all.milli_cpus.saturating_add(milli),
            "memory" => all.memory = all.memory.saturating_add(whole),
            "ephemeral-storage" => all.storage = all.storage.saturating_add(whole),
            "pid" => all.pids = all.pids.saturating_add(whole),
            other => bail!("cannot reserve {other:?} resource"),
        }
    }
    Ok(all)
}

impl Settings {
    /// How Pods are evicted.
    ///
    /// # Errors
    /// A threshold is none.
    pub(super) fn eviction(&self) -> Result<Eviction> {
        let own = self.eviction_hard.clone().filter(|hard| !hard.is_empty());
        // A statement takes the place of all defaults, unless it is to be merged with them; upstream's rule.
        let mut hard = match (&own, self.merge_default_eviction_settings) {
            (Some(_), false) => Statements::default(),
            _ => default_hard(),
        };
        hard.0.extend(own.unwrap_or_default());
        let stated = Statement {
            hard,
            soft: Statements(self.eviction_soft.clone()),
            grace: Statements(self.eviction_soft_grace_period.clone()),
            min_reclaim: Statements(self.eviction_minimum_reclaim.clone()),
        };
        let usual = Eviction::default();
        let transition = self.eviction_pressure_transition_period.filter(|time| !time.0.is_zero());
        let transition = match transition {
            Some(time) => time.positive().context("evictionPressureTransitionPeriod must not be negative")?,
            None => usual.transition,
        };
        Ok(Eviction {
            thresholds: stated.thresholds(true).context("invalid eviction thresholds")?,
            stated,
            transition,
            max_pod_grace: self.eviction_max_pod_grace_period.unwrap_or(usual.max_pod_grace).max(0),
            local_storage: self.local_storage_capacity_isolation.unwrap_or(usual.local_storage),
        })
    }

    /// The time that Pods have before the machine goes down.
    pub(super) fn shutdown(&self, gates: FeatureGates) -> Vec<GracePeriod> {
        if !gates.enabled(Gate::GracefulNodeShutdown) {
            return Vec::new();
        }
        let time = |time: Option<Time>| time.map(|time| time.0.unsigned_abs()).unwrap_or_default();
        let by_priority = &self.shutdown_grace_period_by_pod_priority;
        if by_priority.is_empty() {
            let total = time(self.shutdown_grace_period);
            return kubelet::config::two_periods(total, time(self.shutdown_grace_period_critical_pods));
        }
        let period = |of: &ByPriority| GracePeriod {
            priority: of.priority,
            seconds: of.shutdown_grace_period_seconds,
        };
        by_priority.iter().map(period).collect()
    }

    /// How limits of Pods are enforced.
    ///
    /// # Errors
    /// A percentage is none.
    pub(super) fn enforcement(&self, gates: FeatureGates) -> Result<Enforcement> {
        let usual = Enforcement::default();
        let period = match self.cpu_cfs_quota_period {
            Some(time) => i64::try_from(time.0.as_micros()).ok(),
            None => usual.cpu_period,
        };
        let memory_qos = gates.enabled(Gate::MemoryQoS).then(|| MemoryQos {
            throttling: self.memory_throttling_factor.unwrap_or(MemoryQos::default().throttling),
            reserves: self.memory_reservation_policy.as_deref() == Some("TieredReservation"),
        });
        let reserved = self.reserved_for_classes()?;
        Ok(Enforcement {
            cpu_period: period.filter(|_| self.cpu_cfs_quota.unwrap_or(true)),
            swap: match self.swap_behavior.as_deref() {
                Some("LimitedSwap") => Swap::LimitedSwap,
                _ => Swap::NoSwap,
            },
            single_process_oom_kill: self.single_process_oom_kill,
            memory_qos,
            // As upstream, without the feature it is read and has no effect.
            reserved_for_classes: reserved.filter(|_| gates.enabled(Gate::QOSReserved)),
            pod_pids_limit: self.pids(),
        })
    }

    /// The percentage of `qosReserved`.
    fn reserved_for_classes(&self) -> Result<Option<i64>> {
        let mut percent = None;
        for (name, text) in &self.qos_reserved {
            if name != "memory" {
                bail!("cannot reserve {name:?} resource");
            }
            let number = text.strip_suffix('%').and_then(|n| n.parse::<i64>().ok());
            let number = number.filter(|n| (0..=100).contains(n));
            percent = Some(number.with_context(|| {
                format!(
                    "failed to parse percentage {text:?} for {name:?} resource: it is none from 0% to 100%"
                )
            })?);
        }
        Ok(percent)
    }

    /// After which times a container that ended is started again; upstream's rule.
    pub(super) fn restart_backoff(&self, gates: FeatureGates) -> RestartBackoff {
        let mut backoff = RestartBackoff::default();
        if gates.enabled(Gate::ReduceDefaultCrashLoopBackOffDecay) {
            backoff = RestartBackoff {
                first: jiff::SignedDuration::from_secs(1),
                longest: jiff::SignedDuration::from_secs(60),
            };
        }
        if gates.enabled(Gate::KubeletCrashLoopBackOffMax) {
            // With the feature the field has a default of its own, which counts more than the other feature's.
            let usual = RestartBackoff::default().longest;
            backoff.longest = self.max_container_restart_period.map_or(usual, |time| time.0);
            backoff.first = backoff.first.min(backoff.longest);
        }
        backoff
    }

    /// A rate from its two fields; none where it is not limited.
    fn rate(per_second: Option<i32>, burst: Option<i32>, usual: (i32, i32)) -> Option<Rate> {
        let per_second = per_second.unwrap_or(usual.0);
        let burst = burst.filter(|n| *n != 0).unwrap_or(usual.1);
        (per_second > 0)
            .then(|| Rate { per_second: f64::from(per_second), burst: u32::try_from(burst).unwrap_or(1) })
    }

    /// How many pulls of images may begin.
    pub(super) fn pull_rate(&self) -> Option<Rate> {
        Self::rate(self.registry_pull_qps, self.registry_burst, (5, 10))
    }

    /// How many Events are written.
    pub(super) fn event_rate(&self) -> Option<Rate> {
        Self::rate(self.event_record_qps, self.event_burst, (50, 100))
    }

    /// How long the API server's word on callers is believed.
    ///
    /// # Errors
    /// A time is negative.
    pub(super) fn trust(&self) -> Result<Trust> {
        Ok(Trust {
            tokens: Self::time(self.token_ttl, 120, "authentication.webhook.cacheTTL")?,
            allowed: Self::time(self.allowed_ttl, 300, "authorization.webhook.cacheAuthorizedTTL")?,
            denied: Self::time(self.denied_ttl, 30, "authorization.webhook.cacheUnauthorizedTTL")?,
        })
    }

    /// The callers that are served.
    ///
    /// # Errors
    /// There is no such mode, or no way to know anybody; upstream's words.
    pub(super) fn callers(&self) -> Result<Callers> {
        let callers = Callers {
            anonymous: self.anonymous,
            tokens: self.token_webhook.unwrap_or(true),
            authorized: match self.authorization_mode.as_deref() {
                None | Some("" | "Webhook") => true,
                Some("AlwaysAllow") => false,
                Some(other) => bail!("unknown authorization mode {other}"),
            },
        };
        if !callers.anonymous && !callers.tokens && self.client_ca_file.as_os_str().is_empty() {
            bail!("no authentication method configured");
        }
        Ok(callers)
    }

    /// How changes of ConfigMaps and Secrets are seen, and after which time Pods are looked at again where they are not
    /// watched.
    ///
    /// # Errors
    /// There is no such strategy, or the time is negative.
    pub(super) fn changes(&self) -> Result<(Detection, Duration)> {
        let detection = match self.config_map_and_secret_change_detection_strategy.as_deref() {
            None | Some("" | "Watch") => Detection::Watch,
            Some("Get") => Detection::Get,
            Some("Cache") => Detection::Cache,
            Some(other) => bail!("unknown configmap and secret manager mode: {other}"),
        };
        Ok((detection, Self::time(self.sync_frequency, 60, "syncFrequency")?))
    }

    /// How long a call of the runtime may take.
    ///
    /// # Errors
    /// It is negative.
    pub(super) fn runtime_timeout(&self) -> Result<Duration> {
        Self::time(self.runtime_request_timeout, 120, "runtimeRequestTimeout")
    }

    /// How long nothing may go through a stream.
    ///
    /// # Errors
    /// It is negative.
    pub(super) fn streaming_idle(&self) -> Result<Duration> {
        let usual = 4 * 60 * 60;
        Self::time(self.streaming_connection_idle_timeout, usual, "streamingConnectionIdleTimeout")
    }

    /// The ways to speak with the server, and a sentence for each part of the choice that has no effect.
    ///
    /// # Errors
    /// There is no such version, cipher or curve, or none of those that are chosen can be offered.
    pub(super) fn offer(&self) -> Result<(Offer, Vec<String>)> {
        Offer::choose(client::offer::Choice {
            version: ("tlsMinVersion", &self.tls_min_version),
            ciphers: ("tlsCipherSuites", &self.tls_cipher_suites),
            curves: ("tlsCurvePreferences", &self.tls_curve_preferences),
        })
        .map_err(anyhow::Error::msg)
    }

    /// Where everybody may read.
    pub(super) fn read_only(&self, address: IpAddr) -> Option<SocketAddr> {
        let port = self.read_only_port.and_then(|port| u16::try_from(port).ok())?;
        (port > 0).then(|| SocketAddr::new(address, port))
    }

    /// The port of the server, upstream's if none is given.
    pub(super) fn port(&self, usual: u16) -> u16 {
        self.port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(usual)
    }

    /// The features that are switched and that this kubelet has not built to be switched, a sentence for each.
    fn gates_without_effect(&self) -> Vec<String> {
        let switched = |(name, on): (&String, &bool)| {
            let gate = Gate::named(name)?;
            if HONOURED_GATES.contains(&gate) || gate.default() == *on {
                return None;
            }
            let always = ALWAYS.iter().find(|(of, _)| *of == gate).map(|(_, why)| *why);
            let why = always.unwrap_or("the feature is not switched");
            Some(format!("featureGates.{name}={on} has no effect here: {why}"))
        };
        self.feature_gates.iter().filter_map(switched).collect()
    }

    /// A sentence for each setting that has no effect beside the others.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let watched = self.config_map_and_secret_change_detection_strategy.as_deref();
        let unused = self.sync_frequency.is_some() && matches!(watched, None | Some("" | "Watch"));
        let told =
            unused.then(|| "syncFrequency has no effect here: changes are seen when they happen".to_owned());
        told.into_iter().chain(self.gates_without_effect()).collect()
    }

    /// When images are removed.
    ///
    /// # Errors
    /// A percentage or an age is none, or one does not fit the other.
    pub(super) fn image_gc(&self) -> Result<ImagePolicy> {
        let usual = ImagePolicy::default();
        let age = |time: Option<Time>, usual: Duration, name: &str| match time {
            Some(time) => time.positive().with_context(|| format!("{name} must not be negative")),
            None => Ok(usual),
        };
        let min_age = self.image_minimum_gc_age.filter(|time| !time.0.is_zero());
        let min_age = age(min_age, usual.min_age, "imageMinimumGCAge")?;
        let max_age = age(self.image_maximum_gc_age, usual.max_age, "imageMaximumGCAge")?;
        if !max_age.is_zero() && max_age <= min_age {
            bail!("imageMaximumGCAge {max_age:?} must be greater than imageMinimumGCAge {min_age:?}");
        }
        let high = self.image_gc_high_threshold_percent.unwrap_or(usual.high_percent.into());
        let low = self.image_gc_low_threshold_percent.unwrap_or(usual.low_percent.into());
        if low >= high {
            bail!("imageGCLowThresholdPercent {low} must be less than imageGCHighThresholdPercent {high}");
        }
        Ok(ImagePolicy::new(high, low, min_age, max_age)?)
    }

    /// Where static Pods come from; none if there are none. `manifests` makes what reads them.
    ///
    /// # Errors
    /// A time is none.
    pub(super) fn statics(&self, manifests: impl FnOnce() -> Arc<dyn Manifests>) -> Result<Option<Statics>> {
        let path = Some(self.static_pod_path.clone()).filter(|path| !path.as_os_str().is_empty());
        let url = Some(self.static_pod_url.clone()).filter(|url| !url.is_empty());
        if path.is_none() && url.is_none() {
            return Ok(None);
        }
        let period = |time: Option<Time>, name: &str| match time.filter(|time| !time.0.is_zero()) {
            Some(time) => time.positive().with_context(|| format!("{name} must not be negative")),
            None => Ok(Duration::from_secs(20)),
        };
        let headers = self.static_pod_url_header.iter();
        let headers =
            headers.flat_map(|(name, all)| all.iter().map(move |value| (name.clone(), value.clone())));
        Ok(Some(Statics {
            manifests: manifests(),
            path,
            file_period: period(self.file_check_frequency, "fileCheckFrequency")?,
            url,
            headers: headers.collect(),
            url_period: period(self.http_check_frequency, "httpCheckFrequency")?,
        }))
    }

    /// A time that is upstream's `usual` if it is zero or not given.
    ///
    /// # Errors
    /// It is negative.
    pub(super) fn time(time: Option<Time>, usual: u64, name: &str) -> Result<Duration> {
        match time.filter(|time| !time.0.is_zero()) {
            Some(time) => time.positive().with_context(|| format!("{name} must not be negative")),
            None => Ok(Duration::from_secs(usual)),
        }
    }

    /// How the Node is registered and reported.
    ///
    /// # Errors
    /// A field has a value that it cannot have.
    pub(super) fn node(&self) -> Result<node::Options> {
        let update = Self::time(self.node_status_update_frequency, 10, "nodeStatusUpdateFrequency")?;
        // The one follows the other if only the other is given; upstream's rule.
        let usual = if self.node_status_update_frequency.is_some() { update.as_secs().max(1) } else { 300 };
        let report = Self::time(self.node_status_report_frequency, usual, "nodeStatusReportFrequency")?;
        let lease = self.node_lease_duration_seconds.filter(|n| *n != 0).unwrap_or(40);
        let lease = u64::try_from(lease).ok().context("nodeLeaseDurationSeconds must be greater than 0")?;
        let max_images = match self.node_status_max_images.unwrap_or(50) {
            -1 => None,
            n => Some(usize::try_from(n).ok().context("nodeStatusMaxImages must be -1 or greater")?),
        };
        let register = self.register_node.unwrap_or(true);
        if !register && !self.register_with_taints.is_empty() {
            bail!("registerWithTaints needs registerNode: who registers the Node gives it its taints");
        }
        Ok(node::Options {
            register,
            controller_attaches: self.enable_controller_attach_detach.unwrap_or(true),
            provider_id: Some(self.provider_id.clone()).filter(|id| !id.is_empty()),
            update,
            report,
            lease: Duration::from_secs(lease),
            max_images,
            reserved: self.reserved()?,
            enforce_allocatable: self.enforce_node_allocatable.is_none() || self.enforces(PODS),
            reserved_cgroups: self.reserved_cgroups()?,
            taints: self.register_with_taints.clone(),
            ..node::Options::default()
        })
    }

    fn enforces(&self, part: &str) -> bool {
        self.enforce_node_allocatable.iter().flatten().any(|enforced| enforced == part)
    }

    /// The cgroups that are held to parts of the node.
    ///
    /// # Errors
    /// An amount is none.
    fn reserved_cgroups(&self) -> Result<Vec<ReservedCgroup>> {
        let mut all = Vec::new();
        let kinds = [
            (SYSTEM, Others::System, false),
            (KUBE, Others::Kube, false),
            (SYSTEM_COMPRESSIBLE, Others::System, true),
            (KUBE_COMPRESSIBLE, Others::Kube, true),
        ];
        for (_, of, compressible) in kinds.into_iter().filter(|(part, ..)| self.enforces(part)) {
            let (name, amounts) = match of {
                Others::System => (&self.system_reserved_cgroup, &self.system_reserved),
                Others::Kube => (&self.kube_reserved_cgroup, &self.kube_reserved),
            };
            let kept = reserved(amounts.iter())?;
            let given = |resource: &str, amount: u64| amounts.contains_key(resource).then_some(amount);
            all.push(ReservedCgroup {
                of,
                name: name.clone(),
                milli_cpus: given("cpu", kept.milli_cpus),
                memory: given("memory", kept.memory),
                pids: given("pid", kept.pids),
                compressible,
            });
        }
        Ok(all)
    }

    /// The amounts that the node keeps for itself.
    fn reserved(&self) -> Result<node::Reserved> {
        let mut all = reserved(self.kube_reserved.iter().chain(&self.system_reserved))?;
        // Processors that are named count instead of their number; upstream's rule.
        let named = self.reserved_cpus()?.len() as u64 * 1000;
        all.milli_cpus = if named > 0 { named } else { all.milli_cpus };
        Ok(all)
    }

    /// How many Pods the node takes; `cores` is how many processors it has.
    pub(super) fn pods(&self, usual: u32, cores: u32) -> u32 {
        let positive = |number: Option<i32>| number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        let most = positive(self.max_pods).unwrap_or(usual);
        match positive(self.pods_per_core) {
            Some(each) => most.min(each.saturating_mul(cores)),
            None => most,
        }
    }

    /// How many images are pulled at once; upstream's rule.
    pub(super) fn image_pulls(&self) -> usize {
        let most = self.max_parallel_image_pulls;
        let serial = self.serialize_image_pulls.unwrap_or(most.is_none_or(|most| most < 2));
        match most.and_then(|most| usize::try_from(most).ok()) {
            _ if serial => 1,
            Some(most) => most,
            None => ALL_IMAGES,
        }
    }

    /// Where `/healthz` is served in plain HTTP; none if it is not.
    pub(super) fn healthz(&self) -> Option<SocketAddr> {
        let address = self.healthz_bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = self.healthz_port.and_then(|port| u16::try_from(port).ok()).unwrap_or(10248);
        (port > 0).then(|| SocketAddr::new(address, port))
    }

    /// How many ids a Pod with users of its own has.
    pub(super) fn ids_per_pod(&self, usual: u32) -> u32 {
        self.ids_per_pod.and_then(|ids| u32::try_from(ids).ok()).filter(|ids| *ids > 0).unwrap_or(usual)
    }

    /// The limit of a Pod's process ids; none if it has the node's.
    pub(super) fn pids(&self) -> Option<i64> {
        self.pod_pids_limit.filter(|limit| *limit > 0)
    }

    /// The kernel parameters that Pods may set beside the safe ones.
    ///
    /// # Errors
    /// A pattern is none.
    pub(super) fn sysctls(&self) -> Result<Vec<String>> {
        for pattern in &self.allowed_unsafe_sysctls {
            kubelet::sysctls::check_pattern(pattern).context("invalid allowedUnsafeSysctls")?;
        }
        Ok(self.allowed_unsafe_sysctls.clone())
    }

    /// Looks at the machine, and makes the process what it is to be.
    ///
    /// # Errors
    /// The machine is one on which this kubelet is not to run.
    pub(super) fn prepare(&self) -> Result<()> {
        if self.protect_kernel_defaults {
            // DIFFERENCE: without it upstream changes the machine's parameters; here they are left as they are.
            let read = |name: &str| {
                let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
                text.trim().parse().ok()
            };
            let wrong = kernel_errors(read);
            if !wrong.is_empty() {
                bail!("[{}]", wrong.join(", "));
            }
        }
        let (own, reserved) = (&self.kubelet_cgroups, &self.kube_reserved_cgroup);
        if !own.is_empty() && !reserved.is_empty() && !own.starts_with(reserved.as_str()) {
            tracing::warn!("unsupported configuration:KubeletCgroups is not within KubeReservedCgroup");
        }
        if !is_unified() {
            tracing::warn!("this host has cgroup v1, whose support upstream is about to end");
        }
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps.lines().count() > 1 && self.fail_swap_on.unwrap_or(true) {
            bail!(
                "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
            );
        }
        let score = self.oom_score_adj.unwrap_or(OOM_SCORE);
        if !(-1000..=1000).contains(&score) {
            bail!("oomScoreAdj {score} must be in the range [-1000, 1000]");
        }
        if let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
            tracing::warn!(%error, score, "the kernel may end the kubelet when memory runs out: its score stays");
        }
        let files = self.max_open_files.unwrap_or(OPEN_FILES);
        let files = u64::try_from(files).ok().context("maxOpenFiles must be a non-negative number")?;
        raise_open_files(files);
        Ok(())
    }

    /// How often volumes are measured; none for never.
    pub(super) fn volume_stats_period(&self) -> Option<Duration> {
        match self.volume_stats_agg_period.filter(|time| !time.0.is_zero()) {
            Some(time) => time.positive(),
            None => Some(Duration::from_mins(1)),
        }
    }

    /// How often the sizes of logs are looked at.
    ///
    /// # Errors
    /// It is less than upstream allows.
    pub(super) fn log_interval(&self) -> Result<Duration> {
        let Some(time) = self.container_log_monitor_interval else { return Ok(Duration::from_secs(10)) };
        time.positive().context("containerLogMonitorInterval must not be negative")
    }

    /// The images whose users are asked for their credentials.
    ///
    /// # Errors
    /// The policy is none, a list stands beside one that has none, or a pattern of the list is none.
    pub(super) fn verification(&self) -> Result<Verification> {
        let allowed = self.preloaded_images_verification_allowlist.clone();
        let policy = match self.image_pull_credentials_verification_policy.as_deref() {
            None | Some("" | "NeverVerifyPreloadedImages") => Verification::NeverVerifyPreloadedImages,
            Some("NeverVerify") => Verification::NeverVerify,
            Some("AlwaysVerify") => Verification::AlwaysVerify,
            Some("NeverVerifyAllowlistedImages") => {
                return Verification::of_all_but(allowed)
                    .context("invalid image pattern in `preloadedImagesVerificationAllowlist`");
            }
            Some(other) => bail!("{other:?} is no imagePullCredentialsVerificationPolicy"),
        };
        if !allowed.is_empty() {
            bail!(
                "preloadedImagesVerificationAllowlist is for imagePullCredentialsVerificationPolicy=NeverVerifyAllowlistedImages"
            );
        }
        Ok(policy)
    }

    /// The size at which a container's log is rotated, in bytes.
    ///
    /// # Errors
    /// It is no amount.
    pub(super) fn log_size(&self, usual: u64) -> Result<u64> {
        let Some(text) = &self.container_log_max_size else { return Ok(usual) };
        let read = Quantity::parse(text).ok().and_then(|q| u64::try_from(q.value()).ok());
        read.with_context(|| format!("invalid containerLogMaxSize {text:?}"))
    }
}

/// Whether the machine has the unified hierarchy of cgroups.
pub(super) fn is_unified() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Lets the process open so many files, or as many as it may.
fn raise_open_files(files: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let had = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: Some(files), maximum: Some(had.maximum.unwrap_or(files).max(files)) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let most = Rlimit { current: Some(had.maximum.unwrap_or(files).min(files)), maximum: had.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, most) {
            tracing::warn!(%error, files, "the number of files that may be open stays");
        }
    }
}

#[cfg(test)]
mod tests;
