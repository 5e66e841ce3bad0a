//! The feature gates of v1.36 as Rust: an enum, and what the committed table says of each.

use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::model::Model;

/// Gates in markers that v1.36 does not have, so that they never drop a field: one is removed, and one was never there
/// (the field's gate is `PodCertificateRequest`, which a rule of Pods asks).
const NOT_THERE: [&str; 2] = ["CSIStorageCapacity", "PodCertificateProjection"];

/// The text of `gate/table.rs`, from the table of gates.
pub(super) fn source(table: &str) -> Result<String> {
    let rows = table.lines().skip(1).map(row).collect::<Result<Vec<Row<'_>>>>()?;
    let mut out = String::from(
        "//! The feature gates of v1.36. `cargo xtask schema` writes this file from `schema/feature-gates.tsv`.\n\n\
         use super::row::{Row, Stage, row};\n\n\
         /// A feature gate of v1.36.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n\
         #[allow(missing_docs, reason = \"upstream describes its gates\")]\n\
         pub enum Gate {\n",
    );
    for row in &rows {
        let _ = writeln!(out, "    {},", row.name);
    }
    let _ = write!(
        out,
        "}}\n\n/// The rows of the table, in the order of [`Gate`], with the gates that each requires.\n#[rustfmt::skip]\n\
         pub(super) const TABLE: [(Gate, Row, &[Gate]); {}] = [\n",
        rows.len()
    );
    for Row { name, default, stage, locked, requires } in &rows {
        if let Some(unknown) = requires.iter().find(|r| rows.iter().all(|row| row.name != **r)) {
            bail!("{name} requires {unknown}, which is no gate");
        }
        let requires: Vec<String> = requires.iter().map(|r| format!("Gate::{r}")).collect();
        let _ = writeln!(
            out,
            "    (Gate::{name}, row({name:?}, {default}, Stage::{stage}, {locked}), &[{}]),",
            requires.join(", ")
        );
    }
    out.push_str("];\n");
    Ok(out)
}

/// Checks the gates of fields against the table, and leaves out those that are not there.
pub(super) fn of_fields(model: &mut Model, table: &str) -> Result<()> {
    let names: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    let structs = model.apis.values_mut().flat_map(|api| api.structs.values_mut());
    for field in structs.flat_map(|s| &mut s.fields) {
        let Some(gates) = &field.gate else { continue };
        if NOT_THERE.contains(&gates.as_str()) {
            field.gate = None;
        } else if let Some(unknown) = gates.split(',').find(|g| !names.contains(g)) {
            bail!("the field {} has the gate {unknown}, which v1.36 does not have", field.json);
        }
    }
    Ok(())
}

struct Row<'a> {
    name: &'a str,
    default: bool,
    stage: &'a str,
    locked: bool,
    requires: Vec<&'a str>,
}

fn row(line: &str) -> Result<Row<'_>> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [name, default, stage, locked, requires] = columns[..] else {
        bail!("a row of gates has five columns: {line:?}");
    };
    Ok(Row {
        name,
        default: default.parse().with_context(|| format!("the default of {name}"))?,
        stage: match stage {
            "GA" => "Stable",
            other => other,
        },
        locked: locked == "y",
        requires: requires.split(',').filter(|r| !r.is_empty()).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

    use super::*;

    #[test]
    fn rows_are_read_or_refused() {
        let check = |rows: &str, expected: Result<&str, &str>| {
            let got = source(&format!("gate\tdefault\tstage\tlocked\trequires\n{rows}"));
            match (got, expected) {
                (Ok(got), Ok(expected)) => assert!(got.contains(expected), "{got}"),
                (got, expected) => assert_eq!(got.unwrap_err().to_string(), expected.unwrap_err(), "{rows}"),
            }
        };
        check(
            "A\ttrue\tGA\ty\t\nB\tfalse\tAlpha\tn\tA\n",
            Ok("    (Gate::B, row(\"B\", false, Stage::Alpha, false), &[Gate::A]),\n];\n"),
        );
        check("A\ttrue\tGA\ty\tC\n", Err("A requires C, which is no gate"));
        check("A\tyes\tGA\ty\t\n", Err("the default of A"));
        check("A\ttrue\n", Err("a row of gates has five columns: \"A\\ttrue\""));
    }
}
