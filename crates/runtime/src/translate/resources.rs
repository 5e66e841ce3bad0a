//! Limits and weights of a container.

use std::collections::HashMap;

use cri::runtime as pb;
use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimit, LinuxMemory, LinuxResources};

use super::error::TranslateError;
use super::machine::Machine;

/// The limits as OCI has them. A value of 0 says nothing, as in CRI.
pub fn resources(
    asked: &pb::LinuxContainerResources,
    machine: &Machine,
) -> Result<LinuxResources, TranslateError> {
    let mut cpu = LinuxCpu::default();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let positive = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
    cpu.set_period(positive(asked.cpu_period))
        .set_quota(Some(asked.cpu_quota).filter(|quota| *quota != 0))
        .set_shares(positive(asked.cpu_shares))
        .set_cpus(some(&asked.cpuset_cpus))
        .set_mems(some(&asked.cpuset_mems));
    let mut memory = LinuxMemory::default();
    let limit = Some(asked.memory_limit_in_bytes).filter(|limit| *limit != 0);
    memory.set_limit(limit);
    if machine.swap {
        // The limit of memory and swap together is that of memory, unless told otherwise: nothing is swapped.
        let together = Some(asked.memory_swap_limit_in_bytes).filter(|limit| *limit != 0);
        memory.set_swap(together.or(limit));
    }
    let mut made = LinuxResources::default();
    // The default has rules of devices, which the caller makes.
    made.set_devices(None).set_cpu(Some(cpu)).set_memory(Some(memory));
    if !asked.hugepage_limits.is_empty() {
        let any = asked.hugepage_limits.iter().any(|limit| limit.limit > 0);
        if machine.hugetlb {
            made.set_hugepage_limits(Some(asked.hugepage_limits.iter().map(hugepages).collect()));
        } else if any {
            return Err(TranslateError::Hugepages);
        }
    }
    if !asked.unified.is_empty() {
        if !machine.unified {
            return Err(TranslateError::Unified);
        }
        made.set_unified(Some(asked.unified.clone().into_iter().collect::<HashMap<_, _>>()));
    }
    Ok(made)
}

fn hugepages(limit: &pb::HugepageLimit) -> LinuxHugepageLimit {
    let mut made = LinuxHugepageLimit::default();
    made.set_page_size(limit.page_size.clone()).set_limit(i64::try_from(limit.limit).unwrap_or(i64::MAX));
    made
}

/// The limits of a container after a change: values that the change does not name stay.
pub fn merged(
    old: &pb::LinuxContainerResources,
    change: &pb::LinuxContainerResources,
) -> pb::LinuxContainerResources {
    let number = |old: i64, new: i64| if new == 0 { old } else { new };
    let text = |old: &String, new: &String| if new.is_empty() { old.clone() } else { new.clone() };
    let mut unified = old.unified.clone();
    unified.extend(change.unified.clone());
    pb::LinuxContainerResources {
        cpu_period: number(old.cpu_period, change.cpu_period),
        cpu_quota: number(old.cpu_quota, change.cpu_quota),
        cpu_shares: number(old.cpu_shares, change.cpu_shares),
        memory_limit_in_bytes: number(old.memory_limit_in_bytes, change.memory_limit_in_bytes),
        oom_score_adj: number(old.oom_score_adj, change.oom_score_adj),
        cpuset_cpus: text(&old.cpuset_cpus, &change.cpuset_cpus),
        cpuset_mems: text(&old.cpuset_mems, &change.cpuset_mems),
        hugepage_limits: if change.hugepage_limits.is_empty() {
            old.hugepage_limits.clone()
        } else {
            change.hugepage_limits.clone()
        },
        unified,
        memory_swap_limit_in_bytes: number(old.memory_swap_limit_in_bytes, change.memory_swap_limit_in_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let machine = Machine { swap: true, ..Machine::default() };
        let asked = pb::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 512,
            memory_limit_in_bytes: 1 << 20,
            cpuset_cpus: "0-1".into(),
            ..Default::default()
        };
        let made = resources(&asked, &machine).unwrap();
        let (cpu, memory) = (made.cpu().clone().unwrap(), (*made.memory()).unwrap());
        assert_eq!((cpu.period(), cpu.quota(), cpu.shares()), (Some(100_000), Some(50_000), Some(512)));
        assert_eq!((cpu.cpus().as_deref(), cpu.mems()), (Some("0-1"), &None));
        assert_eq!((memory.limit(), memory.swap()), (Some(1 << 20), Some(1 << 20)));
        let more = pb::LinuxContainerResources { memory_swap_limit_in_bytes: 1 << 21, ..asked.clone() };
        assert_eq!(resources(&more, &machine).unwrap().memory().unwrap().swap(), Some(1 << 21));
        let without = Machine::default();
        assert_eq!(resources(&more, &without).unwrap().memory().unwrap().swap(), None);
        let none = resources(&pb::LinuxContainerResources::default(), &machine).unwrap();
        assert_eq!(none.memory().unwrap(), LinuxMemory::default());
        let unified = pb::LinuxContainerResources {
            unified: [("memory.high".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        };
        assert!(matches!(resources(&unified, &machine), Err(TranslateError::Unified)));
        let of_v2 = Machine { unified: true, ..Machine::default() };
        assert_eq!(resources(&unified, &of_v2).unwrap().unified().as_ref().unwrap()["memory.high"], "1");
        let limit = |limit| pb::LinuxContainerResources {
            hugepage_limits: vec![pb::HugepageLimit { page_size: "2MB".into(), limit }],
            ..Default::default()
        };
        assert!(matches!(resources(&limit(1), &machine), Err(TranslateError::Hugepages)));
        assert!(resources(&limit(0), &machine).is_ok());
    }

    #[test]
    fn changes() {
        let old =
            pb::LinuxContainerResources { cpu_shares: 2, cpuset_cpus: "0".into(), ..Default::default() };
        let new =
            pb::LinuxContainerResources { cpu_shares: 4, memory_limit_in_bytes: 9, ..Default::default() };
        let both = merged(&old, &new);
        assert_eq!((both.cpu_shares, both.memory_limit_in_bytes, &both.cpuset_cpus[..]), (4, 9, "0"));
    }
}
