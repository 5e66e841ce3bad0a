//! `cargo xtask tidy`: checks what the project's prose promises of its code.
//!
//! A [`Rule`] is a name, the promise that it checks, a function from the [`Workspace`] to the places that break the
//! promise, and a fixture: the smallest workspace that breaks it, with the words that must come of it. A test takes
//! every rule's fixture, so a rule that finds nothing anywhere is no rule.
//!
//! # A new rule
//!
//! 1. A file beside `purity.rs` with `pub(crate) const RULE: Rule`. Its check reads [`File::tokens`] (Rust without
//!    comments, whose strings are whole tokens), [`File::comments`] or [`Workspace::text`] (any other file, such as
//!    a table). [`File::code`] leaves out the code that only tests compile.
//! 2. Its line in [`RULES`].
//! 3. `cargo test -p tidy`, then `cargo xtask tidy`.
//!
//! A rule that the code does not keep everywhere yet takes the exceptions from a list beside it, as `circles.txt` is,
//! and finds fault with an exception that is no longer one: the list only gets shorter.

mod circles;
mod edges;
mod paths;
mod plurals;
mod purity;
mod suites;
mod tokens;
mod words;
mod workspace;

pub use circles::circles;
pub use tokens::{Comment, Kind, Token};
pub use workspace::{File, Workspace};

use std::fmt;

/// Every rule, in the order in which they are run.
pub const RULES: &[Rule] =
    &[edges::RULE, purity::RULE, suites::RULE, plurals::RULE, circles::RULE, words::RULE];

/// A promise and its check.
pub struct Rule {
    /// The rule's name.
    pub name: &'static str,
    /// The promise, in one sentence.
    pub promise: &'static str,
    /// Finds the places that break the promise.
    pub check: fn(&Workspace) -> Vec<Finding>,
    /// The smallest workspace that breaks it: paths and contents.
    pub broken: &'static [(&'static str, &'static str)],
    /// The findings in `broken`, as they are printed.
    pub found: &'static [&'static str],
}

/// A place that breaks a promise.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the checkout.
    pub path: String,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// The fault.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_finds_what_breaks_it() {
        for rule in RULES {
            let found = (rule.check)(&Workspace::of(rule.broken));
            let found: Vec<String> = found.iter().map(Finding::to_string).collect();
            assert!(!found.is_empty(), "{} has no fixture that breaks it", rule.name);
            assert_eq!(found, rule.found, "{}", rule.name);
        }
    }
}
