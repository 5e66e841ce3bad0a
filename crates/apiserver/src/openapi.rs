//! `/openapi/v2` and `/openapi/v3`: documents that are made when first asked for.

use access::Query;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use jiff::SignedDuration;
use sha2::{Digest, Sha512};

use crate::front::{Body, full, header as header_of};
use crate::inner::Inner;
use crate::negotiate;

/// Makes the documents of OpenAPI.
pub trait Documents: Send + Sync + 'static {
    /// The whole of v2: as JSON, or as protobuf (`openapi.v2.Document`).
    fn v2(&self, protobuf: bool) -> Bytes;
    /// The paths of v3 documents (`api/v1`, `apis/apps/v1`, `version`, …), in order.
    fn v3_paths(&self) -> Vec<String>;
    /// The document of a path: as JSON, or as protobuf (`openapi.v3.Document`).
    fn v3(&self, path: &str, protobuf: bool) -> Option<Bytes>;
    /// What the documents say of some fields of definitions; "" where they say nothing.
    fn describe(&self, fields: &[(&str, &str)]) -> Vec<String>;
}

fn digest(bytes: &[u8]) -> String {
    format!("{:X}", Sha512::digest(bytes))
}

fn answer(parts: &http::request::Parts, body: Bytes, media: &'static str, etag: &str) -> Response<Body> {
    let etag = format!("\"{etag}\"");
    let fresh = header_of(parts, header::IF_NONE_MATCH).split(',').any(|e| e.trim() == etag);
    let mut response = Response::new(full(if fresh { Bytes::new() } else { body }));
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

/// The media types of v2 as protobuf: how it is answered, and how older clients ask for it.
const V2: [&str; 2] =
    ["com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf"];
/// Those of v3.
const V3: [&str; 2] =
    ["com.github.proto-openapi.spec.v3.v1.0+protobuf", "com.github.proto-openapi.spec.v3@v1.0+protobuf"];

/// Whether the protobuf form is wanted; nothing if neither is.
fn protobuf_wanted(accept: &str, protobuf: [&str; 2]) -> Option<bool> {
    if accept.is_empty() {
        return Some(false);
    }
    negotiate::ranges(accept).find_map(|(kind, sub)| match (kind, sub) {
        ("*" | "application", "*" | "json") => Some(false),
        ("*" | "application", sub) if protobuf.contains(&sub) => Some(true),
        _ => None,
    })
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Answers a path below `/openapi/`.
pub(crate) fn serve(
    inner: &Inner,
    parts: &http::request::Parts,
    path: &str,
    query: &Query,
) -> Option<Response<Body>> {
    let documents = inner.openapi.get()?;
    let accept = header_of(parts, header::ACCEPT);
    if path == "/openapi/v2" {
        let Some(protobuf) = protobuf_wanted(&accept, V2) else {
            return Some(empty(StatusCode::NOT_ACCEPTABLE));
        };
        let body = documents.v2(protobuf);
        let media = if protobuf {
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        } else {
            "application/json"
        };
        let etag = digest(&body);
        return Some(answer(parts, body, media, &etag));
    }
    if path == "/openapi/v3" {
        let body = inner.openapi_index.get_or_init(|| {
            let entry = |p: String| {
                let hash = digest(&documents.v3(&p, false)?);
                Some(format!("\"{p}\":{{\"serverRelativeURL\":\"/openapi/v3/{p}?hash={hash}\"}}"))
            };
            let entries: Vec<String> = documents.v3_paths().into_iter().filter_map(entry).collect();
            Bytes::from(format!("{{\"paths\":{{{}}}}}", entries.join(",")))
        });
        let body = body.clone();
        let etag = digest(&body);
        return Some(answer(parts, body, "application/json", &etag));
    }
    let name = path.strip_prefix("/openapi/v3/")?;
    let Some(protobuf) = protobuf_wanted(&accept, V3) else {
        return Some(empty(StatusCode::NOT_ACCEPTABLE));
    };
    let Some(json) = documents.v3(name, false) else { return Some(empty(StatusCode::NOT_FOUND)) };
    let etag = digest(&json);
    let asked = query.str("hash");
    if !asked.is_empty() && asked != etag {
        let mut response = empty(StatusCode::MOVED_PERMANENTLY);
        let to = format!("/openapi/v3/{name}?hash={etag}");
        if let Ok(to) = HeaderValue::from_str(&to) {
            response.headers_mut().insert(header::LOCATION, to);
        }
        return Some(response);
    }
    let (body, media) = if protobuf {
        (documents.v3(name, true)?, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
    } else {
        (json, "application/json")
    };
    let mut response = answer(parts, body, media, &etag);
    if !asked.is_empty() {
        // The hash names the content: it may be kept for good, which in HTTP is a year.
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let expires = inner.config.clock.now() + SignedDuration::from_hours(365 * 24);
        let text = expires.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
        if let Ok(expires) = HeaderValue::from_str(&text) {
            headers.insert(header::EXPIRES, expires);
        }
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let check = |accept: &str, expected| assert_eq!(protobuf_wanted(accept, V3), expected, "{accept}");
        check("", Some(false));
        check("*/*", Some(false));
        check("application/*;q=0.1", Some(false));
        check("application/com.github.proto-openapi.spec.v3@v1.0+protobuf", Some(true));
        check(
            "application/json;q=0.5,application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            Some(true),
        );
        check("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", None);
        check("text/html,application/json", Some(false));
        check("text/html", None);
    }
}
