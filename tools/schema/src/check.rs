//! `cargo xtask schema --check`: compares FerroKube's OpenAPI with documents that upstream serves or publishes, prose
//! aside.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use api::Schema;
use api::openapi::CustomKinds;
use serde_json::{Map, Value};

/// Compares with each of `files` (JSON, or JSON in gzip): OpenAPI v2 or one group version's v3.
pub(super) fn run(files: &[std::path::PathBuf]) -> Result<()> {
    let mut differences = Vec::new();
    let mut compared = 0;
    for file in files {
        let theirs = read(file)?;
        let Some(ours) = ours(file, &theirs)? else { continue };
        let (ours, theirs) = (normal(&ours), normal(&theirs));
        let at = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        compare(&at, &theirs, &ours, &mut differences);
        compared += 1;
    }
    for d in differences.iter().take(100) {
        println!("{d}");
    }
    println!("{compared} documents, {} differences", differences.len());
    if differences.is_empty() { Ok(()) } else { bail!("the description differs from upstream's") }
}

fn read(file: &Path) -> Result<Value> {
    let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut text)?;
    } else {
        text = bytes;
    }
    serde_json::from_slice(&text).with_context(|| format!("in {}", file.display()))
}

fn ours(file: &Path, theirs: &Value) -> Result<Option<Value>> {
    let (schema, resources) = (Schema::builtin(), api::resources::builtin());
    let text = if theirs.get("swagger").is_some() {
        // Upstream's own document lacks what another server serves there.
        let own: Vec<_> = resources.iter().filter(|r| r.group != "metrics.k8s.io").cloned().collect();
        api::openapi::v2(schema, &own, &CustomKinds::default(), &|_, _| None)
    } else {
        // The name is such as apis__apps__v1_openapi.json.
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let path = name.trim_end_matches("_openapi.json").replace("__", "/");
        match api::openapi::v3(schema, resources, &CustomKinds::default(), &path, &|_, _| None) {
            Some(text) => text,
            None => return Ok(None),
        }
    };
    Ok(Some(serde_json::from_slice(&text)?))
}

/// The document without prose and the order of lists that are sets, with shared parameters in their places.
fn normal(doc: &Value) -> Value {
    let shared = doc.get("parameters").cloned().unwrap_or_default();
    let mut out = Map::new();
    for key in ["definitions", "components"] {
        if let Some(v) = doc.get(key) {
            out.insert(key.into(), strip(v));
        }
    }
    let mut paths = Map::new();
    for (path, item) in doc.get("paths").and_then(Value::as_object).into_iter().flatten() {
        // The log files of the server's machine are not served.
        if path.starts_with("/logs/") {
            continue;
        }
        let common = parameters(item, &shared);
        for (method, operation) in item.as_object().into_iter().flatten().filter(|(k, _)| *k != "parameters")
        {
            let Value::Object(mut operation) = strip(operation) else { continue };
            let mut all = parameters(&Value::Object(operation.clone()), &shared);
            all.extend(common.iter().cloned());
            operation.insert("parameters".into(), all.into_iter().map(Value::String).collect());
            paths.insert(format!("{method} {path}"), Value::Object(operation));
        }
    }
    out.insert("paths".into(), Value::Object(paths));
    Value::Object(out)
}

fn parameters(of: &Value, shared: &Value) -> BTreeSet<String> {
    let list = of.get("parameters").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|p| {
            let name = p.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next());
            strip(name.and_then(|n| shared.get(n)).unwrap_or(p)).to_string()
        })
        .collect()
}

fn strip(v: &Value) -> Value {
    match v {
        // A reference stands in `allOf` only because of a description beside it.
        Value::Object(m)
            if m.keys().all(|k| k == "allOf" || k == "description")
                && m.get("allOf").and_then(Value::as_array).is_some_and(|l| l.len() == 1) =>
        {
            strip(&m["allOf"][0])
        }
        Value::Object(m) => Value::Object(
            m.iter()
                .filter(|(k, v)| !(*k == "description" && v.is_string()))
                .map(|(k, v)| {
                    let mut v = strip(v);
                    if matches!(k.as_str(), "consumes" | "produces" | "x-kubernetes-group-version-kind")
                        && let Value::Array(l) = &mut v
                    {
                        l.sort_by_key(ToString::to_string);
                    }
                    (k.clone(), v)
                })
                .collect(),
        ),
        Value::Array(l) => Value::Array(l.iter().map(strip).collect()),
        other => other.clone(),
    }
}

fn compare(at: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(t), Value::Object(o)) => {
            for (k, v) in t {
                match o.get(k) {
                    Some(w) => compare(&format!("{at} {k}"), v, w, out),
                    None => out.push(format!("{at}: no {k}")),
                }
            }
            for k in o.keys().filter(|k| !t.contains_key(*k)) {
                out.push(format!("{at}: {k} too many"));
            }
        }
        _ if theirs == ours => {}
        _ => out.push(format!("{at}: {ours} instead of {theirs}")),
    }
}
