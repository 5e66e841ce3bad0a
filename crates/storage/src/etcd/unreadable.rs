//! Values that cannot be read: whoever asks for their objects is told, as upstream does, and everybody else goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Text;
use etcd::rpc::KeyValue;
use parking_lot::Mutex;

use super::{CodecError, load};
use crate::store::{ResourceId, Scope, Unreadable};
use crate::view::Live;

/// A value that cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) what: Arc<Unreadable>,
    pub(super) encrypted: bool,
}

impl Entry {
    pub(crate) fn new(kv: &KeyValue, error: &CodecError) -> Self {
        let what = Unreadable {
            key: String::from_utf8_lossy(&kv.key).into_owned(),
            why: error.to_string(),
            sealed: error.sealed,
            revision: kv.mod_revision as u64,
        };
        Self { what: Arc::new(what), encrypted: load::is_encrypted(&kv.value) }
    }
}

/// All of them, by resource, namespace and name. Costs nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    count: AtomicUsize,
    entries: Mutex<BTreeMap<(ResourceId, Text, Text), Entry>>,
}

impl Entries {
    /// Those of a resource are now these.
    pub(crate) fn replace(&self, resource: ResourceId, all: Vec<(Text, Text, Entry)>) {
        let mut entries = self.entries.lock();
        entries.retain(|(id, ..), _| *id != resource);
        entries.extend(all.into_iter().map(|(namespace, name, entry)| ((resource, namespace, name), entry)));
        self.count.store(entries.len(), Ordering::Release);
    }

    pub(crate) fn insert(&self, resource: ResourceId, namespace: &str, name: &str, entry: Entry) {
        let mut entries = self.entries.lock();
        entries.insert((resource, namespace.into(), name.into()), entry);
        self.count.store(entries.len(), Ordering::Release);
    }

    /// It can be read now, or is gone.
    pub(crate) fn remove(&self, resource: ResourceId, namespace: &str, name: &str) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut entries = self.entries.lock();
            entries.remove(&(resource, namespace.into(), name.into()));
            self.count.store(entries.len(), Ordering::Release);
        }
    }

    /// Looks at those of a resource until something is found.
    fn of<T>(
        &self,
        resource: ResourceId,
        find: impl FnMut((&Text, &Text, &Entry)) -> Option<T>,
    ) -> Option<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let entries = self.entries.lock();
        let all = entries.range((resource, Text::default(), Text::default())..);
        let of_it = all.take_while(|((id, ..), _)| *id == resource);
        of_it.map(|((_, namespace, name), entry)| (namespace, name, entry)).find_map(find)
    }

    /// One of a scope that was written after a revision.
    pub(crate) fn find(&self, resource: ResourceId, scope: &Scope, after: u64) -> Option<Arc<Unreadable>> {
        self.of(resource, |(namespace, name, entry)| {
            let asked = entry.what.revision > after && scope.may_have(namespace, name);
            asked.then(|| entry.what.clone())
        })
    }

    /// Those of a scope, in the order of their keys; at most so many.
    pub(crate) fn all(&self, resource: ResourceId, scope: &Scope, limit: usize) -> Vec<Arc<Unreadable>> {
        let mut all = Vec::new();
        self.of::<()>(resource, |(namespace, name, entry)| {
            if scope.may_have(namespace, name) {
                all.push(entry.what.clone());
            }
            (all.len() >= limit).then_some(())
        });
        all
    }

    /// How many of a resource are not in its state, as they would be if they had been readable before.
    pub(crate) fn missing(&self, resource: ResourceId, live: &Live) -> usize {
        let mut count = 0;
        self.of::<()>(resource, |(namespace, name, _)| {
            count += usize::from(live.get(namespace, name).is_none());
            None
        });
        count
    }

    /// An encrypted one, if there is any.
    pub(crate) fn encrypted(&self) -> Option<Arc<Unreadable>> {
        self.entries.lock().values().find(|entry| entry.encrypted).map(|entry| entry.what.clone())
    }
}
