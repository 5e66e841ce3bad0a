//! Traffic between Pods: on a node, between nodes and through a Service, beside a bare link; what many Services cost the
//! first packet, and how long a change of endpoints takes to reach packets.

mod load;
mod service;

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Cluster, Hosts, Image, Options};

use self::load::{Load, Shown};
use self::service::Services;
use crate::build;
use crate::requests::quantile;
use crate::table::{Table, figure};

const IMAGE: &str = "test.local/app:1";

/// The load.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The binary to measure [default: a release build, made first]
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Rounds, in each of which every path has its turn
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of each load on each path
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..))]
    millis: u64,
    /// Services that there are besides, in the end
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    services: u32,
    /// Changes of endpoints that are measured
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
}

/// A way from a client to a server.
struct Way<'a> {
    name: &'static str,
    from: &'a File,
    to: Ipv4Addr,
    /// The figures of each load, round by round.
    shown: [Vec<Shown>; Load::ALL.len()],
}

impl<'a> Way<'a> {
    fn new(name: &'static str, from: &'a File, to: Ipv4Addr) -> Self {
        Self { name, from, to, shown: Default::default() }
    }
}

/// A Pod that runs, seen from the machine.
struct Pod {
    address: Ipv4Addr,
    network: File,
}

/// Measures a cluster of two nodes on this machine, and prints tables.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => bin.canonicalize().with_context(|| format!("no binary at {}", bin.display()))?,
        None => build(root)?,
    };
    let mut link = Hosts::on_one_link(&["left", "right"])?;
    let right = link.address(1);
    let ends = link.take();
    let ends = ends.iter().map(|host| File::open(host.network())).collect::<std::io::Result<Vec<_>>>()?;
    let [left_end, right_end] = &ends[..] else { anyhow::bail!("a link has two ends") };

    eprintln!("bench: two nodes");
    // The space on the machine's disk must not matter.
    let flags = ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"];
    let cluster = Cluster::start(
        "traffic",
        Options {
            binary: Some(bin),
            flags: flags.map(str::to_owned).into(),
            images: vec![Image::busybox(IMAGE)?],
            nodes: 2,
            ..Options::default()
        },
    )?;
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"])?;
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    let [first, second] = nodes[..] else { anyhow::bail!("there are the nodes {nodes:?}") };
    let [client, near, far] = pods(&cluster, [("client", first), ("near", first), ("far", second)])?;
    load::serve(right_end, 0)?;
    load::serve(&near.network, 1)?;
    load::serve(&far.network, 2)?;
    let services = Services::new(&cluster)?;
    let service = services.to("far", far.address)?;

    let mut ways = [
        Way::new("a link of two hosts", left_end, right),
        Way::new("Pods of a node", &client.network, near.address),
        Way::new("Pods of two nodes", &client.network, far.address),
        Way::new("a Service of the other node's Pod", &client.network, service),
    ];
    service::reach(&client.network, service, 2)?;
    println!("{}", rounds(args, &mut ways)?);

    let few = load::connections(&client.network, service, 1_000)?;
    eprintln!("bench: {} Services", args.services);
    let last = services.many(args.services, far.address)?;
    service::reach(&client.network, last, 2)?;
    let many = load::connections(&client.network, service, 1_000)?;
    let changes = services.moves(&client.network, [near.address, far.address], args.changes)?;
    let mut table = Table::new(&["ms", "p50", "p99"]);
    let mut row = |name: String, times: &[f64]| {
        table.row([name, figure(quantile(times, 0.5) * 1e3), figure(quantile(times, 0.99) * 1e3)]);
    };
    row("a connection to a Service and its first answer, with one Service".into(), &few);
    row(format!("the same with {} more", args.services), &many);
    row("a slice written to the first packet that knows it, with these".into(), &changes);
    print!("{table}");
    Ok(())
}

/// Puts every load on every way in turn; the table of medians, of which each way's is compared with the one before.
fn rounds(args: &Args, ways: &mut [Way<'_>]) -> Result<Table> {
    for round in 0..args.rounds {
        eprintln!("bench: round {} of {}", round + 1, args.rounds);
        for (number, load) in Load::ALL.into_iter().enumerate() {
            for way in &mut *ways {
                let shown = load::run(way.from, load, way.to, Duration::from_millis(args.millis))?;
                way.shown[number].push(shown);
            }
        }
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        quantile(&all, 0.5)
    };
    let mut table = Table::new(&["", "median", "of the way above", "CPU of one", "of the way above"]);
    for (number, load) in Load::ALL.into_iter().enumerate() {
        let (unit, scale) = load.unit();
        for (at, way) in ways.iter().enumerate() {
            let own = &way.shown[number];
            // Both of a round, so that what the machine does besides counts for both.
            let ratio = |part: fn(&Shown) -> f64| {
                let above = at.checked_sub(1).map(|above| &ways[above].shown[number])?;
                Some(median(own.iter().zip(above).map(|(own, above)| part(own) / part(above)).collect()))
            };
            let ratio = |part| ratio(part).map_or_else(String::new, |r| format!("{r:.3}"));
            let rate = median(own.iter().map(|s| s.rate / scale).collect());
            let cpu = median(own.iter().map(|s| s.cpu * scale * 1e6).collect());
            table.row([
                format!("{unit}: {}", way.name),
                figure(rate),
                ratio(|s| s.rate),
                format!("{} µs", figure(cpu)),
                ratio(|s| s.cpu),
            ]);
        }
    }
    Ok(table)
}

/// Runs Pods on nodes.
fn pods<const N: usize>(cluster: &Cluster, wanted: [(&str, &str); N]) -> Result<[Pod; N]> {
    for (name, node) in wanted {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "sleep", "image": IMAGE, "command": ["sleep", "86400"]}],
            },
        });
        cluster.apply(&pod.to_string())?;
    }
    let all = wanted.map(|(name, _)| {
        cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{name}")])?;
        let pod = cluster.get("pod", name)?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let process = process_of(&text(&pod["metadata"]["uid"]))?;
        Ok(Pod {
            address: text(&pod["status"]["podIP"]).parse()?,
            network: File::open(format!("/proc/{process}/ns/net"))?,
        })
    });
    let all: Vec<Pod> = all.into_iter().collect::<Result<_>>()?;
    all.try_into().ok().context("each name is a Pod")
}

/// A process of a Pod, by its cgroup.
fn process_of(uid: &str) -> Result<u32> {
    ensure!(!uid.is_empty(), "the Pod has no uid");
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end meanwhile.
        if fs::read_to_string(entry.path().join("cgroup")).is_ok_and(|text| text.contains(uid)) {
            return Ok(process);
        }
    }
    anyhow::bail!("no process has the cgroup of Pod {uid}")
}
