//! NodeVolumeLimits: a node takes so many volumes of a CSI driver as the driver says in its CSINode (upstream's
//! `plugins/nodevolumelimits`).
//!
//! Volumes count that Pods on the node use, each once, and those that are attached to it still. A claim without a volume
//! counts as one that its class's provisioner will make. With the gate VolumeLimitScaling, a node without a driver that
//! says `preventPodSchedulingIfMissing` takes none of its volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::go::quote;
use api::{FeatureGates, Gate};
use compact_str::{CompactString as Text, format_compact};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use objects::volumes;

use crate::cache::{Cache, NodeInfo};
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, PreFilter, Prefiltered};
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::pod::PodInfo;
use crate::storage::{Objects, has_more_room};
use crate::volumes::{Migrated, Used, driver_of};

/// The plugin's name.
pub const NAME: &str = "NodeVolumeLimits";

const TOO_MANY: &str = "node(s) exceed max volume count";

/// Volumes, each by its driver and the driver's handle.
#[derive(Debug, Default)]
struct Volumes(BTreeSet<(Text, Text)>);

impl Volumes {
    /// Adds those of a Pod.
    ///
    /// # Errors
    /// A claim that cannot be the Pod's, or a disk that its driver cannot have, in upstream's words. A claim that is not
    /// there is an error if it is `needed`.
    ///
    /// DIFFERENCE: upstream does not look at disks for nodes without a CSINode.
    fn add(&mut self, pod: &PodInfo, known: &Objects, needed: bool) -> Result<(), Stop> {
        let Some(used) = pod.used() else { return Ok(()) };
        for disk in &used.migrated {
            let handle = disk.handle.clone().map_err(|why| Stop::Error(why.into()))?;
            self.0.insert((disk.driver.into(), handle));
        }
        for claim in &used.claims {
            if claim.name.is_empty() {
                return Err(Stop::Error("PersistentVolumeClaim had no name".to_owned()));
            }
            let (namespace, name) = (pod.namespace(), claim.name.as_str());
            let Some(found) = known.claim(namespace, name) else {
                if needed {
                    let quoted = quote(name);
                    let why = format!(
                        "looking up PVC {namespace}/{name}: persistentvolumeclaim {quoted} not found"
                    );
                    return Err(Stop::rejected(NAME, why));
                }
                continue;
            };
            if claim.ephemeral && !volumes::is_made_for(found, pod.uid()) {
                let pod = pod.name();
                let why = format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
                );
                return Err(Stop::Error(why));
            }
            self.0.extend(volume_of(found, known));
        }
        Ok(())
    }
}

/// The driver and the handle of a claim's volume; `None` if it does not count.
fn volume_of(claim: &PersistentVolumeClaim, known: &Objects) -> Option<(Text, Text)> {
    let counted: (Text, Text) = if let Some(volume) = known.volume(volumes::volume_name(claim)) {
        match volume.spec.as_ref().and_then(|s| s.csi.as_ref()) {
            Some(csi) => (csi.driver.as_str().into(), csi.volume_handle.as_str().into()),
            None => Migrated::of_persistent(volume).map(|(driver, handle)| (driver.into(), handle))?,
        }
    } else {
        // It is not provisioned yet, or gone.
        let provisioner = known.class(volumes::claim_class(claim))?.provisioner.as_str();
        let meta = &claim.metadata;
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        // No driver's handle begins like this.
        let handle = format_compact!("\u{0}{}/{}", text(&meta.namespace), text(&meta.name));
        (driver_of(provisioner)?.into(), handle)
    };
    Some(counted).filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty())
}

/// The volumes of a Pod that is to be placed.
#[derive(Debug, Default)]
struct Wanted {
    volumes: Volumes,
    /// The reason why no node can take them. It is told by the filter, since VolumeBinding's words about the same claim
    /// come first.
    refused: Option<Rejection>,
    /// The drivers of the volumes without which a node takes none of theirs.
    drivers: BTreeSet<Text>,
}

struct Limits {
    /// Whether drivers are asked if Pods must not go to nodes without them.
    needs_drivers: bool,
}

impl PreFilter for Limits {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let mut wanted = Wanted::default();
        match cycle.pod.used() {
            Some(used) if !used.claims.is_empty() || !used.migrated.is_empty() => {}
            _ => return Ok(Prefiltered::Skip),
        }
        let known = cycle.cluster.storage().read();
        match wanted.volumes.add(cycle.pod, &known, true) {
            Err(Stop::Rejected(why)) => wanted.refused = Some(why),
            other => other?,
        }
        if self.needs_drivers {
            let all = wanted.volumes.0.iter().map(|(driver, _)| driver);
            wanted.drivers = all.filter(|driver| is_needed(driver, &known)).cloned().collect();
        }
        drop(known);
        cycle.state.put(wanted);
        Ok(Prefiltered::All)
    }
    /// Of a Pod with claims or disks nothing: another one of its sort has others.
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

