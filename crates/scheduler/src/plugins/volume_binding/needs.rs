//! The needs of a Pod's claims, and what a node has for them.

use std::sync::Arc;

use api::go::quote;
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use objects::migration::Plugin;
use objects::resources::Amount;
use objects::volumes::{self, Fitting};
use objects::{Labels, Selector};

use super::placed::Placed;
use crate::framework::verdict::{Reason, Rejection, Stop};
use crate::pod::PodInfo;
use crate::storage::{self, Objects};
use crate::volumes::Claim;

/// The plugin's name.
pub const NAME: &str = "VolumeBinding";

const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";
const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH: &str = "node(s) did not have enough free storage";
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The needs of a Pod.
#[derive(Debug)]
pub(super) struct Needs {
    /// The volumes of its bound claims; `None` for one that is not there.
    bound: Vec<Option<Placed>>,
    /// The claims for which a node was chosen before.
    chosen: Vec<Open>,
    /// The other claims that wait for a Pod, the smallest first.
    open: Vec<Open>,
}

/// A claim that waits for a Pod.
#[derive(Debug)]
struct Open {
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    /// The volumes that fit it.
    fitting: Fitting<Arc<PersistentVolume>>,
    /// Where there is enough storage for a new volume; `None` if nobody tells.
    room: Option<Vec<Room>>,
}

/// The storage that a driver has on some nodes.
#[derive(Debug)]
struct Room {
    nodes: Selector,
    /// How much there is, in bytes; `None` if only the size of a volume is told.
    capacity: Option<Amount>,
}

/// The volumes that a node has for the claims that are not bound.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Volumes, with the claims that get them.
    pub(super) volumes: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims for which a volume is provisioned.
    pub(super) provisioned: Vec<Arc<PersistentVolumeClaim>>,
    /// For each of these, the storage that its driver has on the node, if it tells.
    pub(super) capacities: Vec<Option<Amount>>,
}

impl Needs {
    /// Those of a Pod; `None` if it has no claims. A claim that is used twice counts once.
    ///
    /// # Errors
    /// If a claim makes the Pod unschedulable on all nodes.
    pub(super) fn of(pod: &PodInfo, known: &Objects) -> Result<Option<Self>, Stop> {
        let Some(used) = pod.used().filter(|used| !used.claims.is_empty()) else { return Ok(None) };
        let mut claims = Vec::with_capacity(used.claims.len());
        for claim in &used.claims {
            claims.push(usable(pod, known, claim)?);
        }
        let mut needs = Self { bound: Vec::new(), chosen: Vec::new(), open: Vec::new() };
        let mut unbound = false;
        for claim in claims {
            if volumes::is_bound(claim) {
                needs.bound.push(known.volume(volumes::volume_name(claim)).cloned().map(Placed::of));
                continue;
            }
            let class = known.class(volumes::claim_class(claim));
            let waits = volumes::waits_for_consumer(class.map(|c| &**c)).map_err(Stop::Error)?;
            match class.filter(|_| waits && volumes::volume_name(claim).is_empty()) {
                None => unbound = true,
                Some(class) => {
                    let open = Open::new(claim, class, known)?;
                    let chosen = volumes::selected_node(claim).is_some();
                    if chosen { &mut needs.chosen } else { &mut needs.open }.push(open);
                }
            }
        }
        if unbound {
            return Err(Stop::rejected(NAME, UNBOUND));
        }
        needs.open.sort_by_cached_key(|o| volumes::by_size(&o.claim));
        Ok(Some(needs))
    }

    /// Whether there are claims to be bound.
    pub(super) fn is_open(&self) -> bool {
        !self.chosen.is_empty() || !self.open.is_empty()
    }

    /// Whether any node will do: all claims have volumes that can be used everywhere.
    pub(super) fn are_met_anywhere(&self) -> bool {
        !self.is_open() && self.bound.iter().all(|v| v.as_ref().is_some_and(Placed::is_anywhere))
    }

    /// Finds what a node has for the claims, or says why it cannot take the Pod (upstream's `FindPodVolumes`). `migrated`:
    /// whether the node's drivers have the volumes of a plugin.
    pub(super) fn find(
        &self,
        node: &str,
        labels: Option<&Labels>,
        migrated: impl Fn(Plugin) -> bool,
    ) -> Result<Found, Rejection> {
        let mut reasons: Vec<Reason> = Vec::new();
        let mut missing = false;
        for volume in &self.bound {
            match volume {
                Some(volume) => match volume.admits(labels, &migrated) {
                    Ok(true) => continue,
                    Ok(false) => reasons.push(NODE_CONFLICT.into()),
                    Err(why) => return Err(Rejection::failure(NAME, why)),
                },
                None => missing = true,
            }
            break;
        }
        let found = self.find_open(node, labels);
        if let Err(reason) = found {
            reasons.push(reason.into());
        }
        if missing {
            reasons.push(NO_VOLUME.into());
        }
        match found {
            Ok(found) if reasons.is_empty() => Ok(found),
            _ => Err(Rejection { plugin: NAME, reasons, unresolvable: true, failed: false }),
        }
    }

