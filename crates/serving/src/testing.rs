//! An API server for tests that answers only single calls: reviews.

use api::Status;
use bytes::Bytes;
use client::{Call, ListAnswer, Transport, WatchEvent};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;

/// Answers the body of a call.
pub(crate) struct Reviewer<F>(pub(crate) F);

impl<F> Transport for Reviewer<F>
where
    F: Fn(Value) -> BoxFuture<'static, Result<Value, Status>> + Send + Sync + 'static,
{
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        let answer = (self.0)(serde_json::from_slice(&call.body).unwrap());
        async move { answer.await.map(|answer| Bytes::from(answer.to_string())) }.boxed()
    }
    fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async { Err(Status::bad_request("")) }.boxed()
    }
    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(Status::bad_request("")) }.boxed()
    }
    fn watch(
        &self,
        _: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        async { Err(Status::bad_request("")) }.boxed()
    }
}
