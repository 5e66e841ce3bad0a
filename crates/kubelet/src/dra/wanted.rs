//! Which claims a Pod has, and which devices of them a container gets. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use objects::{claims, quantity};

use super::claims::Wanted;
use super::error::Why;
use crate::pods::spec;

/// The names of a Pod's claims, each with whether it was made for the Pod, so that its owner must be looked at. The claim
/// of its extended resources comes last.
///
/// # Errors
/// One is not known yet.
pub(super) fn names(pod: &Pod) -> Result<Vec<(String, bool)>, Why> {
    let mut all = Vec::new();
    for place in claims::places(pod) {
        if let Some((name, made)) = claims::name(pod, place).map_err(Why::Claim)? {
            all.push((name.to_owned(), made));
        }
    }
    let extended = spec::status(pod).extended_resource_claim_status.as_ref();
    all.extend(extended.map(|e| (e.resource_claim_name.clone(), false)));
    Ok(all)
}

/// Looks whether a Pod may use a claim, itself or with its PodGroup, and what is to be prepared of it.
///
/// # Errors
/// In upstream's words, if it may not, or has nothing to use.
pub(super) fn look(
    pod: &Pod,
    by_group: bool,
    (name, made): &(String, bool),
    claim: &ResourceClaim,
) -> Result<Wanted, Why> {
    let user = claims::User::of(pod, by_group);
    if *made {
        claims::is_for(user, claim).map_err(Why::Claim)?;
    }
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    if !claims::is_reserved_for(user, claim) {
        return Err(Why::NotAllowed {
            pod: spec::name(pod).to_owned(),
            pod_uid: spec::uid(pod).to_owned(),
            claim: name.clone(),
            claim_uid: uid,
        });
    }
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let allocation = allocation.ok_or_else(|| Why::NotAllocated(name.clone()))?;
    let devices = allocation.devices.iter().flat_map(|d| d.results.iter().flatten());
    let drivers = devices.map(|d| d.driver.clone()).collect();
    Ok(Wanted { key: (spec::namespace(pod).to_owned(), name.clone()), uid, drivers })
}

/// The claims that a container uses, with the names of their requests; an empty name stands for all requests.
///
/// # Errors
/// A claim is not known yet.
pub(super) fn requests<'p>(
    pod: &'p Pod,
    container: &'p Container,
) -> Result<BTreeMap<String, Vec<&'p str>>, Why> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let asked: Vec<_> = container.resources.iter().flat_map(|r| r.claims.iter().flatten()).collect();
    for place in claims::places(pod) {
        let of_place: Vec<&str> = asked
            .iter()
            .filter(|c| c.name == place.name)
            .map(|c| c.request.as_deref().unwrap_or_default())
            .collect();
        if of_place.is_empty() {
            continue;
        }
        if let Some((name, _)) = claims::name(pod, place).map_err(Why::Claim)? {
            all.entry(name.to_owned()).or_default().extend(of_place);
        }
    }
    let Some(extended) = spec::status(pod).extended_resource_claim_status.as_ref() else { return Ok(all) };
    let own: BTreeSet<&str> = container
        .resources
        .iter()
        .flat_map(|r| r.requests.iter().flatten())
        .filter(|(name, amount)| is_of_devices(name) && quantity::value(Some(amount)) != 0)
        .map(|(name, _)| name.as_str())
        .collect();
    let mapped = extended
        .request_mappings
        .iter()
        .filter(|m| m.container_name == container.name && own.contains(m.resource_name.as_str()));
    for mapping in mapped {
        all.entry(extended.resource_claim_name.clone()).or_default().push(&mapping.request_name);
    }
    Ok(all)
}

