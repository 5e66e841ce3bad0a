//! Each resource is followed on its own: an event of one does not delay another.

use std::time::Instant;

use ferrokube_storage::{Batch, ReadError, ResourceId, ResourceSpec, Scope, WatchOptions, WatchStart};

use super::*;
use crate::suite::{self, create, delete, event, expect, histories, late, pods, update, watch};

/// The resource whose values are called encrypted.
pub(crate) fn nodes(s: &Store) -> ResourceId {
    s.register(ResourceSpec { group: "".into(), plural: "nodes".into(), indexed: vec![] })
}

async fn etcd(old: bool) -> Etcd {
    let start = move || if old { Etcd::start_old(1) } else { Etcd::start(1) };
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// While the keys of nodes cannot be fetched, these stay as they were, and consistent reads of them fail; all others go
/// on, and nodes too once there are keys.
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

/// Clients of two stores on one etcd read the newest state: no answer is older than any earlier answer.
async fn consistent_reads(old: bool) {
    let etcd = etcd(old).await;
    for seed in 0..3 {
        let prefix = format!("/registry{seed}");
        let stores = [open(&etcd, &prefix).await, open(&etcd, &prefix).await];
        let n = nodes(&stores[0]);
        // These revisions are of no key of the resource.
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

/// Where a watch cannot be asked for its progress, keys are counted: also those that cannot be read, and those that
/// belong to no object.
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
    // A revision that is not there yet is waited for, and no longer than asked.
    let future = s.current(r) + 1_000_000;
    assert!(!s.wait_for(r, future, Duration::from_millis(300)).await);
    fresh("after it").await;
}

/// A resource that a store did not know is loaded and followed once it is made known.
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

/// A watcher of objects that do not change learns its progress, too.
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
