//! The claims of Pods beside a node's own resources: volumes and devices.
//!
//! DIFFERENCE: neither is bound to a node here, and no kubelet mounts a claim, so a Pod that has one waits, and its
//! `PodScheduled` condition says for what. Where upstream has words for it (`VolumeBinding`'s PreFilter), those are used.
//! Volumes without a claim (emptyDir, hostPath, ConfigMap, Secret, downward API, projected, image) are not concerned.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume};
use k8s_openapi::api::storage::v1::StorageClass;

use super::verdict::Stop;
use crate::pod::PodInfo;

/// The plugin that looks at volumes.
pub const VOLUMES: &str = "VolumeBinding";
/// The plugin that looks at limits of volumes.
pub const LIMITS: &str = "NodeVolumeLimits";
/// The plugin that looks at devices.
pub const DEVICES: &str = "DynamicResources";

/// The claims and classes of the cluster.
#[derive(Debug, Default)]
pub struct Claims {
    /// By namespace and name.
    pub claims: HashMap<(String, String), Arc<PersistentVolumeClaim>>,
    /// By name.
    pub classes: HashMap<String, Arc<StorageClass>>,
}

impl Claims {
    /// Whether claims of the class are bound when a Pod needs them, not before.
    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        // The annotation comes before the field, as upstream's `GetPersistentVolumeClaimClass` reads them.
        let old = claim
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
        let class = old.or(claim.spec.as_ref().and_then(|s| s.storage_class_name.as_ref()));
        let mode = class.and_then(|c| self.classes.get(c)).and_then(|c| c.volume_binding_mode.as_deref());
        mode == Some("WaitForFirstConsumer")
    }
}

/// Stops at the first volume that can't be had.
pub(super) fn volumes(pod: &PodInfo, known: &Claims) -> Result<(), Stop> {
    let volumes = pod.spec().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    for volume in volumes {
        if let Some(csi) = &volume.csi {
            let why = format!("volume {:?}: CSI volumes ({}) are not supported yet", volume.name, csi.driver);
            return Err(Stop::rejected(LIMITS, why));
        }
    }
    let mut unbound_immediate = false;
    let mut other = None;
    for volume in volumes {
        let Some((name, ephemeral)) = claim_of(pod, volume) else { continue };
        let claim = known_claim(pod, known, &name, ephemeral)?;
        let bound = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).unwrap_or_default();
        let complete = claim
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|a| a.contains_key("pv.kubernetes.io/bind-completed"));
        if !bound.is_empty() && complete {
            other.get_or_insert_with(|| {
                format!("persistentvolumeclaim {name:?} is bound to {bound:?}, but mounting persistent volumes is not supported yet")
            });
        } else if bound.is_empty() && known.waits_for_consumer(claim) {
            other.get_or_insert_with(|| {
                format!("persistentvolumeclaim {name:?} waits for its first consumer, but binding it then is not supported yet")
            });
        } else {
            unbound_immediate = true;
        }
    }
    if unbound_immediate {
        return Err(Stop::rejected(VOLUMES, "pod has unbound immediate PersistentVolumeClaims"));
    }
    other.map_or(Ok(()), |why| Err(Stop::rejected(VOLUMES, why)))
}

/// The claim that a volume uses, and whether it is made for the Pod alone.
fn claim_of(pod: &PodInfo, volume: &Volume) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), false));
    }
    volume.ephemeral.as_ref().map(|_| (format!("{}-{}", pod.name(), volume.name), true))
}

/// The claim, if a Pod can use it (upstream's `podHasPVCs`).
fn known_claim<'c>(
    pod: &PodInfo,
    claims: &'c Claims,
    name: &str,
    ephemeral: bool,
) -> Result<&'c PersistentVolumeClaim, Stop> {
    let refuse = |why: String| Err(Stop::rejected(VOLUMES, why));
    let Some(claim) = claims.claims.get(&(pod.namespace().to_owned(), name.to_owned())) else {
        return refuse(if ephemeral {
            format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
        } else {
            format!("persistentvolumeclaim {name:?} not found")
        });
    };
    if claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost") {
        let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).unwrap_or_default();
        return refuse(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return refuse(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    let owned = || {
        claim
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|o| o.controller == Some(true) && o.uid == pod.uid())
    };
    if ephemeral && !owned() {
        let (namespace, pod) = (pod.namespace(), pod.name());
        return refuse(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        ));
    }
    Ok(claim)
}

