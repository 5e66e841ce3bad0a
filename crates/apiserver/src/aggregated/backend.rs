//! Requests to an aggregated server, over connections that are kept.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use access::webhook::{Connector, Endpoint, Failure, Network, Trust};
use bytes::Bytes;
use client::Certificate;
use http::header::{HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// How long a server may take to accept a connection; Go's default dialer.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// How many idle connections to one server are kept.
const KEPT: usize = 32;
/// How long an idle connection is kept; Go's.
const IDLE: Duration = Duration::from_secs(90);

/// The body of a request to an aggregated server.
pub(crate) type Outgoing = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A body of one piece.
pub(crate) fn whole(bytes: Bytes) -> Outgoing {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// No body.
pub(crate) fn no_body() -> Outgoing {
    whole(Bytes::new())
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The APIService's certificates cannot be used.
    Settings(String),
    /// Its Service leads nowhere.
    Unresolved(String),
    /// The server gave none.
    Failed(Failure),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Settings(why) | Self::Unresolved(why) => f.write_str(why),
            Self::Failed(why) => why.fmt(f),
        }
    }
}

/// A connection.
struct Line {
    sender: SendRequest<Outgoing>,
    /// The exchanges of the shown certificate before it was made.
    version: u64,
}

struct Idle {
    since: Instant,
    line: Line,
}

/// A server behind a Service, and the connections to it that are idle.
pub(crate) struct Backend {
    endpoint: Endpoint,
    connector: Result<Connector, String>,
    shown: Option<Certificate>,
    network: Arc<Network>,
    idle: Mutex<Vec<Idle>>,
}

impl Backend {
    /// A server that nothing was asked yet; the certificate in this place is shown to it.
    pub(crate) fn new(
        endpoint: Endpoint,
        trust: &Trust,
        shown: Option<Certificate>,
        network: Arc<Network>,
    ) -> Arc<Self> {
        let connector = Connector::new(endpoint.clone(), trust, shown.clone());
        Arc::new(Self { endpoint, connector, shown, network, idle: Mutex::default() })
    }
    /// The port of its Service.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
    /// Why it cannot be asked whatever it does: its authorities are none.
    pub(crate) fn defect(&self) -> Option<&str> {
        self.connector.as_ref().err().map(String::as_str)
    }
    /// The host and the port by which it is asked: those of its Service's address.
    ///
    /// # Errors
    /// The Service has none.
    pub(crate) fn authority(&self) -> Result<String, SendError> {
        let connector = self.connector.as_ref().map_err(|why| SendError::Settings(why.clone()))?;
        connector.authority(&self.network).map_err(SendError::Unresolved)
    }
    /// Closes the connections that are idle, so that the next request shows whether the server is there.
    pub(crate) fn forget_connections(&self) {
        self.idle.lock().clear();
    }

    /// Sends a request, whose URI is path and query. A read over a kept connection that broke is sent once more.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Answered>, SendError> {
        let connector = self.connector.as_ref().map_err(|why| SendError::Settings(why.clone()))?;
        connector.resolves(&self.network).map_err(SendError::Unresolved)?;
        *request.version_mut() = Version::HTTP_11;
        let host = self.authority()?;
        let host = HeaderValue::from_str(&host).map_err(|e| SendError::Failed(e.to_string().into()))?;
        request.headers_mut().insert(HOST, host);
        let failed = |e: &hyper::Error| SendError::Failed(Connector::error_text(e).into());
        while let Some(mut kept) = self.take() {
            let again = repeatable(&request);
            match kept.sender.try_send_request(request).await {
                Ok(answer) => return Ok(self.answered(answer, kept)),
                Err(mut e) => match e.take_message().or(again) {
                    Some(unanswered) => request = unanswered,
                    None => return Err(failed(e.error())),
                },
            }
        }
        let mut fresh = match timeout(DIAL_TIMEOUT, self.open(connector)).await {
            Ok(line) => line.map_err(SendError::Failed)?,
            Err(_) => return Err(SendError::Failed("dial tcp: i/o timeout".into())),
        };
        let answer = fresh.sender.send_request(request).await.map_err(|e| failed(&e))?;
        Ok(self.answered(answer, fresh))
    }

    /// The exchanges of the shown certificate so far.
    fn version(&self) -> u64 {
        self.shown.as_ref().map_or(0, Certificate::version)
    }

    async fn open(&self, connector: &Connector) -> Result<Line, Failure> {
        let version = self.version();
        let io = TokioIo::new(connector.open(&self.network).await?);
        let handshake = http1::Builder::new().title_case_headers(true).handshake(io);
        let (sender, connection) = handshake.await.map_err(|e| Connector::error_text(&e))?;
        // It ends with its sender and its last answer, or when an upgraded stream is taken.
        tokio::spawn(connection.with_upgrades());
        Ok(Line { sender, version })
    }

    /// An idle connection, made with the certificate of now.
    fn take(&self) -> Option<Line> {
        let mut idle = self.idle.lock();
        let (now, version) = (Instant::now(), self.version());
        idle.retain(|kept| {
            let Line { sender, version: made } = &kept.line;
            !sender.is_closed() && *made == version && now.duration_since(kept.since) < IDLE
        });
        let at = idle.iter().rposition(|kept| kept.line.sender.is_ready())?;
        Some(idle.swap_remove(at).line)
    }

    fn keep(&self, line: Line) {
        let mut idle = self.idle.lock();
        if !line.sender.is_closed() && idle.len() < KEPT {
            idle.push(Idle { since: Instant::now(), line });
        }
    }

    fn answered(self: &Arc<Self>, answer: Response<Incoming>, line: Line) -> Response<Answered> {
        let reusable = answer.status() != StatusCode::SWITCHING_PROTOCOLS;
        answer.map(|body| {
            let mut answered = Answered { body, back: reusable.then(|| (Arc::clone(self), line)) };
            if http_body::Body::is_end_stream(&answered.body) {
                answered.give_back();
            }
            answered
        })
    }
}

/// The same request again, if it changes nothing and has no body.
fn repeatable(request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads || !http_body::Body::is_end_stream(request.body()) {
        return None;
    }
    let mut again = Request::new(no_body());
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.version_mut() = request.version();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

/// The body of an answer; its connection is kept once it was read to its end.
pub(crate) struct Answered {
    body: Incoming,
    back: Option<(Arc<Backend>, Line)>,
}

impl Answered {
    fn give_back(&mut self) {
        if let Some((backend, line)) = self.back.take() {
            backend.keep(line);
        }
    }
}

impl http_body::Body for Answered {
    type Data = Bytes;
    type Error = hyper::Error;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || http_body::Body::is_end_stream(&self.body) {
            self.give_back();
        }
        Poll::Ready(frame)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
