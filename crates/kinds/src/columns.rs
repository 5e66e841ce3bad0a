//! The columns in which kubectl shows a kind, as upstream's printers define them.

use api::{Schema, Struct};
use jiff::Timestamp;
use serde_json::Value;

use crate::access::View;

/// A column of a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer`, `date`.
    pub kind: &'static str,
    /// OpenAPI format; `name` marks the object's name.
    pub format: &'static str,
    /// What it tells.
    pub description: &'static str,
    /// 0 is always shown, above only in wide output.
    pub priority: i32,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// The cells, in the order of the columns.
    pub cells: Vec<Value>,
    /// `TableRowCondition`s, such as a Pod's `Completed`.
    pub conditions: Vec<Value>,
}

/// How a resource is shown. Trees are of the storage version.
pub struct Columns {
    /// The columns.
    pub definitions: &'static [Column],
    /// A row of an object at a point in time.
    pub cells: fn(&Schema, &Struct, Timestamp) -> Row,
}

/// The column with an object's name.
pub const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

static FALLBACK: Columns = Columns {
    definitions: &[
        NAME,
        Column {
            name: "Created At",
            kind: "date",
            format: "",
            description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
            priority: 0,
        },
    ],
    cells: |schema, tree, _| {
        let meta = View::new(schema, tree).st("metadata");
        let created = meta.str("creationTimestamp");
        let created = if created.is_empty() { "<unknown>" } else { created };
        Row { cells: vec![meta.str("name").into(), created.into()], conditions: Vec::new() }
    },
};

/// The columns of a kind without a printer of its own.
pub fn fallback() -> &'static Columns {
    &FALLBACK
}

/// The columns of a resource.
pub fn columns(_group: &str, _resource: &str) -> &'static Columns {
    fallback()
}
