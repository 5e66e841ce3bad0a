//! ResourceList in the runtime's and the kernel's units.

use std::collections::BTreeMap;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::spec::{self, Qos};
use objects::quantity::{self, ResourceList};

/// The least cpu shares that the kernel takes.
pub(crate) const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
/// The scheduling period that quotas are given for, in microseconds.
pub(crate) const QUOTA_PERIOD: i64 = 100_000;
const MIN_QUOTA: i64 = 1000;
/// The quota of what is not limited, in the runtime's words.
pub(crate) const NO_QUOTA: i64 = -1;

/// cpu in thousandths as cgroup v1 shares.
pub(crate) fn shares(milli_cpu: i64) -> u64 {
    (u64::try_from(milli_cpu).unwrap_or(0) * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// cpu in thousandths as a quota in microseconds per period; 0 for none.
pub(crate) fn quota(milli_cpu: i64) -> i64 {
    if milli_cpu == 0 { 0 } else { (milli_cpu * QUOTA_PERIOD / 1000).max(MIN_QUOTA) }
}

/// Shares as a cgroup v2 weight; runc's conversion.
pub(crate) fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - 2) * 9999 / 262_142
}

/// How early the kernel kills a container's processes when memory runs out.
pub(crate) fn oom_score_adj(pod: &Pod, container: &Container, node_memory: i64) -> i64 {
    let critical = spec::spec(pod).priority_class_name.as_deref() == Some("system-node-critical");
    let class = spec::qos(pod);
    if critical || class == Qos::Guaranteed {
        return -997;
    }
    if class == Qos::BestEffort || node_memory <= 0 {
        return 1000;
    }
    let memory = |c: &Container| {
        quantity::value(c.resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|r| r.get("memory")))
    };
    let score = |bytes: i64| 1000 - (1000_i128 * i128::from(bytes) / i128::from(node_memory)) as i64;
    let mut adj = score(memory(container));
    let sidecar =
        spec::init_containers(pod).iter().any(|c| c.name == container.name) && spec::is_sidecar(container);
    if sidecar {
        let least = spec::containers(pod).iter().map(memory).min().unwrap_or(0);
        adj = adj.min(score(least));
    }
    adj.clamp(3, 999)
}

/// Limits of huge pages in bytes by page size, as the runtime names sizes (`2MB`).
fn hugepages(resources: Option<&ResourceList>) -> Vec<pb::HugepageLimit> {
    let mut limits: BTreeMap<String, u64> = BTreeMap::new();
    for (name, amount) in resources.into_iter().flatten() {
        let Some(size) = name.strip_prefix("hugepages-") else { continue };
        let page = match api::quantity::Quantity::parse(size) {
            Ok(q) => q.value(),
            Err(_) => continue,
        };
        let unit = match page {
            p if p >= 1 << 30 => format!("{}GB", p >> 30),
            p if p >= 1 << 20 => format!("{}MB", p >> 20),
            p => format!("{}KB", p >> 10),
        };
        limits.insert(unit, u64::try_from(quantity::value(Some(amount))).unwrap_or(0));
    }
    limits.into_iter().map(|(page_size, limit)| pb::HugepageLimit { page_size, limit }).collect()
}

/// A container's resources.
pub(crate) fn container_resources(
    pod: &Pod,
    container: &Container,
    node_memory: i64,
) -> pb::LinuxContainerResources {
    let r = container.resources.clone().unwrap_or_default();
    let of_pod = spec::spec(pod).resources.as_ref().and_then(|r| r.limits.as_ref());
    let limit = |name: &str| match spec::amount(r.limits.as_ref(), name) {
        0 => spec::amount(of_pod, name),
        own => own,
    };
    let (cpu, memory) = (limit("cpu"), limit("memory"));
    let requested = match r.requests.as_ref().and_then(|r| r.get("cpu")) {
        Some(q) => quantity::milli(Some(q)),
        None => cpu,
    };
    pb::LinuxContainerResources {
        cpu_period: QUOTA_PERIOD,
        cpu_quota: quota(cpu),
        cpu_shares: shares(requested) as i64,
        memory_limit_in_bytes: memory / 1000,
        oom_score_adj: oom_score_adj(pod, container, node_memory),
        hugepage_limits: hugepages(r.limits.as_ref()),
        ..pb::LinuxContainerResources::default()
    }
}

