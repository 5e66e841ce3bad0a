//! Removal of things that no Pod owns, again and again: sandboxes, containers, directories with
//! their mounts, cgroups, logs.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Backoff;
use client::events::EventType;
use tokio::sync::Notify;

use crate::cgroups::Cgroups;
use crate::checkpoint::RecordError;
use crate::config::Config;
use crate::files;
use crate::garbage::containers::{ContainerCollector, GarbageError};
use crate::listing::Listing;
use crate::log_dirs::{self, LogDirs};
use crate::log_links::LogLinks;
use crate::metrics;
use crate::pods::allocated::Record;
use crate::pods::spec;
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::recorder::{self, PodRecorder};
use crate::runtime::{CallError, Runtime};
use crate::sources::Sources;
use crate::volumes::VolumeManager;
use crate::work::{Interrupted, try_blocking};

/// How often everything is looked at. Upstream looks every 2 s. Here each Pod's worker cleans after
/// itself, and what comes into being without one wakes the search: the period is only for what nobody
/// told, and it is that of upstream's garbage collection.
const PERIOD: Duration = Duration::from_mins(1);
/// The least time between two searches.
const SETTLE: Duration = Duration::from_secs(1);

/// Why something that no Pod owns is still there.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error("cannot list containers: {}", .0.message())]
    List(CallError),
    #[error(transparent)]
    Garbage(GarbageError),
    #[error(transparent)]
    Volumes(io::Error),
    #[error("cgroup of Pod {uid}: {error}")]
    Cgroup { uid: String, error: io::Error },
    #[error("what Pods were given: {0}")]
    Allocated(RecordError),
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Removes what no Pod owns.
pub(crate) struct Housekeeper {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: PodRecorder,
    pub(crate) cgroups: Cgroups,
    pub(crate) collector: Arc<ContainerCollector>,
    pub(crate) volumes: Arc<VolumeManager>,
    pub(crate) workers: Arc<Workers>,
    /// The sources of this node's Pods.
    pub(crate) sources: Sources,
    /// The record of what Pods were given.
    pub(crate) allocated: Arc<Record>,
    /// Something may be there that no Pod owns.
    pub(crate) woken: Arc<Notify>,
}

