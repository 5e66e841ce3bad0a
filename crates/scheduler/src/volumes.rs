//! The volumes of a Pod that its node, or other Pods, are not indifferent to: its claims and its disks.

use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{self as core, PersistentVolume, PersistentVolumeClaim, Pod};
use objects::migration::Plugin;
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
    /// The driver's handle of the volume, or why it cannot have it, in upstream's words.
    pub handle: Result<Text, Text>,
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

/// The driver that provisions the volumes of a class, by its provisioner; none if nobody counts them (upstream's
/// `isCSIMigrationOn`).
pub fn driver_of(provisioner: &str) -> Option<&str> {
    match Plugin::named(provisioner) {
        Some(plugin) => plugin.is_scheduled().then(|| plugin.driver()),
        None => Some(provisioner),
    }
}

fn handle(volume: &PersistentVolume) -> Option<Text> {
    Some(volume.spec.as_ref()?.csi.as_ref()?.volume_handle.as_str().into())
}

impl Migrated {
    /// The disk that a Pod names; none of a driver whose disks nobody counts.
    pub fn of(volume: &core::Volume, namespace: &str) -> Option<Self> {
        let plugin = Plugin::of_inline(volume).filter(|plugin| plugin.is_scheduled())?;
        let made = plugin.inline_as_csi(volume, namespace);
        let handle = made.map(|v| handle(&v).unwrap_or_default());
        let wrong = |e| format!("converting volume({}) from inline to csi: {e}", volume.name);
        Some(Self { driver: plugin.driver(), handle: handle.map_err(|e| wrong(e).into()) })
    }

    /// The driver of the disk that a persistent volume names, and the driver's handle of it; none of a driver whose disks
    /// nobody counts, or that cannot have it.
    pub fn of_persistent(volume: &PersistentVolume) -> Option<(&'static str, Text)> {
        let plugin = Plugin::of(volume).filter(|plugin| plugin.is_scheduled())?;
        Some((plugin.driver(), handle(&plugin.as_csi(volume).ok()?)?))
    }
}

impl Used {
    /// Those of a Pod; `None` if it has none.
    pub fn of(pod: &Pod) -> Option<Box<Self>> {
        let all = pod.spec.as_ref()?.volumes.as_deref()?;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
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
            migrated: all.iter().filter_map(|v| Migrated::of(v, namespace)).collect(),
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
    let disk = || Disk::of(volume).is_some() || Plugin::of_inline(volume).is_some();
    claims || volume.csi.is_some() || disk()
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
            let got = Migrated::of_persistent(&volume);
            assert_eq!(got, Some((driver, handle.into())), "{source}");
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
        let wrong = json!({"name": "v", "awsElasticBlockStore": {"volumeID": "aws://z/disk"}});
        let why = "converting volume(v) from inline to csi: failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/disk)";
        assert_eq!(used(json!([wrong])).unwrap().migrated[0].handle, Err(why.into()));
        let uncounted = json!({"name": "v", "vsphereVolume": {"volumePath": "p"}});
        assert_eq!(used(json!([uncounted])), None);
        assert_eq!(driver_of("kubernetes.io/aws-ebs"), Some("ebs.csi.aws.com"));
        assert_eq!((driver_of("kubernetes.io/azure-file"), driver_of("d.io")), (None, Some("d.io")));
    }
}
