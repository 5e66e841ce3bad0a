//! ResourceList in the runtime's and the kernel's units.

use std::collections::BTreeMap;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::spec::{self, Qos};
use crate::enforcement::{Enforcement, Limits, MemoryQos, QUOTA_PERIOD, Swap};
use objects::quantity::{self, ResourceList};

/// The least cpu shares that the kernel takes.
pub(crate) const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
const MIN_QUOTA: i64 = 1000;
/// The quota of what is not limited, in the runtime's words.
pub(crate) const NO_QUOTA: i64 = -1;

/// cpu in thousandths as cgroup v1 shares.
pub(crate) fn shares(milli_cpu: i64) -> u64 {
    (u64::try_from(milli_cpu).unwrap_or(0) * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// cpu in thousandths as a quota in microseconds per period of as many; 0 for none.
fn quota(milli_cpu: i64, period: i64) -> i64 {
    if milli_cpu == 0 { 0 } else { (milli_cpu.saturating_mul(period) / 1000).max(MIN_QUOTA) }
}

/// The thousandths of cpu of which shares were made.
fn milli_of_shares(shares: i64) -> i64 {
    i64::try_from((i128::from(shares) * 1000).div_euclid(1024) + i128::from(shares * 1000 % 1024 != 0))
        .unwrap_or(i64::MAX)
}

/// The thousandths of cpu of which a quota in microseconds per period of as many was made.
fn milli_of_quota(quota: i64, period: i64) -> i64 {
    i64::try_from(i128::from(quota) * 1000 / i128::from(period.max(1))).unwrap_or(i64::MAX)
}

/// Shares as a cgroup v2 weight; runc's conversion.
pub(crate) fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - 2) * 9999 / 262_142
}

/// The least shares of which a cgroup v2 weight is made.
pub(crate) fn shares_of_weight(weight: u64) -> u64 {
    MIN_SHARES + ((weight.clamp(1, 10_000) - 1) * 262_142).div_ceil(9999)
}

/// A container's resources with the Pod's own limits where it has none.
pub(crate) fn effective(pod: &Pod, container: &Container) -> ResourceRequirements {
    let mut all = container.resources.clone().unwrap_or_default();
    let of_pod = spec::spec(pod).resources.as_ref().and_then(|r| r.limits.as_ref());
    for name in ["cpu", "memory"] {
        let own = spec::amount(all.limits.as_ref(), name);
        if let Some(limit) =
            of_pod.and_then(|list| list.get(name)).filter(|l| own == 0 && quantity::milli(Some(l)) != 0)
        {
            all.limits.get_or_insert_default().insert(name.to_owned(), limit.clone());
        }
    }
    all
}

/// The memory in bytes that a Pod itself requests beyond its containers, in equal parts for each of them.
fn left_to_each(pod: &Pod) -> i64 {
    let requests = spec::spec(pod).resources.as_ref().and_then(|r| r.requests.as_ref());
    let whole = quantity::value(requests.and_then(|r| r.get("memory")));
    let count = spec::containers(pod).len() + spec::init_containers(pod).len();
    let of_containers = objects::resources::container_requests_of(pod).memory;
    match i128::try_from(count) {
        Ok(count) if whole > 0 && count > 0 => {
            i64::try_from((i128::from(whole) - of_containers) / count).unwrap_or(0)
        }
        _ => 0,
    }
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
    let more = left_to_each(pod);
    let score = |bytes: i64| {
        let share = 1000_i128 * (i128::from(bytes) + i128::from(more)) / i128::from(node_memory);
        1000_i64.saturating_sub(i64::try_from(share).unwrap_or(i64::MAX))
    };
    let mut adj = score(memory(container));
    let sidecar =
        spec::init_containers(pod).iter().any(|c| c.name == container.name) && spec::is_sidecar(container);
    if sidecar {
        let least = spec::containers(pod).iter().map(memory).min().unwrap_or(0);
        adj = adj.min(score(least));
    }
    adj.clamp(3, 999)
}

/// A size of huge pages in bytes as the kernel and the runtime name it (`2MB`).
pub(crate) fn page_name(bytes: u64) -> String {
    match bytes {
        p if p >= 1 << 30 => format!("{}GB", p >> 30),
        p if p >= 1 << 20 => format!("{}MB", p >> 20),
        p => format!("{}KB", p >> 10),
    }
}