/// The resources of a running container: those of its specification, unless the runtime reports others.
pub(crate) fn actual(
    pod: &Pod,
    container: &Container,
    reported: Option<&pb::LinuxContainerResources>,
) -> ResourceRequirements {
    let mut all = container.resources.clone().unwrap_or_default();
    let Some(reported) = reported else { return all };
    // A difference by the rounding of the kernel's units is none.
    let expected = container_resources(pod, container, 0);
    let put = |list: &mut Option<ResourceList>, name: &str, amount: Quantity| {
        if let Some(list) = list.as_mut().filter(|l| l.contains_key(name)) {
            list.insert(name.to_owned(), amount);
        }
    };
    if reported.cpu_quota > 0 && reported.cpu_quota != expected.cpu_quota {
        let period = if reported.cpu_period > 0 { reported.cpu_period } else { QUOTA_PERIOD };
        let milli = i128::from(reported.cpu_quota) * 1000 / i128::from(period);
        put(&mut all.limits, "cpu", quantity::from_milli(milli.try_into().unwrap_or(i64::MAX)));
    }
    if reported.memory_limit_in_bytes > 0 && reported.memory_limit_in_bytes != expected.memory_limit_in_bytes
    {
        put(&mut all.limits, "memory", Quantity(reported.memory_limit_in_bytes.to_string()));
    }
    if reported.cpu_shares > 0 && reported.cpu_shares != expected.cpu_shares {
        let milli = (i128::from(reported.cpu_shares) * 1000 + 1023) / 1024;
        put(&mut all.requests, "cpu", quantity::from_milli(milli.try_into().unwrap_or(i64::MAX)));
    }
    all
}

/// The settings of the cgroup of a whole Pod; none for a setting that is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodCgroup {
    /// cpu shares in v1's units.
    pub(crate) shares: u64,
    /// cpu quota in microseconds per [`QUOTA_PERIOD`].
    pub(crate) quota: Option<i64>,
    /// Memory limit in bytes.
    pub(crate) memory: Option<i64>,
    /// Limit of process ids.
    pub(crate) pids: Option<i64>,
}

/// A Pod's cgroup.
pub(crate) fn pod_cgroup(pod: &Pod) -> PodCgroup {
    let class = spec::qos(pod);
    if class == Qos::BestEffort {
        return PodCgroup { shares: MIN_SHARES, ..PodCgroup::default() };
    }
    let some = |v: i64| (v > 0).then_some(v);
    PodCgroup {
        shares: shares(spec::pod_request(pod, "cpu")),
        quota: some(quota(spec::pod_limit(pod, "cpu"))),
        memory: some(spec::pod_limit(pod, "memory")),
        pids: None,
    }
}

/// The resources that the sandbox is told of: the Pod's overhead, and the sum of the containers.
pub(crate) fn sandbox_resources(pod: &Pod) -> (pb::LinuxContainerResources, pb::LinuxContainerResources) {
    let overhead = spec::spec(pod).overhead.as_ref();
    let cpu = spec::amount(overhead, "cpu");
    let over = if overhead.is_some() {
        pb::LinuxContainerResources {
            cpu_period: QUOTA_PERIOD,
            cpu_quota: quota(cpu),
            cpu_shares: shares(cpu) as i64,
            memory_limit_in_bytes: spec::amount(overhead, "memory") / 1000,
            ..pb::LinuxContainerResources::default()
        }
    } else {
        pb::LinuxContainerResources::default()
    };
    let whole = pod_cgroup(pod);
    let sum = pb::LinuxContainerResources {
        cpu_period: QUOTA_PERIOD,
        cpu_quota: whole.quota.unwrap_or(0),
        cpu_shares: whole.shares as i64,
        memory_limit_in_bytes: whole.memory.unwrap_or(0),
        ..pb::LinuxContainerResources::default()
    };
    (over, sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_has_what_the_runtime_says() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": {
            "requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "200m", "memory": "2Gi"}}}]}}))
        .unwrap();
        let container = &spec::containers(&pod)[0];
        let check = |shares: i64, quota: i64, memory: i64, want: serde_json::Value| {
            let reported = pb::LinuxContainerResources {
                cpu_shares: shares,
                cpu_quota: quota,
                cpu_period: QUOTA_PERIOD,
                memory_limit_in_bytes: memory,
                ..pb::LinuxContainerResources::default()
            };
            let got = serde_json::to_value(actual(&pod, container, Some(&reported))).unwrap();
            assert_eq!(got, want);
        };
        let said =
            json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "200m", "memory": "2Gi"}});
        check(102, 20_000, 2 << 30, said.clone());
        check(0, 0, 0, said);
        check(
            1024,
            150_000,
            1 << 20,
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "1048576"}}),
        );
        assert_eq!(Some(actual(&pod, container, None)), container.resources);
    }

    #[test]
    fn cpu_in_kernel_units() {
        for (milli, want) in [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (512_000, 262_144)] {
            assert_eq!(shares(milli), want, "{milli}m");
        }
        for (milli, want) in [(0, 0), (5, 1000), (10, 1000), (200, 20_000), (1500, 150_000)] {
            assert_eq!(quota(milli), want, "{milli}m");
        }
        for (shares, want) in [(2, 1), (1024, 39), (262_144, 10_000)] {
            assert_eq!(weight(shares), want, "{shares}");
        }
    }
}
