//! Writes that the caches do not show yet.

use std::collections::{HashMap, HashSet};

use client::{Cached, Key};
use k8s_openapi::api::batch::v1::Job;
use parking_lot::Mutex;

/// The uids of Pods whose finalizer was removed, by Job. A Pod that the cache shows with its finalizer would be counted
/// again.
#[derive(Default)]
pub(super) struct Released(Mutex<HashMap<Key, HashSet<String>>>);

impl Released {
    /// The uids of a Job's Pods.
    pub(super) fn of(&self, key: &Key) -> HashSet<String> {
        self.0.lock().get(key).cloned().unwrap_or_default()
    }

    /// Notes the removals that are about to be made.
    pub(super) fn expect(&self, key: &Key, uids: impl Iterator<Item = String>) {
        let mut uids = uids.peekable();
        if uids.peek().is_some() {
            self.0.lock().entry(key.clone()).or_default().extend(uids);
        }
    }

    /// Notes that the cache shows a removal, or never will.
    pub(super) fn seen(&self, key: &Key, uid: &str) {
        let mut all = self.0.lock();
        if let Some(of_job) = all.get_mut(key) {
            of_job.remove(uid);
            if of_job.is_empty() {
                all.remove(key);
            }
        }
    }

    /// Forgets a Job.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// The revisions of the Jobs that were written last.
#[derive(Default)]
pub(super) struct Written(Mutex<HashMap<Key, (String, u64)>>);

fn revision(job: &Job) -> Option<u64> {
    job.resource_version().parse().ok()
}

impl Written {
    /// Notes a write.
    pub(super) fn note(&self, key: &Key, job: &Job) {
        if let Some(revision) = revision(job) {
            self.0.lock().insert(key.clone(), (job.uid().to_owned(), revision));
        }
    }

    /// Whether the cache shows an older state of a Job than was written.
    pub(super) fn is_ahead_of(&self, key: &Key, cached: &Job) -> bool {
        let all = self.0.lock();
        let Some((uid, written)) = all.get(key) else { return false };
        uid == cached.uid() && revision(cached).is_some_and(|shown| shown < *written)
    }

    /// Forgets a Job.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Upstream's case of `TestUIDTrackingExpectations`.
    #[test]
    fn removals_are_expected_until_they_are_seen() {
        let (released, a, b) = (Released::default(), Key::new("n", "a"), Key::new("n", "b"));
        let of = |key: &Key| {
            let mut all: Vec<String> = released.of(key).into_iter().collect();
            all.sort();
            all.concat()
        };
        for (key, uids) in [(&a, "xyz"), (&b, "uv"), (&a, "w")] {
            released.expect(key, uids.chars().map(String::from));
        }
        assert_eq!((of(&a), of(&b)), ("wxyz".into(), "uv".into()));
        for (key, uid) in [(&a, "x"), (&a, "x"), (&b, "x"), (&a, "y"), (&b, "u"), (&b, "v")] {
            released.seen(key, uid);
        }
        assert_eq!((of(&a), of(&b)), ("wz".into(), String::new()));
        released.forget(&a);
        assert!(of(&a).is_empty());
    }

    #[test]
    fn a_cache_may_be_behind() {
        let job = |uid: &str, revision: &str| -> Job {
            serde_json::from_value(
                json!({"metadata": {"uid": uid, "resourceVersion": revision}, "spec": {"template": {}}}),
            )
            .unwrap()
        };
        let (written, key) = (Written::default(), Key::new("n", "a"));
        assert!(!written.is_ahead_of(&key, &job("u", "1")));
        written.note(&key, &job("u", "10"));
        for (uid, revision, want) in
            [("u", "9", true), ("u", "10", false), ("u", "11", false), ("v", "9", false)]
        {
            assert_eq!(written.is_ahead_of(&key, &job(uid, revision)), want, "{uid} {revision}");
        }
        written.forget(&key);
        assert!(!written.is_ahead_of(&key, &job("u", "9")));
    }
}
