//! Runs every test, after installing what they need.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::setup;

/// Sets up, builds the binary, and runs the tests of the whole workspace.
pub(crate) fn run(root: &Path) -> Result<()> {
    setup::run(root)?;
    step("build", cargo(root).args(["build", "--package", "ferrokube"]))?;
    let tools = setup::tools(root);
    let golden = tools.join("root/usr/share/gocode/src/k8s.io/api/testdata/HEAD");
    step(
        "test",
        cargo(root)
            .args(["test", "--workspace", "--no-fail-fast"])
            .env("K8S_API_TESTDATA", golden)
            .env("FERROKUBE_TOOLS", tools.join("bin")),
    )
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn step(what: &str, command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting cargo for the {what}"))?;
    ensure!(status.success(), "the {what} failed");
    Ok(())
}
