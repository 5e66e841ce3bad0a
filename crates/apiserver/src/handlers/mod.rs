//! One module a verb, generic over resources; [`dispatch`] finds the one. What only some resources have stands in
//! modules of its own, and [`builtin`] says which.

pub(crate) mod binding;
pub(crate) mod builtin;
mod certificate_request;
mod component_status;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod eviction;
pub(crate) mod get;
pub(crate) mod lifecycle;
pub(crate) mod list;
pub(crate) mod managed;
mod namespace;
pub(crate) mod patch;
mod review;
pub(crate) mod scale;
mod service;
mod token;
pub(crate) mod unreadable;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use access::RequestInfo;
use access::admission::{AdmissionRequest, Operation, OperationOptions};
use api::schema::Gvk;
use api::status::FieldError;
use api::{NewObject, Object, Status, Struct};
use kinds::strategy::Facts;
use kinds::{Ctx, Strategy};
use storage::{ReadError, ResourceId, Store, Write, WriteError};

use crate::answer::Outcome;
use crate::codec;
use crate::inner::Inner;
use crate::negotiate;
use crate::options::{FieldValidation, ListOptions, WriteOptions};
use crate::pipe::method_not_allowed;
use crate::registry::{Action, Resource, Stored, Subresource};
use crate::request::Request;

/// What every handler works with: the request and what it is about.
pub(crate) struct Scope<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) req: &'a Request,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) stored: &'a Stored,
    /// The namespace in which the object is; "" for objects of the cluster.
    pub(crate) namespace: &'a str,
    /// Now, as `metav1.Time` text.
    pub(crate) now: String,
}

/// The namespace in which a request's objects are.
pub(crate) fn scope_namespace<'a>(resource: &Resource, info: &'a RequestInfo) -> &'a str {
    if resource.namespaced { &info.namespace } else { "" }
}

/// The warning about the UIDs of owner references that stood twice.
fn warn_of_owners(req: &Request, duplicates: &[String], after_admission: bool) {
    if duplicates.is_empty() {
        return;
    }
    let when = if after_admission { " after mutating admission happens" } else { "" };
    req.warn(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ));
}

