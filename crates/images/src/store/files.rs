//! Files of the store: each is written beside its place and renamed, so it is there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use tokio::time::Instant;

use crate::error::{OpenError, StoreError};
use crate::layer::tree::unique;

/// How long opening waits for a process that is just ending.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes an error of a file.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    |source| StoreError::Io { path: path.to_owned(), source }
}

/// Makes a directory that only root can look into: layers have set-id programs.
pub(crate) fn directory(path: &Path) -> Result<(), StoreError> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(e)),
        _ => Ok(()),
    }
}

/// Writes a file whole, by way of `ingest`. `durable`: it is on the disk, too.
pub(crate) fn write(ingest: &Path, path: &Path, bytes: &[u8], durable: bool) -> Result<(), StoreError> {
    let temporary = ingest.join(format!("tmp-{}", unique()));
    let written = (|| {
        let mut file = create(&temporary)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_data()?;
        }
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(at(path))?;
    if durable && let Some(parent) = path.parent() {
        File::open(parent).and_then(|d| d.sync_all()).map_err(at(parent))?;
    }
    Ok(())
}

/// Makes a file that is not there yet.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Takes the store's lock, and waits for a process that is just ending.
pub(crate) async fn lock(path: &Path) -> Result<OwnedFd, OpenError> {
    let io = |e: Errno| OpenError::Io { path: path.to_owned(), source: e.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(io)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                // The kernel has no way to wait for a lock with a limit.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let directory = path.parent().unwrap_or(path);
                return Err(OpenError::InUse(directory.to_owned()));
            }
            Err(e) => return Err(io(e)),
        }
    }
}
