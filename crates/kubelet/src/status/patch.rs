//! The difference between two statuses, as a strategic merge patch.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// Lists of a status that a patch merges, and the field that tells elements apart.
const MERGED: [(&str, &str); 3] = [("conditions", "type"), ("podIPs", "ip"), ("hostIPs", "ip")];

/// The patch that brings the API's status from `old` to `new`; none if they are equal.
pub(crate) fn difference(old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (Ok(Value::Object(old)), Ok(Value::Object(new))) =
        (serde_json::to_value(old), serde_json::to_value(new))
    else {
        return None;
    };
    let mut patch = Map::new();
    for (key, value) in &new {
        let before = old.get(key);
        if before == Some(value) {
            continue;
        }
        let merged = MERGED.iter().find(|(list, _)| list == key);
        match (merged, before.and_then(Value::as_array), value.as_array()) {
            (Some((_, by)), before, Some(now)) => {
                let list = merge_list(before.map_or(&[], Vec::as_slice), now, by);
                patch.insert(key.clone(), Value::Array(list));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn merge_list(old: &[Value], new: &[Value], by: &str) -> Vec<Value> {
    let find = |list: &[Value], key: &Value| list.iter().find(|e| e[by] == *key).cloned();
    let mut out: Vec<Value> = Vec::new();
    for element in new {
        match find(old, &element[by]) {
            Some(before) if before == *element => {}
            Some(before) => {
                let mut element = element.clone();
                // Fields that are no longer set must be named to go.
                if let (Some(now), Some(before)) = (element.as_object_mut(), before.as_object()) {
                    for key in before.keys() {
                        now.entry(key.clone()).or_insert(Value::Null);
                    }
                }
                out.push(element);
            }
            None => out.push(element.clone()),
        }
    }
    for gone in old.iter().filter(|e| find(new, &e[by]).is_none()) {
        out.push(json!({"$patch": "delete", by: gone[by]}));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(v: Value) -> PodStatus {
        serde_json::from_value(v).unwrap()
    }

    #[test]
    fn only_what_changed_is_sent() {
        let old = status(json!({"phase": "Pending", "reason": "r", "podIPs": [{"ip": "1"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "A", "status": "True"},
                           {"type": "Gone", "status": "True"}]}));
        let new = status(json!({"phase": "Running", "podIPs": [{"ip": "2"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "A", "status": "True"}]}));
        assert_eq!(
            difference(&old, &new).unwrap(),
            json!({"phase": "Running", "reason": null,
                "podIPs": [{"ip": "2"}, {"$patch": "delete", "ip": "1"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": null}, {"$patch": "delete", "type": "Gone"}]})
        );
        assert_eq!(difference(&old, &old), None);
    }
}
