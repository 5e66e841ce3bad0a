//! `/configz`: the settings that this kubelet runs with, as upstream's configuration file names them.

use std::collections::BTreeMap;
use std::time::Duration;

use component::logging::vmodule::Module;
use component::logging::{self, Format, Routing};
use serde_json::{Value, json};

use crate::backoff::go_duration;
use crate::config::{Config, GracePeriod, Swap};

/// Only what this kubelet does is told, and as it does it.
pub(super) fn settings(config: &Config) -> Value {
    let port = config.server.as_ref().map_or(config.node.port, |s| s.address.port());
    let address = config.server.as_ref().map(|s| s.address.ip().to_string());
    let stated = &config.eviction.stated;
    let mut all = json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "enableControllerAttachDetach": config.node.controller_attaches,
        "enableServer": config.server.is_some(),
        "address": address,
        "port": port,
        "authentication": {
            "webhook": { "enabled": config.callers.tokens, "cacheTTL": time(config.trust.tokens) },
            "anonymous": { "enabled": config.callers.anonymous },
        },
        "authorization": {
            "mode": if config.callers.authorized { "Webhook" } else { "AlwaysAllow" },
            "webhook": {
                "cacheAuthorizedTTL": time(config.trust.allowed),
                "cacheUnauthorizedTTL": time(config.trust.denied),
            },
        },
        "streamingConnectionIdleTimeout": time(config.streaming_idle),
        "showHiddenMetricsForVersion": config.hidden_metrics_for,
        "clusterDomain": config.cluster_domain,
        "clusterDNS": config.cluster_dns,
        "containerRuntimeEndpoint": config.container_runtime_endpoint,
        "podLogsDir": config.pod_logs_dir,
        "maxPods": config.max_pods,
        "resolvConf": config.resolv_conf,
        "cgroupRoot": config.cgroup_root,
        "kubeletCgroups": config.kubelet_cgroups,
        "systemCgroups": config.system_cgroups,
        "podCIDR": config.pod_cidr,
        "userNamespaces": { "idsPerPod": config.ids_per_pod },
        "logging": logging(&config.logging),
        "maxParallelImagePulls": config.max_parallel_image_pulls,
        "containerLogMaxSize": config.container_log_max_size.to_string(),
        "containerLogMaxFiles": config.container_log_max_files,
        "containerLogMonitorInterval": time(config.container_log_monitor_interval),
        "containerLogMaxWorkers": config.container_log_max_workers,
        "evictionHard": stated.hard.0,
        "evictionSoft": stated.soft.0,
        "evictionSoftGracePeriod": stated.grace.0,
        "evictionMinimumReclaim": stated.min_reclaim.0,
        "evictionMaxPodGracePeriod": config.eviction.max_pod_grace,
        "localStorageCapacityIsolation": config.eviction.local_storage,
        "imageGCHighThresholdPercent": config.image_gc.high_percent,
        "imageGCLowThresholdPercent": config.image_gc.low_percent,
        "imageMinimumGCAge": time(config.image_gc.min_age),
        "imageMaximumGCAge": time(config.image_gc.max_age),
        "volumeStatsAggPeriod": config.volume_stats_period.map_or_else(|| "-1s".to_owned(), time),
        "nodeStatusUpdateFrequency": time(config.node.update),
        "nodeStatusReportFrequency": time(config.node.report),
        "evictionPressureTransitionPeriod": time(config.eviction.transition),
    });
    let more = json!({
        "nodeLeaseDurationSeconds": config.node.lease.as_secs(),
        "nodeStatusMaxImages": config.node.max_images.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX)),
        "registerNode": config.node.register,
        "registerWithTaints": config.node.taints,
        "providerID": config.node.provider_id,
        "podPidsLimit": config.enforcement.pod_pids_limit.unwrap_or(-1),
        "allowedUnsafeSysctls": config.allowed_sysctls,
        "enableDebuggingHandlers": config.debugging_handlers,
        "volumePluginDir": config.volume_plugin_dir,
        "enableSystemLogHandler": config.system_log_handler,
        "enableSystemLogQuery": config.system_log_query,
        "enableDebugFlagsHandler": config.debug_flags_handler,
        "cgroupsPerQOS": config.pod_cgroups,
        "configMapAndSecretChangeDetectionStrategy": config.change_detection.name(),
        "healthzBindAddress": config.healthz.map(|a| a.ip().to_string()),
        "healthzPort": config.healthz.map_or(0, |a| a.port()),
        "staticPodPath": config.statics.as_ref().and_then(|s| s.path.clone()),
        "staticPodURL": config.statics.as_ref().and_then(|s| s.url.clone()),
        "fileCheckFrequency": config.statics.as_ref().map(|s| time(s.file_period)),
        "httpCheckFrequency": config.statics.as_ref().map(|s| time(s.url_period)),
    });
    for more in [more, limits(config), rates_and_times(config), managers(config)] {
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
    }
    json!({ "kubeletconfig": all })
}

