//! Counts the requests of a client, as upstream's `rest_client_*` metrics have them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use bytes::Bytes;
use component::metrics::{Histogram, Page};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::remote::wire;
use crate::transport::{Call, ListAnswer, Transport, Verb, WatchEvent};

const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const BYTES: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

#[derive(Debug, Default)]
struct Counts {
    /// By code, server and method.
    requests: BTreeMap<(u16, Arc<str>, String), u64>,
    /// By server and method: how long, how large.
    took: BTreeMap<(Arc<str>, String), [Histogram; 3]>,
}

/// The requests of clients so far. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<Mutex<Counts>>);

impl Requests {
    /// Counts an answer of a server: its code, how long it took, and the sizes of both bodies in bytes.
    fn count(&self, host: &Arc<str>, verb: Verb, code: u16, took: Duration, sizes: [usize; 2]) {
        let method = wire(verb).0.to_string();
        let mut counts = self.0.lock();
        *counts.requests.entry((code, Arc::clone(host), method.clone())).or_default() += 1;
        let [seconds, sent, received] = counts
            .took
            .entry((Arc::clone(host), method))
            .or_insert_with(|| [Histogram::new(SECONDS), Histogram::new(BYTES), Histogram::new(BYTES)]);
        seconds.observe(took.as_secs_f64());
        sent.observe(sizes[0] as f64);
        received.observe(sizes[1] as f64);
    }

    /// Writes all of them, and the runs of credential plugins.
    pub fn write(&self, page: &mut Page) {
        let counts = self.0.lock();
        let name = "rest_client_requests_total";
        let help = "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.";
        if !counts.requests.is_empty() {
            page.metric(name, "counter", help);
        }
        for ((code, host, method), n) in &counts.requests {
            let code = if *code == 0 { "<error>".to_owned() } else { code.to_string() };
            page.value(name, &[("code", &code), ("host", host), ("method", method)], *n as f64);
        }
        let of = [
            (
                "rest_client_request_duration_seconds",
                "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
            ),
            (
                "rest_client_request_size_bytes",
                "[ALPHA] Request size in bytes. Broken down by verb and host.",
            ),
            (
                "rest_client_response_size_bytes",
                "[ALPHA] Response size in bytes. Broken down by verb and host.",
            ),
        ];
        for (at, (name, help)) in of.into_iter().enumerate() {
            if !counts.took.is_empty() {
                page.metric(name, "histogram", help);
            }
            for ((host, method), all) in &counts.took {
                page.histogram(name, &[("host", host), ("verb", method)], &all[at]);
            }
        }
        crate::exec::counts::write(page);
    }
}

/// A transport whose requests are counted.
pub(crate) struct Counted {
    pub(crate) inner: Arc<dyn Transport>,
    pub(crate) host: Arc<str>,
    pub(crate) requests: Requests,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

/// The code of an answer; 0 where there was none.
fn code<T>(verb: Verb, answer: &Result<T, Status>) -> u16 {
    match answer {
        Ok(_) if verb == Verb::Create => 201,
        Ok(_) => 200,
        Err(status) => status.code,
    }
}

impl Counted {
    async fn count<T>(
        &self,
        (verb, sent): (Verb, usize),
        call: BoxFuture<'_, Result<T, Status>>,
        size: impl Fn(&T) -> usize,
    ) -> Result<T, Status> {
        let began = Instant::now();
        let answer = call.await;
        let received = answer.as_ref().map(size).unwrap_or_default();
        self.requests.count(&self.host, verb, code(verb, &answer), began.elapsed(), [sent, received]);
        answer
    }
}

impl Transport for Counted {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        let of = (call.verb, call.body.len());
        self.count(of, self.inner.call(call), Bytes::len).boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        let of = (call.verb, call.body.len());
        self.count(of, self.inner.list(call), |list| list.items.iter().map(Bytes::len).sum()).boxed()
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        self.count((Verb::Get, 0), self.inner.raw(path), Bytes::len).boxed()
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        let of = (call.verb, call.body.len());
        self.count(of, self.inner.watch(call), |_| 0).boxed()
    }
    fn server(&self) -> Option<&str> {
        self.inner.server()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::transport::Resource;

    /// Answers with four bytes, or that nothing is there.
    struct Server;

    impl Transport for Server {
        fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
            let found = call.name != "missing";
            let answer = if found {
                Ok(Bytes::from_static(b"null"))
            } else {
                Err(Status::not_found("", "pods", "missing"))
            };
            async move { answer }.boxed()
        }
        fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
            async { Err(Status::bad_request("")) }.boxed()
        }
        fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
            async { Ok(Bytes::new()) }.boxed()
        }
        fn watch(
            &self,
            _: Call,
        ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
            async { Err(Status::bad_request("")) }.boxed()
        }
    }

    #[tokio::test]
    async fn requests_are_counted_by_method_and_code() {
        let client = Client::new(Arc::new(Server), "test").counted();
        let pods = || Resource { group: "".into(), version: "v1".into(), plural: "pods".into() };
        for (verb, name) in
            [(Verb::Get, "a"), (Verb::Get, "missing"), (Verb::Create, "a"), (Verb::StrategicPatch, "a")]
        {
            let mut call = Call::new(verb, pods(), "n", name, "");
            call.body = Bytes::from(vec![0; if verb == Verb::Create { 300 } else { 0 }]);
            let _ = client.transport().call(call).await;
        }
        let _ = client.transport().raw("/version").await;
        let mut page = Page::default();
        client.requests().unwrap().write(&mut page);
        let text = page.text();
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"in-process\",method=\"GET\"} 2",
            "rest_client_requests_total{code=\"404\",host=\"in-process\",method=\"GET\"} 1",
            "rest_client_requests_total{code=\"201\",host=\"in-process\",method=\"POST\"} 1",
            "rest_client_request_duration_seconds_count{host=\"in-process\",verb=\"PATCH\"} 1",
            "rest_client_request_size_bytes_bucket{host=\"in-process\",verb=\"POST\",le=\"256\"} 0",
            "rest_client_response_size_bytes_sum{host=\"in-process\",verb=\"POST\"} 4",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(Client::new(Arc::new(Server), "test").requests().is_none());
    }
}
