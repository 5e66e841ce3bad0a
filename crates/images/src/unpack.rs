//! From a layer's archive to a layer of the store, on a thread that may wait for the disk.

use std::io::{self, BufRead, Read};
use std::path::PathBuf;
use std::sync::Arc;

use crate::digest::{Digest, Hasher};
use crate::layer::decompress::decompress;
use crate::layer::tree::{self, unique};
use crate::layer::{Apply, LayerError, Space};
use crate::pull::fetch::is_full;
use crate::store::Store;
use crate::store::record::{LayerId, LayerInfo};
use crate::store::roots::attributes;

/// How a layer's content becomes files.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// A tar, whose digest without compression is known for images.
    Archive(Option<Digest>),
    /// One file.
    File(String),
}

/// A layer that cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// The layer itself.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The archive is not the one that the image's configuration names.
    #[error("the layer's content has the digest {0}, its image's configuration says {1}")]
    Content(Digest, Digest),
    /// The store.
    #[error(transparent)]
    Store(#[from] crate::error::StoreError),
}

/// A layer that is unpacked, but not yet in the store. It is removed if it does not get there.
#[derive(Debug)]
pub(crate) struct Unpacked {
    store: Arc<Store>,
    directory: PathBuf,
    apply: Option<Apply>,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        self.apply = None;
        if let Err(error) = tree::remove(&self.directory, &self.store.trash()) {
            tracing::warn!(path = %self.directory.display(), %error, "it cannot be removed");
        }
    }
}

/// Hashes what is read, and reads no more than there is room for.
struct Checked<R> {
    source: R,
    hasher: Option<Hasher>,
    room: u64,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.room =
            self.room.checked_sub(read as u64).ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..read]);
        }
        Ok(read)
    }
}

/// Unpacks a layer.
pub(crate) fn unpack(
    store: &Arc<Store>,
    source: impl BufRead + Send,
    form: &Form,
) -> Result<Unpacked, UnpackError> {
    let directory = store.ingest().join(format!("unpack-{}", unique()));
    let disk = |source| LayerError::Disk { name: "the layer".to_owned(), source };
    let mut unpacked = Unpacked { store: Arc::clone(store), directory: directory.clone(), apply: None };
    let root = directory.join("fs");
    std::fs::create_dir_all(&root).map_err(disk)?;
    let space = Space::new(store.settings.limits.reserve_percent);
    let mut apply = Apply::new(&root, &store.trash(), store.xattrs, space).map_err(disk)?;
    match form {
        Form::File(name) => apply.file(name.as_bytes(), source)?,
        Form::Archive(expected) => {
            let source = decompress(source).map_err(LayerError::Archive)?;
            let hasher = expected.as_ref().map(|e| Hasher::new(e.algorithm()));
            let mut source = Checked { source, hasher, room: apply.room().map_err(disk)? };
            apply.tar(&mut source).map_err(|error| match error {
                LayerError::Archive(e) if is_full(&e) => LayerError::NoSpace,
                other => other,
            })?;
            let found = source.hasher.map(Hasher::finish);
            if let (Some(found), Some(expected)) = (found, expected)
                && found != *expected
            {
                return Err(UnpackError::Content(found, expected.clone()));
            }
        }
    }
    unpacked.apply = Some(apply);
    Ok(unpacked)
}

impl Unpacked {
    /// Whether the layer is the same whatever is below it.
    pub(crate) fn is_independent(&self) -> bool {
        self.apply.as_ref().is_some_and(Apply::is_independent)
    }

    /// Brings in what comes from the layers below, the topmost first.
    pub(crate) fn adapt(&mut self, below: &[LayerId]) -> Result<(), LayerError> {
        let roots: Vec<PathBuf> = below.iter().map(|layer| self.store.layer_root(layer)).collect();
        match &mut self.apply {
            Some(apply) => apply.adapt(&roots),
            None => Ok(()),
        }
    }

    /// Puts the layer into the store.
    pub(crate) fn commit(mut self, layer: &LayerId) -> Result<(), UnpackError> {
        let Some(apply) = self.apply.take() else { return Ok(()) };
        let (usage, has_root) = apply.finish()?;
        let root = attributes(&self.directory.join("fs"));
        let disk = |source| LayerError::Disk { name: "the layer".to_owned(), source };
        let root = has_root.then(|| root.map_err(disk)).transpose()?;
        let info = LayerInfo { bytes: usage.bytes, inodes: usage.inodes, root };
        Ok(self.store.commit_layer(&self.directory, layer, &info)?)
    }
}
