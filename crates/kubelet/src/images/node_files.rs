//! Credentials that the node has for all its Pods, in Docker's configuration files.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::credential::{Credential, Source, entries};
use crate::work::blocking;

/// How long what was read is good; upstream's.
const GOOD: Duration = Duration::from_mins(5);
/// The largest file that is read, in bytes; upstream's.
const LARGEST: u64 = 10 << 20;
/// The name of files that have servers alone, and no `auths`.
const OLD: &str = ".dockercfg";

/// Credentials by their servers.
type Servers = Arc<Vec<(String, Credential)>>;

/// The files, and what was read last.
#[derive(Debug)]
pub(super) struct NodeFiles {
    files: Arc<[PathBuf]>,
    /// Held while files are read, so that they are read once.
    last: tokio::sync::Mutex<Option<(Servers, Instant)>>,
}

impl NodeFiles {
    /// Of these files the first one that can be read counts.
    pub(super) fn new(files: &[PathBuf]) -> Self {
        Self { files: files.into(), last: tokio::sync::Mutex::default() }
    }

    /// The credentials of the node.
    pub(super) async fn credentials(&self) -> Servers {
        let mut last = self.last.lock().await;
        if let Some((servers, at)) = &*last
            && at.elapsed() < GOOD
        {
            return servers.clone();
        }
        let files = self.files.clone();
        let servers = Arc::new(blocking(move || first(&files)).await.unwrap_or_default());
        *last = Some((servers.clone(), Instant::now()));
        servers
    }
}

/// The credentials of the first of these files that can be read.
fn first(files: &[PathBuf]) -> Vec<(String, Credential)> {
    for path in files {
        let mut text = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut text));
        let old = path.file_name().is_some_and(|name| name == OLD);
        match (read, entries(&text, !old)) {
            (Ok(_), Some(all)) => {
                return all.into_iter().map(|(server, e)| (server, e.credential(Source::Node))).collect();
            }
            (Ok(_), None) => tracing::warn!(?path, "the file has no credentials as Docker writes them"),
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {}
            (Err(error), _) => tracing::warn!(%error, ?path, "a file with credentials cannot be read"),
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_file_that_can_be_read_counts() {
        let dir = tempfile::tempdir().unwrap();
        let [none, broken, new, old] =
            ["none", "config.json", "other/config.json", ".dockercfg"].map(|name| dir.path().join(name));
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::fs::write(&broken, "{").unwrap();
        std::fs::write(&old, r#"{"old.test": {"username": "o", "password": "p"}}"#).unwrap();
        let files = NodeFiles::new(&[none, broken, new.clone(), old]);
        let users = async || -> Vec<(String, String)> {
            let all = files.credentials().await;
            all.iter().map(|(server, c)| (server.clone(), c.auth.username.clone())).collect()
        };
        let one = |server: &str, user: &str| vec![(server.to_owned(), user.to_owned())];
        assert_eq!(users().await, one("old.test", "o"));
        std::fs::write(&new, r#"{"auths": {"new.test": {"auth": "bjpw"}}, "credsStore": "x"}"#).unwrap();
        assert_eq!(users().await, one("old.test", "o"), "it was read before");
        tokio::time::advance(GOOD).await;
        assert_eq!(users().await, one("new.test", "n"));
        assert!(files.credentials().await.iter().all(|(_, c)| c.source == Source::Node));
    }
}
