//! Reviews: what the caller sends comes back with its status.

use std::sync::Arc;

use access::admission::{AdmissionRequest, Operation, OperationOptions};
use api::view::{Edit, View};
use api::{Status, Struct};

use super::{managed, read_object};
use crate::answer::Outcome;
use crate::inner::Inner;
use crate::options::{WriteKind, write_options};
use crate::pipe::method_not_allowed;
use crate::registry::Resource;
use crate::request::Request;

/// Answers a review.
pub(crate) async fn create(
    inner: &Arc<Inner>,
    req: &Request,
    resource: &Arc<Resource>,
) -> Result<Outcome, Status> {
    if req.info.verb != "create" {
        return Err(method_not_allowed());
    }
    let options = write_options(&req.query, WriteKind::Create)?;
    let mut tree = read_object(inner, req, &resource.kind, None, options.field_validation)?;
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
        notes: &req.notes,
    };
    inner.admission.mutate(&request, &mut tree).await?;
    inner.admission.validate(&request, Some(&tree)).await?;
    inner.auth.reviewer.review(&resource.plural, &req.user, namespace, &mut tree).await?;
    Ok(Outcome::Tree { status: 201, kind: resource.kind.clone(), tree, resource: Some(Arc::clone(resource)) })
}

/// Drops owner references that stand twice, with a warning.
pub(super) fn dedup_owners(inner: &Inner, req: &Request, tree: &mut Struct) {
    if let Some(at) = inner.schema.st(tree.id).field("metadata").filter(|at| tree.has(*at))
        && let Some(mut meta) = inner.meta.of_mut(tree, at)
    {
        super::warn_of_owners(req, &meta.dedup_owners(), false);
    }
}

/// Takes away the metadata that only the server says.
pub(super) fn wipe_system_fields(inner: &Inner, tree: &mut Struct) {
    if let Some(at) = inner.schema.st(tree.id).field("metadata").filter(|at| tree.has(*at))
        && let Some(mut meta) = inner.meta.of_mut(tree, at)
    {
        meta.wipe_system_fields();
    }
}
