//! The identity of a StatefulSet's Pods: names, labels, and the volumes of their claims.

use std::collections::BTreeMap;

use api::Status;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};

use super::set;
use crate::common::pod_control::from_template;
use crate::common::revisions::POD_REVISION;
use crate::views::PodView;

/// The label with a Pod's name.
pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with a Pod's ordinal.
pub(super) const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// A revision of a set, by which Pods are made.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    /// The revision's name.
    pub(super) name: String,
    /// The template of its Pods.
    pub(super) template: PodTemplateSpec,
}

/// Returns the name of the Pod with an ordinal.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set::name(&set.metadata))
}

/// Returns the ordinal that a Pod's name gives it in its set; `None` if the name is not that of a Pod of the set.
///
/// DIFFERENCE: upstream also takes `web-01` for the Pod `web-1`, and then fails to rename it.
pub(super) fn ordinal(set: &StatefulSet, pod: &str) -> Option<i64> {
    let digits = pod.strip_prefix(set::name(&set.metadata))?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == digits).then(|| ordinal.into())
}

/// Returns the name of the claim of a template for an ordinal.
pub(super) fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i64) -> String {
    format!("{}-{}", set::name(&template.metadata), pod_name(set, ordinal))
}

/// Whether a claim's name is that of a Pod of a set.
pub(super) fn is_claim_of(set: &StatefulSet, claim: &str) -> bool {
    let pod_of = |t: &PersistentVolumeClaim| claim.strip_prefix(set::name(&t.metadata))?.strip_prefix('-');
    set::claim_templates(set).iter().filter_map(pod_of).any(|pod| ordinal(set, pod).is_some())
}

/// Returns the claims of the Pod with an ordinal, in the order of their templates.
pub(super) fn claims(set: &StatefulSet, ordinal: i64) -> Vec<PersistentVolumeClaim> {
    let selector = set.spec.as_ref().and_then(|s| s.selector.match_labels.clone()).unwrap_or_default();
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(set, template, ordinal));
        claim.metadata.namespace.clone_from(&set.metadata.namespace);
        let mut labels = claim.metadata.labels.take().unwrap_or_default();
        labels.extend(selector.clone());
        claim.metadata.labels = Some(labels).filter(|l| !l.is_empty());
        claim
    };
    set::claim_templates(set).iter().map(claim).collect()
}

/// Whether a Pod has the labels of its identity. Its name fits already ([`ordinal`]).
pub(super) fn has_identity(pod: &PodView) -> bool {
    pod.labels.get(POD_NAME) == Some(pod.name())
}

/// Whether a Pod has a volume for each claim.
pub(super) fn has_storage(set: &StatefulSet, ordinal: i64, pod: &PodView) -> bool {
    let has = |template: &PersistentVolumeClaim| {
        let name = claim_name(set, template, ordinal);
        pod.claim_volumes().iter().any(|v| v.volume == set::name(&template.metadata) && v.claim == name)
    };
    set::claim_templates(set).iter().all(has)
}

/// Returns the labels of a Pod's identity.
pub(super) fn labels(pod: &str, ordinal: i64) -> BTreeMap<String, String> {
    [(POD_NAME.to_owned(), pod.to_owned()), (POD_INDEX.to_owned(), ordinal.to_string())].into()
}

/// Returns the volumes of a Pod's claims, and those of others that have no claim's name.
pub(super) fn volumes(set: &StatefulSet, ordinal: i64, others: &[Volume]) -> Vec<Volume> {
    let of_claim = |template: &PersistentVolumeClaim| Volume {
        name: set::name(&template.metadata).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    };
    let templates = set::claim_templates(set);
    let is_free = |v: &&Volume| templates.iter().all(|t| set::name(&t.metadata) != v.name);
    templates.iter().map(of_claim).chain(others.iter().filter(is_free).cloned()).collect()
}

