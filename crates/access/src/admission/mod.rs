//! Admission: plugins that may change or refuse a write between decoding and the store.

mod certificates;
mod chain;
mod claim_status;
mod classes;
mod config;
mod declared_features;
mod devices;
mod durations;
mod escalation;
mod event_rate;
mod expressions;
mod external_ips;
mod jobs;
mod limit_ranger;
mod loopback;
mod matching;
#[cfg(test)]
mod matching_tests;
mod namespace;
mod node_restriction;
mod nodes;
mod options;
mod owner_references;
mod plugin;
mod pod_groups;
mod pod_placement;
mod pod_resize;
mod pod_security;
mod policy;
mod priority;
mod pull_images;
mod references;
mod reinvocation;
mod resize;
mod resource_quota;
mod runtime_class;
mod service_account;
#[cfg(test)]
mod tests;
mod token_audience;
mod toleration_list;
mod toleration_restriction;
mod tolerations;
mod verdicts;
mod versions;
mod webhooks;

use std::sync::Arc;

use api::{Gvk, Status, Struct};
use futures::future::BoxFuture;

pub use chain::{Chain, ChainError};
pub use config::{AdmissionConfig, AdmissionConfigError};
pub use options::{DeleteOptions, OperationOptions, Propagation};
pub use versions::{Equivalent, Versions};

use crate::Notes;
use crate::RequestInfo;
use crate::UserInfo;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A create; also a post to a subresource such as `binding`.
    Create,
    /// An update or a patch.
    Update,
    /// A deletion; there is no new object.
    Delete,
    /// exec, attach, port-forward and proxies; the object holds the options: `PodExecOptions` and its like.
    Connect,
}

impl Operation {
    /// The name as upstream's API has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The request on which admission decides.
pub struct AdmissionRequest<'a> {
    /// The caller.
    pub user: &'a Arc<UserInfo>,
    /// The request.
    pub info: &'a RequestInfo,
    /// The operation.
    pub operation: Operation,
    /// Kind of the tree that is admitted (of `Binding`, `Scale`, … for subresources with a kind of their own).
    pub kind: &'a Gvk,
    /// The same kind in the version of the request: what upstream calls the request's kind. Group and version of the
    /// request's resource are those of [`AdmissionRequest::info`].
    pub request_kind: &'a Gvk,
    /// The versions of the request's resource.
    pub versions: &'a dyn Versions,
    /// Resource.
    pub resource: &'a str,
    /// Subresource, "" for none.
    pub subresource: &'a str,
    /// Namespace, "" for objects of the cluster.
    pub namespace: &'a str,
    /// Name; empty on a create with `generateName` before the name is made.
    pub name: &'a str,
    /// The stored object of an update or a deletion.
    pub old: Option<&'a Struct>,
    /// Whether nothing outside the object may be changed.
    pub dry_run: bool,
    /// The options of the request.
    pub options: OperationOptions<'a>,
    /// The warnings and annotations that go with the answer.
    pub notes: &'a Notes,
}

impl AdmissionRequest<'_> {
    /// Adds a Warning header to the answer, once.
    pub fn warn(&self, text: impl Into<String>) {
        self.notes.warn(text.into());
    }
    /// Adds an annotation for the audit.
    pub fn annotate(&self, key: &str, value: &str) {
        self.notes.annotate(key, value);
    }
}

/// A chain of admission plugins. Trees are of the storage version.
pub trait Admission: Send + Sync + 'static {
    /// Changes the object of a create, an update or a connect, or refuses it.
    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
    ) -> BoxFuture<'a, Result<(), Status>>;
    /// Refuses an object after defaulting and validation. `object` is `None` for a deletion.
    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> BoxFuture<'a, Result<(), Status>>;
}
