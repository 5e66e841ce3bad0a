//! The use of processors, memory and swap.

use cri::runtime as pb;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cadvisor::{Pressure, Sample, Waited};

/// The use of resources by a container, a Pod or the node. None where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) time: Timestamp,
    /// Processor time, nanoseconds.
    pub(crate) cpu_nanos: Option<u64>,
    /// Processor time a second, nanoseconds.
    pub(crate) cpu_rate: Option<u64>,
    pub(crate) memory: Option<u64>,
    /// The room that is left below the limit.
    pub(crate) available: Option<u64>,
    pub(crate) working_set: Option<u64>,
    pub(crate) rss: Option<u64>,
    pub(crate) page_faults: Option<u64>,
    pub(crate) major_page_faults: Option<u64>,
    pub(crate) swap: Option<u64>,
    pub(crate) swap_available: Option<u64>,
    /// How long processes waited for processors, memory and disks, where the kernel tells.
    pub(crate) pressure: [Option<Pressure>; 3],
}

/// How long processes waited, as the API has it: totals in nanoseconds.
fn psi(stats: &pb::PsiStats) -> Pressure {
    let data = |data: Option<&pb::PsiData>| {
        data.map_or_else(Waited::default, |d| Waited {
            total: d.total,
            avg10: d.avg10,
            avg60: d.avg60,
            avg300: d.avg300,
        })
    };
    Pressure { some: data(stats.some.as_ref()), full: data(stats.full.as_ref()) }
}

fn psi_json(pressure: Option<Pressure>) -> Value {
    let data =
        |w: Waited| json!({ "total": w.total, "avg10": w.avg10, "avg60": w.avg60, "avg300": w.avg300 });
    pressure.map_or(Value::Null, |p| json!({ "full": data(p.full), "some": data(p.some) }))
}

impl Usage {
    pub(super) fn of(
        cpu: Option<&pb::CpuUsage>,
        memory: Option<&pb::MemoryUsage>,
        swap: Option<&pb::SwapUsage>,
    ) -> Self {
        let value = |v: Option<&pb::UInt64Value>| v.map(|v| v.value);
        let nanos = cpu.map(|c| c.timestamp).or(memory.map(|m| m.timestamp)).unwrap_or_default();
        Self {
            time: Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default(),
            cpu_nanos: cpu.and_then(|c| value(c.usage_core_nano_seconds.as_ref())),
            cpu_rate: cpu.and_then(|c| value(c.usage_nano_cores.as_ref())),
            memory: memory.and_then(|m| value(m.usage_bytes.as_ref())),
            available: memory.and_then(|m| value(m.available_bytes.as_ref())),
            working_set: memory.and_then(|m| value(m.working_set_bytes.as_ref())),
            rss: memory.and_then(|m| value(m.rss_bytes.as_ref())),
            page_faults: memory.and_then(|m| value(m.page_faults.as_ref())),
            major_page_faults: memory.and_then(|m| value(m.major_page_faults.as_ref())),
            swap: swap.and_then(|s| value(s.swap_usage_bytes.as_ref())),
            swap_available: swap.and_then(|s| value(s.swap_available_bytes.as_ref())),
            pressure: [
                cpu.and_then(|c| c.psi.as_ref()).map(psi),
                memory.and_then(|m| m.psi.as_ref()).map(psi),
                None,
            ],
        }
    }

    /// The same with what is known of the disks.
    pub(super) fn with_io(mut self, io: Option<&pb::IoUsage>) -> Self {
        self.pressure[2] = io.and_then(|io| io.psi.as_ref()).map(psi);
        self
    }

