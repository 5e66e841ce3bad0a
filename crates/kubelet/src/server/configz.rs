//! `/configz`: the settings that this kubelet runs with, as upstream's configuration file names them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::backoff::go_duration;
use crate::config::Config;
use crate::node::{Threshold, Thresholds};
use crate::{logs, node};

/// Only what this kubelet does is told, and as it does it.
pub(super) fn settings(config: &Config) -> Value {
    let port = config.server.as_ref().map_or(config.node.port, |s| s.address.port());
    let address = config.server.as_ref().map(|s| s.address.ip().to_string());
    let time = |d: Duration| go_duration(d.try_into().unwrap_or_default());
    json!({ "kubeletconfig": {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "enableServer": config.server.is_some(),
        "address": address,
        "port": port,
        "authentication": {
            "webhook": { "enabled": true, "cacheTTL": time(serving::TOKEN_TTL) },
            "anonymous": { "enabled": false },
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {
                "cacheAuthorizedTTL": time(serving::auth::ALLOWED_TTL),
                "cacheUnauthorizedTTL": time(serving::auth::DENIED_TTL),
            },
        },
        "streamingConnectionIdleTimeout": time(super::stream::IDLE),
        "clusterDomain": config.cluster_domain,
        "clusterDNS": config.cluster_dns,
        "containerRuntimeEndpoint": config.container_runtime_endpoint,
        "podLogsDir": config.pod_logs_dir,
        "maxPods": config.max_pods,
        "resolvConf": config.resolv_conf,
        "cgroupRoot": config.cgroup_root,
        "maxParallelImagePulls": config.max_parallel_image_pulls,
        "containerLogMaxSize": config.container_log_max_size.to_string(),
        "containerLogMaxFiles": config.container_log_max_files,
        "containerLogMonitorInterval": time(logs::PERIOD),
        "evictionHard": thresholds(&config.node.eviction_hard),
        "nodeStatusUpdateFrequency": time(node::UPDATE),
        "nodeStatusReportFrequency": time(node::REPORT),
        "evictionPressureTransitionPeriod": go_duration(node::pressure::TRANSITION),
    } })
}

fn thresholds(all: &Thresholds) -> BTreeMap<&'static str, String> {
    let text = |t: Threshold| match t {
        Threshold::Quantity(n) => n.to_string(),
        Threshold::Share(share) => format!("{}%", share * 100.0),
    };
    let named = [
        ("memory.available", Some(all.memory)),
        ("nodefs.available", Some(all.nodefs)),
        ("nodefs.inodesFree", Some(all.nodefs_inodes)),
        ("imagefs.available", Some(all.imagefs)),
        ("imagefs.inodesFree", Some(all.imagefs_inodes)),
        ("pid.available", all.pids),
    ];
    named.into_iter().filter_map(|(signal, threshold)| Some((signal, text(threshold?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_in_force() {
        let mut config = Config::new("n");
        config.max_pods = 7;
        config.node.eviction_hard = "memory.available<1Gi,nodefs.available<5%".parse().unwrap();
        let got = &settings(&config)["kubeletconfig"];
        assert_eq!(got["maxPods"], 7);
        assert_eq!(got["enableServer"], false);
        assert_eq!(got["evictionHard"]["memory.available"], "1073741824");
        assert_eq!(got["evictionHard"]["nodefs.available"], "5%");
        assert_eq!(got["nodeStatusUpdateFrequency"], "10s");
        assert_eq!(got["nodeStatusReportFrequency"], "5m0s");
        assert_eq!(got["streamingConnectionIdleTimeout"], "4h0m0s");
    }
}
