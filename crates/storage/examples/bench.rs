//! Measures the store on a directory: `cargo run --release -p ferrokube-storage --example bench -- [DIR] [OBJECTS]`.
//!
//! Durable puts stand beside the disk's own rate in the same run: the same bytes appended and synced, as
//! one batch for as many writers, with nothing around it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::NewObject;
use component::Shutdown;
use ferrokube_storage::{
    Batch, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchOptions, WatchStart, Write,
};
use futures::StreamExt;

const RUN: Duration = Duration::from_secs(2);
const WRITERS: [usize; 4] = [1, 16, 64, 256];
const WATCHERS: usize = 1000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "target/store-bench".into()));
    let objects = args.next().map_or(Ok(100_000), |n| n.parse())?;
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(run(&dir, objects))
}

async fn run(dir: &Path, objects: usize) -> Result<()> {
    for size in [1024, 4096] {
        println!(
            "\ndurable creates of {size} bytes\nwriters   puts/s  p50 ms  p99 ms  raw sync/s  raw puts/s  of raw"
        );
        for writers in WRITERS {
            let raw = raw(&dir.join("raw"), size * writers)?;
            let mut took = puts(&dir.join("store"), writers, size).await?;
            took.sort_unstable();
            let rate = took.len() as f64 / RUN.as_secs_f64();
            let at = |p: usize| took.get(took.len() * p / 100).map_or(0.0, |t| t.as_secs_f64() * 1e3);
            let raw_puts = raw * writers as f64;
            println!(
                "{writers:7} {rate:8.0} {:7.2} {:7.2} {raw:11.0} {raw_puts:11.0} {:6.2}",
                at(50),
                at(99),
                rate / raw_puts
            );
        }
    }
    reads(&dir.join("reads"), objects).await
}

/// Appends and syncs a second, in syncs per second.
fn raw(path: &Path, size: usize) -> Result<f64> {
    let bytes = vec![b'x'; size];
    let mut file = File::create(path)?;
    let (start, mut n) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all(&bytes)?;
        file.sync_data()?;
        n += 1;
    }
    std::fs::remove_file(path)?;
    Ok(f64::from(n) / start.elapsed().as_secs_f64())
}

fn object(n: u64, size: usize) -> NewObject {
    let head = r#"{"metadata":{"resourceVersion":""#;
    NewObject {
        name: format!("object-{n:08}").into(),
        namespace: format!("namespace-{}", n % 50).into(),
        uid: format!("{n:036}").into(),
        labels: Box::new([("app".into(), "bench".into())]),
        owners: Box::new([]),
        fields: Box::new([format!("node-{}", n % 1000).into()]),
        deleting: false,
        finalizers: false,
        stamp: 1,
        body: format!(r#"{head}"}},"data":"{}"}}"#, "x".repeat(size - head.len() - 14)).into(),
        rv_at: head.len() as u32,
    }
}

fn open(dir: &Path) -> Result<(Store, ResourceId, Shutdown)> {
    let shutdown = Shutdown::new();
    let store = Store::open(StoreConfig::new(dir), &shutdown)?;
    let resource =
        store.register(ResourceSpec { group: "".into(), plural: "things".into(), indexed: vec![0] });
    Ok((store, resource, shutdown))
}

async fn puts(dir: &Path, writers: usize, size: usize) -> Result<Vec<Duration>> {
    let (store, resource, shutdown) = open(dir)?;
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, next) = (store.clone(), next.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while start.elapsed() < RUN {
                    let object = object(next.fetch_add(1, Ordering::Relaxed), size);
                    let begun = Instant::now();
                    store.commit(Write::Create { resource, object, ttl: None }).await?;
                    took.push(begun.elapsed());
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    shutdown.finish().await;
    drop(store);
    std::fs::remove_dir_all(dir)?;
    Ok(all)
}

async fn reads(dir: &Path, objects: usize) -> Result<()> {
    let (store, resource, shutdown) = open(dir)?;
    let idle = rss();
    let start = Instant::now();
    let numbers = futures::stream::iter(0..objects as u64);
    numbers
        .for_each_concurrent(256, |n| {
            let store = &store;
            async move {
                let write = Write::Create { resource, object: object(n, 1024), ttl: None };
                if let Err(e) = store.commit(write).await {
                    println!("{e}");
                }
            }
        })
        .await;
    println!("\n{objects} objects of 1 KiB written in {:.2?}", start.elapsed());

    let scope = Scope::default();
    let timed = |what: &str, n: usize, mut f: Box<dyn FnMut(u64) -> usize + '_>| {
        let start = Instant::now();
        let found: usize = (0..n as u64).map(&mut f).sum();
        println!("{what}: {:.2?} each, {found} objects", start.elapsed() / n as u32);
    };
    timed(
        "get",
        100_000,
        Box::new(|i| {
            let n = i * 7919 % objects as u64;
            usize::from(
                store.get(resource, &format!("namespace-{}", n % 50), &format!("object-{n:08}")).is_some(),
            )
        }),
    );
    timed("snapshot", 100_000, Box::new(|_| usize::from(store.snapshot(resource).revision() > 0)));
    timed("list everything", 10, Box::new(|_| store.snapshot(resource).scan(&scope, None).count()));
    timed(
        "list by an indexed field",
        1000,
        Box::new(|i| {
            let scope = Scope { field: Some((0, format!("node-{}", i % 1000).into())), ..Scope::default() };
            store.snapshot(resource).scan(&scope, None).count()
        }),
    );

    let delivered = Arc::new(AtomicU64::new(0));
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let start = WatchStart::After(store.current());
        let mut watcher = store.watch(resource, Scope::default(), start, WatchOptions::default())?;
        let delivered = delivered.clone();
        watchers.push(tokio::spawn(async move {
            while let Some(Ok(Batch::Events(events))) = watcher.next().await {
                delivered.fetch_add(events.len() as u64, Ordering::Relaxed);
            }
        }));
    }
    let events = 1000;
    let (begun, cpu_before) = (Instant::now(), cpu());
    for n in 0..events {
        let object = object(n, 1024);
        let (namespace, name) = (object.namespace.clone(), object.name.clone());
        let expect = store.get(resource, &namespace, &name).map_or(0, |o| o.revision);
        store.commit(Write::Delete { resource, namespace, name, expect }).await?;
    }
    while delivered.load(Ordering::Relaxed) < events * WATCHERS as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!(
        "{events} events one by one to {WATCHERS} watchers: {:.2?}, {:.2} µs of CPU per event and watcher",
        begun.elapsed(),
        cpu().saturating_sub(cpu_before).as_secs_f64() * 1e6 / (events * WATCHERS as u64) as f64
    );
    shutdown.finish().await;
    drop(store);
    println!("memory before {idle} MiB, now {} MiB", rss());

    let start = Instant::now();
    let (store, resource, shutdown) = open(dir)?;
    println!("opened {} objects in {:.2?}", store.snapshot(resource).count(&scope, None), start.elapsed());
    shutdown.finish().await;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// Resident memory in MiB.
fn rss() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4 / 1024
}

/// Processor time of this process; a tick is 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split(' ').skip(13).take(2).filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(ticks * 10)
}
