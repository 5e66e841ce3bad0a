//! The `scale` subresource: `autoscaling/v1` `Scale` over a workload's replicas.

use access::auth::Eventual;
use api::schema::Gvk;
use api::view::{Edit, View};
use api::{Node, Status, Struct};

use super::body::{check_name_of, read_object, same_namespace};
use super::patch::PatchType;
use super::scale_object;
use super::scope::Scope;
use super::update::{self, Change, Done, Plan};
use super::{managed, patch};
use crate::catalog::SubresourceEntry;
use crate::options::{WriteKind, WriteOptions, write_options};
use crate::outcome::Outcome;
use crate::routes::method_not_allowed;

fn answer(scope: &Scope<'_>, sub: &SubresourceEntry, tree: &Struct) -> Result<Outcome, Status> {
    Ok(Outcome::Tree {
        status: 200,
        kind: sub.kind.clone(),
        tree: scale_object::of(scope, sub, tree)?,
        resource: None,
    })
}

/// A configuration of a Scale that is applied.
struct Applying<'s> {
    scope: &'s Scope<'s>,
    kind: &'s Gvk,
    config: Node,
    options: &'s WriteOptions,
}

impl Change for Applying<'_> {
    fn make<'m>(&'m self, old: Option<&'m Struct>) -> Eventual<'m, Result<Struct, Status>> {
        let Some(old) = old else { return Eventual::Now(Err(Status::no_such_resource())) };
        managed::apply_scale(self.scope, self.kind, old, self.config.clone(), self.options)
    }
}

/// get, update and patch.
pub(crate) async fn scale(scope: &Scope<'_>, sub: &SubresourceEntry) -> Result<Outcome, Status> {
    let name = scope.name();
    let (kind, write) = match scope.req.info.verb {
        "get" => {
            let tree = scope.tree(&scope.find(name)?).await?;
            scale_object::there(scope, &tree)?;
            return answer(scope, sub, &tree);
        }
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
        None => Some(read_object(scope.req, &sub.kind, None, options.field_validation)?),
        Some(_) => None,
    };
    if let Some(body) = &body {
        let meta = View::new(scope.catalog.schema(), body).st("metadata");
        same_namespace(meta.str("namespace"), scope.namespace)?;
        check_name_of(meta.str("name"), name)?;
    }
    let mut plan = Plan { scale: Some(sub), ..Plan::new(None, &options) };
    if kind == WriteKind::Apply
        && let Some(patch) = &write
    {
        plan.tracked = true;
        let config = managed::configuration(&patch.body)?;
        let change = Applying { scope, kind: &sub.kind, config, options: &options };
        let done = update::run(scope, name, &plan, &change).await?;
        return scaled(scope, sub, done).await;
    }
    let done = update::run(scope, name, &plan, &|old: Option<&Struct>| {
        let tree = old.cloned().ok_or_else(Status::no_such_resource)?;
        let scale = match (&body, &write) {
            (Some(body), _) => body.clone(),
            (None, Some(p)) => p.apply_to(scope, &sub.kind, &patchable(scope, sub, &tree)?, &options)?,
            (None, None) => return Err(method_not_allowed()),
        };
        rescaled(scope, sub, tree, &scale)
    })
    .await?;
    scaled(scope, sub, done).await
}

/// The Scale that a patch changes. A custom resource without a number of replicas has one that no patch may leave there.
fn patchable(scope: &Scope<'_>, sub: &SubresourceEntry, tree: &Struct) -> Result<Struct, Status> {
    let schema = scope.catalog.schema();
    let mut scale = scale_object::of(scope, sub, tree)?;
    if !scale_object::places(scope)?.has_replicas(schema, tree)
        && let Some(mut spec) = Edit::new(schema, &mut scale).make("spec")
    {
        spec.set("replicas", scale_object::NO_REPLICAS);
    }
    Ok(scale)
}

/// The object with the number of replicas of a Scale.
fn rescaled(
    scope: &Scope<'_>,
    sub: &SubresourceEntry,
    mut tree: Struct,
    scale: &Struct,
) -> Result<Struct, Status> {
    let (schema, places, name) = (scope.catalog.schema(), scale_object::places(scope)?, scope.name());
    let view = View::new(schema, scale);
    let meta = view.st("metadata");
    check_name_of(meta.str("name"), name)?;
    let uid = meta.str("uid");
    if !uid.is_empty() && uid != scope.meta(&tree).uid() {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            scope.meta(&tree).uid()
        );
        return Err(update::precondition(scope, name, &why));
    }
    let replicas = view.st("spec").int("replicas");
    if scope.resource.custom.is_none() {
        let errors = kinds::strategies::check_scale(schema, scale);
        if !errors.is_empty() {
            return Err(Status::invalid(&sub.kind.group, &sub.kind.kind, name, &errors));
        }
    } else if replicas == scale_object::NO_REPLICAS {
        // A custom resource is checked itself, with the number that it gets.
        return Err(scale_object::no_replicas(places));
    }
    scope.meta_mut(&mut tree)?.set_resource_version(meta.str("resourceVersion"));
    places.set_replicas(schema, &mut tree, replicas);
    Ok(tree)
}

async fn scaled(scope: &Scope<'_>, sub: &SubresourceEntry, done: Done) -> Result<Outcome, Status> {
    match done {
        Done::Stored(object) => answer(scope, sub, &scope.tree(&object).await?),
        Done::Dry(tree) | Done::Deleted(tree) => answer(scope, sub, &tree),
        Done::Created(outcome) => Ok(outcome),
    }
}
