//! The controllers of nodes: their Pod networks, their health, and the Pods of nodes that are gone.

pub(crate) mod cidr_set;
pub(crate) mod eviction;
mod health;
pub(crate) mod ipam;
mod labels;
pub(crate) mod lifecycle;
mod metrics;
pub(crate) mod podgc;
pub(crate) mod ranges;
pub(crate) mod taints;
pub(crate) mod ttl;
pub(crate) mod zones;

use crate::views::NodeView;
use client::{EventType, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;

/// Makes the reference to a node in Events.
fn reference(node: &NodeView) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Records the Event of a change of a node's state.
fn record_status(recorder: &Recorder, node: &NodeView, status: &str) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let text = format!("Node {name} status is now: {status}");
    recorder.event_about(reference(node), EventType::Normal, status, text);
}
