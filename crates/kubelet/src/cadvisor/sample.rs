//! The figures of one cgroup, as cAdvisor has them.

use std::collections::BTreeMap;

/// A disk, and a number of each kind of operation on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    /// By the kernel's word for the operation: `Read`, `Write`, …
    pub(crate) counts: BTreeMap<String, u64>,
}

/// The limits of processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuLimits {
    /// In microseconds.
    pub(crate) period: u64,
    /// In microseconds, 0 for none.
    pub(crate) quota: u64,
    pub(crate) shares: u64,
}

/// The limits of memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    pub(crate) limit: u64,
    pub(crate) swap: u64,
    pub(crate) reservation: u64,
}

/// Processor time in nanoseconds, and how often it was held back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) total: u64,
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) periods: u64,
    pub(crate) throttled_periods: u64,
    pub(crate) throttled: u64,
    pub(crate) burst_periods: u64,
    pub(crate) burst: u64,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) usage: u64,
    pub(crate) max_usage: u64,
    pub(crate) working_set: u64,
    pub(crate) rss: u64,
    pub(crate) cache: u64,
    pub(crate) swap: u64,
    pub(crate) mapped_file: u64,
    pub(crate) kernel: u64,
    pub(crate) active_file: u64,
    pub(crate) inactive_file: u64,
    /// How often the limit was hit.
    pub(crate) failures: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
}

/// Work of the disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) bytes: Vec<Disk>,
    pub(crate) operations: Vec<Disk>,
    pub(crate) queued: Vec<Disk>,
    pub(crate) sectors: Vec<Disk>,
    /// In nanoseconds.
    pub(crate) time: Vec<Disk>,
    pub(crate) merged: Vec<Disk>,
    /// Those of `io.cost`, in microseconds: usage, wait, indebt, indelay.
    pub(crate) cost: [Vec<Disk>; 4],
}

/// Processes and what they have open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) count: u64,
    pub(crate) descriptors: u64,
    pub(crate) sockets: u64,
    pub(crate) threads: u64,
    /// 0 for as many as the machine has.
    pub(crate) threads_max: u64,
    /// The first process's soft limit of open files; -1 for none.
    pub(crate) open_files: Option<i64>,
    /// The first process.
    pub(crate) first: Option<u32>,
}

/// How long some and all processes waited for a resource, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pressure {
    pub(crate) some: Waited,
    pub(crate) full: Waited,
}

/// The time that was waited: in all, in microseconds, and its shares of the last 10, 60 and 300 seconds in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Waited {
    pub(crate) total: u64,
    pub(crate) avg10: f64,
    pub(crate) avg60: f64,
    pub(crate) avg300: f64,
}

/// An interface's counters: bytes, packets, errors and dropped packets, received and sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) received: [u64; 4],
    pub(crate) sent: [u64; 4],
}

/// A file system with its room and, where it is on a disk, that one's work (`/proc/diskstats`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) device: String,
    /// Bytes.
    pub(crate) capacity: u64,
    pub(crate) free: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
    /// Reads completed, reads merged, sectors read, milliseconds reading, the same of writes, operations in progress,
    /// milliseconds with operations, and those by how many there were.
    pub(crate) work: [u64; 11],
}

/// One cgroup's figures at a moment. A part that the kernel does not have is zero, as cAdvisor's.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    /// When the cgroup came into being, in seconds since 1970.
    pub(crate) created: u64,
    /// When this was read, in milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) cpu_limits: Option<CpuLimits>,
    pub(crate) memory_limits: Option<MemoryLimits>,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Memory,
    pub(crate) io: Io,
    pub(crate) processes: Processes,
    /// Of processors, memory and disks.
    pub(crate) pressure: [Pressure; 3],
    pub(crate) oom_kills: u64,
    pub(crate) links: Vec<Link>,
    pub(crate) mounted: Vec<Mounted>,
}
