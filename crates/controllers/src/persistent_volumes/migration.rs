//! Claims and volumes of plugins that were built into Kubernetes once, whose work CSI drivers took over (upstream:
//! `updateMigrationAnnotations`, `modifyDeletionFinalizers`, `csi-translation-lib`).

use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::migration::Plugin;

use super::names::{
    BETA_PROVISIONER, EXTERNAL_FINALIZER, IN_TREE, IN_TREE_FINALIZER, MIGRATED_TO, PROVISIONED_BY,
    PROVISIONER, annotate, annotation, reclaim_policy, unannotate,
};
use crate::common::finalizers;

/// Returns the driver that took over from a provisioner.
pub(super) fn driver(provisioner: &str) -> Option<&'static str> {
    Plugin::named(provisioner).map(Plugin::driver)
}

/// Names the driver that took over from a provisioner; returns whether anything changed.
fn mark(meta: &mut ObjectMeta, provisioner: Option<String>) -> bool {
    let Some(provisioner) = provisioner else { return false };
    let told = annotation(meta, MIGRATED_TO).unwrap_or_default();
    match driver(&provisioner) {
        Some(driver) if driver != told => {
            annotate(meta, MIGRATED_TO, driver);
            true
        }
        Some(_) => false,
        None => !told.is_empty() && unannotate(meta, MIGRATED_TO),
    }
}

/// Names the driver that took over from a claim's provisioner; returns whether anything changed.
pub(super) fn mark_claim(meta: &mut ObjectMeta) -> bool {
    let provisioner = annotation(meta, PROVISIONER).or_else(|| annotation(meta, BETA_PROVISIONER));
    let provisioner = provisioner.map(str::to_owned);
    mark(meta, provisioner)
}

/// Returns a claim as it should be; `None` if it is.
pub(super) fn of_claim(claim: &Claim) -> Option<Claim> {
    let mut changed = claim.clone();
    mark_claim(&mut changed.metadata).then_some(changed)
}

/// Returns a volume as it should be; `None` if it is.
pub(super) fn of_volume(volume: &Volume) -> Option<Volume> {
    let provisioner = annotation(&volume.metadata, PROVISIONED_BY)?.to_owned();
    let mut changed = volume.clone();
    let marked = mark(&mut changed.metadata, Some(provisioner.clone()));
    let held = hold(&mut changed.metadata, &provisioner, reclaim_policy(volume));
    (marked || held).then_some(changed)
}

/// Sets the finalizers by which a volume's content is removed before the volume; returns whether anything changed.
fn hold(meta: &mut ObjectMeta, provisioner: &str, policy: &str) -> bool {
    let before = meta.finalizers.clone();
    let mut drop_one = |finalizer: &str| {
        if let Some(left) = finalizers::without(meta, finalizer) {
            meta.finalizers = Some(left).filter(|l| !l.is_empty());
        }
    };
    if driver(provisioner).is_some() {
        drop_one(IN_TREE_FINALIZER);
    } else if provisioner.starts_with(IN_TREE) {
        drop_one(EXTERNAL_FINALIZER);
        if matches!(policy, "Retain" | "Recycle") {
            drop_one(IN_TREE_FINALIZER);
        } else if policy == "Delete"
            && let Some(all) = finalizers::with(meta, IN_TREE_FINALIZER)
        {
            meta.finalizers = Some(all);
        }
    }
    meta.finalizers != before
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MIGRATED: &str = "kubernetes.io/gce-pd";
    const DRIVER: &str = "pd.csi.storage.gke.io";
    const OTHER: &str = "kubernetes.io/rbd";
    const OTHER_DRIVER: &str = "rbd.csi.ceph.com";

    /// Upstream's 8 cases of `TestAnnealMigrationAnnotations`: a provisioner, and the driver that is told before and after.
    #[test]
    fn drivers_that_took_over() {
        let annotations = |key: &str, provisioner: &str, driver: Option<&str>| {
            let mut all = json!({ key: provisioner });
            if let Some(driver) = driver {
                all[MIGRATED_TO] = json!(driver);
            }
            all
        };
        let check = |provisioner: &str, before: Option<&str>, after: Option<&str>| {
            for key in [PROVISIONER, BETA_PROVISIONER, PROVISIONED_BY] {
                let object =
                    json!({"metadata": {"annotations": annotations(key, provisioner, before)}, "spec": {}});
                let want = (before != after).then(|| annotations(key, provisioner, after));
                let got = if key == PROVISIONED_BY {
                    of_volume(&serde_json::from_value(object).unwrap()).map(|v| v.metadata.annotations)
                } else {
                    of_claim(&serde_json::from_value(object).unwrap()).map(|c| c.metadata.annotations)
                };
                assert_eq!(got.map(|all| json!(all)), want, "{key} {provisioner} {before:?}");
            }
        };
        check(MIGRATED, None, Some(DRIVER));
        check(MIGRATED, Some(DRIVER), Some(DRIVER));
        check(OTHER, None, None);
        check(OTHER, Some(OTHER_DRIVER), None);
        check("non-migrated-plugin", None, None);
        for metadata in [json!({}), json!({"annotations": {}})] {
            let object = json!({"metadata": metadata, "spec": {}});
            assert_eq!(of_volume(&serde_json::from_value(object.clone()).unwrap()), None);
            assert_eq!(of_claim(&serde_json::from_value(object).unwrap()), None);
        }
    }

    /// Upstream's cases of `TestModifyDeletionFinalizers`: the provisioner ("": none), the policy, and the finalizers
    /// before and, if they change, after.
    #[test]
    fn finalizers_of_volumes() {
        const CUSTOM: &str = "test.volume.kubernetes.io/finalizer";
        const MOCK: &str = "kubernetes.io/mock-volume";
        let (external, in_tree) = (EXTERNAL_FINALIZER, IN_TREE_FINALIZER);
        let check = |provisioner: &str, policy: &str, before: &[&str], after: Option<&[&str]>| {
            let annotations: Value = match provisioner {
                "" => json!({}),
                MIGRATED => json!({PROVISIONED_BY: provisioner, MIGRATED_TO: DRIVER}),
                _ => json!({PROVISIONED_BY: provisioner}),
            };
            let volume: Volume = serde_json::from_value(json!({
                "metadata": {"name": "v", "annotations": annotations, "finalizers": before},
                "spec": {"persistentVolumeReclaimPolicy": policy},
            }))
            .unwrap();
            let got = of_volume(&volume).map(|v| v.metadata.finalizers.unwrap_or_default());
            let want = after.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(got, want, "{provisioner} {policy} {before:?}");
        };
        check(OTHER_DRIVER, "Delete", &[external], None);
        check(OTHER_DRIVER, "Delete", &[], None);
        check(MOCK, "Delete", &[CUSTOM], Some(&[CUSTOM, in_tree]));
        check(MOCK, "Delete", &[], Some(&[in_tree]));
        check(MOCK, "Delete", &[external], Some(&[in_tree]));
        check(MOCK, "Delete", &[external, CUSTOM], Some(&[CUSTOM, in_tree]));
        check(MIGRATED, "Delete", &[external, in_tree], Some(&[external]));
        check("", "Delete", &[external], None);
        check("", "Delete", &[], None);
        check(MOCK, "Retain", &[], None);
        check(MOCK, "Recycle", &[], None);
        check(MOCK, "Retain", &[in_tree], Some(&[]));
        check("", "Delete", &[], None);
    }
}
