//! The tests that take too long for every change: tests with greater numbers, and those without a natural end.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::results::Steps;
use crate::setup::{self, Purpose};
use crate::step::step;
use crate::test::nextest;
use crate::{fuzz, openapi, vm};

/// The most Pods that a node takes by default; upstream's.
const PODS: u32 = 110;

/// The parts to run, and their lengths.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The parts; all if none is named.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Power cuts on the simulated disk.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    power_cuts: u32,
    /// The number of times that the API server is killed while clients write.
    #[arg(long, value_name = "N", default_value_t = 500)]
    kills: u32,
    /// The number of times that the container runtime is killed while Pods come and go.
    #[arg(long, value_name = "N", default_value_t = 200)]
    runtime_kills: u32,
    /// The number of times that a node is killed while Pods come and go.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    node_kills: u32,
    /// Seconds for which 110 Pods come and go.
    #[arg(long, value_name = "N", default_value_t = 900)]
    pod_seconds: u32,
    /// Attachments of containers to the pod network and their removals, of which most die on the way.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    attachments: u32,
    /// Seconds for each fuzz target.
    #[arg(long, value_name = "N", default_value_t = 1800)]
    fuzz_seconds: u32,
    /// Requests that are made up for each operation of the OpenAPI documents, besides those at the edges.
    #[arg(long, value_name = "N", default_value_t = 100)]
    requests: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Power cuts on the simulated disk
    PowerCuts,
    /// Kills of the real process
    Kills,
    /// Kills of the container runtime
    RuntimeKills,
    /// Kills of a whole node
    NodeKills,
    /// Pods that come and go on a node
    Pods,
    /// Deaths of the pod network's agent
    Attachments,
    /// Tests that are ignored in every other run
    Ignored,
    /// The fuzz targets
    Fuzz,
    /// Requests made from the OpenAPI documents
    Openapi,
    /// Tests on machines that this one is not, in virtual machines
    Vm,
    /// Known vulnerabilities of the dependencies; the list of them comes from GitHub
    Advisories,
}

/// Runs the parts, each to its end, and fails if one failed.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    setup::run(root, Purpose::Test)?;
    let mut steps = Steps::default();
    let mut failed = Vec::new();
    for part in Part::value_variants().iter().filter(|p| args.parts.is_empty() || args.parts.contains(p)) {
        let value = part.to_possible_value();
        let name = value.as_ref().map_or("", |v| v.get_name());
        if let Err(e) = steps.run(name, || one(*part, args, root)) {
            eprintln!("xtask: {name}: {e:#}");
            failed.push(name.to_owned());
        }
    }
    println!("\n{}", steps.table());
    if failed.is_empty() { Ok(()) } else { bail!("these failed: {}", failed.join(", ")) }
}

fn one(part: Part, args: &Args, root: &Path) -> Result<()> {
    let tests = |arguments: &[&str]| {
        let mut command = nextest(root, "soak");
        command.args(arguments);
        command
    };
    match part {
        Part::PowerCuts => {
            let mut command =
                tests(&["--no-capture", "-E", "package(ferrokube-storage) & test(/crashes::/)"]);
            step("power cuts", command.env("FERROKUBE_CRASH_POINTS", args.power_cuts.to_string()))
        }
        Part::Kills => {
            let mut command = tests(&["--no-capture", "-E", "package(ferrokube) & test(/^kill::/)"]);
            step("kills", command.env("FERROKUBE_KILLS", args.kills.to_string()))
        }
        Part::RuntimeKills => {
            let mut command = tests(&["--no-capture", "-E", "package(ferrokube-runtime) & test(/^kills::/)"]);
            step("runtime kills", command.env("FERROKUBE_RUNTIME_KILLS", args.runtime_kills.to_string()))
        }
        Part::NodeKills => {
            let mut command =
                tests(&["--no-capture", "-E", "package(ferrokube) & test(/^node_life::kills::/)"]);
            step("node kills", command.env("FERROKUBE_NODE_KILLS", args.node_kills.to_string()))
        }
        Part::Pods => {
            let mut command =
                tests(&["--no-capture", "-E", "package(ferrokube) & test(/^node_life::churn::/)"]);
            command.env("FERROKUBE_POD_SECONDS", args.pod_seconds.to_string());
            step("Pods", command.env("FERROKUBE_PODS", PODS.to_string()))
        }
        Part::Attachments => {
            let mut command = tests(&["--no-capture", "-E", "test(/a_process_that_dies_at_any_step/)"]);
            step("attachments", command.env("FERROKUBE_ATTACHMENTS", args.attachments.to_string()))
        }
        Part::Ignored => step("ignored tests", &mut tests(&["--run-ignored", "only", "--no-tests", "pass"])),
        Part::Fuzz => fuzz::run(&fuzz::Args { target: None, seconds: args.fuzz_seconds }, root),
        Part::Openapi => {
            let examples = args.requests.to_string();
            openapi(root, &["--coverage", "--examples", &examples].map(OsString::from))
        }
        Part::Vm => {
            vm::part(vm::Part::Suite, root)?;
            vm::part(vm::Part::Bare, root)?;
            vm::part(vm::Part::Systemd, root)
        }
        Part::Advisories => {
            let deny = setup::cargo_deny(root)?;
            step("advisories", Command::new(deny).current_dir(root).args(["check", "advisories"]))
        }
    }
}
