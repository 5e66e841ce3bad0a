//! Thresholds as they are stated, and whether they are met.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::layout::Layout;
use super::super::observe::{met, updated};
use super::super::signal::Signal;
use super::super::state::sort;
use super::super::threshold::{Amount, Statement, Statements, Threshold};
use super::super::{Settings, default_hard};
use super::{seen, threshold};

fn statements(text: &str) -> Statements {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| pair.split_once(' ').map(|(k, v)| (k.to_owned(), v.to_owned())).unwrap();
    Statements(pairs.map(pair).collect::<BTreeMap<_, _>>())
}

/// Upstream's 24 cases of `TestParseThresholdConfig`.
#[test]
fn statements_become_thresholds() {
    let check = |allocatable: bool, all: [&str; 4], expected: Option<&[&str]>| {
        let [hard, soft, grace, min_reclaim] = all.map(statements);
        let got = Statement { hard, soft, grace, min_reclaim }.thresholds(allocatable);
        let Some(expected) = expected else {
            assert!(got.is_err(), "{all:?}: {got:?}");
            return;
        };
        let expected: Vec<Threshold> = expected.iter().map(|t| threshold(t)).collect();
        let got = got.unwrap();
        assert_eq!(got.len(), expected.len(), "{all:?}: {got:?}");
        for threshold in &expected {
            assert!(got.contains(threshold), "{all:?}: no {threshold:?} in {got:?}");
        }
    };
    let memory = "memory.available 150Mi";
    check(false, ["", "", "", ""], Some(&[]));
    check(
        true,
        [memory, "memory.available 300Mi", "memory.available 30s", "memory.available 0"],
        Some(&[
            "allocatableMemory.available 150Mi 0 0",
            "memory.available 150Mi 0 0",
            "memory.available 300Mi 30 0",
        ]),
    );
    check(
        false,
        ["memory.available 10%", "memory.available 30%", "memory.available 30s", "memory.available 5%"],
        Some(&["memory.available 10% 0 5%", "memory.available 30% 30 5%"]),
    );
    let graces = "imagefs.available 30s,nodefs.available 30s";
    check(
        false,
        [
            "imagefs.available 150Mi,nodefs.available 100Mi",
            "imagefs.available 300Mi,nodefs.available 200Mi",
            graces,
            "imagefs.available 2Gi,nodefs.available 1Gi",
        ],
        Some(&[
            "imagefs.available 150Mi 0 2Gi",
            "nodefs.available 100Mi 0 1Gi",
            "imagefs.available 300Mi 30 2Gi",
            "nodefs.available 200Mi 30 1Gi",
        ]),
    );
    check(
        false,
        [
            "imagefs.available 15%,nodefs.available 10.5%",
            "imagefs.available 30%,nodefs.available 20.5%",
            graces,
            "imagefs.available 10%,nodefs.available 5%",
        ],
        Some(&[
            "imagefs.available 15% 0 10%",
            "nodefs.available 10.5% 0 5%",
            "imagefs.available 30% 30 10%",
            "nodefs.available 20.5% 30 5%",
        ]),
    );
    check(
        false,
        [
            "imagefs.inodesFree 150Mi,nodefs.inodesFree 100Mi",
            "imagefs.inodesFree 300Mi,nodefs.inodesFree 200Mi",
            "imagefs.inodesFree 30s,nodefs.inodesFree 30s",
            "imagefs.inodesFree 2Gi,nodefs.inodesFree 1Gi",
        ],
        Some(&[
            "imagefs.inodesFree 150Mi 0 2Gi",
            "nodefs.inodesFree 100Mi 0 1Gi",
            "imagefs.inodesFree 300Mi 30 2Gi",
            "nodefs.inodesFree 200Mi 30 1Gi",
        ]),
    );
    check(false, ["memory.available 0%", "memory.available 0%", "", ""], Some(&[]));
    check(false, ["memory.available 100%", "memory.available 100%", "", ""], Some(&[]));
    for wrong in [
        ["mem.available 150Mi", "", "", ""],
        ["memory.available -150Mi", "", "", ""],
        ["memory.available -15%", "", "", ""],
        ["memory.available 150%", "", "", ""],
        ["", "memory.available -150Mi", "", ""],
        ["memory.available 150Mi,invalid.foo 150Mi", "", "", ""],
        ["", memory, "", ""],
        ["", memory, "memory.available -30s", ""],
        ["", "", "", "memory.available -300Mi"],
        ["", "", "", "mem.available 300Mi"],
        ["", "", "", "memory.available "],
        ["", "", "", "memory.available -15%"],
        ["", "", "", "memory.available 10..5%"],
        ["memory.available ", "", "", ""],
        ["memory.available 10..5%", "", "", ""],
        ["", memory, "mem.available 30s", ""],
        ["", memory, "memory.available 30mins", ""],
        ["memory.available 0", "", "", ""],
    ] {
        check(false, wrong, None);
    }
}

