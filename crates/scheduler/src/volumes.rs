//! The volumes of a Pod that its node, or other Pods, are not indifferent to: its claims and its disks.

use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{self as core, PersistentVolume, PersistentVolumeClaim, Pod};
use objects::volumes;

/// A Pod's claims and disks. Kept of every Pod that has some, so it is small.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Used {
    /// Its claims, each once.
    pub claims: Box<[Claim]>,
    /// Its disks that Pods on one node may not share.
    pub disks: Box<[Disk]>,
    /// Its disks that a CSI driver attaches in the place of an older plugin.
    pub migrated: Box<[Migrated]>,
}

/// A claim that a Pod uses; its namespace is the Pod's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: Text,
    /// Whether it is made for the Pod.
    pub ephemeral: bool,
}

/// A disk that is named in a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each has the name of its source, and the source's fields")]
pub enum Disk {
    Gce { name: Text, read_only: bool },
    Ebs { id: Text },
    Iscsi { iqn: Text, read_only: bool },
    Rbd { monitors: Box<[Text]>, pool: Text, image: Text, read_only: bool },
}

/// A volume of an older plugin, as the driver that took its place names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The driver.
    pub driver: &'static str,
    /// The driver's handle of the volume.
    pub handle: Text,
}

impl Disk {
    fn of(volume: &core::Volume) -> Option<Self> {
        let read_only = |said: Option<bool>| said == Some(true);
        if let Some(disk) = &volume.gce_persistent_disk {
            return Some(Self::Gce {
                name: disk.pd_name.as_str().into(),
                read_only: read_only(disk.read_only),
            });
        }
        if let Some(disk) = &volume.aws_elastic_block_store {
            return Some(Self::Ebs { id: disk.volume_id.as_str().into() });
        }
        if let Some(disk) = &volume.iscsi {
            return Some(Self::Iscsi { iqn: disk.iqn.as_str().into(), read_only: read_only(disk.read_only) });
        }
        let disk = volume.rbd.as_ref()?;
        Some(Self::Rbd {
            monitors: disk.monitors.iter().map(Text::from).collect(),
            pool: disk.pool.as_deref().unwrap_or_default().into(),
            image: disk.image.as_str().into(),
            read_only: read_only(disk.read_only),
        })
    }

    /// Whether one node cannot mount both (upstream's `isVolumeConflict`): they are the same disk, and one writes.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Gce { name: a, .. }, Self::Gce { name: b, .. })
            | (Self::Iscsi { iqn: a, .. }, Self::Iscsi { iqn: b, .. }) => a == b && !self.both_read(other),
            // It can be attached once, also to be read.
            (Self::Ebs { id }, Self::Ebs { id: other_id }) => id == other_id,
            (
                Self::Rbd { monitors, pool, image, .. },
                Self::Rbd { monitors: others, pool: there, image: it, .. },
            ) => {
                let meet = monitors.iter().any(|one| others.contains(one));
                meet && pool == there && image == it && !self.both_read(other)
            }
            _ => false,
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            Self::Gce { read_only, .. } | Self::Iscsi { read_only, .. } | Self::Rbd { read_only, .. } => {
                *read_only
            }
            Self::Ebs { .. } => false,
        }
    }

    fn both_read(&self, other: &Self) -> bool {
        self.is_read_only() && other.is_read_only()
    }
}

/// The driver that took the place of a plugin, by the plugin's name as classes have it (upstream's
/// `isCSIMigrationOn`).
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        _ => return None,
    })
}

/// The id of a volume of Amazon's, which may be written as `aws://zone/id`.
fn ebs(id: &str) -> &str {
    id.strip_prefix("aws://").and_then(|rest| rest.split_once('/')).map_or(id, |(_, id)| id)
}

fn migrated(plugin: &str, handle: impl Into<Text>) -> Option<Migrated> {
    driver_of(plugin).map(|driver| Migrated { driver, handle: handle.into() })
}

impl Migrated {
    /// The disk that a Pod names.
    pub fn of(volume: &core::Volume) -> Option<Self> {
        if let Some(disk) = &volume.aws_elastic_block_store {
            return migrated("kubernetes.io/aws-ebs", ebs(&disk.volume_id));
        }
        if let Some(disk) = &volume.gce_persistent_disk {
            let handle = format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{}", disk.pd_name);
            return migrated("kubernetes.io/gce-pd", handle);
        }
        if let Some(disk) = &volume.azure_disk {
            return migrated("kubernetes.io/azure-disk", disk.disk_uri.as_str());
        }
        if let Some(disk) = &volume.cinder {
            return migrated("kubernetes.io/cinder", disk.volume_id.as_str());
        }
        let disk = volume.portworx_volume.as_ref()?;
        migrated("kubernetes.io/portworx-volume", disk.volume_id.as_str())
    }

