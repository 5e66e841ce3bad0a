//! One connection to a webhook.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::Target;
use super::defect::Failure;
use super::error::io_text;
use super::head::Head;
use super::network::Network;
use super::{service, tls};

/// The answer to a request: its head, and its body or why that cannot be read.
pub(super) type Answer = (Head, Result<Bytes, String>);

/// An open connection.
pub(super) enum Connection {
    /// For one request at a time.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// For many.
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Opens a connection.
    pub(super) async fn open(
        network: &Network,
        to: &Target<'_>,
        tls: &TlsConnector,
    ) -> Result<Self, Failure> {
        let stream = secure(network, to, tls).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        if is_http2 {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.map_err(|e| text_of(&e))?;
            tokio::spawn(connection);
            return Ok(Self::Http2(sender));
        }
        let (sender, connection) =
            http1::Builder::new().title_case_headers(true).handshake(io).await.map_err(|e| text_of(&e))?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    /// Whether another request can be sent at the same time.
    pub(super) fn share(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request and reads the answer, up to a limit; `None` if nothing of the request was sent since the
    /// connection had ended.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: usize,
    ) -> Option<Result<Answer, String>> {
        let sent = match self {
            Self::Http1(sender) => {
                sender.ready().await.ok()?;
                sender.try_send_request(origin_form(request)).await.map_err(|mut e| {
                    let unsent = e.take_message().is_some();
                    (unsent, e.into_error())
                })
            }
            Self::Http2(sender) => {
                sender.ready().await.ok()?;
                sender.try_send_request(request).await.map_err(|mut e| {
                    let unsent = e.take_message().is_some();
                    (unsent, e.into_error())
                })
            }
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err((true, _)) => return None,
            Err((false, error)) => return Some(Err(text_of(&error))),
        };
        let head = Head::of(answer.status(), answer.headers());
        let body = match Limited::new(answer.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(e) if e.is::<LengthLimitError>() => Err("http: response body too large".to_owned()),
            Err(e) => Err(e.downcast_ref::<hyper::Error>().map_or_else(|| e.to_string(), text_of)),
        };
        Some(Ok((head, body)))
    }
}

/// Opens a connection, and TLS on it.
pub(super) async fn secure(
    network: &Network,
    to: &Target<'_>,
    tls: &TlsConnector,
) -> Result<TlsStream<TcpStream>, Failure> {
    let tcp = connect(network, to).await?;
    let _ = tcp.set_nodelay(true);
    let name = ServerName::try_from(to.host.clone())
        .map_err(|_| format!("tls: invalid server name {}", api::go::quote(&to.host)))?;
    tls.connect(name, tcp).await.map_err(|e| tls::failure(&e, &to.host))
}

/// HTTP/1.1 names the host in a header alone.
fn origin_form(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = path.into();
    }
    request
}

/// Connects to the first address that takes a connection.
async fn connect(network: &Network, to: &Target<'_>) -> Result<TcpStream, String> {
    let (host, port, guarded) = match to.service {
        None => (to.host.clone(), to.port, false),
        Some((namespace, name)) => {
            let backend = service::resolve(&*network.reader, namespace, name, to.port)?;
            (backend.host, backend.port, true)
        }
    };
    let addresses: Vec<SocketAddr> = if let Ok(ip) = host.parse::<IpAddr>() {
        vec![SocketAddr::new(ip, port)]
    } else {
        let found = tokio::net::lookup_host((host.as_str(), port)).await;
        found.map_err(|_| format!("dial tcp: lookup {host}: no such host"))?.collect()
    };
    let mut last = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        if guarded && !(network.guard)(address) {
            last = format!("dial tcp {address}: address not allowed");
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(tcp) => return Ok(tcp),
            Err(e) => last = format!("dial tcp {address}: {}", io_text("connect", &e)),
        }
    }
    Err(last)
}

/// An error of HTTP, as Go prints it.
pub(super) fn text_of(error: &hyper::Error) -> String {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return io_text("read tcp", io);
        }
        source = inner.source();
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return "EOF".to_owned();
    }
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {error}");
    }
    error.to_string()
}
