//! Containers' logs: how they are opened, and their rotation.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component::Clock;
use cri::runtime as pb;
use futures::StreamExt;
use rustix::fs::{AtFlags, OFlags};

use crate::files::{self, Links};
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::runtime::{CallError, Runtime};
use crate::work::{blocking, try_blocking};

/// The directory of a container's log, and the log's name in it. The path is
/// `<logs>/<Pod>/<container>/<count>.log`.
///
/// DIFFERENCE: upstream follows links here, which were there for the sake of Docker. Where Pods may
/// write to the node's logs, a link has this process read or remove any file.
pub(crate) fn directory(log: &Path) -> io::Result<(OwnedFd, OsString)> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let name = log.file_name().ok_or_else(missing)?;
    let container = log.parent().ok_or_else(missing)?;
    let all = container.parent().and_then(Path::parent).ok_or_else(missing)?;
    let below = container.strip_prefix(all).map_err(io::Error::other)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    Ok((files::open(files::root(all)?, below, flags, Links::None)?, name.to_owned()))
}

/// Opens a container's log for reading.
pub(crate) fn open(log: &Path) -> io::Result<File> {
    let (dir, name) = directory(log)?;
    files::regular(&dir, Path::new(&name), Links::None)
}

/// Removes a container's log.
pub(crate) fn remove(log: &Path) -> io::Result<()> {
    let (dir, name) = directory(log)?;
    Ok(rustix::fs::unlinkat(&dir, name, AtFlags::empty())?)
}

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum RotateError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("{}", .0.message())]
    Reopen(CallError),
}

/// Rotates logs that are too long.
pub(crate) struct Rotation {
    /// The size from which on a log is rotated, in bytes.
    pub(crate) most: u64,
    /// How many logs of a container are kept.
    pub(crate) keep: u32,
    /// How many logs are rotated at once.
    pub(crate) at_once: usize,
    /// How often sizes are looked at.
    pub(crate) period: Duration,
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    pub(crate) workers: Arc<Workers>,
}

impl Rotation {
    /// Looks at the logs of all containers that run, again and again.
    pub(crate) async fn run(&self) {
        loop {
            tokio::time::sleep(self.period).await;
            let running = |worker: Arc<Worker>| {
                let observed = worker.state.lock().observed.clone();
                let logs = observed.running().filter(|c| !c.log_path.is_empty());
                logs.map(|c| (c.id.clone(), PathBuf::from(&c.log_path))).collect::<Vec<_>>()
            };
            let all: Vec<_> = self.workers.all().into_iter().flat_map(running).collect();
            let each = |(id, path)| self.look(id, path);
            futures::stream::iter(all).for_each_concurrent(self.at_once, each).await;
        }
    }

    /// Rotates a log if it is too long.
    async fn look(&self, id: String, path: PathBuf) {
        let (of, most) = (path.clone(), self.most);
        let long = blocking(move || {
            let metadata = open(&of).and_then(|f| f.metadata());
            metadata.is_ok_and(|m| m.len() > most)
        })
        .await;
        if long.unwrap_or(false)
            && let Err(error) = self.rotate(&id, path.clone()).await
        {
            tracing::warn!(path = %path.display(), %error, "log not rotated");
        }
    }

    async fn rotate(&self, id: &str, path: PathBuf) -> Result<(), RotateError> {
        let keep = self.keep.saturating_sub(2) as usize;
        let stamp = self.clock.now().strftime("%Y%m%d-%H%M%S").to_string();
        let moved = try_blocking(move || move_aside(&path, keep, &stamp)).await?;
        let request = pb::ReopenContainerLogRequest { container_id: id.to_owned() };
        if let Err(error) = self.runtime.service().reopen_container_log(request).await {
            // The runtime writes on into the old file: it must keep its name.
            let (dir, name, aside) = moved;
            let back = move || rustix::fs::renameat(&dir, &aside, &dir, &name).map_err(io::Error::from);
            try_blocking(back).await?;
            return Err(RotateError::Reopen(error.into()));
        }
        Ok(())
    }
}

