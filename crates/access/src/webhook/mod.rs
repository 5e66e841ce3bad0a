//! The client of webhooks: HTTPS servers elsewhere that are asked while somebody waits for a request.
//!
//! A webhook is named by a URL or by a Service ([`ClientConfig`]). Its answers are bounded in time and size, its
//! connections are kept and bounded in number, and a call that ends early ends its connection. Errors have the texts of
//! upstream's client (`apiserver/pkg/util/webhook`), which people search for.

mod address;
mod answer;
mod connection;
mod credentials;
mod pool;
mod service;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;

pub use address::{Address, ClientConfig};
pub use answer::Document;
pub use credentials::{Credentials, CredentialsError};

use crate::reader::Reader;
use connection::Connection;
use pool::Pools;

/// The time that a call has whose caller names none; upstream's.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The answer may be this much longer than four times the question.
///
/// DIFFERENCE: upstream reads an answer of any length. A whole object and a patch of it have room here.
const SLACK: usize = 3 << 20;

/// Why a webhook gave no answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// It answered with an error.
    Status(Box<Status>),
    /// It did not answer, or what it answered cannot be read.
    Failed(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => f.write_str(&status.message),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// Says whether the server may connect to a backend of a Service.
pub type Guard = dyn Fn(SocketAddr) -> bool + Send + Sync;

/// The network as calls of webhooks see it: Services with their endpoints, and the authorities that the system trusts.
pub struct Network {
    reader: Arc<dyn Reader>,
    guard: Box<Guard>,
}

impl Network {
    /// The network of a cluster whose objects `reader` shows. Endpoints of Services are written by others than those
    /// who write webhooks, so `guard` is asked about each. A URL is taken as it is: its writer may read and change
    /// every request in any case, and a webhook beside the server is reached by loopback only.
    pub fn new(reader: Arc<dyn Reader>, guard: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { reader, guard: Box::new(guard) }
    }
}

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
        let target = to.target().map_err(CallError::Failed)?;
        let url = target.url(timeout);
        let failed = |why: String| CallError::Failed(format!("Post {}: {why}", api::go::quote(&url)));
        let exchange = async {
            let pool = self.pools.of(to, || tls::connector(to, &target, &self.credentials))?;
            let bearer = self.credentials.bearer(&target).await?;
            let request = || request(&url, &target.authority(), bearer.as_ref(), &body);
            let limit = SLACK.saturating_add(body.len().saturating_mul(4));
            while let Some(mut kept) = pool.take() {
                if let Some(answer) = kept.send(request()?, limit).await {
                    return answer.inspect(|_| pool.keep(kept));
                }
            }
            let mut fresh = Connection::open(network, &target, pool.tls()).await?;
            let answer = fresh.send(request()?, limit).await.ok_or("EOF")?;
            answer.inspect(|_| pool.keep(fresh))
        };
        let (head, body) = match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer.map_err(failed)?,
            Err(_) => return Err(failed("context deadline exceeded".to_owned())),
        };
        let body = body.map_err(|why| {
            let why =
                format!("unexpected error when reading response body. Please retry. Original error: {why}");
            CallError::Failed(why)
        })?;
        if head.status.is_success() && head.status.as_u16() <= StatusCode::PARTIAL_CONTENT.as_u16() {
            return Ok(body);
        }
        Err(answer::error(head.status.as_u16(), &head.content_type, head.retry_after, &body))
    }
}

/// The part of an answer's head that matters.
struct Head {
    status: StatusCode,
    content_type: String,
    retry_after: i32,
}

impl Head {
    fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok()).unwrap_or_default();
        let retry_after = text(RETRY_AFTER).parse().unwrap_or_default();
        Self { status, content_type: text(CONTENT_TYPE).to_owned(), retry_after }
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
