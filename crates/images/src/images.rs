//! The store of images: the interface.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component::Shutdown;
use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::archive;
use crate::digest::Digest;
use crate::error::{ArchiveError, OpenError, PullError, StoreError};
use crate::image::{Image, Pulled};
use crate::manifest;
use crate::pull::Puller;
use crate::registry::client::Clients;
use crate::root::{IdMap, Prepare, Root};
use crate::settings::{Credentials, Settings, StoreUsage, Usage};
use crate::store::{Store, files, upkeep};

/// The images of this machine. Clones are the same store.
///
/// Methods that are not `async` take a few system calls at most and may be called from a task. A future may be dropped
/// at any time; the store stays whole.
#[derive(Debug, Clone)]
pub struct Images {
    store: Arc<Store>,
    puller: Arc<Puller>,
}

/// An archive that `import_directory` has imported.
#[derive(Serialize, Deserialize)]
struct Imported {
    size: u64,
    modified: (i64, i64),
    images: Vec<Digest>,
}

impl Images {
    /// Opens the store, alone: another process that has it open is waited for, for up to 10 seconds. It removes what a
    /// crash left, and takes up what can be used. Its tasks end with `shutdown`; the lock on the directory ends with
    /// the last clone and the last future.
    pub async fn open(settings: Settings, shutdown: &Shutdown) -> Result<Self, OpenError> {
        let slots = settings.limits.layers_in_all.max(1);
        let clients = Clients::new(&settings.user_agent, settings.limits.silence);
        let store = Store::open(settings).await?;
        upkeep::start(&store, shutdown);
        let puller = Puller { store: Arc::clone(&store), clients, slots: Arc::new(Semaphore::new(slots)) };
        Ok(Self { store, puller: Arc::new(puller) })
    }

    /// Pulls an image: it asks the registry even if the image is there, and downloads what is missing. A pull that
    /// fails or is dropped leaves downloads that the next one goes on with.
    pub async fn pull(&self, reference: &str, credentials: &Credentials) -> Result<Pulled, PullError> {
        self.puller.pull(reference, credentials).await
    }

    /// Finds an image by id, by name (tag or digest, in any form that a Pod may have), or by a prefix of its id that
    /// no other has.
    pub fn find(&self, name: &str) -> Option<Image> {
        self.store.record(name).map(|r| r.image())
    }

    /// Lists all images, sorted by id.
    pub fn list(&self) -> Vec<Image> {
        self.store.images()
    }

    /// The image's configuration; `None` for an artifact.
    pub async fn configuration(&self, id: &Digest) -> Result<Option<Arc<ImageConfiguration>>, StoreError> {
        let record = self.store.record_of(id)?;
        if record.artifact {
            return Ok(None);
        }
        self.blocking(move |store| {
            let bytes = store.read_blob(&record.configuration, manifest::MAX_CONFIGURATION)?;
            let read = manifest::read_configuration(&bytes).map_err(|e| StoreError::Damaged {
                path: store.blob_path(&record.configuration),
                reason: e.to_string(),
            })?;
            Ok(Some(Arc::new(read)))
        })
        .await
    }

