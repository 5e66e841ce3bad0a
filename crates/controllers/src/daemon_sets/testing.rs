//! Objects of the tests.

use client::{Cached, FromJson};
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use crate::views::NodeView;

/// Puts the members of one JSON object into another, however deep they are.
pub(super) fn merged(mut into: Value, from: &Value) -> Value {
    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }
    merge(&mut into, from);
    into
}

/// The DaemonSet of upstream's tests.
pub(super) fn daemon_set(more: Value) -> DaemonSet {
    let labels = json!({"simple-daemon": "a"});
    let set = json!({
        "metadata": {"name": "foo", "namespace": "default", "uid": "test", "generation": 1},
        "spec": {
            "revisionHistoryLimit": 2, "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "foo/bar"}]}},
        },
    });
    DaemonSet::from_json(merged(set, &more).to_string().as_bytes()).unwrap()
}

/// A node.
pub(super) fn node(name: &str, more: Value) -> NodeView {
    let node = merged(json!({"metadata": {"name": name, "uid": name}}), &more);
    NodeView::decode(node.to_string().as_bytes()).unwrap()
}
