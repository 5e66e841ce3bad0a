//! The documents of OpenAPI: the schema with its descriptions, made when a client asks for it.

use api::Schema;
use api::openapi as make;
use api::resources::ResourceInfo;
use apiserver::openapi::Documents;
use bytes::Bytes;

/// The documents of the built-in kinds that are served.
pub(crate) struct Builtin(pub(crate) Vec<ResourceInfo>);

impl Documents for Builtin {
    fn v2(&self, protobuf: bool) -> Bytes {
        let docs = docs::Docs::load();
        let build = if protobuf { make::v2_protobuf } else { make::v2 };
        build(Schema::builtin(), &self.0, &|definition, field| docs.get(definition, field)).into()
    }
    fn v3_paths(&self) -> Vec<String> {
        make::v3_paths(&self.0)
    }
    fn v3(&self, path: &str, protobuf: bool) -> Option<Bytes> {
        let docs = docs::Docs::load();
        let json =
            make::v3(Schema::builtin(), &self.0, path, &|definition, field| docs.get(definition, field))?;
        if protobuf { make::v3_protobuf(&json).map(Into::into) } else { Some(json.into()) }
    }
    fn describe(&self, fields: &[(&str, &str)]) -> Vec<String> {
        let docs = docs::Docs::load();
        fields.iter().map(|(d, f)| docs.get(d, Some(f)).unwrap_or_default().to_owned()).collect()
    }
}