/// Limits of huge pages in bytes by page size, as the runtime names sizes (`2MB`): one for each size of the machine, which is
/// the container's own, the Pod's, or 0.
fn hugepages(pod: &Pod, container: &Container, page_sizes: &[u64]) -> Vec<pb::HugepageLimit> {
    let of_pod = spec::spec(pod).resources.as_ref().and_then(|r| r.limits.as_ref());
    let own = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let mut limits: BTreeMap<u64, u64> = BTreeMap::new();
    for (name, amount) in of_pod.into_iter().chain(own).flatten() {
        let size = name.strip_prefix("hugepages-").and_then(|size| api::quantity::Quantity::parse(size).ok());
        if let Some(size) = size.and_then(|size| u64::try_from(size.value()).ok()) {
            limits.insert(size, u64::try_from(quantity::value(Some(amount))).unwrap_or(0));
        }
    }
    let one = |size: &u64| pb::HugepageLimit {
        page_size: page_name(*size),
        limit: limits.get(size).copied().unwrap_or(0),
    };
    page_sizes.iter().map(one).collect()
}

/// A container's resources.
pub(crate) fn container_resources(
    pod: &Pod,
    container: &Container,
    limits: &Limits,
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
    let mut all = pb::LinuxContainerResources {
        cpu_shares: shares(requested) as i64,
        memory_limit_in_bytes: memory / 1000,
        oom_score_adj: oom_score_adj(pod, container, limits.memory),
        hugepage_limits: hugepages(pod, container, &limits.page_sizes),
        ..limited(cpu, limits)
    };
    if limits.whole_containers() {
        all.unified.insert("memory.oom.group".into(), "1".into());
    }
    if limits.counts_swap {
        let swap = swap_limit(pod, container, limits);
        if limits.unified {
            all.unified.insert("memory.swap.max".into(), swap.to_string());
        } else {
            // Memory and swap together; nothing is swapped.
            all.memory_swap_limit_in_bytes = all.memory_limit_in_bytes;
        }
    }
    if let Some(qos) = limits.memory_qos() {
        all.unified.extend(memory_qos(pod, container, qos, limits));
    }
    all
}

/// A limit of cpu in thousandths in the runtime's units, if it is enforced.
fn limited(milli_cpu: i64, limits: &Limits) -> pb::LinuxContainerResources {
    let mut all = pb::LinuxContainerResources::default();
    if let Some(period) = limits.by.cpu_period {
        all.cpu_period = period;
        all.cpu_quota = quota(milli_cpu, period);
    }
    all
}

fn of_container(list: Option<&ResourceList>, name: &str) -> i64 {
    quantity::value(list.and_then(|list| list.get(name)))
}

/// Whether a container may swap at all; upstream's rule.
pub(crate) fn may_swap(pod: &Pod, container: &Container, limits: &Limits) -> bool {
    let of = container.resources.as_ref();
    let request = of_container(of.and_then(|r| r.requests.as_ref()), "memory");
    let limit = of_container(of.and_then(|r| r.limits.as_ref()), "memory");
    limits.by.swap == Swap::LimitedSwap
        && limits.counts_swap
        && limits.unified
        && spec::qos(pod) == Qos::Burstable
        && !spec::is_critical(pod)
        && request != limit
}

/// How much swap a container may use, in bytes; upstream's rule.
fn swap_limit(pod: &Pod, container: &Container, limits: &Limits) -> i64 {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    let request = of_container(requests, "memory");
    if !may_swap(pod, container, limits) || limits.memory <= 0 || request > limits.memory {
        return 0;
    }
    (request as f64 / limits.memory as f64 * limits.swap as f64) as i64
}

/// The settings of a container's cgroup by which memory is kept for it, and by which it is slowed down; upstream's rules.
fn memory_qos(pod: &Pod, container: &Container, qos: MemoryQos, limits: &Limits) -> BTreeMap<String, String> {
    let of = container.resources.as_ref();
    let request = of_container(of.and_then(|r| r.requests.as_ref()), "memory");
    let limit = of_container(of.and_then(|r| r.limits.as_ref()), "memory");
    let mut all = BTreeMap::new();
    if request != 0 && qos.reserves {
        let file = if spec::qos(pod) == Qos::Guaranteed { "memory.min" } else { "memory.low" };
        all.insert(file.to_owned(), request.to_string());
    } else {
        all.extend(["memory.min", "memory.low"].map(|file| (file.to_owned(), "0".to_owned())));
    }
    let most = if limit == 0 { limits.allocatable } else { limit };
    if request != limit && most > 0 && limits.page > 0 {
        let high = request as f64 + (most as f64 - request as f64) * qos.throttling;
        let high = (high / limits.page as f64).floor() as i64 * limits.page;
        if high > request {
            all.insert("memory.high".to_owned(), high.to_string());
        }
    }
    all
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
    let period = if reported.cpu_period > 0 { reported.cpu_period } else { QUOTA_PERIOD };
    let by = Enforcement { cpu_period: Some(period), ..Enforcement::default() };
    let expected = container_resources(pod, container, &Limits { by, ..Limits::default() });
    let put = |list: &mut Option<ResourceList>, name: &str, amount: Quantity| {
        if let Some(list) = list.as_mut().filter(|l| l.contains_key(name)) {
            list.insert(name.to_owned(), amount);
        }
    };
    if reported.cpu_quota > 0 && reported.cpu_quota != expected.cpu_quota {
        let milli = milli_of_quota(reported.cpu_quota, period);
        put(&mut all.limits, "cpu", quantity::from_milli(milli));
    }
    if reported.memory_limit_in_bytes > 0 && reported.memory_limit_in_bytes != expected.memory_limit_in_bytes
    {
        put(&mut all.limits, "memory", Quantity(reported.memory_limit_in_bytes.to_string()));
    }
    if reported.cpu_shares > 0 && reported.cpu_shares != expected.cpu_shares {
        put(&mut all.requests, "cpu", quantity::from_milli(milli_of_shares(reported.cpu_shares)));
    }
    all
}

