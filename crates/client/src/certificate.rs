//! A certificate that is exchanged while it is used: that of a client, or of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The place of a certificate. Each new connection takes the one that is there; clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct Certificate(Arc<Place>);

#[derive(Debug, Default)]
struct Place {
    held: RwLock<Option<Arc<CertifiedKey>>>,
    /// Counts the exchanges.
    version: AtomicU64,
    renewals: RwLock<Renewals>,
}

/// The most lives of certificates that are remembered.
const LIVES: usize = 1000;

/// The fate of the certificates of a place.
#[derive(Debug, Clone, Default)]
pub struct Renewals {
    /// How often no new certificate could be had.
    pub failures: u64,
    /// How long those lived that were exchanged for others, from their begin.
    pub lives: Vec<Duration>,
    /// Begin and end of the present one.
    validity: Option<(Timestamp, Timestamp)>,
}

impl Certificate {
    /// A place with a certificate chain and its key.
    ///
    /// # Errors
    /// The key cannot be used, or belongs to another certificate.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let place = Self::default();
        place.exchange(chain, key)?;
        Ok(place)
    }

    /// Puts another certificate in the place.
    ///
    /// # Errors
    /// The key cannot be used, or belongs to another certificate; the place has its certificate still.
    pub fn exchange(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), Error> {
        let new = CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider())?;
        *self.0.held.write() = Some(Arc::new(new));
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Takes the certificate out of the place.
    pub fn clear(&self) {
        *self.0.held.write() = None;
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// The number of exchanges so far: a connection made at another one has another certificate.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Notes begin and end of the present certificate, and that it took the place of another one at `now`.
    pub fn renewed(&self, validity: (Timestamp, Timestamp), now: Timestamp) {
        let mut renewals = self.0.renewals.write();
        if let Some((begin, _)) = renewals.validity.replace(validity)
            && renewals.lives.len() < LIVES
        {
            renewals.lives.push(Duration::try_from(now.duration_since(begin)).unwrap_or_default());
        }
    }

    /// Notes that no new certificate could be had.
    pub fn not_renewed(&self) {
        self.0.renewals.write().failures += 1;
    }

    /// Begin and end of the present certificate, if its keeper told.
    pub fn validity(&self) -> Option<(Timestamp, Timestamp)> {
        self.0.renewals.read().validity
    }

    /// The fate of its certificates.
    pub fn renewals(&self) -> Renewals {
        self.0.renewals.read().clone()
    }

    /// Whether there is a certificate.
    pub fn is_there(&self) -> bool {
        self.0.held.read().is_some()
    }

    /// The present certificate with its key.
    pub fn held(&self) -> Option<Arc<CertifiedKey>> {
        self.0.held.read().clone()
    }
}

impl ResolvesClientCert for Certificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.held()
    }
    fn has_certs(&self) -> bool {
        self.is_there()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.held()
    }
}
