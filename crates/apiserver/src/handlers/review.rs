//! Reviews: what the caller sends comes back with its status.

use std::sync::Arc;

use access::admission::{AdmissionRequest, Operation, OperationOptions};
use api::view::{Edit, View};
use api::{Status, Struct};

use super::body::{read_object, same_namespace, scope_namespace, warn_of_owners};
use super::managed;
use super::scope::Handlers;
use crate::catalog::Catalog;
use crate::catalog::ResourceEntry;
use crate::options::{WriteKind, write_options};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::routes::method_not_allowed;

/// Answers a review.
pub(crate) async fn create(
    handlers: &Handlers,
    req: &Request,
    resource: &Arc<ResourceEntry>,
) -> Result<Outcome, Status> {
    if req.info.verb != "create" {
        return Err(method_not_allowed());
    }
    let options = write_options(&req.query, WriteKind::Create)?;
    let mut tree = read_object(req, &resource.kind, None, options.field_validation)?;
    wipe_system_fields(&req.catalog, &mut tree);
    let namespace = scope_namespace(resource, &req.info);
    if !resource.namespaced
        && let Some(mut meta) = Edit::new(req.catalog.schema(), &mut tree).at("metadata")
    {
        meta.remove("namespace");
    }
    if resource.namespaced {
        same_namespace(View::new(req.catalog.schema(), &tree).st("metadata").str("namespace"), namespace)?;
        if let Some(mut meta) = Edit::new(req.catalog.schema(), &mut tree).make("metadata") {
            meta.set("namespace", namespace);
        }
    }
    dedup_owners(req, &mut tree);
    managed::track_answered(&handlers.objects.now(), req, &resource.kind, &mut tree, &options);
    let name = View::new(req.catalog.schema(), &tree).st("metadata").str("name").to_owned();
    let request = AdmissionRequest {
        user: &req.user,
        info: &req.info,
        operation: Operation::Create,
        kind: &resource.kind,
        request_kind: &resource.kind,
        versions: req,
        resource: &resource.plural,
        subresource: "",
        namespace,
        name: &name,
        old: None,
        dry_run: options.dry_run,
        options: OperationOptions::of(Operation::Create, &req.query),
        notes: &req.notes,
    };
    handlers.admission.mutate(&request, &mut tree).await?;
    handlers.admission.validate(&request, Some(&tree)).await?;
    handlers.auth.reviewer.review(&resource.plural, &req.user, namespace, &mut tree, &req.notes).await?;
    Ok(Outcome::Tree { status: 201, kind: resource.kind.clone(), tree, resource: Some(Arc::clone(resource)) })
}

/// Drops owner references that stand twice, with a warning.
pub(super) fn dedup_owners(req: &Request, tree: &mut Struct) {
    if let Some(at) = req.catalog.schema().st(tree.id).field("metadata").filter(|at| tree.has(*at))
        && let Some(mut meta) = req.catalog.meta.of_mut(tree, at)
    {
        warn_of_owners(req, &meta.dedup_owners(), false);
    }
}

/// Takes away the metadata that only the server says.
pub(super) fn wipe_system_fields(catalog: &Catalog, tree: &mut Struct) {
    if let Some(at) = catalog.schema().st(tree.id).field("metadata").filter(|at| tree.has(*at))
        && let Some(mut meta) = catalog.meta.of_mut(tree, at)
    {
        meta.wipe_system_fields();
    }
}
