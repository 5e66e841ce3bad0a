//! The power goes, at any moment; calls fail. Acknowledged writes are there afterwards, and nothing is there by half.
//!
//! `FERROKUBE_CRASH_POINTS` is the number of power cuts that each test tries, `FERROKUBE_CRASH_SEED` the seed with
//! which it begins. A failure names the seed of its run; a run depends on nothing else, threads apart where a test says
//! so.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use api::Object;
use futures::StreamExt;
use futures::future::join_all;

use super::checkpoint::{Running, Writing};
use super::sim::{Call, EIO, ENOSPC, Sim};
use super::tests::{State, change, delete, new_object, put, reload, small, store, view};
use super::{Log, RAISE, Settings};
use crate::durability::Durability;
use crate::engine::{Engine, Record};
use crate::facade::Store;
use crate::store::{Batch, ResourceId, Scope, WatchStart, Write, WriteError};
use crate::watch::WatchOptions;

/// The number of power cuts in one run.
const CYCLES: usize = 5;

/// Runs with seed after seed until there were so many power cuts.
pub(super) fn runs(points: usize, run: impl Fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let points = number("FERROKUBE_CRASH_POINTS").map_or(points, |n| n as usize);
    let first = number("FERROKUBE_CRASH_SEED").unwrap_or(0);
    for seed in (first..).take(points.div_ceil(CYCLES)) {
        let _named = Named(seed);
        run(seed);
    }
}

/// Names the seed of a run that fails, when it is dropped.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FERROKUBE_CRASH_SEED={}", self.0);
        }
    }
}

/// Writes a snapshot step by step between the batches, at random.
struct Stepped {
    writing: Writing,
    outcome: Option<io::Result<u64>>,
    random: fastrand::Rng,
}

impl Stepped {
    fn step(&mut self) {
        if self.outcome.is_none() {
            self.outcome = self.writing.step().transpose();
        }
    }
}

impl Running for Stepped {
    fn ended(&mut self) -> bool {
        for _ in 0..self.random.u8(..4) {
            self.step();
        }
        self.outcome.is_some()
    }
    fn wait(mut self: Box<Self>) -> io::Result<u64> {
        loop {
            match self.outcome.take() {
                Some(outcome) => return outcome,
                None => self.step(),
            }
        }
    }
}

pub(super) fn stepped(durability: Durability, random: &mut fastrand::Rng) -> Settings {
    let mut random = random.fork();
    let beside = Box::new(move |writing| {
        let stepped = Stepped { writing, outcome: None, random: random.fork() };
        Ok(Box::new(stepped) as Box<dyn Running>)
    });
    Settings { beside, ..small(durability) }
}

/// A batch of random changes after a state and a revision, and the state after it.
pub(super) fn batch(random: &mut fastrand::Rng, state: &State, mut revision: u64) -> (Vec<Record>, State) {
    let mut after = state.clone();
    let mut batch = Vec::new();
    for _ in 0..random.usize(1..6) {
        revision += 1;
        let name = format!("o{}", random.u8(..8));
        let size = random.usize(..900);
        let record = if after.contains_key(&name) && random.u8(..4) == 0 {
            delete(&name, revision)
        } else {
            put(&name, revision, size)
        };
        change(&mut after, &record);
        batch.push(record);
    }
    (batch, after)
}

