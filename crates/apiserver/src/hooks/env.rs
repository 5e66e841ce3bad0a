//! The environment of hooks.

use std::net::IpAddr;
use std::sync::Arc;

use access::auth::token::Uses;
use access::auth::{Authorities, RequestHeaders};
use access::webhook::Network;
use api::FeatureGates;
use client::events::Recorder;
use client::{Certificate, Client, Transport};
use component::Shutdown;

use crate::allocate::Allocators;
use crate::catalog::webhook_converter::ConversionWebhooks;
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::objects::Objects;

/// The authentication of this server, as others need to know it.
#[derive(Clone, Default)]
pub(crate) struct AuthenticationInfo {
    /// The authorities of client certificates.
    pub(crate) client_authorities: Option<Authorities>,
    /// The front proxies that are believed, with the authorities of their certificates.
    pub(crate) front_proxies: Option<(Authorities, RequestHeaders)>,
    /// Whether uids count (the feature `RemoteRequestHeaderUID`).
    pub(crate) uid: bool,
}

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
    /// The port on which nodes lead to the `kubernetes` Service; zero for none.
    pub(crate) node_port: u16,
    /// Whether the endpoints of the `kubernetes` Service are kept.
    pub(crate) endpoints: bool,
    /// As a superuser.
    pub(crate) transport: Arc<dyn Transport>,
    /// Where others reach this server.
    pub(crate) advertised: IpAddr,
    /// The network in which webhooks and aggregated servers are.
    pub(crate) network: Arc<Network>,
    /// The certificate that is shown to aggregated servers.
    pub(crate) front_proxy: Option<Certificate>,
    /// The authentication of this server, as others need to know it.
    pub(crate) authentication: AuthenticationInfo,
    /// The features that are on.
    pub(crate) gates: FeatureGates,
    /// The host's name.
    pub(crate) hostname: String,
    /// The uses of service account tokens.
    pub(crate) token_uses: Arc<Uses>,
    /// The metrics, to register more.
    pub(crate) metrics: Arc<Metrics>,
    /// The flow control of requests.
    pub(crate) flow: Arc<Flow>,
    /// The beginning of the server's end, with which others are told no more of it.
    pub(crate) ending: Shutdown,
    pub(crate) shutdown: Shutdown,
}

impl Env {
    /// A recorder of events in the name of one of upstream's components.
    pub(crate) fn recorder(&self, component: &str) -> Recorder {
        let client = Client::new(Arc::clone(&self.transport), "kube-apiserver");
        Recorder::start(client, component, "", self.objects.clock, &self.shutdown)
    }
}
