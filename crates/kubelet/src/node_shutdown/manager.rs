//! Follows the login manager, and ends Pods when it says that the machine goes down.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{Backoff, EventType};
use component::Clock;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use super::GoingDown;
use super::logind::{Dial, Logind, LogindError};
use super::plan::{self, GracePeriod};
use super::record::{Record, Times};
use crate::health::go_duration;
use crate::metrics::Metrics;
use crate::pods::spec;
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::recorder::{self, PodRecorder};
use crate::status::generate::Failure;
use crate::work::blocking;

/// The reason and the message of Pods that end for a shutdown.
const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// The reason of the Node's Events.
const EVENT: &str = "Shutdown";
/// How long after a lost connection the next one is made; upstream's.
const DIAL: Duration = Duration::from_secs(1);
const DIAL_LAST: Duration = Duration::from_secs(30);
/// How often the new delay is looked for, and how long after the first look the second one is; upstream's.
const LOOKS: u32 = 5;
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// The least time after which a Pod that has not ended is told of; upstream's.
const LEAST_WAIT: u64 = 10;

/// Why the login manager is not followed any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error(transparent)]
    Logind(#[from] LogindError),
    #[error(
        "node shutdown manager was timed out after {LOOKS} attempts waiting for logind InhibitDelayMaxSec to update to {} (ShutdownGracePeriod), current value is {}",
        go_duration(*wanted), go_duration(*current)
    )]
    Delay { wanted: Duration, current: Duration },
}

/// The parts of a kubelet that it uses.
pub(crate) struct Given {
    pub(crate) clock: Clock,
    pub(crate) node: String,
    pub(crate) workers: Arc<Workers>,
    pub(crate) recorder: PodRecorder,
    pub(crate) metrics: Metrics,
    /// Tells those who report the Node and admit Pods.
    pub(crate) going_down: Arc<GoingDown>,
}

/// Ends Pods before the machine goes down.
pub(crate) struct NodeShutdown {
    given: Given,
    periods: Vec<GracePeriod>,
    record: Record,
}

impl NodeShutdown {
    /// One that has these periods for Pods, and keeps the times of the last shutdown in the kubelet's directory; none where
    /// there are no periods.
    pub(crate) fn new(given: Given, periods: &[GracePeriod], root: &Path) -> Option<Self> {
        let periods = plan::in_order(periods.to_vec());
        (!periods.is_empty()).then(|| Self { given, periods, record: Record::new(root) })
    }

    /// Follows the login manager. A lost connection is made anew.
    ///
    /// DIFFERENCE: upstream does not try again if the first attempt fails: a node whose bus comes after its kubelet would
    /// never wait for its Pods.
    pub(crate) async fn keep(&self, dial: &impl Dial) {
        self.tell_last().await;
        let mut backoff = Backoff::new(DIAL, DIAL_LAST);
        let mut told = false;
        loop {
            let watched = async {
                let mut logind = dial.dial().await?;
                let lock = self.begin(&mut logind).await?;
                backoff.reset();
                told = false;
                self.watch(&mut logind, lock).await
            };
            let Err(error) = watched.await;
            if std::mem::replace(&mut told, true) {
                tracing::debug!(%error, "a shutdown of the machine is not seen");
            } else {
                tracing::warn!(%error, "a shutdown of the machine is not seen, will retry");
            }
            sleep(backoff.delay()).await;
        }
    }

    /// Tells the metrics of the last shutdown.
    async fn tell_last(&self) {
        let record = self.record.clone();
        match blocking(move || record.load()).await {
            Ok(Ok(Some(times))) => self.given.metrics.shutdown(times.seconds()),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to load graceful shutdown state"),
        }
    }

    /// Asks for signals, and for the time that Pods need.
    async fn begin<L: Logind>(&self, logind: &mut L) -> Result<Option<L::Lock>, WatchError> {
        // The signals first: none is missed from here on.
        logind.subscribe().await?;
        self.raise_delay(logind).await?;
        if logind.preparing().await? {
            // The kubelet came late, or lost its connection: the machine waits for nobody new.
            if !self.given.going_down.is() {
                self.shut_down(logind, None).await?;
            }
            return Ok(None);
        }
        let lock = logind.inhibit().await?;
        if self.given.going_down.is() {
            self.called_off();
        }
        Ok(Some(lock))
    }

    /// Has the login manager wait as long as Pods may take.
    async fn raise_delay(&self, logind: &mut impl Logind) -> Result<(), WatchError> {
        let wanted = plan::total(&self.periods);
        if wanted <= logind.inhibit_delay().await? {
            return Ok(());
        }
        logind.override_delay(wanted).await?;
        logind.reload().await?;
        let mut pause = FIRST_LOOK;
        let mut current = Duration::ZERO;
        for look in 0..LOOKS {
            if look > 0 {
                sleep(pause).await;
                pause *= 2;
            }
            current = logind.inhibit_delay().await?;
            if wanted <= current {
                return Ok(());
            }
        }
        Err(WatchError::Delay { wanted, current })
    }

