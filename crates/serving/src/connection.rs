//! Connections: their number, their longest time, and their cost before their user is known.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use component::Shutdown;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use crate::answer::{Body, BoxError, Failure, empty};
use crate::auth::User;

/// The time that a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The largest size of a request's headers, in bytes: Go's `DefaultMaxHeaderBytes` and its slack.
const MAX_HEADERS: u32 = (1 << 20) + 4096;
/// The time that a client may take for the headers of a request, and to show credentials.
const HEADERS_TIME: Duration = Duration::from_secs(32);
/// The time for which a connection may be idle; upstream's `IdleTimeout`.
const IDLE: Duration = Duration::from_secs(90);
/// The time that any request may take, its answer included; upstream's `WriteTimeout`.
const LONGEST: Duration = Duration::from_hours(4);
/// The time that a connection which is to end may take to tell its client.
const FAREWELL: Duration = Duration::from_secs(5);
/// The number of concurrent requests on a connection of HTTP/2; Go's.
const MAX_STREAMS: u32 = 250;
/// The interval at which the other side of a silent connection of HTTP/2 is pinged.
const PING: Duration = Duration::from_secs(30);

/// The number of connections, those of streams included.
///
/// DIFFERENCE: upstream has no limits but that of descriptors.
const MAX_CONNECTIONS: usize = 4096;
/// The number of them without credentials yet, in all and of one address.
const MAX_STRANGERS: usize = 512;
const MAX_STRANGERS_EACH: usize = 128;

/// The present connections.
#[derive(Default)]
struct Gate(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    all: usize,
    strangers: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Gate {
    /// A place for a connection from an address; `None` if there is none.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Life>> {
        let mut counts = self.0.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.all >= MAX_CONNECTIONS
            || counts.strangers >= MAX_STRANGERS
            || of_address >= MAX_STRANGERS_EACH
        {
            return None;
        }
        counts.all += 1;
        counts.strangers += 1;
        counts.by_address.insert(address, of_address + 1);
        drop(counts);
        let now = Instant::now();
        let state = State { known: false, refused: false, next: 0, busy: BTreeMap::new(), idle_since: now };
        Some(Arc::new(Life {
            gate: self.clone(),
            address,
            began: now,
            state: Mutex::new(state),
            changed: Notify::new(),
        }))
    }

    fn no_stranger(&self, address: IpAddr) {
        let mut counts = self.0.lock();
        counts.strangers -= 1;
        if let Some(of_address) = counts.by_address.get_mut(&address) {
            *of_address -= 1;
            if *of_address == 0 {
                counts.by_address.remove(&address);
            }
        }
    }
}

/// The state of a connection, which its requests change.
pub struct Life {
    gate: Arc<Gate>,
    address: IpAddr,
    began: Instant,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    known: bool,
    refused: bool,
    next: u64,
    /// The start of each request that keeps the connection busy.
    busy: BTreeMap<u64, Instant>,
    idle_since: Instant,
}

/// Keeps the connection busy while it lives.
struct Busy(Arc<Life>, u64);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy.remove(&self.1);
        state.idle_since = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if !self.state.get_mut().known {
            self.gate.no_stranger(self.address);
        }
        self.gate.0.lock().all -= 1;
    }
}

impl Life {
    fn busy(self: &Arc<Self>) -> Busy {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.busy.insert(id, Instant::now());
        drop(state);
        self.changed.notify_one();
        Busy(self.clone(), id)
    }
    /// Notes that the connection's user is known.
    fn known(&self) {
        let was = std::mem::replace(&mut self.state.lock().known, true);
        if !was {
            self.gate.no_stranger(self.address);
            self.changed.notify_one();
        }
    }
    /// Notes that the connection's credentials were refused. A client that tries others has to connect again.
    fn refused(&self) {
        self.state.lock().refused = true;
        self.changed.notify_one();
    }
    /// The time at which the connection is to end, as far as is known now.
    fn due(&self) -> Instant {
        let state = self.state.lock();
        let stranger = match (state.known, state.refused) {
            (true, _) => None,
            (false, true) => Some(self.began),
            (false, false) => Some(self.began + HEADERS_TIME),
        };
        let other = state.busy.values().min().map_or(state.idle_since + IDLE, |since| *since + LONGEST);
        stranger.map_or(other, |at| at.min(other))
    }
    /// Returns when the connection is to end.
    async fn over(&self) {
        loop {
            let due = self.due();
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until(due) => return,
            }
        }
    }
}

/// A body that keeps its connection busy.
struct Held {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = BoxError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The service behind an endpoint.
pub trait Service: Send + Sync + 'static {
    /// Finds the user of a request; `chain` is the client's certificate with those that signed it, empty without one. A
    /// client that is authenticated is no stranger any more.
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> impl Future<Output = Result<Arc<User>, Failure>> + Send;
    /// Answers a request.
    fn handle(
        &self,
        request: Request<Incoming>,
        user: &Arc<User>,
    ) -> impl Future<Output = Result<Response<Body>, Failure>> + Send;
}

/// The way in which connections are served.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// The number of concurrent requests on a connection of HTTP/2.
    pub streams: u32,
}

impl Default for Manners {
    fn default() -> Self {
        Self { http2: true, streams: MAX_STREAMS }
    }
}

