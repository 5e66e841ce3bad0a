//! The load on an API server, and the server's cost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result};
use client::Config;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::process::{self, Memory};
use super::table::{Table, figure};
use super::target::{Op, Target};
use super::{Load, baseline};

/// The number of concurrent requests where the server is loaded.
pub(crate) const MANY: u32 = 64;
/// The fewest connections; upstream's server takes at most 100 streams on each.
const CONNECTIONS: u32 = 8;
const WATCHED_WRITES: u32 = 200;

pub(crate) const CREATE: &str = "create ConfigMap (0.5 KB)";
pub(crate) const GET: &str = "get ConfigMap";
pub(crate) const UPDATE: &str = "update ConfigMap";
pub(crate) const PATCH: &str = "merge patch of a ConfigMap";
const STRATEGIC: &str = "strategic merge patch of a ConfigMap";
pub(crate) const APPLY: &str = "server-side apply of a ConfigMap";
pub(crate) const CREATE_POD: &str = "create Pod (1 KB in, 3 KB stored)";
pub(crate) const LIST_CACHE: &str = "list all Pods, resourceVersion=0";
pub(crate) const LIST: &str = "list all Pods, consistent";
const LIST_PROTOBUF: &str = "list all Pods, consistent, protobuf";
const LIST_TABLE: &str = "list all Pods, consistent, Table";
const LIST_FIELD: &str = "list Pods by field, no hit";
pub(crate) const LIST_LABEL: &str = "list Pods by label, one hit";
pub(crate) const LIST_PAGE: &str = "list Pods, page of 500";
pub(crate) const WATCH: &str = "watch, one event to one watcher";

pub(crate) const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// The cost of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The number of concurrent operations.
    pub(crate) at_once: u32,
    /// Operations a second.
    pub(crate) rate: f64,
    /// Milliseconds until the answer, or until the event arrived.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// Microseconds of the server's CPU time for one operation.
    pub(crate) cpu: f64,
}

impl Row {
    /// Whether two rows can be compared.
    fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && (self.at_once == other.at_once || self.name == WATCH)
    }
    fn title(&self) -> String {
        if self.at_once > 1 {
            format!("{}, {} at once", self.name, self.at_once)
        } else {
            self.name.to_owned()
        }
    }
}

/// The extent of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The operations of upstream's recorded figures.
    Recorded,
    /// Every kind of write at three loads, every form of a list.
    Whole,
}

/// The costs of one server.
pub(crate) struct Figures {
    /// The name of the server.
    pub(crate) who: String,
    pub(crate) rows: Vec<Row>,
    /// The bytes of memory that a Pod takes, and the bytes of its JSON.
    pub(crate) pod: (f64, f64),
    pub(crate) before: Memory,
    pub(crate) after: Memory,
}

/// The table of one server, beside another's or else beside upstream's recorded figures.
pub(crate) fn table(ours: &Figures, reference: Option<&Figures>) -> String {
    let title = reference.map_or("recorded", |r| r.who.as_str());
    let mut table = Table::new(&[
        "operation",
        "ops/s",
        "p50 ms",
        "p99 ms",
        "CPU µs/op",
        title,
        "ops/s",
        "p50 ms",
        "p99 ms",
        "CPU µs/op",
        "CPU ratio",
    ]);
    for row in &ours.rows {
        let of = match reference {
            Some(r) => r.rows.iter().find(|r| row.is_like(r)),
            None => baseline::ROWS.iter().find(|r| row.is_like(r)),
        };
        let mut cells = cells(row);
        cells.insert(0, row.title());
        if let Some(of) = of {
            cells.push("|".to_owned());
            cells.extend(self::cells(of));
            cells.push(format!("{:.1}×", of.cpu / row.cpu));
        }
        table.row(cells);
    }
    let mut memory = Table::new(&[
        "memory of all its processes, MiB",
        "RSS at start",
        "RSS after",
        "peak RSS",
        "a Pod, bytes",
        "of its JSON",
    ]);
    for f in [Some(ours), reference].into_iter().flatten() {
        let (bytes, json) = f.pod;
        memory.row([
            f.who.clone(),
            figure(f.before.rss),
            figure(f.after.rss),
            figure(f.after.peak),
            figure(bytes),
            format!("{:.2}×", bytes / json),
        ]);
    }
    if reference.is_none() {
        memory.row([
            "recorded".to_owned(),
            figure(baseline::MEMORY_AT_REST),
            String::new(),
            figure(baseline::MEMORY_PEAK),
        ]);
    }
    let source = if reference.is_none() { format!("recorded: {}\n", baseline::WHERE) } else { String::new() };
    format!("{table}{source}\n{memory}")
}

