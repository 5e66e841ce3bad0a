//! Values that cannot be read are deleted without being read.

use ferrokube_storage::{Scope, WatchEnd, WatchStart, WriteError};
use futures::StreamExt;

use super::apart::nodes;
use super::*;
use crate::suite::{create, expect, named, pods, try_create, watch};

async fn deletion(old: bool) {
    let start = move || if old { Etcd::start_old(1) } else { Etcd::start(1) };
    let etcd = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let (s, other) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (r, q) = (pods(&s), pods(&other));
    let good = create(&s, r, "ns", "good", "").await;
    let worse = create(&s, r, "ns", "worse", "").await;
    let mut seeing = watch(&s, r, named("ns", "worse"), WatchStart::After(worse.revision));
    for name in ["bad", "worse"] {
        etcd.etcdctl(&["put", &format!("/registry/pods/ns/{name}"), "garbage"]).unwrap();
    }
    s.fresh(&[r]).await.unwrap();
    other.fresh(&[q]).await.unwrap();
    let ended = seeing.next().await;
    assert!(
        matches!(&ended, Some(Err(WatchEnd::Unreadable(bad))) if bad.key.ends_with("/worse")),
        "{ended:?}"
    );
    let all = |limit| -> Vec<String> {
        let all = s.all_unreadable(r, &Scope::default(), limit);
        all.iter().map(|bad| bad.key.clone()).collect()
    };
    assert_eq!(all(9), ["/registry/pods/ns/bad", "/registry/pods/ns/worse"]);
    assert_eq!(all(1), ["/registry/pods/ns/bad"]);
    let delete =
        async |name: &str, expect: u64| s.delete_unreadable(r, "ns".into(), name.into(), expect).await;
    let bad = s.unreadable(r, &named("ns", "bad"), 0).unwrap();
    assert!(!bad.sealed);
    // A value of another revision stays.
    let stale = delete("bad", bad.revision - 1).await;
    assert!(matches!(&stale, Err(WriteError::Unreadable(now)) if **now == *bad), "{stale:?}");
    let readable = delete("good", bad.revision).await;
    assert!(matches!(&readable, Err(WriteError::Changed(o)) if o.revision == good.revision), "{readable:?}");
    assert!(matches!(delete("none", bad.revision).await, Err(WriteError::NotFound)));
    // The name of a value that was never read is free again; watchers that saw an object before learn that it is gone.
    let refused = try_create(&s, r, "ns", "bad", "").await;
    assert!(matches!(refused, Err(WriteError::Unreadable(_))), "{refused:?}");
    delete("bad", bad.revision).await.unwrap();
    let again = create(&s, r, "ns", "bad", "").await;
    delete("worse", s.unreadable(r, &named("ns", "worse"), 0).unwrap().revision).await.unwrap();
    assert!(s.get(r, "ns", "worse").is_none() && all(9).is_empty());
    other.fresh(&[q]).await.unwrap();
    assert!(other.unreadable(q, &Scope::default(), 0).is_none());
    for (store, id) in [(&s, r), (&other, q)] {
        // This is the last event.
        let gone = format!("Deleted ns/worse {}", store.current(id));
        let mut after = watch(store, id, named("ns", "worse"), WatchStart::After(worse.revision));
        expect(&mut after, &[gone]).await;
        assert_eq!(store.get(id, "ns", "bad").unwrap().revision, again.revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_new() {
    deletion(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_old() {
    deletion(true).await;
}

/// A store does not start without the keys, unless it may delete the values that need them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_has_the_key_for() {
    let etcd = tokio::task::spawn_blocking(|| Etcd::start(1)).await.unwrap().unwrap();
    etcd.etcdctl(&["put", "/registry/nodes/n", "k8s:enc:nobody's"]).unwrap();
    let refused = try_open(etcd.urls(), "/registry").await.map(drop);
    assert!(
        matches!(&refused, Err(EtcdOpenError::Value(why)) if why.contains("/registry/nodes/n")),
        "{refused:?}"
    );
    let servers = EtcdServers { endpoints: etcd.urls(), ..EtcdServers::default() };
    let allowed = EtcdConfig { allow_sealed: true, ..config(servers, "/registry") };
    let s = Store::open_etcd(allowed, &Shutdown::new()).await.unwrap();
    let r = nodes(&s);
    let bad = s.unreadable(r, &Scope::default(), 0).unwrap();
    s.delete_unreadable(r, "".into(), "n".into(), bad.revision).await.unwrap();
    open(&etcd, "/registry").await;
}
