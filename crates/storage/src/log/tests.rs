//! The log against a model, on a disk that fails and loses its power.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{NewObject, Object};
use component::{Clock, Shutdown};
use futures::StreamExt;
use futures::future::join_all;
use imbl::OrdMap;
use proptest::prelude::*;

use super::files::Files;
use super::format::{Format, NEWEST};
use super::load::{Item, LoadError, Loaded, load};
use super::sim::Sim;
use super::{Log, Settings};
use crate::durability::Durability;
use crate::engine::{Change, Engine, Record, View};
use crate::facade::{Loader, Store};
use crate::history::Limits;
use crate::store::{Batch, ResourceId, ResourceSpec, Scope, WatchStart, Write, WriteError};
use crate::view::Live;
use crate::watch::WatchOptions;

/// The log size from which a snapshot is written in these tests.
const SMALL: u64 = 4096;

pub(super) fn new_object(name: &str, body: String) -> NewObject {
    NewObject {
        name: name.into(),
        namespace: "ns".into(),
        uid: "".into(),
        labels: Box::new([]),
        owners: Box::new([]),
        fields: Box::new([]),
        deleting: false,
        finalizers: true,
        stamp: 7,
        body: body.into(),
        rv_at: 1,
    }
}

pub(super) fn put(name: &str, revision: u64, size: usize) -> Record {
    let data = new_object(name, format!("{name} {revision} {}", "x".repeat(size)));
    let change = Change::Put { object: Arc::new(Object { data, revision }), expires: 0 };
    Record { group: "".into(), plural: "things".into(), revision, change }
}

pub(super) fn delete(name: &str, revision: u64) -> Record {
    let change = Change::Delete { namespace: "ns".into(), name: name.into() };
    Record { group: "".into(), plural: "things".into(), revision, change }
}

/// The objects: name to revision and body.
pub(super) type State = BTreeMap<String, (u64, String)>;

pub(super) fn change(state: &mut State, record: &Record) {
    match &record.change {
        Change::Put { object, .. } => {
            let body = String::from_utf8(object.data.body.to_vec()).unwrap();
            state.insert(object.data.name.to_string(), (object.revision, body));
        }
        Change::Delete { name, .. } => {
            state.remove(name.as_str());
        }
    }
}

pub(super) fn reload(sim: &Sim) -> Result<(State, Loaded), LoadError> {
    reload_format(sim, NEWEST)
}

pub(super) fn reload_format(sim: &Sim, format: &'static Format) -> Result<(State, Loaded), LoadError> {
    let mut state = State::new();
    let mut last = 0;
    let loaded = load(sim, format, &mut |item| match item {
        Item::State(record) => change(&mut state, &record),
        Item::Change(record) => {
            assert!(record.revision > last, "revisions ascend");
            last = record.revision;
            change(&mut state, &record);
        }
        Item::Snapshot(_) | Item::Segment(_) | Item::Batch(_) => {}
    })?;
    assert!(last <= loaded.last && loaded.floor <= loaded.last);
    Ok((state, loaded))
}

/// Settings with which a log is cut often.
pub(super) fn small(durability: Durability) -> Settings {
    Settings {
        min_log: SMALL,
        frame: 1024,
        room: 2048,
        retry: Duration::ZERO,
        ..Settings::new(durability, Clock::system())
    }
}

fn log(sim: &Sim, loaded: &Loaded) -> Log {
    Log::new(Arc::new(sim.clone()), loaded, small(Durability::Synced), None)
}

