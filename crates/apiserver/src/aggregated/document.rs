//! Documents of an aggregated server that the server reads for itself.

use std::sync::Arc;
use std::time::Duration;

use access::UserInfo;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::backend::{Backend, no_body};
use super::identity::name_caller;

/// A document, or why there is none.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The code of the answer.
    pub(crate) status: StatusCode,
    /// Its media type.
    pub(crate) content_type: String,
    /// Its tag, or "".
    pub(crate) etag: String,
    /// The document.
    pub(crate) body: Bytes,
}

/// Reads a document of at most `limit` bytes as a user, within a time; one that is still that of `etag` has the code
/// 304. Redirects are answers.
pub(crate) async fn get(
    backend: &Arc<Backend>,
    (path, accept, etag): (&str, &str, &str),
    user: &UserInfo,
    (limit, time): (usize, Duration),
) -> Result<Fetched, String> {
    let mut request =
        Request::builder().uri(path).header(ACCEPT, accept).header(USER_AGENT, "kube-apiserver");
    if !etag.is_empty() {
        request = request.header(IF_NONE_MATCH, etag);
    }
    let mut request = request.body(no_body()).map_err(|e| e.to_string())?;
    name_caller(request.headers_mut(), user, true)?;
    let exchange = async {
        let answer = backend.send(request).await.map_err(|e| e.to_string())?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, limit).collect().await.map_err(|e| {
            if e.is::<LengthLimitError>() {
                format!("{path} is longer than {limit} bytes")
            } else {
                e.to_string()
            }
        })?;
        Ok(Fetched {
            status: parts.status,
            content_type: text(&parts.headers, &CONTENT_TYPE),
            etag: text(&parts.headers, &ETAG),
            body: body.to_bytes(),
        })
    };
    match tokio::time::timeout(time, exchange).await {
        Ok(fetched) => fetched,
        Err(_) => Err("request timed out".into()),
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Asks for a path as a user, and returns the code of the answer, of which nothing else is read.
pub(crate) async fn probe(
    backend: &Arc<Backend>,
    path: &str,
    user: &UserInfo,
    time: Duration,
) -> Result<StatusCode, String> {
    let mut request = Request::builder().uri(path).header(USER_AGENT, "kube-apiserver");
    request = request.header(ACCEPT, "*/*");
    let mut request = request.body(no_body()).map_err(|e| e.to_string())?;
    name_caller(request.headers_mut(), user, true)?;
    match tokio::time::timeout(time, backend.send(request)).await {
        Ok(answer) => Ok(answer.map_err(|e| e.to_string())?.status()),
        Err(_) => Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into()),
    }
}
