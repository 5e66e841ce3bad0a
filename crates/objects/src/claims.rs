//! Claims on devices, as Pods refer to them (upstream's `dynamic-resource-allocation/resourceclaim`).

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The finalizer of claims that have devices.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation by which a claim that was made for a Pod names its place in the Pod.
pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The annotation of the claim that stands for a Pod's extended resources.
pub const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// The prefix of the extended resource that every class has.
pub const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
/// The most consumers of a claim.
pub const MOST_RESERVED: usize = 256;

fn text(t: Option<&String>) -> &str {
    t.map(String::as_str).unwrap_or_default()
}

fn key(pod: &Pod) -> String {
    format!("{}/{}", text(pod.metadata.namespace.as_ref()), text(pod.metadata.name.as_ref()))
}

/// The claim of a place in a Pod: its name, and whether it was made for the Pod, so that its owner has to be looked at.
/// `None`: there needs to be none.
///
/// # Errors
/// In upstream's words, if it is not made yet, or the place names none.
pub fn name<'p>(pod: &'p Pod, place: &'p PodResourceClaim) -> Result<Option<(&'p str, bool)>, String> {
    if let Some(name) = &place.resource_claim_name {
        return Ok(Some((name, false)));
    }
    if place.resource_claim_template_name.is_none() {
        return Err(format!(
            "pod {}, spec.resourceClaim {}: none of the supported fields are set",
            api::go::quote(&key(pod)),
            api::go::quote(&place.name)
        ));
    }
    let statuses = pod.status.as_ref().and_then(|s| s.resource_claim_statuses.as_deref()).unwrap_or_default();
    match statuses.iter().find(|s| s.name == place.name) {
        Some(status) => Ok(status.resource_claim_name.as_deref().map(|name| (name, true))),
        None => Err(format!("pod {}: ResourceClaim not created yet", api::go::quote(&key(pod)))),
    }
}

/// The controller of a claim.
pub fn controller(claim: &ResourceClaim) -> Option<&OwnerReference> {
    claim.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

/// Checks that a claim was made for a Pod.
///
/// # Errors
/// In upstream's words, if it was not.
pub fn is_for_pod(pod: &Pod, claim: &ResourceClaim) -> Result<(), String> {
    let named = format!("{}/{}", text(claim.metadata.namespace.as_ref()), text(claim.metadata.name.as_ref()));
    if claim.metadata.namespace != pod.metadata.namespace {
        return Err(format!("ResourceClaim {named} is not in the same namespace as Pod {}", key(pod)));
    }
    if controller(claim).is_none_or(|o| Some(&o.uid) != pod.metadata.uid.as_ref()) {
        return Err(format!("ResourceClaim {named} was not created for Pod {} (Pod is not owner)", key(pod)));
    }
    Ok(())
}

/// The consumers of a claim.
pub fn reserved_for(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|s| s.reserved_for.as_deref()).unwrap_or_default()
}

/// Whether a claim has devices.
pub fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|s| s.allocation.is_some())
}

/// Whether a claim is reserved for the consumer of a uid.
pub fn is_reserved_for(claim: &ResourceClaim, uid: &str) -> bool {
    reserved_for(claim).iter().any(|consumer| consumer.uid == uid)
}

/// Whether a claim has its finalizer.
pub fn is_protected(claim: &ResourceClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER)
}

/// The places in a Pod that name claims.
pub fn places(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|s| s.resource_claims.as_deref()).unwrap_or_default()
}

/// A Pod as a consumer.
pub fn consumer(name: &str, uid: &str) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        name: name.to_owned(),
        resource: "pods".to_owned(),
        uid: uid.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(claims: Value, statuses: Value) -> Pod {
        let pod = json!({"metadata": {"namespace": "n", "name": "p", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}});
        serde_json::from_value(pod).unwrap()
    }

    /// The cases of upstream's `TestName`.
    #[test]
    fn names() {
        let check = |claim: Value, statuses: Value, expected: Result<Option<(&str, bool)>, &str>| {
            let pod = pod(json!([claim]), statuses);
            assert_eq!(name(&pod, &places(&pod)[0]), expected.map_err(str::to_owned));
        };
        let template = json!({"name": "a", "resourceClaimTemplateName": "t"});
        check(json!({"name": "a", "resourceClaimName": "c"}), json!([]), Ok(Some(("c", false))));
        check(template.clone(), json!([{"name": "a", "resourceClaimName": "g"}]), Ok(Some(("g", true))));
        check(template.clone(), json!([{"name": "a"}]), Ok(None));
        check(
            template,
            json!([{"name": "b", "resourceClaimName": "g"}]),
            Err("pod \"n/p\": ResourceClaim not created yet"),
        );
        let why = "pod \"n/p\", spec.resourceClaim \"a\": none of the supported fields are set";
        check(json!({"name": "a"}), json!([]), Err(why));
    }

    #[test]
    fn owners() {
        let pod = pod(json!([]), json!([]));
        let claim = |namespace: &str, uid: &str| -> ResourceClaim {
            let owner =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]);
            let meta = json!({"namespace": namespace, "name": "c", "ownerReferences": owner});
            serde_json::from_value(json!({"metadata": meta, "spec": {}})).unwrap()
        };
        let check = |namespace, uid, expected: Result<(), &str>| {
            assert_eq!(is_for_pod(&pod, &claim(namespace, uid)), expected.map_err(str::to_owned));
        };
        check("n", "u", Ok(()));
        check("m", "u", Err("ResourceClaim m/c is not in the same namespace as Pod n/p"));
        check("n", "x", Err("ResourceClaim n/c was not created for Pod n/p (Pod is not owner)"));
    }
}
