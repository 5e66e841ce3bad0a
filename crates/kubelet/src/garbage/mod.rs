//! Garbage of the runtime: containers and sandboxes that have ended, and images that nobody uses.

pub(crate) mod containers;
pub(crate) mod images;
pub(crate) mod policy;

use std::sync::Arc;

use self::containers::ContainerCollector;
use self::images::ImageCollector;
use crate::listing::Listing;

/// Both collectors, as those need them who are short of room.
pub(crate) struct Collectors {
    pub(crate) containers: Arc<ContainerCollector>,
    pub(crate) images: Arc<ImageCollector>,
}

impl Collectors {
    /// Removes every container that has ended and whose Pod has.
    pub(crate) async fn remove_unused_containers(&self) {
        let collector = &self.containers;
        match Listing::of(&collector.runtime, &collector.config.root_dir).await {
            Ok(listing) => {
                for error in collector.collect(&listing, true).await {
                    tracing::warn!(%error, "a container that has ended could not be removed");
                }
            }
            Err(error) => tracing::warn!(error = error.message(), "cannot list containers"),
        }
    }

    /// Removes every image that nobody uses.
    pub(crate) async fn remove_unused_images(&self) {
        if let Err(error) = self.images.remove_unused().await {
            tracing::warn!(%error, "images that nobody uses could not be removed");
        }
    }
}
