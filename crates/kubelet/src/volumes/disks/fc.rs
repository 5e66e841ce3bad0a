//! Disks behind Fibre Channel (upstream: `pkg/volume/fc`).

use std::io;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::FCVolumeSource;
use objects::attachable::fc_name;

use super::devices::names;
use super::host::{Host, RunError};
use crate::work::{Interrupted, try_blocking};

/// A disk: by the names of targets and a LUN, or by names of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fc {
    targets: Vec<String>,
    lun: String,
    ids: Vec<String>,
}

/// Why a disk is not there, or not taken away; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FcError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no fc disk found")]
    NotFound,
    #[error("failed to flush multipath device {device}: {error}\n{output}")]
    Flush { device: String, error: RunError, output: String },
}

impl From<Interrupted> for FcError {
    fn from(error: Interrupted) -> Self {
        Self::Io(error.into())
    }
}

/// Whether a way to a device, as udev names it, is to a LUN of a target.
fn is_way(name: &str, target: &str, lun: &str) -> bool {
    let way = name.strip_suffix(&format!("-0x{target}-lun-{lun}"));
    way.is_some_and(|way| way == "fc" || way.starts_with("pci-") && way.ends_with("-fc"))
}

impl Fc {
    /// That of a source.
    ///
    /// # Errors
    /// It says of no disk which one; upstream's text.
    pub(super) fn new(source: &FCVolumeSource) -> Result<Self, String> {
        let targets = source.target_wwns.clone().unwrap_or_default();
        let ids = source.wwids.clone().unwrap_or_default();
        match source.lun {
            Some(lun) if !targets.is_empty() => Ok(Self { targets, lun: lun.to_string(), ids: Vec::new() }),
            _ if !ids.is_empty() => {
                // As udev writes them.
                let ids = ids.into_iter().map(|id| id.replace(' ', "_")).collect();
                Ok(Self { targets: Vec::new(), lun: String::new(), ids })
            }
            _ => Err("fc: no fc disk information found. failed to make a new mounter".into()),
        }
    }

    /// The name of its directory.
    pub(super) fn dir(&self) -> String {
        if self.targets.is_empty() {
            return self.ids.join("-");
        }
        format!("{}-lun-{}", self.targets.join("-"), self.lun)
    }

    /// That of a directory's name; none if it is no such name.
    pub(super) fn of_dir(name: &str) -> Option<Self> {
        let list = |text: &str| text.split('-').map(str::to_owned).collect();
        if let Some((targets, lun)) = name.rsplit_once("-lun-") {
            lun.parse::<i32>().ok()?;
            return Some(Self { targets: list(targets), lun: lun.to_owned(), ids: Vec::new() });
        }
        let bare = name.starts_with("lun-") || name.is_empty();
        (!bare).then(|| Self { targets: Vec::new(), lun: String::new(), ids: list(name) })
    }

    /// The name by which nodes tell of it.
    pub(super) fn name(&self) -> String {
        fc_name(&self.targets, Some(&self.lun), &self.ids)
    }

    /// The device among those that the kernel knows: the one that joins several paths, or else the first path.
    ///
    /// DIFFERENCE: upstream forgets a path that it found if it finds none by a later name.
    fn find(&self, host: &Host) -> io::Result<Option<PathBuf>> {
        let dir = host.at(if self.targets.is_empty() { "/dev/disk/by-id" } else { "/dev/disk/by-path" });
        let all = names(&dir)?;
        let mut first = None;
        for id in if self.targets.is_empty() { &self.ids } else { &self.targets } {
            let is_it = |name: &&String| {
                if self.targets.is_empty() {
                    **name == format!("scsi-{id}")
                } else {
                    is_way(name, id, &self.lun)
                }
            };
            let Some(name) = all.iter().find(is_it) else { continue };
            // A link whose device has just gone leads nowhere.
            let Ok(disk) = dir.join(name).canonicalize() else { continue };
            if let Some(joined) = host.multipath_of(&disk) {
                return Ok(Some(joined));
            }
            first.get_or_insert(disk);
        }
        Ok(first)
    }