/// Serves connections until the shutdown.
pub async fn accept<S: Service>(
    server: Arc<S>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    manners: Manners,
    stop: Shutdown,
) {
    let gate = Arc::new(Gate::default());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if !manners.http2 {
        builder = builder.http1_only();
    }
    builder
        .http1()
        .title_case_headers(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME)
        .max_buf_size(MAX_HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(manners.streams)
        .max_header_list_size(MAX_HEADERS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let builder = Arc::new(builder);
    while let Some(accepted) = stop.run(listener.accept()).await {
        match accepted {
            Ok((tcp, peer)) => {
                let Some(life) = gate.admit(peer.ip().to_canonical()) else {
                    tracing::debug!(%peer, "too many connections");
                    continue;
                };
                let (server, acceptor, builder, stop2) =
                    (server.clone(), acceptor.clone(), builder.clone(), stop.clone());
                stop.spawn_one(async move {
                    let _ = stop2.run(Box::pin(serve(server, acceptor, &builder, tcp, life))).await;
                });
            }
            Err(error) => {
                // Most likely there are no descriptors left: connections that have them must end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn serve<S: Service>(
    server: Arc<S>,
    acceptor: TlsAcceptor,
    builder: &auto::Builder<TokioExecutor>,
    tcp: TcpStream,
    life: Arc<Life>,
) {
    let _ = tcp.set_nodelay(true);
    let Ok(Ok(tls)) = timeout(HANDSHAKE, acceptor.accept(tcp)).await else { return };
    let chain: Arc<[CertificateDer<'static>]> =
        tls.get_ref().1.peer_certificates().map(<[_]>::to_vec).unwrap_or_default().into();
    let of_requests = life.clone();
    let service = service_fn(move |request| {
        let (server, chain, life) = (server.clone(), chain.clone(), of_requests.clone());
        async move { Ok::<_, std::convert::Infallible>(respond(&*server, request, &chain, &life).await) }
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
    tokio::pin!(connection);
    // A connection that breaks is the client's affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = life.over() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(FAREWELL, connection).await;
}

async fn respond<S: Service>(
    server: &S,
    mut request: Request<Incoming>,
    chain: &[CertificateDer<'static>],
    life: &Arc<Life>,
) -> Response<Body> {
    let busy = life.busy();
    let head = request.method() == Method::HEAD;
    // A stream goes on after its connection has been handed over, and counts as long as it lasts.
    request.extensions_mut().insert(life.clone());
    let answer = match server.authenticate(request.headers_mut(), chain).await {
        Ok(user) => {
            // A client without credentials stays a stranger, whatever it may ask for.
            if !user.is_anonymous() {
                life.known();
            }
            server.handle(request, &user).await
        }
        Err(failure) => {
            life.refused();
            Err(failure)
        }
    };
    let response = answer.unwrap_or_else(Failure::into_response);
    let response = if head { without_body(response) } else { response };
    response.map(|body| Held { body, _busy: busy }.boxed())
}

/// The answer to HEAD: that to GET, with its length and without its body.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    Response::from_parts(parts, empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[tokio::test]
    async fn strangers_do_not_take_all_places() {
        let gate = Arc::new(Gate::default());
        let mut one: Vec<_> = (0..MAX_STRANGERS_EACH).map(|_| gate.admit(ip(1)).unwrap()).collect();
        assert!(gate.admit(ip(1)).is_none(), "one address");
        one[0].known();
        one[0].known();
        one.push(gate.admit(ip(1)).unwrap());
        let mut others = Vec::new();
        while let Some(life) = gate.admit(ip(100 + others.len() as u32)) {
            others.push(life);
        }
        assert_eq!(others.len(), MAX_STRANGERS - MAX_STRANGERS_EACH);
        // Connections of known users are not in the way of others.
        for life in &others {
            life.known();
        }
        assert!(gate.admit(ip(7)).is_some());
        drop((one, others));
        let counts = gate.0.lock();
        assert_eq!((counts.all, counts.strangers, counts.by_address.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_end_in_time() {
        let gate = Arc::new(Gate::default());
        let lasted = async |life: &Arc<Life>| {
            let from = Instant::now();
            life.over().await;
            from.elapsed().as_secs()
        };
        let silent = gate.admit(ip(1)).unwrap();
        assert_eq!(lasted(&silent).await, HEADERS_TIME.as_secs(), "nobody said who it is");
        let refused = gate.admit(ip(1)).unwrap();
        refused.refused();
        assert_eq!(lasted(&refused).await, 0);
        let known = gate.admit(ip(1)).unwrap();
        known.known();
        known.refused();
        assert_eq!(lasted(&known).await, IDLE.as_secs());
        let busy = known.busy();
        assert_eq!(lasted(&known).await, LONGEST.as_secs(), "an answer that is never taken");
        drop(busy);
        assert_eq!(lasted(&known).await, IDLE.as_secs());
    }

    #[test]
    fn answers_to_head_have_no_body() {
        let got = without_body(crate::answer::typed(b"12345".to_vec(), "text/plain"));
        assert_eq!(got.headers()[CONTENT_LENGTH], "5");
        assert!(http_body::Body::is_end_stream(got.body()));
    }
}
