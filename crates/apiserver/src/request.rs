//! The context of a request: its target, its sender, and the findings of its stages.

use std::sync::{Arc, OnceLock};

use access::{Notes, Query, RequestInfo, UserInfo};
use api::Status;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use tokio::time::Instant;

use crate::aggregated::Elsewhere;
use crate::catalog::{Catalog, ResourceEntry};
use crate::ending::Counted;
use crate::flow::{Asked, Caller, Room, Seat, Watches};
use crate::lanes::in_time;
use crate::metrics::{LongRunning, Seen};

/// The context of a request: what it is about, what came with it and what its stages found out, from before its caller
/// is known until the last byte of its answer is sent.
pub struct Request {
    /// Tells the request apart in all logs: the caller's own, or one that is made when somebody wants to know.
    audit_id: OnceLock<HeaderValue>,
    /// For what.
    pub info: Arc<RequestInfo>,
    /// The catalog of the time at which it came.
    pub(crate) catalog: Arc<Catalog>,
    /// The other server that answers it, if it is not answered here.
    pub(crate) elsewhere: Option<Arc<Elsewhere>>,
    /// The resource of [`Request::info`], if it is served here.
    pub(crate) resource: Option<Arc<ResourceEntry>>,
    /// Query parameters.
    pub query: Query,
    /// It is no GET or HEAD.
    pub(crate) mutating: bool,
    /// When it came.
    pub(crate) received: Instant,
    /// When nobody waits for the answer any more.
    pub deadline: Option<Instant>,
    /// The user that asks; after impersonation the one as whom the caller acts. Nobody until authentication.
    pub user: Arc<UserInfo>,
    /// The user that acts as [`Request::user`], if somebody else does.
    pub impersonator: Option<Arc<UserInfo>>,
    /// The share that the caller counts to.
    pub(crate) caller: Caller,
    /// Its place among those under way.
    pub(crate) seat: Option<Seat>,
    /// The room that its body takes.
    pub(crate) room: Option<Room>,
    /// Its place among the watchers, if another server answers it.
    pub(crate) watches: Option<Watches>,
    /// The end of the server waits for it.
    pub(crate) counted: Option<Counted>,
    /// It counts as one that goes on for as long as it likes.
    pub(crate) running: Option<LongRunning>,
    /// `Content-Type`
    pub content_type: String,
    /// `Accept`
    pub accept: String,
    /// `User-Agent`
    pub user_agent: String,
    /// The body, within the limit.
    pub body: Bytes,
    /// Warnings and annotations.
    pub notes: Notes,
}

impl Request {
    /// A request that has come, by nobody yet.
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        info: RequestInfo,
        query: Query,
        audit_id: Option<HeaderValue>,
    ) -> Self {
        let services = &catalog.services;
        let elsewhere = if info.is_resource {
            services.find(&info.group, &info.version)
        } else {
            services.of_path(&info.path)
        };
        let elsewhere = elsewhere.cloned();
        let find = || catalog.resources.find(&info.group, &info.version, &info.resource).cloned();
        let resource = if elsewhere.is_none() { find() } else { None };
        let mut made = Self::bare(catalog, Arc::new(info), query, audit_id);
        (made.elsewhere, made.resource) = (elsewhere, resource);
        made
    }
    /// A request of which nothing is known but what it asks.
    fn bare(
        catalog: Arc<Catalog>,
        info: Arc<RequestInfo>,
        query: Query,
        audit_id: Option<HeaderValue>,
    ) -> Self {
        Self {
            audit_id: audit_id.map_or_else(OnceLock::new, OnceLock::from),
            mutating: !matches!(info.verb, "get" | "head" | "list" | "watch"),
            info,
            catalog,
            elsewhere: None,
            resource: None,
            query,
            received: Instant::now(),
            deadline: None,
            user: Arc::default(),
            impersonator: None,
            caller: Caller::default(),
            seat: None,
            room: None,
            watches: None,
            counted: None,
            running: None,
            content_type: String::new(),
            accept: String::new(),
            user_agent: String::new(),
            body: Bytes::new(),
            notes: Notes::default(),
        }
    }
    /// The labels that metrics give this request.
    pub(crate) fn seen<B>(&self, request: &http::Request<B>) -> Seen {
        let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let known = self.resource.as_ref().is_some_and(|resource| {
            self.info.subresource.is_empty() || resource.subresource(&self.info.subresource).is_some()
        });
        Seen::new(request.method(), content_type.unwrap_or_default(), &self.query, Some(&self.info), known)
    }
    /// Tells the request apart in all logs.
    pub(crate) fn audit_id(&self) -> &HeaderValue {
        self.audit_id.get_or_init(|| {
            let id = uuid::Uuid::new_v4().to_string();
            HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static(""))
        })
    }
    /// A stand-in where this request waits for itself to come back from elsewhere.
    pub(crate) fn stand_in(&self) -> Self {
        let (catalog, info) = (Arc::clone(&self.catalog), Arc::clone(&self.info));
        let mut made = Self::bare(catalog, info, self.query.clone(), Some(self.audit_id().clone()));
        (made.user, made.caller, made.deadline) =
            (Arc::clone(&self.user), self.caller.clone(), self.deadline);
        made
    }
    /// The request was answered: others may have its place.
    pub(crate) fn leave(&mut self) {
        (self.seat, self.room) = (None, None);
    }
    /// The request, as far as its seat is concerned.
    pub(crate) fn asked(&self) -> Asked<'_> {
        let stored = self.resource.as_ref().and_then(|resource| resource.stored.as_ref());
        Asked {
            caller: &self.caller,
            user: &self.user,
            info: &self.info,
            query: &self.query,
            stored: stored.map(|stored| stored.id),
            mutating: self.mutating,
            time: self.deadline.map(|at| at.saturating_duration_since(self.received)),
        }
    }
    /// Fails with upstream's 504 once the deadline has passed.
    pub(crate) fn in_time(&self) -> Result<(), Status> {
        in_time(self.deadline)
    }
    /// Adds a Warning header to the answer, once.
    pub fn warn(&self, text: impl Into<String>) {
        self.notes.warn(text.into());
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let annotations = self.notes.annotations();
        if !annotations.is_empty() {
            let (id, user, verb) = (self.audit_id.get(), &self.user.name, self.info.verb);
            tracing::debug!(target: "audit", ?id, %user, verb, path = %self.info.path, ?annotations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_is_known_by_the_same_audit_id() {
        let catalog = crate::testing::Cluster::new().server.0.objects.catalog();
        let new = |id| Request::new(Arc::clone(&catalog), RequestInfo::default(), Query::default(), id);
        let request = new(None);
        let id = request.audit_id().clone();
        assert_eq!((id.len(), request.audit_id()), (36, &id));
        assert_eq!(request.stand_in().audit_id(), &id);
        let own = HeaderValue::from_static("mine");
        let given = new(Some(own.clone()));
        assert_eq!(given.audit_id(), &own);
    }
}
