//! Runs every test, after installing what they need.

use std::path::Path;

use anyhow::Result;

use crate::setup;
use crate::step::{cargo, step};

/// Sets up, builds the binary, and runs the tests of the whole workspace.
pub(crate) fn run(root: &Path) -> Result<()> {
    setup::run(root)?;
    step("build", cargo(root).args(["build", "--package", "ferrokube"]))?;
    let tools = setup::tools(root);
    let golden = tools.join("root/usr/share/gocode/src/k8s.io/api/testdata");
    step(
        "test",
        cargo(root)
            .args(["test", "--workspace", "--no-fail-fast"])
            .env("K8S_API_TESTDATA", golden)
            .env("FERROKUBE_TOOLS", tools.join("bin")),
    )
}
