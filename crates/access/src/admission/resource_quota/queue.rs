//! The requests of each namespace that wait for its quotas.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, Text};
use client::{FromJson, ListParams};
use futures::FutureExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use objects::quota;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::check::{Ask, Quota, Refusal, check};
use super::config::LimitedResource;
use crate::admission::loopback::Loopback;
use crate::reader::{Reader, ResourceName};

/// The resource of quotas.
pub(super) const QUOTAS: ResourceName = ("", "resourcequotas");
/// The time that a request waits at most; upstream's.
const PATIENCE: Duration = Duration::from_secs(10);
/// The attempts at a reservation after the first, where others write the same quotas; upstream's number.
const RETRIES: usize = 3;

/// Where the quotas of a namespace are.
pub(super) struct Stock {
    pub(super) reader: Arc<dyn Reader>,
    pub(super) loopback: Loopback,
    pub(super) limited: Arc<[LimitedResource]>,
    pub(super) namespace: Text,
}

/// A request that may change what is used.
pub(super) struct Request {
    pub(super) ask: Ask,
    pub(super) dry_run: bool,
    pub(super) group: Text,
    pub(super) resource: Text,
    /// The name that errors show.
    pub(super) name: Text,
}

struct Waiting {
    request: Request,
    done: oneshot::Sender<Result<(), Status>>,
}

/// The requests that wait, by namespace. A namespace has an entry while a task works on it: that takes all of its
/// requests at a time, and those that come meanwhile are the next ones. There are no more of them than requests under
/// way.
#[derive(Clone, Default)]
pub(super) struct Queue(Arc<Mutex<HashMap<Text, Vec<Waiting>>>>);

impl Queue {
    /// Checks a request, and reserves what it takes.
    pub(super) async fn check(&self, stock: Stock, request: Request) -> Result<(), Status> {
        let (done, answer) = oneshot::channel();
        let waiting = Waiting { request, done };
        let namespace = stock.namespace.clone();
        let first = {
            let mut all = self.0.lock();
            let works = all.contains_key(&namespace);
            all.entry(namespace).or_default().push(waiting);
            !works
        };
        if first {
            // A task of its own: a request may be given up, and others wait for the work.
            tokio::spawn(self.clone().work(stock));
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Status::internal("resource quota evaluation failed")),
            Err(_) => Err(Status::internal("resource quota evaluation timed out")),
        }
    }

    async fn work(self, stock: Stock) {
        while let Some(waiting) = self.next(&stock.namespace) {
            // A panic costs these requests alone: their channels close.
            let settled = AssertUnwindSafe(stock.settle(waiting)).catch_unwind().await;
            if settled.is_err() {
                tracing::error!(namespace = %stock.namespace, "the evaluation of quotas panicked");
            }
        }
    }

    /// Takes all requests of a namespace; `None` if there are none, and the work ends.
    fn next(&self, namespace: &str) -> Option<Vec<Waiting>> {
        let mut all = self.0.lock();
        let waiting = std::mem::take(all.get_mut(namespace)?);
        if waiting.is_empty() {
            all.remove(namespace);
            return None;
        }
        Some(waiting)
    }
}

impl Stock {
    /// Checks requests, reserves for all of them that fit, and answers each.
    async fn settle(&self, waiting: Vec<Waiting>) {
        let mut quotas = self.known();
        let mut limited: &[LimitedResource] = &self.limited;
        // Nobody waits for a request any more that was given up: nothing is reserved for it.
        let mut open: Vec<Waiting> = waiting.into_iter().filter(|w| !w.done.is_closed()).collect();
        for attempt in 0..=RETRIES {
            let before = quotas.clone();
            open = admit(&mut quotas, open, limited);
            if open.is_empty() {
                return;
            }
            let Some((failed, error)) = self.write(&before, &quotas).await else {
                return answer(open, || Ok(()));
            };
            let fresh = if attempt < RETRIES { self.fresh().await.ok() } else { None };
            let Some(fresh) = fresh else { return answer(open, || Err(error.clone())) };
            // The other quotas have taken these requests into account, and those that went are no limit any more.
            quotas = fresh.into_iter().filter(|quota| failed.contains(&quota.name)).collect();
            limited = &[];
        }
    }

    /// The quotas as this server knows them.
    fn known(&self) -> Vec<Quota> {
        let stored = self.reader.list(QUOTAS, &self.namespace);
        let read = stored.iter().filter_map(|object| {
            let mut quota = ResourceQuota::from_json(&object.data.body).ok()?;
            quota.metadata.resource_version = Some(object.revision.to_string());
            Some(Quota::new(quota))
        });
        read.collect()
    }

    /// The newest state of the quotas.
    async fn fresh(&self) -> Result<Vec<Quota>, Status> {
        let api = self.loopback.client()?.api::<ResourceQuota>(&self.namespace);
        Ok(api.list(&ListParams::default()).await?.items.into_iter().map(Quota::new).collect())
    }

    /// Writes what is used of the quotas that changed. Returns the names of those that could not be written, and the
    /// last error; `None` if all is written.
    async fn write(&self, before: &[Quota], now: &[Quota]) -> Option<(Vec<String>, Status)> {
        let changed = before.iter().zip(now).filter(|(before, now)| before.used != now.used);
        let changed: Vec<&Quota> = changed.map(|(_, now)| now).collect();
        let client = match self.loopback.client() {
            Ok(client) => client,
            Err(error) => return Some((changed.iter().map(|q| q.name.clone()).collect(), error)),
        };
        let api = client.api::<ResourceQuota>(&self.namespace);
        let mut failed = None;
        for quota in changed {
            let mut object = quota.object.clone();
            object.metadata.managed_fields = None;
            object.status.get_or_insert_default().used = Some(quota::write(&quota.used));
            if let Err(error) = api.update_status(&object).await {
                let (names, last) = failed.get_or_insert_with(|| (Vec::new(), error.clone()));
                names.push(quota.name.clone());
                *last = error;
            }
        }
        failed
    }
}

/// Checks requests one after the other. Those that fit change what is used, and are returned; the others are answered.
fn admit(quotas: &mut [Quota], waiting: Vec<Waiting>, limited: &[LimitedResource]) -> Vec<Waiting> {
    let mut reserving = Vec::new();
    for waiting in waiting {
        let request = &waiting.request;
        match check(quotas, &request.ask, limited) {
            Err(refusal) => {
                let status = refused(request, refusal);
                let _ = waiting.done.send(Err(status));
            }
            Ok(changes) if request.dry_run || changes.is_empty() => {
                let _ = waiting.done.send(Ok(()));
            }
            Ok(changes) => {
                for (place, used) in changes {
                    quotas[place].used = used;
                }
                reserving.push(waiting);
            }
        }
    }
    reserving
}

fn refused(request: &Request, refusal: Refusal) -> Status {
    match refusal {
        Refusal::Forbidden(why) => Status::forbidden(&request.group, &request.resource, &request.name, why),
        Refusal::Failed(why) => Status::failure(500, "", why),
    }
}

fn answer(waiting: Vec<Waiting>, with: impl Fn() -> Result<(), Status>) {
    for waiting in waiting {
        // A request that was given up gets no answer, and the controller lowers what was reserved for it.
        let _ = waiting.done.send(with());
    }
}
