//! `--lock-file`: of the kubelets that have the same one, one runs at a time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::inotify::WatchFlags;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::oneshot;

use crate::changes::Changes;

/// A lock that is held as long as this is there.
pub(super) struct Lock {
    _file: File,
    /// Tells when somebody else wants it, if the kubelet is to end then.
    contention: Option<Changes>,
}

/// A lock that is not held yet.
pub(super) struct Waiting {
    file: File,
    path: PathBuf,
    ends: bool,
}

impl Lock {
    /// Opens the file, if there is to be one; `ends` says whether the kubelet is to end when somebody else wants it.
    ///
    /// # Errors
    /// It cannot be made, or there is none that somebody else could want.
    pub(super) fn of(path: Option<&Path>, ends: bool) -> Result<Option<Waiting>> {
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else {
            if ends {
                bail!("cannot exit on lock file contention: no lock file specified");
            }
            return Ok(None);
        };
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.with_context(|| unusable(path))?;
        Ok(Some(Waiting { file, path: path.to_owned(), ends }))
    }
}

fn unusable(path: &Path) -> String {
    format!("unable to acquire file lock on {:?}", path.display())
}

impl Waiting {
    /// Waits until nobody else holds the lock.
    ///
    /// # Errors
    /// The file cannot be locked, or it cannot be seen that somebody else wants it.
    pub(super) async fn get(self) -> Result<Lock> {
        let Self { file, path, ends } = self;
        let (told, locked) = oneshot::channel();
        // A thread of its own: the process may end while the lock is waited for.
        let thread = std::thread::Builder::new().name("lock-file".to_owned());
        let waiting = thread.spawn(move || {
            let locked = flock(&file, FlockOperation::LockExclusive);
            // Nobody waits for it any more once a signal came.
            let _ = told.send(locked.map(|()| file));
        });
        waiting.with_context(|| unusable(&path))?;
        let file = locked.await.with_context(|| unusable(&path))?.with_context(|| unusable(&path))?;
        let contention = ends
            .then(|| Changes::told([path.as_path()], WatchFlags::OPEN | WatchFlags::DELETE_SELF))
            .transpose()
            .with_context(|| format!("cannot watch --lock-file {}", path.display()))?;
        Ok(Lock { _file: file, contention })
    }
}

/// Resolves once somebody else wants the lock and the kubelet is to end then; never otherwise.
pub(super) async fn contended(lock: Option<&mut Lock>) {
    let Some(changes) = lock.and_then(|lock| lock.contention.as_mut()) else {
        return std::future::pending().await;
    };
    match changes.next().await {
        Ok(()) => tracing::info!("somebody else opened or removed --lock-file"),
        Err(error) => tracing::error!(%error, "--lock-file cannot be watched any more"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn one_holds_the_lock_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let wanted = |ends| Lock::of(Some(&path), ends).unwrap().unwrap();
        let first = wanted(false).get().await.unwrap();
        let second = tokio::spawn(wanted(true).get());
        // The second one's thread waits in the kernel; there is nothing to see but that it has not ended.
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        let waited = tokio::time::timeout(Duration::from_mins(1), second).await;
        let mut second = waited.unwrap().unwrap().unwrap();
        let ending = tokio::spawn(async move { contended(Some(&mut second)).await });
        tokio::task::yield_now().await;
        assert!(!ending.is_finished());
        let third = wanted(false).get();
        tokio::time::timeout(Duration::from_mins(1), ending).await.unwrap().unwrap();
        tokio::time::timeout(Duration::from_mins(1), third).await.unwrap().unwrap();
    }

    #[test]
    fn a_lock_has_a_file() {
        assert!(Lock::of(None, false).unwrap().is_none());
        assert!(Lock::of(Some(Path::new("")), false).unwrap().is_none());
        let error = Lock::of(None, true).err().unwrap().to_string();
        assert_eq!(error, "cannot exit on lock file contention: no lock file specified");
        let error = Lock::of(Some(Path::new("/proc/none/lock")), true).err().unwrap().to_string();
        assert_eq!(error, "unable to acquire file lock on \"/proc/none/lock\"");
    }
}
