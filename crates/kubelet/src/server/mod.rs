//! The kubelet's HTTPS server: logs, exec, attach, port-forward, Pods, statistics and metrics.
//!
//! Every request is authenticated and authorized by the API server's word; nothing is served to
//! strangers.

mod auth;
mod files;
mod log_lines;
mod logs;
mod metrics;
mod stats;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use component::Shutdown;
use cri::runtime as pb;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Pod;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use self::auth::Auth;
use self::stats::Collector;
use self::stream::Target;
use crate::node::machine::Machine;
use crate::{Kubelet, StartError};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = http_body_util::combinators::BoxBody<Bytes, BoxError>;

/// How long a TLS handshake may take.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);
/// Pieces of a streamed body that wait for its reader.
const BODY_PIECES: usize = 8;

/// Where to serve, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on; upstream's `address` and `port`.
    pub address: SocketAddr,
    /// The serving certificate, and the roots of client certificates; see [`tls`].
    pub tls: Arc<ServerConfig>,
}

/// TLS for the server: its certificate, and the roots of the client certificates it takes. A client
/// without a certificate may still bring a token.
pub fn tls(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: RootCertStore,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| rustls::Error::General(e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

struct Server {
    kubelet: Arc<Kubelet>,
    auth: Auth,
    stats: Collector,
    machine: Machine,
}

/// Binds the port, and serves until `shutdown`. Without options it does nothing.
pub async fn start(kubelet: &Arc<Kubelet>, shutdown: &Shutdown) -> Result<(), StartError> {
    let Some(options) = kubelet.config.server.clone() else { return Ok(()) };
    let address = options.address;
    let listener =
        TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
    let server = Arc::new(Server {
        auth: Auth::new(kubelet.client.clone(), &kubelet.config.node_name),
        stats: Collector::default(),
        machine: Machine::read(),
        kubelet: kubelet.clone(),
    });
    let acceptor = tokio_rustls::TlsAcceptor::from(options.tls);
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        while let Some(accepted) = stop.run(listener.accept()).await {
            match accepted {
                Ok((tcp, _)) => {
                    let (server, acceptor, stop2) = (server.clone(), acceptor.clone(), stop.clone());
                    stop.spawn_one(async move {
                        let _ = stop2.run(connection(server, acceptor, tcp)).await;
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: those in use have to end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    });
    Ok(())
}

async fn connection(server: Arc<Server>, acceptor: tokio_rustls::TlsAcceptor, tcp: TcpStream) {
    let _ = tcp.set_nodelay(true);
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await else { return };
    let peer: Option<CertificateDer<'static>> =
        tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|c| c.clone().into_owned());
    let peer = Arc::new(peer);
    let service = service_fn(move |request| {
        let (server, peer) = (server.clone(), peer.clone());
        async move {
            let answer = server.handle(request, peer.as_ref().as_ref()).await;
            Ok::<_, std::convert::Infallible>(answer.unwrap_or_else(Failure::into_response))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().title_case_headers(true);
    // A connection that breaks is the client's affair.
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await;
}

impl Server {
    async fn handle(
        &self,
        request: Request<Incoming>,
        peer: Option<&CertificateDer<'_>>,
    ) -> Result<Response<Body>, Failure> {
        let user = self.auth.authenticate(request.headers(), peer).await?;
        let path = request.uri().path().to_owned();
        self.auth.authorize(&user, request.method(), &path).await?;
        let decoded = unescape(&path).ok_or_else(|| Failure::bad_request("invalid URL escape"))?;
        let query = Query::parse(request.uri().query().unwrap_or_default());
        self.route(request, &decoded, &query).await
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        path: &str,
        query: &Query,
    ) -> Result<Response<Body>, Failure> {
        let kubelet = &self.kubelet;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let read = *request.method() == Method::GET;
        let streams = read || *request.method() == Method::POST;
        match parts.as_slice() {
            ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] if read => text("ok"),
            ["pods"] if read => Ok(pod_list(&kubelet.pods.pods())),
            ["runningpods", ""] | ["runningpods"] if read => self.running_pods().await,
            ["containerLogs", namespace, pod, container] if read => {
                logs::serve(kubelet, namespace, pod, container, query).await
            }
            ["exec", rest @ ..] if streams => {
                stream::exec(kubelet, container_target(rest)?, query, request).await
            }
            ["attach", rest @ ..] if streams => {
                stream::attach(kubelet, container_target(rest)?, query, request).await
            }
            ["run", rest @ ..] if *request.method() == Method::POST => {
                stream::run(kubelet, container_target(rest)?, query).await
            }
            ["portForward", namespace, pod] if streams => {
                let target = Target { namespace, pod, uid: None, container: "" };
                stream::port_forward(kubelet, target, query, request).await
            }
            ["portForward", namespace, pod, uid] if streams => {
                let target = Target { namespace, pod, uid: Some(uid), container: "" };
                stream::port_forward(kubelet, target, query, request).await
            }
            ["stats", "summary"] => {
                let stats = self.stats.collect(kubelet).await.map_err(Failure::runtime)?;
                let only = query.bool("only_cpu_and_memory");
                json_answer(&stats::summary(&stats, &kubelet.config.node_name, only))
            }
            ["metrics"] if read => metrics_answer(metrics::own(kubelet)),
            ["metrics", "resource"] if read => {
                let stats = self.stats.collect(kubelet).await;
                metrics_answer(metrics::resource(stats.as_ref().ok()))
            }
            ["metrics", "cadvisor"] if read => {
                let stats = self.stats.collect(kubelet).await.map_err(Failure::runtime)?;
                metrics_answer(metrics::cadvisor(&stats, &self.machine))
            }
            ["metrics", "probes"] if read => metrics_answer(String::new()),
            ["configz"] if read => json_answer(&self.configz()),
            ["logs", rest @ ..] if read => files::serve(&rest.join("/")).await,
            _ => Err(Failure::new(StatusCode::NOT_FOUND, "404 page not found\n")),
        }
    }

    /// The Pods whose sandboxes run, as far as the runtime knows them.
    async fn running_pods(&self) -> Result<Response<Body>, Failure> {
        let ready = pb::PodSandboxFilter {
            state: Some(pb::PodSandboxStateValue { state: pb::PodSandboxState::SandboxReady.into() }),
            ..pb::PodSandboxFilter::default()
        };
        let request = pb::ListPodSandboxRequest { filter: Some(ready) };
        let answer =
            self.kubelet.runtime.service().list_pod_sandbox(request).await.map_err(Failure::runtime)?;
        let items: Vec<_> = answer
            .into_inner()
            .items
            .into_iter()
            .filter_map(|sandbox| sandbox.metadata)
            .map(|m| {
                json!({
                    "metadata": { "name": m.name, "namespace": m.namespace, "uid": m.uid },
                    "spec": { "containers": [] },
                    "status": {},
                })
            })
            .collect();
        json_answer(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
    }

    /// The settings, as the configuration file would have them.
    fn configz(&self) -> serde_json::Value {
        let config = &self.kubelet.config;
        let port = config.server.as_ref().map_or(config.node.port, |s| s.address.port());
        json!({ "kubeletconfig": {
            "enableServer": true,
            "port": port,
            "clusterDomain": config.cluster_domain,
            "clusterDNS": config.cluster_dns,
            "containerRuntimeEndpoint": config.container_runtime_endpoint,
            "podLogsDir": config.pod_logs_dir,
            "maxPods": config.max_pods,
            "resolvConf": config.resolv_conf,
            "cgroupRoot": config.cgroup_root,
            "maxParallelImagePulls": config.max_parallel_image_pulls,
            "containerLogMaxSize": config.container_log_max_size.to_string(),
            "containerLogMaxFiles": config.container_log_max_files,
            "nodeStatusUpdateFrequency": "10s",
            "nodeStatusReportFrequency": "5m0s",
            "nodeLeaseDurationSeconds": 40,
            "evictionPressureTransitionPeriod": "5m0s",
        } })
    }
}

/// `{namespace}/{pod}/{container}` or `{namespace}/{pod}/{uid}/{container}`.
fn container_target<'a>(parts: &[&'a str]) -> Result<Target<'a>, Failure> {
    match *parts {
        [namespace, pod, container] => Ok(Target { namespace, pod, uid: None, container }),
        [namespace, pod, uid, container] => Ok(Target { namespace, pod, uid: Some(uid), container }),
        _ => Err(Failure::new(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

fn pod_list(pods: &[Arc<Pod>]) -> Response<Body> {
    let mut out = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
    for (i, pod) in pods.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        // Typed objects always encode.
        out.extend(serde_json::to_vec(pod.as_ref()).unwrap_or_default());
    }
    out.extend_from_slice(b"]}");
    typed(out, "application/json")
}

fn json_answer(value: &serde_json::Value) -> Result<Response<Body>, Failure> {
    Ok(typed(value.to_string().into_bytes(), "application/json"))
}

fn metrics_answer(page: String) -> Result<Response<Body>, Failure> {
    Ok(typed(page.into_bytes(), "text/plain; version=0.0.4; charset=utf-8"))
}

fn text(text: &'static str) -> Result<Response<Body>, Failure> {
    Ok(typed(text.as_bytes().to_vec(), "text/plain; charset=utf-8"))
}

fn typed(bytes: Vec<u8>, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A body whose pieces come from elsewhere, as fast as its reader takes them.
fn channel_body() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(BODY_PIECES);
    let frames = ReceiverStream::new(receiver).map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
    (sender, BodyExt::boxed(StreamBody::new(frames)))
}

/// A refusal: a status and a plain text, as upstream's kubelet answers.
#[derive(Debug)]
struct Failure {
    code: StatusCode,
    text: String,
}

impl Failure {
    fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
    fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
    fn runtime(status: tonic::Status) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, status.message())
    }
    fn into_response(self) -> Response<Body> {
        let mut response = typed(self.text.into_bytes(), "text/plain; charset=utf-8");
        *response.status_mut() = self.code;
        response
    }
}

/// The parameters of a request, decoded, in order.
#[derive(Debug, Default)]
struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what follows the `?`; pairs with a bad escape are left out, as Go does.
    fn parse(text: &str) -> Self {
        let decode = |part: &str| unescape(&part.replace('+', " "));
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .filter_map(|(key, value)| Some((decode(key)?, decode(value)?)))
                .collect(),
        )
    }
    fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }
    fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |p| p.0 == key).map(|p| p.1.as_str())
    }
    /// False if absent, "false" or "0".
    fn bool(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !(v.eq_ignore_ascii_case("false") || v == "0"))
    }
}

/// Undoes percent escapes; `None` for a bad one or what is not UTF-8.
fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || (bytes.next()? as char).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let query = Query::parse("command=a+b&command=c%26d&bad=%zz&tty&x=0");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["a b", "c&d"]);
        assert!(query.bool("tty") && !query.bool("x") && !query.bool("bad"));
        assert_eq!(unescape("%e"), None);
    }

    #[test]
    fn targets() {
        let check = |parts: &[&str], expected: Option<(Option<&str>, &str)>| {
            let got = container_target(parts).ok().map(|t| (t.uid, t.container));
            assert_eq!(got, expected);
        };
        check(&["n", "p", "c"], Some((None, "c")));
        check(&["n", "p", "u", "c"], Some((Some("u"), "c")));
        check(&["n"], None);
    }
}
