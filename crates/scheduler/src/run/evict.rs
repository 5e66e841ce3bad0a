//! Deleting the victims of a preemption.

use client::{Client, EventType, Patch, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde_json::json;
use tokio::time::Instant;

use super::pods::scheduler_of;
use super::{Input, Scheduler};
use crate::framework::points::Candidate;
use crate::pod::{PREEMPTED, PodInfo, PodView};

impl Scheduler {
    /// Deletes the victims; the preemptor is not tried before that is done. If one can't be deleted the others stay:
    /// the next try looks anew.
    pub(super) fn evict(&mut self, candidate: Candidate, preemptor: &PodInfo) {
        let scheduler = scheduler_of(preemptor).to_owned();
        let Some(recorder) = self.recorders.get(&scheduler).cloned() else { return };
        let (client, now) = (self.client.clone(), self.clock.now());
        let (uid, tx) = (preemptor.uid().to_owned(), self.tx.clone());
        self.preempting.insert(uid.clone());
        let metrics = self.metrics.clone();
        self.aside(async move {
            let (start, mut ok) = (Instant::now(), true);
            let message = format!("Preempted by pod {uid} on node {}", candidate.node);
            for victim in candidate.victims.iter().filter(|v| !v.leaving) {
                if let Err(e) = preempt(&client, &recorder, victim, [&message, &scheduler], now).await {
                    let (pod, namespace) = (victim.name(), victim.namespace());
                    tracing::warn!(pod, namespace, error = %e, "a victim could not be deleted");
                    ok = false;
                    break;
                }
            }
            metrics.evicted(ok, start.elapsed());
            let _ = tx.send(Input::Evicted(uid));
        });
    }
}

/// Says in the Pod's status why it goes, and deletes it. A Pod that does not say so is not deleted: who looks for it
/// could not tell a preemption from any other end.
async fn preempt(
    client: &Client,
    recorder: &Recorder,
    pod: &PodView,
    [message, scheduler]: [&str; 2],
    now: Timestamp,
) -> Result<(), api::Status> {
    let (name, namespace) = (pod.name(), pod.namespace());
    let api = client.api::<Pod>(namespace);
    let gone = |e: &api::Status| e.is_not_found() || e.is_conflict();
    if !pod.preempted {
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": PREEMPTED,
            "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
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
        Ok(()) => recorder.event_about(pod.reference(), EventType::Normal, "Preempted", message),
        Err(e) if gone(&e) => {}
        Err(e) => return Err(e),
    }
    Ok(())
}
