//! The node's part of the growth of a claim's volume, and the claim's status (upstream: `operationexecutor/node_expander.go`).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use client::{Client, EventType, Patch};
use component::Clock;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use objects::expansion::{self, NodePart};
use objects::quantity;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use crate::recorder::PodRecorder;

/// How long an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The volumes of this node, as far as this process has seen them grow.
#[derive(Debug)]
pub(crate) struct Sizes<K>(Mutex<HashMap<K, Seen>>);

#[derive(Debug)]
struct Seen {
    /// In bytes.
    size: i64,
    /// Whether the last attempt to make it larger failed, and nothing goes on.
    failed: bool,
}

impl<K> Default for Sizes<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Sizes<K> {
    /// The size of a volume on this node; the claim's, when it is first asked for.
    pub(crate) fn of(&self, key: K, of_claim: i64) -> i64 {
        self.0.lock().entry(key).or_insert(Seen { size: of_claim, failed: false }).size
    }

    /// Notes that a volume has grown on this node.
    pub(crate) fn grown(&self, key: K, size: i64) {
        self.0.lock().insert(key, Seen { size, failed: false });
    }

    /// Notes that a volume could not grow. Answers whether it could not before, either.
    pub(crate) fn failed<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.lock().get_mut(key).is_some_and(|seen| std::mem::replace(&mut seen.failed, true))
    }

    /// Forgets a volume that no Pod of this node has.
    pub(crate) fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.lock().remove(key);
    }
}

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
    /// The capacity that the claim asks for by now, in bytes.
    wants: i64,
}

impl Due {
    /// Whether a volume of this size on this node is to grow.
    pub(crate) fn is_now(&self, size: i64) -> bool {
        match self.part {
            NodePart::Nothing => false,
            NodePart::Here | NodePart::Untold => size < self.capacity,
            NodePart::Expand => true,
        }
    }

    fn is_given_up(&self, again: bool) -> bool {
        again && self.wants != self.capacity
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
        let wants = quantity::value(expansion::wants(&claim));
        Some(Due { claim, part, capacity, has, wants })
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
            NodePart::Here | NodePart::Untold | NodePart::Nothing => Ok(()),
        }
    }

    /// Says why it did not grow; `infeasible`: it never can. `again`: the attempt before failed, too. A size that the claim
    /// does not ask for any more is given up then, so that the controller can go back to that which it asks for.
    pub(crate) async fn fail(&self, due: &Due, why: &str, infeasible: bool, again: bool) {
        if due.part == NodePart::Expand {
            let infeasible = infeasible || due.is_given_up(again);
            // The next attempt says it again.
            let _ = self.tell(expansion::node_failed(why, infeasible, self.clock.now())).await;
        }
    }

    /// Tells that it cannot grow, if it is to: the Pod only reads it.
    pub(crate) fn refuse(&self, due: &Due) {
        if due.has < due.capacity {
            let message = format!(
                "MountVolume.NodeExpandVolume failed for volume {:?} requested read-only file system",
                self.volume
            );
            self.recorder.pod(self.pod, "Warning", "FileSystemResizeFailed", message.clone());
            self.recorder.0.event(&due.claim, EventType::Warning, "FileSystemResizeFailed", message);
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
            NodePart::Expand | NodePart::Untold => {
                self.tell(expansion::finished(&due.claim, due.capacity)).await
            }
            NodePart::Here | NodePart::Nothing => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_volumes() {
        let sizes = Sizes::default();
        assert_eq!(sizes.of("v", 5), 5);
        assert_eq!(sizes.of("v", 7), 5, "the claim may have grown meanwhile");
        assert_eq!([sizes.failed("v"), sizes.failed("v")], [false, true]);
        sizes.grown("v", 8);
        assert_eq!((sizes.of("v", 5), sizes.failed("v")), (8, false));
        sizes.forget("v");
        assert_eq!((sizes.of("v", 5), sizes.failed("v")), (5, false));
        assert!(!sizes.failed("another"));
    }

    #[test]
    fn a_size_that_nobody_asks_for_is_given_up() {
        let check = |wants: i64, again: bool, expected: bool| {
            let due = Due {
                claim: PersistentVolumeClaim::default(),
                part: NodePart::Expand,
                capacity: 9,
                has: 4,
                wants,
            };
            assert_eq!(due.is_given_up(again), expected, "{wants} {again}");
        };
        check(9, false, false);
        check(9, true, false);
        check(5, false, false);
        check(5, true, true);
    }
}
