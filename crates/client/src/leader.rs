//! Leader election: of several instances that share a Lease, one works.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::Status;
use component::metrics::Page;
use component::{Clock, Shutdown};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Api, Client};

/// How many times the period the time between two attempts may be at most, besides the period itself: candidates do not
/// stay in step. Upstream's `JitterFactor`.
const JITTER: f64 = 1.2;

/// The reason for which the times of an election do not fit together; in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElectionError {
    /// A leader would still try to renew a lease that others no longer respect.
    #[error("leaseDuration must be greater than renewDeadline")]
    Lease,
    /// A leader would give up before its second attempt.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    Renew,
    /// Attempts would follow each other without a pause.
    #[error("retryPeriod must be greater than zero")]
    Retry,
}

/// An election: the candidate, the Lease, and the times.
#[derive(Debug, Clone)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This instance; unique among those that share the Lease.
    pub identity: String,
    /// How long others respect a leader that does not renew.
    pub lease: Duration,
    /// How long a leader tries to renew before it gives up; shorter than `lease`.
    pub renew: Duration,
    /// Time between attempts.
    pub retry: Duration,
    /// Whether this instance leads; clones know the same.
    pub leads: Arc<AtomicBool>,
}

impl Election {
    /// With upstream's figures: 15, 10 and 2 seconds.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            leads: Arc::default(),
        }
    }

    /// Writes the metrics of the election.
    pub fn report(&self, page: &mut Page) {
        const METRIC: &str = "leader_election_master_status";
        let help = "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 \
                    indicates master. 'name' is the string used to identify the lease. Please make sure to group by \
                    name.";
        let leads = if self.leads.load(Ordering::Relaxed) { 1.0 } else { 0.0 };
        page.metric(METRIC, "gauge", help).value(METRIC, &[("name", &self.name)], leads);
    }

    /// Checks the times by upstream's rules (`NewLeaderElector`).
    ///
    /// # Errors
    /// The times do not fit together: nobody could lead for long.
    pub fn check(&self) -> Result<(), ElectionError> {
        if self.lease <= self.renew {
            return Err(ElectionError::Lease);
        }
        if self.renew <= self.retry.mul_f64(JITTER) {
            return Err(ElectionError::Renew);
        }
        if self.retry.is_zero() { Err(ElectionError::Retry) } else { Ok(()) }
    }

    /// Waits to be elected, then runs `work` until it ends, leadership is lost or `shutdown` is
    /// given. The shutdown that `work` gets is given and its tasks have ended before this returns,
    /// and only then is the Lease given up: two never work at a time.
    pub async fn lead<F, R>(&self, client: &Client, clock: Clock, shutdown: &Shutdown, work: F) -> Outcome
    where
        F: FnOnce(Shutdown) -> R,
        R: Future<Output = ()>,
    {
        let mut candidate =
            Candidate { election: self, api: client.api(&self.namespace), clock, observed: None };
        let acquired = shutdown.run(async {
            while !candidate.attempt_logged().await {
                sleep(self.retry + self.retry.mul_f64(JITTER * fastrand::f64())).await;
            }
        });
        if acquired.await.is_none() {
            return Outcome::Stopped;
        }
        tracing::info!(lease = %self.name, identity = %self.identity, "became leader");
        let inner = shutdown.child();
        self.leads.store(true, Ordering::Relaxed);
        let outcome = tokio::select! {
            biased;
            () = shutdown.wait() => Outcome::Stopped,
            () = work(inner.clone()) => Outcome::Done,
            () = candidate.renew() => Outcome::Lost,
        };
        self.leads.store(false, Ordering::Relaxed);
        inner.finish().await;
        if outcome != Outcome::Lost && timeout(self.renew, candidate.release()).await.is_err() {
            tracing::debug!(lease = %self.name, "unable to give the lease up in time");
        }
        outcome
    }
}

/// Why leading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The work ended.
    Done,
    /// Shutdown was given.
    Stopped,
    /// The Lease could not be renewed in time.
    Lost,
}

