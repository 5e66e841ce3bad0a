//! The kubelet on a whole node: its own share of a Pod's start, the cost of Pods at rest, the time until the end of a
//! container is in the API, and the statuses of many Pods after a restart.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use client::{Api, Client, Config, Event, ListParams, Remote, WatchParams};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::{Cluster, Image, Network, Options};

use crate::requests::quantile;
use crate::table::{Table, figure};
use crate::{build, process};

const IMAGE: &str = "test.local/app:1";
/// The longest time for any step.
const LIMIT: Duration = Duration::from_mins(5);
/// The time for which a node is left alone before it counts as idle.
const SETTLE: Duration = Duration::from_secs(15);
/// Requests at once.
const AT_ONCE: usize = 16;
/// The calls of the runtime that a start waits for.
const CALLS: [&str; 3] = ["run_podsandbox", "create_container", "start_container"];

/// The load.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The binary to measure [default: a release build, made first]
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Pods that start and end one after the other
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pods: u32,
    /// Pods at rest
    #[arg(long, value_name = "N", default_value_t = 110, value_parser = clap::value_parser!(u32).range(1..=500))]
    idle: u32,
    /// Seconds for which CPU at rest is measured
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    idle_seconds: u64,
    /// Pods whose containers end while the node is away
    #[arg(long, value_name = "N", default_value_t = 110, value_parser = clap::value_parser!(u32).range(1..=500))]
    restarted: u32,
}

/// Runs all measurements on one node with the built-in container runtime.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => bin.canonicalize().with_context(|| format!("no binary at {}", bin.display()))?,
        None => build(root)?,
    };
    // The space on the machine's disk must not matter.
    let flags = [
        "--eviction-hard=memory.available<10Mi,nodefs.available<1%,imagefs.available<1%",
        // Room and addresses for all Pods, and for those that are still on their way out.
        "--max-pods=510",
        "--node-cidr-mask-size=22",
    ];
    let flags = flags.map(str::to_owned).into();
    let images = vec![Image::busybox(IMAGE)?];
    let mut cluster =
        Cluster::start("bench", Options { binary: Some(bin), flags, images, ..Options::default() })?;
    let mut node = Node::of(&cluster)?;
    let mut out = Table::new(&["a kubelet with the built-in runtime", ""]);
    let mut row = |what: String, value: f64| out.row([what, figure(value)]);

    eprintln!("bench: {} Pods, one after the other", args.pods);
    let starts = node.one_by_one(args.pods)?;
    row("a Pod bound to the node, create to Ready, p50 ms".into(), starts.whole);
    row("of that the runtime's (sandbox, container, start), mean ms".into(), starts.runtime);
    row("the share of all others, p50 less that, ms".into(), starts.whole - starts.runtime);
    row("the end of a container to the Pod's status in the API, p50 ms".into(), starts.end);
    row("the same, p99 ms".into(), starts.late_end);

    eprintln!("bench: {} Pods at rest", args.idle);
    let pids = [cluster.pid()?];
    let rest = || -> Result<(f64, f64)> {
        std::thread::sleep(SETTLE);
        let before = process::cpu(&pids)?;
        std::thread::sleep(Duration::from_secs(args.idle_seconds));
        Ok((process::anonymous(pids[0])?, (process::cpu(&pids)? - before) / args.idle_seconds as f64 * 100.0))
    };
    let (memory, cpu) = rest()?;
    node.fill(args.idle)?;
    let (with, cpu_with) = rest()?;
    row(format!("{} Pods at rest, MiB more of the whole process", args.idle), with - memory);
    row(format!("CPU without Pods over {} s, % of a core", args.idle_seconds), cpu);
    row("the same with them".into(), cpu_with);
    node.clear()?;

    eprintln!("bench: {} Pods whose containers end while the node is away", args.restarted);
    node.fill(args.restarted)?;
    cluster.stop_ferrokube(testkit::Signal::KILL)?;
    let ended = node.end_all()?;
    ensure!(ended >= args.restarted as usize, "{ended} containers of {}", args.restarted);
    let started = Instant::now();
    cluster.start_ferrokube()?;
    let (ready, all) = node.until_all_ended(args.restarted as usize, started)?;
    row(format!("{} statuses after a restart, s since the API server answers", args.restarted), all - ready);
    row("the same, s since the process began".into(), all);
    println!("{out}");
    Ok(())
}

/// The starts and the ends of Pods, in ms.
struct Starts {
    whole: f64,
    runtime: f64,
    end: f64,
    late_end: f64,
}

