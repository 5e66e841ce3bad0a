//! The forms of answers.

use api::zpages::{Answer, Asked};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT, WARNING};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};

/// The error that ends a body too early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// An answer's body.
pub type Body = http_body_util::combinators::BoxBody<Bytes, BoxError>;

/// The media type of a plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// An answer of a media type.
pub fn typed(bytes: impl Into<Bytes>, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A plain text, with a status.
pub fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = typed(text.into().into_bytes(), TEXT);
    *response.status_mut() = code;
    response
}

/// The way in which a client asks for a page that tells of a component. `pretty` is that parameter of its query.
pub fn asked<'a>(headers: &'a HeaderMap, pretty: Option<&'a str>) -> Asked<'a> {
    let header = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    Asked { accept: header(ACCEPT), user_agent: header(USER_AGENT), pretty }
}

/// A page that tells of a component.
pub fn page(answer: Answer) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(answer.body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(warning) = answer.warning.and_then(|text| HeaderValue::try_from(text).ok()) {
        response.headers_mut().insert(WARNING, warning);
    }
    response
}

/// A body of known bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// An empty body.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A refusal: a status and a plain text, as upstream's components answer.
#[derive(Debug)]
pub struct Failure {
    /// Status.
    pub code: StatusCode,
    /// Text.
    pub text: String,
}

impl Failure {
    /// A refusal with a status and a text.
    pub fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
    /// A request that makes no sense.
    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
    /// The refusal of a path that does not exist.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "404 page not found\n")
    }
    /// The refusal as an answer.
    pub fn into_response(self) -> Response<Body> {
        text(self.code, self.text)
    }
}
