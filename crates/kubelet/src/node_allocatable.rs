//! The part of the node that Pods have: how large it is, and that neither they nor others take more.

use std::io;
use std::time::Duration;

use client::EventType;

use crate::cgroups::{Cgroups, Reservation};
use crate::config::Config;
use crate::eviction::Signal;
use crate::node::machine::{Filesystem, Machine, Pids};
use crate::node::{Others, ReservedCgroup};
use crate::pods::resources::{PodCgroup, shares};
use crate::recorder::{self, PodRecorder};
use crate::stats::room::existing;

/// How often it is tried again; upstream's.
const PERIOD: Duration = Duration::from_mins(1);
const ENFORCED: &str = "NodeAllocatableEnforced";
const FAILED: &str = "FailedNodeAllocatableEnforcement";

/// Why the node cannot be shared as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum AllocatableError {
    /// More is kept from Pods than there is.
    #[error("invalid Node Allocatable configuration. {}", .0.join(" "))]
    TooMuch(Vec<String>),
    /// A cgroup cannot be held to its part.
    #[error("Failed to enforce {what} Cgroup Limits on {name:?}")]
    Cgroup {
        /// The owner, as upstream writes it.
        what: &'static str,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The machine as far as it is this node's.
pub(crate) fn machine(config: &Config) -> Machine {
    config.node.machine()
}

/// Whether there is as much as is kept from Pods.
///
/// # Errors
/// There is less of something.
pub(crate) fn check(config: &Config, machine: &Machine) -> Result<(), AllocatableError> {
    let disk = Filesystem::of(existing(&config.root_dir)).map_or(u64::MAX, |fs| fs.capacity);
    let wrong = too_much(config, machine, disk);
    if wrong.is_empty() { Ok(()) } else { Err(AllocatableError::TooMuch(wrong)) }
}

/// The resources of which more is kept than there is, in upstream's words; `disk` is the size of the disk in bytes.
fn too_much(config: &Config, machine: &Machine, disk: u64) -> Vec<String> {
    let reserved = config.node.reserved;
    let bytes = |bytes: u64| crate::node::status::binary(bytes).0;
    let kept = |signal: Signal, own: u64, capacity: u64| {
        own.saturating_add(config.kept_for_evictions(signal, capacity))
    };
    let (memory, storage) =
        (kept(Signal::Memory, reserved.memory, machine.memory), kept(Signal::NodeFs, reserved.storage, disk));
    let all = [
        (
            "cpu",
            reserved.milli_cpus > machine.milli_cpus,
            milli(reserved.milli_cpus),
            milli(machine.milli_cpus),
        ),
        ("memory", memory > machine.memory, bytes(memory), bytes(machine.memory)),
        ("ephemeral-storage", storage > disk, bytes(storage), bytes(disk)),
    ];
    let short = all.into_iter().filter(|(_, wrong, ..)| *wrong);
    short
        .map(|(name, _, kept, capacity)| {
            format!("Resource {name:?} has a reservation of {kept} but capacity of {capacity}. Expected capacity >= reservation.")
        })
        .collect()
}

fn milli(cpus: u64) -> String {
    crate::node::status::processors(cpus).0
}

/// The things that all Pods have together.
pub(crate) struct AllPods {
    /// Processors in thousandths.
    pub(crate) milli_cpus: i64,
    /// Their cgroup.
    pub(crate) cgroup: PodCgroup,
}

/// The part of a machine that all Pods have: all of it without what is kept for others, if they are held to that.
pub(crate) fn of_all_pods(config: &Config, machine: &Machine, pids: Option<Pids>) -> AllPods {
    let reserved =
        if config.node.enforce_allocatable { config.node.reserved } else { crate::node::Reserved::default() };
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let milli_cpus = number(machine.milli_cpus.saturating_sub(reserved.milli_cpus));
    let memory = machine.memory.saturating_sub(reserved.memory).max(1);
    let cgroup = PodCgroup {
        shares: shares(milli_cpus),
        // A machine that does not tell how much it has limits nobody.
        memory: (machine.memory > 0).then(|| number(memory)),
        pids: pids.map(|pids| number(pids.max.saturating_sub(reserved.pids).max(1))),
        hugepages: machine.hugepages.clone(),
        ..PodCgroup::default()
    };
    AllPods { milli_cpus, cgroup }
}

/// Holds Pods and others to their parts of the node.
pub(crate) struct NodeAllocatable {
    pub(crate) cgroups: Cgroups,
    pub(crate) recorder: PodRecorder,
    pub(crate) node: String,
    /// The settings of the cgroup of all Pods.
    pub(crate) wanted: PodCgroup,
}

impl NodeAllocatable {
    fn tell(&self, kind: EventType, reason: &str, message: String) {
        self.recorder.0.event_about(recorder::node(&self.node), kind, reason, message);
    }

    /// Holds others than Pods to their parts.
    ///
    /// # Errors
    /// A cgroup is not there, or the kernel refuses.
    pub(crate) fn reserve(&self, all: &[ReservedCgroup]) -> Result<(), AllocatableError> {
        for cgroup in all {
            let (what, of) = match (cgroup.of, cgroup.compressible) {
                (Others::System, false) => ("System Reserved", "system"),
                (Others::System, true) => ("System Reserved Compressible", "system"),
                (Others::Kube, false) => ("Kube Reserved", "kube"),
                (Others::Kube, true) => ("Kube Reserved Compressible", "kube"),
            };
            let name = &cgroup.name;
            if let Err(source) = self.cgroups.reserve(name, &part(cgroup)) {
                let message = format!("Failed to enforce {what} Cgroup Limits on {name:?}: {source}");
                self.tell(EventType::Warning, FAILED, message);
                return Err(AllocatableError::Cgroup { what, name: name.clone(), source });
            }
            let message = format!("Updated limits on {of} reserved cgroup {name}");
            self.tell(EventType::Normal, ENFORCED, message);
        }
        Ok(())
    }

    /// Holds all Pods to their part; whether that is done.
    pub(crate) fn limit(&self) -> bool {
        match self.cgroups.limit_pods(&self.wanted) {
            Ok(()) => {
                let message = "Updated Node Allocatable limit across pods".to_owned();
                self.tell(EventType::Normal, ENFORCED, message);
                true
            }
            Err(error) => {
                let name = self.cgroups.name_of_pods();
                let message = format!("Failed to update Node Allocatable Limits {name}: {error}");
                tracing::warn!("{message}");
                self.tell(EventType::Warning, FAILED, message);
                false
            }
        }
    }

    /// Tries until all Pods are held to their part: those that run may have more, until they are evicted.
    pub(crate) async fn keep(&self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            if self.limit() {
                return;
            }
        }
    }
}

