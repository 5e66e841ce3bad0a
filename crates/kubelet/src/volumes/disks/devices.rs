//! Devices as the kernel tells of them in `/sys` and `/dev` (upstream: `pkg/volume/util/device_util_linux.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::host::{Host, device_name};

/// The names in a directory, sorted; none where there is none.
pub(super) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

fn text(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// An address and a port, as Go joins them.
fn join(address: &str, port: &str) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

impl Host {
    /// The device that joins the paths to a device; none if nothing does.
    pub(super) fn multipath_of(&self, device: &Path) -> Option<PathBuf> {
        let real = device.canonicalize().ok()?;
        let name = device_name(&real);
        if name.starts_with("dm-") {
            return Some(real);
        }
        let block = self.at("/sys/block");
        let all = names(&block).ok()?.into_iter().filter(|dm| dm.starts_with("dm-"));
        let mut of = all.filter(|dm| block.join(dm).join("slaves").join(name).symlink_metadata().is_ok());
        Some(self.at("/dev").join(of.next()?))
    }

    /// The names of the devices that a device is made of: itself, unless it joins others.
    pub(super) fn parts_of(&self, device: &Path) -> Vec<String> {
        let name = device_name(device);
        if !name.starts_with("dm-") {
            return vec![name.to_owned()];
        }
        names(&self.at("/sys/block").join(name).join("slaves")).unwrap_or_default()
    }

    /// The sessions with an iSCSI target: each with its host's number and its directory.
    fn sessions(&self, target: &str) -> io::Result<Vec<(u32, PathBuf)>> {
        let hosts = self.at("/sys/class/iscsi_host");
        let mut found = Vec::new();
        for host in names(&hosts)? {
            let Some(number) = host.strip_prefix("host").and_then(|n| n.parse().ok()) else { continue };
            let device = hosts.join(&host).join("device");
            for session in names(&device)?.into_iter().filter(|n| n.starts_with("session")) {
                let at = device.join(&session);
                // A session that ends just now has no name.
                if text(at.join("iscsi_session").join(&session).join("targetname")).as_deref() == Some(target)
                {
                    found.push((number, at));
                }
            }
        }
        Ok(found)
    }

    /// The numbers of the hosts that have sessions with an iSCSI target, by the target's portals.
    pub(super) fn portals(&self, target: &str) -> io::Result<BTreeMap<String, u32>> {
        let mut portals = BTreeMap::new();
        for (number, session) in self.sessions(target)? {
            for name in names(&session)?.into_iter().filter(|n| n.starts_with("connection")) {
                let at = session.join(&name).join("iscsi_connection").join(&name);
                let of = |file: &str| text(at.join(file));
                let parts = (of("address"), of("port"), of("persistent_address"), of("persistent_port"));
                let (Some(address), Some(port), Some(kept_address), Some(kept_port)) = parts else {
                    continue;
                };
                portals.insert(join(&address, &port), number);
                portals.insert(join(&kept_address, &kept_port), number);
            }
        }
        Ok(portals)
    }

    /// The names of the devices of one LUN of an iSCSI target.
    pub(super) fn devices_of_lun(&self, target: &str, lun: u32) -> io::Result<BTreeSet<String>> {
        let mut devices = BTreeSet::new();
        for (number, session) in self.sessions(target)? {
            // Channel and target are always 0 with iSCSI.
            let at = session.join(format!("target{number}:0:0")).join(format!("{number}:0:0:{lun}"));
            devices.extend(names(&at.join("block"))?.into_iter().next());
        }
        Ok(devices)
    }

    /// Looks for one LUN behind a host. A look for all of them would find those of others, which nobody takes away again.
    pub(super) fn scan_lun(&self, number: u32, lun: u32) -> io::Result<()> {
        fs::write(self.at(&format!("/sys/class/scsi_host/host{number}/scan")), format!("0 0 {lun}"))
    }

    /// Looks for devices behind all hosts.
    pub(super) fn scan_all(&self) -> io::Result<()> {
        let hosts = self.at("/sys/class/scsi_host");
        for host in names(&hosts)? {
            if let Err(error) = fs::write(hosts.join(&host).join("scan"), "- - -") {
                tracing::debug!(host, %error, "a SCSI host cannot be scanned");
            }
        }
        Ok(())
    }

    /// Removes a device from the kernel; one that is not there is as good as removed.
    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.at("/sys/block").join(name).join("device/delete");
        // The file is the kernel's, which is never made here.
        let opened = fs::OpenOptions::new().write(true).open(path);
        match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => io::Write::write_all(&mut opened?, b"1"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::super::host::tests::host;
    use super::*;

    /// Writes a file with the directories above it.
    pub(in super::super) fn put(host: &Host, path: &str, text: &str) {
        let path = host.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A session with a target in the kernel's form.
    pub(in super::super) fn session(host: &Host, number: u32, target: &str, portals: [(&str, &str); 2]) {
        let at = format!("/sys/class/iscsi_host/host{number}/device/session{number}");
        put(host, &format!("{at}/iscsi_session/session{number}/targetname"), &format!("{target}\n"));
        let connection = format!("{at}/connection{number}:0/iscsi_connection/connection{number}:0");
        let [(address, port), (kept_address, kept_port)] = portals;
        put(host, &format!("{connection}/address"), &format!("{address}\n"));
        put(host, &format!("{connection}/port"), &format!("{port}\n"));
        put(host, &format!("{connection}/persistent_address"), &format!("{kept_address}\n"));
        put(host, &format!("{connection}/persistent_port"), &format!("{kept_port}\n"));
        put(host, &format!("/sys/class/scsi_host/host{number}/scan"), "");
    }

    /// Upstream's `TestFindDevicesForISCSILun` and `TestGetISCSIPortalHostMapForTarget`.
    #[test]
    fn sessions() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), &[]);
        assert!(host.portals("t").unwrap().is_empty());
        let target = "iqn.2017-05.com.example:test";
        session(&host, 2, target, [("192.168.1.1", "3260"), ("192.168.1.1", "3260")]);
        session(&host, 3, "iqn.other", [("192.168.1.3", "3260"), ("192.168.1.3", "3260")]);
        session(&host, 4, target, [("fd00::1", "3260"), ("10.0.0.1", "3261")]);
        put(&host, "/sys/class/iscsi_host/hostx/device/session9/iscsi_session/session9/targetname", target);
        fs::create_dir_all(host.at("/sys/class/iscsi_host/host2/device/session9")).unwrap();
        let portals = host.portals(target).unwrap();
        let expected = [("10.0.0.1:3261", 4), ("192.168.1.1:3260", 2), ("[fd00::1]:3260", 4)];
        assert_eq!(portals, expected.map(|(p, n)| (p.to_owned(), n)).into());
        for (number, lun, name) in [(2, 1, "sda"), (4, 1, "sdb"), (4, 2, "sdc"), (3, 1, "sdd")] {
            let session = format!("/sys/class/iscsi_host/host{number}/device/session{number}");
            put(&host, &format!("{session}/target{number}:0:0/{number}:0:0:{lun}/block/{name}/size"), "");
        }
        let devices = |lun| host.devices_of_lun(target, lun).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(devices(1), ["sda", "sdb"]);
        assert_eq!(devices(2), ["sdc"]);
        assert!(devices(3).is_empty());
        host.scan_lun(4, 7).unwrap();
        let scan = |n| fs::read_to_string(host.at(&format!("/sys/class/scsi_host/host{n}/scan"))).unwrap();
        assert_eq!((scan(4).as_str(), scan(2).as_str()), ("0 0 7", ""));
        host.scan_all().unwrap();
        assert_eq!((scan(4).as_str(), scan(2).as_str()), ("- - -", "- - -"));
        assert!(host.scan_lun(9, 0).is_err());
    }

    /// Upstream's `TestFindMultipathDeviceForDevice` and `TestFindSlaveDevicesOnMultipath`.
    #[test]
    fn devices_of_several_paths() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), &[]);
        for name in ["sda", "sdb", "sdc", "dm-1"] {
            put(&host, &format!("/dev/{name}"), "");
        }
        fs::create_dir_all(host.at("/dev/disk/by-path")).unwrap();
        symlink(host.at("/dev/sda"), host.at("/dev/disk/by-path/x")).unwrap();
        put(&host, "/sys/block/dm-1/slaves/sda", "");
        put(&host, "/sys/block/dm-1/slaves/sdb", "");
        put(&host, "/sys/block/sdc/device/delete", "");
        let check = |path: &str, expected: Option<&str>| {
            let found = host.multipath_of(&host.at(path));
            assert_eq!(found, expected.map(|e| host.at(e)), "{path}");
        };
        check("/dev/sda", Some("/dev/dm-1"));
        check("/dev/disk/by-path/x", Some("/dev/dm-1"));
        check("/dev/dm-1", Some("/dev/dm-1"));
        check("/dev/sdc", None);
        check("/dev/none", None);
        assert_eq!(host.parts_of(&host.at("/dev/dm-1")), ["sda", "sdb"]);
        assert_eq!(host.parts_of(&host.at("/dev/sdc")), ["sdc"]);
        host.delete("sdc").unwrap();
        assert_eq!(fs::read_to_string(host.at("/sys/block/sdc/device/delete")).unwrap(), "1");
        host.delete("gone").unwrap();
    }
}
