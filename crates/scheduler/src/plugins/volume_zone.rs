//! VolumeZone: Pods go to the zones and regions that the labels of their volumes name (upstream's `plugins/volumezone`).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::go::quote;
use k8s_openapi::api::core::v1::PersistentVolume;
use objects::volumes;

use crate::cache::{Cache, NodeInfo};
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, PreFilter, Prefiltered};
use crate::framework::verdict::{Rejection, Stop};
use crate::pod::PodInfo;
use crate::storage::{Objects, ZONE_LABELS, is_moved};
use crate::volumes::Used;

/// The plugin's name.
pub const NAME: &str = "VolumeZone";

const CONFLICT: &str = "node(s) had no available volume zone";

/// The values that a volume allows for a label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Topology {
    key: &'static str,
    values: BTreeSet<String>,
}

/// The topologies of a Pod's volumes.
#[derive(Debug)]
struct Topologies(Vec<Topology>);

/// The topologies of a volume. A label that names no zone, or an empty one, is left out.
fn topologies(volume: &PersistentVolume) -> impl Iterator<Item = Topology> {
    let labels = volume.metadata.labels.as_ref();
    ZONE_LABELS.into_iter().filter_map(move |key| {
        let values: BTreeSet<String> = labels?.get(key)?.split("__").map(|v| v.trim().to_owned()).collect();
        (!values.contains("")).then_some(Topology { key, values })
    })
}

/// Those of the volumes to which a Pod's claims are bound.
fn of_pod(pod: &PodInfo, known: &Objects) -> Result<Vec<Topology>, Stop> {
    let mut all = Vec::new();
    for name in pod.used().iter().flat_map(|used| used.named()) {
        let refuse = |why: String| Stop::rejected(NAME, why);
        if name.is_empty() {
            return Err(refuse("PersistentVolumeClaim had no name".to_owned()));
        }
        let claim = known.claim(pod.namespace(), name);
        let claim =
            claim.ok_or_else(|| refuse(format!("persistentvolumeclaim {} not found", quote(name))))?;
        let volume = volumes::volume_name(claim);
        if volume.is_empty() {
            let class = volumes::claim_class(claim);
            if class.is_empty() {
                let why = "PersistentVolumeClaim had no pv name and storageClass name";
                return Err(refuse(why.to_owned()));
            }
            let missing = || refuse(format!("storageclass.storage.k8s.io {} not found", quote(class)));
            let class = known.class(class).ok_or_else(missing)?;
            if volumes::waits_for_consumer(Some(class)).map_err(refuse)? {
                continue;
            }
            return Err(refuse("PersistentVolume had no name".to_owned()));
        }
        let missing = || refuse(format!("persistentvolume {} not found", quote(volume)));
        all.extend(topologies(known.volume(volume).ok_or_else(missing)?));
    }
    Ok(all)
}

/// The newer name of a label.
fn newer(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        other => other,
    }
}

impl Topologies {
    /// Whether a node is where the volumes are. One without any of the labels may be anywhere: all of its cluster is then
    /// one zone.
    fn admit(&self, node: &NodeInfo) -> bool {
        let there = |t: &Topology| {
            let value = node.label(t.key).or_else(|| node.label(newer(t.key)));
            value.is_some_and(|v| t.values.contains(v))
        };
        ZONE_LABELS.iter().all(|key| node.label(key).is_none()) || self.0.iter().all(there)
    }
}

struct VolumeZone;

impl PreFilter for VolumeZone {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        if cycle.pod.used().is_none() {
            return Ok(Prefiltered::Skip);
        }
        let all = of_pod(cycle.pod, &cycle.cluster.storage().read())?;
        if all.is_empty() {
            return Ok(Prefiltered::Skip);
        }
        cycle.state.put(Topologies(all));
        Ok(Prefiltered::All)
    }
    /// Of a Pod with claims or disks nothing: another one of its sort has others.
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

impl Filter for VolumeZone {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        match cycle.state.get::<Topologies>() {
            Some(all) if !all.admit(node) => Err(Rejection::lasting(NAME, CONFLICT)),
            _ => Ok(()),
        }
    }
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

/// A class comes whose claims wait for a Pod, a claim of the Pod comes or changes, or a volume comes or is in other zones.
fn hint(pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
    Ok(match &what.about {
        About::Class(Pair { new: Some(new), .. }) => volumes::waits_for_consumer(Some(new)).unwrap_or(false),
        About::Claim(Pair { new: Some(new), .. }) => {
            let named = |used: &Used| used.named().any(|name| new.metadata.name.as_deref() == Some(name));
            pod.used().is_some_and(|used| used.wants(pod.namespace(), new) && named(used))
        }
        About::Volume(Pair { old: Some(old), new: Some(new) }) => is_moved(old, new),
        _ => true,
    })
}

pub(super) fn plugin() -> Plugin {
    let plugin = Arc::new(VolumeZone);
    let points = Points { pre_filter: Some(plugin.clone()), filter: Some(plugin), ..Points::default() };
    let claims = Events::CLASS_ADDED | Events::CLAIM_ADDED | Events::CLAIM_CHANGED;
    let volumes = Events::VOLUME_ADDED | Events::VOLUME_CHANGED;
    let nodes = Events::NODE_ADDED | Events::NODE_LABELS;
    Plugin::new(NAME, points).lifted_by(claims | volumes | nodes).hinted(hint)
}
