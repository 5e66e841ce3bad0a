//! Tables for kubectl: columns and rows.

use std::collections::{HashMap, HashSet};

use api::schema::Gvk;
use api::{Object, Status, Struct, Text};
use bytes::Bytes;
use kinds::Strategy;
use kinds::columns::{Column, Description, Shown};
use serde_json::{Value, json};

use crate::answer::{self, List};
use crate::codec;
use crate::inner::Inner;
use crate::negotiate::{IncludeObject, MetaVersion};
use crate::registry::Resource;

/// The texts of fields that columns show, by definition and field: collected for the first Table.
pub(crate) type Descriptions = HashMap<(Text, Text), String>;

fn descriptions(inner: &Inner) -> &Descriptions {
    inner.column_descriptions.get_or_init(|| {
        let own = inner.registry.iter().flat_map(|r| r.strategy.facts().columns.clone());
        let subresources = inner.registry.iter().flat_map(|r| &r.subresources);
        let all = own.chain(subresources.flat_map(|s| Shown::of(&s.kind).columns));
        let fields: HashSet<(Text, Text)> = all
            .filter_map(|column| match column.description {
                Description::Field { definition, field } => Some((definition, field)),
                Description::Text(_) => None,
            })
            .collect();
        let names: Vec<_> = fields.iter().map(|(d, f)| (d.as_str(), f.as_str())).collect();
        let told = inner.openapi.get().map_or_else(Vec::new, |d| d.describe(&names));
        let mut told = told.into_iter();
        fields
            .into_iter()
            .map(|field| {
                let mut text = told.next().unwrap_or_default();
                // Columns have the text of the field's type, without the values that OpenAPI adds.
                text.truncate(text.find("\n\nPossible enum values:").unwrap_or(text.len()));
                (field, text)
            })
            .collect()
    })
}

fn definitions(inner: &Inner, columns: &[Column]) -> Value {
    let texts = descriptions(inner);
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

/// How a Table is asked for.
#[derive(Clone, Copy)]
pub(crate) struct TableForm {
    /// The version of the Table's kind.
    pub(crate) version: MetaVersion,
    /// What of each object stands in its row.
    pub(crate) include: IncludeObject,
    /// Whether the columns stand in it.
    pub(crate) headers: bool,
}

/// What makes rows.
enum Rows<'a> {
    Of(&'a dyn Strategy),
    Shown(Shown),
}

struct Builder<'a> {
    inner: &'a Inner,
    rows: Rows<'a>,
    form: TableForm,
    now: jiff::Timestamp,
    out: Vec<u8>,
    count: usize,
}

impl<'a> Builder<'a> {
    fn new(inner: &'a Inner, rows: Rows<'a>, form: TableForm, meta: &str) -> Self {
        let columns = match &rows {
            Rows::Of(strategy) => &strategy.facts().columns,
            Rows::Shown(shown) => &shown.columns,
        };
        let definitions = if form.headers { definitions(inner, columns).to_string() } else { "null".into() };
        let out = format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"columnDefinitions\":{definitions},\"rows\":[",
            form.version.api_version()
        );
        let now = inner.config.clock.now();
        Self { inner, rows, form, now, out: out.into_bytes(), count: 0 }
    }
    fn row(&mut self, tree: &Struct, object: &[u8]) {
        if self.count > 0 {
            self.out.push(b',');
        }
        self.count += 1;
        let row = match &self.rows {
            Rows::Of(strategy) => strategy.row(self.inner.schema, tree, self.now),
            Rows::Shown(shown) => (shown.row)(self.inner.schema, tree, self.now),
        };
        self.out.extend_from_slice(b"{\"cells\":");
        self.out.extend_from_slice(Value::Array(row.cells).to_string().as_bytes());
        if !row.conditions.is_empty() {
            self.out.extend_from_slice(b",\"conditions\":");
            self.out.extend_from_slice(Value::Array(row.conditions).to_string().as_bytes());
        }
        self.out.extend_from_slice(b",\"object\":");
        self.out.extend_from_slice(object);
        self.out.push(b'}');
    }
    fn stored(&mut self, resource: &Resource, object: &Object) -> Result<(), Status> {
        // DIFFERENCE: upstream shows no Table that has an object which cannot be read, so that people do not see the
        // others, either. Here its row has what is known: its name.
        let tree = match self.inner.stored_tree(resource, object) {
            Ok(tree) => tree,
            Err(_) => self.inner.outline(resource, object)?,
        };
        let partial = || answer::partial_json(resource, object, self.form.version.api_version());
        let bytes = match self.form.include {
            IncludeObject::None => Bytes::from_static(b"null"),
            IncludeObject::Metadata => partial(),
            IncludeObject::Object => {
                answer::object_json(self.inner, resource, object).unwrap_or_else(|_| partial())
            }
        };
        self.row(&tree, &bytes);
        Ok(())
    }
    fn finish(mut self) -> Bytes {
        self.out.extend_from_slice(b"]}");
        self.out.into()
    }
}

