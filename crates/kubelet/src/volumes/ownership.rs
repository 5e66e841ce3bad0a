//! The group of a volume's files, as `fsGroup` wants it (upstream: `pkg/volume/volume_linux.go`).
//!
//! Containers may exchange files meanwhile, so each is opened below the volume's root without following a link, and
//! changed through what was opened.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Pod;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};

use crate::files::{self, Links};
use crate::pods::spec;

const READ_WRITE: u32 = 0o660;
const EXECUTE: u32 = 0o110;
const SET_GROUP: u32 = 0o2000;

/// The wish that a Pod has for the files of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The group.
    pub(crate) group: u32,
    /// Whether files are left alone if the root is as it should be.
    pub(crate) on_root_mismatch: bool,
}

/// Returns the group to which a Pod's volumes belong, if it wants one.
pub(super) fn group(pod: &Pod) -> Option<u32> {
    spec::spec(pod).security_context.as_ref().and_then(|c| c.fs_group).and_then(|g| u32::try_from(g).ok())
}

/// Returns the permission bits that a file of this kind gets.
fn mode_for(kind: FileType, mode: u32) -> u32 {
    let execute = if kind == FileType::Directory { EXECUTE | SET_GROUP } else { 0 };
    (mode & 0o7777) | READ_WRITE | execute
}

/// Whether a volume's root is not as it should be.
fn mismatches(kind: FileType, mode: u32, group: u32, wanted: u32) -> bool {
    kind != FileType::Directory || group != wanted || mode_for(kind, mode) != mode & 0o7777
}

impl Ownership {
    /// Gives a volume's files to the group, the root last; `done` counts them.
    ///
    /// # Errors
    /// Files cannot be listed. One that cannot be changed is passed over, as upstream does.
    pub(super) fn apply(self, root: &Path, done: &AtomicU64) -> io::Result<()> {
        let root = files::root(root)?;
        let found = rustix::fs::fstat(&root)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if self.on_root_mismatch && !mismatches(kind, found.st_mode, found.st_gid, self.group) {
            return Ok(());
        }
        // Each directory comes twice: before what is in it, and after.
        let mut left = vec![(PathBuf::new(), false)];
        let mut failed = 0_u64;
        while let Some((path, seen)) = left.pop() {
            let file = match files::open(&root, &path, OFlags::PATH | OFlags::NOFOLLOW, Links::None) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            if !seen && files::kind(&file)? == FileType::Directory {
                let listing = files::reopen(&file, OFlags::RDONLY | OFlags::DIRECTORY)?;
                let names = files::names(&listing)?;
                left.push((path.clone(), true));
                left.extend(names.into_iter().map(|(name, _)| (path.join(name), false)));
                continue;
            }
            done.fetch_add(1, Ordering::Relaxed);
            failed += u64::from(self.change(&file).is_err());
        }
        if failed > 0 {
            tracing::warn!(failed, "the group or the mode of some files of a volume could not be set");
        }
        Ok(())
    }

    fn change(self, file: &OwnedFd) -> io::Result<()> {
        let found = rustix::fs::statat(file, "", AtFlags::EMPTY_PATH)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        rustix::fs::chownat(file, "", None, Some(Gid::from_raw(self.group)), AtFlags::EMPTY_PATH)?;
        // The mode of a link means nothing.
        if kind != FileType::Symlink {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::chmod(path, Mode::from_raw_mode(mode_for(kind, found.st_mode)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn roots() {
        let check = |mode: u32, group: u32, expected: bool| {
            assert_eq!(mismatches(FileType::Directory, mode, group, 5), expected, "{mode:o} {group}");
        };
        // Upstream's cases of `TestSkipPermissionChange`.
        check(0o2770, 5, false);
        check(0o2775, 5, false);
        check(0o2777, 5, false);
        check(0o2770, 6, true);
        check(0o770, 5, true);
        check(0o2750, 5, true);
        check(0o2760, 5, true);
        assert!(mismatches(FileType::RegularFile, 0o2770, 5, 5));
    }

    #[test]
    fn files_get_the_group_and_its_rights() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("d")).unwrap();
        fs::write(volume.join("d/f"), "").unwrap();
        fs::write(&outside, "").unwrap();
        for (path, mode) in
            [(&outside, 0o600), (&volume.join("d/f"), 0o604), (&volume.join("d"), 0o700), (&volume, 0o755)]
        {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink(&outside, volume.join("d/link")).unwrap();
        let group = fs::metadata(&volume).unwrap().gid();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let (always, done) = (Ownership { group, on_root_mismatch: false }, AtomicU64::new(0));
        always.apply(&volume, &done).unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 4);
        assert_eq!(mode(&volume), 0o2775);
        assert_eq!(mode(&volume.join("d")), 0o2770);
        assert_eq!(mode(&volume.join("d/f")), 0o664);
        assert_eq!(mode(&outside), 0o600, "a link leads nowhere");
        // With the root as it should be, the rest is left alone.
        fs::set_permissions(volume.join("d/f"), fs::Permissions::from_mode(0o600)).unwrap();
        Ownership { on_root_mismatch: true, ..always }.apply(&volume, &done).unwrap();
        assert_eq!(mode(&volume.join("d/f")), 0o600);
        always.apply(&volume, &done).unwrap();
        assert_eq!(mode(&volume.join("d/f")), 0o660);
    }
}
