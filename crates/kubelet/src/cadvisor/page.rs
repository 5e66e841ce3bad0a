//! `/metrics/cadvisor` as text, purely: upstream's names, types, helps and labels (`vendor/github.com/google/cadvisor/metrics`),
//! those that upstream's kubelet has by default.

use component::metrics::Page;

use super::machine::{Disks, Topology};
use super::sample::{Disk, Mounted, Sample};
use crate::node::machine::Machine;

/// The labels of a cgroup's metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// The cgroup.
    pub(crate) id: String,
    /// The runtime's id of the container or sandbox.
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) namespace: String,
}

/// A cgroup with its figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) labels: Labels,
    pub(crate) sample: Sample,
}

/// All that a page tells.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    pub(crate) machine: Machine,
    pub(crate) topology: Topology,
    pub(crate) disks: Disks,
    /// Whether the kernel tells of pressure.
    pub(crate) pressure: bool,
    pub(crate) entries: Vec<Entry>,
    /// The runtime did not say whose cgroups they are.
    pub(crate) failed: bool,
    /// When the scrape was made, in milliseconds since 1970.
    pub(crate) at: i64,
}

/// The values of a metric of one cgroup, each with the values of the metric's own labels.
struct Values<'a> {
    disks: &'a Disks,
    all: Vec<(Vec<String>, f64)>,
}

impl Values<'_> {
    fn one(&mut self, value: u64) {
        self.all.push((Vec::new(), value as f64));
    }

    fn seconds(&mut self, nanos: u64) {
        self.all.push((Vec::new(), nanos as f64 / 1e9));
    }

    fn micros(&mut self, micros: u64) {
        self.all.push((Vec::new(), micros as f64 / 1e6));
    }

    /// A value for each of several labels; the first of a label counts, since two would be no metric.
    fn of(&mut self, label: &str, value: f64) {
        if !self.all.iter().any(|(labels, _)| labels.first().is_some_and(|l| l == label)) {
            self.all.push((vec![label.to_owned()], value));
        }
    }

    /// An operation of each disk, then of each file system.
    fn disks(
        &mut self,
        disks: &[Disk],
        operation: &str,
        unit: f64,
        mounted: &[Mounted],
        work: usize,
        of_work: f64,
    ) {
        for disk in disks {
            let name = self.disks.name(disk.major, disk.minor).to_owned();
            self.of(&name, disk.counts.get(operation).copied().unwrap_or_default() as f64 / unit);
        }
        for fs in mounted {
            self.of(&fs.device, fs.work[work] as f64 / of_work);
        }
    }

    fn mounted(&mut self, mounted: &[Mounted], value: fn(&Mounted) -> u64) {
        for fs in mounted {
            self.of(&fs.device, value(fs) as f64);
        }
    }
}

/// How the numbers of a metric are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timed {
    /// With the moment when they were read.
    Yes,
    /// Without: they are limits, not measurements.
    No,
}

/// A metric of cgroups: name, type, help, its own labels, how it is told, and its values.
type Metric =
    (&'static str, &'static str, &'static str, &'static [&'static str], Timed, fn(&Sample, &mut Values<'_>));

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";
/// Milliseconds and nanoseconds of a second.
const MILLIS: f64 = 1e3;
const NANOS: f64 = 1e9;

/// A limit of memory; from here on there is none, which is told as 0.
const UNLIMITED: u64 = 1 << 62;

fn limit(bytes: u64) -> u64 {
    if bytes > UNLIMITED { 0 } else { bytes }
}

macro_rules! metric {
    ($name:literal, $kind:ident, $help:literal, $values:expr) => {
        metric!($name, $kind, $help, [], $values)
    };
    ($name:literal, $kind:ident, $help:literal, [$($label:literal),*], $values:expr) => {
        ($name, $kind, $help, &[$($label),*], Timed::Yes, $values)
    };
    (spec $name:literal, $help:literal, $values:expr) => {
        ($name, GAUGE, $help, &[], Timed::No, $values)
    };
}

