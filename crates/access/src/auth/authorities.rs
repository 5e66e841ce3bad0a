//! Authorities of client certificates, which may be exchanged while they are used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::pem;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;

/// The reason for which authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the authority of client certificates is not usable")]
pub struct ClientCaError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl ClientCaError {
    fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

/// The place of authorities of client certificates. Each request is judged by those that are there; clones are the same
/// place.
#[derive(Clone)]
pub struct Authorities(Arc<watch::Sender<Arc<Held>>>);

struct Held {
    certificates: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Counts the exchanges.
    version: u64,
}

impl Held {
    fn new(certificates: Vec<CertificateDer<'static>>, version: u64) -> Result<Self, ClientCaError> {
        let mut roots = RootCertStore::empty();
        for authority in &certificates {
            roots.add(authority.clone()).map_err(ClientCaError::new)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self { certificates, verifier: verifier.build().map_err(ClientCaError::new)?, version })
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held();
        write!(f, "Authorities({}, version {})", held.certificates.len(), held.version)
    }
}

impl Authorities {
    /// A place with these authorities.
    ///
    /// # Errors
    /// Where there are none, or one of them is no authority.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, ClientCaError> {
        Ok(Self(Arc::new(watch::Sender::new(Arc::new(Held::new(certificates, 0)?)))))
    }

    /// A place with the authorities of a text, PEM.
    ///
    /// # Errors
    /// Where there are none, or one of them is no authority.
    pub fn parse(text: &str) -> Result<Self, ClientCaError> {
        Self::new(certificates(text)?)
    }

    /// Puts the authorities of a text, PEM, in the place of the present ones. Returns whether they are others.
    ///
    /// # Errors
    /// Where there are none, or one of them is no authority; the present ones stay.
    pub fn exchange(&self, text: &str) -> Result<bool, ClientCaError> {
        let (new, held) = (certificates(text)?, self.held());
        if new == held.certificates {
            return Ok(false);
        }
        let new = Held::new(new, held.version + 1)?;
        self.0.send_replace(Arc::new(new));
        Ok(true)
    }

    fn held(&self) -> Arc<Held> {
        self.0.borrow().clone()
    }

    /// The present ones, PEM.
    pub fn pem(&self) -> String {
        self.held().certificates.iter().map(|certificate| pem::encode_certificate(certificate)).collect()
    }

    /// The present ones.
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.held().certificates.clone()
    }

    /// The number of exchanges so far.
    pub fn version(&self) -> u64 {
        self.0.borrow().version
    }

    /// Tells of exchanges from now on.
    pub fn changes(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    /// Judges the chain of a client's certificate, its own first.
    ///
    /// # Errors
    /// The reason why it is not one of these authorities'.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<(), rustls::Error> {
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.held().verifier.verify_client_cert(leaf, intermediates, time).map(drop)
    }
}

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, ClientCaError> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes());
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| ClientCaError::new(format!("{e:?}")))?;
    if all.is_empty() { Err(ClientCaError::new("there is no certificate in it")) } else { Ok(all) }
}

/// The exchanges of authorities.
#[derive(Debug, Clone)]
pub struct Changes(watch::Receiver<Arc<Held>>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Changes {
    /// Resolves once there are others than at the call before; never, if their place is gone.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::pki::{Authority, Profile};

    #[test]
    fn others_take_the_place() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let [old, new] = ["old", "new"].map(|name| Authority::generate(name, now).unwrap());
        let client = |by: &Authority| by.issue(&Profile::client("ann", None), now).unwrap().certificate();
        let place = Authorities::parse(&old.certificate_pem).unwrap();
        let judged = |by: &Authority| place.verify(&client(by), &[], now).is_ok();
        let mut changes = place.changes();
        assert_eq!((judged(&old), judged(&new)), (true, false));
        assert!(!place.exchange(&old.certificate_pem).unwrap());
        for none in ["", "junk", "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"] {
            assert!(place.exchange(none).is_err(), "{none}");
        }
        assert!(changes.next().now_or_never().is_none());
        assert_eq!((place.version(), judged(&old)), (0, true));
        // Both, while clients move from one to the other.
        let both = format!("{}{}", old.certificate_pem, new.certificate_pem);
        assert!(place.exchange(&both).unwrap());
        assert_eq!((judged(&old), judged(&new), place.certificates().len()), (true, true, 2));
        assert!(place.clone().exchange(&new.certificate_pem).unwrap());
        assert_eq!((judged(&old), judged(&new), place.version()), (false, true, 2));
        assert_eq!(place.pem(), new.certificate_pem.replace("\r\n", "\n"));
        assert!(changes.next().now_or_never().is_some());
        assert!(changes.next().now_or_never().is_none());
    }
}
