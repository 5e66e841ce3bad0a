//! A server that an APIService names: whether it answers, and what it says of itself. Each has a task of its own, which
//! ends with the APIService.

use std::sync::Arc;
use std::time::Duration;

use access::reader::Reader as _;
use api::go::quote;
use api::{Object, Text};
use client::{Backoff, Transport};
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use http::StatusCode;
use storage::{Batch, Scope, WatchOptions, WatchStart, Watcher};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::availability::{OF_SERVICE, SERVICES, SLICES, check_now};
use super::calls;
use super::documents::{Documents, Reader};
use super::metrics::Metrics;
use super::state::Condition;
use crate::aggregated::{Backend, aggregator, probe};
use crate::objects::Objects;

/// After what time a server that answers is asked again; upstream's.
const AGAIN: Duration = Duration::from_secs(30);
/// After what time its documents are read again; upstream's.
const READ_AGAIN: Duration = Duration::from_mins(1);
/// How long it may take to answer; upstream's.
const TIME: Duration = Duration::from_secs(5);
/// How often it is asked before it counts as gone; upstream's.
const ATTEMPTS: usize = 5;

/// The findings about a server.
pub(super) struct Report {
    pub(super) name: Text,
    /// The number of the task that found it out.
    pub(super) task: u64,
    pub(super) documents: Documents,
}

/// The surroundings of all servers.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) objects: Arc<Objects>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) metrics: Metrics,
    pub(super) reports: mpsc::Sender<Report>,
}

/// A server that is followed.
pub(super) struct Remote {
    pub(super) around: Surroundings,
    pub(super) name: Text,
    pub(super) uid: Text,
    pub(super) group: Text,
    pub(super) version: Text,
    pub(super) backend: Arc<Backend>,
    pub(super) task: u64,
}

