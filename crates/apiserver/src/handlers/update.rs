//! Updates: the loop that tries until nobody else wrote in between.

use std::sync::Arc;

use access::admission::Operation;
use access::auth::{Access, Eventual};
use api::status::{FieldError, FieldErrorKind};
use api::{Object, Status, Struct};
use kinds::Subresource;
use parking_lot::Mutex;
use storage::{Write, WriteError};

use super::scale_object;
use super::scope::{Failed, MODIFIED, Scope};
use super::{create, managed};
use crate::catalog;
use crate::options::{WriteKind, WriteOptions, write_options};
use crate::outcome::Outcome;

/// A change of an object.
pub(crate) trait Change: Send + Sync {
    /// Makes the new tree from the current one (with its resourceVersion), or from nothing for a create.
    fn make<'m>(&'m self, old: Option<&'m Struct>) -> Eventual<'m, Result<Struct, Status>>;
}

impl<F: Fn(Option<&Struct>) -> Result<Struct, Status> + Send + Sync> Change for F {
    fn make<'m>(&'m self, old: Option<&'m Struct>) -> Eventual<'m, Result<Struct, Status>> {
        Eventual::Now(self(old))
    }
}

/// The object as the client sent it.
struct Sent<'s> {
    scope: &'s Scope<'s>,
    tree: Mutex<Option<Struct>>,
    /// It is of one state, so that there is no second try.
    of_one: bool,
}

impl<'s> Sent<'s> {
    fn new(scope: &'s Scope<'s>, tree: Struct) -> Self {
        let of_one = !matches!(scope.meta(&tree).resource_version(), "" | "0");
        Self { scope, tree: Mutex::new(Some(tree)), of_one }
    }
}

impl Change for Sent<'_> {
    fn make<'m>(&'m self, _old: Option<&'m Struct>) -> Eventual<'m, Result<Struct, Status>> {
        let mut tree = self.tree.lock();
        let made = if self.of_one { tree.take() } else { tree.clone() };
        Eventual::Now(made.ok_or_else(|| self.scope.conflict(self.scope.name(), MODIFIED)))
    }
}

/// How an update goes.
pub(crate) struct Plan<'p> {
    /// The subresource's rules, or the resource's own.
    pub(crate) rules: Option<&'p dyn Subresource>,
    /// The options.
    pub(crate) options: &'p WriteOptions,
    /// The uid that the object must have.
    pub(crate) uid: Option<String>,
    /// Makes the object if it is not there.
    pub(crate) create: bool,
    /// Admission is asked.
    pub(crate) admission: bool,
    /// An update by the handlers themselves: what the client may not change is not put back.
    pub(crate) privileged: bool,
    /// The change sets managedFields itself.
    pub(crate) tracked: bool,
    /// Admission sees not the object but its Scale, which is what the client wrote.
    pub(crate) scale: Option<&'p catalog::SubresourceEntry>,
}

impl<'p> Plan<'p> {
    /// An ordinary update.
    pub(crate) fn new(rules: Option<&'p dyn Subresource>, options: &'p WriteOptions) -> Self {
        Self {
            rules,
            options,
            uid: None,
            create: false,
            admission: true,
            privileged: false,
            tracked: false,
            scale: None,
        }
    }
}

/// The outcome of an update.
pub(crate) enum Done {
    /// The object as it is stored now, after a write or none.
    Stored(Arc<Object>),
    /// It was made.
    Created(Outcome),
    /// A dry run: what would be stored.
    Dry(Struct),
    /// The last finalizer went, and the object with it; its last state.
    Deleted(Struct),
}

pub(crate) async fn update(scope: &Scope<'_>, rules: Option<&dyn Subresource>) -> Result<Outcome, Status> {
    let options = write_options(&scope.req.query, WriteKind::Update)?;
    let mut tree = scope.body(&options).await?;
    scope.ensure_namespace(&mut tree)?;
    scope.check_name(&tree)?;
    scope.dedup_owners(&mut tree, false)?;
    let uid = scope.meta(&tree).uid().to_owned();
    let mut plan = Plan::new(rules, &options);
    plan.uid = (!uid.is_empty()).then_some(uid);
    plan.create = rules.is_none() && scope.facts().create_on_update;
    let done = run(scope, scope.name(), &plan, &Sent::new(scope, tree)).await?;
    answer(scope, done).await
}

/// The answer to an update of the resource itself.
pub(crate) async fn answer(scope: &Scope<'_>, done: Done) -> Result<Outcome, Status> {
    match done {
        Done::Stored(object) => Ok(scope.stored_answer(200, object)),
        Done::Created(outcome) => Ok(outcome),
        Done::Dry(tree) | Done::Deleted(tree) => scope.dry_answer(200, tree).await,
    }
}

