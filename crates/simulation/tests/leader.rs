//! Elections of leaders, over a server that refuses, falls silent, or has another time of day.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::{Client, Election, Outcome};
use component::{Clock, Shutdown};
use ferrokube_simulation::{Cluster, Fault, Rule};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The lease that this user may write.
const LEASE: &str = "kube-controller-manager";

fn client(cluster: &Cluster) -> Client {
    cluster.clients().of("system:kube-controller-manager")
}

fn election(id: &str) -> Election {
    Election::new("kube-system", LEASE, id)
}

/// The holder of the lease, and how often that changed.
async fn held(cluster: &Cluster) -> Result<(String, i32)> {
    let lease = cluster.get::<Lease>("kube-system", LEASE).await?.context("no lease")?;
    let spec = lease.spec.context("no spec")?;
    Ok((spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default()))
}

/// Somebody who wants to lead, and leads until it is stopped.
struct Somebody {
    shutdown: Shutdown,
    task: JoinHandle<Outcome>,
}

fn start(cluster: &Cluster, id: &str, clock: Clock, leading: &Arc<AtomicUsize>) -> Somebody {
    let (election, client) = (election(id), client(cluster));
    let (shutdown, leading) = (Shutdown::new(), leading.clone());
    let stop = shutdown.clone();
    let task = tokio::spawn(async move {
        election
            .lead(&client, clock, &stop, |inner| async move {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead at a time");
                inner.wait().await;
                leading.fetch_sub(1, Ordering::SeqCst);
            })
            .await
    });
    Somebody { shutdown, task }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_takes_over_when_it_leaves() -> Result<()> {
    let cluster = Cluster::start().await?;
    let leading = Arc::new(AtomicUsize::new(0));
    let a = start(&cluster, "a", cluster.clock(), &leading);
    sleep(Duration::from_secs(1)).await;
    let b = start(&cluster, "b", cluster.clock(), &leading);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(held(&cluster).await?.0, "a");
    a.shutdown.stop();
    // The work may be cut off where it waits, so the counter is set back here.
    assert_eq!(a.task.await?, Outcome::Stopped);
    leading.store(0, Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(held(&cluster).await?, ("b".to_owned(), 1));
    b.shutdown.stop();
    assert_eq!(b.task.await?, Outcome::Stopped);
    assert_eq!(held(&cluster).await?.0, "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn leadership_is_lost_before_the_lease_ends() -> Result<()> {
    let cluster = Cluster::start().await?;
    let faults = cluster.faults().clone();
    let (began, begin) = tokio::sync::oneshot::channel();
    let outcome = election("a")
        .lead(&client(&cluster), cluster.clock(), &Shutdown::new(), |_| async move {
            let _ = began.send(Instant::now());
            sleep(Duration::from_secs(5)).await;
            faults.add(Rule::new(Fault::Refuse(Status::failure(503, "ServiceUnavailable", "down"))));
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(outcome, Outcome::Lost);
    let led = begin.await?.elapsed();
    assert!(led < Duration::from_secs(5 + 15), "{led:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_after_its_term() -> Result<()> {
    let cluster = Cluster::start().await?;
    let dead = start(&cluster, "dead", cluster.clock(), &Arc::default());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(held(&cluster).await?.0, "dead");
    dead.task.abort();
    let next = start(&cluster, "next", cluster.clock(), &Arc::default());
    sleep(Duration::from_secs(13)).await;
    assert_eq!(held(&cluster).await?.0, "dead");
    sleep(Duration::from_secs(7)).await;
    assert_eq!(held(&cluster).await?, ("next".to_owned(), 1));
    next.shutdown.stop();
    assert_eq!(next.task.await?, Outcome::Stopped);
    Ok(())
}

/// A clock that is set, here or there, ends no term and begins none.
#[tokio::test(start_paused = true)]
async fn the_time_of_day_is_set() -> Result<()> {
    for hours in [1, -1] {
        let cluster = Cluster::start().await?;
        let step = SignedDuration::from_hours(hours);
        let leading = Arc::new(AtomicUsize::new(0));
        let a = start(&cluster, "a", cluster.clock(), &leading);
        sleep(Duration::from_secs(1)).await;
        // The other machine's clock is set too, the other way.
        let its_clock = Clock::from(cluster.clock().now());
        let b = start(&cluster, "b", its_clock, &leading);
        for _ in 0..20 {
            cluster.clock().step(step);
            its_clock.step(-step);
            sleep(Duration::from_secs(7)).await;
            assert_eq!(held(&cluster).await?, ("a".to_owned(), 0), "{hours}");
        }
        for each in [b, a] {
            each.shutdown.stop();
            assert_eq!(each.task.await?, Outcome::Stopped);
        }
    }
    Ok(())
}

/// Requests without an answer: whoever wants to lead asks again.
#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_made_again() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.faults().add(Rule::new(Fault::Hang));
    let faults = cluster.faults().clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(25)).await;
        faults.clear();
    });
    let began = Instant::now();
    let outcome =
        election("a").lead(&client(&cluster), cluster.clock(), &Shutdown::new(), |_| async {}).await;
    assert_eq!(outcome, Outcome::Done);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    Ok(())
}

/// A write that was carried out, and whose answer was lost, costs the leader nothing.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_no_leadership() -> Result<()> {
    let cluster = Cluster::start().await?;
    let leading = Arc::new(AtomicUsize::new(0));
    let a = start(&cluster, "a", cluster.clock(), &leading);
    sleep(Duration::from_secs(1)).await;
    let lost = Fault::Lose(Status::failure(504, "Timeout", "the request may have been done"));
    cluster.faults().add(Rule::new(lost).resource("leases").verb(client::Verb::Update).times(1));
    sleep(Duration::from_mins(1)).await;
    assert_eq!((held(&cluster).await?, leading.load(Ordering::SeqCst)), (("a".to_owned(), 0), 1));
    a.shutdown.stop();
    assert_eq!(a.task.await?, Outcome::Stopped);
    Ok(())
}
