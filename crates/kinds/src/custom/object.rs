//! Objects of definitions as trees: their metadata in a field, and beside it the values that the definition describes.

use api::codec::json;
use api::{Map, Node, Schema, Struct};

/// The values of an object that its definition describes.
pub(super) fn values<'t>(schema: &Schema, tree: &'t Struct) -> Option<&'t Map> {
    let rest = schema.st(tree.id).rest.as_ref()?;
    tree.map(rest.field)
}

/// The same, to change; made if absent.
pub(super) fn values_mut<'t>(schema: &Schema, tree: &'t mut Struct) -> Option<&'t mut Map> {
    let field = schema.st(tree.id).rest.as_ref()?.field;
    tree.get_or_insert_with(field, || Map::new().into()).as_map_mut()
}

/// The whole object, with its metadata.
pub(super) fn whole(schema: &Schema, tree: &Struct) -> Map {
    match json::to_any(schema, tree) {
        Node::Map(map) => map,
        _ => Map::new(),
    }
}

/// The object's metadata alone.
pub(super) fn metadata(schema: &Schema, tree: &Struct) -> Map {
    let meta = schema.field(tree.id, "metadata").and_then(|no| tree.st(no));
    let meta = meta.map(|meta| json::to_any(schema, meta));
    Map::from_entries(meta.map(|meta| ("metadata".into(), meta)).into_iter().collect())
}

/// Sets the field of an object to that of another.
pub(super) fn copy(schema: &Schema, new: &mut Struct, old: &Struct, name: &str) {
    let value = values(schema, old).and_then(|v| v.get(name)).cloned();
    let Some(new) = values_mut(schema, new) else { return };
    match value {
        Some(value) => {
            new.insert(name, value);
        }
        None => {
            new.remove(name);
        }
    }
}
