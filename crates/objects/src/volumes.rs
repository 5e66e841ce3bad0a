//! Claims and persistent volumes: which volume fits a claim, where it may be used, and how a claim is bound (upstream's
//! `component-helpers/storage`).
//!
//! The controller of persistent volumes binds claims at once, the scheduler those that wait for a Pod. Both choose by
//! [`Fitting`], so that neither undoes the other's choice.

use std::borrow::Borrow;

use api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm, Volume,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::labels::{Labels, Selector, SelectorError};
use crate::node_affinity::{self, Seen};
use crate::quantity::ResourceList;

/// The annotation of a claim that is bound for good; its value means nothing.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a claim or volume whose binding is not the user's own; its value means nothing.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a claim with the node for which a volume is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes nobody provisions.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The mode of classes whose claims are bound when a Pod needs them.
pub const WAIT_FOR_CONSUMER: &str = "WaitForFirstConsumer";
/// The access mode of claims that one Pod alone may use.
pub const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

/// The older place of the class's name, which still comes first.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const FILESYSTEM: &str = "Filesystem";

fn annotation<'m>(meta: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The name of a claim's class, "" for none.
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let said = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, BETA_CLASS).or_else(said).unwrap_or_default()
}

/// The name of a volume's class, "" for none.
pub fn volume_class(volume: &PersistentVolume) -> &str {
    let said = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, BETA_CLASS).or_else(said).unwrap_or_default()
}

/// The name of the volume that a claim names, "" for none.
pub fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).unwrap_or_default()
}

/// Whether a claim is bound for good.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !volume_name(claim).is_empty() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// The node for which a claim's volume is to be provisioned.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, SELECTED_NODE)
}

/// Whether claims of a class wait for a Pod; those without a class do not.
///
/// # Errors
/// In upstream's words, if the class does not say.
pub fn waits_for_consumer(class: Option<&StorageClass>) -> Result<bool, String> {
    let Some(class) = class else { return Ok(false) };
    class.volume_binding_mode.as_deref().map(|mode| mode == WAIT_FOR_CONSUMER).ok_or_else(|| {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        format!("VolumeBindingMode not set for StorageClass {}", api::go::quote(name))
    })
}

/// Whether a claim wants an access mode.
pub fn wants_mode(claim: &PersistentVolumeClaim, mode: &str) -> bool {
    claim.spec.iter().flat_map(|s| s.access_modes.iter().flatten()).any(|m| m == mode)
}

/// The claim that a Pod's volume uses, and whether it is made for the Pod alone; `None` if the volume uses none.
pub fn claim_of(pod: &str, volume: &Volume) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), false));
    }
    volume.ephemeral.as_ref().map(|_| (ephemeral_claim(pod, &volume.name), true))
}

/// The name of the claim that is made for a volume of a Pod.
pub fn ephemeral_claim(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// Whether a claim was made for the Pod of this uid.
pub fn is_made_for(claim: &PersistentVolumeClaim, uid: &str) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|o| o.controller == Some(true) && o.uid == uid)
}

/// Whether a volume is bound to a claim, or meant for it. A uid counts only if the volume names one.
pub fn is_meant_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(named) = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()) else { return false };
    let uid = named.uid.as_deref().unwrap_or_default();
    names(named, claim) && (uid.is_empty() || claim.metadata.uid.as_deref() == Some(uid))
}

fn names(named: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let (text, meta) = (|t: &Option<String>| t.clone().unwrap_or_default(), &claim.metadata);
    text(&named.name) == text(&meta.name) && text(&named.namespace) == text(&meta.namespace)
}

/// A volume with its binding to a claim written down; `None` if it says so already.
pub fn bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let by_user = is_meant_for(volume, claim);
    let marked = annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some();
    let named = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    let exact = named.is_some_and(|r| {
        names(r, claim)
            && r.uid.as_deref().unwrap_or_default() == claim.metadata.uid.as_deref().unwrap_or_default()
    });
    if exact && (by_user || marked) {
        return None;
    }
    let mut volume = volume.clone();
    if !exact {
        volume.spec.get_or_insert_default().claim_ref = Some(reference(claim));
    }
    if !by_user && !marked {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(volume)
}

