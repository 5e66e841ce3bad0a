//! This checkout keeps every promise.

use std::path::Path;

use tidy::{RULES, Workspace};

#[test]
fn every_promise_is_kept() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace =
        Workspace::read(here.ancestors().nth(2).unwrap_or(here)).expect("the checkout can be read");
    for rule in RULES {
        let found: Vec<String> = (rule.check)(&workspace).iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}\n{}", rule.promise, found.join("\n"));
    }
}