const SPEC: &[Metric] = &[
    metric!(spec "container_start_time_seconds", "Start time of the container since unix epoch in seconds.", |s, v| {
        v.one(s.created);
    }),
    metric!(spec "container_spec_cpu_period", "CPU period of the container.", |s, v| {
        s.cpu_limits.iter().for_each(|l| v.one(l.period));
    }),
    metric!(spec "container_spec_cpu_quota", "CPU quota of the container.", |s, v| {
        s.cpu_limits.iter().filter(|l| l.quota != 0).for_each(|l| v.one(l.quota));
    }),
    metric!(spec "container_spec_cpu_shares", "CPU share of the container.", |s, v| {
        s.cpu_limits.iter().for_each(|l| v.one(l.shares));
    }),
    metric!(spec "container_spec_memory_limit_bytes", "Memory limit for the container.", |s, v| {
        s.memory_limits.iter().for_each(|l| v.one(limit(l.limit)));
    }),
    metric!(spec "container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", |s, v| {
        s.memory_limits.iter().for_each(|l| v.one(limit(l.swap)));
    }),
    metric!(
        spec "container_spec_memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        |s, v| s.memory_limits.iter().for_each(|l| v.one(limit(l.reservation)))
    ),
    metric!("container_last_seen", GAUGE, "Last time a container was seen by the exporter", |s, v| {
        v.one(u64::try_from(s.at / 1000).unwrap_or_default());
    }),
    // CRI has no health check of a container's own.
    metric!("container_health_state", GAUGE, "The result of the container's health check", |_, v| {
        v.all.push((Vec::new(), -1.0));
    }),
];

/// Whether the kernel holds a cgroup to a share of the processors.
fn has_quota(s: &Sample) -> bool {
    s.cpu_limits.is_some_and(|l| l.quota != 0)
}

fn cfs(s: &Sample, v: &mut Values<'_>, value: u64) {
    if has_quota(s) {
        v.one(value);
    }
}

fn cfs_seconds(s: &Sample, v: &mut Values<'_>, nanos: u64) {
    if has_quota(s) {
        v.seconds(nanos);
    }
}

const CPU: &[Metric] = &[
    metric!(
        "container_cpu_user_seconds_total",
        COUNTER,
        "Cumulative user cpu time consumed in seconds.",
        |s, v| {
            v.seconds(s.cpu.user);
        }
    ),
    metric!(
        "container_cpu_system_seconds_total",
        COUNTER,
        "Cumulative system cpu time consumed in seconds.",
        |s, v| {
            v.seconds(s.cpu.system);
        }
    ),
    metric!(
        "container_cpu_usage_seconds_total",
        COUNTER,
        "Cumulative cpu time consumed in seconds.",
        ["cpu"],
        |s, v| {
            if s.cpu.total > 0 {
                v.of("total", s.cpu.total as f64 / NANOS);
            }
        }
    ),
    metric!(
        "container_cpu_cfs_periods_total",
        COUNTER,
        "Number of elapsed enforcement period intervals.",
        |s, v| cfs(s, v, s.cpu.periods)
    ),
    metric!(
        "container_cpu_cfs_throttled_periods_total",
        COUNTER,
        "Number of throttled period intervals.",
        |s, v| cfs(s, v, s.cpu.throttled_periods)
    ),
    metric!(
        "container_cpu_cfs_throttled_seconds_total",
        COUNTER,
        "Total time duration the container has been throttled.",
        |s, v| cfs_seconds(s, v, s.cpu.throttled)
    ),
    metric!(
        "container_cpu_cfs_burst_periods_total",
        COUNTER,
        "Number of periods when burst occurs.",
        |s, v| {
            cfs(s, v, s.cpu.burst_periods);
        }
    ),
    metric!(
        "container_cpu_cfs_burst_seconds_total",
        COUNTER,
        "Total time duration the container has been bursted.",
        |s, v| cfs_seconds(s, v, s.cpu.burst)
    ),
    // Upstream's kubelet has no reader of loads, and tells these as 0.
    metric!(
        "container_cpu_load_average_10s",
        GAUGE,
        "Value of container cpu load average over the last 10 seconds.",
        |_, v| v.one(0)
    ),
    metric!(
        "container_cpu_load_d_average_10s",
        GAUGE,
        "Value of container cpu load.d average over the last 10 seconds.",
        |_, v| v.one(0)
    ),
    metric!("container_tasks_state", GAUGE, "Number of tasks in given state", ["state"], |_, v| {
        for state in ["sleeping", "running", "stopped", "uninterruptible", "iowaiting"] {
            v.of(state, 0.0);
        }
    }),
];