/// The settings of the log.
fn logging(config: &logging::Config) -> Value {
    let module = |m: &Module| json!({ "filePattern": m.pattern, "verbosity": m.verbosity });
    let routing = |r: &Routing| json!({ "splitStream": r.split, "infoBufferSize": r.buffer.to_string() });
    json!({
        "format": match config.format { Format::Text => "text", Format::Json => "json" },
        "flushFrequency": time(config.flush),
        "verbosity": config.verbosity,
        "vmodule": config.vmodule.iter().map(module).collect::<Vec<_>>(),
        "options": { "text": routing(&config.text), "json": routing(&config.json) },
    })
}

fn time(d: Duration) -> String {
    go_duration(d.try_into().unwrap_or_default())
}

/// How limits of Pods are enforced, and how they end with the machine.
fn limits(config: &Config) -> Value {
    let period = |p: &GracePeriod| json!({ "priority": p.priority, "shutdownGracePeriodSeconds": p.seconds });
    let swap = match config.enforcement.swap {
        Swap::NoSwap => "NoSwap",
        Swap::LimitedSwap => "LimitedSwap",
    };
    json!({
        "cpuCFSQuota": config.enforcement.cpu_period.is_some(),
        "cpuCFSQuotaPeriod": config.enforcement.cpu_period.map(micro_time),
        "singleProcessOOMKill": config.enforcement.single_process_oom_kill,
        "memorySwap": { "swapBehavior": swap },
        "seccompDefault": config.seccomp_default,
        "shutdownGracePeriodByPodPriority": config.shutdown_grace_periods.iter().map(period).collect::<Vec<_>>(),
    })
}

fn rates_and_times(config: &Config) -> Value {
    json!({
        "readOnlyPort": config.read_only.map_or(0, |a| a.port()),
        "runtimeRequestTimeout": time(config.runtime_request_timeout),
        "imageServiceEndpoint": config.image_service_endpoint,
        "registryPullQPS": config.pull_rate.map_or(0.0, |r| r.per_second),
        "registryBurst": config.pull_rate.map(|r| r.burst),
        "eventRecordQPS": config.event_rate.map_or(0.0, |r| r.per_second),
        "eventBurst": config.event_rate.map(|r| r.burst),
        "crashLoopBackOff": { "maxContainerRestartPeriod": go_duration(config.restart_backoff.longest) },
    })
}

/// Microseconds as Go prints a duration (`100ms`).
fn micro_time(micros: i64) -> String {
    match micros {
        m if m % 1_000_000 == 0 => format!("{}s", m / 1_000_000),
        m if m % 1000 == 0 => format!("{}ms", m / 1000),
        m => format!("{}ms", m as f64 / 1000.0),
    }
}

/// How processors, memory and devices are given.
fn managers(config: &Config) -> Value {
    let m = &config.managers;
    let limits = |all: &BTreeMap<String, u64>| -> BTreeMap<String, String> {
        all.iter().map(|(kind, bytes)| (kind.clone(), bytes.to_string())).collect()
    };
    let reserved = m.reserved_memory.iter().map(|r| json!({"numaNode": r.node, "limits": limits(&r.limits)}));
    json!({
        "cpuManagerPolicy": m.cpu.name(),
        "cpuManagerPolicyOptions": m.cpu_options,
        "cpuManagerReconcilePeriod": go_duration(m.reconcile.try_into().unwrap_or_default()),
        "memoryManagerPolicy": m.memory.name(),
        "reservedMemory": reserved.collect::<Vec<_>>(),
        "reservedSystemCPUs": m.reserved_cpus.to_string(),
        "topologyManagerPolicy": m.topology.name(),
        "topologyManagerPolicyOptions": m.topology_options,
        "topologyManagerScope": m.scope.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_in_force() {
        let mut config = Config::new("n");
        config.max_pods = 7;
        config.eviction.stated.hard = "memory.available<1Gi,nodefs.available<5%".parse().unwrap();
        let got = &settings(&config)["kubeletconfig"];
        assert_eq!(got["maxPods"], 7);
        assert_eq!(got["enableServer"], false);
        assert_eq!(got["evictionHard"]["memory.available"], "1Gi");
        assert_eq!(got["evictionHard"]["nodefs.available"], "5%");
        assert_eq!(got["nodeStatusUpdateFrequency"], "10s");
        assert_eq!(got["nodeStatusReportFrequency"], "5m0s");
        assert_eq!(got["streamingConnectionIdleTimeout"], "4h0m0s");
        assert_eq!((&got["cpuCFSQuota"], &got["cpuCFSQuotaPeriod"]), (&json!(true), &json!("100ms")));
        assert_eq!([1_000_000, 25_000, 1500].map(micro_time), ["1s", "25ms", "1.5ms"]);
        assert_eq!(got["cpuManagerPolicy"], "none");
        assert_eq!(got["cpuManagerReconcilePeriod"], "10s");
        assert_eq!(got["topologyManagerScope"], "container");
    }
}
