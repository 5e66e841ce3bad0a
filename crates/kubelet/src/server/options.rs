//! Where the kubelet serves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

pub use client::Offer;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Where to serve, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on; upstream's `address` and `port`.
    pub address: SocketAddr,
    /// The serving certificate, and the roots of client certificates; see [`tls`].
    pub tls: Arc<ServerConfig>,
    /// The flags that the kubelet was started with, for `/flagz`.
    pub flags: BTreeMap<String, String>,
}

/// TLS for the server: its certificate, and the roots of the client certificates it takes. A client
/// without a certificate may still bring a token. `offer` is what may be spoken.
pub fn tls(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: RootCertStore,
    offer: &Offer,
) -> Result<ServerConfig, rustls::Error> {
    serving::tls::config_of((chain, key), clients, offer)
}