/// Refuses a body that names another namespace than its request.
pub(crate) fn same_namespace(of_body: &str, of_request: &str) -> Result<(), Status> {
    if of_body.is_empty() || of_body == of_request {
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// Answers a request for a resource. The caller may.
pub(crate) async fn dispatch(inner: &Arc<Inner>, req: &Request) -> Result<Outcome, Status> {
    let changes = !matches!(req.info.verb, "get" | "list" | "watch");
    if !changes || !inner.store.capabilities().others_write {
        return attempt(inner, req).await;
    }
    // As upstream: a write begins with what is known here, and a refusal counts only if that was current.
    let before = known(inner, req);
    match attempt(inner, req).await {
        Err(status) if !status.is_already_exists() && status.code < 500 => {
            // A conflict is about the object itself, another refusal may be about others.
            let own = if status.code == 409 { 1 } else { before.resources.len() };
            let rests_on: Vec<_> = before.resources.iter().map(|(id, _)| *id).take(own).collect();
            if fresh(&inner.store, &rests_on).await.is_err() {
                return Err(status);
            }
            let after = known(inner, req);
            if after.object == before.object && (status.code == 409 || after.resources == before.resources) {
                return Err(status);
            }
            req.notes.clear();
            attempt(inner, req).await
        }
        answered => answered,
    }
}

/// What the answer to a write rests on, as this server knows it: the object, its resource, and what upstream's admission
/// asks etcd for when its caches lack it.
struct Known {
    /// The revision of the object that the request names.
    object: Option<u64>,
    /// When each resource changed last; first the request's own, if it has one.
    resources: Vec<(ResourceId, u64)>,
}

fn known(inner: &Inner, req: &Request) -> Known {
    let info = &req.info;
    let own = req.resource.as_ref().and_then(|resource| Some((resource, resource.stored.as_ref()?.id)));
    let object = own.and_then(|(resource, id)| {
        inner.store.get(id, scope_namespace(resource, info), &info.name).map(|object| object.revision)
    });
    let others = inner.registry.consulted().iter().copied();
    let all = own.map(|(_, id)| id).into_iter().chain(others);
    Known { object, resources: all.map(|id| (id, inner.store.snapshot(id).changed())).collect() }
}

/// Returns once the store shows everything of these resources that was acknowledged before this call.
pub(crate) async fn fresh(store: &Store, resources: &[ResourceId]) -> Result<(), Status> {
    store.fresh(resources).await.map_err(|e| match e {
        ReadError::Behind { wanted, current } => watch::too_large(wanted, current),
        // Upstream's answers name no reason for what etcd says.
        ReadError::Etcd(e) => Status::failure(500, "", e.to_string()),
        ReadError::Closed => Status::internal(e),
    })
}

async fn attempt(inner: &Arc<Inner>, req: &Request) -> Result<Outcome, Status> {
    let info = &req.info;
    let resource = req.resource.as_ref().ok_or_else(Status::no_such_resource)?;
    if !resource.namespaced && !info.namespace.is_empty() && !resource.strategy.facts().is_namespace {
        return Err(Status::no_such_resource());
    }
    if let Some(going) = &resource.deprecated {
        inner.metrics.deprecated(info, &going.removed);
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
        return subresource(inner, req, resource, sub).await;
    }
    if !resource.has_verb(info.verb) || info.verb == "create" && !info.name.is_empty() {
        return Err(method_not_allowed());
    }
    if resource.namespaced && info.namespace.is_empty() && !matches!(info.verb, "list" | "watch" | "create") {
        return Err(method_not_allowed());
    }
    if resource.stored.is_none() {
        return (resource.computed)(inner, req, resource).await;
    }
    let scope = Scope::new(inner, req, resource)?;
    match info.verb {
        "get" => get::get(&scope).await,
        "list" => list::list(&scope, ListOptions::from_query(&req.query, false)?).await,
        "watch" => watch::watch(inner, req, resource, ListOptions::from_query(&req.query, true)?).await,
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
    inner: &Arc<Inner>,
    req: &Request,
    resource: &Arc<Resource>,
    sub: &Subresource,
) -> Result<Outcome, Status> {
    let scope = Scope::new(inner, req, resource)?;
    match (sub.action, req.info.verb) {
        (Action::Handler(handler), _) => handler(&scope, sub).await,
        (Action::Scale, _) => scale::scale(&scope, sub).await,
        (Action::Own, "get") if sub.kind == resource.kind => get::get(&scope).await,
        (Action::Own, verb @ ("update" | "patch")) => {
            let rules = scope.strategy().subresource(&sub.name).ok_or_else(Status::no_such_resource)?;
            if verb == "update" {
                update::update(&scope, Some(rules)).await
            } else {
                patch::patch(&scope, Some(rules)).await
            }
        }
        (Action::Own, _) => Err(Status::no_such_resource()),
    }
}

impl<'a> Scope<'a> {
    /// Writes, and remembers how long that took.
    pub(crate) async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        let operation = match write {
            Write::Create { .. } => "create",
            Write::Update { .. } => "update",
            Write::Delete { .. } => "delete",
        };
        let started = tokio::time::Instant::now();
        let result = self.inner.store.commit(write).await;
        self.inner.metrics.commit(&self.stored.group, &self.stored.plural, operation, started.elapsed());
        result
    }
    pub(crate) fn new(
        inner: &'a Arc<Inner>,
        req: &'a Request,
        resource: &'a Arc<Resource>,
    ) -> Result<Self, Status> {
        Ok(Self {
            inner,
            req,
            resource,
            stored: resource.stored()?,
            namespace: scope_namespace(resource, &req.info),
            now: inner.now(),
        })
    }
    /// The request's name.
    pub(crate) fn name(&self) -> &'a str {
        &self.req.info.name
    }
    /// The kind's rules.
    pub(crate) fn strategy(&self) -> &'a dyn Strategy {
        &*self.resource.strategy
    }
    /// The kind's facts.
    pub(crate) fn facts(&self) -> &'a Facts {
        self.resource.strategy.facts()
    }
    /// After an object is gone; its last state.
    pub(crate) async fn deleted(&self, last: &Struct) {
        if let Some(lifecycle) = self.resource.lifecycle {
            lifecycle.deleted(self, last).await;
        }
    }
    /// What rules may look at.
    pub(crate) fn ctx<'c>(
        &'c self,
        gate: &'c (dyn Fn(&str) -> bool + Sync),
        warn: &'c (dyn Fn(String) + Sync),
    ) -> Ctx<'c> {
        Ctx { schema: self.inner.schema, now: &self.now, gate, warn }
    }
    /// Whether a feature is on.
    pub(crate) fn gate(&self, name: &str) -> bool {
        self.inner.config.gates.enabled(name)
    }
    /// The stored object, or a 404; what is there may also be impossible to read.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Object>, Status> {
        self.readable(name)?;
        self.inner
            .store
            .get(self.stored.id, self.namespace, name)
            .ok_or_else(|| Status::not_found(&self.resource.group, &self.resource.plural, name))
    }
    /// Metadata of a tree of the stored version.
    pub(crate) fn meta<'t>(&'t self, tree: &'t Struct) -> crate::meta::MetaRef<'t> {
        self.inner.meta.of(tree, self.stored.meta_at)
    }
    /// Metadata of a tree of the stored version, to change.
    pub(crate) fn meta_mut<'t>(&'t self, tree: &'t mut Struct) -> Result<crate::meta::MetaMut<'t>, Status> {
        self.inner
            .meta
            .of_mut(tree, self.stored.meta_at)
            .ok_or_else(|| Status::internal("the object has no metadata"))
    }
    /// Decodes a stored object, with its resourceVersion.
    pub(crate) fn tree(&self, object: &Object) -> Result<Struct, Status> {
        let mut tree = self.inner.stored_tree(self.resource, object)?;
        self.meta_mut(&mut tree)?.set_resource_version(&object.revision.to_string());
        Ok(tree)
    }
    /// Reads the body as an object of this resource, in the stored version and with defaults.
    pub(crate) fn body(&self, options: &WriteOptions) -> Result<Struct, Status> {
        let (kind, strategy) = (&self.resource.kind, Some(self.strategy()));
        let tree = read_object(self.inner, self.req, kind, strategy, options.field_validation)?;
        let tree = self.inner.to_stored(self.resource, tree)?;
        Ok(self.defaulted(tree))
    }
    /// Sets defaults.
    pub(crate) fn defaulted(&self, mut tree: Struct) -> Struct {
        self.inner.registry.defaults.apply(self.inner.schema, &mut tree);
        tree
    }
    /// Puts the request's namespace into the object, or refuses another one.
    pub(crate) fn ensure_namespace(&self, tree: &mut Struct) -> Result<(), Status> {
        let wanted = self.namespace;
        let mut meta = self.meta_mut(tree)?;
        let has = meta.read().namespace();
        if has == wanted {
            return Ok(());
        }
        if has.is_empty() || wanted.is_empty() {
            meta.set_namespace(wanted);
            return Ok(());
        }
        same_namespace(has, wanted)
    }
    /// Drops owner references that stand twice, with a warning.
    pub(crate) fn dedup_owners(&self, tree: &mut Struct, after_admission: bool) -> Result<(), Status> {
        let duplicates = self.meta_mut(tree)?.dedup_owners();
        warn_of_owners(self.req, &duplicates, after_admission);
        Ok(())
    }
    /// What admission decides on.
    pub(crate) fn admission<'r>(
        &'r self,
        operation: Operation,
        kind: &'r Gvk,
        name: &'r str,
        old: Option<&'r Struct>,
        dry_run: bool,
    ) -> AdmissionRequest<'r> {
        AdmissionRequest {
            user: &self.req.user,
            info: &self.req.info,
            operation,
            kind,
            resource: &self.resource.plural,
            subresource: &self.req.info.subresource,
            namespace: if self.facts().is_namespace { name } else { self.namespace },
            name,
            old,
            dry_run,
            options: OperationOptions::of(operation, &self.req.query),
            notes: &self.req.notes,
        }
    }
    /// Refuses an object that would nest too deeply in the store: with what admission made of it, and `managedFields`.
    #[allow(clippy::unused_self, reason = "it reads as the other checks of an object do")]
    pub(crate) fn bounded(&self, tree: &Struct) -> Result<(), Status> {
        if api::depth::is_object_bounded(tree) {
            return Ok(());
        }
        Err(Status::bad_request(format!(
            "{}: the object, with its managedFields, may nest {} levels deep",
            api::depth::TOO_DEEP,
            api::depth::MAX_DEPTH
        )))
    }
    /// The object that the store keeps for a tree.
    pub(crate) fn new_object(&self, tree: Struct) -> Result<NewObject, Status> {
        self.inner.meta.at_rest(self.inner.schema, self.strategy(), self.stored.meta_at, tree, 0)
    }
    /// The answer with a stored object.
    pub(crate) fn stored_answer(&self, status: u16, object: Arc<Object>) -> Outcome {
        Outcome::Stored { status, resource: Arc::clone(self.resource), object }
    }
    /// The answer with a tree of the stored version that was not written.
    pub(crate) fn dry_answer(&self, status: u16, tree: Struct) -> Result<Outcome, Status> {
        Ok(Outcome::Tree {
            status,
            kind: self.resource.kind.clone(),
            tree: self.inner.to_served(self.resource, tree)?,
            resource: Some(Arc::clone(self.resource)),
        })
    }
    /// 422; about the stored kind, which is what the rules saw.
    pub(crate) fn invalid(&self, name: &str, errors: &[FieldError]) -> Status {
        let kind = &self.stored.kind;
        Status::invalid(&kind.group, &kind.kind, name, errors)
    }
    /// After what time an object that is written now expires.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.stored.expires.then_some(self.inner.config.event_ttl)
    }
    /// 409 after a write by somebody else.
    pub(crate) fn conflict(&self, name: &str, why: &str) -> Status {
        Status::conflict(&self.resource.group, &self.resource.plural, name, why)
    }
    /// An error of the store that no retry helps.
    pub(crate) fn write_error(&self, error: &WriteError, name: &str) -> Status {
        match error {
            WriteError::NotFound => Status::not_found(&self.resource.group, &self.resource.plural, name),
            WriteError::Exists(_) => {
                Status::already_exists(&self.resource.group, &self.resource.plural, name)
            }
            WriteError::Changed(_) => self.conflict(name, MODIFIED),
            WriteError::Unreadable(bad) => self.cannot_change(bad),
            // Upstream's answers name no reason for what etcd says.
            WriteError::NoSpace => Status::failure(500, "", error.to_string()),
            WriteError::Engine(why) if self.inner.store.capabilities().foreign_errors => {
                Status::failure(500, "", &**why)
            }
            WriteError::Engine(_) | WriteError::Closed => Status::internal(error),
        }
    }
}

