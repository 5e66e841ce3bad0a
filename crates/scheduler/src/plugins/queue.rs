//! SchedulingGates and PrioritySort: which Pods wait for their turn, and in which order.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::events::Events;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{PreEnqueue, Prospects, QueueSort, Queued};
use crate::framework::verdict::Rejection;
use crate::pod::PodInfo;

/// The plugin that holds Pods back.
pub const GATES: &str = "SchedulingGates";
/// The plugin that sorts them.
pub const SORT: &str = "PrioritySort";

struct Gates;

impl PreEnqueue for Gates {
    fn pre_enqueue(&self, pod: &PodInfo, _prospects: &Prospects) -> Result<(), Rejection> {
        let gates = pod.spec().and_then(|s| s.scheduling_gates.as_deref()).unwrap_or_default();
        if gates.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = gates.iter().map(|g| g.name.as_str()).collect();
        let why = format!("waiting for scheduling gates: [{}]", names.join(" "));
        Err(Rejection::lasting(GATES, why))
    }
}

struct Sort;

impl QueueSort for Sort {
    fn compare(&self, a: Queued<'_>, b: Queued<'_>) -> Ordering {
        b.pod.priority().cmp(&a.pod.priority()).then(a.since.cmp(&b.since))
    }
}

pub(super) fn scheduling_gates() -> Plugin {
    let points = Points { pre_enqueue: Some(Arc::new(Gates)), ..Points::default() };
    // It is the Pod's own event; the gates of others hold nobody else back.
    Plugin::new(GATES, points).lifted_by(Events::OWN_GATES)
}

pub(super) fn priority_sort() -> Plugin {
    Plugin::new(SORT, Points { queue_sort: Some(Arc::new(Sort)), ..Points::default() })
}
