//! Changes of files, told by the kernel.

use std::io::{ErrorKind, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Tells when files of some directories were written or moved there.
pub(crate) struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    /// Looks at these directories from now on.
    pub(crate) fn of<'a>(dirs: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        Self::told(dirs, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)
    }

    /// Looks at these files or directories from now on, and is told of these events.
    pub(crate) fn told<'a>(paths: impl IntoIterator<Item = &'a Path>, events: WatchFlags) -> Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        for path in paths {
            inotify::add_watch(&inotify, path, events)?;
        }
        #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
        let inotify = AsyncFd::with_interest(inotify, Interest::READABLE)?;
        Ok(Self(inotify))
    }

    /// Resolves after the next change; which files changed is not told.
    pub(crate) async fn next(&mut self) -> Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|inotify| {
                Reader::new(inotify.get_ref(), &mut buffer).next().map(drop).map_err(std::io::Error::from)
            });
            match read {
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_not_yet) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_new_file_is_noticed() {
        let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut changes = Changes::of([one.path(), two.path()]).unwrap();
        for dir in [&one, &two, &one] {
            std::fs::write(dir.path().join("a.tar"), "x").unwrap();
            tokio::time::timeout(Duration::from_mins(1), changes.next()).await.unwrap().unwrap();
        }
        std::fs::rename(one.path().join("a.tar"), two.path().join("b.tar")).unwrap();
        tokio::time::timeout(Duration::from_mins(1), changes.next()).await.unwrap().unwrap();
        assert!(Changes::of([one.path().join("none").as_path()]).is_err());
    }
}