/// The reference to a claim that a bound volume has.
pub fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    let meta = &claim.metadata;
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// Whether a volume can be used on nodes with these labels.
pub fn admits(volume: &PersistentVolume, labels: Option<&Labels>) -> bool {
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|a| a.required.as_ref()) else { return true };
    // Only labels count, so the node has no name here.
    let node = Seen { name: "", labels };
    required.node_selector_terms.iter().any(|term| node_affinity::matches(term, node))
}

/// Whether volumes of a class may be provisioned for nodes with these labels (upstream's `MatchTopologySelectorTerms`).
pub fn is_allowed(topologies: &[TopologySelectorTerm], labels: Option<&Labels>) -> bool {
    let has = |key: &str, values: &[String]| {
        labels.and_then(|l| l.get(key)).is_some_and(|value| values.contains(value))
    };
    topologies.is_empty()
        || topologies.iter().any(|term| {
            let wanted = term.match_label_expressions.as_deref().unwrap_or_default();
            !wanted.is_empty() && wanted.iter().all(|r| has(&r.key, &r.values))
        })
}

/// The storage that a claim asks for; `None` if it does not say.
pub fn requested(claim: &PersistentVolumeClaim) -> Option<Amount> {
    storage(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref())
}

/// The storage that a volume has.
pub fn capacity(volume: &PersistentVolume) -> Amount {
    storage(volume.spec.as_ref().and_then(|s| s.capacity.as_ref())).unwrap_or_default()
}

fn storage(list: Option<&ResourceList>) -> Option<Amount> {
    Amount::parse(&list?.get("storage")?.0).ok()
}

/// The volumes that fit a claim, as far as that does not depend on a node (upstream's `FindMatchingVolume`).
#[derive(Debug, Clone)]
pub struct Fitting<V> {
    /// Those that are meant for the claim, in the order in which they came.
    meant: Vec<V>,
    /// Those that are free, the smallest first; equals in the order in which they came.
    free: Vec<V>,
}

impl<V: Borrow<PersistentVolume>> Fitting<V> {
    /// Looks at each volume once.
    ///
    /// # Errors
    /// If the claim's selector is wrong.
    pub fn new(
        claim: &PersistentVolumeClaim,
        volumes: impl IntoIterator<Item = V>,
    ) -> Result<Self, SelectorError> {
        let selector = match claim.spec.as_ref().and_then(|s| s.selector.as_ref()) {
            Some(selector) => Some(Selector::new(Some(selector))?),
            None => None,
        };
        let wanted = requested(claim).unwrap_or_default();
        let (mut meant, mut free) = (Vec::new(), Vec::new());
        for v in volumes {
            let volume = v.borrow();
            let taken = volume.spec.as_ref().is_some_and(|s| s.claim_ref.is_some());
            let mine = is_meant_for(volume, claim);
            let size = capacity(volume);
            if taken && !mine || size < wanted || !is_alike(claim, volume) {
                continue;
            }
            if mine {
                meant.push(v);
            } else if is_free(claim, volume, selector.as_ref()) {
                free.push((size, v));
            }
        }
        free.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self { meant, free: free.into_iter().map(|(_, v)| v).collect() })
    }

    /// The volume for the claim wherever it is used: the one that is meant for it, else the smallest, unless the claim
    /// waits for a Pod.
    pub fn anywhere(&self, waits: bool) -> Option<&V> {
        self.meant.first().or_else(|| self.free.first().filter(|_| !waits))
    }

    /// The volume for the claim on nodes with these labels, of those that are not `taken`. If one is meant for the claim,
    /// no other will do.
    pub fn on(&self, labels: Option<&Labels>, taken: impl Fn(&PersistentVolume) -> bool) -> Option<&V> {
        let fits = |v: &&V| admits((*v).borrow(), labels);
        let left = |v: &&V| !taken((*v).borrow());
        match self.meant.iter().find(left) {
            Some(meant) => Some(meant).filter(fits),
            None => self.free.iter().filter(left).find(fits),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.meant.is_empty() && self.free.is_empty()
    }
}

