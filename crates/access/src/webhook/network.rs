//! The network as calls of webhooks see it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use api::Status;
use bytes::Bytes;
use client::{Call, Client};
use component::boxed;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::defect::Defects;
use crate::reader::Reader;

/// Says whether the server may connect to a backend of a Service.
pub type Guard = dyn Fn(SocketAddr) -> bool + Send + Sync;

/// How many calls of webhooks that the own server answers are under way at once: such a call may lead to another one,
/// and that to the next.
const OWN_CALLS: usize = 64;

type Own = dyn Fn() -> Option<Client> + Send + Sync;

/// The network as calls of webhooks see it: Services with their endpoints, and the authorities that the system trusts.
pub struct Network {
    pub(super) reader: Arc<dyn Reader>,
    pub(super) guard: Box<Guard>,
    /// The way into the own server, once it is there.
    own: OnceLock<Box<Own>>,
    own_calls: Semaphore,
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
            own_calls: Semaphore::new(OWN_CALLS),
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

    /// Calls the own server. It ends if nobody waits for the answer any more.
    pub(super) async fn call_own(&self, own: Client, call: Call) -> Result<Bytes, Status> {
        let _turn = self.own_calls.acquire().await.map_err(|e| Status::internal(e.to_string()))?;
        // In a task of its own: calls that lead to calls would lie on each other on one stack.
        let mut task = JoinSet::new();
        task.spawn(boxed(async move { own.transport().call(call).await }));
        let ended = task.join_next().await.ok_or_else(|| Status::internal("the call ended unheard"))?;
        ended.map_err(|e| Status::internal(e.to_string()))?
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
