//! The faults that upstream finds in a configuration, in its words.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};
use api::FeatureGates;
use api::gate::Gate;
use jiff::SignedDuration;
use kubelet::config::Verification;

use super::settings::{KUBE, KUBE_COMPRESSIBLE, NONE, PODS, SYSTEM, SYSTEM_COMPRESSIBLE, Settings, Time};

/// The least number of ids of a Pod's user namespace.
const USER_NAMESPACE: i64 = 65536;

/// The features of a configuration.
///
/// # Errors
/// There is no such feature, or it cannot be switched.
pub(super) fn gates(settings: &Settings) -> Result<FeatureGates> {
    let all: Vec<String> = settings.feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
    Ok(FeatureGates::parse(all.iter().map(String::as_str))?)
}

/// Refuses what upstream refuses; `unified` is whether the machine has the unified hierarchy of cgroups.
///
/// # Errors
/// Everything that is wrong, together.
pub(super) fn validate(settings: &Settings, gates: FeatureGates, unified: bool) -> Result<()> {
    let mut found = Found(Vec::new());
    found.numbers(settings);
    found.images(settings, gates);
    found.shutdown(settings, gates);
    found.memory(settings, gates);
    found.restarts(settings, gates);
    found.allocatable(settings);
    found.others(settings, gates);
    found.machine(settings, unified);
    // Upstream does not say of these that the configuration is invalid.
    let hidden = component::shown::check_hidden_for(&settings.show_hidden_metrics_for_version);
    found.0.extend(
        hidden
            .err()
            .map(|why| format!("invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: {why}")),
    );
    found.0.extend(settings.logging.faults("logging", gates));
    match found.0.as_slice() {
        [] => Ok(()),
        [one] => bail!("failed to validate kubelet configuration, error: {one}"),
        all => bail!("failed to validate kubelet configuration, error: [{}]", all.join(", ")),
    }
}

/// Upstream prints a duration of its configuration as a structure.
fn go(time: SignedDuration) -> String {
    format!("{{{}}}", api::time::format_duration(time))
}

fn plain(time: SignedDuration) -> String {
    api::time::format_duration(time).to_string()
}

fn or_zero(time: Option<Time>) -> SignedDuration {
    time.map(|time| time.0).unwrap_or_default()
}

/// A time, or upstream's default where it is zero or not given.
fn or(time: Option<Time>, usual: SignedDuration) -> SignedDuration {
    time.map(|time| time.0).filter(|time| !time.is_zero()).unwrap_or(usual)
}

/// The errors that were found.
struct Found(Vec<String>);

impl Found {
    fn unless(&mut self, right: bool, wrong: impl FnOnce() -> String) {
        if !right {
            self.0.push(format!("invalid configuration: {}", wrong()));
        }
    }

    /// A number that must not be below zero.
    fn not_negative(&mut self, value: Option<i32>, field: &str, flag: &str) {
        let value = value.unwrap_or(0);
        self.unless(value >= 0, || format!("{field} (--{flag}) {value} must not be a negative number"));
    }

    fn within(&mut self, value: i64, bounds: std::ops::RangeInclusive<i64>, field: &str, flag: &str) {
        let (least, most) = (*bounds.start(), *bounds.end());
        self.unless(bounds.contains(&value), || {
            format!("{field} (--{flag}) {value} must be between {least} and {most}, inclusive")
        });
    }

    fn numbers(&mut self, s: &Settings) {
        self.unless(s.node_lease_duration_seconds.unwrap_or(40) >= 0, || {
            "nodeLeaseDurationSeconds must be greater than 0".into()
        });
        self.not_negative(s.event_burst, "eventBurst", "event-burst");
        self.not_negative(s.event_record_qps, "eventRecordQPS", "event-qps");
        self.not_negative(s.kube_api_burst, "kubeAPIBurst", "kube-api-burst");
        self.not_negative(s.kube_api_qps, "kubeAPIQPS", "kube-api-qps");
        self.not_negative(s.registry_burst, "registryBurst", "registry-burst");
        self.not_negative(s.registry_pull_qps, "registryPullQPS", "registry-qps");
        self.not_negative(s.max_pods, "maxPods", "max-pods");
        self.not_negative(s.pods_per_core, "podsPerCore", "pods-per-core");
        let files = s.max_open_files.unwrap_or(0);
        self.unless(files >= 0, || {
            format!("maxOpenFiles (--max-open-files) {files} must not be a negative number")
        });
        let number = |value: Option<i32>, usual: i32| i64::from(value.unwrap_or(usual));
        match number(s.healthz_port, 10248) {
            0 => {}
            port => self.within(port, 1..=65535, "healthzPort", "healthz-port"),
        }
        match number(s.port, 10250) {
            0 => {}
            port => self.within(port, 1..=65535, "port", "port"),
        }
        let port = number(s.read_only_port, 0);
        self.within(port, 0..=65535, "readOnlyPort", "read-only-port");
        self.within(number(s.iptables_drop_bit, 15), 0..=31, "iptablesDropBit", "iptables-drop-bit");
        let masquerade = number(s.iptables_masquerade_bit, 14);
        self.within(masquerade, 0..=31, "iptablesMasqueradeBit", "iptables-masquerade-bit");
        self.within(number(s.oom_score_adj, -999), -1000..=1000, "oomScoreAdj", "oom-score-adj");
        let images = s.node_status_max_images.unwrap_or(50);
        self.unless(images >= -1, || {
            format!("nodeStatusMaxImages (--node-status-max-images) {images} must be -1 or greater")
        });
    }

