//! The answer of a handler, before it has a form.

use std::sync::Arc;

use api::schema::Gvk;
use api::{Object, Status, Struct};
use tokio::time::Instant;

use crate::catalog::ResourceEntry;
use crate::codec;
use crate::lanes::in_time;
use crate::watch::WatchSource;

/// The answer of a handler.
pub(crate) enum Outcome {
    /// A stored object.
    Stored {
        /// HTTP status.
        status: u16,
        /// In the version of this resource.
        resource: Arc<ResourceEntry>,
        /// The object.
        object: Arc<Object>,
    },
    /// An object that is not stored like this: of a virtual kind, or the result of a dry run.
    Tree {
        /// HTTP status.
        status: u16,
        /// Its kind, that of the tree.
        kind: Gvk,
        /// The object.
        tree: Struct,
        /// The resource it is of, if it has metadata and columns.
        resource: Option<Arc<ResourceEntry>>,
    },
    /// A `Status` that is no error.
    Status(Status),
    /// A list.
    List(List),
    /// A list that is computed.
    Computed {
        /// Of this resource.
        resource: Arc<ResourceEntry>,
        /// The items' trees.
        items: Vec<Struct>,
    },
    /// A watch.
    Watch(Box<WatchSource>),
}

/// One consistent state of a selection.
pub(crate) struct List {
    /// Of this resource and version.
    pub resource: Arc<ResourceEntry>,
    /// The state's revision.
    pub revision: u64,
    /// `metadata.continue`, "" at the end.
    pub token: String,
    /// `metadata.remainingItemCount`.
    pub remaining: Option<u64>,
    /// The objects.
    pub items: Vec<Arc<Object>>,
    /// When nobody waits for it any more.
    pub deadline: Option<Instant>,
}

impl List {
    /// The objects that are to be encoded, as long as somebody waits for them.
    pub(crate) fn in_time(&self) -> impl Iterator<Item = Result<&Arc<Object>, Status>> {
        self.items.iter().enumerate().map(|(n, item)| {
            // To look at the clock costs as much as a small object.
            if n % 16 == 0 {
                in_time(self.deadline)?;
            }
            Ok(item)
        })
    }
    /// `{"resourceVersion":"5","continue":"…","remainingItemCount":7}`
    pub(crate) fn meta_json(&self) -> String {
        let mut s = format!("{{\"resourceVersion\":\"{}\"", self.revision);
        if !self.token.is_empty() {
            s.push_str(",\"continue\":\"");
            s.push_str(&self.token);
            s.push('"');
        }
        if let Some(n) = self.remaining {
            s.push_str(",\"remainingItemCount\":");
            s.push_str(&n.to_string());
        }
        s.push('}');
        s
    }
    pub(crate) fn meta_proto(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::proto_bytes(1, b"", &mut out);
        codec::proto_bytes(2, self.revision.to_string().as_bytes(), &mut out);
        codec::proto_bytes(3, self.token.as_bytes(), &mut out);
        if let Some(n) = self.remaining {
            codec::proto_varint_field(4, n, &mut out);
        }
        out
    }
}
