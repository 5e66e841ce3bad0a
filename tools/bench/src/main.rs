//! Benchmarks: FerroKube's cost in time, CPU and memory, beside upstream. `cargo xtask bench` runs them.
//!
//! Nothing here asserts a time: absolute figures belong to one machine. Two servers in one run can be compared, and the
//! CPU time that a server spends on an operation.

mod alone;
mod baseline;
mod cluster;
mod containers;
mod controllers;
mod dns;
mod extension;
mod first;
mod images;
mod informers;
mod kubelet;
mod network;
mod policies;
mod process;
mod requests;
mod runtime;
mod scheduler;
mod server;
mod storage;
mod table;
mod target;
mod traffic;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use requests::Scope;

/// The allocator of what is shipped, because the store and informers are measured in this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(
    name = "bench",
    bin_name = "cargo xtask bench",
    about = "Measures FerroKube, beside upstream where asked to"
)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The first cluster: start, footprint, Pods, and the API server beside kube-apiserver
    First(first::Args),
    /// The API server alone: every kind of request at three loads, or any API server from outside
    Api(Api),
    /// The store: durable puts, reads, watches, opening; beside etcd where asked to
    Storage(storage::Args),
    /// Custom resources beside built-in ones, a thousand definitions, and what a policy adds to a write
    Extension(extension::Args),
    /// The memory of Pods in informers: whole ones, and what the scheduler keeps of them
    Informers(informers::Args),
    /// The scheduler's decisions under the workloads of upstream's scheduler_perf
    Scheduler(scheduler::Args),
    /// Containers without a cluster: create, start, exec, the shim's memory; beside runc where it is installed
    Containers(containers::Args),
    /// The controllers of a whole control plane under load, beside upstream where asked to
    Controllers(controllers::Args),
    /// DNS: memory of names, CPU time of answers; beside unbound where it is installed, and CoreDNS where asked to
    Dns(dns::Args),
    /// Container runtimes: a Pod, a command in it and its removal, by the built-in one and by containerd
    Runtime(runtime::Args),
    /// The kubelet on a whole node: its share of a Pod's start, Pods at rest, ends of containers, a restart
    Kubelet(kubelet::Args),
    /// Services in the packet filter: full start, start of the next process, one change
    Network(network::Args),
    /// Traffic: Pods of a node, of two nodes, through a Service, beside a bare link; changes of endpoints
    Traffic(traffic::Args),
    /// Images: one pulled and unpacked, beside `gzip -dc | tar x`
    Images(images::Args),
}

/// The load on an API server.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct Load {
    /// Objects of each kind
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    objects: u32,
    /// Watchers to which every event goes
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=2000))]
    watchers: u32,
}

/// The programs to measure and to compare.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// The binary to measure [default: a release build, made first]
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// A kube-apiserver to put under the same load
    #[arg(long, value_name = "FILE", requires = "reference_etcd")]
    reference_apiserver: Option<PathBuf>,
    /// The etcd of kube-apiserver
    #[arg(long, value_name = "FILE", requires = "reference_apiserver")]
    reference_etcd: Option<PathBuf>,
}

impl Programs {
    /// Returns FerroKube's binary.
    fn ours(&self, root: &Path) -> Result<PathBuf> {
        match &self.bin {
            Some(bin) => bin.canonicalize().with_context(|| format!("no binary at {}", bin.display())),
            None => build(root),
        }
    }

    /// Returns kube-apiserver and etcd.
    fn reference(&self) -> Option<(&Path, &Path)> {
        Some((self.reference_apiserver.as_deref()?, self.reference_etcd.as_deref()?))
    }
}

/// The API server to measure.
#[derive(Debug, Args)]
pub(crate) struct Api {
    #[command(flatten)]
    programs: Programs,
    /// Kubeconfig of the administrator of a server that runs already
    #[arg(long, value_name = "FILE", requires = "pids", conflicts_with_all = ["bin", "reference_apiserver"])]
    kubeconfig: Option<PathBuf>,
    /// Processes of that server, whose CPU time and memory are charged
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "kubeconfig")]
    pids: Vec<u32>,
    #[command(flatten)]
    load: Load,
}

fn main() -> ExitCode {
    // The shipped binary does the same.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match run(&Cli::parse().bench, here.ancestors().nth(2).unwrap_or(here)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a benchmark.
fn run(bench: &Bench, root: &Path) -> Result<()> {
    match bench {
        Bench::First(args) => first::run(args, root),
        Bench::Storage(args) => storage::run(args, root),
        Bench::Informers(args) => informers::run(args),
        Bench::Extension(args) => extension::run(args, root),
        Bench::Scheduler(args) => scheduler::run(args, root),
        Bench::Containers(args) => containers::run(args),
        Bench::Controllers(args) => controllers::run(args, root),
        Bench::Dns(args) => dns::run(args, root),
        Bench::Kubelet(args) => kubelet::run(args, root),
        Bench::Network(args) => network::run(args),
        Bench::Runtime(args) => block_on(runtime::run(args, root)),
        Bench::Traffic(args) => traffic::run(args, root),
        Bench::Images(args) => images::run(args),
        Bench::Api(args) => {
            let Some(kubeconfig) = &args.kubeconfig else {
                let bin = args.programs.ours(root)?;
                println!("{}", block_on(alone::compare(&bin, &args.programs, args.load, Scope::Whole))?);
                return Ok(());
            };
            let config = client::Config::from_kubeconfig(kubeconfig, None)?;
            let figures = block_on(requests::measure("server", config, &args.pids, args.load, Scope::Whole))?;
            print!("{}", requests::table(&figures, None));
            Ok(())
        }
    }
}

/// Builds the release binary, with the features of the shipped one.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = || {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(root);
        command
    };
    eprintln!("bench: release build");
    let status = cargo().args(["build", "--release", "--package", "ferrokube"]).status()?;
    ensure!(status.success(), "the release build failed");
    let out = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    Ok(Path::new(target).join("release/ferrokube"))
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}
