//! The resources of a whole Pod: what its cgroup has of them, and how the API tells of it.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::resources::{MIN_SHARES, PodCgroup, pod_cgroup, shares_of_weight, weight};
use super::spec;
use crate::enforcement::{Enforcement, Limits, QUOTA_PERIOD};
use crate::node::status::binary;
use objects::Resources;
use objects::quantity::{self, ResourceList};
use objects::resources::{Counting, pod_limits, pod_requests};

/// The least limit of cpu in thousandths that the kernel keeps apart from none; upstream's `MinMilliCPULimit`.
const MIN_MILLI_LIMIT: i64 = 10;

/// The figures of a Pod's cgroup, as the kernel has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Its part of the processors: shares, or a weight in the unified hierarchy.
    pub part: u64,
    /// Whether the hierarchy is the unified one.
    pub unified: bool,
    /// Its time on processors in microseconds in each period of as many; none if it is not limited.
    pub quota: Option<i64>,
    /// The period in microseconds.
    pub period: i64,
    /// Its limit of memory in bytes, in whole pages; none if it is not limited.
    pub memory: Option<i64>,
    /// The size of a page in bytes.
    pub page: i64,
}

impl Figures {
    /// The settings, in the words of `wanted` where they are the same but for the kernel's rounding.
    pub(crate) fn now(&self, wanted: &PodCgroup) -> PodCgroup {
        let part = |shares: u64| if self.unified { weight(shares) } else { shares };
        let shares = if part(wanted.shares) == self.part {
            wanted.shares
        } else if self.unified {
            shares_of_weight(self.part)
        } else {
            self.part
        };
        let (has, period) =
            (self.period.max(1), if wanted.period > 0 { wanted.period } else { QUOTA_PERIOD });
        let quota = self.quota.map(|quota| scaled(quota, period, has));
        let pages = |bytes: i64| if self.page > 0 { bytes / self.page * self.page } else { bytes };
        let memory = if wanted.memory.map(pages) == self.memory { wanted.memory } else { self.memory };
        PodCgroup { shares, quota, memory, ..wanted.clone() }
    }
}

fn scaled(amount: i64, by: i64, from: i64) -> i64 {
    (i128::from(amount) * i128::from(by) / i128::from(from)).try_into().unwrap_or(i64::MAX)
}

/// The cgroup that the kernel would show for a Pod, with a quota of the period that it has.
fn expected(pod: &Pod, has: &Figures) -> PodCgroup {
    let by = Enforcement { cpu_period: Some(has.period.max(1)), ..Enforcement::default() };
    pod_cgroup(pod, &Limits { by, ..Limits::default() })
}

/// Request and limit of cpu in thousandths, and the limit of memory in bytes, that a Pod has by its cgroup; 0 for none.
fn amounts(pod: &Pod, has: &Figures) -> (i64, i64, i64) {
    let expected = expected(pod, has);
    let now = has.now(&expected);
    let request = if now.shares == expected.shares {
        spec::pod_request(pod, "cpu")
    } else {
        i64::try_from((u128::from(now.shares) * 1000).div_ceil(1024)).unwrap_or(i64::MAX)
    };
    let limit = match now.quota {
        quota if quota == expected.quota => spec::pod_limit(pod, "cpu"),
        Some(quota) => scaled(quota, 1000, has.period.max(1)),
        None => 0,
    };
    let memory =
        if now.memory == expected.memory { spec::pod_limit(pod, "memory") } else { now.memory.unwrap_or(0) };
    (request, limit, memory)
}

/// The resources that the Pod has itself, as far as its cgroup tells: those of its specification, unless the kernel has others.
pub(crate) fn actual(pod: &Pod, has: Option<&Figures>) -> ResourceRequirements {
    let mut all = spec::spec(pod).resources.clone().unwrap_or_default();
    let Some(has) = has else { return all };
    let overhead = |name: &str| {
        let amount = spec::amount(spec::spec(pod).overhead.as_ref(), name);
        if name == "cpu" { amount } else { amount / 1000 }
    };
    let (request, limit, memory) = amounts(pod, has);
    let mut put =
        |list: fn(&mut ResourceRequirements) -> &mut Option<ResourceList>, name: &str, whole: i64| {
            let Some(said) = list(&mut all).as_mut().and_then(|list| list.get_mut(name)) else { return };
            let own = (whole - overhead(name)).max(0);
            let same =
                if name == "cpu" { quantity::milli(Some(said)) } else { quantity::value(Some(said)) } == own;
            if !same {
                *said = if name == "cpu" { quantity::from_milli(own) } else { bytes(own.into()) };
            }
        };
    put(|r| &mut r.requests, "cpu", request);
    put(|r| &mut r.limits, "cpu", limit);
    put(|r| &mut r.limits, "memory", memory);
    all
}

