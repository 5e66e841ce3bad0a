//! The claims of Pods' ephemeral volumes: each is made for one Pod, which owns it (upstream:
//! `pkg/controller/volume/ephemeral`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Status;
use client::{Cached, Change, Client, EventType, Index, Informer, Key, Queue, Recorder};
use component::Registry;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use objects::volumes::{ephemeral_claim, is_made_for};

use crate::common::{pods, retry};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

/// The controller of the claims of ephemeral volumes.
pub(crate) struct EphemeralVolumes {
    client: Client,
    recorder: Recorder,
    pods: Informer<PodView>,
    by_claim: Index<PodView>,
    claims: Informer<PersistentVolumeClaim>,
    queue: Queue<Key>,
    made: Arc<Made>,
}

/// The attempts to make claims.
#[derive(Default)]
struct Made {
    attempts: AtomicU64,
    failures: AtomicU64,
}

impl Made {
    fn register(self: &Arc<Self>, registry: &Registry) {
        let made = self.clone();
        registry.register("ephemeral-volume-controller", move |page| {
            let counters = [
                (
                    "ephemeral_volume_controller_create_total",
                    "[ALPHA] Number of PersistentVolumeClaim creation requests",
                    &made.attempts,
                ),
                (
                    "ephemeral_volume_controller_create_failures_total",
                    "[ALPHA] Number of PersistentVolumeClaim creation requests that failed",
                    &made.failures,
                ),
            ];
            for (name, help, count) in counters {
                page.metric(name, "counter", help).value(name, &[], count.load(Ordering::Relaxed) as f64);
            }
        });
    }
}

impl Controller for EphemeralVolumes {
    const NAME: &'static str = "ephemeral-volume-controller";
    const ALIASES: &'static [&'static str] = &["ephemeral-volume"];
    const ACCOUNT: &'static str = "ephemeral-volume-controller";
    const QUEUE: &'static str = "ephemeral_volume";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.ephemeral_volumes
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let made = Arc::<Made>::default();
        made.register(host.metrics());
        let pods = pods::informer(host.factory());
        Self {
            client: host.client(),
            recorder: host.recorder("ephemeral_volume"),
            by_claim: pods::by_claim(&pods),
            pods,
            claims: host.informer(),
            queue: host.main_queue(),
            made,
        }
    }

    fn watch(self: &Arc<Self>, _wiring: &Wiring<Key>) {
        let c = self.clone();
        self.pods.handle(move |change| {
            if let Change::Added(pod) = change {
                c.look_at(pod);
            }
        });
        let c = self.clone();
        self.claims.handle(move |change| {
            if let Change::Deleted(claim) = change {
                let key = pods::claim_key(claim.namespace(), claim.name());
                c.by_claim.get(&key).iter().for_each(|pod| c.look_at(pod));
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(pod) = self.pods.get_key(&key).filter(|p| !p.is_deleting()) else { return Ok(Next::Done) };
        let mut missing = false;
        for name in pod.ephemeral_claims() {
            match self.claims.get(pod.namespace(), name) {
                Some(claim) if is_made_for(&claim, pod.uid()) => {}
                // The Pod says which volume's claim is another's.
                Some(_) | None => missing = true,
            }
        }
        if missing {
            self.make_claims(&pod).await?;
        }
        Ok(Next::Done)
    }
}

/// Says that a claim belongs to somebody else; upstream's text.
fn not_owner(claim: &str, pod: &PodView) -> String {
    let namespace = pod.namespace();
    format!("PVC {namespace}/{claim} was not created for pod {namespace}/{} (pod is not owner)", pod.name())
}

impl EphemeralVolumes {
    fn look_at(&self, pod: &PodView) {
        if !pod.is_deleting() && !pod.ephemeral_claims().is_empty() {
            self.queue.add(pod.key());
        }
    }

    /// Makes the claims that a Pod lacks. Their templates are in the Pod, of which the cache holds little.
    async fn make_claims(&self, seen: &PodView) -> Result<(), Status> {
        let pod = match self.client.api::<Pod>(seen.namespace()).get(seen.name()).await {
            Ok(pod) if pod.metadata.uid.as_deref() == Some(seen.uid()) => pod,
            Ok(_) => return Ok(()),
            Err(e) if e.is_not_found() => return Ok(()),
            Err(e) => return Err(e),
        };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
            let Some(wanted) = claim_for(&pod, volume) else { continue };
            let why = match self.make(seen, &wanted).await {
                Ok(()) => continue,
                Err(why) => why,
            };
            let message = format!("ephemeral volume {}: {why}", volume.name);
            self.recorder.event_about(
                seen.reference(),
                EventType::Warning,
                "FailedBinding",
                message.as_str(),
            );
            return Err(retry(format!("pod {}, {message}", seen.key())));
        }
        Ok(())
    }

    async fn make(&self, pod: &PodView, wanted: &PersistentVolumeClaim) -> Result<(), String> {
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        if let Some(claim) = self.claims.get(pod.namespace(), name) {
            return if is_made_for(&claim, pod.uid()) { Ok(()) } else { Err(not_owner(name, pod)) };
        }
        self.made.attempts.fetch_add(1, Ordering::Relaxed);
        match self.client.api::<PersistentVolumeClaim>(pod.namespace()).create(wanted).await {
            Ok(_) => Ok(()),
            Err(e) => {
                self.made.failures.fetch_add(1, Ordering::Relaxed);
                Err(format!("create PVC {name}: {}", e.message))
            }
        }
    }
}

/// Returns the claim of a Pod's volume; `None` if the volume is not ephemeral.
fn claim_for(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let name = pod.metadata.name.clone().unwrap_or_default();
    let of_template = template.metadata.clone().unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(ephemeral_claim(&name, &volume.name)),
            namespace: pod.metadata.namespace.clone(),
            annotations: of_template.annotations,
            labels: of_template.labels,
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name,
                uid: pod.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::views::tests::view;

    #[test]
    fn claims_of_volumes() {
        let template = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "w", "emptyDir": {}}]},
        });
        let typed: Pod = serde_json::from_value(pod.clone()).unwrap();
        let volumes = typed.spec.clone().unwrap().volumes.unwrap();
        assert!(claim_for(&typed, &volumes[1]).is_none());
        let claim = serde_json::to_value(claim_for(&typed, &volumes[0]).unwrap()).unwrap();
        assert_eq!(
            claim["metadata"],
            json!({"name": "p-v", "namespace": "n", "labels": {"a": "1"}, "annotations": {"b": "2"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}]})
        );
        assert_eq!(claim["spec"], template["spec"]);
        assert_eq!(not_owner("p-v", &view(&pod)), "PVC n/p-v was not created for pod n/p (pod is not owner)");
    }
}
