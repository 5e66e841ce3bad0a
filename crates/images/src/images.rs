//! The store of images: the interface.

use std::io::{Read, Write};
use std::sync::Arc;

use component::Shutdown;
use oci_spec::image::ImageConfiguration;
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
    /// the disk when it returns; each has the tags that the archive names. With `pin`, they are never garbage: nobody
    /// could pull them again.
    pub async fn import(
        &self,
        archive: impl Read + Send + 'static,
        pin: bool,
    ) -> Result<Vec<Image>, ArchiveError> {
        self.archive(move |store| archive::import(store, archive, pin)).await
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
        let done = component::blocking(move || work(&store)).await;
        done.unwrap_or_else(|e| Err(files::at(&root)(e.into())))
    }

    async fn archive<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Store>) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let store = Arc::clone(&self.store);
        let done = component::blocking(move || work(&store)).await;
        done.unwrap_or_else(|e| Err(ArchiveError::Io(e.into())))
    }
}
