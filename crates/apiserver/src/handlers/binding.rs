//! `pods/x/binding` and `bindings`: puts a Pod on a node.

use std::sync::Arc;

use access::admission::Operation;
use api::status::{FieldError, FieldErrorKind};
use api::view::{Edit, View};
use api::{Status, Struct};

use super::body::{read_object, same_namespace};
use super::scope::Handlers;
use super::scope::Scope;
use super::update::{self, Plan};
use crate::catalog::{ResourceEntry, SubresourceEntry};
use crate::conditions::{self, Condition};
use crate::options::{WriteKind, write_options};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::routes::method_not_allowed;

/// `POST pods/x/binding`
pub(crate) async fn bind(scope: &Scope<'_>, sub: &SubresourceEntry) -> Result<Outcome, Status> {
    bind_named(scope, &sub.kind, Some(scope.name())).await
}

/// `POST bindings`
pub(crate) async fn create(
    handlers: &Handlers,
    req: &Request,
    resource: &Arc<ResourceEntry>,
) -> Result<Outcome, Status> {
    if req.info.verb != "create" {
        return Err(method_not_allowed());
    }
    let pods = req.catalog.resources.stored("", "pods").ok_or_else(Status::no_such_resource)?;
    let scope = Scope::new(handlers, req, pods, None)?;
    bind_named(&scope, &resource.kind, None).await
}

/// Binds the Pod that the body names; it must be `wanted`, if given.
async fn bind_named(
    scope: &Scope<'_>,
    kind: &api::schema::Gvk,
    wanted: Option<&str>,
) -> Result<Outcome, Status> {
    let options = write_options(&scope.req.query, WriteKind::Create)?;
    let schema = scope.catalog.schema();
    let body = read_object(scope.req, kind, None, options.field_validation)?;
    let view = View::new(schema, &body);
    let meta = view.st("metadata");
    let name = meta.str("name");
    if wanted.is_some_and(|w| w != name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    same_namespace(meta.str("namespace"), scope.namespace)?;
    check(&view)?;
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let bad = api::names::path_segment(name, false);
    if !bad.is_empty() {
        return Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {}", bad.join(";"))));
    }
    let mut request = scope.admission(Operation::Create, kind, name, None, options.dry_run);
    // The scope is that of Pods, also for a request to `bindings`.
    request.resource = &scope.req.info.resource;
    let mut admitted = body.clone();
    scope.handlers.admission.mutate(&request, &mut admitted).await?;
    scope.handlers.admission.validate(&request, Some(&admitted)).await?;

    let view = View::new(schema, &admitted);
    let (meta, node) = (view.st("metadata"), view.st("target").str("name"));
    // A Binding that comes to `bindings` has its uid taken away, as every object that a client creates.
    let uid = if wanted.is_some() { meta.str("uid") } else { "" };
    let mut plan = Plan::new(None, &options);
    plan.uid = (!uid.is_empty()).then(|| uid.to_owned());
    plan.admission = false;
    plan.privileged = true;
    let wanted_revision = meta.str("resourceVersion");
    let conflict = |why: String| Status::conflict("", "pods/binding", name, why);
    update::run(scope, name, &plan, &|old: Option<&Struct>| {
        let mut pod = old.cloned().ok_or_else(Status::no_such_resource)?;
        if !wanted_revision.is_empty() && wanted_revision != scope.meta(&pod).resource_version() {
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {wanted_revision}, ResourceVersion in object meta: {}",
                scope.meta(&pod).resource_version()
            );
            return Err(update::precondition(scope, name, &why));
        }
        let now = View::new(schema, &pod);
        if scope.meta(&pod).deleting() {
            return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let at = now.st("spec").str("nodeName");
        if !at.is_empty() {
            return Err(conflict(format!("pod {name} is already assigned to node {at:?}")));
        }
        if now.st("spec").len("schedulingGates") > 0 {
            return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        assign(scope, &mut pod, node, &meta);
        Ok(pod)
    })
    .await?;
    Ok(Outcome::Status(Status { code: 201, ..Status::success() }))
}

fn assign(scope: &Scope<'_>, pod: &mut Struct, node: &str, binding: &View<'_>) {
    let schema = scope.catalog.schema();
    let mut edit = Edit::new(schema, pod);
    if let Some(mut spec) = edit.make("spec") {
        spec.set("nodeName", node);
    }
    if let Some(mut status) = edit.make("status") {
        status.remove("nominatedNodeName");
    }
    if let Some(mut meta) = edit.make("metadata") {
        for field in ["annotations", "labels"] {
            let entries: Vec<(&str, &str)> = binding.texts(field).collect();
            if entries.is_empty() {
                continue;
            }
            if let Some(map) = meta.make_map(field) {
                for (key, value) in entries {
                    map.insert(key, value);
                }
            }
        }
    }
    let scheduled = Condition { kind: "PodScheduled", status: "True", reason: "", message: "" };
    conditions::set(schema, pod, &scheduled, &scope.now);
}

fn check(binding: &View<'_>) -> Result<(), Status> {
    let target = binding.st("target");
    let mut errors = Vec::new();
    let kind = target.str("kind");
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError {
            kind: FieldErrorKind::NotSupported,
            field: "target.kind".into(),
            value: Some(format!("{kind:?}")),
            detail: "supported values: \"Node\", \"<empty>\"".into(),
        });
    }
    if target.str("name").is_empty() {
        errors.push(FieldError {
            kind: FieldErrorKind::Required,
            field: "target.name".into(),
            value: None,
            detail: String::new(),
        });
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Upstream answers with the plain aggregate here, not with a 422.
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let message = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
    Err(Status::failure(500, "", message))
}
