//! Images that every node has: archives in a directory, each imported when the node starts or when it is put there.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use component::Shutdown;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::runtime::Containerd;
use crate::say::say;

/// An archive's file as it was imported: its size and the time of its last change.
type Stamp = (u64, SystemTime);

/// The archives of a directory, and those of them that a node has.
pub(super) struct Images {
    dir: PathBuf,
    imported: BTreeMap<PathBuf, Stamp>,
    containerd: Containerd,
}

impl Images {
    pub(super) fn new(dir: &Path, containerd: Containerd) -> Self {
        Self { dir: dir.to_owned(), imported: BTreeMap::new(), containerd }
    }

    /// Imports what the node has not yet. An archive that cannot be imported is told of, and tried again once it changes.
    pub(super) async fn import(&mut self) {
        for (path, stamp) in archives(&self.dir) {
            if self.imported.get(&path) == Some(&stamp) {
                continue;
            }
            self.imported.insert(path.clone(), stamp);
            match self.import_one(&path).await {
                Ok(()) => tracing::info!(archive = %path.display(), "images are imported"),
                Err(error) => {
                    eprintln!("ferrokube: the images of {} are not imported: {error:#}", path.display());
                }
            }
        }
    }

    async fn import_one(&self, path: &Path) -> Result<()> {
        let mut command = self.containerd.ctr();
        command.args(["images", "import", "--local"]).arg(path).stdin(Stdio::null());
        let ctr = command.get_program().to_owned();
        let out = tokio::process::Command::from(command).kill_on_drop(true).output().await;
        let out = out.with_context(|| format!("{} can't be started", Path::new(&ctr).display()))?;
        if !out.status.success() {
            bail!("{}", String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(())
    }

    /// Imports archives that are put into the directory later, until `shutdown`.
    pub(super) async fn follow(mut self, shutdown: Shutdown) {
        let result = shutdown.run(async {
            let mut changes = Changes::of(&self.dir)?;
            loop {
                self.import().await;
                changes.next().await?;
            }
        });
        if let Some(Err::<(), anyhow::Error>(error)) = result.await {
            say(&format!(
                "images that are put into {} later are not imported: {error:#}",
                self.dir.display()
            ));
        }
    }
}

/// The archives of a directory; none if it is not there.
fn archives(dir: &Path) -> Vec<(PathBuf, Stamp)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?;
            let known = [".tar", ".tar.gz", ".tgz"].iter().any(|end| name.ends_with(end));
            let meta = fs::metadata(&path).ok().filter(|meta| meta.is_file())?;
            (known && !name.starts_with('.'))
                .then(|| Some((path.clone(), (meta.len(), meta.modified().ok()?))))?
        })
        .collect();
    found.sort();
    found
}

/// Tells when files of a directory were written or moved there.
struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    fn of(dir: &Path) -> Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&inotify, dir, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)?;
        #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
        let inotify = AsyncFd::with_interest(inotify, Interest::READABLE)?;
        Ok(Self(inotify))
    }

    async fn next(&mut self) -> std::io::Result<()> {
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
    use super::*;

    #[test]
    fn archives_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(archives(&dir.path().join("none")).is_empty());
        for name in ["b.tar", "a.tgz", "c.tar.gz", "notes.txt", ".d.tar"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("e.tar")).unwrap();
        let names: Vec<_> =
            archives(dir.path()).iter().map(|(path, _)| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.tgz", "b.tar", "c.tar.gz"]);
    }

    #[tokio::test]
    async fn a_new_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut changes = Changes::of(dir.path()).unwrap();
        for name in ["a.tar", "b.tar"] {
            let file = dir.path().join(name);
            fs::write(&file, "x").unwrap();
            tokio::time::timeout(std::time::Duration::from_mins(1), changes.next()).await.unwrap().unwrap();
        }
    }
}
