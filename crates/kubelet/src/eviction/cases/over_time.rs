//! The consequences over time: upstream's flows of memory, processes, disks, inodes, and of what is to be reclaimed.

use std::time::Duration;

use tokio::time::Instant;

use super::super::layout::{Layout, Reclaim};
use super::super::signal::{Condition, Signal};
use super::super::state::{State, Verdict};
use super::super::threshold::Threshold;
use super::{seen, threshold};

/// A node that is looked at.
struct Node {
    state: State,
    thresholds: Vec<Threshold>,
    now: Instant,
}

const TRANSITION: Duration = Duration::from_mins(5);

impl Node {
    fn new(thresholds: &[&str]) -> Self {
        let thresholds = thresholds.iter().map(|t| threshold(t)).collect();
        Self { state: State::default(), thresholds, now: Instant::now() }
    }
    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }
    /// Looks; answers the conditions, and the thresholds to act for.
    fn look(&mut self, all: &[(&str, &str, &str)]) -> (Vec<Condition>, Vec<String>) {
        let Verdict { conditions, act } =
            self.state.observe(&self.thresholds, TRANSITION, seen(all), self.now);
        let name = |t: &Threshold| format!("{}{}", if t.is_hard() { "" } else { "soft " }, t.signal);
        (conditions, act.iter().map(name).collect())
    }
    fn check(&mut self, all: &[(&str, &str, &str)], conditions: &[Condition], act: &[&str]) {
        assert_eq!(self.look(all), (conditions.to_vec(), act.iter().map(|a| (*a).to_owned()).collect()));
    }
}

/// Upstream's `TestMemoryPressure`, `TestPIDPressure`, `TestDiskPressureNodeFs` and `TestInodePressureFsInodes`, whose
/// steps are the same.
#[test]
fn a_shortage_comes_and_goes() {
    let check = |signal: &str, condition: Condition, hard: &str, soft: &str, unit: [&str; 4]| {
        let mut node = Node::new(&[&format!("{signal} {hard}"), &format!("{signal} {soft} 120")]);
        let soft_name = format!("soft {signal}");
        let [plenty, below_soft, below_hard, capacity] = unit;
        let of = |left| [(signal, left, capacity)];
        node.check(&of(plenty), &[], &[]);
        // The soft threshold is met, and its time is not up.
        node.after(Duration::from_mins(1)).check(&of(below_soft), &[condition], &[]);
        node.after(Duration::from_mins(3)).check(&of(below_soft), &[condition], &[&soft_name]);
        // Enough again: the condition stays for the transition period.
        node.after(Duration::from_mins(20)).check(&of(plenty), &[], &[]);
        node.after(Duration::from_mins(1)).check(&of(below_hard), &[condition], &[signal]);
        node.after(Duration::from_mins(1)).check(&of(plenty), &[condition], &[]);
        node.after(Duration::from_mins(5)).check(&of(plenty), &[], &[]);
    };
    check("memory.available", Condition::Memory, "1Gi", "2Gi", ["3Gi", "1500Mi", "500Mi", "8Gi"]);
    check("pid.available", Condition::Pid, "1200", "1500", ["2000", "1300", "200", "9000"]);
    check("nodefs.available", Condition::Disk, "1Gi", "2Gi", ["16Gi", "1.5Gi", "500Mi", "200Gi"]);
    check("imagefs.available", Condition::Disk, "1Gi", "2Gi", ["16Gi", "1.5Gi", "500Mi", "200Gi"]);
    check("nodefs.inodesFree", Condition::Disk, "1Mi", "2Mi", ["3Mi", "1.5Mi", "0.5Mi", "4Mi"]);
    check("allocatableMemory.available", Condition::Memory, "1Gi", "2Gi", ["3Gi", "1500Mi", "500Mi", "5Gi"]);
}

/// Upstream's `TestMinReclaim`.
#[test]
fn more_is_reclaimed_than_is_needed() {
    let mut node = Node::new(&["memory.available 1Gi 0 500Mi"]);
    let memory = |left| [("memory.available", left, "8Gi")];
    let (pressed, act) = ([Condition::Memory], ["memory.available"]);
    node.check(&memory("2Gi"), &[], &[]);
    node.after(Duration::from_mins(1)).check(&memory("500Mi"), &pressed, &act);
    // Above the threshold, but not by as much as is wanted.
    node.after(Duration::from_mins(1)).check(&memory("1.2Gi"), &pressed, &act);
    node.after(Duration::from_mins(1)).check(&memory("2Gi"), &pressed, &[]);
    node.after(Duration::from_mins(5)).check(&memory("2Gi"), &[], &[]);
}

/// A soft threshold's time begins anew after a time above it.
#[test]
fn grace_begins_anew() {
    let mut node = Node::new(&["memory.available 2Gi 120"]);
    let memory = |left| [("memory.available", left, "8Gi")];
    node.check(&memory("1Gi"), &[Condition::Memory], &[]);
    node.after(Duration::from_mins(1)).check(&memory("3Gi"), &[Condition::Memory], &[]);
    node.after(Duration::from_mins(1)).check(&memory("1Gi"), &[Condition::Memory], &[]);
    node.after(Duration::from_secs(119)).check(&memory("1Gi"), &[Condition::Memory], &[]);
    node.after(Duration::from_secs(1)).check(
        &memory("1Gi"),
        &[Condition::Memory],
        &["soft memory.available"],
    );
}

#[test]
fn several_shortages_at_once() {
    let mut node = Node::new(&["nodefs.available 1Gi", "memory.available 1Gi", "pid.available 100"]);
    let all = [
        ("nodefs.available", "1Mi", "10Gi"),
        ("memory.available", "1Mi", "10Gi"),
        ("pid.available", "1", "1000"),
    ];
    let every = [Condition::Disk, Condition::Memory, Condition::Pid];
    node.check(&all, &every, &["memory.available", "nodefs.available", "pid.available"]);
    // A signal that cannot be seen any more is not acted for.
    node.after(Duration::from_secs(10)).check(&all[2..], &every, &["pid.available"]);
    assert_eq!(every.map(Condition::name), ["DiskPressure", "MemoryPressure", "PIDPressure"]);
}

/// Upstream's tables of `TestNodeReclaimFuncs`: what is removed for each signal, by where file systems lie.
#[test]
fn the_node_gives_before_pods_do() {
    use Reclaim::{Containers, Images};
    let check = |layout: Layout, of: [&[Reclaim]; 3]| {
        let signals = [
            [Signal::NodeFs, Signal::NodeFsInodes],
            [Signal::ImageFs, Signal::ImageFsInodes],
            [Signal::ContainerFs, Signal::ContainerFsInodes],
        ];
        for (signals, expected) in signals.into_iter().zip(of) {
            for signal in signals {
                assert_eq!(layout.reclaims(signal), expected, "{layout:?} {signal}");
            }
        }
        for signal in [Signal::Memory, Signal::AllocatableMemory, Signal::Pids] {
            assert!(layout.reclaims(signal).is_empty());
        }
    };
    let both: &[Reclaim] = &[Containers, Images];
    check(Layout::Single, [both, both, both]);
    check(Layout::Images, [&[], both, both]);
    check(Layout::Split, [&[Containers], &[Images], &[Containers]]);
}
