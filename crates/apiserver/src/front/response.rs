//! Short answers as HTTP: texts, errors, and the warnings of any answer.

use std::borrow::Cow;

use api::Status;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};

use super::body::{Body, full};
use crate::encoder::encode_status;
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
pub(crate) fn status_response(status: &Status, form: Form) -> Response<Body> {
    let mut response = Response::new(full(encode_status(status, form)));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.format.media_type()));
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
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
