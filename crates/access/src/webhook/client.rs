//! The client itself.

use std::time::Duration;

use bytes::Bytes;
use client::Shown;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::Full;

use super::address::{ClientConfig, Target};
use super::answer;
use super::connection::{Answer, Connection};
use super::credentials::Credentials;
use super::defect::Failure;
use super::error::CallError;
use super::network::Network;
use super::own;
use super::pool::{Pool, Pools};
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
        if let Some((call, own)) = own::call(to, &body).zip(network.own()) {
            let status = |status| CallError::Status(Box::new(status));
            let call = call.map_err(status)?;
            let answer = tokio::time::timeout(timeout, network.call_own(own, call)).await;
            return answer.map_err(|_| failed("context deadline exceeded".into()))?.map_err(status);
        }
        let pool = self.pools.of(to, || {
            let caller = self.credentials.of(&target, &to.ca_bundle)?;
            Ok((tls::connector(to, &target, caller.certificate().cloned())?, caller))
        });
        let pool =
            pool.map_err(|why| CallError::Failed(format!("could not get REST client: {why}").into()))?;
        let exchange = async {
            let shown = pool.caller().prepare().await?;
            let version = pool.caller().version();
            let request = || request(&url, &target.authority(), &shown, &body);
            let limit = SLACK.saturating_add(body.len().saturating_mul(4));
            let answer = pool.exchange((network, &target, version), request, limit).await?;
            if answer.0.status == StatusCode::UNAUTHORIZED {
                pool.caller().refused(&shown).await;
            }
            Ok::<_, Failure>(answer)
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

impl Pool {
    /// Sends a request on a kept connection, or else on a new one, and keeps that.
    async fn exchange(
        &self,
        (network, target, version): (&Network, &Target<'_>, u64),
        request: impl Fn() -> Result<Request<Full<Bytes>>, String>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        while let Some(mut kept) = self.take(version) {
            if let Some(answer) = kept.send(request()?, limit).await {
                return answer.inspect(|_| self.keep(kept, version)).map_err(Failure::from);
            }
        }
        // On the heap: the state of a handshake is large, and most calls need none.
        let mut fresh = Box::pin(Connection::open(network, target, self.tls())).await?;
        let answer = fresh.send(request()?, limit).await.ok_or("EOF")?;
        answer.inspect(|_| self.keep(fresh, version)).map_err(Failure::from)
    }
}

fn request(url: &str, authority: &str, shown: &Shown, body: &Bytes) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(HOST, authority)
        .header(USER_AGENT, "kube-apiserver-admission")
        .header(ACCEPT, "application/json, */*")
        .header(CONTENT_TYPE, "application/json");
    if let Some(headers) = request.headers_mut() {
        shown.write(headers);
    }
    request.body(Full::new(body.clone())).map_err(|e| e.to_string())
}