/// Renames a log by the time, and removes the rotated ones before it but the newest `keep`. Answers
/// the directory, the log's name and its new one.
fn move_aside(log: &Path, keep: usize, stamp: &str) -> io::Result<(OwnedFd, OsString, OsString)> {
    let (dir, name) = directory(log)?;
    let names = files::names(&dir)?.into_iter().map(|(name, _)| name);
    for old in surplus(rotated(names, &name), keep) {
        rustix::fs::unlinkat(&dir, old, AtFlags::empty())?;
    }
    let mut aside = name.clone();
    aside.push(".");
    aside.push(stamp);
    rustix::fs::renameat(&dir, &name, &dir, &aside)?;
    Ok((dir, name, aside))
}

/// The names of logs that were rotated out of `log`, the oldest first.
fn rotated(names: impl Iterator<Item = OsString>, log: &OsStr) -> Vec<OsString> {
    let mut prefix = log.to_owned();
    prefix.push(".");
    let of = |name: &OsString| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
    let mut found: Vec<OsString> = names.filter(of).collect();
    found.sort();
    found
}

/// All but the newest `keep`.
fn surplus(mut rotated: Vec<OsString>, keep: usize) -> Vec<OsString> {
    rotated.truncate(rotated.len().saturating_sub(keep));
    rotated
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn the_oldest_go() {
        let all: Vec<OsString> = ["0.log.1", "0.log.2", "0.log.3"].map(OsString::from).into();
        assert_eq!(surplus(all.clone(), 2), ["0.log.1"]);
        assert!(surplus(all, 5).is_empty());
        let names = ["0.log", "0.log.2", "1.log.1", "0.log.1"].map(OsString::from).into_iter();
        assert_eq!(rotated(names, OsStr::new("0.log")), ["0.log.1", "0.log.2"]);
    }

    #[test]
    fn links_do_not_lead_out_of_the_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (pods, other) = (dir.path().join("pods"), dir.path().join("other"));
        let logs = pods.join("n_p_u/c");
        fs::create_dir_all(&logs).unwrap();
        fs::create_dir_all(&other).unwrap();
        for file in ["0.log", "0.log.1", "0.log.2"] {
            fs::write(other.join(file), "secret").unwrap();
        }
        fs::write(logs.join("0.log"), "mine").unwrap();
        symlink(other.join("0.log"), logs.join("1.log")).unwrap();
        rustix::fs::mknodat(CWD, logs.join("2.log"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink(&other, pods.join("n_p_u/d")).unwrap();
        symlink(dir.path(), pods.join("n_q_u")).unwrap();
        let read = |path: &str| open(&pods.join(path)).and_then(std::io::read_to_string).ok();
        assert_eq!(read("n_p_u/c/0.log").as_deref(), Some("mine"));
        for path in ["n_p_u/c/1.log", "n_p_u/c/2.log", "n_p_u/d/0.log", "n_q_u/other/0.log", "n_p_u/c/3.log"]
        {
            assert_eq!(read(path), None, "{path}");
            assert!(path.contains("/c/") || move_aside(&pods.join(path), 0, "now").is_err(), "{path}");
            assert!(path.contains("/c/") || remove(&pods.join(path)).is_err(), "{path}");
        }
        // A link goes, what it leads to stays.
        remove(&pods.join("n_p_u/c/1.log")).unwrap();
        assert_eq!(fs::read_dir(&other).unwrap().count(), 3);
        fs::write(logs.join("0.log.0"), "").unwrap();
        move_aside(&logs.join("0.log"), 0, "now").unwrap();
        assert_eq!(fs::read_to_string(logs.join("0.log.now")).unwrap(), "mine");
        assert!(!logs.join("0.log").exists() && !logs.join("0.log.0").exists());
    }
}
