//! Protection of storage objects in use: a finalizer holds a claim, a volume or a class of volume attributes as long as
//! it is used, and is removed after that.

use std::sync::Arc;

use api::{Gate, Status};
use client::{Change, Client, Index, Informer, Key, KubeObject, ListParams, resource_of};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod,
};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use objects::volumes::is_made_for;

use crate::common::{deleting, finalizers, pods};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";
/// The condition of a claim that no Pod names.
const UNUSED: &str = "Unused";

/// Protects PersistentVolumeClaims that Pods use.
pub(crate) struct Claims {
    client: Client,
    clock: Clock,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<PodView>,
    by_claim: Index<PodView>,
    /// Whether claims tell since when no Pod names them.
    tells_unused: bool,
}

impl Controller for Claims {
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const ALIASES: &'static [&'static str] = &["pvc-protection"];
    const ACCOUNT: &'static str = "pvc-protection-controller";
    const QUEUE: &'static str = "pvcprotection";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let pods = pods::informer(host.factory());
        Self {
            client: host.client(),
            clock: host.clock(),
            claims: host.informer(),
            by_claim: pods::by_claim(&pods),
            pods,
            tells_unused: host.config().gates.enabled(Gate::PersistentVolumeClaimUnusedSinceTime),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.claims, false);
        let queue = wiring.queue();
        self.pods.handle(move |change| {
            let (used, freed) = match change {
                Change::Added(pod) | Change::Deleted(pod) => (Some(pod), None),
                Change::Updated { old, new } => (Some(new), (old.uid() != new.uid()).then_some(old)),
            };
            for pod in used.into_iter().chain(freed) {
                let all = pod.claims().chain(pod.ephemeral_claims());
                all.for_each(|name| queue.add(Key::new(pod.namespace(), name)));
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(claim) = self.claims.get_key(&key) else { return Ok(Next::Done) };
        let goes = deleting(&claim.metadata);
        if self.tells_unused && !goes {
            let named = self.any(&claim, &key, true, names).await?;
            if let Some(told) = told(&claim, named, self.clock.now()) {
                let answer =
                    self.client.api::<PersistentVolumeClaim>(&key.namespace).update_status(&told).await;
                // The change leads to another look, which sees to the finalizer.
                return match answer {
                    Err(e) if !e.is_not_found() => Err(e),
                    _ => Ok(Next::Done),
                };
            }
        }
        let used = self.any(&claim, &key, goes, uses).await?;
        settle(&self.client, &*claim, CLAIM, used).await
    }
}

impl Claims {
    /// Whether a Pod uses a claim in some way. With `surely`, the API server is asked if the cache shows none: it may be
    /// behind, and a removed finalizer cannot be put back.
    async fn any(
        &self,
        claim: &PersistentVolumeClaim,
        key: &Key,
        surely: bool,
        way: fn(&PodView, &PersistentVolumeClaim) -> bool,
    ) -> Result<bool, Status> {
        let known = self.by_claim.get(&pods::claim_key(&key.namespace, &key.name));
        if known.iter().any(|pod| way(pod, claim)) {
            return Ok(true);
        }
        if !surely {
            return Ok(false);
        }
        let pods = self.client.resource::<PodView>(resource_of::<Pod>(), &key.namespace);
        let all = pods.list(&ListParams::default()).await?;
        Ok(all.items.iter().any(|pod| way(pod, claim)))
    }
}

/// Returns a claim that tells whether Pods name it; `None` if it does (upstream's `updateUnusedCondition`).
fn told(claim: &PersistentVolumeClaim, named: bool, now: Timestamp) -> Option<PersistentVolumeClaim> {
    let (status, reason, message) = if named {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    let mut changed = claim.clone();
    let all = changed.status.get_or_insert_default().conditions.get_or_insert_default();
    if all.iter().any(|c| c.type_ == UNUSED && c.status == status) {
        return None;
    }
    all.retain(|c| c.type_ != UNUSED);
    all.push(PersistentVolumeClaimCondition {
        type_: UNUSED.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
        last_probe_time: None,
    });
    Some(changed)
}

/// Protects PersistentVolumes that are bound.
pub(crate) struct Volumes {
    client: Client,
    volumes: Informer<PersistentVolume>,
}

impl Controller for Volumes {
    const NAME: &'static str = "persistentvolume-protection-controller";
    const ALIASES: &'static [&'static str] = &["pv-protection"];
    const ACCOUNT: &'static str = "pv-protection-controller";
    const QUEUE: &'static str = "pvprotection";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self { client: host.client(), volumes: host.informer() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.volumes, false);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(volume) = self.volumes.get_key(&key) else { return Ok(Next::Done) };
        let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
        settle(&self.client, &*volume, VOLUME, phase == Some("Bound")).await
    }
}

/// Protects VolumeAttributesClasses that claims or volumes name.
pub(crate) struct Classes {
    client: Client,
    classes: Informer<VolumeAttributesClass>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
}

