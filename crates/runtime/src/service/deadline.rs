//! The time that a caller gives a call.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

/// The header with that time.
const HEADER: &str = "grpc-timeout";

/// A service whose calls end with `DEADLINE_EXCEEDED` when their time is over, as those of other gRPC servers do. The
/// transport below would say `CANCELLED`; it looks at the same header later, so this one is always first.
#[derive(Debug, Clone)]
pub(super) struct Deadline<S>(pub(super) S);

impl<S: NamedService> NamedService for Deadline<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Deadline<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = limit(request.headers());
        let call = self.0.call(request);
        let Some(limit) = limit else { return Box::pin(call) };
        let bounded = tokio::time::timeout(limit, call);
        Box::pin(async move {
            let late = |_| Ok(Status::deadline_exceeded("context deadline exceeded").into_http());
            bounded.await.unwrap_or_else(late)
        })
    }
}

/// The time in a call's headers: at most eight digits and a unit, by gRPC's protocol. One that cannot be read is none.
fn limit(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(HEADER)?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::HeaderValue;
    use tonic::Code;

    use super::*;

    #[test]
    fn times_of_calls() {
        let check = |value: &str, expected: Option<Duration>| {
            let headers = [(http::HeaderName::from_static(HEADER), HeaderValue::from_str(value).unwrap())];
            assert_eq!(limit(&HeaderMap::from_iter(headers)), expected, "{value}");
        };
        check("2H", Some(Duration::from_hours(2)));
        check("3M", Some(Duration::from_mins(3)));
        check("00000004S", Some(Duration::from_secs(4)));
        check("5m", Some(Duration::from_millis(5)));
        check("6u", Some(Duration::from_micros(6)));
        check("99999999n", Some(Duration::from_nanos(99_999_999)));
        for bad in ["", "S", "5", "5s", "-5S", "+5S", "5.5S", "123456789S"] {
            check(bad, None);
        }
        assert_eq!(limit(&HeaderMap::new()), None);
    }

    /// A service that never answers, or at once.
    struct Fake(bool);

    impl Service<Request<Body>> for Fake {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<Response<Body>, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            if self.0 { Box::pin(async { Ok(Status::ok("").into_http()) }) } else { Box::pin(pending()) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_longer() {
        for (answers, expected) in [(true, Code::Ok), (false, Code::DeadlineExceeded)] {
            let mut request = Request::new(Body::empty());
            request.headers_mut().insert(HEADER, HeaderValue::from_static("10S"));
            let before = tokio::time::Instant::now();
            let answer = Deadline(Fake(answers)).call(request).await.unwrap();
            let status = Status::from_header_map(answer.headers()).unwrap();
            assert_eq!(status.code(), expected);
            let waited = if answers { Duration::ZERO } else { Duration::from_secs(10) };
            assert_eq!(before.elapsed().as_secs(), waited.as_secs());
        }
    }
}
