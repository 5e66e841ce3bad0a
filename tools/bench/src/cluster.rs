//! Measures a whole cluster on a test host: start, footprint, Pods.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, ensure};
use client::Config;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use testkit::{Cluster, Image, Network, Options};

use super::process;
use super::requests::quantile;
use super::table::{Table, figure};
use super::target::{Op, Target};

/// The longest time for any step.
const LIMIT: Duration = Duration::from_mins(3);
/// The time for which a cluster is left alone before it counts as idle.
const SETTLE: Duration = Duration::from_secs(15);
const REPLICAS: usize = 30;
/// The number of Pods made one after another.
const SINGLE: usize = 10;
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Measures a cluster of this binary, with the built-in container runtime or a containerd beside it, and returns its
/// table. Figures of memory and CPU time are this binary's alone.
pub(crate) fn measure(bin: &Path, idle: Duration, containerd: bool) -> Result<String> {
    let runtime = if containerd { "containerd" } else { "the built-in runtime" };
    eprintln!("bench: starting a node with {runtime}");
    // The space on the machine's disk must not matter.
    let flags = ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"];
    let options = Options {
        binary: Some(bin.to_owned()),
        flags: flags.map(str::to_owned).into(),
        images: vec![Image::pause(testkit::PAUSE)?],
        containerd,
        ..Options::default()
    };
    let mut cluster = Cluster::start("bench", options)?;
    let network = Network::of(cluster.pid()?)?;
    cluster.stop_ferrokube(testkit::Signal::TERM)?;
    fs::remove_dir_all(cluster.data_dir())?;
    fs::remove_file(cluster.kubeconfig())?;
    let fresh = start(&mut cluster, &network)?;
    cluster.stop_ferrokube(testkit::Signal::TERM)?;
    let again = start(&mut cluster, &network)?;

    eprintln!("bench: {} s of rest", (SETTLE + idle).as_secs());
    let pids = [cluster.pid()?];
    std::thread::sleep(SETTLE);
    let before = process::cpu(&pids)?;
    std::thread::sleep(idle);
    let cpu = (process::cpu(&pids)? - before) / idle.as_secs_f64() * 100.0;
    let memory = process::memory(&pids)?;

    eprintln!("bench: Pods");
    let kubeconfig = cluster.kubeconfig();
    let (single, deployment, spent) = network.run(move || async move {
        let target = Target::connect(Config::from_kubeconfig(&kubeconfig, None)?, 1).await?;
        let mut pods = Pods::watch(&target).await?;
        let single = pods.one_by_one().await?;
        let before = process::cpu(&pids)?;
        let deployment = pods.deployment().await?;
        Ok((single, deployment, process::cpu(&pids)? - before))
    })?;
    std::thread::sleep(SETTLE);
    let busy = process::memory(&pids)?;

    let mut out = Table::new(&[&format!("a whole node: ferrokube up, {runtime}"), ""]);
    let mut row = |what: String, value: f64| out.row([what, figure(value)]);
    row("start to node Ready, fresh directory, s".into(), fresh);
    row("start to node Ready, again, s".into(), again);
    row("memory at rest, RSS MiB".into(), memory.rss);
    row("memory at rest, PSS MiB".into(), memory.pss);
    row(format!("CPU at rest over {} s, % of a core", idle.as_secs()), cpu);
    row(format!("Pod, create to Ready, median of {SINGLE}, s"), quantile(&single, 0.5));
    row("Pod, create to Ready, slowest, s".into(), quantile(&single, 1.0));
    row(format!("Deployment of {REPLICAS}, create to first Ready, s"), quantile(&deployment, 0.0));
    row(format!("Deployment of {REPLICAS}, create to all Ready, s"), quantile(&deployment, 1.0));
    row("CPU time for one of its Pods, ms".into(), spent / REPLICAS as f64 * 1e3);
    row(format!("memory at rest with {REPLICAS} Pods, RSS MiB"), busy.rss);
    Ok(out.to_string())
}