/// Tries until the write is in, or refused. `change` sees each state anew.
pub(crate) async fn run(
    scope: &Scope<'_>,
    name: &str,
    plan: &Plan<'_>,
    change: &dyn Change,
) -> Result<Done, Status> {
    scope.changeable(name)?;
    let mut current = scope.handlers.objects.store.get(scope.stored.id, scope.namespace, name);
    loop {
        let Some(object) = current else {
            if !plan.create {
                return Err(Status::not_found(&scope.resource.group, &scope.resource.plural, name));
            }
            match create_instead(scope, plan, change).await {
                Err(e) if e.is_already_exists() => {
                    current = scope.handlers.objects.store.get(scope.stored.id, scope.namespace, name);
                    if current.is_none() {
                        return Err(e);
                    }
                    continue;
                }
                other => return other.map(Done::Created),
            }
        };
        match attempt(scope, name, plan, change, &object).await? {
            Ok(done) => return Ok(done),
            Err(newer) => current = newer,
        }
    }
}

async fn create_instead(scope: &Scope<'_>, plan: &Plan<'_>, change: &dyn Change) -> Result<Outcome, Status> {
    if let Some(uid) = &plan.uid {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
        return Err(precondition(scope, scope.name(), &why));
    }
    let mut tree = change.make(None).get().await?;
    let create = Access { verb: "create", ..Access::from(&*scope.req.info) };
    scope.handlers.auth.require(&scope.req.user, &create).await?;
    if !plan.tracked {
        managed::track_update(scope, None, &mut tree, plan.options).await?;
    }
    create::admit_and_store(scope, tree, plan.options).await
}

/// Upstream's conflict for a precondition that does not hold.
pub(crate) fn precondition(scope: &Scope<'_>, name: &str, why: &str) -> Status {
    let key = scope.resource.storage_key(scope.namespace, name);
    scope.conflict(
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        ),
    )
}

/// One try. `Err` holds the newer state over which to try again.
async fn attempt(
    scope: &Scope<'_>,
    name: &str,
    plan: &Plan<'_>,
    change: &dyn Change,
    object: &Arc<Object>,
) -> Result<Result<Done, Option<Arc<Object>>>, Status> {
    let (catalog, handlers) = (scope.catalog, scope.handlers);
    let strategy = scope.strategy();
    if let Some(uid) = &plan.uid
        && object.data.uid != *uid
    {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            object.data.uid
        );
        return Err(precondition(scope, name, &why));
    }
    let old = scope.tree(object).await?;
    let mut tree = change.make(Some(&old)).get().await?;
    let dry_run = plan.options.dry_run;
    if plan.admission {
        if !plan.tracked {
            managed::track_update(scope, Some(&old), &mut tree, plan.options).await?;
        }
        if let Some(sub) = plan.scale {
            scale_object::mutate(scope, sub, &old, &mut tree, dry_run).await?;
        } else {
            let request = scope.admission(Operation::Update, &scope.stored.kind, name, Some(&old), dry_run);
            handlers.admission.mutate(&request, &mut tree).await?;
        }
        scope.dedup_owners(&mut tree, true)?;
    }
    scope.bounded(&tree)?;
    check_revision(scope, name, &mut tree, object.revision)?;
    scope.ensure_namespace(&mut tree)?;
    keep_generation(scope, &mut tree, &old)?;
    let warn = |text: String| scope.req.warn(text);
    let ctx = scope.ctx(&warn);
    if !plan.privileged {
        // Before the rules, unless these count what is dropped in a generation.
        if !scope.facts().counts_gated {
            catalog.gated.strip(&mut tree, Some(&old));
        }
        match plan.rules {
            Some(rules) => rules.prepare_update(&ctx, &mut tree, &old),
            None => strategy.prepare_update(&ctx, &mut tree, &old),
        }
        if scope.facts().counts_gated {
            catalog.gated.strip(&mut tree, Some(&old));
        }
    }
    keep_metadata(scope, &mut tree, &old)?;
    let reservation = match scope.lifecycle.filter(|_| plan.rules.is_none()) {
        Some(lifecycle) => lifecycle.begin_update(scope, &mut tree, &old, dry_run).await?,
        None => None,
    };
    let done = attempt_filled(scope, name, plan, object, tree, old).await;
    if let Some(reservation) = reservation {
        match &done {
            Ok(Ok(Done::Stored(_))) => reservation.keep().await,
            Ok(_) => reservation.fail(false).await,
            Err(failed) => reservation.fail(failed.doubtful).await,
        }
    }
    done.map_err(|failed| failed.status)
}

