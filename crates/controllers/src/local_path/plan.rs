//! The decisions of the provisioner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume as Volume,
    PersistentVolumeClaim as Claim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::local_path::{self, DIRECTORY, NODE, PROVISIONER, REMOVE, REMOVED};
use objects::volumes;

use crate::common::{deleting, finalizers};
use crate::persistent_volumes::{
    EXTERNAL_FINALIZER, Named, PROVISIONED_BY, PROVISIONER as ASKED, annotate, annotation, claim_of,
    claim_spec, name, phase_of_volume, reclaim_policy, uid,
};
use crate::views::NodeView;

/// The label by which a volume names its node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The next step about a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ForClaim {
    /// Nothing: it is not ours, it has a volume, or it waits for a Pod.
    Nothing,
    /// A volume is to be made.
    Make(Box<Volume>),
    /// It gets no volume.
    Refuse {
        /// Why.
        why: String,
        /// Whether the scheduler is to choose another node.
        elsewhere: bool,
    },
}

/// Decides about a claim of this class. `node` finds a node.
pub(super) fn claim(
    claim: &Claim,
    class: Option<&StorageClass>,
    node: impl Fn(&str) -> Option<Arc<NodeView>>,
) -> ForClaim {
    let asked = annotation(&claim.metadata, ASKED) == Some(PROVISIONER);
    let Some(class) = class.filter(|c| asked && c.provisioner == PROVISIONER) else {
        return ForClaim::Nothing;
    };
    if !volumes::volume_name(claim).is_empty() {
        return ForClaim::Nothing;
    }
    if let Some(why) = unsupported(claim, class) {
        return ForClaim::Refuse { why, elsewhere: false };
    }
    let Some(selected) = volumes::selected_node(claim) else { return ForClaim::Nothing };
    let elsewhere = |why: String| ForClaim::Refuse { why, elsewhere: true };
    let Some(node) = node(selected) else {
        return elsewhere(format!("failed to get target node: node {selected:?} not found"));
    };
    let Some(directory) = annotation(&node.metadata, DIRECTORY).filter(|d| d.starts_with('/')) else {
        return elsewhere(format!("node {selected:?} has no directory for volumes"));
    };
    let hostname = node.metadata.labels.as_ref().and_then(|l| l.get(HOSTNAME));
    let Some(hostname) = hostname else {
        return elsewhere(format!("node {selected:?} has no label {HOSTNAME}"));
    };
    ForClaim::Make(Box::new(volume(claim, class, selected, hostname, directory)))
}

