//! Answers the paths of discovery, and `/`.

use access::Query;
use api::Status;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::catalog::Catalog;
use crate::codec;
use crate::front::{Body, full, header as header_of, status_response};
use crate::negotiate::{self, Allowed, Format};
use crate::routes::method_not_allowed;
use crate::version::info;
use crate::zpages::{self, Told};

/// Whether a path is one of those that upstream's aggregator answers itself, whatever the method.
pub(crate) fn of_aggregator(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    matches!(path, "" | "/apis") || path.strip_prefix("/apis/").is_some_and(|group| !group.contains('/'))
}

/// The version of aggregated discovery that an Accept header asks for before anything else.
fn aggregated_version(accept: &str) -> Option<&'static str> {
    for clause in accept.split(',') {
        let has = |p: &str| clause.split(';').any(|c| c.trim() == p);
        if has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList") {
            if !clause.trim().starts_with("application/json") {
                continue;
            }
            if has("v=v2") {
                return Some("v2");
            }
        } else {
            return None;
        }
    }
    None
}

fn root_paths(catalog: &Catalog, told: &Told) -> Value {
    let mut paths: Vec<String> = zpages::paths(told).into_iter().map(str::to_owned).collect();
    paths.extend(catalog.discovery.paths());
    paths.sort();
    json!({"paths": paths})
}

fn indented(document: &impl Serialize) -> Bytes {
    // Nothing in the documents can fail to be written: texts, and lists of them.
    codec::pretty(&serde_json::to_vec(document).unwrap_or_default())
}

fn json_response(body: Bytes, media: &'static str) -> Response<Body> {
    let mut response = Response::new(full(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// Answers a path of discovery. `server` is the host and port that clients are told.
pub(crate) fn serve(
    (catalog, server, told): (&Catalog, &str, &Told),
    parts: &http::request::Parts,
    path: &str,
    query: &Query,
) -> Option<Response<Body>> {
    match path.trim_end_matches('/') {
        "" => return Some(json_response(indented(&root_paths(catalog, told)), "application/json")),
        "/version" => return Some(json_response(indented(&info()), "application/json")),
        _ => {}
    }
    let accept = header_of(parts, header::ACCEPT);
    let asked = aggregated_version(&accept);
    let (document, is_aggregated) = match catalog.discovery.find(path, asked.is_some(), server) {
        Some(found) => found,
        // Below a group that is served, what is missing is a resource.
        None if catalog.discovery.is_group(path) => {
            return Some(status_response(&Status::no_such_resource(), negotiate::Form::JSON));
        }
        None => return None,
    };
    if parts.method == Method::HEAD && !of_aggregator(path) {
        return Some(status_response(&method_not_allowed(), negotiate::Form::JSON));
    }
    let body = if is_aggregated {
        document.json.clone()
    } else {
        let agent = header_of(parts, header::USER_AGENT);
        let form =
            negotiate::output(&accept, query, &agent, Allowed::Plain, false, negotiate::Objects::BuiltIn);
        let form = match form {
            Ok(form) => form,
            Err(status) => return Some(status_response(&status, negotiate::Form::JSON)),
        };
        match form.format {
            Format::Json if form.pretty => codec::pretty(&document.json),
            Format::Json => document.json.clone(),
            Format::Yaml => {
                return Some(json_response(codec::yaml(&document.json).ok()?, "application/yaml"));
            }
            Format::Protobuf => return Some(protobuf(catalog, &document.json)),
        }
    };
    let media = if is_aggregated {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    } else {
        "application/json"
    };
    let mut response = json_response(body, media);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    if is_aggregated {
        let matches = header_of(parts, header::IF_NONE_MATCH)
            .split(',')
            .any(|e| document.etag.to_str().is_ok_and(|d| d == e.trim()));
        if matches {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = full(Bytes::new());
        }
        response.headers_mut().insert(header::ETAG, document.etag.clone());
    }
    Some(response)
}

fn protobuf(catalog: &Catalog, json: &Bytes) -> Response<Body> {
    let kind = serde_json::from_slice::<Value>(json)
        .ok()
        .and_then(|v| v.get("kind").and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_default();
    let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
    match codec::proto_of_json(catalog.schema(), &name, json) {
        Ok(raw) => json_response(codec::envelope("v1", &kind, &raw), Format::Protobuf.media_type()),
        Err(status) => status_response(&status, negotiate::Form::JSON),
    }
}
