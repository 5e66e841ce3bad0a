//! Encoded forms that many ask for (objects as protobuf, documents of OpenAPI), within a budget of bytes.
//!
//! A stored object never changes, so that a form needs no invalidation: it is dropped when newer ones need its
//! place.

use std::collections::{HashMap, VecDeque};

use api::Object;
use bytes::Bytes;
use parking_lot::Mutex;

const SHARDS: usize = 16;

/// The key of a form. A form of an object is known by the object's revision, the place of the object's bytes, and a
/// number for resource, version and media type.
///
/// The revision alone is not enough: a watch shows the last state of an object that left its selection at the
/// revision of the change, which is another state's too. And no bytes that came later to the same place are of
/// the same revision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Object(u64, usize, u32),
    /// A document by its hash and media type.
    Document(String, &'static str),
}

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
    /// The form of an object, made if it is not there. An error of `make` is not kept.
    pub(crate) fn get<E>(
        &self,
        object: &Object,
        form: u32,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let key = Key::Object(object.revision, object.data.body.as_ptr().addr(), form);
        self.kept(object.revision as usize, key, make)
    }
    /// A document of a hash and media type, made if it is not there.
    pub(crate) fn document(
        &self,
        hash: &str,
        media: &'static str,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let shard = hash.bytes().fold(0, |sum: usize, b| sum.wrapping_mul(31).wrapping_add(b.into()));
        self.kept(shard, Key::Document(hash.to_owned(), media), || make().ok_or(())).ok()
    }
    fn kept<E>(&self, shard: usize, key: Key, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let shard = &self.shards[shard % SHARDS];
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
            if s.forms.insert(key.clone(), bytes.clone()).is_none() {
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

    #[test]
    fn documents_are_made_once() {
        let cache = FormCache::new(16 * 100);
        let get =
            |hash, media, n: u8| cache.document(hash, media, || Some(Bytes::from(vec![n; 40]))).unwrap()[0];
        assert_eq!(get("a", "json", 1), 1);
        assert_eq!(get("a", "json", 2), 1);
        assert_eq!((get("a", "protobuf", 3), get("b", "json", 4)), (3, 4));
        assert_eq!(cache.document("c", "json", || None), None);
        assert_eq!(get("c", "json", 5), 5);
    }
}