/// Makes the Pod with an ordinal, by a revision.
///
/// # Errors
/// The revision's template has no labels.
pub(super) fn pod(set: &StatefulSet, revision: &Revision, ordinal: i64) -> Result<Pod, Status> {
    let mut pod = from_template(set, Some(&revision.template))?;
    let name = pod_name(set, ordinal);
    let meta = &mut pod.metadata;
    let all = meta.labels.get_or_insert_default();
    all.extend(labels(&name, ordinal));
    all.insert(POD_REVISION.to_owned(), revision.name.clone());
    meta.name = Some(name.clone());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.as_ref().and_then(|s| s.service_name.clone()).filter(|s| !s.is_empty());
    let volumes = volumes(set, ordinal, spec.volumes.as_deref().unwrap_or_default());
    spec.volumes = Some(volumes).filter(|v| !v.is_empty());
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::stateful_sets::testing::stateful_set;
    use crate::views::tests::view;

    /// Upstream's cases of `TestGetParentNameAndOrdinal` and `TestIsMemberOf`, and names that are near.
    #[test]
    fn ordinals() {
        let check = |pod: &str, want: Option<i64>| assert_eq!(ordinal(&stateful_set(3), pod), want, "{pod}");
        check("foo-1", Some(1));
        check("foo-0", Some(0));
        check("foo-2147483647", Some(2_147_483_647));
        for other in
            ["1-bar", "foo2-1", "foo-", "foo", "foo-01", "foo-+1", "foo--1", "foo-2147483648", "foo-1-1"]
        {
            check(other, None);
        }
    }

    /// Upstream's cases of `TestGetClaimPodName`, and names that are near.
    #[test]
    fn claims_by_name() {
        let check =
            |claim: &str, want: bool| assert_eq!(is_claim_of(&stateful_set(3), claim), want, "{claim}");
        check("datadir-foo-0", true);
        check("datadir-foo-12", true);
        for other in
            ["datadir-foo", "datadir-foo-", "foo-0", "datadir-bar-0", "datadir-foo-01", "other-foo-0", ""]
        {
            check(other, false);
        }
    }

    fn made(set: &StatefulSet, ordinal: i64) -> Pod {
        let template = set.spec.clone().unwrap().template;
        pod(set, &Revision { name: "foo-abc".to_owned(), template }, ordinal).unwrap()
    }

    fn shown(pod: &Pod, change: impl FnOnce(&mut Value)) -> PodView {
        let mut value = serde_json::to_value(pod).unwrap();
        change(&mut value);
        view(&value)
    }

    /// Upstream's cases of `TestIdentityMatches`, `TestStorageMatches` and `TestNewPodControllerRef`.
    #[test]
    fn a_new_pod_has_its_identity() {
        let set = stateful_set(3);
        let pod = made(&set, 1);
        let own = shown(&pod, |_| {});
        assert!(has_identity(&own) && has_storage(&set, 1, &own));
        assert_eq!(own.controller().unwrap().uid, "test");
        assert_eq!((own.hostname(), own.subdomain()), ("foo-1", "governingsvc"));
        let labels = pod.metadata.labels.unwrap();
        assert_eq!(labels[POD_INDEX], "1");
        assert_eq!(labels[POD_REVISION], "foo-abc");
        let check = |change: fn(&mut Value), identity: bool, storage: bool| {
            let changed = shown(&made(&set, 1), change);
            assert_eq!((has_identity(&changed), has_storage(&set, 1, &changed)), (identity, storage));
        };
        check(|p| p["metadata"]["labels"] = json!(null), false, true);
        check(|p| p["metadata"]["labels"][POD_NAME] = "".into(), false, true);
        check(|p| p["spec"]["volumes"] = json!(null), true, false);
        check(|p| p["spec"]["volumes"][0]["name"] = "other".into(), true, false);
        check(|p| p["spec"]["volumes"][0]["persistentVolumeClaim"] = json!(null), true, false);
        check(
            |p| p["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "other".into(),
            true,
            false,
        );
    }

    /// Upstream's case of `TestUpdateStorage`: what has a claim's name is replaced.
    #[test]
    fn volumes_of_claims_win() {
        let set = stateful_set(3);
        let others: Vec<Volume> = serde_json::from_value(
            json!([{"name": "datadir", "emptyDir": {}}, {"name": "home", "emptyDir": {}}]),
        )
        .unwrap();
        let all = volumes(&set, 2, &others);
        let shown: Vec<_> = all
            .iter()
            .map(|v| (v.name.as_str(), v.persistent_volume_claim.as_ref().map(|c| c.claim_name.as_str())))
            .collect();
        assert_eq!(shown, [("datadir", Some("datadir-foo-2")), ("home", None)]);
    }

    /// Upstream's cases of `TestGetPersistentVolumeClaims`.
    #[test]
    fn claims_of_templates() {
        let check = |selector: Value, template: Value, want: Value| {
            let mut set = stateful_set(3);
            let spec = set.spec.as_mut().unwrap();
            spec.selector.match_labels = serde_json::from_value(selector).unwrap();
            spec.volume_claim_templates.as_mut().unwrap()[0].metadata.labels =
                serde_json::from_value(template).unwrap();
            let all = claims(&set, 1);
            assert_eq!(all[0].metadata.name.as_deref(), Some("datadir-foo-1"));
            assert_eq!(all[0].metadata.namespace.as_deref(), Some("default"));
            assert_eq!(json!(all[0].metadata.labels), want);
        };
        check(json!(null), json!(null), json!(null));
        check(json!({"foo": "bar"}), json!(null), json!({"foo": "bar"}));
        check(json!({"foo": "bar"}), json!({"a": "b"}), json!({"a": "b", "foo": "bar"}));
        check(json!({"foo": "bar"}), json!({"foo": "other"}), json!({"foo": "bar"}));
        check(json!(null), json!({"a": "b"}), json!({"a": "b"}));
    }
}
