//! Answers `/openapi/v2` and `/openapi/v3`. Documents are made when somebody asks for them, and kept, packed, as other
//! forms are.

use std::io::Write;

use access::Query;
use api::accept::clauses;
use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use jiff::SignedDuration;
use sha2::{Digest, Sha512};

use crate::catalog::Document;
use crate::encoder::Encoder;
use crate::front::{Body, full, header as header_of};

/// The length of the header of a gzip file without a name.
const HEADER: usize = 10;

/// Whether the client has the document of this hash.
fn has(parts: &Parts, hash: &str) -> bool {
    let etag = format!("\"{hash}\"");
    header_of(parts, header::IF_NONE_MATCH).split(',').any(|e| e.trim() == etag)
}

/// Answers with a body, unless the client has it.
fn answer(parts: &Parts, body: Option<Bytes>, media: &'static str, hash: &str) -> Response<Body> {
    let body = body.filter(|_| !has(parts, hash));
    let status = if body.is_some() { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
    let mut response = Response::new(full(body.unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
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
    clauses(accept).into_iter().find_map(|clause| match (clause.kind, clause.sub) {
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
pub(crate) fn serve(encoder: &Encoder, parts: &Parts, path: &str, query: &Query) -> Option<Response<Body>> {
    let openapi = &encoder.catalog.openapi;
    let accept = header_of(parts, header::ACCEPT);
    if path == "/openapi/v2" {
        let Some(protobuf) = protobuf_wanted(&accept, V2) else {
            return Some(empty(StatusCode::NOT_ACCEPTABLE));
        };
        let media = if protobuf {
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        } else {
            "application/json"
        };
        return document(encoder, parts, &Document::V2 { protobuf }, media);
    }
    if path == "/openapi/v3" {
        let body = openapi.index();
        let etag = format!("{:X}", Sha512::digest(&body));
        return Some(answer(parts, Some(body), "application/json", &etag));
    }
    let name = path.strip_prefix("/openapi/v3/")?;
    let Some(protobuf) = protobuf_wanted(&accept, V3) else {
        return Some(empty(StatusCode::NOT_ACCEPTABLE));
    };
    if !openapi.has(name) {
        return Some(empty(StatusCode::NOT_FOUND));
    }
    let wanted = Document::V3 { path: name.to_owned(), protobuf };
    let asked = query.str("hash");
    if !asked.is_empty() {
        let hash = openapi.hash(&wanted);
        if asked != hash {
            let mut response = empty(StatusCode::MOVED_PERMANENTLY);
            let to = format!("/openapi/v3/{name}?hash={hash}");
            if let Ok(to) = HeaderValue::from_str(&to) {
                response.headers_mut().insert(header::LOCATION, to);
            }
            return Some(response);
        }
    }
    let media = if protobuf {
        "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
    } else {
        "application/json"
    };
    let mut response = document(encoder, parts, &wanted, media)?;
    if !asked.is_empty() {
        // The hash names the content: it may be kept for good, which in HTTP is a year.
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let expires = encoder.clock.now() + SignedDuration::from_hours(365 * 24);
        let text = expires.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
        if let Ok(expires) = HeaderValue::from_str(&text) {
            headers.insert(header::EXPIRES, expires);
        }
    }
    Some(response)
}

/// Answers with a document, which is made unless the client has it or it is kept.
fn document(
    encoder: &Encoder,
    parts: &Parts,
    document: &Document,
    media: &'static str,
) -> Option<Response<Body>> {
    let openapi = &encoder.catalog.openapi;
    let hash = openapi.hash(document);
    if has(parts, &hash) {
        return Some(answer(parts, None, media, &hash));
    }
    // A document that was made for this client needs no unpacking.
    let mut plain = None;
    let joined = match document {
        Document::V3 { path, protobuf: false } => openapi.joined(path),
        _ => None,
    };
    let packed = match joined {
        Some(packed) => packed,
        None => encoder.forms.document(&hash, media, || {
            let made = openapi.make(document)?;
            let packed = gzip(&made);
            plain = Some(made);
            Some(packed)
        })?,
    };
    if takes_gzip(parts) {
        let mut response = answer(parts, Some(packed), media, &hash);
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return Some(response);
    }
    if plain.is_some() {
        return Some(answer(parts, plain, media, &hash));
    }
    Some(answer(parts, Some(unpacked(&packed)?.into()), media, &hash))
}

/// The text of a file that was packed here: its sum needs no check.
fn unpacked(file: &[u8]) -> Option<Vec<u8>> {
    let (data, length) = file.split_last_chunk::<4>()?;
    // With a byte of room, so that the end of the data is seen.
    let mut text = Vec::with_capacity(u32::from_le_bytes(*length) as usize + 1);
    let data = data.get(HEADER..)?;
    let end = Decompress::new(false).decompress_vec(data, &mut text, FlushDecompress::Finish);
    matches!(end, Ok(Status::StreamEnd)).then_some(text)
}

/// Whether the client takes answers as gzip.
fn takes_gzip(parts: &Parts) -> bool {
    let accept = header_of(parts, header::ACCEPT_ENCODING);
    accept.split(',').any(|form| {
        let mut words = form.split(';').map(str::trim);
        words.next() == Some("gzip")
            && !words.any(|w| w.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)))
    })
}

fn gzip(bytes: &[u8]) -> Bytes {
    // Upstream packs answers at this level. A document is mostly repetitions, which any level finds.
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::pieces::{Piece, join};

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

    #[test]
    fn texts_come_back() {
        for text in ["", "{}", &"again ".repeat(50_000)] {
            assert_eq!(unpacked(&gzip(text.as_bytes())).unwrap(), text.as_bytes());
        }
        let joined = join(&[Piece::new(b"one "), Piece::new(b""), Piece::new(b"two")]);
        assert_eq!(unpacked(&joined).unwrap(), b"one two");
        for broken in [&joined[..4], &joined[..joined.len() - 6], b"", b"no file of gzip at all"] {
            assert_eq!(unpacked(broken), None);
        }
    }

    #[test]
    fn encodings() {
        let check = |accept: &str, expected| {
            let request = http::Request::builder().header(header::ACCEPT_ENCODING, accept).body(()).unwrap();
            assert_eq!(takes_gzip(&request.into_parts().0), expected, "{accept}");
        };
        check("", false);
        check("gzip", true);
        check("br, gzip;q=0.5", true);
        check("gzip;q=0", false);
        check("gzip; q=0.0, identity", false);
        check("identity", false);
    }
}
