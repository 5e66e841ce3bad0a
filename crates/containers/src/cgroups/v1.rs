//! Limits as files of version 1.

use oci_spec::runtime::LinuxResources;

use super::write::Write;
use crate::error::{Error, Result};

fn write(controller: &'static str, file: impl Into<String>, value: impl ToString) -> Write {
    Write { controller, file: file.into(), value: value.to_string(), optional: false }
}

/// The files and their values, in the order in which they are written.
pub(super) fn writes(resources: &LinuxResources) -> Result<Vec<Write>> {
    let mut out = Vec::new();
    if let Some(cpu) = resources.cpu() {
        if let Some(shares) = cpu.shares().filter(|s| *s > 0) {
            out.push(write("cpu", "cpu.shares", shares));
        }
        if let Some(period) = cpu.period().filter(|p| *p > 0) {
            out.push(write("cpu", "cpu.cfs_period_us", period));
        }
        if let Some(quota) = cpu.quota().filter(|q| *q != 0) {
            out.push(write("cpu", "cpu.cfs_quota_us", quota));
        }
        if let Some(burst) = cpu.burst() {
            out.push(write("cpu", "cpu.cfs_burst_us", burst));
        }
        if let Some(idle) = cpu.idle() {
            out.push(write("cpu", "cpu.idle", idle));
        }
        if let Some(cpus) = cpu.cpus().as_deref().filter(|c| !c.is_empty()) {
            out.push(write("cpuset", "cpuset.cpus", cpus));
        }
        if let Some(mems) = cpu.mems().as_deref().filter(|m| !m.is_empty()) {
            out.push(write("cpuset", "cpuset.mems", mems));
        }
    }
    if let Some(memory) = resources.memory() {
        if let Some(limit) = memory.limit().filter(|l| *l != 0) {
            out.push(write("memory", "memory.limit_in_bytes", limit));
        }
        if let Some(swap) = memory.swap().filter(|s| *s != 0) {
            // Kernels that do not count swap have no such file.
            out.push(Write { optional: true, ..write("memory", "memory.memsw.limit_in_bytes", swap) });
        }
        if let Some(reservation) = memory.reservation().filter(|r| *r != 0) {
            out.push(write("memory", "memory.soft_limit_in_bytes", reservation));
        }
        if let Some(swappiness) = memory.swappiness() {
            out.push(write("memory", "memory.swappiness", swappiness));
        }
        if memory.disable_oom_killer() == Some(true) {
            out.push(write("memory", "memory.oom_control", 1));
        }
    }
    if let Some(pids) = resources.pids().as_ref().map(|p| p.limit()).filter(|l| *l != 0) {
        let value = if pids < 0 { "max".to_owned() } else { pids.to_string() };
        out.push(write("pids", "pids.max", value));
    }
    if let Some(io) = resources.block_io() {
        if let Some(weight) = io.weight().filter(|w| *w > 0) {
            // The scheduler of disks decides the name.
            out.push(Write { optional: true, ..write("blkio", "blkio.weight", weight) });
            out.push(Write { optional: true, ..write("blkio", "blkio.bfq.weight", weight) });
        }
        let throttles = [
            (io.throttle_read_bps_device(), "blkio.throttle.read_bps_device"),
            (io.throttle_write_bps_device(), "blkio.throttle.write_bps_device"),
            (io.throttle_read_iops_device(), "blkio.throttle.read_iops_device"),
            (io.throttle_write_iops_device(), "blkio.throttle.write_iops_device"),
        ];
        for (devices, file) in throttles {
            for d in devices.iter().flatten() {
                out.push(write("blkio", file, format!("{}:{} {}", d.major(), d.minor(), d.rate())));
            }
        }
    }
    for huge in resources.hugepage_limits().iter().flatten() {
        let file = format!("hugetlb.{}.limit_in_bytes", huge.page_size());
        // As runc: a machine without the controller has no huge pages to limit.
        out.push(Write { optional: true, ..write("hugetlb", file, huge.limit()) });
    }
    if resources.unified().as_ref().is_some_and(|u| !u.is_empty()) {
        return Err(Error::Invalid("cgroup v1 has no unified resources".to_owned()));
    }
    Ok(out)
}
