//! Connections to backends.

use std::sync::Arc;

use api::Status;
use client::tls::AnyCertificate;
use http::Request;
use http::header::{HOST, HeaderValue};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, SignatureScheme};
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;

use super::location::{Location, Transport};
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
        source: std::io::Error,
    },
    /// No TLS.
    #[error("tls: {0}")]
    Tls(std::io::Error),
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
}

impl Dialer {
    /// From the settings that verify kubelets.
    pub(super) fn new(kubelet: Arc<ClientConfig>) -> Self {
        let verifier = Arc::new(AnyCertificate::new(kubelet.crypto_provider().clone()));
        let mut unverified = (*kubelet).clone();
        unverified.dangerous().set_certificate_verifier(verifier.clone());
        let mut workload = (*kubelet).clone();
        workload.dangerous().set_certificate_verifier(verifier);
        // The API server's identity is shown to kubelets only.
        workload.client_auth_cert_resolver = Arc::new(Anonymous);
        Self { kubelet, unverified_kubelet: Arc::new(unverified), workload: Arc::new(workload) }
    }

    async fn dial(&self, location: &Location) -> Result<http1::SendRequest<Body>, BackendError> {
        let failed = |source| BackendError::Dial { authority: location.authority(), source };
        let connect = TcpStream::connect((location.host.as_str(), location.port));
        let tcp = match tokio::time::timeout(DIAL_TIMEOUT, connect).await {
            Ok(tcp) => tcp.map_err(failed)?,
            Err(_) => return Err(failed(std::io::Error::new(std::io::ErrorKind::TimedOut, "i/o timeout"))),
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
            Err(_) => return Err(failed(std::io::Error::new(std::io::ErrorKind::TimedOut, "i/o timeout"))),
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
