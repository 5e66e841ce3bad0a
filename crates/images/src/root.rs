//! Roots of containers, and how they are mounted.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::LinuxIdMapping;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::mount;

/// How the ids of a user namespace map to this machine's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    /// User ids.
    pub uids: Vec<LinuxIdMapping>,
    /// Group ids.
    pub gids: Vec<LinuxIdMapping>,
}

/// How a root is prepared. Whether a container may write into its root is not told here: mount points are made in it
/// first, and the mount is made read-only then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepare {
    /// The user namespace's ids, if its container has one: files of the image then belong to the ids inside.
    pub id_map: Option<IdMap>,
}

/// A root that was prepared. It stays until [`crate::Images::release`], also across processes.
#[derive(Debug, Clone)]
pub struct Root {
    pub(crate) key: String,
    pub(crate) image: Digest,
    /// The directory with `upper` and `work`.
    pub(crate) directory: PathBuf,
    /// The layers' directories, the topmost first.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) id_map: Option<IdMap>,
    pub(crate) view: bool,
    /// Whether overlayfs's attributes are those of users.
    pub(crate) user_xattrs: bool,
}

/// A root that cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel lacks a system call or an option.
    #[error("this kernel cannot mount the roots of containers, Linux 6.1 or later can ({what}): {source}")]
    Unsupported {
        /// The system call or option.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A step failed.
    #[error("mounting the root {key}: {step}: {source}")]
    Failed {
        /// The root's key.
        key: String,
        /// The step.
        step: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl Root {
    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The image's id.
    pub fn image(&self) -> &Digest {
        &self.image
    }

    /// Whether it is a read-only view.
    pub fn is_view(&self) -> bool {
        self.view
    }

    /// The user namespace's ids.
    pub fn id_map(&self) -> Option<&IdMap> {
        self.id_map.as_ref()
    }

    /// The directory of what the container wrote: the upper layer. Nobody should change it while it is mounted.
    pub fn upper(&self) -> PathBuf {
        self.directory.join("upper")
    }

    /// The layers' directories, the topmost first.
    pub fn layers(&self) -> impl Iterator<Item = &Path> {
        self.layers.iter().map(PathBuf::as_path)
    }

    /// Mounts the root: a detached mount, which is in no mount table of this machine. Attach it by `move_mount`; it
    /// ends when the descriptor is closed and nobody has it attached. Two mounts of one root at a time are not
    /// allowed: what they show then is undefined. Some system calls and no waiting, so it may be called from a task.
    ///
    /// Where the root has an id map, a user namespace with that map is made for the time of the call.
    pub fn mount(&self) -> Result<OwnedFd, MountError> {
        match &self.id_map {
            None => mount::mount(self, None),
            Some(ids) => {
                let namespace = mount::user_namespace(ids).map_err(|source| MountError::Failed {
                    key: self.key.clone(),
                    step: "making a user namespace",
                    source,
                })?;
                self.mount_in(std::os::fd::AsFd::as_fd(&namespace))
            }
        }
    }

    /// Mounts the root with the ids of a user namespace that is there already, whose map must be the root's.
    pub fn mount_in(&self, user_namespace: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
        mount::mount(self, self.id_map.is_some().then_some(user_namespace))
    }
}
