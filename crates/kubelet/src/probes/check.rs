//! One check of a container: a command in it, an HTTP request, a TCP connection or a gRPC health check.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::tls::AnyCertificate;
use cri::runtime as pb;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use crate::runtime::{CallError, Runtime};

/// How much of an answer's body a message shows.
const MAX_BODY: usize = 10 << 10;
const MAX_REDIRECTS: usize = 10;

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is well.
    Success,
    /// Well, with something to say.
    Warning(String),
    /// Not well, and why.
    Failure(String),
    /// The check itself could not be made.
    Error(String),
}

/// Why a port cannot be connected to; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PortError {
    #[error("couldn't find port: {0:?}")]
    Unknown(String),
    #[error("invalid port number: {0}")]
    Invalid(i32),
}

/// Why an HTTP request has no answer; upstream's texts where the error is not a library's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("TLS is not available")]
    NoTls,
    #[error(transparent)]
    ServerName(#[from] InvalidDnsNameError),
    #[error(transparent)]
    Tls(std::io::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("EOF")]
    Incomplete,
    #[error(transparent)]
    Http(hyper::Error),
    #[error(transparent)]
    Location(#[from] http::uri::InvalidUri),
    #[error("stopped after {MAX_REDIRECTS} redirects")]
    Redirects,
}

impl HttpError {
    /// Whether a server answered in the clear to the beginning of a TLS connection.
    pub(crate) fn is_in_the_clear(&self) -> bool {
        let Self::Tls(error) = self else { return false };
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        matches!(cause, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
    }
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        if error.is_incomplete_message() { Self::Incomplete } else { Self::Http(error) }
    }
}

/// Why a connection could not be made; upstream's text.
#[derive(Debug, thiserror::Error)]
#[error("dial tcp {address}: connect: {}", dial_text(.error))]
pub(crate) struct DialError {
    address: String,
    error: std::io::Error,
}

fn dial_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// A port by number or by the name it has in the container.
pub(crate) fn port(port: &IntOrString, container: &Container) -> Result<u16, PortError> {
    let number = match port {
        IntOrString::Int(n) => *n,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name.as_str()));
            match named {
                Some(p) => p.container_port,
                None => name.parse().map_err(|_| PortError::Unknown(name.clone()))?,
            }
        }
    };
    u16::try_from(number).ok().filter(|p| *p > 0).ok_or(PortError::Invalid(number))
}

