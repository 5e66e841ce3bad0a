//! The definitions of the columns of Tables.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use api::Text;
use kinds::columns::{Column, Description, Shown};
use serde_json::{Value, json};

use super::openapi::Documents;
use super::resources::Resources;

/// The texts of fields that columns show, by definition and field. They are collected for the first Table.
pub(super) struct Descriptions {
    documents: Arc<dyn Documents>,
    texts: OnceLock<HashMap<(Text, Text), String>>,
}

impl Descriptions {
    /// Of the fields that these documents describe.
    pub(super) fn new(documents: Arc<dyn Documents>) -> Self {
        Self { documents, texts: OnceLock::new() }
    }
    fn texts(&self, resources: &Resources) -> &HashMap<(Text, Text), String> {
        self.texts.get_or_init(|| {
            let own = resources.iter().flat_map(|r| r.strategy.facts().columns.clone());
            let subresources = resources.iter().flat_map(|r| &r.subresources);
            let all = own.chain(subresources.flat_map(|s| Shown::of(&s.kind).columns));
            let fields: HashSet<(Text, Text)> = all
                .filter_map(|column| match column.description {
                    Description::Field { definition, field } => Some((definition, field)),
                    Description::Text(_) => None,
                })
                .collect();
            let names: Vec<_> = fields.iter().map(|(d, f)| (d.as_str(), f.as_str())).collect();
            let mut texts = self.documents.describe(&names).into_iter();
            fields
                .into_iter()
                .map(|field| {
                    let mut text = texts.next().unwrap_or_default();
                    // Columns have the text of the field's type, without the values that OpenAPI adds.
                    text.truncate(text.find("\n\nPossible enum values:").unwrap_or(text.len()));
                    (field, text)
                })
                .collect()
        })
    }
    /// `columnDefinitions` of a Table.
    pub(super) fn definitions(&self, resources: &Resources, columns: &[Column]) -> Value {
        let texts = self.texts(resources);
        columns
            .iter()
            .map(|c| {
                let text = match &c.description {
                    Description::Text(text) => text.as_str(),
                    Description::Field { definition, field } => {
                        texts.get(&(definition.clone(), field.clone())).map_or("", String::as_str)
                    }
                };
                json!({
                    "name": c.name.as_str(),
                    "type": c.kind.as_str(),
                    "format": c.format.as_str(),
                    "description": text,
                    "priority": c.priority,
                })
            })
            .collect()
    }
}
