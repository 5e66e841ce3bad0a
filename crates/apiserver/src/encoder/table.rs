//! Tables for kubectl: columns and rows.

use api::schema::Gvk;
use api::{Object, Status, Struct};
use bytes::Bytes;
use kinds::Strategy;
use kinds::columns::Shown;
use serde_json::Value;

use super::object::{Encoder, object_json, partial_json, partial_of_tree};
use crate::catalog::ResourceEntry;
use crate::codec;
use crate::negotiate::{IncludeObject, MetaVersion};
use crate::outcome::List;

/// How a Table is asked for.
#[derive(Clone, Copy)]
pub(crate) struct TableForm {
    /// The version of the Table's kind.
    pub(crate) version: MetaVersion,
    /// The part of each object that stands in its row.
    pub(crate) include: IncludeObject,
    /// Whether the columns stand in it.
    pub(crate) headers: bool,
}

/// The maker of rows.
enum Rows<'a> {
    Of(&'a dyn Strategy),
    Shown(Shown),
}

struct Builder<'a> {
    encoder: &'a Encoder,
    rows: Rows<'a>,
    form: TableForm,
    now: jiff::Timestamp,
    out: Vec<u8>,
    count: usize,
}

impl<'a> Builder<'a> {
    fn new(encoder: &'a Encoder, rows: Rows<'a>, form: TableForm, meta: &str) -> Self {
        let columns = match &rows {
            Rows::Of(strategy) => &strategy.facts().columns,
            Rows::Shown(shown) => &shown.columns,
        };
        let definitions = if form.headers {
            encoder.catalog.column_definitions(columns).to_string()
        } else {
            "null".into()
        };
        let out = format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"columnDefinitions\":{definitions},\"rows\":[",
            form.version.api_version()
        );
        let now = encoder.clock.now();
        Self { encoder, rows, form, now, out: out.into_bytes(), count: 0 }
    }
    fn row(&mut self, tree: &Struct, object: &[u8]) {
        if self.count > 0 {
            self.out.push(b',');
        }
        self.count += 1;
        let row = match &self.rows {
            Rows::Of(strategy) => strategy.row(self.encoder.catalog.schema(), tree, self.now),
            Rows::Shown(shown) => (shown.row)(self.encoder.catalog.schema(), tree, self.now),
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
    fn stored(&mut self, resource: &ResourceEntry, object: &Object) -> Result<(), Status> {
        // DIFFERENCE: upstream shows no Table that has an object which cannot be read, so that people do not see the
        // others, either. Here its row has what is known: its name.
        let tree = match self.encoder.catalog.stored_tree(resource, object) {
            Ok(tree) => tree,
            Err(_) => self.encoder.catalog.outline(resource, object)?,
        };
        let partial = || partial_json(resource, object, self.form.version.api_version());
        let bytes = match self.form.include {
            IncludeObject::None => Bytes::from_static(b"null"),
            IncludeObject::Metadata => partial(),
            IncludeObject::Object => {
                object_json(&self.encoder.catalog, resource, object).unwrap_or_else(|_| partial())
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
    encoder: &Encoder,
    resource: &ResourceEntry,
    objects: &[impl std::borrow::Borrow<Object>],
    form: TableForm,
) -> Result<Bytes, Status> {
    let meta = match objects {
        [one] => format!("{{\"resourceVersion\":\"{}\"}}", one.borrow().revision),
        _ => "{}".into(),
    };
    let mut builder = Builder::new(encoder, Rows::Of(&*resource.strategy), form, &meta);
    for object in objects {
        builder.stored(resource, object.borrow())?;
    }
    Ok(builder.finish())
}

/// A Table of a list.
pub(crate) fn of_list(encoder: &Encoder, list: &List, meta: &str, form: TableForm) -> Result<Bytes, Status> {
    let mut builder = Builder::new(encoder, Rows::Of(&*list.resource.strategy), form, meta);
    for object in list.in_time() {
        builder.stored(&list.resource, object?)?;
    }
    Ok(builder.finish())
}

/// A Table of trees of a kind that are not stored like this.
pub(crate) fn of_trees(
    encoder: &Encoder,
    resource: Option<&ResourceEntry>,
    kind: &Gvk,
    trees: &[Struct],
    form: TableForm,
) -> Bytes {
    let rows = resource.map_or_else(|| Rows::Shown(Shown::of(kind)), |r| Rows::Of(&*r.strategy));
    let mut builder = Builder::new(encoder, rows, form, "{}");
    for tree in trees {
        let object = match form.include {
            IncludeObject::None => Bytes::from_static(b"null"),
            IncludeObject::Object => {
                let type_meta =
                    format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
                codec::json_with(encoder.catalog.schema(), type_meta.as_bytes(), tree)
            }
            IncludeObject::Metadata => partial_of_tree(encoder, tree, form.version.api_version()),
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
pub(crate) fn bookmark(
    encoder: &Encoder,
    resource: &ResourceEntry,
    of: &Bookmark<'_>,
    form: TableForm,
) -> Bytes {
    let meta = format!("{{\"resourceVersion\":\"{}\"}}", of.revision);
    let mut builder = Builder::new(encoder, Rows::Of(&*resource.strategy), form, &meta);
    let full;
    let object: &[u8] = match form.include {
        IncludeObject::None if !of.initial_end => b"null",
        IncludeObject::Object => {
            full = codec::json_with(encoder.catalog.schema(), &resource.type_meta, of.tree);
            &full
        }
        _ => of.partial,
    };
    builder.row(of.tree, object);
    builder.finish()
}
