//! The server behind the URLs: HTTP/1.1 on loopback, upgraded to SPDY or WebSocket.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::Shutdown;
use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use streaming::channel::{self, Protocol};
use streaming::spdy::{self, Role};
use streaming::websocket::{self, HandshakeError, is_upgrade, is_websocket};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::backend::{Backend, Task, Wanted};
use super::result::{SPDY, Version};
use super::tokens::{Tokens, TooMany};
use super::{port_forward, remote};

/// The number of connections at a time.
const MOST: usize = 1024;
/// The time in which a client sends its request.
const HEAD: Duration = Duration::from_secs(30);
/// The header by which SPDY's subprotocol is chosen.
const VERSION: &str = "x-stream-protocol-version";
/// The header that names those that are served.
const ACCEPTED: &str = "x-accepted-stream-protocol-versions";

/// The subprotocols of exec and attach over WebSocket.
const WEBSOCKET: [(&str, Version); 6] = [
    (channel::V5, Version::V5),
    (channel::V4, Version::V4),
    ("v4.base64.channel.k8s.io", Version::V4),
    ("channel.k8s.io", Version::V1),
    ("base64.channel.k8s.io", Version::V1),
    ("", Version::V1),
];
/// Those of port-forward.
const WEBSOCKET_PORTS: [&str; 3] = [channel::V4, "v4.base64.channel.k8s.io", ""];

/// The streaming server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Server {
    address: SocketAddr,
    tokens: Arc<Tokens>,
}

type Answer = Response<Full<Bytes>>;

impl Server {
    /// Opens a port on loopback and serves there until `shutdown`.
    pub(crate) async fn start(backend: Arc<dyn Backend>, shutdown: &Shutdown) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let server = Self { address: listener.local_addr()?, tokens: Arc::default() };
        let (tokens, stop) = (server.tokens.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let _ = stop.run(accept(listener, tokens, backend, &stop)).await;
        });
        Ok(server)
    }

    /// The URL at which a client may do something once.
    pub(crate) fn url(&self, task: Task) -> Result<String, TooMany> {
        let kind = match task {
            Task::Exec { .. } => "exec",
            Task::Attach { .. } => "attach",
            Task::PortForward { .. } => "portforward",
        };
        Ok(format!("http://{}/{kind}/{}", self.address, self.tokens.insert(task)?))
    }
}

async fn accept(listener: TcpListener, tokens: Arc<Tokens>, backend: Arc<dyn Backend>, shutdown: &Shutdown) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "connections to the streaming server cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tokens, backend, stop) = (tokens.clone(), backend.clone(), shutdown.clone());
        let place = Arc::new(place);
        shutdown.spawn_one(async move {
            let _ = stop.run(connection(stream, tokens, backend, &stop, place)).await;
        });
    }
}

async fn connection(
    stream: TcpStream,
    tokens: Arc<Tokens>,
    backend: Arc<dyn Backend>,
    shutdown: &Shutdown,
    place: Arc<tokio::sync::OwnedSemaphorePermit>,
) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request| {
        let answer = answer(request, &tokens, &backend, shutdown, &place);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the streaming server broke off");
    }
}

fn say(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer
}

