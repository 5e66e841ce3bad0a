//! The seam between components and the API server.

use api::Status;
use bytes::Bytes;
use compact_str::CompactString as Text;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// A resource as paths name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Group, "" for the core group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Plural name, e.g. `pods`.
    pub plural: Text,
}

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Make an object, or post to a subresource (binding, eviction, token).
    Create,
    /// Replace an object.
    Update,
    /// Change an object by an RFC 6902 patch.
    JsonPatch,
    /// Change an object by an RFC 7386 patch.
    MergePatch,
    /// Change an object by a strategic merge patch.
    StrategicPatch,
    /// Server-side apply; the body is JSON.
    Apply,
    /// Delete an object; the body is `DeleteOptions` or empty.
    Delete,
    /// Delete what a list selects.
    DeleteCollection,
    /// List; only for [`Transport::list`].
    List,
    /// Watch; only for [`Transport::watch`].
    Watch,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// The verb of a request.
    pub verb: Verb,
    /// To which resource.
    pub resource: Resource,
    /// In which namespace; "" for the cluster's resources and for all namespaces.
    pub namespace: Text,
    /// Name; "" for collections and creates.
    pub name: Text,
    /// Subresource; "" for none.
    pub subresource: Text,
    /// Query parameters with upstream's names (`labelSelector`, `fieldManager`, `dryRun`, …), not yet escaped.
    pub query: Vec<(Text, String)>,
    /// The body as JSON; empty for none.
    pub body: Bytes,
}

impl Call {
    /// A request without a query and a body. `name` and `subresource` are "" for none.
    pub fn new(verb: Verb, resource: Resource, namespace: &str, name: &str, subresource: &str) -> Self {
        Self {
            verb,
            resource,
            namespace: namespace.into(),
            name: name.into(),
            subresource: subresource.into(),
            query: Vec::new(),
            body: Bytes::new(),
        }
    }
}

/// A list's answer: one consistent state.
#[derive(Debug, Clone)]
pub struct ListAnswer {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.continue`, "" at the end.
    pub continue_token: String,
    /// Each item as JSON; kind and API version may be missing.
    pub items: Vec<Bytes>,
}

/// The kind of a watch's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is there, or came into the selection.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or left the selection; the object is its last state.
    Deleted,
    /// Nothing: the object carries a resourceVersion up to which everything was sent.
    Bookmark,
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// Its kind.
    pub kind: EventKind,
    /// The object as JSON.
    pub object: Bytes,
}

/// Sends requests to an API server with the identity it was made for: over HTTPS, or straight into
/// the request pipe of an API server in the same process.
pub trait Transport: Send + Sync + 'static {
    /// Everything that answers with one object; its JSON.
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>>;
    /// A list, or a page of one (`limit` and `continue` in the query).
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>>;
    /// A GET of a path that is no resource (discovery, version, health), from the `/` on; the body.
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>>;
    /// A watch. It ends when the server ends it; an `Err` item is the watch's ERROR event or a
    /// broken connection, and the last item.
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>>;
    /// Host and port of the server, for those who count requests; none of one in the same process.
    fn server(&self) -> Option<&str> {
        None
    }
}