const MEMORY: &[Metric] = &[
    metric!("container_memory_cache", GAUGE, "Number of bytes of page cache memory.", |s, v| v
        .one(s.memory.cache)),
    metric!("container_memory_rss", GAUGE, "Size of RSS in bytes.", |s, v| v.one(s.memory.rss)),
    metric!("container_memory_kernel_usage", GAUGE, "Size of kernel memory allocated in bytes.", |s, v| {
        v.one(s.memory.kernel);
    }),
    metric!("container_memory_mapped_file", GAUGE, "Size of memory mapped files in bytes.", |s, v| {
        v.one(s.memory.mapped_file);
    }),
    metric!("container_memory_swap", GAUGE, "Container swap usage in bytes.", |s, v| v.one(s.memory.swap)),
    metric!("container_memory_failcnt", COUNTER, "Number of memory usage hits limits", |s, v| {
        v.one(s.memory.failures);
    }),
    metric!(
        "container_memory_usage_bytes",
        GAUGE,
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |s, v| v.one(s.memory.usage)
    ),
    metric!("container_memory_max_usage_bytes", GAUGE, "Maximum memory usage recorded in bytes", |s, v| {
        v.one(s.memory.max_usage);
    }),
    metric!("container_memory_working_set_bytes", GAUGE, "Current working set in bytes.", |s, v| {
        v.one(s.memory.working_set);
    }),
    metric!(
        "container_memory_total_active_file_bytes",
        GAUGE,
        "Current total active file in bytes.",
        |s, v| {
            v.one(s.memory.active_file);
        }
    ),
    metric!(
        "container_memory_total_inactive_file_bytes",
        GAUGE,
        "Current total inactive file in bytes.",
        |s, v| {
            v.one(s.memory.inactive_file);
        }
    ),
    metric!(
        "container_memory_failures_total",
        COUNTER,
        "Cumulative count of memory allocation failures.",
        ["failure_type", "scope"],
        |s, v| {
            for scope in ["container", "hierarchy"] {
                for (kind, count) in
                    [("pgfault", s.memory.page_faults), ("pgmajfault", s.memory.major_page_faults)]
                {
                    v.all.push((vec![kind.to_owned(), scope.to_owned()], count as f64));
                }
            }
        }
    ),
    metric!(
        "container_oom_events_total",
        COUNTER,
        "Count of out of memory events observed for the container",
        |s, v| v.one(s.oom_kills)
    ),
];

