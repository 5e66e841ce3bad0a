//! Connections to registries: plain or TLS, straight or through the proxy that the environment names.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::registry::hosts::{Scheme, is_local};

/// How long a connection may take by default, Go's figure.
const LIMIT: Duration = Duration::from_secs(30);
/// The longest answer of a proxy to CONNECT.
const MAX_ANSWER: usize = 8 << 10;

/// Makes a host's connections.
#[derive(Clone)]
pub(crate) struct Connector {
    /// How the host is spoken to; a redirect may name another scheme.
    pub scheme: Scheme,
    /// TLS, or why there is none.
    pub tls: Result<Arc<rustls::ClientConfig>, String>,
    /// The environment's proxies.
    pub proxies: Arc<Matcher>,
    /// How long connecting may take.
    pub limit: Option<Duration>,
}

/// The proxy of a URL, if it has one. Go never uses one for this machine.
pub(crate) fn proxy_of(proxies: &Matcher, uri: &Uri) -> Option<Intercept> {
    let local = uri.authority().is_none_or(|a| is_local(a.as_str()));
    if local { None } else { proxies.intercept(uri) }
}

/// A connection.
pub(crate) struct Stream {
    io: Box<dyn Io>,
    /// Whether requests name the whole URL, as a proxy wants it.
    by_proxy: bool,
}

trait Io: Read + Write + Unpin + Send {}
impl<T: Read + Write + Unpin + Send> Io for T {}

impl Connector {
    async fn connect(self, uri: Uri) -> io::Result<Stream> {
        let limit = self.limit.unwrap_or(LIMIT);
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "i/o timeout");
        if uri.scheme_str() != Some("https") {
            return tokio::time::timeout(limit, self.plain(&uri)).await.map_err(late)?;
        }
        let tls = tokio::time::timeout(limit, self.secure(&uri)).await.map_err(late)?;
        match tls {
            // It speaks no TLS: the answer to a greeting was none.
            Err(e) if self.scheme == Scheme::Either && is_no_tls(&e) => {
                tokio::time::timeout(limit, self.plain(&uri)).await.map_err(late)?
            }
            other => other,
        }
    }

    async fn plain(&self, uri: &Uri) -> io::Result<Stream> {
        match proxy_of(&self.proxies, uri) {
            Some(proxy) => {
                let stream = dial(proxy.uri()).await?;
                Ok(Stream { io: Box::new(TokioIo::new(stream)), by_proxy: true })
            }
            None => Ok(Stream { io: Box::new(TokioIo::new(dial(uri).await?)), by_proxy: false }),
        }
    }

    async fn secure(&self, uri: &Uri) -> io::Result<Stream> {
        let config = self.tls.clone().map_err(io::Error::other)?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = match proxy_of(&self.proxies, uri) {
            Some(proxy) => tunnel(&proxy, uri).await?,
            None => dial(uri).await?,
        };
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(Stream { io: Box::new(TokioIo::new(stream)), by_proxy: false })
    }
}

/// Whether a handshake failed because the other side speaks no TLS.
fn is_no_tls(error: &io::Error) -> bool {
    if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
        return true;
    }
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

async fn dial(uri: &Uri) -> io::Result<TcpStream> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asks a proxy to connect to the URL's host.
async fn tunnel(proxy: &Intercept, uri: &Uri) -> io::Result<TcpStream> {
    if proxy.uri().scheme_str() != Some("http") {
        let fault = format!("the proxy {} is not supported: only http:// is", proxy.uri());
        return Err(io::Error::new(io::ErrorKind::Unsupported, fault));
    }
    let mut stream = dial(proxy.uri()).await?;
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(443));
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(value) = proxy.basic_auth() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_ANSWER {
            return Err(io::Error::other("the proxy's answer is too long"));
        }
        // One byte at a time: what follows belongs to the tunnel.
        answer.push(stream.read_u8().await?);
    }
    let line = answer.split(|b| *b == b'\r').next().unwrap_or_default();
    let ok = line.starts_with(b"HTTP/1.") && line.get(8..12).is_some_and(|code| code.starts_with(b" 2"));
    if ok {
        return Ok(stream);
    }
    Err(io::Error::other(format!("the proxy refuses: {}", String::from_utf8_lossy(line))))
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.by_proxy)
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
