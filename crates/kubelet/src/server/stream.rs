//! `/exec`, `/attach`, `/portForward` and `/run`: the runtime names a URL, and the upgraded bytes go
//! there and back. WebSocket protocols that runtimes need not speak become SPDY on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::Gate;
use bytes::Bytes;
use cri::runtime as pb;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use streaming::channel;
use streaming::remotecommand::{self, CommandError, Options};
use streaming::spdy::{self, Connection, Role};
use streaming::websocket::{self, accept, is_upgrade, is_websocket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::query::Query;
use super::served::Served;
use crate::metrics;
use crate::pods::ContainerRef;
use serving::answer::{empty, full};
use serving::{Body, Failure, Life};

/// How long the runtime's streaming server may take to take a connection, and to answer.
const DIAL: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);
/// How much of a runtime's refusal is shown.
const MAX_REFUSAL: usize = 50_000;

/// The container that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a str,
    pub(super) uid: Option<&'a str>,
    pub(super) container: &'a str,
}

/// The streams of exec and attach.
fn options(query: &Query) -> Result<Options, Failure> {
    let on = |key| query.get(key) == Some("1") || query.get(key) == Some("true");
    let tty = on("tty");
    // A terminal has one output.
    let options = Options { stdin: on("input"), stdout: on("output"), stderr: on("error") && !tty, tty };
    if !options.stdin && !options.stdout && !options.stderr {
        return Err(Failure::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(options)
}

fn missing_pod() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "pod does not exist")
}

fn container(served: &Served, target: Target<'_>) -> Result<ContainerRef, Failure> {
    if served.pods.get(target.namespace, target.pod, None).is_none() {
        return Err(missing_pod());
    }
    served.pods.container(target.namespace, target.pod, target.uid, target.container).ok_or_else(|| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("container not found ({:?})", target.container),
        )
    })
}

/// A runtime's error as upstream's streaming servers answer it.
fn runtime_failure(status: tonic::Status) -> Failure {
    let code = match status.code() {
        tonic::Code::NotFound => StatusCode::NOT_FOUND,
        tonic::Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(code, status.message())
}

pub(super) async fn exec(
    served: &Served,
    target: Target<'_>,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let options = options(query)?;
    let container = container(served, target)?;
    let call = pb::ExecRequest {
        container_id: container.id,
        cmd: query.all("command").map(str::to_owned).collect(),
        tty: options.tty,
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
    };
    let answer = served.runtime.service().exec(call).await.map_err(runtime_failure)?;
    command(served, answer.into_inner().url, request, options, "exec").await
}

pub(super) async fn attach(
    served: &Served,
    target: Target<'_>,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let asked = options(query)?;
    let container = container(served, target)?;
    let pod = served.pods.get(target.namespace, target.pod, target.uid).ok_or_else(missing_pod)?;
    // Whether there is a terminal was decided when the container was made.
    let tty = pod.spec.as_ref().is_some_and(|spec| {
        let named = |name: &str, tty: Option<bool>| name == target.container && tty == Some(true);
        spec.containers.iter().any(|c| named(&c.name, c.tty))
            || spec.init_containers.iter().flatten().any(|c| named(&c.name, c.tty))
            || spec.ephemeral_containers.iter().flatten().any(|c| named(&c.name, c.tty))
    });
    let options = Options { tty, stderr: asked.stderr && !tty, ..asked };
    let call = pb::AttachRequest {
        container_id: container.id,
        stdin: options.stdin,
        tty,
        stdout: options.stdout,
        stderr: options.stderr,
    };
    let answer = served.runtime.service().attach(call).await.map_err(runtime_failure)?;
    command(served, answer.into_inner().url, request, options, "attach").await
}

pub(super) async fn port_forward(
    served: &Served,
    target: Target<'_>,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let protocols = if extended(served) { streaming::tunnel::wanted(request.headers()) } else { Vec::new() };
    // Only clients that speak no SPDY name the ports in advance.
    let speaks_spdy = !protocols.is_empty() || !is_websocket(request.headers());
    let port = if speaks_spdy { Vec::new() } else { ports(query)? };
    if served.pods.get(target.namespace, target.pod, None).is_none() {
        return Err(missing_pod());
    }
    let sandbox = served
        .pods
        .sandbox_id(target.namespace, target.pod, target.uid)
        .ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "pod not found"))?;
    let call = pb::PortForwardRequest { pod_sandbox_id: sandbox, port };
    let answer = served.runtime.service().port_forward(call).await.map_err(runtime_failure)?;
    let url = answer.into_inner().url;
    if protocols.is_empty() {
        return hand_on(served, &url, request).await;
    }
    served.metrics.count(&metrics::WEBSOCKET_STREAMING_REQUESTS_TOTAL, &["portforward"]);
    unpack(served, &url, request, &protocols).await
}

