//! Measures the etcd engine beside the bare client: its cost on top of etcd's own.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::NewObject;
use bytes::Bytes;
use component::Shutdown;
use etcd::{prefix_end, rpc};
use futures::StreamExt;
use parking_lot::Mutex;
use storage::{
    Batch, Codec, CodecError, EtcdConfig, EtcdServers, Placement, ResourceId, ResourceSpec, Scope, Store,
    WatchOptions, WatchStart, Write,
};

use super::load::{Tally, median};
use super::reference::{Etcd, PREFIX, put};
use super::{ROUNDS, WORKING_SET, WRITERS, embedded, figure, ratio};
use crate::process;
use crate::table::Table;

/// The number of clients that read at once.
const READERS: usize = 64;
/// The number of puts whose events are waited for.
const EVENTS: usize = 2000;
/// The number of objects in the store that is opened.
const OPENED: u64 = 100_000;

/// Values that are the objects' bodies: the engine alone is measured, not Kubernetes' protobuf.
struct Bodies;

impl Codec for Bodies {
    fn placements(&self) -> Vec<Placement> {
        vec![Placement { group: "".into(), plural: "things".into(), path: "things".into() }]
    }
    fn encode(&self, _: &str, _: &str, _: &[u8], object: &NewObject) -> Result<Bytes, CodecError> {
        Ok(object.body.clone())
    }
    fn decode(&self, _: &str, _: &str, _: &[u8], value: &[u8]) -> Result<NewObject, CodecError> {
        let empty = embedded::object(0, 0);
        let body: Box<[u8]> = value.into();
        // The engine knows the object's names from the key.
        Ok(NewObject { name: "".into(), namespace: "".into(), body: body.into(), ..empty })
    }
}

async fn open(servers: EtcdServers, shutdown: &Shutdown) -> Result<(Store, ResourceId)> {
    let store = Store::open_etcd(EtcdConfig::new(servers, Arc::new(Bodies)), shutdown).await?;
    let resource =
        store.register(ResourceSpec { group: "".into(), plural: "things".into(), indexed: vec![] });
    Ok((store, resource))
}

/// Opens the store, and prints the time that it took, and the memory that it needs.
pub(super) async fn open_and_tell(url: &str) -> Result<()> {
    let shutdown = Shutdown::new();
    let begun = Instant::now();
    let servers = EtcdServers { endpoints: vec![url.to_owned()], ..EtcdServers::default() };
    let (store, resource) = open(servers, &shutdown).await?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(store.snapshot(resource).count(&Scope::default(), None) as u64 >= OPENED, "objects are missing");
    println!("{seconds} {}", process::memory(&[std::process::id()])?.rss);
    drop(store);
    shutdown.finish().await;
    Ok(())
}

/// Measures all of it on an etcd for this run.
pub(super) async fn measure(program: &Path, dir: &Path, time: Duration) -> Result<Vec<Table>> {
    let etcd = Etcd::start(program, dir).await?;
    let shutdown = Shutdown::new();
    let (store, resource) = open(etcd.config().clone(), &shutdown).await?;
    let tables =
        vec![writes_and_reads(&etcd, &store, resource, time).await?, lag(&etcd, &store, resource).await?];
    drop(store);
    shutdown.finish().await;
    let mut tables = tables;
    tables.push(opening(&etcd).await?);
    drop(etcd);
    std::fs::remove_dir_all(dir)?;
    Ok(tables)
}

async fn writes_and_reads(etcd: &Etcd, store: &Store, resource: ResourceId, time: Duration) -> Result<Table> {
    let mut table = Table::new(&[
        "etcd, 1 KiB",
        "clients",
        "engine/s",
        "p50 ms",
        "p99 ms",
        "client/s",
        "p50 ms",
        "p99 ms",
        "ratio",
    ]);
    let mut row = |what: &str, clients: usize, ours: Tally, theirs: Tally| {
        let times = median(ours.rates.iter().zip(&theirs.rates).map(|(o, t)| o / t).collect());
        if let (Some(o), Some(t), Some(times)) = (ours.figures(), theirs.figures(), times) {
            let numbers = [o.rate, o.p50, o.p99, t.rate, t.p50, t.p99].map(figure);
            let head = [what.to_owned(), clients.to_string()];
            table.row(head.into_iter().chain(numbers).chain([ratio(times, 1.0)]));
        }
    };
    // The numbers make names that are unique in either kind of write.
    let mut first = 1u64 << 40;
    for writers in WRITERS {
        let (mut ours, mut theirs) = (Tally::default(), Tally::default());
        for _round in 0..ROUNDS {
            let engine = store.clone();
            ours.run(writers, time / ROUNDS, move |n| {
                let engine = engine.clone();
                async move {
                    let object = embedded::object(first + n, 1024);
                    engine.commit(Write::Create { resource, object, ttl: None }).await?;
                    Ok(())
                }
            })
            .await?;
            etcd.puts(&mut theirs, writers, 1024, time / ROUNDS).await?;
        }
        first += 1 << 36;
        row("puts", writers, ours, theirs);
    }
    etcd.fill(WORKING_SET).await?;
    store.fresh(&[resource]).await?;
    let (mut ours, mut theirs) = (Tally::default(), Tally::default());
    for _round in 0..ROUNDS {
        let engine = store.clone();
        ours.run(READERS, time / ROUNDS, move |n| {
            let engine = engine.clone();
            async move {
                engine.fresh(&[resource]).await?;
                let object = embedded::object(n * 7919 % WORKING_SET, 0);
                engine.get(resource, &object.namespace, &object.name).context("an object is missing")?;
                Ok(())
            }
        })
        .await?;
        etcd.mixed(&mut theirs, WORKING_SET, READERS, u64::MAX, time / ROUNDS).await?;
    }
    row("consistent gets", READERS, ours, theirs);
    Ok(table)
}

