//! What was answered, as HTTP.

use std::borrow::Cow;
use std::sync::Arc;

use access::RequestInfo;
use api::Status;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};

use super::body::{WatchBody, full, pieces};
use super::{Body, Leash};
use crate::answer::{self, Encoded, Outcome};
use crate::handlers::watch::{Framer, WatchSource};
use crate::inner::Inner;
use crate::lanes::Lanes;
use crate::negotiate::Form;

/// A plain text answer.
pub(crate) fn text(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An error as an answer.
pub(crate) fn status_response(inner: &Inner, status: &Status, form: Form) -> Response<Body> {
    let mut response = Response::new(full(answer::encode_status(inner, status, form)));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.format.media_type()));
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Turns what a handler answered into an HTTP answer.
pub(crate) fn outcome_response(
    inner: &Arc<Inner>,
    outcome: Outcome,
    form: Form,
    gzip: bool,
    info: &RequestInfo,
    leash: &Arc<Leash>,
) -> Response<Body> {
    match outcome {
        Outcome::Watch(source) => watch_response(inner, source, form, info, leash),
        other => match answer::encode(inner, other, form) {
            Ok((status, encoded)) => encoded_response(&inner.lanes, status, encoded, form, gzip),
            Err(status) => status_response(inner, &status, form),
        },
    }
}

/// How many characters the Warning headers of an answer may have together; upstream's limit.
const WARNINGS: usize = 4 << 10;
/// How many characters each of them may have when they are too long together; upstream's limit.
const WARNING: usize = 256;

/// Adds Warning headers, as upstream words them: code 299, no agent, the text quoted.
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: Vec<String>) {
    for text in fitting(&warnings) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// The texts that are sent: without those that have a control character in them. Once they are too long together, of
/// each only the beginning, and no more after those are too long, too.
fn fitting(warnings: &[String]) -> Vec<&str> {
    let clean = |text: &&str| !text.is_empty() && !text.chars().any(char::is_control);
    let all = warnings.iter().map(String::as_str).filter(clean);
    let length = |text: &str| text.chars().count();
    if all.clone().map(length).sum::<usize>() <= WARNINGS {
        return all.collect();
    }
    let cut = |text| match str::char_indices(text).nth(WARNING) {
        Some((end, _)) => &text[..end],
        None => text,
    };
    // Upstream sends each at once and begins anew, shortened, with the one that is too much.
    let (mut whole, mut sent) = (0, 0);
    let mut fitting = Vec::new();
    for text in all {
        if whole > WARNINGS && sent >= WARNINGS {
            break;
        }
        whole += length(text);
        fitting.push(cut(text));
        sent += length(cut(text));
    }
    fitting
}

/// Bodies above this are compressed for those who take it; upstream's threshold.
const GZIP_FROM: usize = 128 << 10;

fn encoded_response(lanes: &Lanes, status: u16, encoded: Encoded, form: Form, gzip: bool) -> Response<Body> {
    let mut compressed = false;
    let body = match encoded {
        Encoded::Whole(bytes) if gzip && bytes.len() > GZIP_FROM => {
            compressed = true;
            pieces(lanes, std::iter::once(bytes), true)
        }
        Encoded::Whole(bytes) => full(bytes),
        Encoded::Items(mut writer) => match (writer.next_chunk(), writer.next_chunk()) {
            (Some(first), None) if !gzip || first.len() <= GZIP_FROM => full(first),
            (first, second) => {
                compressed = gzip;
                let rest = std::iter::from_fn(move || writer.next_chunk());
                let all = first.into_iter().chain(second).chain(rest);
                pieces(lanes, all, gzip)
            }
        },
        Encoded::Pieces(all) => {
            compressed = gzip && all.as_slice().iter().map(Bytes::len).sum::<usize>() > GZIP_FROM;
            pieces(lanes, all, compressed)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.format.media_type()));
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn watch_response(
    inner: &Arc<Inner>,
    source: Box<WatchSource>,
    form: Form,
    info: &RequestInfo,
    leash: &Arc<Leash>,
) -> Response<Body> {
    let framer = Framer::new(inner, &source.resource, form);
    let tie = source.tie(leash);
    let body = WatchBody { source, framer, watching: inner.metrics.watch(info), _tie: tie };
    let mut response = Response::new(Body::stream(body));
    let media = form.format.watch_type().unwrap_or("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A header of a request that matters to the pipe, "" without it. Bytes that are no text stay to be seen, so that no
/// media type is taken for a missing one.
pub(crate) fn header(parts: &http::request::Parts, name: header::HeaderName) -> Cow<'_, str> {
    parts.headers.get(name).map_or(Cow::Borrowed(""), |v| String::from_utf8_lossy(v.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_warnings_are_cut() {
        let check = |lengths: &[usize], want: &[usize]| {
            let warnings: Vec<String> = lengths.iter().map(|length| "ä".repeat(*length)).collect();
            let sent: Vec<usize> = fitting(&warnings).iter().map(|text| text.chars().count()).collect();
            assert_eq!(sent, want, "{lengths:?}");
        };
        check(&[], &[]);
        check(&[4096], &[4096]);
        check(&[4097], &[256]);
        check(&[10, 0, 4086], &[10, 4086]);
        check(&[10, 4087, 3], &[10, 256, 3]);
        check(&[200; 20], &[200; 20]);
        check(&[200; 21], &[200; 21]);
        check(&[200; 30], &[200; 21]);
        check(&[300; 30], &[256; 16]);
        let control = ["a\tb".to_owned(), "c".to_owned()];
        assert_eq!(fitting(&control), ["c"]);
    }
}
