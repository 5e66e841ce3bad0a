//! Connections to one member: addresses, TLS, and the reasons of failures.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

/// The time that a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The time after which a silent connection is pinged, and the time that the answer may take; as upstream's client has
/// them.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// The window of a call's answer, and that of all on a connection.
const CALL_WINDOWS: (u32, u32) = (8 << 20, 16 << 20);
/// The window of a watch, and that of all watches: one that is not read must not hold up the others.
const WATCH_WINDOWS: (u32, u32) = (1 << 20, 1 << 30);
/// The number of connections to a member for calls: a single one is served by one task.
const CALLS: usize = 4;

/// The addresses of etcd, and the files for TLS.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The members' client URLs (`--etcd-servers`).
    pub endpoints: Vec<String>,
    /// The file of the authority that signed the members' certificates (`--etcd-cafile`).
    pub ca_file: Option<PathBuf>,
    /// The file of the client's certificate (`--etcd-certfile`).
    pub cert_file: Option<PathBuf>,
    /// The file of its key (`--etcd-keyfile`).
    pub key_file: Option<PathBuf>,
}

/// The reason for which a configuration cannot be used. Each sentence tells the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No member is named.
    #[error("--etcd-servers names no server: give it the client URLs of etcd, as http://127.0.0.1:2379")]
    NoServers,
    /// A URL is invalid.
    #[error("--etcd-servers: {0:?} is not a URL of etcd: want http://HOST:PORT or https://HOST:PORT")]
    Url(String),
    /// A file cannot be used.
    #[error("{flag} {}: {why}", file.display())]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// There is a certificate without a key, or a key without a certificate.
    #[error("--etcd-certfile and --etcd-keyfile belong together: give both")]
    Pair,
    /// A member speaks TLS, and no authority is named.
    #[error(
        "{0} speaks TLS, and nothing says whose certificates to trust: name the authority's file with --etcd-cafile"
    )]
    NoCa(String),
}

/// The reason for which there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ConnectFailure {
    #[error("{0}")]
    Io(Arc<str>),
    #[error("no answer within {} seconds", CONNECT.as_secs())]
    Timeout,
    #[error(
        "the certificate of etcd at {0} was not signed by the authority of --etcd-cafile: name the one that \
         signed it"
    )]
    WrongCa(Arc<str>),
    #[error("the certificate of etcd at {0} is not for that name ({1}): use a name or address that it holds")]
    WrongName(Arc<str>, Arc<str>),
    #[error("etcd at {0} does not speak TLS: use http:// in --etcd-servers, or turn TLS on in etcd")]
    NoTls(Arc<str>),
    #[error("etcd at {0} refused our certificate ({1}): check --etcd-certfile and --etcd-keyfile")]
    Refused(Arc<str>, Arc<str>),
    #[error(
        "etcd at {0} hung up during the TLS handshake: if it does not speak TLS, use http:// in --etcd-servers"
    )]
    HungUp(Arc<str>),
    #[error("TLS with etcd at {0} failed: {1}")]
    Tls(Arc<str>, Arc<str>),
}

impl ConnectFailure {
    /// Whether only a change of the configuration helps.
    pub(crate) fn lasts(&self) -> bool {
        matches!(self, Self::WrongCa(_) | Self::WrongName(..) | Self::NoTls(_) | Self::Refused(..))
    }
}

/// The connections to a member. Each connects when something is sent on it.
pub(crate) struct Connections {
    pub(crate) url: Arc<str>,
    pub(crate) calls: Vec<Channel>,
    /// The connection of all watches, apart so that calls do not wait for their data.
    pub(crate) watches: Channel,
}

/// Reads the files of a configuration and prepares the connections to each member; connects to none.
pub(crate) fn channels(config: &Config) -> Result<Vec<Connections>, ConfigError> {
    let tls = tls(config)?;
    let channels: Vec<_> =
        config.endpoints.iter().map(|url| member(url.trim(), tls.clone())).collect::<Result<_, _>>()?;
    if channels.is_empty() { Err(ConfigError::NoServers) } else { Ok(channels) }
}

fn tls(config: &Config) -> Result<Option<Arc<ClientConfig>>, ConfigError> {
    let secure = config.endpoints.iter().find(|e| e.trim().starts_with("https://"));
    let own = match (&config.cert_file, &config.key_file) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(ConfigError::Pair),
    };
    let Some(secure) = secure else { return Ok(None) };
    let ca = config.ca_file.as_ref().ok_or_else(|| ConfigError::NoCa(secure.clone()))?;
    let bad = |flag, file: &Path, why: &dyn std::fmt::Display| ConfigError::File {
        flag,
        file: file.to_owned(),
        why: why.to_string(),
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates("--etcd-cafile", ca)? {
        roots.add(certificate).map_err(|e| bad("--etcd-cafile", ca, &e))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("--etcd-cafile", ca, &e))?
        .with_root_certificates(roots);
    let mut tls = match own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates("--etcd-certfile", cert)?;
            let text = std::fs::read(key).map_err(|e| bad("--etcd-keyfile", key, &e))?;
            let private = PrivateKeyDer::from_pem_slice(&text)
                .map_err(|_| bad("--etcd-keyfile", key, &"no PEM key is in it"))?;
            builder.with_client_auth_cert(chain, private).map_err(|e| bad("--etcd-keyfile", key, &e))?
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(tls)))
}

