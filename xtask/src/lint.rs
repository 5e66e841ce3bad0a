//! The checks that must pass before a change is proposed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tidy::{RULES, Workspace};

use crate::setup;
use crate::step::{cargo, step};

/// Runs every check, cheapest first; the first failure ends the run.
pub(crate) fn run(root: &Path) -> Result<()> {
    format(root)?;
    tidy(root)?;
    clippy(root)?;
    step(
        "documentation",
        cargo(root).args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"),
    )?;
    let deny = setup::cargo_deny(root)?;
    step(
        "dependency check",
        Command::new(deny).current_dir(root).args(["check", "bans", "licenses", "sources"]),
    )
}

/// Checks the formatting.
pub(crate) fn format(root: &Path) -> Result<()> {
    step("format check (`cargo fmt --all` mends it)", cargo(root).args(["fmt", "--all", "--", "--check"]))
}

/// Runs the lints, in the profile of the tests, so that build scripts and macros are built once.
pub(crate) fn clippy(root: &Path) -> Result<()> {
    let args = ["clippy", "--profile", "up", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    step("clippy", cargo(root).args(args))
}

/// Checks what prose promises of the code.
pub(crate) fn tidy(root: &Path) -> Result<()> {
    eprintln!("xtask: tidy");
    let workspace = Workspace::read(root).context("reading the checkout")?;
    let mut broken = 0;
    for rule in RULES {
        let found = (rule.check)(&workspace);
        if !found.is_empty() {
            println!("{}: {}", rule.name, rule.promise);
            broken += found.len();
        }
        for finding in found {
            println!("  {finding}");
        }
    }
    ensure!(broken == 0, "{broken} places break a promise");
    Ok(())
}

/// Prints the present circles of files.
pub(crate) fn circles(root: &Path) -> Result<()> {
    print!("{}", tidy::circles(&Workspace::read(root).context("reading the checkout")?));
    Ok(())
}
