//! Generic code asks a catalog entry, never a name: no plural name of a built-in resource stands in it.

use std::path::Path;

use api::resources::builtin;

/// What serves every resource.
const GENERIC: &[&str] = &[
    "answer.rs",
    "codec.rs",
    "conditions.rs",
    "handlers/create.rs",
    "handlers/delete.rs",
    "handlers/get.rs",
    "handlers/lifecycle.rs",
    "handlers/list.rs",
    "handlers/managed.rs",
    "handlers/mod.rs",
    "handlers/patch.rs",
    "handlers/review.rs",
    "handlers/scale.rs",
    "handlers/unreadable.rs",
    "handlers/update.rs",
    "handlers/watch.rs",
    "inner.rs",
    "meta.rs",
    "registry.rs",
    "select.rs",
    "table.rs",
    "weight.rs",
];

/// The literals of a source that are plural names.
fn plurals(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
    let literals = lines.flat_map(|l| l.split('"').skip(1).step_by(2));
    literals.filter(|text| builtin().iter().any(|r| r.resource == *text)).collect()
}

#[test]
fn generic_code_names_no_resource() {
    for file in GENERIC {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        let source = std::fs::read_to_string(path).unwrap();
        assert_eq!(plurals(&source), [""; 0], "{file}");
    }
}

#[test]
fn a_name_is_found() {
    assert_eq!(plurals("if plural == \"jobs\" {\n    // \"pods\"\n}"), ["jobs"]);
}
