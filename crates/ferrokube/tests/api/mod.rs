//! The API on the wire: requests of v1.36's clients, and upstream's answers to them, sent with curl and kubectl.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

mod admission_webhooks;
pub(crate) mod aggregation;
mod conversion_webhooks;
mod custom_answers;
mod custom_resources;
mod discovery;
mod evictions;
mod flow_control;
mod forms;
mod kubeconfigs;
mod lists;
mod objects;
mod patches;
mod pod_security;
mod policies;
mod server_flags;
mod services;
mod upstream_definitions;
mod usage;
mod watches;

use serde_json::{Value, json};
use testkit::Server;

/// The path of the default namespace's ConfigMaps.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> Server {
    Server::start(&[]).unwrap()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// The `resourceVersion` of an object or list.
fn version(of: &Value) -> &str {
    of["metadata"]["resourceVersion"].as_str().unwrap()
}

/// The names in a list.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect()
}
