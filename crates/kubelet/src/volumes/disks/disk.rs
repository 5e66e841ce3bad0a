//! A volume as a Pod wants it, and the directory in which it is for the node; pure.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, Volume};
use objects::attachable::{Attachable, flex_name, iscsi_name};

use super::fc::Fc;
use super::iscsi::{self, Iscsi, Record};
use crate::pods::spec;
use crate::volumes::nfs;
use crate::volumes::selinux::{self, Traits};
use plugins::flex::{self, Driver};

/// The directory of devices among those of a kind of volume; upstream's.
const DEVICES: &str = "volumeDevices";
/// The directory of mounts; upstream's.
const MOUNTS: &str = "mounts";
/// The longest name of a directory, in bytes; Linux's.
const LONGEST: usize = 255;

/// A volume of a driver of FlexVolumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flex {
    /// The driver.
    pub(super) driver: String,
    /// The volume's own options.
    pub(super) options: BTreeMap<String, String>,
    /// The Secret for its mounts: its namespace and name.
    pub(super) secret: Option<(String, String)>,
}

/// The place of a volume's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A LUN of an iSCSI target.
    Iscsi(Box<Iscsi>),
    /// A disk behind Fibre Channel.
    Fc(Fc),
    /// A driver's.
    Flex(Flex),
    /// A device of the node's.
    Local(PathBuf),
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The name of the PersistentVolume, or of the Pod's volume.
    pub(crate) name: String,
    /// The name by which nodes tell of it; none of a device of the node's own.
    pub(super) unique: Option<String>,
    /// The place of its content.
    pub(super) kind: Kind,
    /// Whether it is only read.
    pub(crate) read_only: bool,
    /// Whether it is a device.
    pub(crate) block: bool,
    /// The file system that it is to have; empty for the usual one.
    pub(super) fs_type: String,
    /// Options of its mount.
    options: Vec<String>,
    /// The claim by which the Pod has it: namespace and name.
    pub(super) claim: Option<(String, String)>,
    /// The access modes of the PersistentVolume; none for a volume that a Pod names itself.
    modes: Option<Vec<String>>,
}

impl Disk {
    /// An inline volume of a Pod; none if it is another kind of volume.
    ///
    /// # Errors
    /// Its source is not whole; upstream's text.
    pub(crate) fn inline(pod: &Pod, volume: &Volume) -> Option<Result<Self, String>> {
        let (kind, read_only, fs_type) = if let Some(of) = &volume.iscsi {
            let iscsi = Iscsi::inline(&volume.name, of, spec::namespace(pod));
            (Ok(Kind::Iscsi(Box::new(iscsi))), of.read_only, &of.fs_type)
        } else if let Some(of) = &volume.fc {
            (Fc::new(of).map(Kind::Fc), of.read_only, &of.fs_type)
        } else if let Some(of) = &volume.flex_volume {
            let secret = of.secret_ref.as_ref().map(|s| (spec::namespace(pod).to_owned(), s.name.clone()));
            let (driver, options) = (of.driver.clone(), of.options.clone().unwrap_or_default());
            (Ok(Kind::Flex(Flex { driver, options, secret })), of.read_only, &of.fs_type)
        } else {
            return None;
        };
        let (iscsi, fc, flex) = (volume.iscsi.as_ref(), volume.fc.as_ref(), volume.flex_volume.as_ref());
        let of = kind.map(|kind| Self {
            name: volume.name.clone(),
            unique: Attachable::inline(&volume.name, iscsi, fc, flex).map(|a| a.unique),
            kind,
            read_only: read_only.unwrap_or(false),
            block: false,
            fs_type: fs_type.clone().unwrap_or_default(),
            options: Vec::new(),
            claim: None,
            modes: None,
        });
        Some(of.and_then(Self::checked))
    }