pub(super) fn view(state: &State, revision: u64) -> View {
    let mut live = Live::default();
    for (name, (revision, body)) in state {
        let data = new_object(name, body.clone());
        live.put(Arc::new(Object { data, revision: *revision }));
    }
    View { revision, resources: vec![("".into(), "things".into(), Arc::new(live))], expiries: OrdMap::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]
    #[test]
    fn any_damage_is_found_or_harmless(at: prop::sample::Index, seed: u64) {
        let sim = Sim::new(seed);
        let (_, loaded) = reload(&sim).unwrap();
        let mut log = log(&sim, &loaded);
        let mut states = vec![State::new()];
        for revision in 1..6 {
            let mut state = states[revision as usize - 1].clone();
            let record = put(&format!("o{}", revision % 3), revision, 40);
            change(&mut state, &record);
            log.commit(&[record]).unwrap();
            states.push(state);
        }
        let used = reload(&sim).unwrap().1.log_bytes as usize;
        let at = at.index(sim.size());
        sim.flip(&NEWEST.segment(0), at);
        match reload(&sim) {
            Err(LoadError::Damaged { .. }) => {}
            Err(e) => panic!("{e}"),
            Ok((state, _)) if at >= used => prop_assert_eq!(&state, &states[5]),
            // Damage to the last batch looks as if it had been torn, and nothing else may.
            Ok((state, _)) => prop_assert_eq!(&state, &states[4]),
        }
    }
}

/// Additions of a later version without another format are told from damage, or passed over.
#[test]
fn what_a_later_version_adds() {
    let with = |kind: u8, encoding: u32| {
        let sim = Sim::new(1);
        let (_, loaded) = reload(&sim).unwrap();
        let mut log = log(&sim, &loaded);
        log.commit(&[put("a", 1, 10)]).unwrap();
        let segment = log.segment.as_mut().unwrap();
        let mut payload = vec![kind];
        payload.extend_from_slice(&3u32.to_le_bytes());
        payload.extend_from_slice(b"new");
        let mut frame = super::codec::MARK.to_vec();
        for field in [payload.len() as u32, 1, encoding, 2, 0] {
            frame.extend_from_slice(&field.to_le_bytes());
        }
        frame.extend_from_slice(&segment.seed.checksum(&frame, &payload).to_le_bytes());
        frame.extend_from_slice(&payload);
        segment.file.append(&frame).unwrap();
        reload(&sim).map(|(state, _)| state)
    };
    assert_eq!(with(0x80, 0).unwrap().len(), 1);
    let name = NEWEST.segment(0);
    let kind = with(0x7f, 0).unwrap_err().to_string();
    assert_eq!(kind, format!("{name} has records of a kind (127) that this version does not know"));
    let encoding = with(0x80, 1).unwrap_err().to_string();
    assert_eq!(encoding, format!("{name} has parts encoded in a way that this version does not know"));
}

#[test]
fn files_of_another_store_are_found() {
    let [one, other] = [1, 2].map(|seed| {
        let sim = Sim::new(seed);
        let (_, loaded) = reload(&sim).unwrap();
        let mut log = log(&sim, &loaded);
        log.commit(&[put("a", 1, 10)]).unwrap();
        let (_, loaded) = reload(&sim).unwrap();
        let mut log = self::log(&sim, &loaded);
        log.commit(&[put("a", 2, 10)]).unwrap();
        sim
    });
    let mut bytes = Vec::new();
    other.read(&NEWEST.segment(1)).unwrap().read_to_end(&mut bytes).unwrap();
    one.create(&NEWEST.segment(1)).unwrap().append(&bytes).unwrap();
    let error = reload(&one).unwrap_err().to_string();
    let expected = format!("{} is damaged at byte 0: it belongs to another store", NEWEST.segment(0));
    assert_eq!(error, expected);
}

#[test]
fn the_disk_stays_bounded_under_endless_updates() {
    let sim = Sim::new(1);
    let (_, loaded) = reload(&sim).unwrap();
    let mut log = log(&sim, &loaded);
    let mut state = State::new();
    for revision in 1..3000 {
        let record = put(&format!("o{}", revision % 10), revision, 100);
        change(&mut state, &record);
        log.commit(&[record]).unwrap();
        log.maintain(&mut || view(&state, revision));
        log.join();
        assert!(sim.size() < 4 * SMALL as usize, "{} bytes", sim.size());
    }
    assert_eq!(reload(&sim).unwrap().0, state);
}