/// Says what a claim or its class asks for that a directory cannot give.
fn unsupported(claim: &Claim, class: &StorageClass) -> Option<String> {
    let spec = claim_spec(claim);
    let once = |mode: &String| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod");
    let why = if !volumes::waits_for_consumer(Some(class)).unwrap_or(false) {
        "the class must have the volumeBindingMode WaitForFirstConsumer: a volume is on the node of its first Pod"
    } else if class.parameters.as_ref().is_some_and(|p| !p.is_empty()) {
        "the class has parameters, and the provisioner knows none"
    } else if !spec.access_modes.iter().flatten().all(once) {
        "only the access modes ReadWriteOnce and ReadWriteOncePod are supported"
    } else if spec.volume_mode.as_deref() == Some("Block") {
        "only the volume mode Filesystem is supported"
    } else if spec.selector.is_some() {
        "claims with a selector are not supported"
    } else if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        "claims with a data source are not supported"
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn volume(claim: &Claim, class: &StorageClass, node: &str, hostname: &str, directory: &str) -> Volume {
    let name = local_path::name_for(uid(&claim.metadata));
    let path = local_path::join(directory, &name);
    let mut metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    annotate(&mut metadata, PROVISIONED_BY, PROVISIONER);
    annotate(&mut metadata, NODE, node);
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    if policy == "Delete" {
        metadata.finalizers = Some(vec![EXTERNAL_FINALIZER.to_owned()]);
    }
    let on_node = NodeSelectorRequirement {
        key: HOSTNAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![hostname.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![on_node]), match_fields: None };
    let spec = claim_spec(claim);
    let capacity = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage").cloned());
    Volume {
        metadata,
        spec: Some(PersistentVolumeSpec {
            capacity: capacity.map(|size| BTreeMap::from([("storage".to_owned(), size)])),
            access_modes: spec.access_modes.clone(),
            claim_ref: Some(volumes::reference(claim)),
            storage_class_name: Some(volumes::claim_class(claim).to_owned()),
            persistent_volume_reclaim_policy: Some(policy),
            mount_options: class.mount_options.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            local: Some(LocalVolumeSource { path, fs_type: None }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// The next step about a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ForVolume {
    /// Nothing: it is not ours, or it is used.
    Nothing,
    /// Its deletion is to begin, if it still is as it was seen.
    Delete,
    /// Its node is to remove its content.
    Ask,
    /// It is to have these finalizers.
    Finalizers(Vec<String>),
}

/// Whether a volume was made here.
pub(super) fn is_ours(volume: &Volume) -> bool {
    annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER)
        && local_path::is_name(name(&volume.metadata))
}

/// Returns the name of the node that has a volume's content.
pub(super) fn node_of(volume: &Volume) -> &str {
    annotation(&volume.metadata, NODE).unwrap_or_default()
}

/// Whether the content of a volume is to be removed: its deletion has begun, its policy wants that, and no claim has
/// it any more. A volume whose deletion has begun can be bound to no other claim.
pub(super) fn is_due(volume: &Volume) -> bool {
    let free = match phase_of_volume(volume) {
        "Released" | "Failed" => true,
        "Available" | "" => claim_of(volume).is_none_or(|r| Named::of(r).uid.is_empty()),
        _ => false,
    };
    is_ours(volume)
        && free
        && deleting(&volume.metadata)
        && reclaim_policy(volume) == "Delete"
        && finalizers::has(&volume.metadata, EXTERNAL_FINALIZER)
}

/// Decides about a volume. `node` is its node, if that is there.
pub(super) fn for_volume(volume: &Volume, node: Option<&NodeView>) -> ForVolume {
    if !is_ours(volume) {
        return ForVolume::Nothing;
    }
    let without = || finalizers::without(&volume.metadata, EXTERNAL_FINALIZER);
    if is_due(volume) {
        let done = node.is_none_or(|node| {
            // A node that is gone answers no more: what it has of the volume stays there.
            let has =
                |annotation| local_path::names(&node.metadata, annotation).contains(name(&volume.metadata));
            has(REMOVE) && has(REMOVED)
        });
        return match without() {
            Some(left) if done => ForVolume::Finalizers(left),
            _ => ForVolume::Ask,
        };
    }
    if reclaim_policy(volume) != "Delete" {
        return without().map_or(ForVolume::Nothing, ForVolume::Finalizers);
    }
    if deleting(&volume.metadata) {
        return ForVolume::Nothing;
    }
    if let Some(all) = finalizers::with(&volume.metadata, EXTERNAL_FINALIZER) {
        return ForVolume::Finalizers(all);
    }
    if phase_of_volume(volume) == "Released" { ForVolume::Delete } else { ForVolume::Nothing }
}

/// Returns the names of the volumes whose content a node is to remove, if the node is not asked for exactly these.
pub(super) fn for_node<'v>(
    node: &NodeView,
    volumes: impl IntoIterator<Item = &'v Volume>,
) -> Option<BTreeSet<String>> {
    let on_node = |v: &&Volume| node_of(v) == name(&node.metadata);
    let due = volumes.into_iter().filter(|v| is_due(v)).filter(on_node);
    let mut wanted: BTreeSet<String> = due.map(|v| name(&v.metadata).to_owned()).collect();
    if let Some(rest) = wanted.iter().nth(local_path::MOST).cloned() {
        wanted.split_off(&rest);
    }
    (local_path::names(&node.metadata, REMOVE) != wanted).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "0a1b2c3d-0000-4444-8888-0123456789ab";

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn made<T: serde::de::DeserializeOwned>(mut base: Value, more: &Value) -> T {
        merge(&mut base, more);
        serde_json::from_value(base).unwrap()
    }

    fn a_claim(more: Value) -> Claim {
        let base = json!({
            "metadata": {"namespace": "n", "name": "c", "uid": UID,
                "annotations": {ASKED: PROVISIONER, volumes::SELECTED_NODE: "a"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        made(base, &more)
    }

    fn a_class(more: Value) -> StorageClass {
        let base = json!({"metadata": {"name": "local-path"}, "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete"});
        made(base, &more)
    }

    fn a_node(annotations: Value) -> NodeView {
        let meta = json!({"name": "a", "labels": {HOSTNAME: "host-a"}, "annotations": annotations});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    }

    #[test]
    fn claims() {
        let check = |of_claim: Value, of_class: Value, expected: Result<Option<&str>, (&str, bool)>| {
            let (claimed, class) = (a_claim(of_claim.clone()), a_class(of_class));
            let node = |name: &str| match name {
                "a" => Some(Arc::new(a_node(json!({DIRECTORY: "/data/volumes"})))),
                "b" => Some(Arc::new(a_node(json!({})))),
                _ => None,
            };
            match (claim(&claimed, Some(&class), node), expected) {
                (ForClaim::Nothing, Ok(None)) => {}
                (ForClaim::Make(v), Ok(Some(path))) => {
                    assert_eq!(v.spec.unwrap().local.unwrap().path, path, "{of_claim}");
                }
                (ForClaim::Refuse { why, elsewhere }, Err((text, expected))) => {
                    assert!(why.contains(text) && elsewhere == expected, "{why}");
                }
                (got, expected) => panic!("{of_claim}: {got:?} instead of {expected:?}"),
            }
        };
        let none = || json!({});
        let path = format!("/data/volumes/pvc-{UID}");
        check(none(), none(), Ok(Some(&path)));
        check(json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}), none(), Ok(Some(&path)));
        check(json!({"metadata": {"annotations": {ASKED: "other"}}}), none(), Ok(None));
        check(none(), json!({"provisioner": "other"}), Ok(None));
        check(json!({"spec": {"volumeName": "v"}}), none(), Ok(None));
        check(
            json!({"metadata": {"annotations": {volumes::SELECTED_NODE: "z"}}}),
            none(),
            Err(("not found", true)),
        );
        check(
            json!({"metadata": {"annotations": {volumes::SELECTED_NODE: "b"}}}),
            none(),
            Err(("no directory", true)),
        );
        check(json!({"spec": {"accessModes": ["ReadWriteMany"]}}), none(), Err(("access modes", false)));
        check(
            json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}}),
            none(),
            Err(("access modes", false)),
        );
        check(json!({"spec": {"volumeMode": "Block"}}), none(), Err(("volume mode", false)));
        check(json!({"spec": {"selector": {}}}), none(), Err(("selector", false)));
        check(
            json!({"spec": {"dataSource": {"kind": "k", "name": "n"}}}),
            none(),
            Err(("data source", false)),
        );
        check(none(), json!({"volumeBindingMode": "Immediate"}), Err(("volumeBindingMode", false)));
        check(none(), json!({"parameters": {"a": "b"}}), Err(("parameters", false)));
    }

    #[test]
    fn a_claim_waits_for_its_pod() {
        let mut waiting = a_claim(json!({}));
        waiting.metadata.annotations.as_mut().unwrap().remove(volumes::SELECTED_NODE);
        assert_eq!(claim(&waiting, Some(&a_class(json!({}))), |_| None), ForClaim::Nothing);
        assert_eq!(claim(&a_claim(json!({})), None, |_| None), ForClaim::Nothing);
    }

    #[test]
    fn a_volume_is_whole() {
        let node = |_: &str| Some(Arc::new(a_node(json!({DIRECTORY: "/data/volumes"}))));
        let of = |class: &StorageClass| match claim(&a_claim(json!({})), Some(class), node) {
            ForClaim::Make(v) => *v,
            other => panic!("{other:?}"),
        };
        let volume = of(&a_class(json!({})));
        assert!(is_ours(&volume) && volumes::is_meant_for(&volume, &a_claim(json!({}))));
        assert_eq!(node_of(&volume), "a");
        assert_eq!(local_path::path_of(&volume, "/data/volumes"), Some(format!("/data/volumes/pvc-{UID}")));
        assert!(finalizers::has(&volume.metadata, EXTERNAL_FINALIZER));
        let labels = |host: &str| objects::Labels::from([(HOSTNAME.to_owned(), host.to_owned())]);
        assert!(volumes::admits(&volume, Some(&labels("host-a"))));
        assert!(!volumes::admits(&volume, Some(&labels("a"))));
        let kept = of(&a_class(json!({"reclaimPolicy": "Retain"})));
        assert_eq!((reclaim_policy(&kept), kept.metadata.finalizers.as_ref()), ("Retain", None));
    }

    fn a_volume(more: Value) -> Volume {
        let base = json!({
            "metadata": {"name": local_path::name_for(UID), "finalizers": ["x", EXTERNAL_FINALIZER],
                "annotations": {PROVISIONED_BY: PROVISIONER, NODE: "a"}},
            "spec": {"persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "n", "name": "c", "uid": UID}},
            "status": {"phase": "Released"},
        });
        made(base, &more)
    }

    const GONE: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn volumes_go_after_their_content() {
        let check = |volume: Value, node: Option<Value>, expected: &ForVolume| {
            let node = node.map(a_node);
            assert_eq!(for_volume(&a_volume(volume.clone()), node.as_ref()), *expected, "{volume}");
        };
        let (there, name) = (|| Some(json!({})), local_path::name_for(UID));
        let deleting = |more: Value| {
            let mut volume = json!({"metadata": {"deletionTimestamp": GONE}});
            merge(&mut volume, &more);
            volume
        };
        let left = ForVolume::Finalizers(vec!["x".to_owned()]);
        check(json!({}), there(), &ForVolume::Delete);
        check(json!({"status": {"phase": "Bound"}}), there(), &ForVolume::Nothing);
        check(json!({"metadata": {"annotations": {PROVISIONED_BY: "other"}}}), there(), &ForVolume::Nothing);
        check(json!({"metadata": {"name": "mine"}}), there(), &ForVolume::Nothing);
        check(deleting(json!({})), there(), &ForVolume::Ask);
        check(deleting(json!({})), Some(json!({REMOVE: name})), &ForVolume::Ask);
        // An answer to a question that nobody asks any more.
        check(deleting(json!({})), Some(json!({REMOVED: name})), &ForVolume::Ask);
        check(deleting(json!({})), Some(json!({REMOVE: name, REMOVED: name})), &left);
        check(deleting(json!({})), None, &left);
        check(deleting(json!({"status": {"phase": "Bound"}})), None, &ForVolume::Nothing);
        check(deleting(json!({"status": {"phase": "Available"}})), None, &ForVolume::Nothing);
        let free = json!({"status": {"phase": "Available"}, "spec": {"claimRef": null}});
        check(deleting(free), there(), &ForVolume::Ask);
        // Another policy was set: the content stays, and nothing holds the volume.
        let kept = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        check(kept.clone(), there(), &left);
        check(deleting(kept), there(), &left);
        let unheld = json!({"metadata": {"finalizers": ["x"]}, "status": {"phase": "Bound"}});
        let held = ForVolume::Finalizers(vec!["x".to_owned(), EXTERNAL_FINALIZER.to_owned()]);
        check(unheld, there(), &held);
    }

    #[test]
    fn a_node_is_asked_for_what_is_due() {
        let due = a_volume(json!({"metadata": {"deletionTimestamp": GONE}}));
        let other = a_volume(json!({"metadata": {"deletionTimestamp": GONE, "annotations": {NODE: "b"}}}));
        let used = a_volume(json!({"metadata": {"deletionTimestamp": GONE}, "status": {"phase": "Bound"}}));
        let name = local_path::name_for(UID);
        let one = Some(BTreeSet::from([name.clone()]));
        assert_eq!(for_node(&a_node(json!({})), [&due, &other, &used]), one);
        assert_eq!(for_node(&a_node(json!({REMOVE: name})), [&due]), None);
        assert_eq!(for_node(&a_node(json!({REMOVE: name})), [&used, &other]), Some(BTreeSet::new()));
        let many: Vec<Volume> = (0..100)
            .map(|i| {
                let uid = format!("{i:08x}-0000-4444-8888-0123456789ab");
                a_volume(json!({"metadata": {"deletionTimestamp": GONE, "name": local_path::name_for(&uid)}}))
            })
            .collect();
        assert_eq!(for_node(&a_node(json!({})), &many).unwrap().len(), local_path::MOST);
    }
}