/// Whether a volume is of the claim's mode and class of attributes, and stays.
fn is_alike(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let (wants, has) = (claim.spec.as_ref(), volume.spec.as_ref());
    let mode = wants.and_then(|s| s.volume_mode.as_deref()).unwrap_or(FILESYSTEM);
    let attributes = wants.and_then(|s| s.volume_attributes_class_name.as_deref()).unwrap_or_default();
    mode == has.and_then(|s| s.volume_mode.as_deref()).unwrap_or(FILESYSTEM)
        && attributes == has.and_then(|s| s.volume_attributes_class_name.as_deref()).unwrap_or_default()
        && volume.metadata.deletion_timestamp.is_none()
}

/// Whether a volume that nobody has claimed can be the claim's.
fn is_free(claim: &PersistentVolumeClaim, volume: &PersistentVolume, selector: Option<&Selector>) -> bool {
    volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available")
        && selector.is_none_or(|s| s.matches(volume.metadata.labels.as_ref()))
        && volume_class(volume) == claim_class(claim)
        && has_modes(claim, volume)
}

/// Whether a volume has every access mode that a claim wants.
pub fn has_modes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let has = volume.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
    claim.spec.iter().flat_map(|s| s.access_modes.iter().flatten()).all(|mode| has.contains(mode))
}

