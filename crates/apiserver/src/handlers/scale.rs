//! The `scale` subresource: `autoscaling/v1` `Scale` over a workload's replicas.

use access::admission::Operation;
use api::view::{Edit, View};
use api::{Status, Struct};
use kinds::scale::Scale;

use super::patch::PatchType;
use super::update::{self, Done, Plan};
use super::{Scope, managed, patch, read_object};
use crate::answer::Outcome;
use crate::options::{WriteKind, write_options};
use crate::pipe::method_not_allowed;
use crate::registry::Subresource;

/// Where the numbers of a Scale stand in the workload.
fn places<'s>(scope: &Scope<'s>) -> Result<&'s Scale, Status> {
    scope.facts().scale.as_ref().ok_or_else(Status::no_such_resource)
}

/// The Scale of a workload.
pub(crate) fn of(scope: &Scope<'_>, sub: &Subresource, tree: &Struct) -> Result<Struct, Status> {
    let schema = scope.inner.schema;
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

fn answer(scope: &Scope<'_>, sub: &Subresource, tree: &Struct) -> Result<Outcome, Status> {
    Ok(Outcome::Tree { status: 200, kind: sub.kind.clone(), tree: of(scope, sub, tree)?, resource: None })
}

/// get, update and patch.
pub(crate) async fn scale(scope: &Scope<'_>, sub: &Subresource) -> Result<Outcome, Status> {
    let name = scope.name();
    let (kind, write) = match scope.req.info.verb {
        "get" => return answer(scope, sub, &scope.tree(&*scope.find(name)?)?),
        "update" => (WriteKind::Update, None),
        "patch" => {
            let patch = patch::read(scope.req)?;
            let kind = if patch.kind == PatchType::Apply { WriteKind::Apply } else { WriteKind::Patch };
            (kind, Some(patch))
        }
        _ => return Err(method_not_allowed()),
    };
    let options = write_options(&scope.req.query, kind)?;
    let body = match write {
        None => Some(read_object(scope.inner, scope.req, &sub.kind, None, options.field_validation)?),
        Some(_) => None,
    };
    if let Some(body) = &body {
        let meta = View::new(scope.inner.schema, body).st("metadata");
        super::same_namespace(meta.str("namespace"), scope.namespace)?;
        update::check_name_of(meta.str("name"), name)?;
    }
    let mut plan = Plan { scale: Some(sub), ..Plan::new(None, &options) };
    if kind == WriteKind::Apply
        && let Some(patch) = &write
    {
        plan.tracked = true;
        let config = managed::configuration(&patch.body)?;
        let done = update::run(scope, name, &plan, &|old| {
            let old = old.ok_or_else(Status::no_such_resource)?;
            managed::apply_scale(scope, &sub.kind, old, config.clone(), &options)
        })
        .await?;
        return scaled(scope, sub, done);
    }
    let schema = scope.inner.schema;
    let done = update::run(scope, name, &plan, &|old| {
        let mut tree = old.cloned().ok_or_else(Status::no_such_resource)?;
        let scale = match (&body, &write) {
            (Some(body), _) => body.clone(),
            (None, Some(p)) => p.apply_to(scope, &sub.kind, &of(scope, sub, &tree)?, &options)?,
            (None, None) => return Err(method_not_allowed()),
        };
        let view = View::new(schema, &scale);
        let meta = view.st("metadata");
        update::check_name_of(meta.str("name"), name)?;
        let uid = meta.str("uid");
        if !uid.is_empty() && uid != scope.meta(&tree).uid() {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                scope.meta(&tree).uid()
            );
            return Err(update::precondition(scope, name, &why));
        }
        let replicas = view.st("spec").int("replicas");
        let errors = kinds::strategies::check_scale(schema, &scale);
        if !errors.is_empty() {
            return Err(Status::invalid(&sub.kind.group, &sub.kind.kind, name, &errors));
        }
        scope.meta_mut(&mut tree)?.set_resource_version(meta.str("resourceVersion"));
        places(scope)?.set_replicas(schema, &mut tree, replicas);
        Ok(tree)
    })
    .await?;
    scaled(scope, sub, done)
}

/// Asks mutating admission about the Scale of a workload, and takes over the replicas that it wants.
pub(super) async fn mutate(
    scope: &Scope<'_>,
    sub: &Subresource,
    old: &Struct,
    tree: &mut Struct,
    dry_run: bool,
) -> Result<(), Status> {
    let (old, mut new) = (of(scope, sub, old)?, of(scope, sub, tree)?);
    let request = scope.admission(Operation::Update, &sub.kind, scope.name(), Some(&old), dry_run);
    scope.inner.admission.mutate(&request, &mut new).await?;
    let schema = scope.inner.schema;
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
    sub: &Subresource,
    old: &Struct,
    tree: &Struct,
    dry_run: bool,
) -> Result<(), Status> {
    let (old, new) = (of(scope, sub, old)?, of(scope, sub, tree)?);
    let request = scope.admission(Operation::Update, &sub.kind, scope.name(), Some(&old), dry_run);
    scope.inner.admission.validate(&request, Some(&new)).await
}

fn scaled(scope: &Scope<'_>, sub: &Subresource, done: Done) -> Result<Outcome, Status> {
    match done {
        Done::Stored(object) => answer(scope, sub, &scope.tree(&object)?),
        Done::Dry(tree) | Done::Deleted(tree) => answer(scope, sub, &tree),
        Done::Created(outcome) => Ok(outcome),
    }
}