    /// Finds the device; all hosts are scanned, unless one that joins several paths is there already.
    ///
    /// # Errors
    /// It is not there.
    pub(super) async fn attach(&self, host: &Host) -> Result<PathBuf, FcError> {
        let (of, on) = (self.clone(), host.clone());
        let search = move || {
            let is_joined = |p: &PathBuf| super::host::device_name(p).starts_with("dm-");
            if let Some(found) = of.find(&on)?.filter(is_joined) {
                return Ok(found);
            }
            on.scan_all()?;
            of.find(&on)?.ok_or(FcError::NotFound)
        };
        try_blocking(search).await
    }

    /// Takes the disk's devices from the kernel; those that are not there are as good as taken.
    ///
    /// # Errors
    /// One that joins several paths is in use.
    pub(super) async fn detach(&self, host: &Host) -> Result<(), FcError> {
        let (of, on) = (self.clone(), host.clone());
        let find = move || -> Result<_, FcError> {
            let Some(device) = of.find(&on)? else { return Ok(None) };
            let parts = on.parts_of(&device);
            Ok(Some((device, parts)))
        };
        let Some((device, parts)) = try_blocking(find).await? else { return Ok(()) };
        let joined = super::host::device_name(&device).starts_with("dm-");
        let device = device.to_string_lossy().into_owned();
        if joined && let Err(error) = host.run("multipath", &["-f", &device]).await {
            let output = error.output().to_owned();
            return Err(FcError::Flush { device, error, output });
        }
        for part in parts {
            let path = host.at("/dev").join(&part);
            if let Err(error) = host.run("blockdev", &["--flushbufs", &path.to_string_lossy()]).await {
                tracing::warn!(device = part, %error, "a device could not be flushed");
            }
            let on = host.clone();
            try_blocking(move || Ok::<_, FcError>(on.delete(&part)?)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::super::devices::tests::put;
    use super::super::host::tests::host;
    use super::*;

    /// Upstream's tree of fc_util_test.go.
    fn tree(host: &Host) {
        let links = [
            ("by-path/pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-0", "sda"),
            ("by-path/pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-1", "sdb"),
            ("by-path/fc-0x5005076810213b32-lun-2", "sdc"),
            ("by-path/pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-12", "sdl"),
            ("by-path/fc-0x5005076810213b32-lun-25", "sdx"),
            ("by-path/abc-0000:41:00.0-fc-0x5005076810213404-lun-0", "sdz"),
            ("by-id/scsi-3600508b400105e210000900000490000", "sdd"),
            ("by-path/fc-0x500507681021a537-lun-0", "sde"),
            ("by-path/fc-0x500507681022a554-lun-2", "sdf"),
        ];
        put(host, "/dev/dm-1", "");
        for (link, device) in links {
            put(host, &format!("/dev/{device}"), "");
            put(host, &format!("/sys/block/{device}/device/delete"), "");
            let link = host.at(&format!("/dev/disk/{link}"));
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(host.at(&format!("/dev/{device}")), link).unwrap();
        }
        for part in ["sde", "sdf", "sdg"] {
            put(host, &format!("/sys/block/dm-1/slaves/{part}"), "");
        }
        put(host, "/sys/class/scsi_host/host0/scan", "");
    }

    fn fc(source: Value) -> Result<Fc, String> {
        Fc::new(&serde_json::from_value(source).unwrap())
    }

    /// Upstream's cases of `TestSearchDisk`, `TestSearchDiskWWID` and `TestSearchDiskMultipathDevice`.
    #[tokio::test]
    async fn disks_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), &[]);
        tree(&host);
        let scan = host.at("/sys/class/scsi_host/host0/scan");
        let check = async |source: Value, expected: Option<&str>, scanned: bool| {
            fs::write(&scan, "").unwrap();
            let found = fc(source.clone()).unwrap().attach(&host).await.ok();
            assert_eq!(found, expected.map(|e| host.at(e)), "{source}");
            assert_eq!(fs::read_to_string(&scan).unwrap() == "- - -", scanned, "{source}");
        };
        let by = |target: &str, lun: i32| json!({"targetWWNs": [target], "lun": lun});
        check(by("500a0981891b8dc5", 0), Some("/dev/sda"), true).await;
        check(by("500a0981891b8dc5", 1), Some("/dev/sdb"), true).await;
        check(by("5005076810213b32", 2), Some("/dev/sdc"), true).await;
        check(by("5005076810213404", 0), None, true).await;
        check(by("500507681fffffff", 0), None, true).await;
        check(json!({"wwids": ["3600508b400105e210000900000490000"]}), Some("/dev/sdd"), true).await;
        check(by("500507681021a537", 0), Some("/dev/dm-1"), false).await;
        check(by("500507681022a554", 2), Some("/dev/dm-1"), false).await;
        let two = json!({"targetWWNs": ["500a0981891b8dc5", "500507681fffffff"], "lun": 1});
        check(two, Some("/dev/sdb"), true).await;
    }

