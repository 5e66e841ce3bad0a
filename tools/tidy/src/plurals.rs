//! Resources that code asks for by name.

use std::collections::BTreeSet;

use crate::{Finding, Kind, Rule, Workspace};

/// The table of resources; the third column has their names.
const TABLE: &str = "crates/api/schema/resources.tsv";

/// Code that serves every resource alike.
const GENERIC: &str = "crates/apiserver/src";

/// Below [`GENERIC`], the files and directories that are about some resources.
const ABOUT_SOME: &[(&str, &str)] = &[
    ("allocate", "the addresses and ports of Services"),
    ("authorization_feed.rs", "what authorization knows of stored objects"),
    ("handlers/binding.rs", "a handler that the table of handlers names"),
    ("handlers/builtin.rs", "the table of handlers"),
    ("handlers/eviction.rs", "a handler that the table of handlers names"),
    ("hooks", "the objects that every cluster has"),
];

pub(crate) const RULE: Rule = Rule {
    name: "plurals",
    promise: "The API server's generic code asks for no resource by name.",
    check,
    broken: &[
        (TABLE, "group\tversion\tresource\tkind\n\tv1\tpods\tPod\nbatch\tv1\tjobs\tJob\n"),
        (
            "crates/apiserver/src/pipe/mod.rs",
            "// \"pods\"\nfn f(name: &str) -> bool {\n    name == \"jobs\" || name == \"job\"\n}\n\
             #[cfg(test)]\nmod tests { const P: &str = \"pods\"; }\n",
        ),
        ("crates/apiserver/src/hooks/mod.rs", "const P: &str = \"pods\";\n"),
        ("crates/apiserver/src/allocate/mod.rs", "const P: &str = \"pods\";\n"),
        ("crates/apiserver/src/authorization_feed.rs", "const P: &str = \"pods\";\n"),
        ("crates/apiserver/src/handlers/binding.rs", "const P: &str = \"pods\";\n"),
        ("crates/apiserver/src/handlers/builtin.rs", "const P: &str = \"pods\";\n"),
        ("crates/apiserver/src/handlers/eviction.rs", "const P: &str = \"pod\";\n"),
        ("crates/kubelet/src/lib.rs", "const P: &str = \"pods\";\n"),
    ],
    found: &[
        "crates/apiserver/src/pipe/mod.rs:3: `jobs` is a resource's name: ask its catalog entry, or `handlers/builtin.rs`",
        "crates/apiserver/src/handlers/eviction.rs: names no resource: take it off the list in tools/tidy/src/plurals.rs",
    ],
};

fn check(workspace: &Workspace) -> Vec<Finding> {
    let rows = workspace.text(TABLE).unwrap_or_default().lines().skip(1);
    let names: BTreeSet<&str> = rows.filter_map(|row| row.split('\t').nth(2)).collect();
    let mut out = Vec::new();
    let mut used = BTreeSet::new();
    for file in workspace.files(GENERIC) {
        let path = file.path.strip_prefix(GENERIC).unwrap_or_default().trim_start_matches('/');
        let about = ABOUT_SOME.iter().map(|(place, _)| *place).find(|place| {
            path == *place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
        });
        let named = file.code().into_iter().filter(|t| t.kind == Kind::String && names.contains(&*t.text));
        for token in named {
            match about {
                Some(place) => {
                    used.insert(place);
                }
                None => out.push(Finding {
                    path: file.path.clone(),
                    line: token.line,
                    what: format!(
                        "`{}` is a resource's name: ask its catalog entry, or `handlers/builtin.rs`",
                        token.text
                    ),
                }),
            }
        }
    }
    let needless = ABOUT_SOME.iter().map(|(place, _)| *place).filter(|place| !used.contains(place));
    out.extend(needless.map(|place| Finding {
        path: format!("{GENERIC}/{place}"),
        line: 0,
        what: "names no resource: take it off the list in tools/tidy/src/plurals.rs".to_owned(),
    }));
    out
}
