//! Each resource is followed on its own: what happens to one is no matter to another.

use std::time::Instant;

use ferrokube_storage::{Batch, ReadError, ResourceId, ResourceSpec, Scope, WatchOptions, WatchStart};

use super::*;
use crate::suite::{self, create, delete, event, expect, histories, late, pods, update, watch};

/// Those whose values are called encrypted.
pub(crate) fn nodes(s: &Store) -> ResourceId {
    s.register(ResourceSpec { group: "".into(), plural: "nodes".into(), indexed: vec![] })
}

async fn etcd(old: bool) -> Etcd {
    let start = move || if old { Etcd::start_old(1) } else { Etcd::start(1) };
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// While the keys of nodes cannot be fetched, these stay as they were, and consistent reads of them say so; all others
/// go on, and nodes too once there are keys.
async fn one_that_waits(old: bool) {
    let etcd = etcd(old).await;
    let a = open(&etcd, "/registry").await;
    let codec = Simple::default();
    let config = EtcdConfig {
        codec: Arc::new(codec.clone()),
        ..config(EtcdServers { endpoints: etcd.urls(), ..EtcdServers::default() }, "/registry")
    };
    let b = Store::open_etcd(config, &Shutdown::new()).await.unwrap();
    let (p, n) = (pods(&b), nodes(&b));
    let mut of_pods = watch(&b, p, Scope::default(), WatchStart::After(b.current(p)));
    let mut of_nodes = watch(&b, n, Scope::default(), WatchStart::After(b.current(n)));
    codec.away.store(true, Ordering::Relaxed);
    let x = create(&a, nodes(&a), "", "x", "").await;
    let y = create(&a, pods(&a), "ns", "y", "").await;
    expect(&mut of_pods, &[event("Added", &y)]).await;
    let begun = Instant::now();
    b.fresh(&[p]).await.unwrap();
    let z = create(&b, p, "ns", "z", "").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "nodes were waited for: {:?}", begun.elapsed());
    expect(&mut of_pods, &[event("Added", &z)]).await;
    assert!(
        matches!(b.fresh(&[n]).await, Err(ReadError::Behind { wanted, current }) if current < x.revision && wanted >= z.revision)
    );
    assert!(b.get(n, "", "x").is_none());
    b.healthy().unwrap();
    codec.away.store(false, Ordering::Relaxed);
    expect(&mut of_nodes, &[event("Added", &x)]).await;
    b.fresh(&[n, p]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_new() {
    one_that_waits(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_old() {
    one_that_waits(true).await;
}

/// Clients of two stores on one etcd that read what is newest: no answer is older than what anybody knew.
async fn consistent_reads(old: bool) {
    let etcd = etcd(old).await;
    for seed in 0..3 {
        let prefix = format!("/registry{seed}");
        let stores = [open(&etcd, &prefix).await, open(&etcd, &prefix).await];
        let n = nodes(&stores[0]);
        // Revisions that are none of the resource's.
        let foreign = async {
            let mut object = create(&stores[0], n, "", "n", "").await;
            for text in 0..200 {
                object = update(&stores[0], n, &object, "", &text.to_string()).await.unwrap();
            }
        };
        histories::run_on(&stores, seed, foreign).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistent_reads_new() {
    consistent_reads(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistent_reads_old() {
    consistent_reads(true).await;
}

/// Where a watch cannot be asked how far it is, keys are counted: also those that cannot be read, and those that are no
/// object's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_counted() {
    let etcd = etcd(true).await;
    etcd.etcdctl(&["put", "/registry/pods/ns/bad", "garbage"]).unwrap();
    etcd.etcdctl(&["put", "/registry/pods/a/b/c", "no object's"]).unwrap();
    let s = open(&etcd, "/registry").await;
    let r = pods(&s);
    let fresh = async |what: &str| {
        etcd.etcdctl(&["put", "foreign", what]).unwrap();
        s.fresh(&[r]).await.expect(what);
    };
    fresh("at the start").await;
    let kept = create(&s, r, "ns", "kept", "").await;
    let worse = create(&s, r, "ns", "worse", "").await;
    fresh("new ones").await;
    etcd.etcdctl(&["put", "/registry/pods/ns/worse", "garbage"]).unwrap();
    etcd.etcdctl(&["put", "/registry/pods/d/e/f", "no object's"]).unwrap();
    fresh("one that could be read before, and a strange one").await;
    assert_eq!(s.get(r, "ns", "worse").unwrap().revision, worse.revision);
    for key in ["ns/bad", "ns/worse", "a/b/c"] {
        etcd.etcdctl(&["del", &format!("/registry/pods/{key}")]).unwrap();
        fresh(key).await;
    }
    delete(&s, r, &kept).await.unwrap();
    fresh("nothing").await;
    assert_eq!(s.snapshot(r).count(&Scope::default(), None), 0);
    // What is not there yet is waited for, and no longer than asked.
    let future = s.current(r) + 1_000_000;
    assert!(!s.wait_for(r, future, Duration::from_millis(300)).await);
    fresh("after it").await;
}

/// A resource of which a store did not know is loaded and followed once it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_becomes_known() {
    let etcd = etcd(false).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let r = late(&a).await;
    let x = create(&a, r, "ns", "x", "").await;
    let q = late(&b).await;
    b.fresh(&[q]).await.unwrap();
    assert_eq!(b.get(q, "ns", "x").map(|o| o.revision), Some(x.revision));
    let mut w = watch(&b, q, Scope::default(), WatchStart::After(x.revision));
    let y = update(&a, r, &x, "", "2").await.unwrap();
    expect(&mut w, &[event("Modified", &y)]).await;
    let gone = delete(&b, q, &y).await.unwrap();
    expect(&mut w, &[event("Deleted", &gone)]).await;
}

/// Also who watches what does not change learns how far it has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_where_nothing_happens() {
    let etcd = etcd(false).await;
    let s = open(&etcd, "/registry").await;
    let (p, n) = (pods(&s), nodes(&s));
    let options = WatchOptions { progress: true, ..WatchOptions::default() };
    let mut w = s.watch(n, Scope::default(), WatchStart::After(s.current(n)), options).unwrap();
    let x = create(&s, p, "ns", "x", "").await;
    loop {
        let Batch::Progress(at) = suite::next(&mut w).await else { panic!("nothing happens") };
        if at >= x.revision {
            break;
        }
    }
}