    /// Removes a name if `name` is a tag and the image has others, else the whole image. Layers that a root uses stay
    /// until it is released. False: there was no such image.
    pub async fn remove(&self, name: &str) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.blocking(move |store| store.remove(&name)).await
    }

    /// Gives the image `name` (any form that [`Images::find`] takes) another name. An image that had it loses it.
    pub async fn tag(&self, name: &str, new: &str) -> Result<(), StoreError> {
        let (name, new) = (name.to_owned(), new.to_owned());
        self.blocking(move |store| store.tag(&name, &new)).await
    }

    /// Pins an image, or does so no longer.
    pub async fn pin(&self, name: &str, pinned: bool) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.blocking(move |store| store.pin(&name, pinned)).await
    }

    /// Imports the images of an archive (docker-archive, OCI layout, or both in one; plain, gzip or zstd). They are on
    /// the disk when it returns.
    pub async fn import(&self, archive: impl Read + Send + 'static) -> Result<Vec<Image>, ArchiveError> {
        self.archive(move |store| archive::import(store, archive, false)).await
    }

    /// Imports every `*.tar`, `*.tar.gz`, `*.tgz` and `*.tar.zst` of a directory, and pins the images, since nobody
    /// could pull them again. An archive that did not change since is not read again, as long as its images are there;
    /// one that fails is logged and left. A directory that is not there has no archives.
    pub async fn import_directory(&self, directory: &Path) -> Vec<Image> {
        let directory = directory.to_owned();
        let imported = self.archive(move |store| Ok(import_directory(store, &directory))).await;
        imported.unwrap_or_else(|error| {
            tracing::error!(%error, "the import of images failed");
            Vec::new()
        })
    }

    /// Writes images as a tar that is an OCI layout and a docker-archive at once.
    pub async fn export(
        &self,
        names: &[String],
        to: impl Write + Send + 'static,
    ) -> Result<(), ArchiveError> {
        let names = names.to_vec();
        self.archive(move |store| archive::export(store, &names, to)).await
    }

    /// Prepares a root for a container: the image's layers with a writable one above.
    pub fn prepare(&self, key: &str, image: &Digest, how: &Prepare) -> Result<Root, StoreError> {
        self.store.prepare(key, image, how.id_map.as_ref(), false)
    }

    /// Prepares a read-only view of an image or artifact, for an image volume: its mount is read-only, and nothing in
    /// it can be executed. The id map is that of the Pod's user namespace, if it has one.
    pub fn view(&self, key: &str, image: &Digest, id_map: Option<&IdMap>) -> Result<Root, StoreError> {
        self.store.prepare(key, image, id_map, true)
    }

    /// The root or view that was prepared under the key.
    pub fn root(&self, key: &str) -> Result<Root, StoreError> {
        self.store.root(key)
    }

    /// Gives up a root and what was written into it. Mounts of it should be gone. False: there was none.
    pub fn release(&self, key: &str) -> Result<bool, StoreError> {
        self.store.release(key)
    }

    /// The keys of all roots and views, sorted.
    pub fn snapshots(&self) -> Vec<String> {
        self.store.keys()
    }

    /// The disk that the root's writable layer takes; it walks through the layer.
    pub async fn usage_of(&self, key: &str) -> Result<Usage, StoreError> {
        let key = key.to_owned();
        self.blocking(move |store| store.usage_of(&key)).await
    }

    /// The disk that the whole store takes. Roots are walked through.
    pub async fn usage(&self) -> Result<StoreUsage, StoreError> {
        self.blocking(|store| Ok(store.usage())).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Store>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(&self.store);
        let root = self.store.settings.root.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|e| Err(files::at(&root)(e.into())))
    }

    async fn archive<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Store>) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|e| Err(ArchiveError::Io(e.into())))
    }
}

/// Whether a file's name is that of an archive.
fn is_archive(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end))
}

fn import_directory(store: &Arc<Store>, directory: &Path) -> Vec<Image> {
    let mut paths: Vec<PathBuf> = match fs::read_dir(directory) {
        Ok(entries) => entries.flatten().map(|e| e.path()).filter(|p| is_archive(p)).collect(),
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(path = %directory.display(), %error, "the archives of images cannot be listed");
            }
            return Vec::new();
        }
    };
    paths.sort();
    let list = store.settings.root.join("imported");
    let known: BTreeMap<PathBuf, Imported> =
        fs::read(&list).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let mut next: BTreeMap<PathBuf, Imported> = BTreeMap::new();
    let mut images: BTreeMap<Digest, Image> = BTreeMap::new();
    for path in paths {
        let imported = import_file(store, &path, known.get(&path));
        match imported {
            Ok((facts, list)) => {
                images.extend(list.into_iter().map(|i| (i.id.clone(), i)));
                next.insert(path, facts);
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "an archive of images is not imported");
            }
        }
    }
    let written = serde_json::to_vec(&next).map_err(|e| files::at(&list)(e.into()));
    if let Err(error) = written.and_then(|bytes| files::write(&store.ingest(), &list, &bytes, false)) {
        tracing::warn!(%error, "imported archives are not remembered");
    }
    images.into_values().collect()
}

fn import_file(
    store: &Arc<Store>,
    path: &Path,
    known: Option<&Imported>,
) -> Result<(Imported, Vec<Image>), ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::Io)?;
    let facts = file.metadata().map_err(ArchiveError::Io)?;
    let modified = (facts.mtime(), facts.mtime_nsec());
    if let Some(known) = known.filter(|k| k.size == facts.len() && k.modified == modified) {
        let there: Vec<Image> =
            known.images.iter().filter_map(|id| store.record_of(id).ok()).map(|r| r.image()).collect();
        if there.len() == known.images.len() {
            let imported = Imported { size: known.size, modified, images: known.images.clone() };
            return Ok((imported, there));
        }
    }
    let images = archive::import(store, file, true)?;
    let ids = images.iter().map(|i| i.id.clone()).collect();
    Ok((Imported { size: facts.len(), modified, images: ids }, images))
}
