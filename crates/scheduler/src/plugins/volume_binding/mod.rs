//! VolumeBinding: a Pod goes where its volumes are or can be, and its claims are bound before it is (upstream's
//! `plugins/volumebinding`).
//!
//! 1. *The Pod's needs* (`needs::Needs`, once a turn): the volumes of its bound claims, and for each claim that waits
//!    for a Pod the volumes that fit it, and what its class says of new ones.
//! 2. *Each node* (`needs::Needs::find`, pure): bound volumes must be usable there; each other claim gets the smallest
//!    volume that is, or one that can be provisioned for the node.
//! 3. *The node that was chosen*: the same is worked out again and assumed (`bind::Held`), so that the next Pod sees what
//!    is left. The Pod's own task writes it, and waits until the claims are bound; it holds no place among the bindings
//!    meanwhile.
//!
//! With the gate StorageCapacityScoring, nodes are scored by how much of their storage the claims take (`score.rs`).
//!
//! Volumes of plugins from which drivers took over are judged by the drivers' labels where a node's CSINode names the plugin
//! (`placed.rs`).

mod bind;
#[cfg(test)]
mod cases;
mod needs;
mod placed;
mod score;

use std::sync::Arc;
use std::time::Duration;

use api::{FeatureGates, Gate};
use k8s_openapi::api::storage::v1::CSIDriver;

use crate::cache::{Cache, NodeInfo};
use crate::config::args::{PluginArgs, ShapePoint};
use crate::config::defaults::usual_shape;
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{
    Binding, Cycle, Filter, Later, PreBind, PreFilter, PreScore, Prefiltered, Reserve, Score, Unbound,
};
use crate::framework::state::State;
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::pod::PodInfo;
use crate::storage::{self, Stage, Storage};
use bind::Held;
pub use needs::NAME;
use needs::{Found, Needs};

struct VolumeBinding {
    /// How long a Pod waits for its claims.
    timeout: Duration,
    /// The value of a node by its utilization; none if nodes are not scored.
    shape: Option<Vec<ShapePoint>>,
}

/// Finds what a node has for the claims of a Pod.
fn find(needs: &Needs, storage: &Storage, node: &NodeInfo) -> Result<Found, Rejection> {
    let name = node.name();
    // Few volumes are of such plugins.
    let migrated =
        |plugin| storage.read().csi_node(name).is_some_and(|node| storage::has_migrated(node, plugin));
    needs.find(name, node.node.metadata.labels.as_ref(), migrated)
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let storage = cycle.cluster.storage();
        let needs = Needs::of(cycle.pod, &storage.read());
        if let Err(Stop::Error(_)) = &needs {
            storage.failed(Stage::Predicate);
        }
        let needs = needs?;
        let Some(needs) = needs else { return Ok(Prefiltered::Skip) };
        cycle.state.put(needs);
        Ok(Prefiltered::All)
    }
    /// Of a Pod with claims or disks nothing: another one of its sort has others.
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(needs) = cycle.state.get::<Needs>() else { return Ok(()) };
        find(needs, cycle.cluster.storage(), node).map(drop)
    }
    fn filter_all(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
        if cycle.state.get::<Needs>().is_none_or(Needs::are_met_anywhere) {
            return;
        }
        for (i, node) in cycle.cluster.nodes().iter().enumerate() {
            if verdicts.fits(i)
                && let Err(rejection) = self.filter(cycle, node)
            {
                verdicts.set(i, Err(rejection));
            }
        }
    }
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

impl PreScore for VolumeBinding {
    fn pre_score(&self, cycle: &mut Cycle<'_>, _feasible: &[usize], _kept: bool) -> Result<bool, String> {
        Ok(cycle.state.get::<Needs>().is_some_and(Needs::is_open))
    }
}

impl Score for VolumeBinding {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        let (Some(needs), Some(shape)) = (cycle.state.get::<Needs>(), &self.shape) else { return Ok(0) };
        let found = find(needs, cycle.cluster.storage(), node);
        Ok(found.map_or(0, |found| score::of(&found, shape)))
    }
}