/// Whether the kubelet speaks the WebSocket protocols that runtimes need not know.
fn extended(served: &Served) -> bool {
    served.config.gates.enabled(Gate::ExtendWebSocketsToKubelet)
}

/// The ports that a WebSocket client names; upstream's texts.
fn ports(query: &Query) -> Result<Vec<i32>, Failure> {
    let all: Vec<&str> = query.all("port").collect();
    if all.is_empty() {
        return Err(Failure::bad_request("query parameter \"port\" is required"));
    }
    let mut ports = Vec::new();
    for value in all {
        if value.is_empty() {
            return Err(Failure::bad_request("query parameter \"port\" cannot be empty"));
        }
        for port in value.split(',') {
            let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            let why = if digits { "value out of range" } else { "invalid syntax" };
            match port.parse::<u16>().ok().filter(|_| digits) {
                None => {
                    return Err(Failure::bad_request(format!(
                        "unable to parse {value:?} as a port: strconv.ParseUint: parsing {port:?}: {why}"
                    )));
                }
                Some(0) => return Err(Failure::bad_request(format!("port {value:?} must be > 0"))),
                Some(port) => ports.push(i32::from(port)),
            }
        }
    }
    Ok(ports)
}

/// Runs a command and answers with its output.
pub(super) async fn run(
    served: &Served,
    target: Target<'_>,
    query: &Query,
) -> Result<Response<Body>, Failure> {
    let container = container(served, target)?;
    let call = pb::ExecSyncRequest {
        container_id: container.id,
        cmd: query.get("cmd").unwrap_or_default().split(' ').map(str::to_owned).collect(),
        timeout: 0,
    };
    let answer = served.runtime.service().exec_sync(call).await.map_err(runtime_failure)?.into_inner();
    if answer.exit_code != 0 {
        let output = [answer.stdout, answer.stderr].concat();
        let text = format!(
            "command '{}' exited with {}: {}",
            query.get("cmd").unwrap_or_default(),
            answer.exit_code,
            String::from_utf8_lossy(&output)
        );
        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text));
    }
    let mut response = Response::new(full([answer.stdout, answer.stderr].concat()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Carries the streams of a command; `kind` is `exec` or `attach`.
async fn command(
    served: &Served,
    url: String,
    request: Request<Incoming>,
    options: Options,
    kind: &str,
) -> Result<Response<Body>, Failure> {
    if extended(served) && remotecommand::is_wanted(request.headers()) {
        served.metrics.count(&metrics::WEBSOCKET_STREAMING_REQUESTS_TOTAL, &[kind]);
        return translate(served, url, request, options);
    }
    hand_on(served, &url, request).await
}

/// Asks for an upgrade at a runtime's URL.
async fn ask(
    served: &Served,
    url: &str,
    (method, headers): (Method, HeaderMap),
) -> Result<Response<Incoming>, Failure> {
    let failed = |e: &dyn std::fmt::Display| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("error dialing backend: {e}"))
    };
    let uri: http::Uri = url.parse().map_err(|e: http::uri::InvalidUri| failed(&e))?;
    let authority = uri.authority().ok_or_else(|| failed(&"the runtime's URL has no host"))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let connect = TcpStream::connect((host, authority.port_u16().unwrap_or(80)));
    let tcp = timeout(DIAL, connect).await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    let _ = tcp.set_nodelay(true);
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .title_case_headers(true)
        .handshake(TokioIo::new(tcp))
        .await
        .map_err(|e| failed(&e))?;
    served.shutdown.spawn_one(connection.with_upgrades());
    let mut outgoing = Request::new(Empty::<Bytes>::new());
    *outgoing.method_mut() = method;
    *outgoing.headers_mut() = headers;
    if !outgoing.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        outgoing.headers_mut().insert(HOST, host);
    }
    let target = uri.path_and_query().map_or("/", |p| p.as_str());
    *outgoing.uri_mut() = target.parse().unwrap_or_default();
    let answer = timeout(ANSWER, sender.send_request(outgoing)).await;
    answer.map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

