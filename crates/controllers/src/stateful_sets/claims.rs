//! The owners of the claims of a StatefulSet's Pods, as the retention policy wants them.
//!
//! A claim that goes with its set is owned by the set; once its Pod is not wanted any more and claims go with Pods, by
//! the Pod. A reference of the same name with another uid is of an owner that is gone: the claim is left to the garbage
//! collector.

use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::set::{self, Retention};
use crate::common::controller_ref;

/// The set and the Pod to which a claim belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners<'a> {
    pub(super) set: &'a StatefulSet,
    /// The Pod's name.
    pub(super) pod: &'a str,
    /// The Pod's uid, "" before it is made.
    pub(super) uid: &'a str,
    /// Whether the set wants the Pod.
    pub(super) wanted: bool,
}

/// Whether a reference names an object of this kind and name, of whatever uid.
fn names(r: &OwnerReference, (version, kind): (&str, &str), name: &str) -> bool {
    r.api_version == version && r.kind == kind && r.name == name
}

const SET: (&str, &str) = (StatefulSet::API_VERSION, StatefulSet::KIND);
const POD: (&str, &str) = (Pod::API_VERSION, Pod::KIND);

impl Owners<'_> {
    fn set_uid(&self) -> &str {
        self.set.metadata.uid.as_deref().unwrap_or_default()
    }
    fn names_set(&self, r: &OwnerReference) -> bool {
        names(r, SET, set::name(&self.set.metadata))
    }
    fn names_pod(&self, r: &OwnerReference) -> bool {
        names(r, POD, self.pod)
    }
    fn has(refs: &[OwnerReference], uid: &str) -> bool {
        refs.iter().any(|r| r.uid == uid)
    }
    fn is_set_stale(&self, refs: &[OwnerReference]) -> bool {
        refs.iter().find(|r| self.names_set(r)).is_some_and(|r| r.uid != self.set_uid())
    }

    /// Whether a claim is of an earlier Pod of the same name.
    pub(super) fn is_pod_stale(&self, refs: &[OwnerReference]) -> bool {
        refs.iter().find(|r| self.names_pod(r)).is_some_and(|r| r.uid != self.uid)
    }

    /// Whether something else manages a claim. It may, if claims are to stay anyway.
    pub(super) fn has_other_controller(&self, refs: &[OwnerReference]) -> bool {
        let other = |r: &OwnerReference| {
            if self.names_set(r) {
                r.uid != self.set_uid()
            } else if self.names_pod(r) {
                r.uid != self.uid
            } else {
                r.controller == Some(true)
            }
        };
        set::retention(self.set) != Retention::default() && refs.iter().any(other)
    }

    /// Whether the set or the Pod owns a claim without managing it.
    fn has_idle_owner(&self, refs: &[OwnerReference]) -> bool {
        refs.iter().any(|r| (r.uid == self.set_uid() || r.uid == self.uid) && r.controller != Some(true))
    }

    /// Returns whether the policy wants the set, and the Pod, as owner.
    fn wanted_owners(&self) -> (bool, bool) {
        let Retention { with_set, with_pod } = set::retention(self.set);
        let by_pod = with_pod && !self.wanted;
        (with_set && !by_pod, by_pod)
    }

    /// Whether a claim's owners are as the policy wants them, or are none of the controller's business.
    pub(super) fn are_right(&self, refs: &[OwnerReference]) -> bool {
        if self.is_set_stale(refs) || self.is_pod_stale(refs) {
            return true;
        }
        let owned = (Self::has(refs, self.set_uid()), Self::has(refs, self.uid));
        if self.has_other_controller(refs) {
            return owned == (false, false);
        }
        !self.has_idle_owner(refs) && owned == self.wanted_owners()
    }

    /// Returns the owners that a claim is to have.
    pub(super) fn correct(&self, refs: &[OwnerReference]) -> Vec<OwnerReference> {
        let other = self.has_other_controller(refs);
        let mut all: Vec<_> =
            refs.iter().filter(|r| !self.names_set(r) && !self.names_pod(r)).cloned().collect();
        if other {
            return all;
        }
        let (by_set, by_pod) = self.wanted_owners();
        if by_set && !Self::has(&all, self.set_uid()) {
            all.push(controller_ref(self.set));
        }
        if by_pod && !Self::has(&all, self.uid) {
            all.push(OwnerReference {
                api_version: POD.0.to_owned(),
                kind: POD.1.to_owned(),
                name: self.pod.to_owned(),
                uid: self.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reference(
        version: &str,
        kind: &str,
        name: &str,
        uid: &str,
        controller: impl Into<Option<bool>>,
    ) -> OwnerReference {
        OwnerReference {
            api_version: version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: controller.into(),
            block_owner_deletion: None,
        }
    }

    fn set(name: &str, uid: &str, deleted: &str, scaled: &str) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": uid},
            "spec": {"replicas": 2, "selector": {}, "serviceName": "", "template": {},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}},
        }))
        .unwrap()
    }

    const POLICIES: [(&str, &str); 4] =
        [("Retain", "Retain"), ("Delete", "Retain"), ("Retain", "Delete"), ("Delete", "Delete")];

    fn uids(refs: &[OwnerReference]) -> (bool, bool) {
        let has = |uid: &str| refs.iter().any(|r| r.uid == uid && r.controller == Some(true));
        (has("set-uid"), has("pod-uid"))
    }

    /// Upstream's cases of `TestIsClaimOwnerUpToDate` and `TestUpdateClaimOwnerRefForSetAndPod`: each policy with each
    /// set of owners that the claim may have.
    #[test]
    fn owners_by_policy() {
        let check = |(deleted, scaled): (&str, &str), wanted: bool, want: (bool, bool)| {
            let set = set("set", "set-uid", deleted, scaled);
            let owners = Owners { set: &set, pod: "pod", uid: "pod-uid", wanted };
            for case in 0..8 {
                let mut refs = Vec::new();
                if case & 1 != 0 {
                    refs.push(reference("v1", "Pod", "pod", "pod-uid", true));
                }
                if case & 2 != 0 {
                    refs.push(reference("apps/v1", "StatefulSet", "set", "set-uid", true));
                }
                if case & 4 != 0 {
                    refs.push(reference("v1", "Pod", "rand1", "rand1-uid", None));
                    refs.push(reference("custom/v1", "random", "random", "abc", false));
                }
                let right = (case & 2 != 0, case & 1 != 0) == want;
                assert_eq!(owners.are_right(&refs), right, "{deleted} {scaled} {wanted} {case}");
                let after = owners.correct(&refs);
                assert_eq!(uids(&after), want, "{deleted} {scaled} {wanted} {case}");
                assert_eq!(after.iter().filter(|r| r.name.starts_with("rand")).count(), (case & 4) / 2);
                assert!(owners.are_right(&after));
                refs.push(reference("custom/v1", "Unknown", "unknown", "xyz", true));
                if (deleted, scaled) != ("Retain", "Retain") {
                    assert_eq!(uids(&owners.correct(&refs)), (false, false), "somebody else manages it");
                    assert_eq!(owners.are_right(&refs), case % 4 == 0);
                }
            }
        };
        for wanted in [true, false] {
            check(POLICIES[0], wanted, (false, false));
            check(POLICIES[1], wanted, (true, false));
        }
        check(POLICIES[2], true, (false, false));
        check(POLICIES[2], false, (false, true));
        check(POLICIES[3], true, (true, false));
        check(POLICIES[3], false, (false, true));
    }

    /// Upstream's cases of `TestClaimOwnerUpToDateEdgeCases`.
    #[test]
    fn odd_owners() {
        let check = |scaled: &str, refs: &[OwnerReference], want: bool| {
            let set = set("set", "set-uid", "Delete", scaled);
            let owners = Owners { set: &set, pod: "pod", uid: "pod-uid", wanted: scaled == "Retain" };
            assert_eq!(owners.are_right(refs), want, "{refs:?}");
        };
        let pod = |uid: &str, controller: Option<bool>| reference("v1", "Pod", "pod", uid, controller);
        let own =
            |uid: &str, controller: Option<bool>| reference("apps/v1", "StatefulSet", "set", uid, controller);
        check("Delete", &[pod("pod-uid", Some(true))], true);
        check("Delete", &[pod("pod-uid", None)], false);
        check("Delete", &[pod("pod-stale", Some(true))], true);
        check(
            "Delete",
            &[pod("pod-uid", Some(true)), reference("v1", "Pod", "Random", "random", true)],
            false,
        );
        check("Retain", &[own("set-uid", Some(true))], true);
        check("Retain", &[reference("appsv1", "StatefulSet", "set", "set-uid", None)], false);
        check("Retain", &[own("set-stale", Some(true))], true);
        check(
            "Retain",
            &[own("set-uid", Some(true)), reference("apps/v1", "StatefulSet", "Random", "random", true)],
            false,
        );
    }

    /// Upstream's cases of `TestUpdateClaimControllerRef`.
    #[test]
    fn corrected_owners() {
        let check = |refs: Value, want: Value| {
            let parse = |v: &Value| serde_json::from_value::<Vec<OwnerReference>>(v.clone()).unwrap();
            let set = set("sts", "123", "Delete", "Delete");
            let owners = Owners { set: &set, pod: "pod-0", uid: "456", wanted: true };
            let sorted = |mut refs: Vec<OwnerReference>| {
                refs.sort_by(|a, b| a.kind.cmp(&b.kind));
                refs.into_iter().map(|r| (r.kind, r.name, r.uid, r.controller)).collect::<Vec<_>>()
            };
            assert_eq!(sorted(owners.correct(&parse(&refs))), sorted(parse(&want)), "{refs}");
        };
        let own = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "123", "controller": true});
        let idle = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "123"});
        let other = json!({"apiVersion": "someone", "kind": "Else", "name": "foo", "uid": ""});
        let same_name = json!({"apiVersion": "someone", "kind": "else", "name": "sts", "uid": "456"});
        let stale = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "", "controller": true});
        let stale_idle = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": ""});
        check(json!([own, other]), json!([own, other]));
        check(json!([idle]), json!([own]));
        check(json!([same_name]), json!([same_name, own]));
        check(json!([]), json!([own]));
        check(json!([stale]), json!([]));
        check(json!([stale_idle]), json!([]));
    }

    /// Upstream's cases of `TestHasUnexpectedController`.
    #[test]
    fn other_controllers() {
        let check = |refs: &[OwnerReference], want: bool| {
            for (deleted, scaled) in POLICIES {
                let set = set("set", "set-uid", deleted, scaled);
                let owners = Owners { set: &set, pod: "pod", uid: "pod-uid", wanted: true };
                let want = want && (deleted, scaled) != ("Retain", "Retain");
                assert_eq!(owners.has_other_controller(refs), want, "{deleted} {scaled} {refs:?}");
            }
        };
        let custom = |controller: Option<bool>| {
            reference("chipmunks/v1", "CustomController", "simon", "other-uid", controller)
        };
        let pod = |uid: &str| reference("v1", "Pod", "pod", uid, true);
        check(&[custom(Some(true))], true);
        check(&[custom(Some(false))], false);
        check(&[custom(None)], false);
        check(&[reference("v1", "Pod", "simon", "other-uid", true)], true);
        check(&[reference("apps/v1", "Set", "simon", "other-uid", true)], true);
        check(&[reference("apps/v1", "StatefulSet", "set", "set-uid", true)], false);
        check(&[reference("apps/v1", "StatefulSet", "set", "stale-uid", true)], true);
        check(&[pod("pod-uid")], false);
        check(&[pod("stale-uid")], true);
        check(&[pod("pod-uid"), custom(Some(true))], true);
        check(&[pod("pod-uid"), custom(Some(false))], false);
    }

    /// Upstream's cases of `TestNonController` and `TestHasStaleOwnerRef`.
    #[test]
    fn idle_and_stale_owners() {
        let set = set("set", "set", "Retain", "Retain");
        let owners = Owners { set: &set, pod: "pod", uid: "pod", wanted: true };
        let pod = |controller: Option<bool>| reference("v1", "Pod", "pod", "pod", controller);
        let own = |controller: Option<bool>| reference("apps/v1", "Set", "set", "set", controller);
        let idle =
            |refs: &[OwnerReference], want: bool| assert_eq!(owners.has_idle_owner(refs), want, "{refs:?}");
        idle(&[pod(Some(true)), own(Some(true))], false);
        idle(&[pod(None), own(Some(true))], true);
        idle(&[pod(Some(true)), own(None)], true);
        idle(&[own(Some(true))], false);
        idle(&[pod(Some(true))], false);
        idle(&[], false);
        idle(&[own(None)], true);
        idle(&[own(Some(false))], true);
        idle(&[reference("v1", "pod", "pod", "pod", None)], true);
        idle(&[reference("v1", "pod", "pod", "not-matching", None)], false);
        let both =
            [reference("v1", "Pod", "bob", "123", None), reference("v1", "Pod", "shirley", "456", None)];
        let stale = |pod: &str, uid: &str, want: bool| {
            assert_eq!(Owners { pod, uid, ..owners }.is_pod_stale(&both), want, "{pod}");
        };
        stale("bob", "123", false);
        stale("shirley", "789", true);
        stale("yvonne", "345", false);
    }

    /// Upstream's cases of `TestMatchesRef` and `TestHasOwnerRef`.
    #[test]
    fn references_to_owners() {
        let fred = reference("v1", "Pod", "fred", "abc", None);
        let check = |version: &str, name: &str, want: bool| {
            assert_eq!(names(&fred, (version, "Pod"), name), want, "{version} {name}");
        };
        // The uid does not count.
        check("v1", "fred", true);
        check("v1", "joan", false);
        check("beta2", "fred", false);
        let all = [("123", Some(true)), ("456", Some(false)), ("789", None)]
            .map(|(uid, controller)| reference("v1", "Pod", "p", uid, controller));
        for (uid, want) in [("123", true), ("456", true), ("789", true), ("012", false)] {
            assert_eq!(Owners::has(&all, uid), want, "{uid}");
        }
    }

    /// Upstream's cases of `TestPodClaimIsStale`: the uids of the Pod that a Pod's claims name (none: the claim is missing,
    /// or names no Pod), the Pod's uid, and whether one of the claims is of an earlier Pod.
    #[test]
    fn stale_claims() {
        let set = set("set", "set-uid", "Retain", "Delete");
        let check = |claims: &[Option<&str>], uid: &str, want: bool| {
            let owners = Owners { set: &set, pod: "set-3", uid, wanted: true };
            let is_stale = |of: Option<&str>| {
                let refs: Vec<_> = of.iter().map(|uid| reference("v1", "Pod", "set-3", uid, None)).collect();
                owners.is_pod_stale(&refs)
            };
            assert_eq!(claims.iter().copied().any(is_stale), want, "{claims:?} {uid}");
        };
        check(&[None, None], "123", false);
        check(&[], "123", false);
        check(&[Some("123"), Some("123")], "123", false);
        check(&[Some("stale"), None], "123", true);
        check(&[Some("123"), Some("stale")], "123", true);
        check(&[Some("123")], "", true);
    }

    /// Upstream's cases of `TestStatefulPodControlUpdatePodClaimForRetentionPolicy` and
    /// `TestStatefulPodControlRetainDeletionPolicyUpdate`: the policy for a set that is deleted, the owners of a claim, and
    /// whether the set is one of them then.
    #[test]
    fn the_set_as_owner() {
        let check = |deleted: &str, refs: &[OwnerReference], want: bool| {
            let set = set("foo", "set-123", deleted, "Retain");
            let owners = Owners { set: &set, pod: "foo-0", uid: "pod-0", wanted: true };
            assert_eq!(Owners::has(&owners.correct(refs), "set-123"), want, "{deleted} {refs:?}");
        };
        check("Delete", &[], true);
        check("Delete", &[reference("", "", "foobar", "", true)], false);
        check("Retain", &[reference("apps/v1", "StatefulSet", "foo", "set-123", true)], false);
        check("Retain", &[], false);
    }
}
