//! The slices of Pods: with systemd's driver a cgroup of the kubelet's is one, and what limits it is a property.
//!
//! systemd is asked where a cgroup is wanted: an answer takes a thousandth of a second, as writing the files does. Where it
//! does not answer, the other tasks go on.

use std::io;

use systemd::{INFINITY, Property, Units, Value, quota_per_second};

use crate::pods::resources::{PodCgroup, weight};
use crate::work::in_place;

/// The way to systemd.
#[derive(Debug, Default)]
pub(crate) struct Slices(Units);

impl Slices {
    /// Starts a slice, if it is not there.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub(crate) fn start(&self, unit: &str) -> io::Result<()> {
        in_place(|| self.0.start_slice(unit))
    }

    /// Sets limits of a slice until the machine goes down.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub(crate) fn set(&self, unit: &str, properties: &[Property<'_>]) -> io::Result<()> {
        in_place(|| self.0.set(unit, properties))
    }

    /// Ends a slice with all that is in it; one that is not there has ended.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub(crate) fn stop(&self, unit: &str) -> io::Result<()> {
        in_place(|| self.0.stop(unit))
    }
}

/// The properties of a slice for what its Pods may have together; `unified` is the machine's hierarchy.
pub(crate) fn properties(want: &PodCgroup, default_period: i64, unified: bool) -> Vec<Property<'static>> {
    let number = |value: i64| u64::try_from(value).unwrap_or(INFINITY);
    let memory = want.memory.map_or(INFINITY, number);
    let mut all = Vec::new();
    let mut add = |name: &'static str, value: u64| all.push((name, Value::Number(value)));
    if unified {
        add("CPUWeight", weight(want.shares));
        add("MemoryMax", memory);
        for (file, value) in &want.unified {
            match *file {
                "memory.min" => add("MemoryMin", number(*value)),
                "memory.low" => add("MemoryLow", number(*value)),
                "memory.high" => add("MemoryHigh", number(*value)),
                // systemd has no word for the others, and leaves them alone.
                _ => {}
            }
        }
    } else {
        add("CPUShares", want.shares);
        add("MemoryLimit", memory);
    }
    let period = if want.period > 0 { want.period } else { default_period };
    add("CPUQuotaPerSecUSec", want.quota.map_or(INFINITY, |quota| quota_per_second(quota, period)));
    add("CPUQuotaPeriodUSec", number(period));
    if let Some(pids) = want.pids {
        add("TasksMax", number(pids));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_properties() {
        let want = PodCgroup {
            shares: 1024,
            quota: Some(50_000),
            memory: Some(1 << 20),
            pids: Some(-1),
            unified: [("memory.min", 5), ("memory.oom.group", 1)].into(),
            ..PodCgroup::default()
        };
        let shown = |unified: bool| -> Vec<String> {
            let all = properties(&want, 100_000, unified);
            all.iter()
                .map(|(name, value)| match value {
                    Value::Number(INFINITY) => format!("{name}=infinity"),
                    Value::Number(number) => format!("{name}={number}"),
                    other => format!("{name}={other:?}"),
                })
                .collect()
        };
        let common = ["CPUQuotaPerSecUSec=500000", "CPUQuotaPeriodUSec=100000", "TasksMax=infinity"];
        let weight = format!("CPUWeight={}", weight(1024));
        let v2 = [weight.as_str(), "MemoryMax=1048576", "MemoryMin=5"];
        assert_eq!(shown(true), [&v2[..], &common].concat());
        assert_eq!(shown(false), [&["CPUShares=1024", "MemoryLimit=1048576"][..], &common].concat());
    }
}