/// Each power cut leaves the state after a batch, whole: none before the last that must have been durable, and none
/// after the last but one that failed.
fn run(seed: u64, durability: Durability, faults: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sim = Sim::new(random.u64(..));
    // The states after the acknowledged batches that a crash may bring back, the oldest of them durable.
    let mut states = vec![State::new()];
    // The last revision that was acknowledged.
    let mut told = 0;
    for _cycle in 0..CYCLES {
        let (state, loaded) = reload(&sim).unwrap();
        assert!(loaded.last >= told, "revisions do not go back");
        assert_eq!(states, std::slice::from_ref(&state), "reading changes nothing");
        let (again, loaded) = reload(&sim).unwrap();
        assert_eq!(state, again, "reading again neither");
        let unsynced = durability != Durability::Synced;
        if unsynced && loaded.lossy {
            assert!(loaded.last >= told.saturating_add(RAISE / 2) && loaded.floor == loaded.last);
        }
        let mut log = Log::new(Arc::new(sim.clone()), &loaded, stepped(durability, &mut random), None);
        let mut candidates = Vec::new();
        let mut revision = loaded.last;
        sim.fail_one_in(faults);
        sim.cut_power_after(random.usize(1..150));
        if log.begun(&loaded, || view(&state, loaded.last)).is_ok() {
            for _ in 0..60 {
                let last = states.last().unwrap().clone();
                let (batch, after) = batch(&mut random, &last, revision);
                revision += batch.len() as u64;
                match log.commit(&batch) {
                    Ok(()) => {
                        if !unsynced {
                            states.clear();
                        }
                        states.push(after);
                        told = revision;
                        candidates.clear();
                    }
                    Err(_) => candidates.push(after),
                }
                if log.due().is_some() && random.u8(..4) == 0 {
                    log.tick();
                    if !log.holes && log.checkpoint.as_ref().is_none_or(|c| !c.fills) {
                        states.drain(..states.len() - 1);
                    }
                }
                log.maintain(&mut || view(states.last().unwrap(), revision));
                if random.u8(..16) == 0 {
                    log.join();
                }
            }
        }
        if random.bool() {
            // The store closes in order, if the power is still on.
            log.close();
        }
        sim = sim.power_cycle();
        let (state, _) = reload(&sim).unwrap();
        assert!(states.contains(&state) || candidates.contains(&state), "a state that never was");
        states = vec![state];
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes() {
    runs(6_000, |seed| run(seed, Durability::Synced, 0));
}

#[test]
fn nothing_acknowledged_is_lost_when_calls_fail_before_the_power_goes() {
    runs(4_000, |seed| run(seed, Durability::Synced, 3 + seed as usize % 40));
}

#[test]
fn what_is_left_of_unsynced_writes_is_a_state_that_was() {
    runs(1_000, |seed| run(seed, Durability::EverySecond, 0));
    runs(500, |seed| run(seed, Durability::Os, 0));
    runs(1_000, |seed| run(seed, Durability::EverySecond, 3 + seed as usize % 40));
}

/// One client: it alone writes its objects, and knows their possible states.
struct Client {
    random: fastrand::Rng,
    names: Vec<String>,
    /// The possible states of an object: the acknowledged body first, then those of failed writes.
    possible: BTreeMap<String, Vec<Option<String>>>,
    acknowledged: u64,
}

impl Client {
    async fn run(&mut self, store: &Store, resource: ResourceId) {
        for _ in 0..40 {
            let name = self.random.choice(&self.names).unwrap().clone();
            let body = format!("{{{name} {} {}", self.random.u64(..), "y".repeat(self.random.usize(..700)));
            let object = new_object(&name, body.clone());
            let (write, outcome) = match store.get(resource, "ns", &name) {
                None => (Write::Create { resource, object, ttl: None }, Some(body)),
                Some(old) if self.random.u8(..4) == 0 => {
                    let (namespace, name) = (old.data.namespace.clone(), old.data.name.clone());
                    (Write::Delete { resource, namespace, name, expect: old.revision }, None)
                }
                Some(old) => {
                    (Write::Update { resource, object, expect: old.revision, ttl: None }, Some(body))
                }
            };
            let possible = self.possible.entry(name.clone()).or_insert_with(|| vec![None]);
            match store.commit(write).await {
                Ok(object) => {
                    assert!(object.revision > self.acknowledged, "revisions ascend");
                    self.acknowledged = object.revision;
                    *possible = vec![outcome];
                }
                Err(WriteError::Engine(_)) => possible.push(outcome),
                Err(e) => panic!("{e}"),
            }
            let now = store.get(resource, "ns", &name).map(|o| body_of(&o));
            assert_eq!(now, possible[0], "reads go on, and show acknowledged writes only");
        }
    }

    fn check(&mut self, store: &Store, resource: ResourceId) {
        assert!(store.newest() >= self.acknowledged);
        for (name, possible) in &mut self.possible {
            let found = store.get(resource, "ns", name).map(|o| body_of(&o));
            assert!(possible.contains(&found), "{name} is {found:?}, not one of {possible:?}");
            *possible = vec![found];
        }
    }
}

pub(super) fn body_of(object: &Object) -> String {
    String::from_utf8(object.data.body.to_vec()).unwrap()
}

async fn clients_and_crashes(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sim = Sim::new(random.u64(..));
    let mut clients: Vec<_> = (0..4)
        .map(|i| Client {
            random: random.fork(),
            names: (0..3).map(|n| format!("c{i}-{n}")).collect(),
            possible: BTreeMap::new(),
            acknowledged: 0,
        })
        .collect();
    for _cycle in 0..CYCLES {
        let (store, resource) = store(&sim, Arc::default());
        for client in &mut clients {
            client.check(&store, resource);
        }
        let start = WatchStart::After(store.newest());
        let mut watcher = store.watch(resource, Scope::default(), start, WatchOptions::default()).unwrap();
        let before = store.newest();
        sim.fail_one_in(if random.bool() { 30 } else { 0 });
        sim.cut_power_after(random.usize(..200));
        join_all(clients.iter_mut().map(|c| c.run(&store, resource))).await;
        store.close().await;
        let mut seen = before;
        while let Some(Ok(Batch::Events(events))) = watcher.next().await {
            for event in events {
                assert!(event.revision > seen, "events come in order");
                seen = event.revision;
            }
        }
        assert!(seen <= store.snapshot(resource).revision());
        sim = sim.power_cycle();
        let (_, loaded) = reload(&sim).unwrap();
        assert!(loaded.last >= seen, "a watcher saw what was not durable");
    }
}

/// This test runs with the store's own threads.
#[test]
fn acknowledged_writes_of_concurrent_clients_survive() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runs(300, |seed| runtime.block_on(clients_and_crashes(seed)));
}

/// A call fails for a while: writes are refused in a sentence or done, never half; reads and watches go on; once the
/// call works again everything does, without a hand, and the disk is as full as it would be.
/// call works again everything does, without a hand, and the disk is as full as it would be.
async fn outage(call: Call, error: i32, sentence: &str) {
    let sim = Sim::new(7);
    let (store, resource) = store(&sim, Arc::default());
    let start = WatchStart::After(0);
    let mut watcher = store.watch(resource, Scope::default(), start, WatchOptions::default()).unwrap();
    let mut acknowledged = 0;
    let mut write = async |n: u64| {
        let name = format!("o{}", n % 6);
        let object = new_object(&name, format!("{{{n} {}", "x".repeat(300)));
        let outcome = match store.get(resource, "ns", &name) {
            None => store.commit(Write::Create { resource, object, ttl: None }).await,
            Some(old) => {
                store.commit(Write::Update { resource, object, expect: old.revision, ttl: None }).await
            }
        };
        let Ok(written) = outcome else { return outcome.map(drop) };
        acknowledged = written.revision;
        let found = store.get(resource, "ns", &name).unwrap();
        assert_eq!((found.revision, body_of(&found)), (written.revision, body_of(&written)));
        Ok(())
    };
    for n in 0..40 {
        write(n).await.unwrap();
    }
    sim.fail_all(Some((call, error)));
    let mut refused = 0;
    for n in 40..80 {
        if let Err(e) = write(n).await {
            refused += 1;
            let text = e.to_string();
            assert!(text.starts_with(&format!("the store cannot write: {sentence}")), "{call:?}: {text}");
        }
    }
    match call {
        Call::Append | Call::Sync => assert_eq!(refused, 40, "{call:?}"),
        // These calls belong to snapshots and new segments; the present segment is written to as long as possible.
        Call::Rename | Call::Remove | Call::Truncate => assert_eq!(refused, 0, "{call:?}"),
        Call::Create | Call::SyncDir => {}
    }
    sim.fail_all(None);
    let mut n = 80;
    while n < 200 || sim.size() > 20_000 {
        assert!(n < 100_000, "{call:?}: the log is not cut again");
        write(n).await.unwrap();
        n += 1;
    }
    assert_eq!(store.newest(), acknowledged);
    store.close().await;
    let mut seen = 0;
    while let Some(Ok(Batch::Events(events))) = watcher.next().await {
        for event in events {
            assert!(event.revision > seen);
            seen = event.revision;
        }
    }
    assert_eq!(seen, acknowledged, "{call:?}");
    let (state, loaded) = reload(&sim.power_cycle()).unwrap();
    assert_eq!(loaded.last, acknowledged);
    assert_eq!(state.len(), 6);
    assert!(state.values().any(|(revision, _)| *revision == acknowledged));
}

#[tokio::test]
async fn a_full_or_failing_disk_refuses_writes_until_it_is_well() {
    for call in
        [Call::Create, Call::Append, Call::Sync, Call::Truncate, Call::Rename, Call::Remove, Call::SyncDir]
    {
        outage(call, ENOSPC, "the disk of the data directory is full; free some space").await;
        outage(call, EIO, "the log cannot be written; look at the disk of the data directory").await;
    }
}
