//! The kernel's table of mounts, by devices.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::volumes::mounts::unescape;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// The device, as the kernel numbers it.
    device: Vec<u8>,
    /// The directory of the file system that is mounted.
    root: Vec<u8>,
    /// Where.
    point: PathBuf,
    /// The device's path, or what else its file system calls it.
    source: Vec<u8>,
    /// The file system's own options.
    options: Vec<u8>,
}

/// The mounts of this machine, in their order.
#[derive(Debug, Default)]
pub(super) struct Table(Vec<Mount>);

impl Table {
    /// Reads it.
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Self {
        let line = |line: &[u8]| {
            let mut fields = line.split(|b| *b == b' ').skip(2);
            let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
            let point = PathBuf::from(OsString::from_vec(unescape(point)));
            let mut rest = fields.skip_while(|field| *field != b"-").skip(2);
            let (source, options) = (unescape(rest.next()?), rest.next().unwrap_or_default().to_vec());
            Some(Mount { device: device.to_vec(), root: root.to_vec(), point, source, options })
        };
        Self(text.split(|b| *b == b'\n').filter_map(line).collect())
    }

    /// The places below a directory where the file system of a mount is mounted, too.
    pub(super) fn same(&self, point: &Path, below: &Path) -> Vec<&Path> {
        // The last mount at a path is the one that is seen there.
        let Some(of) = self.0.iter().rev().find(|m| m.point == point) else { return Vec::new() };
        let same = |m: &&Mount| m.device == of.device && m.point != point && m.point.starts_with(below);
        self.0.iter().filter(same).map(|m| m.point.as_path()).collect()
    }

    /// The device that is mounted at a path; empty if none is.
    pub(super) fn source(&self, point: &Path) -> PathBuf {
        let of = self.0.iter().rev().find(|m| m.point == point).filter(|m| m.source.starts_with(b"/dev/"));
        of.map(|m| PathBuf::from(OsString::from_vec(m.source.clone()))).unwrap_or_default()
    }

    /// The options of the file system that is mounted at a path; none if nothing is.
    pub(super) fn options(&self, point: &Path) -> Option<String> {
        let of = self.0.iter().rev().find(|m| m.point == point)?;
        Some(String::from_utf8_lossy(&of.options).into_owned())
    }

    /// The places below a directory where the same directory of the same file system is mounted as at a path.
    pub(super) fn equal(&self, point: &Path, below: &Path) -> Vec<&Path> {
        let Some(of) = self.0.iter().rev().find(|m| m.point == point) else { return Vec::new() };
        let root =
            |p: &&Path| self.0.iter().any(|m| m.point == **p && m.device == of.device && m.root == of.root);
        self.same(point, below).into_iter().filter(root).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `Test_ConstructVolumeSpec` in fc_test.go, and more.
    #[test]
    fn mounts_of_one_file_system() {
        let table = Table::parse(
            b"30 1 8:16 / /k/pods/p/volumes/kubernetes.io~fc/one rw,relatime shared:1 - ext4 /dev/sdb rw\n\
              31 1 8:16 / /k/plugins/kubernetes.io/fc/50060e801049cfd1-lun-0 rw - ext4 /dev/sdb rw\n\
              32 1 8:16 /sub /k/pods/p/volume-subpaths/one/c/0 rw - ext4 /dev/sdb rw\n\
              33 1 8:16 /sub /k/plugins/odd rw - ext4 /dev/sdb rw\n\
              34 1 8:32 / /k/pods/p/volumes/kubernetes.io~fc/a\\040b rw - ext4 /dev/sdc rw\n",
        );
        let (one, global) =
            ("/k/pods/p/volumes/kubernetes.io~fc/one", "/k/plugins/kubernetes.io/fc/50060e801049cfd1-lun-0");
        let check = |found: Vec<&Path>, expected: &[&str]| {
            assert_eq!(found, expected.iter().map(Path::new).collect::<Vec<_>>());
        };
        check(table.equal(Path::new(one), Path::new("/k/plugins")), &[global]);
        check(
            table.same(Path::new(global), Path::new("/k/pods")),
            &[one, "/k/pods/p/volume-subpaths/one/c/0"],
        );
        let alone = Path::new("/k/pods/p/volumes/kubernetes.io~fc/a b");
        check(table.equal(alone, Path::new("/k/plugins")), &[]);
        check(table.same(Path::new("/none"), Path::new("/")), &[]);
        assert_eq!(table.source(Path::new(global)), Path::new("/dev/sdb"));
        assert_eq!(table.source(Path::new("/none")), Path::new(""));
        let options = |point: &str| table.options(Path::new(point));
        assert_eq!((options(one).as_deref(), options("/none")), (Some("rw"), None));
    }
}
