//! The volume that a Pod has by a claim, checked by upstream's rules; pure.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod,
};
use objects::migration::{self, MigrationError, Plugin};
use objects::{Labels, local_path, volumes};

use super::disks::Disk;
use super::nfs::{self, Export};
use crate::csi::Wanted;
use crate::pods::spec;

/// The finalizer of a claim that Pods use.
const PROTECTED: &str = "kubernetes.io/pvc-protection";

/// The annotation of a PersistentVolume with the group that owns it.
const GROUP: &str = "pv.beta.kubernetes.io/gid";

/// A Pod's volume that names a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    /// The volume's name in the Pod.
    pub(super) volume: &'a str,
    /// The claim's name.
    pub(super) claim: &'a str,
    /// Whether the claim is made for the Pod.
    pub(super) ephemeral: bool,
    /// Whether the Pod may only read it.
    pub(super) read_only: bool,
}

/// The place of a volume's content on the node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// A path that is used where it is.
    HostPath(HostPathVolumeSource),
    /// A directory that is mounted into the Pod's.
    Local {
        /// Its path.
        path: PathBuf,
        /// Whether the node makes it.
        own: bool,
    },
    /// An NFS server's.
    Nfs(Export),
    /// A driver's.
    Csi(Arc<Wanted>),
    /// One that the host's tools provide.
    Disk(Arc<Disk>),
}

/// A volume that a Pod has by a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claimed {
    /// The name of the PersistentVolume.
    pub(super) name: String,
    /// The place of its content.
    pub(super) source: Source,
    /// Whether the Pod may only read it.
    pub(super) read_only: bool,
    /// The modes in which it may be used.
    pub(super) modes: Vec<String>,
    /// The group that owns it, as its PersistentVolume says.
    pub(super) group: Option<i64>,
}

impl Claimed {
    /// Whether one Pod at a time may have it.
    pub(super) fn is_for_one(&self) -> bool {
        self.modes.iter().any(|mode| mode == volumes::READ_WRITE_ONCE_POD)
    }

    /// Whether it is a directory of the node that may grow.
    pub(super) fn is_growing_directory(&self) -> bool {
        matches!(self.source, Source::Local { .. }) && !self.read_only
    }
}

/// Why a Pod does not get the volume of a claim; upstream's texts of Events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// The claim or its volume cannot be used.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {why}"
    )]
    Unprocessed {
        /// The volume's name in the Pod.
        volume: String,
        /// Why.
        why: String,
    },
    /// The volume belongs to other nodes.
    #[error("MountVolume.NodeAffinity check failed for volume {0:?} : no matching NodeSelectorTerms")]
    Affinity(String),
    /// There is nothing at the volume's path.
    #[error(
        "MountVolume.NewMounter initialization failed for volume {name:?} : path {path:?} does not exist"
    )]
    NoPath {
        /// The PersistentVolume.
        name: String,
        /// The path.
        path: PathBuf,
    },
    /// Another Pod has the volume for itself.
    #[error(
        "MountVolume.SetUp failed for volume {0:?} : volume uses the ReadWriteOncePod access mode and is already in use by another pod"
    )]
    InUse(String),
    /// The volume is a block device.
    #[error(
        "MapVolume.SetUpDevice failed for volume {0:?} : only csi, iscsi, fc and local volumes can be of the mode Block"
    )]
    Block(String),
    /// The claim cannot be told that the volume has grown.
    #[error("{} for volume {name:?} : {why}", if *.running { "NodeExpandVolume.NodeExpandVolume failed" } else { "MountVolume.Setup failed while expanding volume" })]
    Expand {
        /// Whether containers have it.
        running: bool,
        /// The PersistentVolume.
        name: String,
        /// Why.
        why: String,
    },
    /// The volume cannot be set up.
    #[error("MountVolume.SetUp failed for volume {name:?} : {error}")]
    SetUp {
        /// The PersistentVolume.
        name: String,
        /// Why.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClaimError {
    /// A driver took over from a volume's plugin, and cannot have it.
    pub(super) fn untranslated(volume: &str, why: &MigrationError) -> Self {
        let why = format!("failed to translate in-tree pv to CSI: {why}");
        Self::Unprocessed { volume: volume.to_owned(), why }
    }

    /// The reason of the Event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Block(_) => "FailedMapVolume",
            Self::Expand { running: true, .. } => "VolumeResizeFailed",
            _ => "FailedMount",
        }
    }
}

