//! Requests of components in this process for what another server answers: the garbage collector, namespaces and
//! quotas see aggregated resources as any others.

use std::time::Duration;

use access::UserInfo;
use api::Status;
use bytes::Bytes;
use client::remote::{LIST_LIMIT, OBJECT_LIMIT, collect, events, path_of, read_list, wire};
use client::{Call, ListAnswer, WatchEvent};
use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, Response};

use crate::aggregated::{Answered, Elsewhere, Outgoing, name_caller, no_body, whole};

/// How long the head of an answer may take, as for any request.
const HEAD_TIME: Duration = Duration::from_mins(1);

/// A component of this process that asks another server.
pub(crate) struct Relay<'r> {
    /// The server.
    pub(crate) other: &'r Elsewhere,
    /// The component's identity.
    pub(crate) user: &'r UserInfo,
    /// Its name, as user agents have one.
    pub(crate) agent: &'r str,
}

fn unavailable() -> Status {
    let message = "the server is currently unable to handle the request";
    Status::failure(503, "ServiceUnavailable", message)
}

impl Relay<'_> {
    async fn send(&self, mut request: Request<Outgoing>) -> Result<Response<Answered>, Status> {
        if !self.other.available {
            return Err(unavailable());
        }
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Ok(agent) = HeaderValue::from_str(self.agent) {
            headers.insert(USER_AGENT, agent);
        }
        name_caller(headers, self.user, true).map_err(Status::internal)?;
        match tokio::time::timeout(HEAD_TIME, self.other.backend.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => {
                let message = format!("error trying to reach service: {why}");
                Err(Status::failure(503, "ServiceUnavailable", message))
            }
            Err(_) => Err(Status::failure(504, "Timeout", "the other server gave no answer in time")),
        }
    }
    async fn call(&self, call: &Call) -> Result<Response<Answered>, Status> {
        let (method, content_type) = wire(call.verb);
        let body = if call.body.is_empty() { no_body() } else { whole(call.body.clone()) };
        let mut request = Request::builder().method(method).uri(path_of(call));
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        self.send(request.body(body).map_err(|e| Status::bad_request(e.to_string()))?).await
    }
    /// Asks for one object.
    pub(crate) async fn object(&self, call: &Call) -> Result<Bytes, Status> {
        collect(self.call(call).await?, OBJECT_LIMIT).await
    }
    /// Asks for a list.
    pub(crate) async fn list(&self, call: &Call) -> Result<ListAnswer, Status> {
        read_list(collect(self.call(call).await?, LIST_LIMIT).await?)
    }
    /// Asks for a watch.
    pub(crate) async fn watch(
        &self,
        call: &Call,
    ) -> Result<BoxStream<'static, Result<WatchEvent, Status>>, Status> {
        let answer = self.call(call).await?;
        if !answer.status().is_success() {
            return Err(collect(answer, OBJECT_LIMIT).await.err().unwrap_or_default());
        }
        Ok(events(answer.into_body()))
    }
    /// Asks for what is at a path.
    pub(crate) async fn raw(&self, path: &str) -> Result<Bytes, Status> {
        let request = Request::builder().uri(path).body(no_body());
        let request = request.map_err(|e| Status::bad_request(e.to_string()))?;
        collect(self.send(request).await?, OBJECT_LIMIT).await
    }
}
