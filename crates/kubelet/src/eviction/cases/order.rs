//! The order of Pods: upstream's 12 tests of it.

use serde_json::{Value, json};

use super::super::layout::Layout;
use super::super::rank::{Candidate, rank};
use super::super::signal::Signal;
use super::{names, pod, stats};

/// One Pod: its name, its priority, its request, and what it uses.
type Case<'a> = (&'a str, i32, &'a str, Use<'a>);

#[derive(Clone, Copy)]
enum Use<'a> {
    Memory(&'a str),
    Processes(u64),
    Disk([&'a str; 3]),
    Inodes([&'a str; 3]),
    Unknown,
}

/// Ranks the Pods, given in any order, for a signal; they must come in the order of `cases`.
fn check(signal: Signal, cases: &[Case<'_>]) {
    let candidate = |(name, priority, request, used): &Case<'_>| {
        let requests: Value = match (used, request.is_empty()) {
            (_, true) => json!({}),
            (Use::Memory(_), false) => json!({"memory": request}),
            _ => json!({"ephemeral-storage": request}),
        };
        let stats = match used {
            Use::Memory(memory) => Some(stats(name, memory, 0, None)),
            Use::Processes(count) => Some(stats(name, "0", *count, None)),
            Use::Disk(disk) | Use::Inodes(disk) => Some(stats(name, "0", 0, Some(*disk))),
            Use::Unknown => None,
        };
        Candidate { pod: pod(name, *priority, &requests), stats }
    };
    let expected: Vec<&str> = cases.iter().map(|case| case.0).collect();
    let mut forwards: Vec<Candidate> = cases.iter().map(candidate).collect();
    let mut backwards: Vec<Candidate> = cases.iter().rev().map(candidate).collect();
    rank(&mut forwards, signal, Layout::Single);
    rank(&mut backwards, signal, Layout::Single);
    assert_eq!(names(&forwards), expected);
    assert_eq!(names(&backwards), expected);
}

const LOW: i32 = -1;
const USUAL: i32 = 0;
const HIGH: i32 = 1;

#[test]
fn those_above_their_request_come_first() {
    check(
        Signal::Memory,
        &[("exceeds", 1, "100Mi", Use::Memory("101Mi")), ("below", -1, "200Mi", Use::Memory("199Mi"))],
    );
    check(
        Signal::NodeFs,
        &[
            ("exceeds", 1, "100Mi", Use::Disk(["90Mi", "11Mi", "0Mi"])),
            ("below", -1, "200Mi", Use::Disk(["100Mi", "99Mi", "0Mi"])),
        ],
    );
}

#[test]
fn the_least_important_come_first() {
    check(
        Signal::Pids,
        &[
            ("low", -134, "", Use::Processes(1)),
            ("medium", 1, "", Use::Processes(1)),
            ("high", 12534, "", Use::Processes(1)),
        ],
    );
}

#[test]
fn by_disk() {
    check(
        Signal::NodeFs,
        &[
            ("best-effort-high", USUAL, "", Use::Disk(["50Mi", "100Mi", "150Mi"])),
            ("burstable-high", USUAL, "100Mi", Use::Disk(["150Mi", "150Mi", "50Mi"])),
            ("best-effort-low", USUAL, "", Use::Disk(["25Mi", "25Mi", "50Mi"])),
            ("burstable-low", USUAL, "100Mi", Use::Disk(["25Mi", "35Mi", "50Mi"])),
            ("guaranteed-high", USUAL, "400Mi", Use::Disk(["225Mi", "100Mi", "50Mi"])),
            ("guaranteed-low", USUAL, "400Mi", Use::Disk(["25Mi", "45Mi", "50Mi"])),
        ],
    );
    check(
        Signal::NodeFs,
        &[
            ("1", LOW, "", Use::Disk(["200Mi", "100Mi", "200Mi"])),
            ("2", LOW, "", Use::Disk(["10Mi", "10Mi", "30Mi"])),
            ("3", HIGH, "100Mi", Use::Disk(["200Mi", "150Mi", "250Mi"])),
            ("4", HIGH, "100Mi", Use::Disk(["90Mi", "50Mi", "10Mi"])),
            ("5", LOW, "1Gi", Use::Disk(["500Mi", "200Mi", "100Mi"])),
            ("6", LOW, "1Gi", Use::Disk(["50Mi", "100Mi", "50Mi"])),
            ("7", HIGH, "1Gi", Use::Disk(["250Mi", "500Mi", "50Mi"])),
            ("8", HIGH, "1Gi", Use::Disk(["100Mi", "60Mi", "40Mi"])),
        ],
    );
}

#[test]
fn by_inodes() {
    check(
        Signal::NodeFsInodes,
        &[
            ("high", USUAL, "", Use::Inodes(["200000", "150000", "50000"])),
            ("medium", USUAL, "", Use::Inodes(["100000", "150000", "50000"])),
            ("low", USUAL, "", Use::Inodes(["50000", "100000", "50000"])),
        ],
    );
    check(
        Signal::NodeFsInodes,
        &[
            ("1", LOW, "", Use::Inodes(["50000", "100000", "250000"])),
            ("2", LOW, "", Use::Inodes(["60000", "30000", "10000"])),
            ("3", HIGH, "", Use::Inodes(["150000", "150000", "50000"])),
            ("4", HIGH, "", Use::Inodes(["10000", "40000", "100000"])),
        ],
    );
}

#[test]
fn by_memory() {
    check(
        Signal::Memory,
        &[
            ("burstable-high", USUAL, "100Mi", Use::Memory("800Mi")),
            ("best-effort-high", USUAL, "", Use::Memory("500Mi")),
            ("best-effort-low", USUAL, "", Use::Memory("300Mi")),
            ("burstable-low", USUAL, "100Mi", Use::Memory("300Mi")),
            ("guaranteed-high", USUAL, "1Gi", Use::Memory("800Mi")),
            ("guaranteed-low", USUAL, "1Gi", Use::Memory("200Mi")),
        ],
    );
    check(
        Signal::AllocatableMemory,
        &[
            ("1", LOW, "", Use::Memory("500Mi")),
            ("2", LOW, "", Use::Memory("50Mi")),
            ("3", HIGH, "100Mi", Use::Memory("600Mi")),
            ("4", HIGH, "100Mi", Use::Memory("150Mi")),
            ("5", LOW, "1Gi", Use::Memory("800Mi")),
            ("6", LOW, "1Gi", Use::Memory("200Mi")),
            ("7", HIGH, "1Gi", Use::Memory("800Mi")),
            ("8", HIGH, "1Gi", Use::Memory("200Mi")),
        ],
    );
}

#[test]
fn by_processes() {
    check(
        Signal::Pids,
        &[
            ("1", LOW, "", Use::Processes(20)),
            ("2", LOW, "", Use::Processes(6)),
            ("3", HIGH, "", Use::Processes(20)),
            ("4", HIGH, "", Use::Processes(5)),
        ],
    );
}

/// Upstream's `TestStatsNotFoundForPod`, for each of its comparisons.
#[test]
fn those_of_whom_nothing_is_known_come_first() {
    let known = |used| [("missing", USUAL, "", Use::Unknown), ("known", USUAL, "", used)];
    check(Signal::Memory, &known(Use::Memory("1Gi")));
    check(Signal::Pids, &known(Use::Processes(1000)));
    check(Signal::NodeFs, &known(Use::Disk(["1Gi", "1Gi", "1Gi"])));
}

#[test]
fn only_what_lies_on_the_disk_counts() {
    let check = |layout: Layout, signal: Signal, expected: [&str; 3]| {
        let one = |name: &str, disk: [&str; 3]| Candidate {
            pod: pod(name, 0, &json!({})),
            stats: Some(stats(name, "0", 0, Some(disk))),
        };
        let mut all = [
            one("layer", ["5Mi", "0", "0"]),
            one("logs", ["0", "4Mi", "0"]),
            one("volume", ["0", "0", "3Mi"]),
        ];
        rank(&mut all, signal, layout);
        assert_eq!(names(&all), expected, "{layout:?} {signal}");
    };
    check(Layout::Single, Signal::NodeFs, ["layer", "logs", "volume"]);
    check(Layout::Single, Signal::ImageFs, ["layer", "logs", "volume"]);
    check(Layout::Images, Signal::NodeFs, ["logs", "volume", "layer"]);
    check(Layout::Images, Signal::ContainerFs, ["layer", "logs", "volume"]);
    check(Layout::Split, Signal::NodeFsInodes, ["layer", "logs", "volume"]);
}