/// A node, seen through its API server.
struct Node {
    network: Network,
    kubeconfig: PathBuf,
    name: String,
    /// The word in the command line of this node's containers.
    mark: String,
}

impl Node {
    fn of(cluster: &Cluster) -> Result<Self> {
        let node = Self {
            network: cluster.host().inside()?,
            kubeconfig: cluster.kubeconfig(),
            name: cluster.host().name().to_owned(),
            mark: format!("bench-{}", std::process::id()),
        };
        node.network.run(|| async {
            let accounts: Api<ServiceAccount> = node.client()?.api("default");
            let since = Instant::now();
            while let Err(status) = accounts.get("default").await {
                ensure!(since.elapsed() < LIMIT, status);
                tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
            }
            Ok(())
        })?;
        Ok(node)
    }

    fn client(&self) -> Result<Client> {
        Ok(Client::new(Arc::new(Remote::new(Config::from_kubeconfig(&self.kubeconfig, None)?)?), "bench"))
    }

    fn pods(&self) -> Result<Api<Pod>> {
        Ok(self.client()?.api("default"))
    }

    /// A Pod of this node, whose container waits to be killed.
    fn pod(&self, name: &str) -> Result<Pod> {
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
            "nodeName": self.name, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": IMAGE, "command": ["tail", "-f", "/dev/null", "-s", "1000000"],
                "env": [{"name": "MARK", "value": self.mark}]}],
        }}))?)
    }

    /// The processes of this node's containers.
    fn processes(&self) -> Result<Vec<Pid>> {
        let mark = format!("MARK={}", self.mark);
        let all = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let variables = fs::read(entry.path().join("environ")).ok()?;
            let ours = variables.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
            ours.then(|| Pid::from_raw(pid)).flatten()
        });
        Ok(all.collect())
    }

    /// Ends all containers; returns their number.
    fn end_all(&self) -> Result<usize> {
        let all = self.processes()?;
        for pid in &all {
            kill_process(*pid, Signal::KILL)?;
        }
        Ok(all.len())
    }

    /// The seconds that calls of the runtime took so far on which starts wait, by the kubelet's own metrics.
    async fn runtime(&self, client: &Client) -> Result<f64> {
        let path = format!("/api/v1/nodes/{}/proxy/metrics", self.name);
        let text: Text = client.raw(&path).await?;
        let mut sum = 0.0;
        for call in CALLS {
            let of = format!("kubelet_runtime_operations_duration_seconds_sum{{operation_type=\"{call}\"}} ");
            let line = text.0.lines().find_map(|line| line.strip_prefix(&of));
            sum += line.with_context(|| format!("no metric of {call}"))?.parse::<f64>()?;
        }
        Ok(sum)
    }

    /// Makes Pods, each after the one before has ended by a signal and is gone.
    fn one_by_one(&mut self, count: u32) -> Result<Starts> {
        self.network.run(|| async {
            let (client, pods) = (self.client()?, self.pods()?);
            let mut changes = Changes::of(&pods).await?;
            let (mut whole, mut ends, mut runtime) = (Vec::new(), Vec::new(), 0.0);
            // The first one makes all that stays, and the metrics.
            for number in 0..=count {
                let name = format!("single-{number}");
                let before = if number == 0 { 0.0 } else { self.runtime(&client).await? };
                let start = Instant::now();
                pods.create(&self.pod(&name)?).await?;
                changes.until(|pod| is_named(pod, &name) && is_ready(pod)).await?;
                let took = start.elapsed();
                let spent = self.runtime(&client).await? - before;
                let [process] = self.processes()?[..] else { anyhow::bail!("not one process") };
                let killed = Instant::now();
                kill_process(process, Signal::KILL)?;
                changes.until(|pod| is_named(pod, &name) && phase(pod) == "Failed").await?;
                if number > 0 {
                    whole.push(took.as_secs_f64() * 1e3);
                    ends.push(killed.elapsed().as_secs_f64() * 1e3);
                    runtime += spent * 1e3;
                }
                pods.delete(&name, None).await?;
                changes.gone(&name).await?;
            }
            whole.sort_by(f64::total_cmp);
            ends.sort_by(f64::total_cmp);
            Ok(Starts {
                whole: quantile(&whole, 0.5),
                runtime: runtime / f64::from(count),
                end: quantile(&ends, 0.5),
                late_end: quantile(&ends, 0.99),
            })
        })
    }

    /// Fills the node with Pods that are all Ready.
    fn fill(&self, count: u32) -> Result<()> {
        self.network.run(|| async {
            let pods = self.pods()?;
            let mut changes = Changes::of(&pods).await?;
            let all: Vec<Pod> = (0..count).map(|n| self.pod(&format!("p{n}"))).collect::<Result<_>>()?;
            let create = |pod| {
                let pods = &pods;
                async move { pods.create(&pod).await }
            };
            let created = stream::iter(all.into_iter().map(create))
                .buffer_unordered(AT_ONCE)
                .map_err(anyhow::Error::from)
                .try_for_each(|_| async { Ok(()) });
            let mut ready = HashSet::new();
            let come = changes.until(|pod| {
                if is_ready(pod) {
                    ready.insert(pod.metadata.name.clone());
                }
                ready.len() == count as usize
            });
            // A watch that nobody reads would hold up the answers on its connection.
            tokio::try_join!(created, come).map(|_| ())
        })
    }

    /// Removes all Pods.
    fn clear(&self) -> Result<()> {
        self.network.run(|| async {
            let pods = self.pods()?;
            let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            pods.delete_collection(Some(&now), &ListParams::default()).await?;
            let since = Instant::now();
            while !pods.list(&ListParams::default()).await?.items.is_empty() {
                ensure!(since.elapsed() < LIMIT, "Pods do not go");
                tokio::time::sleep(Duration::from_millis(50)).await; // the pace of asking
            }
            Ok(())
        })
    }

    /// Waits until so many Pods have failed; returns the seconds since `start` until the API server answered, and those
    /// until the last one had.
    fn until_all_ended(&self, count: usize, start: Instant) -> Result<(f64, f64)> {
        self.network.run(|| async {
            let pods = self.pods()?;
            let mut changes = loop {
                match Changes::of(&pods).await {
                    Ok(changes) => break changes,
                    Err(error) => ensure!(start.elapsed() < LIMIT, error),
                }
                tokio::time::sleep(Duration::from_millis(2)).await; // the pace of asking
            };
            let ready = start.elapsed().as_secs_f64();
            let mut failed: HashSet<_> = changes.first.iter().filter(|p| phase(p) == "Failed").cloned_names();
            if failed.len() < count {
                changes
                    .until(|pod| {
                        if phase(pod) == "Failed" {
                            failed.insert(pod.metadata.name.clone().unwrap_or_default());
                        }
                        failed.len() >= count
                    })
                    .await?;
            }
            Ok((ready, start.elapsed().as_secs_f64()))
        })
    }
}

