//! Why a part of the pod network was left.

use thiserror::Error;

use crate::nodes::WayError;
use crate::place::PlaceError;

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
