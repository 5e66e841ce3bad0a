//! The description of the built-in kinds, from the Go API types. `cargo xtask schema` runs it.

mod check;
mod gates;
mod go;
mod model;
mod resources;
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

#[derive(Debug, Parser)]
#[command(
    name = "schema",
    bin_name = "cargo xtask schema",
    about = "Writes or checks the description of the built-in kinds"
)]
struct Args {
    /// Directories that hold the Go packages `api`, `apimachinery`, `apiextensions-apiserver`,
    /// `kube-aggregator` and `metrics`, directly or below `k8s.io`.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    go_src: Vec<PathBuf>,
    /// The table of resources: group, version, resource, kind, singular, namespaced, short names,
    /// categories, verbs, subresources, served by default, enabled by, storage version, whether a deletion
    /// answers with the object.
    #[arg(long, value_name = "TSV", requires = "go_src")]
    resources: Option<PathBuf>,
    /// Compares FerroKube's OpenAPI with these documents: v2, or v3 under upstream's file names
    /// (`apis__apps__v1_openapi.json`).
    #[arg(long, value_name = "FILE", num_args = 1..)]
    check: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("schema: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let root = root();
    let table = root.join(TABLE);
    let write = |path: &str, text: String| {
        let path = root.join(path);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let gates = read(&root.join(GATES))?;
    if args.check.is_empty() {
        write(GATES_SOURCE, gates::source(&gates)?)?;
    }
    if !args.go_src.is_empty() {
        let table = match &args.resources {
            Some(path) => resources::normalised(&read(path)?)?,
            None => read(&table)?,
        };
        for (path, text) in generated(&args.go_src, table, &gates)? {
            write(path, text)?;
        }
    }
    if args.check.is_empty() { Ok(()) } else { check::run(&args.check) }
}

/// The committed table of resources, from the root of the checkout.
const TABLE: &str = "crates/api/schema/resources.tsv";

/// The committed table of feature gates: name, default, stage, whether it is locked, and the gates that it requires.
const GATES: &str = "crates/api/schema/feature-gates.tsv";

/// The gates as Rust.
const GATES_SOURCE: &str = "crates/api/src/gate/table.rs";

/// The committed description.
const SCHEMA: &str = "crates/api/schema/v1.36.schema";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The files to commit, made from the Go types and the tables of resources and gates: paths from the root, and texts.
fn generated(go_src: &[PathBuf], table: String, gates: &str) -> Result<[(&'static str, String); 2]> {
    let mut model = model::read(go_src, &resources::versions(&table))?;
    gates::of_fields(&mut model, gates)?;
    Ok([(SCHEMA, write::schema(&model)), (TABLE, table)])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

    use std::collections::BTreeMap;

    use super::*;

    /// The packages of a description, by the start of their texts.
    fn packages(schema: &str) -> BTreeMap<&str, &str> {
        let starts: Vec<usize> = schema
            .match_indices("package ")
            .map(|(i, _)| i)
            .filter(|i| *i == 0 || schema[..*i].ends_with('\n'))
            .collect();
        let end = schema.find("\nkind ").map_or(schema.len(), |i| i + 1);
        let ends = starts.iter().skip(1).copied().chain([end]);
        starts.iter().zip(ends).map(|(start, end)| schema[*start..end].split_once('\n').unwrap()).collect()
    }

    #[test]
    fn committed_gates() {
        let written = gates::source(&read(&root().join(GATES)).unwrap()).unwrap();
        assert!(
            read(&root().join(GATES_SOURCE)).unwrap() == written,
            "`cargo xtask schema` writes another {GATES_SOURCE}"
        );
    }

    /// The committed description equals that of the Go types. They come with Debian's packages, whose directory
    /// `FERROKUBE_GO_SRC` names; Debian has no package of the types of the aggregator and of resource metrics.
    #[test]
    fn committed() {
        let Some(go_src) = std::env::var_os("FERROKUBE_GO_SRC") else {
            eprintln!("skipped: FERROKUBE_GO_SRC names no Go types");
            return;
        };
        let committed = read(&root().join(SCHEMA)).unwrap();
        let table = read(&root().join(TABLE)).unwrap();
        const LACKING: [&str; 2] = ["apiregistration.k8s.io\t", "metrics.k8s.io\t"];
        let here = |line: &&str| !LACKING.iter().any(|group| line.starts_with(group));
        let table: String = table.split_inclusive('\n').filter(here).collect();
        let gates = read(&root().join(GATES)).unwrap();
        let generated = generated(&[go_src.into()], table, &gates).unwrap();
        let generated = &generated.iter().find(|(path, _)| *path == SCHEMA).unwrap().1;
        let (mut committed, generated) = (packages(&committed), packages(generated));
        for (package, text) in generated {
            assert_eq!(
                committed.remove(package),
                Some(text),
                "{package}: `cargo xtask schema` writes another one"
            );
        }
        let rest: Vec<&str> = committed.into_keys().collect();
        let known = ["kube-aggregator", "k8s.metrics"];
        let lacking = rest.iter().zip(known).all(|(package, name)| package.contains(name));
        assert!(rest.len() == known.len() && lacking, "nothing generates {rest:?}");
    }
}
