//! The network as calls of webhooks see it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use client::Client;
use prometheus_client::registry::Registry;

use super::defect::Defects;
use crate::reader::Reader;

/// Says whether the server may connect to a backend of a Service.
pub type Guard = dyn Fn(SocketAddr) -> bool + Send + Sync;

type Own = dyn Fn() -> Option<Client> + Send + Sync;

/// The network as calls of webhooks see it: Services with their endpoints, and the authorities that the system trusts.
pub struct Network {
    pub(super) reader: Arc<dyn Reader>,
    pub(super) guard: Box<Guard>,
    /// The way into the own server, once it is there.
    own: OnceLock<Box<Own>>,
    /// The defects of the certificates of webhooks.
    pub(super) webhooks: Defects,
    /// The defects of the certificates of aggregated servers.
    pub(super) servers: Defects,
}

impl Network {
    /// The network of a cluster whose objects `reader` shows. Endpoints of Services are written by others than those
    /// who write webhooks, so `guard` is asked about each. A URL is taken as it is: its writer may read and change
    /// every request in any case, and a webhook beside the server is reached by loopback only.
    pub fn new(reader: Arc<dyn Reader>, guard: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        Self {
            reader,
            guard: Box::new(guard),
            own: OnceLock::new(),
            webhooks: Defects::default(),
            servers: Defects::default(),
        }
    }

    /// Shows the way into the own server: a client that works as the server itself, `None` once that is gone.
    pub fn connect(&self, own: impl Fn() -> Option<Client> + Send + Sync + 'static) {
        // It is shown once.
        let _ = self.own.set(Box::new(own));
    }

    /// A client of the own server.
    pub(super) fn own(&self) -> Option<Client> {
        self.own.get().and_then(|own| own())
    }

    /// Registers the counts of certificates that are refused for what was good once.
    pub fn register(&self, registry: &mut Registry) {
        self.webhooks.register("apiserver_webhooks", "either/or, based on the runtime environment", registry);
        self.servers.register(
            "apiserver_kube_aggregator",
            "either/or, based on the runtime environment",
            registry,
        );
    }
}
