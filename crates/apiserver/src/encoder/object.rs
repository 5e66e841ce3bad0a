//! One object in each of its forms but tables.

use std::sync::Arc;

use api::{Object, Status, Struct};
use bytes::{BufMut, Bytes, BytesMut};
use component::Clock;

use super::form_cache::FormCache;
use crate::catalog::{Catalog, ResourceEntry};
use crate::codec;

/// The encoder of answers.
#[derive(Clone)]
pub(crate) struct Encoder {
    /// The catalog of the time at which the request came.
    pub(crate) catalog: Arc<Catalog>,
    /// Forms that others have asked for.
    pub(crate) forms: Arc<FormCache>,
    /// The clock of ages in tables.
    pub(crate) clock: Clock,
}

/// The kind that has nothing of an object but its metadata.
pub(super) const PARTIAL: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

/// Encodes an object in the version of its resource: JSON with kind and version, without a newline.
pub(crate) fn object_json(
    catalog: &Catalog,
    resource: &ResourceEntry,
    object: &Object,
) -> Result<Bytes, Status> {
    if resource.same_version() {
        return Ok(object.json(&resource.stored_meta));
    }
    let tree = catalog.served_tree(resource, object)?;
    Ok(codec::json_with(catalog.schema(), &resource.type_meta, &tree))
}

/// The protobuf message of an object, without the envelope; kept in the cache of forms.
pub(crate) fn object_proto(
    encoder: &Encoder,
    resource: &ResourceEntry,
    object: &Object,
) -> Result<Bytes, Status> {
    let make = || {
        let tree = encoder.catalog.served_tree(resource, object)?;
        Ok(codec::message(encoder.catalog.schema(), &tree))
    };
    encoder.forms.get(object, resource.number, make)
}

/// `{"kind":"PartialObjectMetadata",…}` of an object, from its stored bytes.
///
/// Annotations that are fields where upstream makes these forms stand only in the object's own.
pub(crate) fn partial_json(resource: &ResourceEntry, object: &Object, api_version: &str) -> Bytes {
    let mut full = BytesMut::new();
    let head = format!("\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",");
    object.write_json(head.as_bytes(), &mut full);
    let metadata_at = 1 + head.len();
    let end = codec::value_end(&full, metadata_at + "\"metadata\":".len()).unwrap_or(full.len() - 1);
    full.truncate(end);
    full.put_u8(b'}');
    match &resource.strategy.facts().field_annotation {
        Some(name) => without_annotation(full.freeze(), name),
        None => full.freeze(),
    }
}

/// An object's text without one annotation; inside strings no such text can stand, since quotes are escaped there.
fn without_annotation(json: Bytes, name: &str) -> Bytes {
    let key = format!("\"{name}\":\"");
    let found = std::str::from_utf8(&json).ok().and_then(|text| text.split_once(&key));
    let Some((before, rest)) = found else { return json };
    let after = rest.split_once('"').map_or("", |(_, after)| after);
    match (before.strip_suffix("\"annotations\":{"), after.strip_prefix('}')) {
        (Some(before), Some(after)) => format!("{before}{}", after.strip_prefix(',').unwrap_or(after)).into(),
        _ => match (before.strip_suffix(','), after.strip_prefix(',')) {
            (Some(before), _) => format!("{before}{after}").into(),
            (None, after_comma) => format!("{before}{}", after_comma.unwrap_or(after)).into(),
        },
    }
}

/// The protobuf message of what [`partial_json`] tells.
pub(super) fn partial_proto(
    encoder: &Encoder,
    resource: &ResourceEntry,
    object: &Object,
    api_version: &str,
) -> Result<Bytes, Status> {
    let json = partial_json(resource, object, api_version);
    codec::proto_of_json(encoder.catalog.schema(), PARTIAL, &json)
}

/// `{"kind":"PartialObjectMetadata",…}` of a tree.
pub(crate) fn partial_of_tree(encoder: &Encoder, tree: &Struct, api_version: &str) -> Bytes {
    let full = codec::json_with(encoder.catalog.schema(), b"", tree);
    let begin = b"{\"metadata\":";
    // A tree that is no object of the API has no metadata.
    let full = if full.starts_with(begin) { full } else { Bytes::from_static(b"{\"metadata\":null}") };
    let end = codec::value_end(&full, begin.len()).unwrap_or(full.len() - 1);
    let mut out = BytesMut::new();
    out.put_slice(
        format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",").as_bytes(),
    );
    out.put_slice(&full[1..end]);
    out.put_u8(b'}');
    out.freeze()
}
