//! The work of the store beside its callers: syncing, emptying the trash, collecting what nobody came back for.

use std::fs::{self, File};
use std::sync::{Arc, Weak};

use component::Shutdown;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::layer::tree;
use crate::store::Store;
use crate::store::collect::GRACE;
use crate::store::files::at;
use crate::store::record::Record;

/// Starts the upkeep. It keeps nothing open: the store closes with its last user.
pub(crate) fn start(store: &Arc<Store>, shutdown: &Shutdown) {
    let (weak, wake, stop) = (Arc::downgrade(store), Arc::clone(&store.wake), shutdown.clone());
    shutdown.spawn(async move {
        stop.run(run(weak, wake)).await;
    });
    store.wake.notify_one();
}

async fn run(store: Weak<Store>, wake: Arc<Notify>) {
    let mut next = None;
    loop {
        match next {
            Some(at) => tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep_until(at) => {}
            },
            None => wake.notified().await,
        }
        let Some(store) = store.upgrade() else { return };
        next = store.next_collection();
        let done = tokio::task::spawn_blocking(move || {
            store.collect(&mut store.state.lock());
            store.empty_trash();
            store.sync()
        });
        match done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the images are not synced"),
            Err(error) => tracing::error!(%error, "the upkeep of images failed"),
        }
    }
}

impl Store {
    /// When the oldest of what pulls have left is to be collected.
    fn next_collection(&self) -> Option<Instant> {
        self.state.lock().leftovers.values().min().map(|since| *since + GRACE)
    }

    /// Removes what is in the trash. The rest, if something cannot be removed, is tried again after the next opening.
    pub(crate) fn empty_trash(&self) {
        let trash = self.trash();
        let Ok(entries) = fs::read_dir(&trash) else { return };
        for entry in entries.flatten() {
            if let Err(error) = tree::remove(&entry.path(), &trash) {
                tracing::warn!(path = %entry.path().display(), %error, "it cannot be removed");
            }
        }
    }

    /// Brings everything to the disk, and takes the marks off the images that are there.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let marked: Vec<Arc<Record>> =
            self.state.lock().images.values().filter(|r| r.boot.is_some()).cloned().collect();
        if marked.is_empty() {
            return Ok(());
        }
        let root = &self.settings.root;
        let directory = File::open(root).map_err(at(root))?;
        rustix::fs::syncfs(&directory).map_err(|e| at(root)(e.into()))?;
        for record in marked {
            let mut state = self.state.lock();
            // It may have changed meanwhile: its layers and its content have not.
            let Some(now) = state.images.get(&record.id).cloned() else { continue };
            if now.manifest == record.manifest && now.boot.is_some() {
                self.put(&mut state, Record { boot: None, ..Record::clone(&now) })?;
            }
        }
        Ok(())
    }
}
