//! The names of volumes and attachments; upstream's.

use std::borrow::Cow;
use std::fmt::Write;

use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use objects::migration;
use sha2::{Digest, Sha256};

/// The beginning of the names by which nodes tell of volumes of drivers.
pub(super) const PREFIX: &str = "kubernetes.io/csi/";

/// A volume of a driver, by the names that these two know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handle {
    /// The driver.
    pub(super) driver: Text,
    /// The driver's name of the volume.
    pub(super) volume: Text,
}

impl Handle {
    /// That of a volume, also of one of a plugin from which a driver took over; none of a volume of another kind, nor of
    /// one that its driver cannot have, of which its Pods' kubelets tell.
    pub(super) fn of(volume: &PersistentVolume) -> Option<Self> {
        Self::of_spec(migration::as_csi(volume).ok()?.spec.as_ref()?)
    }

    /// That of a driver's volume.
    pub(super) fn of_spec(spec: &PersistentVolumeSpec) -> Option<Self> {
        let source = spec.csi.as_ref()?;
        Some(Self { driver: source.driver.as_str().into(), volume: source.volume_handle.as_str().into() })
    }

    /// That of a volume of which a node tells.
    pub(super) fn told(name: &str) -> Option<Self> {
        let (driver, volume) = name.strip_prefix(PREFIX)?.split_once('^')?;
        Some(Self { driver: driver.into(), volume: volume.into() })
    }

    /// The name by which nodes tell of the volume.
    pub(super) fn unique_name(&self) -> String {
        format!("{PREFIX}{}^{}", self.driver, self.volume)
    }

    /// The name of the volume's attachment to a node.
    pub(super) fn attachment(&self, node: &str) -> String {
        let mut name = "csi-".to_owned();
        for byte in Sha256::digest(format!("{}{}{node}", self.volume, self.driver)) {
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

/// Whether an attachment has a name of the form that the controller gives: others are somebody else's.
pub(super) fn is_ours(attachment: &VolumeAttachment) -> bool {
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    let digest = name.strip_prefix("csi-").unwrap_or_default();
    digest.len() == 64 && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The one among the volumes of which a node tells that an attachment is of. So it is known even after its
/// PersistentVolume is gone.
pub(super) fn find<'a>(
    told: impl IntoIterator<Item = &'a str>,
    attachment: &str,
    node: &str,
) -> Option<&'a str> {
    told.into_iter().find(|name| Handle::told(name).is_some_and(|h| h.attachment(node) == attachment))
}

/// The volume of an attachment: the name of its PersistentVolume, or that by which nodes tell of one that Pods name
/// themselves, which no PersistentVolume can have.
pub(super) fn volume_of(attachment: &VolumeAttachment) -> Option<Cow<'_, str>> {
    let source = &attachment.spec.source;
    if let Some(name) = &source.persistent_volume_name {
        return Some(Cow::Borrowed(name));
    }
    Handle::of_spec(source.inline_volume_spec.as_ref()?).map(|of| Cow::Owned(of.unique_name()))
}

/// Whether a volume is one that Pods name themselves.
pub(super) fn is_inline(volume: &str) -> bool {
    volume.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::tests::view;

    /// Upstream's 5 cases of `Test_CreateVolumeSpec`: a volume that a Pod names itself, or its claim's; the form in which a
    /// driver has it, if one does.
    ///
    /// DIFFERENCE: upstream asks whether all nodes have plugins without drivers, which none has; so nobody looks for the
    /// node's CSINode, in upstream's last case neither.
    #[test]
    fn upstreams_volumes() {
        let driver = "pd.csi.storage.gke.io";
        let spec = json!({"csi": {"driver": driver, "volumeAttributes": {"partition": ""},
            "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/test-disk"}});
        let same = |volume: &PersistentVolume, name: &str, expected: Value| {
            let mut got = json!(volume.spec);
            // Go leaves them out where they say nothing.
            got["csi"].as_object_mut().unwrap().retain(|_, v| !matches!(v, Value::Null | Value::Bool(false)));
            assert_eq!((volume.metadata.name.as_deref(), got), (Some(name), expected));
        };
        let inline = |source: Value| {
            let mut volume = json!({"name": "migrated-volume-name"});
            volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            view(&json!({"metadata": {"name": "kube-apiserver", "namespace": "default"},
                "spec": {"containers": [], "volumes": [volume]}}))
        };
        assert!(inline(json!({"hostPath": {"path": "/var/run/kmsplugin"}})).migrated().is_empty());
        let disk = json!({"gcePersistentDisk": {"pdName": "test-disk", "fsType": "ext4"}});
        let mut expected = spec.clone();
        expected["csi"]["fsType"] = json!("ext4");
        let with = |more: Value| {
            let mut all = expected.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let found = inline(disk.clone());
        assert_eq!(found.migrated().len(), 1);
        let modes = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"});
        same(&found.migrated()[0], "pd.csi.storage.gke.io-test-disk", with(modes));
        let claim = json!({"namespace": "default", "name": "migrated-pvc"});
        let persistent = |name: &str, source: &Value| -> PersistentVolume {
            let mut volume = json!({"metadata": {"name": name}, "spec": source});
            volume["spec"]["claimRef"] = claim.clone();
            serde_json::from_value(volume).unwrap()
        };
        let other = persistent(
            "non-migrated-volume-name",
            &json!({"scaleIO": {"gateway": "", "system": "",
            "secretRef": {}}}),
        );
        assert_eq!(Handle::of(&other), None);
        let volume = persistent("migrated-volume-name", &disk);
        let as_csi = migration::as_csi(&volume).unwrap();
        same(&as_csi, "migrated-volume-name", with(json!({"claimRef": claim})));
        let handle = Handle::of(&volume).unwrap();
        assert_eq!(
            handle.unique_name(),
            format!("{PREFIX}{driver}^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/test-disk")
        );
    }

    #[test]
    fn names() {
        let handle = Handle { driver: "d.io".into(), volume: "v^1".into() };
        assert_eq!(handle.unique_name(), "kubernetes.io/csi/d.io^v^1");
        assert_eq!(Handle::told("kubernetes.io/csi/d.io^v^1"), Some(handle.clone()));
        // The digest of `v^1d.ion`.
        let name = "csi-8c5e5ba096f0276455b122d1c1934996ffa9eece57e5cca81c4aff4218fc1f71";
        assert_eq!(handle.attachment("n"), name);
        let found = |told: &[&'static str]| find(told.iter().copied(), name, "n");
        assert_eq!(
            found(&["kubernetes.io/csi/d.io^v", "kubernetes.io/csi/d.io^v^1"]),
            Some("kubernetes.io/csi/d.io^v^1")
        );
        assert_eq!(found(&["kubernetes.io/csi/d.io^v", "kubernetes.io/csi/d.io", "d.io^v^1", ""]), None);
    }

    #[test]
    fn names_that_the_controller_gives() {
        let check = |name: &str, expected: bool| {
            let mut attachment = VolumeAttachment::default();
            attachment.metadata.name = Some(name.to_owned());
            assert_eq!(is_ours(&attachment), expected, "{name}");
        };
        check(&Handle { driver: "d".into(), volume: "v".into() }.attachment("n"), true);
        check("csi-0123", false);
        check("mine", false);
        check("", false);
        check(&format!("csi-{}", "G".repeat(64)), false);
    }
}
