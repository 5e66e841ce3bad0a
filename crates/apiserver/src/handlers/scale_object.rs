//! The Scale of an object: what stands in it, and what admission says of it.

use access::admission::Operation;
use api::view::{Edit, View};
use api::{Status, Struct};
use kinds::scale::Scale;

use super::scope::Scope;
use crate::catalog::SubresourceEntry;

/// Where the numbers of a Scale stand in the workload.
pub(super) fn places<'s>(scope: &Scope<'s>) -> Result<&'s Scale, Status> {
    scope.facts().scale.as_ref().ok_or_else(Status::no_such_resource)
}

/// The number of replicas of a custom resource that has none, in the Scale that a patch changes; upstream's.
pub(super) const NO_REPLICAS: i64 = -(1 << 31);

/// Fails if a custom resource has no number of replicas: such an object has no Scale.
pub(super) fn there(scope: &Scope<'_>, tree: &Struct) -> Result<(), Status> {
    let places = places(scope)?;
    if places.has_replicas(scope.catalog.schema(), tree) {
        return Ok(());
    }
    let path = api::go::quote(&places.replicas_path());
    Err(Status::internal(format!("the spec replicas field {path} does not exist")))
}

/// The refusal of a Scale that leaves a custom resource without a number of replicas.
pub(super) fn no_replicas(places: &Scale) -> Status {
    let path = api::go::quote(&places.replicas_path());
    Status::bad_request(format!("the spec replicas field {path} cannot be empty"))
}

/// The Scale of a workload.
pub(super) fn of(scope: &Scope<'_>, sub: &SubresourceEntry, tree: &Struct) -> Result<Struct, Status> {
    let schema = scope.catalog.schema();
    let root = sub.root.ok_or_else(Status::no_such_resource)?;
    let mut scale = Struct::new(root);
    let places = places(scope)?;
    let meta = View::new(schema, tree).st("metadata");
    let replicas = places.replicas(schema, tree);
    let selector = places.selector(schema, tree);
    let mut edit = Edit::new(schema, &mut scale);
    if let Some(mut m) = edit.make("metadata") {
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            let value = meta.str(field);
            if !value.is_empty() {
                m.set(field, value);
            }
        }
    }
    if let Some(mut s) = edit.make("spec")
        && replicas != 0
    {
        s.set("replicas", replicas);
    }
    if let Some(mut s) = edit.make("status") {
        s.set("replicas", places.status_replicas(schema, tree));
        if !selector.is_empty() {
            s.set("selector", selector);
        }
    }
    Ok(scale)
}

/// Asks mutating admission about the Scale of a workload, and takes over the replicas that it wants.
pub(super) async fn mutate(
    scope: &Scope<'_>,
    sub: &SubresourceEntry,
    old: &Struct,
    tree: &mut Struct,
    dry_run: bool,
) -> Result<(), Status> {
    let (old, mut new) = (of(scope, sub, old)?, of(scope, sub, tree)?);
    let request = scope.admission(Operation::Update, &sub.kind, scope.name(), Some(&old), dry_run);
    scope.handlers.admission.mutate(&request, &mut new).await?;
    let schema = scope.catalog.schema();
    let replicas = View::new(schema, &new).st("spec").int("replicas");
    let places = places(scope)?;
    if replicas != places.replicas(schema, tree) {
        places.set_replicas(schema, tree, replicas);
    }
    Ok(())
}

/// Asks validating admission about the Scale of a workload.
pub(super) async fn validate(
    scope: &Scope<'_>,
    sub: &SubresourceEntry,
    old: &Struct,
    tree: &Struct,
    dry_run: bool,
) -> Result<(), Status> {
    let (old, new) = (of(scope, sub, old)?, of(scope, sub, tree)?);
    let request = scope.admission(Operation::Update, &sub.kind, scope.name(), Some(&old), dry_run);
    scope.handlers.admission.validate(&request, Some(&new)).await
}