#[test]
fn a_missing_or_damaged_file_is_refused() {
    let sim = Sim::new(1);
    let (_, loaded) = reload(&sim).unwrap();
    let mut first = log(&sim, &loaded);
    let state = State::from([("a".to_owned(), (1, "a 1 ".to_owned()))]);
    first.commit(&[put("a", 1, 0)]).unwrap();
    let (_, loaded) = reload(&sim).unwrap();
    let mut second = log(&sim, &loaded);
    second.commit(&[put("b", 2, 5000)]).unwrap();
    sim.remove(&NEWEST.segment(0)).unwrap();
    assert!(matches!(reload(&sim), Err(LoadError::Missing(name)) if name == NEWEST.segment(0)));
    second.maintain(&mut || view(&state, 2));
    second.join();
    assert_eq!(reload(&sim).unwrap().0, state);
    sim.flip(&NEWEST.snapshot(2), 100);
    assert!(matches!(reload(&sim), Err(LoadError::Damaged { at: 88, .. })));
}

pub(super) fn store(sim: &Sim, now: Arc<AtomicU64>) -> (Store, ResourceId) {
    let mut loader = Loader::new(Limits::default(), Arc::new(move || now.load(Ordering::Relaxed)));
    let loaded = load(sim, NEWEST, &mut |item| match item {
        Item::State(record) => loader.state(record),
        Item::Change(record) => loader.change(record),
        Item::Snapshot(_) | Item::Segment(_) | Item::Batch(_) => {}
    })
    .unwrap();
    let log = log(sim, &loaded);
    let stop = Shutdown::new();
    let store = loader
        .start(Box::new(log), (loaded.floor, loaded.last), Duration::from_mins(1), None, &stop)
        .unwrap();
    let resource =
        store.register(ResourceSpec { group: "".into(), plural: "things".into(), indexed: vec![] });
    (store, resource)
}

#[tokio::test]
async fn a_failed_write_changes_nothing_and_the_next_one_works() {
    let sim = Sim::new(3);
    let (store, resource) = store(&sim, Arc::default());
    let create = |name: &str| {
        store.commit(Write::Create { resource, object: new_object(name, "{}".into()), ttl: None })
    };
    assert_eq!(create("a").await.unwrap().revision, 1);
    sim.fail_one_in(1);
    // Neither answer names the other object, which is not there.
    for outcome in join_all([create("b"), create("b")]).await {
        assert!(matches!(outcome, Err(WriteError::Engine(_))), "{outcome:?}");
    }
    assert!(store.get(resource, "ns", "b").is_none());
    assert!(store.get(resource, "ns", "a").is_some());
    assert_eq!(store.newest(), 1);
    sim.fail_one_in(0);
    let again = create("b").await.unwrap().revision;
    assert!(again > 2, "the revision {again} of a failed write is not given out again");
}

#[tokio::test]
async fn objects_expire_also_across_a_restart() {
    const HOUR: u64 = 3_600_000;
    let sim = Sim::new(4);
    let now = Arc::new(AtomicU64::new(1_000_000));
    let ttl = Some(Duration::from_hours(1));
    let (first, resource) = store(&sim, now.clone());
    let options = WatchOptions::default();
    let create = |name: &str, ttl| Write::Create { resource, object: new_object(name, "{}".into()), ttl };
    first.commit(create("stays", None)).await.unwrap();
    first.commit(create("early", ttl)).await.unwrap();
    now.fetch_add(HOUR / 2, Ordering::Relaxed);
    let late = first.commit(create("late", ttl)).await.unwrap();
    let again =
        Write::Update { resource, object: new_object("late", "{}".into()), expect: late.revision, ttl };
    first.commit(again).await.unwrap();
    let mut watcher = first.watch(resource, Scope::default(), WatchStart::After(4), options).unwrap();
    now.fetch_add(HOUR / 2 + 60_000, Ordering::Relaxed);
    first.nudge();
    let Some(Ok(Batch::Events(events))) = watcher.next().await else { panic!("an event") };
    assert_eq!((events.len(), events[0].revision), (1, 5));
    assert_eq!(events[0].object.data.name, "early");
    first.close().await;

    now.fetch_add(HOUR, Ordering::Relaxed);
    let (second, resource) = store(&sim, now);
    assert!(second.wait_for(ResourceId(0), 6, Duration::from_mins(1)).await);
    assert!(second.get(resource, "ns", "late").is_none());
    assert!(second.get(resource, "ns", "stays").is_some());
}
