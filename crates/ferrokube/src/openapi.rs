//! The documents of OpenAPI: the schema with its descriptions, made when somebody asks.

use api::Schema;
use api::openapi as make;
use api::resources::ResourceInfo;
use apiserver::openapi::Documents;
use bytes::Bytes;

/// Of the built-in kinds that are served.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    /// The descriptions come from another description of the API than the schema does: neither may lack what the
    /// other has.
    #[test]
    fn everything_that_is_served_has_a_description() {
        let docs = docs::Docs::load();
        let missing = Mutex::new(BTreeSet::new());
        make::v2(Schema::builtin(), api::resources::builtin(), &|definition, field| {
            let text = docs.get(definition, field);
            if text.is_none() {
                missing.lock().unwrap().insert(format!("{definition} {}", field.unwrap_or_default()));
            }
            text
        });
        let missing = missing.into_inner().unwrap();
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
