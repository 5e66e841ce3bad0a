//! Paths that are no resources: health, metrics, discovery, OpenAPI, the keys of tokens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, header};

use super::method_not_allowed;
use crate::front::{Body, full, header as header_of, status_response, text};
use crate::inner::Inner;
use crate::negotiate::Form;
use crate::request::Request;
use crate::{discovery, health, snapshot};

/// Answers at a path that is no resource.
pub(super) async fn answer(inner: &Arc<Inner>, parts: Parts, ctx: &Request) -> Response<Body> {
    if ctx.info.path == snapshot::PATH && parts.method == Method::GET {
        return snapshot::serve(inner).await;
    }
    // Documents are made when they are first asked for.
    if !ctx.info.path.starts_with("/openapi") {
        return plain(inner, &parts, ctx);
    }
    let (own, asked) = (Arc::clone(inner), ctx.stand_in());
    let answer = async move { plain(&own, &parts, &asked) };
    let answer = inner.lanes.run(ctx.caller.user(), ctx.deadline, answer).await;
    answer.unwrap_or_else(|status| status_response(inner, &status, Form::JSON))
}

/// Answers at once.
pub(super) fn plain(inner: &Arc<Inner>, parts: &Parts, ctx: &Request) -> Response<Body> {
    let (path, query) = (ctx.info.path.as_str(), &ctx.query);
    let answer = health::serve(inner, path, query)
        .or_else(|| (path == "/metrics").then(|| inner.metrics.serve(&header_of(parts, header::ACCEPT))))
        .or_else(|| issuer_document(inner, path))
        .or_else(|| discovery::serve(inner, parts, path, query));
    // Upstream's mux leads every method to most of these.
    let any = discovery::of_aggregator(path)
        || ["/healthz", "/livez", "/readyz", "/metrics", "/openapi/"].iter().any(|p| path.starts_with(p));
    if answer.as_ref().is_some_and(|a| a.status() != 404)
        && !any
        && !matches!(parts.method, Method::GET | Method::HEAD)
    {
        return status_response(inner, &method_not_allowed(), Form::JSON);
    }
    answer.unwrap_or_else(|| text(404, "404 page not found\n"))
}

/// What others need to verify service account tokens.
fn issuer_document(inner: &Inner, path: &str) -> Option<Response<Body>> {
    let config = &inner.config;
    let address = config.advertise_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let server = format!("https://{}", SocketAddr::new(address, config.port));
    let (media_type, document) = inner.auth.reviewer.issuer_document(path, &server)?;
    let mut response = Response::new(full(Bytes::from(document)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("public, max-age=3600"));
    Some(response)
}