/// The answer of a runtime that did not take an upgrade.
fn refused(answer: Response<Incoming>) -> Result<Response<Body>, Failure> {
    if answer.status().as_u16() < 400 {
        let text = format!("invalid upgrade response: status code {}", answer.status().as_u16());
        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text));
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(http::header::CONNECTION);
    parts.headers.remove(http::header::TRANSFER_ENCODING);
    Ok(Response::from_parts(parts, body.map_err(Into::into).boxed()))
}

fn switching(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

/// Runs what follows an upgrade until the kubelet ends; the connection keeps its place until then.
fn spawn(served: &Served, request: &Request<Incoming>, stream: impl Future<Output = ()> + Send + 'static) {
    let life = request.extensions().get::<Arc<Life>>().cloned();
    let stop = served.shutdown.clone();
    served.shutdown.spawn_one(async move {
        let _ = stop.run(stream).await;
        // The place of the connection is free only now.
        drop(life);
    });
}

/// Hands an upgrade on to a runtime's URL.
async fn hand_on(
    served: &Served,
    url: &str,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    if !is_upgrade(request.headers()) {
        return Err(Failure::bad_request("Upgrade request required"));
    }
    let mut answer = ask(served, url, (request.method().clone(), request.headers().clone())).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer);
    }
    let client = hyper::upgrade::on(&mut request);
    let runtime = hyper::upgrade::on(&mut answer);
    let idle = served.config.streaming_idle;
    spawn(served, &request, async move {
        if let Ok((client, runtime)) = tokio::try_join!(client, runtime) {
            tunnel(TokioIo::new(client), TokioIo::new(runtime), idle).await;
        }
    });
    Ok(switching(answer.headers().clone()))
}

/// Serves a command over WebSocket, version 5, by SPDY to the runtime.
fn translate(
    served: &Served,
    url: String,
    mut request: Request<Incoming>,
    options: Options,
) -> Result<Response<Body>, Failure> {
    let accepted =
        accept(request.headers(), &[channel::V5]).map_err(|e| Failure::bad_request(e.to_string()))?;
    let client = hyper::upgrade::on(&mut request);
    let (idle, runtime) = (served.config.streaming_idle, served.clone());
    spawn(served, &request, async move {
        let Ok(client) = client.await else { return };
        let last = Mutex::new(Instant::now());
        let (mut receiver, sender) = websocket::server(Noted { io: TokioIo::new(client), last: &last });
        let carried = async {
            if remotecommand::greet(&sender, options).await.is_err() {
                return;
            }
            let result = match streams_to(&runtime, &url).await {
                Ok(streams) => remotecommand::translate(&mut receiver, &sender, &streams, options).await,
                Err(why) => Err(why),
            };
            remotecommand::finish(&sender, &result).await;
        };
        unless_idle(carried, &last, idle).await;
    });
    Ok(switching(accepted.headers))
}

/// A connection of SPDY to a runtime's URL.
async fn streams_to(served: &Served, url: &str) -> Result<Connection, CommandError> {
    let asked = (Method::POST, spdy::request_headers(remotecommand::BACKEND_PROTOCOLS));
    let answer = ask(served, url, asked).await.map_err(|failure| CommandError::Failed(failure.text))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(answer.into_body(), MAX_REFUSAL).collect().await;
        return Err(CommandError::of_refusal(body.ok().map(|b| b.to_bytes()).as_deref()));
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(|e| CommandError::Failed(e.to_string()))?;
    Ok(Connection::start(TokioIo::new(upgraded), Role::Client, Bytes::new()).0)
}

