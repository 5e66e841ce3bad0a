//! What a request is about, who sent it, and what is known of it on its way.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use api::{Status, Text};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::flow::{Caller, Taken};
use crate::lanes::timed_out;
use crate::metrics::{LongRunning, Seen};
use crate::query::Query;
use crate::registry::Resource;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    /// User name, e.g. `system:node:a`.
    pub name: Text,
    /// Unique id; may be empty.
    pub uid: Text,
    /// Groups; `system:authenticated` or `system:unauthenticated` among them.
    pub groups: Vec<Text>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<Text, Vec<Text>>,
}

/// What a request is about, read off its method, path and query; upstream's `RequestInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    /// Whether the path is one of a resource (`/api/…`, `/apis/…` below the version).
    pub is_resource: bool,
    /// Path as sent, without the query.
    pub path: String,
    /// get, list, watch, create, update, patch, delete, deletecollection; the lower-case method for other paths.
    pub verb: &'static str,
    /// `api` or `apis`.
    pub prefix: Text,
    /// Group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Namespace; for `namespaces/x` the x.
    pub namespace: Text,
    /// Resource.
    pub resource: Text,
    /// Subresource.
    pub subresource: Text,
    /// Name; for a list with the field selector `metadata.name=x` the x.
    pub name: Text,
    /// What follows the subresource (proxy paths).
    pub rest: String,
    /// Whether the path names a namespace before the resource.
    pub in_namespace: bool,
    /// Whether the path itself says `watch` or `proxy`, before the resource.
    pub verb_in_path: bool,
    /// Field selector as sent, for authorization.
    pub field_selector: String,
    /// Label selector as sent, for authorization.
    pub label_selector: String,
}

/// What is told about a request besides its answer.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<Vec<(String, String)>>,
}

/// More warnings have no room in any answer.
const MOST_WARNINGS: usize = 5000;
/// More annotations than this of one request are not kept.
const MOST_ANNOTATIONS: usize = 256;

impl Notes {
    /// Adds a text to those of Warning headers, once.
    pub fn warn(&self, text: String) {
        let mut all = self.warnings.lock();
        if all.len() < MOST_WARNINGS && !all.contains(&text) {
            all.push(text);
        }
    }
    /// Adds an annotation for the audit; the first of a key stays, as upstream's does.
    pub fn annotate(&self, key: &str, value: &str) {
        let mut all = self.annotations.lock();
        if all.len() < MOST_ANNOTATIONS && !all.iter().any(|(known, _)| known == key) {
            all.push((key.to_owned(), value.to_owned()));
        }
    }
    /// The texts of Warning headers, which are taken out.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }
    /// The annotations, in the order in which they came.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.annotations.lock().clone()
    }
    /// Forgets everything: the request is handled anew.
    pub(crate) fn clear(&self) {
        self.warnings.lock().clear();
        self.annotations.lock().clear();
    }
}

/// The context of a request: what it is about, what came with it and what its stages found out, from before its caller
/// is known until the last byte of its answer is sent.
#[derive(Default)]
pub struct Request {
    /// Tells the request apart in all logs: the caller's own, or one that is made when somebody wants to know.
    audit_id: OnceLock<HeaderValue>,
    /// For what.
    pub info: Arc<RequestInfo>,
    /// The resource of [`Request::info`], if it is served.
    pub(crate) resource: Option<Arc<Resource>>,
    /// Query parameters.
    pub query: Query,
    /// It is no GET or HEAD.
    pub(crate) mutating: bool,
    /// When nobody waits for the answer any more.
    pub deadline: Option<Instant>,
    /// Who asks; after impersonation the one as whom the caller acts. Nobody until authentication.
    pub user: Arc<UserInfo>,
    /// Who acts as [`Request::user`], if somebody else does.
    pub impersonator: Option<Arc<UserInfo>>,
    /// What the caller counts as.
    pub(crate) caller: Caller,
    /// Its place among those under way.
    pub(crate) seat: Option<Taken>,
    /// The room that its body takes.
    pub(crate) room: Option<Taken>,
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
    /// What is told besides the answer.
    pub notes: Notes,
}

impl Request {
    /// A request that has come, by nobody yet.
    pub(crate) fn new(
        info: RequestInfo,
        resource: Option<Arc<Resource>>,
        query: Query,
        audit_id: Option<HeaderValue>,
    ) -> Self {
        let mutating = !matches!(info.verb, "get" | "head" | "list" | "watch");
        let audit_id = audit_id.map_or_else(OnceLock::new, OnceLock::from);
        let info = Arc::new(info);
        let mut made = Self::default();
        (made.audit_id, made.info, made.resource) = (audit_id, info, resource);
        (made.query, made.mutating) = (query, mutating);
        made
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
    /// What stands for this request where it waits for the same request to come back from elsewhere.
    pub(crate) fn stand_in(&self) -> Self {
        let mut made = Self::default();
        made.audit_id = OnceLock::from(self.audit_id().clone());
        (made.info, made.user) = (Arc::clone(&self.info), Arc::clone(&self.user));
        (made.query, made.caller, made.deadline) = (self.query.clone(), self.caller, self.deadline);
        made
    }
    /// The request was answered: others may have its place.
    pub(crate) fn leave(&mut self) {
        (self.seat, self.room) = (None, None);
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
        let annotations = self.notes.annotations.get_mut();
        if !annotations.is_empty() {
            let (id, user, verb) = (self.audit_id.get(), &self.user.name, self.info.verb);
            tracing::debug!(target: "audit", ?id, %user, verb, path = %self.info.path, ?annotations);
        }
    }
}

/// Fails with upstream's 504 once a deadline has passed.
pub(crate) fn in_time(deadline: Option<Instant>) -> Result<(), Status> {
    if deadline.is_some_and(|at| Instant::now() >= at) { Err(timed_out()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_once_and_not_without_end() {
        let notes = Notes::default();
        for _ in 0..2 {
            notes.warn("a".into());
            notes.annotate("k", "first");
            notes.annotate("k", "second");
        }
        assert_eq!(notes.annotations(), [("k".to_owned(), "first".to_owned())]);
        assert_eq!(notes.take_warnings(), ["a"]);
        assert!(notes.take_warnings().is_empty());
        for i in 0..2 * MOST_ANNOTATIONS {
            notes.annotate(&i.to_string(), "");
        }
        assert_eq!(notes.annotations().len(), MOST_ANNOTATIONS);
        notes.clear();
        assert!(notes.annotations().is_empty());
    }

    #[test]
    fn a_stand_in_is_known_by_the_same_audit_id() {
        let request = Request::new(RequestInfo::default(), None, Query::default(), None);
        let id = request.audit_id().clone();
        assert_eq!((id.len(), request.audit_id()), (36, &id));
        assert_eq!(request.stand_in().audit_id(), &id);
        let own = HeaderValue::from_static("mine");
        let given = Request::new(RequestInfo::default(), None, Query::default(), Some(own.clone()));
        assert_eq!(given.audit_id(), &own);
    }
}
