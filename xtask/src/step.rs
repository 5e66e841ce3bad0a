//! Cargo as a step of a task.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Cargo in the checkout.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Names the step, runs it and fails with it.
pub(crate) fn step(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("xtask: {what}");
    let status = command.status().with_context(|| format!("starting cargo for the {what}"))?;
    ensure!(status.success(), "the {what} failed");
    Ok(())
}
