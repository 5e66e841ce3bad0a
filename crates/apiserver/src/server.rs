//! The server: what the pipe works on, and the HTTP front.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use api::{Object, Schema, Status, Struct};
use bytes::{Bytes, BytesMut};
use component::Shutdown;
use futures::Stream;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use kinds::gated::Gated;
use rustls_pki_types::CertificateDer;
use storage::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::admission::Admission;
use crate::allocate::Allocators;
use crate::answer::{self, Encoded, Outcome};
use crate::auth::Auth;
use crate::coalesce::{Coalesce, after_others};
use crate::codec;
use crate::config::{Config, MAX_BODY};
use crate::discovery::Discovery;
use crate::forms::FormCache;
use crate::handlers::watch::{Framer, Tie, WatchSource};
use crate::health::Health;
use crate::leash::{End, Leash};
use crate::meta::Meta;
use crate::metrics::{Metrics, Seen, Watching};
use crate::negotiate::Form;
use crate::openapi::Documents;
use crate::options;
use crate::outbox::Outbox;
use crate::pipe;
use crate::proxy::{Body, Connect};
use crate::query::Query;
use crate::reader::Reader;
use crate::registry::{Registry, Resource};
use crate::request::RequestInfo;
use crate::request_info;

/// How large a request's headers may be, in bytes: Go's `DefaultMaxHeaderBytes` and its slack.
const MAX_HEADERS: u32 = (1 << 20) + 4096;

/// How long a client may take for the headers of a request; upstream's `ReadHeaderTimeout`.
const HEADERS_TIME: Duration = Duration::from_secs(32);

/// How long a request that does not go on may take, its answer included; upstream's `--request-timeout`.
const REQUEST_TIME: Duration = Duration::from_mins(1);

/// What every request works on.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) schema: &'static Schema,
    pub(crate) meta: Meta,
    /// The fields of features that are off.
    pub(crate) gated: Gated,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) auth: Auth,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) connect: OnceLock<Connect>,
    pub(crate) openapi: OnceLock<Box<dyn Documents>>,
    /// The body of `/openapi/v3`, for which every document is made once.
    pub(crate) openapi_index: OnceLock<bytes::Bytes>,
    /// What the columns of Tables tell.
    pub(crate) column_descriptions: OnceLock<crate::table::Descriptions>,
    pub(crate) allocators: Allocators,
    pub(crate) forms: FormCache,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) discovery: Discovery,
    pub(crate) reader: Reader,
    pub(crate) shutdown: Shutdown,
}

/// Tells a request apart in all logs: the caller's own, or one made here.
const AUDIT_ID: &str = "audit-id";

/// Why a server could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The schema lacks a kind of the table of resources.
    #[error("{0}")]
    Schema(String),
    /// A service CIDR or a range of ports cannot be used.
    #[error("{0}")]
    Services(String),
}

/// The API server. Clones share it.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

