//! Removes a pod network after its Pods.

mod bridge;

use netlink::Routing;
use thiserror::Error;

use crate::filter::Filter;
use crate::nodes::{self, WayError};
use crate::place::{Place, PlaceError};

/// The reason for which a part of the pod network is still there.
#[derive(Debug, Error)]
pub enum TeardownError {
    /// The configuration or the plugin could not be removed.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The kernel kept something.
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    /// Routes to other nodes could not be removed.
    #[error(transparent)]
    Routes(#[from] WayError),
    /// The records could not be removed.
    #[error("cannot remove the records of the pod network")]
    Files(#[source] std::io::Error),
    /// Rules of a bridged network could not be removed.
    #[error("cannot remove the rules of the pod network: {0}")]
    Rules(String),
}

/// Removes everything that the pod network left on this machine. Each part is tried; the first error is returned.
pub async fn teardown(place: &Place) -> Result<(), TeardownError> {
    let routes = nodes::leave(place).map_err(TeardownError::from);
    let files = place.remove().map_err(TeardownError::from);
    let links = remove_links(place).map_err(TeardownError::from);
    let filter = Filter::remove(place.name()).map_err(TeardownError::from);
    let bridge = bridge::teardown(place).await;
    let records = match std::fs::remove_dir_all(place.records()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TeardownError::Files(error)),
        _ => Ok(()),
    };
    routes.and(files).and(links).and(filter).and(bridge).and(records)
}

/// Removes the cluster's links, and with them their routes.
fn remove_links(place: &Place) -> Result<(), netlink::Error> {
    let mut routing = Routing::open()?;
    let prefix = place.links();
    for link in routing.links()?.into_iter().filter(|link| link.name.starts_with(&prefix)) {
        routing.delete_link(link.index)?;
    }
    Ok(())
}
