//! Objects as the last write left them: the informer may not have shown that yet.

use std::collections::HashMap;
use std::sync::Arc;

use client::{Cached, Change, Key};
use parking_lot::Mutex;

/// The answers to writes that an informer has not shown yet.
pub(crate) struct Latest<T>(Mutex<HashMap<Key, Arc<T>>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

fn revision<T: Cached>(object: &T) -> u64 {
    object.resource_version().parse().unwrap_or(0)
}

impl<T: Cached> Latest<T> {
    /// Remembers the answer to a write.
    pub(crate) fn note(&self, object: Arc<T>) {
        let mut all = self.0.lock();
        let newer = all
            .get(&object.key())
            .is_none_or(|known| known.uid() != object.uid() || revision(&**known) < revision(&*object));
        if newer {
            all.insert(object.key(), object);
        }
    }

    /// Returns the newer of what the informer shows and what was written. An object that the informer does not show is
    /// gone.
    pub(crate) fn of(&self, shown: Arc<T>) -> Arc<T> {
        match self.0.lock().get(&shown.key()) {
            Some(written) if written.uid() == shown.uid() && revision(&**written) > revision(&*shown) => {
                written.clone()
            }
            _ => shown,
        }
    }

    /// Forgets what the informer shows by now.
    pub(crate) fn seen(&self, change: &Change<T>) {
        let shown = change.object();
        let mut all = self.0.lock();
        let over = all.get(&shown.key()).is_some_and(|written| {
            matches!(change, Change::Deleted(_))
                || written.uid() != shown.uid()
                || revision(&**written) <= revision(&**shown)
        });
        if over {
            all.remove(&shown.key());
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newer_state_counts_until_it_is_shown() {
        let volume = |uid: &str, version: &str| {
            let meta = json!({"metadata": {"name": "v", "uid": uid, "resourceVersion": version}});
            Arc::new(serde_json::from_value::<PersistentVolume>(meta).unwrap())
        };
        let latest = Latest::default();
        let version = |shown: Arc<PersistentVolume>| latest.of(shown).resource_version().to_owned();
        assert_eq!(version(volume("a", "9")), "9");
        latest.note(volume("a", "10"));
        latest.note(volume("a", "8"));
        assert_eq!((version(volume("a", "9")), version(volume("a", "11"))), ("10".into(), "11".into()));
        assert_eq!(version(volume("b", "9")), "9", "another object of the name");
        latest.seen(&Change::Added(volume("a", "9")));
        assert_eq!(version(volume("a", "9")), "10");
        latest.seen(&Change::Added(volume("a", "10")));
        assert_eq!(version(volume("a", "9")), "9");
        latest.note(volume("a", "10"));
        latest.seen(&Change::Deleted(volume("a", "9")));
        assert_eq!(version(volume("a", "9")), "9");
    }
}