fn cells(row: &Row) -> Vec<String> {
    let optional = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), figure);
    vec![figure(row.rate), optional(row.p50), optional(row.p99), figure(row.cpu)]
}

/// Puts the load on a server whose processes are `pids`.
pub(crate) async fn measure(
    who: &str,
    config: Config,
    pids: &[u32],
    load: Load,
    scope: Scope,
) -> Result<Figures> {
    let before = process::memory(pids)?;
    let target = Arc::new(connect(config, load.watchers).await?);
    let namespace = make_namespace(&target).await?;
    let base = format!("/api/v1/namespaces/{namespace}");
    // Pods need an account, and no controller runs here that would make it.
    let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
    target.call(Op::post(format!("{base}/serviceaccounts"), account)).await?;

    let mut run = Run { who, target, pids, rows: Vec::new() };
    let pod = run.all(&base, load, scope).await?;
    Ok(Figures { who: who.to_owned(), rows: run.rows, pod, before, after: process::memory(pids)? })
}

/// Connects to a server that has so many watchers.
pub(crate) async fn connect(config: Config, watchers: u32) -> Result<Target> {
    Target::connect(config, CONNECTIONS.max(watchers / 64 + 1)).await
}

/// Makes a namespace for the objects of a run; returns its name.
pub(crate) async fn make_namespace(target: &Target) -> Result<String> {
    let namespace = format!("bench-{}", std::process::id());
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
    target.call(Op::post("/api/v1/namespaces", body)).await?;
    Ok(namespace)
}

/// A server under load.
pub(crate) struct Run<'a> {
    pub(crate) who: &'a str,
    pub(crate) target: Arc<Target>,
    pub(crate) pids: &'a [u32],
    pub(crate) rows: Vec<Row>,
}