/// Checks what is filled, and stores it.
async fn attempt_filled(
    scope: &Scope<'_>,
    name: &str,
    plan: &Plan<'_>,
    object: &Arc<Object>,
    mut tree: Struct,
    old: Struct,
) -> Result<Result<Done, Option<Arc<Object>>>, Failed> {
    let (catalog, handlers) = (scope.catalog, scope.handlers);
    let strategy = scope.strategy();
    let dry_run = plan.options.dry_run;
    let warn = |text: String| scope.req.warn(text);
    let ctx = scope.ctx(&warn);
    if !plan.privileged {
        let mut errors =
            kinds::validation::meta::common_update(catalog.schema(), &tree, &old, scope.resource.namespaced);
        errors.extend(match plan.rules {
            Some(rules) => rules.validate_update(&ctx, &tree, &old),
            None => strategy.validate_update(&ctx, &tree, &old),
        });
        if !errors.is_empty() {
            let name = scope.meta(&tree).name();
            return Err(scope.invalid(name, &errors).into());
        }
        // Subresources warn of nothing.
        if plan.rules.is_none() {
            for text in strategy.warnings(&ctx, &tree, Some(&old)) {
                scope.req.warn(text);
            }
        }
    }
    if plan.admission {
        if let Some(sub) = plan.scale {
            scale_object::validate(scope, sub, &old, &tree, dry_run).await?;
        } else {
            let request = scope.admission(Operation::Update, &scope.stored.kind, name, Some(&old), dry_run);
            handlers.admission.validate(&request, Some(&tree)).await?;
        }
    }
    let gone = finalized(scope, &tree, &old);
    if dry_run {
        let revision = object.revision.to_string();
        scope.meta_mut(&mut tree)?.set_resource_version(&revision);
        return Ok(Ok(if gone { Done::Deleted(tree) } else { Done::Dry(tree) }));
    }
    if gone {
        let write = Write::Delete {
            resource: scope.stored.id,
            namespace: object.data.namespace.clone(),
            name: object.data.name.clone(),
            expect: object.revision,
        };
        return match scope.commit(write).await {
            Ok(_) | Err(WriteError::NotFound) => {
                scope.deleted(&old).await;
                Ok(Ok(Done::Deleted(tree)))
            }
            Err(WriteError::Changed(newer)) => Ok(Err(Some(newer))),
            Err(e) => Err(Failed::of(scope, &e, name)),
        };
    }
    let new = scope.new_object(managed::keep_times(scope, tree, &old)?).await?;
    if new.body == object.data.body {
        return Ok(Ok(Done::Stored(Arc::clone(object))));
    }
    let write =
        Write::Update { resource: scope.stored.id, object: new, expect: object.revision, ttl: scope.ttl() };
    match scope.commit(write).await {
        Ok(object) => Ok(Ok(Done::Stored(object))),
        Err(WriteError::Changed(newer)) => Ok(Err(Some(newer))),
        Err(WriteError::NotFound) => Ok(Err(None)),
        Err(e) => Err(Failed::of(scope, &e, name)),
    }
}

/// The update must be of the state that is current, or of none in particular where the kind allows that.
fn check_revision(scope: &Scope<'_>, name: &str, tree: &mut Struct, current: u64) -> Result<(), Status> {
    let wanted = scope.meta(tree).resource_version();
    if wanted.is_empty() || wanted == "0" {
        if scope.facts().unconditional_update {
            scope.meta_mut(tree)?.set_resource_version(&current.to_string());
            return Ok(());
        }
        let error = FieldError {
            kind: FieldErrorKind::Invalid,
            field: "metadata.resourceVersion".into(),
            value: Some("0".into()),
            detail: "must be specified for an update".into(),
        };
        return Err(Status::invalid(&scope.resource.group, &scope.resource.plural, name, &[error]));
    }
    match wanted.parse::<u64>() {
        Ok(revision) if revision == current => Ok(()),
        Ok(_) => Err(scope.conflict(name, MODIFIED)),
        Err(_) => Err(Status::internal(format!(
            "resourceVersion: Invalid value: {wanted:?}: strconv.ParseUint: parsing {wanted:?}: invalid syntax"
        ))),
    }
}

/// A client's generation is never taken.
fn keep_generation(scope: &Scope<'_>, tree: &mut Struct, old: &Struct) -> Result<(), Status> {
    let generation = scope.meta(old).generation();
    scope.meta_mut(tree)?.set_generation(generation);
    Ok(())
}

/// Keeps the metadata that no update changes: uid (unless given), creation, and deletion once it is under way.
fn keep_metadata(scope: &Scope<'_>, tree: &mut Struct, old: &Struct) -> Result<(), Status> {
    let (uid, created, deleted, grace) = {
        let m = scope.meta(old);
        (m.uid().to_owned(), m.created().to_owned(), m.deleted().to_owned(), m.grace())
    };
    let mut meta = scope.meta_mut(tree)?;
    if meta.read().uid().is_empty() {
        meta.set_uid(&uid);
    }
    if !created.is_empty() {
        meta.set_created(&created);
    }
    if !deleted.is_empty() {
        meta.set_deleted(&deleted);
    }
    if grace.is_some() && meta.read().grace().is_none() {
        meta.set_grace(grace);
    }
    Ok(())
}

/// Whether an update took away the last thing that kept a deleted object.
fn finalized(scope: &Scope<'_>, tree: &Struct, old: &Struct) -> bool {
    let before = scope.meta(old);
    scope.meta(tree).finalizers().is_empty()
        && before.deleting()
        && before.grace().is_none_or(|g| g == 0)
        && !scope.strategy().is_held(scope.catalog.schema(), tree)
}
