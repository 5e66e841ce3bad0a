//! The controllers of a whole control plane under load: how fast they make, replace and remove objects, how long a
//! change takes to be published, and what the care for nodes costs.

mod fleet;
mod loads;
mod plane;
mod stream;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::block_on;
use super::table::{Table, figure};
use loads::{LOADS, Load, Wanted};
use plane::{Plane, Reference};
pub(crate) use stream::Stream;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: super::Programs,
    /// A kube-controller-manager, which works for the reference's API server
    #[arg(long, value_name = "FILE", requires = "reference_apiserver")]
    reference_controller_manager: Option<PathBuf>,
    /// A kube-scheduler, without which loads whose Pods run are left out for the reference
    #[arg(long, value_name = "FILE", requires = "reference_controller_manager")]
    reference_scheduler: Option<PathBuf>,
    /// Run only the loads whose names contain this
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// The part of each load that is put on: 0.1 for a tenth
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    scale: f64,
}

/// Runs the loads, each on a control plane of its own.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = args.programs.ours(root)?;
    let bin = bin.as_path();
    let reference = match (args.programs.reference(), &args.reference_controller_manager) {
        (Some((apiserver, etcd)), Some(manager)) => {
            Some(Reference { apiserver, etcd, manager, scheduler: args.reference_scheduler.as_deref() })
        }
        _ => None,
    };
    let mut table = Table::new(&["controllers", "", "wanted", "CPU s", "upstream", "CPU s"]);
    for load in LOADS.iter().filter(|l| l.name.contains(&args.only)) {
        eprintln!("bench: {}", load.name);
        let size = |count: usize| ((count as f64 * args.scale).round() as usize).max(1);
        let ours =
            block_on(measure(load, &size, |dir| async move { Plane::ours(bin, &dir, load.apart).await }))
                .with_context(|| load.name.to_owned())?;
        eprintln!("bench: {} {}, {} s of CPU time", figure(ours.0), load.unit, figure(ours.1));
        let theirs = match &reference {
            Some(r) if !load.runs || r.scheduler.is_some() => Some(
                block_on(measure(load, &size, |dir| async move { Plane::upstream(r, bin, &dir).await }))
                    .with_context(|| format!("{}, upstream", load.name))?,
            ),
            _ => None,
        };
        let wanted = match load.wanted {
            Wanted::AtLeast(figure) => format!("≥ {figure}"),
            Wanted::AtMost(figure) => format!("≤ {figure}"),
            Wanted::Any => String::new(),
        };
        let of = |f: Option<(f64, f64)>| {
            f.map_or([String::new(), String::new()], |(v, cpu)| [figure(v), figure(cpu)])
        };
        let ([value, cpu], [theirs, their_cpu]) = (of(Some(ours)), of(theirs));
        table.row([format!("{}, {}", load.name, load.unit), value, wanted, cpu, theirs, their_cpu]);
    }
    println!("{table}");
    Ok(())
}

/// The figure of a load, and the CPU time of the control plane meanwhile.
async fn measure<F, R>(load: &Load, size: &dyn Fn(usize) -> usize, start: F) -> Result<(f64, f64)>
where
    F: FnOnce(PathBuf) -> R,
    R: Future<Output = Result<Plane>>,
{
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let plane = start(dir.path().to_owned()).await?;
    (load.run)(&plane, size).await
}
