//! The vocabulary of the store.

use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Object, Text};
use bytes::Bytes;
use parking_lot::Mutex;

/// A registered resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

/// The properties of a resource that the store must know.
#[derive(Debug, Clone)]
pub struct ResourceSpec {
    /// Group, "" for the core group.
    pub group: Text,
    /// Plural name.
    pub plural: Text,
    /// Positions in [`NewObject::fields`] by which lists and watches are routed (`spec.nodeName` of Pods).
    pub indexed: Vec<usize>,
}

/// The choice of some objects of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Only this namespace; "" for all.
    pub namespace: Text,
    /// Only this name; "" for all.
    pub name: Text,
    /// Only objects whose field at this position has this value; the position must be indexed.
    pub field: Option<(usize, Text)>,
}

impl Scope {
    /// Whether an object is in this scope.
    pub fn matches(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.data.namespace)
            && (self.name.is_empty() || self.name == object.data.name)
            && self.field.as_ref().is_none_or(|(at, value)| field(object, *at) == value)
    }
    /// Whether an object of this namespace and name, with an unknown field, may be in this scope.
    pub(crate) fn may_have(&self, namespace: &str, name: &str) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace)
            && (self.name.is_empty() || self.name == name)
    }
    /// Whether the object of an event is or was in this scope.
    pub fn concerns(&self, event: &Event) -> bool {
        self.matches(&event.object) || event.previous.as_ref().is_some_and(|p| self.matches(p))
    }
}

/// The value of a field; "" if the object lacks it.
pub(crate) fn field(object: &Object, at: usize) -> &str {
    object.data.fields.get(at).map_or("", |v| v.as_str())
}

/// A change to one object.
#[derive(Debug, Clone)]
pub enum Write {
    /// Creates an object. Refused with [`WriteError::Exists`] if the name is taken.
    Create {
        /// Resource.
        resource: ResourceId,
        /// Object.
        object: NewObject,
        /// The time after which the object expires.
        ttl: Option<Duration>,
    },
    /// Updates an object. Refused with [`WriteError::Changed`] unless the object is at revision `expect`.
    Update {
        /// Resource.
        resource: ResourceId,
        /// Object.
        object: NewObject,
        /// The revision that the caller read.
        expect: u64,
        /// The time after which the object expires, counted anew.
        ttl: Option<Duration>,
    },
    /// Deletes an object. Refused with [`WriteError::Changed`] unless the object is at revision `expect`.
    Delete {
        /// Resource.
        resource: ResourceId,
        /// Namespace.
        namespace: Text,
        /// Name.
        name: Text,
        /// The revision that the caller read.
        expect: u64,
    },
}

impl Write {
    /// The resource of the write.
    pub fn resource(&self) -> ResourceId {
        match self {
            Self::Create { resource, .. } | Self::Update { resource, .. } | Self::Delete { resource, .. } => {
                *resource
            }
        }
    }
}

/// The reason for which a write was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The name is taken, by this object.
    #[error("the object exists")]
    Exists(Arc<Object>),
    /// The object changed since it was read; this is its current state.
    #[error("the object changed")]
    Changed(Arc<Object>),
    /// There is no such object.
    #[error("no such object")]
    NotFound,
    /// The stored value cannot be read.
    #[error("{} cannot be read: {}", .0.key, .0.why)]
    Unreadable(Arc<Unreadable>),
    /// The store is at its limit. The text is etcd's, which clients know.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The engine could not make the change durable; nothing was changed.
    #[error("the store cannot write: {0}")]
    Engine(Arc<str>),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Created.
    Added,
    /// Updated.
    Modified,
    /// Deleted or expired.
    Deleted,
}

/// One change as watchers see it; shared by all of them.
#[derive(Debug)]
pub struct Event {
    /// The kind of the change.
    pub cause: Cause,
    /// The revision of the change.
    pub revision: u64,
    /// The object after the change; for a deletion its last state, with the deletion's revision.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
    encoded: Mutex<Encoded>,
}

/// The encoded forms of an event that were asked for.
#[derive(Debug, Default)]
struct Encoded {
    forms: Vec<(u32, Bytes)>,
    /// The event is no longer recent: forms made from now on are not kept.
    stale: bool,
}

impl Event {
    /// Makes an event without encoded forms.
    pub fn new(cause: Cause, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { cause, revision: object.revision, object, previous, encoded: Mutex::default() }
    }
    /// The event in a form of the caller's (a number that stands for version and media type): it is made for the first
    /// caller, shared with all others, and dropped when the event is no longer recent.
    pub fn encoded(&self, form: u32, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut encoded = self.encoded.lock();
        if let Some((_, bytes)) = encoded.forms.iter().find(|(f, _)| *f == form) {
            return bytes.clone();
        }
        let bytes = make();
        if !encoded.stale {
            encoded.forms.push((form, bytes.clone()));
        }
        bytes
    }
    /// Drops the encoded forms, and keeps none that are made from now on.
    pub(crate) fn forget_encoded(&self) {
        *self.encoded.lock() = Encoded { forms: Vec::new(), stale: true };
    }
}

/// An item of a watcher.
#[derive(Debug, Clone)]
pub enum Batch {
    /// Changes, in the order of their revisions; with [`WatchStart::Now`] first the initial state in
    /// the order of its keys.
    Events(Vec<Arc<Event>>),
    /// The initial state was delivered whole; it is that of this revision. Sent once, and only with
    /// [`WatchStart::Now`].
    Synced(u64),
    /// Everything up to this revision was delivered. Sent only if `WatchOptions::progress` asks for it.
    Progress(u64),
}

/// The revision is older than what the history holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the revision was compacted; the oldest that can be watched is {oldest}")]
pub struct Compacted {
    /// The oldest revision from which a watch can start.
    pub oldest: u64,
}

/// The value of an object, which cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The value's key.
    pub key: String,
    /// The reason; one sentence.
    pub why: String,
    /// Whether the value cannot be decrypted; otherwise its content is no object.
    pub sealed: bool,
    /// The revision of its write.
    pub revision: u64,
}

/// The reason for which a watch ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// More changes came than the watcher took.
    #[error("the watcher fell behind")]
    Behind,
    /// The next events are no longer known; the state must be read anew.
    #[error("the next events were compacted")]
    Compacted,
    /// The next event cannot be read.
    #[error("{} cannot be read: {}", .0.key, .0.why)]
    Unreadable(Arc<Unreadable>),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// The start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// The watch starts with the events after this revision; an error if it was compacted away.
    After(u64),
    /// The watch starts with the current state as Added events; the changes after it follow.
    Now,
}
