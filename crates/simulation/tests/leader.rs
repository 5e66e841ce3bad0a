//! Elections of leaders, over a server that refuses, falls silent, or has another time of day.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::{Client, Election, Outcome};
use component::metrics::Page;
use component::{Clock, Shutdown};
use ferrokube_simulation::{Cluster, Fault, Fleet, Rule, Shape};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::workloads::{deployment, phase};

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

/// An election has the times, the name and the namespace that flags say.
#[tokio::test(start_paused = true)]
async fn an_election_has_times_of_its_own() -> Result<()> {
    let cluster = Cluster::start().await?;
    let seconds = Duration::from_secs;
    let candidate = |id: &str| Election {
        lease: seconds(60),
        renew: seconds(40),
        retry: seconds(5),
        ..Election::new("kube-system", LEASE, id)
    };
    let (dead, next) = (candidate("dead"), candidate("next"));
    let (of_dead, of_next) = (dead.clone(), next.clone());
    let leads = |election: &Election, value: i32| {
        let mut page = Page::default();
        election.report(&mut page);
        let line = format!("leader_election_master_status{{name=\"{LEASE}\"}} {value}\n");
        assert!(page.text().contains(&line), "{line} is not in {}", page.text());
    };
    let (first, second) = (client(&cluster), client(&cluster));
    let clock = cluster.clock();
    let lead = tokio::spawn(async move {
        dead.lead(&first, clock, &Shutdown::new(), |inner| async move { inner.wait().await }).await
    });
    sleep(seconds(1)).await;
    let lease = cluster.get::<Lease>("kube-system", LEASE).await?.context("no lease")?;
    assert_eq!(lease.spec.and_then(|spec| spec.lease_duration_seconds), Some(60));
    leads(&of_dead, 1);
    leads(&of_next, 0);
    lead.abort();
    let stop = Shutdown::new();
    let stopped = stop.clone();
    let follow = tokio::spawn(async move {
        next.lead(&second, clock, &stopped, |inner| async move { inner.wait().await }).await
    });
    // Upstream's usual term is long over.
    sleep(seconds(50)).await;
    assert_eq!(held(&cluster).await?.0, "dead");
    sleep(seconds(30)).await;
    assert_eq!(held(&cluster).await?, ("next".to_owned(), 1));
    leads(&of_next, 1);
    stop.stop();
    assert_eq!(follow.await?, Outcome::Stopped);
    leads(&of_next, 0);
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

/// A process with all controllers, which work while it leads.
fn manager(cluster: &Arc<Cluster>, id: &'static str) -> Somebody {
    let (cluster, shutdown) = (cluster.clone(), cluster.shutdown().child());
    let stop = shutdown.clone();
    let task = tokio::spawn(async move {
        let (client, clock) = (client(&cluster), cluster.clock());
        election(id)
            .lead(&client, clock, &stop, |inner| async move {
                let started = cluster.controllers_until(&inner, &["*"], |_| {});
                assert!(started.is_ok(), "the controllers do not start");
                inner.wait().await;
            })
            .await
    });
    Somebody { shutdown, task }
}

/// The leader dies while a Deployment is rolled out; the other process goes on, and never do too few Pods run, or too many.
#[tokio::test(start_paused = true)]
async fn the_leader_dies_in_the_middle_of_a_rollout() -> Result<()> {
    const MINUTE: Duration = Duration::from_mins(1);
    let cluster = Arc::new(Cluster::start().await?);
    cluster.scheduler();
    let _fleet = Fleet::start(&cluster, "node", 3, &Shape::default());
    let a = manager(&cluster, "a");
    sleep(Duration::from_secs(1)).await;
    let b = manager(&cluster, "b");
    cluster.until::<ServiceAccount>(MINUTE, "default", |all| !all.is_empty()).await?;
    cluster.create::<Deployment>(&deployment("web", 10, "100m")).await?;
    let is = |p: &Pod, image: &str| {
        p.spec.as_ref().is_some_and(|s| s.containers[0].image.as_deref() == Some(image))
    };
    let run = |all: &[Pod], image: &str| {
        all.iter()
            .filter(|p| phase(p) == "Running" && p.metadata.deletion_timestamp.is_none() && is(p, image))
            .count()
    };
    cluster.until::<Pod>(5 * MINUTE, "default", |all| run(all, "i") == 10).await?;
    let available = |all: &[Deployment]| {
        all.iter().all(|d| d.status.as_ref().and_then(|s| s.available_replicas) == Some(10))
    };
    cluster.until::<Deployment>(MINUTE, "default", available).await?;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
    cluster.admin().api::<Deployment>("default").patch("web", &client::Patch::Strategic(patch)).await?;
    let end = Instant::now() + 10 * MINUTE;
    let mut leader = Some(a);
    loop {
        let pods = cluster.list::<Pod>("default").await?;
        let (old, new) = (run(&pods, "i"), run(&pods, "j"));
        let there = pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()).count();
        // A quarter more, rounded up, and a quarter less, rounded down.
        assert!(old + new >= 8 && there <= 13, "{old} old, {new} new of {there}");
        if new >= 3
            && let Some(a) = leader.take()
        {
            assert!(old > 0, "the rollout is not over");
            a.task.abort();
            a.shutdown.stop();
        }
        if old == 0 && new == 10 && there == 10 {
            break;
        }
        assert!(Instant::now() < end, "{old} old, {new} new of {there}");
        sleep(Duration::from_millis(100)).await;
    }
    assert!(leader.is_none());
    assert_eq!(held(&cluster).await?, ("b".to_owned(), 1));
    cluster.until::<Deployment>(MINUTE, "default", available).await?;
    b.shutdown.stop();
    assert_eq!(b.task.await?, Outcome::Stopped);
    Ok(())
}
