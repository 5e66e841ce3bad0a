//! Resources that are not kept: reviews, token requests, `bindings`, `componentstatuses`.

use std::sync::Arc;

use api::view::{Edit, View};
use api::{Status, Struct};

use super::{Scope, binding, managed, read_object};
use crate::admission::{AdmissionRequest, Operation, OperationOptions};
use crate::answer::Outcome;
use crate::inner::Inner;
use crate::options::{WriteKind, write_options};
use crate::pipe::method_not_allowed;
use crate::registry::{Resource, Subresource};
use crate::request::Request;

pub(crate) async fn dispatch(
    inner: &Arc<Inner>,
    req: &Request,
    resource: &Arc<Resource>,
) -> Result<Outcome, Status> {
    match (resource.group.as_str(), resource.plural.as_str(), req.info.verb) {
        ("", "componentstatuses", "list") => Ok(Outcome::Computed {
            resource: Arc::clone(resource),
            items: COMPONENTS.iter().map(|c| component(inner, resource, c)).collect(),
        }),
        ("", "componentstatuses", "get") => {
            let name = req.info.name.as_str();
            let known = COMPONENTS.iter().find(|c| **c == name);
            let known = known.ok_or_else(|| Status::not_found("", "componentstatus", name))?;
            Ok(Outcome::Tree {
                status: 200,
                kind: resource.kind.clone(),
                tree: component(inner, resource, known),
                resource: Some(Arc::clone(resource)),
            })
        }
        ("", "bindings", "create") => {
            let pods = inner.registry.stored("", "pods").ok_or_else(Status::no_such_resource)?;
            let scope = Scope::new(inner, req, pods)?;
            binding::bind_named(&scope, &resource.kind, None).await
        }
        (_, _, "create") => review(inner, req, resource).await,
        _ => Err(method_not_allowed()),
    }
}

/// The components whose health `componentstatuses` tells; they run in this process or not at all.
const COMPONENTS: [&str; 3] = ["controller-manager", "scheduler", "etcd-0"];

fn component(inner: &Inner, resource: &Resource, name: &str) -> Struct {
    let schema = inner.schema;
    let mut tree = Struct::new(resource.root);
    let mut edit = Edit::new(schema, &mut tree);
    if let Some(mut meta) = edit.make("metadata") {
        meta.set("name", name);
    }
    if let Some(mut condition) = edit.fresh("conditions") {
        {
            let mut c = Edit::new(schema, &mut condition);
            c.set("type", "Healthy");
            c.set("status", "True");
            c.set("message", "ok");
        }
        edit.set("conditions", vec![api::Node::from(condition)]);
    }
    tree
}

/// Reviews: what the caller sends comes back with its status.
async fn review(inner: &Arc<Inner>, req: &Request, resource: &Arc<Resource>) -> Result<Outcome, Status> {
    let options = write_options(&req.query, WriteKind::Create)?;
    let mut tree = read_object(inner, req, &resource.kind, options.field_validation)?;
    wipe_system_fields(inner, &mut tree);
    let namespace = super::scope_namespace(resource, &req.info);
    if !resource.namespaced
        && let Some(mut meta) = Edit::new(inner.schema, &mut tree).at("metadata")
    {
        meta.remove("namespace");
    }
    if resource.namespaced {
        super::same_namespace(View::new(inner.schema, &tree).st("metadata").str("namespace"), namespace)?;
        if let Some(mut meta) = Edit::new(inner.schema, &mut tree).make("metadata") {
            meta.set("namespace", namespace);
        }
    }
    dedup_owners(inner, req, &mut tree);
    managed::track_answered(inner, req, &resource.kind, &mut tree, &options);
    let name = View::new(inner.schema, &tree).st("metadata").str("name").to_owned();
    let request = AdmissionRequest {
        user: &req.user,
        info: &req.info,
        operation: Operation::Create,
        kind: &resource.kind,
        resource: &resource.plural,
        subresource: "",
        namespace,
        name: &name,
        old: None,
        dry_run: options.dry_run,
        options: OperationOptions::of(Operation::Create, &req.query),
        warnings: &req.warnings,
    };
    inner.admission.mutate(&request, &mut tree).await?;
    inner.admission.validate(&request, Some(&tree)).await?;
    inner.auth.reviewer.review(&resource.plural, &req.user, namespace, &mut tree)?;
    Ok(Outcome::Tree { status: 201, kind: resource.kind.clone(), tree, resource: Some(Arc::clone(resource)) })
}

/// Drops owner references that stand twice, with a warning.
fn dedup_owners(inner: &Inner, req: &Request, tree: &mut Struct) {
    if let Some(at) = inner.schema.st(tree.id).field("metadata").filter(|at| tree.has(*at))
        && let Some(mut meta) = inner.meta.of_mut(tree, at)
    {
        super::warn_of_owners(req, &meta.dedup_owners(), false);
    }
}

/// Takes away the metadata that only the server says.
fn wipe_system_fields(inner: &Inner, tree: &mut Struct) {
    if let Some(at) = inner.schema.st(tree.id).field("metadata").filter(|at| tree.has(*at))
        && let Some(mut meta) = inner.meta.of_mut(tree, at)
    {
        meta.wipe_system_fields();
    }
}

/// `POST serviceaccounts/x/token`
pub(crate) async fn token(scope: &Scope<'_>, sub: &Subresource) -> Result<Outcome, Status> {
    let options = write_options(&scope.req.query, WriteKind::Create)?;
    let inner = scope.inner;
    let mut tree = read_object(inner, scope.req, &sub.kind, options.field_validation)?;
    wipe_system_fields(inner, &mut tree);
    let name = scope.name();
    let request = scope.admission(Operation::Create, &sub.kind, name, None, options.dry_run);
    inner.admission.mutate(&request, &mut tree).await?;
    let view = View::new(inner.schema, &tree).st("metadata");
    let (has_name, has_namespace) = (view.str("name").to_owned(), view.str("namespace").to_owned());
    if !has_name.is_empty() && has_name != name {
        return Err(Status::bad_request(format!(
            "metadata.name in request body ({has_name:?}) does not match service account name in URL ({name:?})"
        )));
    }
    super::same_namespace(&has_namespace, scope.namespace)?;
    let account = scope.tree(&*scope.find(name)?)?;
    if let Some(mut meta) = Edit::new(inner.schema, &mut tree).make("metadata") {
        meta.set("name", name);
        meta.set("namespace", scope.namespace);
        meta.set("creationTimestamp", scope.now.as_str());
    }
    let tree_kind = sub.kind.clone();
    inner.registry.defaults.apply(inner.schema, &mut tree);
    dedup_owners(inner, scope.req, &mut tree);
    managed::track_answered(inner, scope.req, &tree_kind, &mut tree, &options);
    inner.admission.validate(&request, Some(&tree)).await?;
    inner.auth.reviewer.issue_token(&scope.req.user, &account, &mut tree)?;
    Ok(Outcome::Tree { status: 201, kind: tree_kind, tree, resource: None })
}
