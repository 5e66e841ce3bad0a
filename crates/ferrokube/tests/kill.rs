//! `kill -9` on the API server while clients write: all that was acknowledged or watched is there when it is back.
//!
//! `FERROKUBE_KILLS` is the number of kills.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::Status;
use client::{Api, Client, Config, Event, ListParams, Remote, WatchParams};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::task::JoinSet;

const WRITERS: usize = 8;
const OBJECTS: usize = 6;
/// A time far longer than a start takes.
const LIMIT: Duration = Duration::from_mins(2);

/// The API server's process.
struct Server {
    child: Child,
    kubeconfig: PathBuf,
}

impl Server {
    async fn start(dir: &Path, port: u16, durability: &str) -> Result<Self> {
        let kubeconfig = dir.join("kubeconfig");
        let data = dir.join("data");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(testkit::binary())
            .args(["kube-apiserver", "--bind-address=127.0.0.1", "--durability", durability])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--write-kubeconfig={}", kubeconfig.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting the API server")?;
        let mut server = Self { child, kubeconfig };
        let started = Instant::now();
        loop {
            if let Ok(maps) = server.maps()
                && maps.list(&ListParams::default()).await.is_ok()
            {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("the API server ended: {status}");
            }
            ensure!(started.elapsed() < LIMIT, "the API server does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking
        }
    }

    /// A client with a connection of its own.
    fn maps(&self) -> Result<Api<ConfigMap>> {
        let remote = Remote::new(Config::from_kubeconfig(&self.kubeconfig, None)?)?;
        Ok(Client::new(Arc::new(remote), "test").api("default"))
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn revision(map: &ConfigMap) -> Result<u64> {
    Ok(map.metadata.resource_version.as_deref().unwrap_or_default().parse()?)
}

/// The number that a writer put into an object.
fn number(map: &ConfigMap) -> Result<u64> {
    Ok(map.data.as_ref().and_then(|d| d.get("n")).context("no number")?.parse()?)
}

/// One object as its only writer knows it.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The acknowledged number in the object, and its revision.
    acknowledged: Option<(u64, u64)>,
    /// The number of a write that was not answered.
    unanswered: Option<u64>,
}

/// Writes until a write fails; returns the state that the writer knows then.
async fn write(
    maps: Api<ConfigMap>,
    writer: usize,
    mut known: Vec<Known>,
    numbers: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
) -> Result<Vec<Known>> {
    let mut last = 0;
    loop {
        let n = numbers.fetch_add(1, Ordering::Relaxed);
        let at = n as usize % OBJECTS;
        let of = &mut known[at];
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("w{writer}-{at}")),
                resource_version: of.acknowledged.map(|(_, revision)| revision.to_string()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([
                ("n".to_owned(), n.to_string()),
                ("padding".to_owned(), "x".repeat(n as usize * 7 % 3000)),
            ])),
            ..ConfigMap::default()
        };
        of.unanswered = Some(n);
        let answer: Result<ConfigMap, Status> = match of.acknowledged {
            None => maps.create(&map).await,
            Some(_) => maps.update(&map).await,
        };
        match answer {
            Ok(map) => {
                let revision = revision(&map)?;
                ensure!(revision > last, "revision {revision} after {last}");
                last = revision;
                *of = Known { acknowledged: Some((n, revision)), unanswered: None };
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => return Ok(known),
        }
    }
}

/// The highest revision of each object that a watch shows until it ends.
async fn watch(maps: Api<ConfigMap>, from: String) -> Result<BTreeMap<String, u64>> {
    let mut seen = BTreeMap::new();
    let params = WatchParams { resource_version: from, ..WatchParams::default() };
    let mut events = maps.watch(&params).await?;
    let mut last = 0;
    while let Some(Ok(event)) = events.next().await {
        if let Event::Added(map) | Event::Modified(map) = event {
            let revision = revision(&map)?;
            ensure!(revision > last, "an event of revision {revision} after {last}");
            last = revision;
            seen.insert(map.metadata.name.unwrap_or_default(), revision);
        }
    }
    Ok(seen)
}

/// Compares the stored objects with the writers' knowledge.
fn check(found: &[ConfigMap], known: &mut [Vec<Known>]) -> Result<()> {
    let mut by_name: BTreeMap<_, _> = found.iter().map(|m| (m.metadata.name.clone(), m)).collect();
    for (writer, known) in known.iter_mut().enumerate() {
        for (at, of) in known.iter_mut().enumerate() {
            let name = format!("w{writer}-{at}");
            let there =
                by_name.remove(&Some(name.clone())).map(|m| Ok((number(m)?, revision(m)?))).transpose();
            let there: Option<(u64, u64)> = there.map_err(|e: anyhow::Error| e.context(name.clone()))?;
            let unanswered = there.is_some_and(|(n, _)| Some(n) == of.unanswered);
            ensure!(there == of.acknowledged || unanswered, "{name} is {there:?}, not {of:?}");
            *of = Known { acknowledged: there, unanswered: None };
        }
    }
    Ok(())
}

async fn kills(durability: &str, kills: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut known = vec![vec![Known::default(); OBJECTS]; WRITERS];
    let numbers = Arc::new(AtomicU64::new(0));
    let mut told = 0;
    let mut seen = BTreeMap::<String, u64>::new();
    for kill in 0..=kills {
        let server = Server::start(dir.path(), port, durability).await?;
        let list = server.maps()?.list(&ListParams::default()).await?;
        let at: u64 = list.resource_version.parse()?;
        ensure!(at >= told, "the store went back from {told} to {at}");
        let mine: Vec<_> = list
            .items
            .into_iter()
            .filter(|m| m.metadata.name.as_deref().is_some_and(|n| n.starts_with('w')))
            .collect();
        check(&mine, &mut known).with_context(|| format!("after kill {kill}"))?;
        for map in &mine {
            let was = seen.get(map.metadata.name.as_deref().unwrap_or_default()).copied().unwrap_or(0);
            ensure!(revision(map)? >= was, "a watcher saw {was} of {:?}, which is lost", map.metadata.name);
        }
        if kill == kills {
            break;
        }
        let watching = tokio::spawn(watch(server.maps()?, list.resource_version));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        for (writer, known) in known.iter().enumerate() {
            let work = write(server.maps()?, writer, known.clone(), numbers.clone(), acknowledged.clone());
            writers.spawn(async move { (writer, work.await) });
        }
        // Each kill comes after another number of writes, so that it meets the store at a different moment.
        let enough = 50 + kill * 37;
        let started = Instant::now();
        while acknowledged.load(Ordering::Relaxed) < enough {
            ensure!(started.elapsed() < LIMIT, "writes do not go on");
            tokio::task::yield_now().await;
        }
        server.kill()?;
        while let Some(ended) = writers.join_next().await {
            let (writer, after) = ended?;
            known[writer] = after?;
        }
        seen = watching.await??;
        let revisions = known.iter().flatten().filter_map(|k| Some(k.acknowledged?.1));
        told = revisions.chain(seen.values().copied()).chain([told]).max().unwrap_or(0);
    }
    Ok(())
}

fn how_often(default: u64) -> u64 {
    std::env::var("FERROKUBE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_has_everything_that_it_acknowledged() -> Result<()> {
    kills("synced", how_often(10)).await
}

/// The system goes on, so that its page cache is not lost with the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_kill_lose_anything_that_is_not_synced() -> Result<()> {
    kills("os", how_often(3)).await
}
