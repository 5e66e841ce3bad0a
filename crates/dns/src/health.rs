//! The pages that CoreDNS serves to probes and to Prometheus: `/health`, `/ready` and `/metrics`, each on an address of
//! its own, without TLS.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::{Health, Registry, Shutdown, metrics};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The number of connections of a page.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may last, and how long its headers may take.
const LONGEST: Duration = Duration::from_mins(1);
const HEADERS_TIME: Duration = Duration::from_secs(10);
/// How long after an error of `accept` the next try comes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A page.
#[derive(Clone)]
pub enum Page {
    /// `/health`: whether the process answers at all.
    Health,
    /// `/ready`: whether it has seen the whole cluster.
    Ready(Health),
    /// `/metrics`.
    Metrics(Registry),
}

impl Page {
    fn path(&self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Ready(_) => "/ready",
            Self::Metrics(_) => "/metrics",
        }
    }

    /// The answer to a request.
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let (code, kind, text) = match self {
            _ if path != self.path() => {
                (StatusCode::NOT_FOUND, "text/plain", "404 page not found\n".to_owned())
            }
            _ if !matches!(*method, Method::GET | Method::HEAD) => {
                (StatusCode::METHOD_NOT_ALLOWED, "text/plain", String::new())
            }
            Self::Health => (StatusCode::OK, "text/plain", "OK".to_owned()),
            Self::Ready(health) => {
                let failed: Vec<String> =
                    health.answers().into_iter().filter(|(_, a)| a.is_err()).map(|(name, _)| name).collect();
                let code = if failed.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                (code, "text/plain", if failed.is_empty() { "OK".to_owned() } else { failed.join(",") })
            }
            Self::Metrics(registry) => {
                let mut page = registry.page();
                metrics::process(&mut page);
                (StatusCode::OK, metrics::CONTENT_TYPE, page.text())
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

/// Serves a page until `shutdown`; returns the address.
pub async fn serve(page: Page, address: SocketAddr, shutdown: &Shutdown) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    shutdown.spawn(accept(listener, page, shutdown.clone()));
    Ok(address)
}

async fn accept(listener: TcpListener, page: Page, shutdown: Shutdown) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some(accepted) = shutdown.run(listener.accept()).await {
        let Ok((stream, _)) = accepted else {
            shutdown.run(sleep(ACCEPT_AGAIN)).await;
            continue;
        };
        // A connection too many is closed at once.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (page, stop) = (page.clone(), shutdown.clone());
        shutdown.spawn_one(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = page.answer(request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn check(page: &Page, path: &str, code: u16, text: &str) {
        let response = page.answer(&Method::GET, path);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status == code && body.starts_with(text.as_bytes()), "{path}: {status} {body:?}");
    }

    #[tokio::test]
    async fn pages() {
        let health = Health::default();
        let ready = Page::Ready(health.clone());
        check(&Page::Health, "/health", 200, "OK").await;
        check(&Page::Health, "/ready", 404, "404").await;
        check(&ready, "/ready", 200, "OK").await;
        health.add("kubernetes", || Err("it is not synced".to_owned()));
        check(&ready, "/ready", 503, "kubernetes").await;
        let registry = Registry::default();
        registry.register("m", |page| {
            page.metric("m", "gauge", "M.").value("m", &[], 1.0);
        });
        check(&Page::Metrics(registry), "/metrics", 200, "# HELP m M.\n# TYPE m gauge\nm 1\n").await;
        assert_eq!(Page::Health.answer(&Method::POST, "/health").status().as_u16(), 405);
    }
}
