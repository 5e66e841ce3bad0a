//! Measures the embedded engine.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::NewObject;
use bytes::BytesMut;
use component::Shutdown;
use futures::StreamExt;
use storage::{Batch, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchOptions, WatchStart, Write};

use super::load::{self, Tally};
use crate::process;

/// An object whose body has this size.
pub(super) fn object(n: u64, size: usize) -> NewObject {
    let head = r#"{"metadata":{"resourceVersion":""#;
    let tail = format!(r#"","name":"object-{n:08}"}},"data":""#);
    let padding = size.saturating_sub(head.len() + tail.len() + 2);
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
        body: format!(r#"{head}{tail}{}"}}"#, "x".repeat(padding)).into(),
        rv_at: head.len() as u32,
    }
}

/// A store with one resource.
#[derive(Clone)]
pub(super) struct Bench {
    store: Store,
    resource: ResourceId,
}

impl Bench {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let store = Store::open(StoreConfig::new(dir), &Shutdown::new())?;
        let resource =
            store.register(ResourceSpec { group: "".into(), plural: "things".into(), indexed: vec![0] });
        Ok(Self { store, resource })
    }

    /// Closes the store.
    pub(super) async fn close(self) {
        self.store.close().await;
    }

    async fn create(&self, n: u64, size: usize) -> Result<()> {
        let write = Write::Create { resource: self.resource, object: object(n, size), ttl: None };
        self.store.commit(write).await?;
        Ok(())
    }

    /// Fills the store with so many objects of 1 KiB.
    pub(super) async fn fill(&self, count: u64) -> Result<()> {
        let there = self.store.snapshot(self.resource).count(&Scope::default(), None) as u64;
        let this = self.clone();
        load::all(256, count.saturating_sub(there), move |n| {
            let this = this.clone();
            async move { this.create(there + n, 1024).await }
        })
        .await
    }

    /// Measures creates.
    pub(super) async fn puts(
        &self,
        tally: &mut Tally,
        writers: usize,
        size: usize,
        time: Duration,
    ) -> Result<()> {
        let this = self.clone();
        tally
            .run(writers, time, move |n| {
                let this = this.clone();
                async move { this.create(n, size).await }
            })
            .await
    }

    /// Measures gets, with one update in so many operations.
    pub(super) async fn mixed(
        &self,
        tally: &mut Tally,
        clients: usize,
        per_write: u64,
        time: Duration,
    ) -> Result<()> {
        let objects = self.store.snapshot(self.resource).count(&Scope::default(), None) as u64;
        let this = self.clone();
        tally
            .run(clients, time, move |n| {
                let this = this.clone();
                async move {
                    let mut new = object(n * 7919 % objects, 1024);
                    let found = this.store.get(this.resource, &new.namespace, &new.name);
                    let found = found.context("an object is missing")?;
                    if n % per_write == 0 {
                        // The new body has the same size.
                        let mut body = new.body.to_vec();
                        let end = body.len() - 22;
                        body[end..end + 20].copy_from_slice(format!("{n:020}").as_bytes());
                        new.body = body.into();
                        let (resource, expect) = (this.resource, found.revision);
                        let write = Write::Update { resource, object: new, expect, ttl: None };
                        // Another client may have been first; that is an answer, too.
                        if let Err(error @ storage::WriteError::Engine(_)) = this.store.commit(write).await {
                            return Err(error.into());
                        }
                    }
                    Ok(())
                }
            })
            .await
    }

    /// Encodes all objects as a list does, in seconds.
    pub(super) fn list(&self) -> Result<f64> {
        let begun = Instant::now();
        let (snapshot, scope) = (self.store.snapshot(self.resource), Scope::default());
        let (mut out, mut count) = (BytesMut::with_capacity(1 << 17), 0);
        for object in snapshot.scan(&scope, None) {
            object.write_json(b"", &mut out);
            count += 1;
            if out.len() > 1 << 16 {
                // The bytes count as sent.
                std::hint::black_box(&out);
                out.clear();
            }
        }
        ensure!(count == snapshot.count(&scope, None));
        Ok(begun.elapsed().as_secs_f64())
    }

    /// The memory that a watcher takes.
    pub(super) fn watcher_bytes(&self) -> Result<f64> {
        const COUNT: usize = 20_000;
        let rss = || Ok::<_, anyhow::Error>(process::memory(&[std::process::id()])?.rss * 1024.0 * 1024.0);
        let mut watchers = Vec::with_capacity(COUNT);
        let before = rss()?;
        for n in 0..COUNT {
            let scope = Scope { namespace: format!("namespace-{}", n % 50).into(), ..Scope::default() };
            let start = WatchStart::After(self.store.current(self.resource));
            watchers.push(self.store.watch(self.resource, scope, start, WatchOptions::default())?);
        }
        Ok((rss()? - before) / COUNT as f64)
    }

    /// Nanoseconds of CPU time for each event and watcher, writing included.
    pub(super) async fn fan_out(&self, watchers: usize, events: u64, writers: usize) -> Result<f64> {
        let (taken, mut tasks) = (Arc::new(AtomicU64::new(0)), tokio::task::JoinSet::new());
        for _ in 0..watchers {
            let start = WatchStart::After(self.store.current(self.resource));
            let mut watcher =
                self.store.watch(self.resource, Scope::default(), start, WatchOptions::default())?;
            let taken = taken.clone();
            tasks.spawn(async move {
                while let Some(Ok(batch)) = watcher.next().await {
                    if let Batch::Events(events) = batch {
                        taken.fetch_add(events.len() as u64, Ordering::Relaxed);
                    }
                }
            });
        }
        let me = [std::process::id()];
        let (this, first) = (self.clone(), self.store.current(self.resource));
        let before = process::cpu(&me)?;
        load::all(writers, events, move |n| {
            let this = this.clone();
            async move { this.create(first + n, 1024).await }
        })
        .await?;
        while taken.load(Ordering::Relaxed) < events * watchers as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await; // the pace of asking
        }
        Ok((process::cpu(&me)? - before) * 1e9 / (events * watchers as u64) as f64)
    }
}

/// The figures of a process that opened a store.
pub(super) struct Opened {
    pub(super) seconds: f64,
    pub(super) mib: f64,
}

/// Opens a store in another process.
pub(super) fn open_apart(dir: &Path) -> Result<Opened> {
    opened_by("--open", dir.as_os_str())
}

/// Runs another process with the flag by which it opens a store, and reads its figures.
pub(super) fn opened_by(flag: &str, place: &OsStr) -> Result<Opened> {
    let me = std::env::current_exe()?;
    let out = Command::new(me).args(["bench", "storage", flag]).arg(place).output()?;
    ensure!(out.status.success(), "opening: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout)?;
    let mut figures = text.split_whitespace().map(str::parse);
    let mut next = || figures.next().context("two figures")?.context("a figure");
    Ok(Opened { seconds: next()?, mib: next()? })
}

/// Opens a store and prints the figures for [`open_apart`].
pub(super) fn open_and_tell(dir: &Path) -> Result<()> {
    let begun = Instant::now();
    let bench = Bench::open(dir)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{seconds} {}", process::memory(&[std::process::id()])?.rss);
    drop(bench);
    Ok(())
}