/// Answers a request; what follows an upgrade runs in a task of its own.
fn answer(
    mut request: Request<Incoming>,
    tokens: &Tokens,
    backend: &Arc<dyn Backend>,
    shutdown: &Shutdown,
    place: &Arc<tokio::sync::OwnedSemaphorePermit>,
) -> Answer {
    let mut parts = request.uri().path().splitn(3, '/').skip(1);
    let (kind, token) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !matches!(kind, "exec" | "attach" | "portforward") {
        return say(StatusCode::NOT_FOUND, "404 page not found");
    }
    if !is_upgrade(request.headers()) {
        return say(StatusCode::BAD_REQUEST, "Upgrade request required");
    }
    let Some(task) = tokens.take(token) else {
        return say(StatusCode::NOT_FOUND, "404 page not found");
    };
    let accepted = match accepted(request.headers(), &task) {
        Ok(accepted) => accepted,
        Err(answer) => return answer,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let (backend, stop, place) = (backend.clone(), shutdown.clone(), place.clone());
    let way = accepted.way;
    shutdown.spawn_one(async move {
        if let Ok(upgraded) = upgrade.await {
            let _ = stop.run(serve(upgraded, way, task, backend)).await;
        }
        // The place of the connection is free only now.
        drop(place);
    });
    let mut answer = say(StatusCode::SWITCHING_PROTOCOLS, "");
    answer.headers_mut().extend(accepted.headers);
    answer
}

/// The protocol that a client and the server have in common.
enum Way {
    Spdy(Version),
    WebSocket(Protocol, Version),
}

struct Accepted {
    way: Way,
    headers: HeaderMap,
}

#[allow(clippy::result_large_err, reason = "a refusal is the answer itself")]
fn accepted(headers: &HeaderMap, task: &Task) -> Result<Accepted, Answer> {
    let ports = matches!(task, Task::PortForward { .. });
    if is_websocket(headers) {
        let names: Vec<&str> =
            if ports { WEBSOCKET_PORTS.to_vec() } else { WEBSOCKET.map(|(name, _)| name).to_vec() };
        let made = websocket::accept(headers, &names).map_err(|error| refused(&error))?;
        let version = WEBSOCKET.iter().find(|(name, _)| *name == made.protocol);
        let version = version.map_or(Version::V1, |(_, version)| *version);
        let protocol = Protocol::of(&made.protocol)
            .ok_or_else(|| say(StatusCode::BAD_REQUEST, "the subprotocol has no channels"))?;
        return Ok(Accepted { way: Way::WebSocket(protocol, version), headers: made.headers });
    }
    let spdy =
        headers.get(UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(spdy::UPGRADE.as_bytes()));
    if !spdy {
        return Err(say(StatusCode::BAD_REQUEST, "unable to upgrade: missing upgrade headers in request"));
    }
    let asked: Vec<&str> = headers
        .get_all(VERSION)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("\u{fffd}").split(','))
        .map(str::trim)
        .collect();
    let served: Vec<&str> =
        if ports { vec![port_forward::PROTOCOL] } else { SPDY.map(|(name, _)| name).to_vec() };
    let chosen = if asked.is_empty() {
        // Clients of the first version name none.
        Some(if ports { port_forward::PROTOCOL } else { "" })
    } else {
        asked.iter().copied().find(|name| served.contains(name))
    };
    let Some(chosen) = chosen else {
        let text = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            asked.join(" "),
            served.join(" ")
        );
        let mut answer = say(StatusCode::FORBIDDEN, text);
        for name in served {
            if let Ok(value) = HeaderValue::from_str(name) {
                answer.headers_mut().append(ACCEPTED, value);
            }
        }
        return Err(answer);
    };
    let version = SPDY.iter().find(|(name, _)| *name == chosen).map_or(Version::V1, |(_, version)| *version);
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static(spdy::UPGRADE));
    if let Ok(value) = HeaderValue::from_str(chosen) {
        answer.insert(VERSION, value);
    }
    Ok(Accepted { way: Way::Spdy(version), headers: answer })
}

fn refused(error: &HandshakeError) -> Answer {
    let status = match error {
        HandshakeError::Protocol { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    say(status, error.to_string())
}

async fn serve(upgraded: Upgraded, way: Way, task: Task, backend: Arc<dyn Backend>) {
    let io = TokioIo::new(upgraded);
    let wanted = match &task {
        Task::Exec { wanted, .. } | Task::Attach { wanted, .. } => *wanted,
        Task::PortForward { .. } => Wanted::default(),
    };
    match (way, task) {
        (Way::Spdy(_), Task::PortForward { sandbox, .. }) => {
            let connection = spdy::Connection::start(io, Role::Server, Bytes::new());
            port_forward::over_spdy(backend, sandbox, connection).await;
        }
        (Way::WebSocket(protocol, _), Task::PortForward { sandbox, ports }) => {
            port_forward::over_websocket(backend, sandbox, ports, protocol, websocket::server(io)).await;
        }
        (Way::Spdy(version), task) => {
            let connection = spdy::Connection::start(io, Role::Server, Bytes::new());
            remote::over_spdy(backend, task, wanted, version, connection).await;
        }
        (Way::WebSocket(protocol, version), task) => {
            let socket = websocket::server(io);
            remote::over_websocket(backend, task, wanted, (protocol, version), socket).await;
        }
    }
}
