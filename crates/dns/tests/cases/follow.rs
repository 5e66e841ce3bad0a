//! The server follows an API server, and goes on without it.

use api::Status;
use bytes::Bytes;
use client::{Call, Client, Clients, EventKind, ListAnswer, Transport, WatchEvent};
use component::Clock;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;

use super::*;

/// An API server with one Service, which is there or not.
struct Api(watch::Receiver<bool>);

fn down() -> Status {
    Status::failure(503, "ServiceUnavailable", "down")
}

impl Transport for Api {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(down()) }.boxed()
    }
    fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async { Err(down()) }.boxed()
    }
    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(down()) }.boxed()
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        let meta = |name: &str| json!({"name": name, "namespace": "ns", "resourceVersion": "5"});
        let object = match call.resource.plural.as_str() {
            "namespaces" => Some(json!({"metadata": {"name": "ns", "resourceVersion": "5"}})),
            "services" => Some(json!({"metadata": meta("s"), "spec": {"clusterIP": "10.0.0.1"}})),
            "endpointslices" => None,
            other => panic!("nobody needs {other}"),
        };
        let mut there = self.0.clone();
        if !*there.borrow() {
            return async { Err(down()) }.boxed();
        }
        let end = json!({"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}});
        let first = object.map(|o| WatchEvent { kind: EventKind::Added, object: o.to_string().into() });
        let end = WatchEvent { kind: EventKind::Bookmark, object: end.to_string().into() };
        let gone = async move {
            // A test that is over is an outage, too.
            let _ = there.wait_for(|there| !there).await;
            Err(down())
        };
        let events = stream::iter(first.into_iter().chain([end])).map(Ok);
        async { Ok(events.chain(gone.into_stream()).boxed()) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_api_server() {
    let (api, there) = watch::channel(false);
    let clients = Clients::new(move |user| {
        assert_eq!(user, dns::USER);
        Client::new(Arc::new(Api(there.clone())), "test")
    });
    let shutdown = Shutdown::new();
    let server = dns::run(config(), &clients, Clock::system(), &shutdown).await.unwrap();
    let run = Run { server, shutdown };
    let packet = |name: &str| question(1, name, 1, None);
    let ask = async |name: &str| Words::from(&udp(run.address(), &packet(name)).await[..]);
    let ready = || run.server.health().answers().iter().all(|(_, answer)| answer.is_ok());
    assert_eq!((ask("s.ns.svc.cluster.local").await.rcode.as_str(), ready()), ("SERVFAIL", false));
    api.send_replace(true);
    let synced = async {
        while !run.zone().is_synced() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(10), synced).await.expect("the state comes");
    for there in [true, false] {
        api.send_replace(there);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(ask("s.ns.svc.cluster.local").await.answers.len(), 1, "{there}");
        assert_eq!((ask("none.ns.svc.cluster.local").await.rcode.as_str(), ready()), ("NXDOMAIN", true));
    }
    run.shutdown.finish().await;
}
