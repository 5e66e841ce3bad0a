//! The scope of a handler: a request, its resource, and the server's own part in the lives of some resources' objects.

use std::sync::Arc;
use std::time::Duration;

use access::admission::{Admission, AdmissionRequest, DeleteOptions, Operation, OperationOptions};
use access::auth::{Auth, Eventual};
use api::schema::Gvk;
use api::status::FieldError;
use api::{Gate, NewObject, Object, Status, Struct};
use component::Shutdown;
use futures::FutureExt;
use futures::future::BoxFuture;
use kinds::strategy::Facts;
use kinds::{Ctx, Strategy};
use storage::{Write, WriteError};

use super::body::{check_name_of, read_object, same_namespace, scope_namespace, warn_of_owners};
use crate::allocate::Allocators;
use crate::catalog::conversion::Conversion;
use crate::catalog::meta::{MetaMut, MetaRef};
use crate::catalog::{Catalog, ResourceEntry, Stored};
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::options::WriteOptions;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::usage::Usage;

/// The parts of the server that handlers use.
pub(crate) struct Handlers {
    /// The stored objects.
    pub(crate) objects: Arc<Objects>,
    /// The admission of writes.
    pub(crate) admission: Arc<dyn Admission>,
    /// The authorization of requests, and the answers to reviews.
    pub(crate) auth: Auth,
    /// The allocators of addresses and ports for Services.
    pub(crate) allocators: Arc<Allocators>,
    /// The present use of resources, if somebody tells it.
    pub(crate) usage: Option<Usage>,
    /// The metrics of writes and of deprecated versions.
    pub(crate) metrics: Arc<Metrics>,
    /// Whether containers may be privileged.
    pub(crate) privileged: bool,
    /// Whether somebody removes the dependents of objects, and takes away the finalizers that ask for it.
    pub(crate) garbage_collector: bool,
    /// How long Events are kept.
    pub(crate) event_ttl: Duration,
    /// A watch without `timeoutSeconds` ends after this to twice this.
    pub(crate) min_request_timeout: Duration,
    /// Watches end with it.
    pub(crate) shutdown: Shutdown,
}

/// A request, and what it is about.
pub(crate) struct Scope<'a> {
    pub(crate) handlers: &'a Handlers,
    /// The catalog of the time at which the request came.
    pub(crate) catalog: &'a Arc<Catalog>,
    pub(crate) req: &'a Request,
    /// The server's own part in the lives of the resource's objects, if it has one.
    pub(crate) lifecycle: Option<&'static dyn Lifecycle>,
    pub(crate) resource: &'a Arc<ResourceEntry>,
    pub(crate) stored: &'a Stored,
    /// The namespace in which the object is; "" for objects of the cluster.
    pub(crate) namespace: &'a str,
    /// Now, as `metav1.Time` text.
    pub(crate) now: String,
}

async fn commit(
    objects: &Objects,
    metrics: &Metrics,
    stored: &Stored,
    write: Write,
) -> Result<Arc<Object>, WriteError> {
    let operation = match write {
        Write::Create { .. } => "create",
        Write::Update { .. } => "update",
        Write::Delete { .. } => "delete",
    };
    let started = tokio::time::Instant::now();
    let result = objects.store.commit(write).await;
    metrics.commit(&stored.group, &stored.plural, operation, started.elapsed());
    result
}

