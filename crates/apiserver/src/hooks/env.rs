//! What hooks work with.

use std::net::IpAddr;
use std::sync::Arc;

use client::events::Recorder;
use client::{Client, Transport};
use component::Shutdown;

use crate::allocate::Allocators;
use crate::objects::Objects;

/// What hooks work with.
pub(crate) struct Env {
    /// What is stored.
    pub(crate) objects: Arc<Objects>,
    /// What gives Services their addresses and ports.
    pub(crate) allocators: Arc<Allocators>,
    /// The port of this server.
    pub(crate) port: u16,
    /// As a superuser.
    pub(crate) transport: Arc<dyn Transport>,
    /// Where others reach this server.
    pub(crate) advertised: IpAddr,
    pub(crate) shutdown: Shutdown,
}

impl Env {
    /// What tells events in the name of one of upstream's components.
    pub(crate) fn recorder(&self, component: &str) -> Recorder {
        let client = Client::new(Arc::clone(&self.transport), "kube-apiserver");
        Recorder::start(client, component, "", self.objects.clock, &self.shutdown)
    }
}
