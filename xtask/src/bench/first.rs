//! Everything that is measured of the first cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::server::Server;
use super::table::{Table, figure};
use super::{Load, api, baseline, cluster};
use crate::setup;
use crate::step::{cargo, step};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The binary to measure [default: a release build, made first]
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Only one part
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// How long CPU at rest is measured
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    idle_seconds: u64,
    #[command(flatten)]
    load: Load,
    /// A kube-apiserver to put under the same load
    #[arg(long, value_name = "FILE", requires = "reference_etcd")]
    reference_apiserver: Option<PathBuf>,
    /// Its etcd
    #[arg(long, value_name = "FILE", requires = "reference_apiserver")]
    reference_etcd: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A whole node: start, footprint, Pods
    Cluster,
    /// The API server alone
    Api,
}

/// Runs it.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => bin.canonicalize().with_context(|| format!("no binary at {}", bin.display()))?,
        None => build(root)?,
    };
    let wants = |part| args.only.is_none_or(|only| only == part);
    let size = std::fs::metadata(&bin)?.len() as f64 / f64::from(1 << 20);
    println!("binary: {} MiB\n", figure(size));
    if wants(Part::Cluster) {
        if std::env::var_os("FERROKUBE_TOOLS").is_none() {
            setup::run(root)?;
        }
        println!("{}", cluster::measure(&bin, Duration::from_secs(args.idle_seconds))?);
    }
    if wants(Part::Api) {
        println!("{}", block_on(servers(args, &bin))?);
    }
    Ok(())
}

/// The API server alone, and upstream's if one was given.
async fn servers(args: &Args, bin: &Path) -> Result<String> {
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let server = Server::ferrokube(bin, dir.path()).await?;
    let mut starts = Table::new(&["API server alone, start to /readyz", "s"]);
    starts.row(["ferrokube".to_owned(), figure(server.start)]);
    let ours = api::measure("ferrokube", server.config()?, &server.pids(), args.load).await?;
    drop(server);
    let theirs = if let (Some(apiserver), Some(etcd)) = (&args.reference_apiserver, &args.reference_etcd) {
        let server = Server::upstream(apiserver, etcd, dir.path()).await?;
        starts.row(["kube-apiserver, fresh etcd".to_owned(), figure(server.start)]);
        Some(api::measure("kube-apiserver", server.config()?, &server.pids(), args.load).await?)
    } else {
        starts.row(["recorded".to_owned(), figure(baseline::START)]);
        None
    };
    let Load { objects, watchers } = args.load;
    let head = format!("API server alone: {objects} objects, {watchers} watchers");
    Ok(format!("{starts}\n{head}\n{}", api::table(&ours, theirs.as_ref())))
}

/// Builds the release binary.
fn build(root: &Path) -> Result<PathBuf> {
    step("release build", cargo(root).args(["build", "--release", "--package", "ferrokube"]))?;
    let out = cargo(root).args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    Ok(Path::new(target).join("release/ferrokube"))
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}