impl Filter for Limits {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        match cycle.state.get::<Wanted>() {
            Some(wanted) => wanted.judge(node, &cycle.cluster.storage().read()),
            None => Ok(()),
        }
    }
    fn filter_all(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
        let Some(wanted) = cycle.state.get::<Wanted>() else { return };
        let known = cycle.cluster.storage().read();
        for (i, node) in cycle.cluster.nodes().iter().enumerate() {
            if verdicts.fits(i)
                && let Err(rejection) = wanted.judge(node, &known)
            {
                verdicts.set(i, Err(rejection));
            }
        }
    }
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

impl Wanted {
    /// Whether a node takes them, beside those that are there.
    fn judge(&self, node: &NodeInfo, known: &Objects) -> Result<(), Rejection> {
        if let Some(why) = &self.refused {
            return Err(why.clone());
        }
        if self.volumes.0.is_empty() {
            return Ok(());
        }
        let drivers = known.csi_node(node.name()).map(|n| n.spec.drivers.as_slice()).unwrap_or_default();
        if let Some(missing) = self.drivers.iter().find(|needed| drivers.iter().all(|d| d.name != **needed)) {
            let why = format!("{missing} CSI driver is not installed on the node");
            return Err(Rejection::new(NAME, why));
        }
        let limits =
            || drivers.iter().filter_map(|d| Some((d.name.as_str(), d.allocatable.as_ref()?.count?)));
        let Some(least) = limits().map(|(_, most)| most).min() else { return Ok(()) };
        // Most nodes have room for more volumes than could be meant at all.
        let at_most =
            node.volumes().map(|there| there + known.attachments(node.name()).count() + self.volumes.0.len());
        if at_most.is_some_and(|n| i64::try_from(n).unwrap_or(i64::MAX) <= i64::from(least)) {
            return Ok(());
        }
        let mut there = Volumes::default();
        for pod in node.pods.values() {
            there.add(pod, known, false).map_err(|stop| match stop {
                Stop::Rejected(rejection) => rejection,
                Stop::Error(why) => Rejection::lasting(NAME, why),
            })?;
        }
        let mut new: BTreeMap<Text, usize> = BTreeMap::new();
        for (driver, _) in self.volumes.0.difference(&there.0) {
            *new.entry(driver.clone()).or_default() += 1;
        }
        there.0.extend(attached(node.name(), known));
        let limits: BTreeMap<&str, i32> = limits().collect();
        let fits = new.iter().all(|(driver, count)| {
            let Some(most) = limits.get(driver.as_str()) else { return true };
            let used = there.0.iter().filter(|(d, _)| d == driver).count();
            i64::try_from(used + count).unwrap_or(i64::MAX) <= i64::from(*most)
        });
        if fits { Ok(()) } else { Err(Rejection::new(NAME, TOO_MANY)) }
    }
}

/// Whether a driver wants no Pod with its volumes on a node without it. One without an object may be no CSI driver.
fn is_needed(driver: &str, known: &Objects) -> bool {
    known.driver(driver).is_some_and(|d| d.spec.prevent_pod_scheduling_if_missing == Some(true))
}

/// The volumes that are attached to a node, whether a Pod uses them or not.
fn attached<'k>(node: &'k str, known: &'k Objects) -> impl Iterator<Item = (Text, Text)> + 'k {
    known.attachments(node).filter_map(move |a| {
        let volume = known.volume(a.spec.source.persistent_volume_name.as_deref()?)?;
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        let driver = Text::from(a.spec.attacher.as_str());
        (!driver.is_empty()).then(|| (driver, csi.volume_handle.as_str().into()))
    })
}

/// A driver takes more volumes, a Pod with volumes goes, a claim of the Pod comes, or a volume is detached.
///
/// DIFFERENCE: upstream does not look at claims that are made for a Pod when a volume is detached.
fn hint(pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
    let counts = |used: &Used| !used.claims.is_empty() || !used.migrated.is_empty();
    let used = pod.used();
    Ok(match &what.about {
        About::CsiNode(Pair { old: Some(old), new: Some(new) }) => has_more_room(old, new),
        About::Pod(Pair { old: Some(old), new: None }) => old.used().is_some_and(counts),
        About::Claim(Pair { new: Some(new), .. }) => {
            used.is_some_and(|used| used.wants(pod.namespace(), new))
        }
        About::Attachment(Pair { old: Some(old), new: None }) => used.is_some_and(|used| {
            !used.claims.is_empty() || used.migrated.iter().any(|m| m.driver == old.spec.attacher)
        }),
        _ => true,
    })
}

pub(super) fn plugin(gates: FeatureGates) -> Plugin {
    let plugin = Arc::new(Limits { needs_drivers: gates.enabled(Gate::VolumeLimitScaling) });
    let points = Points { pre_filter: Some(plugin.clone()), filter: Some(plugin), ..Points::default() };
    let nodes = Events::CSI_NODE_ADDED | Events::CSI_NODE_CHANGED;
    let volumes = Events::POD_DELETED | Events::CLAIM_ADDED | Events::ATTACHMENT_DELETED;
    Plugin::new(NAME, points).lifted_by(nodes | volumes).hinted(hint)
}
