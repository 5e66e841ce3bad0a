//! The columns of a definition.

use api::view::View;
use api::{Map, Node, Schema, Struct, Text};
use jiff::Timestamp;
use serde_json::Value;

use super::definition::PrinterColumn;
use super::json_path::JsonPath;
use super::object::{metadata, whole};
use crate::columns::{Column, Description, Row, age_description, name_column, since};

/// The columns of a version, with the paths of their values.
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    cells: Vec<Cell>,
    /// Whether a path may lead into anything.
    needs_whole: bool,
    /// Whether a path leads into the metadata.
    needs_meta: bool,
}

/// A column's value.
struct Cell {
    kind: Text,
    path: JsonPath,
    reads: Reads,
}

/// The part of an object that a path reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// The values that the definition describes.
    Values,
    Meta,
    Whole,
}

impl Table {
    /// Of the columns of a definition; only the name if one of their paths is none, as upstream does.
    pub(super) fn new(printer: &[PrinterColumn]) -> Self {
        let age = PrinterColumn {
            name: "Age".into(),
            kind: "date".into(),
            format: Text::default(),
            description: age_description().into(),
            priority: 0,
            path: ".metadata.creationTimestamp".into(),
        };
        let usual = [age];
        let printer = if printer.is_empty() { &usual } else { printer };
        let mut columns = vec![name_column()];
        let mut cells = Vec::new();
        for column in printer {
            let Ok(path) = JsonPath::parse(&column.path) else { break };
            let description = match column.description.as_str() {
                "" => Text::from(format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.path
                )),
                text => text.into(),
            };
            columns.push(Column {
                name: column.name.clone(),
                kind: column.kind.clone(),
                format: column.format.clone(),
                description: Description::Text(description),
                priority: column.priority,
            });
            let reads = match path.first() {
                Some("metadata") => Reads::Meta,
                Some("kind" | "apiVersion") | None => Reads::Whole,
                Some(_) => Reads::Values,
            };
            cells.push(Cell { kind: column.kind.clone(), path, reads });
        }
        let any = |reads: Reads| cells.iter().any(|c| c.reads == reads);
        Self { needs_whole: any(Reads::Whole), needs_meta: any(Reads::Meta), columns, cells }
    }

    /// The row of an object.
    pub(super) fn row(&self, schema: &Schema, tree: &Struct, values: &Map, now: Timestamp) -> Row {
        let name = View::new(schema, tree).st("metadata").str("name");
        let mut cells = vec![Value::from(name)];
        // Most columns need no more than the definition's values.
        let of_whole = self.needs_whole.then(|| whole(schema, tree));
        let of_meta = self.needs_meta.then(|| metadata(schema, tree));
        for cell in &self.cells {
            let of = match cell.reads {
                Reads::Values => Some(values),
                Reads::Meta => of_meta.as_ref(),
                Reads::Whole => of_whole.as_ref(),
            };
            let found = of.map(|of| cell.path.find(of)).unwrap_or_default();
            cells.push(found.first().map_or(Value::Null, |value| shown(&cell.kind, value, now)));
        }
        Row { cells, conditions: Vec::new() }
    }
}

fn shown(kind: &str, value: &Node, now: Timestamp) -> Value {
    match (kind, value) {
        // Upstream's printer of texts says so.
        ("string", Node::Null) => "<no value>".into(),
        (_, Node::Null) => Value::Null,
        ("string", Node::Str(s)) => s.as_str().into(),
        ("string", other) => api::go::scalar_json(other).into(),
        ("integer", Node::Int(i)) => (*i).into(),
        ("integer", Node::Float(f)) => (*f as i64).into(),
        ("number", Node::Int(i)) => (*i).into(),
        ("number", Node::Float(f)) => (*f).into(),
        ("boolean", Node::Bool(b)) => (*b).into(),
        ("date", Node::Str(s)) => match api::time::parse(s) {
            Some(_) => since(s, now).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Upstream's `Test_cellForJSONValue`, and what its printer makes of texts.
    #[test]
    fn cells() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let check = |kind: &str, value: Value, expected: Value| {
            let node = api::codec::json::decode_any(value.to_string().as_bytes()).unwrap();
            assert_eq!(shown(kind, &node, now), expected, "{kind} {value}");
        };
        check("integer", json!(42), json!(42));
        check("integer", json!(3.25), json!(3));
        for other in [json!(true), json!("foo"), json!(null), json!([])] {
            check("integer", other.clone(), json!(null));
            check("number", other, json!(null));
        }
        check("number", json!(3.25), json!(3.25));
        check("boolean", json!(true), json!(true));
        check("boolean", json!("true"), json!(null));
        check("string", json!("foo"), json!("foo"));
        check("string", json!(42), json!("42"));
        check("string", json!(true), json!("true"));
        check("string", json!({"a": [1, "x"]}), json!(r#"{"a":[1,"x"]}"#));
        check("string", json!(null), json!("<no value>"));
        check("date", json!("2026-01-01T00:00:00Z"), json!("60s"));
        check("date", json!("foo"), json!("<invalid>"));
        check("date", json!(1), json!(null));
    }
}
