//! Containers' logs: how they are opened, and their rotation.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component::Clock;
use cri::runtime as pb;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::files::{self, Links};
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::runtime::{CallError, Runtime};
use crate::work::try_blocking;

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

/// Removes a container's log, and those that were rotated out of it. They need not be there.
pub(crate) fn remove(log: &Path) -> io::Result<()> {
    let (dir, name) = match directory(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let names = files::names(&dir)?.into_iter().map(|(name, _)| name);
    for old in rotated(names, &name).into_iter().chain([name]) {
        match rustix::fs::unlinkat(&dir, old, AtFlags::empty()) {
            Err(Errno::NOENT) => {}
            done => done?,
        }
    }
    Ok(())
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

    /// Rotates a log if it is too long. One that somebody removed is made anew: the runtime would write on into a file
    /// without a name.
    async fn look(&self, id: String, path: PathBuf) {
        let of = path.clone();
        let size = try_blocking(move || Ok::<_, io::Error>(open(&of)?.metadata()?.len())).await;
        let done = match size {
            Ok(size) if size >= self.most => self.rotate(&id, path.clone()).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.reopen(&id).await,
            Ok(_) | Err(_) => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(path = %path.display(), %error, "log not rotated");
        }
    }

    async fn rotate(&self, id: &str, path: PathBuf) -> Result<(), RotateError> {
        let keep = self.keep.saturating_sub(2) as usize;
        let stamp = self.clock.now().strftime("%Y%m%d-%H%M%S").to_string();
        let moved = try_blocking(move || move_aside(&path, keep, &stamp)).await?;
        if let Err(error) = self.reopen(id).await {
            // The runtime writes on into the old file: it must keep its name.
            let (dir, name, aside) = moved;
            let back = move || rustix::fs::renameat(&dir, &aside, &dir, &name).map_err(io::Error::from);
            try_blocking(back).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Has the runtime open a container's log by its name again.
    async fn reopen(&self, id: &str) -> Result<(), RotateError> {
        let request = pb::ReopenContainerLogRequest { container_id: id.to_owned() };
        let reopened = self.runtime.service().reopen_container_log(request).await;
        reopened.map(drop).map_err(|error| RotateError::Reopen(error.into()))
    }
}

/// The end of the name of a log that was compressed; upstream's.
const COMPRESSED: &str = ".gz";
/// The end of the name of one that is being compressed; upstream's.
const TEMPORARY: &str = ".tmp";

fn with_end(name: &OsStr, end: &str) -> OsString {
    let mut longer = name.to_owned();
    longer.push(end);
    longer
}

fn has_end(name: &OsStr, end: &str) -> bool {
    name.as_encoded_bytes().ends_with(end.as_bytes())
}

/// Renames a log by the time, removes the rotated ones before it but the newest `keep`, and compresses these. Answers
/// the directory, the log's name and its new one.
fn move_aside(log: &Path, keep: usize, stamp: &str) -> io::Result<(OwnedFd, OsString, OsString)> {
    let (dir, name) = directory(log)?;
    let names = files::names(&dir)?.into_iter().map(|(name, _)| name);
    let (kept, removed) = plan(rotated(names, &name), keep);
    for old in removed {
        rustix::fs::unlinkat(&dir, old, AtFlags::empty())?;
    }
    // The one that is renamed now stays as it is: the container may write into it, and others may still read it.
    for old in kept.iter().filter(|old| !has_end(old, COMPRESSED)) {
        compress(&dir, old)?;
    }
    let aside = with_end(&name, &format!(".{stamp}"));
    rustix::fs::renameat(&dir, &name, &dir, &aside)?;
    Ok((dir, name, aside))
}

/// Compresses a log; nobody sees half of it.
fn compress(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mut from = files::regular(dir, Path::new(name), Links::None)?;
    let mode = Mode::from_raw_mode(from.metadata()?.mode() & 0o7777);
    let temporary = with_end(name, TEMPORARY);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = File::from(rustix::fs::openat(dir, &temporary, flags, mode)?);
    let mut to = GzEncoder::new(made, Compression::default());
    let written = io::copy(&mut from, &mut to)
        .and_then(|_| to.finish())
        .and_then(|_| Ok(rustix::fs::renameat(dir, &temporary, dir, with_end(name, COMPRESSED))?));
    if let Err(error) = written {
        let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
        return Err(error);
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
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

/// The rotated logs that stay, and those that go: all but the newest `keep`, and files that an earlier compression left over.
fn plan(rotated: Vec<OsString>, keep: usize) -> (Vec<OsString>, Vec<OsString>) {
    let is_used = |name: &OsString| {
        let has_another = || rotated.contains(&with_end(name, COMPRESSED));
        !has_end(name, TEMPORARY) && (has_end(name, COMPRESSED) || !has_another())
    };
    let (mut used, mut gone): (Vec<_>, Vec<_>) = rotated.iter().cloned().partition(is_used);
    let kept = used.split_off(used.len().saturating_sub(keep));
    gone.append(&mut used);
    (kept, gone)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, FileType};

    use super::*;

    #[test]
    fn the_oldest_go() {
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

    /// Upstream's 3 cases of `TestRemoveExcessLog`, and its files of `TestCleanupUnusedLog`: those before, how many are kept,
    /// those that stay, and those that go.
    #[test]
    fn old_logs_and_leftovers_go() {
        let check = |before: &[&str], keep: usize, stay: &[&str], go: &[&str]| {
            let mut before: Vec<OsString> = before.iter().map(OsString::from).collect();
            before.sort();
            let (kept, gone) = plan(before, keep);
            assert_eq!(
                (kept, gone),
                (stay.iter().map(OsString::from).collect(), go.iter().map(OsString::from).collect())
            );
        };
        let four = ["log-3", "log-1", "log-2", "log-4"];
        let sorted = ["log-1", "log-2", "log-3", "log-4"];
        check(&four, 0, &[], &sorted);
        check(&four, 1, &["log-4"], &sorted[..3]);
        check(&four, 4, &sorted, &[]);
        check(
            &["log-1", "log-1.tmp", "log-2", "log-2.gz"],
            4,
            &["log-1", "log-2.gz"],
            &["log-1.tmp", "log-2"],
        );
    }

    /// Upstream's files of `TestClean`.
    #[test]
    fn a_log_goes_with_those_that_were_rotated_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("n_p_u/c");
        assert!(remove(&logs.join("test-log-3")).is_ok(), "nothing is there");
        fs::create_dir_all(&logs).unwrap();
        let others =
            ["test-log-1", "test-log-2", "test-log-2.00000000-000000.gz", "test-log-2.00000000-000001"];
        let own = ["test-log-3", "test-log-3.00000000-000000.gz", "test-log-3.00000000-000001"];
        for name in others.iter().chain(&own) {
            fs::write(logs.join(name), "").unwrap();
        }
        remove(&logs.join("test-log-3")).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&logs).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, others);
    }

    /// Upstream's files of `TestRotateLogs`, of which three are kept, and of `TestCompressLog`.
    #[test]
    fn rotated_logs_are_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("n_p_u/c");
        fs::create_dir_all(&logs).unwrap();
        let log = logs.join("test-log-3");
        let first = logs.join("test-log-3.00000000-000001");
        for (path, text) in [
            (&log, "longer than 10 bytes"),
            (&first, "the length doesn't matter"),
            (&logs.join("test-log-3.00000000-000000.gz"), "the length doesn't matter"),
            (&logs.join("test-log-4"), "longer than 10 bytes"),
        ] {
            fs::write(path, text).unwrap();
        }
        fs::set_permissions(&first, fs::Permissions::from_mode(0o640)).unwrap();
        move_aside(&log, 1, "20260101-000000").unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&logs).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let compressed = "test-log-3.00000000-000001.gz";
        assert_eq!(names, [compressed, "test-log-3.20260101-000000", "test-log-4"]);
        let file = File::open(logs.join(compressed)).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
        let text = io::read_to_string(flate2::read::GzDecoder::new(file)).unwrap();
        assert_eq!(text, "the length doesn't matter");
        assert!(compress(&directory(&log).unwrap().0, OsStr::new("test-unknown-log")).is_err());
    }
}
