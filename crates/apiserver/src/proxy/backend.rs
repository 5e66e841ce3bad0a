//! Connections to backends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::Status;
use client::tls::AnyCertificate;
use http::Request;
use http::header::{HOST, HeaderValue};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, SignatureScheme};
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;

use super::guard::{Own, Purpose};
use super::location::{Location, Transport, not_allowed};
use super::pace::Paced;
use crate::front::Body;

/// How long a backend may take to accept a connection; Go's default dialer.
const DIAL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Why a backend cannot be spoken to.
#[derive(Debug, Error)]
pub(super) enum BackendError {
    /// No connection.
    #[error("dial tcp {authority}: {source}")]
    Dial {
        /// Where to.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// The connection leads where nobody gets through the server.
    #[error("address not allowed")]
    NotAllowed,
    /// No TLS.
    #[error("tls: {0}")]
    Tls(io::Error),
    /// A host that no certificate can be for.
    #[error("tls: invalid server name {0:?}")]
    Name(String),
    /// No HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl From<BackendError> for Status {
    /// An error upstream has no reason for.
    fn from(e: BackendError) -> Self {
        Status::failure(500, "", format!("error dialing backend: {e}"))
    }
}

/// Opens connections.
#[derive(Clone)]
pub(super) struct Dialer {
    kubelet: Arc<ClientConfig>,
    unverified_kubelet: Arc<ClientConfig>,
    workload: Arc<ClientConfig>,
    own: Own,
    /// How many bytes a second go each way at most on a connection that lasts; any number if it is zero.
    rate: u64,
}

impl Dialer {
    /// From the settings that verify kubelets, where the server itself is, and the bytes a second on connections that
    /// last.
    pub(super) fn new(kubelet: Arc<ClientConfig>, own: Own, rate: u64) -> Self {
        let verifier = Arc::new(AnyCertificate::new(kubelet.crypto_provider().clone()));
        let mut unverified = (*kubelet).clone();
        unverified.dangerous().set_certificate_verifier(verifier.clone());
        let mut workload = (*kubelet).clone();
        workload.dangerous().set_certificate_verifier(verifier);
        // The API server's identity is shown to kubelets only.
        workload.client_auth_cert_resolver = Arc::new(Anonymous);
        Self { kubelet, unverified_kubelet: Arc::new(unverified), workload: Arc::new(workload), own, rate }
    }

    /// A connection that lasts, at its pace.
    pub(super) fn paced(&self, upgraded: Upgraded) -> Paced<TokioIo<Upgraded>> {
        Paced::new(TokioIo::new(upgraded), self.rate)
    }

    /// Finds the addresses of a location's host, once, and refuses it if the server may not connect to one of them.
    pub(super) async fn resolve(&self, mut location: Location, purpose: Purpose) -> Result<Location, Status> {
        let found = match location.host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, location.port)],
            Err(_) => self.look_up(&location).await.map_err(|e| match purpose {
                Purpose::Kubelet => Status::from(e),
                Purpose::Proxy => Status::bad_request(e.to_string()),
            })?,
        };
        if found.is_empty() || !found.iter().all(|address| self.own.allows(purpose, *address)) {
            tracing::warn!(
                host = location.host,
                port = location.port,
                "a connection was refused: its address is not allowed"
            );
            return Err(not_allowed());
        }
        location.addresses = found;
        Ok(location)
    }

    async fn look_up(&self, location: &Location) -> Result<Vec<SocketAddr>, BackendError> {
        let failed = |source| BackendError::Dial { authority: location.authority(), source };
        let asked = tokio::net::lookup_host((location.host.as_str(), location.port));
        match tokio::time::timeout(DIAL_TIMEOUT, asked).await {
            Ok(found) => Ok(found.map_err(failed)?.collect()),
            Err(_) => Err(failed(timed_out())),
        }
    }

    /// A connection to the first address that takes one.
    async fn connect(&self, location: &Location) -> Result<TcpStream, BackendError> {
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no checked address");
        for address in &location.addresses {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    // A port of this machine is known only now, by which address it is reached from.
                    let (Ok(local), Ok(peer)) = (tcp.local_addr(), tcp.peer_addr()) else { continue };
                    if self.own.reached(local, peer) {
                        return Err(BackendError::NotAllowed);
                    }
                    return Ok(tcp);
                }
                Err(e) => last = e,
            }
        }
        Err(BackendError::Dial { authority: location.authority(), source: last })
    }

    async fn dial(&self, location: &Location) -> Result<http1::SendRequest<Body>, BackendError> {
        let failed = |source| BackendError::Dial { authority: location.authority(), source };
        let tcp = match tokio::time::timeout(DIAL_TIMEOUT, self.connect(location)).await {
            Ok(tcp) => tcp?,
            Err(_) => return Err(failed(timed_out())),
        };
        let _ = tcp.set_nodelay(true);
        let config = match location.transport {
            Transport::Plain => return http(TokioIo::new(tcp)).await,
            Transport::Kubelet => &self.kubelet,
            Transport::UnverifiedKubelet => &self.unverified_kubelet,
            Transport::Tls => &self.workload,
        };
        let name = ServerName::try_from(location.host.clone())
            .map_err(|_| BackendError::Name(location.host.clone()))?;
        let handshake = tokio_rustls::TlsConnector::from(config.clone()).connect(name, tcp);
        let tls = match tokio::time::timeout(DIAL_TIMEOUT, handshake).await {
            Ok(tls) => tls.map_err(BackendError::Tls)?,
            Err(_) => return Err(failed(timed_out())),
        };
        http(TokioIo::new(tls)).await
    }

    /// Sends a request on a connection of its own. The URI is replaced by the location's.
    pub(super) async fn send(
        &self,
        location: &Location,
        mut request: Request<Body>,
    ) -> Result<http::Response<hyper::body::Incoming>, BackendError> {
        let mut sender = self.dial(location).await?;
        *request.version_mut() = http::Version::HTTP_11;
        *request.uri_mut() = location.target().parse().unwrap_or_default();
        if !request.headers().contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(&location.authority())
        {
            request.headers_mut().insert(HOST, host);
        }
        Ok(sender.send_request(request).await?)
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")
}

async fn http<T>(io: TokioIo<T>) -> Result<http1::SendRequest<Body>, BackendError>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new().title_case_headers(true).handshake(io).await?;
    // It ends with the answer's body, or when the upgraded stream is taken.
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

/// Shows no certificate.
#[derive(Debug)]
struct Anonymous;

impl rustls::client::ResolvesClientCert for Anonymous {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
    fn has_certs(&self) -> bool {
        false
    }
}
