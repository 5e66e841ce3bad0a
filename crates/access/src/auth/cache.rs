//! A cache of verifications, so that the same thing is not verified again soon.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// A bounded map that forgets what was not asked for lately: when the young generation is full, it
/// becomes the old one, and the old one is dropped.
pub(super) struct Cache<K, V> {
    shards: Vec<Mutex<Generations<K, V>>>,
    limit: usize,
}

struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

/// A SHA-256 digest; its first byte chooses the shard.
pub(super) type Digest = [u8; 32];

const SHARDS: usize = 16;

impl<V: Clone> Cache<Digest, V> {
    /// At most about twice `limit` values.
    pub(super) fn new(limit: usize) -> Self {
        let shard = || Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() });
        Self {
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            limit: limit.div_ceil(SHARDS).max(1),
        }
    }
    fn shard(&self, key: &Digest) -> &Mutex<Generations<Digest, V>> {
        &self.shards[usize::from(key[0]) % SHARDS]
    }
    /// The value of a key.
    pub(super) fn get(&self, key: &Digest) -> Option<V> {
        let mut shard = self.shard(key).lock();
        if let Some(value) = shard.young.get(key) {
            return Some(value.clone());
        }
        let value = shard.old.remove(key)?;
        shard.put(*key, value.clone(), self.limit);
        Some(value)
    }
    /// Keeps a value.
    pub(super) fn put(&self, key: Digest, value: V) {
        self.shard(&key).lock().put(key, value, self.limit);
    }
}

impl<K: Hash + Eq, V> Generations<K, V> {
    fn put(&mut self, key: K, value: V, limit: usize) {
        if self.young.len() >= limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let cache = Cache::new(16 * 4);
        let key = |i: u16| {
            let mut k = [0; 32];
            k[1..3].copy_from_slice(&i.to_be_bytes());
            k
        };
        cache.put(key(0), 0);
        for i in 1..1000 {
            cache.put(key(i), i);
            assert_eq!(cache.get(&key(0)), Some(0));
        }
        assert_eq!(cache.get(&key(1)), None);
        let kept = (0..1000).filter(|i| cache.get(&key(*i)).is_some()).count();
        assert!(kept <= 8, "{kept}");
    }
}
