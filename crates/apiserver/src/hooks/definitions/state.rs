//! A definition as it is known.

use std::sync::Arc;

use api::codec::json;
use api::view::View;
use api::{Object, Schema, Status, Text};
use bytes::Bytes;
use component::Shutdown;
use kinds::custom::{Conversion, Definition, Names};
use storage::Store;

use super::super::status::Kind;
use crate::catalog::converter::Converter;
use crate::catalog::custom::CustomResource;
use crate::catalog::webhook_converter::{ConversionWebhooks, WebhookConverter};
use crate::objects::Objects;

/// The kind of definitions.
pub(super) const DEFINITIONS: Kind =
    Kind { group: "apiextensions.k8s.io", plural: "customresourcedefinitions" };

/// The finalizer that keeps a definition until its objects are gone.
pub(super) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) kind: Text,
    pub(super) status: Text,
    pub(super) reason: Text,
    pub(super) message: Text,
}

/// A definition as it is known.
pub(super) struct Known {
    pub(super) name: Text,
    pub(super) uid: Text,
    generation: i64,
    pub(super) definition: Arc<Definition>,
    schemas: Vec<(Text, Bytes)>,
    /// The names that were accepted.
    pub(super) accepted: Names,
    pub(super) conditions: Vec<Condition>,
    /// The annotation by which groups of the community are approved.
    pub(super) approval: Option<Text>,
    deleting: bool,
    has_finalizer: bool,
}

/// Reads a definition. A schema that is the same as before is not compiled again.
pub(super) fn read(objects: &Objects, object: &Object, before: Option<&Known>) -> Result<Known, Status> {
    if let Some(before) = before {
        // Mostly it is the status that has changed.
        let tree = objects.fields(DEFINITIONS.names(), object, &["metadata", "status"])?;
        let view = View::new(objects.schema(), &tree);
        let meta = view.st("metadata");
        if before.uid == meta.str("uid") && before.generation == meta.int("generation") {
            return Ok(known(view, Some(before)));
        }
    }
    let tree = objects.tree(DEFINITIONS.group, DEFINITIONS.plural, object)?;
    Ok(known(View::new(objects.schema(), &tree), None))
}

/// `same` has the same specification.
fn known(view: View<'_>, same: Option<&Known>) -> Known {
    let (meta, status) = (view.st("metadata"), view.st("status"));
    let (uid, generation) = (Text::from(meta.str("uid")), meta.int("generation"));
    let (definition, schemas) = match same {
        Some(same) => (Arc::clone(&same.definition), same.schemas.clone()),
        None => (Arc::new(Definition::of(view)), schemas(view.schema, view)),
    };
    let conditions = status.items("conditions").map(|c| Condition {
        kind: c.str("type").into(),
        status: c.str("status").into(),
        reason: c.str("reason").into(),
        message: c.str("message").into(),
    });
    Known {
        name: meta.str("name").into(),
        uid,
        generation,
        definition,
        schemas,
        accepted: Names::of(status.st("acceptedNames")),
        conditions: conditions.collect(),
        approval: meta
            .texts("annotations")
            .find(|(key, _)| *key == "api-approved.kubernetes.io")
            .map(|(_, value)| value.into()),
        deleting: meta.has("deletionTimestamp"),
        has_finalizer: meta.strs("finalizers").any(|f| f == FINALIZER),
    }
}

/// A definition in JSON as it is known.
#[cfg(test)]
pub(super) fn of_json(object: &serde_json::Value) -> Known {
    let schema = Schema::builtin();
    let root = schema.kind(&api::Gvk::new(DEFINITIONS.group, "v1", "CustomResourceDefinition")).unwrap();
    let tree = json::decode(schema, root, object.to_string().as_bytes()).unwrap().tree;
    known(View::new(schema, &tree), None)
}

/// The schemas of versions as OpenAPI begins with them: JSON with sorted names.
fn schemas(schema: &Schema, definition: View<'_>) -> Vec<(Text, Bytes)> {
    let of = |version: View<'_>| {
        let mut text = Vec::new();
        match version.st("schema").st("openAPIV3Schema").raw() {
            Some(tree) => json::encode_sorted(schema, tree, &mut text),
            None => text.extend_from_slice(b"{}"),
        }
        (version.str("name").into(), text.into_boxed_slice().into())
    };
    definition.st("spec").items("versions").map(of).collect()
}

impl Known {
    pub(super) fn group(&self) -> &str {
        &self.definition.group
    }
    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }
    fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status == "True")
    }
    /// Whether names that become free may change what is said of it.
    pub(super) fn wants_names(&self) -> bool {
        self.definition.names != self.accepted || !self.is("NamesAccepted") || !self.is_established()
    }
    /// Whether nobody can know its conversion webhook.
    pub(super) fn has_bad_authorities(&self) -> bool {
        matches!(self.definition.conversion, Conversion::Webhook { bad_authorities: true, .. })
    }
    /// Whether its resources are served.
    pub(super) fn is_established(&self) -> bool {
        self.is("Established")
    }
    /// Whether no objects may be made any more.
    fn is_terminating(&self) -> bool {
        self.deleting || self.is("Terminating")
    }
    /// Whether it goes once its objects are gone.
    pub(super) fn is_to_be_removed(&self) -> bool {
        self.deleting && self.has_finalizer
    }
    /// The resources to serve, under the names that were accepted.
    pub(super) fn resources(
        &self,
        store: &Store,
        accepted: Names,
        conversions: &Arc<ConversionWebhooks>,
        ends: &Shutdown,
    ) -> Result<CustomResource, String> {
        let definition = Definition { names: accepted, ..Definition::clone(&self.definition) };
        let terminating = self.is_terminating();
        let converter = match &definition.conversion {
            Conversion::None => None,
            Conversion::Webhook { client_config, review_versions, .. } => {
                let (name, shared) = (
                    format!("{}.{}", definition.names.plural, definition.group).into(),
                    Arc::clone(conversions),
                );
                let webhook = WebhookConverter::new(name, shared, client_config, review_versions)?;
                Some(Arc::new(webhook) as Arc<dyn Converter>)
            }
        };
        CustomResource::new(
            store,
            Arc::new(definition),
            self.schemas.clone(),
            converter,
            (self.uid.clone(), self.generation, terminating),
            ends,
        )
    }
    /// Whether resources are those of this state.
    pub(super) fn is_served_by(&self, served: &CustomResource, accepted: &Names) -> bool {
        served.made_of == (self.uid.clone(), self.generation, self.is_terminating())
            && served.definition.names == *accepted
    }
}