impl Housekeeper {
    /// Looks again and again; `start` starts a worker.
    pub(crate) async fn keep(&self, start: impl Fn(Arc<Worker>)) {
        // Before all Pods are known, every one of them looks like nobody's.
        self.sources.known().await;
        let mut backoff = Backoff::new(SETTLE, PERIOD);
        loop {
            let errors = self.sweep(&start).await;
            let pause = if errors.is_empty() {
                backoff.reset();
                PERIOD
            } else {
                tracing::warn!(
                    errors = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                    "not everything that no Pod owns could be removed"
                );
                self.tell(&errors);
                backoff.delay()
            };
            tokio::time::sleep(SETTLE).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.woken.notified() => {}
            }
        }
    }

    /// Tells in an Event about the Node that containers are not listed; upstream's logs what else goes wrong, too.
    fn tell(&self, errors: &[SweepError]) {
        let unlisted = errors.iter().find_map(|error| match error {
            SweepError::List(error) => Some(error.to_string()),
            _ => None,
        });
        if let Some(message) = unlisted {
            let node = recorder::node(&self.config.node_name);
            self.recorder.0.event_about(node, EventType::Warning, "ContainerGCFailed", message);
        }
    }

    /// Looks once; answers what went wrong.
    async fn sweep(&self, start: &impl Fn(Arc<Worker>)) -> Vec<SweepError> {
        // The files are listed before the runtime is asked: files that come later belong to a Pod that is new.
        let mut errors = Vec::new();
        let remains = match self.remains().await {
            Ok(remains) => remains,
            Err(error) => {
                errors.push(error);
                Remains::default()
            }
        };
        let listing = match Listing::of(&self.runtime, &self.config.root_dir).await {
            Ok(listing) => listing,
            Err(error) => {
                errors.push(SweepError::List(error));
                return errors;
            }
        };
        // A Pod may have come back under the uid of one that was still being removed.
        for pod in self.sources.pods() {
            if self.workers.get(spec::uid(&pod)).is_none() {
                let is_static = if spec::is_static(&pod) { "true" } else { "" };
                self.runtime.metrics.count(&metrics::RESTARTED_PODS_TOTAL, &[is_static]);
                start(Worker::new(pod));
            }
        }
        let listed = listing.uids();
        for uid in &listed {
            if self.workers.get(uid).is_none() {
                tracing::info!(uid, "containers of a Pod that is gone are removed");
                self.runtime.metrics.count(&metrics::ORPHANED_RUNTIME_PODS_TOTAL, &[]);
                // DIFFERENCE: upstream gives them one second; here they get the end that they asked for.
                let worker = Worker::new(Arc::new(listing.restore(uid)));
                worker.deleted();
                start(worker);
            }
        }
        errors.extend(self.collector.collect(&listing, false).await.into_iter().map(SweepError::Garbage));
        let nobodys = |uid: &str| self.workers.get(uid).is_none() && !listed.contains(uid);
        let (mut cleaned, mut failed) = (0.0, 0.0);
        for uid in remains.dirs.iter().filter(|uid| nobodys(uid)) {
            let removed = self.volumes.remove_pod(uid).await;
            *(if removed.is_ok() { &mut cleaned } else { &mut failed }) += 1.0;
            errors.extend(removed.err().map(SweepError::Volumes));
        }
        self.runtime.metrics.set(&metrics::ORPHAN_POD_CLEANED_VOLUMES, &[], cleaned + failed);
        self.runtime.metrics.set(&metrics::ORPHAN_POD_CLEANED_VOLUMES_ERRORS, &[], failed);
        errors.extend(self.volumes.sweep().await.err().map(SweepError::Volumes));
        for uid in remains.cgroups.iter().filter(|uid| nobodys(uid)) {
            errors.extend(
                self.cgroups.remove(uid).err().map(|error| SweepError::Cgroup { uid: uid.clone(), error }),
            );
        }
        errors.extend(self.allocated.keep(|uid| !nobodys(uid)).err().map(SweepError::Allocated));
        for path in remains.logs.into_iter().filter(|path| nobodys(uid_of_logs(path))) {
            let dir = path.clone();
            let removed = try_blocking(move || files::remove_tree(&dir)).await;
            errors.extend(removed.err().map(|error| SweepError::Path { path, error }));
        }
        let (links, path) = (LogLinks::new(&self.config), self.config.container_logs_dir.clone());
        let swept = try_blocking(move || links.sweep(&listing.containers)).await;
        errors.extend(swept.err().map(|error| SweepError::Path { path, error }));
        errors
    }

    async fn remains(&self) -> Result<Remains, SweepError> {
        let (dirs, path) = (self.config.root_dir.join("pods"), self.config.pod_logs_dir.clone());
        let logs = LogDirs::new(&self.config);
        let cgroups = self.cgroups.clone();
        try_blocking(move || {
            let names = |dir: &Path| {
                let entries = std::fs::read_dir(dir);
                let entries = entries.map_err(|error| SweepError::Path { path: dir.to_owned(), error })?;
                let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
                Ok::<_, SweepError>(names.collect())
            };
            let logs = logs.own().map_err(|error| SweepError::Path { path, error })?;
            Ok(Remains { dirs: names(&dirs)?, cgroups: cgroups.pods(), logs })
        })
        .await
    }
}

/// The things of Pods on this machine beside the runtime: uids, and directories of logs.
#[derive(Debug, Default)]
struct Remains {
    dirs: Vec<String>,
    cgroups: BTreeSet<String>,
    logs: Vec<PathBuf>,
}

/// The uid of the Pod whose logs are in a directory.
fn uid_of_logs(dir: &Path) -> &str {
    dir.file_name().and_then(|name| name.to_str()).map_or("", log_dirs::uid_of)
}
