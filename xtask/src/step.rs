//! Runs cargo as a step of a task.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A command of cargo in the checkout.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// The directory in which cargo puts its output.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The binary that `cargo xtask up` and the tests run.
pub(crate) fn binary(root: &Path) -> PathBuf {
    target(root).join("up/ferrokube")
}

/// Builds [`binary`] with the features of the tests' build, so that neither builds again what the other has built:
/// cargo unites the features that all packages ask of a dependency, and those that tests ask for if a test is to be
/// built, here one of a crate that waits for nothing.
pub(crate) fn build(root: &Path) -> Result<()> {
    let args = ["build", "--profile", "up", "--workspace", "--bin", "ferrokube", "--test", "workspace"];
    step("build", cargo(root).args(args))
}

/// Builds a tool (`tools/NAME`) and runs it.
pub(crate) fn tool(root: &Path, name: &str, profile: &str, args: &[OsString]) -> Result<()> {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--profile", profile, "--package", name, "--"]).args(args);
    let status = command.status().context("starting cargo")?;
    ensure!(status.success(), "{name} failed");
    Ok(())
}

/// Prints the step, runs it and fails with it.
pub(crate) fn step(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("xtask: {what}");
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("starting {program} for the {what}"))?;
    ensure!(status.success(), "the {what} failed");
    Ok(())
}
