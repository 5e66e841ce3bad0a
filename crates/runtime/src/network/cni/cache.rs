//! Attachments as they were made, so that DEL works with the configuration and the result of ADD, also after a restart
//! and after the configuration is another.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An attachment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attachment {
    /// The sandbox.
    pub(super) container: String,
    /// The interface.
    pub(super) interface: String,
    /// The file of the namespace.
    pub(super) netns: String,
    /// `CNI_ARGS`.
    pub(super) arguments: String,
    /// The network's configuration.
    pub(super) config: Value,
    /// The Pod's wishes, by capabilities.
    pub(super) asked: Map<String, Value>,
    /// The result; null if ADD did not end.
    pub(super) result: Value,
}

/// The attachments of all sandboxes.
#[derive(Debug)]
pub(super) struct Cache(PathBuf);

impl Cache {
    pub(super) fn new(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    fn file(&self, container: &str) -> PathBuf {
        self.0.join(format!("{container}.json"))
    }

    /// Writes an attachment, in one step.
    pub(super) fn put(&self, one: &Attachment) -> io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        let new = self.0.join(format!(".new-{}", one.container));
        std::fs::write(&new, serde_json::to_vec(one)?)?;
        std::fs::rename(new, self.file(&one.container))
    }

    /// The attachment of a sandbox; none if there is none.
    pub(super) fn get(&self, container: &str) -> io::Result<Option<Attachment>> {
        match std::fs::read(self.file(container)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the attachment of a sandbox.
    pub(super) fn remove(&self, container: &str) -> io::Result<()> {
        match std::fs::remove_file(self.file(container)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The sandboxes that have one.
    pub(super) fn containers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some(name.strip_suffix(".json").filter(|id| !id.starts_with('.'))?.to_owned())
            })
            .collect()
    }
}