    /// A PersistentVolume by a claim; none if it is another kind of volume.
    ///
    /// # Errors
    /// Its source is not whole; upstream's text.
    pub(crate) fn persistent(
        volume: &PersistentVolume,
        claim: (&str, &str),
        read_only: bool,
    ) -> Option<Result<Self, String>> {
        let (of, name) = (volume.spec.as_ref()?, volume.metadata.name.clone().unwrap_or_default());
        let block = of.volume_mode.as_deref() == Some("Block");
        let (kind, fs_type) = if let Some(source) = &of.iscsi {
            let iscsi = Iscsi::persistent(&name, source, claim.0);
            (Ok(Kind::Iscsi(Box::new(iscsi))), &source.fs_type)
        } else if let Some(source) = &of.fc {
            (Fc::new(source).map(Kind::Fc), &source.fs_type)
        } else if let Some(source) = of.flex_volume.as_ref().filter(|_| !block) {
            let secret = source.secret_ref.as_ref().and_then(|s| {
                let own = s.namespace.clone().filter(|n| !n.is_empty());
                Some((own.unwrap_or_else(|| claim.0.to_owned()), s.name.clone()?))
            });
            let (driver, options) = (source.driver.clone(), source.options.clone().unwrap_or_default());
            (Ok(Kind::Flex(Flex { driver, options, secret })), &source.fs_type)
        } else if let Some(source) = &of.local {
            (Ok(Kind::Local(Path::new("/").join(&source.path))), &source.fs_type)
        } else {
            return None;
        };
        let of = kind.map(|kind| Self {
            name,
            unique: Attachable::persistent(volume).map(|a| a.unique),
            kind,
            read_only,
            block,
            fs_type: fs_type.clone().unwrap_or_default(),
            options: nfs::options(volume),
            claim: Some((claim.0.to_owned(), claim.1.to_owned())),
            modes: Some(of.access_modes.clone().unwrap_or_default()),
        });
        Some(of.and_then(Self::checked))
    }

    /// The volume, if what names it can name a directory and a device: whoever may make a Pod writes these texts, and must
    /// not choose a place of the host by them.
    fn checked(self) -> Result<Self, String> {
        let staged = self.staged();
        let dir = staged.dir();
        let is_name = |text: &str| !text.contains('/') && text.len() <= LONGEST;
        let plain =
            dir.components().all(|part| matches!(part, Component::Normal(name) if name.len() <= LONGEST))
                && Staged::of_dir(&dir).is_some_and(|found| found.dir() == dir);
        let ways = match &self.kind {
            Kind::Iscsi(of) => of.record.portals.iter().all(|portal| is_name(portal)),
            _ => true,
        };
        if plain && ways {
            return Ok(self);
        }
        Err(format!(
            "the source of the volume {:?} cannot name a device: none of its names may contain a slash, be \"..\", or be \
             longer than {LONGEST} bytes",
            self.name
        ))
    }

    /// The plugin's directory in those of Pods; upstream's.
    pub(super) fn plugin(&self) -> String {
        match &self.kind {
            Kind::Iscsi(_) => "kubernetes.io~iscsi".into(),
            Kind::Fc(_) => "kubernetes.io~fc".into(),
            Kind::Local(_) => "kubernetes.io~local-volume".into(),
            Kind::Flex(of) => flex::directory(&of.driver),
        }
    }

    /// The place in which it is for the node.
    pub(super) fn staged(&self) -> Staged {
        let block = self.block;
        match &self.kind {
            Kind::Iscsi(of) => Staged::Iscsi { record: of.record.clone(), block },
            Kind::Fc(of) => Staged::Fc { disk: of.clone(), block },
            Kind::Local(_) => Staged::Local { name: self.name.clone(), block },
            Kind::Flex(of) => Staged::Flex { driver: of.driver.clone(), name: self.name.clone() },
        }
    }

    /// Whether it may grow by the kubelet's hand.
    pub(super) fn grows(&self, driver: Option<&Driver>) -> bool {
        let resizes = match self.kind {
            Kind::Flex(_) => driver.is_some_and(|driver| driver.capabilities.requires_fs_resize),
            Kind::Local(_) => true,
            Kind::Iscsi(_) | Kind::Fc(_) => false,
        };
        resizes && self.claim.is_some()
    }