impl Run<'_> {
    /// Runs all operations; returns the memory that a Pod takes, and the size of its JSON.
    async fn all(&mut self, base: &str, load: Load, scope: Scope) -> Result<(f64, f64)> {
        let n = load.objects;
        self.writes(base, n, MANY, scope).await?;
        match scope {
            // Each writer alone waits for the disk, so fewer operations will do.
            Scope::Recorded => {
                let at = format!("{base}/configmaps");
                self.phase(CREATE, n / 20, 1, move |i| Op::post(&at, config_map(&format!("d-{i}"), "0")))
                    .await?;
            }
            Scope::Whole => {
                self.writes(base, n / 2, 16, scope).await?;
                self.writes(base, n / 10, 1, scope).await?;
            }
        }

        let pods = format!("{base}/pods");
        let before = process::memory(self.pids)?;
        let at = pods.clone();
        self.phase(CREATE_POD, n, MANY, move |i| Op::post(&at, pod(&format!("p-{i}")))).await?;
        let taken = (process::memory(self.pids)?.rss - before.rss) * f64::from(1 << 20);
        let json = self.target.call(Op::get(&pods)).await?;
        let pod = (taken / f64::from(n), json as f64 / f64::from(n));

        let at = format!("{pods}?resourceVersion=0");
        self.phase(LIST_CACHE, 20, 1, move |_| Op::get(&at)).await?;
        let at = pods.clone();
        self.phase(LIST, 20, 1, move |_| Op::get(&at)).await?;
        if scope == Scope::Whole {
            let at = pods.clone();
            self.phase(LIST_PROTOBUF, 20, 1, move |_| Op::get(&at).accepting(PROTOBUF)).await?;
            let at = pods.clone();
            self.phase(LIST_TABLE, 20, 1, move |_| Op::get(&at).accepting(TABLE)).await?;
            let at = format!("{pods}?resourceVersion=0&fieldSelector=status.phase%3DFailed");
            self.phase(LIST_FIELD, 500, 1, move |_| Op::get(&at)).await?;
        }
        let at = format!("{pods}?resourceVersion=0&labelSelector=rev%3Dp-7");
        self.phase(LIST_LABEL, 500, 1, move |_| Op::get(&at)).await?;
        self.phase(LIST_PAGE, 200, 1, move |_| Op::get(format!("{pods}?limit=500"))).await?;
        let secret = |name: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}"}},"stringData":{{"a":"b"}}}}"#
            )
        };
        self.fan_out(WATCH, &format!("{base}/secrets"), load.watchers, secret).await?;
        Ok(pod)
    }

    /// Runs every kind of write, so many at once, on objects of their own.
    async fn writes(&mut self, base: &str, n: u32, at_once: u32, scope: Scope) -> Result<()> {
        let maps = format!("{base}/configmaps");
        let name = move |i: u32| format!("c-{at_once}-{i}");
        let at = maps.clone();
        self.phase(CREATE, n, at_once, move |i| Op::post(&at, config_map(&name(i), "0"))).await?;
        let at = maps.clone();
        self.phase(GET, n, at_once, move |i| Op::get(format!("{at}/{}", name(i)))).await?;
        let at = maps.clone();
        self.phase(UPDATE, n, at_once, move |i| {
            let body = config_map(&name(i), "1");
            Op::with(Method::PUT, format!("{at}/{}", name(i)), JSON, body)
        })
        .await?;
        let at = maps.clone();
        self.phase(PATCH, n / 2, at_once, move |i| {
            Op::with(Method::PATCH, format!("{at}/{}", name(i)), MERGE_PATCH, r#"{"data":{"key":"2"}}"#)
        })
        .await?;
        if scope == Scope::Whole {
            let at = maps.clone();
            self.phase(STRATEGIC, n / 2, at_once, move |i| {
                let patch = r#"{"data":{"key":"3"}}"#;
                Op::with(Method::PATCH, format!("{at}/{}", name(i)), STRATEGIC_PATCH, patch)
            })
            .await?;
        }
        self.phase(APPLY, n / 2, at_once, move |i| {
            let path = format!("{maps}/{}?fieldManager=bench&force=true", name(i));
            Op::with(Method::PATCH, path, APPLY_PATCH, config_map(&name(i), "4"))
        })
        .await
    }

    /// Sends `count` requests, `concurrency` of them at once.
    pub(crate) async fn phase(
        &mut self,
        name: &'static str,
        count: u32,
        concurrency: u32,
        op: impl Fn(u32) -> Op + Send + Sync + 'static,
    ) -> Result<()> {
        eprintln!("bench: {}: {name}, {concurrency} at once", self.who);
        let (op, next) = (Arc::new(op), Arc::new(AtomicU32::new(0)));
        let (cpu, start) = (process::cpu(self.pids)?, Instant::now());
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..concurrency {
            let (op, next, target) = (Arc::clone(&op), Arc::clone(&next), Arc::clone(&self.target));
            workers.spawn(async move {
                let mut times = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return anyhow::Ok(times);
                    }
                    let sent = Instant::now();
                    target.call(op(i)).await?;
                    times.push(sent.elapsed().as_secs_f64() * 1e3);
                }
            });
        }
        let mut times = Vec::with_capacity(count as usize);
        while let Some(done) = workers.join_next().await {
            times.extend(done??);
        }
        let took = start.elapsed().as_secs_f64();
        let spent = process::cpu(self.pids)? - cpu;
        times.sort_by(f64::total_cmp);
        self.rows.push(Row {
            name,
            at_once: concurrency,
            rate: f64::from(count) / took,
            p50: Some(quantile(&times, 0.5)),
            p99: Some(quantile(&times, 0.99)),
            cpu: spent / f64::from(count) * 1e6,
        });
        Ok(())
    }

    /// Runs writes to a resource, one after another, that go to all watchers. `object` makes the body of a name.
    pub(crate) async fn fan_out(
        &mut self,
        name: &'static str,
        path: &str,
        watchers: u32,
        object: impl Fn(&str) -> String,
    ) -> Result<()> {
        eprintln!("bench: {}: {name}", self.who);
        let create = |name: &str| Op::post(path, object(name));
        let sent: Arc<Vec<OnceLock<Instant>>> =
            Arc::new((0..WATCHED_WRITES).map(|_| OnceLock::new()).collect());
        let list = self.target.json(Op::get(format!("{path}?limit=1"))).await?;
        let from = list["metadata"]["resourceVersion"].as_str().context("a list has no resourceVersion")?;
        let (there, mut first) = mpsc::channel(1024);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..watchers {
            let op = Op::get(format!("{path}?watch=true&resourceVersion={from}"));
            let body = self.target.send(op).await?.into_body();
            tasks.spawn(lags(body, there.clone(), Arc::clone(&sent)));
        }
        drop(there);
        // The first write shows that every watcher is there.
        self.target.call(create("w-first")).await?;
        for _ in 0..watchers {
            first.recv().await.context("the server ended the watches")?;
        }
        let (cpu, start) = (process::cpu(self.pids)?, Instant::now());
        for (i, at) in sent.iter().enumerate() {
            let _ = at.set(Instant::now());
            self.target.call(create(&format!("w-{i}"))).await?;
        }
        let mut all = Vec::new();
        while let Some(watcher) = tasks.join_next().await {
            all.extend(watcher??);
        }
        let took = start.elapsed().as_secs_f64();
        let spent = process::cpu(self.pids)? - cpu;
        let total = f64::from(watchers) * f64::from(WATCHED_WRITES);
        all.sort_by(f64::total_cmp);
        self.rows.push(Row {
            name,
            at_once: watchers,
            rate: total / took,
            p50: Some(quantile(&all, 0.5)),
            p99: Some(quantile(&all, 0.99)),
            cpu: spent / total * 1e6,
        });
        Ok(())
    }
}

