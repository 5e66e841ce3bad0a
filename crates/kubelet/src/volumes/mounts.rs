//! Mounts of this machine.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change};

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
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
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

/// A path as the kernel's list of mounts has it: links in what is above its last part are followed. The last part is
/// not, since it may be a mount that does not answer; a link there is no mount point.
fn listed(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(std::fs::canonicalize(parent)?.join(name)),
        _ => Ok(path.to_owned()),
    }
}

/// Whether the kernel lists a path as a mount point. The content of the mount is not asked, so that a server that
/// does not answer holds nobody up.
pub(crate) fn is_listed(path: &Path) -> io::Result<bool> {
    let path = match listed(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        path => path?,
    };
    Ok(mount_points()?.contains(&path))
}

/// The mount points below a directory and on it, in the order in which they were mounted.
fn points_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = match listed(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir?,
    };
    Ok(mount_points()?.into_iter().filter(|point| point.starts_with(&dir)).collect())
}

/// Unmounts everything below a directory and on it, the last mounted first; answers whether there was anything.
pub(crate) fn unmount_below(dir: &Path) -> io::Result<bool> {
    let points = points_below(dir)?;
    for point in points.iter().rev() {
        // The kernel's list has no links in it: one that is there now was put there since.
        match rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(!points.is_empty())
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

/// Whether what is mounted below a directory is seen where the directory is mounted, too, by the kernel's list of mounts.
fn is_shared(list: &[u8], dir: &Path) -> bool {
    let mut best: Option<(usize, bool)> = None;
    for line in list.split(|b| *b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let (Some(point), Some(optional)) = (fields.get(4), fields.get(6..)) else { continue };
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        let depth = point.components().count();
        // Of mounts on one point the last is seen.
        if dir.starts_with(&point) && best.is_none_or(|(of, _)| depth >= of) {
            let mut optional = optional.iter().take_while(|field| **field != b"-");
            best = Some((depth, optional.any(|field| field.starts_with(b"shared:"))));
        }
    }
    best.is_some_and(|(_, shared)| shared)
}

/// Makes a directory one whose mounts containers see that have it with `mountPropagation`, as upstream's kubelet does with
/// its own directory: machines without systemd share no mounts.
///
/// # Errors
/// The kernel does not let this process mount.
pub(crate) fn share(dir: &Path) -> io::Result<()> {
    let dir = std::fs::canonicalize(dir)?;
    if is_shared(&std::fs::read("/proc/self/mountinfo")?, &dir) {
        return Ok(());
    }
    if !is_mount_point(&dir)? {
        if !points_below(&dir)?.is_empty() {
            // They would be hidden, and Pods have them.
            tracing::warn!(dir = %dir.display(), "mounts of containers are not seen by others until the node has no Pods and the kubelet starts again");
            return Ok(());
        }
        mount_bind(&dir, &dir)?;
    }
    Ok(mount_change(&dir, MountPropagationFlags::SHARED | MountPropagationFlags::REC)?)
}

/// Unmounts what is mounted in a directory tree, and removes it.
pub(crate) fn remove_unmounted(dir: &Path) -> io::Result<()> {
    // One that is empty goes without a look at the kernel's list, which has some mounts of each Pod.
    match std::fs::remove_dir(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    if unmount_below(dir)? && !points_below(dir)?.is_empty() {
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

    /// A bind mount of a directory, which the end of the test undoes.
    struct Mounted(PathBuf);

    impl Mounted {
        fn new(from: &Path, at: &Path) -> Self {
            rustix::mount::mount_bind(from, at).unwrap();
            Self(at.to_owned())
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }

    #[test]
    fn shared_mounts() {
        let check = |list: &str, dir: &str, expected: bool| {
            assert_eq!(is_shared(list.as_bytes(), Path::new(dir)), expected, "{list} {dir}");
        };
        let root = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw\n";
        let private = "22 1 8:1 / / rw,relatime - ext4 /dev/sda rw\n";
        let var = |optional: &str| format!("30 22 8:2 / /var rw {optional}- ext4 /dev/sdb rw\n");
        check(root, "/var/lib/kubelet", true);
        check(private, "/var/lib/kubelet", false);
        check(&format!("{root}{}", var("")), "/var/lib/kubelet", false);
        check(&format!("{}{root}", var("")), "/var/lib/kubelet", false);
        check(&format!("{private}{}", var("master:1 shared:2 ")), "/var/lib/kubelet", true);
        check(&format!("{private}{}", var("master:1 ")), "/var/lib/kubelet", false);
        check(&format!("{private}{}", var("shared:2 ")), "/variable", false);
        check(&format!("{}{}", var(""), var("shared:2 ")), "/var", true);
        check("nonsense\n", "/var", false);
    }

    #[test]
    fn a_directory_is_shared_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("a b");
        std::fs::create_dir(&at).unwrap();
        let list = || std::fs::read("/proc/self/mountinfo").unwrap();
        for _ in 0..2 {
            share(&at).unwrap();
            assert!(is_shared(&list(), &std::fs::canonicalize(&at).unwrap()));
        }
        assert!(points_below(&at).unwrap().len() <= 1);
        remove_unmounted(&at).unwrap();
        assert!(!at.exists());
        assert!(share(&at).is_err(), "it is not there");
    }

    #[test]
    fn mounts_are_found_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let (real, served) = (dir.path().join("real"), dir.path().join("served"));
        std::fs::create_dir_all(real.join("pods/a/volumes/v")).unwrap();
        std::fs::create_dir_all(&served).unwrap();
        std::fs::write(served.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let pod = dir.path().join("link/pods/a");
        let at = pod.join("volumes/v");
        assert!(!is_listed(&at).unwrap());
        let _mounted = Mounted::new(&served, &real.join("pods/a/volumes/v"));
        assert!(is_listed(&at).unwrap());
        remove_unmounted(&pod).unwrap();
        assert!(!pod.exists() && served.join("file").exists());
        assert!(!is_listed(&at).unwrap());
        remove_unmounted(&pod).unwrap();
    }

    #[test]
    fn octal_is_undone() {
        assert_eq!(unescape(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape(br"/a\04"), br"/a\04");
    }
}
