//! The fields of upstream's KubeletConfiguration that are honoured.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Taint;
use kubelet::config::{Eviction, ImagePolicy, Verification};
use kubelet::eviction::{Statement, Statements, default_hard};
use kubelet::node;
use kubelet::sources::{Manifests, Statics};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::managers::ReservedMemory;

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
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<u16>,
    pub(super) tls_cert_file: PathBuf,
    pub(super) tls_private_key_file: PathBuf,
    #[serde(rename = "authentication.x509.clientCAFile")]
    pub(super) client_ca_file: PathBuf,
    pub(super) pod_logs_dir: Option<PathBuf>,
    pub(super) container_runtime_endpoint: Option<String>,
    #[serde(rename = "serverTLSBootstrap")]
    pub(super) server_tls_bootstrap: bool,
    #[serde(rename = "clusterDNS")]
    pub(super) cluster_dns: Vec<IpAddr>,
    pub(super) cluster_domain: Option<String>,
    pub(super) resolv_conf: Option<PathBuf>,
    pub(super) cgroup_root: Option<String>,
    pub(super) max_pods: Option<u32>,
    pub(super) max_parallel_image_pulls: Option<usize>,
    pub(super) image_pull_credentials_verification_policy: Option<String>,
    pub(super) preloaded_images_verification_allowlist: Vec<String>,
    pub(super) container_log_max_size: Option<String>,
    pub(super) container_log_max_files: Option<u32>,
    pub(super) container_log_max_workers: Option<usize>,
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
    #[serde(rename = "providerID")]
    pub(super) provider_id: String,
    pub(super) node_status_update_frequency: Option<Time>,
    pub(super) node_status_report_frequency: Option<Time>,
    pub(super) node_lease_duration_seconds: Option<i32>,
    pub(super) node_status_max_images: Option<i32>,
    pub(super) kube_reserved: BTreeMap<String, String>,
    pub(super) system_reserved: BTreeMap<String, String>,
    pub(super) enforce_node_allocatable: Option<Vec<String>>,
    pub(super) pods_per_core: Option<u32>,
    pub(super) pod_pids_limit: Option<i64>,
    pub(super) allowed_unsafe_sysctls: Vec<String>,
    pub(super) enable_debugging_handlers: Option<bool>,
    pub(super) enable_system_log_handler: Option<bool>,
    pub(super) enable_server: Option<bool>,
    pub(super) healthz_bind_address: Option<IpAddr>,
    pub(super) healthz_port: Option<u16>,
    #[serde(rename = "failCgroupV1")]
    pub(super) fail_cgroup_v1: Option<bool>,
    pub(super) fail_swap_on: Option<bool>,
    pub(super) serialize_image_pulls: Option<bool>,
    pub(super) oom_score_adj: Option<i32>,
    pub(super) max_open_files: Option<i64>,
    pub(super) feature_gates: BTreeMap<String, serde_json::Value>,
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