impl Inner {
    /// Decodes a stored object into the version of a resource.
    pub(crate) fn served_tree(&self, resource: &Resource, object: &Object) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        let mut tree = codec::stored(self.schema, stored.root, object)?;
        if let Some(mut meta) = self.meta.of_mut(&mut tree, stored.meta_at) {
            meta.set_resource_version(&object.revision.to_string());
        }
        self.to_served(resource, tree)
    }
    /// Decodes a stored object in the version in which it is stored, without its resourceVersion.
    pub(crate) fn stored_tree(&self, resource: &Resource, object: &Object) -> Result<Struct, Status> {
        codec::stored(self.schema, resource.stored()?.root, object)
    }
    /// Converts a tree from the stored version to the one that is served.
    pub(crate) fn to_served(&self, resource: &Resource, tree: Struct) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        if stored.kind == resource.kind {
            return Ok(tree);
        }
        kinds::convert::convert(self.schema, tree, &stored.kind, &resource.kind).map_err(Status::internal)
    }
    /// Converts a tree from the version that is served to the stored one.
    pub(crate) fn to_stored(&self, resource: &Resource, tree: Struct) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        if stored.kind == resource.kind {
            return Ok(tree);
        }
        kinds::convert::convert(self.schema, tree, &resource.kind, &stored.kind).map_err(Status::internal)
    }
    /// What the metrics tell of a request.
    fn seen<B>(&self, request: &http::Request<B>, query: &Query, info: Option<&RequestInfo>) -> Seen {
        let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let known = info.is_some_and(|i| {
            let resource = self.registry.find(&i.group, &i.version, &i.resource);
            resource.is_some_and(|r| i.subresource.is_empty() || r.subresource(&i.subresource).is_some())
        });
        Seen::new(request.method(), content_type.unwrap_or_default(), query, info, known)
    }
    /// Answers a scrape.
    pub(crate) fn serve_metrics(&self, accept: &str) -> Response<Body> {
        self.metrics.serve(&self.reader, accept)
    }
    /// Now, as `metav1.Time` text.
    pub(crate) fn now(&self) -> String {
        time_text(self.config.clock.now())
    }
}

/// A point in time as `metav1.Time` writes it.
pub(crate) fn time_text(t: jiff::Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(t.as_second()).unwrap_or(t);
    whole.to_string()
}

