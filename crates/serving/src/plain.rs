//! Plain HTTP for probes, load balancers and Prometheus, as upstream's kube-proxy and CoreDNS have it: no TLS, no users.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::zpages;
use bytes::Bytes;
use component::{Registry, Shutdown, metrics};
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::answer::{Body, BoxError, TEXT};

/// The number of connections of a port.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may last, and how long its headers may take.
const LONGEST: Duration = Duration::from_mins(1);
const HEADERS_TIME: Duration = Duration::from_secs(10);
/// How long after an error of `accept` the next try comes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// The answer to a request, of which the head is told, at one of the machine's addresses; `None` closes the connection.
pub type Handler = dyn Fn(&Parts, SocketAddr) -> Option<Answer> + Send + Sync;

/// An answer of a media type, which clients must believe.
pub fn answer(code: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// A page that tells of a component.
pub fn page(answer: zpages::Answer) -> Answer {
    crate::answer::page(answer).map(Full::new)
}

/// The answer for a path that there is not.
pub fn not_found() -> Answer {
    answer(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")
}

/// The page of a registry's metrics, with those of the process.
pub fn metrics_of(registry: &Registry) -> Answer {
    let mut page = registry.page();
    metrics::process(&mut page);
    answer(StatusCode::OK, metrics::CONTENT_TYPE, registry.shown().apply(page.text()))
}

/// The answer to a request, whatever its path is.
pub type Requests = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync;

/// Serves a port until `shutdown`; returns the address.
pub async fn serve(
    handler: Arc<Handler>,
    address: SocketAddr,
    shutdown: &Shutdown,
) -> io::Result<SocketAddr> {
    let answer = move |request: Request<Incoming>, local: SocketAddr| {
        let answer =
            if reads(&request) { handler(&request.into_parts().0, local) } else { Some(not_allowed()) };
        async move { answer.ok_or("nothing is served at this address") }
    };
    bind(answer, address, shutdown).await
}

/// The same for answers that take their time.
pub async fn serve_requests(
    handler: Arc<Requests>,
    address: SocketAddr,
    shutdown: &Shutdown,
) -> io::Result<SocketAddr> {
    let answer = move |request: Request<Incoming>, _: SocketAddr| {
        let answer = reads(&request).then(|| handler(request));
        async move {
            Ok::<_, Infallible>(match answer {
                Some(answer) => answer.await,
                None => not_allowed().map(|body| body.map_err(Into::into).boxed()),
            })
        }
    };
    bind(answer, address, shutdown).await
}

fn reads(request: &Request<Incoming>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

fn not_allowed() -> Answer {
    answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n")
}

async fn bind<F, A, B, E>(respond: F, address: SocketAddr, shutdown: &Shutdown) -> io::Result<SocketAddr>
where
    F: Fn(Request<Incoming>, SocketAddr) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    shutdown.spawn(accept(listener, Arc::new(respond), shutdown.clone()));
    Ok(address)
}

async fn accept<F, A, B, E>(listener: TcpListener, respond: Arc<F>, shutdown: Shutdown)
where
    F: Fn(Request<Incoming>, SocketAddr) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some(accepted) = shutdown.run(listener.accept()).await {
        let Ok((stream, _)) = accepted else {
            shutdown.run(sleep(ACCEPT_AGAIN)).await;
            continue;
        };
        // A connection too many is closed at once.
        let (Ok(place), Ok(local)) = (places.clone().try_acquire_owned(), stream.local_addr()) else {
            continue;
        };
        let (respond, stop) = (respond.clone(), shutdown.clone());
        shutdown.spawn_one(async move {
            let service = service_fn(move |request: Request<Incoming>| respond(request, local));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIME)
                .serve_connection(TokioIo::new(stream), service);
            // A connection that breaks is its client's matter.
            let _ = stop.run(timeout(LONGEST, connection)).await;
            drop(place);
        });
    }
}