/// Upstream's default of `oomScoreAdj` and of `maxOpenFiles`.
const OOM_SCORE: i32 = -999;
const OPEN_FILES: i64 = 1_000_000;
/// As many images as a semaphore can count.
const ALL_IMAGES: usize = usize::MAX >> 4;

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
        let enforced: Vec<&str> =
            self.enforce_node_allocatable.iter().flatten().map(String::as_str).collect();
        for part in &enforced {
            match *part {
                "pods" | "none" => {}
                "kube-reserved" | "system-reserved" => bail!(
                    "enforceNodeAllocatable={part} cannot be had: the processes of the node stay in their cgroups; leave it out"
                ),
                other => bail!("{other:?} is no part of enforceNodeAllocatable"),
            }
        }
        Ok(node::Options {
            register,
            provider_id: Some(self.provider_id.clone()).filter(|id| !id.is_empty()),
            update,
            report,
            lease: Duration::from_secs(lease),
            max_images,
            reserved: self.reserved()?,
            enforce_allocatable: self.enforce_node_allocatable.is_none() || enforced.contains(&"pods"),
            taints: self.register_with_taints.clone(),
            ..node::Options::default()
        })
    }

    /// The amounts that the node keeps for itself.
    ///
    /// # Errors
    /// A resource cannot be kept, or its amount is none.
    fn reserved(&self) -> Result<node::Reserved> {
        let mut all = node::Reserved::default();
        for (name, text) in self.kube_reserved.iter().chain(&self.system_reserved) {
            let wrong = || format!("{name}={text} cannot be reserved: it is no amount");
            let quantity = Quantity::parse(text).ok().filter(|q| q.sign() >= 0).with_context(wrong)?;
            let whole = u64::try_from(quantity.value()).unwrap_or_default();
            let milli = u64::try_from(quantity.milli_value()).unwrap_or_default();
            match name.as_str() {
                "cpu" => all.milli_cpus = all.milli_cpus.saturating_add(milli),
                "memory" => all.memory = all.memory.saturating_add(whole),
                "ephemeral-storage" => all.storage = all.storage.saturating_add(whole),
                "pid" => bail!(
                    "pid={text} cannot be reserved: process ids of all Pods together are not limited; leave it out"
                ),
                other => bail!("cannot reserve {other:?} resource"),
            }
        }
        // Processors that are named count instead of their number; upstream's rule.
        let named = self.reserved_cpus()?.len() as u64 * 1000;
        all.milli_cpus = if named > 0 { named } else { all.milli_cpus };
        Ok(all)
    }

    /// How many Pods the node takes; `cores` is how many processors it has.
    pub(super) fn pods(&self, usual: u32, cores: u32) -> u32 {
        let most = self.max_pods.unwrap_or(usual);
        match self.pods_per_core.filter(|n| *n > 0) {
            Some(each) => most.min(each.saturating_mul(cores)),
            None => most,
        }
    }

    /// How many images are pulled at once; upstream's rule.
    ///
    /// # Errors
    /// One field says something else than the other.
    pub(super) fn image_pulls(&self) -> Result<usize> {
        let most = self.max_parallel_image_pulls;
        if most == Some(0) {
            bail!("maxParallelImagePulls must be a positive number");
        }
        let serial = self.serialize_image_pulls.unwrap_or(most.is_none_or(|most| most < 2));
        match (serial, most) {
            (true, Some(most)) if most > 1 => bail!(
                "maxParallelImagePulls={most} needs serializeImagePulls=false: otherwise one image is pulled at a time"
            ),
            (true, _) => Ok(1),
            (false, most) => Ok(most.unwrap_or(ALL_IMAGES)),
        }
    }

    /// Where `/healthz` is served in plain HTTP; none if it is not.
    pub(super) fn healthz(&self) -> Option<SocketAddr> {
        let address = self.healthz_bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = self.healthz_port.unwrap_or(10248);
        (port > 0).then(|| SocketAddr::new(address, port))
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
        let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        if !unified && self.fail_cgroup_v1.unwrap_or(true) {
            bail!(
                "kubelet is configured to not run on a host using cgroup v1; upgrade the host to cgroup v2, or set failCgroupV1 to false"
            );
        }
        if !unified {
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
        let time = self.container_log_monitor_interval.filter(|time| !time.0.is_zero());
        let Some(time) = time else { return Ok(Duration::from_secs(10)) };
        let least = Duration::from_secs(3);
        let time = time.positive().filter(|time| *time >= least);
        time.context("containerLogMonitorInterval must not be below 3s")
    }

    /// The images whose users are asked for their credentials.
    ///
    /// # Errors
    /// The policy is none, or a list stands beside one that has none.
    pub(super) fn verification(&self) -> Result<Verification> {
        let allowed = self.preloaded_images_verification_allowlist.clone();
        let policy = match self.image_pull_credentials_verification_policy.as_deref() {
            None | Some("" | "NeverVerifyPreloadedImages") => Verification::NeverVerifyPreloadedImages,
            Some("NeverVerify") => Verification::NeverVerify,
            Some("AlwaysVerify") => Verification::AlwaysVerify,
            Some("NeverVerifyAllowlistedImages") => {
                return Ok(Verification::NeverVerifyAllowlistedImages(allowed));
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(value: Value) -> Settings {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn images_are_verified_as_the_file_says() {
        let check = |policy: &str, allowed: &[&str], expected: Option<Verification>| {
            let made = settings(json!({
                "imagePullCredentialsVerificationPolicy": policy,
                "preloadedImagesVerificationAllowlist": allowed,
            }));
            assert_eq!(made.verification().ok(), expected, "{policy:?}");
        };
        check("", &[], Some(Verification::NeverVerifyPreloadedImages));
        check("AlwaysVerify", &[], Some(Verification::AlwaysVerify));
        let listed = Verification::NeverVerifyAllowlistedImages(vec!["a/*".to_owned()]);
        check("NeverVerifyAllowlistedImages", &["a/*"], Some(listed));
        check("AlwaysVerify", &["a"], None);
        check("Sometimes", &[], None);
    }

    #[test]
    fn thresholds_are_stated_or_upstreams() {
        let hard = |value: Value| settings(value).eviction().map(|e| e.stated.hard.to_string());
        let usual = default_hard().to_string();
        assert_eq!(hard(json!({})).unwrap(), usual);
        assert_eq!(hard(json!({"evictionHard": {}})).unwrap(), usual);
        assert_eq!(
            hard(json!({"evictionHard": {"memory.available": "1Gi"}})).unwrap(),
            "memory.available<1Gi"
        );
        let merged =
            json!({"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": true});
        assert_eq!(hard(merged).unwrap(), usual.replace("100Mi", "1Gi"));
        assert!(hard(json!({"evictionHard": {"memory": "1Gi"}})).is_err());
        assert!(hard(json!({"evictionSoft": {"memory.available": "1Gi"}})).is_err(), "without a time");
        let soft = settings(json!({
            "evictionSoft": {"memory.available": "1Gi"},
            "evictionSoftGracePeriod": {"memory.available": "1m"},
            "evictionMaxPodGracePeriod": 7,
            "evictionPressureTransitionPeriod": "30s",
        }));
        let eviction = soft.eviction().unwrap();
        assert_eq!((eviction.max_pod_grace, eviction.transition), (7, Duration::from_secs(30)));
    }

    #[test]
    fn ages_and_percentages() {
        let check = |value: Value, right: bool| {
            assert_eq!(settings(value.clone()).image_gc().is_ok(), right, "{value}");
        };
        check(json!({}), true);
        check(json!({"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99}), true);
        check(json!({"imageGCHighThresholdPercent": 101}), false);
        check(json!({"imageGCHighThresholdPercent": 80}), false);
        check(json!({"imageMaximumGCAge": "1m"}), false);
        check(json!({"imageMaximumGCAge": "1h"}), true);
        check(json!({"imageMinimumGCAge": "-1s"}), false);
        let volumes = |value: &str| settings(json!({"volumeStatsAggPeriod": value})).volume_stats_period();
        assert_eq!((volumes("0s"), volumes("-1s")), (Some(Duration::from_mins(1)), None));
        let logs = |value: &str| settings(json!({"containerLogMonitorInterval": value})).log_interval().ok();
        assert_eq!((logs("2s"), logs("3s")), (None, Some(Duration::from_secs(3))));
        assert!(serde_json::from_value::<Settings>(json!({"imageMinimumGCAge": "soon"})).is_err());
    }

    #[test]
    fn what_the_node_keeps() {
        let made = settings(json!({
            "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
            "systemReserved": {"cpu": "1", "ephemeral-storage": "1Gi"},
        }));
        let expected = node::Reserved { milli_cpus: 1100, memory: 1 << 30, storage: 1 << 30 };
        assert_eq!(made.node().unwrap().reserved, expected);
        for wrong in [
            json!({"kubeReserved": {"gpu": "1"}}),
            json!({"kubeReserved": {"cpu": "-1"}}),
            json!({"kubeReserved": {"cpu": "x"}}),
            json!({"systemReserved": {"pid": "100"}}),
            json!({"enforceNodeAllocatable": ["kube-reserved"]}),
            json!({"enforceNodeAllocatable": ["everything"]}),
            json!({"nodeLeaseDurationSeconds": -1}),
            json!({"nodeStatusMaxImages": -2}),
            json!({"registerNode": false, "registerWithTaints": [{"key": "k", "effect": "NoSchedule"}]}),
        ] {
            assert!(settings(wrong.clone()).node().is_err(), "{wrong}");
        }
        let enforced = |value: Value| settings(value).node().unwrap().enforce_allocatable;
        assert!(enforced(json!({})) && enforced(json!({"enforceNodeAllocatable": ["pods"]})));
        assert!(!enforced(json!({"enforceNodeAllocatable": ["none"]})));
    }

    #[test]
    fn times_of_the_node() {
        let check = |value: Value, update: u64, report: u64| {
            let node = settings(value.clone()).node().unwrap();
            assert_eq!((node.update.as_secs(), node.report.as_secs()), (update, report), "{value}");
        };
        check(json!({}), 10, 300);
        check(json!({"nodeStatusUpdateFrequency": "20s"}), 20, 20);
        check(json!({"nodeStatusUpdateFrequency": "20s", "nodeStatusReportFrequency": "1m"}), 20, 60);
        check(json!({"nodeStatusReportFrequency": "1m"}), 10, 60);
        assert_eq!(settings(json!({"nodeStatusMaxImages": -1})).node().unwrap().max_images, None);
    }

    #[test]
    fn counts() {
        let pods = |value: Value| settings(value).pods(110, 4);
        assert_eq!(
            (pods(json!({})), pods(json!({"podsPerCore": 2})), pods(json!({"podsPerCore": 0}))),
            (110, 8, 110)
        );
        let pulls = |value: Value| settings(value).image_pulls().ok();
        assert_eq!(pulls(json!({})), Some(1));
        assert_eq!(pulls(json!({"maxParallelImagePulls": 3})), Some(3));
        assert_eq!(pulls(json!({"serializeImagePulls": false})), Some(ALL_IMAGES));
        assert_eq!(pulls(json!({"serializeImagePulls": true, "maxParallelImagePulls": 3})), None);
        assert_eq!(pulls(json!({"maxParallelImagePulls": 0})), None);
        let pids = |limit: i64| settings(json!({"podPidsLimit": limit})).pids();
        assert_eq!((pids(-1), pids(100)), (None, Some(100)));
        let healthz = |value: Value| settings(value).healthz().map(|a| a.to_string());
        assert_eq!(healthz(json!({})).as_deref(), Some("127.0.0.1:10248"));
        assert_eq!(healthz(json!({"healthzPort": 0})), None);
        assert!(settings(json!({"allowedUnsafeSysctls": ["vm.swappiness"]})).sysctls().is_err());
        assert!(settings(json!({"allowedUnsafeSysctls": ["net.core.*"]})).sysctls().is_ok());
    }
}