/// Runs a command in a container.
pub(crate) async fn exec(runtime: &Runtime, id: &str, command: Vec<String>, limit: Duration) -> Outcome {
    let text = command.join(" ");
    let request =
        pb::ExecSyncRequest { container_id: id.to_owned(), cmd: command, timeout: limit.as_secs() as i64 };
    // The runtime enforces the limit. One that hangs is waited for, as upstream does: another command
    // each period would only add to what it has to do.
    match runtime.service().exec_sync(request).await {
        Err(status) if status.code() == Code::DeadlineExceeded => {
            Outcome::Failure(format!("command timed out: {text:?} timed out after {}s", limit.as_secs()))
        }
        Err(status) => Outcome::Error(CallError::from(status).to_string()),
        Ok(answer) => {
            let answer = answer.into_inner();
            if answer.exit_code == 0 {
                return Outcome::Success;
            }
            let mut output = String::from_utf8_lossy(&answer.stdout).into_owned();
            output.push_str(&String::from_utf8_lossy(&answer.stderr));
            Outcome::Failure(cut(output))
        }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_BODY {
        let end = (0..=MAX_BODY).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Opens a TCP connection.
pub(crate) async fn tcp(host: &str, port: u16, limit: Duration) -> Outcome {
    match timeout(limit, dial(host, port)).await {
        Ok(Ok(_)) => Outcome::Success,
        Ok(Err(error)) => Outcome::Failure(error.to_string()),
        Err(_) => Outcome::Failure(format!("dial tcp {}: i/o timeout", address(host, port))),
    }
}

async fn dial(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let connected = TcpStream::connect((host, port)).await;
    connected.map_err(|error| DialError { address: address(host, port), error })
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// An HTTP request to a container.
#[derive(Debug, Clone)]
pub(crate) struct HttpTarget {
    /// `http` or `https`.
    pub(crate) scheme: String,
    /// Host to connect to.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
    /// Headers; `Host` replaces the request's own.
    pub(crate) headers: Vec<(String, String)>,
}

impl HttpTarget {
    /// The target of an action in a container of a Pod with this address.
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        pod_ip: &str,
        agent: &str,
    ) -> Result<Self, PortError> {
        let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(pod_ip).to_owned();
        let path = request_path(action.path.as_deref().unwrap_or_default());
        let mut headers: Vec<(String, String)> =
            action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        let has = |headers: &[(String, String)], name: &str| {
            headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
        };
        if !has(&headers, "User-Agent") {
            headers.push(("User-Agent".into(), agent.to_owned()));
        }
        if !has(&headers, "Accept") {
            headers.push(("Accept".into(), "*/*".into()));
        }
        // An explicit empty value of these asks for no header at all.
        let gone = |name: &str| ["User-Agent", "Accept", "Host"].iter().any(|n| n.eq_ignore_ascii_case(name));
        headers.retain(|(name, value)| !value.is_empty() || !gone(name));
        Ok(Self {
            scheme: action.scheme.as_deref().unwrap_or("HTTP").to_lowercase(),
            host,
            port: port(&action.port, container)?,
            path,
            headers,
        })
    }
    fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, address(&self.host, self.port), self.path)
    }
    /// The host and the port, as they stand in an address.
    pub(crate) fn authority(&self) -> String {
        address(&self.host, self.port)
    }
}

/// The path and the query of a request, from what an action says: it may lack the first slash, have a fragment, which no
/// server sees, and have characters that stand in no request as they are.
fn request_path(said: &str) -> String {
    let said = said.split('#').next().unwrap_or_default();
    let bytes = said.as_bytes();
    let mut path = if said.starts_with('/') { String::new() } else { "/".to_owned() };
    for (at, byte) in bytes.iter().enumerate() {
        let escape = match byte {
            b'%' => !bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => true,
            other => !other.is_ascii_graphic(),
        };
        if escape {
            let _ = write!(path, "%{byte:02X}");
        } else {
            path.push(char::from(*byte));
        }
    }
    path
}

/// The path to which a redirection without a host leads from another one.
fn redirected(from: &str, location: &str) -> String {
    let path = from.split('?').next().unwrap_or_default();
    let joined = match location.chars().next() {
        Some('/') => location.to_owned(),
        Some('?') => format!("{path}{location}"),
        _ => format!("{}{location}", path.rfind('/').map_or("/", |at| &path[..=at])),
    };
    let (path, query) = joined.split_once('?').map_or((joined.as_str(), None), |(p, q)| (p, Some(q)));
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let ends_in_a_directory = path.ends_with("/.") || path.ends_with("/..");
    let slash = if ends_in_a_directory && !parts.is_empty() { "/" } else { "" };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    request_path(&format!("/{}{slash}{query}", parts.join("/")))
}

/// Makes an HTTP request and judges its answer's status.
pub(crate) async fn http(target: &HttpTarget, limit: Duration) -> Outcome {
    let late = || {
        Outcome::Failure(format!(
            "Get {:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            target.url()
        ))
    };
    match timeout(limit, follow(target)).await {
        Err(_) => late(),
        Ok(Err(why)) => Outcome::Failure(format!("Get {:?}: {why}", target.url())),
        Ok(Ok(Answer::Elsewhere(body))) => {
            Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        Ok(Ok(Answer::Status(code))) if (200..300).contains(&code) => Outcome::Success,
        Ok(Ok(Answer::Status(code))) => {
            Outcome::Failure(format!("HTTP probe failed with statuscode: {code}"))
        }
    }
}

enum Answer {
    Status(u16),
    /// A redirection that a probe does not follow, since it leads to another host or nowhere, and the beginning of its body.
    Elsewhere(String),
}

async fn follow(target: &HttpTarget) -> Result<Answer, HttpError> {
    let mut target = target.clone();
    for _ in 0..MAX_REDIRECTS {
        let Heard { status, location, body } = request(&target).await?;
        let Some(location) = location.filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308)) else {
            let followed = !(300..400).contains(&status);
            return Ok(if followed { Answer::Status(status) } else { Answer::Elsewhere(body) });
        };
        let location = match location.strip_prefix("//") {
            Some(rest) => format!("{}://{rest}", target.scheme),
            None => location,
        };
        let before_query = location.split(['?', '#']).next().unwrap_or_default();
        if !before_query.contains("://") {
            target.path = redirected(&target.path, &location);
            continue;
        }
        let uri: http::Uri = location.parse()?;
        let scheme = uri.scheme_str().unwrap_or(&target.scheme).to_owned();
        if uri.host().is_some_and(|h| h != target.host) {
            return Ok(Answer::Elsewhere(body));
        }
        target.port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        target.scheme = scheme;
        target.path = uri.path_and_query().map_or("/".to_owned(), ToString::to_string);
    }
    Err(HttpError::Redirects)
}

/// An answer.
pub(crate) struct Heard {
    pub(crate) status: u16,
    /// Where a redirection leads.
    pub(crate) location: Option<String>,
    /// The beginning of the body.
    pub(crate) body: String,
}

