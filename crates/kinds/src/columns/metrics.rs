//! The use of resources by nodes and Pods, in metrics-server's columns.

use api::quantity::Quantity;
use api::view::View;
use serde_json::Value;

use super::{Columns, Definition, NAME, Row};

/// The resources that are measured, in the order of their columns.
const MEASURED: [&str; 3] = ["cpu", "memory", "swap"];

const fn used(name: &'static str) -> Definition {
    Definition { name, kind: "string", format: "quantity", description: "", priority: 0 }
}

const DEFINITIONS: &[Definition] = &[
    Definition { description: "Name of the resource", ..NAME },
    used("cpu"),
    used("memory"),
    used("swap"),
    Definition { name: "Window", kind: "string", format: "duration", description: "", priority: 0 },
];

pub(crate) const NODE: &Columns = &Columns {
    definitions: DEFINITIONS,
    cells: |schema, tree, _| {
        let object = View::new(schema, tree);
        row(&object, &[object])
    },
};

pub(crate) const POD: &Columns = &Columns {
    definitions: DEFINITIONS,
    cells: |schema, tree, _| {
        let object = View::new(schema, tree);
        let containers: Vec<View<'_>> = object.items("containers").collect();
        row(&object, &containers)
    },
};

/// A row: the sums of what the parts use.
fn row(object: &View<'_>, parts: &[View<'_>]) -> Row {
    let mut cells = vec![Value::from(object.st("metadata").str("name"))];
    cells.extend(MEASURED.map(|resource| {
        let amounts = parts.iter().flat_map(|part| part.texts("usage"));
        let amounts = amounts.filter(|(name, _)| *name == resource);
        let mut sum: Option<Quantity> = None;
        for amount in amounts.filter_map(|(_, amount)| Quantity::parse(amount).ok()) {
            match &mut sum {
                Some(sum) => sum.add(&amount),
                None => sum = Some(amount),
            }
        }
        Value::from(sum.unwrap_or_default().to_string())
    }));
    cells.push(object.str("window").into());
    Row { cells, conditions: Vec::new() }
}
