//! The committed table of resources, and what of it decides which packages get views.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::model::Model;

const HEADER: &str = "group\tversion\tresource\tkind\tsingular\tnamespaced\tshortNames\tcategories\tverbs\tsubresources\tserved\tgate\tstorage";

/// The columns of a row.
struct Row<'a>(Vec<&'a str>);

impl<'a> Row<'a> {
    fn at(&self, i: usize) -> &'a str {
        self.0.get(i).copied().unwrap_or_default()
    }
}

fn rows(table: &str) -> impl Iterator<Item = Row<'_>> {
    table.lines().skip(1).map(|l| Row(l.split('\t').collect()))
}

/// Every group and version of the table.
pub(super) fn versions(table: &str) -> BTreeSet<(String, String)> {
    rows(table).map(|r| (r.at(0).to_owned(), r.at(1).to_owned())).collect()
}

/// The table as committed: the gate alone instead of how to switch it on, and the storage version
/// as `[group/]version` of a row of the table.
pub(super) fn normalised(table: &str) -> Result<String> {
    let mut out = String::from(HEADER);
    out.push('\n');
    let known: BTreeSet<(&str, &str, &str)> = rows(table).map(|r| (r.at(0), r.at(2), r.at(1))).collect();
    for r in rows(table) {
        let gate = match r.at(11).split_once(" + ") {
            Some((_, gate)) => gate,
            None if r.at(11).starts_with("--") => "",
            None => r.at(11),
        };
        let storage = match r.at(12) {
            "v1 (core group)" => "core/v1",
            "" => "",
            v if known.contains(&(r.at(0), r.at(2), v)) || v.contains('/') => v,
            // A version that is stored but not served: the served one holds the same.
            _ => r.at(1),
        };
        let served = if r.at(10) == "y" { "y" } else { "n" };
        let columns = [&r.0[..10], &[served, gate, storage]].concat();
        out.push_str(&columns.join("\t"));
        out.push('\n');
    }
    Ok(out)
}

/// Aliases of the packages whose kinds the server works with: those served by default, those stored,
/// and those of the API's own machinery.
pub(super) fn with_views(table: &str, model: &Model) -> Result<BTreeSet<String>> {
    let mut out: BTreeSet<String> = BTreeSet::from(["meta_v1".into(), "admission_v1".into()]);
    for r in rows(table).filter(|r| r.at(10) == "y" || r.at(12) == r.at(1)) {
        let api = model
            .apis
            .values()
            .find(|a| a.gv.as_ref().is_some_and(|(g, v)| g == r.at(0) && v == r.at(1)))
            .with_context(|| format!("no package for {}/{}", r.at(0), r.at(1)))?;
        out.insert(api.alias.clone());
    }
    Ok(out)
}
