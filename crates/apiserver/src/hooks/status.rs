//! Calls for objects without a namespace, and their status, which others may write at the same time.

use api::{Status, Text};
use bytes::Bytes;
use client::{Call, FromJson, Resource, Transport, Verb};
use serde_json::Value;

/// A kind of objects without a namespace, in version `v1` of its group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// The group.
    pub(super) group: &'static str,
    /// The plural name.
    pub(super) plural: &'static str,
}

impl Kind {
    /// The names by which the store knows the kind.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        (self.group, self.plural)
    }

    /// A call for an object, or for one of its subresources.
    pub(super) fn call(self, verb: Verb, name: &str, subresource: &str, body: Option<&Value>) -> Call {
        Call {
            verb,
            resource: Resource { group: self.group.into(), version: "v1".into(), plural: self.plural.into() },
            namespace: Text::default(),
            name: name.into(),
            subresource: subresource.into(),
            query: Vec::new(),
            body: body.map_or_else(Bytes::new, |b| b.to_string().into()),
        }
    }

    /// Changes the status of an object; nothing happens if the object is gone, or `change` leaves it as it is.
    pub(super) async fn update_status(
        self,
        transport: &dyn Transport,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> Result<(), Status> {
        loop {
            let current = match transport.call(self.call(Verb::Get, name, "", None)).await {
                Err(e) if e.is_not_found() => return Ok(()),
                answer => Value::from_json(&answer?)?,
            };
            let mut next = current.clone();
            change(&mut next);
            if next == current {
                return Ok(());
            }
            match transport.call(self.call(Verb::Update, name, "status", Some(&next))).await {
                Err(e) if e.is_conflict() => {}
                Err(e) if e.is_not_found() => return Ok(()),
                other => return other.map(drop),
            }
        }
    }
}