impl Remote {
    /// Follows the server for good.
    pub(super) async fn follow(self) {
        let mut failures = Backoff::new(Duration::from_millis(100), AGAIN);
        let mut reader = Reader::new(Arc::clone(&self.backend), self.group.clone(), self.version.clone());
        let mut unread = Backoff::new(Duration::from_millis(500), READ_AGAIN);
        let mut read_at: Option<Instant> = None;
        let mut told = None;
        let mut changes = Changes::default();
        loop {
            // Changes from here on are looked at again.
            changes.begin(&self.around.objects, &self.backend);
            let condition = self.check().await;
            let passed = condition.as_ref().is_some_and(|c| c.status == "True");
            let written = match &condition {
                Some(condition) => self.write(condition).await,
                None => true,
            };
            if passed {
                if read_at.is_none_or(|at| at <= Instant::now()) {
                    let pause = if self.read(&mut reader).await {
                        unread.reset();
                        jittered(READ_AGAIN)
                    } else {
                        unread.delay()
                    };
                    read_at = Some(Instant::now() + pause);
                }
            } else {
                read_at = None;
                reader.outdated();
            }
            if told.as_ref() != Some(&reader.known) {
                let documents = reader.known.clone();
                let report = Report { name: self.name.clone(), task: self.task, documents };
                if self.around.reports.send(report).await.is_err() {
                    return;
                }
                told = Some(reader.known.clone());
            }
            let until = if passed && written {
                failures.reset();
                let again = Instant::now() + jittered(AGAIN);
                read_at.map_or(again, |read| read.min(again))
            } else {
                Instant::now() + failures.delay()
            };
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Reads the documents; whether all could be read.
    async fn read(&self, reader: &mut Reader) -> bool {
        let discovered = reader.discover().await;
        let described = reader.describe().await;
        for error in [&discovered, &described].into_iter().filter_map(|r| r.as_ref().err()) {
            tracing::debug!(name = %self.name, %error, "a document of an aggregated API server cannot be read");
        }
        discovered.is_ok() && described.is_ok()
    }

    /// The condition of now; none if that cannot be told.
    async fn check(&self) -> Option<Condition> {
        let endpoint = self.backend.endpoint();
        let host = match check_now(&*self.around.objects, endpoint) {
            Ok(host) => host,
            Err(condition) => return Some(condition),
        };
        if let Some(error) = self.backend.defect() {
            tracing::warn!(name = %self.name, %error, "an aggregated API server cannot be asked");
            return None;
        }
        let path = self.path();
        let url = format!("https://{host}:{}{path}", endpoint.port);
        // Upstream asks five times at once, and one answer is enough.
        let Err(mut error) = self.ask(&path, &url).await else {
            return Some(Condition::good("Passed", "all checks passed"));
        };
        self.backend.forget_connections();
        for answer in join_all((1..ATTEMPTS).map(|_| self.ask(&path, &url))).await {
            match answer {
                Ok(()) => return Some(Condition::good("Passed", "all checks passed")),
                Err(other) => error = other,
            }
        }
        Some(Condition::bad("FailedDiscoveryCheck", error))
    }

    /// The path that every such server must serve.
    fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    async fn ask(&self, path: &str, url: &str) -> Result<(), String> {
        let failed = |why: String| format!("failing or missing response from {url}: {why}");
        match probe(&self.backend, path, &aggregator(), TIME).await {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(failed(bad_status(url, status))),
            Err(why) => Err(failed(format!("Get {}: {why}", quote(url)))),
        }
    }

    /// Writes the condition; whether it is there.
    async fn write(&self, condition: &Condition) -> bool {
        let available = condition.status == "True";
        self.around.metrics.is(&self.name, available);
        let stored = self.around.objects.get(calls::API_SERVICES.names(), "", &self.name);
        let known = stored.as_deref().and_then(super::state::ApiService::of);
        if known.as_ref().and_then(|api| api.condition.as_ref()) == Some(condition) {
            return true;
        }
        let was_available = known.is_some_and(|api| api.is_available());
        let now = self.around.objects.now();
        let at = (self.name.as_str(), self.uid.as_str());
        match calls::write(&*self.around.transport, at, condition, &now).await {
            Ok(()) => {
                if was_available && !available {
                    self.around.metrics.lost(&self.name, &condition.reason);
                }
                true
            }
            Err(error) => {
                tracing::warn!(name = %self.name, %error, "cannot write the condition of an APIService");
                false
            }
        }
    }
}

fn bad_status(url: &str, status: StatusCode) -> String {
    format!("bad status from {url}: {}", status.as_u16())
}

/// A time up to a tenth longer than this, so that many do not come together.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 + fastrand::f64() / 10.0)
}

/// The changes of a Service and of where it leads.
#[derive(Default)]
struct Changes {
    service: Option<Watcher>,
    slices: Option<Watcher>,
    name: String,
}

impl Changes {
    /// Watches from now on what is not watched.
    fn begin(&mut self, objects: &Objects, backend: &Backend) {
        let to = backend.endpoint();
        self.name.clone_from(&to.name);
        let watch = |resource, name: &str| {
            let id = objects.id(resource)?;
            let scope = Scope { namespace: to.namespace.as_str().into(), name: name.into(), field: None };
            let start = WatchStart::After(objects.store.current(id));
            objects.store.watch(id, scope, start, WatchOptions::default()).ok()
        };
        if self.service.is_none() {
            self.service = watch(SERVICES, &to.name);
        }
        if self.slices.is_none() {
            self.slices = watch(SLICES, "");
        }
        // Changes until now are seen by those who look now.
        while self.service.as_mut().is_some_and(|w| matches!(w.next().now_or_never(), Some(Some(Ok(_))))) {}
        while self.slices.as_mut().is_some_and(|w| matches!(w.next().now_or_never(), Some(Some(Ok(_))))) {}
    }
    /// Returns once the Service may lead elsewhere.
    async fn next(&mut self) {
        let name = self.name.as_str();
        let all = |_: &Object| true;
        let own = |slice: &Object| slice.label(OF_SERVICE) == Some(name);
        tokio::select! {
            () = changed(&mut self.service, all) => {}
            () = changed(&mut self.slices, own) => {}
        }
    }
}

/// Returns once one of the objects changed that matter; never if nothing is watched.
async fn changed(watcher: &mut Option<Watcher>, matters: impl Fn(&Object) -> bool) {
    while let Some(events) = watcher {
        match events.next().await {
            Some(Ok(Batch::Events(events))) if events.iter().any(|e| matters(&e.object)) => return,
            Some(Ok(_)) => {}
            // It begins again when somebody looks next.
            Some(Err(_)) | None => *watcher = None,
        }
    }
    std::future::pending::<()>().await;
}
