//! Connections, and one request of theirs.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{Query, RequestInfo, request_info, unescape};
use api::Status;
use bytes::Bytes;
use component::Shutdown;
use http::header::{self, HeaderValue};
use http::{Method, Response, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::body::{Body, full};
use super::coalesce::{Coalesce, after_others};
use super::lifetime::{End, Lifetime};
use super::outbox::Outbox;
use super::peer::Peer;
use super::policy::Policy;
use super::response::{add_warnings, status_response, text};
use super::strangers::{Limits, Stranger, Strangers};
use super::tls::ServerTls;
use crate::ending::{Late, Sort};
use crate::lanes::timed_out;
use crate::negotiate::Form;
use crate::options;
use crate::pipe;
use crate::request::Request;
use crate::rooms::Rooms;
use crate::server::Server;

/// How large a request's headers may be, in bytes: Go's `DefaultMaxHeaderBytes` and its slack.
const MAX_HEADERS: u32 = (1 << 20) + 4096;

/// How many requests a client may have under way on a connection of HTTP/2, if nothing else is said.
const STREAMS: u32 = 1000;

/// How long a client may take for the headers of a request; upstream's `ReadHeaderTimeout`.
const HEADERS_TIME: Duration = Duration::from_secs(32);

/// How many headers a request of HTTP/1 may have: a table of them is made for each request, so a large one costs every
/// client. One that acts for a user with more groups has HTTP/2, where as many are taken as the table of them can hold.
///
/// DIFFERENCE: upstream has no such limit.
const HEADERS: usize = 1000;

/// How often it is said that connections cannot be accepted.
const COMPLAINTS: Duration = Duration::from_secs(10);

/// Why a connection ended that did nothing.
const UNWANTED: &str = "another connection takes its place";

/// A connection before anything was said on it.
struct Arrived {
    stream: TcpStream,
    address: SocketAddr,
    lifetime: Arc<Lifetime>,
    stranger: Stranger,
}

/// Tells a request apart in all logs: the caller's own, or one made here.
const AUDIT_ID: &str = "audit-id";

impl Server {
    /// Serves HTTPS until the server's end takes no more connections; then lets the requests under way end, until the
    /// shutdown's signal.
    pub(crate) async fn serve(&self, listener: TcpListener, tls: ServerTls, shutdown: Shutdown) {
        let streams = Some(self.0.front.http2_streams).filter(|n| *n > 0).unwrap_or(STREAMS);
        let mut h2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        h2.http2()
            .max_concurrent_streams(streams)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .max_frame_size(1 << 20)
            .max_send_buf_size(1 << 20)
            .max_header_list_size(MAX_HEADERS)
            // Streams that the client took back before they were looked at, or misused: above these, the connection
            // ends. A client that ends many calls at once is no attacker.
            .max_pending_accept_reset_streams(STREAMS as usize)
            .max_local_error_reset_streams(1024)
            .timer(hyper_util::rt::TokioTimer::new());
        let mut h1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        h1.http1()
            .max_buf_size(MAX_HEADERS as usize)
            .max_headers(HEADERS)
            .header_read_timeout(HEADERS_TIME)
            .timer(hyper_util::rt::TokioTimer::new());
        let builders = Arc::new((h1, h2));
        let strangers = Strangers::new(Limits::of_process());
        let mut complaints = Complaints::default();
        let (connections, parting) = (shutdown.child(), self.0.front.ending.parting().clone());
        loop {
            let accepted = tokio::select! {
                () = parting.wait() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let lifetime = Arc::new(Lifetime::default());
                    let Some(stranger) = strangers.admit(address.ip(), &lifetime) else { continue };
                    let local = stream.local_addr().ok().map(|to| to.ip());
                    let (server, acceptor, builders) =
                        (self.clone(), tls.acceptor(local), Arc::clone(&builders));
                    let stop = connections.clone();
                    connections.spawn_one(async move {
                        let arrived = Arrived { stream, address, lifetime, stranger };
                        if let Err(error) = server.connection(arrived, acceptor, &builders, &stop).await {
                            tracing::debug!(%address, %error, "connection ended");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: those under way must end first.
                    if let Some(times) = complaints.due(Instant::now()) {
                        tracing::warn!(%error, times, "cannot accept connections");
                    }
                    strangers.make_room();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // Those who come now are refused by the system, and go elsewhere.
        drop(listener);
        shutdown.wait().await;
        connections.finish().await;
    }
    async fn connection(
        &self,
        arrived: Arrived,
        acceptor: TlsAcceptor,
        (h1, h2): &(auto::Builder<TokioExecutor>, auto::Builder<TokioExecutor>),
        stop: &Shutdown,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let Arrived { stream, address, lifetime, stranger } = arrived;
        stream.set_nodelay(true)?;
        let handshake = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(Outbox::new(stream)));
        let tls = tokio::select! {
            tls = handshake => tls.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            _ = lifetime.end() => return Err(UNWANTED.into()),
        };
        let mut tls = tls.inspect_err(|_| self.0.front.metrics.handshake_failed())?;
        let (_, session) = tls.get_ref();
        let is_h2 = session.alpn_protocol() == Some(b"h2");
        let chain = |chain: &[CertificateDer<'_>]| chain.iter().map(|c| c.clone().into_owned()).collect();
        let peer = Arc::new(Peer {
            address,
            certificates: session.peer_certificates().map(chain),
            lifetime: Arc::clone(&lifetime),
            stranger,
            strangers_leave: is_h2 && self.0.front.strangers_leave,
        });
        let parting = self.0.front.ending.parting().clone();
        let service = hyper::service::service_fn(move |request| {
            let (server, peer) = (self.clone(), Arc::clone(&peer));
            // A task is moved several times before it runs; a request's state is large.
            Box::pin(async move { Ok::<_, Infallible>(server.respond(request, &peer).await) })
        });
        if is_h2 {
            tls.get_mut().0.gather();
            let io = TokioIo::new(Coalesce::new(tls));
            // On the heap, since a future that is handed on has its room twice.
            let served = serve_until(h2.serve_connection(io, service), (&parting, stop), &lifetime);
            after_others(Box::pin(served)).await
        } else {
            let connection = h1.serve_connection_with_upgrades(TokioIo::new(tls), service);
            serve_until(connection, (&parting, stop), &lifetime).await
        }
    }
    /// Answers one HTTP request.
    pub(crate) async fn respond(&self, request: http::Request<Incoming>, peer: &Arc<Peer>) -> Response<Body> {
        let _busy = peer.lifetime.request();
        let rooms = &self.0;
        let started = Instant::now();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let (head, version) = (request.method() == Method::HEAD, request.version());
        let audit_id = request.headers().get(AUDIT_ID).filter(|id| !id.is_empty()).cloned();
        let path = unescape(request.uri().path(), false);
        let info = path.map(|path| request_info::parse(request.method(), &path, &query));
        let (info, refused) = match info {
            Some(Ok(info)) => (info, None),
            Some(Err(status)) => (RequestInfo::default(), Some(status_response(&status, Form::JSON))),
            None => (RequestInfo::default(), Some(text(400, "400 Bad Request"))),
        };
        let mut ctx = Box::new(Request::new(rooms.objects.catalog(), info, query, audit_id));
        let refused = match self.is_late(&request, &mut ctx) {
            Some(Late::Elsewhere) => return too_late(version, peer, ctx.audit_id()),
            Some(Late::Unavailable) => Some(ending()),
            None => refused,
        };
        rooms.front.policy.part_with(version, peer);
        let origin = rooms.front.policy.origin(request.headers());
        let preflight = origin.as_ref().and_then(|_| Policy::preflight(request.method()));
        let seen = ctx.seen(&request);
        let mut response = match refused.or(preflight) {
            Some(refused) => refused,
            None => in_time(rooms, request, peer, &mut ctx, started).await,
        };
        ctx.leave();
        add_warnings(&mut response, ctx.notes.take_warnings());
        if head {
            *response.body_mut() = full(Bytes::new());
        }
        let size = http_body::Body::size_hint(response.body()).exact();
        rooms.front.metrics.request(seen, response.status().as_u16(), started.elapsed(), size);
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        headers.insert(AUDIT_ID, ctx.audit_id().clone());
        Policy::let_in(origin, headers);
        rooms.front.policy.tell(headers);
        if pipe::takes_seat(&ctx.info) {
            ctx.caller.tell(headers);
        }
        if ctx.counted.is_some() && sort(&ctx) == Sort::Watch {
            let ending = rooms.front.ending.clone();
            response = response.map(|body| body.until(Box::pin(async move { ending.watch_turn().await })));
        }
        response.map(|body| body.keep(ctx))
    }
    /// Whether a request comes too late for this server; otherwise it is counted.
    fn is_late(&self, request: &http::Request<Incoming>, ctx: &mut Request) -> Option<Late> {
        let agent = request.headers().get(header::USER_AGENT).map_or(&[][..], HeaderValue::as_bytes);
        match self.0.front.ending.request(sort(ctx), agent, request.uri().path()) {
            Ok(counted) => {
                ctx.counted = counted;
                None
            }
            Err(late) => Some(late),
        }
    }
}

/// A request, as far as the server's end is concerned.
fn sort(ctx: &Request) -> Sort {
    match ctx.info.verb {
        // The end of another server's watch is that one's affair.
        "watch" if ctx.elsewhere.is_none() => Sort::Watch,
        _ if pipe::is_long_running(&ctx.info) => Sort::LongRunning,
        _ => Sort::Short,
    }
}

/// Upstream's answer once the server takes no more requests, but still listens; the connection ends with it.
fn too_late(version: Version, peer: &Peer, audit_id: &HeaderValue) -> Response<Body> {
    let mut response = text(429, "The apiserver is shutting down, please try again later.\n");
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    headers.insert(AUDIT_ID, audit_id.clone());
    if version == Version::HTTP_2 {
        peer.lifetime.farewell();
    } else {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Upstream's answer on a connection that is there once the server waits for its last requests.
fn ending() -> Response<Body> {
    let status = Status::failure(503, "ServiceUnavailable", "apiserver is shutting down");
    let mut response = status_response(&status, Form::JSON);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Answers a request within its time, unless it is one of those that go on.
async fn in_time(
    rooms: &Arc<Rooms>,
    request: http::Request<Incoming>,
    peer: &Arc<Peer>,
    ctx: &mut Request,
    started: Instant,
) -> Response<Body> {
    if pipe::is_long_running(&ctx.info) {
        let response = pipe::http(rooms, request, peer, ctx).await;
        return response.map(|body| peer.lifetime.answer(body, None));
    }
    let longest = rooms.front.request_timeout;
    let deadline = match options::timeout(&ctx.query) {
        Ok(wanted) => started + wanted.unwrap_or(longest).min(longest),
        Err(status) => return status_response(&status, Form::JSON),
    };
    ctx.deadline = Some(deadline);
    if let Ok(response) = tokio::time::timeout_at(deadline, pipe::http(rooms, request, peer, ctx)).await {
        return response.map(|body| peer.lifetime.answer(body, Some(deadline)));
    }
    status_response(&timed_out(), Form::JSON)
}

/// Drives a connection to its end. Once the server parts with its connections, and when nothing was asked for long, only
/// until the requests under way have ended; not much longer after the last signal, and not any more once a client does
/// not take its answers.
async fn serve_until(
    connection: impl GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
    (parting, stop): (&Shutdown, &Shutdown),
    lifetime: &Lifetime,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tokio::pin!(connection);
    let mut parted = false;
    loop {
        let end = tokio::select! {
            done = connection.as_mut() => return done,
            () = stop.wait() => break,
            () = parting.wait(), if !parted => {
                parted = true;
                End::Farewell
            }
            end = lifetime.end() => end,
        };
        match end {
            End::Stalled => return Err("the client does not take its answers".into()),
            End::Unwanted => return Err(UNWANTED.into()),
            End::Farewell => connection.as_mut().graceful_shutdown(),
            End::Idle => break,
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(Duration::from_secs(5), connection).await;
    Ok(())
}

/// Says now and then that something goes wrong again and again.
#[derive(Default)]
struct Complaints {
    next: Option<Instant>,
    times: u64,
}

impl Complaints {
    /// It went wrong once more: how often since it was last said, if it is to be said.
    fn due(&mut self, now: Instant) -> Option<u64> {
        self.times += 1;
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + COMPLAINTS);
        Some(std::mem::take(&mut self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_few() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        let mut due = |after| complaints.due(start + Duration::from_millis(after));
        assert_eq!((due(0), due(100), due(9999)), (Some(1), None, None));
        assert_eq!((due(10_000), due(10_100)), (Some(3), None));
    }
}
