//! The volume for a claim that does not wait for a Pod (upstream: `index.go`), and whether one that a claim names
//! satisfies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::go::quote;
use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use objects::volumes::{self, Fitting};

use super::names::{claim_spec, key_of, name, volume_spec};
use crate::common::deleting;

/// The order in which upstream writes access modes, with their short names.
const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

fn mode(of: Option<&String>) -> &str {
    of.map_or("Filesystem", String::as_str)
}

/// Whether one is a block device and the other a file system.
pub(super) fn modes_differ(claim: &Claim, volume: &Volume) -> bool {
    mode(claim_spec(claim).volume_mode.as_ref()) != mode(volume_spec(volume).volume_mode.as_ref())
}

/// Says why a volume that a claim names does not satisfy it; upstream's texts.
pub(super) fn unsatisfied(volume: &Volume, claim: &Claim) -> Option<String> {
    if deleting(&volume.metadata) {
        return Some(format!("the volume is marked for deletion {}", quote(name(&volume.metadata))));
    }
    let attributes = |class: &Option<String>| class.clone().unwrap_or_default();
    let wanted = attributes(&claim_spec(claim).volume_attributes_class_name);
    let size = volumes::requested(claim).unwrap_or_default();
    let why = if volumes::capacity(volume).value() < size.value() {
        "requested PV is too small"
    } else if volumes::volume_class(volume) != volumes::claim_class(claim) {
        "storageClassName does not match"
    } else if wanted != attributes(&volume_spec(volume).volume_attributes_class_name) {
        "volumeAttributesClassName does not match"
    } else if modes_differ(claim, volume) {
        "incompatible volumeMode"
    } else if !volumes::has_modes(claim, volume) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Returns a volume's set of access modes in upstream's short form, which orders sets of the same length.
pub(super) fn modes_of(volume: &Volume) -> (usize, String) {
    let has = volume_spec(volume).access_modes.as_deref().unwrap_or_default();
    let short: Vec<&str> =
        MODES.iter().filter(|(long, _)| has.iter().any(|m| m == long)).map(|(_, short)| *short).collect();
    (short.len(), short.join(","))
}

/// Finds the volume for a claim that names none: one that names the claim, or else the smallest that fits, of those
/// that offer the fewest ways of use besides. A claim that waits for a Pod gets only a volume that names it.
///
/// # Errors
/// The claim's selector is wrong.
pub(super) fn find(
    claim: &Claim,
    mut volumes: Vec<Arc<Volume>>,
    delayed: bool,
) -> Result<Option<Arc<Volume>>, String> {
    // Of volumes of the same size, the first by name.
    volumes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut sets: BTreeMap<(usize, String), Vec<Arc<Volume>>> = BTreeMap::new();
    for volume in volumes.into_iter().filter(|v| volumes::has_modes(claim, v)) {
        sets.entry(modes_of(&volume)).or_default().push(volume);
    }
    for set in sets.into_values() {
        let fitting = Fitting::new(claim, set).map_err(|e| {
            format!("error creating internal label selector for claim: {}: {e}", key_of(claim))
        })?;
        if let Some(found) = fitting.anywhere(delayed) {
            return Ok(Some(found.clone()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: &Value) -> Claim {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"}, "spec": spec})).unwrap()
    }

    fn volume(spec: &Value) -> Volume {
        let status = json!({"phase": "Available"});
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec, "status": status})).unwrap()
    }

    /// Upstream's 9 cases of `TestVolumeModeCheck` and `TestFilteringVolumeModes`: the modes of claim and volume, and whether
    /// they differ.
    #[test]
    fn block_devices_and_file_systems() {
        let (none, block, files) = (json!(null), json!("Block"), json!("Filesystem"));
        for (wanted, has, differ) in [
            (&block, &files, true),
            (&files, &block, true),
            (&block, &block, false),
            (&files, &files, false),
            (&files, &none, false),
            (&none, &files, false),
            (&none, &none, false),
            (&none, &block, true),
            (&block, &none, true),
        ] {
            let modes = ["ReadWriteOnce"];
            let size = json!({"storage": "8G"});
            let claim =
                claim(&json!({"volumeMode": wanted, "accessModes": modes, "resources": {"requests": size}}));
            let volume =
                volume(&json!({"volumeMode": has, "accessModes": modes, "capacity": {"storage": "10G"},
                "claimRef": {"name": "c", "namespace": "n"}}));
            assert_eq!(modes_differ(&claim, &volume), differ, "{wanted} {has}");
            let found = find(&claim, vec![Arc::new(volume.clone())], false).unwrap();
            assert_eq!(found.is_none(), differ, "{wanted} {has}");
            let why = unsatisfied(&volume, &claim);
            assert_eq!(why.as_deref(), differ.then_some("incompatible volumeMode"), "{wanted} {has}");
        }
    }

    /// Upstream's 4 cases of `TestCheckAccessModes`: the ways of use that a claim wants of a volume with two.
    #[test]
    fn ways_of_use() {
        let volume = volume(&json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}));
        for (wanted, has) in [
            (json!(["ReadWriteMany"]), true),
            (json!(["ReadWriteMany", "ReadWriteOnce"]), true),
            (json!(["ReadOnlyMany"]), false),
            (json!(["ReadWriteMany", "ReadOnlyMany"]), false),
        ] {
            assert_eq!(volumes::has_modes(&claim(&json!({"accessModes": wanted})), &volume), has, "{wanted}");
        }
    }

    /// Upstream's cases of `TestStorageObjectInUseProtectionFiltering`: a volume that is being deleted is for nobody.
    #[test]
    fn volumes_that_go() {
        for going in [false, true] {
            let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1G"}});
            let mut volume = volume(&spec);
            if going {
                volume.metadata.deletion_timestamp =
                    serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            }
            let wants =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1G"}}});
            let claim = claim(&wants);
            assert_eq!(unsatisfied(&volume, &claim).is_some(), going);
            assert_eq!(find(&claim, vec![Arc::new(volume)], false).unwrap().is_none(), going);
        }
    }
}
