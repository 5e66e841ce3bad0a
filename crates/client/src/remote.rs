//! The client's way over a network: one HTTP/2 connection over TLS, made again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::{Buf, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::RootCertStore;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::backoff::Backoff;
use crate::caller::{Caller, Shown};
use crate::config::{Config, ConfigError};
use crate::proxy::{self, Proxy};
use crate::tls::{AnyCertificate, system_roots};
use crate::transport::{Call, EventKind, ListAnswer, Transport, Verb, WatchEvent};

/// How long an answer may take: a little more than the server's own limit of a minute.
const ANSWER_LIMIT: Duration = Duration::from_secs(70);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The largest single object; etcd's limit is 1.5 MiB, tables and proxied answers are larger.
pub const OBJECT_LIMIT: usize = 64 << 20;
/// The largest list.
pub const LIST_LIMIT: usize = 1 << 30;
/// How often a request that the server is too busy for is sent again.
const BUSY_RETRIES: u32 = 10;

/// An error of a body.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

type Sender = http2::SendRequest<Full<Bytes>>;

struct Connection {
    sender: Option<Sender>,
    /// The version of the client certificate with which the connection was made.
    version: u64,
    backoff: Backoff,
    /// Not before this time is a connection tried again.
    retry_at: Option<Instant>,
}

struct Inner {
    host: String,
    port: u16,
    authority: String,
    /// The path of the server's URL, before those of requests; without a slash at the end.
    prefix: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    proxy: Option<Proxy>,
    caller: Caller,
    user_agent: HeaderValue,
    connection: Mutex<Connection>,
}

/// A transport over HTTPS.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

impl Remote {
    /// Prepares a transport; it connects with the first request.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let bad = || ConfigError::Server(config.server.clone());
        let uri: http::Uri = config.server.parse().map_err(|_| bad())?;
        if uri.scheme_str() != Some("https") {
            return Err(bad());
        }
        let host = uri.host().ok_or_else(bad)?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let authority = uri.authority().ok_or_else(bad)?.to_string();
        let name = ServerName::try_from(config.server_name.clone().unwrap_or_else(|| host.clone()))
            .map_err(|_| bad())?;

        let environment = config.environment_proxy;
        let mut roots = RootCertStore::empty();
        for authority in config.authorities {
            roots.add(authority)?;
        }
        if config.system_authorities {
            roots.add_parsable_certificates(system_roots().iter().cloned());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = if config.any_server {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
        } else {
            builder.with_root_certificates(roots)
        };
        let mut tls = match config.caller.certificate() {
            Some(certificate) => builder.with_client_cert_resolver(Arc::new(certificate.clone())),
            None => builder.with_no_client_auth(),
        };
        if config.caller.certificate().is_some() {
            // A session that goes on would show the certificate with which it began.
            tls.resumption = Resumption::disabled();
        }
        tls.alpn_protocols = vec![b"h2".to_vec()];

        Ok(Self(Arc::new(Inner {
            host,
            port,
            authority,
            name,
            tls: TlsConnector::from(Arc::new(tls)),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            proxy: config.proxy.or_else(|| environment.then(|| Proxy::from_environment(&config.server))?),
            caller: config.caller,
            user_agent: HeaderValue::from_str(&config.user_agent)
                .unwrap_or_else(|_| HeaderValue::from_static("ferrokube")),
            connection: Mutex::new(Connection {
                sender: None,
                version: 0,
                backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5)),
                retry_at: None,
            }),
        })))
    }

    /// Sends a request whose path begins with `/`; the answer's head and body as they come. It
    /// makes a new connection where the old one broke, and waits where the server asks for it.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Incoming>, Status> {
        let mut busy = 0;
        loop {
            let shown = self.0.caller.prepare().await.map_err(Status::internal)?;
            let request = self.request(&method, path, content_type, (&shown, body.clone()))?;
            let mut sender = self.0.sender().await?;
            let answer = timeout(ANSWER_LIMIT, sender.send_request(request))
                .await
                .map_err(|_| Status::failure(504, "Timeout", format!("{path}: no answer in time")))?;
            let answer = match answer {
                Ok(answer) => answer,
                // Never sent, or refused before it was looked at: a new connection is safe.
                Err(e) if e.is_canceled() && busy == 0 => {
                    busy += 1;
                    continue;
                }
                Err(e) => return Err(unreachable_server(&self.0.authority, &e)),
            };
            if answer.status() == StatusCode::UNAUTHORIZED {
                self.0.caller.refused(&shown).await;
            }
            let wait = retry_after(&answer).filter(|_| busy < BUSY_RETRIES);
            match (answer.status(), wait) {
                (StatusCode::TOO_MANY_REQUESTS, Some(wait)) => {
                    busy += 1;
                    tokio::time::sleep(wait).await;
                }
                _ => return Ok(answer),
            }
        }
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        content_type: Option<&str>,
        (shown, body): (&Shown, Bytes),
    ) -> Result<Request<Full<Bytes>>, Status> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{}{path}", self.0.authority, self.0.prefix))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, &self.0.user_agent);
        if let Some(kind) = content_type {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(headers) = request.headers_mut() {
            shown.write(headers);
        }
        request.body(Full::new(body)).map_err(|e| Status::bad_request(format!("{path}: {e}")))
    }

    async fn send_call(&self, call: &Call) -> Result<Response<Incoming>, Status> {
        let (method, content_type) = wire(call.verb);
        let body = call.body.clone();
        let kind = (!body.is_empty()).then_some(content_type);
        self.send(method, &path_of(call), kind, body).await
    }
}