#[test]
fn flags_are_read() {
    let hard: Statements = "memory.available<100Mi,nodefs.available<10%".parse().unwrap();
    assert_eq!(hard.to_string(), "memory.available<100Mi,nodefs.available<10%");
    assert_eq!(Statements::pairs("memory.available=1m30s").unwrap().0["memory.available"], "1m30s");
    for wrong in
        ["memory.available", "memory.available=1Mi", "x<1", "memory.available<x", "memory.available<-1"]
    {
        assert!(wrong.parse::<Statements>().is_err(), "{wrong}");
    }
    assert!("memory.available<1Mi,memory.available<2Mi".parse::<Statements>().is_err());
    assert_eq!("".parse::<Statements>(), Ok(Statements::default()));
    let settings = Settings::default();
    assert_eq!(settings.stated.hard, default_hard());
    assert_eq!(settings.reserved(Signal::Memory, 1 << 40), 100 << 20);
    // In the width of upstream's numbers.
    assert_eq!(settings.reserved(Signal::NodeFs, 10_000 * 1024), 1_024_000);
    assert_eq!(settings.reserved(Signal::Pids, 1000), 0);
}

/// Upstream's 4 cases of `TestAddAllocatableThresholds`.
#[test]
fn pods_together_have_the_hard_threshold_of_memory() {
    let check = |all: [&str; 3], expected: usize| {
        let [hard, soft, grace] = all.map(statements);
        let stated = Statement { hard, soft, grace, min_reclaim: Statements::default() };
        let got = stated.thresholds(true).unwrap();
        let own = got.iter().filter(|t| t.signal == Signal::AllocatableMemory).count();
        assert_eq!(
            (own, got.iter().all(|t| t.signal != Signal::AllocatableMemory || t.is_hard())),
            (expected, true)
        );
    };
    check(["imagefs.available 150Mi", "", ""], 0);
    check(["", "memory.available 150Mi", "memory.available 10s"], 0);
    check(["memory.available 150Mi", "", ""], 1);
    check(["memory.available 200Mi", "memory.available 150Mi", "memory.available 10s"], 1);
}

