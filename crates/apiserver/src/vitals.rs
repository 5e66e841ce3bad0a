//! Metrics of the process and of what it keeps on disk, read when somebody asks.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use storage::Store;

/// The metrics that Prometheus' libraries tell of every process, by their names and texts.
#[derive(Debug)]
pub(crate) struct Process;

/// What `/proc/self/stat` tells: seconds of CPU, bytes of address space, bytes in memory.
fn stat(text: &str, ticks: u64, page: u64) -> Option<(f64, u64, u64)> {
    // The second field is the process's name, in parentheses, with any character in it.
    let fields = text.rsplit_once(')')?.1.split_whitespace().collect::<Vec<_>>();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let cpu = (number(14)? + number(15)?) as f64 / ticks.max(1) as f64;
    Some((cpu, number(23)?, number(24)? * page))
}

fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(out.encode_descriptor(name, help, None::<&Unit>, gauge.metric_type())?)
}

impl Collector for Process {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64);
        if let Some((cpu, virtual_, resident)) = stat(&text, ticks, page) {
            let total = ConstCounter::new(cpu);
            let help = "Total user and system CPU time spent in seconds";
            let name = "process_cpu_seconds";
            total.encode(out.encode_descriptor(name, help, None::<&Unit>, total.metric_type())?)?;
            let help = "Virtual memory size in bytes";
            gauge(&mut out, "process_virtual_memory_bytes", help, virtual_ as f64)?;
            let help = "Resident memory size in bytes";
            gauge(&mut out, "process_resident_memory_bytes", help, resident as f64)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let help = "Number of open file descriptors";
            gauge(&mut out, "process_open_fds", help, open.count() as f64)?;
        }
        let help = "Maximum number of open file descriptors";
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        gauge(&mut out, "process_max_fds", help, most as f64)
    }
}

/// The size of a store of this process.
#[derive(Debug)]
pub(crate) struct StoreSize {
    /// Where its files are.
    pub(crate) dir: PathBuf,
    /// What is in memory.
    pub(crate) store: Store,
}

impl Collector for StoreSize {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(usage) = self.store.usage() {
            // What etcd says of itself, by its names.
            let help = "Bytes of the objects in the store, which count against its quota";
            gauge(&mut out, "etcd_mvcc_db_total_size_in_use_in_bytes", help, usage.live as f64)?;
            let help = "Bytes of replaced and deleted objects that are kept in memory for watches and lists of the past";
            gauge(&mut out, "ferrokube_store_history_bytes", help, usage.history as f64)?;
            let help = "How many bytes of objects may be in the store; 0 for any";
            gauge(&mut out, "etcd_server_quota_backend_bytes", help, usage.quota.unwrap_or(0) as f64)?;
        }
        let Ok(files) = fs::read_dir(&self.dir) else { return Ok(()) };
        let size = files.filter_map(|f| f.ok()?.metadata().ok()).map(|m| m.len()).sum::<u64>();
        let help = "[STABLE] Size of the storage database file physically allocated in bytes";
        let gauge = ConstGauge::new(size as f64);
        let mut of =
            out.encode_descriptor("apiserver_storage_size_bytes", help, None::<&Unit>, gauge.metric_type())?;
        gauge.encode(of.encode_family(&[("storage_cluster_id", "etcd-0")])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_in_numbers() {
        let check = |text: &str, expected| assert_eq!(stat(text, 100, 4096), expected, "{text}");
        let fields = "S 1 2 3 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 77 1000000 25 18446744073709551615";
        check(&format!("42 (a) b (c)) {fields}"), Some((3.0, 1_000_000, 102_400)));
        check("42 (a) S 1", None);
        check("", None);
    }
}