    /// The parts of it on which its SELinux label depends.
    pub(super) fn traits(&self) -> Traits<'_> {
        let (plugin, mountable) = match &self.kind {
            Kind::Iscsi(_) => ("kubernetes.io/iscsi", true),
            Kind::Fc(_) => ("kubernetes.io/fc", true),
            Kind::Local(_) => ("kubernetes.io/local-volume", false),
            Kind::Flex(of) => (of.driver.as_str(), false),
        };
        Traits { name: &self.name, plugin, modes: self.modes.as_deref(), mountable }
    }

    /// Whether its files get the label of each container, if it is mounted with this one.
    pub(super) fn relabels(&self, label: Option<&str>, driver: Option<&Driver>) -> bool {
        let may = match self.kind {
            Kind::Iscsi(_) | Kind::Fc(_) => label.is_none(),
            Kind::Local(_) => true,
            Kind::Flex(_) => driver.is_some_and(|driver| driver.capabilities.selinux_relabel),
        };
        may && !self.read_only
    }

    /// The options of its mount for the node, each once, with a SELinux label if there is one.
    pub(super) fn mount_options(&self, label: Option<&str>) -> Vec<String> {
        let read_only = self.read_only.then_some("ro");
        let label = label.map(selinux::option);
        let own = self.options.iter().map(String::as_str).filter(|o| !o.is_empty());
        let all = own.chain(read_only).chain(label.as_deref());
        let all: std::collections::BTreeSet<&str> = all.collect();
        all.into_iter().map(str::to_owned).collect()
    }
}

/// A volume by the directory in which it is for the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Staged {
    /// A LUN of an iSCSI target.
    Iscsi {
        /// The way to it.
        record: Record,
        /// Whether it is a device.
        block: bool,
    },
    /// A disk behind Fibre Channel.
    Fc {
        /// Which.
        disk: Fc,
        /// Whether it is a device.
        block: bool,
    },
    /// A device of the node's.
    Local {
        /// The PersistentVolume.
        name: String,
        /// Whether it is a device.
        block: bool,
    },
    /// A driver's.
    Flex {
        /// The driver.
        driver: String,
        /// The name of the PersistentVolume, or of the Pod's volume.
        name: String,
    },
}

impl Staged {
    /// The directory, below that of the plugins; upstream's.
    pub(super) fn dir(&self) -> PathBuf {
        let of = |plugin: &str, block: bool| {
            let at = PathBuf::from(plugin);
            if block { at.join(DEVICES) } else { at }
        };
        match self {
            Self::Iscsi { record, block } => of("iscsi", *block).join(record.dir()),
            Self::Fc { disk, block } => of("fc", *block).join(disk.dir()),
            Self::Local { name, block: true } => of("local-volume", true).join(name),
            Self::Local { name, .. } => of("local-volume", false).join(MOUNTS).join(name),
            Self::Flex { driver, name } => of("flexvolume", false).join(driver).join(MOUNTS).join(name),
        }
    }

    /// That of a directory below that of the plugins; none of another directory.
    pub(super) fn of_dir(dir: &Path) -> Option<Self> {
        let parts: Option<Vec<&str>> = dir.iter().map(|part| part.to_str()).collect();
        match parts?.as_slice() {
            ["iscsi", DEVICES, iface, lun] => {
                Some(Self::Iscsi { record: Record::of_dir(iface, lun)?, block: true })
            }
            ["iscsi", iface, lun] => Some(Self::Iscsi { record: Record::of_dir(iface, lun)?, block: false }),
            ["fc", DEVICES, disk] => Some(Self::Fc { disk: Fc::of_dir(disk)?, block: true }),
            ["fc", disk] if *disk != DEVICES => Some(Self::Fc { disk: Fc::of_dir(disk)?, block: false }),
            ["local-volume", DEVICES, name] => Some(Self::Local { name: (*name).to_owned(), block: true }),
            ["local-volume", MOUNTS, name] => Some(Self::Local { name: (*name).to_owned(), block: false }),
            ["flexvolume", driver @ .., MOUNTS, name] if !driver.is_empty() => {
                Some(Self::Flex { driver: driver.join("/"), name: (*name).to_owned() })
            }
            _ => None,
        }
    }

