//! Runs schemathesis, which makes requests from the API server's own OpenAPI documents, as many as wanted.

use anyhow::{Result, ensure};
use clap::Parser;
use testkit::{Cluster, Options};

/// The choice of requests.
#[derive(Parser)]
#[command(
    name = "openapi",
    bin_name = "cargo xtask openapi",
    about = "Tries the API server by its documents"
)]
struct Args {
    /// A regular expression of the documents to try, e.g. `apps/v1`.
    #[arg(long, default_value = ".")]
    only: String,
    /// The number of requests to make up for an operation.
    #[arg(long, default_value_t = 20)]
    examples: u32,
    /// Also make the requests at the edges of every field and parameter; for all documents that takes an hour.
    #[arg(long)]
    coverage: bool,
}

/// Starts a control plane and tries it.
fn main() -> Result<()> {
    let args = Args::parse();
    // Cargo puts all programs of a profile into one directory.
    let binary = std::env::current_exe()?.with_file_name("ferrokube");
    let options =
        Options { control_plane_only: true, offline: true, binary: Some(binary), ..Options::default() };
    let cluster = Cluster::start("openapi", options)?;
    let status = cluster
        .host()
        .command("python3")
        .arg(testkit::root().join("crates/ferrokube/tests/clients/openapi.py"))
        .args([&args.only, &args.examples.to_string()])
        .args(args.coverage.then_some("--coverage"))
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PYTHONPATH", testkit::clients().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()?;
    let log = cluster.host().log("ferrokube");
    ensure!(!log.contains("panicked"), "the API server panicked: {log}");
    ensure!(status.success(), "not every answer was as it should be");
    Ok(())
}