    fn find_open(&self, node: &str, labels: Option<&Labels>) -> Result<Found, &'static str> {
        let mut found = Found::default();
        let mut wanted: Vec<&Open> = Vec::new();
        for chosen in &self.chosen {
            if volumes::selected_node(&chosen.claim) != Some(node) {
                return Err(BIND_CONFLICT);
            }
            wanted.push(chosen);
        }
        for open in &self.open {
            let taken =
                |v: &PersistentVolume| found.volumes.iter().any(|(t, _)| t.metadata.name == v.metadata.name);
            match open.fitting.on(labels, taken).cloned() {
                Some(volume) => found.volumes.push((volume, open.claim.clone())),
                None => wanted.push(open),
            }
        }
        for open in wanted {
            found.capacities.push(open.may_be_provisioned(labels)?);
            found.provisioned.push(open.claim.clone());
        }
        Ok(found)
    }
}

impl Open {
    fn new(
        claim: &Arc<PersistentVolumeClaim>,
        class: &Arc<StorageClass>,
        known: &Objects,
    ) -> Result<Self, Stop> {
        let of_class = known.volumes_of(volumes::claim_class(claim)).cloned();
        let fitting = Fitting::new(claim, of_class).map_err(|e| {
            let meta = &claim.metadata;
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            let (namespace, name) = (text(&meta.namespace), text(&meta.name));
            Stop::Error(format!("error creating internal label selector for claim: {namespace}/{name}: {e}"))
        })?;
        let room = room(claim, class, known);
        Ok(Self { claim: claim.clone(), class: class.clone(), fitting, room })
    }

    /// Whether a volume may be provisioned for a node (upstream's `checkVolumeProvisions`), and of how much storage there.
    ///
    /// DIFFERENCE: of several that are enough, the first in the order of their names counts; upstream takes any.
    fn may_be_provisioned(&self, labels: Option<&Labels>) -> Result<Option<Amount>, &'static str> {
        let provisioner = self.class.provisioner.as_str();
        let topologies = self.class.allowed_topologies.as_deref().unwrap_or_default();
        let nobody = provisioner.is_empty() || provisioner == volumes::NO_PROVISIONER;
        if nobody || !volumes::is_allowed(topologies, labels) {
            return Err(BIND_CONFLICT);
        }
        let Some(rooms) = &self.room else { return Ok(None) };
        let room = rooms.iter().find(|room| room.nodes.matches(labels)).ok_or(NOT_ENOUGH)?;
        Ok(room.capacity)
    }
}

/// Where a driver has enough storage for a claim; `None` if it does not tell, or the claim asks for none.
fn room(claim: &PersistentVolumeClaim, class: &StorageClass, known: &Objects) -> Option<Vec<Room>> {
    let wanted = volumes::requested(claim)?.value();
    known.driver(&class.provisioner).filter(|d| d.spec.storage_capacity == Some(true))?;
    let enough = known.capacities().filter(|c| {
        Some(&c.storage_class_name) == class.metadata.name.as_ref()
            && storage::limit(c).is_some_and(|most| most >= wanted)
    });
    // A wrong selector selects no node.
    let rooms = enough.filter_map(|c| {
        let capacity = c.capacity.as_ref().and_then(|said| Quantity::parse(&said.0).ok());
        let capacity = capacity.map(|q| Amount::from(q.value()));
        Some(Room { nodes: Selector::new(c.node_topology.as_ref()).ok()?, capacity })
    });
    Some(rooms.collect())
}

/// A claim, if the Pod can use it (upstream's `podHasPVCs`).
fn usable<'k>(
    pod: &PodInfo,
    known: &'k Objects,
    used: &Claim,
) -> Result<&'k Arc<PersistentVolumeClaim>, Stop> {
    let refuse = |why: String| Err(Stop::rejected(NAME, why));
    let name = quote(&used.name);
    let Some(claim) = known.claim(pod.namespace(), &used.name) else {
        return refuse(if used.ephemeral {
            format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name}")
        } else {
            format!("persistentvolumeclaim {name} not found")
        });
    };
    if claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost") {
        let volume = quote(volumes::volume_name(claim));
        return refuse(format!(
            "persistentvolumeclaim {name} bound to non-existent persistentvolume {volume}"
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return refuse(format!("persistentvolumeclaim {name} is being deleted"));
    }
    if used.ephemeral && !volumes::is_made_for(claim, pod.uid()) {
        let (namespace, pod, name) = (pod.namespace(), pod.name(), &used.name);
        return refuse(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        ));
    }
    Ok(claim)
}
