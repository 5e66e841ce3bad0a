//! News from the runtime: its events where it sends them, and a comparison of its lists, by
//! which it is also known that anybody would see it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component::Clock;
use cri::runtime as pb;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Code;

use crate::health::Health;
use crate::metrics;
use crate::pods::labels;
use crate::pods::workers::Workers;
use crate::runtime::Runtime;

/// How often the runtime's lists are compared while it sends events.
const SLOW: Duration = Duration::from_mins(1);
/// How often they are compared while it does not.
const FAST: Duration = Duration::from_secs(1);
/// How long to wait before asking for events again.
const RETRY: Duration = Duration::from_secs(5);

/// Hears of what happens in the runtime, and tells those whom it concerns.
pub(crate) struct Follower {
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    /// Learns when the runtime's lists were seen last.
    pub(crate) health: Arc<Health>,
    pub(crate) workers: Arc<Workers>,
    /// Told when something may be there that no Pod owns.
    pub(crate) housekeeping: Arc<Notify>,
}

impl Follower {
    /// Follows the runtime for ever.
    pub(crate) async fn follow(&self) {
        let streaming = Arc::new(tokio::sync::watch::Sender::new(false));
        let s = streaming.clone();
        let listen = async {
            loop {
                let (metrics, began) = (&self.runtime.metrics, Instant::now());
                let answer = self.runtime.service().get_container_events(pb::GetEventsRequest {}).await;
                match answer {
                    Ok(stream) => {
                        metrics.count(&metrics::EVENTED_PLEG_CONNECTION_SUCCESS_COUNT, &[]);
                        let took = began.elapsed();
                        metrics.took(&metrics::EVENTED_PLEG_CONNECTION_LATENCY_SECONDS, &[], took);
                        s.send_replace(true);
                        let mut stream = stream.into_inner();
                        while let Ok(Some(event)) = stream.message().await {
                            self.heard(&event);
                        }
                        s.send_replace(false);
                        // Events may have been lost.
                        self.workers.wake_all();
                    }
                    Err(error) if error.code() == Code::Unimplemented => return,
                    Err(error) => {
                        metrics.count(&metrics::EVENTED_PLEG_CONNECTION_ERROR_COUNT, &[]);
                        tracing::debug!(error = error.message(), "no container events");
                    }
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        let compare = async {
            let (mut known, mut before) = (None, None);
            let mut changed = streaming.subscribe();
            loop {
                let began = Instant::now();
                if let Some(before) = before.replace(began) {
                    let metrics = &self.runtime.metrics;
                    metrics.took(&metrics::PLEG_RELIST_INTERVAL_SECONDS, &[], began.duration_since(before));
                }
                let listed = match list(&self.runtime).await {
                    Ok(now) => {
                        self.health.relisted(began);
                        self.relisted(began);
                        for uid in differing(known.as_ref(), &now) {
                            self.wake_pod(&uid);
                        }
                        known = Some(now);
                        true
                    }
                    Err(error) => {
                        tracing::debug!(error = error.message(), "cannot list containers");
                        false
                    }
                };
                // Without Pods there is nothing to miss for a minute.
                let streams = *changed.borrow_and_update();
                let slow = listed && (streams || self.workers.all().is_empty());
                let period = if slow { SLOW } else { FAST };
                tokio::select! {
                    () = tokio::time::sleep(period) => {}
                    _ = changed.changed() => {}
                }
            }
        };
        futures::future::join(listen, compare).await;
    }

    /// Counts a comparison of the lists.
    fn relisted(&self, began: Instant) {
        let metrics = &self.runtime.metrics;
        metrics.took(&metrics::PLEG_RELIST_DURATION_SECONDS, &[], began.elapsed());
        metrics.set(&metrics::PLEG_LAST_SEEN_SECONDS, &[], self.clock.now().as_millisecond() as f64 / 1e3);
    }

    fn heard(&self, event: &pb::ContainerEventResponse) {
        let of_sandbox =
            event.pod_sandbox_status.as_ref().and_then(|s| s.metadata.as_ref()).map(|m| m.uid.as_str());
        let of_container =
            event.containers_statuses.first().and_then(|c| c.labels.get(labels::POD_UID)).map(String::as_str);
        if let Some(uid) = of_sandbox.or(of_container) {
            if event.container_event_type() == pb::ContainerEventType::ContainerCreatedEvent {
                self.wake_pod(uid);
            } else {
                self.workers.wake(uid);
            }
        }
    }

    /// Lets a Pod's worker look; where there is none, something came into being that nobody owns.
    fn wake_pod(&self, uid: &str) {
        if self.workers.get(uid).is_some() {
            self.workers.wake(uid);
        } else {
            self.housekeeping.notify_one();
        }
    }
}

/// State of each container and sandbox, by Pod and id.
type Listing = BTreeMap<(String, String), i32>;

async fn list(runtime: &Runtime) -> Result<Listing, tonic::Status> {
    let service = runtime.service();
    let (containers, sandboxes) = tokio::try_join!(
        service.list_containers(pb::ListContainersRequest::default()),
        service.list_pod_sandbox(pb::ListPodSandboxRequest::default())
    )?;
    let uid = |labels: &std::collections::HashMap<String, String>| labels.get(labels::POD_UID).cloned();
    let containers = containers.into_inner().containers.into_iter();
    let sandboxes = sandboxes.into_inner().items.into_iter();
    Ok(containers
        .filter_map(|c| Some(((uid(&c.labels)?, c.id), c.state)))
        .chain(sandboxes.filter_map(|s| Some(((uid(&s.labels)?, s.id), s.state))))
        .collect())
}

/// Pods of which something is new, gone or in another state.
fn differing(old: Option<&Listing>, new: &Listing) -> HashSet<String> {
    let Some(old) = old else { return new.keys().map(|k| k.0.clone()).collect() };
    let changed = new.iter().filter(|(key, state)| old.get(*key) != Some(*state)).map(|(key, _)| key);
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    changed.chain(gone).map(|key| key.0.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_differ_are_found() {
        let listing = |items: &[(&str, &str, i32)]| -> Listing {
            items.iter().map(|(u, i, s)| (((*u).to_owned(), (*i).to_owned()), *s)).collect()
        };
        let old = listing(&[("a", "1", 0), ("b", "2", 0), ("c", "3", 0)]);
        let new = listing(&[("a", "1", 0), ("b", "2", 1), ("d", "4", 0)]);
        let found = differing(Some(&old), &new);
        assert_eq!(found, HashSet::from(["b".to_owned(), "c".to_owned(), "d".to_owned()]));
    }
}
