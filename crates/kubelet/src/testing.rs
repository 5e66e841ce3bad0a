//! An API server of tests: it answers calls of single objects, and lists once; watches are not there.

use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use client::{Call, Client, ListAnswer, Transport, WatchEvent};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;

/// The answers of a test's API server.
pub(crate) trait Answers: Send + Sync + 'static {
    /// The answer to one call.
    fn answer(&self, call: &Call) -> Result<Value, Status>;

    /// The objects of a list.
    fn list(&self, _: &Call) -> Result<Vec<Value>, Status> {
        Err(not_found())
    }
}

/// A client of a server with these answers.
pub(crate) fn client(server: &Arc<impl Answers>) -> Client {
    Client::new(Arc::new(Answering(server.clone())), "")
}

/// The answer of a server that does not have what was asked for.
pub(crate) fn not_found() -> Status {
    Status::failure(404, "NotFound", "not found")
}

struct Answering<A>(Arc<A>);

impl<A: Answers> Transport for Answering<A> {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        let answer = self.0.answer(&call).map(|object| object.to_string().into());
        Box::pin(async { answer })
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        let answer = self.0.list(&call).map(|all| ListAnswer {
            resource_version: "1".into(),
            continue_token: String::new(),
            items: all.iter().map(|object| object.to_string().into()).collect(),
        });
        Box::pin(async { answer })
    }
    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        Box::pin(async { Err(not_found()) })
    }
    fn watch(
        &self,
        _: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        // A list is asked for instead.
        Box::pin(async { Err(Status::failure(400, "BadRequest", "there are no watches")) })
    }
}
