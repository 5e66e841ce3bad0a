//! Values that cannot be read: whoever asks for their objects is told, as upstream does, and everybody else goes on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Text;
use etcd::rpc::KeyValue;
use parking_lot::Mutex;

use super::{CodecError, load};
use crate::store::{ResourceId, Scope};

/// By resource, namespace and name.
pub(crate) type Entries = BTreeMap<(ResourceId, Text, Text), Entry>;

/// A value that cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    key: String,
    why: String,
    encrypted: bool,
}

impl Entry {
    pub(crate) fn new(kv: &KeyValue, error: &CodecError) -> Self {
        Self {
            key: String::from_utf8_lossy(&kv.key).into_owned(),
            why: error.to_string(),
            encrypted: load::is_encrypted(&kv.value),
        }
    }
}

/// All of them. Costs nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    count: AtomicUsize,
    entries: Mutex<Entries>,
}

impl Unreadable {
    fn change(&self, change: impl FnOnce(&mut Entries)) {
        let mut entries = self.entries.lock();
        change(&mut entries);
        self.count.store(entries.len(), Ordering::Release);
    }

    pub(crate) fn replace(&self, all: Entries) {
        self.change(|entries| *entries = all);
    }

    pub(crate) fn insert(&self, resource: ResourceId, namespace: &str, name: &str, entry: Entry) {
        self.change(|entries| {
            entries.insert((resource, namespace.into(), name.into()), entry);
        });
    }

    /// It can be read now, or is gone.
    pub(crate) fn remove(&self, resource: ResourceId, namespace: &str, name: &str) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.change(|entries| {
                entries.remove(&(resource, namespace.into(), name.into()));
            });
        }
    }

    /// One of a scope, its field aside: what that is, nobody knows.
    pub(crate) fn find(&self, resource: ResourceId, scope: &Scope) -> Option<(String, String)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let entries = self.entries.lock();
        let mut of_it = entries.range((resource, Text::default(), Text::default())..);
        let (_, entry) = of_it.by_ref().take_while(|((id, ..), _)| *id == resource).find(
            |((_, namespace, name), _)| {
                (scope.namespace.is_empty() || scope.namespace == *namespace)
                    && (scope.name.is_empty() || scope.name == *name)
            },
        )?;
        Some((entry.key.clone(), entry.why.clone()))
    }

    /// What is said of an encrypted one, if there is any.
    pub(crate) fn encrypted(&self) -> Option<String> {
        let entries = self.entries.lock();
        let entry = entries.values().find(|entry| entry.encrypted)?;
        Some(format!("{} in etcd cannot be read: {}", entry.key, entry.why))
    }
}