/// Whether a resource can be one that a claim stands for; upstream's `IsDRAExtendedResourceName`.
fn is_of_devices(name: &str) -> bool {
    name.starts_with(claims::CLASS_PREFIX) || crate::node::status::is_extended(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> Pod {
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn extended() -> Value {
        json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [
            {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"},
            {"containerName": "c", "resourceName": "deviceclass.resource.kubernetes.io/k", "requestName": "container-0-request-1"},
            {"containerName": "c", "resourceName": "cpu", "requestName": "odd"},
            {"containerName": "d", "resourceName": "example.com/gpu", "requestName": "container-1-request-0"}]}})
    }

    #[test]
    fn names_of_claims() {
        let check = |pod: Pod, expected: Result<&[(&str, bool)], &str>| {
            let expected = expected
                .map(|all| all.iter().map(|(n, m)| ((*n).to_owned(), *m)).collect::<Vec<_>>())
                .map_err(str::to_owned);
            assert_eq!(names(&pod).map_err(|e| e.to_string()), expected);
        };
        check(pod(json!({"containers": []}), json!({})), Ok(&[]));
        let claimed = json!({"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "c"}]});
        check(pod(claimed.clone(), json!({})), Ok(&[("c", false)]));
        check(pod(claimed, extended()), Ok(&[("c", false), ("x", false)]));
        let made =
            json!({"containers": [], "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]});
        let named = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "g"}]});
        check(pod(made.clone(), named), Ok(&[("g", true)]));
        check(pod(made.clone(), json!({"resourceClaimStatuses": [{"name": "a"}]})), Ok(&[]));
        check(pod(made, json!({})), Err("pod \"n/p\": ResourceClaim not created yet"));
    }

    #[test]
    fn a_claim_must_be_the_pods() {
        let mine = pod(json!({"containers": []}), json!({}));
        let device = |driver: &str| json!({"request": "r", "driver": driver, "pool": "l", "device": "x"});
        let reserved = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
        let check = |made: bool, status: Value, expected: Result<&[&str], &str>| {
            let meta = json!({"namespace": "n", "name": "c", "uid": "cu"});
            let claim: ResourceClaim =
                serde_json::from_value(json!({"metadata": meta, "spec": {}, "status": status})).unwrap();
            let got = look(&mine, false, &("c".to_owned(), made), &claim);
            let got = got.map(|w| (w.key, w.uid, w.drivers.into_iter().collect::<Vec<_>>()));
            let expected = expected
                .map(|d| {
                    let drivers: Vec<String> = d.iter().map(ToString::to_string).collect();
                    (("n".to_owned(), "c".to_owned()), "cu".to_owned(), drivers)
                })
                .map_err(str::to_owned);
            assert_eq!(got.map_err(|e| e.to_string()), expected);
        };
        check(false, json!({}), Err("pod p (u) is not allowed to use ResourceClaim c (cu)"));
        check(
            true,
            json!({"reservedFor": reserved}),
            Err("ResourceClaim n/c was not created for Pod n/p (Pod is not owner)"),
        );
        check(false, json!({"reservedFor": reserved}), Err("ResourceClaim c: not allocated"));
        check(false, json!({"reservedFor": reserved, "allocation": {}}), Ok(&[]));
        let results = json!([device("b"), device("a"), device("b")]);
        let status = json!({"reservedFor": reserved, "allocation": {"devices": {"results": results}}});
        check(false, status, Ok(&["a", "b"]));
    }

    /// Upstream's cases of `TestPrepareResources` about PodGroups.
    #[test]
    fn a_claim_may_be_the_groups() {
        let check = |by_group: bool, reserved: bool, expected: Result<(), &str>| {
            let grouped = pod(json!({"containers": [], "schedulingGroup": {"podGroupName": "g"}}), json!({}));
            let owner = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g",
                "uid": "gu", "controller": true});
            let consumer =
                json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "gu"});
            let consumers = if reserved { json!([consumer]) } else { json!([]) };
            let claim = json!({
                "metadata": {"namespace": "n", "name": "c", "uid": "cu", "ownerReferences": [owner]},
                "spec": {}, "status": {"allocation": {}, "reservedFor": consumers},
            });
            let claim = serde_json::from_value(claim).unwrap();
            let got = look(&grouped, by_group, &("c".to_owned(), true), &claim);
            assert_eq!(got.map(drop).map_err(|e| e.to_string()), expected.map_err(str::to_owned));
        };
        check(true, true, Ok(()));
        check(true, false, Err("pod p (u) is not allowed to use ResourceClaim c (cu)"));
        check(false, true, Err("ResourceClaim n/c was not created for Pod n/p (Pod is not owner)"));
    }

    #[test]
    fn requests_of_containers() {
        let check = |resources: Value, expected: &[(&str, &[&str])]| {
            let container = json!({"name": "c", "resources": resources});
            let claims = json!([{"name": "a", "resourceClaimName": "c1"}, {"name": "b", "resourceClaimName": "c1"},
                {"name": "d", "resourceClaimName": "c2"}]);
            let pod = pod(json!({"containers": [container], "resourceClaims": claims}), extended());
            let got = requests(&pod, &spec::containers(&pod)[0]).unwrap();
            let expected = expected.iter().map(|(n, r)| ((*n).to_owned(), r.to_vec())).collect();
            assert_eq!(got, expected, "{resources}");
        };
        check(json!({}), &[]);
        check(json!({"claims": [{"name": "a"}]}), &[("c1", &[""])]);
        check(
            json!({"claims": [{"name": "d", "request": "r"}, {"name": "a", "request": "r1"}, {"name": "a", "request": "r2"},
                {"name": "b", "request": "r3"}]}),
            &[("c1", &["r1", "r2", "r3"]), ("c2", &["r"])],
        );
        check(json!({"requests": {"example.com/gpu": "1"}}), &[("x", &["container-0-request-0"])]);
        check(json!({"requests": {"example.com/gpu": "0", "cpu": "1"}}), &[]);
        check(
            json!({"requests": {"deviceclass.resource.kubernetes.io/k": "1"}}),
            &[("x", &["container-0-request-1"])],
        );
    }
}
