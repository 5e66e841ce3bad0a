//! Removes a pod network after its Pods.

mod bridge;
mod error;

use netlink::Routing;

use crate::filter::Filter;
use crate::nodes;
use crate::place::Place;

pub use error::TeardownError;

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
    let own = routing.links()?.into_iter().filter(|link| link.name.starts_with(&prefix));
    routing.delete_links(&own.map(|link| link.index).collect::<Vec<_>>())
}
