//! Metrics of the process, read when somebody asks.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};

/// The metrics that Prometheus' libraries tell of every process, by their names and texts.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

/// The figures of `/proc/self/stat`: seconds of CPU, bytes of address space, bytes in memory.
fn stat(text: &str, ticks: u64, page: u64) -> Option<(f64, u64, u64)> {
    // The second field is the process's name, in parentheses, with any character in it.
    let fields = text.rsplit_once(')')?.1.split_whitespace().collect::<Vec<_>>();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let cpu = (number(14)? + number(15)?) as f64 / ticks.max(1) as f64;
    Some((cpu, number(23)?, number(24)? * page))
}

pub(crate) fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(out.encode_descriptor(name, help, None::<&Unit>, gauge.metric_type())?)
}

impl Collector for ProcessMetrics {
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
