//! Volumes of the kinds that the controller itself attaches to nodes (upstream: `pkg/volume/{iscsi,fc,flexvolume}`): the
//! names by which nodes tell of them, and what a driver of FlexVolumes is told.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{FCVolumeSource, FlexVolumeSource, ISCSIVolumeSource, PersistentVolume};

/// A volume of a driver of FlexVolumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flex {
    /// The driver.
    pub driver: String,
    /// The file system that it is to have; empty for the driver's choice.
    pub fs_type: String,
    /// Whether it is only read.
    pub read_only: bool,
    /// The volume's own options.
    pub options: BTreeMap<String, String>,
}

/// A volume that the controller attaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachable {
    /// The name of the PersistentVolume, or of the Pod's volume.
    pub name: String,
    /// The name by which nodes tell of it.
    pub unique: String,
    /// How its driver attaches it; without one, there is nothing to be done but to tell the node.
    pub flex: Option<Flex>,
}

/// The name of a LUN of an iSCSI target; upstream's.
pub fn iscsi_name(portal: &str, iqn: &str, lun: impl std::fmt::Display) -> String {
    format!("kubernetes.io/iscsi/{portal}:{iqn}:{lun}")
}

/// The name of a disk behind Fibre Channel, by targets and a LUN or by its own names; upstream's.
pub fn fc_name(targets: &[String], lun: Option<impl std::fmt::Display>, ids: &[String]) -> String {
    match lun {
        Some(lun) if !targets.is_empty() => format!("kubernetes.io/fc/[{}]:{lun}", targets.join(" ")),
        _ => format!("kubernetes.io/fc/[{}]", ids.join(" ")),
    }
}

/// The name of a volume of a driver of FlexVolumes; upstream's.
pub fn flex_name(driver: &str, name: &str) -> String {
    format!("{driver}/{name}")
}

/// The longest name by which a node tells of a volume, in bytes: names have 255 of each of two parts at most on the node,
/// and the author of a Pod must not make a Node longer than a request may be.
pub const LONGEST: usize = 1024;

impl Attachable {
    fn plain(name: &str, unique: String) -> Self {
        Self { name: name.to_owned(), unique, flex: None }
    }

    fn flex(name: &str, flex: Flex) -> Self {
        Self { name: name.to_owned(), unique: flex_name(&flex.driver, name), flex: Some(flex) }
    }

    fn fc(name: &str, of: &FCVolumeSource) -> Self {
        let list = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
        Self::plain(name, fc_name(&list(&of.target_wwns), of.lun, &list(&of.wwids)))
    }

    /// That of a Pod's volume; none of another kind, nor of one whose name is too long.
    pub fn inline(
        name: &str,
        iscsi: Option<&ISCSIVolumeSource>,
        fc: Option<&FCVolumeSource>,
        flex: Option<&FlexVolumeSource>,
    ) -> Option<Self> {
        Self::of_pod(name, iscsi, fc, flex).filter(|of| of.unique.len() <= LONGEST)
    }

    fn of_pod(
        name: &str,
        iscsi: Option<&ISCSIVolumeSource>,
        fc: Option<&FCVolumeSource>,
        flex: Option<&FlexVolumeSource>,
    ) -> Option<Self> {
        if let Some(of) = iscsi {
            return Some(Self::plain(name, iscsi_name(&of.target_portal, &of.iqn, of.lun)));
        }
        if let Some(of) = fc {
            return Some(Self::fc(name, of));
        }
        let of = flex?;
        let flex = Flex {
            driver: of.driver.clone(),
            fs_type: of.fs_type.clone().unwrap_or_default(),
            read_only: of.read_only.unwrap_or(false),
            options: of.options.clone().unwrap_or_default(),
        };
        Some(Self::flex(name, flex))
    }

    /// That of a PersistentVolume; none of another kind.
    pub fn persistent(volume: &PersistentVolume) -> Option<Self> {
        let (of, name) = (volume.spec.as_ref()?, volume.metadata.name.as_deref()?);
        if let Some(of) = &of.iscsi {
            return Some(Self::plain(name, iscsi_name(&of.target_portal, &of.iqn, of.lun)));
        }
        if let Some(of) = &of.fc {
            return Some(Self::fc(name, of));
        }
        let of = of.flex_volume.as_ref()?;
        let flex = Flex {
            driver: of.driver.clone(),
            fs_type: of.fs_type.clone().unwrap_or_default(),
            // The claim says whether it is only read, which the controller does not look at.
            read_only: false,
            options: of.options.clone().unwrap_or_default(),
        };
        Some(Self::flex(name, flex))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names() {
        let check = |source: Value, expected: Option<&str>| {
            let volume = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": source})).unwrap();
            assert_eq!(Attachable::persistent(&volume).map(|a| a.unique).as_deref(), expected, "{source}");
        };
        let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": "iqn.x:y", "lun": 2});
        check(json!({"iscsi": iscsi}), Some("kubernetes.io/iscsi/192.0.2.1:iqn.x:y:2"));
        check(json!({"fc": {"targetWWNs": ["a", "b"], "lun": 0}}), Some("kubernetes.io/fc/[a b]:0"));
        check(json!({"fc": {"wwids": ["x"], "targetWWNs": ["a"]}}), Some("kubernetes.io/fc/[x]"));
        check(json!({"flexVolume": {"driver": "k8s.io/d"}}), Some("k8s.io/d/pv"));
        check(json!({"csi": {"driver": "d", "volumeHandle": "h"}}), None);
        check(json!({"nfs": {"server": "s", "path": "/"}}), None);
        let source = serde_json::from_value(json!({"driver": "d", "readOnly": true, "options": {"a": "b"}}));
        let inline = Attachable::inline("v", None, None, Some(&source.unwrap())).unwrap();
        assert_eq!((inline.name.as_str(), inline.unique.as_str()), ("v", "d/v"));
        let flex = inline.flex.unwrap();
        assert!(flex.read_only && flex.options.contains_key("a"));
        assert_eq!(Attachable::inline("v", None, None, None), None);
        let long = serde_json::from_value(json!({"driver": "d".repeat(1024)})).unwrap();
        assert_eq!(Attachable::inline("v", None, None, Some(&long)), None);
    }
}
