//! The load on an API server, and what it cost the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use client::Config;
use http::Method;
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::process::{self, Memory};
use super::table::{Table, figure};
use super::target::{Op, Target};
use super::{Load, baseline};

/// Requests under way at once, unless a row says otherwise.
const CONCURRENCY: u32 = 64;
const CONNECTIONS: usize = 8;
const WATCHED_WRITES: u32 = 200;

pub(crate) const CREATE: &str = "create ConfigMap (0.5 KB)";
pub(crate) const CREATE_ONE: &str = "create ConfigMap, one writer";
pub(crate) const GET: &str = "get ConfigMap";
pub(crate) const UPDATE: &str = "update ConfigMap";
pub(crate) const PATCH: &str = "merge patch of a ConfigMap";
pub(crate) const APPLY: &str = "server-side apply of a ConfigMap";
pub(crate) const CREATE_POD: &str = "create Pod (1 KB in, 3 KB stored)";
pub(crate) const LIST_CACHE: &str = "list all Pods, resourceVersion=0";
pub(crate) const LIST: &str = "list all Pods, consistent";
pub(crate) const LIST_LABEL: &str = "list Pods by label, one hit";
pub(crate) const LIST_PAGE: &str = "list Pods, page of 500";
pub(crate) const WATCH: &str = "watch, one event to one watcher";

/// What one operation took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Operations a second.
    pub(crate) rate: f64,
    /// Milliseconds; none where nothing is answered one by one.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// Microseconds of the server's CPU time an operation.
    pub(crate) cpu: f64,
}

/// What one server took.
pub(crate) struct Figures {
    /// Whose they are.
    pub(crate) who: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) before: Memory,
    pub(crate) after: Memory,
}

/// The table of one server, beside another's or else beside the recorded figures of upstream.
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
            Some(r) => r.rows.iter().find(|r| r.name == row.name),
            None => baseline::ROWS.iter().find(|r| r.name == row.name),
        };
        let mut cells = cells(row);
        cells.insert(0, row.name.to_owned());
        if let Some(of) = of {
            cells.push("|".to_owned());
            cells.extend(self::cells(of));
            cells.push(format!("{:.1}×", of.cpu / row.cpu));
        }
        table.row(cells);
    }
    let mut memory =
        Table::new(&["memory of all its processes, MiB", "RSS at start", "RSS after", "peak RSS"]);
    for f in [Some(ours), reference].into_iter().flatten() {
        memory.row([f.who.clone(), figure(f.before.rss), figure(f.after.rss), figure(f.after.peak)]);
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
pub(crate) async fn measure(who: &str, config: Config, pids: &[u32], load: Load) -> Result<Figures> {
    let before = process::memory(pids)?;
    let target = Arc::new(Target::connect(config, CONNECTIONS).await?);
    let namespace = format!("bench-{}", std::process::id());
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
    target.call(Op::post("/api/v1/namespaces", body)).await?;
    let base = format!("/api/v1/namespaces/{namespace}");
    // Pods want it, and no controller runs here that would make it.
    let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
    target.call(Op::post(format!("{base}/serviceaccounts"), account)).await?;

    let mut run = Run { who, target, pids, rows: Vec::new() };
    run.all(&base, load).await?;
    Ok(Figures { who: who.to_owned(), rows: run.rows, before, after: process::memory(pids)? })
}

struct Run<'a> {
    who: &'a str,
    target: Arc<Target>,
    pids: &'a [u32],
    rows: Vec<Row>,
}