fn bytes(amount: i128) -> Quantity {
    binary(amount.try_into().unwrap_or(0))
}

/// Amounts as the API has them, in the words of `said` where they are equal.
fn list(amounts: &Resources, said: Option<&ResourceList>) -> ResourceList {
    let scalar = amounts.scalar.iter().map(|(name, amount)| (name.as_str(), *amount));
    let all = [
        ("cpu", amounts.milli_cpu),
        ("memory", amounts.memory),
        ("ephemeral-storage", amounts.ephemeral_storage),
    ];
    let said = |name: &str| said.and_then(|list| list.get(name));
    let there = all.into_iter().chain(scalar).filter(|(name, amount)| *amount != 0 || said(name).is_some());
    there
        .map(|(name, amount)| {
            let equal = |q: &&Quantity| {
                let of = if name == "cpu" { quantity::milli(Some(q)) } else { quantity::value(Some(q)) };
                i128::from(of) == amount
            };
            let written = || match name {
                "cpu" => quantity::from_milli(amount.try_into().unwrap_or(i64::MAX)),
                "memory" | "ephemeral-storage" => bytes(amount),
                name if name.starts_with("hugepages-") => bytes(amount),
                _ => Quantity(amount.to_string()),
            };
            (name.to_owned(), said(name).filter(equal).cloned().unwrap_or_else(written))
        })
        .collect()
}

/// The requests of a whole Pod, as its status has them.
pub(crate) fn requested(pod: &Pod) -> ResourceList {
    let said = spec::spec(pod).resources.as_ref().and_then(|r| r.requests.as_ref());
    list(&pod_requests(pod, Counting::default()), said)
}

/// The resources of a whole Pod, as its status has them: of one that runs, with what the kernel has.
///
/// DIFFERENCE: upstream tells the kernel's rounding of an amount as that amount, and the request of memory with which a Pod
/// has begun to run for ever.
pub(crate) fn told(pod: &Pod, has: Option<&Figures>) -> ResourceRequirements {
    let own = spec::spec(pod).resources.clone().unwrap_or_default();
    let Some(has) = has else {
        return ResourceRequirements {
            requests: Some(requested(pod)).filter(|list| !list.is_empty()),
            limits: Some(list(&pod_limits(pod), own.limits.as_ref())).filter(|list| !list.is_empty()),
            ..own
        };
    };
    let (request, limit, memory) = amounts(pod, has);
    let aggregated = requested(pod);
    let mut requests = own.requests.clone().unwrap_or_default();
    let mut limits = own.limits.clone().unwrap_or_default();
    let least = i64::try_from(MIN_SHARES).unwrap_or(i64::MAX);
    set_milli(&mut requests, request, least);
    if let Some(amount) = aggregated.get("memory") {
        requests.entry("memory".to_owned()).or_insert_with(|| amount.clone());
    }
    set_milli(&mut limits, limit, MIN_MILLI_LIMIT);
    if memory > 0 && quantity::value(limits.get("memory")) != memory {
        limits.insert("memory".to_owned(), bytes(memory.into()));
    }
    let some = |list: ResourceList| Some(list).filter(|list| !list.is_empty());
    ResourceRequirements { requests: some(requests), limits: some(limits), ..own }
}

