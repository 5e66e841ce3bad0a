//! Test binaries: each links everything that its crate uses.

use std::collections::BTreeSet;

use crate::{File, Finding, Kind, Rule, Workspace};

pub(crate) const RULE: Rule = Rule {
    name: "suites",
    promise: "A crate has one test binary at most, and that has every file of its `tests`.",
    check,
    broken: &[
        ("crates/a/Cargo.toml", "autotests = false\n[[test]]\nname = \"it\"\npath = \"tests/main.rs\"\n"),
        ("crates/a/tests/main.rs", "mod b;\n#[path = \"odd/file.rs\"]\nmod d;\nmod inline { fn f() {} }\n"),
        ("crates/a/tests/b/mod.rs", "mod c;"),
        ("crates/a/tests/b/c.rs", "mod e;"),
        ("crates/a/tests/b/c/e.rs", ""),
        ("crates/a/tests/odd/file.rs", ""),
        ("crates/a/tests/forgotten.rs", ""),
        ("crates/f/Cargo.toml", ""),
        ("crates/f/tests/one.rs", "mod support;"),
        ("crates/f/tests/support/mod.rs", ""),
        ("crates/f/tests/two/main.rs", "mod g;"),
        ("crates/f/tests/two/g.rs", ""),
    ],
    found: &[
        "crates/a/tests/forgotten.rs: no test binary has this file",
        "crates/f/Cargo.toml: more than one test binary: tests/one.rs tests/two/main.rs",
    ],
};

fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut out = Vec::new();
    for manifest in workspace.paths().filter(|p| p.ends_with("/Cargo.toml")) {
        let Some(dir) = manifest.strip_suffix("/Cargo.toml") else { continue };
        let files: Vec<&File> = workspace.files(&format!("{dir}/tests")).collect();
        let roots = roots(workspace.text(manifest).unwrap_or_default(), dir, &files);
        if roots.len() > 1 {
            let names: Vec<&str> =
                roots.iter().filter_map(|r| r.strip_prefix(dir)?.strip_prefix('/')).collect();
            out.push(Finding {
                path: manifest.to_owned(),
                line: 0,
                what: format!("more than one test binary: {}", names.join(" ")),
            });
        }
        let reached = reached(&files, roots);
        out.extend(files.iter().filter(|f| !reached.contains(&f.path)).map(|f| Finding {
            path: f.path.clone(),
            line: 0,
            what: "no test binary has this file".to_owned(),
        }));
    }
    out
}

/// The root files of test binaries: those that the manifest names, or those that cargo finds.
fn roots(manifest: &str, dir: &str, files: &[&File]) -> BTreeSet<String> {
    if manifest.lines().any(|l| l == "autotests = false") {
        let named = manifest.lines().filter_map(|l| l.strip_prefix("path = \"tests/")?.strip_suffix('"'));
        return named.map(|path| format!("{dir}/tests/{path}")).collect();
    }
    let found = files.iter().filter(|f| {
        let path = f.path.strip_prefix(&format!("{dir}/tests/")).unwrap_or_default();
        match path.split_once('/') {
            None => true,
            Some((_, rest)) => rest == "main.rs",
        }
    });
    found.map(|f| f.path.clone()).collect()
}

/// The files that the roots reach by `mod`.
fn reached(files: &[&File], roots: BTreeSet<String>) -> BTreeSet<String> {
    let mut queue: Vec<(String, bool)> = roots.iter().map(|r| (r.clone(), true)).collect();
    let mut seen = roots;
    while let Some((path, root)) = queue.pop() {
        let Some(file) = files.iter().find(|f| f.path == path) else { continue };
        let (dir, name) = path.rsplit_once('/').unwrap_or_default();
        let below = if root || name == "mod.rs" { dir } else { path.trim_end_matches(".rs") };
        for next in modules(file, dir, below) {
            if files.iter().any(|f| f.path == next) && seen.insert(next.clone()) {
                queue.push((next, false));
            }
        }
    }
    seen
}

/// The possible files of the modules that a file declares: `#[path]` counts from its directory.
fn modules(file: &File, dir: &str, below: &str) -> Vec<String> {
    let text = |i: usize| file.tokens.get(i).map_or("", |t| t.text.as_str());
    let mut out = Vec::new();
    for i in (0..file.tokens.len()).filter(|i| text(*i) == "mod" && text(i + 2) == ";") {
        let named = i >= 2 && text(i - 1) == "]" && file.tokens[i - 2].kind == Kind::String;
        let name = text(i + 1);
        if named {
            out.push(format!("{dir}/{}", text(i - 2)));
        } else {
            out.extend([format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")]);
        }
    }
    out
}
