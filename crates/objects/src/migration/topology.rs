//! The nodes that can have a volume, by labels of Kubernetes and by those of a driver.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, TopologySelectorLabelRequirement,
    TopologySelectorTerm,
};

use super::{MigrationError, Result};

/// The label of a zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a region.
const REGION: &str = "topology.kubernetes.io/region";
/// Their older names.
pub(super) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// The text between the zones of one label.
pub(super) const DELIMITER: &str = "__";

/// The region of zones.
pub(super) type RegionOf = fn(&[String]) -> Result<String>;

fn terms(volume: &PersistentVolume) -> &[NodeSelectorTerm] {
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref());
    affinity.and_then(|a| a.required.as_ref()).map_or(&[], |r| &r.node_selector_terms)
}

fn terms_mut(volume: &mut PersistentVolume) -> &mut [NodeSelectorTerm] {
    let affinity = volume.spec.as_mut().and_then(|s| s.node_affinity.as_mut());
    affinity.and_then(|a| a.required.as_mut()).map_or(&mut [], |r| &mut r.node_selector_terms)
}

fn expressions(volume: &PersistentVolume) -> impl Iterator<Item = &NodeSelectorRequirement> {
    terms(volume).iter().flat_map(|t| t.match_expressions.iter().flatten())
}

pub(super) fn label<'v>(volume: &'v PersistentVolume, key: &str) -> Option<&'v str> {
    volume.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Labels a volume, unless it has the label.
fn set_label(volume: &mut PersistentVolume, key: &str, value: impl FnOnce() -> String) {
    volume.metadata.labels.get_or_insert_default().entry(key.to_owned()).or_insert_with(value);
}

/// Names a key anew, wherever it stands.
pub(super) fn replace(volume: &mut PersistentVolume, old: &str, new: &str) {
    for expression in terms_mut(volume).iter_mut().flat_map(|t| t.match_expressions.iter_mut().flatten()) {
        if expression.key == old {
            new.clone_into(&mut expression.key);
        }
    }
}

/// All values of a key.
fn values(volume: &PersistentVolume, key: &str) -> BTreeSet<String> {
    expressions(volume).filter(|e| e.key == key).flat_map(|e| e.values.iter().flatten()).cloned().collect()
}

/// Wants one of these values of a key, in every term.
pub(super) fn add<'z>(
    volume: &mut PersistentVolume,
    key: &str,
    zones: impl IntoIterator<Item = &'z str>,
) -> Result<()> {
    let zones: BTreeSet<&str> = zones.into_iter().map(str::trim).filter(|z| !z.is_empty()).collect();
    if zones.is_empty() {
        return Err(MigrationError::NoZones);
    }
    let wanted = one_of(key, zones.into_iter().map(str::to_owned).collect());
    let spec = volume.spec.get_or_insert_default();
    let required = spec.node_affinity.get_or_insert_default().required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(wanted.clone());
    }
    Ok(())
}

fn one_of(key: &str, values: Vec<String>) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: key.to_owned(), operator: "In".to_owned(), values: Some(values) }
}

/// The labels of zone and region that a volume uses: those of its affinity come first, and newer ones before older ones.
fn names(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let wanted = |key: &str| expressions(volume).any(|e| e.key == key);
    let beta = if wanted(ZONE) {
        false
    } else {
        wanted(BETA_ZONE) || (label(volume, ZONE).is_none() && label(volume, BETA_ZONE).is_some())
    };
    if beta { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) }
}

/// Names a volume's zones by a driver's key. The affinity counts, and without zones there the label does.
pub(super) fn to_csi(volume: &mut PersistentVolume, key: &str) {
    let (zone, region) = names(volume);
    to_key(volume, zone, key, Some(DELIMITER));
    // A new node has the newer label alone.
    if region == BETA_REGION {
        replace(volume, region, REGION);
    }
}

/// The same for vSphere, which has a key for regions, too, and one zone in a label.
pub(super) fn to_vsphere(volume: &mut PersistentVolume, zone_key: &str, region_key: &str) {
    let (zone, region) = names(volume);
    to_key(volume, zone, zone_key, None);
    to_key(volume, region, region_key, None);
}

fn to_key(volume: &mut PersistentVolume, name: &str, key: &str, delimiter: Option<&str>) {
    if !values(volume, name).is_empty() {
        replace(volume, name, key);
        return;
    }
    let Some(label) = label(volume, name).map(str::to_owned) else { return };
    // A label without a zone says nothing.
    let _ = match delimiter {
        Some(delimiter) => add(volume, key, label.split(delimiter)),
        None => add(volume, key, [label.as_str()]),
    };
}

/// Names a volume's zones by Kubernetes' labels, and its region, if the zones tell it.
pub(super) fn to_in_tree(volume: &mut PersistentVolume, key: &str, region: Option<RegionOf>) -> Result<()> {
    let (zone, _) = names(volume);
    replace(volume, key, zone);
    if let Some(region) = region {
        add_regions(volume, region)?;
    }
    let zones: Vec<String> = values(volume, zone).into_iter().collect();
    if !zones.is_empty() {
        set_label(volume, zone, || zones.join(DELIMITER));
    }
    Ok(())
}

fn add_regions(volume: &mut PersistentVolume, region_of: RegionOf) -> Result<()> {
    if terms(volume).is_empty() {
        return Ok(());
    }
    let (zone, region) = names(volume);
    for term in terms_mut(volume) {
        let expressions = term.match_expressions.get_or_insert_default();
        if expressions.iter().any(|e| e.key == region) {
            continue;
        }
        let zones = expressions.iter().filter(|e| e.key == zone).flat_map(|e| e.values.iter().flatten());
        let value = region_of(&zones.cloned().collect::<Vec<_>>())?;
        expressions.push(one_of(region, vec![value]));
    }
    let regions = values(volume, region);
    if let (1, Some(value)) = (regions.len(), regions.into_iter().next()) {
        set_label(volume, region, || value);
    }
    Ok(())
}

/// Names a volume's zones and regions of vSphere by Kubernetes' labels.
pub(super) fn from_vsphere(volume: &mut PersistentVolume, zone_key: &str, region_key: &str) {
    let (zone, region) = names(volume);
    replace(volume, zone_key, zone);
    replace(volume, region_key, region);
    for name in [zone, region] {
        if let Some(value) = values(volume, name).into_iter().next() {
            set_label(volume, name, || value);
        }
    }
}

/// The places that a class allows, with zones by a driver's key.
pub(super) fn allowed(terms: &[TopologySelectorTerm], key: &str) -> Vec<TopologySelectorTerm> {
    let renamed = |of: &TopologySelectorLabelRequirement| {
        let is_zone = of.key == BETA_ZONE || of.key == ZONE;
        let key = if is_zone { key.to_owned() } else { of.key.clone() };
        TopologySelectorLabelRequirement { key, values: of.values.clone() }
    };
    let term = |term: &TopologySelectorTerm| TopologySelectorTerm {
        match_label_expressions: term
            .match_label_expressions
            .as_ref()
            .map(|all| all.iter().map(renamed).collect()),
    };
    terms.iter().map(term).collect()
}
