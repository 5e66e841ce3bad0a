//! The columns of a definition.

use api::view::View;
use api::{Map, Node, Schema, Struct, Text};
use jiff::Timestamp;
use serde_json::Value;

use super::definition::PrinterColumn;
use super::json_path::JsonPath;
use super::object::whole;
use crate::columns::{Column, Description, Row, age_description, name_column, since};

/// The columns of a version, with the paths of their values.
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    cells: Vec<(Text, JsonPath)>,
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
            cells.push((column.kind.clone(), path));
        }
        Self { columns, cells }
    }

    /// The row of an object.
    pub(super) fn row(&self, schema: &Schema, tree: &Struct, values: &Map, now: Timestamp) -> Row {
        let name = View::new(schema, tree).st("metadata").str("name");
        let mut cells = vec![Value::from(name)];
        let needs_meta = |p: &JsonPath| p.names().is_none_or(|n| n.first() == Some(&"metadata"));
        // Most columns need no more than the definition's values.
        let whole = self.cells.iter().any(|(_, p)| needs_meta(p)).then(|| whole(schema, tree));
        for (kind, path) in &self.cells {
            let found = match &whole {
                Some(whole) if needs_meta(path) => path.find(whole),
                _ => path.find(values),
            };
            cells.push(found.first().map_or(Value::Null, |value| cell(kind, value, now)));
        }
        Row { cells, conditions: Vec::new() }
    }
}

fn cell(kind: &str, value: &Node, now: Timestamp) -> Value {
    match (kind, value) {
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
