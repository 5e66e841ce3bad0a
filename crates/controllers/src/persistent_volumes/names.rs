//! Annotations, finalizers and fields of claims and volumes that only their controllers read.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume as Volume, PersistentVolumeClaim as Claim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::volumes::BIND_COMPLETED;

/// The provisioner of a volume.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The CSI driver that took over from a built-in plugin.
pub(super) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// The provisioner that is to make a claim's volume.
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, by its older name.
pub(super) const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The older place of the class's name.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The size of a volume's file system before the volume grew.
pub(super) const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// The marks of the class that claims without a class get.
pub(crate) const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The finalizer of a volume whose content an external provisioner removes.
pub(crate) const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// The finalizer of a volume whose content a built-in plugin removes.
pub(super) const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";
/// The prefix of the names of built-in provisioners.
pub(super) const IN_TREE: &str = "kubernetes.io/";

/// Returns an annotation of an object.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Sets an annotation of an object.
pub(crate) fn annotate(meta: &mut ObjectMeta, name: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// Removes an annotation of an object; returns whether it was there.
pub(crate) fn unannotate(meta: &mut ObjectMeta, name: &str) -> bool {
    let Some(all) = &mut meta.annotations else { return false };
    let was = all.remove(name).is_some();
    if all.is_empty() {
        meta.annotations = None;
    }
    was
}

/// Returns an object's name.
pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Returns an object's namespace, "" for none.
pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// Returns an object's uid.
pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Returns a claim's namespace and name, separated by a slash.
pub(crate) fn key_of(claim: &Claim) -> String {
    format!("{}/{}", namespace(&claim.metadata), name(&claim.metadata))
}

/// Returns the spec of a claim; an empty one where it has none.
pub(crate) fn claim_spec(claim: &Claim) -> &PersistentVolumeClaimSpec {
    static EMPTY: LazyLock<PersistentVolumeClaimSpec> = LazyLock::new(Default::default);
    claim.spec.as_ref().unwrap_or(&EMPTY)
}

/// Returns the spec of a volume; an empty one where it has none.
pub(crate) fn volume_spec(volume: &Volume) -> &PersistentVolumeSpec {
    static EMPTY: LazyLock<PersistentVolumeSpec> = LazyLock::new(Default::default);
    volume.spec.as_ref().unwrap_or(&EMPTY)
}

/// Returns the reference to a volume's claim.
pub(crate) fn claim_of(volume: &Volume) -> Option<&ObjectReference> {
    volume_spec(volume).claim_ref.as_ref()
}

/// The claim to which a volume refers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    /// The claim's namespace.
    pub(crate) namespace: &'a str,
    /// The claim's name.
    pub(crate) name: &'a str,
    /// The claim's uid, "" before the binding.
    pub(crate) uid: &'a str,
}

impl<'a> Named<'a> {
    /// Reads a reference.
    pub(crate) fn of(reference: &'a ObjectReference) -> Self {
        Self {
            namespace: reference.namespace.as_deref().unwrap_or_default(),
            name: reference.name.as_deref().unwrap_or_default(),
            uid: reference.uid.as_deref().unwrap_or_default(),
        }
    }
}

/// Whether a claim names a class, if only the empty one.
pub(super) fn has_class(claim: &Claim) -> bool {
    annotation(&claim.metadata, BETA_CLASS).is_some() || claim_spec(claim).storage_class_name.is_some()
}

/// Returns a volume's phase, "" before it has one.
pub(crate) fn phase_of_volume(volume: &Volume) -> &str {
    volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Returns a claim's phase, "" before it has one.
pub(crate) fn phase_of_claim(claim: &Claim) -> &str {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Whether a claim has not been bound yet.
pub(super) fn is_unbound(claim: &Claim) -> bool {
    annotation(&claim.metadata, BIND_COMPLETED).is_none()
}

/// Returns what becomes of a volume whose claim is gone.
pub(crate) fn reclaim_policy(volume: &Volume) -> &str {
    volume_spec(volume).persistent_volume_reclaim_policy.as_deref().unwrap_or_default()
}

/// Whether a class is marked as default.
pub(super) fn is_default(class: &StorageClass) -> bool {
    DEFAULT_CLASS.iter().any(|mark| annotation(&class.metadata, mark) == Some("true"))
}

/// Returns the newest of the classes that are marked as default; of several, the first by name.
pub(super) fn default_class<'a>(
    classes: impl IntoIterator<Item = &'a StorageClass>,
) -> Option<&'a StorageClass> {
    classes.into_iter().filter(|c| is_default(c)).min_by(|a, b| {
        let made = |c: &StorageClass| c.metadata.creation_timestamp.as_ref().map(|t| t.0);
        made(b).cmp(&made(a)).then_with(|| name(&a.metadata).cmp(name(&b.metadata)))
    })
}