    #[test]
    fn sources() {
        let check = |source: Value, dir: &str, name: &str| {
            let fc = fc(source).unwrap();
            assert_eq!((fc.dir().as_str(), fc.name().as_str()), (dir, name));
            assert_eq!(Fc::of_dir(dir), Some(fc));
        };
        check(json!({"targetWWNs": ["a", "b"], "lun": 0}), "a-b-lun-0", "kubernetes.io/fc/[a b]:0");
        check(json!({"wwids": ["3600 x", "y"]}), "3600_x-y", "kubernetes.io/fc/[3600_x y]");
        check(json!({"targetWWNs": ["a"], "wwids": ["x"]}), "x", "kubernetes.io/fc/[x]");
        for none in [json!({}), json!({"targetWWNs": ["a"]}), json!({"lun": 1})] {
            assert!(fc(none).unwrap_err().starts_with("fc: no fc disk information found."));
        }
    }

    /// Upstream's cases of `TestParsePDName`.
    #[test]
    fn names_of_directories() {
        let check = |name: &str, expected: Option<(&[&str], &str, &[&str])>| {
            let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            let expected = expected.map(|(targets, lun, ids)| Fc {
                targets: list(targets),
                lun: lun.into(),
                ids: list(ids),
            });
            assert_eq!(Fc::of_dir(name), expected, "{name}");
        };
        let (one, two) = ("60050763008084e6e0000000000001ae", "60050763008084e6e0000000000001af");
        check(one, Some((&[], "", &[one])));
        check(&format!("{one}-{two}"), Some((&[], "", &[one, two])));
        check("50050768030539b6-lun-0", Some((&["50050768030539b6"], "0", &[])));
        let both = &["50050768030539b6", "50050768030539b7"];
        check("50050768030539b6-50050768030539b7-lun-0", Some((both, "0", &[])));
        check("lun-0", None);
        check("50050768030539b6-lun-x", None);
    }

    #[tokio::test]
    async fn devices_are_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("calls");
        let script = |name: &str| format!("echo {name} \"$@\" >> {}", log.display());
        let (multipath, blockdev) = (script("multipath"), script("blockdev"));
        let host = host(dir.path(), &[("multipath", &multipath), ("blockdev", &blockdev)]);
        tree(&host);
        let deleted = |name: &str| {
            fs::read_to_string(host.at(&format!("/sys/block/{name}/device/delete"))).unwrap() == "1"
        };
        fc(json!({"targetWWNs": ["500a0981891b8dc5"], "lun": 0})).unwrap().detach(&host).await.unwrap();
        assert!(deleted("sda") && !deleted("sdb"));
        fc(json!({"targetWWNs": ["500507681021a537"], "lun": 0})).unwrap().detach(&host).await.unwrap();
        assert!(deleted("sde") && deleted("sdf"));
        fc(json!({"wwids": ["gone"]})).unwrap().detach(&host).await.unwrap();
        let calls = fs::read_to_string(&log).unwrap().replace(&*host.root.to_string_lossy(), "");
        let expected = "blockdev --flushbufs /dev/sda\nmultipath -f /dev/dm-1\nblockdev --flushbufs /dev/sde\nblockdev --flushbufs /dev/sdf\nblockdev --flushbufs /dev/sdg\n";
        assert_eq!(calls, expected);
    }

    #[tokio::test]
    async fn a_busy_device_stays() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), &[("multipath", "echo map in use; exit 1"), ("blockdev", "")]);
        tree(&host);
        let fc = fc(json!({"targetWWNs": ["500507681021a537"], "lun": 0})).unwrap();
        let told = fc.detach(&host).await.unwrap_err().to_string();
        assert!(told.ends_with("dm-1: exit status 1\nmap in use\n"), "{told}");
        assert_eq!(fs::read_to_string(host.at("/sys/block/sde/device/delete")).unwrap(), "");
    }
}
