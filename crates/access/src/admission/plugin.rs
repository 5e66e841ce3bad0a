//! One plugin of admission, and its view of the server.

use std::sync::Arc;

use api::status::Cause;
use api::view::View;
use api::{FeatureGates, Schema, Status, Struct};
use component::Clock;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::AdmissionRequest;
use super::expressions;
use super::loopback::Loopback;
use super::reinvocation::Reinvocation;
use super::webhooks::metrics::Metrics as WebhookMetrics;
use crate::auth::UnionAuthorizer;
use crate::reader::Reader;
use crate::webhook::Network;

/// The parts of the server that plugins look at besides the request.
pub(super) struct Env {
    pub(super) schema: &'static Schema,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) authorizer: Arc<UnionAuthorizer>,
    pub(super) gates: FeatureGates,
    pub(super) clock: Clock,
    pub(super) loopback: Loopback,
    /// Where webhooks are.
    pub(super) network: Arc<Network>,
    /// The metrics of webhooks.
    pub(super) webhooks: WebhookMetrics,
    /// The metrics of match conditions.
    pub(super) conditions: expressions::Metrics,
}

/// One plugin. It looks at a request and refuses it, or changes its object.
pub(super) trait Plugin: Send + Sync {
    /// Changes or refuses the object before defaulting and validation; never called for a deletion.
    fn mutate(
        &self,
        _env: &Env,
        _request: &AdmissionRequest<'_>,
        _object: &mut Struct,
    ) -> Result<(), Status> {
        Ok(())
    }
    /// The part of [`Plugin::mutate`] that has to wait for something, after it; `None` if the plugin waits for nothing.
    fn mutate_waiting<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
        _object: &'a mut Struct,
        _again: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        None
    }
    /// Refuses a deletion, in the place of [`Plugin::mutate_waiting`]: there is no object to change.
    fn admit_deletion<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        None
    }
    /// Refuses the object after defaulting and validation; `object` is `None` for a deletion.
    fn validate(
        &self,
        _env: &Env,
        _request: &AdmissionRequest<'_>,
        _object: Option<&Struct>,
    ) -> Result<(), Status> {
        Ok(())
    }
    /// The part of [`Plugin::validate`] that has to wait for something, or takes so long that other tasks must get
    /// their turn meanwhile, after it; `None` if neither is the case.
    fn validate_waiting<'a>(
        &'a self,
        _env: &'a Env,
        _request: &'a AdmissionRequest<'a>,
        _object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        None
    }
    /// Registers the plugin's metrics.
    fn register(&self, _registry: &mut Registry) {}
}

#[cfg(test)]
impl Env {
    /// A server that has these objects, where nobody may do anything and no webhook can be reached.
    pub(super) fn of(objects: impl Into<Arc<crate::testing::Fake>>) -> Self {
        let reader: Arc<dyn Reader> = objects.into();
        Self {
            schema: Schema::builtin(),
            network: Arc::new(Network::new(Arc::clone(&reader), |_| false)),
            reader,
            authorizer: Arc::new(UnionAuthorizer::new(&[], Arc::default(), Arc::default())),
            gates: FeatureGates::default(),
            clock: Clock::system(),
            loopback: Loopback::default(),
            webhooks: WebhookMetrics::default(),
            conditions: expressions::Metrics::default(),
        }
    }
}

impl Env {
    /// Makes a view of a tree.
    pub(super) fn view<'a>(&'a self, of: &'a Struct) -> View<'a> {
        View::new(self.schema, of)
    }
}

impl AdmissionRequest<'_> {
    /// Makes a 403 about the object; upstream's `admission.NewForbidden`.
    pub(super) fn forbidden(&self, object: Option<&Struct>, why: impl std::fmt::Display) -> Status {
        Status::forbidden(&self.info.group, self.resource, self.shown_name(object), why)
    }
    /// The name of the object, as errors show it.
    pub(super) fn shown_name<'s>(&'s self, object: Option<&'s Struct>) -> &'s str {
        let schema = self.versions.schema();
        let known = object.filter(|object| schema.owns(object.id)).map(|object| View::new(schema, object));
        // Options of connections have no name of their own.
        let named = known.filter(|view| view.knows("metadata")).map(|view| view.st("metadata"));
        let given = || named.as_ref().map_or("", |meta| meta.str("name"));
        let prefix = || named.as_ref().map_or("", |meta| meta.str("generateName"));
        let names = [self.name, given(), prefix(), "Unknown"];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }
    /// Whether the request is about this resource itself.
    pub(super) fn is(&self, group: &str, resource: &str) -> bool {
        self.is_with(group, resource, "")
    }
    /// Whether the request is about this subresource.
    pub(super) fn is_with(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.resource == resource && self.subresource == subresource && self.info.group == group
    }
}

/// Adds a cause to an error.
pub(super) fn with_cause(mut status: Status, reason: &str, message: String, field: &str) -> Status {
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: reason.into(), message, field: field.into() });
    }
    status
}