    /// Attends to signals until the connection is lost.
    async fn watch<L: Logind>(
        &self,
        logind: &mut L,
        mut lock: Option<L::Lock>,
    ) -> Result<Infallible, WatchError> {
        loop {
            logind.wait().await?;
            match logind.take().await? {
                None => {}
                Some(true) => {
                    let called_off = self.shut_down(logind, lock.take()).await?;
                    if called_off {
                        lock = Some(logind.inhibit().await?);
                    }
                }
                Some(false) => {
                    self.called_off();
                    lock = Some(logind.inhibit().await?);
                }
            }
        }
    }

    fn tell(&self, message: &str) {
        let about = recorder::node(&self.given.node);
        self.given.recorder.0.event_about(about, EventType::Normal, EVENT, message);
    }

    fn called_off(&self) {
        self.tell("Shutdown manager detected shutdown cancellation");
        self.given.going_down.set(false);
    }

    /// Ends the Pods, then lets the machine go down; whether the shutdown was called off meanwhile.
    async fn shut_down<L: Logind>(&self, logind: &mut L, lock: Option<L::Lock>) -> Result<bool, WatchError> {
        self.tell("Shutdown manager detected shutdown event");
        self.given.going_down.set(true);
        let start = self.given.clock.now();
        self.note(Times::new(start, None)).await;
        let mut lost = None;
        let mut called_off = false;
        {
            let mut ending = std::pin::pin!(self.end_pods());
            loop {
                tokio::select! {
                    () = &mut ending => break,
                    heard = logind.wait(), if lost.is_none() => {
                        let heard = match heard {
                            Ok(()) => logind.take().await,
                            Err(error) => Err(error),
                        };
                        match heard {
                            // DIFFERENCE: upstream ends all Pods first, and sees only then that it need not have.
                            Ok(Some(false)) => {
                                called_off = true;
                                break;
                            }
                            Ok(_) => {}
                            // The lock is kept all the same: it is a file of its own.
                            Err(error) => lost = Some(error),
                        }
                    }
                }
            }
        }
        drop(lock);
        self.note(Times::new(start, Some(self.given.clock.now()))).await;
        if called_off {
            self.called_off();
        }
        match lost {
            Some(error) => Err(error.into()),
            None => Ok(called_off),
        }
    }

    /// Keeps the times of a shutdown, and tells the metrics.
    async fn note(&self, times: Times) {
        self.given.metrics.shutdown(times.seconds());
        let record = self.record.clone();
        match blocking(move || record.store(&times)).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to store graceful shutdown state"),
        }
    }

    /// Ends all Pods, those of a lower priority first, and waits for each group as long as its period says.
    async fn end_pods(&self) {
        let all = self.given.workers.all().into_iter().filter(|worker| worker.active()).collect();
        let priority = |worker: &Arc<Worker>| spec::spec(&worker.pod()).priority.unwrap_or(0);
        for (period, group) in plan::groups(&self.periods, all, priority) {
            if group.is_empty() {
                continue;
            }
            let limit = Duration::from_secs(plan::seconds(&period));
            let ended = join_all(group.iter().map(|worker| self.end(worker, &period)));
            if timeout(limit, ended).await.is_err() {
                let (priority, seconds) = (period.priority, period.seconds);
                tracing::info!(priority, seconds, "Pods have not ended in their time before the shutdown");
            }
        }
    }

    /// Ends a Pod, and waits until its containers and volumes are gone.
    async fn end(&self, worker: &Worker, period: &GracePeriod) {
        let pod = worker.pod();
        let grace = plan::grace(&pod, period);
        tracing::info!(pod = spec::full_name(&pod), grace, "a Pod ends before the shutdown");
        let why = Failure {
            reason: REASON.into(),
            message: MESSAGE.into(),
            disruption: Some(MESSAGE.into()),
            keeps_success: true,
        };
        worker.fail(why, Some(grace));
        let seconds = u64::try_from(grace).unwrap_or(0);
        let limit = Duration::from_secs((seconds + seconds / 2).max(LEAST_WAIT));
        let mut cleaned = worker.cleaned.subscribe();
        // The sender lives as long as the worker.
        if timeout(limit, cleaned.wait_for(|cleaned| *cleaned)).await.is_err() {
            let text = "Container runtime did not kill the pod within specified grace period.";
            self.given.recorder.pod(&pod, "Warning", "ExceededGracePeriod", text);
            let _ = cleaned.wait_for(|cleaned| *cleaned).await;
        }
    }
}

#[cfg(test)]
mod tests;
