//! Directories of the node that are mounted into Pods' directories (upstream: `pkg/volume/local`).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::mounts;

/// The plugin's directory name; upstream's.
pub(super) const PLUGIN: &str = "kubernetes.io~local-volume";

/// Makes the directory of one of the node's own volumes, which everybody in a container may use. It has its rights
/// before it has its name.
pub(super) fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let Some(parent) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    // Its content belongs to Pods, not to the node's users.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let new = path.with_extension("new");
    match fs::create_dir(&new) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    fs::set_permissions(&new, fs::Permissions::from_mode(0o777))?;
    fs::rename(&new, path)
}

/// Mounts a directory of the node at `target`, if nothing is mounted there yet; returns whether it did.
pub(super) fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<bool> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(target)?;
    if mounts::is_mount_point(target)? {
        return Ok(false);
    }
    rustix::mount::mount_bind(source, target)?;
    if read_only
        && let Err(error) = rustix::mount::mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")
    {
        mounts::unmount_all_at(target)?;
        return Err(error.into());
    }
    Ok(true)
}

/// Returns where a volume is mounted for a Pod, in the Pod's directory.
pub(super) fn target(pod_dir: &Path, volume: &str) -> PathBuf {
    pod_dir.join("volumes").join(PLUGIN).join(volume)
}

/// Returns the directories of the other Pods for which a volume is mounted.
pub(crate) fn users(pods: &Path, volume: &str, but: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(pods) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if but.is_some_and(|uid| entry.file_name() == uid) {
            continue;
        }
        match mounts::is_mount_point(&target(&entry.path(), volume)) {
            Ok(true) => found.push(entry.path()),
            Ok(false) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_directories_are_for_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volumes/pvc-1");
        make(&path).unwrap();
        fs::write(path.join("f"), "x").unwrap();
        make(&path).unwrap();
        assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "x", "what is there stays");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o777, 0o700));
        // A process that ended between two steps.
        fs::create_dir(dir.path().join("volumes/pvc-2.new")).unwrap();
        make(&dir.path().join("volumes/pvc-2")).unwrap();
        assert_eq!(mode(&dir.path().join("volumes/pvc-2")), 0o777);
        assert_eq!(fs::read_dir(dir.path().join("volumes")).unwrap().count(), 2);
    }

    #[test]
    fn nobody_uses_what_is_not_mounted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(target(&dir.path().join("pod"), "pvc-1")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(users(dir.path(), "pvc-1", None).unwrap().is_empty());
        assert!(users(&dir.path().join("none"), "pvc-1", None).unwrap().is_empty());
    }
}
