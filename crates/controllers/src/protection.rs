//! Protection of storage objects in use: a finalizer holds a claim, a volume or a class of volume attributes as long as
//! it is used, and is removed after that.

use std::sync::Arc;

use api::Status;
use client::{Change, Client, Informer, Key, KubeObject, ListParams, resource_of};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::{deleting, finalizers, pods};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";

/// Protects PersistentVolumeClaims that Pods use.
pub(crate) struct Claims {
    client: Client,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<PodView>,
}

impl Controller for Claims {
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const ALIASES: &'static [&'static str] = &["pvc-protection"];
    const ACCOUNT: &'static str = "pvc-protection-controller";
    const QUEUE: &'static str = "pvcprotection";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self { client: host.client(), claims: host.informer(), pods: pods::informer(host.factory()) }
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
        let mut used = self.pods.list_namespace(&key.namespace).iter().any(|p| uses(p, &key.name));
        if !used && claim.metadata.deletion_timestamp.is_some() {
            // The cache may be behind; a removed finalizer cannot be put back.
            let pods = self.client.resource::<PodView>(resource_of::<Pod>(), &key.namespace);
            let all = pods.list(&ListParams::default()).await?;
            used = all.items.iter().any(|p| uses(p, &key.name));
        }
        settle(&self.client, &*claim, CLAIM, used).await
    }
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
        let used = self.volumes.list().iter().any(|v| class_of_volume(v) == Some(&*key.name))
            || self.claims.list().iter().any(|c| classes_of_claim(c).any(|name| *name == *key.name));
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

/// Whether a Pod keeps a claim. A Pod without a node does not: the kubelet starts no Pod with a claim that is being
/// deleted. A Pod that has ended does not hold its ephemeral claims, which may wait for it.
fn uses(pod: &PodView, claim: &str) -> bool {
    let made = || pod.ephemeral_claims().iter().any(|name| name == claim);
    !pod.node.is_empty() && (pod.claims().any(|name| name == claim) || !pod.expired && made())
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
            pod["spec"]["nodeName"] = json!(node);
            assert_eq!(uses(&view(&pod), "p-v"), expected);
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
}
