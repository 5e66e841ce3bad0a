//! The pages that tell of this server: `/statusz` and `/flagz`.

use std::collections::BTreeMap;

use api::zpages::{Asked, Running, flagz, statusz};
use component::Clock;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Response, StatusCode, header};
use jiff::Timestamp;

use crate::front::{Body, full, header as header_of};
use crate::version;

/// The component's name on the pages; upstream's.
const NAME: &str = "apiserver";

/// The facts of `/statusz` and `/flagz`, as far as these pages are served.
pub(crate) struct Told {
    /// Whether there is a `/statusz`.
    pub(crate) status: bool,
    /// The start of the server.
    pub(crate) started: Timestamp,
    /// The flags of the command line with their values, if there is a `/flagz`.
    pub(crate) flags: Option<BTreeMap<String, String>>,
}

/// The paths that are always there.
const PATHS: [&str; 17] = [
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/statusz",
    "/version",
];

/// Those of them that are served.
pub(crate) fn paths(told: &Told) -> Vec<&'static str> {
    let is_served = |path: &&str| match *path {
        "/flagz" => told.flags.is_some(),
        "/statusz" => told.status,
        _ => true,
    };
    PATHS.into_iter().filter(is_served).collect()
}

/// Answers one of the pages. `pretty` is that parameter of the query.
pub(crate) fn serve(
    told: &Told,
    clock: Clock,
    parts: &Parts,
    pretty: Option<&str>,
    path: &str,
) -> Option<Response<Body>> {
    let (accept, agent) = (header_of(parts, header::ACCEPT), header_of(parts, header::USER_AGENT));
    let asked = Asked { accept: &accept, user_agent: &agent, pretty };
    let answer = match path {
        "/statusz" if told.status => statusz(
            asked,
            &Running {
                component: NAME,
                version: version::git_version(),
                api_version: component::version::EMULATION,
                started: told.started,
                now: clock.now(),
                paths: &paths(told),
            },
        ),
        "/flagz" => flagz(asked, NAME, told.flags.as_ref()?),
        _ => return None,
    };
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    if let Some(warning) = answer.warning.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::WARNING, warning);
    }
    Some(response)
}
