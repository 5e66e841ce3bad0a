//! The status of an object, which others may write at the same time.

use api::Status;
use client::{Call, FromJson, Transport, Verb};
use serde_json::Value;

/// Changes the status of an object; nothing happens if the object is gone, or `change` leaves it as it is. `call` makes
/// a call for the object or one of its subresources.
pub(super) async fn update(
    transport: &dyn Transport,
    call: impl Fn(Verb, &str, Option<&Value>) -> Call,
    change: impl Fn(&mut Value),
) -> Result<(), Status> {
    loop {
        let current = match transport.call(call(Verb::Get, "", None)).await {
            Err(e) if e.is_not_found() => return Ok(()),
            answer => Value::from_json(&answer?)?,
        };
        let mut next = current.clone();
        change(&mut next);
        if next == current {
            return Ok(());
        }
        match transport.call(call(Verb::Update, "status", Some(&next))).await {
            Err(e) if e.is_conflict() => {}
            Err(e) if e.is_not_found() => return Ok(()),
            other => return other.map(drop),
        }
    }
}
