//! The vocabulary of the store.

use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Object, Text};
use bytes::Bytes;
use parking_lot::Mutex;

/// A registered resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

/// What the store must know of a resource.
#[derive(Debug, Clone)]
pub struct ResourceSpec {
    /// Group, "" for the core group.
    pub group: Text,
    /// Plural name.
    pub plural: Text,
    /// Positions in [`NewObject::fields`] by which lists and watches are routed (`spec.nodeName` of Pods).
    pub indexed: Vec<usize>,
}

/// Which objects of a resource.
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
    /// Whether an object is of this scope.
    pub fn matches(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.data.namespace)
            && (self.name.is_empty() || self.name == object.data.name)
            && self.field.as_ref().is_none_or(|(at, value)| field(object, *at) == value)
    }
    /// Whether an object of this namespace and name may be of this scope: what its field is, is not known.
    pub(crate) fn may_have(&self, namespace: &str, name: &str) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace)
            && (self.name.is_empty() || self.name == name)
    }
    /// Whether the object of an event is or was of this scope.
    pub fn concerns(&self, event: &Event) -> bool {
        self.matches(&event.object) || event.previous.as_ref().is_some_and(|p| self.matches(p))
    }
}

/// The value of a field; one that the object lacks is empty.
pub(crate) fn field(object: &Object, at: usize) -> &str {
    object.data.fields.get(at).map_or("", |v| v.as_str())
}

/// A change to one object.
#[derive(Debug, Clone)]
pub enum Write {
    /// Refused with [`WriteError::Exists`] if the name is taken.
    Create {
        /// Resource.
        resource: ResourceId,
        /// Object.
        object: NewObject,
        /// The object expires after this.
        ttl: Option<Duration>,
    },
    /// Refused with [`WriteError::Changed`] unless the object is at revision `expect`.
    Update {
        /// Resource.
        resource: ResourceId,
        /// Object.
        object: NewObject,
        /// The revision that the caller read.
        expect: u64,
        /// The object expires after this, counted anew.
        ttl: Option<Duration>,
    },
    /// Refused with [`WriteError::Changed`] unless the object is at revision `expect`.
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
    /// The resource that is written to.
    pub fn resource(&self) -> ResourceId {
        match self {
            Self::Create { resource, .. } | Self::Update { resource, .. } | Self::Delete { resource, .. } => {
                *resource
            }
        }
    }
}

/// Why a write was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The name is taken; the object that has it.
    #[error("the object exists")]
    Exists(Arc<Object>),
    /// The object changed since it was read; its current state.
    #[error("the object changed")]
    Changed(Arc<Object>),
    /// There is no such object.
    #[error("no such object")]
    NotFound,
    /// What is there cannot be read.
    #[error("{} cannot be read: {}", .0.key, .0.why)]
    Unreadable(Arc<Unreadable>),
    /// The store holds as much as it may. The text is etcd's, which clients know.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The engine could not make it durable; nothing was changed.
    #[error("the store cannot write: {0}")]
    Engine(Arc<str>),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// What an event says.
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
    /// What happened.
    pub cause: Cause,
    /// The revision of the change.
    pub revision: u64,
    /// The object after the change; for a deletion its last state, with the deletion's revision.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
    encoded: Mutex<Encoded>,
}

/// The forms of an event that somebody asked for.
#[derive(Debug, Default)]
struct Encoded {
    forms: Vec<(u32, Bytes)>,
    /// No longer recent: what is made from now on is not kept.
    stale: bool,
}

impl Event {
    /// An event of which nothing is encoded yet.
    pub fn new(cause: Cause, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { cause, revision: object.revision, object, previous, encoded: Mutex::default() }
    }
    /// The event in a form of the caller's (a number that stands for version and media type): made by the
    /// first who asks, shared by all others, forgotten when the event is no longer recent.
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
    /// Drops what was encoded, and keeps nothing that is encoded from now on.
    pub(crate) fn forget_encoded(&self) {
        *self.encoded.lock() = Encoded { forms: Vec::new(), stale: true };
    }
}

/// What a watcher yields.
#[derive(Debug, Clone)]
pub enum Batch {
    /// Changes, in the order of their revisions; with [`WatchStart::Now`] first the initial state in
    /// the order of its keys.
    Events(Vec<Arc<Event>>),
    /// The initial state was delivered whole; it is that of this revision. Once, and only with [`WatchStart::Now`].
    Synced(u64),
    /// Everything up to this revision was delivered. Only if asked for by `WatchOptions::progress`.
    Progress(u64),
}

/// The revision is older than what the history holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the revision was compacted; the oldest that can be watched is {oldest}")]
pub struct Compacted {
    /// The oldest revision from which a watch can start.
    pub oldest: u64,
}

/// A value that cannot be read, and with it the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its key.
    pub key: String,
    /// Why; one sentence.
    pub why: String,
    /// It cannot be decrypted; otherwise what it says is no object.
    pub sealed: bool,
    /// When it was written.
    pub revision: u64,
}

/// Why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// More changes came than the watcher took.
    #[error("the watcher fell behind")]
    Behind,
    /// What comes next is no longer known; the state must be read anew.
    #[error("what comes next was compacted")]
    Compacted,
    /// What comes next cannot be read.
    #[error("{} cannot be read: {}", .0.key, .0.why)]
    Unreadable(Arc<Unreadable>),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// With what comes after this revision; an error if it was compacted away.
    After(u64),
    /// With the current state as Added events, then what comes.
    Now,
}
