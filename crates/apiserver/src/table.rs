//! Tables for kubectl: columns and rows.

use std::collections::HashMap;

use api::schema::Gvk;
use api::{Object, Status, Struct};
use bytes::Bytes;
use kinds::columns::{self, Columns, Description};
use serde_json::{Value, json};

use crate::answer::{self, List};
use crate::codec;
use crate::inner::Inner;
use crate::negotiate::{IncludeObject, MetaVersion};
use crate::registry::Resource;

/// The group and plural name under which a resource's rules stand.
fn place(resource: &Resource) -> (&str, &str) {
    resource.stored.as_ref().map_or((resource.group.as_str(), resource.plural.as_str()), |s| {
        (s.group.as_str(), s.plural.as_str())
    })
}

/// The texts of the columns that have one, by resource and column: collected for the first Table.
pub(crate) type Descriptions = HashMap<(&'static str, &'static str), String>;

fn descriptions(inner: &Inner) -> &Descriptions {
    inner.column_descriptions.get_or_init(|| {
        let all: Vec<_> = columns::descriptions().collect();
        let fields: Vec<_> = all
            .iter()
            .map(|(_, _, d)| match *d {
                Description::Field { definition, field } => (definition, field),
                Description::Text(_) => ("", ""),
            })
            .collect();
        let told = inner.openapi.get().map_or_else(Vec::new, |d| d.describe(&fields));
        let mut told = told.into_iter();
        all.into_iter()
            .map(|(resource, column, d)| {
                let mut field = told.next().unwrap_or_default();
                // Columns have the text of the field's type, without the values that OpenAPI adds.
                field.truncate(field.find("\n\nPossible enum values:").unwrap_or(field.len()));
                let text = match d {
                    Description::Text(t) => t.replace("\\n", "\n"),
                    Description::Field { .. } => field,
                };
                ((resource, column), text)
            })
            .collect()
    })
}

fn definitions(inner: &Inner, resource: Option<&Resource>, columns: &Columns) -> Value {
    let texts: &HashMap<(&str, &str), String> = descriptions(inner);
    let plural = resource.map_or("", |r| place(r).1);
    columns
        .definitions
        .iter()
        .map(|d| {
            let text = if d.description.is_empty() {
                texts.get(&(plural, d.name)).map_or("", String::as_str)
            } else {
                d.description
            };
            json!({
                "name": d.name,
                "type": d.kind,
                "format": d.format,
                "description": text,
                "priority": d.priority,
            })
        })
        .collect()
}

struct Builder<'a> {
    inner: &'a Inner,
    columns: &'static Columns,
    version: MetaVersion,
    include: IncludeObject,
    now: jiff::Timestamp,
    out: Vec<u8>,
    rows: usize,
}

impl<'a> Builder<'a> {
    fn new(
        inner: &'a Inner,
        resource: Option<&Resource>,
        version: MetaVersion,
        include: IncludeObject,
        meta: &str,
        headers: bool,
    ) -> Self {
        let columns = resource.map_or(columns::fallback(), |r| {
            let (group, plural) = place(r);
            columns::columns(group, plural)
        });
        let definitions =
            if headers { definitions(inner, resource, columns).to_string() } else { "null".into() };
        let out = format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"columnDefinitions\":{definitions},\"rows\":[",
            version.api_version()
        );
        let now = inner.config.clock.now();
        Self { inner, columns, version, include, now, out: out.into_bytes(), rows: 0 }
    }
    fn row(&mut self, tree: &Struct, object: &[u8]) {
        if self.rows > 0 {
            self.out.push(b',');
        }
        self.rows += 1;
        let row = (self.columns.cells)(self.inner.schema, tree, self.now);
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
        let partial = || answer::partial_json(resource, object, self.version.api_version());
        let bytes = match self.include {
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
    version: MetaVersion,
    include: IncludeObject,
    headers: bool,
) -> Result<Bytes, Status> {
    let meta = match objects {
        [one] => format!("{{\"resourceVersion\":\"{}\"}}", one.borrow().revision),
        _ => "{}".into(),
    };
    let mut builder = Builder::new(inner, Some(resource), version, include, &meta, headers);
    for object in objects {
        builder.stored(resource, object.borrow())?;
    }
    Ok(builder.finish())
}

/// A Table of a list.
pub(crate) fn of_list(
    inner: &Inner,
    list: &List,
    meta: &str,
    version: MetaVersion,
    include: IncludeObject,
) -> Result<Bytes, Status> {
    let mut builder = Builder::new(inner, Some(&list.resource), version, include, meta, true);
    for object in list.in_time() {
        builder.stored(&list.resource, object?)?;
    }
    Ok(builder.finish())
}

/// A Table of trees that are not stored like this.
pub(crate) fn of_trees(
    inner: &Inner,
    resource: Option<&Resource>,
    kind: &Gvk,
    trees: &[Struct],
    version: MetaVersion,
    include: IncludeObject,
) -> Bytes {
    let mut builder = Builder::new(inner, resource, version, include, "{}", true);
    for tree in trees {
        let object = match include {
            IncludeObject::None => Bytes::from_static(b"null"),
            IncludeObject::Object => {
                let type_meta =
                    format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
                codec::json_with(inner.schema, type_meta.as_bytes(), tree)
            }
            IncludeObject::Metadata => answer::partial_of_tree(inner, tree, version.api_version()),
        };
        builder.row(tree, &object);
    }
    builder.finish()
}

/// The Table of a bookmark: one row whose object tells the revision, if objects are included at all.
#[allow(clippy::too_many_arguments, reason = "one caller")]
pub(crate) fn bookmark(
    inner: &Inner,
    resource: &Resource,
    revision: u64,
    tree: &Struct,
    partial: &[u8],
    version: MetaVersion,
    include: IncludeObject,
    initial_end: bool,
    headers: bool,
) -> Bytes {
    let meta = format!("{{\"resourceVersion\":\"{revision}\"}}");
    let mut builder = Builder::new(inner, Some(resource), version, include, &meta, headers);
    let full;
    let object: &[u8] = match include {
        IncludeObject::None if !initial_end => b"null",
        IncludeObject::Object => {
            full = codec::json_with(inner.schema, &resource.type_meta, tree);
            &full
        }
        _ => partial,
    };
    builder.row(tree, object);
    builder.finish()
}
