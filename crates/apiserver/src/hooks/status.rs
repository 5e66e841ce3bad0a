//! Calls for objects without a namespace, and their status, which others may write at the same time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::{Status, Text};
use bytes::Bytes;
use client::{Call, Resource, Transport, Verb};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

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

    /// Changes the status of an object; nothing happens if the object is gone, or `change` leaves it as it is. `change`
    /// sees the metadata and the status, and nothing of the specification.
    pub(super) async fn update_status(
        self,
        transport: &dyn Transport,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> Result<(), Status> {
        loop {
            let current = match transport.call(self.call(Verb::Get, name, "", None)).await {
                Err(e) if e.is_not_found() => return Ok(()),
                answer => answer?,
            };
            let Some(body) = changed(&current, &change).map_err(unreadable)? else { return Ok(()) };
            let call = Call { body, ..self.call(Verb::Update, name, "status", None) };
            match transport.call(call).await {
                Err(e) if e.is_conflict() => {}
                Err(e) if e.is_not_found() => return Ok(()),
                other => return other.map(drop),
            }
        }
    }
}

fn unreadable(error: serde_json::Error) -> Status {
    Status::internal(format!("an answer of this server cannot be read: {error}"))
}

/// An object with its changed status, if it was changed. The rest, which may be large, is left out: an update of the status
/// keeps what is stored of it.
fn changed(object: &[u8], change: impl Fn(&mut Value)) -> serde_json::Result<Option<Bytes>> {
    const SENT: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(object)?;
    let mut current = Map::new();
    for (name, text) in fields.into_iter().filter(|(name, _)| SENT.contains(&&**name)) {
        current.insert(name.into_owned(), serde_json::from_str(text.get())?);
    }
    let current = Value::Object(current);
    let mut next = current.clone();
    change(&mut next);
    Ok((next != current).then(|| next.to_string().into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rest_is_left_out() {
        let check = |object: &str, change: &dyn Fn(&mut Value), expected: Option<&str>| {
            let got = changed(object.as_bytes(), change).unwrap();
            assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{object}");
        };
        let phase = |object: &mut Value| object["status"]["phase"] = json!("new");
        check(
            r#"{"kind":"K","metadata":{"name":"n"},"spec":{"b": 1.0, "a":[{}]},"status":{"phase":"old","x":1}}"#,
            &phase,
            Some(r#"{"kind":"K","metadata":{"name":"n"},"status":{"phase":"new","x":1}}"#),
        );
        check(r#"{"spec":{},"metadata":{}}"#, &phase, Some(r#"{"metadata":{},"status":{"phase":"new"}}"#));
        check(r#"{"spec":{},"status":{"phase":"new"}}"#, &phase, None);
        check(r#"{"spec":{}}"#, &|_| {}, None);
        assert!(changed(b"[]", phase).is_err());
    }
}
