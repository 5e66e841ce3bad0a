//! The scheduler under the workloads of upstream's scheduler_perf.

mod alone;
mod whole;
mod workloads;

use std::path::Path;

use anyhow::{Error, Result};
use clap::Args as ClapArgs;

use crate::table::{Table, figure};
use crate::{Programs, block_on};
use workloads::WORKLOADS;

/// Which workloads to run.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Run only the workloads whose names contain this
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// Measure the decisions alone, without an API server
    #[arg(long)]
    alone: bool,
    /// The Pods that there are in all when memory and rest are measured
    #[arg(long, value_name = "N", default_value_t = 150_000)]
    pods: usize,
    #[command(flatten)]
    programs: Programs,
}

/// Runs the workloads and prints their figures beside upstream's.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let heads =
        ["decisions alone", "Pods/s", "p99 of a turn", "unplaced", "upstream, whole, Pods/s", "ratio"];
    let mut table = Table::new(&heads);
    for workload in WORKLOADS.iter().filter(|w| w.name.contains(&args.only)) {
        eprintln!("bench: {}", workload.name);
        let found = alone::measure(workload).map_err(Error::msg)?;
        table.row([
            workload.name.to_owned(),
            figure(found.rate),
            figure(found.cpu_rate),
            format!("{:?}", found.p99),
            found.unplaced.to_string(),
            workload.upstream.map_or_else(String::new, figure),
            workload.upstream.map_or_else(String::new, |u| format!("{:.0}", found.rate / u)),
        ]);
    }
    println!("{table}");
    if args.alone { Ok(()) } else { with_the_server(args, root) }
}

/// Runs the workloads with an API server.
fn with_the_server(args: &Args, root: &Path) -> Result<()> {
    let bin = args.programs.ours(root)?;
    let heads = [
        "with the API server",
        "Pods/s",
        "scheduler, CPU µs/Pod",
        "API server, CPU µs/Pod",
        "upstream, Pods/s",
        "ratio",
    ];
    let mut table = Table::new(&heads);
    for workload in WORKLOADS.iter().filter(|w| w.name.contains(&args.only)) {
        eprintln!("bench: {} with the API server", workload.name);
        let found = block_on(whole::measure(&bin, workload))?;
        table.row([
            workload.name.to_owned(),
            figure(found.rate),
            figure(found.cpu),
            figure(found.server_cpu),
            workload.upstream.map_or_else(String::new, figure),
            workload.upstream.map_or_else(String::new, |u| format!("{:.1}", found.rate / u)),
        ]);
    }
    println!("{table}");
    let basic = &WORKLOADS[0];
    if basic.name.contains(&args.only) {
        eprintln!("bench: 1,000 Pods a second, then {} in all", args.pods);
        let pace = block_on(whole::at_pace(&bin, basic, 1000, args.pods))?;
        let mut table = Table::new(&["5,000 nodes", "", "wanted"]);
        let mut row =
            |name: String, value: f64, wanted: &str| table.row([name, figure(value), wanted.to_owned()]);
        row("creation to binding at 1,000 Pods/s, p50, ms".into(), pace.p50, "");
        row("creation to binding at 1,000 Pods/s, p99, ms".into(), pace.p99, "≤ 50");
        row("memory of a node, bytes".into(), pace.node, "≤ 8192");
        row("memory of a Pod, bytes".into(), pace.pod, "≤ 2048");
        row(format!("CPU at rest with {} Pods, % of a core", args.pods), pace.rest, "0");
        println!("{table}");
    }
    Ok(())
}
