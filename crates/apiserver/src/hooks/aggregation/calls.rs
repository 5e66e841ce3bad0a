//! Reads and writes of APIServices through the API.

use api::Status;
use client::Transport;
use serde_json::{Value, json};

use super::super::status::Kind;
use super::state::{AVAILABLE, Condition};

/// The kind of APIServices.
pub(super) const API_SERVICES: Kind = Kind { group: "apiregistration.k8s.io", plural: "apiservices" };

/// Writes the condition of the APIService with a uid, if it has another one.
pub(super) async fn write(
    transport: &dyn Transport,
    (name, uid): (&str, &str),
    condition: &Condition,
    now: &str,
) -> Result<(), Status> {
    let change = |object: &mut Value| {
        if object["metadata"]["uid"] == uid {
            set(object, condition, now);
        }
    };
    API_SERVICES.update_status(transport, name, change).await
}

/// Sets the condition; its time is that of the last change of its status.
fn set(object: &mut Value, condition: &Condition, now: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let all = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(all) = all.as_array_mut() else { return };
    let mut made = json!({
        "type": AVAILABLE, "status": condition.status.as_str(), "lastTransitionTime": now,
        "reason": condition.reason.as_str(), "message": condition.message,
    });
    match all.iter_mut().find(|c| c["type"] == AVAILABLE) {
        None => all.push(made),
        Some(there) => {
            if there["status"] == made["status"] {
                made["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            *there = made;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_changes() {
        let condition = |status: &str, reason: &str, time: &str| json!({"type": "Available", "status": status, "lastTransitionTime": time, "reason": reason, "message": "m"});
        let check = |status: Value, new: Condition, want: Value| {
            let mut object = json!({"metadata": {"uid": "u"}});
            if !status.is_null() {
                object["status"] = status;
            }
            set(&mut object, &new, "2");
            assert_eq!(object["status"], want);
        };
        let (good, bad) = (Condition::good("Passed", "m"), Condition::bad("MissingEndpoints", "m"));
        let other = json!({"type": "Other", "status": "True"});
        check(Value::Null, good.clone(), json!({"conditions": [condition("True", "Passed", "2")]}));
        let before = json!({"conditions": [other, condition("True", "Local", "1")]});
        check(before.clone(), good, json!({"conditions": [other, condition("True", "Passed", "1")]}));
        check(before, bad, json!({"conditions": [other, condition("False", "MissingEndpoints", "2")]}));
    }
}
