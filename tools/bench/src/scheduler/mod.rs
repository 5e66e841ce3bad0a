//! The scheduler under the workloads of upstream's scheduler_perf.

mod alone;
mod workloads;

use anyhow::{Error, Result};
use clap::Args as ClapArgs;

use crate::table::{Table, figure};
use workloads::WORKLOADS;

/// Which workloads to run.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Run only the workloads whose names contain this
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
}

/// Runs the workloads and prints their figures beside upstream's.
pub(crate) fn run(args: &Args) -> Result<()> {
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
    Ok(())
}
