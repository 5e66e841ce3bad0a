//! The client itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;

use super::address::ClientConfig;
use super::answer;
use super::connection::Connection;
use super::credentials::Credentials;
use super::defect::Failure;
use super::error::CallError;
use super::network::Network;
use super::pool::Pools;
use super::tls;

/// The time that a call has whose caller names none; upstream's.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The answer may be this much longer than four times the question.
///
/// DIFFERENCE: upstream reads an answer of any length. A whole object and a patch of it have room here.
const SLACK: usize = 3 << 20;

/// A client of webhooks, with the credentials that some of them get. It keeps its connections.
#[derive(Default)]
pub struct Webhooks {
    credentials: Credentials,
    pools: Pools,
}

impl Webhooks {
    /// A client that shows these credentials.
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, pools: Pools::default() }
    }

    /// Posts a JSON document, and returns the document that is answered with a code of success. Nothing of the call
    /// goes on after `timeout`.
    pub async fn post(
        &self,
        network: &Network,
        to: &ClientConfig,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let target = to.target().map_err(|why| CallError::Failed(why.into()))?;
        let url = target.url(timeout);
        let failed = |why: Failure| {
            network.webhooks.count(&why);
            CallError::Failed(why.after(&format!("Post {}: ", api::go::quote(&url))))
        };
        let exchange = async {
            let pool = self.pools.of(to, || tls::connector(to, &target, &self.credentials))?;
            let bearer = self.credentials.bearer(&target).await?;
            let request = || request(&url, &target.authority(), bearer.as_ref(), &body);
            let limit = SLACK.saturating_add(body.len().saturating_mul(4));
            while let Some(mut kept) = pool.take() {
                if let Some(answer) = kept.send(request()?, limit).await {
                    return answer.inspect(|_| pool.keep(kept)).map_err(Failure::from);
                }
            }
            let mut fresh = Connection::open(network, &target, pool.tls()).await?;
            let answer = fresh.send(request()?, limit).await.ok_or("EOF")?;
            answer.inspect(|_| pool.keep(fresh)).map_err(Failure::from)
        };
        let (head, body) = match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer.map_err(failed)?,
            Err(_) => return Err(failed("context deadline exceeded".into())),
        };
        let body = body.map_err(|why| {
            let why =
                format!("unexpected error when reading response body. Please retry. Original error: {why}");
            CallError::Failed(why.into())
        })?;
        if head.status.is_success() && head.status.as_u16() <= StatusCode::PARTIAL_CONTENT.as_u16() {
            return Ok(body);
        }
        Err(answer::error(head.status.as_u16(), &head.content_type, head.retry_after, &body))
    }
}

fn request(
    url: &str,
    authority: &str,
    bearer: Option<&HeaderValue>,
    body: &Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(HOST, authority)
        .header(USER_AGENT, "kube-apiserver-admission")
        .header(ACCEPT, "application/json, */*")
        .header(CONTENT_TYPE, "application/json");
    if let Some(bearer) = bearer {
        request = request.header(AUTHORIZATION, bearer);
    }
    request.body(Full::new(body.clone())).map_err(|e| e.to_string())
}