const DISKS: &[Metric] = &[
    metric!("container_fs_inodes_free", GAUGE, "Number of available Inodes", ["device"], |s, v| {
        v.mounted(&s.mounted, |fs| fs.inodes_free);
    }),
    metric!("container_fs_inodes_total", GAUGE, "Number of Inodes", ["device"], |s, v| {
        v.mounted(&s.mounted, |fs| fs.inodes);
    }),
    metric!(
        "container_fs_limit_bytes",
        GAUGE,
        "Number of bytes that can be consumed by the container on this filesystem.",
        ["device"],
        |s, v| v.mounted(&s.mounted, |fs| fs.capacity)
    ),
    metric!(
        "container_fs_usage_bytes",
        GAUGE,
        "Number of bytes that are consumed by the container on this filesystem.",
        ["device"],
        |s, v| v.mounted(&s.mounted, |fs| fs.capacity.saturating_sub(fs.free))
    ),
    metric!(
        "container_fs_reads_bytes_total",
        COUNTER,
        "Cumulative count of bytes read",
        ["device"],
        |s, v| {
            v.disks(&s.io.bytes, "Read", 1.0, &[], 0, 1.0);
        }
    ),
    metric!(
        "container_fs_reads_total",
        COUNTER,
        "Cumulative count of reads completed",
        ["device"],
        |s, v| {
            v.disks(&s.io.operations, "Read", 1.0, &s.mounted, 0, 1.0);
        }
    ),
    metric!(
        "container_fs_sector_reads_total",
        COUNTER,
        "Cumulative count of sector reads completed",
        ["device"],
        |s, v| v.disks(&s.io.sectors, "Read", 1.0, &s.mounted, 2, 1.0)
    ),
    metric!(
        "container_fs_reads_merged_total",
        COUNTER,
        "Cumulative count of reads merged",
        ["device"],
        |s, v| {
            v.disks(&s.io.merged, "Read", 1.0, &s.mounted, 1, 1.0);
        }
    ),
    // DIFFERENCE: upstream divides the kernel's milliseconds by a billion.
    metric!(
        "container_fs_read_seconds_total",
        COUNTER,
        "Cumulative count of seconds spent reading",
        ["device"],
        |s, v| v.disks(&s.io.time, "Read", NANOS, &s.mounted, 3, MILLIS)
    ),
    metric!(
        "container_fs_writes_bytes_total",
        COUNTER,
        "Cumulative count of bytes written",
        ["device"],
        |s, v| {
            v.disks(&s.io.bytes, "Write", 1.0, &[], 0, 1.0);
        }
    ),
    metric!(
        "container_fs_writes_total",
        COUNTER,
        "Cumulative count of writes completed",
        ["device"],
        |s, v| {
            v.disks(&s.io.operations, "Write", 1.0, &s.mounted, 4, 1.0);
        }
    ),
    metric!(
        "container_fs_sector_writes_total",
        COUNTER,
        "Cumulative count of sector writes completed",
        ["device"],
        |s, v| v.disks(&s.io.sectors, "Write", 1.0, &s.mounted, 6, 1.0)
    ),
    metric!(
        "container_fs_writes_merged_total",
        COUNTER,
        "Cumulative count of writes merged",
        ["device"],
        |s, v| {
            v.disks(&s.io.merged, "Write", 1.0, &s.mounted, 5, 1.0);
        }
    ),
    metric!(
        "container_fs_write_seconds_total",
        COUNTER,
        "Cumulative count of seconds spent writing",
        ["device"],
        |s, v| v.disks(&s.io.time, "Write", NANOS, &s.mounted, 7, MILLIS)
    ),
    metric!("container_fs_io_current", GAUGE, "Number of I/Os currently in progress", ["device"], |s, v| {
        v.disks(&s.io.queued, "Total", 1.0, &s.mounted, 8, 1.0);
    }),
    metric!(
        "container_fs_io_time_seconds_total",
        COUNTER,
        "Cumulative count of seconds spent doing I/Os",
        ["device"],
        |s, v| v.disks(&s.io.time, "Total", NANOS, &s.mounted, 9, MILLIS)
    ),
    metric!(
        "container_fs_io_time_weighted_seconds_total",
        COUNTER,
        "Cumulative weighted I/O time in seconds",
        ["device"],
        |s, v| v.disks(&[], "", 1.0, &s.mounted, 10, MILLIS)
    ),
    metric!(
        "container_fs_io_cost_usage_seconds_total",
        COUNTER,
        "Cumulative IOCost usage in seconds",
        ["device"],
        |s, v| v.disks(&s.io.cost[0], "Count", 1e6, &[], 0, 1.0)
    ),
    metric!(
        "container_fs_io_cost_wait_seconds_total",
        COUNTER,
        "Cumulative IOCost wait in seconds",
        ["device"],
        |s, v| v.disks(&s.io.cost[1], "Count", 1e6, &[], 0, 1.0)
    ),
    metric!(
        "container_fs_io_cost_indebt_seconds_total",
        COUNTER,
        "Cumulative IOCost debt in seconds",
        ["device"],
        |s, v| v.disks(&s.io.cost[2], "Count", 1e6, &[], 0, 1.0)
    ),
    metric!(
        "container_fs_io_cost_indelay_seconds_total",
        COUNTER,
        "Cumulative IOCost delay in seconds",
        ["device"],
        |s, v| v.disks(&s.io.cost[3], "Count", 1e6, &[], 0, 1.0)
    ),
    metric!(
        "container_blkio_device_usage_total",
        COUNTER,
        "Blkio Device bytes usage",
        ["device", "major", "minor", "operation"],
        |s, v| {
            for disk in &s.io.bytes {
                let name = v.disks.name(disk.major, disk.minor).to_owned();
                for (operation, bytes) in &disk.counts {
                    let labels =
                        vec![name.clone(), disk.major.to_string(), disk.minor.to_string(), operation.clone()];
                    v.all.push((labels, *bytes as f64));
                }
            }
        }
    ),
];