impl<'a> Scope<'a> {
    /// Writes, and remembers how long that took.
    pub(crate) async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        commit(&self.handlers.objects, &self.handlers.metrics, self.stored, write).await
    }
    /// Changes an object and then removes it, also if the request ends in between: nobody else would remove it.
    /// Returns the changed object and the outcome of its removal.
    pub(crate) async fn commit_and_remove(
        &self,
        change: Write,
    ) -> Result<(Arc<Object>, Result<Arc<Object>, WriteError>), WriteError> {
        let (objects, metrics) = (Arc::clone(&self.handlers.objects), Arc::clone(&self.handlers.metrics));
        let stored = self.stored.clone();
        let both = self.handlers.shutdown.spawn_one(async move {
            let changed = commit(&objects, &metrics, &stored, change).await?;
            let removal = Write::Delete {
                resource: stored.id,
                namespace: changed.data.namespace.clone(),
                name: changed.data.name.clone(),
                expect: changed.revision,
            };
            let removed = commit(&objects, &metrics, &stored, removal).await;
            Ok((changed, removed))
        });
        both.await.unwrap_or_else(|error| Err(WriteError::Engine(error.to_string().into())))
    }
    pub(crate) fn new(
        handlers: &'a Handlers,
        req: &'a Request,
        resource: &'a Arc<ResourceEntry>,
        lifecycle: Option<&'static dyn Lifecycle>,
    ) -> Result<Self, Status> {
        Ok(Self {
            handlers,
            catalog: &req.catalog,
            req,
            lifecycle,
            resource,
            stored: resource.stored()?,
            namespace: scope_namespace(resource, &req.info),
            now: handlers.objects.now(),
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
        if let Some(lifecycle) = self.lifecycle {
            lifecycle.deleted(self, last).await;
        }
    }
    /// The context of the kind's rules.
    pub(crate) fn ctx<'c>(&'c self, warn: &'c (dyn Fn(String) + Sync)) -> Ctx<'c> {
        Ctx {
            schema: self.catalog.schema(),
            now: &self.now,
            gates: self.handlers.objects.gates,
            privileged: self.handlers.privileged,
            warn,
        }
    }
    /// Whether a feature is on.
    pub(crate) fn enabled(&self, gate: Gate) -> bool {
        self.handlers.objects.gates.enabled(gate)
    }
    /// The stored object, or a 404; what is there may also be impossible to read.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Object>, Status> {
        self.readable(name)?;
        self.handlers
            .objects
            .store
            .get(self.stored.id, self.namespace, name)
            .ok_or_else(|| Status::not_found(&self.resource.group, &self.resource.plural, name))
    }
    /// Metadata of a tree of the stored version.
    pub(crate) fn meta<'t>(&'t self, tree: &'t Struct) -> MetaRef<'t> {
        self.catalog.meta.of(tree, self.stored.meta_at)
    }
    /// Metadata of a tree of the stored version, to change.
    pub(crate) fn meta_mut<'t>(&'t self, tree: &'t mut Struct) -> Result<MetaMut<'t>, Status> {
        self.catalog
            .meta
            .of_mut(tree, self.stored.meta_at)
            .ok_or_else(|| Status::internal("the object has no metadata"))
    }
    /// Decodes a stored object, with its resourceVersion, in the version in which handlers work: that of the request
    /// for kinds of definitions, the stored one for others.
    pub(crate) async fn tree(&self, object: &Arc<Object>) -> Result<Struct, Status> {
        let object = self.catalog.current_object(self.resource, object, self.req.deadline).await?;
        let mut tree = self.catalog.stored_tree(self.resource, &object)?;
        self.meta_mut(&mut tree)?.set_resource_version(&object.revision.to_string());
        Ok(tree)
    }
    /// Reads the body as an object of this resource, in the stored version and with defaults.
    pub(crate) async fn body(&self, options: &WriteOptions) -> Result<Struct, Status> {
        let (kind, strategy) = (&self.resource.kind, Some(self.strategy()));
        let tree = read_object(self.req, kind, strategy, options.field_validation)?;
        let tree = self.to_stored(tree).get().await?;
        Ok(self.defaulted(tree))
    }
    /// A conversion of the resource's objects.
    pub(crate) fn conversion<'c>(&'c self, from: &'c Gvk, to: &'c Gvk) -> Conversion<'c> {
        let (schema, resource) = (self.catalog.schema(), &**self.resource);
        Conversion { schema, resource, from, to, deadline: self.req.deadline }
    }
    /// Converts a tree from the stored version to the one that is served.
    pub(crate) fn to_served(&self, tree: Struct) -> Eventual<'_, Result<Struct, Status>> {
        self.conversion(&self.stored.kind, &self.resource.kind).one(tree)
    }
    /// Converts a tree from the version that is served to the stored one.
    pub(crate) fn to_stored(&self, tree: Struct) -> Eventual<'_, Result<Struct, Status>> {
        self.conversion(&self.resource.kind, &self.stored.kind).one(tree)
    }
    /// The object's name must be the request's.
    pub(crate) fn check_name(&self, tree: &Struct) -> Result<(), Status> {
        check_name_of(self.meta(tree).name(), self.name())
    }
    /// Sets defaults.
    pub(crate) fn defaulted(&self, mut tree: Struct) -> Struct {
        self.catalog.resources.defaults.apply(self.catalog.schema(), &mut tree);
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
    /// A request for admission.
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
            request_kind: if *kind == self.stored.kind { &self.resource.kind } else { kind },
            versions: self.req,
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
    pub(crate) async fn new_object(&self, tree: Struct) -> Result<NewObject, Status> {
        if self.resource.custom.is_some() {
            return self.catalog.custom_at_rest(self.resource, tree, self.req.deadline).await;
        }
        self.catalog.meta.at_rest(self.catalog.schema(), self.strategy(), self.stored.meta_at, tree, 0)
    }
    /// The answer with a stored object.
    pub(crate) fn stored_answer(&self, status: u16, object: Arc<Object>) -> Outcome {
        Outcome::Stored { status, resource: Arc::clone(self.resource), object }
    }
    /// The answer with a tree of the stored version that was not written.
    pub(crate) async fn dry_answer(&self, status: u16, tree: Struct) -> Result<Outcome, Status> {
        Ok(Outcome::Tree {
            status,
            kind: self.resource.kind.clone(),
            tree: self.to_served(tree).get().await?,
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
        self.stored.expires.then_some(self.handlers.event_ttl)
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
            WriteError::Engine(why) if self.handlers.objects.store.capabilities().foreign_errors => {
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

/// The reservation for a write that is still to be made, if anything was taken.
pub(crate) type Reserved = Option<Box<dyn Reservation>>;

/// Addresses, ports or the like that were taken for a write.
pub(crate) trait Reservation: Send + Sync {
    /// The write is in.
    fn keep(self: Box<Self>) -> BoxFuture<'static, ()>;
    /// The write is not in, or it is in doubt whether it is.
    fn fail(self: Box<Self>, doubtful: bool) -> BoxFuture<'static, ()>;
}

/// The server's own part in the lives of a resource's objects. Trees are of the version that is kept. Nothing is done
/// for updates by the rules of a subresource.
pub(crate) trait Lifecycle: Send + Sync {
    /// Before a create is checked: takes what the object needs, and writes it in.
    fn begin_create<'a>(
        &'a self,
        _scope: &'a Scope<'a>,
        _new: &'a mut Struct,
        _dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        async { Ok(None) }.boxed()
    }
    /// Before an update is checked.
    fn begin_update<'a>(
        &'a self,
        _scope: &'a Scope<'a>,
        _new: &'a mut Struct,
        _old: &'a Struct,
        _dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        async { Ok(None) }.boxed()
    }
    /// Before an object is deleted: an answer, if that is not yet to be done.
    fn delete<'a>(
        &'a self,
        _scope: &'a Scope<'a>,
        _name: &'a str,
        _options: &'a DeleteOptions,
    ) -> BoxFuture<'a, Result<Option<Outcome>, Status>> {
        async { Ok(None) }.boxed()
    }
    /// After an object is gone; its last state.
    fn deleted<'a>(&'a self, _scope: &'a Scope<'a>, _last: &'a Struct) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }
}
