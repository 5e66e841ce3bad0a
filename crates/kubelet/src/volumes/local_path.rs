//! The node's part of volumes in its own directory (`objects::local_path`): it tells where they are, and removes what
//! the provisioner asks for by name. Nothing else is ever removed, whatever objects are missing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Backoff, Client, Informer, Patch};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::local_path::{self, DIRECTORY, REMOVE, REMOVED};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::local;
use crate::config::Config;
use crate::files;
use crate::work::try_blocking;

/// The node's own volumes.
pub(crate) struct LocalVolumes {
    directory: PathBuf,
    pods: PathBuf,
    node: String,
    client: Client,
    nodes: Informer<Node>,
}

/// A volume whose content is not removed yet.
#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error("a Pod still has it")]
    Used,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<crate::work::Interrupted> for RemoveError {
    fn from(error: crate::work::Interrupted) -> Self {
        Self::Io(error.into())
    }
}

impl LocalVolumes {
    /// Those of a kubelet that has a directory for them.
    pub(crate) fn new(config: &Config, client: Client, nodes: Informer<Node>) -> Option<Self> {
        Some(Self {
            directory: config.local_volumes.clone()?,
            pods: config.pods_dir(),
            node: config.node_name.clone(),
            client,
            nodes,
        })
    }

    /// Answers what the Node's annotations ask for, again and again.
    pub(crate) async fn follow(&self) {
        let changed = Arc::new(Notify::new());
        let told = changed.clone();
        self.nodes.handle(move |_| told.notify_one());
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        loop {
            let again = match self.look().await {
                Ok(true) => {
                    backoff.reset();
                    None
                }
                Ok(false) => Some(backoff.delay()),
                Err(error) => {
                    tracing::warn!(%error, "the node's volumes cannot be told, will retry");
                    Some(backoff.delay())
                }
            };
            let pause = async {
                match again {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = changed.notified() => {}
            }
        }
    }

    /// Looks once; returns whether nothing is left to be done.
    async fn look(&self) -> Result<bool, Status> {
        let Some(node) = self.nodes.get("", &self.node) else { return Ok(true) };
        let wanted = local_path::names(&node.metadata, REMOVE);
        let mut gone = BTreeSet::new();
        for name in &wanted {
            let (directory, pods, volume) = (self.directory.clone(), self.pods.clone(), name.clone());
            match try_blocking(move || remove(&directory, &pods, &volume)).await {
                Ok(()) => drop(gone.insert(name.clone())),
                Err(error) => {
                    tracing::warn!(volume = %name, %error, "a volume is not removed yet, will retry");
                }
            }
        }
        if let Some(annotations) = answer(&node.metadata, &self.directory, &gone) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            self.client.api::<Node>("").patch(&self.node, &patch).await?;
        }
        Ok(gone.len() == wanted.len())
    }
}

/// Returns the annotations that a Node lacks; `None` if it has them.
fn answer(node: &ObjectMeta, directory: &Path, gone: &BTreeSet<String>) -> Option<Value> {
    let told = node.annotations.as_ref().and_then(|a| a.get(DIRECTORY));
    let directory = directory.to_string_lossy();
    let same = told.is_some_and(|t| *t == directory) && local_path::names(node, REMOVED) == *gone;
    (!same).then(|| json!({DIRECTORY: directory, REMOVED: local_path::text(gone)}))
}

/// Removes a volume's content, unless a Pod has it mounted.
fn remove(directory: &Path, pods: &Path, volume: &str) -> Result<(), RemoveError> {
    if !local_path::is_name(volume) {
        return Err(RemoveError::Io(io::ErrorKind::InvalidInput.into()));
    }
    if !local::users(pods, volume, None)?.is_empty() {
        return Err(RemoveError::Used);
    }
    files::remove_tree(&directory.join(volume))?;
    Ok(files::remove_tree(&directory.join(format!("{volume}.new")))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NAME: &str = "pvc-0a1b2c3d-0000-4444-8888-0123456789ab";

    #[test]
    fn what_is_asked_for_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (volumes, pods) = (dir.path().join("volumes"), dir.path().join("pods"));
        let other = NAME.replace('a', "b");
        for name in [NAME, &other] {
            fs::create_dir_all(volumes.join(name).join("d")).unwrap();
        }
        fs::create_dir_all(volumes.join("mine")).unwrap();
        remove(&volumes, &pods, NAME).unwrap();
        remove(&volumes, &pods, NAME).unwrap();
        for bad in ["mine", "../volumes", "", "."] {
            assert!(remove(&volumes, &pods, bad).is_err(), "{bad}");
        }
        let mut left: Vec<_> =
            fs::read_dir(&volumes).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["mine", &other]);
    }

    #[test]
    fn a_node_is_told_once() {
        let directory = Path::new("/data/volumes");
        let mut node = ObjectMeta::default();
        let none = BTreeSet::new();
        let wanted = json!({DIRECTORY: "/data/volumes", REMOVED: null});
        assert_eq!(answer(&node, directory, &none), Some(wanted));
        node.annotations = Some([(DIRECTORY.to_owned(), "/data/volumes".to_owned())].into());
        assert_eq!(answer(&node, directory, &none), None);
        let gone = BTreeSet::from([NAME.to_owned()]);
        assert_eq!(answer(&node, directory, &gone), Some(json!({DIRECTORY: "/data/volumes", REMOVED: NAME})));
        node.annotations.as_mut().unwrap().insert(REMOVED.to_owned(), NAME.to_owned());
        assert_eq!(answer(&node, directory, &gone), None);
        assert!(answer(&node, directory, &none).is_some(), "nobody asks any more");
    }
}