/// A key that sorts claims by the storage that they ask for, so that each gets the smallest volume that does.
pub fn by_size(claim: &PersistentVolumeClaim) -> Amount {
    requested(claim).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn merged(mut into: Value, from: &Value) -> Value {
        for (key, value) in from.as_object().unwrap() {
            into[key] = if value.is_object() && into[key].is_object() {
                merged(into[key].clone(), value)
            } else {
                value.clone()
            };
        }
        into
    }

    fn claim(name: &str, more: Value) -> PersistentVolumeClaim {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100G"}},
            "storageClassName": "wait", "volumeMode": "Filesystem",
        });
        let claim = json!({"metadata": {"name": name, "namespace": "myns"}, "spec": spec});
        serde_json::from_value(merged(claim, &more)).unwrap()
    }

    fn volume(name: &str, size: &str, more: Value) -> PersistentVolume {
        let volume = json!({
            "metadata": {"name": name},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "wait"},
            "status": {"phase": "Available"},
        });
        serde_json::from_value(merged(volume, &more)).unwrap()
    }

    fn only_on(value: &str) -> Value {
        let term = json!({"matchExpressions": [{"key": "key1", "operator": "In", "values": [value]}]});
        json!({"required": {"nodeSelectorTerms": [term]}})
    }

    /// The volumes of upstream's `TestFindMatchVolumeWithNode`.
    fn volumes() -> Vec<PersistentVolume> {
        let on = |value: &str| json!({"spec": {"nodeAffinity": only_on(value)}});
        vec![
            volume("local-small", "5G", json!({"spec": {"storageClassName": ""}})),
            volume("local-pd-very-large", "200E", json!({"spec": {"storageClassName": "large"}})),
            volume("affinity-pv", "100G", on("value1")),
            volume("affinity-pv2", "150G", on("value1")),
            volume(
                "affinity-prebound",
                "100G",
                json!({"spec": {"nodeAffinity": only_on("value1"), "claimRef": {"name": "claim02", "namespace": "myns"}}}),
            ),
            volume("affinity-pv3", "200G", on("value3")),
            volume(
                "affinity-pv4",
                "200G",
                json!({"spec": {"nodeAffinity": only_on("value4")}, "status": {"phase": null}}),
            ),
        ]
    }

    /// A claim, the value of the node's label, the volumes that are taken, and the volume that is chosen.
    fn check(
        volumes: &[PersistentVolume],
        claim: &PersistentVolumeClaim,
        node: &str,
        taken: &[&str],
        expected: &str,
    ) {
        let fitting = Fitting::new(claim, volumes).unwrap();
        let labels = Labels::from([("key1".to_owned(), node.to_owned())]);
        let name = |v: &PersistentVolume| v.metadata.name.clone().unwrap_or_default();
        let chosen = fitting.on(Some(&labels), |v| taken.contains(&name(v).as_str()));
        assert_eq!(chosen.map(|v| name(v)).unwrap_or_default(), expected, "{claim:?}");
    }

    /// The cases of upstream's `TestFindMatchVolumeWithNode`.
    #[test]
    fn volumes_for_claims() {
        let (all, one, two, three) = (volumes(), claim("claim01", json!({})), "claim02", "claim03");
        check(&all, &one, "value1", &[], "affinity-pv");
        check(&all, &claim(two, json!({})), "value1", &[], "affinity-prebound");
        check(&all, &one, "value1", &["affinity-pv"], "affinity-pv2");
        check(&all, &one, "value1", &["affinity-pv", "affinity-pv2"], "");
        check(
            &all,
            &claim("claim01", json!({"spec": {"accessModes": ["ReadWriteMany"]}})),
            "value1",
            &[],
            "",
        );
        check(&all, &one, "value2", &[], "");
        check(&all, &claim(two, json!({})), "value3", &[], "");
        check(&all, &claim("claim04", json!({})), "value4", &[], "");
        check(&all, &claim(three, json!({})), "value3", &[], "affinity-pv3");
        let class = |name: &str| json!({"spec": {"volumeAttributesClassName": name}});
        let gold: Vec<PersistentVolume> = all
            .iter()
            .map(|v| {
                serde_json::from_value(merged(serde_json::to_value(v).unwrap(), &class("gold"))).unwrap()
            })
            .collect();
        check(&gold, &claim("claim01", class("gold")), "value1", &[], "affinity-pv");
        check(&all, &claim("claim01", class("silver")), "value1", &[], "");
        check(&gold, &claim(two, class("silver")), "value1", &[], "");
        check(&gold, &one, "value1", &[], "");
    }

    #[test]
    fn more_rules_of_volumes() {
        let fits = |volume: PersistentVolume, more: Value, expected: bool| {
            let claim = claim("claim01", more.clone());
            assert_eq!(!Fitting::new(&claim, [&volume]).unwrap().is_empty(), expected, "{more} {volume:?}");
        };
        let plain = || volume("v", "100G", json!({"metadata": {"labels": {"a": "1"}}}));
        fits(plain(), json!({}), true);
        fits(plain(), json!({"spec": {"volumeMode": "Block"}}), false);
        fits(plain(), json!({"spec": {"volumeMode": null}}), true);
        fits(plain(), json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}}), true);
        fits(plain(), json!({"spec": {"selector": {"matchLabels": {"a": "2"}}}}), false);
        fits(plain(), json!({"spec": {"resources": {"requests": {"storage": "101G"}}}}), false);
        fits(plain(), json!({"metadata": {"annotations": {BETA_CLASS: "other"}}}), false);
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        fits(volume("v", "100G", leaving), json!({}), false);
        let by_uid = json!({"spec": {"claimRef": {"name": "claim01", "namespace": "myns", "uid": "u"}}});
        fits(volume("v", "100G", by_uid.clone()), json!({"metadata": {"uid": "u"}}), true);
        fits(volume("v", "100G", by_uid), json!({"metadata": {"uid": "w"}}), false);
        let wrong = claim("c", json!({"spec": {"selector": {"matchLabels": {"{}": ""}}}}));
        assert!(Fitting::new(&wrong, [&plain()]).is_err());
        let all = [plain(), volume("small", "100G", json!({}))];
        let free = Fitting::new(&claim("claim01", json!({})), &all).unwrap();
        assert_eq!(free.anywhere(false).and_then(|v| v.metadata.name.as_deref()), Some("v"));
        assert!(free.anywhere(true).is_none(), "it waits for its Pod");
    }

    #[test]
    fn bindings() {
        let claim = claim("claim01", json!({"metadata": {"uid": "u", "resourceVersion": "7"}}));
        let bound = |more: Value| {
            let bound = bound_to(&volume("v", "1G", more), &claim)?;
            let uid = bound.spec.unwrap().claim_ref.unwrap().uid;
            Some((uid, bound.metadata.annotations.is_some_and(|a| a.contains_key(BOUND_BY_CONTROLLER))))
        };
        let uid = || Some("u".to_owned());
        assert_eq!(bound(json!({})), Some((uid(), true)));
        let by_user = json!({"spec": {"claimRef": {"name": "claim01", "namespace": "myns"}}});
        assert_eq!(bound(by_user), Some((uid(), false)));
        let done = json!({"spec": {"claimRef": {"name": "claim01", "namespace": "myns", "uid": "u"}}});
        assert_eq!(bound(done), None);
        let others = json!({"spec": {"claimRef": {"name": "claim02", "namespace": "myns", "uid": "w"}}});
        assert_eq!(bound(others), Some((uid(), true)));
        let class = |mode: Value| {
            let class = json!({"metadata": {"name": "c"}, "provisioner": "p", "volumeBindingMode": mode});
            waits_for_consumer(Some(&serde_json::from_value(class).unwrap()))
        };
        assert_eq!(waits_for_consumer(None), Ok(false));
        assert_eq!(class(json!("Immediate")), Ok(false));
        assert_eq!(class(json!(WAIT_FOR_CONSUMER)), Ok(true));
        assert_eq!(class(json!(null)), Err("VolumeBindingMode not set for StorageClass \"c\"".to_owned()));
    }

    /// After upstream's `TestMatchTopologySelectorTerms`.
    #[test]
    fn topologies() {
        let labels = Labels::from([("zone".to_owned(), "a".to_owned()), ("rack".to_owned(), "1".to_owned())]);
        let check = |terms: Value, expected: bool| {
            let parsed: Vec<TopologySelectorTerm> = serde_json::from_value(terms.clone()).unwrap();
            assert_eq!(is_allowed(&parsed, Some(&labels)), expected, "{terms}");
        };
        let term = |pairs: &[(&str, &[&str])]| {
            let all: Vec<Value> = pairs.iter().map(|(k, v)| json!({"key": k, "values": v})).collect();
            json!({"matchLabelExpressions": all})
        };
        check(json!([]), true);
        check(json!([{}]), false);
        check(json!([term(&[("zone", &["a", "b"])])]), true);
        check(json!([term(&[("zone", &["b"])])]), false);
        check(json!([term(&[("host", &["a"])])]), false);
        check(json!([term(&[("zone", &["a"]), ("rack", &["2"])])]), false);
        check(json!([term(&[("zone", &["b"])]), term(&[("rack", &["1"])])]), true);
    }

    #[test]
    fn claims_of_pods() {
        let volume = |source: Value| serde_json::from_value::<Volume>(source).unwrap();
        let named = volume(json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}));
        assert_eq!(claim_of("p", &named), Some(("c".to_owned(), false)));
        assert_eq!(
            claim_of("p", &volume(json!({"name": "v", "ephemeral": {}}))),
            Some(("p-v".to_owned(), true))
        );
        assert_eq!(claim_of("p", &volume(json!({"name": "v", "emptyDir": {}}))), None);
        let owners =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
        let made = claim("p-v", json!({"metadata": {"ownerReferences": owners}}));
        assert!(is_made_for(&made, "u") && !is_made_for(&made, "w"));
        let done = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "v"}});
        assert!(is_bound(&claim("c", done)) && !is_bound(&claim("c", json!({"spec": {"volumeName": "v"}}))));
    }
}