impl Named<'_> {
    /// The claim or its volume cannot be used.
    pub(super) fn unprocessed(&self, why: impl Into<String>) -> ClaimError {
        ClaimError::Unprocessed { volume: self.volume.to_owned(), why: why.into() }
    }

    /// Something is wrong with the claim or its volume.
    pub(super) fn wrong(&self, pod: &Pod, why: impl std::fmt::Display) -> ClaimError {
        let namespace = spec::namespace(pod);
        self.unprocessed(format!("error processing PVC {namespace}/{}: {why}", self.claim))
    }

    /// Checks the claim.
    ///
    /// # Errors
    /// The Pod may not have its volume yet, or at all.
    pub(super) fn check(&self, pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), ClaimError> {
        let meta = &claim.metadata;
        let protected = meta.finalizers.iter().flatten().any(|f| f == PROTECTED);
        if meta.deletion_timestamp.is_some() && !protected {
            return Err(self.wrong(pod, "PVC is being deleted"));
        }
        if claim.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Bound") {
            return Err(self.wrong(pod, "PVC is not bound"));
        }
        if volumes::volume_name(claim).is_empty() {
            return Err(self.wrong(pod, "PVC has empty pvc.Spec.VolumeName"));
        }
        if self.ephemeral && !volumes::is_made_for(claim, spec::uid(pod)) {
            let (namespace, name) = (spec::namespace(pod), spec::name(pod));
            return Err(self.unprocessed(format!(
                "PVC {namespace}/{} was not created for pod {namespace}/{name} (pod is not owner)",
                self.claim
            )));
        }
        Ok(())
    }

    /// Finds what a bound volume gives a Pod on a node with these labels; `directory` is that of the node's own volumes.
    ///
    /// # Errors
    /// The Pod may not have it here.
    pub(super) fn resolve(
        &self,
        pod: &Pod,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        node: Option<&Labels>,
        directory: Option<&str>,
    ) -> Result<Claimed, ClaimError> {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let wrong = |why: String| self.wrong(pod, why);
        let Some(of) = &volume.spec else { return Err(wrong(format!("PV {name} has no spec"))) };
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        match of.claim_ref.as_ref().map(|r| r.uid.as_deref().unwrap_or_default()) {
            None => {
                let why = "but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim";
                return Err(wrong(format!("found PV object {name} {why}")));
            }
            Some(other) if other != uid => {
                return Err(wrong(format!(
                    "found PV object {name} but its pv.Spec.ClaimRef.UID {other} does not point to claim.UID {uid}"
                )));
            }
            Some(_) => {}
        }
        // A driver may have taken over from its plugin.
        let migrated = Plugin::of(volume).is_some();
        let volume = migration::as_csi(volume).map_err(|why| ClaimError::untranslated(self.volume, &why))?;
        let volume = volume.as_ref();
        let Some(of) = &volume.spec else { return Err(wrong(format!("PV {name} has no spec"))) };
        self.check_mode(pod, of, &name)?;
        let read_only = self.read_only;
        let of_claim = (spec::namespace(pod), self.claim);
        let mut wanted = Wanted::persistent(volume, Some(of_claim), read_only);
        if let Some(wanted) = &mut wanted {
            wanted.migrated = migrated;
        }
        let block = of.volume_mode.as_deref() == Some("Block");
        let disk = Disk::persistent(volume, of_claim, read_only).filter(|_| of.local.is_none() || block);
        let source = match (wanted, disk, &of.host_path, &of.nfs, &of.local) {
            (Some(wanted), ..) => Source::Csi(Arc::new(wanted)),
            (_, Some(disk), ..) => Source::Disk(Arc::new(disk.map_err(|why| self.unprocessed(why))?)),
            (_, _, Some(source), ..) => Source::HostPath(source.clone()),
            (_, _, _, Some(source), _) => Source::Nfs(Export::new(source, read_only, nfs::options(volume))),
            (.., Some(source)) => {
                let own = directory.and_then(|d| local_path::path_of(volume, d)).is_some();
                if own && volume.metadata.deletion_timestamp.is_some() {
                    return Err(wrong(format!("PV {name} is being deleted")));
                }
                Source::Local { path: PathBuf::from("/").join(&source.path), own }
            }
            _ => {
                return Err(self.unprocessed(format!(
                    "failed to get Plugin from volumeSpec for volume {name:?} err=no volume plugin matched"
                )));
            }
        };
        if !volumes::admits(volume, node) {
            return Err(ClaimError::Affinity(name));
        }
        let modes = of.access_modes.clone().unwrap_or_default();
        Ok(Claimed { name, source, read_only, modes, group: group_of(volume) })
    }

    /// Checks that containers use the volume as what it is.
    fn check_mode(&self, pod: &Pod, of: &PersistentVolumeSpec, name: &str) -> Result<(), ClaimError> {
        let (mounted, mapped) = uses(pod, self.volume);
        let mode = of.volume_mode.as_deref().unwrap_or("Filesystem");
        let volume = self.volume;
        match mode {
            "Block" if mounted => Err(self.unprocessed(format!(
                "volume {volume} has volumeMode {mode}, but is specified in volumeMounts"
            ))),
            "Block"
                if ![of.csi.is_some(), of.iscsi.is_some(), of.fc.is_some(), of.local.is_some()]
                    .contains(&true) =>
            {
                Err(ClaimError::Block(name.to_owned()))
            }
            "Block" => Ok(()),
            _ if mapped => Err(self.unprocessed(format!(
                "volume {volume} has volumeMode {mode}, but is specified in volumeDevices"
            ))),
            _ => Ok(()),
        }
    }
}