/// The settings of the cgroup of a whole Pod, of a class, or of all Pods. None of a quota or a limit of memory is that there
/// is none; none of another setting is that it is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodCgroup {
    /// cpu shares in v1's units.
    pub(crate) shares: u64,
    /// cpu quota in microseconds per period, and the period in microseconds, [`QUOTA_PERIOD`] if it is 0.
    pub(crate) quota: Option<i64>,
    pub(crate) period: i64,
    /// Limits of huge pages in bytes, by the sizes of pages in bytes.
    pub(crate) hugepages: BTreeMap<u64, u64>,
    /// Files of the unified hierarchy, each with its value.
    pub(crate) unified: BTreeMap<&'static str, i64>,
    /// Memory limit in bytes.
    pub(crate) memory: Option<i64>,
    /// Limit of process ids.
    pub(crate) pids: Option<i64>,
}

/// The limits of huge pages of a Pod: what it asks for of each size.
fn of_pod(pod: &Pod, limits: &Limits) -> BTreeMap<u64, u64> {
    let one = |size: &u64| {
        let name = format!("hugepages-{}", crate::node::status::binary(*size).0);
        (*size, u64::try_from(spec::pod_request(pod, &name)).unwrap_or(0))
    };
    limits.page_sizes.iter().map(one).collect()
}

/// A Pod's cgroup.
pub(crate) fn pod_cgroup(pod: &Pod, limits: &Limits) -> PodCgroup {
    let class = spec::qos(pod);
    let hugepages = of_pod(pod, limits);
    if class == Qos::BestEffort {
        let pids = limits.by.pod_pids_limit;
        return PodCgroup { shares: MIN_SHARES, pids, hugepages, ..PodCgroup::default() };
    }
    let some = |v: i64| (v > 0).then_some(v);
    let cpu = spec::pod_limit(pod, "cpu");
    let mut unified = BTreeMap::new();
    let request = spec::pod_request(pod, "memory");
    if limits.memory_qos().is_some_and(|qos| qos.reserves) && request > 0 {
        unified.insert(if class == Qos::Guaranteed { "memory.min" } else { "memory.low" }, request);
    }
    PodCgroup {
        shares: shares(spec::pod_request(pod, "cpu")),
        quota: limits.by.cpu_period.and_then(|period| some(quota(cpu, period))),
        period: limits.by.cpu_period.unwrap_or(0),
        memory: some(spec::pod_limit(pod, "memory")),
        pids: limits.by.pod_pids_limit,
        hugepages,
        unified,
    }
}

