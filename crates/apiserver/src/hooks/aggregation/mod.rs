//! APIServices: requests for the group versions that they give to other servers are led there.
//!
//! One task follows all APIServices, and puts into the catalog who answers for what. Each other server has a task of
//! its own ([`remote`]), which says whether it is available and reads what it serves; so one that is slow holds up
//! nobody. The APIServices of what this server answers itself are kept by [`registration`].

mod availability;
mod calls;
mod documents;
mod metrics;
pub(super) mod registration;
mod remote;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, Text};
use client::Certificate;
use futures::StreamExt;
use storage::{Batch, Cause, Event, Watcher};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use self::calls::API_SERVICES;
use self::documents::Documents;
use self::metrics::Metrics;
use self::remote::{Remote, Report, Surroundings};
use self::state::{ApiService, Condition, Spec};
use super::env::Env;
use crate::aggregated::{Backend, Elsewhere, Priority, Services, usual};
use access::webhook::Network;
use component::Shutdown;

/// The time to wait after something failed.
const PAUSE: Duration = Duration::from_secs(2);
/// How many findings may wait.
const REPORTS: usize = 64;

/// A task that ends with this.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A server that an APIService names.
struct Other {
    backend: Arc<Backend>,
    documents: Documents,
    number: u64,
    _task: Task,
}

struct Known {
    api: ApiService,
    other: Option<Other>,
}

/// All APIServices, and what is led elsewhere for them.
struct Aggregation {
    around: Surroundings,
    network: Arc<Network>,
    identity: Option<Certificate>,
    shutdown: Shutdown,
    known: BTreeMap<Text, Known>,
    /// The state of the catalog.
    shown: Shown,
    tasks: u64,
}

/// The facts that requests need to know.
#[derive(Default)]
struct Shown {
    elsewhere: Vec<Elsewhere>,
    local: Vec<((Text, Text), Priority)>,
}

/// Serves the APIServices that there are, and follows them until shutdown.
pub(super) async fn run(env: &Env) -> Result<(), Status> {
    if env.objects.id(API_SERVICES.names()).is_none() {
        return Ok(());
    }
    let metrics = Metrics::default();
    env.metrics.register(|registry| metrics.register(registry));
    let (reports, mut findings) = mpsc::channel(REPORTS);
    let (objects, transport) = (Arc::clone(&env.objects), Arc::clone(&env.transport));
    let mut all = Aggregation {
        around: Surroundings { objects, transport, metrics, reports },
        network: Arc::clone(&env.network),
        identity: env.front_proxy.clone(),
        shutdown: env.shutdown.clone(),
        known: BTreeMap::new(),
        shown: Shown::default(),
        tasks: 0,
    };
    // A server is not ready before it knows what others answer.
    let mut watcher = all.begin_at_last().await;
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let follow = async {
            loop {
                all.follow(&mut watcher, &mut findings).await;
                tokio::time::sleep(PAUSE).await;
                watcher = all.begin_at_last().await;
            }
        };
        stop.run(follow).await;
    });
    Ok(())
}

