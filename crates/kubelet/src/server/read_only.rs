//! The port on which everybody may read, without TLS, what the kubelet tells of Pods and itself; upstream's `readOnlyPort`.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serving::{Body, Failure, ServeError, plain};

use super::health::Health;
use super::query::{Query, unescape};
use super::reads::{methods, read, read_pods};
use super::served::Served;

/// Serves until the shutdown.
///
/// # Errors
/// The port cannot be used.
pub(super) async fn serve(
    served: Served,
    health: Arc<Health>,
    address: SocketAddr,
) -> Result<(), ServeError> {
    tracing::warn!(%address, "everybody who reaches this port may read what Pods run here");
    let shutdown = served.shutdown.clone();
    let handler = move |request: Request<Incoming>| {
        let (served, health) = (served.clone(), health.clone());
        async move { answer(&served, &health, &request).await.unwrap_or_else(Failure::into_response) }.boxed()
    };
    let bound = plain::serve_requests(Arc::new(handler), address, &shutdown).await;
    bound.map(drop).map_err(|source| ServeError::Listen { address, source })
}

async fn answer(
    served: &Served,
    health: &Health,
    request: &Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let path = unescape(request.uri().path()).ok_or_else(|| Failure::bad_request("invalid URL escape"))?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    if let Some(answer) = read(served, health, &parts, &query).await {
        return answer;
    }
    if let Some(answer) = read_pods(served, &parts, &query).await {
        return answer;
    }
    Err(refusal(&parts))
}

/// The refusal of anything else. Commands, streams and logs are only for those who show who they are.
fn refusal(parts: &[&str]) -> Failure {
    if methods(parts).is_some() {
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.")
    } else {
        Failure::not_found()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_reading_is_there() {
        let check = |path: &str, code: u16| {
            let parts: Vec<&str> = path.split('/').collect();
            assert_eq!(refusal(&parts).into_response().status().as_u16(), code, "{path}");
        };
        check("exec/n/p/c", 405);
        check("run/n/p/c", 405);
        check("containerLogs/n/p/c", 405);
        check("logs/x", 405);
        check("runningpods", 405);
        check("configz", 404);
        check("other", 404);
    }
}
