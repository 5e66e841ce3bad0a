//! Leader election: of several instances that share a Lease, one works.

use std::future::Future;
use std::time::Duration;

use api::Status;
use component::{Clock, Shutdown};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Api, Client};

/// The terms of an election: by which Lease, under which identity, and how fast.
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
        }
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
                // Up to 2.2 times the period, so that candidates do not stay in step.
                sleep(self.retry + self.retry.mul_f64(1.2 * fastrand::f64())).await;
            }
        });
        if acquired.await.is_none() {
            return Outcome::Stopped;
        }
        tracing::info!(lease = %self.name, identity = %self.identity, "became leader");
        let inner = shutdown.child();
        let outcome = tokio::select! {
            biased;
            () = shutdown.wait() => Outcome::Stopped,
            () = work(inner.clone()) => Outcome::Done,
            () = candidate.renew() => Outcome::Lost,
        };
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::fake::Fake;
    use jiff::{SignedDuration, Timestamp};

    fn client(fake: &Arc<Fake>) -> Client {
        Client::new(fake.clone(), "test")
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_the_next_takes_over_when_it_leaves() {
        let (fake, clock) = (Fake::new(), Clock::from(Timestamp::UNIX_EPOCH));
        let leading = Arc::new(AtomicUsize::new(0));
        let start = |id: &str| {
            let (election, client) = (Election::new("kube-system", "x", id), client(&fake));
            let (shutdown, leading) = (Shutdown::new(), leading.clone());
            let stop = shutdown.clone();
            let task = tokio::spawn(async move {
                election
                    .lead(&client, clock, &shutdown, |inner| async move {
                        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead at a time");
                        inner.wait().await;
                        leading.fetch_sub(1, Ordering::SeqCst);
                    })
                    .await
            });
            (stop, task)
        };
        let (stop_a, a) = start("a");
        sleep(Duration::from_secs(1)).await;
        let (stop_b, b) = start("b");
        sleep(Duration::from_mins(1)).await;
        assert_eq!(fake.object("x").unwrap()["spec"]["holderIdentity"], "a");
        stop_a.stop();
        // `work` may be cut off where it waits, so the counter is set back here.
        assert_eq!(a.await.unwrap(), Outcome::Stopped);
        leading.store(0, Ordering::SeqCst);
        sleep(Duration::from_secs(10)).await;
        let lease = fake.object("x").unwrap();
        assert_eq!(
            (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]),
            (&"b".into(), &1.into())
        );
        stop_b.stop();
        assert_eq!(b.await.unwrap(), Outcome::Stopped);
        assert_eq!(fake.object("x").unwrap()["spec"]["holderIdentity"], "");
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_is_lost_before_the_lease_ends() {
        let (fake, clock) = (Fake::new(), Clock::from(Timestamp::UNIX_EPOCH));
        let (election, client, shutdown) =
            (Election::new("kube-system", "x", "a"), client(&fake), Shutdown::new());
        let broken = fake.clone();
        let began = Instant::now();
        let outcome = election
            .lead(&client, clock, &shutdown, |_| async move {
                sleep(Duration::from_secs(5)).await;
                *broken.broken.lock() = true;
                std::future::pending::<()>().await;
            })
            .await;
        assert_eq!(outcome, Outcome::Lost);
        assert!(began.elapsed() < Duration::from_secs(5 + 15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_leader_is_replaced_after_its_term() {
        let (fake, clock) = (Fake::new(), Clock::from(Timestamp::UNIX_EPOCH));
        let dead = Election::new("kube-system", "x", "dead");
        let api = client(&fake).api("kube-system");
        let mut candidate = Candidate { election: &dead, api: api.clone(), clock, observed: None };
        assert!(candidate.attempt().await.unwrap());
        let next = Election::new("kube-system", "x", "next");
        let mut candidate = Candidate { election: &next, api, clock, observed: None };
        assert!(!candidate.attempt().await.unwrap());
        sleep(Duration::from_secs(14)).await;
        assert!(!candidate.attempt().await.unwrap());
        sleep(Duration::from_secs(2)).await;
        assert!(candidate.attempt().await.unwrap());
    }

    /// A clock that is set, here or there, ends no term and begins none.
    #[tokio::test(start_paused = true)]
    async fn the_time_of_day_is_set() {
        for hours in [1, -1] {
            let (fake, clock) = (Fake::new(), Clock::from(Timestamp::UNIX_EPOCH));
            let step = SignedDuration::from_hours(hours);
            let (shutdown, stepping) = (Shutdown::new(), clock);
            let (leads, client_a) = (Election::new("kube-system", "x", "a"), client(&fake));
            let leading = tokio::spawn({
                let shutdown = shutdown.clone();
                async move { leads.lead(&client_a, clock, &shutdown, |_| std::future::pending()).await }
            });
            sleep(Duration::from_secs(1)).await;
            let other = Election::new("kube-system", "x", "b");
            // The other machine's clock is set too, the other way.
            let its_clock = Clock::from(Timestamp::UNIX_EPOCH);
            let api = client(&fake).api("kube-system");
            let mut candidate = Candidate { election: &other, api, clock: its_clock, observed: None };
            for _ in 0..20 {
                stepping.step(step);
                its_clock.step(-step);
                assert!(!candidate.attempt().await.unwrap(), "{hours}");
                sleep(Duration::from_secs(7)).await;
            }
            let lease = fake.object("x").unwrap();
            assert_eq!(
                (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]),
                (&"a".into(), &0.into())
            );
            shutdown.stop();
            assert_eq!(leading.await.unwrap(), Outcome::Stopped);
        }
    }

    /// Requests without an answer: whoever wants to lead asks again.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_made_again() {
        let (fake, clock) = (Fake::new(), Clock::from(Timestamp::UNIX_EPOCH));
        *fake.silent.lock() = true;
        let (election, client, shutdown) =
            (Election::new("kube-system", "x", "a"), client(&fake), Shutdown::new());
        let answering = fake.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(25)).await;
            *answering.silent.lock() = false;
        });
        let began = Instant::now();
        let outcome = election.lead(&client, clock, &shutdown, |_| async {}).await;
        assert_eq!(outcome, Outcome::Done);
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    }
}