/// The times at which each put of [`lag`] was answered, and its event was seen.
#[derive(Default)]
struct Seen(Mutex<Vec<Instant>>);

impl Seen {
    fn add(&self, count: usize) {
        self.0.lock().extend(std::iter::repeat_n(Instant::now(), count));
    }
}

/// Measures the time from the start of a put to its event: through the engine's index, and on a bare watch.
async fn lag(etcd: &Etcd, store: &Store, resource: ResourceId) -> Result<Table> {
    let (ours, theirs) = (Arc::<Seen>::default(), Arc::<Seen>::default());
    let mut tasks = tokio::task::JoinSet::new();
    store.fresh(&[resource]).await?;
    let start = WatchStart::After(store.current(resource));
    let mut watcher = store.watch(resource, Scope::default(), start, WatchOptions::default())?;
    let seen = Arc::clone(&ours);
    tasks.spawn(async move {
        while let Some(Ok(batch)) = watcher.next().await {
            if let Batch::Events(events) = batch {
                seen.add(events.len());
            }
        }
    });
    let create = rpc::WatchCreateRequest {
        key: Bytes::from_static(PREFIX),
        range_end: prefix_end(PREFIX),
        ..Default::default()
    };
    let mut watch = etcd.client(1).watch(create).await?;
    ensure!(watch.next().await?.created, "no watch");
    let seen = Arc::clone(&theirs);
    tasks.spawn(async move {
        while let Ok(response) = watch.next().await {
            seen.add(response.events.len());
        }
    });
    let mut begun = Vec::with_capacity(EVENTS);
    for n in 0..EVENTS {
        begun.push(Instant::now());
        etcd.client(0).put(put((1 << 41) + n as u64, 1024)).await?;
    }
    while [&ours, &theirs].iter().any(|seen| seen.0.lock().len() < EVENTS) {
        tokio::time::sleep(Duration::from_millis(1)).await; // the pace of asking
    }
    let mut table = Table::new(&["an event after its put began, us", "engine", "client", "ratio"]);
    let lags = |seen: &Seen| {
        let mut lags: Vec<f64> =
            seen.0.lock().iter().zip(&begun).map(|(at, begun)| (*at - *begun).as_secs_f64() * 1e6).collect();
        lags.sort_by(f64::total_cmp);
        lags
    };
    let (ours, theirs) = (lags(&ours), lags(&theirs));
    for (what, percent) in [("p50", 50), ("p99", 99)] {
        let at = |lags: &[f64]| lags.get(EVENTS * percent / 100).copied().unwrap_or(f64::NAN);
        let (ours, theirs) = (at(&ours), at(&theirs));
        table.row([what.to_owned(), figure(ours), figure(theirs), ratio(ours, theirs)]);
    }
    Ok(table)
}

async fn opening(etcd: &Etcd) -> Result<Table> {
    // Keys of earlier puts are removed, since these objects are counted.
    let all = rpc::DeleteRangeRequest { key: Bytes::from_static(PREFIX), range_end: prefix_end(PREFIX) };
    etcd.client(0).delete(all).await?;
    etcd.fill(OPENED).await?;
    let listed = etcd.list(OPENED).await?;
    let url = etcd.config().endpoints.first().context("no endpoint")?;
    let opened = embedded::opened_by("--open-etcd", OsStr::new(url))?;
    let mut table = Table::new(&["objects of 1 KiB in etcd", "engine", "read by the client", "ratio"]);
    let seconds = [figure(opened.seconds), figure(listed), ratio(opened.seconds, listed)];
    table.row([format!("{OPENED} opened, s")].into_iter().chain(seconds));
    table.row(["memory after it, MiB".to_owned(), figure(opened.mib), String::new(), String::new()]);
    Ok(table)
}
