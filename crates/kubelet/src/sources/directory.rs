//! Static Pods from a file, or from the files of a directory.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::manifest::{MAX_MANIFEST, Manifests, Origin, pods};
use super::statics::Reader;
use crate::work::blocking;

/// How long after a change files are read: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// How long a watch is waited for that could not be made.
const AGAIN: Duration = Duration::from_secs(1);

/// Reads a file or a directory.
pub(crate) struct Directory {
    manifests: Arc<dyn Manifests>,
    path: PathBuf,
    node: String,
    period: Duration,
}

impl Directory {
    /// Reads `path` for the node of a name.
    pub(crate) fn new(manifests: Arc<dyn Manifests>, path: PathBuf, node: &str, period: Duration) -> Self {
        Self { manifests, path, node: node.to_owned(), period }
    }
}

impl Reader for Directory {
    fn read(&self) -> BoxFuture<'_, Option<Vec<Pod>>> {
        let (manifests, path, node) = (self.manifests.clone(), self.path.clone(), self.node.clone());
        let read = move || match read(&*manifests, &path, &node) {
            Ok(pods) => Some(pods),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read static Pods");
                None
            }
        };
        blocking(read).map(|read| read.ok().flatten()).boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        let watch = watch(&self.path);
        async move {
            match watch {
                Ok(watch) => {
                    // An error ends the wait, too: then the files are read.
                    let _ = watch.readable().await;
                    tokio::time::sleep(SETTLE).await;
                }
                // A path that is not there yet has nothing to watch: upstream looks every second.
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
        .boxed()
    }

    fn period(&self) -> Duration {
        self.period
    }
}

/// Watches a path.
fn watch(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ATTRIB;
    inotify::add_watch(&fd, path, flags)?;
    #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
    let watch = AsyncFd::with_interest(fd, Interest::READABLE)?;
    Ok(watch)
}

/// The Pods of a path. A path that is not there has none, and a file of a directory that cannot be read is passed over.
fn read(manifests: &dyn Manifests, path: &Path, node: &str) -> io::Result<Vec<Pod>> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if found.is_file() {
        return read_file(manifests, path, node);
    }
    if !found.is_dir() {
        return Err(io::Error::other("path is not a directory or file"));
    }
    let entries = std::fs::read_dir(path)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && std::fs::metadata(file).is_ok_and(|found| found.is_file())
    });
    files.sort();
    let mut all: Vec<Pod> = Vec::new();
    for file in files {
        match read_file(manifests, &file, node) {
            Ok(pods) => all.extend(pods),
            Err(error) => tracing::error!(path = %file.display(), %error, "could not process manifest file"),
        }
    }
    // Two files that name the same Pod: the last one counts, as upstream has it.
    let name = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
    let last = |at: &usize| all.iter().skip(at + 1).all(|other| name(other) != name(&all[*at]));
    let kept: Vec<usize> = (0..all.len()).filter(last).collect();
    Ok(kept.into_iter().map(|at| all[at].clone()).collect())
}

fn read_file(manifests: &dyn Manifests, path: &Path, node: &str) -> io::Result<Vec<Pod>> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_MANIFEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_MANIFEST {
        return Err(io::Error::other(format!("the file is larger than {MAX_MANIFEST} bytes")));
    }
    let origin = path.to_string_lossy();
    let found = pods(manifests, &text, Origin::File(&origin), node).map_err(io::Error::other)?;
    match found.len() {
        1 => Ok(found),
        _ => Err(io::Error::other("a file holds one Pod")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::manifest::ManifestError;
    use super::*;

    struct Plain;

    impl Manifests for Plain {
        fn read(&self, manifest: &[u8]) -> Result<Vec<Pod>, ManifestError> {
            let pod = serde_json::from_slice(manifest);
            Ok(vec![pod.map_err(|e| ManifestError::Unreadable(e.to_string()))?])
        }
        fn check(&self, _: &Pod) -> Result<(), ManifestError> {
            Ok(())
        }
    }

    fn names(path: &Path) -> Vec<String> {
        let all = read(&Plain, path, "n").unwrap();
        all.into_iter().map(|pod| pod.metadata.name.unwrap()).collect()
    }

    #[test]
    fn the_files_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, name: &str| {
            fs::write(dir.path().join(file), format!(r#"{{"metadata": {{"name": "{name}"}}}}"#)).unwrap();
        };
        assert_eq!(names(&dir.path().join("missing")), [""; 0]);
        assert_eq!(names(dir.path()), [""; 0]);
        write("b.yaml", "b");
        write("a.json", "a");
        write(".hidden", "h");
        fs::write(dir.path().join("broken"), "{").unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        write("below/c.yaml", "c");
        std::os::unix::fs::symlink(dir.path().join("below/c.yaml"), dir.path().join("z-link")).unwrap();
        assert_eq!(names(dir.path()), ["a-n", "b-n", "c-n"]);
        write("zz", "a");
        assert_eq!(names(dir.path()), ["b-n", "c-n", "a-n"], "the last file counts");
        assert_eq!(names(&dir.path().join("a.json")), ["a-n"], "a file alone");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert_eq!(names(dir.path()), ["b-n", "c-n", "a-n"]);
        assert!(read(&Plain, &dir.path().join("pipe"), "n").is_err());
        let file = fs::File::create(dir.path().join("large")).unwrap();
        file.set_len(MAX_MANIFEST + 1).unwrap();
        assert!(read(&Plain, &dir.path().join("large"), "n").is_err());
    }

    #[tokio::test]
    async fn changes_are_heard_of() {
        let dir = tempfile::tempdir().unwrap();
        let reader = Directory::new(Arc::new(Plain), dir.path().to_owned(), "n", Duration::from_hours(1));
        let mut changed = reader.changed();
        assert!(changed.as_mut().now_or_never().is_none(), "nothing has changed yet");
        fs::write(dir.path().join("a"), "x").unwrap();
        changed.await;
        let mut changed = reader.changed();
        assert!(changed.as_mut().now_or_never().is_none());
        fs::remove_file(dir.path().join("a")).unwrap();
        changed.await;
    }
}
