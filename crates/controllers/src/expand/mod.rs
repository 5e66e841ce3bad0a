//! Says of claims that want more room that an external resizer is waited for, and names that of the driver that took over
//! from a built-in plugin (upstream: `pkg/controller/volume/expand`). Volumes of drivers of FlexVolumes are the only ones that
//! the control plane itself makes larger (`flex`).

mod flex;

use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Patch, Queue, Recorder};
use component::Clock;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use objects::attachable::Attachable;
use objects::expansion::{self, PRE_RESIZE, RESIZER};
use objects::migration::Plugin;
use objects::{quantity, volumes};
use serde_json::json;

use crate::common::retry;
use crate::flex_drivers::FlexDrivers;
use crate::host::{Controller, Host, Next, Wiring};

/// The controller.
pub(crate) struct Expander {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    /// The programs of FlexVolumes' drivers; without, nodes make their volumes larger alone.
    flex: Option<Arc<dyn FlexDrivers>>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    queue: Queue<Key>,
}

impl Controller for Expander {
    const NAME: &'static str = "persistentvolume-expander-controller";
    const ALIASES: &'static [&'static str] = &["persistentvolume-expander"];
    const ACCOUNT: &'static str = "expand-controller";
    const QUEUE: &'static str = "volume_expand";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        Self {
            client: host.client(),
            clock: host.clock(),
            flex: host.config().flex_drivers.clone(),
            recorder: host.recorder("volume_expand"),
            claims: host.informer(),
            volumes: host.informer(),
            queue: host.main_queue(),
        }
    }

    fn watch(self: &Arc<Self>, _wiring: &Wiring<Key>) {
        let c = self.clone();
        self.claims.handle(move |change| match change {
            Change::Added(claim) => c.look_at(claim),
            // A volume that has become larger may still be marked as becoming so.
            Change::Updated { old, new } if requested(new) > requested(old) || has(new) > has(old) => {
                c.look_at(new);
            }
            Change::Updated { .. } | Change::Deleted(_) => {}
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(claim) = self.claims.get_key(&key) else { return Ok(Next::Done) };
        let volume = self.volumes.get("", volumes::volume_name(&claim)).filter(|v| is_of(v, &claim));
        let Some(volume) = volume else {
            return Err(retry(format!("persistent Volume is not bound to PVC being updated : {key}")));
        };
        if is_due(&claim, &volume) {
            match (Plugin::of(&volume), Attachable::persistent(&volume).and_then(|of| of.flex)) {
                (Some(plugin), _) => self.hand_over(&claim, plugin).await?,
                (None, Some(flex)) => Box::pin(self.grow(&claim, &volume, flex)).await?,
                (None, None) => self.say(
                    &claim,
                    EventType::Normal,
                    "waiting for an external controller to expand this PVC".to_owned(),
                ),
            }
        }
        Ok(Next::Done)
    }
}

impl Expander {
    fn say(&self, claim: &PersistentVolumeClaim, kind: EventType, message: String) {
        self.recorder.event(claim, kind, "ExternalExpanding", message);
    }

    /// Names the resizer of the driver that took over from a volume's plugin.
    async fn hand_over(&self, claim: &PersistentVolumeClaim, plugin: Plugin) -> Result<(), Status> {
        let (plugin, driver) = (plugin.name(), plugin.driver());
        let text =
            format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
        self.say(claim, EventType::Normal, text);
        let told = claim.metadata.annotations.as_ref().and_then(|a| a.get(RESIZER));
        if told.is_some_and(|told| told == driver) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"metadata": {"annotations": {RESIZER: driver}}}));
        let key = claim.key();
        let api = self.client.api::<PersistentVolumeClaim>(&key.namespace);
        match api.patch_status(&key.name, &patch).await {
            Err(e) if !e.is_not_found() => {
                let text = format!("error setting resizer annotation to pvc {key}, with error {e}");
                self.say(claim, EventType::Warning, text);
                Err(e)
            }
            _ => Ok(()),
        }
    }

    fn look_at(&self, claim: &PersistentVolumeClaim) {
        let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        if bound {
            self.queue.add(claim.key());
        }
    }
}

/// The bytes that a claim asks for.
fn requested(claim: &PersistentVolumeClaim) -> i64 {
    quantity::value(expansion::requested(claim))
}

/// The bytes that a claim has.
fn has(claim: &PersistentVolumeClaim) -> i64 {
    quantity::value(expansion::has(claim))
}

/// Whether a volume is bound to a claim.
fn is_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    of.is_some_and(|r| r.uid == claim.metadata.uid && r.namespace == claim.metadata.namespace)
}

/// Whether the volume of a claim waits to be made larger; upstream's rule.
fn is_due(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let annotated = volume.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(PRE_RESIZE));
    requested(claim) > has(claim) || annotated
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn claims_that_wait() {
        let check = |wants: &str, uid: &str, annotations: Value, expected: (bool, bool)| {
            let claim = json!({"metadata": {"namespace": "n", "uid": "u"},
                "spec": {"resources": {"requests": {"storage": wants}}}, "status": {"capacity": {"storage": "1Gi"}}});
            let volume = json!({"metadata": {"annotations": annotations},
                "spec": {"claimRef": {"namespace": "n", "uid": uid}}});
            let claim = serde_json::from_value(claim).unwrap();
            let volume = serde_json::from_value(volume).unwrap();
            assert_eq!((is_of(&volume, &claim), is_due(&claim, &volume)), expected, "{wants} {uid}");
        };
        check("2Gi", "u", json!({}), (true, true));
        check("1Gi", "u", json!({}), (true, false));
        check("1Gi", "u", json!({PRE_RESIZE: "512Mi"}), (true, true));
        check("2Gi", "other", json!({}), (false, true));
    }
}
