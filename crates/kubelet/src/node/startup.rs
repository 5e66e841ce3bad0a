//! How long the node took to start, in upstream's four parts.

use jiff::Timestamp;

use crate::metrics::{self, Metric, Metrics};

/// The start of the node, from the machine's boot to the Node's readiness.
pub(super) struct Startup<'a> {
    metrics: &'a Metrics,
    booted: Option<Timestamp>,
    kubelet: Timestamp,
    registers: Option<Timestamp>,
    registered: Option<Timestamp>,
    done: bool,
}

impl<'a> Startup<'a> {
    /// Of a kubelet that starts now.
    pub(super) fn new(now: Timestamp, metrics: &'a Metrics) -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted = crate::stats::collect::boot_time(&stat);
        Self { metrics, booted, kubelet: now, registers: None, registered: None, done: false }
    }

    /// The Node is going to be registered.
    pub(super) fn registers(&mut self, now: Timestamp) {
        self.registers = Some(now);
    }

    /// It is registered.
    pub(super) fn registered(&mut self, now: Timestamp) {
        self.registered = Some(now);
    }

    /// Its status was reported; the first time that it is ready counts.
    pub(super) fn reported(&mut self, now: Timestamp, ready: bool) {
        if !ready || std::mem::replace(&mut self.done, true) {
            return;
        }
        let (Some(booted), Some(registers), Some(registered)) =
            (self.booted, self.registers, self.registered)
        else {
            return;
        };
        let set = |metric: &'static Metric, from: Timestamp, to: Timestamp| {
            self.metrics.set(metric, &[], to.duration_since(from).as_secs_f64().max(0.0));
        };
        set(&metrics::NODE_STARTUP_PRE_KUBELET_DURATION_SECONDS, booted, self.kubelet);
        set(&metrics::NODE_STARTUP_PRE_REGISTRATION_DURATION_SECONDS, self.kubelet, registers);
        set(&metrics::NODE_STARTUP_REGISTRATION_DURATION_SECONDS, registers, registered);
        set(&metrics::NODE_STARTUP_POST_REGISTRATION_DURATION_SECONDS, registered, now);
        set(&metrics::NODE_STARTUP_DURATION_SECONDS, booted, now);
    }
}

#[cfg(test)]
mod tests {
    use component::metrics::Page;

    use super::*;

    #[test]
    fn the_parts() {
        let metrics = Metrics::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut startup = Startup {
            metrics: &metrics,
            booted: Some(at(0)),
            kubelet: at(10),
            registers: Some(at(11)),
            registered: Some(at(13)),
            done: false,
        };
        startup.reported(at(14), false);
        startup.reported(at(20), true);
        startup.reported(at(30), true);
        let mut page = Page::default();
        metrics.write(&mut page);
        let text = page.text();
        for line in [
            "kubelet_node_startup_pre_kubelet_duration_seconds 10",
            "kubelet_node_startup_pre_registration_duration_seconds 1",
            "kubelet_node_startup_registration_duration_seconds 2",
            "kubelet_node_startup_post_registration_duration_seconds 7",
            "kubelet_node_startup_duration_seconds 20",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
    }
}
