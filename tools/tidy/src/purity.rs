//! The things that pure crates may not touch.

use crate::paths::paths;
use crate::{Finding, Rule, Workspace};

/// The crates that are pure.
const PURE: &[&str] = &["api", "kinds"];

/// The paths that they may not name: input and output, clocks, threads, the environment, and async runtimes.
const OUTSIDE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "futures",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "rustix",
    "tokio",
];

pub(crate) const RULE: Rule = Rule {
    name: "purity",
    promise: "`api` and `kinds` are pure: no input or output, no clock, no threads, no async.",
    check,
    broken: &[
        ("crates/api/Cargo.toml", ""),
        (
            "crates/api/src/lib.rs",
            "use std::{collections::BTreeMap, fs};\nuse std::net::IpAddr;\n// std::fs\nfn f() { std::thread::spawn(g) }\n\
             #[cfg(test)]\nmod tests { use std::fs; }\nasync fn g() {}\n",
        ),
        ("crates/kinds/src/a/b.rs", "fn f() -> &'static str { \"std::fs\" }\nfn g() { Timestamp::now() }\n"),
        ("crates/other/src/lib.rs", "use std::fs;\n"),
    ],
    found: &[
        "crates/api/src/lib.rs:1: `std::fs` in a pure crate",
        "crates/api/src/lib.rs:4: `std::thread` in a pure crate",
        "crates/api/src/lib.rs:7: `async` in a pure crate",
        "crates/kinds/src/a/b.rs:2: `Timestamp::now` in a pure crate",
    ],
};

fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in PURE.iter().flat_map(|name| workspace.files(&format!("crates/{name}/src"))) {
        let code = file.code();
        let finding = |line, what: &str| Finding {
            path: file.path.clone(),
            line,
            what: format!("`{what}` in a pure crate"),
        };
        for named in paths(&code) {
            let path = named.path.join("::");
            let within = |outside: &&&str| {
                path.strip_prefix(**outside).is_some_and(|r| r.is_empty() || r.starts_with("::"))
            };
            if let Some(outside) = OUTSIDE.iter().find(within) {
                out.push(finding(named.line, outside));
            } else if let [.., of, "now"] = named.path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                out.push(finding(named.line, &format!("{of}::now")));
            }
        }
        out.extend(
            code.iter()
                .filter(|t| t.text == "async" && t.kind == crate::Kind::Word)
                .map(|t| finding(t.line, "async")),
        );
    }
    out.sort();
    out
}
