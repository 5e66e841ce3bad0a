//! OwnerReferencesPermissionEnforcement: nobody ties an object to an owner who may not do to both what the garbage
//! collector will.

use api::view::View;
use api::{Status, Struct};
use client::FromJson;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::auth::Access;

#[derive(Default)]
pub(super) struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let object = object?;
        if !matches!(request.operation, Operation::Create | Operation::Update)
            || request.is_with("", "pods", "status")
        {
            return None;
        }
        let owners = |object: &'a Struct| {
            let view = View::new(request.versions.schema(), object);
            if view.knows("metadata") { view.st("metadata").list("ownerReferences") } else { &[] }
        };
        let (new, old) = (owners(object), request.old.map(owners).unwrap_or_default());
        if new == old {
            return None;
        }
        Some(check(env, request, object).boxed())
    }
}

fn owners<'a>(request: &'a AdmissionRequest<'_>, object: &'a Struct) -> Vec<View<'a>> {
    View::new(request.versions.schema(), object).st("metadata").items("ownerReferences").collect()
}

async fn check(env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> Result<(), Status> {
    let resource = Access {
        is_resource: true,
        verb: "delete",
        group: &request.info.group,
        resource: request.resource,
        subresource: request.subresource,
        namespace: request.namespace,
        name: request.name,
        ..Access::default()
    };
    if request.operation != Operation::Create && !env.authorizer.allows(request.user, &resource).await {
        let why = "cannot set an ownerRef on a resource you can't delete: , <nil>";
        return Err(request.forbidden(Some(object), why));
    }
    let old = request.old.map(|old| owners(request, old)).unwrap_or_default();
    let blocked = |reference: &View<'_>| {
        let uid = reference.str("uid");
        old.iter().any(|old| old.str("uid") == uid && old.bool("blockOwnerDeletion"))
    };
    let mut blocking = owners(request, object);
    blocking.retain(|reference| reference.bool("blockOwnerDeletion") && !blocked(reference));
    if blocking.is_empty() {
        return Ok(());
    }
    let finalizers =
        Access { is_resource: true, verb: "update", subresource: "finalizers", ..Access::default() };
    let anything = Access { group: "*", resource: "*", name: "*", ..finalizers };
    if env.authorizer.allows(request.user, &anything).await {
        return Ok(());
    }
    for reference in blocking {
        let (version, kind) = (reference.str("apiVersion"), reference.str("kind"));
        let found = find(env, version, kind).await.map_err(|why| {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: {why}"
            );
            request.forbidden(Some(object), why)
        })?;
        let access = Access {
            group: version.split_once('/').map_or("", |(group, _)| group),
            resource: &found.name,
            namespace: if found.namespaced { request.namespace } else { "" },
            name: reference.str("name"),
            ..finalizers
        };
        if !env.authorizer.allows(request.user, &access).await {
            let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
            return Err(request.forbidden(Some(object), why));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

impl FromJson for Resources {
    fn from_json(json: &[u8]) -> Result<Self, Status> {
        client::json::parse(json)
    }
}

/// Finds the resource of a kind among those that are served.
async fn find(env: &Env, version: &str, kind: &str) -> Result<Resource, String> {
    let none =
        || format!("no matches for kind {} in version {}", api::go::quote(kind), api::go::quote(version));
    // A reference may be any text: it must not lead to another path.
    let segment =
        |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    let path = match version.split_once('/') {
        None if segment(version) => format!("/api/{version}"),
        Some((group, version)) if segment(group) && segment(version) => format!("/apis/{group}/{version}"),
        _ => return Err(none()),
    };
    let client = env.loopback.client().map_err(|e| e.message)?;
    let served = match client.raw::<Resources>(&path).await {
        Err(e) if e.is_not_found() => return Err(none()),
        other => other.map_err(|e| e.message)?,
    };
    let is = |r: &Resource| r.kind == kind && !r.name.contains('/');
    served.resources.into_iter().find(is).ok_or_else(none)
}
