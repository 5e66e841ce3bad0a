//! Functions that the tables of recorded writes share.
#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::sync::LazyLock;

use api::codec::json;
use api::schema::Gvk;
use api::{FeatureGates, Gate, Schema, Struct};
use ferrokube_kinds::defaults::Defaults;
use serde_json::Value;

static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| Defaults::new(Schema::builtin()));

/// All gates on, but for these.
pub(crate) fn all_but(off: &[Gate]) -> FeatureGates {
    Gate::all().fold(FeatureGates::default(), |gates, gate| gates.with(gate, !off.contains(&gate)))
}

/// The kind of an object, and the plural name of its resource.
pub(crate) fn kind_of(object: &Value) -> (Gvk, &'static str) {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = Gvk::new(group, version, object["kind"].as_str().unwrap());
    let resource = api::resources::builtin()
        .iter()
        .find(|r| r.group == kind.group && r.version == kind.version && r.kind == kind.kind)
        .unwrap();
    (kind, resource.resource)
}

/// An object as it is after decoding and defaulting.
pub(crate) fn read(schema: &Schema, kind: &Gvk, object: &Value) -> Struct {
    let root = schema.kind(kind).unwrap();
    let mut tree = json::decode(schema, root, object.to_string().as_bytes()).unwrap().tree;
    DEFAULTS.apply(schema, &mut tree);
    tree
}
