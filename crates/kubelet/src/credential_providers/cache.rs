//! Answers of providers, for as long as they are good.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The most answers of a provider; the one that ends first makes room.
const MOST: usize = 1000;
/// After which time answers that nobody asks for any more are forgotten; upstream's.
const PURGED: Duration = Duration::from_mins(15);

/// Answers by keys.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    entries: HashMap<K, (V, Instant)>,
    purged: Instant,
}

impl<K: Eq + std::hash::Hash + Clone, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new(), purged: Instant::now() }
    }

    /// The answer that the first of these keys has.
    pub(super) fn get(&mut self, keys: &[K]) -> Option<V> {
        let now = Instant::now();
        if now.duration_since(self.purged) > PURGED {
            self.entries.retain(|_, (_, end)| *end >= now);
            self.purged = now;
        }
        for key in keys {
            match self.entries.get(key) {
                Some((value, end)) if *end >= now => return Some(value.clone()),
                Some(_) => drop(self.entries.remove(key)),
                None => {}
            }
        }
        None
    }

    /// Keeps an answer for a while.
    pub(super) fn put(&mut self, key: K, value: V, time: Duration) {
        let now = Instant::now();
        // One that would end in a time that there is none of is kept for a year.
        let end = now.checked_add(time.min(Duration::from_hours(24 * 365))).unwrap_or(now);
        if self.entries.len() >= MOST && !self.entries.contains_key(&key) {
            self.entries.retain(|_, (_, end)| *end >= now);
        }
        if self.entries.len() >= MOST
            && !self.entries.contains_key(&key)
            && let Some(first) = self.entries.iter().min_by_key(|(_, (_, end))| *end).map(|(k, _)| k.clone())
        {
            self.entries.remove(&first);
        }
        self.entries.insert(key, (value, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_end() {
        let mut cache = Cache::new();
        cache.put("a", 1, Duration::from_secs(10));
        cache.put("b", 2, Duration::from_secs(20));
        assert_eq!((cache.get(&["c", "a", "b"]), cache.get(&["b", "a"])), (Some(1), Some(2)));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(cache.get(&["a", "b"]), Some(2));
        assert_eq!(cache.entries.len(), 1);
        tokio::time::advance(PURGED).await;
        assert_eq!(cache.get(&["c"]), None);
        assert!(cache.entries.is_empty(), "nobody asked for it");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_not_too_many() {
        let mut cache = Cache::new();
        for n in 0..2 * MOST {
            cache.put(n, n, Duration::from_secs(1 + n as u64));
        }
        assert_eq!((cache.entries.len(), cache.get(&[0]), cache.get(&[MOST])), (MOST, None, Some(MOST)));
        cache.put(7, 7, Duration::MAX);
        assert_eq!(cache.get(&[7]), Some(7));
    }
}