impl Controller for Classes {
    const NAME: &'static str = "volumeattributesclass-protection-controller";
    const ACCOUNT: &'static str = "volumeattributesclass-protection-controller";
    const QUEUE: &'static str = "vacprotection";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            client: host.client(),
            classes: host.informer(),
            claims: host.informer(),
            volumes: host.informer(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.classes, false);
        // A deleted class may wait for a claim or volume that no longer names it.
        let queue = wiring.queue();
        self.claims.handle(move |change| {
            if let Some(claim) = before(change) {
                classes_of_claim(claim).for_each(|name| queue.add(Key::new("", name)));
            }
        });
        let queue = wiring.queue();
        self.volumes.handle(move |change| {
            if let Some(name) = before(change).and_then(class_of_volume) {
                queue.add(Key::new("", name));
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(class) = self.classes.get_key(&key) else { return Ok(Next::Done) };
        let named = |v: &PersistentVolume| class_of_volume(v) == Some(&*key.name);
        let asked = |c: &PersistentVolumeClaim| classes_of_claim(c).any(|name| *name == *key.name);
        let mut used =
            self.volumes.list().iter().any(|v| named(v)) || self.claims.list().iter().any(|c| asked(c));
        if !used && deleting(&class.metadata) && finalizers::has(&class.metadata, CLASS) {
            // DIFFERENCE: upstream goes by its caches alone, which may be behind; a removed finalizer cannot be put back.
            let all = ListParams::default();
            used = self.client.api::<PersistentVolume>("").list(&all).await?.items.iter().any(named)
                || self.client.api::<PersistentVolumeClaim>("").list(&all).await?.items.iter().any(asked);
        }
        settle(&self.client, &*class, CLASS, used).await
    }
}

/// Returns the state that a change ended.
fn before<T>(change: &Change<T>) -> Option<&T> {
    match change {
        Change::Added(_) => None,
        Change::Updated { old, .. } | Change::Deleted(old) => Some(old),
    }
}

fn name(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a claim was made for an ephemeral volume of a Pod.
fn is_of(pod: &PodView, claim: &PersistentVolumeClaim) -> bool {
    pod.ephemeral_claims().iter().any(|made| made == name(claim)) && is_made_for(claim, pod.uid())
}

/// Whether a Pod keeps a claim. A Pod without a node does not: the kubelet starts no Pod with a claim that is being
/// deleted. A Pod that has ended does not hold its ephemeral claims, which may wait for it.
fn uses(pod: &PodView, claim: &PersistentVolumeClaim) -> bool {
    let named = || pod.claims().any(|named| named == name(claim));
    !pod.node.is_empty() && (named() || !pod.expired && is_of(pod, claim))
}

/// Whether a Pod that has not ended names a claim. One that is being deleted has, once none of its containers runs.
fn names(pod: &PodView, claim: &PersistentVolumeClaim) -> bool {
    !pod.is_terminal()
        && !pod.stopped
        && (pod.claims().any(|named| named == name(claim)) || is_of(pod, claim))
}

fn classes_of_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &String> {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let asked = spec.and_then(|s| s.volume_attributes_class_name.as_ref());
    let current = status.and_then(|s| s.current_volume_attributes_class_name.as_ref());
    let target = status.and_then(|s| s.modify_volume_status.as_ref());
    [asked, current, target.and_then(|t| t.target_volume_attributes_class_name.as_ref())]
        .into_iter()
        .flatten()
}

fn class_of_volume(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.volume_attributes_class_name.as_deref()
}

/// Returns the finalizers that an object should have, if it has other ones.
fn plan(meta: &ObjectMeta, finalizer: &str, used: bool) -> Option<Vec<String>> {
    match (deleting(meta), used) {
        (true, false) => finalizers::without(meta, finalizer),
        (true, true) => None,
        (false, _) => finalizers::with(meta, finalizer),
    }
}

async fn settle<T: KubeObject>(
    client: &Client,
    object: &T,
    finalizer: &str,
    used: bool,
) -> Result<Next, Status> {
    let Some(finalizers) = plan(object.metadata(), finalizer, used) else { return Ok(Next::Done) };
    let mut wanted = object.clone();
    wanted.metadata_mut().finalizers = Some(finalizers);
    let namespace = object.metadata().namespace.as_deref().unwrap_or_default();
    match client.api::<T>(namespace).update(&wanted).await {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(Next::Done),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::tests::view;

    /// Upstream's 8 tests of `protectionutil`, whose functions are `without` and `with` here:
    /// `TestIsDeletionCandidateLackDeleteTimeAndFinalizer`, `TestIsDeletionCandidateLackDeleteTime`,
    /// `TestIsDeletionCandidateLackFinalizer`, `TestIsDeletionCandidateSuccess`,
    /// `TestNeedToAddFinalizerHasDeleteTimeAndFinalizer`, `TestNeedToAddFinalizerHasDeleteTime`,
    /// `TestNeedToAddFinalizerHasFinalizer` and `TestNeedToAddFinalizerSuccess`.
    #[test]
    fn finalizers() {
        let check = |meta: Value, used: bool, expected: Option<&[&str]>| {
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            let got = plan(&meta, CLASS, used);
            assert_eq!(
                got.as_deref().map(|g| g.iter().map(String::as_str).collect::<Vec<_>>()).as_deref(),
                expected
            );
        };
        let gone = "2026-01-01T00:00:00Z";
        check(json!({}), false, Some(&[CLASS]));
        check(json!({}), true, Some(&[CLASS]));
        check(json!({"finalizers": ["x", CLASS]}), false, None);
        check(json!({"finalizers": ["x", CLASS], "deletionTimestamp": gone}), true, None);
        check(json!({"finalizers": ["x", CLASS], "deletionTimestamp": gone}), false, Some(&["x"]));
        check(json!({"finalizers": ["x"], "deletionTimestamp": gone}), false, None);
    }

    #[test]
    fn use_by_pods() {
        let check = |node: Option<&str>, volume: Value, meta: Value, expected: bool| {
            let mut pod = json!({"metadata": meta, "spec": {"containers": [], "volumes": [volume]}});
            pod["metadata"]["name"] = json!("p");
            pod["metadata"]["uid"] = json!("u");
            pod["spec"]["nodeName"] = json!(node);
            assert_eq!(uses(&view(&pod), &claim_of("u")), expected);
            if volume.get("ephemeral").is_some() {
                assert!(!uses(&view(&pod), &claim_of("another")), "it was made for somebody else");
            }
        };
        let claim = json!({"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}});
        let ephemeral = json!({"name": "v", "ephemeral": {}});
        let ended = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        check(Some("n"), claim.clone(), json!({}), true);
        check(None, claim.clone(), json!({}), false);
        check(Some("n"), claim, ended.clone(), true);
        check(Some("n"), ephemeral.clone(), json!({}), true);
        check(Some("n"), ephemeral, ended, false);
        check(Some("n"), json!({"name": "v", "emptyDir": {}}), json!({}), false);
    }
    /// The claim `p-v`, made for the Pod with this uid.
    fn claim_of(uid: &str) -> PersistentVolumeClaim {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
        serde_json::from_value(json!({"metadata": {"name": "p-v", "ownerReferences": [owner]}})).unwrap()
    }

    /// Pods that are being deleted name their claims as long as a container runs.
    #[test]
    fn claims_of_pods_that_go() {
        let check = |deleting: bool, state: Value, want: bool| {
            let volume = json!({"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}});
            let at = deleting.then_some("2026-01-01T00:00:00Z");
            let pod = json!({"metadata": {"name": "p", "deletionTimestamp": at},
                "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}]},
                "spec": {"nodeName": "n", "containers": [], "volumes": [volume]}});
            assert_eq!(names(&view(&pod), &claim_of("none")), want, "{pod}");
        };
        check(true, json!({"running": {}}), true);
        check(true, json!({"terminated": {"exitCode": 0}}), false);
        check(false, json!({"terminated": {"exitCode": 0}}), true);
    }

    /// The conditions of upstream's `TestPVCProtectionController` with the gate `PersistentVolumeClaimUnusedSinceTime`; the
    /// simulation has its 37 cases whole.
    #[test]
    fn claims_that_nobody_names() {
        let check = |before: Option<&str>, pod: Option<(&str, &str)>, want: Option<(&str, &str)>| {
            let mut claim = claim_of("none");
            let conditions = before.map(|status| {
                vec![PersistentVolumeClaimCondition {
                    type_: UNUSED.to_owned(),
                    status: status.to_owned(),
                    ..PersistentVolumeClaimCondition::default()
                }]
            });
            claim.status.get_or_insert_default().conditions = conditions;
            let named = pod.is_some_and(|(phase, node)| {
                let volume = json!({"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}});
                let pod = json!({"metadata": {"name": "p"}, "status": {"phase": phase},
                    "spec": {"nodeName": node, "containers": [], "volumes": [volume]}});
                names(&view(&pod), &claim)
            });
            let got = told(&claim, named, Timestamp::UNIX_EPOCH);
            let got = got.map(|c| c.status.unwrap().conditions.unwrap());
            let got = got.as_ref().map(|all| (all[0].status.as_str(), all[0].reason.as_deref().unwrap()));
            assert_eq!(got, want, "{before:?} {pod:?}");
        };
        let (unused, used) = (Some(("True", "NoPodsUsingPVC")), Some(("False", "PodUsingPVC")));
        check(None, None, unused);
        check(Some("True"), None, None);
        check(Some("True"), Some(("Running", "n")), used);
        check(None, Some(("Running", "n")), used);
        check(None, Some(("Pending", "")), used);
        check(None, Some(("Succeeded", "n")), unused);
        check(None, Some(("Failed", "n")), unused);
        check(Some("False"), Some(("Running", "n")), None);
        check(Some("False"), None, unused);
    }
}
