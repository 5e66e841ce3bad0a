use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use serde_json::{Value, json};

use super::plan::*;
use super::*;
use crate::views::tests::view;

fn claim(more: &Value) -> ResourceClaim {
    let mut claim = json!({"metadata": {"namespace": "n", "name": "c", "uid": "c"}, "spec": {}});
    for key in ["metadata", "status"] {
        for (name, value) in more[key].as_object().into_iter().flatten() {
            claim[key][name] = value.clone();
        }
    }
    serde_json::from_value(claim).unwrap()
}

/// A claim with devices that Pods of these uids use.
fn used(uids: &[&str], deleting: bool) -> ResourceClaim {
    let consumers: Vec<Value> =
        uids.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
    let mut more = json!({
        "metadata": {"finalizers": [claims::FINALIZER]},
        "status": {"allocation": {}, "reservedFor": consumers},
    });
    if deleting {
        more["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    claim(&more)
}

/// The cases of upstream's `TestSyncHandler` about claims, and some more: (consumers that stay), finalizer goes, deleted.
#[test]
fn plans() {
    let check = |claim: &ResourceClaim,
                 keep: &[bool],
                 owner: Owner,
                 status: Option<(usize, bool)>,
                 unprotect: bool,
                 delete: bool| {
        let plan = plan(claim, keep, owner);
        let got = plan.status.map(|s| (s.reserved_for.map_or(0, |r| r.len()), s.allocation.is_some()));
        assert_eq!(
            (got, plan.unprotect, plan.delete),
            (status, unprotect, delete),
            "{keep:?} {owner:?} {claim:?}"
        );
    };
    let (uses, none) = (Owner::Uses, Owner::Unknown);
    // All stay.
    check(&used(&["a"], false), &[true], uses, None, false, false);
    check(&used(&["a", "b"], true), &[true, true], none, None, false, false);
    // One of two goes.
    check(&used(&["a", "b"], false), &[true, false], none, Some((1, true)), false, false);
    // The last one goes: the devices are free.
    check(&used(&["a"], false), &[false], none, Some((0, false)), true, false);
    check(&used(&["a"], false), &[false], Owner::Done, Some((0, false)), true, true);
    // Nobody has used it yet.
    check(&used(&[], false), &[], none, None, false, false);
    check(&used(&[], true), &[], none, Some((0, false)), true, false);
    check(&claim(&json!({})), &[], Owner::Done, None, false, true);
    // It had its devices taken away, and an end came before the finalizer went.
    let mut freed = used(&[], true);
    freed.status = None;
    check(&freed, &[], none, None, true, false);
    // Without the finalizer the devices are not the scheduler's.
    let mut bare = used(&["a"], false);
    bare.metadata.finalizers = None;
    check(&bare, &[false], none, Some((0, true)), false, false);
}

#[test]
fn names_are_cut_in_proportion() {
    let check = |pod: &str, place: &str, expected: &str| assert_eq!(prefix(pod, place), expected);
    check("pod", "gpu", "pod-gpu-");
    let (long, place) = ("p".repeat(63), "c".repeat(20));
    let cut = format!("{}-{}", "p".repeat(63 * 57 / 85), "c".repeat(20 * 57 / 85));
    check(&long, &place, &cut);
}

#[test]
fn claims_of_templates() {
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": {"name": "t"},
        "spec": {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x", "adminAccess": true}}]}}},
    }))
    .unwrap();
    let pod =
        view(&json!({"metadata": {"namespace": "n", "name": "p", "uid": "u"}, "spec": {"containers": []}}));
    let claim = claim_for(&pod, "place", &template);
    assert!(wants_admin(&claim) && !has_alternatives(&claim));
    let meta = serde_json::to_value(&claim.metadata).unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
    let annotations = json!({"b": "2", POD_CLAIM_NAME: "place"});
    assert_eq!(
        meta,
        json!({"generateName": "p-place-", "namespace": "n", "labels": {"a": "1"},
            "annotations": annotations, "ownerReferences": [owner]})
    );
    assert_eq!(super::plan::owner(&claim), Some(("p", "u")));
}

