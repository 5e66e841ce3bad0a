//! Limits as files of version 2.

use std::fs;
use std::path::Path;

use oci_spec::runtime::LinuxResources;

use super::write::Write;
use crate::error::{Doing, Error, Result};

/// Gives every cgroup on the way to a path the controllers of the root.
pub(super) fn delegate(root: &Path, path: &str) -> Result<()> {
    let text = fs::read_to_string(root.join("cgroup.controllers")).doing(|| "read cgroup.controllers")?;
    let all: Vec<String> = text.split_whitespace().map(|c| format!("+{c}")).collect();
    let mut at = root.to_owned();
    for part in path.split('/') {
        let file = at.join("cgroup.subtree_control");
        // One that cannot be given (a process is in the way) must not keep the others from it.
        if fs::write(&file, all.join(" ")).is_err() {
            for one in &all {
                let _ = fs::write(&file, one);
            }
        }
        at.push(part);
    }
    Ok(())
}

fn write(file: impl Into<String>, value: impl ToString) -> Write {
    Write { controller: "", file: file.into(), value: value.to_string(), optional: false }
}

fn max(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// The weight of shares, by runc's formula of 2025, which maps the defaults 1024 and 100 onto each other.
pub(super) fn weight(shares: u64) -> u64 {
    if shares == 0 {
        return 0;
    }
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    let l = (shares as f64).log2();
    let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
    10f64.powf(exponent).ceil() as u64
}

/// The files and their values, in the order in which they are written.
pub(super) fn writes(resources: &LinuxResources) -> Result<Vec<Write>> {
    let mut out = Vec::new();
    if let Some(cpu) = resources.cpu() {
        if let Some(shares) = cpu.shares().filter(|s| *s > 0) {
            out.push(write("cpu.weight", weight(shares)));
        }
        if cpu.quota().is_some_and(|q| q != 0) || cpu.period().is_some_and(|p| p != 0) {
            let quota = cpu.quota().filter(|q| *q > 0).map_or_else(|| "max".to_owned(), |q| q.to_string());
            let period = cpu.period().filter(|p| *p > 0).unwrap_or(100_000);
            out.push(write("cpu.max", format!("{quota} {period}")));
        }
        if let Some(burst) = cpu.burst() {
            out.push(write("cpu.max.burst", burst));
        }
        if let Some(idle) = cpu.idle() {
            out.push(write("cpu.idle", idle));
        }
        if let Some(cpus) = cpu.cpus().as_deref().filter(|c| !c.is_empty()) {
            out.push(write("cpuset.cpus", cpus));
        }
        if let Some(mems) = cpu.mems().as_deref().filter(|m| !m.is_empty()) {
            out.push(write("cpuset.mems", mems));
        }
    }
    if let Some(memory) = resources.memory() {
        let limit = memory.limit().filter(|l| *l != 0);
        if let Some(swap) = memory.swap().filter(|s| *s != 0) {
            // The figure of version 1 is memory with swap.
            let value = match limit {
                _ if swap < 0 => "max".to_owned(),
                Some(limit) if limit > 0 && swap >= limit => (swap - limit).to_string(),
                _ => {
                    return Err(Error::Invalid(format!(
                        "the limit of swap, {swap}, needs a smaller one of memory"
                    )));
                }
            };
            out.push(Write { optional: true, ..write("memory.swap.max", value) });
        }
        if let Some(limit) = limit {
            out.push(write("memory.max", max(limit)));
        }
        if let Some(reservation) = memory.reservation().filter(|r| *r != 0) {
            out.push(write("memory.low", max(reservation)));
        }
    }
    if let Some(pids) = resources.pids().as_ref().map(|p| p.limit()).filter(|l| *l != 0) {
        out.push(write("pids.max", max(pids)));
    }
    if let Some(io) = resources.block_io() {
        if let Some(weight) = io.weight().filter(|w| *w > 0) {
            out.push(Write { optional: true, ..write("io.bfq.weight", weight) });
            let all = 1 + (u64::from(weight).max(10) - 10) * 9999 / 990;
            out.push(Write { optional: true, ..write("io.weight", all) });
        }
        let throttles = [
            (io.throttle_read_bps_device(), "rbps"),
            (io.throttle_write_bps_device(), "wbps"),
            (io.throttle_read_iops_device(), "riops"),
            (io.throttle_write_iops_device(), "wiops"),
        ];
        for (devices, key) in throttles {
            for d in devices.iter().flatten() {
                out.push(write("io.max", format!("{}:{} {key}={}", d.major(), d.minor(), d.rate())));
            }
        }
    }
    for huge in resources.hugepage_limits().iter().flatten() {
        out.push(Write {
            optional: true,
            ..write(format!("hugetlb.{}.max", huge.page_size()), huge.limit())
        });
    }
    let mut unified: Vec<(&String, &String)> = resources.unified().iter().flatten().collect();
    unified.sort();
    for (file, value) in unified {
        if file.contains('/') || !file.contains('.') {
            return Err(Error::Invalid(format!("{file:?} is no file of a cgroup")));
        }
        out.push(write(file.clone(), value));
    }
    Ok(out)
}
