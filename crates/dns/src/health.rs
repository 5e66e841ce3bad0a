//! The pages that CoreDNS serves to probes and to Prometheus: `/health`, `/ready` and `/metrics`, each on an address of
//! its own, without TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use component::{Health, Registry, Shutdown};
use http::StatusCode;
use serving::answer::TEXT;
use serving::plain::{self, Answer, metrics_of, not_found};

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

    /// The answer to a request for a path.
    fn answer(&self, path: &str) -> Answer {
        match self {
            _ if path != self.path() => not_found(),
            Self::Health => plain::answer(StatusCode::OK, TEXT, "OK"),
            Self::Ready(health) => {
                let failed: Vec<String> =
                    health.answers().into_iter().filter(|(_, a)| a.is_err()).map(|(name, _)| name).collect();
                if failed.is_empty() {
                    return plain::answer(StatusCode::OK, TEXT, "OK");
                }
                plain::answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, failed.join(","))
            }
            Self::Metrics(registry) => metrics_of(registry),
        }
    }
}

/// Serves a page until `shutdown`; returns the address.
pub async fn serve(page: Page, address: SocketAddr, shutdown: &Shutdown) -> io::Result<SocketAddr> {
    plain::serve(Arc::new(move |head, _| Some(page.answer(head.uri.path()))), address, shutdown).await
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn check(page: &Page, path: &str, code: u16, text: &str) {
        let response = page.answer(path);
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
    }
}
