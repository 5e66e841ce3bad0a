//! Checks the code and runs every test, after installing the tools for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::results::{Steps, flaky, suites};
use crate::setup::{self, Purpose};
use crate::step::{build, cargo, step, target};
use crate::{lint, vm};

/// The tests to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Arguments of `cargo nextest run`, such as a part of a test's name: only tests are run then, without the checks.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    nextest: Vec<String>,
}

/// Sets up, checks, builds and runs.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    setup::run(root, Purpose::Test)?;
    if !args.nextest.is_empty() {
        return step("tests", nextest(root, "default").args(&args.nextest));
    }
    let mut steps = Steps::default();
    let result = all(root, &mut steps);
    let report = target(root).join("nextest/default/junit.xml");
    if let Some(report) = fs::read_to_string(report).ok().filter(|_| steps.reached("tests")) {
        println!("\n{}", suites(&report));
        if let Some(late) = flaky(&report) {
            println!("{late}");
        }
    }
    println!("{}", steps.table());
    result
}

fn all(root: &Path, steps: &mut Steps) -> Result<()> {
    steps.run("format", || lint::format(root))?;
    steps.run("tidy", || lint::tidy(root))?;
    steps.run("clippy", || lint::clippy(root))?;
    // The tests' own build builds nothing of this again.
    steps.run("build of the binary", || build(root))?;
    steps
        .run("build of the tests", || step("build of the tests", nextest(root, "default").arg("--no-run")))?;
    steps.run("tests", || step("tests", &mut nextest(root, "default")))?;
    steps.run("virtual machine", || vm::part(vm::Part::Smoke, root))
}

/// `cargo nextest run` on the whole workspace. The tests use only the tools that set-up has put into the checkout.
pub(crate) fn nextest(root: &Path, profile: &str) -> Command {
    let tools = setup::tools(root);
    let mut command = cargo_nextest(root, "run");
    command
        .args(["--profile", profile])
        .env("FERROKUBE_TOOLS", tools.join("bin"))
        .env("FERROKUBE_CLIENTS", tools.join("clients"))
        .env("FERROKUBE_GO_SRC", setup::go_types(root))
        .env("K8S_API_TESTDATA", setup::go_types(root).join("api/testdata"))
        .env_remove("FERROKUBE_BIN")
        .env_remove("KUBECONFIG");
    command
}

/// A task of cargo-nextest on the whole workspace, as the tests are built.
pub(crate) fn cargo_nextest(root: &Path, task: &str) -> Command {
    let mut command = Command::new(setup::tools(root).join("bin/cargo-nextest"));
    command
        .current_dir(root)
        .args(["nextest", task, "--workspace", "--cargo-profile", "up"])
        .env("CARGO", cargo(root).get_program());
    command
}
