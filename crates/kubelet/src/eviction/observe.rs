//! The observations of each signal.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use jiff::Timestamp;

use super::signal::Signal;
use super::threshold::Threshold;
use crate::node::machine::Filesystem;
use crate::stats::room::Room;

/// A look at a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    /// The rest, in the signal's unit.
    pub(crate) available: i64,
    /// All that there is.
    pub(crate) capacity: i64,
    /// When it was measured, if that is known.
    pub(crate) at: Option<Timestamp>,
}

/// The signals that could be looked at.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

/// The signals of the room that is left. File systems that have no fixed number of inodes have no signal for them.
pub(crate) fn observations(room: &Room, now: Timestamp) -> Observations {
    let mut all = Observations::new();
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut put = |signal: Signal, (capacity, available): (u64, u64)| {
        let seen = Observation { available: number(available), capacity: number(capacity), at: Some(now) };
        all.insert(signal, seen);
    };
    if let Some(left) = room.memory {
        put(Signal::Memory, left);
    }
    if let Some(left) = room.pods_memory {
        put(Signal::AllocatableMemory, left);
    }
    let mut disk = |fs: Option<Filesystem>, bytes: Signal, inodes: Signal| {
        let Some(fs) = fs else { return };
        put(bytes, (fs.capacity, fs.available));
        if fs.inodes > 0 {
            put(inodes, (fs.inodes, fs.inodes_free));
        }
    };
    disk(room.nodefs, Signal::NodeFs, Signal::NodeFsInodes);
    disk(room.imagefs, Signal::ImageFs, Signal::ImageFsInodes);
    disk(room.containerfs, Signal::ContainerFs, Signal::ContainerFsInodes);
    if let Some(pids) = room.pids {
        put(Signal::Pids, (pids.max, pids.max.saturating_sub(pids.used)));
    }
    all
}

/// The rest of a signal, as messages write it.
pub(crate) fn available(signal: Signal, seen: &Observation) -> String {
    let of = if signal.is_bytes() { Quantity::from_bytes } else { Quantity::from_value };
    of(seen.available).to_string()
}

/// The thresholds below which the node is; with `reclaim` those that it is not above by what is to be reclaimed.
pub(crate) fn met(thresholds: &[Threshold], seen: &Observations, reclaim: bool) -> Vec<Threshold> {
    let is_met = |threshold: &&Threshold| {
        let Some(seen) = seen.get(&threshold.signal) else { return false };
        let more = threshold.min_reclaim.as_ref().filter(|_| reclaim);
        let least = threshold.value.of(seen.capacity);
        let least = least.saturating_add(more.map_or(0, |more| more.of(seen.capacity)));
        least > seen.available
    };
    thresholds.iter().filter(is_met).cloned().collect()
}

/// Those of the thresholds of which something new was seen.
pub(crate) fn updated(
    thresholds: &[Threshold],
    seen: &Observations,
    before: &Observations,
) -> Vec<Threshold> {
    let is_new = |threshold: &&Threshold| {
        let Some(seen) = seen.get(&threshold.signal) else { return false };
        let before = before.get(&threshold.signal);
        before.is_none_or(|before| seen.at.is_none() || seen.at > before.at)
    };
    thresholds.iter().filter(is_new).cloned().collect()
}
