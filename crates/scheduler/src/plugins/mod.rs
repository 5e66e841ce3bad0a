//! The plugins of v1.36's default profile.
//!
//! Each is a type that implements extension points over pure functions; [`registry`] lists them.

pub mod binder;
#[cfg(test)]
mod cases;
mod constraint;
pub mod dynamic_resources;
pub mod gang_scheduling;
#[cfg(test)]
mod hints;
pub mod images;
pub mod inter_pod_affinity;
mod inter_pod_affinity_score;
pub mod node;
mod places;
pub mod pod_group_pods_count;
pub mod pod_group_preemption;
pub mod pod_topology_spread;
mod pod_topology_spread_score;
pub mod preemption;
#[cfg(test)]
mod properties;
pub mod queue;
pub mod resources;
#[cfg(test)]
mod spread_defaults;
#[cfg(test)]
mod taint_cases;
#[cfg(test)]
pub(crate) mod tests;
pub mod topology_placement;
pub mod volume_binding;
#[cfg(test)]
mod volume_cases;
pub mod volume_limits;
#[cfg(test)]
mod volume_properties;
pub mod volume_restrictions;
pub mod volume_zone;

use api::{FeatureGates, Gate};
use objects::taints::Tolerance;

use crate::framework::registry::Registry;

/// All of them, with upstream's features.
///
/// # Errors
/// None: their names are different.
pub fn registry() -> Result<Registry, String> {
    registry_with(FeatureGates::default())
}

/// All of them.
///
/// # Errors
/// None: their names are different.
pub fn registry_with(gates: FeatureGates) -> Result<Registry, String> {
    let tolerance = Tolerance::of(gates);
    let mut all = Registry::default();
    all.add(queue::GATES, |_| Ok(queue::scheduling_gates()))?;
    all.add(queue::SORT, |_| Ok(queue::priority_sort()))?;
    all.add(node::UNSCHEDULABLE, |_| Ok(node::node_unschedulable()))?;
    all.add(node::NAME, |_| Ok(node::node_name()))?;
    all.add(node::TAINTS, move |_| Ok(node::taint_toleration(tolerance)))?;
    all.add(node::AFFINITY, node::node_affinity)?;
    all.add(node::PORTS, |_| Ok(node::node_ports()))?;
    all.add(node::FEATURES, |_| Ok(node::node_declared_features()))?;
    all.add(resources::FIT, move |args| resources::node_resources_fit(args, gates))?;
    all.add(resources::BALANCED, resources::balanced_allocation)?;
    all.add(volume_restrictions::NAME, |_| Ok(volume_restrictions::plugin()))?;
    all.add(volume_limits::NAME, move |_| Ok(volume_limits::plugin(gates)))?;
    all.add(volume_binding::NAME, move |args| volume_binding::plugin(args, gates))?;
    all.add(volume_zone::NAME, |_| Ok(volume_zone::plugin()))?;
    all.add(pod_topology_spread::NAME, move |args| pod_topology_spread::plugin(args, tolerance))?;
    all.add(inter_pod_affinity::NAME, inter_pod_affinity::plugin)?;
    all.add(dynamic_resources::NAME, move |args| dynamic_resources::plugin(args, gates))?;
    all.add(preemption::NAME, move |args| preemption::plugin(args, gates))?;
    all.add(images::NAME, |_| Ok(images::image_locality()))?;
    all.add(binder::NAME, |_| Ok(binder::default_binder()))?;
    if gates.enabled(Gate::GangScheduling) {
        all.add(gang_scheduling::NAME, |_| Ok(gang_scheduling::plugin()))?;
    }
    if gates.enabled(Gate::TopologyAwareWorkloadScheduling) {
        all.add(topology_placement::NAME, |_| Ok(topology_placement::plugin()))?;
        all.add(pod_group_pods_count::NAME, |_| Ok(pod_group_pods_count::plugin()))?;
    }
    Ok(all)
}
