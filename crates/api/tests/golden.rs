//! Upstream's golden files (`k8s.io/api/testdata/HEAD`): every kind with every field set.
//!
//! They come with Debian's golang-k8s-api-dev. Another place is named by `K8S_API_TESTDATA`; where
//! that is set, missing files are a failure.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::path::PathBuf;

use ferrokube_api::codec::json;
use ferrokube_api::schema::{Gvk, Schema};

/// Files of an extension with the kind that each holds.
fn files(extension: &str) -> Vec<(PathBuf, Gvk)> {
    let dir = match std::env::var_os("K8S_API_TESTDATA") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from("/usr/share/gocode/src/k8s.io/api/testdata/HEAD"),
    };
    let Ok(entries) = std::fs::read_dir(&dir) else {
        assert!(std::env::var_os("K8S_API_TESTDATA").is_none(), "nothing to read in {}", dir.display());
        eprintln!("skipped: {} is not there", dir.display());
        return Vec::new();
    };
    let mut out = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != extension) {
            continue;
        }
        // group.version.Kind
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut parts = stem.rsplitn(3, '.');
        let (kind, version, group) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let group = if group == "core" { "" } else { group };
        let gvk = Gvk::new(group, version, kind);
        if Schema::builtin().kind(&gvk).is_some() {
            out.push((path, gvk));
        }
    }
    out.sort();
    assert!(out.len() > 100, "only {} files in {}", out.len(), dir.display());
    out
}

#[test]
fn json_round_trip() {
    let schema = Schema::builtin();
    for (path, gvk) in files("json") {
        let text = std::fs::read(&path).unwrap();
        let root = schema.kind(&gvk).unwrap();
        let decoded = json::decode(schema, root, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(decoded.strict, Vec::<String>::new(), "{}", path.display());
        let mut out = Vec::new();
        json::encode(schema, &decoded.tree, &mut out);
        if schema.st(root).kind {
            assert_eq!((decoded.kind.as_str(), decoded.api_version), (gvk.kind.as_str(), gvk.api_version()));
            let type_meta = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", gvk.kind, gvk.api_version());
            out.splice(..1, type_meta.into_bytes());
        }
        assert_eq!(String::from_utf8(out).unwrap(), compact(&text), "{}", path.display());
    }
}

#[test]
fn yaml_holds_the_same() {
    let schema = Schema::builtin();
    for (path, gvk) in files("yaml") {
        let root = schema.kind(&gvk).unwrap();
        let node = ferrokube_api::yaml::parse(&std::fs::read(&path).unwrap())
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let from_yaml = json::root_from_any(schema, root, node).unwrap();
        let text = std::fs::read(path.with_extension("json")).unwrap();
        assert_eq!(from_yaml, json::decode(schema, root, &text).unwrap(), "{}", path.display());
    }
}

/// The text without white space between its tokens.
fn compact(text: &[u8]) -> String {
    let mut out = String::new();
    let mut inside = false;
    let mut escaped = false;
    for c in std::str::from_utf8(text).unwrap().chars() {
        if inside || !c.is_ascii_whitespace() {
            out.push(c);
        }
        match c {
            '"' if !escaped => inside = !inside,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    out
}