/// One request.
pub(crate) async fn request(target: &HttpTarget) -> Result<Heard, HttpError> {
    let stream = dial(&target.host, target.port).await?;
    if target.scheme == "https" {
        let connector = tokio_rustls::TlsConnector::from(tls().ok_or(HttpError::NoTls)?);
        let name = ServerName::try_from(target.host.clone())?;
        let stream = connector.connect(name, stream).await.map_err(HttpError::Tls)?;
        send(target, TokioIo::new(stream)).await
    } else {
        send(target, TokioIo::new(stream)).await
    }
}

async fn send<S>(target: &HttpTarget, io: S) -> Result<Heard, HttpError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.map_err(HttpError::Http)?;
    let mut request = http::Request::get(&target.path);
    if !target.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
        request = request.header("Host", address(&target.host, target.port));
    }
    for (name, value) in &target.headers {
        request = request.header(name.as_str(), value.as_str());
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let talk = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let location =
            answer.headers().get(http::header::LOCATION).and_then(|l| l.to_str().ok()).map(str::to_owned);
        // Reading what there is lets a simple server end in peace, also where its text does not matter.
        let (mut rest, mut body) = (answer.into_body(), Vec::new());
        while body.len() < MAX_BODY
            && let Some(Ok(frame)) = rest.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            body.extend_from_slice(&data[..data.len().min(MAX_BODY - body.len())]);
        }
        Ok(Heard { status, location, body: String::from_utf8_lossy(&body).into_owned() })
    };
    tokio::pin!(talk);
    tokio::select! {
        done = &mut talk => done,
        ended = connection => match ended {
            Ok(()) => talk.await,
            Err(error) => Err(HttpError::Http(error)),
        },
    }
}

