//! How the server serves, which may change while it does.

use std::sync::Arc;

use access::auth::Authorities;
use access::pki::server_tls;
use client::Certificate;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

/// The TLS of new connections: the certificate that is in its place, and the authorities of whose certificates clients
/// are asked for one. Connections that are there go on with what they began with.
pub(crate) struct ServerTls {
    serving: Certificate,
    authorities: Vec<Authorities>,
    made: Mutex<(Vec<u64>, Arc<ServerConfig>)>,
}

impl ServerTls {
    /// With the certificate and the authorities in these places.
    ///
    /// # Errors
    /// Those of TLS.
    pub(crate) fn new(serving: Certificate, authorities: Vec<Authorities>) -> Result<Self, rustls::Error> {
        let versions = authorities.iter().map(Authorities::version).collect();
        let made = config(serving.clone(), &authorities)?;
        Ok(Self { serving, authorities, made: Mutex::new((versions, made)) })
    }

    /// The settings of the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut made = self.made.lock();
        if !self.authorities.iter().map(Authorities::version).eq(made.0.iter().copied()) {
            // Before the authorities, so that an exchange meanwhile is seen by the next connection.
            let versions = self.authorities.iter().map(Authorities::version).collect();
            match config(self.serving.clone(), &self.authorities) {
                Ok(new) => *made = (versions, new),
                Err(error) => {
                    tracing::error!(%error, "clients are asked for certificates of the authorities before");
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&made.1))
    }
}

fn config(serving: Certificate, authorities: &[Authorities]) -> Result<Arc<ServerConfig>, rustls::Error> {
    let asked_for: Vec<_> = authorities.iter().flat_map(Authorities::certificates).collect();
    let mut tls = server_tls(Arc::new(serving), &asked_for)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}