/// The resources that the sandbox is told of: the Pod's overhead, and the sum of the containers.
pub(crate) fn sandbox_resources(
    pod: &Pod,
    limits: &Limits,
) -> (pb::LinuxContainerResources, pb::LinuxContainerResources) {
    let overhead = spec::spec(pod).overhead.as_ref();
    let cpu = spec::amount(overhead, "cpu");
    let over = if overhead.is_some() {
        pb::LinuxContainerResources {
            cpu_shares: shares(cpu) as i64,
            memory_limit_in_bytes: spec::amount(overhead, "memory") / 1000,
            ..limited(cpu, limits)
        }
    } else {
        pb::LinuxContainerResources::default()
    };
    let whole = pod_cgroup(pod, limits);
    let sum = pb::LinuxContainerResources {
        cpu_period: limits.by.cpu_period.unwrap_or(0),
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
            assert_eq!(quota(milli, QUOTA_PERIOD), want, "{milli}m");
        }
        for (milli, period, want) in
            [(0, 20_000, 0), (5, 20_000, 1000), (200, 20_000, 4000), (1500, 1_000_000, 1_500_000)]
        {
            assert_eq!(quota(milli, period), want, "{milli}m in {period} us");
        }
        for (shares, want) in [(2, 1), (1024, 39), (262_144, 10_000)] {
            assert_eq!(weight(shares), want, "{shares}");
        }
    }

    fn pod(class: &str, request: &str, limit: &str) -> Pod {
        let amounts = |of: &str| if of.is_empty() { json!({}) } else { json!({"memory": of}) };
        serde_json::from_value(json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": amounts(request), "limits": amounts(limit)}}]},
            "status": {"qosClass": class}}))
        .unwrap()
    }

    /// The settings of the unified hierarchy of a Pod's container.
    fn unified(pod: &Pod, limits: &Limits) -> Vec<(String, String)> {
        let made = container_resources(pod, &spec::containers(pod)[0], limits);
        let mut all: Vec<_> = made.unified.into_iter().collect();
        all.sort();
        all
    }

    const GIB: i64 = 1 << 30;

    /// A machine with the unified hierarchy, 8 GiB of memory and 4 GiB of swap.
    fn machine(by: Enforcement) -> Limits {
        Limits {
            by,
            memory: 8 * GIB,
            swap: 4 * GIB,
            allocatable: 6 * GIB,
            page: 4096,
            unified: true,
            counts_swap: true,
            ..Limits::default()
        }
    }

    /// Upstream's figures of `TestSharesToMilliCPU`, and its 4 cases of `TestQuotaToMilliCPU`.
    #[test]
    fn units_of_the_kernel_are_read_back() {
        for (milli, expected) in [
            (0, 2),
            (1, 2),
            (2, 2),
            (3, 3),
            (4, 4),
            (32, 32),
            (64, 65),
            (100, 102),
            (250, 256),
            (500, 512),
            (1000, 1024),
            (1500, 1536),
            (2000, 2048),
        ] {
            assert_eq!(shares(milli), expected, "{milli}");
        }
        for milli in 0..=2000 {
            assert_eq!(milli_of_shares(shares(milli) as i64), milli.max(2));
        }
        for (quota, expected) in [(5_000, 50), (75_000, 750), (100_000, 1000), (150_000, 1500)] {
            assert_eq!(milli_of_quota(quota, 100_000), expected);
        }
    }

    /// Upstream's 6 cases of `TestGenerateLinuxContainerResources`: the same three for each version of cgroups, of which only
    /// the second one ends a container as a whole.
    #[test]
    fn containers_of_each_class() {
        for unified in [false, true] {
            let limits = Limits { memory: 17_179_860_387, unified, ..Limits::default() };
            let check = |resources: serde_json::Value, expected: (i64, i64, i64)| {
                let pod = json!({"spec": {"containers": [{"name": "c1", "resources": resources}]}});
                let pod: Pod = serde_json::from_value(pod).unwrap();
                let got = container_resources(&pod, &spec::containers(&pod)[0], &limits);
                assert_eq!(
                    (got.cpu_shares, got.memory_limit_in_bytes, got.oom_score_adj),
                    expected,
                    "{resources}"
                );
                let whole = got.unified.get("memory.oom.group").map(String::as_str);
                assert_eq!(whole, unified.then_some("1"));
                assert!(got.unified.len() <= 1, "{:?}", got.unified);
            };
            let less = json!({"cpu": "250m", "memory": "500Mi"});
            let more = json!({"cpu": "500m", "memory": "750Mi"});
            check(json!({"requests": less, "limits": less}), (256, 524_288_000, -997));
            check(json!({"requests": less, "limits": more}), (256, 786_432_000, 970));
            check(json!({}), (2, 0, 1000));
        }
    }

    /// The cases of upstream's `TestGenerateLinuxContainerResourcesWithSwap`.
    #[test]
    fn swap_as_upstream_gives_it() {
        let check = |swap: Swap, pod: &Pod, expected: i64| {
            let limits = machine(Enforcement { swap, ..Enforcement::default() });
            let got = unified(pod, &limits);
            let want = ("memory.swap.max".to_owned(), expected.to_string());
            assert!(got.contains(&want), "{got:?} {expected}");
            let uncounted = Limits { counts_swap: false, ..limits.clone() };
            assert!(unified(pod, &uncounted).iter().all(|(file, _)| file != "memory.swap.max"));
            // v1 has no limited swap.
            let v1 = Limits { unified: false, ..limits };
            let made = container_resources(pod, &spec::containers(pod)[0], &v1);
            assert!(made.unified.is_empty());
            assert_eq!(made.memory_swap_limit_in_bytes, made.memory_limit_in_bytes);
        };
        check(Swap::NoSwap, &pod("Burstable", "1Gi", "2Gi"), 0);
        check(Swap::LimitedSwap, &pod("Burstable", "1Gi", "2Gi"), GIB / 2);
        check(Swap::LimitedSwap, &pod("Burstable", "2Gi", ""), GIB);
        check(Swap::LimitedSwap, &pod("Burstable", "", ""), 0);
        check(Swap::LimitedSwap, &pod("Burstable", "1Gi", "1Gi"), 0);
        check(Swap::LimitedSwap, &pod("Burstable", "9Gi", "10Gi"), 0);
        check(Swap::LimitedSwap, &pod("BestEffort", "", ""), 0);
        check(Swap::LimitedSwap, &pod("Guaranteed", "1Gi", "1Gi"), 0);
        let mut critical = pod("Burstable", "1Gi", "2Gi");
        critical.spec.as_mut().unwrap().priority = Some(spec::SYSTEM_CRITICAL);
        check(Swap::LimitedSwap, &critical, 0);
    }

    #[test]
    fn containers_end_as_a_whole_or_by_the_process() {
        let check = |single: Option<bool>, unified_hierarchy: bool, expected: bool| {
            let by = Enforcement { single_process_oom_kill: single, ..Enforcement::default() };
            let limits = Limits { unified: unified_hierarchy, counts_swap: false, ..machine(by) };
            let want =
                if expected { vec![("memory.oom.group".to_owned(), "1".to_owned())] } else { Vec::new() };
            assert_eq!(unified(&pod("BestEffort", "", ""), &limits), want);
        };
        check(None, true, true);
        check(None, false, false);
        check(Some(true), true, false);
        check(Some(false), true, true);
    }

    /// The cases of upstream's `TestGenerateContainerConfigWithMemoryQoSEnforced`, and of its policies.
    #[test]
    fn memory_is_kept_and_slowed_down_as_upstream_does() {
        let check = |reserves: bool, pod: &Pod, expected: &[(&str, i64)], of_pod: &[(&str, i64)]| {
            let qos = MemoryQos { throttling: 0.9, reserves };
            let by = Enforcement {
                memory_qos: Some(qos),
                single_process_oom_kill: Some(true),
                ..Enforcement::default()
            };
            let limits = Limits { counts_swap: false, ..machine(by) };
            let want: Vec<_> =
                expected.iter().map(|(file, value)| ((*file).to_owned(), value.to_string())).collect();
            assert_eq!(unified(pod, &limits), want);
            assert_eq!(pod_cgroup(pod, &limits).unified.into_iter().collect::<Vec<_>>(), of_pod);
            let v1 = Limits { unified: false, ..limits };
            assert!(unified(pod, &v1).is_empty() && pod_cgroup(pod, &v1).unified.is_empty());
        };
        let floor = |bytes: f64| (bytes / 4096.0).floor() as i64 * 4096;
        let mib = 1024.0 * 1024.0;
        let limited = floor(128.0 * mib + (256.0 - 128.0) * mib * 0.9);
        let unlimited = floor(128.0 * mib + (6144.0 - 128.0) * mib * 0.9);
        let ask = 128 << 20;
        let burstable = pod("Burstable", "128Mi", "256Mi");
        check(true, &burstable, &[("memory.high", limited), ("memory.low", ask)], &[("memory.low", ask)]);
        check(false, &burstable, &[("memory.high", limited), ("memory.low", 0), ("memory.min", 0)], &[]);
        let open = pod("Burstable", "128Mi", "");
        check(true, &open, &[("memory.high", unlimited), ("memory.low", ask)], &[("memory.low", ask)]);
        let guaranteed = pod("Guaranteed", "128Mi", "128Mi");
        check(true, &guaranteed, &[("memory.min", ask)], &[("memory.min", ask)]);
        check(false, &guaranteed, &[("memory.low", 0), ("memory.min", 0)], &[]);
        let none = pod("BestEffort", "", "");
        check(true, &none, &[("memory.low", 0), ("memory.min", 0)], &[]);
    }

    #[test]
    fn limits_of_cpu_are_enforced_in_the_period_or_not_at_all() {
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"overhead": {"cpu": "100m"}, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}]}}))
        .unwrap();
        let check = |period: Option<i64>, expected: (i64, i64), of_pod: Option<i64>| {
            let by = Enforcement { cpu_period: period, ..Enforcement::default() };
            let limits = Limits { by, ..Limits::default() };
            let made = container_resources(&pod, &spec::containers(&pod)[0], &limits);
            assert_eq!((made.cpu_period, made.cpu_quota), expected);
            assert_eq!(pod_cgroup(&pod, &limits).quota, of_pod);
            let (over, sum) = sandbox_resources(&pod, &limits);
            assert_eq!((over.cpu_period, sum.cpu_period), (expected.0, expected.0));
        };
        check(Some(100_000), (100_000, 20_000), Some(30_000));
        check(Some(20_000), (20_000, 4000), Some(6000));
        check(None, (0, 0), None);
    }

    /// Upstream's 12 cases of `TestGetHugepageLimitsFromResources`, on a machine with both sizes.
    #[test]
    fn huge_pages_are_limited_for_each_size_of_the_machine() {
        let check = |of_pod: serde_json::Value, own: serde_json::Value, expected: [u64; 2]| {
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "resources": {"limits": of_pod}, "containers": [{"name": "c", "resources": {"limits": own}}]}}))
            .unwrap();
            let limits = Limits { page_sizes: vec![2 << 20, 1 << 30], ..Limits::default() };
            let made = container_resources(&pod, &spec::containers(&pod)[0], &limits).hugepage_limits;
            let made: Vec<_> = made.iter().map(|l| (l.page_size.as_str(), l.limit)).collect();
            assert_eq!(made, [("2MB", expected[0]), ("1GB", expected[1])], "{of_pod} {own}");
        };
        let (small, large) = (2 << 20, 2 << 30);
        let none = || json!({});
        let (two_mi, one_gi) = (json!({"hugepages-2Mi": "2Mi"}), json!({"hugepages-1Gi": "2Gi"}));
        let both = json!({"hugepages-2Mi": "2Mi", "hugepages-1Gi": "2Gi"});
        check(none(), two_mi.clone(), [small, 0]);
        check(none(), one_gi.clone(), [0, large]);
        check(none(), json!({"hugepages-2MB": "2Mi"}), [0, 0]);
        check(none(), json!({"hugepages-1GB": "2Gi"}), [0, 0]);
        check(none(), both.clone(), [small, large]);
        check(none(), json!({"hugepages-2MB": "2Mi", "hugepages-1GB": "2Gi"}), [0, 0]);
        check(two_mi.clone(), none(), [small, 0]);
        check(one_gi.clone(), none(), [0, large]);
        check(both.clone(), none(), [small, large]);
        check(json!({"hugepages-2Mi": "4Mi"}), two_mi, [small, 0]);
        check(json!({"hugepages-1Gi": "4Gi"}), one_gi, [0, large]);
        check(json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "4Gi"}), both, [small, large]);
    }

    /// Upstream's 23 cases of `TestGetContainerOOMScoreAdjust`. Containers are `REQUEST-LIMIT` in millions of bytes of memory,
    /// sidecars with `*`; the whole Pod's memory likewise.
    #[test]
    fn the_kernel_kills_those_first_that_ask_for_least() {
        let amounts = |text: &str| {
            let (request, limit) = text.split_once('-').unwrap();
            let list = |of: &str| if of.is_empty() { json!({}) } else { json!({"memory": format!("{of}M")}) };
            json!({"requests": list(request), "limits": list(limit)})
        };
        let made = |whole: &str, init: &str, regular: &str| -> Pod {
            let list = |of: &str| -> Vec<_> {
                of.split_whitespace()
                    .enumerate()
                    .map(|(n, text)| {
                        let mut c = json!({"name": format!("{n}{text}"), "resources": amounts(text.trim_end_matches('*'))});
                        if text.ends_with('*') {
                            c["restartPolicy"] = json!("Always");
                        }
                        c
                    })
                    .collect()
            };
            let mut spec = json!({"initContainers": list(init), "containers": list(regular)});
            if !whole.is_empty() {
                spec["resources"] = amounts(whole);
                for kind in ["requests", "limits"] {
                    spec["resources"][kind]["cpu"] = json!("5m");
                }
            }
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let scores = |pod: &Pod, memory: i64| -> Vec<i64> {
            let all = spec::init_containers(pod).iter().chain(spec::containers(pod));
            all.map(|c| oom_score_adj(pod, c, memory)).collect()
        };
        let check = |whole: &str, init: &str, regular: &str, memory: i64, expected: &[i64]| {
            let pod = made(whole, init, regular);
            assert_eq!(scores(&pod, memory), expected, "{whole} [{init}] {regular}");
        };
        let with = |change: &dyn Fn(&mut serde_json::Value), memory: i64, expected: i64| {
            let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": {}}]}});
            change(&mut pod["spec"]);
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(scores(&pod, memory), [expected], "{pod:?}");
        };
        let (four, eight) = (4_000_000_000, 8_000_000_000);
        let own = |r: serde_json::Value| {
            move |spec: &mut serde_json::Value| spec["containers"][0]["resources"] = r.clone()
        };
        with(&own(json!({"limits": {"cpu": "10"}})), four, 999);
        with(&own(json!({"requests": {"cpu": "0"}, "limits": {"memory": "10G"}})), eight, 999);
        with(&own(json!({"limits": {"memory": "0"}})), 7_230_457_451, 1000);
        with(&own(json!({})), four, 1000);
        let full = json!({"cpu": "5m", "memory": "10G"});
        with(&own(json!({"requests": full.clone(), "limits": full})), 123_456_789, -997);
        let half = json!({"requests": {"cpu": "5m", "memory": "4G"}, "limits": {"memory": "10G"}});
        with(&own(half), eight, 500);
        with(&own(json!({"requests": {"cpu": "5m", "memory": "7999999999"}})), eight, 3);
        let critical = |class: &'static str, priority: i64| {
            move |spec: &mut serde_json::Value| {
                spec["priorityClassName"] = json!(class);
                spec["priority"] = json!(priority);
            }
        };
        with(&critical("system-cluster-critical", 2_000_000_000), four, 1000);
        with(&critical("system-node-critical", 2_000_001_000), four, -997);
        let one = "1000-1001";
        check("", "", one, eight, &[875]);
        check("", one, one, eight, &[875, 875]);
        check("", "1000-1001 400-1001*", one, eight, &[875, 875, 875]);
        check("", "1000-1001 1000-1001*", one, eight, &[875, 875, 875]);
        check("", "1000-1001 4000-1001*", one, eight, &[875, 500, 875]);
        let (guaranteed, burstable) = ("2000-2000", "2000-2001");
        check(guaranteed, "", "- -", four, &[-997, -997]);
        check(guaranteed, "", "1000-1000 1000-1000", four, &[-997, -997]);
        check(guaranteed, "", "1000-1001 -", four, &[-997, -997]);
        check(burstable, "", "- -", four, &[750, 750]);
        check(burstable, "", "1000-1000 1000-1000", four, &[750, 750]);
        check(burstable, "", "1000-1000 -", four, &[625, 875]);
        check(burstable, "-*", "-", four, &[750, 750]);
        check(burstable, "1000-1001*", one, four, &[750, 750]);
        check(burstable, "200-2001*", "1000-2001 500-2001", four, &[850, 725, 850]);
    }

    /// Upstream's 22 cases of `TestResourceConfigForPod`, and the cpu of its 8 of `TestMilliCPUToQuota`. Amounts are
    /// `CPU,MEMORY-CPU,MEMORY` of requests and limits in thousandths and MiB. DIFFERENCE: a quota that is not enforced is none
    /// here, and its period is not told.
    #[test]
    fn cgroups_of_pods() {
        let amounts = |text: &str| {
            let list = |of: &str| match of.split_once(',') {
                Some((cpu, memory)) => json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}),
                None => json!({}),
            };
            let (requests, limits) = text.split_once('-').unwrap();
            json!({"requests": list(requests), "limits": list(limits)})
        };
        let check =
            |whole: &str, init: &str, regular: &str, period: Option<i64>, expected: [Option<i64>; 3]| {
                let list = |of: &str| -> Vec<_> {
                    let one = |text: &str| json!({"name": "c", "resources": amounts(text)});
                    of.split_whitespace().map(one).collect()
                };
                let mut spec = json!({"initContainers": list(init), "containers": list(regular)});
                if !whole.is_empty() {
                    spec["resources"] = amounts(whole);
                }
                let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
                let by = Enforcement { cpu_period: period, ..Enforcement::default() };
                let made = pod_cgroup(&pod, &Limits { by, ..Limits::default() });
                let memory = made.memory.map(|bytes| bytes >> 20);
                let shares = i64::try_from(made.shares).unwrap();
                assert_eq!([Some(shares), made.quota, memory], expected, "{whole} [{init}] {regular}");
            };
        let (usual, tuned) = (Some(100_000), Some(5000));
        let (hundred, two_hundred) = (Some(102), Some(204));
        let (burstable, guaranteed, requests) = ("100,100-200,200", "100,100-100,100", "100,100-");
        let partial = "100,100-200,200 100,100-";
        check("", "", "-", usual, [Some(2), None, None]);
        check("", "", requests, usual, [hundred, None, None]);
        check("", "", burstable, usual, [hundred, Some(20_000), Some(200)]);
        check("", "", burstable, None, [hundred, None, Some(200)]);
        check("", "", partial, usual, [two_hundred, None, None]);
        check("", "", burstable, tuned, [hundred, Some(1000), Some(200)]);
        check("", "", burstable, None, [hundred, None, Some(200)]);
        check("", "", partial, tuned, [two_hundred, None, None]);
        check("", "", guaranteed, usual, [hundred, Some(10_000), Some(100)]);
        check("", "", guaranteed, None, [hundred, None, Some(100)]);
        check("", "", guaranteed, tuned, [hundred, Some(1000), Some(100)]);
        check("", "", guaranteed, None, [hundred, None, Some(100)]);
        check("", "100,1-100,100 100,1-", "100,1-100,100 100,1-", tuned, [two_hundred, None, None]);
        check("-", "", "-", usual, [Some(2), None, None]);
        check(requests, "", "-", usual, [hundred, None, None]);
        check(requests, "", "10,50-", usual, [hundred, None, None]);
        check(burstable, "", "-", usual, [hundred, Some(20_000), Some(200)]);
        check(burstable, "", "10,50-50,100", usual, [hundred, Some(20_000), Some(200)]);
        check("200,300-", "", "200,200-200,200", usual, [two_hundred, Some(20_000), Some(200)]);
        check(guaranteed, "", "-", usual, [hundred, Some(10_000), Some(100)]);
        check(guaranteed, "", "10,50-50,100", usual, [hundred, Some(10_000), Some(100)]);
        check(guaranteed, "10,50-50,50", "10,50-50,50", usual, [hundred, Some(10_000), Some(100)]);
        for (milli, expected) in [
            (0, 0),
            (5, 1000),
            (9, 1000),
            (10, 1000),
            (200, 20_000),
            (500, 50_000),
            (1000, 100_000),
            (1500, 150_000),
        ] {
            assert_eq!(quota(milli, QUOTA_PERIOD), expected, "{milli}m");
        }
    }

    /// Upstream's 9 cases of `TestCalculateLinuxResources`.
    #[test]
    fn containers_in_kernel_units() {
        let check = |request: &str,
                     limit: &str,
                     memory: &str,
                     unified: bool,
                     one: bool,
                     expected: [i64; 3]| {
            let list = |of: &[(&str, &str)]| {
                let set = of.iter().filter(|(_, amount)| !amount.is_empty());
                json!(
                    set.map(|(name, amount)| ((*name).to_owned(), json!(amount)))
                        .collect::<serde_json::Map<_, _>>()
                )
            };
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": {
                "requests": list(&[("cpu", request)]), "limits": list(&[("cpu", limit), ("memory", memory)])}}]}}))
            .unwrap();
            let by = Enforcement { single_process_oom_kill: Some(one), ..Enforcement::default() };
            let limits = Limits { by, unified, ..Limits::default() };
            let made = container_resources(&pod, &spec::containers(&pod)[0], &limits);
            assert_eq!([made.cpu_quota, made.cpu_shares, made.memory_limit_in_bytes], expected);
            assert_eq!(made.cpu_period, 100_000);
            assert_eq!(made.unified.contains_key("memory.oom.group"), unified && !one, "{request} {limit}");
        };
        for unified in [false, true] {
            check("1", "2", "128Mi", unified, false, [200_000, 1024, 128 << 20]);
            check("2", "8", "0", unified, false, [800_000, 2048, 0]);
            check("", "2", "0", unified, false, [200_000, 2048, 0]);
            check("0", "2", "0", unified, false, [200_000, 2, 0]);
        }
        check("1", "2", "128Mi", true, true, [200_000, 1024, 128 << 20]);
    }

    /// Upstream's 8 cases of `TestGetContainerSwapBehavior`: whether a container may swap at all.
    #[test]
    fn who_may_swap() {
        let check = |swap: Swap,
                     counts_swap: bool,
                     unified: bool,
                     class: &str,
                     amounts: [&str; 2],
                     expected: bool| {
            let by = Enforcement { swap, ..Enforcement::default() };
            let limits = Limits { unified, counts_swap, ..machine(by) };
            let pod = pod(class, amounts[0], amounts[1]);
            let made = container_resources(&pod, &spec::containers(&pod)[0], &limits);
            let swap = made.unified.get("memory.swap.max").is_some_and(|max| max != "0");
            assert_eq!(swap, expected, "{class} {amounts:?}");
        };
        let usual = ["1Gi", "2Gi"];
        check(Swap::NoSwap, true, true, "Burstable", usual, false);
        check(Swap::LimitedSwap, false, true, "Burstable", usual, false);
        check(Swap::LimitedSwap, true, false, "Burstable", usual, false);
        check(Swap::LimitedSwap, true, true, "BestEffort", usual, false);
        check(Swap::LimitedSwap, true, true, "Guaranteed", usual, false);
        check(Swap::LimitedSwap, true, true, "Burstable", ["0", "0"], false);
        check(Swap::LimitedSwap, true, true, "Burstable", ["100Mi", "100Mi"], false);
        check(Swap::LimitedSwap, true, true, "Burstable", usual, true);
    }
}
