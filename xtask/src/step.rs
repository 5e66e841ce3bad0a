//! Cargo as a step of a task.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Cargo in the checkout.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Names the step, runs it and fails with it.
pub(crate) fn step(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("xtask: {what}");
    let status = command.status().with_context(|| format!("starting cargo for the {what}"))?;
    ensure!(status.success(), "the {what} failed");
    Ok(())
}
