//! The workloads of upstream's scheduler_perf, by their names and parameters (`test/integration/scheduler_perf`, its
//! templates and `performance-config.yaml`): of each the largest that upstream runs for its performance. A workload is a
//! row of steps; PublishResourceSlices is left out, because it places no Pods.

mod affinity;
mod devices;
mod events;
mod misc;
pub(super) mod objects;
mod spreading;
mod volumes;

use std::time::Duration;

use serde_json::Value;

/// The object of a number, or an array of them: what a Pod needs, and the Pod.
pub(crate) type Make = fn(usize) -> Value;

/// A step of a workload. All that follows [`Step::Measure`] is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// So many objects are made, with their status. Nobody waits for Pods among them.
    Make(usize, Make),
    /// So many Pods are made; all of them get a node before the next step.
    Place(usize, Make),
    /// So many Pods are made, which get a node before the end of [`Step::Bound`].
    Leave(usize, Make),
    /// The scheduler has refused every Pod that was left and has no node, or it has gates.
    Tried,
    /// All Pods that were left have a node.
    Bound,
    /// The measured part begins.
    Measure,
    /// Meanwhile, at this pace, one object of each is made.
    Churn(Duration, &'static [Make]),
    /// Meanwhile, at this pace, one object of each is made, and removed at the next turn.
    Recreate(Duration, &'static [Make]),
    /// Meanwhile, so many objects are removed, so many a second.
    Delete(usize, usize, Make),
    /// So many objects are changed to these, so many a second.
    Update(usize, usize, Change, Make),
    /// For this time, again and again: so many Pods are made, and removed when all of them have a node.
    Steady(Duration, usize, Make),
}

/// The way in which an object is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// By a merge patch.
    Object,
    /// By a merge patch of its status.
    Status,
    /// By a strategic merge patch of the subresource `resize`.
    Resize,
}

/// A workload.
pub(crate) struct Workload {
    /// Upstream's name.
    pub(crate) name: &'static str,
    pub(crate) steps: &'static [Step],
    /// Whether the controller runs that makes claims by templates.
    pub(crate) claims: bool,
    /// Pods a second of upstream's scheduler with API server and etcd on two cores, where it was measured.
    pub(crate) upstream: Option<f64>,
    /// Pods a second below which upstream's own run fails.
    pub(crate) floor: Option<f64>,
}

impl Workload {
    const fn new(name: &'static str, steps: &'static [Step]) -> Self {
        Self { name, steps, claims: false, upstream: None, floor: None }
    }

    const fn with_claims(self) -> Self {
        Self { claims: true, ..self }
    }

    const fn floor(self, floor: u32) -> Self {
        Self { floor: Some(floor as f64), ..self }
    }

    const fn upstream(self, measured: u32) -> Self {
        Self { upstream: Some(measured as f64), ..self }
    }

    /// Whether decisions alone mean something: all Pods are placed one after the other, on what is there.
    pub(crate) fn can_be_alone(&self) -> bool {
        !self.claims
            && self.steps.iter().all(|step| {
                matches!(step, Step::Make(..) | Step::Place(..) | Step::Measure | Step::Churn(..))
            })
    }
}

/// The workload of which the rest is measured, too: memory, and the time at a pace.
pub(crate) const BASIC: &Workload = &misc::ALL[0];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Workload> {
    let all: [&'static [Workload]; 6] =
        [misc::ALL, affinity::ALL, spreading::ALL, volumes::ALL, events::ALL, devices::ALL];
    all.into_iter().flatten()
}
