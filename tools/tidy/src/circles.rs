//! Files of a crate that use each other in a circle.
//!
//! A file uses another one if it names something there, by `use` or by its path, in code that is not for tests; a name
//! that a module only re-exports (`pub use`) leads to the file from which it comes. A circle is a largest set of files
//! each of which reaches each other one.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{Named, paths};
use crate::{Finding, Rule, Workspace};

/// The list of the present circles: the crate, and below it the files from `src`.
const LIST: &str = "tools/tidy/circles.txt";

pub(crate) const RULE: Rule = Rule {
    name: "circles",
    promise: "No files of a crate use each other in a circle, but for those that tools/tidy/circles.txt lists.",
    check,
    broken: &[
        ("crates/a/Cargo.toml", ""),
        ("crates/a/src/lib.rs", "mod b; mod c; mod d; pub use b::B; fn f() { c::g() }"),
        ("crates/a/src/b.rs", "use crate::c::C;"),
        ("crates/a/src/c.rs", "use crate::B; use crate::d::D;"),
        ("crates/a/src/d.rs", "#[cfg(test)] mod tests { use crate::c::C; }"),
        ("crates/e/Cargo.toml", ""),
        ("crates/e/src/lib.rs", "mod f;"),
        ("crates/e/src/f/mod.rs", "mod g; use g::G; pub struct F;"),
        ("crates/e/src/f/g.rs", "use super::F;"),
        (LIST, "# for now\ncrates/a/src\n  b.rs\n  d.rs\n"),
    ],
    found: &[
        "crates/a/src/c.rs: in a circle with b.rs, and the list does not have it",
        "crates/e/src/f/g.rs: in a circle with f/mod.rs, and the list does not have it",
        "crates/e/src/f/mod.rs: in a circle with f/g.rs, and the list does not have it",
        "tools/tidy/circles.txt:4: in no such circle any more: take it off the list",
    ],
};

/// A circle: the directory of the crate's sources, and the files from there, with their lines in the list.
struct Circle {
    src: String,
    files: BTreeMap<String, usize>,
}

fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut listed = listed(workspace.text(LIST).unwrap_or_default());
    let mut out = Vec::new();
    for circle in found(workspace) {
        // The circle on the list that has most of these files.
        let common = |l: &Circle| circle.files.keys().filter(|f| l.files.contains_key(*f)).count();
        let known =
            listed.iter_mut().filter(|l| l.src == circle.src && common(l) > 0).max_by_key(|l| common(l));
        let mut known = known.map(|k| &mut k.files);
        for file in circle.files.keys() {
            if known.as_mut().is_some_and(|k| k.remove(file).is_some()) {
                continue;
            }
            let others: Vec<&str> = circle.files.keys().filter(|f| *f != file).map(String::as_str).collect();
            out.push(Finding {
                path: format!("{}/{file}", circle.src),
                line: 0,
                what: format!("in a circle with {}, and the list does not have it", some(&others)),
            });
        }
    }
    out.extend(listed.iter().flat_map(|l| l.files.values()).map(|line| Finding {
        path: LIST.to_owned(),
        line: *line,
        what: "in no such circle any more: take it off the list".to_owned(),
    }));
    out
}

/// The first of the files, and the number of the others.
fn some(files: &[&str]) -> String {
    const SHOWN: usize = 3;
    let shown = files[..files.len().min(SHOWN)].join(" ");
    match files.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Every present circle, as the list has them.
pub fn circles(workspace: &Workspace) -> String {
    let mut out = String::new();
    for circle in found(workspace) {
        out.push_str(&circle.src);
        for file in circle.files.keys() {
            out.push_str("\n  ");
            out.push_str(file);
        }
        out.push('\n');
    }
    out
}

fn listed(text: &str) -> Vec<Circle> {
    let mut out: Vec<Circle> = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        match (line.strip_prefix("  "), out.last_mut()) {
            (Some(file), Some(circle)) => {
                circle.files.insert(file.to_owned(), i + 1);
            }
            _ => out.push(Circle { src: line.to_owned(), files: BTreeMap::new() }),
        }
    }
    out
}

fn found(workspace: &Workspace) -> Vec<Circle> {
    workspace.crates().flat_map(|name| of_crate(workspace, format!("crates/{name}/src"))).collect()
}

fn of_crate(workspace: &Workspace, src: String) -> Vec<Circle> {
    let modules: BTreeMap<Vec<String>, (String, Vec<Named>)> = workspace
        .files(&src)
        .filter(|f| !f.test)
        .map(|f| {
            let path = f.path.strip_prefix(&src).unwrap_or_default().trim_start_matches('/');
            (module(path), (path.to_owned(), paths(&f.code())))
        })
        .collect();
    let (names, files): (Vec<&Vec<String>>, Vec<&str>) =
        modules.iter().map(|(name, (path, _))| (name, path.as_str())).unzip();
    let uses: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|(at, (_, named))| {
            // A module does not use what it only re-exports.
            let own = named.iter().filter(|n| n.exported.is_none());
            own.filter_map(|n| resolve(&modules, at, &n.path, 8))
                .filter(|to| to != at)
                .filter_map(|to| names.iter().position(|n| **n == to))
                .collect()
        })
        .collect();
    components(&uses)
        .into_iter()
        .map(|set| Circle {
            src: src.clone(),
            files: set.into_iter().map(|i| (files[i].to_owned(), 0)).collect(),
        })
        .collect()
}

/// The path of the module in a file below `src`.
fn module(path: &str) -> Vec<String> {
    let mut out: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if out.last().is_some_and(|l| ["mod", "lib", "main"].contains(&l.as_str())) {
        out.pop();
    }
    out
}

/// The module to which a path leads from module `at`; `None` outside the crate.
fn resolve<T>(
    modules: &BTreeMap<Vec<String>, (T, Vec<Named>)>,
    at: &[String],
    path: &[String],
    depth: usize,
) -> Option<Vec<String>> {
    let mut to = at.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            to.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|s| s == "super") {
                to.pop();
                rest = &rest[1..];
            }
        }
        first => {
            let mut child = to.clone();
            child.push(first.to_owned());
            if !modules.contains_key(&child) {
                return None;
            }
        }
    }
    while let Some(next) = rest.first() {
        to.push(next.clone());
        if !modules.contains_key(&to) {
            to.pop();
            break;
        }
        rest = &rest[1..];
    }
    let (Some(item), Some((_, named))) = (rest.first(), modules.get(&to)) else { return Some(to) };
    let given = named.iter().find(|n| n.exported.as_ref() == Some(item));
    match given {
        Some(given) if depth > 0 => resolve(modules, &to, &given.path, depth - 1).or(Some(to)),
        _ => Some(to),
    }
}

/// The largest sets of nodes, of two or more, each of which reaches each other one.
fn components(uses: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..uses.len())
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut queue = vec![from];
            while let Some(at) = queue.pop() {
                queue.extend(uses[at].iter().copied().filter(|to| seen.insert(*to)));
            }
            seen
        })
        .collect();
    let mut taken = BTreeSet::new();
    let mut out = Vec::new();
    for from in 0..uses.len() {
        let set: Vec<usize> = reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect();
        if set.len() > 1 && !taken.contains(&from) {
            taken.extend(set.iter().copied());
            out.push(set);
        }
    }
    out
}