    /// The disk that a persistent volume names.
    pub fn of_persistent(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        if let Some(disk) = &spec.aws_elastic_block_store {
            return migrated("kubernetes.io/aws-ebs", ebs(&disk.volume_id));
        }
        if let Some(disk) = &spec.gce_persistent_disk {
            let labels = volume.metadata.labels.as_ref();
            let of = |key: &str| labels.and_then(|l| l.get(key));
            let zones =
                of("topology.kubernetes.io/zone").or_else(|| of("failure-domain.beta.kubernetes.io/zone"));
            let handle = gce(zones.map(String::as_str).unwrap_or_default(), &disk.pd_name);
            return migrated("kubernetes.io/gce-pd", handle);
        }
        if let Some(disk) = &spec.azure_disk {
            return migrated("kubernetes.io/azure-disk", disk.disk_uri.as_str());
        }
        if let Some(disk) = &spec.cinder {
            return migrated("kubernetes.io/cinder", disk.volume_id.as_str());
        }
        let disk = spec.portworx_volume.as_ref()?;
        migrated("kubernetes.io/portworx-volume", disk.volume_id.as_str())
    }
}

/// The handle of a disk of Google's: it is in a zone, or in the region of several.
fn gce(zones: &str, disk: &str) -> String {
    let mut each = zones.split("__").map(str::trim).filter(|z| !z.is_empty());
    match (each.next(), each.next()) {
        (None, _) => format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{disk}"),
        (Some(zone), None) => format!("projects/UNSPECIFIED/zones/{zone}/disks/{disk}"),
        (Some(zone), Some(_)) => {
            let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
            format!("projects/UNSPECIFIED/regions/{region}/disks/{disk}")
        }
    }
}

impl Used {
    /// Those of a Pod; `None` if it has none.
    pub fn of(pod: &Pod) -> Option<Box<Self>> {
        let all = pod.spec.as_ref()?.volumes.as_deref()?;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let mut claims: Vec<Claim> = Vec::new();
        for (claim, ephemeral) in all.iter().filter_map(|v| volumes::claim_of(name, v)) {
            let claim = Claim { name: claim.into(), ephemeral };
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
        let used = Self {
            claims: claims.into(),
            disks: all.iter().filter_map(Disk::of).collect(),
            migrated: all.iter().filter_map(Migrated::of).collect(),
        };
        (used != Self::default()).then(|| Box::new(used))
    }
    /// Whether a claim is made for the Pod, or has no name, so that it may turn out not to be the Pod's.
    pub fn has_made(&self) -> bool {
        self.claims.iter().any(|c| c.ephemeral || c.name.is_empty())
    }
    /// Whether one of the claims has this name.
    pub fn has_claim(&self, name: &str) -> bool {
        self.claims.iter().any(|c| c.name == name)
    }
    /// Whether a claim is one of these of a Pod in `namespace`.
    pub fn wants(&self, namespace: &str, claim: &PersistentVolumeClaim) -> bool {
        claim.metadata.namespace.as_deref() == Some(namespace)
            && claim.metadata.name.as_deref().is_some_and(|name| self.has_claim(name))
    }
    /// Whether one node cannot mount the disks of both.
    pub fn conflicts(&self, other: &Self) -> bool {
        other.disks.iter().any(|there| self.disks.iter().any(|mine| mine.conflicts(there)))
    }
    /// The names of the claims that are not made for the Pod.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(|c| !c.ephemeral).map(|c| c.name.as_str())
    }
}