impl Inner {
    async fn sender(&self) -> Result<Sender, Status> {
        let mut connection = self.connection.lock().await;
        // Watches that were begun with an older certificate end by themselves.
        let version = self.caller.version();
        let current = connection.version == version;
        if let Some(sender) = &mut connection.sender
            && current
            && !sender.is_closed()
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        connection.sender = None;
        if let Some(at) = connection.retry_at {
            tokio::time::sleep_until(at).await;
        }
        match self.connect().await {
            Ok(sender) => {
                connection.backoff.reset();
                connection.retry_at = None;
                connection.sender = Some(sender.clone());
                connection.version = version;
                Ok(sender)
            }
            Err(status) => {
                connection.retry_at = Some(Instant::now() + connection.backoff.delay());
                Err(status)
            }
        }
    }

    async fn connect(&self) -> Result<Sender, Status> {
        let connecting = async {
            let stream: Box<dyn proxy::Stream> = if let Some(proxy) = &self.proxy {
                proxy.connect(&self.host, self.port).await?
            } else {
                let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
                tcp.set_nodelay(true)?;
                Box::new(tcp)
            };
            let tls = self.tls.connect(self.name.clone(), stream).await?;
            // A dead peer is noticed in 45 seconds, client-go's figures.
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(Duration::from_secs(30))
                .keep_alive_timeout(Duration::from_secs(15))
                .keep_alive_while_idle(true)
                .adaptive_window(true)
                .handshake(TokioIo::new(tls))
                .await
                .map_err(std::io::Error::other)
        };
        let (sender, connection) = timeout(CONNECT_LIMIT, connecting)
            .await
            .map_err(|_| unreachable_server(&self.authority, &"i/o timeout"))?
            .map_err(|e| unreachable_server(&self.authority, &e))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the API server ended");
            }
        });
        Ok(sender)
    }
}

/// No answer at all, as client-go words it: 503, so that callers try again.
fn unreachable_server(authority: &str, why: &dyn std::fmt::Display) -> Status {
    Status::failure(
        503,
        "ServiceUnavailable",
        format!("The connection to the server {authority} was refused or broken: {why}"),
    )
}

fn retry_after(answer: &Response<Incoming>) -> Option<Duration> {
    let value = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    value.parse::<u64>().ok().map(|s| Duration::from_secs(s.min(60)))
}

