//! Values that cannot be read: a caller who asks for their objects gets an error, as in upstream, and all others go on.

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

/// All values that cannot be read, by resource, namespace and name. Costs nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    count: AtomicUsize,
    entries: Mutex<BTreeMap<(ResourceId, Text, Text), Entry>>,
}

impl Entries {
    /// Replaces the values of a resource.
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

    /// Removes a value, which can be read now, or is gone.
    pub(crate) fn remove(&self, resource: ResourceId, namespace: &str, name: &str) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut entries = self.entries.lock();
            entries.remove(&(resource, namespace.into(), name.into()));
            self.count.store(entries.len(), Ordering::Release);
        }
    }

    /// Looks at the values of a resource until `f` finds something.
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

    /// A value of a scope that was written after a revision.
    pub(crate) fn find(&self, resource: ResourceId, scope: &Scope, after: u64) -> Option<Arc<Unreadable>> {
        self.of(resource, |(namespace, name, entry)| {
            let asked = entry.what.revision > after && scope.may_have(namespace, name);
            asked.then(|| entry.what.clone())
        })
    }

    /// The values of a scope, in the order of their keys; at most so many.
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

    /// The number of a resource's values that are not in its state; values that were readable before still are.
    pub(crate) fn missing(&self, resource: ResourceId, live: &Live) -> usize {
        let mut count = 0;
        self.of::<()>(resource, |(namespace, name, _)| {
            count += usize::from(live.get(namespace, name).is_none());
            None
        });
        count
    }

    /// An encrypted value, if there is any.
    pub(crate) fn encrypted(&self) -> Option<Arc<Unreadable>> {
        self.entries.lock().values().find(|entry| entry.encrypted).map(|entry| entry.what.clone())
    }
}
