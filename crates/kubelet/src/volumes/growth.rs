//! The node's part of the growth of a claim's volume, and the claim's status (upstream: `operationexecutor/node_expander.go`).

use std::time::Duration;

use client::{Client, EventType, Patch};
use component::Clock;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use objects::expansion::{self, NodePart};
use objects::quantity;
use serde_json::Value;
use tokio::time::timeout;

use crate::recorder::PodRecorder;

/// How long an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A volume that may grow.
pub(crate) struct Growth<'a> {
    /// Requests with the node's identity.
    pub(crate) client: &'a Client,
    pub(crate) recorder: &'a PodRecorder,
    pub(crate) clock: Clock,
    /// The node's name.
    pub(crate) node: &'a str,
    /// The Pod that has the volume.
    pub(crate) pod: &'a Pod,
    /// The name of the PersistentVolume.
    pub(crate) volume: &'a str,
    /// Its claim: namespace and name.
    pub(crate) claim: &'a (String, String),
}

/// The growth that is due.
pub(crate) struct Due {
    claim: PersistentVolumeClaim,
    part: NodePart,
    /// The capacity that the volume is to have, in bytes.
    pub(crate) capacity: i64,
    /// The capacity that the claim has, in bytes.
    pub(crate) has: i64,
}

impl Due {
    /// Whether a volume of this size on this node is to grow.
    pub(crate) fn is_now(&self, size: i64) -> bool {
        match self.part {
            NodePart::Nothing => false,
            NodePart::Here => size < self.capacity,
            NodePart::Expand => true,
        }
    }
}

impl Growth<'_> {
    /// Asks for what is due; none if the API server does not say, and so nothing is lost: it is asked again. `capacity`: that
    /// of the volume, if it was just asked for.
    pub(crate) async fn due(&self, capacity: Option<i64>) -> Option<Due> {
        let claims = self.client.api::<PersistentVolumeClaim>(&self.claim.0);
        let claim = timeout(PATIENCE, claims.get(&self.claim.1)).await.ok()?.ok()?;
        let capacity = if let Some(capacity) = capacity {
            capacity
        } else {
            let volumes = self.client.api::<PersistentVolume>("");
            let volume = timeout(PATIENCE, volumes.get(self.volume)).await.ok()?.ok()?;
            quantity::value(expansion::capacity(&volume))
        };
        let (part, has) = (expansion::node_part(&claim, capacity), quantity::value(expansion::has(&claim)));
        // The claim says up to which size this growth goes.
        let allocated = expansion::allocated(&claim).filter(|_| part == NodePart::Expand);
        let capacity = allocated.map_or(capacity, |size| quantity::value(Some(size)));
        Some(Due { claim, part, capacity, has })
    }

    async fn tell(&self, patch: Value) -> Result<(), String> {
        let claims = self.client.api::<PersistentVolumeClaim>(&self.claim.0);
        let told = timeout(PATIENCE, claims.patch_status(&self.claim.1, &Patch::Strategic(patch))).await;
        let failed = |why: &str| format!("mountVolume.NodeExpandVolume update pvc status failed: {why}");
        told.map_err(|_| failed("context deadline exceeded"))?.map(drop).map_err(|e| failed(&e.message))
    }

    /// Says that the volume begins to grow.
    ///
    /// # Errors
    /// The claim cannot be told, or has changed.
    pub(crate) async fn begin(&self, due: &Due) -> Result<(), String> {
        match due.part {
            NodePart::Expand => self.tell(expansion::node_in_progress(&due.claim)).await,
            NodePart::Here | NodePart::Nothing => Ok(()),
        }
    }

    /// Says why it did not grow; `infeasible`: it never can.
    pub(crate) async fn fail(&self, due: &Due, why: &str, infeasible: bool) {
        if due.part == NodePart::Expand {
            // The next attempt says it again.
            let _ = self.tell(expansion::node_failed(why, infeasible, self.clock.now())).await;
        }
    }

    /// Says that it has grown.
    ///
    /// # Errors
    /// The claim cannot be told.
    pub(crate) async fn end(&self, due: &Due) -> Result<(), String> {
        let message =
            format!("MountVolume.NodeExpandVolume succeeded for volume {:?} {}", self.volume, self.node);
        self.recorder.pod(self.pod, "Normal", "FileSystemResizeSuccessful", message.clone());
        self.recorder.0.event(&due.claim, EventType::Normal, "FileSystemResizeSuccessful", message);
        match due.part {
            NodePart::Expand => self.tell(expansion::finished(&due.claim, due.capacity)).await,
            NodePart::Here | NodePart::Nothing => Ok(()),
        }
    }
}