/// TLS towards containers: their certificates are theirs, as upstream's probes have it.
fn tls() -> Option<Arc<rustls::ClientConfig>> {
    static CONFIG: std::sync::OnceLock<Option<Arc<rustls::ClientConfig>>> = std::sync::OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .ok()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
                .with_no_client_auth();
            Some(Arc::new(config))
        })
        .clone()
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    /// 1 is `SERVING`.
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Asks a gRPC server's health service.
pub(crate) async fn grpc(host: &str, port: u16, service: &str, limit: Duration) -> Outcome {
    let at = address(host, port);
    let ask = async {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{at}"))
            .map_err(|e| Outcome::Error(e.to_string()))?
            .user_agent("kube-probe/1.36")
            .map_err(|e| Outcome::Error(e.to_string()))?
            .connect()
            .await
            .map_err(|e| {
                let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
                Outcome::Failure(format!("error: health rpc failed: {why}"))
            })?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(|e| Outcome::Failure(e.to_string()))?;
        let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
        client.unary(request, path, codec).await.map_err(|status| match status.code() {
            Code::Unimplemented => Outcome::Failure(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            )),
            Code::DeadlineExceeded => {
                Outcome::Failure(format!("timeout: health rpc did not complete within {}s", limit.as_secs()))
            }
            _ => Outcome::Failure(format!("error: health rpc probe failed: {}", CallError::from(status))),
        })
    };
    match timeout(limit, ask).await {
        Err(_) => Outcome::Failure(format!(
            "timeout: failed to connect service {at:?} within {}s: context deadline exceeded",
            limit.as_secs()
        )),
        Ok(Err(outcome)) => outcome,
        Ok(Ok(answer)) => match answer.into_inner().status {
            1 => Outcome::Success,
            other => {
                let name = match other {
                    0 => "UNKNOWN",
                    2 => "NOT_SERVING",
                    3 => "SERVICE_UNKNOWN",
                    _ => "",
                };
                Outcome::Failure(format!("service unhealthy (responded with {name:?})"))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn serve(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut seen = [0; 1024];
                let n = stream.read(&mut seen).await.unwrap_or(0);
                let at_new = seen[..n].starts_with(b"GET /new");
                let text = if at_new { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" } else { answer };
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn http_answers_are_judged() {
        for (answer, want) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Outcome::Success),
            (
                "HTTP/1.1 399 Odd\r\nContent-Length: 0\r\n\r\n",
                Outcome::Warning("Probe terminated redirects, Response body: ".into()),
            ),
            ("HTTP/1.1 302 Found\r\nLocation: new\r\nContent-Length: 0\r\n\r\n", Outcome::Success),
            (
                "HTTP/1.1 302 Found\r\nContent-Length: 2\r\n\r\nno",
                Outcome::Warning("Probe terminated redirects, Response body: no".into()),
            ),
            (
                "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
                Outcome::Failure("HTTP probe failed with statuscode: 500".into()),
            ),
            ("HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n", Outcome::Success),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://other.test/\r\nContent-Length: 5\r\n\r\nfound",
                Outcome::Warning("Probe terminated redirects, Response body: found".into()),
            ),
        ] {
            let action = HTTPGetAction {
                host: Some("127.0.0.1".into()),
                port: IntOrString::Int(i32::from(serve(answer).await)),
                ..HTTPGetAction::default()
            };
            let target = HttpTarget::new(&action, &Container::default(), "", "kube-probe/1.36").unwrap();
            assert_eq!(http(&target, Duration::from_secs(5)).await, want, "{answer}");
        }
    }

    #[tokio::test]
    async fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(tcp("127.0.0.1", port, Duration::from_secs(1)).await, Outcome::Success);
        drop(listener);
        assert_eq!(
            tcp("127.0.0.1", port, Duration::from_secs(1)).await,
            Outcome::Failure(format!("dial tcp 127.0.0.1:{port}: connect: connection refused"))
        );
    }

    fn container() -> Container {
        serde_json::from_value(serde_json::json!({"name": "c", "ports": [
            {"name": "found", "containerPort": 93}, {"name": "quux", "containerPort": 8080}]}))
        .unwrap()
    }

    fn named(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    /// Upstream's 8 cases of `TestGetURLParts`, of which its 7 of `TestGetTCPAddrParts` are a part, and its 2 of
    /// `TestRunHandlerHTTPPort`.
    #[test]
    fn ports() {
        for (of, expected) in [
            (IntOrString::Int(-1), Err(PortError::Invalid(-1))),
            (named(""), Err(PortError::Unknown(String::new()))),
            (named("-1"), Err(PortError::Invalid(-1))),
            (named("not-found"), Err(PortError::Unknown("not-found".into()))),
            (named("found"), Ok(93)),
            (IntOrString::Int(76), Ok(76)),
            (named("118"), Ok(118)),
            (named("70"), Ok(70)),
        ] {
            assert_eq!(port(&of, &container()), expected, "{of:?}");
        }
    }

    /// Upstream's 11 cases of `TestRunHTTPHandler`, and paths that are none.
    #[test]
    fn addresses_of_requests() {
        let check = |host: &str,
                     port: &str,
                     scheme: &str,
                     path: &str,
                     headers: &[(&str, &str)],
                     expected: &str| {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| serde_json::json!({"name": name, "value": value}))
                .collect();
            let action = serde_json::json!({"host": host, "port": port, "scheme": scheme, "path": path, "httpHeaders": headers});
            let action: HTTPGetAction = serde_json::from_value(action).unwrap();
            let target =
                HttpTarget::new(&action, &container(), "233.252.0.1", "kube-lifecycle/1.36").unwrap();
            let told =
                target.headers.iter().filter(|(_, value)| !value.starts_with("kube-") && value != "*/*");
            let told: Vec<String> = told.map(|(name, value)| format!(" {name}={value}")).collect();
            assert_eq!(target.url() + &told.concat(), expected);
        };
        let of_pod = "http://233.252.0.1";
        check("example.test", "42", "http", "foo", &[], "http://example.test:42/foo");
        check("", "42", "http", "foo", &[], &format!("{of_pod}:42/foo"));
        check("", "42", "http", "/foo", &[], &format!("{of_pod}:42/foo"));
        check("", "quux", "http", "foo", &[], &format!("{of_pod}:8080/foo"));
        check("", "4430", "https", "foo", &[], "https://233.252.0.1:4430/foo");
        check("", "80", "baz", "foo", &[], "baz://233.252.0.1:80/foo");
        check("", "80", "http", "foo?k=v", &[], &format!("{of_pod}:80/foo?k=v"));
        check("", "80", "http", "foo#frag", &[], &format!("{of_pod}:80/foo"));
        check("", "80", "http", "foo", &[("Foo", "bar")], &format!("{of_pod}:80/foo Foo=bar"));
        let host = "http://example.test:80/foo Host=from.header";
        check("example.test", "80", "http", "foo", &[("Host", "from.header")], host);
        check("", "80", "http", "/a b/\u{fc}?q=<x>", &[], &format!("{of_pod}:80/a%20b/%C3%BC?q=%3Cx%3E"));
        check("", "80", "http", "/%20%zz%", &[], &format!("{of_pod}:80/%20%25zz%25"));
        check("", "80", "HTTP", "", &[("Accept", ""), ("X", "")], &format!("{of_pod}:80/ X="));
    }

    #[test]
    fn redirections_lead_somewhere() {
        for (from, location, expected) in [
            ("/a/b?c", "/new", "/new"),
            ("/a/b?c", "new", "/a/new"),
            ("/a/b?c", "../new?d", "/new?d"),
            ("/a/b?c", "?d", "/a/b?d"),
            ("/a/b", "./", "/a/"),
            ("/a/b/c", "..", "/a/"),
            ("/", "../../x", "/x"),
            ("/a/", "b/./c/../d#e", "/a/b/d"),
        ] {
            assert_eq!(redirected(from, location), expected, "{from} {location}");
        }
    }
}
