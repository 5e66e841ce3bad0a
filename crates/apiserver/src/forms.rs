//! Encoded forms of objects that many ask for (protobuf, table rows), within a budget of bytes.
//!
//! A stored object never changes, so that a form needs no invalidation: it is dropped when newer ones need its
//! place.

use std::collections::{HashMap, VecDeque};

use api::Object;
use bytes::Bytes;
use parking_lot::Mutex;

const SHARDS: usize = 16;

/// A form of an object: its revision, where its bytes are, and a number for resource, version and media type.
///
/// The revision alone is not enough: a watch shows the last state of an object that left its selection at the
/// revision of the change, which is another state's too. And no bytes that came later to the same place are of
/// the same revision.
type Key = (u64, usize, u32);

#[derive(Default)]
struct Shard {
    forms: HashMap<Key, Bytes>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// The cache.
pub(crate) struct FormCache {
    shards: [Mutex<Shard>; SHARDS],
    budget: usize,
}

impl FormCache {
    /// A cache that holds at most so many bytes.
    pub(crate) fn new(budget: usize) -> Self {
        Self { shards: Default::default(), budget: budget / SHARDS }
    }
    /// The form, made if it is not there. An error of `make` is not kept.
    pub(crate) fn get<E>(
        &self,
        object: &Object,
        form: u32,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let key = (object.revision, object.data.body.as_ptr().addr(), form);
        let shard = &self.shards[object.revision as usize % SHARDS];
        if let Some(bytes) = shard.lock().forms.get(&key) {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        if bytes.len() <= self.budget {
            let mut s = shard.lock();
            while s.bytes + bytes.len() > self.budget {
                let Some(old) = s.order.pop_front() else { break };
                s.bytes -= s.forms.remove(&old).map_or(0, |b| b.len());
            }
            if s.forms.insert(key, bytes.clone()).is_none() {
                s.order.push_back(key);
                s.bytes += bytes.len();
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(revision: u64, body: &Bytes) -> Object {
        let data = api::NewObject {
            name: "a".into(),
            namespace: "".into(),
            uid: "".into(),
            labels: Box::default(),
            owners: Box::default(),
            fields: Box::default(),
            deleting: false,
            finalizers: false,
            stamp: 0,
            body: body.clone(),
            rv_at: 0,
        };
        Object { data, revision }
    }

    #[test]
    fn made_once_and_bounded() {
        let cache = FormCache::new(16 * 100);
        let body = Bytes::from(vec![0; 8]);
        let get = |revision, n: u8| {
            let make = || Ok::<_, ()>(Bytes::from(vec![n; 40]));
            cache.get(&object(revision, &body), 1, make).unwrap()[0]
        };
        assert_eq!(get(16, 1), 1);
        assert_eq!(get(16, 2), 1);
        get(32, 3);
        get(48, 4);
        assert_eq!(get(16, 5), 5, "the oldest made room");
        assert!(cache.get(&object(64, &body), 1, || Err::<Bytes, _>(())).is_err());
    }

    #[test]
    fn two_states_at_one_revision_are_two() {
        let cache = FormCache::new(16 * 100);
        let (before, after) = (Bytes::from(vec![1; 8]), Bytes::from(vec![2; 8]));
        for body in [&before, &after, &before] {
            let got = cache.get(&object(7, body), 1, || Ok::<_, ()>(body.clone())).unwrap();
            assert_eq!(got, body);
        }
    }
}
