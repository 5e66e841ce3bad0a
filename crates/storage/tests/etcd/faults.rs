//! etcd fails while clients work.

use std::sync::Mutex;

use futures::StreamExt;

use super::apart::nodes;
use super::*;
use crate::suite::{self, create, event, expect, histories, pods, update, watch};
use ferrokube_storage::{Scope, WatchEnd, WatchStart};

async fn etcd(old: bool, members: usize) -> Etcd {
    let start = move || if old { Etcd::start_old(members) } else { Etcd::start(members) };
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// The time for which clients work between two faults.
const BETWEEN: Duration = Duration::from_millis(400);

/// The only member is killed and comes back, again and again: no acknowledged write is lost, nothing is done twice, no
/// answer is wrong.
async fn restarts_under_load(old: bool) {
    let etcd = etcd(old, 1).await;
    let s = open(&etcd, "/registry").await;
    let etcd = Mutex::new(etcd);
    let faults = async {
        for _ in 0..4 {
            tokio::time::sleep(BETWEEN).await; // clients work meanwhile
            tokio::task::block_in_place(|| {
                let mut etcd = etcd.lock().unwrap();
                etcd.kill(0).unwrap();
                etcd.restart(0).unwrap();
            });
        }
    };
    histories::run(&s, 1, faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn restarts_under_load_new() {
    restarts_under_load(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn restarts_under_load_old() {
    restarts_under_load(true).await;
}

/// Of three members the leader is killed, or stands still, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaders_go() {
    let etcd = etcd(false, 3).await;
    let s = open(&etcd, "/registry").await;
    let etcd = Mutex::new(etcd);
    let faults = async {
        for freeze in [false, true, false] {
            tokio::time::sleep(BETWEEN).await; // clients work meanwhile
            let leader = tokio::task::block_in_place(|| {
                let mut etcd = etcd.lock().unwrap();
                let leader = etcd.leader().unwrap();
                if freeze { etcd.freeze(leader, true) } else { etcd.kill(leader) }.unwrap();
                leader
            });
            tokio::time::sleep(BETWEEN * 3).await; // an election, and work with the two others
            tokio::task::block_in_place(|| {
                let mut etcd = etcd.lock().unwrap();
                if freeze { etcd.freeze(leader, false) } else { etcd.restart(leader) }.unwrap();
            });
        }
    };
    histories::run(&s, 2, faults).await;
}

/// A watcher does not notice that etcd was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_go_on() {
    let mut etcd = etcd(false, 1).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (r, q) = (pods(&a), pods(&b));
    let mut w = watch(&b, q, Scope::default(), WatchStart::After(b.current(q)));
    let x = create(&a, r, "ns", "x", "").await;
    expect(&mut w, &[event("Added", &x)]).await;
    tokio::task::block_in_place(|| etcd.kill(0)).unwrap();
    etcd.restart(0).unwrap();
    let y = update(&a, r, &x, "", "2").await.unwrap();
    expect(&mut w, &[event("Modified", &y)]).await;
}

/// Events that a store could not see were compacted before etcd came back: watchers must list anew, and the list is
/// right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compacted_behind_its_back() {
    let etcd = etcd(false, 3).await;
    let all = etcd.urls();
    let a = try_open(vec![all[0].clone()], "/registry").await.unwrap();
    let r = pods(&a);
    let x = create(&a, r, "ns", "x", "").await;
    let mut w = watch(&a, r, Scope::default(), WatchStart::After(x.revision));
    // No event of this resource is missed, since there is none. It is loaded before its watch begins: a load ends the
    // watches that began earlier.
    let q = nodes(&a);
    assert!(a.wait_for(q, x.revision, suite::LONG).await);
    let mut of_nodes = watch(&a, q, Scope::default(), WatchStart::After(x.revision));
    etcd.freeze(0, true).unwrap();
    let b = try_open(all[1..].to_vec(), "/registry").await.unwrap();
    pods(&b);
    let mut last = update(&b, r, &x, "", "2").await.unwrap();
    for n in 0..20 {
        last = update(&b, r, &last, "", &format!("{n}")).await.unwrap();
    }
    let revision = b.current(r).to_string();
    let others = format!("{},{}", all[1], all[2]);
    let compact = std::process::Command::new(testkit::tool("etcdctl"))
        .args(["--endpoints", &others, "compact", &revision])
        .output()
        .unwrap();
    assert!(compact.status.success(), "{}", String::from_utf8_lossy(&compact.stderr));
    etcd.freeze(0, false).unwrap();
    // Either the member still had the events when it went on, or they are gone.
    let mut end = None;
    while end.is_none() {
        match tokio::time::timeout(suite::LONG, w.next()).await.unwrap().unwrap() {
            Ok(ferrokube_storage::Batch::Events(events)) => {
                if events.iter().any(|e| e.revision == last.revision) {
                    end = Some(true);
                }
            }
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e, WatchEnd::Compacted);
                end = Some(false);
            }
        }
    }
    a.fresh(&[r]).await.unwrap();
    let found = a.get(r, "ns", "x").unwrap();
    assert_eq!((found.revision, &found.data.body), (last.revision, &last.data.body));
    let n = create(&b, nodes(&b), "", "n", "").await;
    expect(&mut of_nodes, &[event("Added", &n)]).await;
}

/// While there is no etcd, reads that may be older go on; the others and writes end with an error, in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_etcd() {
    let mut etcd = etcd(false, 1).await;
    let a = open(&etcd, "/registry").await;
    let r = pods(&a);
    let x = create(&a, r, "ns", "x", "").await;
    tokio::task::block_in_place(|| etcd.kill(0)).unwrap();
    assert_eq!(a.get(r, "ns", "x").unwrap().revision, x.revision);
    let resources = [r];
    let (fresh, write) = tokio::join!(
        tokio::time::timeout(suite::LONG, a.fresh(&resources)),
        tokio::time::timeout(suite::LONG, update(&a, r, &x, "", "2"))
    );
    let (fresh, write) = (fresh.unwrap().unwrap_err().to_string(), write.unwrap().unwrap_err().to_string());
    assert!(fresh.starts_with("cannot reach etcd at http://127.0.0.1:"), "{fresh}");
    assert!(write.contains("cannot reach etcd at"), "{write}");
    etcd.restart(0).unwrap();
    update(&a, r, &x, "", "3").await.unwrap();
    a.fresh(&[r]).await.unwrap();
}