/// Method and content type of a verb.
pub fn wire(verb: Verb) -> (Method, &'static str) {
    match verb {
        Verb::Get | Verb::List | Verb::Watch => (Method::GET, ""),
        Verb::Create => (Method::POST, "application/json"),
        Verb::Update => (Method::PUT, "application/json"),
        Verb::JsonPatch => (Method::PATCH, "application/json-patch+json"),
        Verb::MergePatch => (Method::PATCH, "application/merge-patch+json"),
        Verb::StrategicPatch => (Method::PATCH, "application/strategic-merge-patch+json"),
        Verb::Apply => (Method::PATCH, "application/apply-patch+yaml"),
        Verb::Delete | Verb::DeleteCollection => (Method::DELETE, "application/json"),
    }
}

/// Path and query of a request.
pub fn path_of(call: &Call) -> String {
    let mut path = String::with_capacity(96);
    if call.resource.group.is_empty() {
        path.push_str("/api/");
    } else {
        path.push_str("/apis/");
        path.push_str(&call.resource.group);
        path.push('/');
    }
    path.push_str(&call.resource.version);
    // The Namespace objects themselves are not in a namespace.
    if !call.namespace.is_empty() {
        path.push_str("/namespaces/");
        escape(&call.namespace, &mut path);
    }
    for part in [&call.resource.plural, &call.name, &call.subresource] {
        if !part.is_empty() {
            path.push('/');
            escape(part, &mut path);
        }
    }
    for (i, (key, value)) in call.query.iter().enumerate() {
        path.push(if i == 0 { '?' } else { '&' });
        escape(key, &mut path);
        path.push('=');
        escape(value, &mut path);
    }
    path
}

/// RFC 3986: everything but the unreserved characters.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Reads the body of an answer, up to a limit; the `Status` of one that is an error.
pub async fn collect<B>(answer: Response<B>, limit: usize) -> Result<Bytes, Status>
where
    B: Body<Error: Into<BodyError>>,
{
    let code = answer.status();
    let body = timeout(ANSWER_LIMIT, Limited::new(answer.into_body(), limit).collect())
        .await
        .map_err(|_| Status::failure(504, "Timeout", "the answer did not end in time"))?
        .map_err(|e| Status::failure(503, "ServiceUnavailable", format!("unable to read the answer: {e}")))?
        .to_bytes();
    if code.is_success() { Ok(body) } else { Err(failure(code, &body)) }
}

/// The `Status` of an answer that is none, or the one in its body.
fn failure(code: StatusCode, body: &[u8]) -> Status {
    if let Ok(mut status) = serde_json::from_slice::<Status>(body)
        && status.status == "Failure"
    {
        if status.code == 0 {
            status.code = code.as_u16();
        }
        return status;
    }
    let reason = match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Gone",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let text: String = String::from_utf8_lossy(body).chars().take(2048).collect();
    Status::failure(code.as_u16(), reason, if text.is_empty() { code.to_string() } else { text })
}

impl Transport for Remote {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        async move { collect(self.send_call(&call).await?, OBJECT_LIMIT).await }.boxed()
    }

    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        let path = path.to_owned();
        async move { collect(self.send(Method::GET, &path, None, Bytes::new()).await?, OBJECT_LIMIT).await }
            .boxed()
    }

    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async move { read_list(collect(self.send_call(&call).await?, LIST_LIMIT).await?) }.boxed()
    }

    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        async move {
            let answer = self.send_call(&call).await?;
            if !answer.status().is_success() {
                return Err(collect(answer, OBJECT_LIMIT).await.err().unwrap_or_default());
            }
            Ok(events(answer.into_body()))
        }
        .boxed()
    }

    fn server(&self) -> Option<&str> {
        Some(&self.0.authority)
    }
}

/// The events of a watch's body.
pub fn events<B>(body: B) -> BoxStream<'static, Result<WatchEvent, Status>>
where
    B: Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin + 'static,
{
    let lines = Lines { body, buffer: BytesMut::new(), searched: 0, over: false };
    stream::unfold(lines, |mut lines| async move { lines.next().await.map(|e| (e, lines)) }).boxed()
}

