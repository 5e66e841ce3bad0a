//! Mounts of this machine.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::mount::UnmountFlags;

/// Mount points in the order in which they were mounted.
pub(crate) fn mount_points() -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(text
        .split(|b| *b == b'\n')
        .filter_map(|line| line.split(|b| *b == b' ').nth(4))
        .map(|field| PathBuf::from(OsString::from_vec(unescape(field))))
        .collect())
}

/// The kernel writes blanks and backslashes as octal numbers.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        if let Some(code) = code {
            out.push(code);
            rest = &after[3..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// Unmounts everything below a directory and on it, the last mounted first.
pub(crate) fn unmount_below(dir: &Path) -> io::Result<()> {
    for point in mount_points()?.into_iter().rev().filter(|p| p.starts_with(dir)) {
        // The kernel's list has no links in it: one that is there now was put there since.
        match rustix::mount::unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Unmounts what is mounted on exactly this path, however often.
pub(crate) fn unmount_all_at(path: &Path) -> io::Result<()> {
    loop {
        match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether something is mounted on exactly this path.
pub(crate) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Unmounts what is mounted in a directory tree, and removes it.
pub(crate) fn remove_unmounted(dir: &Path) -> io::Result<()> {
    unmount_below(dir)?;
    if mount_points()?.iter().any(|p| p.starts_with(dir)) {
        return Err(io::Error::other(format!("{} still has mounts", dir.display())));
    }
    crate::files::remove_tree(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_known() {
        let check = |path: &str, want: Option<bool>| {
            assert_eq!(is_mount_point(Path::new(path)).ok(), want, "{path}");
        };
        check("/proc", Some(true));
        check("/proc/self", Some(false));
        check("/etc", Some(false));
        check("/none", None);
    }

    #[test]
    fn octal_is_undone() {
        assert_eq!(unescape(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape(br"/a\04"), br"/a\04");
    }
}
