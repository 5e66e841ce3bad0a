//! The room of file systems that may never answer, such as those of servers that are gone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::tree::{Taken, whole};
use crate::node::machine::Filesystem;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file systems that have not answered yet: each is asked once at a time, so one that is gone costs one thread.
#[derive(Debug, Default)]
pub(super) struct Probes(Arc<Mutex<HashSet<PathBuf>>>);

impl Probes {
    /// The used part and the room of a file system; none if it does not answer.
    pub(super) async fn of(&self, path: PathBuf) -> Option<(Taken, Filesystem)> {
        self.ask(path, |path| Some((whole(path), Filesystem::of(path)?))).await
    }

    async fn ask<T, F>(&self, path: PathBuf, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Option<T> + Send + 'static,
    {
        if !self.0.lock().insert(path.clone()) {
            return None;
        }
        let (tell, told) = oneshot::channel();
        let (asked, at) = (self.0.clone(), path.clone());
        // A thread of its own: the process's end does not wait for it.
        let began = std::thread::Builder::new().name("statfs".into()).spawn(move || {
            let found = work(&at);
            asked.lock().remove(&at);
            let _ = tell.send(found);
        });
        if began.is_err() {
            self.0.lock().remove(&path);
            return None;
        }
        timeout(PATIENCE, told).await.ok()?.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_system_that_hangs_is_asked_once() {
        let probes = Probes::default();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let hangs = move |_: &Path| {
            let _ = wait.recv();
            drop(end);
            Some(())
        };
        let path = || PathBuf::from("/mnt");
        assert_eq!(probes.ask(path(), hangs).await, None, "it is not waited for");
        assert_eq!(probes.ask(path(), |_| -> Option<()> { panic!("asked twice") }).await, None);
        go.send(()).unwrap();
        assert!(ended.recv().is_err());
        while probes.0.lock().contains(&path()) {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn a_file_system_that_answers() {
        let probes = Probes::default();
        for _ in 0..2 {
            let (_, room) = probes.of("/".into()).await.unwrap();
            assert!(room.capacity > 0);
        }
        assert!(probes.of("/none".into()).await.is_none());
    }
}
