//! How the server serves, which may change while it does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use access::auth::Authorities;
use access::pki::{ByName, Named, server_tls};
use client::{Certificate, Offer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

/// With what a server serves.
pub(crate) struct Serves {
    /// The certificate for clients that ask for no name of another one.
    pub(crate) usual: Certificate,
    /// The certificates for certain names.
    pub(crate) named: Vec<Named>,
    /// The authorities of whose certificates clients are asked for one.
    pub(crate) authorities: Vec<Authorities>,
    /// The versions, ciphers and key exchanges.
    pub(crate) offer: Offer,
    /// Whether HTTP/2 is offered.
    pub(crate) http2: bool,
}

/// The TLS of new connections: the certificates that are in their places, and the authorities of whose certificates
/// clients are asked for one. Connections that are there go on with what they began with.
pub(crate) struct ServerTls {
    serves: Serves,
    made: Mutex<(Vec<u64>, Made)>,
}

/// The settings of connections.
struct Made {
    usual: Arc<ServerConfig>,
    /// Those to addresses that have certificates of their own, which count for clients that ask for no name.
    addresses: HashMap<IpAddr, Arc<ServerConfig>>,
}

impl ServerTls {
    /// With the certificates and the authorities in these places.
    ///
    /// # Errors
    /// Those of TLS.
    pub(crate) fn new(serves: Serves) -> Result<Self, rustls::Error> {
        let versions = serves.authorities.iter().map(Authorities::version).collect();
        let made = Made::of(&serves)?;
        Ok(Self { serves, made: Mutex::new((versions, made)) })
    }

    /// The settings of the next connection, which is to this address.
    pub(super) fn acceptor(&self, address: Option<IpAddr>) -> TlsAcceptor {
        let mut made = self.made.lock();
        let versions = || self.serves.authorities.iter().map(Authorities::version);
        if !versions().eq(made.0.iter().copied()) {
            // Before the authorities, so that an exchange meanwhile is seen by the next connection.
            let versions = versions().collect();
            match Made::of(&self.serves) {
                Ok(new) => *made = (versions, new),
                Err(error) => {
                    tracing::error!(%error, "clients are asked for certificates of the authorities before");
                }
            }
        }
        let own = address.and_then(|address| made.1.addresses.get(&address.to_canonical()));
        TlsAcceptor::from(Arc::clone(own.unwrap_or(&made.1.usual)))
    }
}

impl Made {
    fn of(serves: &Serves) -> Result<Self, rustls::Error> {
        let asked_for: Vec<_> = serves.authorities.iter().flat_map(Authorities::certificates).collect();
        let config = |address| {
            let by_name = ByName::new(serves.usual.clone(), serves.named.clone(), address);
            let mut tls = server_tls(Arc::new(by_name), &asked_for, &serves.offer)?;
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            if serves.http2 {
                tls.alpn_protocols.insert(0, b"h2".to_vec());
            }
            Ok::<_, rustls::Error>(Arc::new(tls))
        };
        let named = serves.named.iter().flat_map(|named| &named.names);
        let addresses = named.filter_map(|name| name.parse().ok());
        let addresses = addresses.map(|address: IpAddr| Ok((address.to_canonical(), config(Some(address))?)));
        Ok(Self { usual: config(None)?, addresses: addresses.collect::<Result<_, rustls::Error>>()? })
    }
}
