//! The nodes on which daemons fail again and again: each time, the next Pod is deleted later.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The first delay.
const FIRST: Duration = Duration::from_secs(1);
/// The longest delay.
const LONGEST: Duration = Duration::from_mins(15);

struct Entry {
    delay: Duration,
    since: Instant,
}

/// The failures of one generation of a set.
struct Failures {
    generation: i64,
    nodes: HashMap<String, Entry>,
}

/// The failures of all DaemonSets, by their uids.
#[derive(Default)]
pub(super) struct Backoff(Mutex<HashMap<String, Failures>>);

impl Backoff {
    /// Returns the nodes of a set, in this generation, on which nothing is deleted yet, each with its whole delay.
    pub(super) fn held(&self, set: &str, generation: i64) -> HashMap<String, Duration> {
        let all = self.0.lock();
        let Some(failures) = all.get(set).filter(|f| f.generation == generation) else {
            return HashMap::new();
        };
        let held = failures.nodes.iter().filter(|(_, e)| e.since.elapsed() < e.delay);
        held.map(|(node, e)| (node.clone(), e.delay)).collect()
    }

    /// Notes that a Pod failed on a node: the next one is deleted later. Long ago, it does not count.
    pub(super) fn failed(&self, set: &str, generation: i64, node: &str) {
        let mut all = self.0.lock();
        let failures =
            all.entry(set.to_owned()).or_insert_with(|| Failures { generation, nodes: HashMap::new() });
        if failures.generation != generation {
            *failures = Failures { generation, nodes: HashMap::new() };
        }
        failures.nodes.retain(|_, e| e.since.elapsed() <= 2 * LONGEST);
        let next = failures.nodes.get(node).map_or(FIRST, |e| (2 * e.delay).min(LONGEST));
        failures.nodes.insert(node.to_owned(), Entry { delay: next, since: Instant::now() });
    }

    /// Forgets a set.
    pub(super) fn forget(&self, set: &str) {
        self.0.lock().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double() {
        let b = Backoff::default();
        let delay = |generation: i64| b.held("set", generation).get("node").map(Duration::as_secs);
        assert_eq!(delay(1), None);
        for want in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            b.failed("set", 1, "node");
            assert_eq!(delay(1), Some(want));
            tokio::time::advance(Duration::from_secs(want)).await;
            assert_eq!(delay(1), None, "the delay is over");
        }
        b.failed("set", 2, "node");
        assert_eq!((delay(1), delay(2)), (None, Some(1)), "another generation begins anew");
        b.failed("set", 2, "node");
        tokio::time::advance(2 * LONGEST + Duration::from_secs(1)).await;
        b.failed("set", 2, "node");
        assert_eq!(delay(2), Some(1), "long ago does not count");
        b.forget("set");
        assert_eq!(delay(2), None);
    }
}
