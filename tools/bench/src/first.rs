//! Runs all measurements of the first cluster.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use super::requests::Scope;
use super::table::figure;
use super::{Load, Programs, alone, block_on, cluster};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only one part
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Seconds for which CPU at rest is measured
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    idle_seconds: u64,
    #[command(flatten)]
    programs: Programs,
    #[command(flatten)]
    load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A whole node: start, footprint, Pods
    Cluster,
    /// The API server alone
    Api,
}

/// Runs the measurements.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = args.programs.ours(root)?;
    let wants = |part| args.only.is_none_or(|only| only == part);
    let size = std::fs::metadata(&bin)?.len() as f64 / f64::from(1 << 20);
    println!("binary: {} MiB\n", figure(size));
    if wants(Part::Cluster) {
        for containerd in [false, true] {
            println!("{}", cluster::measure(&bin, Duration::from_secs(args.idle_seconds), containerd)?);
        }
    }
    if wants(Part::Api) {
        println!("{}", block_on(alone::compare(&bin, &args.programs, args.load, Scope::Recorded))?);
    }
    Ok(())
}
