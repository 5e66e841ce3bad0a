//! The results of a search, as claims have them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::request::requests;
use super::search::{Chosen, Search};

/// An allocation for each claim of a search that found all devices.
pub(super) fn of(search: &Search<'_>, node: &str) -> Result<Vec<AllocationResult>, String> {
    (0..search.claims.len()).map(|claim| allocation(search, claim, node)).collect()
}

/// Whether the devices that a search found can be written into claims.
pub(super) fn check(search: &Search<'_>) -> Result<(), String> {
    (0..search.claims.len()).try_for_each(|claim| selector(search, claim, "").map(drop))
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn allocation(search: &Search<'_>, claim: usize, node: &str) -> Result<AllocationResult, String> {
    let chosen = &search.chosen[claim];
    let results = chosen.iter().map(|c| device(search, claim, c)).collect();
    Ok(AllocationResult {
        allocation_timestamp: None,
        devices: Some(DeviceAllocationResult {
            config: some(configs(search, claim)),
            results: some(results),
        }),
        node_selector: selector(search, claim, node)?,
    })
}

fn selector(search: &Search<'_>, claim: usize, node: &str) -> Result<Option<NodeSelector>, String> {
    node_selector(&search.chosen[claim], node).map_err(|e| {
        let name = search.claims[claim].metadata.name.as_deref().unwrap_or_default();
        format!("create NodeSelector for claim {name}: {e}")
    })
}

fn device(search: &Search<'_>, claim: usize, chosen: &Chosen<'_>) -> DeviceRequestAllocationResult {
    let [request, alternative] = chosen.request;
    let request = &search.asked[claim][request][alternative].request;
    let id = &chosen.candidate.device().id;
    let written = chosen.candidate.slice.written(chosen.candidate.place);
    let conditions = written.filter(|_| search.allocator.features.binding_conditions);
    let consumed: BTreeMap<String, Quantity> =
        chosen.consumed.iter().map(|(name, q)| (name.clone(), Quantity(q.to_string()))).collect();
    DeviceRequestAllocationResult {
        admin_access: request.is_admin().then_some(true),
        binding_conditions: conditions.and_then(|d| d.binding_conditions.clone()),
        binding_failure_conditions: conditions.and_then(|d| d.binding_failure_conditions.clone()),
        consumed_capacity: (!consumed.is_empty()).then_some(consumed),
        device: id.device.to_string(),
        driver: id.driver.to_string(),
        pool: id.pool.to_string(),
        request: request.full_name(),
        share_id: chosen.share_id.clone(),
        tolerations: some(request.tolerations.to_vec()),
    }
}

/// The configurations: each class's once, for all of its requests, and then the claim's.
fn configs(search: &Search<'_>, claim: usize) -> Vec<DeviceAllocationConfiguration> {
    let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut of_class: BTreeMap<&str, std::ops::Range<usize>> = BTreeMap::new();
    for (asked, selected) in search.asked[claim].iter().zip(&search.selected[claim]) {
        let Some(asked) = asked.get(*selected) else { continue };
        let name = asked.class.metadata.name.as_deref().unwrap_or_default();
        if let Some(range) = of_class.get(name) {
            for config in &mut all[range.clone()] {
                config.requests.get_or_insert_default().push(asked.request.full_name());
            }
            continue;
        }
        let first = all.len();
        all.extend(asked.class.spec.config.iter().flatten().map(|config| DeviceAllocationConfiguration {
            source: "FromClass".to_owned(),
            requests: Some(vec![asked.request.full_name()]),
            opaque: config.opaque.clone(),
        }));
        of_class.insert(name, first..all.len());
    }
    let object = search.claims[claim];
    for config in object.spec.devices.iter().flat_map(|d| d.config.iter().flatten()) {
        let written = DeviceAllocationConfiguration {
            source: "FromClaim".to_owned(),
            requests: config.requests.clone(),
            opaque: config.opaque.clone(),
        };
        let names = config.requests.as_deref().unwrap_or_default();
        if names.is_empty() {
            all.push(written);
            continue;
        }
        let chosen = requests(object).iter().zip(&search.asked[claim]).zip(&search.selected[claim]);
        for ((request, asked), selected) in chosen {
            let alternative = asked.get(*selected).map(|a| a.request.full_name());
            if names.contains(&request.name) || alternative.is_some_and(|name| names.contains(&name)) {
                all.push(written.clone());
            }
        }
    }
    all
}

/// The nodes on which the devices can be used; `None`: all.
fn node_selector(chosen: &[Chosen<'_>], node: &str) -> Result<Option<NodeSelector>, String> {
    let (mut fields, mut expressions) = (Vec::new(), Vec::new());
    for Chosen { candidate, .. } in chosen {
        let spec = &candidate.slice.object.spec;
        let Some(device) = candidate.slice.written(candidate.place) else { continue };
        let (name, selector) = if spec.per_device_node_selection == Some(true) {
            (&device.node_name, &device.node_selector)
        } else {
            (&spec.node_name, &spec.node_selector)
        };
        if name.is_some() || device.binds_to_node == Some(true) {
            let only = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            };
            return Ok(Some(one_term(vec![only], Vec::new())));
        }
        match selector.as_ref().map(|s| s.node_selector_terms.as_slice()) {
            None | Some([]) => {}
            Some([term]) => {
                add(term.match_fields.as_deref(), &mut fields);
                add(term.match_expressions.as_deref(), &mut expressions);
            }
            Some(terms) => {
                return Err(format!("unsupported ResourceSlice.NodeSelector with {} terms", terms.len()));
            }
        }
    }
    let any = !fields.is_empty() || !expressions.is_empty();
    Ok(any.then(|| one_term(fields, expressions)))
}

fn one_term(fields: Vec<NodeSelectorRequirement>, expressions: Vec<NodeSelectorRequirement>) -> NodeSelector {
    let term = NodeSelectorTerm { match_fields: some(fields), match_expressions: some(expressions) };
    NodeSelector { node_selector_terms: vec![term] }
}

/// Adds requirements that are not there yet.
fn add(from: Option<&[NodeSelectorRequirement]>, to: &mut Vec<NodeSelectorRequirement>) {
    let values = |r: &NodeSelectorRequirement| r.values.iter().flatten().cloned().collect::<BTreeSet<_>>();
    for requirement in from.unwrap_or_default() {
        let is_there = to.iter().any(|there| {
            there.key == requirement.key
                && there.operator == requirement.operator
                && values(there) == values(requirement)
        });
        if !is_there {
            to.push(requirement.clone());
        }
    }
}
