//! The certificate with which a node's kubelet serves, signed by the cluster.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use client::Client;
use component::{Clock, Shutdown};
use kubelet::server::Offer;
use rustls::{RootCertStore, ServerConfig};

use super::kept::Kept;
use super::request::Wanted;
use super::store::Store;

/// A kubelet's serving certificate, which the cluster signs and which is exchanged in time.
pub(crate) struct Serving(Kept);

impl Serving {
    /// The certificate for a node's name and addresses, in a directory with the names of upstream's kubelet. It is asked
    /// for by [`Self::keep`].
    pub(crate) fn new(node: &str, addresses: &[IpAddr], dir: &Path, clock: Clock) -> Self {
        Self(Kept::new(Wanted::node_serving(node, addresses), Store::new(dir, "kubelet-server"), clock))
    }

    /// With an administrator who approves each request.
    pub(crate) fn approved_by(self, admin: Client) -> Self {
        Self(self.0.approved_by(admin))
    }

    /// Resolves once there is a certificate.
    pub(crate) fn there(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.there()
    }

    /// The place of the certificate.
    pub(crate) fn place(&self) -> client::Certificate {
        self.0.place.clone()
    }

    /// The TLS of the kubelet's server. Until there is a certificate, nobody is served, as with upstream's kubelet.
    pub(crate) fn tls(&self, clients: &RootCertStore, offer: &Offer) -> Result<ServerConfig> {
        let (chain, key) = serving::tls::self_signed(vec!["localhost".to_owned()])?;
        let mut config = kubelet::server::tls(chain, key, clients.clone(), offer)?;
        config.cert_resolver = Arc::new(self.0.place.clone());
        Ok(config)
    }

    /// Takes the certificate of an earlier start, or asks for one as the node, and keeps it good until the shutdown.
    pub(crate) fn keep(&self, node: Client, shutdown: &Shutdown) -> Result<()> {
        let next = self.0.load()?;
        let (kept, stop) = (self.0.clone(), shutdown.clone());
        shutdown.spawn(async move { kept.keep(next, node, None, stop).await });
        Ok(())
    }
}
