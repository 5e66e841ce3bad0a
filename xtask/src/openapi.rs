//! Runs schemathesis, which makes requests from the API server's own OpenAPI documents, as many as wanted.

use std::path::Path;

use anyhow::{Result, ensure};
use testkit::{Cluster, Options};

use crate::setup::{self, Purpose};
use crate::step::{binary, build};

/// The choice of requests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A regular expression of the documents to try, e.g. `apps/v1`.
    #[arg(long, default_value = ".")]
    pub(crate) only: String,
    /// The number of requests to make up for an operation.
    #[arg(long, default_value_t = 20)]
    pub(crate) examples: u32,
    /// Also make the requests at the edges of every field and parameter; for all documents that takes an hour.
    #[arg(long)]
    pub(crate) coverage: bool,
}

/// Starts a control plane and tries it.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    setup::run(root, Purpose::Test)?;
    build(root)?;
    let options =
        Options { control_plane_only: true, offline: true, binary: Some(binary(root)), ..Options::default() };
    let cluster = Cluster::start("openapi", options)?;
    let clients = testkit::clients();
    let status = cluster
        .host()
        .command("python3")
        .arg(root.join("crates/ferrokube/tests/clients/openapi.py"))
        .args([&args.only, &args.examples.to_string()])
        .args(args.coverage.then_some("--coverage"))
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PYTHONPATH", clients.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()?;
    let log = cluster.host().log("ferrokube");
    ensure!(!log.contains("panicked"), "the API server panicked: {log}");
    ensure!(status.success(), "not every answer was as it should be");
    Ok(())
}
