//! The documents of OpenAPI: the schema with its descriptions, made when a client asks for it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use api::openapi::{self as make, CustomKinds, CustomResource, Part};
use api::resources::ResourceInfo;
use api::{Schema, Text};
use apiserver::catalog::Documents;
use bytes::Bytes;

/// Of the built-in kinds.
pub(crate) struct Builtin;

/// The descriptions that the documents of definitions ask for: always the same few blocks, which stay unpacked, since
/// definitions come by the hundred.
static COMMON: LazyLock<docs::Docs> = LazyLock::new(docs::Docs::load);

impl Documents for Builtin {
    fn v2(&self, rows: &[ResourceInfo], custom: &CustomKinds, protobuf: bool) -> Bytes {
        let docs = docs::Docs::load();
        let build = if protobuf { make::v2_protobuf } else { make::v2 };
        build(Schema::builtin(), rows, custom, &|definition, field| docs.get(definition, field)).into()
    }
    fn v3(&self, rows: &[ResourceInfo], custom: &CustomKinds, path: &str, protobuf: bool) -> Option<Bytes> {
        let docs = docs::Docs::load();
        let json = make::v3(Schema::builtin(), rows, custom, path, &|definition, field| {
            docs.get(definition, field)
        })?;
        if protobuf { make::v3_protobuf(&json).map(Into::into) } else { Some(json.into()) }
    }
    fn v3_part(&self, resource: &CustomResource) -> Part {
        make::v3_part(Schema::builtin(), resource, &|definition, field| COMMON.get(definition, field))
    }
    fn v3_frame(&self, group_version: (&str, &str), refers: &BTreeSet<Text>) -> [Vec<u8>; 3] {
        let describe = |definition: &str, field: Option<&str>| COMMON.get(definition, field);
        make::v3_frame(Schema::builtin(), group_version, refers, &describe)
    }
    fn sources(&self) -> Vec<&'static [u8]> {
        let made_by = make::SOURCES.iter().map(|source| source.as_bytes());
        made_by.chain([docs::PACKED]).collect()
    }
    fn describe(&self, fields: &[(&str, &str)]) -> Vec<String> {
        let docs = docs::Docs::load();
        fields.iter().map(|(d, f)| docs.get(d, Some(f)).unwrap_or_default().to_owned()).collect()
    }
}