    /// That of a cgroup; `pressure` says whether the kernel tells of it.
    pub(super) fn of_cgroup(sample: &Sample, pressure: bool) -> Self {
        let nanos = |w: Waited| Waited { total: w.total.saturating_mul(1000), ..w };
        let waited = |p: Pressure| Pressure { some: nanos(p.some), full: nanos(p.full) };
        let memory = &sample.memory;
        Self {
            time: Timestamp::from_millisecond(sample.at).unwrap_or_default(),
            cpu_nanos: Some(sample.cpu.total),
            memory: Some(memory.usage),
            working_set: Some(memory.working_set),
            rss: Some(memory.rss),
            page_faults: Some(memory.page_faults),
            major_page_faults: Some(memory.major_page_faults),
            swap: Some(memory.swap),
            pressure: sample.pressure.map(|p| pressure.then(|| waited(p))),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let add = |a: &mut Option<u64>, b: Option<u64>| {
            if let Some(b) = b {
                *a = Some(a.unwrap_or_default().saturating_add(b));
            }
        };
        self.time = self.time.max(other.time);
        add(&mut self.cpu_nanos, other.cpu_nanos);
        add(&mut self.cpu_rate, other.cpu_rate);
        add(&mut self.memory, other.memory);
        add(&mut self.available, other.available);
        add(&mut self.working_set, other.working_set);
        add(&mut self.rss, other.rss);
        add(&mut self.page_faults, other.page_faults);
        add(&mut self.major_page_faults, other.major_page_faults);
        self.add_swap(other);
    }

    /// Adds the swap alone, of which CRI tells for containers and not for Pods.
    pub(super) fn add_swap(&mut self, other: &Self) {
        for (sum, of) in [(&mut self.swap, other.swap), (&mut self.swap_available, other.swap_available)] {
            if let Some(of) = of {
                *sum = Some(sum.unwrap_or_default().saturating_add(of));
            }
        }
    }

    pub(super) fn cpu_json(&self) -> Value {
        some(vec![
            ("time", json!(objects::time::text(self.time))),
            ("usageNanoCores", json!(self.cpu_rate)),
            ("usageCoreNanoSeconds", json!(self.cpu_nanos)),
            ("psi", psi_json(self.pressure[0])),
        ])
    }
    /// With what is left of memory, where the caller knows it better than its cgroup.
    pub(super) fn memory_json(&self, available: Option<u64>) -> Value {
        some(vec![
            ("time", json!(objects::time::text(self.time))),
            ("availableBytes", json!(available.or(self.available))),
            ("usageBytes", json!(self.memory)),
            ("workingSetBytes", json!(self.working_set)),
            ("rssBytes", json!(self.rss)),
            ("pageFaults", json!(self.page_faults)),
            ("majorPageFaults", json!(self.major_page_faults)),
            ("psi", psi_json(self.pressure[1])),
        ])
    }
    pub(super) fn io_json(&self) -> Value {
        let Some(pressure) = self.pressure[2] else { return Value::Null };
        json!({ "time": objects::time::text(self.time), "psi": psi_json(Some(pressure)) })
    }
    pub(super) fn swap_json(&self) -> Value {
        some(vec![
            ("time", json!(objects::time::text(self.time))),
            ("swapAvailableBytes", json!(self.swap_available)),
            ("swapUsageBytes", json!(self.swap)),
        ])
    }
}

/// An object of the fields that are known.
pub(super) fn some(fields: Vec<(&str, Value)>) -> Value {
    let known = fields.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.to_owned(), v));
    Value::Object(known.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let mut sum = Usage::default();
        sum.add(&Usage { cpu_nanos: Some(1), ..Usage::default() });
        sum.add(&Usage { cpu_nanos: Some(2), memory: Some(3), available: Some(5), ..Usage::default() });
        assert_eq!((sum.cpu_nanos, sum.memory, sum.swap), (Some(3), Some(3), None));
        let swap = Usage { cpu_nanos: Some(9), swap: Some(1), swap_available: Some(7), ..Usage::default() };
        sum.add_swap(&swap);
        sum.add_swap(&swap);
        assert_eq!((sum.cpu_nanos, sum.swap, sum.swap_available), (Some(3), Some(2), Some(14)));
        assert_eq!(sum.memory_json(None)["availableBytes"], 5);
    }
}
