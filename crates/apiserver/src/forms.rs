//! Encoded forms of objects that many ask for (protobuf, table rows), within a budget of bytes.
//!
//! A revision names one state of one object, so that a form needs no invalidation: it is dropped
//! when newer ones need its place.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;

const SHARDS: usize = 16;

/// A form of an object: its revision, and a number for resource, version and media type.
type Key = (u64, u32);

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
        revision: u64,
        form: u32,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let shard = &self.shards[revision as usize % SHARDS];
        if let Some(bytes) = shard.lock().forms.get(&(revision, form)) {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        if bytes.len() <= self.budget {
            let mut s = shard.lock();
            while s.bytes + bytes.len() > self.budget {
                let Some(old) = s.order.pop_front() else { break };
                s.bytes -= s.forms.remove(&old).map_or(0, |b| b.len());
            }
            if s.forms.insert((revision, form), bytes.clone()).is_none() {
                s.order.push_back((revision, form));
                s.bytes += bytes.len();
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_and_bounded() {
        let cache = FormCache::new(16 * 100);
        let make = |n: u8| move || Ok::<_, ()>(Bytes::from(vec![n; 40]));
        assert_eq!(cache.get(16, 1, make(1)).unwrap()[0], 1);
        assert_eq!(cache.get(16, 1, make(2)).unwrap()[0], 1);
        cache.get(32, 1, make(3)).unwrap();
        cache.get(48, 1, make(4)).unwrap();
        assert_eq!(cache.get(16, 1, make(5)).unwrap()[0], 5, "the oldest made room");
        assert!(cache.get(64, 1, || Err::<Bytes, _>(())).is_err());
    }
}