fn certificates(flag: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let bad = |why: String| ConfigError::File { flag, file: file.to_owned(), why };
    let text = std::fs::read(file).map_err(|e| bad(e.to_string()))?;
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|e| bad(e.to_string()))?;
    if all.is_empty() { Err(bad("no PEM certificate is in it".into())) } else { Ok(all) }
}

fn member(url: &str, tls: Option<Arc<ClientConfig>>) -> Result<Connections, ConfigError> {
    let bad = || ConfigError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let tls = match uri.scheme_str() {
        Some("http") => None,
        Some("https") => tls,
        _ => return Err(bad()),
    };
    if uri.host().is_none() || uri.path().len() > 1 || uri.query().is_some() {
        return Err(bad());
    }
    let host: Arc<str> = uri.host().unwrap_or_default().trim_matches(['[', ']']).into();
    let port = uri.port_u16().unwrap_or(2379);
    let connector = Connector { url: url.into(), host, port, tls };
    // The connector does TLS, so that tonic sees a plain connection either way.
    let authority = uri.authority().map_or_else(String::new, ToString::to_string);
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .map_err(|_| bad())?
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .origin(uri);
    let channel = |(stream, connection)| {
        let endpoint =
            endpoint.clone().initial_stream_window_size(stream).initial_connection_window_size(connection);
        endpoint.connect_with_connector_lazy(connector.clone())
    };
    let calls = (0..CALLS).map(|_| channel(CALL_WINDOWS)).collect();
    Ok(Connections { url: url.into(), calls, watches: channel(WATCH_WINDOWS) })
}

/// Opens connections to one member.
#[derive(Clone)]
struct Connector {
    url: Arc<str>,
    host: Arc<str>,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
}

/// A byte stream, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = ConnectFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT, this.connect()).await;
            Ok(TokioIo::new(connected.map_err(|_| ConnectFailure::Timeout)??))
        })
    }
}

impl Connector {
    async fn connect(&self) -> Result<Box<dyn Stream>, ConnectFailure> {
        let failed = |e: io::Error| ConnectFailure::Io(e.to_string().into());
        let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.to_string())
            .map_err(|e| ConnectFailure::Tls(self.url.clone(), e.to_string().into()))?;
        match TlsConnector::from(tls.clone()).connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(e) => Err(self.explain(&e)),
        }
    }

    fn explain(&self, error: &io::Error) -> ConnectFailure {
        use rustls::{CertificateError as Bad, Error};
        let url = self.url.clone();
        match error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
            Some(Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
                ConnectFailure::WrongCa(url)
            }
            Some(Error::InvalidCertificate(
                e @ (Bad::NotValidForName | Bad::NotValidForNameContext { .. }),
            )) => ConnectFailure::WrongName(url, e.to_string().into()),
            Some(Error::InvalidMessage(_)) => ConnectFailure::NoTls(url),
            Some(Error::AlertReceived(alert)) => ConnectFailure::Refused(url, format!("{alert:?}").into()),
            Some(e) => ConnectFailure::Tls(url, e.to_string().into()),
            None if error.kind() == io::ErrorKind::UnexpectedEof => ConnectFailure::HungUp(url),
            None => ConnectFailure::Io(error.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(urls: &[&str]) -> Config {
        Config { endpoints: urls.iter().map(|u| (*u).to_owned()).collect(), ..Config::default() }
    }

    #[tokio::test]
    async fn urls() {
        let check = |urls: &[&str], expected: &str| {
            let outcome = channels(&config(urls)).map(|_| ()).map_err(|e| e.to_string());
            match outcome {
                Ok(()) => assert_eq!(expected, "", "{urls:?}"),
                Err(e) => assert!(!expected.is_empty() && e.contains(expected), "{urls:?}: {e}"),
            }
        };
        check(&["http://127.0.0.1:2379", "http://[::1]:2379"], "");
        check(&[], "names no server");
        check(&["127.0.0.1:2379"], "is not a URL of etcd");
        check(&["ftp://a:1"], "is not a URL of etcd");
        check(&["http://a:1/v2"], "is not a URL of etcd");
        check(&["https://a:1"], "--etcd-cafile");
    }

    #[test]
    fn a_key_needs_a_certificate() {
        let lone = Config { key_file: Some("key".into()), ..config(&["https://a:1"]) };
        assert!(matches!(tls(&lone), Err(ConfigError::Pair)));
        let missing = Config { ca_file: Some("/nonexistent/ca".into()), ..config(&["https://a:1"]) };
        let error = tls(&missing).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("--etcd-cafile /nonexistent/ca: "), "{error}");
    }
}
