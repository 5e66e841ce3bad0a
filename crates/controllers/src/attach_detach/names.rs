//! The names of volumes and attachments; upstream's.

use std::fmt::Write;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use sha2::{Digest, Sha256};

/// The beginning of the names by which nodes tell of volumes of drivers.
pub(super) const PREFIX: &str = "kubernetes.io/csi/";

/// A volume of a driver, by the names that these two know it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle<'a> {
    /// The driver.
    pub(super) driver: &'a str,
    /// The driver's name of the volume.
    pub(super) volume: &'a str,
}

impl<'a> Handle<'a> {
    /// That of a volume; none of a volume of another kind.
    pub(super) fn of(volume: &'a PersistentVolume) -> Option<Self> {
        let source = volume.spec.as_ref()?.csi.as_ref()?;
        Some(Self { driver: &source.driver, volume: &source.volume_handle })
    }

    /// That of a volume of which a node tells.
    fn told(name: &'a str) -> Option<Self> {
        let (driver, volume) = name.strip_prefix(PREFIX)?.split_once('^')?;
        Some(Self { driver, volume })
    }

    /// The name by which nodes tell of the volume.
    pub(super) fn unique_name(self) -> String {
        format!("{PREFIX}{}^{}", self.driver, self.volume)
    }

    /// The name of the volume's attachment to a node.
    pub(super) fn attachment(self, node: &str) -> String {
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

/// The volume of an attachment.
pub(super) fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let handle = Handle { driver: "d.io", volume: "v^1" };
        assert_eq!(handle.unique_name(), "kubernetes.io/csi/d.io^v^1");
        assert_eq!(Handle::told("kubernetes.io/csi/d.io^v^1"), Some(handle));
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
        check(&Handle { driver: "d", volume: "v" }.attachment("n"), true);
        check("csi-0123", false);
        check("mine", false);
        check("", false);
        check(&format!("csi-{}", "G".repeat(64)), false);
    }
}