/// Why a write was not made, or is not known to have been.
pub(crate) struct Failed {
    pub(crate) status: Status,
    /// It may have been made nevertheless.
    pub(crate) doubtful: bool,
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self { status, doubtful: false }
    }
}

impl Failed {
    pub(crate) fn of(scope: &Scope<'_>, error: &WriteError, name: &str) -> Self {
        let doubtful = matches!(error, WriteError::Engine(_) | WriteError::Closed);
        Self { status: scope.write_error(error, name), doubtful }
    }
}

/// Upstream's text for a write over a state that is no longer current.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Reads the body as an object of a kind, which may be a resource's with a strategy; unknown and duplicate fields as
/// the directive says.
pub(crate) fn read_object(
    inner: &Inner,
    req: &Request,
    kind: &Gvk,
    strategy: Option<&dyn Strategy>,
    validation: FieldValidation,
) -> Result<Struct, Status> {
    let format = negotiate::input(&req.content_type)?;
    let decoded = codec::decode(inner.schema, kind, strategy, format, &req.body)?;
    if !decoded.strict_errors.is_empty() {
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => decoded.strict_errors.iter().for_each(|e| req.warn(e.clone())),
            FieldValidation::Strict => {
                return Err(Status::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                    kind.kind,
                    kind.version.as_str(),
                    kind.kind,
                    decoded.strict_errors.join(", ")
                )));
            }
        }
    }
    Ok(decoded.tree)
}