/// Stops if the Pod claims devices.
pub(super) fn devices(pod: &PodInfo) -> Result<(), Stop> {
    let claims = pod.spec().and_then(|s| s.resource_claims.as_deref()).unwrap_or_default();
    match claims {
        [] => Ok(()),
        [first, ..] => Err(Stop::rejected(
            DEVICES,
            format!("resource claim {:?}: allocating devices is not supported yet", first.name),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::prepare;
    use super::*;
    use crate::cache::Cache;

    /// The volumes and claims of a Pod `p` with uid `u` in namespace `d`, and why it waits, "" if it does not.
    fn check(spec: Value, claims: Value, expected: &str) {
        let mut cache = Cache::default();
        for (name, mode) in [("now", "Immediate"), ("later", "WaitForFirstConsumer")] {
            let class = json!({"metadata": {"name": name}, "provisioner": "p", "volumeBindingMode": mode});
            cache.claims_mut().classes.insert(name.into(), Arc::new(serde_json::from_value(class).unwrap()));
        }
        for claim in claims.as_array().unwrap() {
            let key = ("d".to_owned(), claim["metadata"]["name"].as_str().unwrap().to_owned());
            cache.claims_mut().claims.insert(key, Arc::new(serde_json::from_value(claim.clone()).unwrap()));
        }
        let mut pod =
            json!({"metadata": {"namespace": "d", "name": "p", "uid": "u"}, "spec": {"containers": []}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
        let pod = PodInfo::new(serde_json::from_value(pod).unwrap());
        let got = match prepare(&pod, &cache) {
            Ok(_) => String::new(),
            Err(Stop::Rejected(r)) if r.unresolvable => r.reasons.join(", "),
            Err(other) => format!("{other:?}"),
        };
        assert_eq!(got, expected);
    }

    fn volume(source: Value) -> Value {
        json!({"volumes": [source]})
    }

    fn claim(name: &str, metadata: Value, spec: Value, phase: &str) -> Value {
        let mut claim = json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}});
        claim["metadata"]["name"] = json!(name);
        claim
    }

    #[test]
    fn what_needs_no_claim_does_not_wait() {
        for source in [
            json!({"name": "v", "emptyDir": {}}),
            json!({"name": "v", "hostPath": {"path": "/"}}),
            json!({"name": "v", "configMap": {"name": "c"}}),
            json!({"name": "v", "projected": {"sources": []}}),
            json!({"name": "v", "image": {"reference": "i"}}),
        ] {
            check(volume(source), json!([]), "");
        }
    }

    #[test]
    fn claims_of_volumes() {
        let uses = volume(json!({"name": "v", "persistentVolumeClaim": {"claimName": "x"}}));
        let bound = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
        check(uses.clone(), json!([]), "persistentvolumeclaim \"x\" not found");
        for (metadata, spec, phase, why) in [
            (
                json!({}),
                json!({"volumeName": "pv"}),
                "Lost",
                "persistentvolumeclaim \"x\" bound to non-existent persistentvolume \"pv\"",
            ),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                json!({}),
                "Pending",
                "persistentvolumeclaim \"x\" is being deleted",
            ),
            (json!({}), json!({}), "Pending", "pod has unbound immediate PersistentVolumeClaims"),
            (
                json!({}),
                json!({"storageClassName": "now"}),
                "Pending",
                "pod has unbound immediate PersistentVolumeClaims",
            ),
            (
                json!({}),
                json!({"storageClassName": "later"}),
                "Pending",
                "persistentvolumeclaim \"x\" waits for its first consumer, but binding it then is not supported yet",
            ),
            (
                json!({"annotations": {"volume.beta.kubernetes.io/storage-class": "now"}}),
                json!({"storageClassName": "later"}),
                "Pending",
                "pod has unbound immediate PersistentVolumeClaims",
            ),
            (
                json!({}),
                json!({"volumeName": "pv", "storageClassName": "later"}),
                "Pending",
                "pod has unbound immediate PersistentVolumeClaims",
            ),
            (
                bound,
                json!({"volumeName": "pv"}),
                "Bound",
                "persistentvolumeclaim \"x\" is bound to \"pv\", but mounting persistent volumes is not supported yet",
            ),
        ] {
            check(uses.clone(), json!([claim("x", metadata, spec, phase)]), why);
        }
    }

    #[test]
    fn claims_made_for_the_pod_and_devices() {
        let own = volume(json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
        check(
            own.clone(),
            json!([]),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"",
        );
        check(
            own.clone(),
            json!([claim("p-v", json!({}), json!({}), "Pending")]),
            "PVC d/p-v was not created for pod d/p (pod is not owner)",
        );
        let owner = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]});
        check(
            own,
            json!([claim("p-v", owner, json!({}), "Pending")]),
            "pod has unbound immediate PersistentVolumeClaims",
        );
        check(
            volume(json!({"name": "v", "csi": {"driver": "d.example.com"}})),
            json!([]),
            "volume \"v\": CSI volumes (d.example.com) are not supported yet",
        );
        check(
            json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}),
            json!([]),
            "resource claim \"gpu\": allocating devices is not supported yet",
        );
    }
}
