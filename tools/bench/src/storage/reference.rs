//! Measures etcd, through its client, on enough connections not to limit it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use etcd::{Client, Config, prefix_end, rpc};

use super::load::{self, Tally};
use crate::{process, server};

const CONNECTIONS: usize = 8;
/// The number of keys in one answer of a list; kube-apiserver asks for as many at most.
const PAGE: i64 = 10_000;
/// The number of puts in one transaction that fills etcd; no more are allowed.
const FILL: u64 = 128;
/// The time that etcd may take to start.
const START: Duration = Duration::from_mins(5);
pub(super) const PREFIX: &[u8] = b"/registry/things/";

/// etcd with a directory for this run.
pub(super) struct Etcd {
    child: Child,
    program: PathBuf,
    dir: PathBuf,
    clients: Arc<[Client]>,
    config: Config,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn key(n: u64) -> Bytes {
    format!("/registry/things/namespace-{}/object-{n:08}", n % 50).into()
}

pub(super) fn put(n: u64, size: usize) -> rpc::PutRequest {
    rpc::PutRequest { key: key(n), value: vec![b'x'; size].into(), ..Default::default() }
}

impl Etcd {
    /// Starts etcd with default settings, but room for everything; returns once it is ready.
    pub(super) async fn start(program: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (clients, peers) = (server::free_port()?, server::free_port()?);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let log = File::create(dir.join("log"))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .arg(format!("--data-dir={}", dir.join("data").display()))
            .arg(format!("--listen-client-urls={}", url(clients)))
            .arg(format!("--advertise-client-urls={}", url(clients)))
            .arg(format!("--listen-peer-urls={}", url(peers)))
            .arg(format!("--initial-advertise-peer-urls={}", url(peers)))
            .arg(format!("--initial-cluster=default={}", url(peers)))
            .args(["--log-level=error", "--quota-backend-bytes=17179869184"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let config = Config { endpoints: vec![url(clients)], ..Config::default() };
        let clients = (0..CONNECTIONS).map(|_| Client::new(&config)).collect::<Result<_, _>>()?;
        let mut etcd = Self { child, program: program.to_owned(), dir: dir.to_owned(), clients, config };
        let begun = Instant::now();
        while etcd.client(0).revision(PREFIX).await.is_err() {
            if let Some(status) = etcd.child.try_wait()? {
                bail!("etcd ended with {status}");
            }
            ensure!(begun.elapsed() < START, "etcd does not answer");
            tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
        }
        Ok(etcd)
    }

    /// Stops etcd and starts it again; returns the seconds until it answers, and its MiB after that.
    pub(super) async fn restart(mut self) -> Result<(Self, f64, f64)> {
        self.child.kill()?;
        self.child.wait()?;
        let begun = Instant::now();
        let etcd = Self::start(&self.program, &self.dir).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let memory = process::memory(&[etcd.child.id()])?.rss;
        Ok((etcd, seconds, memory))
    }

    /// The configuration of a client.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn client(&self, n: u64) -> &Client {
        &self.clients[n as usize % CONNECTIONS]
    }

    fn each(&self) -> impl Fn(u64) -> Client + Clone + Send + 'static {
        let clients = self.clients.clone();
        move |n| clients[n as usize % CONNECTIONS].clone()
    }

    pub(super) async fn puts(
        &self,
        tally: &mut Tally,
        writers: usize,
        size: usize,
        time: Duration,
    ) -> Result<()> {
        let client = self.each();
        tally
            .run(writers, time, move |n| {
                let client = client(n);
                async move { Ok(client.put(put(n, size)).await.map(drop)?) }
            })
            .await
    }

    /// Fills etcd with so many objects of 1 KiB.
    pub(super) async fn fill(&self, count: u64) -> Result<()> {
        let client = self.each();
        load::all(32, count.div_ceil(FILL), move |n| {
            let client = client(n);
            let success = (n * FILL..count.min((n + 1) * FILL)).map(|n| rpc::RequestOp {
                request: Some(rpc::request_op::Request::RequestPut(put(n, 1024))),
            });
            let request = rpc::TxnRequest { success: success.collect(), ..Default::default() };
            async move { Ok(client.txn(request).await.map(drop)?) }
        })
        .await
    }

    /// Measures gets, with one put in so many operations.
    pub(super) async fn mixed(
        &self,
        tally: &mut Tally,
        objects: u64,
        clients: usize,
        per_write: u64,
        time: Duration,
    ) -> Result<()> {
        let client = self.each();
        tally
            .run(clients, time, move |n| {
                let client = client(n);
                async move {
                    if n % per_write == 0 {
                        client.put(put(n * 7919 % objects, 1024)).await?;
                    } else {
                        let get = rpc::RangeRequest { key: key(n * 7919 % objects), ..Default::default() };
                        ensure!(client.range(get).await?.kvs.len() == 1, "an object is missing");
                    }
                    Ok(())
                }
            })
            .await
    }

    /// Reads everything, page by page, in seconds.
    pub(super) async fn list(&self, count: u64) -> Result<f64> {
        let (begun, mut from, mut found) = (Instant::now(), Bytes::from_static(PREFIX), 0);
        loop {
            let request = rpc::RangeRequest {
                key: from,
                range_end: prefix_end(PREFIX),
                limit: PAGE,
                ..Default::default()
            };
            let page = self.client(0).range(request).await?;
            found += page.kvs.len() as u64;
            let Some(last) = page.kvs.last().filter(|_| page.more) else { break };
            from = [&last.key[..], b"\0"].concat().into();
        }
        ensure!(found >= count, "{found} objects");
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Nanoseconds of etcd's CPU time for each event and watcher, writing included.
    pub(super) async fn fan_out(&self, watchers: usize, events: u64, writers: usize) -> Result<f64> {
        let (taken, mut tasks) = (Arc::new(AtomicU64::new(0)), tokio::task::JoinSet::new());
        for n in 0..watchers {
            let create = rpc::WatchCreateRequest {
                key: Bytes::from_static(PREFIX),
                range_end: prefix_end(PREFIX),
                ..Default::default()
            };
            let mut watch = self.client(n as u64).watch(create).await?;
            ensure!(watch.next().await?.created, "no watch");
            let taken = taken.clone();
            tasks.spawn(async move {
                while let Ok(response) = watch.next().await {
                    taken.fetch_add(response.events.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let (client, pid) = (self.each(), [self.child.id()]);
        let before = process::cpu(&pid)?;
        load::all(writers, events, move |n| {
            let client = client(n);
            async move { Ok(client.put(put(n, 1024)).await.map(drop)?) }
        })
        .await?;
        while taken.load(Ordering::Relaxed) < events * watchers as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await; // the pace of asking
        }
        Ok((process::cpu(&pid)? - before) * 1e9 / (events * watchers as u64) as f64)
    }
}
