//! One module a verb, generic over resources; [`dispatch`] finds the one. Behaviour that only some resources have
//! stands in modules of its own, and [`builtin`] says which.

pub(crate) mod binding;
mod body;
pub(crate) mod builtin;
mod certificate_request;
mod component_status;
pub(crate) mod create;
mod definition;
pub(crate) mod delete;
pub(crate) mod eviction;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod managed;
mod namespace;
pub(crate) mod patch;
mod review;
pub(crate) mod scale;
mod scale_object;
mod scope;
mod service;
mod token;
pub(crate) mod unreadable;
pub(crate) mod update;
mod used;
pub(crate) mod watch;

use std::sync::Arc;

use api::Status;
use storage::ResourceId;

use crate::catalog::{ResourceEntry, SubresourceEntry};
use crate::options::ListOptions;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::routes::method_not_allowed;

use body::scope_namespace;
pub(crate) use scope::Handlers;
use scope::Scope;

/// Answers a request for a resource. The caller may.
pub(crate) async fn dispatch(handlers: &Handlers, req: &Request) -> Result<Outcome, Status> {
    let changes = !matches!(req.info.verb, "get" | "list" | "watch");
    if !changes || !handlers.objects.store.capabilities().others_write {
        return attempt(handlers, req).await;
    }
    // As upstream: a write begins with what is known here, and a refusal counts only if that was current.
    let before = known(handlers, req);
    match attempt(handlers, req).await {
        Err(status) if !status.is_already_exists() && status.code < 500 => {
            // A conflict is about the object itself, another refusal may be about others.
            let own = if status.code == 409 { 1 } else { before.resources.len() };
            let rests_on: Vec<_> = before.resources.iter().map(|(id, _)| *id).take(own).collect();
            if handlers.objects.fresh(&rests_on).await.is_err() {
                return Err(status);
            }
            let after = known(handlers, req);
            if after.object == before.object && (status.code == 409 || after.resources == before.resources) {
                return Err(status);
            }
            req.notes.clear();
            attempt(handlers, req).await
        }
        answered => answered,
    }
}

/// The state on which the answer to a write rests, as this server knows it: the object, its resource, and what
/// upstream's admission asks etcd for when its caches lack it.
struct Known {
    /// The revision of the object that the request names.
    object: Option<u64>,
    /// When each resource changed last; first the request's own, if it has one.
    resources: Vec<(ResourceId, u64)>,
}

fn known(handlers: &Handlers, req: &Request) -> Known {
    let info = &req.info;
    let own = req.resource.as_ref().and_then(|resource| Some((resource, resource.stored.as_ref()?.id)));
    let object = own.and_then(|(resource, id)| {
        handlers
            .objects
            .store
            .get(id, scope_namespace(resource, info), &info.name)
            .map(|object| object.revision)
    });
    let others = req.catalog.resources.consulted().iter().copied();
    let all = own.map(|(_, id)| id).into_iter().chain(others);
    Known { object, resources: all.map(|id| (id, handlers.objects.store.snapshot(id).changed())).collect() }
}

async fn attempt(handlers: &Handlers, req: &Request) -> Result<Outcome, Status> {
    let info = &req.info;
    let resource = req.resource.as_ref().ok_or_else(Status::no_such_resource)?;
    if !resource.namespaced && !info.namespace.is_empty() && !resource.strategy.facts().is_namespace {
        return Err(Status::no_such_resource());
    }
    if let Some(going) = &resource.deprecated {
        handlers.metrics.deprecated(info, &going.removed);
        req.warn(going.warning.to_string());
    }
    if matches!(info.verb, "get" | "patch" | "delete") {
        check_segment(&info.name)?;
    }
    if !info.subresource.is_empty() {
        let sub = resource.subresource(&info.subresource).ok_or_else(Status::no_such_resource)?;
        if !sub.verbs.iter().any(|v| v == info.verb) {
            return Err(method_not_allowed());
        }
        return subresource(handlers, req, resource, sub).await;
    }
    if !resource.has_verb(info.verb) || info.verb == "create" && !info.name.is_empty() {
        return Err(method_not_allowed());
    }
    if resource.namespaced && info.namespace.is_empty() && !matches!(info.verb, "list" | "watch" | "create") {
        return Err(method_not_allowed());
    }
    if resource.stored.is_none() {
        return builtin::computed(&resource.group, &resource.plural)(handlers, req, resource).await;
    }
    let lifecycle = builtin::lifecycle(&resource.group, &resource.plural);
    let scope = Scope::new(handlers, req, resource, lifecycle)?;
    match info.verb {
        "get" => get::get(&scope).await,
        "list" => list::list(&scope, ListOptions::from_query(&req.query, false)?).await,
        "watch" => watch::watch(&scope, ListOptions::from_query(&req.query, true)?).await,
        "create" => create::create(&scope).await,
        "update" => update::update(&scope, None).await,
        "patch" => patch::patch(&scope, None).await,
        "delete" => delete::delete(&scope).await,
        "deletecollection" => delete::collection(&scope).await,
        _ => Err(method_not_allowed()),
    }
}

/// Refuses a name that no path can hold.
fn check_segment(name: &str) -> Result<(), Status> {
    let invalid = |why: String| Status::bad_request(format!("Name parameter invalid: {name:?}: {why}"));
    if matches!(name, "." | "..") {
        return Err(invalid(format!("may not be '{name}'")));
    }
    let bad = ["/", "%"].iter().filter(|c| name.contains(**c));
    let bad = bad.map(|c| format!("may not contain '{c}'")).collect::<Vec<_>>();
    if bad.is_empty() { Ok(()) } else { Err(invalid(bad.join(";"))) }
}

async fn subresource(
    handlers: &Handlers,
    req: &Request,
    resource: &Arc<ResourceEntry>,
    sub: &SubresourceEntry,
) -> Result<Outcome, Status> {
    let lifecycle = builtin::lifecycle(&resource.group, &resource.plural);
    let scope = Scope::new(handlers, req, resource, lifecycle)?;
    if let Some(handler) = builtin::handler(&resource.group, &resource.plural, &sub.name) {
        return handler(&scope, sub).await;
    }
    if sub.is_scale {
        return scale::scale(&scope, sub).await;
    }
    match req.info.verb {
        "get" if sub.kind == resource.kind => get::get(&scope).await,
        verb @ ("update" | "patch") => {
            let rules = scope.strategy().subresource(&sub.name).ok_or_else(Status::no_such_resource)?;
            if verb == "update" {
                update::update(&scope, Some(rules)).await
            } else {
                patch::patch(&scope, Some(rules)).await
            }
        }
        _ => Err(Status::no_such_resource()),
    }
}
