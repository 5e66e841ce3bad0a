//! The head of an answer.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

/// The part of an answer's head that matters.
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) content_type: String,
    pub(super) retry_after: i32,
}

impl Head {
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok()).unwrap_or_default();
        let retry_after = text(RETRY_AFTER).parse().unwrap_or_default();
        Self { status, content_type: text(CONTENT_TYPE).to_owned(), retry_after }
    }
}
