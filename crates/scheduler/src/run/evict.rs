//! Deleting the victims of a preemption.

use client::{Client, EventType, Patch, Recorder};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde_json::json;
use tokio::time::Instant;

use super::preemptor::{Evicted, Preemptor};
use super::{Input, Scheduler};
use crate::pod::{PREEMPTED, PodInfo, PodView};

/// How many victims of one Pod are deleted at once (upstream's `parallelism`).
const AT_ONCE: usize = 16;

impl Scheduler {
    /// Whether others are being deleted for a Pod, or for its group.
    pub(super) fn is_preempting(&self, pod: &PodInfo) -> bool {
        if self.preempting.is_empty() {
            return false;
        }
        let group = || self.cache.groups().of(pod).and_then(|group| group.metadata.uid.clone());
        self.preempting.contains(pod.uid())
            || self.by_group && group().is_some_and(|uid| self.preempting.contains(&uid))
    }

    /// That is done: whether they went or not, the preemptor is tried again, and decides by what it sees then. The watch may
    /// be behind the answers, and a preemptor that found its victims where they were would make room on another node, too: it
    /// waits until they are seen to go.
    pub(super) fn evicted(&mut self, evicted: Evicted, now: Instant) {
        if let Some(unseen) = evicted.victims.iter().find(|victim| self.cache.stays(victim)).cloned() {
            self.unseen.entry(unseen).or_default().push(evicted);
            return;
        }
        self.preempting.remove(&evicted.uid);
        let Some(pod) = &evicted.group else {
            self.queue.activate(&evicted.uid, now);
            return;
        };
        let members: Vec<_> = self.cache.groups().members(pod, |all| all.unplaced().cloned().collect());
        for uid in &members {
            self.queue.activate(uid, now);
        }
    }

    /// A Pod is seen to go.
    pub(super) fn seen_to_go(&mut self, uid: &str, now: Instant) {
        for evicted in self.unseen.remove(uid).into_iter().flatten() {
            self.evicted(evicted, now);
        }
    }

    /// Deletes the victims; the preemptor is not tried before that is done. If one can't be deleted the others stay:
    /// the next try looks anew.
    pub(super) fn evict(&mut self, victims: &[PodInfo], preemptor: Preemptor) {
        let Preemptor { uid, kind, node, scheduler, group } = preemptor;
        let Some(recorder) = self.recorders.get(&scheduler).cloned() else { return };
        let (client, now, tx) = (self.client.clone(), self.clock.now(), self.tx.clone());
        let victims: Vec<PodInfo> = victims.iter().filter(|v| !v.leaving).cloned().collect();
        self.preempting.insert(uid.clone());
        let metrics = self.metrics.clone();
        self.aside(async move {
            let (start, mut ok) = (Instant::now(), true);
            let event = format!("Preempted by {kind} {uid} on node {node}");
            let condition = format!("{scheduler}: preempting to accommodate a higher priority {kind}");
            // All but the last go at once, and the last one if they all do.
            let (first, last) = victims.split_at(victims.len().saturating_sub(1));
            for some in first.chunks(AT_ONCE).chain([last]) {
                let mut all = Vec::with_capacity(some.len());
                for victim in some {
                    all.push(preempt(&client, &recorder, victim, [&event, &condition], now));
                }
                for (victim, done) in some.iter().zip(join_all(all).await) {
                    if let Err(e) = done {
                        let (pod, namespace) = (victim.name(), victim.namespace());
                        tracing::warn!(pod, namespace, error = %e, "a victim could not be deleted");
                        ok = false;
                    }
                }
                if !ok {
                    break;
                }
            }
            metrics.evicted(ok, start.elapsed());
            let gone = victims.iter().filter(|_| ok).map(|victim| victim.uid().to_owned()).collect();
            let _ = tx.send(Input::Evicted(Evicted { uid, group, victims: gone }));
        });
    }
}

/// Says in the Pod's status why it goes, and deletes it. A Pod that does not say so is not deleted: who looks for it
/// could not tell a preemption from any other end.
async fn preempt(
    client: &Client,
    recorder: &Recorder,
    pod: &PodView,
    [event, condition]: [&str; 2],
    now: Timestamp,
) -> Result<(), api::Status> {
    let (name, namespace) = (pod.name(), pod.namespace());
    let api = client.api::<Pod>(namespace);
    let gone = |e: &api::Status| e.is_not_found() || e.is_conflict();
    if !pod.preempted {
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": PREEMPTED,
            "message": condition,
            "lastTransitionTime": api::time::format(now).as_str(),
            "observedGeneration": pod.generation,
        }]}});
        match api.patch_status(name, &Patch::Strategic(patch)).await {
            Err(e) if gone(&e) => return Ok(()),
            result => drop(result?),
        }
    }
    let uid = Some(pod.uid().to_owned());
    let options = DeleteOptions {
        preconditions: Some(Preconditions { uid, ..Preconditions::default() }),
        ..DeleteOptions::default()
    };
    match api.delete(name, Some(&options)).await {
        Ok(()) => recorder.event_about(pod.reference(), EventType::Normal, "Preempted", event),
        Err(e) if gone(&e) => {}
        Err(e) => return Err(e),
    }
    Ok(())
}