    /// Whether it is a device.
    pub(super) fn is_block(&self) -> bool {
        match self {
            Self::Iscsi { block, .. } | Self::Fc { block, .. } | Self::Local { block, .. } => *block,
            Self::Flex { .. } => false,
        }
    }

    /// The names by which nodes may tell of it, as far as the directory says; none of a device of the node's own. A target's
    /// portal has its port here, whether or not its source names the usual one.
    pub(super) fn unique_names(&self) -> Vec<String> {
        match self {
            Self::Iscsi { record, .. } => {
                let portal = record.portals.first().map(String::as_str).unwrap_or_default();
                let bare = portal.strip_suffix(&format!(":{}", iscsi::PORT));
                let portals = [Some(portal), bare].into_iter().flatten();
                portals.map(|portal| iscsi_name(portal, &record.iqn, &record.lun)).collect()
            }
            Self::Fc { disk, .. } => vec![disk.name()],
            Self::Local { .. } => Vec::new(),
            Self::Flex { driver, name } => vec![flex_name(driver, name)],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inline(volume: Value) -> Disk {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}));
        let volume = serde_json::from_value(volume).unwrap();
        Disk::inline(&pod.unwrap(), &volume).unwrap().unwrap()
    }

    fn persistent(spec: Value, read_only: bool) -> Disk {
        let volume = json!({"metadata": {"name": "pv"}, "spec": spec});
        Disk::persistent(&serde_json::from_value(volume).unwrap(), ("n", "c"), read_only).unwrap().unwrap()
    }

    #[test]
    fn places() {
        let check = |disk: &Disk, plugin: &str, dir: &str, name: &str| {
            assert_eq!((disk.plugin().as_str(), disk.unique.as_deref().unwrap_or_default()), (plugin, name));
            let staged = disk.staged();
            assert_eq!(staged.dir(), Path::new(dir));
            let found = Staged::of_dir(Path::new(dir)).unwrap();
            assert_eq!((found.dir(), found.is_block()), (staged.dir(), disk.block));
        };
        let iscsi = |more: Value| {
            let mut source = json!({"targetPortal": "192.0.2.1", "iqn": "iqn.2014-12.com.example:test.tgt00",
                "lun": 2, "portals": ["192.0.2.2:3261", "192.0.2.1:3260"]});
            for (key, value) in more.as_object().into_iter().flatten() {
                source[key] = value.clone();
            }
            source
        };
        let (plugin, lun) =
            ("kubernetes.io~iscsi", "192.0.2.1:3260-iqn.2014-12.com.example:test.tgt00-lun-2");
        let name = "kubernetes.io/iscsi/192.0.2.1:iqn.2014-12.com.example:test.tgt00:2";
        let of = inline(json!({"name": "v", "iscsi": iscsi(json!({}))}));
        check(&of, plugin, &format!("iscsi/iface-default/{lun}"), name);
        let of = persistent(
            json!({"iscsi": iscsi(json!({"initiatorName": "iqn.x:me"})), "volumeMode": "Block"}),
            false,
        );
        check(&of, plugin, &format!("iscsi/volumeDevices/iface-192.0.2.1:3260:pv/{lun}"), name);
        let fc = || json!({"targetWWNs": ["50060e801049cfd1"], "lun": 0});
        let of = inline(json!({"name": "v", "fc": fc()}));
        check(&of, "kubernetes.io~fc", "fc/50060e801049cfd1-lun-0", "kubernetes.io/fc/[50060e801049cfd1]:0");
        let of = persistent(json!({"fc": {"wwids": ["3600508b4"]}, "volumeMode": "Block"}), false);
        check(&of, "kubernetes.io~fc", "fc/volumeDevices/3600508b4", "kubernetes.io/fc/[3600508b4]");
        let of = inline(json!({"name": "v", "flexVolume": {"driver": "k8s.io/d", "options": {"a": "b"}}}));
        check(&of, "k8s.io~d", "flexvolume/k8s.io/d/mounts/v", "k8s.io/d/v");
        let of = persistent(json!({"local": {"path": "dev/x"}, "volumeMode": "Block"}), true);
        assert_eq!(of.kind, Kind::Local("/dev/x".into()));
        check(&of, "kubernetes.io~local-volume", "local-volume/volumeDevices/pv", "");
        for other in
            ["csi/d/x", "iscsi/volumeDevices/x", "iscsi/iface-x/y", "fc/volumeDevices", "flexvolume/mounts/v"]
        {
            assert_eq!(Staged::of_dir(Path::new(other)), None, "{other}");
        }
    }

    /// Texts by which the author of a Pod would choose a place of the host.
    #[test]
    fn names_lead_nowhere_else() {
        let check = |source: Value, expected: bool| {
            let mut volume = source.clone();
            volume["name"] = json!("v");
            let pod =
                serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}))
                    .unwrap();
            let got = Disk::inline(&pod, &serde_json::from_value(volume).unwrap()).unwrap();
            assert_eq!(got.is_ok(), expected, "{source}: {got:?}");
        };
        let iscsi = |portal: &str, iqn: &str, iface: &str, more: &[&str]| json!({"iscsi": {"targetPortal": portal, "iqn": iqn, "lun": 0, "iscsiInterface": iface, "portals": more}});
        let (portal, iqn) = ("192.0.2.1", "iqn.2001-04.com.example:storage");
        check(iscsi(portal, iqn, "default", &["[fd00::1]:3260"]), true);
        check(iscsi("x/../../../../etc", iqn, "default", &[]), false);
        check(iscsi(portal, "iqn.2001-04.com.example:x/../../../../etc", "default", &[]), false);
        check(iscsi(portal, iqn, "x/../../..", &[]), false);
        check(iscsi(portal, iqn, "default", &["x/../y"]), false);
        check(iscsi(portal, &format!("{iqn}{}", "x".repeat(255)), "default", &[]), false);
        let fc = |ids: &[&str]| json!({"fc": {"wwids": ids}});
        check(fc(&["3600508b400105e210000900000490000"]), true);
        for bad in ["../../../../etc/x", "..", ".", "/etc/x", "a/b", "volumeDevices"] {
            check(fc(&[bad]), false);
        }
        check(json!({"fc": {"targetWWNs": ["../../x"], "lun": 0}}), false);
        let flex = |driver: &str| json!({"flexVolume": {"driver": driver}});
        check(flex("example.com/d"), true);
        for bad in ["../../d", "/etc/d", "a/../../d", "."] {
            check(flex(bad), false);
        }
    }

    #[test]
    fn sources() {
        let of = persistent(
            json!({"fc": {"wwids": ["x"], "fsType": "xfs", "readOnly": true}, "mountOptions": ["noatime", "", "noatime"]}),
            false,
        );
        // As upstream, where the claim alone says whether it is only read.
        assert_eq!(
            (of.fs_type.as_str(), of.read_only, of.mount_options(None)),
            ("xfs", false, vec!["noatime".into()])
        );
        let of = persistent(json!({"fc": {"wwids": ["x"]}, "mountOptions": ["sync"]}), true);
        assert_eq!(of.mount_options(None), ["ro", "sync"]);
        let of = persistent(
            json!({"flexVolume": {"driver": "d", "secretRef": {"name": "s", "namespace": "m"}}}),
            false,
        );
        let Kind::Flex(flex) = of.kind else { panic!("a driver's") };
        assert_eq!(flex.secret, Some(("m".into(), "s".into())));
        let volume = |spec: Value| serde_json::from_value(json!({"spec": spec})).unwrap();
        let block = json!({"flexVolume": {"driver": "d"}, "volumeMode": "Block"});
        assert!(Disk::persistent(&volume(block), ("n", "c"), false).is_none());
        assert!(Disk::persistent(&volume(json!({"fc": {}})), ("n", "c"), false).unwrap().is_err());
    }
}