/// Upstream's 6 cases of `TestAddContainerFsThresholds`.
#[test]
fn layers_have_the_thresholds_of_their_disk() {
    let read = |text: &str| {
        let parts: Vec<&str> = text.split(' ').collect();
        let grace = i32::from(parts[0] == "soft");
        threshold(&format!("{} {} {grace} {}", parts[1], parts[2], parts[3]))
    };
    let mut count = 0;
    for line in include_str!("containerfs.tsv").lines().skip(1) {
        let [layout, thresholds, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let layout = match layout {
            "one" => Layout::of(false, false),
            "images" => Layout::of(true, false),
            _ => Layout::of(true, true),
        };
        let thresholds: Vec<Threshold> = thresholds.split(", ").map(read).collect();
        let got = layout.with_layers(&thresholds);
        let own: Vec<&Threshold> = got
            .iter()
            .filter(|t| matches!(t.signal, Signal::ContainerFs | Signal::ContainerFsInodes))
            .collect();
        assert_eq!(own.len(), 4, "{line}");
        for expected in expected.split(", ").map(read) {
            assert!(own.contains(&&expected), "{layout:?}: no {expected:?} in {own:?}");
        }
        count += 1;
    }
    assert_eq!(count, 6);
    // Without thresholds of the disk there are none of layers that could be met.
    let none = Layout::Single.with_layers(&[]);
    assert_eq!(none.len(), 4);
    assert!(met(&none, &seen(&[("containerfs.available", "0", "1Gi")]), false).is_empty());
}

fn check_met(thresholds: &[&str], all: &[(&str, &str, &str)], reclaim: bool, expected: &[usize]) {
    let thresholds: Vec<Threshold> = thresholds.iter().map(|t| threshold(t)).collect();
    let expected: Vec<Threshold> = expected.iter().map(|at| thresholds[*at].clone()).collect();
    assert_eq!(met(&thresholds, &seen(all), reclaim), expected, "{all:?}");
}

/// Upstream's 5 cases of `TestThresholdsMet` and 6 of `TestPercentageThresholdsMet`.
#[test]
fn thresholds_are_met() {
    let (hard, reclaim) = ("memory.available 1Gi", "memory.available 1Gi 0 500Mi");
    let memory = |available| ("memory.available", available, "");
    let with =
        |(signal, available, _): (&'static str, &'static str, &'static str)| [(signal, available, "0")];
    check_met(&[], &[], true, &[]);
    check_met(&[hard], &with(memory("500Mi")), false, &[0]);
    check_met(&[hard], &with(memory("2Gi")), false, &[]);
    check_met(&[reclaim], &with(memory("1.4Gi")), true, &[0]);
    check_met(&[reclaim], &with(memory("1.6Gi")), true, &[]);
    check_met(&[hard], &[], false, &[]);
    let both = ["memory.available 20% 0 5%", "nodefs.available 30%"];
    let of = |memory, disk| [("memory.available", memory, "1000Mi"), ("nodefs.available", disk, "1000Gi")];
    check_met(&both, &of("100Mi", "100Gi"), false, &[0, 1]);
    check_met(&both, &of("300Mi", "400Gi"), false, &[]);
    check_met(&both, &of("300Mi", "100Gi"), false, &[1]);
    check_met(&both, &of("100Mi", "400Gi"), false, &[0]);
    check_met(&both, &of("225Mi", "400Gi"), true, &[0]);
    check_met(&both, &of("300Mi", "400Gi"), true, &[]);
}

/// Upstream's 6 cases of `TestThresholdsUpdatedStats`.
#[test]
fn only_what_is_new_counts() {
    let check = |now: Option<i64>, before: Option<Option<i64>>, expected: bool| {
        let at = |second: Option<i64>| second.map(|s| jiff::Timestamp::from_second(s).unwrap());
        let with = |second| {
            let mut all = seen(&[("memory.available", "1Gi", "1Gi")]);
            for seen in all.values_mut() {
                seen.at = at(second);
            }
            all
        };
        let threshold = threshold("memory.available 1Gi");
        let before = before.map(with).unwrap_or_default();
        assert_eq!(!updated(&[threshold], &with(now), &before).is_empty(), expected, "{now:?} {before:?}");
    };
    assert!(updated(&[], &seen(&[]), &seen(&[])).is_empty());
    check(None, Some(None), true);
    check(Some(10), None, true);
    check(Some(10), Some(Some(20)), false);
    check(Some(10), Some(Some(10)), false);
    check(Some(20), Some(Some(10)), true);
}

/// Upstream's 3 cases of `TestSortByEvictionPriority` and 3 of `TestGetReclaimableThreshold`: a signal that is none cannot
/// be said here.
#[test]
fn memory_comes_first() {
    let check = |all: &[&str], expected: &[&str]| {
        let mut got: Vec<Threshold> = all.iter().map(|signal| threshold(&format!("{signal} 1"))).collect();
        sort(&mut got);
        let got: Vec<&str> = got.iter().map(|t| t.signal.name()).collect();
        assert_eq!(got, expected);
    };
    check(&[], &[]);
    for first in ["memory.available", "allocatableMemory.available"] {
        check(&["nodefs.available", "pid.available", first], &[first, "nodefs.available", "pid.available"]);
    }
}

/// Upstream's 4 cases of `TestParsePercentage`, and those of `TestCompareThresholdValue` that can be said here.
#[test]
fn amounts() {
    let share = |text: &str| {
        let stated =
            Statement { hard: statements(&format!("memory.available {text}")), ..Statement::default() };
        stated.thresholds(false).ok().map(|all| all[0].value.clone())
    };
    assert_eq!(share("25.5%"), Some(Amount::Share(0.255)));
    assert_eq!((share("foo%"), share("12%345")), (None, None));
    let same = |a: &str, b: &str| {
        threshold(&format!("memory.available {a}")).same(&threshold(&format!("memory.available {b}")))
    };
    assert!(same("10Mi", "10240Ki") && same("10%", "10%"));
    assert!(!same("10Mi", "20Mi") && !same("10%", "20%") && !same("10Mi", "10%"));
    let graced = Threshold { grace: Duration::from_secs(1), ..threshold("memory.available 1") };
    assert!(!graced.same(&threshold("memory.available 1")));
}
