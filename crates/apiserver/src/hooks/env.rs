//! The environment of hooks.

use std::net::IpAddr;
use std::sync::Arc;

use access::auth::RequestHeaders;
use access::webhook::Network;
use client::events::Recorder;
use client::{Client, Transport};
use component::Shutdown;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::allocate::Allocators;
use crate::catalog::webhook_converter::ConversionWebhooks;
use crate::metrics::Metrics;
use crate::objects::Objects;

/// The certificate by which aggregated servers know this one.
pub(crate) struct FrontProxyIdentity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl FrontProxyIdentity {
    /// The certificate with its key.
    pub(crate) fn shown(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }
}

/// The authentication of this server, as others need to know it.
#[derive(Clone, Default)]
pub(crate) struct AuthenticationInfo {
    /// The authorities of client certificates, PEM.
    pub(crate) client_authorities: String,
    /// The front proxies that are believed.
    pub(crate) request_headers: Option<RequestHeaders>,
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
    /// As a superuser.
    pub(crate) transport: Arc<dyn Transport>,
    /// Where others reach this server.
    pub(crate) advertised: IpAddr,
    /// The network in which webhooks and aggregated servers are.
    pub(crate) network: Arc<Network>,
    /// The certificate that is shown to aggregated servers.
    pub(crate) front_proxy: Option<Arc<FrontProxyIdentity>>,
    /// The authentication of this server, as others need to know it.
    pub(crate) authentication: AuthenticationInfo,
    /// The metrics, to register more.
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: Shutdown,
}

impl Env {
    /// A recorder of events in the name of one of upstream's components.
    pub(crate) fn recorder(&self, component: &str) -> Recorder {
        let client = Client::new(Arc::clone(&self.transport), "kube-apiserver");
        Recorder::start(client, component, "", self.objects.clock, &self.shutdown)
    }
}
