//! Each name of a field that rules read or write is one of the schema's: a wrong one would read as absent.
//!
//! Whether the struct at hand has the field is checked where a rule runs (`api::view`, in builds for tests).

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use api::Schema;

/// The methods of `View` and `Edit` whose first argument is a field's name.
const METHODS: &[&str] = &[
    "as_written",
    "at",
    "bool",
    "copy",
    "default",
    "default_str",
    "entries",
    "fresh",
    "get",
    "get_mut",
    "has",
    "int",
    "items",
    "knows",
    "len",
    "list",
    "make",
    "make_map",
    "map",
    "opt",
    "opt_bool",
    "opt_int",
    "opt_str",
    "put",
    "remove",
    "set",
    "st",
    "str",
    "strs",
    "texts",
    "type_of",
    "write_empty_map",
    "written_empty",
    "zero_time",
];

/// Arguments of other methods with the same names.
const OTHERS: &[&str] = &[
    // These are parameters of requests.
    "hash",
    "includeRequestDetails",
    "pretty",
    "timeout",
    "verbose",
    // These are fields of OpenAPI documents.
    "consumes",
    "in",
    "produces",
    "responses",
    "serverRelativeURL",
    // This is a field of CustomResourceDefinitions in `v1beta1`.
    "webhookClientConfig",
];

/// Words in camel case that are no fields.
const WORDS: &[&str] = &[
    // These stand in upstream's paths and texts.
    "attachedRequired",
    "cephFS",
    "downwarAPI",
    "persistentDisk",
    "storageOS",
    "templateGeneration",
    "uID",
    "webhookClientConfig",
    // This is a finalizer.
    "foregroundDeletion",
];

static KNOWN: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let structs = Schema::builtin().structs();
    structs.flat_map(|(_, st)| st.fields.iter().map(|f| f.json.as_str())).collect()
});

/// The sources below a directory, without their tests.
fn sources(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() {
            out.extend(sources(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs") && !name.contains("tests") {
            let text = std::fs::read_to_string(&entry).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
            out.push((entry, code));
        }
    }
    out
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The literals that stand as first arguments of the methods.
fn arguments(code: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices('(') {
        let method = code[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
        let is_call = code[..at - method.len()].ends_with('.');
        let argument = code[at + 1..].trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
        if let Some(argument) = argument.filter(|a| is_call && METHODS.contains(&method) && is_name(a)) {
            out.push(argument);
        }
    }
    out
}

/// Every literal of one word in camel case.
fn words(code: &str) -> Vec<&str> {
    let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
    let literals = lines.flat_map(|l| l.split('"').skip(1).step_by(2));
    literals.filter(|w| is_name(w) && w.bytes().any(|b| b.is_ascii_uppercase())).collect()
}

fn unknown<'c>(found: Vec<&'c str>, but: &[&str]) -> Vec<&'c str> {
    found.into_iter().filter(|name| !KNOWN.contains(name) && !but.contains(name)).collect()
}

#[test]
fn names_that_rules_read_are_fields() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (rules, server) = (crates.join("kinds/src"), crates.join("apiserver/src"));
    let mut wrong = Vec::new();
    for (path, code) in sources(&rules).into_iter().chain(sources(&server)) {
        let mut names = unknown(arguments(&code), OTHERS);
        if path.starts_with(rules.join("strategies")) {
            names.extend(unknown(words(&code), WORDS));
        }
        wrong.extend(names.into_iter().map(|name| format!("{}: {name}", path.display())));
    }
    assert!(wrong.is_empty(), "no fields of the schema:\n{}", wrong.join("\n"));
}

#[test]
fn a_misspelt_name_is_found() {
    let code =
        r#"fn f(v: View<'_>) -> bool { v.st("spec").has("hostNetwrok") && list.contains("x") } // "abcDef""#;
    assert_eq!(arguments(code), ["spec", "hostNetwrok"]);
    assert_eq!(unknown(arguments(code), OTHERS), ["hostNetwrok"]);
    assert_eq!(unknown(words(r#"["replicas", "readyReplicsa", "a b"]"#), WORDS), ["readyReplicsa"]);
}
