//! Collects the descriptions of types and fields from the sources of k8s-openapi, and from `more.tsv` what they
//! leave out, into one compressed file: records of definition, field (empty for the definition itself) and text.
//!
//! The sources are read, not compiled: the crate with its `schemars` feature takes minutes to
//! build, for what is a second of reading string literals. Where they lie, Cargo says.

use std::collections::BTreeMap;
use std::io::{Error, Result, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Texts by definition and field.
type Texts = BTreeMap<(String, String), String>;

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=more.tsv");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("no OUT_DIR"))?;
    let file = std::fs::File::create(Path::new(&out).join("descriptions.z"))?;
    let mut out = flate2::write::ZlibEncoder::new(file, flate2::Compression::best());
    let mut texts = Texts::new();
    collect(&sources()?, &mut texts)?;
    more(include_str!("more.tsv"), &mut texts);
    for ((definition, field), text) in texts {
        write!(out, "{definition}\x1f{field}\x1f{text}\x1e")?;
    }
    out.finish()?;
    Ok(())
}

fn more(table: &str, texts: &mut Texts) {
    let of_all = ["apiVersion", "kind"].map(|field| {
        let pod = ("io.k8s.api.core.v1.Pod".to_owned(), field.to_owned());
        (field, texts.get(&pod).cloned().unwrap_or_default())
    });
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let mut columns = line.splitn(3, '\t');
        let (Some(definition), Some(field), Some(text)) = (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let at = (definition.to_owned(), field.to_owned());
        let text = unescaped(text);
        match text.strip_prefix('+') {
            Some(rest) => texts.entry(at).or_default().push_str(rest),
            None => {
                texts.insert(at, text);
            }
        }
        if definition.ends_with("List") {
            for (field, text) in &of_all {
                texts.insert((definition.to_owned(), (*field).to_owned()), text.clone());
            }
        }
    }
}

/// The directory of k8s-openapi's sources for our version of the API.
fn sources() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").ok_or_else(|| Error::other("no CARGO"))?;
    let answer =
        Command::new(cargo).args(["metadata", "--format-version", "1", "--offline", "--locked"]).output()?;
    if !answer.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&answer.stderr).into_owned()));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&answer.stdout)?;
    let packages = metadata["packages"].as_array();
    let manifest = packages
        .into_iter()
        .flatten()
        .find(|p| p["name"] == "k8s-openapi")
        .and_then(|p| p["manifest_path"].as_str())
        .ok_or_else(|| Error::other("k8s-openapi is no dependency"))?;
    Ok(Path::new(manifest).with_file_name("src").join("v1_36"))
}

fn collect(dir: &Path, out: &mut Texts) -> Result<()> {
    let mut entries = std::fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, out)?;
        } else {
            descriptions(&std::fs::read_to_string(&path)?, out);
        }
    }
    Ok(())
}

/// Takes the descriptions that a file's `JsonSchema` implementations hold.
fn descriptions(text: &str, out: &mut Texts) {
    let mut definition = None;
    let mut field = "";
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(name) = trimmed.strip_prefix("\"io.k8s.").and_then(|n| n.strip_suffix("\".into()")) {
            definition = Some(name);
            field = "";
            continue;
        }
        let Some(definition) = definition else { continue };
        let literal = match indent {
            12 | 20 => trimmed
                .strip_prefix("\"description\": \"")
                .and_then(|l| l.strip_suffix("\","))
                .or_else(|| {
                    trimmed
                        .strip_prefix("schema_obj.ensure_object().insert(\"description\".into(), \"")
                        .and_then(|l| l.strip_suffix("\".into());"))
                }),
            16 => {
                if let Some((name, _)) = trimmed.strip_prefix('"').and_then(|n| n.split_once("\": ")) {
                    field = name;
                }
                None
            }
            _ => None,
        };
        if let Some(literal) = literal {
            let field = if indent == 12 { "" } else { field };
            out.insert((format!("io.k8s.{definition}"), field.to_owned()), unescaped(literal));
        }
    }
}

/// The value of a string literal.
fn unescaped(literal: &str) -> String {
    let mut out = String::with_capacity(literal.len());
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('u') => {
                let hex: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                out.extend(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
