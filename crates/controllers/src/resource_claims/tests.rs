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
    let claim = claim_for(Holder::pod(&pod), "place", &template);
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

/// Upstream's cases of `TestGetAdminAccessMetricLabel`: whether requests ask for an administrator's access (none: they have
/// alternatives), and what the claim does.
#[test]
fn administrators_access() {
    let check = |requests: &[Option<Option<bool>>], want: bool| {
        let request = |exactly: &Option<Option<bool>>| match exactly {
            Some(admin) => json!({"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": admin}}),
            None => json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}),
        };
        let requests: Vec<Value> = requests.iter().map(request).collect();
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
        assert_eq!(wants_admin(&serde_json::from_value(claim).unwrap()), want, "{requests:?}");
    };
    check(&[], false);
    check(&[Some(Some(false))], false);
    check(&[Some(Some(true))], true);
    check(&[None], false);
    check(&[Some(Some(false)), Some(Some(true))], true);
    check(&[Some(None), Some(Some(false))], false);
}

/// Upstream's cases of `TestEnqueuePodExtendedResourceClaims`: a Pod's phase, whether it names a claim, whether it has one
/// of extended resources, whether it is gone, and whether that claim is looked at because the Pod is done. The
/// row with the gate off is left out: the same happens.
#[test]
fn claims_of_extended_resources() {
    let check = |phase: &str, named: bool, extended: bool, gone: bool, want: bool| {
        let mut pod = json!({"metadata": {"name": "test-pod", "namespace": "default"}, "spec": {"containers": []},
            "status": {"phase": phase}});
        if named {
            pod["spec"]["resourceClaims"] =
                json!([{"name": "regular-claim", "resourceClaimName": "regular"}]);
        }
        if extended {
            pod["status"]["extendedResourceClaimStatus"] =
                json!({"resourceClaimName": "test-extended-claim", "requestMappings": []});
        }
        let pod = view(&pod);
        let looked_at = gone || is_done(&pod);
        let found = looked_at && pod.device_claims().any(|name| name == "test-extended-claim");
        assert_eq!(found, want, "{phase} {named} {extended} {gone}");
    };
    check("", false, false, false, false);
    check("Running", true, false, false, false);
    check("Running", false, true, false, false);
    check("Succeeded", false, true, false, true);
    check("Failed", false, true, false, true);
    check("Succeeded", false, true, true, true);
    check("Succeeded", true, true, false, true);
}

/// Upstream's cases of `TestResourceClaimEventHandler` about figures: claims (allocated, of an administrator, of a template),
/// and the numbers that are told.
#[test]
fn figures_of_claims() {
    type Kind = (bool, bool, bool);
    let check = |claims: &[Kind], want: &[(Kind, usize)]| {
        let claim = |(allocated, admin, template): &Kind| {
            let mut claim = json!({"metadata": {"namespace": "n", "name": "c"}, "spec": {"devices": {"requests":
                [{"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": admin}}]}}});
            if *allocated {
                claim["status"] = json!({"allocation": {}});
            }
            if *template {
                claim["metadata"]["annotations"] = json!({POD_CLAIM_NAME: "place"});
            }
            Arc::new(serde_json::from_value::<ResourceClaim>(claim).unwrap())
        };
        let mut page = Page::default();
        report(&mut page, &Attempts::default(), &claims.iter().map(claim).collect::<Vec<_>>());
        let text = page.text();
        let prefix = "resourceclaim_controller_resource_claims{";
        let told: Vec<&str> = text.lines().filter(|l| l.starts_with(prefix)).collect();
        let line = |((allocated, admin, template), n): &(Kind, usize)| {
            let source = if *template { "resource_claim_template" } else { "" };
            format!("{prefix}allocated=\"{allocated}\",admin_access=\"{admin}\",source=\"{source}\"}} {n}")
        };
        assert_eq!(told, want.iter().map(line).collect::<Vec<_>>(), "{claims:?}");
    };
    let (new, allocated) = ((false, false, false), (true, false, false));
    let (admin, admins) = ((false, true, true), (true, true, true));
    check(&[], &[]);
    check(&[new], &[(new, 1)]);
    check(&[allocated], &[(allocated, 1)]);
    check(&[allocated, allocated], &[(allocated, 2)]);
    check(&[new, allocated], &[(new, 1), (allocated, 1)]);
    check(&[admin], &[(admin, 1)]);
    check(&[admins], &[(admins, 1)]);
    check(&[admins, admins, new], &[(new, 1), (admins, 2)]);
}
