//! Formatting, lints, documentation and dependencies: what must be clean before a change is proposed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::step::{cargo, step};

/// Runs every check, cheapest first; the first that fails ends it.
pub(crate) fn run(root: &Path) -> Result<()> {
    step("format check (`cargo fmt --all` mends it)", cargo(root).args(["fmt", "--all", "--", "--check"]))?;
    step("clippy", cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    step(
        "documentation",
        cargo(root).args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"),
    )?;
    ensure!(
        installed(cargo(root).args(["deny", "--version"])),
        "cargo-deny checks the dependencies and is not installed: `cargo install cargo-deny --locked`"
    );
    step("dependency check", cargo(root).args(["deny", "check"]))
}

fn installed(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}
