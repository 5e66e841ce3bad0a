//! Paths that are no resources: health, metrics, discovery, OpenAPI, the keys of tokens.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Method, Response, header};

use crate::front::{Body, full, header as header_of, status_response, text};
use crate::negotiate::Form;
use crate::request::Request;
use crate::rooms::Rooms;
use crate::routes::method_not_allowed;
use crate::{discovery, openapi, snapshot, zpages};

/// Answers at a path that is no resource.
pub(super) async fn answer(rooms: &Arc<Rooms>, parts: Parts, ctx: &Request) -> Response<Body> {
    if ctx.info.path == snapshot::PATH && parts.method == Method::GET {
        return snapshot::serve(&rooms.objects.store).await;
    }
    if let Some(logs) = &rooms.front.logs
        && let Some(below) = log_file(&ctx.info.path)
    {
        if parts.method != Method::GET {
            return status_response(&method_not_allowed(), Form::JSON);
        }
        return logs(below.to_owned()).await.map(Body::stream);
    }
    // Documents are made when they are first asked for.
    if !ctx.info.path.starts_with("/openapi") {
        return plain(rooms, &parts, ctx);
    }
    let (own, asked) = (Arc::clone(rooms), ctx.stand_in());
    let answer = async move { plain(&own, &parts, &asked) };
    let answer = rooms.front.lanes.run(ctx.caller.user(), ctx.deadline, answer).await;
    answer.unwrap_or_else(|status| status_response(&status, Form::JSON))
}

/// Answers at once.
pub(super) fn plain(rooms: &Arc<Rooms>, parts: &Parts, ctx: &Request) -> Response<Body> {
    let (path, query) = (ctx.info.path.as_str(), &ctx.query);
    let answer = rooms
        .front
        .health
        .serve(path, query)
        .or_else(|| {
            (path == "/metrics").then(|| rooms.front.metrics.serve(&header_of(parts, header::ACCEPT)))
        })
        .or_else(|| {
            (path == "/metrics/slis").then(|| {
                let page = rooms.front.metrics.show(rooms.front.health.slis());
                let mut answer = Response::new(full(page));
                let media = HeaderValue::from_static(component::metrics::CONTENT_TYPE);
                answer.headers_mut().insert(header::CONTENT_TYPE, media);
                answer
            })
        })
        .or_else(|| {
            rooms
                .front
                .flow
                .page(path, !query.str("includeRequestDetails").is_empty())
                .map(|page| text(200, page))
        })
        .or_else(|| issuer_document(rooms, path))
        .or_else(|| {
            zpages::serve(&rooms.front.told, rooms.objects.clock, parts, ctx.query.get("pretty"), path)
        })
        .or_else(|| {
            if path.starts_with("/openapi/") {
                openapi::serve(&rooms.encoder(&ctx.catalog), parts, path, query)
            } else {
                let server = rooms.front.url.trim_start_matches("https://");
                discovery::serve((&ctx.catalog, server, &rooms.front.told), parts, path, query)
            }
        });
    // Upstream's mux leads every method to most of these.
    let any = discovery::of_aggregator(path)
        || ["/healthz", "/livez", "/readyz", "/metrics", "/openapi/", "/debug/", "/statusz", "/flagz"]
            .iter()
            .any(|p| path.starts_with(p));
    if answer.as_ref().is_some_and(|a| a.status() != 404)
        && !any
        && !matches!(parts.method, Method::GET | Method::HEAD)
    {
        return status_response(&method_not_allowed(), Form::JSON);
    }
    answer.unwrap_or_else(|| text(404, "404 page not found\n"))
}

/// The path below the logs, if it is one of theirs.
fn log_file(path: &str) -> Option<&str> {
    path.strip_prefix("/logs").filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The documents by which others verify service account tokens.
fn issuer_document(rooms: &Rooms, path: &str) -> Option<Response<Body>> {
    let front = &rooms.front;
    let (media_type, document) = front.auth.reviewer.issuer_document(path, &front.url)?;
    let mut response = Response::new(full(Bytes::from(document)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("public, max-age=3600"));
    Some(response)
}