/// Text as it came.
struct Text(String);

impl client::FromJson for Text {
    fn from_json(bytes: &[u8]) -> Result<Self, api::Status> {
        Ok(Self(String::from_utf8_lossy(bytes).into_owned()))
    }
}

/// The names of Pods.
trait Names {
    fn cloned_names(self) -> HashSet<String>;
}

impl<'a, I: Iterator<Item = &'a Pod>> Names for I {
    fn cloned_names(self) -> HashSet<String> {
        self.filter_map(|pod| pod.metadata.name.clone()).collect()
    }
}

/// The changes of Pods.
struct Changes {
    first: Vec<Pod>,
    events: BoxStream<'static, Result<Event<Pod>, api::Status>>,
}

impl Changes {
    async fn of(pods: &Api<Pod>) -> Result<Self> {
        let listed = pods.list(&ListParams::default()).await?;
        let params = WatchParams { resource_version: listed.resource_version, ..WatchParams::default() };
        Ok(Self { first: listed.items, events: pods.watch(&params).await? })
    }

    async fn next(&mut self) -> Result<Event<Pod>> {
        let event = tokio::time::timeout(LIMIT, self.events.next()).await.context("no Pod changes")?;
        event.ok_or_else(|| anyhow!("the watch of Pods ended"))?.map_err(Into::into)
    }

    /// Waits for a Pod of which this is true.
    async fn until(&mut self, mut is: impl FnMut(&Pod) -> bool) -> Result<()> {
        loop {
            if let Event::Added(pod) | Event::Modified(pod) = self.next().await?
                && is(&pod)
            {
                return Ok(());
            }
        }
    }

    /// Waits until a Pod is gone.
    async fn gone(&mut self, name: &str) -> Result<()> {
        loop {
            if let Event::Deleted(pod) = self.next().await?
                && is_named(&pod, name)
            {
                return Ok(());
            }
        }
    }
}

fn is_named(pod: &Pod, name: &str) -> bool {
    pod.metadata.name.as_deref() == Some(name)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}
