//! The documents of OpenAPI, without descriptions.

use std::collections::BTreeSet;

use api::openapi::{self as make, CustomKinds, CustomResource, Part};
use api::resources::ResourceInfo;
use api::{Schema, Text};
use apiserver::catalog::Documents;
use bytes::Bytes;

/// Of the built-in kinds and of definitions.
pub(crate) struct Plain;

impl Documents for Plain {
    fn v2(&self, rows: &[ResourceInfo], custom: &CustomKinds, protobuf: bool) -> Bytes {
        let build = if protobuf { make::v2_protobuf } else { make::v2 };
        build(Schema::builtin(), rows, custom, &|_, _| None).into()
    }
    fn v3(&self, rows: &[ResourceInfo], custom: &CustomKinds, path: &str, protobuf: bool) -> Option<Bytes> {
        let json = make::v3(Schema::builtin(), rows, custom, path, &|_, _| None)?;
        if protobuf { make::v3_protobuf(&json).map(Into::into) } else { Some(json.into()) }
    }
    fn v3_part(&self, resource: &CustomResource) -> Part {
        make::v3_part(Schema::builtin(), resource, &|_, _| None)
    }
    fn v3_frame(&self, group_version: (&str, &str), refers: &BTreeSet<Text>) -> [Vec<u8>; 3] {
        make::v3_frame(Schema::builtin(), group_version, refers, &|_, _| None)
    }
    fn sources(&self) -> Vec<&'static [u8]> {
        make::SOURCES.iter().map(|source| source.as_bytes()).collect()
    }
    fn describe(&self, fields: &[(&str, &str)]) -> Vec<String> {
        vec![String::new(); fields.len()]
    }
}