impl Reserve for VolumeBinding {
    fn concerns(&self, pod: &PodInfo) -> bool {
        pod.used().is_some_and(|used| !used.claims.is_empty())
    }
    fn reserve(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        node: &NodeInfo,
        carried: &mut State,
    ) -> Result<(), Rejection> {
        let storage = cluster.storage();
        let needs = Needs::of(pod, &storage.read()).map_err(|stop| match stop {
            Stop::Rejected(rejection) => rejection,
            Stop::Error(why) => {
                storage.failed(Stage::Assume);
                Rejection::new(NAME, why)
            }
        })?;
        let Some(needs) = needs.filter(Needs::is_open) else { return Ok(()) };
        let found = find(&needs, storage, node)?;
        carried.put(Held::assume(found, node.name(), storage));
        Ok(())
    }
    fn unreserve(&self, _pod: &PodInfo, _node: &str, carried: &mut State) {
        if let Some(held) = carried.get::<Held>() {
            held.give_back();
        }
    }
}

impl PreBind for VolumeBinding {
    fn concerns(&self, _pod: &PodInfo, _node: &str, carried: &State) -> bool {
        carried.get::<Held>().is_some()
    }
    fn pre_bind<'a>(&'a self, binding: &'a Binding<'a>) -> Later<'a, Result<(), Unbound>> {
        Box::pin(async move {
            match binding.carried.get::<Held>() {
                Some(held) => {
                    let result = held.bind(binding, self.timeout).await;
                    if result.is_err() {
                        held.storage().failed(Stage::Bind);
                    }
                    result
                }
                None => Ok(()),
            }
        })
    }
}

/// A claim of the Pod comes or changes, or storage can be had elsewhere or more of it.
///
/// DIFFERENCE: a driver that no longer tells its capacity wakes every Pod that waits for room, upstream those alone that
/// name the driver inline, which need no room.
fn hint(pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
    Ok(match &what.about {
        About::Class(Pair { old: Some(old), new: Some(new) }) => {
            old.allowed_topologies != new.allowed_topologies
        }
        About::Claim(Pair { new: Some(new), .. }) => {
            pod.used().is_some_and(|used| used.wants(pod.namespace(), new))
        }
        About::CsiNode(Pair { old: Some(old), new: Some(new) }) => storage::is_migrated(old, new),
        About::Driver(Pair { old: Some(old), new: Some(new) }) => {
            let tells = |driver: &CSIDriver| driver.spec.storage_capacity == Some(true);
            tells(old) && !tells(new)
        }
        About::Capacity(Pair { old: Some(old), new: Some(new) }) => storage::limit(new) > storage::limit(old),
        _ => true,
    })
}

pub(super) fn plugin(args: &PluginArgs, gates: FeatureGates) -> Result<Plugin, String> {
    let PluginArgs::VolumeBinding(args) = args else {
        return Err("want args to be of type VolumeBindingArgs".to_owned());
    };
    let timeout = Duration::from_secs(u64::try_from(args.bind_timeout_seconds).unwrap_or(0));
    let scores = gates.enabled(Gate::StorageCapacityScoring);
    let shape = || args.shape.clone().filter(|points| !points.is_empty()).unwrap_or_else(usual_shape);
    let plugin = Arc::new(VolumeBinding { timeout, shape: scores.then(shape) });
    let points = Points {
        pre_score: scores.then(|| plugin.clone() as Arc<dyn PreScore>),
        score: scores.then(|| plugin.clone() as Arc<dyn Score>),
        pre_filter: Some(plugin.clone()),
        filter: Some(plugin.clone()),
        reserve: Some(plugin.clone()),
        pre_bind: Some(plugin),
        ..Points::default()
    };
    let objects = Events::CLASS_ADDED
        | Events::CLASS_CHANGED
        | Events::CLAIM_ADDED
        | Events::CLAIM_CHANGED
        | Events::VOLUME_ADDED
        | Events::VOLUME_CHANGED;
    let drivers = Events::CSI_NODE_ADDED
        | Events::CSI_NODE_CHANGED
        | Events::DRIVER_CHANGED
        | Events::CAPACITY_ADDED
        | Events::CAPACITY_CHANGED;
    let nodes = Events::NODE_ADDED | Events::NODE_LABELS;
    Ok(Plugin::new(NAME, points).lifted_by(objects | drivers | nodes).hinted(hint))
}
