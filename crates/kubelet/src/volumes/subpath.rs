//! Parts of volumes: a path below a volume that containers mount alone, safe against links that lead out.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::mounts;
use crate::files::{self, Links};

/// Why a part of a volume cannot be mounted. Its text tells nothing of the node's files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubPathError {
    /// An absolute path.
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    /// A path that climbs.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backsteps(String),
    /// The directory cannot be made.
    #[error("failed to create subPath directory for volumeMount {volume:?} of container {container:?}")]
    Create {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The path cannot be opened or mounted.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    Prepare {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Opens a path below `root`, following links only where they stay below it.
fn open_beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    files::open(root, path, flags, Links::Beneath)
}

/// Makes the directories of `path` that are missing below `root`, with the root's own rights.
fn make_dirs(root: &OwnedFd, path: &Path) -> io::Result<()> {
    let of_root = rustix::fs::fstat(root)?;
    let mode = Mode::from_raw_mode(of_root.st_mode & 0o7777);
    let mut at = PathBuf::new();
    for component in path.components() {
        let parent = open_beneath(root, &at, OFlags::PATH)?;
        at.push(component);
        match open_beneath(root, &at, OFlags::PATH) {
            Ok(_) => continue,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        match rustix::fs::mkdirat(&parent, component.as_os_str(), mode) {
            Ok(()) => {
                // mkdir obeys the umask; a setgid volume passes its group on by itself.
                let made = rustix::fs::openat(
                    &parent,
                    component.as_os_str(),
                    OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                rustix::fs::fchmod(&made, mode)?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// A part of a volume, and the container that mounts it.
pub(crate) struct SubPath<'a> {
    /// The volume on the node.
    pub(crate) volume_path: &'a Path,
    /// The path below it.
    pub(crate) path: &'a str,
    /// The volume's name.
    pub(crate) volume: &'a str,
    /// The container's name.
    pub(crate) container: &'a str,
    /// Which of the container's mounts it is.
    pub(crate) index: usize,
}

/// Binds a part of a volume to a place of its own below the Pod's directory; answers that place.
/// The binding holds what was found now, whatever the container puts there later.
pub(crate) fn prepare(pod_dir: &Path, sub: &SubPath<'_>) -> Result<PathBuf, SubPathError> {
    let relative = Path::new(sub.path);
    if relative.is_absolute() {
        return Err(SubPathError::Absolute(sub.path.to_owned()));
    }
    if relative.components().any(|c| matches!(c, std::path::Component::ParentDir)) {
        return Err(SubPathError::Backsteps(sub.path.to_owned()));
    }
    let named = || (sub.volume.to_owned(), sub.container.to_owned());
    let prepare = |source: io::Error| {
        let (volume, container) = named();
        SubPathError::Prepare { volume, container, source }
    };
    let root: OwnedFd = rustix::fs::open(sub.volume_path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| prepare(e.into()))?;
    let source = match open_beneath(&root, relative, OFlags::PATH) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_dirs(&root, relative).map_err(|source| {
                let (volume, container) = named();
                SubPathError::Create { volume, container, source }
            })?;
            open_beneath(&root, relative, OFlags::PATH)
        }
        other => other,
    }
    .map_err(prepare)?;
    let target =
        pod_dir.join("volume-subpaths").join(sub.volume).join(sub.container).join(sub.index.to_string());
    bind(&source, &target).map_err(prepare)?;
    Ok(target)
}

fn bind(source: &OwnedFd, target: &Path) -> io::Result<()> {
    mounts::unmount_all_at(target)?;
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let directory = files::kind(source)? == FileType::Directory;
    match std::fs::symlink_metadata(target) {
        Ok(old) if old.is_dir() != directory => {
            if old.is_dir() {
                std::fs::remove_dir(target)?;
            } else {
                std::fs::remove_file(target)?;
            }
        }
        _ => {}
    }
    if directory {
        std::fs::create_dir_all(target)?;
    } else {
        std::fs::OpenOptions::new().create(true).append(true).open(target)?;
    }
    let from = format!("/proc/self/fd/{}", source.as_raw_fd());
    rustix::mount::mount_bind(from.as_str(), target)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_do_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, volume) = (dir.path().join("pod"), dir.path().join("volume"));
        std::fs::create_dir_all(&volume).unwrap();
        std::fs::create_dir_all(dir.path().join("outside")).unwrap();
        symlink("../outside", volume.join("out")).unwrap();
        symlink("/etc", volume.join("etc")).unwrap();
        for path in ["out", "etc", "out/x", "/abs", "../volume"] {
            let sub = SubPath { volume_path: &volume, path, volume: "v", container: "c", index: 0 };
            assert!(prepare(&pod, &sub).is_err(), "{path}");
        }
        let root: OwnedFd = rustix::fs::open(&volume, OFlags::PATH, Mode::empty()).unwrap();
        make_dirs(&root, Path::new("a/b")).unwrap();
        assert!(volume.join("a/b").is_dir());
    }
}
