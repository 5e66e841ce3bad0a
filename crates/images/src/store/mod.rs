//! The store on the disk.
//!
//! ```text
//! lock            held by the process that has it open
//! version         the form of all this
//! blobs/ALGORITHM/HEX    content: complete exactly if it has its digest's name
//! layers/ID/{fs,info}    unpacked layers, committed by rename
//! images/HEX      one record an image, written whole
//! roots/KEY/{root,upper,work}    roots of containers, committed by rename
//! ingest/         whatever is not complete: gone after a crash, but for downloads, which go on
//! trash/          whatever is being removed
//! ```
//!
//! A process that is killed at any instant leaves nothing half-done under a name that counts. A power cut may take
//! what the disk does not have yet: so a record carries the boot in which it was written until everything is synced,
//! and after another boot an image with such a mark, and content that no other image has, is dropped.

pub(crate) mod collect;
pub(crate) mod files;
pub(crate) mod lease;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod record;
pub(crate) mod roots;
pub(crate) mod upkeep;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component::Turns;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::layer::tree;
use crate::settings::Settings;
use crate::store::collect::Item;
use crate::store::files::at;
use crate::store::record::{LayerId, LayerInfo, Record, RootRecord};

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    /// The settings.
    pub settings: Settings,
    /// This boot's id.
    boot: String,
    /// The prefix of overlayfs's attributes: `trusted.`, or `user.` where only those may be set.
    pub xattrs: &'static str,
    state: Mutex<State>,
    /// Turns of downloads, so that none is done twice.
    pub downloads: Turns<String>,
    /// Wakes the upkeep.
    wake: Arc<Notify>,
    _lock: OwnedFd,
}

/// The things that the store has. The disk has the same; a change writes the disk first.
#[derive(Debug, Default)]
pub(crate) struct State {
    images: BTreeMap<Digest, Arc<Record>>,
    /// The image of each name.
    names: HashMap<String, Digest>,
    /// Content and its size.
    blobs: HashMap<Digest, u64>,
    layers: HashMap<LayerId, LayerInfo>,
    /// Roots by key; `None`: its record cannot be read, it can only be released.
    roots: BTreeMap<String, Option<Arc<RootRecord>>>,
    /// How many pulls have it.
    leases: HashMap<Item, usize>,
    /// The things of pulls that did not succeed, and since when.
    leftovers: HashMap<Item, Instant>,
    /// The number of the last name that was given.
    sequence: u64,
}

impl Store {
    /// The place for what is not complete.
    pub(crate) fn ingest(&self) -> PathBuf {
        self.settings.root.join("ingest")
    }

    /// The place for what is being removed.
    pub(crate) fn trash(&self) -> PathBuf {
        self.settings.root.join("trash")
    }

    /// The file of content.
    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.settings.root.join("blobs").join(digest.algorithm().name()).join(digest.hex())
    }

    /// The directory of a layer.
    pub(crate) fn layer_path(&self, layer: &LayerId) -> PathBuf {
        self.settings.root.join("layers").join(layer.name())
    }

    /// The root directory of a layer.
    pub(crate) fn layer_root(&self, layer: &LayerId) -> PathBuf {
        self.layer_path(layer).join("fs")
    }

    fn record_path(&self, id: &Digest) -> PathBuf {
        self.settings.root.join("images").join(format!("{}-{}", id.algorithm().name(), id.hex()))
    }

    /// The size of content that is there.
    pub(crate) fn blob(&self, digest: &Digest) -> Option<u64> {
        self.state.lock().blobs.get(digest).copied()
    }

    /// Whether a layer is there.
    pub(crate) fn has_layer(&self, layer: &LayerId) -> bool {
        self.state.lock().layers.contains_key(layer)
    }

    /// Reads small content.
    pub(crate) fn read_blob(&self, digest: &Digest, bound: u64) -> Result<Vec<u8>, StoreError> {
        let path = self.blob_path(digest);
        let length = fs::metadata(&path).map_err(at(&path))?.len();
        if length > bound {
            let reason = format!("it is larger than {bound} bytes");
            return Err(StoreError::Damaged { path, reason });
        }
        fs::read(&path).map_err(at(&path))
    }

    /// Keeps small content, whose digest was checked.
    pub(crate) fn put_blob(&self, digest: &Digest, bytes: &[u8]) -> Result<(), StoreError> {
        if self.blob(digest).is_some() {
            return Ok(());
        }
        files::write(&self.ingest(), &self.blob_path(digest), bytes, false)?;
        self.state.lock().blobs.insert(digest.clone(), bytes.len() as u64);
        Ok(())
    }

    /// Takes a file as content, whose digest was checked.
    pub(crate) fn commit_blob(&self, file: &Path, digest: &Digest, size: u64) -> Result<(), StoreError> {
        let path = self.blob_path(digest);
        fs::rename(file, &path).map_err(at(&path))?;
        self.state.lock().blobs.insert(digest.clone(), size);
        Ok(())
    }

    /// Takes a directory with `fs` in it as a layer.
    pub(crate) fn commit_layer(
        &self,
        directory: &Path,
        layer: &LayerId,
        info: &LayerInfo,
    ) -> Result<(), StoreError> {
        let record = serde_json::to_vec(info).map_err(|e| at(directory)(e.into()))?;
        let file = directory.join("info");
        fs::write(&file, record).map_err(at(&file))?;
        let path = self.layer_path(layer);
        match rustix::fs::rename(directory, &path) {
            Ok(()) => {}
            // Another pull has committed the same.
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => {
                tree::remove(directory, &self.trash()).map_err(at(directory))?;
            }
            Err(e) => return Err(at(&path)(e.into())),
        }
        self.state.lock().layers.insert(layer.clone(), info.clone());
        Ok(())
    }

    /// The root attributes of the topmost layer that has some. `layers`: the topmost first.
    fn root_attributes(&self, layers: &[LayerId]) -> (u32, u32, u32) {
        let state = self.state.lock();
        layers.iter().find_map(|l| state.layers.get(l)?.root).unwrap_or((0o755, 0, 0))
    }
}
