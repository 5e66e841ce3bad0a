//! NodeVolumeLimits and VolumeBinding: the volumes of Pods beside a node's own resources.
//!
//! DIFFERENCE: no claim is bound to a node here, and no kubelet mounts one, so a Pod that has one waits, and its
//! `PodScheduled` condition says for what. Where upstream has words for it (`VolumeBinding`'s PreFilter), those are used.
//! Volumes without a claim (emptyDir, hostPath, ConfigMap, Secret, downward API, projected, image) are not concerned.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume};

use crate::claims::Claims;
use crate::events::Events;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, PreFilter, Prefiltered};
use crate::framework::verdict::Stop;
use crate::pod::PodInfo;

/// The plugin that looks at volumes.
pub const BINDING: &str = "VolumeBinding";
/// The plugin that looks at limits of volumes.
pub const LIMITS: &str = "NodeVolumeLimits";

fn volumes_of(pod: &PodInfo) -> &[Volume] {
    pod.spec().and_then(|s| s.volumes.as_deref()).unwrap_or_default()
}

struct Limits;

impl PreFilter for Limits {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        for volume in volumes_of(cycle.pod) {
            if let Some(csi) = &volume.csi {
                let why =
                    format!("volume {:?}: CSI volumes ({}) are not supported yet", volume.name, csi.driver);
                return Err(Stop::rejected(LIMITS, why));
            }
        }
        Ok(Prefiltered::Skip)
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

struct Binding;

impl PreFilter for Binding {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        volumes(cycle.pod, cycle.cluster.claims())?;
        Ok(Prefiltered::Skip)
    }
    /// Pods with claims have no signature.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

pub(super) fn node_volume_limits() -> Plugin {
    // Only another Pod can lift it; it comes as a new Pod.
    let points = Points { pre_filter: Some(Arc::new(Limits)), ..Points::default() };
    Plugin::new(LIMITS, points).lifted_by(Events::NONE)
}

pub(super) fn volume_binding() -> Plugin {
    let points = Points { pre_filter: Some(Arc::new(Binding)), ..Points::default() };
    Plugin::new(BINDING, points).lifted_by(Events::CLAIMS)
}

/// Stops at the first volume that can't be had.
fn volumes(pod: &PodInfo, known: &Claims) -> Result<(), Stop> {
    let volumes = volumes_of(pod);
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
        return Err(Stop::rejected(BINDING, "pod has unbound immediate PersistentVolumeClaims"));
    }
    other.map_or(Ok(()), |why| Err(Stop::rejected(BINDING, why)))
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
    let refuse = |why: String| Err(Stop::rejected(BINDING, why));
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::Cache;
    use crate::cycle::Decision;

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
        cache.set_node(Arc::default());
        let got = match super::super::tests::decided(&pod, &cache) {
            Decision::Node(_) => String::new(),
            Decision::Unschedulable(error, _) => {
                error.stopped.filter(|r| r.unresolvable).map(|r| r.reasons.join(", ")).unwrap_or_default()
            }
            Decision::Error(why) => why,
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
