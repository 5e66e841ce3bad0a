//! The environment of hooks.

use std::net::IpAddr;
use std::sync::Arc;

use client::events::Recorder;
use client::{Client, Transport};
use component::Shutdown;

use crate::allocate::Allocators;
use crate::catalog::webhook_converter::ConversionWebhooks;
use crate::objects::Objects;

/// The environment of hooks.
pub(crate) struct Env {
    /// The stored objects.
    pub(crate) objects: Arc<Objects>,
    /// The allocators of addresses and ports for Services.
    pub(crate) allocators: Arc<Allocators>,
    /// The client of conversion webhooks.
    pub(crate) conversions: Arc<ConversionWebhooks>,
    /// The port of this server.
    pub(crate) port: u16,
    /// As a superuser.
    pub(crate) transport: Arc<dyn Transport>,
    /// Where others reach this server.
    pub(crate) advertised: IpAddr,
    pub(crate) shutdown: Shutdown,
}

impl Env {
    /// A recorder of events in the name of one of upstream's components.
    pub(crate) fn recorder(&self, component: &str) -> Recorder {
        let client = Client::new(Arc::clone(&self.transport), "kube-apiserver");
        Recorder::start(client, component, "", self.objects.clock, &self.shutdown)
    }
}
