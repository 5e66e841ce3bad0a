//! Pods that hold all that they need on a node, and wait until plugins permit them to be bound there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::framework::verdict::Rejection;

/// The Pods that wait, for plugins of type [`Permit`](crate::framework::points::Permit). Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<Mutex<HashMap<String, Pod>>>);

#[derive(Debug)]
struct Pod {
    /// The plugins that have not allowed it, with the time until which each waits.
    pending: BTreeMap<&'static str, Instant>,
    answer: oneshot::Sender<Result<(), Rejection>>,
}

/// The end of a Pod's waiting.
#[derive(Debug)]
pub struct Permitted {
    until: Instant,
    first: &'static str,
    after: Duration,
    answer: oneshot::Receiver<Result<(), Rejection>>,
}

impl Permitted {
    /// Waits until all plugins have allowed the Pod.
    ///
    /// # Errors
    /// The refusal of one of them, or that of the first whose time was up.
    pub async fn wait(self) -> Result<(), Rejection> {
        match tokio::time::timeout_at(self.until, self.answer).await {
            Ok(Ok(answer)) => answer,
            // Nobody can answer any more: the Pod is gone, or the scheduler ends.
            Ok(Err(_)) => Err(Rejection::new(self.first, "removed")),
            Err(_) => {
                let why = format!(
                    "rejected due to timeout after waiting {:?} at plugin {}",
                    self.after, self.first
                );
                Err(Rejection::new(self.first, why))
            }
        }
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pod>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes in a Pod for which some plugins want to wait, each so long at most.
    pub fn add(
        &self,
        uid: &str,
        plugins: &BTreeMap<&'static str, Duration>,
        now: Instant,
    ) -> Option<Permitted> {
        let (first, after) =
            plugins.iter().min_by_key(|(_, after)| **after).map(|(name, after)| (*name, *after))?;
        let pending = plugins.iter().map(|(name, after)| (*name, now + *after)).collect();
        let (tx, answer) = oneshot::channel();
        self.lock().insert(uid.to_owned(), Pod { pending, answer: tx });
        Some(Permitted { until: now + after, first, after, answer })
    }
    /// The uids of the Pods that wait.
    pub fn uids(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }
    /// A plugin allows a Pod. The last one ends its waiting.
    pub fn allow(&self, uid: &str, plugin: &str) {
        let mut all = self.lock();
        let Some(pod) = all.get_mut(uid) else { return };
        pod.pending.remove(plugin);
        if pod.pending.is_empty()
            && let Some(pod) = all.remove(uid)
        {
            let _ = pod.answer.send(Ok(()));
        }
    }
    /// A plugin refuses a Pod: it looks for another node.
    pub fn reject(&self, uid: &str, plugin: &'static str, why: &str) {
        if let Some(pod) = self.lock().remove(uid) {
            let _ = pod.answer.send(Err(Rejection::new(plugin, why.to_owned())));
        }
    }
    /// Forgets a Pod.
    pub fn remove(&self, uid: &str) {
        self.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugins() -> BTreeMap<&'static str, Duration> {
        BTreeMap::from([("a", Duration::from_secs(5)), ("b", Duration::from_secs(3))])
    }

    #[tokio::test(start_paused = true)]
    async fn all_must_allow_in_time() {
        let (waiting, now) = (Waiting::default(), Instant::now());
        let permitted = waiting.add("u", &plugins(), now).unwrap();
        assert_eq!(waiting.uids(), ["u"]);
        waiting.allow("u", "a");
        waiting.allow("u", "b");
        assert_eq!(permitted.wait().await, Ok(()));
        let permitted = waiting.add("u", &plugins(), now).unwrap();
        waiting.reject("u", "a", "no");
        assert_eq!(permitted.wait().await, Err(Rejection::new("a", "no")));
        let permitted = waiting.add("u", &plugins(), now).unwrap();
        waiting.allow("u", "a");
        let why = "rejected due to timeout after waiting 3s at plugin b";
        assert_eq!(permitted.wait().await, Err(Rejection::new("b", why)));
        let permitted = waiting.add("u", &plugins(), now).unwrap();
        waiting.remove("u");
        assert!(permitted.wait().await.is_err() && waiting.uids().is_empty());
        assert!(waiting.add("u", &BTreeMap::new(), now).is_none());
    }
}