/// Starts FerroKube; returns the seconds until its node is Ready.
fn start(cluster: &mut Cluster, network: &Network) -> Result<f64> {
    let (wall, started) = (SystemTime::now(), Instant::now());
    cluster.start_ferrokube()?;
    let (kubeconfig, node) = (cluster.kubeconfig(), cluster.host().name().to_owned());
    network.run(move || async move {
        loop {
            let error = match ready(&kubeconfig, &node, wall).await {
                Ok(true) => return Ok(started.elapsed().as_secs_f64()),
                Ok(false) => anyhow!("the node is not Ready"),
                Err(error) => error,
            };
            ensure!(started.elapsed() < LIMIT, error);
            tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
        }
    })
}

/// Whether the node is Ready and its kubelet has sent a heartbeat since `wall`: a node that was Ready before a restart
/// is Ready until somebody misses it.
async fn ready(kubeconfig: &Path, node: &str, wall: SystemTime) -> Result<bool> {
    let target = Target::connect(Config::from_kubeconfig(kubeconfig, None)?, 1).await?;
    let object = target.json(Op::get(format!("/api/v1/nodes/{node}"))).await?;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
    let lease = target.json(Op::get(lease)).await?;
    let renewed: jiff::Timestamp = lease["spec"]["renewTime"].as_str().context("no renewTime")?.parse()?;
    Ok(is_ready(&object) && renewed > jiff::Timestamp::try_from(wall)?)
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Watches Pods as they become Ready.
struct Pods<'a> {
    target: &'a Target,
    body: Incoming,
    buffer: Vec<u8>,
}

impl<'a> Pods<'a> {
    async fn watch(target: &'a Target) -> Result<Self> {
        // A namespace gets its account from a controller; Pods wait for it.
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        let started = Instant::now();
        while let Err(error) = target.call(Op::get(account)).await {
            ensure!(started.elapsed() < LIMIT, error);
            tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
        }
        let body = target.send(Op::get(format!("{PODS}?watch=true"))).await?.into_body();
        Ok(Self { target, body, buffer: Vec::new() })
    }

    /// The next Pod of the watch.
    async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
                let event: Value = serde_json::from_slice(&self.buffer[..end])?;
                self.buffer.drain(..=end);
                return Ok(event["object"].clone());
            }
            let frame = tokio::time::timeout(LIMIT, self.body.frame()).await.context("no Pod changes")?;
            let frame = frame.context("the watch of Pods ended")??;
            self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d));
        }
    }

    /// The seconds since `start` at which each of `count` Pods, all new, became Ready.
    async fn become_ready(
        &mut self,
        start: Instant,
        known: &mut HashSet<String>,
        count: usize,
    ) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        while times.len() < count {
            let pod = self.next().await?;
            let name = pod["metadata"]["name"].as_str().context("a Pod without a name")?;
            if is_ready(&pod) && known.insert(name.to_owned()) {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        Ok(times)
    }

    /// Makes Pods, each after the one before is Ready; returns the sorted seconds from create to Ready.
    async fn one_by_one(&mut self) -> Result<Vec<f64>> {
        let (mut known, mut times) = (HashSet::new(), Vec::new());
        for i in 0..SINGLE {
            let body = json!({"metadata": {"name": format!("single-{i}")}, "spec": spec()}).to_string();
            let start = Instant::now();
            self.target.call(Op::post(PODS, body)).await?;
            times.extend(self.become_ready(start, &mut known, 1).await?);
        }
        self.target.call(Op::with(Method::DELETE, PODS, "", "")).await?;
        let started = Instant::now();
        while self.target.json(Op::get(PODS)).await?["items"].as_array().is_some_and(|i| !i.is_empty()) {
            ensure!(started.elapsed() < LIMIT, "Pods do not go");
            tokio::time::sleep(Duration::from_millis(50)).await; // the pace of asking
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Makes a Deployment; returns the sorted seconds from its create to each Pod's Ready.
    async fn deployment(&mut self) -> Result<Vec<f64>> {
        let labels = json!({"app": "bench"});
        let body = json!({
            "metadata": {"name": "bench"},
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec()},
            },
        });
        // The remaining events of the single Pods come first.
        let mut known: HashSet<String> = (0..SINGLE).map(|i| format!("single-{i}")).collect();
        let start = Instant::now();
        self.target.call(Op::post("/apis/apps/v1/namespaces/default/deployments", body.to_string())).await?;
        self.become_ready(start, &mut known, REPLICAS).await
    }
}

/// A Pod's spec with a container that waits, of an image that every test host has.
fn spec() -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": testkit::PAUSE, "imagePullPolicy": "IfNotPresent"}],
    })
}