/// Reads a list.
pub fn read_list(body: Bytes) -> Result<ListAnswer, Status> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        resource_version: String,
        #[serde(rename = "continue")]
        continue_token: String,
    }
    #[derive(Deserialize)]
    struct Items<'a> {
        #[serde(default)]
        metadata: Meta,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    let list: Items<'_> = serde_json::from_slice(&body)
        .map_err(|e| Status::internal(format_args!("unable to decode a list: {e}")))?;
    Ok(ListAnswer {
        resource_version: list.metadata.resource_version,
        continue_token: list.metadata.continue_token,
        items: list
            .items
            .unwrap_or_default()
            .into_iter()
            .map(|i| body.slice_ref(i.get().as_bytes()))
            .collect(),
    })
}

/// A watch's body: one JSON document a line.
struct Lines<B> {
    body: B,
    buffer: BytesMut,
    searched: usize,
    over: bool,
}

impl<B> Lines<B>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    async fn next(&mut self) -> Option<Result<WatchEvent, Status>> {
        while !self.over {
            if let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(self.searched + at).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let event = read_event(&line);
                self.over = event.is_err();
                return Some(event);
            }
            self.searched = self.buffer.len();
            match self.body.frame().await {
                None => self.over = true,
                Some(Err(e)) => {
                    self.over = true;
                    return Some(Err(Status::failure(
                        503,
                        "ServiceUnavailable",
                        format!("the watch broke: {e}"),
                    )));
                }
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        if self.buffer.len() + data.len() > OBJECT_LIMIT {
                            self.over = true;
                            return Some(Err(Status::internal("an event of the watch is too large")));
                        }
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
        None
    }
}

fn read_event(line: &Bytes) -> Result<WatchEvent, Status> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let wire: Wire<'_> = serde_json::from_slice(line)
        .map_err(|e| Status::internal(format_args!("unable to decode an event of the watch: {e}")))?;
    let kind = match wire.kind {
        "ADDED" => EventKind::Added,
        "MODIFIED" => EventKind::Modified,
        "DELETED" => EventKind::Deleted,
        "BOOKMARK" => EventKind::Bookmark,
        "ERROR" => return Err(failure(StatusCode::INTERNAL_SERVER_ERROR, wire.object.get().as_bytes())),
        other => return Err(Status::internal(format_args!("unknown event \"{other}\" of the watch"))),
    };
    Ok(WatchEvent { kind, object: line.slice_ref(wire.object.get().as_bytes()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Resource;

    #[test]
    fn paths() {
        let check =
            |group: &str, namespace: &str, name: &str, sub: &str, query: &[(&str, &str)], want: &str| {
                let call = Call {
                    verb: Verb::Get,
                    resource: Resource { group: group.into(), version: "v1".into(), plural: "things".into() },
                    namespace: namespace.into(),
                    name: name.into(),
                    subresource: sub.into(),
                    query: query.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
                    body: Bytes::new(),
                };
                assert_eq!(path_of(&call), want);
            };
        check("", "", "", "", &[], "/api/v1/things");
        check("", "ns", "a", "status", &[], "/api/v1/namespaces/ns/things/a/status");
        check("apps", "ns", "a", "", &[], "/apis/apps/v1/namespaces/ns/things/a");
        check("", "", "system:x/y", "", &[], "/api/v1/things/system%3Ax%2Fy");
        check(
            "",
            "",
            "",
            "",
            &[("labelSelector", "a in (b,c)"), ("limit", "5")],
            "/api/v1/things?labelSelector=a%20in%20%28b%2Cc%29&limit=5",
        );
    }

    #[test]
    fn lists_and_events_share_the_body() {
        let body = Bytes::from_static(
            br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1},{"b":2}]}"#,
        );
        let list = read_list(body.clone()).unwrap();
        assert_eq!((list.resource_version.as_str(), list.continue_token.as_str()), ("7", "x"));
        assert_eq!(list.items, [&br#"{"a":1}"#[..], br#"{"b":2}"#]);
        assert!(read_list(Bytes::from_static(br#"{"metadata":{},"items":null}"#)).unwrap().items.is_empty());
        let event = read_event(&Bytes::from_static(br#"{"type":"ADDED","object":{"a":1}}"#)).unwrap();
        assert_eq!((event.kind, &event.object[..]), (EventKind::Added, &br#"{"a":1}"#[..]));
        let gone = read_event(&Bytes::from_static(
            br#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}"#,
        ))
        .unwrap_err();
        assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
    }
}
