//! Reads and writes of definitions through the API.

use api::{Status, Text};
use client::{Call, Resource, Transport, Verb};
use serde_json::Value;

use super::super::status;

/// The group of definitions.
pub(super) const GROUP: &str = "apiextensions.k8s.io";
/// The plural name of definitions.
pub(super) const PLURAL: &str = "customresourcedefinitions";

/// A call for a definition.
pub(super) fn call(verb: Verb, name: &str, subresource: &str, body: Option<&Value>) -> Call {
    Call {
        verb,
        resource: Resource { group: GROUP.into(), version: "v1".into(), plural: PLURAL.into() },
        namespace: Text::default(),
        name: name.into(),
        subresource: subresource.into(),
        query: Vec::new(),
        body: body.map_or_else(bytes::Bytes::new, |b| b.to_string().into()),
    }
}

/// Changes the status of a definition; nothing happens if the definition is gone, or `change` leaves it as it is.
/// Others may write at the same time.
pub(super) async fn update_status(
    transport: &dyn Transport,
    name: &str,
    change: impl Fn(&mut Value),
) -> Result<(), Status> {
    status::update(transport, |verb, subresource, body| call(verb, name, subresource, body), change).await
}