impl Server {
    /// A server over the store of a reader. It answers HTTPS once `serve` is called; until then only
    /// [`Server::transport`] reaches it.
    pub fn new(
        config: Config,
        reader: Reader,
        auth: Auth,
        admission: Arc<dyn Admission>,
        shutdown: Shutdown,
    ) -> Result<Self, ServerError> {
        let (schema, registry, store) = (reader.schema, Arc::clone(&reader.registry), reader.store.clone());
        let meta =
            Meta::new(schema).ok_or_else(|| ServerError::Schema("the schema lacks ObjectMeta".into()))?;
        let allocators = Allocators::new(&config, reader.clone()).map_err(ServerError::Services)?;
        Ok(Self(Arc::new(Inner {
            schema,
            meta,
            gated: Gated::new(schema, |gate| config.gates.is_off(gate)),
            discovery: Discovery::new(&registry),
            registry,
            auth,
            admission,
            connect: OnceLock::new(),
            openapi: OnceLock::new(),
            openapi_index: OnceLock::new(),
            column_descriptions: OnceLock::new(),
            allocators,
            forms: FormCache::new(config.form_budget),
            metrics: Metrics::new(&config),
            health: Health::new(&shutdown, &store),
            reader,
            store,
            config,
            shutdown,
        })))
    }
    /// Sets what serves exec, logs and the proxies; once.
    pub fn set_connect(&self, connect: Connect) {
        let _ = self.0.connect.set(connect);
    }
    /// Sets what makes the documents of OpenAPI; once.
    pub fn set_openapi(&self, documents: Box<dyn Documents>) {
        let _ = self.0.openapi.set(documents);
    }
    /// Says that what every cluster has is there: `/readyz` passes from now on.
    pub fn set_ready(&self) {
        self.0.health.started();
    }
    /// The metrics, to register more.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
    /// Typed reads over the store.
    pub fn reader(&self) -> &Reader {
        &self.0.reader
    }
    /// Health checks, to add to.
    pub fn health(&self) -> &Health {
        &self.0.health
    }
    /// Serves HTTPS until the shutdown's signal; then lets the requests under way end.
    pub async fn serve(&self, listener: TcpListener, tls: rustls::ServerConfig, shutdown: Shutdown) {
        let mut tls = tls;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let mut h2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        h2.http2()
            .max_concurrent_streams(1000)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .max_frame_size(1 << 20)
            .max_send_buf_size(1 << 20)
            .max_header_list_size(MAX_HEADERS)
            .timer(hyper_util::rt::TokioTimer::new());
        let mut h1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        h1.http1()
            .max_buf_size(MAX_HEADERS as usize)
            .header_read_timeout(HEADERS_TIME)
            .timer(hyper_util::rt::TokioTimer::new());
        let builders = Arc::new((h1, h2));
        let connections = shutdown.child();
        loop {
            let accepted = tokio::select! {
                () = shutdown.wait() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (server, acceptor, builders) =
                        (self.clone(), acceptor.clone(), Arc::clone(&builders));
                    let stop = connections.clone();
                    connections.spawn(async move {
                        if let Err(error) = server.connection(stream, acceptor, &builders, &stop).await {
                            tracing::debug!(%peer, %error, "connection ended");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: those under way must end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
        connections.finish().await;
    }
    async fn connection(
        &self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        (h1, h2): &(auto::Builder<TokioExecutor>, auto::Builder<TokioExecutor>),
        stop: &Shutdown,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        stream.set_nodelay(true)?;
        let handshake =
            tokio::time::timeout(std::time::Duration::from_secs(10), acceptor.accept(Outbox::new(stream)));
        let tls = handshake.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let mut tls = tls.inspect_err(|_| self.0.metrics.handshake_failed())?;
        let peer: Option<Arc<[CertificateDer<'static>]>> = tls
            .get_ref()
            .1
            .peer_certificates()
            .map(|chain| chain.iter().map(|c| c.clone().into_owned()).collect::<Vec<_>>().into());
        let leash = Arc::new(Leash::default());
        let requests = Arc::clone(&leash);
        let service = hyper::service::service_fn(move |request| {
            let (server, peer, leash) = (self.clone(), peer.clone(), Arc::clone(&requests));
            async move { Ok::<_, Infallible>(server.respond(request, peer.as_deref(), &leash).await) }
        });
        if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
            tls.get_mut().0.gather();
            let io = TokioIo::new(Coalesce::new(tls));
            after_others(serve_until(h2.serve_connection(io, service), stop, &leash)).await
        } else {
            let connection = h1.serve_connection_with_upgrades(TokioIo::new(tls), service);
            serve_until(connection, stop, &leash).await
        }
    }
    /// Answers one HTTP request.
    pub(crate) async fn respond(
        &self,
        request: http::Request<Incoming>,
        peer: Option<&[CertificateDer<'static>]>,
        leash: &Arc<Leash>,
    ) -> Response<Body> {
        let _busy = leash.request();
        let inner = &self.0;
        let started = Instant::now();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let head = request.method() == Method::HEAD;
        let audit_id = request.headers().get(AUDIT_ID).filter(|id| !id.is_empty()).cloned();
        let path = crate::query::unescape(request.uri().path(), false);
        let info = path.map(|path| request_info::parse(request.method(), &path, &query));
        let seen = inner.seen(&request, &query, info.as_ref().and_then(|info| info.as_ref().ok()));
        let mut response = match info {
            Some(Ok(info)) => in_time(inner, request, peer, query, info, started, leash).await,
            Some(Err(status)) => status_response(inner, &status, Form::JSON),
            None => text(400, "400 Bad Request"),
        };
        if head {
            *response.body_mut() = full(Bytes::new());
        }
        let size = http_body::Body::size_hint(response.body()).exact();
        inner.metrics.request(seen, response.status().as_u16(), started.elapsed(), size);
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        let fresh = || HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).ok();
        if let Some(id) = audit_id.or_else(fresh) {
            headers.insert(AUDIT_ID, id);
        }
        response
    }
}

/// Answers a request within its time, unless it is one of those that go on.
async fn in_time(
    inner: &Arc<Inner>,
    request: http::Request<Incoming>,
    peer: Option<&[CertificateDer<'static>]>,
    query: Query,
    info: RequestInfo,
    started: Instant,
    leash: &Arc<Leash>,
) -> Response<Body> {
    if pipe::is_long_running(&info) {
        let response = pipe::http(inner, request, peer, query, info, leash).await;
        return response.map(|body| leash.answer(body, None));
    }
    let deadline = match options::timeout(&query) {
        Ok(wanted) => started + wanted.unwrap_or(REQUEST_TIME).min(REQUEST_TIME),
        Err(status) => return status_response(inner, &status, Form::JSON),
    };
    let answer = pipe::http(inner, request, peer, query, info, leash);
    if let Ok(response) = tokio::time::timeout_at(deadline, answer).await {
        return response.map(|body| leash.answer(body, Some(deadline)));
    }
    let text = "Timeout: request did not complete within the allotted timeout";
    let mut status = Status::failure(504, "Timeout", text);
    status.details = Some(Box::default());
    status_response(inner, &status, Form::JSON)
}

/// Drives a connection to its end. After the signal, and when nothing was asked for long, only until the
/// requests under way have ended; not any more once a client does not take its answers.
async fn serve_until(
    connection: impl GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
    stop: &Shutdown,
    leash: &Leash,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tokio::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return done,
        () = stop.wait() => {}
        end = leash.end() => if end == End::Stalled {
            return Err("the client does not take its answers".into());
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), connection).await;
    Ok(())
}

/// A body of one piece.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// A plain text answer.
pub(crate) fn text(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An error as an answer.
pub(crate) fn status_response(inner: &Inner, status: &Status, form: Form) -> Response<Body> {
    let mut response = Response::new(full(answer::encode_status(inner, status, form)));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.format.media_type()));
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Turns what a handler answered into an HTTP answer.
pub(crate) fn outcome_response(
    inner: &Arc<Inner>,
    outcome: Outcome,
    form: Form,
    gzip: bool,
    warnings: Vec<String>,
    info: &RequestInfo,
    leash: &Arc<Leash>,
) -> Response<Body> {
    let mut response = match outcome {
        Outcome::Watch(source) => watch_response(inner, source, form, info, leash),
        other => match answer::encode(inner, other, form) {
            Ok((status, encoded)) => encoded_response(status, encoded, form, gzip),
            Err(status) => status_response(inner, &status, form),
        },
    };
    add_warnings(&mut response, warnings);
    response
}

/// Adds Warning headers, as upstream words them: code 299, no agent, the text quoted. One with a control
/// character in it is left out.
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: Vec<String>) {
    let mut size = 0;
    for text in warnings {
        if text.chars().any(char::is_control) {
            continue;
        }
        size += text.len();
        if size > 4096 {
            break;
        }
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Bodies above this are compressed for those who take it; upstream's threshold.
const GZIP_FROM: usize = 128 << 10;

fn encoded_response(status: u16, encoded: Encoded, form: Form, gzip: bool) -> Response<Body> {
    let mut compressed = false;
    let body = match encoded {
        Encoded::Whole(bytes) if gzip && bytes.len() > GZIP_FROM => {
            compressed = true;
            PieceBody::new(Box::new(std::iter::once(bytes)), true).boxed()
        }
        Encoded::Whole(bytes) => full(bytes),
        Encoded::Items(mut writer) => match (writer.next_chunk(), writer.next_chunk()) {
            (Some(first), None) if !gzip || first.len() <= GZIP_FROM => full(first),
            (first, second) => {
                compressed = gzip;
                let rest = std::iter::from_fn(move || writer.next_chunk());
                let all = first.into_iter().chain(second).chain(rest);
                PieceBody::new(Box::new(all), gzip).boxed()
            }
        },
        Encoded::Pieces(pieces) => {
            compressed = gzip && pieces.as_slice().iter().map(Bytes::len).sum::<usize>() > GZIP_FROM;
            PieceBody::new(Box::new(pieces), compressed).boxed()
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.format.media_type()));
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// A body of pieces that are made while it is sent.
pub(crate) struct PieceBody {
    pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>,
    gzip: Option<flate2::write::GzEncoder<Vec<u8>>>,
}

impl PieceBody {
    pub(crate) fn new(pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>, gzip: bool) -> Self {
        let level = flate2::Compression::fast();
        Self { pieces, gzip: gzip.then(|| flate2::write::GzEncoder::new(Vec::new(), level)) }
    }
    fn compressed(&mut self) -> Option<io::Result<Bytes>> {
        use std::io::Write;
        loop {
            let encoder = self.gzip.as_mut()?;
            let Some(piece) = self.pieces.next() else {
                return self.gzip.take().map(|e| e.finish().map(Bytes::from));
            };
            if let Err(e) = encoder.write_all(&piece) {
                self.gzip = None;
                return Some(Err(e));
            }
            let out = encoder.get_mut();
            if !out.is_empty() {
                return Some(Ok(std::mem::take(out).into()));
            }
        }
    }
}

impl http_body::Body for PieceBody {
    type Data = Bytes;
    type Error = crate::proxy::BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.gzip.is_some() {
            return Poll::Ready(self.compressed().map(|r| r.map(Frame::data).map_err(Into::into)));
        }
        Poll::Ready(self.pieces.next().map(|b| Ok(Frame::data(b))))
    }
}

fn watch_response(
    inner: &Arc<Inner>,
    source: Box<WatchSource>,
    form: Form,
    info: &RequestInfo,
    leash: &Arc<Leash>,
) -> Response<Body> {
    let framer = Framer::new(inner, &source.resource, form);
    let tie = source.tie(leash);
    let body = WatchBody { source, framer, watching: inner.metrics.watch(info), _tie: tie };
    let mut response = Response::new(body.boxed());
    let media = form.format.watch_type().unwrap_or("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// How long a frame of several small events grows: a TLS record, with the frame's head.
const FRAME: usize = (16 << 10) - 64;

/// The frames of a watch.
struct WatchBody {
    source: Box<WatchSource>,
    framer: Framer,
    watching: Watching,
    _tie: Tie,
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = crate::proxy::BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Some(item) = std::task::ready!(Pin::new(&mut *this.source).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let first = this.framer.frame(item);
        // Events that wait already go along: a frame of its own costs more than a small event.
        if !this.source.is_ready() || first.len() >= FRAME {
            this.watching.sent(1);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let mut frame = BytesMut::with_capacity(FRAME);
        frame.extend_from_slice(&first);
        let mut events = 1;
        while frame.len() < FRAME
            && let Some(item) = this.source.next_ready()
        {
            frame.extend_from_slice(&this.framer.frame(item));
            events += 1;
        }
        this.watching.sent(events);
        Poll::Ready(Some(Ok(Frame::data(frame.freeze()))))
    }
}

/// Reads a body within the limit; a 413 above it.
pub(crate) async fn read_body(mut body: Incoming) -> Result<Bytes, Status> {
    if http_body::Body::size_hint(&body).lower() > MAX_BODY as u64 {
        return Err(refuse(body).await);
    }
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("unexpected end of the body: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > MAX_BODY {
            return Err(refuse(body).await);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
                first = Bytes::new();
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// The answer to a body that is too large.
async fn refuse(body: Incoming) -> Status {
    throw_away(body, 8 * MAX_BODY).await;
    Status::failure(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}"))
}

/// Takes what still comes of a body that nobody wants, if that is not too much: a client that is cut off while it
/// sends does not read its answer.
pub(crate) async fn throw_away(mut body: Incoming, limit: usize) {
    if http_body::Body::is_end_stream(&body) {
        return;
    }
    let mut patience = limit;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            let Some(left) = patience.checked_sub(size) else { break };
            patience = left;
        }
    };
    // However slow the client is, it gets its answer.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), rest).await;
}

/// The headers of a request that matter to the pipe.
pub(crate) fn header(parts: &http::request::Parts, name: header::HeaderName) -> &str {
    parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}