/// A Table of stored objects; its metadata holds the revision of a single one.
pub(crate) fn of_objects(
    inner: &Inner,
    resource: &Resource,
    objects: &[impl std::borrow::Borrow<Object>],
    form: TableForm,
) -> Result<Bytes, Status> {
    let meta = match objects {
        [one] => format!("{{\"resourceVersion\":\"{}\"}}", one.borrow().revision),
        _ => "{}".into(),
    };
    let mut builder = Builder::new(inner, Rows::Of(&*resource.strategy), form, &meta);
    for object in objects {
        builder.stored(resource, object.borrow())?;
    }
    Ok(builder.finish())
}

/// A Table of a list.
pub(crate) fn of_list(inner: &Inner, list: &List, meta: &str, form: TableForm) -> Result<Bytes, Status> {
    let mut builder = Builder::new(inner, Rows::Of(&*list.resource.strategy), form, meta);
    for object in list.in_time() {
        builder.stored(&list.resource, object?)?;
    }
    Ok(builder.finish())
}

/// A Table of trees of a kind that are not stored like this.
pub(crate) fn of_trees(
    inner: &Inner,
    resource: Option<&Resource>,
    kind: &Gvk,
    trees: &[Struct],
    form: TableForm,
) -> Bytes {
    let rows = resource.map_or_else(|| Rows::Shown(Shown::of(kind)), |r| Rows::Of(&*r.strategy));
    let mut builder = Builder::new(inner, rows, form, "{}");
    for tree in trees {
        let object = match form.include {
            IncludeObject::None => Bytes::from_static(b"null"),
            IncludeObject::Object => {
                let type_meta =
                    format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
                codec::json_with(inner.schema, type_meta.as_bytes(), tree)
            }
            IncludeObject::Metadata => answer::partial_of_tree(inner, tree, form.version.api_version()),
        };
        builder.row(tree, &object);
    }
    builder.finish()
}

/// A bookmark of a watch.
pub(crate) struct Bookmark<'a> {
    /// The revision that it tells.
    pub(crate) revision: u64,
    /// The object in it.
    pub(crate) tree: &'a Struct,
    /// That object's metadata alone.
    pub(crate) partial: &'a [u8],
    /// Whether it closes the initial state.
    pub(crate) initial_end: bool,
}

/// The Table of a bookmark: one row whose object tells the revision, if objects are included at all.
pub(crate) fn bookmark(inner: &Inner, resource: &Resource, of: &Bookmark<'_>, form: TableForm) -> Bytes {
    let meta = format!("{{\"resourceVersion\":\"{}\"}}", of.revision);
    let mut builder = Builder::new(inner, Rows::Of(&*resource.strategy), form, &meta);
    let full;
    let object: &[u8] = match form.include {
        IncludeObject::None if !of.initial_end => b"null",
        IncludeObject::Object => {
            full = codec::json_with(inner.schema, &resource.type_meta, of.tree);
            &full
        }
        _ => of.partial,
    };
    builder.row(of.tree, object);
    builder.finish()
}