/// The group that owns a volume, by its annotation; none if that is no number.
fn group_of(volume: &PersistentVolume) -> Option<i64> {
    volume.metadata.annotations.as_ref()?.get(GROUP)?.parse().ok()
}

/// These groups, but for those that a Pod names itself.
pub(super) fn groups_beside(pod: &Pod, groups: impl Iterator<Item = i64>) -> BTreeSet<i64> {
    let context = spec::spec(pod).security_context.as_ref();
    let own = context.and_then(|c| c.supplemental_groups.as_deref()).unwrap_or_default();
    groups.filter(|group| !own.contains(group)).collect()
}

/// Whether a container of the Pod mounts a volume, and whether one has it as a device.
fn uses(pod: &Pod, volume: &str) -> (bool, bool) {
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let guests = spec::spec(pod).ephemeral_containers.iter().flatten();
    let all = all.map(|c| (c.volume_mounts.as_deref(), c.volume_devices.as_deref()));
    let guests = guests.map(|c| (c.volume_mounts.as_deref(), c.volume_devices.as_deref()));
    let (mut mounted, mut mapped) = (false, false);
    for (mounts, devices) in all.chain(guests) {
        mounted |= mounts.into_iter().flatten().any(|m| m.name == volume);
        mapped |= devices.into_iter().flatten().any(|d| d.name == volume);
    }
    (mounted, mapped)
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    const NAME: &str = "pvc-0a1b2c3d-0000-4444-8888-0123456789ab";

    fn made<T: DeserializeOwned>(mut base: Value, more: &Value) -> T {
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
        merge(&mut base, more);
        serde_json::from_value(base).unwrap()
    }

    fn pod(use_as: &str) -> Pod {
        let container =
            json!({"name": "c", use_as: [{"name": "data", "mountPath": "/d", "devicePath": "/d"}]});
        made(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "pod"}}),
            &json!({"spec": {"containers": [container]}}),
        )
    }

    fn claim(more: Value) -> PersistentVolumeClaim {
        let base = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {"volumeName": NAME}, "status": {"phase": "Bound"}});
        made(base, &more)
    }

    fn volume(more: Value) -> PersistentVolume {
        let base = json!({"metadata": {"name": NAME}, "spec": {"claimRef": {"uid": "u"}}});
        made(base, &more)
    }

    const USUAL: Named<'static> = Named { volume: "data", claim: "c", ephemeral: false, read_only: false };

    #[test]
    fn claims() {
        let check = |named: Named<'_>, more: Value, expected: Option<&str>| {
            let got = named.check(&pod("volumeMounts"), &claim(more)).err().map(|e| e.to_string());
            let prefix = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: ";
            assert_eq!(got, expected.map(|e| format!("{prefix}{e}")));
        };
        check(USUAL, json!({}), None);
        let gone = "2026-01-01T00:00:00Z";
        let deleted = json!({"metadata": {"deletionTimestamp": gone}});
        check(USUAL, deleted, Some("error processing PVC n/c: PVC is being deleted"));
        check(USUAL, json!({"metadata": {"deletionTimestamp": gone, "finalizers": [PROTECTED]}}), None);
        let unbound = Some("error processing PVC n/c: PVC is not bound");
        check(USUAL, json!({"status": {"phase": "Pending"}}), unbound);
        check(USUAL, json!({"status": null}), unbound);
        let empty = Some("error processing PVC n/c: PVC has empty pvc.Spec.VolumeName");
        check(USUAL, json!({"spec": {"volumeName": ""}}), empty);
        let ephemeral = Named { ephemeral: true, ..USUAL };
        let other = Some("PVC n/c was not created for pod n/p (pod is not owner)");
        check(ephemeral, json!({}), other);
        let owner = |uid: &str| {
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
            json!({"metadata": {"ownerReferences": [owner]}})
        };
        check(ephemeral, owner("pod"), None);
        check(ephemeral, owner("earlier"), other);
    }

    fn resolve(use_as: &str, more: Value) -> Result<Claimed, ClaimError> {
        let labels = Labels::from([("host".to_owned(), "a".to_owned())]);
        USUAL.resolve(&pod(use_as), &claim(json!({})), &volume(more), Some(&labels), Some("/data/volumes"))
    }

    #[test]
    fn an_export_has_the_options_of_its_volume() {
        let source = json!({"server": "s", "path": "/e", "readOnly": true});
        let of = json!({"spec": {"nfs": source, "mountOptions": ["hard"]}});
        let claimed = resolve("volumeMounts", of).unwrap();
        let expected = k8s_openapi::api::core::v1::NFSVolumeSource {
            server: "s".into(),
            path: "/e".into(),
            read_only: None,
        };
        // As upstream, where the claim alone says whether it is only read.
        assert_eq!(claimed.source, Source::Nfs(Export::new(&expected, false, vec!["hard".into()])));
        assert!(!claimed.read_only);
    }

    #[test]
    fn volumes_of_claims() {
        let check = |use_as: &str, more: Value, expected: &str| {
            let got = resolve(use_as, more).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(got.ends_with(expected) && got.is_empty() == expected.is_empty(), "{got}");
        };
        let local = || json!({"spec": {"local": {"path": "/mnt/a"}}});
        let with = |more: Value| {
            let mut base = local();
            for (key, value) in more.as_object().into_iter().flatten() {
                base["spec"][key] = value.clone();
            }
            base
        };
        check("volumeMounts", local(), "");
        let nil = "found PV object pvc-0a1b2c3d-0000-4444-8888-0123456789ab but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim";
        check("volumeMounts", with(json!({"claimRef": null})), nil);
        let other = "but its pv.Spec.ClaimRef.UID w does not point to claim.UID u";
        check("volumeMounts", with(json!({"claimRef": {"uid": "w"}})), other);
        let block = || with(json!({"volumeMode": "Block"}));
        check("volumeMounts", block(), "volume data has volumeMode Block, but is specified in volumeMounts");
        check("volumeDevices", block(), "");
        let none = || json!({"spec": {"nfs": {"server": "s", "path": "/e"}, "volumeMode": "Block"}});
        let files_only = "only csi, iscsi, fc and local volumes can be of the mode Block";
        check("volumeDevices", none(), files_only);
        assert_eq!(resolve("volumeDevices", none()).unwrap_err().reason(), "FailedMapVolume");
        let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": "iqn.x:y", "lun": 0});
        check("volumeMounts", json!({"spec": {"iscsi": iscsi}}), "");
        check("volumeDevices", json!({"spec": {"fc": {"wwids": ["x"]}, "volumeMode": "Block"}}), "");
        let no_disk = "fc: no fc disk information found. failed to make a new mounter";
        check("volumeMounts", json!({"spec": {"fc": {}}}), no_disk);
        check("volumeMounts", json!({"spec": {"flexVolume": {"driver": "k8s.io/d"}}}), "");
        let (pod, guest) = (pod("volumeDevices"), pod("volumeMounts"));
        let mut guest = serde_json::to_value(&guest).unwrap()["spec"]["containers"][0].clone();
        guest["name"] = json!("guest");
        let pod: Pod =
            made(serde_json::to_value(pod).unwrap(), &json!({"spec": {"ephemeralContainers": [guest]}}));
        assert_eq!(uses(&pod, "data"), (true, true));
        let files = "volume data has volumeMode Filesystem, but is specified in volumeDevices";
        check("volumeDevices", local(), files);
        check(
            "volumeMounts",
            json!({"spec": {"glusterfs": {"endpoints": "e", "path": "/"}}}),
            "no volume plugin matched",
        );
        let csi = || json!({"driver": "d.example.com", "volumeHandle": "h"});
        check("volumeMounts", json!({"spec": {"csi": csi()}}), "");
        check("volumeDevices", json!({"spec": {"csi": csi(), "volumeMode": "Block"}}), "");
        let on = |value: &str| {
            let term = json!({"matchExpressions": [{"key": "host", "operator": "In", "values": [value]}]});
            with(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}))
        };
        check("volumeMounts", on("a"), "");
        check("volumeMounts", on("b"), "no matching NodeSelectorTerms");
        assert_eq!(resolve("volumeMounts", on("b")).unwrap_err().reason(), "FailedMount");
    }

    /// Upstream's cases of `TestGetExtraSupplementalGroupsForPod`, and more.
    #[test]
    fn groups_of_volumes() {
        let pod: Pod = made(
            json!({}),
            &json!({"spec": {"containers": [], "securityContext": {"supplementalGroups": [555]}}}),
        );
        let check = |text: &str, expected: Option<i64>| {
            let annotated = json!({"metadata": {"annotations": {GROUP: text}}});
            let group = group_of(&volume(annotated));
            let beside = groups_beside(&pod, group.into_iter());
            assert_eq!(beside.into_iter().collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        };
        check("777", Some(777));
        check("555", None);
        check("a", None);
        check("", None);
        check("99999999999999999999", None);
        assert_eq!(group_of(&volume(json!({}))), None);
    }

    #[test]
    fn volumes_of_plugins_are_their_drivers() {
        let of = |more: Value| resolve("volumeMounts", json!({"spec": more}));
        let ebs = json!({"volumeID": "aws://z/vol-1", "fsType": "ext4", "readOnly": true});
        let Ok(Claimed { source: Source::Csi(wanted), read_only, .. }) =
            of(json!({"awsElasticBlockStore": ebs, "capacity": {"storage": "1Gi"}}))
        else {
            panic!("it is no driver's");
        };
        let names = (wanted.name.as_str(), wanted.driver.as_str(), wanted.handle.as_str());
        assert_eq!(names, (NAME, "ebs.csi.aws.com", "vol-1"));
        assert!(wanted.migrated && !wanted.ephemeral && !read_only);
        let wrong = of(json!({"awsElasticBlockStore": {"volumeID": "aws://z/disk"}})).unwrap_err();
        let why = "failed to process volumes=[data]: failed to translate in-tree pv to CSI: failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/disk)";
        assert!(wrong.to_string().ends_with(why), "{wrong}");
        let block = json!({"spec": {"cinder": {"volumeID": "c"}, "volumeMode": "Block"}});
        assert!(resolve("volumeDevices", block).is_ok());
        // The driver's labels count.
        let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
        let placed = json!({"spec": {"gcePersistentDisk": {"pdName": "d"}, "nodeAffinity": affinity}});
        let resolve = |label: &str| {
            let labels = Labels::from([(label.to_owned(), "z".to_owned())]);
            let (pod, claim, volume) = (pod("volumeMounts"), claim(json!({})), volume(placed.clone()));
            USUAL.resolve(&pod, &claim, &volume, Some(&labels), None).is_ok()
        };
        assert!(resolve("topology.gke.io/zone") && !resolve("topology.kubernetes.io/zone"));
    }

    #[test]
    fn only_volumes_of_the_provisioner_are_made() {
        let of = |path: &str, by: &str, more: Value| {
            let annotations = json!({"pv.kubernetes.io/provisioned-by": by});
            let mut base = json!({"metadata": {"annotations": annotations},
                "spec": {"local": {"path": path}, "accessModes": ["ReadWriteOncePod"]}});
            for (key, value) in more.as_object().into_iter().flatten() {
                base["metadata"][key] = value.clone();
            }
            resolve("volumeMounts", base)
        };
        let path = format!("/data/volumes/{NAME}");
        let own = |own| Source::Local { path: PathBuf::from(&path), own };
        let made = of(&path, local_path::PROVISIONER, json!({})).unwrap();
        assert!(made.is_for_one() && made.source == own(true));
        assert_eq!(of(&path, "other", json!({})).unwrap().source, own(false));
        let elsewhere = of("/etc", local_path::PROVISIONER, json!({})).unwrap();
        assert_eq!(elsewhere.source, Source::Local { path: PathBuf::from("/etc"), own: false });
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(of(&path, local_path::PROVISIONER, going.clone()).is_err(), "its content may be gone");
        assert!(of(&path, "other", going).is_ok());
    }
}
