//! The CPU time and memory of processes, from the kernel.

use std::fs;

use anyhow::{Context, Result};

const MIB: f64 = 1024.0;

/// Memory of processes, in MiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Resident set size.
    pub(crate) rss: f64,
    /// Proportional set size: pages that several processes map are divided among them.
    pub(crate) pss: f64,
    /// The highest resident set size so far.
    pub(crate) peak: f64,
}

/// CPU time in seconds that processes have spent, user and system.
pub(crate) fn cpu(pids: &[u32]) -> Result<f64> {
    let mut ticks = 0;
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the server has ended")?;
        // The command's name stands in parentheses and may hold anything; proc(5) counts from there.
        let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = after.split(' ').collect();
        for at in [11, 12] {
            ticks += fields.get(at).and_then(|f| f.parse::<u64>().ok()).context("/proc/PID/stat")?;
        }
    }
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Memory of processes, summed.
pub(crate) fn memory(pids: &[u32]) -> Result<Memory> {
    let mut sum = Memory::default();
    for pid in pids {
        sum.rss += field(&format!("/proc/{pid}/smaps_rollup"), "Rss:")?;
        sum.pss += field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")?;
        sum.peak += field(&format!("/proc/{pid}/status"), "VmHWM:")?;
    }
    Ok(sum)
}

/// The memory of a process that no file has, in MiB.
pub(crate) fn anonymous(pid: u32) -> Result<f64> {
    field(&format!("/proc/{pid}/status"), "RssAnon:")
}

fn field(file: &str, name: &str) -> Result<f64> {
    let text = fs::read_to_string(file).context("the server has ended")?;
    let kib =
        text.lines().find_map(|l| l.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{file} has no {name}"))? / MIB)
}
