//! The Pods that the API has for this node, each with a worker of its own.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use client::{Backoff, Change};
use component::Shutdown;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::lifecycle::Lifecycle;
use super::manager::PodManager;
use super::mirrors::Mirrors;
use super::spec;
use super::worker::Worker;
use super::workers::Workers;
use crate::recorder::PodRecorder;

/// Starts the workers, and tells them what the API says.
pub(crate) struct PodHost {
    pub(crate) pods: Arc<PodManager>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) recorder: PodRecorder,
    pub(crate) mirrors: Arc<Mirrors>,
    pub(crate) shutdown: Shutdown,
}

impl PodHost {
    /// Takes a change of a Pod of this node.
    pub(crate) fn changed(&self, change: &Change<Pod>) {
        if spec::is_mirror(change.object()) {
            self.mirrored(change);
            return;
        }
        match change {
            Change::Added(pod) => self.take(&spec::of_api(pod)),
            Change::Updated { old, new } => {
                if spec::uid(old) != spec::uid(new) {
                    self.gone(old);
                }
                self.take(&spec::of_api(new));
            }
            Change::Deleted(pod) => self.gone(pod),
        }
    }

    /// Takes a change of what the API has for a static Pod.
    fn mirrored(&self, change: &Change<Pod>) {
        match change {
            Change::Added(mirror) => self.mirrors.put(mirror.clone()),
            Change::Updated { old, new } => {
                if spec::uid(old) != spec::uid(new) {
                    self.mirrors.remove(old);
                }
                self.mirrors.put(new.clone());
            }
            Change::Deleted(mirror) => self.mirrors.remove(mirror),
        }
        for worker in self.workers.all() {
            let pod = worker.pod();
            let named = spec::name(&pod) == spec::name(change.object())
                && spec::namespace(&pod) == spec::namespace(change.object());
            if named && spec::is_static(&pod) {
                worker.mirrored(self.mirrors.of(&pod));
            }
        }
    }

    /// Takes the static Pods of a source in the place of those before.
    pub(crate) fn replace(&self, before: &[Arc<Pod>], now: &[Arc<Pod>]) {
        let stays = |pod: &Arc<Pod>| now.iter().any(|new| spec::uid(new) == spec::uid(pod));
        for pod in before.iter().filter(|pod| !stays(pod)) {
            self.gone(pod);
        }
        for pod in now {
            self.take(pod);
        }
        self.mirrors.woken.notify_one();
    }

    fn gone(&self, pod: &Pod) {
        if let Some(worker) = self.workers.get(spec::uid(pod)) {
            worker.deleted();
        }
    }

    fn take(&self, pod: &Arc<Pod>) {
        match self.workers.get(spec::uid(pod)) {
            Some(worker) => worker.update(pod.clone()),
            None => self.start(Worker::new(pod.clone())),
        }
    }

    /// Starts a worker.
    pub(crate) fn start(&self, worker: Arc<Worker>) {
        self.pods.put(&worker.uid, worker.pod());
        self.workers.put(&worker);
        if spec::is_static(&worker.pod()) {
            worker.mirrored(self.mirrors.of(&worker.pod()));
        }
        let attended = attend(self.lifecycle.clone(), worker, self.recorder.clone());
        let stop = self.shutdown.clone();
        self.shutdown.spawn(async move {
            let _ = stop.run(Box::pin(attended)).await;
        });
    }
}

/// Runs a Pod's worker until nothing of the Pod is left. A panic costs this Pod alone, and not for ever.
async fn attend(lifecycle: Arc<Lifecycle>, worker: Arc<Worker>, recorder: PodRecorder) {
    let begin = || lifecycle.run(&worker);
    restarting(begin, |panic| {
        let pod = worker.pod();
        tracing::error!(pod = spec::full_name(&pod), panic, "a Pod's worker panicked and is restarted");
        // DIFFERENCE: upstream's kubelet ends as a whole.
        let message = format!("error syncing pod, will be restarted: panic: {panic}");
        recorder.pod(&pod, "Warning", "FailedSync", message);
        worker.changed();
    })
    .await;
}

/// Runs what `begin` makes, again after each panic, ever more slowly.
async fn restarting<F: Future<Output = ()>>(mut begin: impl FnMut() -> F, mut told: impl FnMut(&str)) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(5));
    loop {
        let began = Instant::now();
        let Err(panic) = AssertUnwindSafe(begin()).catch_unwind().await else { return };
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        told(&text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default());
        if began.elapsed() > Duration::from_mins(10) {
            backoff.reset();
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_restarted_ever_more_slowly() {
        let (mut runs, mut told) = (0, Vec::new());
        let began = Instant::now();
        restarting(
            || {
                runs += 1;
                let run = runs;
                async move {
                    tokio::task::yield_now().await;
                    match run {
                        1 => panic!("first"),
                        2 => panic!("run {run}"),
                        _ => {}
                    }
                }
            },
            |text| told.push(text.to_owned()),
        )
        .await;
        assert_eq!((runs, told), (3, vec!["first".to_owned(), "run 2".to_owned()]));
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
