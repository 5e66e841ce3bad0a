//! TopologyPlacementGenerator: a PodGroup with a topology constraint is placed within one domain of that topology
//! (upstream's `plugins/topologyaware`). It is one of the default plugins where its gate is on.

use std::collections::HashMap;
use std::sync::Arc;

use api::go::quote;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use crate::events::Events;
use crate::framework::placement::{GroupCycle, Placement};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::PlacementGenerate;
use crate::framework::verdict::Rejection;

/// The plugin's name.
pub const NAME: &str = "TopologyPlacementGenerator";

/// The label whose values are the domains for a group; the API allows one.
fn key(group: &PodGroup) -> Option<&str> {
    let all = group.spec.scheduling_constraints.as_ref()?.topology.as_deref()?;
    all.first().map(|t| t.key.as_str())
}

struct Topology;

impl PlacementGenerate for Topology {
    fn generate(&self, cycle: &mut GroupCycle<'_>, parent: &Placement) -> Result<Vec<Placement>, Rejection> {
        let Some(group) = cycle.group.clone() else {
            let name = quote(cycle.name().1);
            return Err(Rejection::failure(NAME, format!("podgroup.scheduling.k8s.io {name} not found")));
        };
        let Some(key) = key(&group) else { return Ok(vec![parent.clone()]) };
        let taken = domain_of_placed(cycle, key).map_err(|why| {
            Rejection::failure(NAME, format!("cannot determine domain for already scheduled pods: {why}"))
        })?;
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut placements: Vec<Placement> = Vec::new();
        for node in parent.nodes(cycle.cluster) {
            let Some(domain) = node.label(key) else { continue };
            if taken.as_deref().is_some_and(|taken| taken != domain) {
                continue;
            }
            let at = *places.entry(domain).or_insert_with(|| {
                placements.push(Placement { name: domain.to_owned(), nodes: Vec::new() });
                placements.len() - 1
            });
            placements[at].nodes.push(node.index);
        }
        Ok(placements)
    }
}

/// The domain of the group's Pods that have nodes; `None` if there are none.
fn domain_of_placed(cycle: &GroupCycle<'_>, key: &str) -> Result<Option<String>, String> {
    let Some(one) = cycle.pods.first() else { return Ok(None) };
    let (namespace, _) = cycle.name();
    let placed: Vec<Arc<str>> = cycle.cluster.groups().members(one, |all| all.placed().cloned().collect());
    let mut domain: Option<&str> = None;
    for uid in placed {
        let (name, node) = cycle.cluster.names_of_placed(&uid).unwrap_or_default();
        let Some(node) = cycle.cluster.node(node) else {
            let missing = format!("nodeinfo not found for node name {}", quote(node));
            return Err(format!("getting node for pod {namespace}/{name}: {missing}"));
        };
        let Some(own) = node.label(key) else {
            return Err(format!("no topology domain found for pod {namespace}/{name}"));
        };
        if let Some(other) = domain.filter(|d| *d != own) {
            return Err(format!("more than 1 domain found for pod group: {other}, {own}"));
        }
        domain = Some(own);
    }
    Ok(domain.map(str::to_owned))
}

pub(super) fn plugin() -> Plugin {
    let points = Points { placement_generate: Some(Arc::new(Topology)), ..Points::default() };
    // It refuses no Pod; the plugins that refuse the Pods in every placement say what helps.
    Plugin::new(NAME, points).lifted_by(Events::NONE)
}
