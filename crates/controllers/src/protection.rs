//! Protection of storage objects in use: a finalizer holds a claim, a volume or a class of volume
//! attributes for as long as something uses it, and goes when nothing does.

use api::Status;
use client::{Cached, Change, Client, Factory, Informer, Key, KubeObject, ListParams, Queue};
use component::Shutdown;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";

/// Starts the protection of PersistentVolumeClaims that Pods use.
pub(crate) fn start_claims(client: Client, factory: &Factory, shutdown: &Shutdown) {
    let (claims, pods) = (factory.informer::<PersistentVolumeClaim>(), factory.informer::<Pod>());
    let queue = Queue::<Key>::default();
    enqueue_all(&claims, &queue);
    let enqueue = queue.clone();
    pods.handle(move |change| {
        let (used, freed) = match change {
            Change::Added(pod) | Change::Deleted(pod) => (Some(pod), None),
            Change::Updated { old, new } => {
                (Some(new), (old.metadata.uid != new.metadata.uid).then_some(old))
            }
        };
        for pod in used.into_iter().chain(freed) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            claims_of(pod).for_each(|name| enqueue.add(Key::new(namespace, &name)));
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("pvc-protection", 1, shutdown, move |key| {
            let claim = claims.get_key(&key);
            let cached = pods.list_namespace(&key.namespace).iter().any(|p| uses(p, &key.name));
            let client = client.clone();
            async move {
                let Some(claim) = claim else { return Ok(()) };
                let mut used = cached;
                if !used && claim.metadata.deletion_timestamp.is_some() {
                    // The cache may be behind; once the finalizer is gone there is no way back.
                    let all = client.api::<Pod>(&key.namespace).list(&ListParams::default()).await?;
                    used = all.items.iter().any(|p| uses(p, &key.name));
                }
                settle(&client, &*claim, CLAIM, used).await
            }
        });
    });
}

/// Starts the protection of PersistentVolumes that are bound.
pub(crate) fn start_volumes(client: Client, factory: &Factory, shutdown: &Shutdown) {
    let volumes = factory.informer::<PersistentVolume>();
    let queue = Queue::<Key>::default();
    enqueue_all(&volumes, &queue);
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("pv-protection", 1, shutdown, move |key| {
            let (volume, client) = (volumes.get_key(&key), client.clone());
            async move {
                let Some(volume) = volume else { return Ok(()) };
                let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
                settle(&client, &*volume, VOLUME, phase == Some("Bound")).await
            }
        });
    });
}

/// Starts the protection of VolumeAttributesClasses that claims or volumes name.
pub(crate) fn start_classes(client: Client, factory: &Factory, shutdown: &Shutdown) {
    let classes = factory.informer::<VolumeAttributesClass>();
    let claims = factory.informer::<PersistentVolumeClaim>();
    let volumes = factory.informer::<PersistentVolume>();
    let queue = Queue::<Key>::default();
    enqueue_all(&classes, &queue);
    // What is let go may be what a deleted class waits for.
    let enqueue = queue.clone();
    claims.handle(move |change| {
        if let Some(claim) = before(change) {
            for name in classes_of_claim(claim) {
                enqueue.add(Key::new("", name));
            }
        }
    });
    let enqueue = queue.clone();
    volumes.handle(move |change| {
        if let Some(name) = before(change).and_then(class_of_volume) {
            enqueue.add(Key::new("", name));
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("vac-protection", 1, shutdown, move |key| {
            let used = volumes.list().iter().any(|v| class_of_volume(v) == Some(&*key.name))
                || claims.list().iter().any(|c| classes_of_claim(c).any(|name| *name == *key.name));
            let (class, client) = (classes.get_key(&key), client.clone());
            async move {
                let Some(class) = class else { return Ok(()) };
                settle(&client, &*class, CLASS, used).await
            }
        });
    });
}

fn enqueue_all<T: KubeObject + Cached>(informer: &Informer<T>, queue: &Queue<Key>) {
    let enqueue = queue.clone();
    informer.handle(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            enqueue.add(change.object().key());
        }
    });
}

/// The state that a change ended.
fn before<T>(change: &Change<T>) -> Option<&T> {
    match change {
        Change::Added(_) => None,
        Change::Updated { old, .. } | Change::Deleted(old) => Some(old),
    }
}

/// The claims that a Pod's volumes are, by name.
fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).filter_map(move |v| {
        let claim = v.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone());
        claim.or_else(|| v.ephemeral.as_ref().map(|_| format!("{name}-{}", v.name)))
    })
}

/// Whether a Pod keeps a claim. One without a node does not: the kubelet starts no Pod with a claim that
/// is being deleted. One that has ended does not hold its ephemeral claims, which may wait for it.
fn uses(pod: &Pod, claim: &str) -> bool {
    let Some(spec) = pod.spec.as_ref().filter(|s| s.node_name.is_some()) else { return false };
    let m = &pod.metadata;
    let ended = m.deletion_timestamp.is_some() && m.deletion_grace_period_seconds == Some(0);
    let name = m.name.as_deref().unwrap_or_default();
    spec.volumes.iter().flatten().any(|v| {
        v.persistent_volume_claim.as_ref().is_some_and(|c| c.claim_name == claim)
            || !ended && v.ephemeral.is_some() && format!("{name}-{}", v.name) == claim
    })
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

/// The finalizers an object should have, if it has others.
fn plan(meta: &ObjectMeta, finalizer: &str, used: bool) -> Option<Vec<String>> {
    let mut all = meta.finalizers.clone().unwrap_or_default();
    let (has, deleted) = (all.iter().any(|f| f == finalizer), meta.deletion_timestamp.is_some());
    if deleted && has && !used {
        all.retain(|f| f != finalizer);
    } else if !deleted && !has {
        all.push(finalizer.to_owned());
    } else {
        return None;
    }
    Some(all)
}

async fn settle<T: KubeObject>(
    client: &Client,
    object: &T,
    finalizer: &str,
    used: bool,
) -> Result<(), Status> {
    let Some(finalizers) = plan(object.metadata(), finalizer, used) else { return Ok(()) };
    let mut wanted = object.clone();
    wanted.metadata_mut().finalizers = Some(finalizers);
    let namespace = object.metadata().namespace.as_deref().unwrap_or_default();
    match client.api::<T>(namespace).update(&wanted).await {
        Ok(_) => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            assert_eq!(uses(&serde_json::from_value(pod).unwrap(), "p-v"), expected);
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
