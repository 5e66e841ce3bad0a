//! Stores of an older format, as any crash may have left them, rewritten while the power goes and calls fail.

use std::io::Read;
use std::sync::Arc;

use super::Log;
use super::crashes::{batch, runs, stepped};
use super::files::Files;
use super::format::{FORMAT_1, FORMAT_2, FORMATS, Format};
use super::load::{Item, Loaded, load};
use super::migrate::migrate;
use super::open::write_version;
use super::sim::{Call, ENOSPC, Sim};
use super::tests::{State, put, reload_format, view};
use crate::durability::Durability;
use crate::engine::{Engine, Record};

/// The existing formats, and one after them.
static AND_NEXT: [Format; 3] = [
    FORMAT_1,
    FORMAT_2,
    Format { version: 3, suffix: ".3", marks: [*b"3-log---", *b"3-snap--", *b"3-save--"], ..FORMAT_2 },
];

/// The whole content of a directory.
#[derive(Debug, PartialEq)]
struct Content {
    snapshot: Option<u64>,
    state: Vec<Record>,
    /// Number, floor and predecessor of each segment.
    segments: Vec<(u64, u64, u64)>,
    batches: Vec<u64>,
    changes: Vec<Record>,
    floor: u64,
    last: u64,
    lossy: bool,
}

fn content(sim: &Sim, format: &'static Format) -> Content {
    let (mut snapshot, mut segments) = (None, Vec::new());
    let (mut state, mut batches, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    let loaded = load(sim, format, &mut |item| match item {
        Item::Snapshot(header) => snapshot = Some(header.number),
        Item::State(record) => state.push(record),
        Item::Segment(header) => segments.push((header.number, header.floor, header.seq)),
        Item::Batch(number) => batches.push(number),
        Item::Change(record) => changes.push(record),
    });
    let Loaded { floor, last, lossy, .. } = loaded.unwrap();
    Content { snapshot, state, segments, batches, changes, floor, last, lossy }
}

/// The version that counts.
fn version(sim: &Sim) -> u32 {
    let mut text = String::new();
    sim.read("format").unwrap().read_to_string(&mut text).unwrap();
    text.trim_end().rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// A store of format 1 after some writes, calls that failed, snapshots, and power cuts.
fn old(random: &mut fastrand::Rng, durability: Durability) -> Sim {
    let mut sim = Sim::new(random.u64(..));
    write_version(&sim, 1).unwrap();
    for _start in 0..random.usize(..4) {
        let (mut state, loaded) = reload_format(&sim, &AND_NEXT[0]).unwrap();
        let mut settings = stepped(durability, random);
        settings.format = &AND_NEXT[0];
        let mut log = Log::new(Arc::new(sim.clone()), &loaded, settings, None);
        let mut revision = loaded.last;
        if random.bool() {
            sim.fail_one_in(20);
        }
        sim.cut_power_after(random.usize(1..150));
        if log.begun(&loaded, || view(&state, loaded.last)).is_ok() {
            for _ in 0..random.usize(..40) {
                let (batch, after) = batch(random, &state, revision);
                revision += batch.len() as u64;
                if log.commit(&batch).is_ok() {
                    state = after;
                }
                log.maintain(&mut || view(&state, revision));
            }
        }
        if random.bool() {
            log.close();
        }
        drop(log);
        sim = sim.power_cycle();
    }
    sim
}

fn run(seed: u64, durability: Durability) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sim = old(&mut random, durability);
    let expected = content(&sim, &AND_NEXT[0]);
    for attempt in 0.. {
        let found = version(&sim);
        assert_eq!(content(&sim, &AND_NEXT[found as usize - 1]), expected, "format {found}");
        sim.cut_power_after(random.usize(1..60 + attempt));
        if random.u8(..4) == 0 {
            sim.fail_one_in(10);
        }
        let done = migrate(&sim, found, &AND_NEXT, 0);
        sim = sim.power_cycle();
        if done.is_ok() {
            break;
        }
    }
    assert_eq!(version(&sim), 3);
    assert_eq!(content(&sim, &AND_NEXT[2]), expected);
    // Files of older formats that a cut left are gone once the new one has been read.
    let old = |name: &String| name.starts_with("log-") || name.starts_with("snapshot-");
    assert!(sim.list().unwrap().iter().filter(|name| old(name)).all(|name| name.ends_with(".3")));
}

#[test]
fn a_power_cut_in_a_migration_leaves_either_format_whole() {
    runs(10_000, |seed| run(seed, Durability::Synced));
    runs(1_000, |seed| run(seed, Durability::EverySecond));
}

#[test]
fn a_migration_without_room_changes_nothing_and_leaves_nothing() {
    let sim = Sim::new(5);
    write_version(&sim, 1).unwrap();
    let (_, loaded) = reload_format(&sim, &FORMATS[0]).unwrap();
    let mut settings = stepped(Durability::Synced, &mut fastrand::Rng::with_seed(1));
    settings.format = &FORMATS[0];
    let mut log = Log::new(Arc::new(sim.clone()), &loaded, settings, None);
    let mut state = State::new();
    for revision in 1..100 {
        let record = put(&format!("o{}", revision % 9), revision, 300);
        super::tests::change(&mut state, &record);
        log.commit(&[record]).unwrap();
        log.maintain(&mut || view(&state, revision));
    }
    log.close();
    let (names, expected) = (sim.list().unwrap(), content(&sim, &FORMATS[0]));
    for call in [Call::Create, Call::Append, Call::Sync, Call::SyncDir] {
        sim.fail_all(Some((call, ENOSPC)));
        assert!(migrate(&sim, 1, &FORMATS, 0).is_err());
        sim.fail_all(None);
        assert_eq!(content(&sim, &FORMATS[0]), expected);
        assert_eq!(sim.list().unwrap(), names, "{call:?}");
    }
    migrate(&sim, 1, &FORMATS, 0).unwrap();
    assert_eq!(content(&sim, &FORMATS[1]), expected);
}