/// Puts an amount of cpu, unless it and what is there are no more than the kernel tells apart.
fn set_milli(list: &mut ResourceList, milli: i64, least: i64) {
    let said = quantity::milli(list.get("cpu"));
    if milli > 0 && milli != said && (milli > least || said > least) {
        list.insert("cpu".to_owned(), quantity::from_milli(milli));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PAGE: i64 = 4096;

    /// Resources as `CPU,MEMORY-CPU,MEMORY` of requests and limits, in thousandths and MiB.
    fn amounts_of(text: &str) -> Value {
        let list = |of: &str| -> Value {
            let (cpu, memory) = of.split_once(',').unwrap_or((of, ""));
            let set =
                [("cpu", cpu, "m"), ("memory", memory, "Mi")].into_iter().filter(|(_, n, _)| !n.is_empty());
            set.map(|(name, n, unit)| (name.to_owned(), json!(format!("{n}{unit}"))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let (requests, limits) = text.split_once('-').unwrap_or((text, ""));
        json!({"requests": list(requests), "limits": list(limits)})
    }

    fn pod(whole: &str, containers: &str, overhead: &str) -> Pod {
        let list: Vec<Value> =
            containers.split_whitespace().map(|c| json!({"name": "c", "resources": amounts_of(c)})).collect();
        let mut spec = json!({"containers": list});
        if !whole.is_empty() {
            spec["resources"] = amounts_of(whole);
        }
        if !overhead.is_empty() {
            spec["overhead"] = json!({"cpu": overhead});
        }
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    /// The figures of a Pod's cgroup as the kernel shows them.
    fn figures(pod: &Pod, unified: bool) -> Figures {
        let wanted = pod_cgroup(pod, &Limits::default());
        let part = if unified { weight(wanted.shares) } else { wanted.shares };
        let memory = wanted.memory.map(|bytes| bytes / PAGE * PAGE);
        Figures { part, unified, quota: wanted.quota, period: QUOTA_PERIOD, memory, page: PAGE }
    }

    fn words(r: &ResourceRequirements) -> String {
        let list = |list: &Option<ResourceList>| {
            let all: Vec<_> = list.iter().flatten().map(|(k, v)| format!("{k}={}", v.0)).collect();
            all.join(",")
        };
        format!("{} / {}", list(&r.requests), list(&r.limits))
    }

    #[test]
    fn a_pod_tells_what_it_has() {
        let check = |whole: &str, containers: &str, overhead: &str, waits: &str, runs: &str| {
            let pod = pod(whole, containers, overhead);
            assert_eq!(words(&told(&pod, None)), waits, "{whole} [{containers}]");
            for unified in [false, true] {
                let has = figures(&pod, unified);
                assert_eq!(words(&told(&pod, Some(&has))), runs, "{whole} [{containers}] {unified}");
            }
        };
        check("", "", "", " / ", " / ");
        check("", "-", "", " / ", " / ");
        let both = "cpu=100m,memory=64Mi / cpu=200m,memory=128Mi";
        check("", "100,64-200,128", "", both, both);
        check("100,64-200,128", "-", "", both, both);
        check("100,64-200,128", "50,32-100,64", "", both, both);
        check(
            "",
            "100,64-200,128 100,64",
            "",
            "cpu=200m,memory=128Mi / cpu=200m,memory=128Mi",
            "cpu=200m,memory=128Mi / ",
        );
        check("", "100", "50m", "cpu=150m / ", "cpu=150m / ");
        check("300", "100,64", "", "cpu=300m,memory=64Mi / ", "cpu=300m,memory=64Mi / ");
        // As much as the kernel does not tell apart.
        check("1-5", "-", "", "cpu=1m / cpu=5m", "cpu=1m / cpu=5m");
    }

    /// While a resize is under way the Pod has what its cgroup has.
    #[test]
    fn a_pod_that_is_resized_has_what_the_kernel_has() {
        let check = |has: &str, wants: &str, expected: &str| {
            let (before, after) = (pod(has, "-", ""), pod(wants, "-", ""));
            let figures = figures(&before, false);
            assert_eq!(words(&actual(&after, Some(&figures))), expected, "{has} {wants}");
            assert_eq!(actual(&after, None), after.spec.clone().unwrap().resources.unwrap());
        };
        check("100,64-200,128", "100,64-200,128", "cpu=100m,memory=64Mi / cpu=200m,memory=128Mi");
        check("100,64-200,128", "150,64-300,256", "cpu=100m,memory=64Mi / cpu=200m,memory=128Mi");
        check("100,64", "100,64-300,256", "cpu=100m,memory=64Mi / cpu=0,memory=0");
    }

    #[test]
    fn rounding_is_no_change() {
        let wanted = pod_cgroup(&pod("1000-2000,1", "-", ""), &Limits::default());
        let mut odd = wanted.clone();
        odd.memory = Some((1 << 20) + 1);
        for unified in [false, true] {
            let part = if unified { weight(1024) } else { 1024 };
            let has = Figures {
                part,
                unified,
                quota: Some(20_000),
                period: 10_000,
                memory: Some(1 << 20),
                page: PAGE,
            };
            assert_eq!(has.now(&wanted), wanted);
            assert_eq!(has.now(&odd), odd);
            let other = Figures { part: part + 5, memory: None, ..has };
            let now = other.now(&wanted);
            assert!(now.shares > wanted.shares && now.memory.is_none());
        }
        for part in 1..=10_000 {
            assert_eq!(weight(shares_of_weight(part)), part);
        }
    }
}