fn received(s: &Sample, v: &mut Values<'_>, which: usize) {
    for link in &s.links {
        v.of(&link.name, link.received[which] as f64);
    }
}

fn sent(s: &Sample, v: &mut Values<'_>, which: usize) {
    for link in &s.links {
        v.of(&link.name, link.sent[which] as f64);
    }
}

const NETWORK: &[Metric] = &[
    metric!(
        "container_network_receive_bytes_total",
        COUNTER,
        "Cumulative count of bytes received",
        ["interface"],
        |s, v| received(s, v, 0)
    ),
    metric!(
        "container_network_receive_packets_total",
        COUNTER,
        "Cumulative count of packets received",
        ["interface"],
        |s, v| received(s, v, 1)
    ),
    metric!(
        "container_network_receive_packets_dropped_total",
        COUNTER,
        "Cumulative count of packets dropped while receiving",
        ["interface"],
        |s, v| received(s, v, 3)
    ),
    metric!(
        "container_network_receive_errors_total",
        COUNTER,
        "Cumulative count of errors encountered while receiving",
        ["interface"],
        |s, v| received(s, v, 2)
    ),
    metric!(
        "container_network_transmit_bytes_total",
        COUNTER,
        "Cumulative count of bytes transmitted",
        ["interface"],
        |s, v| sent(s, v, 0)
    ),
    metric!(
        "container_network_transmit_packets_total",
        COUNTER,
        "Cumulative count of packets transmitted",
        ["interface"],
        |s, v| sent(s, v, 1)
    ),
    metric!(
        "container_network_transmit_packets_dropped_total",
        COUNTER,
        "Cumulative count of packets dropped while transmitting",
        ["interface"],
        |s, v| sent(s, v, 3)
    ),
    metric!(
        "container_network_transmit_errors_total",
        COUNTER,
        "Cumulative count of errors encountered while transmitting",
        ["interface"],
        |s, v| sent(s, v, 2)
    ),
];

const PROCESSES: &[Metric] = &[
    metric!("container_processes", GAUGE, "Number of processes running inside the container.", |s, v| {
        v.one(s.processes.count);
    }),
    metric!(
        "container_file_descriptors",
        GAUGE,
        "Number of open file descriptors for the container.",
        |s, v| {
            v.one(s.processes.descriptors);
        }
    ),
    metric!("container_sockets", GAUGE, "Number of open sockets for the container.", |s, v| {
        v.one(s.processes.sockets);
    }),
    metric!(
        "container_threads_max",
        GAUGE,
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        |s, v| v.one(s.processes.threads_max)
    ),
    metric!("container_threads", GAUGE, "Number of threads running inside the container", |s, v| {
        v.one(s.processes.threads);
    }),
    metric!(
        "container_ulimits_soft",
        GAUGE,
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        ["ulimit"],
        |s, v| {
            if let Some(files) = s.processes.open_files {
                v.of("max_open_files", files as f64);
            }
        }
    ),
];

const PRESSURE: &[Metric] = &[
    metric!(
        "container_pressure_cpu_stalled_seconds_total",
        COUNTER,
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        |s, v| v.micros(s.pressure[0].full.total)
    ),
    metric!(
        "container_pressure_cpu_waiting_seconds_total",
        COUNTER,
        "Total time duration tasks in the container have waited due to CPU congestion.",
        |s, v| v.micros(s.pressure[0].some.total)
    ),
    metric!(
        "container_pressure_memory_stalled_seconds_total",
        COUNTER,
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        |s, v| v.micros(s.pressure[1].full.total)
    ),
    metric!(
        "container_pressure_memory_waiting_seconds_total",
        COUNTER,
        "Total time duration tasks in the container have waited due to memory congestion.",
        |s, v| v.micros(s.pressure[1].some.total)
    ),
    metric!(
        "container_pressure_io_stalled_seconds_total",
        COUNTER,
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        |s, v| v.micros(s.pressure[2].full.total)
    ),
    metric!(
        "container_pressure_io_waiting_seconds_total",
        COUNTER,
        "Total time duration tasks in the container have waited due to IO congestion.",
        |s, v| v.micros(s.pressure[2].some.total)
    ),
];

