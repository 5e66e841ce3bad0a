//! The objects of a request in the version by which a policy was matched, and the request's namespace.

use std::sync::Arc;

use api::{Gvk, Node, Object, Status, Struct};

use crate::admission::AdmissionRequest;
use crate::admission::plugin::Env;

/// The new and the former object in one version.
pub(super) struct Versioned {
    pub(super) kind: Gvk,
    pub(super) object: Option<Node>,
    pub(super) old: Option<Node>,
}

/// The objects of a request, in each version that was asked for.
#[derive(Default)]
pub(super) struct Versions(Vec<Arc<Versioned>>);

impl Versions {
    /// The objects in the version of a kind. The error is a text.
    pub(super) async fn get(
        &mut self,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
        kind: &Gvk,
    ) -> Result<Arc<Versioned>, String> {
        if let Some(known) = self.0.iter().find(|v| v.kind == *kind) {
            return Ok(Arc::clone(known));
        }
        let object = match object {
            Some(tree) => Some(value(request, tree, kind).await?),
            None => None,
        };
        let old = match request.old {
            Some(tree) => Some(value(request, tree, kind).await?),
            None => None,
        };
        let made = Arc::new(Versioned { kind: kind.clone(), object, old });
        self.0.push(Arc::clone(&made));
        Ok(made)
    }
}

/// A tree of the request as clients of a version see it.
pub(super) async fn value(request: &AdmissionRequest<'_>, tree: &Struct, kind: &Gvk) -> Result<Node, String> {
    let versions = request.versions;
    // A former object may be of another kind than the new one, as that of a subresource.
    if *request.kind == *kind {
        return Ok(versions.value(kind, tree));
    }
    let tree = versions.convert(tree.clone(), request.kind, kind).get().await?;
    Ok(versions.value(kind, &tree))
}

/// Fails if the request is about an object in a namespace that is not there.
pub(super) fn is_there(env: &Env, request: &AdmissionRequest<'_>) -> Result<(), Status> {
    find(env, request).map(drop)
}

fn find(env: &Env, request: &AdmissionRequest<'_>) -> Result<Option<Arc<Object>>, Status> {
    let kind = request.request_kind;
    let is_namespace = kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace";
    if request.namespace.is_empty() || is_namespace {
        return Ok(None);
    }
    let found = env.reader.get(("", "namespaces"), "", request.namespace);
    found.map(Some).ok_or_else(|| Status::not_found("", "namespaces", request.namespace))
}

/// The request's namespace as expressions see it; none for objects of the cluster, and for namespaces themselves.
pub(super) fn namespace(env: &Env, request: &AdmissionRequest<'_>) -> Result<Option<Node>, Status> {
    let Some(object) = find(env, request)? else { return Ok(None) };
    let text = object.json(b"");
    let mut value = api::codec::json::decode_any(&text).map_err(Status::internal)?;
    if let Some(meta) = value.as_map_mut().and_then(|m| m.get_mut("metadata")).and_then(Node::as_map_mut) {
        // Upstream shows these of a namespace.
        const SHOWN: [&str; 12] = [
            "name",
            "generateName",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "labels",
            "annotations",
            "finalizers",
        ];
        meta.retain(|name, _| SHOWN.contains(&name));
    }
    Ok(Some(value))
}