    fn images(&mut self, s: &Settings, gates: FeatureGates) {
        let (high, low) =
            (s.image_gc_high_threshold_percent.unwrap_or(85), s.image_gc_low_threshold_percent.unwrap_or(80));
        let (high_name, low_name) = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent");
        self.within(high.into(), 0..=100, high_name, "image-gc-high-threshold");
        self.within(low.into(), 0..=100, low_name, "image-gc-low-threshold");
        self.unless(low < high, || {
            format!("{low_name} (--image-gc-low-threshold) {low} must be less than {high_name} (--image-gc-high-threshold) {high}")
        });
        let least = or(s.image_minimum_gc_age, SignedDuration::from_mins(2));
        let most = or_zero(s.image_maximum_gc_age);
        for (name, age) in [("imageMinimumGCAge", least), ("imageMaximumGCAge", most)] {
            self.unless(!age.is_negative(), || format!("{name} {} must not be negative", plain(age)));
        }
        self.unless(!most.is_positive() || most > least, || {
            format!(
                "imageMaximumGCAge {} must be greater than imageMinimumGCAge {}",
                plain(most),
                plain(least)
            )
        });
        let pulls = s.max_parallel_image_pulls;
        self.unless(pulls.is_none_or(|n| n >= 1), || {
            format!("maxParallelImagePulls {} must be a positive number", pulls.unwrap_or(0))
        });
        let serial = s.serialize_image_pulls.unwrap_or(pulls.is_none_or(|n| n < 2));
        self.unless(!serial || pulls.is_none_or(|n| n <= 1), || {
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false".into()
        });
        let policy = s.image_pull_credentials_verification_policy.as_deref().unwrap_or_default();
        let listed = !s.preloaded_images_verification_allowlist.is_empty();
        if !gates.enabled(Gate::KubeletEnsureSecretPulledImages) {
            let wrong = |field: &str| {
                format!(
                    "`{field}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
                )
            };
            self.unless(policy.is_empty(), || wrong("imagePullCredentialsVerificationPolicy"));
            self.unless(!listed, || wrong("preloadedImagesVerificationAllowlist"));
            return;
        }
        let all =
            ["", "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];
        self.unless(all.contains(&policy), || {
            format!("option {policy:?} specified for imagePullCredentialsVerificationPolicy. Valid options are \"NeverVerify\", \"NeverVerifyPreloadedImages\", \"NeverVerifyAllowlistedImages\" or \"AlwaysVerify\"")
        });
        let by_list = policy == "NeverVerifyAllowlistedImages";
        self.unless(!listed || by_list, || {
            "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not \"NeverVerifyAllowlistedImages\"".into()
        });
        let patterns = if by_list { s.preloaded_images_verification_allowlist.clone() } else { Vec::new() };
        if let Err(e) = Verification::of_all_but(patterns) {
            self.unless(false, || {
                format!("invalid image pattern in `preloadedImagesVerificationAllowlist`: {e}")
            });
        }
    }

    fn shutdown(&mut self, s: &Settings, gates: FeatureGates) {
        let (total, critical) =
            (or_zero(s.shutdown_grace_period), or_zero(s.shutdown_grace_period_critical_pods));
        let second = SignedDuration::from_secs(1);
        let by_priority = !s.shutdown_grace_period_by_pod_priority.is_empty();
        let positive = total.is_positive() || critical.is_positive();
        if gates.enabled(Gate::GracefulNodeShutdown) {
            self.unless(critical <= total, || {
                let (critical, total) = (go(critical), go(total));
                format!("shutdownGracePeriodCriticalPods {critical} must be <= shutdownGracePeriod {total}")
            });
            for (name, time) in
                [("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)]
            {
                self.unless(time.is_zero() || time >= second, || {
                    format!("{name} {} must be either zero or otherwise >= 1 sec", go(time))
                });
            }
        } else {
            self.unless(!positive, || {
                "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown".into()
            });
        }
        if gates.enabled(Gate::GracefulNodeShutdownBasedOnPodPriority) {
            self.unless(!by_priority || !positive, || {
                "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time".into()
            });
        } else {
            self.unless(!by_priority, || {
                "Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority".into()
            });
        }
    }

    fn memory(&mut self, s: &Settings, gates: FeatureGates) {
        let swap = s.swap_behavior.as_deref().unwrap_or_default();
        self.unless(matches!(swap, "" | "NoSwap" | "LimitedSwap"), || {
            format!("memorySwap.swapBehavior {swap:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\"")
        });
        if let Some(factor) = s.memory_throttling_factor {
            self.unless(factor > 0.0 && factor <= 1.0, || {
                format!(
                    "memoryThrottlingFactor {factor} must be greater than 0 and less than or equal to 1.0"
                )
            });
        }
        let policy = s.memory_reservation_policy.as_deref().filter(|p| !p.is_empty()).unwrap_or("None");
        self.unless(policy != "TieredReservation" || gates.enabled(Gate::MemoryQoS), || {
            format!("memoryReservationPolicy {policy:?} requires MemoryQoS feature gate to be enabled")
        });
        self.unless(matches!(policy, "None" | "TieredReservation"), || {
            format!("option {policy:?} specified for memoryReservationPolicy. Valid options are \"None\" or \"TieredReservation\"")
        });
        let usual = SignedDuration::from_millis(100);
        let period = s.cpu_cfs_quota_period.map_or(usual, |time| time.0);
        if gates.enabled(Gate::CustomCPUCFSQuotaPeriod) {
            let bounds = SignedDuration::from_millis(1)..=SignedDuration::from_secs(1);
            self.unless(bounds.contains(&period), || {
                format!(
                    "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {} must be between 1ms and 1sec, inclusive",
                    go(period)
                )
            });
        } else {
            self.unless(period == usual, || {
                format!("cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {} requires feature gate CustomCPUCFSQuotaPeriod", go(period))
            });
        }
    }

    fn restarts(&mut self, s: &Settings, gates: FeatureGates) {
        let Some(time) = s.max_container_restart_period else { return };
        let seconds = time.0.as_millis() as f64 / 1000.0;
        if gates.enabled(Gate::KubeletCrashLoopBackOffMax) {
            self.unless((1000..=300_000).contains(&time.0.as_millis()), || {
                format!("CrashLoopBackOff.MaxContainerRestartPeriod (got: {seconds} seconds) must be set between 1s and 300s")
            });
        } else {
            self.unless(false, || {
                "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set".into()
            });
        }
    }

    fn allocatable(&mut self, s: &Settings) {
        const FLAG: &str = "enforceNodeAllocatable (--enforce-node-allocatable)";
        let all: Vec<&str> = match &s.enforce_node_allocatable {
            Some(all) => all.iter().map(String::as_str).collect(),
            None => vec![PODS],
        };
        for (one, other) in [(SYSTEM, SYSTEM_COMPRESSIBLE), (KUBE, KUBE_COMPRESSIBLE)] {
            self.unless(!(all.contains(&one) && all.contains(&other)), || {
                format!("both {one:?} and {other:?} cannot be specified together in {FLAG}")
            });
        }
        let mut seen = BTreeSet::new();
        for part in &all {
            if !seen.insert(*part) {
                self.unless(false, || format!("duplicated enforcements {part:?} in {FLAG}"));
                continue;
            }
            match *part {
                PODS => {}
                SYSTEM | SYSTEM_COMPRESSIBLE => self.unless(!s.system_reserved_cgroup.is_empty(), || {
                    format!("systemReservedCgroup (--system-reserved-cgroup) must be specified when {SYSTEM:?} or {SYSTEM_COMPRESSIBLE:?} included in {FLAG}")
                }),
                KUBE | KUBE_COMPRESSIBLE => self.unless(!s.kube_reserved_cgroup.is_empty(), || {
                    format!("kubeReservedCgroup (--kube-reserved-cgroup) must be specified when {KUBE:?} or {KUBE_COMPRESSIBLE:?} included in {FLAG}")
                }),
                NONE => {
                    self.unless(all.len() == 1, || {
                        format!("{FLAG} may not contain additional enforcements when {NONE:?} is specified")
                    });
                    continue;
                }
                other => {
                    self.unless(false, || {
                        format!("option {other:?} specified for {FLAG}. Valid options are {PODS:?}, {SYSTEM:?}, {SYSTEM_COMPRESSIBLE:?}, {KUBE:?}, {KUBE_COMPRESSIBLE:?} or {NONE:?}")
                    });
                    continue;
                }
            }
            self.unless(s.cgroups_per_qos.unwrap_or(true), || {
                format!(
                    "cgroupsPerQOS (--cgroups-per-qos) must be set to true when {part:?} contained in {FLAG}"
                )
            });
        }
    }

    fn others(&mut self, s: &Settings, gates: FeatureGates) {
        let rooted = s.cgroup_root.as_deref().is_some_and(|root| !root.is_empty());
        self.unless(s.system_cgroups.is_empty() || rooted, || {
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"
                .into()
        });
        self.unless(!s.server_tls_bootstrap || gates.enabled(Gate::RotateKubeletServerCertificate), || {
            "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate".into()
        });
        self.unless(!s.run_once, || {
            "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set".into()
        });
        let hairpin = s.hairpin_mode.as_str();
        self.unless(matches!(hairpin, "" | "none" | "hairpin-veth" | "promiscuous-bridge"), || {
            format!("option {hairpin:?} specified for hairpinMode (--hairpin-mode). Valid options are \"none\", \"hairpin-veth\" or \"promiscuous-bridge\"")
        });
        for taint in s.register_with_taints.iter().filter(|taint| taint.time_added.is_some()) {
            tracing::debug!(key = taint.key, "a taint with a time");
            self.unless(false, || "taint.TimeAdded is not nil".into());
        }
        self.unless(!s.enable_system_log_query || s.enable_system_log_handler.unwrap_or(true), || {
            "enableSystemLogHandler is required for enableSystemLogQuery".into()
        });
        self.unless(s.container_log_max_workers.unwrap_or(1) >= 1, || {
            "containerLogMaxWorkers must be greater than or equal to 1".into()
        });
        let interval = s.container_log_monitor_interval.map_or(SignedDuration::from_secs(10), |time| time.0);
        self.unless(interval >= SignedDuration::from_secs(3), || {
            "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s".into()
        });
        self.unless(s.container_log_max_files.unwrap_or(5) > 1, || {
            "containerLogMaxFiles must be greater than 1".into()
        });
        let logs = s.pod_logs_dir.as_deref().filter(|dir| !dir.as_os_str().is_empty());
        let logs = logs.unwrap_or(Path::new("/var/log/pods")).to_string_lossy().into_owned();
        self.unless(logs.starts_with('/'), || format!("pod logs path {logs:?} must be absolute path"));
        self.unless(is_clean(&logs), || format!("pod logs path {logs:?} must be normalized"));
        self.unless(logs.is_ascii(), || {
            format!("pod logs path \"{logs}\" mut contains ASCII characters only")
        });
    }

    fn machine(&mut self, s: &Settings, unified: bool) {
        if !unified && s.fail_cgroup_v1.unwrap_or(true) {
            // Upstream has no such beginning here.
            self.0.push("kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release".into());
        }
        self.unless(unified || s.single_process_oom_kill != Some(false), || {
            "singleProcessOOMKill must not be explicitly set to false when using cgroup v1".into()
        });
        if let Some(ids) = s.ids_per_pod {
            self.unless(ids >= USER_NAMESPACE, || {
                format!("userNamespaces.idsPerPod must not be less than {USER_NAMESPACE}")
            });
            self.unless(ids % USER_NAMESPACE == 0, || {
                format!("userNamespaces.idsPerPod must be a multiple of {USER_NAMESPACE}")
            });
            self.unless(ids <= i64::from(u32::MAX), || {
                format!("userNamespaces.idsPerPod must not be more than {}", u32::MAX)
            });
        }
    }
}

/// Whether a path is as short as it can be.
fn is_clean(path: &str) -> bool {
    path == "/"
        || (!path.ends_with('/') && !path.contains("//") && path.split('/').all(|p| p != "." && p != ".."))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    /// Upstream's cases (`validation_test.go`) for the fields that are read here: name, fields, error. A time of nothing is
    /// upstream's default here, as it is in its files.
    const CASES: &str = include_str!("validation_cases.tsv");

    /// Upstream's good configuration.
    fn good() -> Map<String, Value> {
        let all = json!({
            "systemReservedCgroup": "/system.slice", "kubeReservedCgroup": "/kubelet.service",
            "podLogsDir": "/logs", "eventBurst": 10, "eventRecordQPS": 5, "healthzPort": 10248,
            "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "imageMinimumGCAge": "2m",
            "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
            "iptablesDropBit": 15, "iptablesMasqueradeBit": 14, "kubeAPIBurst": 10, "kubeAPIQPS": 5,
            "maxOpenFiles": 1_000_000, "maxPods": 110, "oomScoreAdj": -999, "podsPerCore": 100,
            "port": 65535, "readOnlyPort": 0, "registryBurst": 10, "registryPullQPS": 5,
            "hairpinMode": "promiscuous-bridge", "nodeLeaseDurationSeconds": 1,
            "cpuCFSQuotaPeriod": "25ms", "shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s",
            "memoryThrottlingFactor": 0.9, "memoryReservationPolicy": "None",
            "featureGates": {"GracefulNodeShutdown": true, "MemoryQoS": true, "KubeletCrashLoopBackOffMax": true},
            "containerLogMaxWorkers": 1, "containerLogMaxFiles": 5, "containerLogMonitorInterval": "10s",
            "crashLoopBackOff.maxContainerRestartPeriod": "3s"
        });
        all.as_object().unwrap().clone()
    }

    fn judged(fields: &Map<String, Value>, unified: bool) -> Result<()> {
        let settings: Settings = serde_json::from_value(Value::Object(fields.clone()))?;
        validate(&settings, gates(&settings)?, unified)
    }

    #[test]
    fn upstreams_cases() {
        let mut count = 0;
        for line in CASES.lines().skip(1) {
            let [name, fields, expected]: [&str; 3] =
                line.split('\t').collect::<Vec<_>>().try_into().expect(line);
            let mut all = good();
            let Value::Object(changed) = serde_json::from_str(fields).expect(line) else { panic!("{line}") };
            all.extend(changed);
            match (judged(&all, true), expected) {
                (Ok(()), "") => {}
                (Err(error), expected) if !expected.is_empty() => {
                    let error = format!("{error:#}");
                    assert!(error.contains(expected), "{name}: {error}");
                }
                (got, _) => panic!("{name}: {got:?}"),
            }
            count += 1;
        }
        assert_eq!(count, 81);
    }

    #[test]
    fn patterns_of_images() {
        let check = |pattern: &str, expected: &str| {
            let mut all = good();
            all.insert(
                "imagePullCredentialsVerificationPolicy".into(),
                json!("NeverVerifyAllowlistedImages"),
            );
            all.insert("preloadedImagesVerificationAllowlist".into(), json!(["test.test/*", pattern]));
            let error = judged(&all, true).err().map(|e| e.to_string()).unwrap_or_default();
            assert_eq!(error, expected);
        };
        check("test.test/repo", "");
        check(
            "test.test/repo:tag",
            "failed to validate kubelet configuration, error: invalid configuration: invalid image pattern in `preloadedImagesVerificationAllowlist`: neither tag nor digest is accepted in an image reference: test.test/repo:tag",
        );
    }

    #[test]
    fn the_hierarchy_of_cgroups_decides() {
        let check = |fields: Value, unified: bool, expected: &str| {
            let Value::Object(fields) = fields else { panic!() };
            let error = judged(&fields, unified).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(
                if expected.is_empty() { error.is_empty() } else { error.ends_with(expected) },
                "{error}"
            );
        };
        check(json!({}), true, "");
        check(json!({}), false, "will be removed in a future release");
        check(json!({"failCgroupV1": false}), false, "");
        let explicit = "singleProcessOOMKill must not be explicitly set to false when using cgroup v1";
        check(json!({"failCgroupV1": false, "singleProcessOOMKill": false}), false, explicit);
        check(json!({"singleProcessOOMKill": false}), true, "");
        check(json!({"userNamespaces.idsPerPod": 1}), true, "must be a multiple of 65536]");
        check(json!({"userNamespaces.idsPerPod": 65537}), true, "idsPerPod must be a multiple of 65536");
        check(json!({"userNamespaces.idsPerPod": 1_i64 << 32}), true, "must not be more than 4294967295");
        check(json!({"userNamespaces.idsPerPod": 131_072}), true, "");
    }
}
