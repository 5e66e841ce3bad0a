//! Volumes of drivers of FlexVolumes, which the control plane makes larger itself: by the driver's program, where it has it.
//! The node does the rest (upstream: `expandAndRecoverFunction`).

use api::Status;
use client::{Cached, EventType, Patch};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use objects::attachable::Flex;
use objects::expansion::{self, ControllerPart, PRE_RESIZE};
use objects::quantity;
use serde_json::json;

use super::Expander;
use crate::common::retry;

/// Whether a volume is a device.
fn is_block(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().and_then(|s| s.volume_mode.as_deref()) == Some("Block")
}

impl Expander {
    /// Takes the next step for a claim.
    pub(super) async fn grow(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        of: Flex,
    ) -> Result<(), Status> {
        let annotated = volume.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(PRE_RESIZE));
        if annotated && expansion::is_complete(claim, volume) {
            return self.patch_volume(volume, json!({"metadata": {"annotations": {PRE_RESIZE: null}}})).await;
        }
        let done = match expansion::controller_part(claim, volume) {
            ControllerPart::Nothing => Ok(()),
            ControllerPart::ToNode => self.hand_to_node(claim, volume).await,
            ControllerPart::Expand(size) => self.expand(claim, volume, of, size).await,
        };
        done.map_err(|message| {
            self.recorder.event(claim, EventType::Warning, "VolumeResizeFailed", message.clone());
            retry(message)
        })
    }

    async fn expand(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        of: Flex,
        size: Quantity,
    ) -> Result<(), String> {
        let key = claim.key();
        let name = format!("{}/{}", key.namespace, key.name);
        let had = quantity::value(expansion::has(claim));
        let patch = expansion::controller_in_progress(claim, &of.driver, &size, self.clock.now());
        let claim = self
            .patch_claim(claim, patch)
            .await
            .map_err(|error| format!("error updating pvc {name} with resize in progress: {error}"))?;
        let sizes = (quantity::value(Some(&size)), had);
        let volume_name = volume.metadata.name.clone().unwrap_or_default();
        // Without programs of drivers there is nothing to be done here.
        let resizes = match &self.flex {
            Some(drivers) => drivers.expand(volume_name, of, sizes).await,
            None => Ok(true),
        };
        let resizes = resizes.map_err(|error| format!("error expanding pvc {name}: {error}"))?;
        let patch = json!({"spec": {"capacity": {"storage": size}}});
        let updated = self.patch_volume(volume, patch).await;
        updated.map_err(|error| format!("error updating pv for pvc {name}: {error}"))?;
        if resizes && !is_block(volume) {
            return self
                .hand_to_node(&claim, volume)
                .await
                .map_err(|error| format!("error marking pvc {name} for node expansion: {error}"));
        }
        let finished = self.patch_claim(&claim, expansion::finished(&claim, sizes.0)).await;
        finished.map_err(|error| format!("error marking pvc {name} as resized: {error}"))?;
        let message = format!("ExpandVolume succeeded for volume {name}");
        self.recorder.event(&claim, EventType::Normal, "VolumeResizeSuccessful", message);
        Ok(())
    }

    /// Leaves the growth of the file system to the node that has the volume, or will have it.
    async fn hand_to_node(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), String> {
        let key = claim.key();
        let failed = |error: Status| {
            format!("error marking pvc {}/{} for node expansion: {error}", key.namespace, key.name)
        };
        // With it, a claim that comes after this one still has its volume's file system grow. It comes first: once the
        // claim waits for the node, nobody would make up for it.
        if !volume.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(PRE_RESIZE)) {
            let before = expansion::has(claim).map(|size| size.0.clone()).unwrap_or_else(|| "0".to_owned());
            let patch = json!({"metadata": {"annotations": {PRE_RESIZE: before}}});
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            self.patch_volume(volume, patch).await.map_err(|error| {
                format!(
                    "error updating pv {name} annotation ({PRE_RESIZE}) with pre-resize capacity {before}: {error}"
                )
            })?;
        }
        let patch = expansion::node_pending(claim, self.clock.now());
        self.patch_claim(claim, patch).await.map(drop).map_err(failed)
    }

    async fn patch_claim(
        &self,
        claim: &PersistentVolumeClaim,
        patch: serde_json::Value,
    ) -> Result<PersistentVolumeClaim, Status> {
        let key = claim.key();
        let claims = self.client.api::<PersistentVolumeClaim>(&key.namespace);
        claims.patch_status(&key.name, &Patch::Strategic(patch)).await
    }

    async fn patch_volume(&self, volume: &PersistentVolume, patch: serde_json::Value) -> Result<(), Status> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        self.client.api::<PersistentVolume>("").patch(name, &Patch::Strategic(patch)).await.map(drop)
    }
}
