//! The answers of webhooks, as upstream's client reads them.

use api::codec::json;
use api::go::quote;
use api::status::{Cause, Details};
use api::{Map, Node, Status};

use super::error::CallError;

/// How much of an answer without a Status goes into an error.
const SHOWN: usize = 2048;

/// Upstream's error for an answer with a code of failure: the Status that it holds, or one made of the code.
pub(super) fn error(code: u16, content_type: &str, retry_after: i32, body: &[u8]) -> CallError {
    let status = serde_json::from_slice::<Status>(body).ok();
    let status = status.filter(|s| s.status == "Failure" && is_status(body));
    CallError::Status(Box::new(status.unwrap_or_else(|| of_code(code, content_type, retry_after, body))))
}

fn is_status(body: &[u8]) -> bool {
    let Ok(node) = json::decode_any(body) else { return false };
    let text = |key| node.as_map().and_then(|m| m.get(key)).map_or("", Node::as_str);
    text("kind") == "Status" && text("apiVersion") == "v1"
}

/// Upstream's `NewGenericServerResponse` for a POST.
fn of_code(code: u16, content_type: &str, retry_after_seconds: i32, body: &[u8]) -> Status {
    let is_text = content_type.is_empty() || content_type.trim_start().starts_with("text/");
    let shown = &body[..body.len().min(SHOWN)];
    let said = if is_text { String::from_utf8_lossy(shown).trim().to_owned() } else { "unknown".to_owned() };
    let (reason, message) = match code {
        409 => ("AlreadyExists", "the server reported a conflict".to_owned()),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        400 => ("BadRequest", "the server rejected our request for an unknown reason".to_owned()),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", said.clone()),
        406 if said.is_empty() || said == "unknown" => (
            "NotAcceptable",
            "the server was unable to respond with a content type that the client supports".to_owned(),
        ),
        406 => ("NotAcceptable", said.clone()),
        415 => ("UnsupportedMediaType", said.clone()),
        405 => {
            ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned())
        }
        422 => ("Invalid", "the server rejected our request due to an error in our request".to_owned()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        500.. => {
            let message =
                format!("an error on the server ({}) has prevented the request from succeeding", quote(&said));
            ("InternalError", message)
        }
        // A redirect, too.
        // DIFFERENCE: upstream follows redirects, so that who answers for a webhook has the server ask whatever the
        // server reaches (CVE-2020-8561, which is open).
        _ => (
            "",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    let mut status = Status::failure(code, reason, message);
    let cause = Cause { reason: "UnexpectedServerResponse".into(), message: said, field: String::new() };
    status.details =
        Some(Box::new(Details { causes: vec![cause], retry_after_seconds, ..Details::default() }));
    status
}

/// A document that a webhook answers: its kind is known, its content not yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The API version; that which was expected, where the document names none.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The whole document.
    pub content: Map,
}

/// The place in upstream's code where the kinds of these documents are registered, which its errors name.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";

impl Document {
    /// Reads a document that should be of `kind` and `group/version`; one of the same group's `other` version is told
    /// apart from something else. Where the document does not name kind or version, it is what is expected.
    pub fn read(
        body: &[u8],
        (group, version): (&str, &str),
        other: &str,
        kind: &str,
    ) -> Result<Self, CallError> {
        let failed = |why: String| Err(CallError::Failed(why.into()));
        let content = match json::decode_any(body) {
            Ok(Node::Map(content)) => content,
            Ok(_) => {
                let why = "json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
                return failed(format!("couldn't get version/kind; json parse error: {why}"));
            }
            Err(e) => return failed(format!("couldn't get version/kind; json parse error: {e}")),
        };
        let text = |key| content.get(key).map_or("", Node::as_str);
        let (api_version, named) = (text("apiVersion"), text("kind"));
        if api_version.split_once('/') == Some((group, version)) && named == kind {
            return Ok(Self { api_version: api_version.to_owned(), kind: named.to_owned(), content });
        }
        let expected = format!("{group}/{version}");
        let found_kind = Some(named).filter(|k| !k.is_empty()).unwrap_or(kind);
        let found = Some(api_version).filter(|v| !v.is_empty()).unwrap_or(&expected);
        let converting = |version: &str, found: &str| {
            format!("converting ({version}.{found}) to ({}.{kind}): unknown conversion", short(&expected))
        };
        if found_kind == "Status" && found == "v1" {
            return failed(converting("v1", "Status"));
        }
        if found_kind == kind && found == format!("{group}/{other}") {
            return failed(converting(other, kind));
        }
        if found_kind != kind || found != expected {
            return failed(format!(
                "no kind {} is registered for version {} in scheme {}",
                quote(found_kind),
                quote(found),
                quote(SCHEME)
            ));
        }
        Ok(Self { api_version: api_version.to_owned(), kind: named.to_owned(), content })
    }
}

/// The version of a `group/version`.
fn short(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        let check = |code: u16, kind: &str, body: &str, reason: &str, message: &str| {
            let CallError::Status(status) = error(code, kind, 0, body.as_bytes()) else { panic!("{code}") };
            assert_eq!(
                (status.code, status.reason.as_str(), status.message.as_str()),
                (code, reason, message)
            );
        };
        check(
            404,
            "text/plain",
            "404 page not found\n",
            "NotFound",
            "the server could not find the requested resource",
        );
        check(
            500,
            "text/plain; charset=utf-8",
            "oops\n",
            "InternalError",
            "an error on the server (\"oops\") has prevented the request from succeeding",
        );
        check(
            502,
            "application/json",
            "{}",
            "InternalError",
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        );
        check(403, "", "no", "Forbidden", "no");
        check(
            307,
            "text/html",
            "<a>",
            "",
            "the server responded with the status code 307 but did not return more information",
        );
        let own = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"mine","reason":"Expired","code":418}"#;
        let CallError::Status(status) = error(418, "application/json", 0, own.as_bytes()) else { panic!() };
        assert_eq!((status.message.as_str(), status.code, status.reason.as_str()), ("mine", 418, "Expired"));
    }

    #[test]
    fn documents() {
        let check = |body: &str, expected: Result<&str, &str>| {
            let read =
                Document::read(body.as_bytes(), ("admission.k8s.io", "v1"), "v1beta1", "AdmissionReview");
            let read = read.map(|d| d.api_version).map_err(|e| e.to_string());
            match (read, expected) {
                (Err(got), Err(expected)) => assert!(got.starts_with(expected), "{got}"),
                (got, expected) => assert_eq!(got.as_deref().map_err(String::as_str), expected),
            }
        };
        check(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#, Ok("admission.k8s.io/v1"));
        check("{}", Ok(""));
        check("garbage", Err("couldn't get version/kind; json parse error: "));
        check("[1]", Err("couldn't get version/kind; json parse error: "));
        check(
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}"#,
            Err("converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"),
        );
        check(
            r#"{"kind":"Status","apiVersion":"v1"}"#,
            Err("converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
        );
        check(
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            Err("no kind \"Pod\" is registered for version \"v1\" in scheme"),
        );
    }
}
