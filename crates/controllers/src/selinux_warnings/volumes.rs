//! The names and drivers of volumes; pure.

use k8s_openapi::api::core::v1::{FCVolumeSource, PersistentVolume};
use objects::migration;

/// A volume that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// The name under which each Pod that uses the volume finds it.
    pub(super) name: String,
    /// The driver, "" for none.
    pub(super) driver: String,
}

/// The name of an iSCSI device; upstream's.
pub(super) fn iscsi(portal: &str, iqn: &str, lun: i32) -> String {
    format!("kubernetes.io/iscsi/{portal}:{iqn}:{lun}")
}

/// The name of a Fibre Channel device; upstream's.
pub(super) fn fibre_channel(source: &FCVolumeSource) -> Option<String> {
    let list = |names: &[String]| format!("[{}]", names.join(" "));
    let targets = source.target_wwns.as_deref().unwrap_or_default();
    let own = match (targets, source.lun, source.wwids.as_deref().unwrap_or_default()) {
        ([_, ..], Some(lun), _) => format!("{}:{lun}", list(targets)),
        (_, _, wwids @ [_, ..]) => list(wwids),
        _ => return None,
    };
    Some(format!("kubernetes.io/fc/{own}"))
}

/// Returns what is known of a PersistentVolume that may be labelled as it is mounted; `None` for volumes of other kinds.
/// One of a plugin that was built in once counts as one of the driver that took over.
pub(super) fn known(volume: &PersistentVolume) -> Option<Known> {
    let volume = migration::as_csi(volume).ok()?;
    let spec = volume.spec.as_ref()?;
    if let Some(csi) = &spec.csi {
        let name = format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle);
        return Some(Known { name, driver: csi.driver.clone() });
    }
    let disk = spec.iscsi.as_ref().map(|s| iscsi(&s.target_portal, &s.iqn, s.lun));
    let name = disk.or_else(|| spec.fc.as_ref().and_then(fibre_channel))?;
    Some(Known { name, driver: String::new() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names() {
        let check = |source: Value, want: Option<(&str, &str)>| {
            let volume = json!({"metadata": {"name": "pv"}, "spec": source});
            let got = known(&serde_json::from_value(volume).unwrap());
            let got = got.as_ref().map(|k| (k.name.as_str(), k.driver.as_str()));
            assert_eq!(got, want, "{source}");
        };
        let csi = json!({"csi": {"driver": "d.io", "volumeHandle": "h"}});
        check(csi, Some(("kubernetes.io/csi/d.io^h", "d.io")));
        let built_in = json!({"awsElasticBlockStore": {"volumeID": "x"}});
        check(built_in, Some(("kubernetes.io/csi/ebs.csi.aws.com^x", "ebs.csi.aws.com")));
        let iscsi = json!({"iscsi": {"targetPortal": "p", "iqn": "q", "lun": 1}});
        check(iscsi, Some(("kubernetes.io/iscsi/p:q:1", "")));
        let fc = json!({"fc": {"targetWWNs": ["a", "b"], "lun": 2}});
        check(fc, Some(("kubernetes.io/fc/[a b]:2", "")));
        check(json!({"fc": {"wwids": ["x", "y"]}}), Some(("kubernetes.io/fc/[x y]", "")));
        check(json!({"fc": {"targetWWNs": ["a"]}}), None);
        check(json!({"hostPath": {"path": "/x"}}), None);
    }
}
