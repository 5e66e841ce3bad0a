//! Benchmarks: what FerroKube costs in time, CPU and memory, beside upstream.
//!
//! Nothing here asserts a time: absolute figures belong to one machine. What can be compared is two
//! servers in one run, and the CPU time that a server spends on an operation.

mod api;
mod baseline;
mod cluster;
mod first;
mod process;
mod server;
mod storage;
mod table;
mod target;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The first cluster: start, footprint, Pods, and the API server beside kube-apiserver
    First(first::Args),
    /// Any API server, from outside
    Api(Api),
    /// The store: durable puts, reads, watches, opening; beside etcd where asked to
    Storage(storage::Args),
}

/// How much to ask of an API server.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct Load {
    /// Objects of each kind
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    objects: u32,
    /// Watchers that every event goes to
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=800))]
    watchers: u32,
}

/// Which API server to measure.
#[derive(Debug, Args)]
pub(crate) struct Api {
    /// How to reach it, as an administrator
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Its processes, whose CPU time and memory are charged
    #[arg(long, value_name = "PID", required = true, value_delimiter = ',')]
    pids: Vec<u32>,
    #[command(flatten)]
    load: Load,
}

/// Runs one.
pub(crate) fn run(bench: &Bench, root: &Path) -> Result<()> {
    match bench {
        Bench::First(args) => first::run(args, root),
        Bench::Storage(args) => storage::run(args, root),
        Bench::Api(args) => {
            let config = client::Config::from_kubeconfig(&args.kubeconfig, None)?;
            let figures = first::block_on(api::measure("server", config, &args.pids, args.load))?;
            print!("{}", api::table(&figures, None));
            Ok(())
        }
    }
}