impl Aggregation {
    /// Reads all APIServices anew; tries again if the watch ends before all were seen.
    async fn begin_at_last(&mut self) -> Watcher {
        loop {
            if let Some(watcher) = self.begin().await {
                return watcher;
            }
            tracing::warn!("the watch of APIServices ended before all were seen; it begins again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn begin(&mut self) -> Option<Watcher> {
        let mut watcher = self.around.objects.watch(API_SERVICES.names())?;
        let mut gone: Vec<Text> = self.known.keys().cloned().collect();
        loop {
            match watcher.next().await {
                Some(Ok(Batch::Events(events))) => {
                    for event in events {
                        gone.retain(|name| *name != event.object.data.name);
                        self.take(&event);
                    }
                }
                Some(Ok(Batch::Synced(_))) => break,
                Some(Ok(Batch::Progress(_))) => {}
                Some(Err(_)) | None => return None,
            }
        }
        for name in gone {
            self.forget(&name);
        }
        self.show();
        Some(watcher)
    }

    /// Acts on every change until the watch ends.
    async fn follow(&mut self, watcher: &mut Watcher, findings: &mut mpsc::Receiver<Report>) {
        let mut pending: Vec<Text> = self.known.keys().cloned().collect();
        loop {
            for name in pending.drain(..) {
                self.mark_local(&name).await;
            }
            tokio::select! {
                next = watcher.next() => match next {
                    Some(Ok(Batch::Events(events))) => {
                        for event in &events {
                            self.take(event);
                            pending.push(event.object.data.name.clone());
                        }
                        self.show();
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                Some(report) = findings.recv() => {
                    let known = self.known.get_mut(&report.name).and_then(|known| known.other.as_mut());
                    if let Some(other) = known.filter(|other| other.number == report.task) {
                        other.documents = report.documents;
                        self.show();
                    }
                }
            }
        }
    }

    /// Takes a change over.
    fn take(&mut self, event: &Event) {
        let name = event.object.data.name.clone();
        if event.cause == Cause::Deleted {
            self.forget(&name);
            return;
        }
        let Some(api) = ApiService::of(&event.object) else {
            tracing::error!(%name, "an APIService cannot be read");
            self.forget(&name);
            return;
        };
        let before = self.known.remove(&name);
        // Another priority leaves the server as it is.
        let server = |api: &ApiService| (api.uid.clone(), api.spec.service.clone(), api.spec.trust.clone());
        let kept = before.filter(|b| server(&b.api) == server(&api)).and_then(|b| b.other);
        let other = kept.or_else(|| self.start(&name, &api));
        if other.is_none() {
            self.around.metrics.is(&name, api.is_available());
        }
        self.known.insert(name, Known { api, other });
    }

    fn forget(&mut self, name: &Text) {
        self.known.remove(name);
        self.around.metrics.forget(name);
    }

    /// Begins to follow the server that an APIService names, if it names one.
    fn start(&mut self, name: &Text, api: &ApiService) -> Option<Other> {
        let Spec { group, version, service, trust, .. } = &api.spec;
        let backend = Backend::new(service.clone()?, trust, self.identity.clone(), Arc::clone(&self.network));
        self.tasks += 1;
        let remote = Remote {
            around: self.around.clone(),
            name: name.clone(),
            uid: api.uid.clone(),
            group: group.clone(),
            version: version.clone(),
            backend: Arc::clone(&backend),
            task: self.tasks,
        };
        let stop = self.shutdown.clone();
        let task = self.shutdown.spawn_one(async move {
            stop.run(remote.follow()).await;
        });
        let task = Task(task.abort_handle());
        Some(Other { backend, documents: Documents::default(), number: self.tasks, _task: task })
    }

    /// Says of an APIService that this server answers for it, if it does.
    async fn mark_local(&self, name: &Text) {
        let Some(Known { api, other: None }) = self.known.get(name) else { return };
        let local = Condition::local();
        if api.condition.as_ref() == Some(&local) {
            return;
        }
        let now = self.around.objects.now();
        let written = calls::write(&*self.around.transport, (name, &api.uid), &local, &now).await;
        if let Err(error) = written {
            tracing::warn!(%name, %error, "cannot write the condition of an APIService");
        }
    }

    /// Brings the catalog in step with what is known.
    fn show(&mut self) {
        let mut now = Shown::default();
        for known in self.known.values() {
            let Spec { group, version, priority, .. } = &known.api.spec;
            match &known.other {
                Some(other) => now.elsewhere.push(Elsewhere {
                    group: group.clone(),
                    version: version.clone(),
                    priority: *priority,
                    backend: Arc::clone(&other.backend),
                    available: known.api.is_available(),
                    discovered: Arc::clone(&other.documents.discovered),
                    v2: other.documents.v2.clone(),
                    v3: other.documents.v3.clone(),
                }),
                None if *priority != usual(group, version) => {
                    now.local.push(((group.clone(), version.clone()), *priority));
                }
                None => {}
            }
        }
        if now.is(&self.shown) {
            return;
        }
        let services = Services::new(now.elsewhere.iter().cloned(), now.local.iter().cloned());
        self.around.objects.serve_elsewhere(&Arc::new(services));
        self.shown = now;
    }
}

impl Shown {
    /// Whether requests would be answered the same.
    fn is(&self, other: &Self) -> bool {
        let same = |(a, b): (&Elsewhere, &Elsewhere)| {
            Arc::ptr_eq(&a.backend, &b.backend)
                && (&a.group, &a.version, a.priority) == (&b.group, &b.version, b.priority)
                && a.available == b.available
                && a.discovered == b.discovered
                && a.v2 == b.v2
                && a.v3 == b.v3
        };
        self.local == other.local
            && self.elsewhere.len() == other.elsewhere.len()
            && self.elsewhere.iter().zip(&other.elsewhere).all(same)
    }
}
