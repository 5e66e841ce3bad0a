//! A bounded map of the entries that were used last.

use std::collections::HashMap;
use std::hash::Hash;

/// A bounded map that forgets what was not used for longest.
pub(super) struct Recent<K, V> {
    all: HashMap<K, (V, u64)>,
    limit: usize,
    /// Grows with every use.
    used: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Recent<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { all: HashMap::new(), limit, used: 0 }
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&mut self, of: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.used += 1;
        let used = self.used;
        self.all.get_mut(of).map(|(value, last)| {
            *last = used;
            value.clone()
        })
    }

    pub(super) fn put(&mut self, of: K, value: V) {
        self.used += 1;
        if self.all.len() >= self.limit
            && let Some(oldest) = self.all.iter().min_by_key(|(_, (_, used))| *used).map(|(of, _)| of.clone())
        {
            self.all.remove(&oldest);
        }
        self.all.insert(of, (value, self.used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_least_recent() {
        let mut recent = Recent::new(2);
        recent.put("a", 1);
        recent.put("b", 2);
        assert_eq!(recent.get("a"), Some(1));
        recent.put("c", 3);
        assert_eq!((recent.get("a"), recent.get("b"), recent.get("c")), (Some(1), None, Some(3)));
    }
}
