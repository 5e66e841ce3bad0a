//! The way of a Pod's claims to their volumes: assumed, written, and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::Status;
use api::go::quote;
use client::Patch;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::volumes::{self, BOUND_BY_CONTROLLER, SELECTED_NODE};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::needs::Found;
use super::placed::Placed;
use crate::framework::points::{Binding, Unbound};
use crate::storage::{self, Objects, Storage};

/// The choice of volumes for a Pod, assumed in the scheduler's storage.
pub(super) struct Held {
    storage: Storage,
    node: String,
    volumes: Vec<Chosen>,
    claims: Vec<Provisioned>,
    /// How many of the volumes, and then of the claims, are written. The API shows those sooner or later, so nothing that
    /// was assumed of them is taken back.
    written: AtomicUsize,
}

/// A volume that a claim gets.
struct Chosen {
    /// The volume as it is to be.
    volume: PersistentVolume,
    claim: Arc<PersistentVolumeClaim>,
    /// Whether the API has to be told.
    changes: bool,
}

/// A claim for which a volume is provisioned.
struct Provisioned {
    /// The claim as it is to be.
    claim: PersistentVolumeClaim,
    changes: bool,
}

/// The state of the bindings, as the API shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Bound,
    Waits,
}

fn text(t: Option<&String>) -> &str {
    t.map(String::as_str).unwrap_or_default()
}

/// The number of a resourceVersion; they grow.
fn version(meta: &ObjectMeta) -> u64 {
    text(meta.resource_version.as_ref()).parse().unwrap_or(0)
}

impl Held {
    /// Assumes what was found on a node.
    pub(super) fn assume(found: Found, node: &str, storage: &Storage) -> Self {
        let mut known = storage.write();
        let mut held = Self {
            storage: storage.clone(),
            node: node.to_owned(),
            volumes: Vec::new(),
            claims: Vec::new(),
            written: AtomicUsize::new(0),
        };
        for (volume, claim) in found.volumes {
            let bound = volumes::bound_to(&volume, &claim);
            let changes = bound.is_some();
            let volume = bound.unwrap_or_else(|| (*volume).clone());
            if changes {
                known.assume_volume(volume.clone());
            }
            held.volumes.push(Chosen { volume, claim, changes });
        }
        for claim in found.provisioned {
            let changes = volumes::selected_node(&claim) != Some(node);
            let mut claim = (*claim).clone();
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(SELECTED_NODE.to_owned(), node.to_owned());
            if changes {
                known.assume_claim(claim.clone());
            }
            held.claims.push(Provisioned { claim, changes });
        }
        drop(known);
        held
    }

    /// The storage in which it is assumed.
    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Takes back what was assumed and not written.
    pub(super) fn give_back(&self) {
        let written = self.written.load(Ordering::Acquire);
        let mut known = self.storage.write();
        self.volumes.iter().skip(written).for_each(|v| known.restore_volume(&v.volume));
        let claims = self.claims.iter().skip(written.saturating_sub(self.volumes.len()));
        claims.for_each(|c| known.restore_claim(&c.claim));
    }

    /// Writes the choice, and waits until all claims are bound.
    pub(super) async fn bind(&self, binding: &Binding<'_>, timeout: Duration) -> Result<(), Unbound> {
        // If an object is not found, the Pod is there all the same: it is tried again.
        let failed = |why: String| Unbound::Failed(Status::failure(500, "InternalError", why));
        let mut changes = self.storage.changes();
        let versions = self.write(binding).await.map_err(|e| failed(e.message))?;
        let end = Instant::now() + timeout;
        let bound = async {
            loop {
                changes.borrow_and_update();
                if self.progress(&versions, &self.storage.read())? == Progress::Bound {
                    return Ok(());
                }
                tokio::select! {
                    changed = changes.changed() => changed.map_err(|e| e.to_string())?,
                    () = tokio::time::sleep_until(end) => return Err("context deadline exceeded".to_owned()),
                    () = binding.gone.wait() => {
                        let pod = quote(binding.pod.name());
                        return Err(format!("pod does not exist any more: pod {pod} not found"));
                    }
                }
            }
        };
        binding.place.without(bound).await.map_err(|why| failed(format!("binding volumes: {why}")))
    }