/// Whether a volume makes its Pod one of its own, so that nothing is kept of it for others.
pub fn matters(volume: &core::Volume) -> bool {
    let claims = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    claims || volume.csi.is_some() || Disk::of(volume).is_some() || Migrated::of(volume).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn used(volumes: Value) -> Option<Box<Used>> {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": volumes}});
        Used::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_a_pod_uses() {
        assert_eq!(used(json!([])), None);
        assert_eq!(used(json!([{"name": "v", "emptyDir": {}}])), None);
        let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let both = used(json!([claim, claim, {"name": "w", "ephemeral": {}}])).unwrap();
        let names: Vec<(&str, bool)> = both.claims.iter().map(|c| (c.name.as_str(), c.ephemeral)).collect();
        assert_eq!(names, [("c", false), ("p-w", true)]);
        assert!(both.has_claim("p-w") && both.named().eq(["c"]));
    }

    /// The cases of upstream's `TestGCEDiskConflicts`, `TestAWSDiskConflicts`, `TestRBDDiskConflicts` and
    /// `TestISCSIDiskConflicts`, and some more.
    #[test]
    fn conflicts() {
        let check = |a: Value, b: Value, expected: bool| {
            let disk = |source: &Value| {
                let mut volume = source.clone();
                volume["name"] = json!("v");
                used(json!([volume])).unwrap().disks[0].clone()
            };
            assert_eq!(disk(&a).conflicts(&disk(&b)), expected, "{a} {b}");
            assert_eq!(disk(&b).conflicts(&disk(&a)), expected, "{b} {a}");
        };
        let gce = |name: &str, ro: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": ro}});
        check(gce("a", false), gce("a", false), true);
        check(gce("a", false), gce("b", false), false);
        check(gce("a", true), gce("a", false), true);
        check(gce("a", true), gce("a", true), false);
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}});
        check(ebs("a"), ebs("a"), true);
        check(ebs("a"), ebs("b"), false);
        check(ebs("a"), gce("a", false), false);
        let iscsi = |iqn: &str, ro: bool| json!({"iscsi": {"targetPortal": "127.0.0.1:3260", "iqn": iqn, "lun": 0, "readOnly": ro}});
        check(iscsi("a", false), iscsi("a", false), true);
        check(iscsi("a", false), iscsi("b", false), false);
        check(iscsi("a", true), iscsi("a", true), false);
        let rbd = |monitors: Value, pool: &str, image: &str, ro: bool| json!({"rbd": {"monitors": monitors, "pool": pool, "image": image, "readOnly": ro}});
        let one = rbd(json!(["a", "b"]), "foo", "bar", false);
        check(one.clone(), one.clone(), true);
        check(one.clone(), rbd(json!(["b", "c"]), "foo", "bar", true), true);
        check(one.clone(), rbd(json!(["c", "d"]), "foo", "bar", false), false);
        check(one.clone(), rbd(json!(["a"]), "bar", "bar", false), false);
        check(one, rbd(json!(["a"]), "foo", "foo", false), false);
        let shared = rbd(json!(["a"]), "foo", "bar", true);
        check(shared.clone(), shared, false);
    }

    #[test]
    fn drivers_of_older_plugins() {
        let check = |source: Value, driver: &str, handle: &str| {
            let volume: PersistentVolume = serde_json::from_value(source.clone()).unwrap();
            let got = Migrated::of_persistent(&volume).map(|m| (m.driver, m.handle.to_string()));
            assert_eq!(got, Some((driver, handle.to_owned())), "{source}");
        };
        let ebs = |id: &str| json!({"metadata": {}, "spec": {"awsElasticBlockStore": {"volumeID": id}}});
        check(ebs("vol-1"), "ebs.csi.aws.com", "vol-1");
        check(ebs("aws://us-east-1a/vol-1"), "ebs.csi.aws.com", "vol-1");
        let gce = |zones: Value| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zones}}, "spec": {"gcePersistentDisk": {"pdName": "d"}}});
        let driver = "pd.csi.storage.gke.io";
        check(gce(json!("us-central1-a")), driver, "projects/UNSPECIFIED/zones/us-central1-a/disks/d");
        check(
            gce(json!("us-central1-a__us-central1-c")),
            driver,
            "projects/UNSPECIFIED/regions/us-central1/disks/d",
        );
        check(gce(json!("")), driver, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
        check(
            json!({"metadata": {}, "spec": {"cinder": {"volumeID": "c"}}}),
            "cinder.csi.openstack.org",
            "c",
        );
        assert_eq!(Migrated::of_persistent(&PersistentVolume::default()), None);
        let inline = used(json!([{"name": "v", "azureDisk": {"diskName": "d", "diskURI": "u"}}])).unwrap();
        assert_eq!(inline.migrated[0].driver, "disk.csi.azure.com");
    }
}
