//! The edges between crates.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Finding, Rule, Workspace};

const TABLE: &str = "ARCHITECTURE.md";
/// Crates that no program has.
const ONLY_TESTS: [&str; 1] = ["simulation"];

pub(crate) const RULE: Rule = Rule {
    name: "edges",
    promise: "A crate uses those crates alone that ARCHITECTURE.md's table allows it, and nothing uses a tool.",
    check,
    broken: &[
        (
            TABLE,
            "| crate | job | may use |\n|---|---|---|\n| `a` | x | – |\n| `b` | x | a |\n| `e` | x | all |\n",
        ),
        ("crates/a/Cargo.toml", "[dependencies]\nserde = \"1\"\nb = { workspace = true }\n"),
        (
            "crates/b/Cargo.toml",
            "[dependencies]\na = { workspace = true }\n[dev-dependencies]\ne = { workspace = true }\n",
        ),
        ("crates/c/Cargo.toml", "[dependencies.b]\nworkspace = true\n"),
        (
            "crates/e/Cargo.toml",
            "[dependencies]\na.workspace = true\nb = { workspace = true }\nt = { workspace = true }\nsimulation = { workspace = true }\n",
        ),
        ("tools/t/Cargo.toml", ""),
    ],
    found: &[
        "crates/a/Cargo.toml:3: `a` may not use `b`: its row in ARCHITECTURE.md names –",
        "crates/c/Cargo.toml: ARCHITECTURE.md's table has no row for `c`",
        "crates/e/Cargo.toml:4: `e` may not use the tool `t`",
        "crates/e/Cargo.toml:5: `e` may use `simulation` in its tests alone",
    ],
};

fn check(workspace: &Workspace) -> Vec<Finding> {
    let rows = rows(workspace.text(TABLE).unwrap_or_default());
    let crates: BTreeSet<&str> = workspace.crates().collect();
    let mut out = Vec::new();
    for name in &crates {
        let path = format!("crates/{name}/Cargo.toml");
        let finding = |line, what| Finding { path: path.clone(), line, what };
        let Some(may) = rows.get(name) else {
            out.push(finding(0, format!("{TABLE}'s table has no row for `{name}`")));
            continue;
        };
        for (line, used) in dependencies(workspace.text(&path).unwrap_or_default()) {
            if ONLY_TESTS.contains(&used) {
                out.push(finding(line, format!("`{name}` may use `{used}` in its tests alone")));
            } else if workspace.text(&format!("tools/{used}/Cargo.toml")).is_some() {
                out.push(finding(line, format!("`{name}` may not use the tool `{used}`")));
            } else if crates.contains(used) && *may != "all" && !may.split(", ").any(|m| m == used) {
                out.push(finding(
                    line,
                    format!("`{name}` may not use `{used}`: its row in {TABLE} names {may}"),
                ));
            }
        }
    }
    out
}

/// The crates that each crate may use, from the table with the column `may use`.
fn rows(page: &str) -> BTreeMap<&str, &str> {
    page.lines()
        .skip_while(|l| !l.starts_with("| crate | job | may use |"))
        .take_while(|l| l.starts_with('|'))
        .filter_map(|l| {
            let mut cells = l.trim_matches('|').split(" | ").map(str::trim);
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            Some((name, cells.last()?))
        })
        .collect()
}

/// The dependencies in a manifest, with their lines; those of tests aside.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut table = "";
    let mut out = Vec::new();
    for (i, line) in manifest.lines().enumerate() {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = name;
            if let Some(used) =
                name.strip_prefix("dependencies.").or_else(|| name.strip_prefix("build-dependencies."))
            {
                out.push((i + 1, used));
            }
        } else if matches!(table, "dependencies" | "build-dependencies")
            && let Some((used, _)) = line.split_once('=')
        {
            out.push((i + 1, used.trim().trim_end_matches(".workspace")));
        }
    }
    out
}
