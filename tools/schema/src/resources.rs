//! The committed table of resources.

use std::collections::BTreeSet;

use anyhow::Result;

const HEADER: &str = "group\tversion\tresource\tkind\tsingular\tnamespaced\tshortNames\tcategories\tverbs\tsubresources\tserved\tgate\tstorage\treturnsDeleted";

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

/// The table as committed: with the gate alone instead of the way to switch it on, and the storage version as
/// `[group/]version` of a row of the table.
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
            // The version is stored but not served: the served one holds the same.
            _ => r.at(1),
        };
        let served = if r.at(10) == "y" { "y" } else { "n" };
        let columns = [&r.0[..10], &[served, gate, storage, r.at(13)]].concat();
        out.push_str(&columns.join("\t"));
        out.push('\n');
    }
    Ok(out)
}