struct Candidate<'a> {
    election: &'a Election,
    api: Api<Lease>,
    clock: Clock,
    /// The Lease as last seen, and since when it looks so. Clocks of instances are not compared.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Candidate<'_> {
    /// One attempt, which a request without an answer does not hold up for ever.
    async fn attempt_logged(&mut self) -> bool {
        let lease = &self.election.name;
        match timeout(self.election.renew, self.attempt()).await {
            Ok(Ok(leads)) => leads,
            Ok(Err(error)) => {
                tracing::debug!(%lease, %error, "unable to acquire or renew");
                false
            }
            Err(_) => {
                tracing::debug!(%lease, "unable to acquire or renew: the API server did not answer in time");
                false
            }
        }
    }

    /// Takes or renews the Lease; whether this instance leads.
    async fn attempt(&mut self) -> Result<bool, Status> {
        let now = MicroTime(self.clock.now());
        let e = self.election;
        let mut wanted = LeaseSpec {
            holder_identity: Some(e.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(e.lease.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        let mut lease = match self.api.get(&e.name).await {
            Ok(lease) => lease,
            Err(status) if status.is_not_found() => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(e.name.clone()),
                        namespace: Some(e.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(wanted),
                };
                let made = self.api.create(&lease).await?;
                self.observed = Some((made.spec.unwrap_or_default(), self.clock.monotonic()));
                return Ok(true);
            }
            Err(status) => return Err(status),
        };
        let current = lease.spec.take().unwrap_or_default();
        let seen_at = match &self.observed {
            Some((spec, at)) if *spec == current => *at,
            _ => {
                let at = self.clock.monotonic();
                self.observed = Some((current.clone(), at));
                at
            }
        };
        let holder = current.holder_identity.as_deref().unwrap_or_default();
        let term = Duration::from_secs(
            current.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0),
        );
        if !holder.is_empty() && holder != e.identity && seen_at.elapsed() < term {
            return Ok(false);
        }
        if holder == e.identity {
            wanted.acquire_time = current.acquire_time;
            wanted.lease_transitions = current.lease_transitions;
        } else {
            wanted.lease_transitions = Some(current.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        lease.spec = Some(wanted);
        let written = self.api.update(&lease).await?;
        self.observed = Some((written.spec.unwrap_or_default(), self.clock.monotonic()));
        Ok(true)
    }

    /// Renews until that fails for the whole renewal time.
    async fn renew(&mut self) {
        let (retry, limit) = (self.election.retry, self.election.renew);
        loop {
            sleep(retry).await;
            let renewed = timeout(limit, async {
                while !self.attempt_logged().await {
                    sleep(retry).await;
                }
            });
            if renewed.await.is_err() {
                tracing::warn!(lease = %self.election.name, "leadership is lost");
                return;
            }
        }
    }

    /// Gives the Lease up, so that another need not wait for its end.
    async fn release(&mut self) {
        let Ok(mut lease) = self.api.get(&self.election.name).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_deref() != Some(self.election.identity.as_str()) {
            return;
        }
        let now = MicroTime(self.clock.now());
        *spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: spec.lease_transitions,
            ..LeaseSpec::default()
        };
        if let Err(error) = self.api.update(&lease).await {
            tracing::debug!(%error, "unable to give the lease up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of upstream's `NewLeaderElector`.
    #[test]
    fn times_fit_together() {
        let check = |seconds: [f64; 3], want: Result<(), &str>| {
            let [lease, renew, retry] = seconds.map(Duration::from_secs_f64);
            let election = Election { lease, renew, retry, ..Election::new("kube-system", "a", "me") };
            assert_eq!(
                election.check().map_err(|e| e.to_string()),
                want.map_err(str::to_owned),
                "{seconds:?}"
            );
        };
        check([15.0, 10.0, 2.0], Ok(()));
        check([60.0, 40.0, 10.0], Ok(()));
        check([10.0, 10.0, 2.0], Err("leaseDuration must be greater than renewDeadline"));
        check([15.0, 2.4, 2.0], Err("renewDeadline must be greater than retryPeriod*JitterFactor"));
        check([15.0, 2.5, 2.0], Ok(()));
        check([15.0, 10.0, 0.0], Err("retryPeriod must be greater than zero"));
        check([0.0, 0.0, 0.0], Err("leaseDuration must be greater than renewDeadline"));
    }
}
