//! The figures of a cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{field, number, value};
use crate::spec::{Pressure, Stats};

/// No limit, in version 1: the largest number of whole pages.
const UNLIMITED: u64 = 0x7fff_ffff_ffff_f000;

/// Reads them. `directory` says where a controller's files are.
pub(super) fn read(unified: bool, directory: impl Fn(&str) -> Option<PathBuf>) -> Stats {
    if unified { directory("").map_or_else(Stats::default, |d| v2(&d)) } else { v1(directory) }
}

fn limit(value: Option<u64>) -> Option<u64> {
    value.filter(|v| *v < UNLIMITED)
}

fn v1(directory: impl Fn(&str) -> Option<PathBuf>) -> Stats {
    let mut out = Stats::default();
    if let Some(d) = directory("cpuacct") {
        out.cpu_usage = number(&d.join("cpuacct.usage"));
    }
    if let Some(d) = directory("cpu") {
        let text = fs::read_to_string(d.join("cpu.stat")).unwrap_or_default();
        out.cpu_throttled = value(&text, "nr_throttled").zip(value(&text, "throttled_time"));
    }
    if let Some(d) = directory("memory") {
        let stat = fs::read_to_string(d.join("memory.stat")).unwrap_or_default();
        out.memory_usage = number(&d.join("memory.usage_in_bytes"));
        let inactive = value(&stat, "total_inactive_file").unwrap_or(0);
        out.memory_working_set = out.memory_usage.map(|u| u.saturating_sub(inactive));
        out.memory_rss = value(&stat, "total_rss");
        out.memory_limit = limit(number(&d.join("memory.limit_in_bytes")));
        out.page_faults = value(&stat, "total_pgfault").zip(value(&stat, "total_pgmajfault"));
        out.swap_usage = value(&stat, "total_swap");
        let both = limit(number(&d.join("memory.memsw.limit_in_bytes")));
        out.swap_limit = both.zip(out.memory_limit).map(|(both, memory)| both.saturating_sub(memory));
        out.oom_kills = field(&d.join("memory.oom_control"), "oom_kill");
    }
    if let Some(d) = directory("pids") {
        out.pids = number(&d.join("pids.current"));
        out.pids_limit = number(&d.join("pids.max"));
    }
    if let Some(d) = directory("blkio") {
        let text =
            fs::read_to_string(d.join("blkio.throttle.io_service_bytes_recursive")).unwrap_or_default();
        let sum = |kind: &str| -> u64 {
            let lines = text.lines().filter_map(|l| l.split_once(' ')?.1.strip_prefix(kind));
            lines.filter_map(|v| v.trim().parse::<u64>().ok()).sum()
        };
        out.io_bytes = Some((sum("Read "), sum("Write ")));
    }
    out
}

fn v2(d: &Path) -> Stats {
    let cpu = fs::read_to_string(d.join("cpu.stat")).unwrap_or_default();
    let stat = fs::read_to_string(d.join("memory.stat")).unwrap_or_default();
    let io = fs::read_to_string(d.join("io.stat")).unwrap_or_default();
    let usage = number(&d.join("memory.current"));
    let sum = |key: &str| -> u64 {
        let words = io.split_whitespace().filter_map(|w| w.strip_prefix(key)?.strip_prefix('='));
        words.filter_map(|v| v.parse::<u64>().ok()).sum()
    };
    let mut out = Stats {
        cpu_usage: value(&cpu, "usage_usec").map(|u| u * 1000),
        cpu_throttled: value(&cpu, "nr_throttled").zip(value(&cpu, "throttled_usec").map(|u| u * 1000)),
        memory_usage: usage,
        memory_working_set: usage.map(|u| u.saturating_sub(value(&stat, "inactive_file").unwrap_or(0))),
        memory_rss: value(&stat, "anon"),
        memory_limit: number(&d.join("memory.max")),
        swap_usage: number(&d.join("memory.swap.current")),
        swap_limit: number(&d.join("memory.swap.max")),
        page_faults: value(&stat, "pgfault").zip(value(&stat, "pgmajfault")),
        pids: number(&d.join("pids.current")),
        pids_limit: number(&d.join("pids.max")),
        io_bytes: (!io.is_empty()).then(|| (sum("rbytes"), sum("wbytes"))),
        oom_kills: field(&d.join("memory.events"), "oom_kill"),
        ..Stats::default()
    };
    for resource in ["cpu", "memory", "io"] {
        if let Ok(text) = fs::read_to_string(d.join(format!("{resource}.pressure"))) {
            out.pressure.insert(resource, Pressure::parse(&text));
        }
    }
    out
}
