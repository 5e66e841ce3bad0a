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
    assert_eq!(hard(json!({"evictionHard": {"memory.available": "1Gi"}})).unwrap(), "memory.available<1Gi");
    let merged = json!({"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": true});
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
    assert_eq!((logs("-2s"), logs("3s")), (None, Some(Duration::from_secs(3))));
    assert!(serde_json::from_value::<Settings>(json!({"imageMinimumGCAge": "soon"})).is_err());
}

#[test]
fn what_the_node_keeps() {
    let made = settings(json!({
        "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
        "systemReserved": {"cpu": "1", "ephemeral-storage": "1Gi", "pid": "100"},
    }));
    let expected = node::Reserved { milli_cpus: 1100, memory: 1 << 30, storage: 1 << 30, pids: 100 };
    assert_eq!(made.node().unwrap().reserved, expected);
    for wrong in [
        json!({"kubeReserved": {"gpu": "1"}}),
        json!({"kubeReserved": {"cpu": "-1"}}),
        json!({"kubeReserved": {"cpu": "x"}}),
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
    let pulls = |value: Value| settings(value).image_pulls();
    assert_eq!(pulls(json!({})), 1);
    assert_eq!(pulls(json!({"maxParallelImagePulls": 3})), 3);
    assert_eq!(pulls(json!({"serializeImagePulls": false})), ALL_IMAGES);
    assert_eq!(pulls(json!({"serializeImagePulls": true})), 1);
    let pids = |limit: i64| settings(json!({"podPidsLimit": limit})).pids();
    assert_eq!((pids(-1), pids(100)), (None, Some(100)));
    let healthz = |value: Value| settings(value).healthz().map(|a| a.to_string());
    assert_eq!(healthz(json!({})).as_deref(), Some("127.0.0.1:10248"));
    assert_eq!(healthz(json!({"healthzPort": 0})), None);
    assert!(settings(json!({"allowedUnsafeSysctls": ["vm.swappiness"]})).sysctls().is_err());
    assert!(settings(json!({"allowedUnsafeSysctls": ["net.core.*"]})).sysctls().is_ok());
}

#[test]
fn parts_of_the_node_are_held_to() {
    let made = settings(json!({
        "enforceNodeAllocatable": ["pods", "system-reserved", "kube-reserved-compressible"],
        "systemReserved": {"cpu": "1", "memory": "1Gi"}, "systemReservedCgroup": "/system.slice",
        "kubeReserved": {"cpu": "500m"}, "kubeReservedCgroup": "/kube",
    }));
    let node = made.node().unwrap();
    let one = |of, name: &str, milli, memory, compressible| ReservedCgroup {
        of,
        name: name.to_owned(),
        milli_cpus: Some(milli),
        memory,
        pids: None,
        compressible,
    };
    let expected = [
        one(Others::System, "/system.slice", 1000, Some(1 << 30), false),
        one(Others::Kube, "/kube", 500, None, true),
    ];
    assert_eq!((node.enforce_allocatable, node.reserved_cgroups.as_slice()), (true, expected.as_slice()));
    let others = settings(json!({"enforceNodeAllocatable": ["kube-reserved"]})).node().unwrap();
    assert!(!others.enforce_allocatable);
}

fn gates(settings: &Settings) -> FeatureGates {
    super::super::validation::gates(settings).unwrap()
}

#[test]
fn limits_are_enforced_as_the_file_says() {
    let made = |value: Value| {
        let made = settings(value);
        made.enforcement(gates(&made))
    };
    assert_eq!(made(json!({})).unwrap(), Enforcement::default());
    let all = made(json!({
        "cpuCFSQuotaPeriod": "20ms", "memorySwap.swapBehavior": "LimitedSwap", "singleProcessOOMKill": true,
        "podPidsLimit": 7, "qosReserved": {"memory": "50%"}, "memoryReservationPolicy": "TieredReservation",
        "memoryThrottlingFactor": 0.5, "featureGates": {"MemoryQoS": true, "QOSReserved": true},
    }));
    let expected = Enforcement {
        cpu_period: Some(20_000),
        swap: Swap::LimitedSwap,
        single_process_oom_kill: Some(true),
        memory_qos: Some(MemoryQos { throttling: 0.5, reserves: true }),
        reserved_for_classes: Some(50),
        pod_pids_limit: Some(7),
    };
    assert_eq!(all.unwrap(), expected);
    assert_eq!(made(json!({"cpuCFSQuota": false})).unwrap().cpu_period, None);
    assert_eq!(made(json!({"qosReserved": {"memory": "50%"}})).unwrap().reserved_for_classes, None);
    for wrong in [json!({"cpu": "50%"}), json!({"memory": "50"}), json!({"memory": "101%"})] {
        assert!(made(json!({"qosReserved": wrong})).is_err(), "{wrong}");
    }
}

#[test]
fn restarts_back_off_as_upstreams() {
    let check = |value: Value, first: i64, longest: i64| {
        let made = settings(value.clone());
        let backoff = made.restart_backoff(gates(&made));
        assert_eq!((backoff.first.as_secs(), backoff.longest.as_secs()), (first, longest), "{value}");
    };
    check(json!({}), 10, 300);
    check(json!({"crashLoopBackOff.maxContainerRestartPeriod": "60s"}), 10, 60);
    check(json!({"crashLoopBackOff.maxContainerRestartPeriod": "3s"}), 3, 3);
    let reduced = "ReduceDefaultCrashLoopBackOffDecay";
    check(json!({"featureGates": {reduced: true}}), 1, 300);
    check(json!({"featureGates": {reduced: true, "KubeletCrashLoopBackOffMax": false}}), 1, 60);
    check(json!({"featureGates": {"KubeletCrashLoopBackOffMax": false}}), 10, 300);
}

#[test]
fn what_is_spoken_with_the_server() {
    let check = |value: Value, expected: Result<(bool, usize, usize, usize), &str>| {
        let got = settings(value.clone()).offer();
        let got = got.map(|(o, w)| (o.only_1_3, o.ciphers.len(), o.curves.len(), w.len()));
        assert_eq!(got.map_err(|e| e.to_string()), expected.map_err(str::to_owned), "{value}");
    };
    check(json!({}), Ok((false, 0, 0, 0)));
    check(json!({"tlsMinVersion": "VersionTLS13"}), Ok((true, 0, 0, 0)));
    check(json!({"tlsMinVersion": "VersionTLS10"}), Ok((false, 0, 0, 1)));
    check(json!({"tlsMinVersion": "SSL"}), Err("unknown tls version \"SSL\""));
    let (good, old) = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA");
    check(json!({"tlsCipherSuites": [good, old]}), Ok((false, 1, 0, 1)));
    let none = "none of tlsCipherSuites can be offered: all have known weaknesses";
    check(json!({"tlsCipherSuites": [old]}), Err(none));
    check(json!({"tlsCipherSuites": ["X"]}), Err("Cipher suite X not supported or doesn't exist"));
    check(json!({"tlsCurvePreferences": [29, 0]}), Ok((false, 0, 1, 1)));
    check(json!({"tlsCurvePreferences": [-1]}), Err("none of tlsCurvePreferences [-1] can be offered"));
}

#[test]
fn rates_and_times() {
    let made = |value: Value| settings(value);
    assert_eq!(made(json!({})).pull_rate(), Some(Rate { per_second: 5.0, burst: 10 }));
    assert_eq!(made(json!({"registryPullQPS": 0})).pull_rate(), None);
    let events = made(json!({"eventRecordQPS": 7, "eventBurst": 9})).event_rate();
    assert_eq!(events, Some(Rate { per_second: 7.0, burst: 9 }));
    assert_eq!(made(json!({})).trust().unwrap(), Trust::default());
    let short = made(json!({"authentication.webhook.cacheTTL": "1s"})).trust().unwrap();
    assert_eq!((short.tokens.as_secs(), short.allowed.as_secs()), (1, 300));
    assert!(made(json!({"authorization.webhook.cacheAuthorizedTTL": "-1s"})).trust().is_err());
    assert_eq!(made(json!({})).streaming_idle().unwrap(), Duration::from_hours(4));
    let anywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    assert_eq!(made(json!({"readOnlyPort": 0})).read_only(anywhere), None);
    let bound = made(json!({"readOnlyPort": 10255})).read_only(anywhere);
    assert_eq!(bound.map(|a| a.port()), Some(10255));
    assert_eq!((made(json!({"port": 0})).port(10250), made(json!({"port": 9})).port(10250)), (10250, 9));
}

#[test]
fn the_machine_goes_down_as_the_file_says() {
    let check = |value: Value, expected: &[(i32, i64)]| {
        let made = settings(value.clone());
        let periods = made.shutdown(gates(&made));
        let got: Vec<_> = periods.iter().map(|p| (p.priority, p.seconds)).collect();
        assert_eq!(got, expected, "{value}");
    };
    check(json!({}), &[]);
    let both = json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"});
    check(both, &[(0, 20), (2_000_000_000, 10)]);
    let by = json!([{"priority": 7, "shutdownGracePeriodSeconds": 9}]);
    check(json!({"shutdownGracePeriodByPodPriority": by.clone()}), &[(7, 9)]);
    let off = json!({"GracefulNodeShutdown": false, "GracefulNodeShutdownBasedOnPodPriority": false,
        "WindowsGracefulNodeShutdown": false});
    check(json!({"shutdownGracePeriodByPodPriority": by, "featureGates": off}), &[]);
}

#[test]
fn features_without_effect_are_told_of() {
    let told = |value: Value| settings(json!({"featureGates": value})).gates_without_effect();
    assert!(told(json!({"MemoryQoS": true, "NodeSwap": true, "EventedPLEG": false})).is_empty());
    let check = |gate: &str, on: bool, why: &str| {
        let text = format!("featureGates.{gate}={on} has no effect here: {why}");
        assert_eq!(told(json!({gate: on})), [text]);
    };
    let always = "the events of the container runtime are always used, if it sends any";
    check("EventedPLEG", true, always);
    check("PLEGOnDemandRelist", false, "the feature is not switched");
    for gate in HONOURED_GATES {
        assert!(told(json!({gate.name(): !gate.default()})).is_empty(), "{}", gate.name());
    }
}

#[test]
fn kernel_parameters_are_upstreams() {
    let right = |name: &str| KERNEL.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    assert!(kernel_errors(right).is_empty());
    let wrong = |name: &str| if name == "vm/panic_on_oom" { Some(1) } else { right(name) };
    assert_eq!(
        kernel_errors(wrong),
        ["invalid kernel flag: vm/panic_on_oom, expected value: 0, actual value: 1"]
    );
    assert_eq!(kernel_errors(|_| None).len(), KERNEL.len());
}