    /// Writes volumes and claims, each only as it was when it was chosen. The versions that the API gave them: of the
    /// volumes, then of the claims.
    async fn write(&self, binding: &Binding<'_>) -> Result<Vec<u64>, Status> {
        let mut versions = Vec::with_capacity(self.volumes.len() + self.claims.len());
        let volumes = binding.client.api::<PersistentVolume>("");
        for chosen in &self.volumes {
            let mut now = version(&chosen.volume.metadata);
            if chosen.changes {
                let name = text(chosen.volume.metadata.name.as_ref());
                let patch = Patch::Merge(volume_patch(&chosen.volume));
                now = version(&volumes.patch(name, &patch).await?.metadata);
            }
            versions.push(now);
            self.written.fetch_add(1, Ordering::AcqRel);
        }
        for provisioned in &self.claims {
            let meta = &provisioned.claim.metadata;
            let mut now = version(meta);
            if provisioned.changes {
                let claims = binding.client.api::<PersistentVolumeClaim>(text(meta.namespace.as_ref()));
                let patch = json!({"metadata": {
                    "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": {SELECTED_NODE: self.node},
                }});
                let written = claims.patch(text(meta.name.as_ref()), &Patch::Merge(patch)).await?;
                now = version(&written.metadata);
            }
            versions.push(now);
            self.written.fetch_add(1, Ordering::AcqRel);
        }
        Ok(versions)
    }

    /// Whether all claims are bound, or why they will not be (upstream's `checkBindings`).
    pub(super) fn progress(&self, versions: &[u64], known: &Objects) -> Result<Progress, String> {
        let node = known.node(&self.node);
        let node = node.ok_or_else(|| {
            let name = quote(&self.node);
            format!("failed to get node {name}: node {name} not found")
        })?;
        let migrated =
            |plugin| known.csi_node(&self.node).is_some_and(|node| storage::has_migrated(node, plugin));
        let usable = |volume: &Arc<PersistentVolume>, wrong: &str| {
            let fits = Placed::of(volume.clone()).admits(node.metadata.labels.as_ref(), migrated);
            if fits.map_err(|why| format!("{wrong}{why}"))? {
                return Ok(());
            }
            let [name, node] = [text(volume.metadata.name.as_ref()), &self.node].map(quote);
            Err(format!("pv {name} node affinity doesn't match node {node}: no matching NodeSelectorTerms"))
        };
        let (of_volumes, of_claims) = versions.split_at(self.volumes.len().min(versions.len()));
        for (chosen, written) in self.volumes.iter().zip(of_volumes) {
            let name = text(chosen.volume.metadata.name.as_ref());
            let missing =
                |what: &str, name: &str| format!("failed to check binding: {what} {} not found", quote(name));
            let volume = known.shown_volume(name).ok_or_else(|| missing("persistentvolumes", name))?;
            let claim = shown(known, &chosen.claim.metadata).ok_or_else(|| {
                missing("persistentvolumeclaims", text(chosen.claim.metadata.name.as_ref()))
            })?;
            if version(&volume.metadata) < *written {
                return Ok(Progress::Waits);
            }
            usable(volume, "failed to translate pv to csi: ")?;
            let named = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
            if named.is_none_or(|r| text(r.uid.as_ref()).is_empty()) {
                return Err(format!("ClaimRef got reset for pv {}", quote(name)));
            }
            if !volumes::is_bound(claim) {
                return Ok(Progress::Waits);
            }
        }
        for (provisioned, written) in self.claims.iter().zip(of_claims) {
            let meta = &provisioned.claim.metadata;
            let name = quote(text(meta.name.as_ref()));
            let missing =
                || format!("failed to check provisioning pvc: persistentvolumeclaims {name} not found");
            let claim = shown(known, meta).ok_or_else(missing)?;
            if version(&claim.metadata) < *written {
                return Ok(Progress::Waits);
            }
            if claim.metadata.annotations.is_none() {
                return Err(format!("selectedNode annotation reset for PVC {name}"));
            }
            if volumes::selected_node(claim) != Some(&self.node) {
                return Err(format!("provisioning failed for PVC {name}"));
            }
            let volume = volumes::volume_name(claim);
            if !volume.is_empty() {
                // It may come later than its claim.
                let Some(volume) = known.shown_volume(volume) else { return Ok(Progress::Waits) };
                usable(volume, "")?;
            }
            if !volumes::is_bound(claim) {
                return Ok(Progress::Waits);
            }
        }
        Ok(Progress::Bound)
    }
}

fn shown<'k>(known: &'k Objects, meta: &ObjectMeta) -> Option<&'k Arc<PersistentVolumeClaim>> {
    known.shown_claim(text(meta.namespace.as_ref()), text(meta.name.as_ref()))
}

/// The patch by which a volume names its claim.
fn volume_patch(volume: &PersistentVolume) -> Value {
    let meta = &volume.metadata;
    let mut patch = json!({
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "spec": {"claimRef": volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref())},
    });
    let mark = meta.annotations.as_ref().and_then(|a| a.get(BOUND_BY_CONTROLLER));
    if let Some(mark) = mark {
        patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: mark});
    }
    patch
}
