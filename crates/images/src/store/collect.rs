//! Garbage: content and layers that no image, no root and no pull under way has.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::digest::Digest;
use crate::layer::tree::unique;
use crate::store::record::LayerId;
use crate::store::{State, Store};

/// How long what a failed or dropped pull has left is kept for the next one. The kubelet tries again within 5 minutes.
pub(crate) const GRACE: Duration = Duration::from_mins(15);

/// A piece of content or a layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// Content.
    Blob(Digest),
    /// An unpacked layer.
    Layer(LayerId),
}

impl State {
    /// Everything that images, roots and pulls have; with the archives of layers or without.
    pub(super) fn live(&self, now: Instant, archives: bool) -> HashSet<Item> {
        let mut live: HashSet<Item> = self.leases.keys().cloned().collect();
        for record in self.images.values() {
            let content = if archives { record.content().cloned().collect() } else { record.documents() };
            live.extend(content.into_iter().map(Item::Blob));
            live.extend(record.layers.iter().map(|l| Item::Layer(l.layer.clone())));
        }
        for root in self.roots.values().flatten() {
            live.extend(root.layers.iter().cloned().map(Item::Layer));
        }
        let young = self.leftovers.iter().filter(|(_, since)| now < **since + GRACE);
        live.extend(young.map(|(item, _)| item.clone()));
        live
    }
}

impl Store {
    /// Moves all garbage into the trash, which is emptied apart. A crash at any instant leaves garbage, nothing else.
    pub(crate) fn collect(&self, state: &mut State) {
        let now = Instant::now();
        let live = state.live(now, !self.settings.discard_archives);
        state.leftovers.retain(|_, since| now < *since + GRACE);
        let mut any = false;
        let blobs: Vec<Digest> =
            state.blobs.keys().filter(|d| !live.contains(&Item::Blob((*d).clone()))).cloned().collect();
        for digest in blobs {
            any |= self.discard(&self.blob_path(&digest));
            state.blobs.remove(&digest);
        }
        let layers: Vec<LayerId> =
            state.layers.keys().filter(|l| !live.contains(&Item::Layer((*l).clone()))).cloned().collect();
        for layer in layers {
            any |= self.discard(&self.layer_path(&layer));
            state.layers.remove(&layer);
        }
        if any {
            self.wake.notify_one();
        }
    }

    /// Moves a file or directory into the trash.
    pub(crate) fn discard(&self, path: &std::path::Path) -> bool {
        match std::fs::rename(path, self.trash().join(unique())) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "it cannot be removed");
                false
            }
        }
    }
}