/// Serves a WebSocket whose messages are the bytes of a SPDY connection to the runtime.
async fn unpack(
    served: &Served,
    url: &str,
    mut request: Request<Incoming>,
    protocols: &[String],
) -> Result<Response<Body>, Failure> {
    let asked = (Method::POST, spdy::request_headers(protocols.iter().map(String::as_str)));
    let mut answer = ask(served, url, asked).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer);
    }
    let accepted = streaming::tunnel::accepted(request.headers(), answer.headers())
        .map_err(|e| Failure::bad_request(e.to_string()))?;
    let client = hyper::upgrade::on(&mut request);
    let runtime = hyper::upgrade::on(&mut answer);
    let idle = served.config.streaming_idle;
    spawn(served, &request, async move {
        let Ok((client, runtime)) = tokio::try_join!(client, runtime) else { return };
        let last = Mutex::new(Instant::now());
        let (mut receiver, sender) = websocket::server(Noted { io: TokioIo::new(client), last: &last });
        let carried = streaming::tunnel::websocket(&mut receiver, &sender, TokioIo::new(runtime));
        unless_idle(carried, &last, idle).await;
    });
    Ok(switching(accepted.headers))
}

/// Carries bytes both ways until one side ends, or neither has sent anything for so long.
async fn tunnel<A, B>(client: A, runtime: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite,
{
    let last = Mutex::new(Instant::now());
    unless_idle(streaming::tunnel::bytes(Noted { io: client, last: &last }, runtime), &last, idle).await;
}

/// Carries a stream until it ends, or nothing was sent since `last` for so long.
async fn unless_idle(carried: impl Future<Output = ()>, last: &Mutex<Instant>, idle: Duration) {
    let silence = async {
        loop {
            let until = *last.lock() + idle;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    };
    tokio::select! {
        () = carried => {}
        () = silence => {}
    }
}

/// A connection that notes when something went through it.
struct Noted<'a, T> {
    io: T,
    last: &'a Mutex<Instant>,
}

impl<T> Noted<'_, T> {
    fn note<V>(&self, polled: &Poll<std::io::Result<V>>) {
        if matches!(polled, Poll::Ready(Ok(_))) {
            *self.last.lock() = Instant::now();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.note(&polled);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.note(&polled);
        polled
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_ends() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let ((mut near, client), (runtime, mut far)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        let began = Instant::now();
        let ended = tokio::spawn(async move {
            tunnel(client, runtime, IDLE).await;
            began.elapsed()
        });
        let mut one = [0];
        for _ in 0..3 {
            tokio::time::sleep(IDLE / 2).await;
            near.write_all(b"x").await.unwrap();
            far.read_exact(&mut one).await.unwrap();
            tokio::time::sleep(IDLE / 2).await;
            far.write_all(b"y").await.unwrap();
            near.read_exact(&mut one).await.unwrap();
        }
        assert_eq!(ended.await.unwrap(), IDLE * 4);
    }

    #[test]
    fn stream_options() {
        let check = |query: &str, expected: Option<[bool; 4]>| {
            let got = options(&Query::parse(query)).ok().map(|s| [s.stdin, s.stdout, s.stderr, s.tty]);
            assert_eq!(got, expected, "{query}");
        };
        check("input=1&output=1&error=1", Some([true, true, true, false]));
        check("output=1&error=1&tty=1", Some([false, true, false, true]));
        check("tty=1&error=1", None);
        check("", None);
    }

    /// Upstream's `NewV4Options` reads ports so.
    #[test]
    fn forwarded_ports() {
        let check = |query: &str, expected: Result<&[i32], &str>| {
            let got = ports(&Query::parse(query)).map_err(|failure| failure.text);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{query}");
        };
        check("port=80,443&port=1", Ok(&[80, 443, 1]));
        check("", Err("query parameter \"port\" is required"));
        check("port=", Err("query parameter \"port\" cannot be empty"));
        check("port=0", Err("port \"0\" must be > 0"));
        let unable = |value: &str, port: &str, why: &str| {
            format!("unable to parse {value:?} as a port: strconv.ParseUint: parsing {port:?}: {why}")
        };
        check("port=http", Err(&unable("http", "http", "invalid syntax")));
        check("port=80,", Err(&unable("80,", "", "invalid syntax")));
        check("port=%2B80", Err(&unable("+80", "+80", "invalid syntax")));
        check("port=65536", Err(&unable("65536", "65536", "value out of range")));
    }
}