#[test]
fn done_pods() {
    let check = |phase: &str, node: &str, deleting: bool, expected: bool| {
        let mut pod =
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        assert_eq!(is_done(&view(&pod)), expected, "{pod}");
    };
    check("Pending", "", false, false);
    check("Pending", "", true, true);
    check("Running", "n", true, false);
    check("Succeeded", "n", false, true);
    check("Failed", "n", true, true);
}

#[test]
fn places_of_pods() {
    let pod = view(&json!({
        "metadata": {"name": "p"},
        "spec": {"resourceClaims": [
            {"name": "a", "resourceClaimName": "named"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "d", "resourceClaimTemplateName": "t"},
        ]},
        "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended", "requestMappings": []}},
    }));
    let named: Vec<_> = pod.claim_places().iter().map(ClaimPlace::named).collect();
    assert_eq!(named, [Some(("named", false)), Some(("made", true)), None, None]);
    assert_eq!((&pod.claim_places()[2].made, &pod.claim_places()[3].made), (&Made::NotNeeded, &Made::NotYet));
    assert!(pod.device_claims().eq(["named", "made", "extended"]));
}

#[test]
fn only_so_many_are_remembered() {
    let mut gone = Gone::default();
    (0..2 * REMEMBERED).for_each(|i| gone.add(&i.to_string()));
    assert_eq!((gone.uids.len(), gone.order.len()), (REMEMBERED, REMEMBERED));
    assert!(gone.uids.contains(&(2 * REMEMBERED - 1).to_string()) && !gone.uids.contains("0"));
}

/// Upstream's own cases of `TestSyncHandler` about claims, with what upstream v1.36.2 makes of each. One case a line, in
/// `cases.jsonl`; those about Pods are played in `crates/simulation/tests/devices.rs`.
#[test]
fn upstreams_claims() {
    let mut cases = 0;
    for line in include_str!("cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        cases += 1;
        let Some(claim) = case.get("claim") else {
            assert!(case.get("after").is_none(), "{name}");
            continue;
        };
        let before: ResourceClaim = serde_json::from_value(claim.clone()).unwrap();
        let pods = |key: &str| case[key].as_array().unwrap().iter().map(view).collect::<Vec<_>>();
        let (shown, later) = (pods("pods"), pods("later"));
        let find = |all: &[PodView], name: &str| all.iter().find(|p| p.name() == name).cloned();
        let keep: Vec<bool> = reserved_for(&before)
            .iter()
            .map(|consumer| match find(&shown, &consumer.name) {
                _ if consumer.resource != "pods" => true,
                Some(pod) => pod.uid() == consumer.uid && !is_done(&pod),
                None => find(&later, &consumer.name).is_some_and(|pod| pod.uid() == consumer.uid),
            })
            .collect();
        let owner = match super::plan::owner(&before).map(|(name, uid)| (find(&shown, name), uid)) {
            None | Some((None, _)) => Owner::Unknown,
            Some((Some(pod), uid)) if pod.uid() != uid || is_done(&pod) => Owner::Done,
            Some(_) => Owner::Uses,
        };
        let plan = plan(&before, &keep, owner);
        let mut after = before;
        if let Some(status) = plan.status {
            after.status = Some(status);
        }
        if plan.unprotect {
            after = unprotected(after);
        }
        let expected = case.get("after").map(|v| serde_json::from_value::<ResourceClaim>(v.clone()).unwrap());
        assert_eq!(plan.delete, expected.is_none(), "{name}");
        let Some(expected) = expected else { continue };
        let told = |claim: &ResourceClaim| {
            let status = claim.status.clone().unwrap_or_default();
            let reserved = status.reserved_for.unwrap_or_default();
            (status.allocation, reserved, claim.metadata.finalizers.clone().unwrap_or_default())
        };
        assert_eq!(told(&after), told(&expected), "{name}");
    }
    assert_eq!(cases, CASES);
}

/// How many cases there are.
const CASES: usize = 11;