/// A metric's samples of one cgroup.
fn write(page: &mut Page, entry: &Entry, metric: &Metric, disks: &Disks) {
    let (name, _, _, own, timed, values) = metric;
    let mut found = Values { disks, all: Vec::new() };
    values(&entry.sample, &mut found);
    let of = &entry.labels;
    for (extra, value) in &found.all {
        let mut labels = vec![
            ("container", of.container.as_str()),
            ("id", of.id.as_str()),
            ("image", of.image.as_str()),
            ("name", of.name.as_str()),
            ("namespace", of.namespace.as_str()),
            ("pod", of.pod.as_str()),
        ];
        labels.extend(own.iter().copied().zip(extra.iter().map(String::as_str)));
        labels.sort_unstable();
        page.value_at(name, &labels, *value, (*timed == Timed::Yes).then_some(entry.sample.at));
    }
}

/// The metrics of the machine.
pub(super) fn machine(page: &mut Page, scrape: &Scrape) {
    let (machine, topology) = (&scrape.machine, scrape.topology);
    let ids = [
        ("boot_id", machine.boot_id.as_str()),
        ("machine_id", machine.machine_id.as_str()),
        ("system_uuid", machine.system_uuid.as_str()),
    ];
    let cores = machine.milli_cpus as f64 / 1000.0;
    for (name, help, value) in [
        ("machine_cpu_physical_cores", "Number of physical CPU cores.", topology.cores as f64),
        ("machine_cpu_cores", "Number of logical CPU cores.", cores),
        ("machine_cpu_sockets", "Number of CPU sockets.", topology.sockets as f64),
        ("machine_cpu_books", "Number of CPU books.", topology.books as f64),
        ("machine_cpu_drawers", "Number of CPU drawers.", topology.drawers as f64),
        ("machine_memory_bytes", "Amount of memory installed on the machine.", machine.memory as f64),
        ("machine_swap_bytes", "Amount of swap memory available on the machine.", machine.swap as f64),
        // Upstream's kubelet is built without the library that reads these, and tells 0.
        ("machine_nvm_avg_power_budget_watts", "NVM power budget.", 0.0),
    ] {
        page.metric(name, GAUGE, help).value_at(name, &ids, value, Some(scrape.at));
    }
    let (name, help) =
        ("machine_nvm_capacity", "NVM capacity value labeled by NVM mode (memory mode or app direct mode).");
    page.metric(name, GAUGE, help);
    for mode in ["memory_mode", "app_direct_mode"] {
        let labels = [ids[0], ids[1], ("mode", mode), ids[2]];
        page.value_at(name, &labels, 0.0, Some(scrape.at));
    }
    let (name, help) =
        ("machine_scrape_error", "1 if there was an error while getting machine metrics, 0 otherwise.");
    page.metric(name, GAUGE, help).value(name, &[], 0.0);
}

/// The page.
pub(crate) fn page(scrape: &Scrape) -> String {
    let mut page = Page::default();
    machine(&mut page, scrape);
    let name = "cadvisor_version_info";
    let help = "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.";
    let labels = [
        ("cadvisorRevision", ""),
        ("cadvisorVersion", ""),
        ("dockerVersion", ""),
        ("kernelVersion", scrape.machine.kernel.as_str()),
        ("osVersion", scrape.machine.os_image.as_str()),
    ];
    page.metric(name, GAUGE, help).value(name, &labels, 1.0);
    let name = "container_scrape_error";
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    page.metric(name, GAUGE, help).value(name, &[], f64::from(u8::from(scrape.failed)));
    let pressure = if scrape.pressure { PRESSURE } else { &[] };
    for metric in [SPEC, CPU, MEMORY, DISKS, NETWORK, PROCESSES, pressure].into_iter().flatten() {
        page.metric(metric.0, metric.1, metric.2);
        for entry in &scrape.entries {
            write(&mut page, entry, metric, &scrape.disks);
        }
    }
    page.text()
}
