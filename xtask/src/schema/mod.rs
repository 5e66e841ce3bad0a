//! `cargo xtask schema`: the description of the built-in kinds, from the Go API types.

mod check;
mod go;
mod model;
mod resources;
mod write;

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Flags of `cargo xtask schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directories that hold the Go packages `api`, `apimachinery`, `apiextensions-apiserver` and
    /// `kube-aggregator`, directly or below `k8s.io`.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    go_src: Vec<PathBuf>,
    /// The table of resources: group, version, resource, kind, singular, namespaced, short names,
    /// categories, verbs, subresources, served by default, enabled by, storage version, whether a deletion answers
    /// with the object.
    #[arg(long, value_name = "TSV", requires = "go_src")]
    resources: Option<PathBuf>,
    /// Compares our OpenAPI with these documents: v2, or v3 under upstream's file names
    /// (`apis__apps__v1_openapi.json`).
    #[arg(long, value_name = "FILE", num_args = 1..)]
    check: Vec<PathBuf>,
}

/// Where the description is committed.
fn committed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/api/schema")
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let dir = committed();
    let table = match &args.resources {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?,
        None => {
            std::fs::read_to_string(dir.join("resources.tsv")).context("reading the table of resources")?
        }
    };
    if !args.go_src.is_empty() {
        let table = if args.resources.is_some() { resources::normalised(&table)? } else { table };
        let model = model::read(&args.go_src, &resources::versions(&table))?;
        std::fs::write(dir.join("v1.36.schema"), write::schema(&model))?;
        std::fs::write(dir.join("resources.tsv"), table)?;
    }
    if args.check.is_empty() { Ok(()) } else { check::run(&args.check) }
}
