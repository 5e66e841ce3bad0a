//! An open place, as the tasks see it that lead on from there.

use std::net::SocketAddr;
use std::sync::Arc;

use component::Shutdown;
use parking_lot::RwLock;

use super::flows::Flows;
use super::limit::Limit;
use super::targets::{Clients, Targets};

/// The parts that all places share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) clients: Arc<RwLock<Clients>>,
    /// The places of connections, and those of flows of datagrams.
    pub(super) connections: Arc<Limit>,
    pub(super) datagrams: Arc<Limit>,
    /// Ends what was led on.
    pub(super) shutdown: Shutdown,
}

/// A place, as its tasks see it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) at: SocketAddr,
    pub(super) targets: RwLock<Arc<Targets>>,
    pub(super) shared: Shared,
    /// Ends the place; what was led on before goes on.
    pub(super) shutdown: Shutdown,
    pub(super) flows: Flows,
}
