//! The client of a kubelet that runs without an API server.

use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use client::transport::{Call, ListAnswer, Transport, WatchEvent};
use client::{Client, Clients};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Refuses every request: nobody is there who could answer.
struct Nobody;

fn refusal() -> Status {
    Status::failure(
        503,
        "ServiceUnavailable",
        "this kubelet runs without an API server: it has no --kubeconfig",
    )
}

impl Transport for Nobody {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(refusal()) }.boxed()
    }

    fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async { Err(refusal()) }.boxed()
    }

    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(refusal()) }.boxed()
    }

    fn watch(
        &self,
        _: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        async { Err(refusal()) }.boxed()
    }
}

/// Clients that reach nobody.
pub(super) fn clients() -> Clients {
    let client = Client::new(Arc::new(Nobody), "kubelet");
    Clients::new(move |_| client.clone())
}
