//! What a request is, once its path and its caller are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Status, Text};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::lanes::timed_out;
use crate::query::Query;

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
    /// Field selector as sent, for authorization.
    pub field_selector: String,
    /// Label selector as sent, for authorization.
    pub label_selector: String,
}

/// A request's caller and target: what authorization decides on.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// Who asks.
    pub user: Arc<UserInfo>,
    /// For what.
    pub info: Arc<RequestInfo>,
}

/// A request on its way through the pipe: who asks for what, and what came with it.
#[derive(Debug, Default)]
pub struct Request {
    /// Who asks, after impersonation.
    pub user: Arc<UserInfo>,
    /// For what.
    pub info: Arc<RequestInfo>,
    /// Query parameters.
    pub query: Query,
    /// `Content-Type`
    pub content_type: String,
    /// `Accept`
    pub accept: String,
    /// `User-Agent`
    pub user_agent: String,
    /// The body, within the limit.
    pub body: Bytes,
    /// When nobody waits for the answer any more.
    pub deadline: Option<Instant>,
    /// Texts for Warning headers.
    pub warnings: Mutex<Vec<String>>,
}

/// More warnings have no room in any answer.
const MOST_WARNINGS: usize = 5000;

/// Adds a text to those of Warning headers, once.
pub(crate) fn add_warning(to: &Mutex<Vec<String>>, text: String) {
    let mut all = to.lock();
    if all.len() < MOST_WARNINGS && !all.contains(&text) {
        all.push(text);
    }
}

impl Request {
    /// Fails with upstream's 504 once the deadline has passed.
    pub(crate) fn in_time(&self) -> Result<(), Status> {
        in_time(self.deadline)
    }
    /// Adds a Warning header to the answer, once.
    pub fn warn(&self, text: impl Into<String>) {
        add_warning(&self.warnings, text.into());
    }
}

/// Fails with upstream's 504 once a deadline has passed.
pub(crate) fn in_time(deadline: Option<Instant>) -> Result<(), Status> {
    if deadline.is_some_and(|at| Instant::now() >= at) { Err(timed_out()) } else { Ok(()) }
}
