//! `/debug/flags/v`: the log's verbosity, changed while the kubelet runs.

use component::logging::{self, Routing};
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serving::answer::full;
use serving::{Body, Failure};

use crate::config::Config;

/// The longest number that is read, in bytes.
const LONGEST: usize = 64;

/// Sets the verbosity that a request has in its body; upstream takes no other method, either.
///
/// # Errors
/// It is not to be changed here.
pub(super) async fn verbosity(
    config: &Config,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let method = request.method().clone();
    // A client that is answered before all of it was heard may not see the answer.
    let body = Limited::new(request.into_body(), LONGEST).collect().await;
    if !config.debug_flags_handler {
        return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "flags endpoint is disabled."));
    }
    if method != Method::PUT {
        return Ok(plain(StatusCode::NOT_ACCEPTABLE, "unsupported http method"));
    }
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return Ok(plain(StatusCode::BAD_REQUEST, &format!("error reading request body: {error}")));
        }
    };
    let text = String::from_utf8_lossy(&body);
    let read = number(&text).and_then(|number| {
        let held_back = |routing: &Routing| routing.split && routing.buffer > 0;
        // DIFFERENCE: each change would begin another thread that writes what is held back.
        if held_back(&config.logging.text) || held_back(&config.logging.json) {
            let why = "it cannot be changed while lines are held back; set infoBufferSize to 0";
            return Err(format!("failed set klog.logging.verbosity {text}: {why}"));
        }
        Ok(number)
    });
    Ok(match read {
        Ok(verbosity) => {
            logging::apply(&logging::Config { verbosity, ..config.logging.clone() });
            plain(StatusCode::OK, &format!("successfully set klog.logging.verbosity to {text}"))
        }
        Err(why) => plain(StatusCode::BAD_REQUEST, &why),
    })
}

/// Reads a verbosity as Go does.
fn number(text: &str) -> Result<u32, String> {
    let number = if text.starts_with('+') { "+".parse() } else { text.parse::<u32>() };
    let number = number.map_err(|why| api::go::no_integer("ParseUint", text, &why))?;
    if i32::try_from(number).is_err() {
        let why = format!("strconv.ParseInt: parsing {text:?}: value out of range");
        return Err(format!("failed set klog.logging.verbosity {text}: {why}"));
    }
    Ok(number)
}

fn plain(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("{text}\n")));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosities_are_numbers() {
        for (text, want) in [
            ("4", Ok(4)),
            ("0", Ok(0)),
            ("", Err("strconv.ParseUint: parsing \"\": invalid syntax")),
            ("+4", Err("strconv.ParseUint: parsing \"+4\": invalid syntax")),
            ("-1", Err("strconv.ParseUint: parsing \"-1\": invalid syntax")),
            ("4\n", Err("strconv.ParseUint: parsing \"4\\n\": invalid syntax")),
            ("4294967296", Err("strconv.ParseUint: parsing \"4294967296\": value out of range")),
            (
                "4294967295",
                Err(
                    "failed set klog.logging.verbosity 4294967295: strconv.ParseInt: parsing \"4294967295\": value out of range",
                ),
            ),
        ] {
            assert_eq!(number(text), want.map_err(str::to_owned), "{text:?}");
        }
    }
}
