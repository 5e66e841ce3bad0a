//! The scheduler under the workloads of upstream's scheduler_perf.

mod alone;
mod plane;
mod whole;
mod workloads;

use std::path::Path;

use anyhow::{Error, Result, bail};
use clap::Args as ClapArgs;

use crate::table::{Table, figure};
use crate::{Programs, block_on};
use workloads::{BASIC, Workload};

/// Which workloads to run.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Run only the workloads whose names contain one of these
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure the decisions alone, without an API server
    #[arg(long)]
    alone: bool,
    /// Leave out the decisions alone
    #[arg(long, conflicts_with = "alone")]
    whole: bool,
    /// Leave out the workloads; measure the time at a pace, memory and rest
    #[arg(long, conflicts_with = "alone")]
    pace: bool,
    /// The Pods that there are in all when memory and rest are measured
    #[arg(long, value_name = "N", default_value_t = 150_000)]
    pods: usize,
    #[command(flatten)]
    programs: Programs,
}

impl Args {
    fn workloads(&self) -> impl Iterator<Item = &'static Workload> {
        workloads::all()
            .filter(|w| self.only.is_empty() || self.only.iter().any(|part| w.name.contains(part.as_str())))
    }
}

/// Upstream's figures and the ratio to the one that was measured, or else to the floor.
fn beside(workload: &Workload, rate: f64) -> [String; 3] {
    let ratio = workload.upstream.or(workload.floor).map(|other| figure(rate / other));
    let [upstream, floor] = [workload.upstream, workload.floor].map(|f| f.map_or_else(String::new, figure));
    [upstream, floor, ratio.unwrap_or_default()]
}

/// Runs the workloads and prints their figures beside upstream's.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let mut failed = Vec::new();
    if !args.whole && !args.pace {
        alone(args, &mut failed);
    }
    if !args.alone {
        let bin = args.programs.ours(root)?;
        if !args.pace {
            with_the_server(args, &bin, &mut failed);
        }
        if args.pace || args.workloads().any(|w| w.name == BASIC.name) {
            at_pace(args, &bin)?;
        }
    }
    if !failed.is_empty() {
        bail!("{} workloads failed: {}", failed.len(), failed.join(", "));
    }
    Ok(())
}

fn report(workload: &Workload, error: &Error, failed: &mut Vec<&'static str>) {
    eprintln!("bench: {}: {error:#}", workload.name);
    failed.push(workload.name);
}

/// Runs the decisions of workloads alone.
fn alone(args: &Args, failed: &mut Vec<&'static str>) {
    let mut table = Table::new(&[
        "decisions alone",
        "Pods/s",
        "in CPU time",
        "p99 of a turn",
        "upstream, whole, Pods/s",
        "its floor",
        "ratio",
    ]);
    for workload in args.workloads().filter(|w| w.can_be_alone()) {
        eprintln!("bench: {}", workload.name);
        match alone::measure(workload).map_err(Error::msg) {
            Ok(found) => {
                let own = [figure(found.rate), figure(found.cpu_rate), format!("{:.1?}", found.p99)];
                eprintln!("bench: {} Pods/s", own[0]);
                table.row(
                    [workload.name.to_owned()].into_iter().chain(own).chain(beside(workload, found.rate)),
                );
            }
            Err(error) => report(workload, &error, failed),
        }
    }
    println!("{table}");
}

/// Runs the workloads with an API server.
fn with_the_server(args: &Args, bin: &Path, failed: &mut Vec<&'static str>) {
    let mut table = Table::new(&[
        "with the API server",
        "Pods",
        "Pods/s",
        "scheduler, CPU µs/Pod",
        "API server, CPU µs/Pod",
        "p99, ms",
        "upstream, Pods/s",
        "its floor",
        "ratio",
    ]);
    for workload in args.workloads() {
        eprintln!("bench: {} with the API server", workload.name);
        match block_on(whole::measure(bin, workload)) {
            Ok(found) => {
                let own = [
                    found.pods.to_string(),
                    figure(found.rate),
                    figure(found.cpu),
                    figure(found.server_cpu),
                    figure(found.p99),
                ];
                eprintln!("bench: {} Pods/s", own[1]);
                table.row(
                    [workload.name.to_owned()].into_iter().chain(own).chain(beside(workload, found.rate)),
                );
            }
            Err(error) => report(workload, &error, failed),
        }
    }
    println!("{table}");
}

/// Measures the time from creation to binding at a pace, memory, and CPU at rest.
fn at_pace(args: &Args, bin: &Path) -> Result<()> {
    eprintln!("bench: 1,000 Pods a second, then {} in all", args.pods);
    let pace = block_on(whole::at_pace(bin, BASIC, 1000, args.pods))?;
    let mut table = Table::new(&["5,000 nodes", "", "wanted"]);
    let mut row =
        |name: String, value: f64, wanted: &str| table.row([name, figure(value), wanted.to_owned()]);
    row("creation to binding at 1,000 Pods/s, p50, ms".into(), pace.p50, "");
    row("creation to binding at 1,000 Pods/s, p99, ms".into(), pace.p99, "≤ 50");
    row("memory of a node, bytes".into(), pace.node, "≤ 8192");
    row("memory of a Pod, bytes".into(), pace.pod, "≤ 2048");
    row(format!("CPU at rest with {} Pods, % of a core", args.pods), pace.rest, "0");
    println!("{table}");
    Ok(())
}
