//! The things that tests of a whole kubelet share.

pub(crate) mod fake;
pub(crate) mod memory;

use std::path::Path;

use rustix::mount::UnmountFlags;

/// A directory for the files of a kubelet, whose own directory is `kubelet` in it.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The kubelet's directory is a mount where the machine shares none.
        let _ = rustix::mount::unmount(self.path().join("kubelet"), UnmountFlags::DETACH);
    }
}
