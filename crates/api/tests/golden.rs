//! Upstream's golden files (`k8s.io/api/testdata`): every kind with every field set, as this version and the three
//! before it wrote it. Each file is read and written again, byte for byte; where a version had other fields, upstream
//! keeps the result in a file beside it.
//!
//! The files come with Debian's golang-k8s-api-dev. `K8S_API_TESTDATA` names another place; where it is set, missing
//! files are a failure.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::path::{Path, PathBuf};

use ferrokube_api::codec::{json, proto};
use ferrokube_api::schema::{Gvk, Schema, StructId};
use ferrokube_api::{Struct, Text, yaml};

/// A file, and the kind that it holds.
struct Golden {
    path: PathBuf,
    kind: Gvk,
    root: StructId,
}

impl Golden {
    /// The apiVersion and kind in the file's forms: none for a type that is not a kind by itself.
    fn type_meta(&self) -> (Text, Text) {
        if Schema::builtin().st(self.root).kind {
            (self.kind.api_version(), self.kind.kind.clone())
        } else {
            (Text::default(), Text::default())
        }
    }
}

/// The files with an extension, of all versions.
fn files(extension: &str) -> Vec<Golden> {
    let wanted = std::env::var_os("K8S_API_TESTDATA");
    let dir = wanted
        .as_ref()
        .map_or_else(|| PathBuf::from("/usr/share/gocode/src/k8s.io/api/testdata"), PathBuf::from);
    let Ok(versions) = std::fs::read_dir(&dir) else {
        assert!(wanted.is_none(), "nothing to read in {}", dir.display());
        eprintln!("skipped: {} is not there", dir.display());
        return Vec::new();
    };
    let mut out = Vec::new();
    for version in versions {
        let version = version.unwrap().path();
        let before = out.len();
        for file in std::fs::read_dir(&version).unwrap() {
            let path = file.unwrap().path();
            out.extend(golden(path, extension));
        }
        assert!(out.len() - before > 100, "only {} files in {}", out.len() - before, version.display());
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

fn golden(path: PathBuf, extension: &str) -> Option<Golden> {
    // group.version.Kind, or group.version.Kind.after_roundtrip
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    if path.extension()? != extension || stem.ends_with(".after_roundtrip") {
        return None;
    }
    let mut parts = stem.rsplitn(3, '.');
    let (kind, version, group) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = Gvk::new(if group == "core" { "" } else { group }, version, kind);
    let root = Schema::builtin().kind(&kind)?;
    Some(Golden { path, kind, root })
}

/// The expected result for a file.
fn expected(path: &Path, extension: &str) -> Vec<u8> {
    let stem = path.file_stem().unwrap().to_string_lossy();
    let changed = path.with_file_name(format!("{stem}.after_roundtrip.{extension}"));
    std::fs::read(changed).unwrap_or_else(|_| std::fs::read(path.with_extension(extension)).unwrap())
}

fn to_json(kind: &Gvk, tree: &Struct) -> Vec<u8> {
    let schema = Schema::builtin();
    let mut out = Vec::new();
    json::encode(schema, tree, &mut out);
    if schema.st(tree.id).kind {
        let type_meta = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
        out.splice(..1, type_meta.into_bytes());
    }
    out
}

/// The forms of a tree in which it differs from the expected result of its file.
fn differences(file: &Golden, tree: &Struct) -> Vec<String> {
    let schema = Schema::builtin();
    let name = file.path.display();
    let mut out = Vec::new();
    let text = to_json(&file.kind, tree);
    if text != compact(&expected(&file.path, "json")).into_bytes() {
        out.push(format!("{name}: other JSON: {}", String::from_utf8_lossy(&text)));
    }
    let text = yaml::emit(&json::decode_any(&text).unwrap());
    if text.into_bytes() != expected(&file.path, "yaml") {
        out.push(format!("{name}: other YAML"));
    }
    let (api_version, kind) = file.type_meta();
    let body = proto::encode(schema, &api_version, &kind, tree);
    if body != expected(&file.path, "pb") {
        out.push(format!("{name}: other protobuf"));
    }
    out
}

fn check(extension: &str, read: impl Fn(&Golden, &[u8]) -> Struct) {
    let all = files(extension);
    let wrong: Vec<String> = all
        .iter()
        .flat_map(|file| differences(file, &read(file, &std::fs::read(&file.path).unwrap())))
        .collect();
    assert!(wrong.is_empty(), "{} of {} files:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

#[test]
fn from_json() {
    check("json", |file, text| {
        let decoded = json::decode(Schema::builtin(), file.root, text)
            .unwrap_or_else(|e| panic!("{}: {e}", file.path.display()));
        assert!(
            decoded.strict.is_empty() || !file.path.parent().unwrap().ends_with("HEAD"),
            "{}: {:?}",
            file.path.display(),
            decoded.strict
        );
        decoded.tree
    });
}

#[test]
fn some_fields_of_json() {
    const WANTED: [&str; 2] = ["metadata", "status"];
    let schema = Schema::builtin();
    for file in files("json") {
        let text = std::fs::read(&file.path).unwrap();
        let mut expected = json::decode(schema, file.root, &text).unwrap().tree;
        let present: Vec<_> = expected.iter().map(|(no, _)| no).collect();
        for no in present.into_iter().filter(|no| !WANTED.contains(&&*schema.st(file.root).at(*no).json)) {
            expected.remove(no);
        }
        let got = json::decode_fields(schema, file.root, &text, &WANTED).unwrap();
        assert_eq!(got, expected, "{}", file.path.display());
    }
    let pod = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    for broken in ["", "[]", "{\"spec\":{]}", "{\"spec\":{}", "{\"metadata\":1}", "{} {}"] {
        let got = json::decode_fields(schema, pod, broken.as_bytes(), &WANTED);
        assert!(got.is_err(), "{broken}: {got:?}");
    }
}

#[test]
fn from_yaml() {
    check("yaml", |file, text| {
        let node = yaml::parse(text).unwrap_or_else(|e| panic!("{}: {e}", file.path.display()));
        json::root_from_any(Schema::builtin(), file.root, node).unwrap().tree
    });
}

#[test]
fn from_protobuf() {
    check("pb", |file, body| {
        let decoded = proto::decode(Schema::builtin(), file.root, body)
            .unwrap_or_else(|e| panic!("{}: {e}", file.path.display()));
        assert_eq!((decoded.api_version, decoded.kind), file.type_meta());
        decoded.tree
    });
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