/// Reads a watch: reports its first event, then the milliseconds between each write and its event.
async fn lags(
    mut body: Incoming,
    there: mpsc::Sender<()>,
    sent: Arc<Vec<OnceLock<Instant>>>,
) -> Result<Vec<f64>> {
    let mut lags = Vec::with_capacity(sent.len());
    let mut began = false;
    while lags.len() < sent.len() {
        let frame = body.frame().await.context("the server ended a watch")??;
        let now = Instant::now();
        let ended = frame.data_ref().map_or(0, |d| memchr::memchr_iter(b'\n', d).count());
        for _ in 0..ended {
            if !began {
                began = true;
                there.send(()).await?;
                continue;
            }
            let at = sent.get(lags.len()).context("more events than writes")?;
            let at = at.get().context("an event came before its write")?;
            lags.push((now - *at).as_secs_f64() * 1e3);
        }
    }
    Ok(lags)
}

/// The value below which a part of the sorted values lies.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn config_map(name: &str, value: &str) -> String {
    let text = "x".repeat(400);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"key":"{value}","text":"{text}"}}}}"#
    )
}

/// A Pod with the fields of real ones; its scheduler does not exist, so nobody touches it.
fn pod(name: &str) -> String {
    let spec = r#"{"schedulerName":"nobody","automountServiceAccountToken":false,"containers":[{"name":"main","image":"app.example/team/app:v1.2.3","ports":[{"name":"http","containerPort":8080}],"env":[{"name":"A","value":"1"},{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":5},"volumeMounts":[{"name":"cfg","mountPath":"/etc/cfg"}]}],"volumes":[{"name":"cfg","configMap":{"name":"cfg"}}],"tolerations":[{"key":"a","operator":"Exists","effect":"NoSchedule"}]}"#;
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"bench","tier":"web","rev":"{name}"}},"annotations":{{"example.com/note":"a Pod as they are, not an empty one"}}}},"spec":{spec}}}"#
    )
}