impl Run<'_> {
    async fn all(&mut self, base: &str, load: Load) -> Result<()> {
        const APPLY_PATCH: &str = "application/apply-patch+yaml";
        const MERGE_PATCH: &str = "application/merge-patch+json";
        let n = load.objects;
        let maps = format!("{base}/configmaps");
        let pods = format!("{base}/pods");

        let at = maps.clone();
        self.phase(CREATE, n, CONCURRENCY, move |i| Op::post(&at, config_map(&format!("c-{i}"), "0")))
            .await?;
        let at = maps.clone();
        self.phase(CREATE_ONE, n / 20, 1, move |i| Op::post(&at, config_map(&format!("d-{i}"), "0"))).await?;
        let at = maps.clone();
        self.phase(GET, n, CONCURRENCY, move |i| Op::get(format!("{at}/c-{i}"))).await?;
        let at = maps.clone();
        self.phase(UPDATE, n, CONCURRENCY, move |i| {
            let body = config_map(&format!("c-{i}"), "1");
            Op::with(Method::PUT, format!("{at}/c-{i}"), "application/json", body)
        })
        .await?;
        let at = maps.clone();
        self.phase(PATCH, n / 2, CONCURRENCY, move |i| {
            Op::with(Method::PATCH, format!("{at}/c-{i}"), MERGE_PATCH, r#"{"data":{"key":"2"}}"#)
        })
        .await?;
        self.phase(APPLY, n / 2, CONCURRENCY, move |i| {
            let path = format!("{maps}/c-{i}?fieldManager=bench&force=true");
            Op::with(Method::PATCH, path, APPLY_PATCH, config_map(&format!("c-{i}"), "3"))
        })
        .await?;

        let at = pods.clone();
        self.phase(CREATE_POD, n, CONCURRENCY, move |i| Op::post(&at, pod(&format!("p-{i}")))).await?;
        let at = pods.clone();
        self.phase(LIST_CACHE, 20, 1, move |_| Op::get(format!("{at}?resourceVersion=0"))).await?;
        let at = pods.clone();
        self.phase(LIST, 20, 1, move |_| Op::get(&at)).await?;
        let at = pods.clone();
        self.phase(LIST_LABEL, 500, 1, move |_| {
            Op::get(format!("{at}?resourceVersion=0&labelSelector=rev%3Dp-7"))
        })
        .await?;
        self.phase(LIST_PAGE, 200, 1, move |_| Op::get(format!("{pods}?limit=500"))).await?;
        self.fan_out(base, load.watchers).await
    }

    /// `count` requests, `concurrency` of them at once.
    async fn phase(
        &mut self,
        name: &'static str,
        count: u32,
        concurrency: u32,
        op: impl Fn(u32) -> Op + Send + Sync + 'static,
    ) -> Result<()> {
        eprintln!("bench: {}: {name}", self.who);
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
            rate: f64::from(count) / took,
            p50: Some(quantile(&times, 0.5)),
            p99: Some(quantile(&times, 0.99)),
            cpu: spent / f64::from(count) * 1e6,
        });
        Ok(())
    }

    /// Writes, one after another, that go to all watchers.
    async fn fan_out(&mut self, base: &str, watchers: u32) -> Result<()> {
        eprintln!("bench: {}: {WATCH}", self.who);
        let secret = |name: &str| {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}"}},"stringData":{{"a":"b"}}}}"#
            );
            Op::post(format!("{base}/secrets"), body)
        };
        // A watcher says how many events each chunk of its answer ended.
        let (seen, mut events) = mpsc::channel(1024);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..watchers {
            let op = Op::get(format!("{base}/secrets?watch=true&resourceVersion=0"));
            let mut body = self.target.send(op).await?.into_body();
            let seen = seen.clone();
            tasks.spawn(async move {
                while let Some(Ok(frame)) = body.frame().await {
                    let ended = frame.data_ref().map_or(0, |d| memchr::memchr_iter(b'\n', d).count());
                    if seen.send(ended).await.is_err() {
                        return;
                    }
                }
            });
        }
        drop(seen);
        // The first write tells that every watcher is there.
        self.target.call(secret("w-first")).await?;
        arrive(&mut events, watchers as usize).await?;
        let total = watchers * WATCHED_WRITES;
        let (cpu, start) = (process::cpu(self.pids)?, Instant::now());
        let target = Arc::clone(&self.target);
        let writes = async {
            for i in 0..WATCHED_WRITES {
                target.call(secret(&format!("w-{i}"))).await?;
            }
            Ok(())
        };
        tokio::try_join!(writes, arrive(&mut events, total as usize))?;
        let took = start.elapsed().as_secs_f64();
        let spent = process::cpu(self.pids)? - cpu;
        self.rows.push(Row {
            name: WATCH,
            rate: f64::from(total) / took,
            p50: None,
            p99: None,
            cpu: spent / f64::from(total) * 1e6,
        });
        Ok(())
    }
}

/// Waits until so many events have arrived.
async fn arrive(events: &mut mpsc::Receiver<usize>, total: usize) -> Result<()> {
    let mut got = 0;
    while got < total {
        got += events.recv().await.context("the server ended the watches")?;
    }
    ensure!(got == total, "{got} events arrived instead of {total}");
    Ok(())
}

/// The value below which that part of the sorted values lies.
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

/// A Pod with what real ones have; its scheduler does not exist, so nobody touches it.
fn pod(name: &str) -> String {
    let spec = r#"{"schedulerName":"nobody","automountServiceAccountToken":false,"containers":[{"name":"main","image":"app.example/team/app:v1.2.3","ports":[{"name":"http","containerPort":8080}],"env":[{"name":"A","value":"1"},{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":5},"volumeMounts":[{"name":"cfg","mountPath":"/etc/cfg"}]}],"volumes":[{"name":"cfg","configMap":{"name":"cfg"}}],"tolerations":[{"key":"a","operator":"Exists","effect":"NoSchedule"}]}"#;
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"bench","tier":"web","rev":"{name}"}},"annotations":{{"example.com/note":"a Pod as they are, not an empty one"}}}},"spec":{spec}}}"#
    )
}
