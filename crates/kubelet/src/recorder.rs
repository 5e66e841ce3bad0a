//! Events about Pods and their containers.

use std::collections::BTreeMap;

use client::events::{EventType, Recorder, reference};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::pods::spec;

/// Records Events as upstream's kubelet does.
#[derive(Clone)]
pub(crate) struct PodRecorder(pub(crate) Recorder);

impl PodRecorder {
    /// About a Pod; `kind` is `Normal` or `Warning`.
    pub(crate) fn pod(&self, pod: &Pod, kind: &str, reason: &str, message: impl Into<String>) {
        self.0.event(pod, event_type(kind), reason, message);
    }
    /// About a Pod, with annotations.
    pub(crate) fn annotated(
        &self,
        pod: &Pod,
        annotations: BTreeMap<String, String>,
        kind: &str,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.0.annotated(reference(pod), annotations, event_type(kind), reason, message);
    }
    /// About a container of a Pod.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        container: &str,
        kind: &str,
        reason: &str,
        message: impl Into<String>,
    ) {
        let mut about = reference(pod);
        about.field_path = Some(spec::field_path(pod, container));
        self.0.event_about(about, event_type(kind), reason, message);
    }
}

fn event_type(kind: &str) -> EventType {
    if kind == "Warning" { EventType::Warning } else { EventType::Normal }
}

/// The reference by which Events name the Node of a name: upstream's kubelet gives its name as uid, and clients select its
/// Events by it.
pub(crate) fn node(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".into()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}