/// The part of a cgroup of others.
fn part(of: &ReservedCgroup) -> Reservation {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Reservation {
        shares: of.milli_cpus.map(|milli| shares(number(milli))),
        memory: of.memory.map(number).filter(|_| !of.compressible),
        pids: of.pids.map(number).filter(|_| !of.compressible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Reserved;

    const GIB: u64 = 1 << 30;

    fn config(reserved: Reserved, enforced: bool) -> Config {
        let mut config = Config::new("n");
        config.node.reserved = reserved;
        config.node.enforce_allocatable = enforced;
        config
    }

    fn machine() -> Machine {
        Machine {
            milli_cpus: 4000,
            memory: 8 * GIB,
            hugepages: [(2 << 20, 4 << 20)].into(),
            ..Machine::default()
        }
    }

    #[test]
    fn pods_have_what_is_not_kept_for_others() {
        let reserved = Reserved { milli_cpus: 1000, memory: GIB, storage: 0, pids: 100 };
        let check = |enforced: bool, expected: (i64, Option<i64>, Option<i64>)| {
            let pids = Some(Pids { max: 1000, used: 1 });
            let all = of_all_pods(&config(reserved, enforced), &machine(), pids);
            let cgroup = all.cgroup;
            assert_eq!((all.milli_cpus, cgroup.memory, cgroup.pids), expected);
            assert_eq!((cgroup.shares, cgroup.hugepages), (shares(expected.0), machine().hugepages));
        };
        check(true, (3000, Some(7 << 30), Some(900)));
        check(false, (4000, Some(8 << 30), Some(1000)));
        let none = of_all_pods(&config(reserved, true), &Machine::default(), None);
        assert_eq!((none.cgroup.memory, none.cgroup.pids), (None, None));
    }

    #[test]
    fn more_than_there_is_cannot_be_kept() {
        let check = |reserved: Reserved, expected: &[&str]| {
            assert_eq!(too_much(&config(reserved, true), &machine(), 10 * GIB), expected);
        };
        check(Reserved::default(), &[]);
        check(Reserved { milli_cpus: 4000, memory: 7 * GIB, storage: 8 * GIB, pids: 0 }, &[]);
        // The room that thresholds of evictions keep counts, too.
        check(
            Reserved { milli_cpus: 4001, memory: 8 * GIB, storage: 0, pids: 0 },
            &[
                "Resource \"cpu\" has a reservation of 4001m but capacity of 4. Expected capacity >= reservation.",
                "Resource \"memory\" has a reservation of 8292Mi but capacity of 8Gi. Expected capacity >= reservation.",
            ],
        );
    }

    #[test]
    fn a_compressible_part_is_of_processors_alone() {
        let mut of = ReservedCgroup {
            of: Others::Kube,
            name: "/kube".into(),
            milli_cpus: Some(500),
            memory: Some(GIB),
            pids: None,
            compressible: false,
        };
        let part_of = |of: &ReservedCgroup| (part(of).shares, part(of).memory, part(of).pids);
        assert_eq!(part_of(&of), (Some(512), Some(1 << 30), None));
        of.compressible = true;
        assert_eq!(part_of(&of), (Some(512), None, None));
    }
}
