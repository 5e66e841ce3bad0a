//! Several stores on one etcd.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::StreamExt;

use super::apart::nodes;
use super::*;
use crate::suite::{self, create, delete, event, events, expect, late, pods, update, watch};
use ferrokube_storage::{Scope, WatchEnd, WatchOptions, WatchStart, Write, WriteError};

async fn etcd(old: bool, members: usize) -> Etcd {
    let start = move || if old { Etcd::start_old(members) } else { Etcd::start(members) };
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// A write that one store acknowledged is shown at once by another one to a reader of the newest state.
async fn read_after_write(old: bool) {
    let etcd = etcd(old, 1).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (r, q) = (pods(&a), pods(&b));
    for n in 0..200 {
        let made = create(&a, r, "ns", &format!("o{n}"), "").await;
        b.fresh(&[q]).await.unwrap();
        let found = b.get(q, "ns", &format!("o{n}")).unwrap();
        assert_eq!((found.revision, &found.data.body), (made.revision, &made.data.body));
        // A foreign revision must not be waited for in vain.
        etcd.etcdctl(&["put", "foreign", &n.to_string()]).unwrap();
        if n % 50 == 0 {
            b.fresh(&[q]).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_after_write_new() {
    read_after_write(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_after_write_old() {
    read_after_write(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_of_two_writers_wins() {
    let etcd = etcd(false, 1).await;
    let stores = [open(&etcd, "/registry").await, open(&etcd, "/registry").await];
    let r = pods(&stores[0]);
    pods(&stores[1]);
    let mut object = create(&stores[0], r, "ns", "a", "").await;
    for round in 0..50 {
        let text = |n: usize| format!("{round} {n}");
        stores[1].wait_for(r, object.revision, suite::LONG).await;
        let (one, two) = (text(0), text(1));
        let outcomes =
            tokio::join!(update(&stores[0], r, &object, "", &one), update(&stores[1], r, &object, "", &two));
        let (won, lost) = match outcomes {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            other => panic!("{other:?}"),
        };
        assert!(matches!(lost, WriteError::Changed(o) if o.revision == won.revision));
        object = won;
    }
    let outcomes = tokio::join!(delete(&stores[0], r, &object), delete(&stores[1], r, &object));
    assert!(
        matches!(outcomes, (Ok(_), Err(WriteError::NotFound)) | (Err(WriteError::NotFound), Ok(_))),
        "{outcomes:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_see_what_others_write() {
    let etcd = etcd(false, 1).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (r, q) = (pods(&a), pods(&b));
    let mut w = watch(&b, q, Scope::default(), WatchStart::After(b.current(q)));
    let x = create(&a, r, "ns", "x", "n1").await;
    let y = update(&a, r, &x, "n2", "2").await.unwrap();
    let gone = delete(&a, r, &y).await.unwrap();
    expect(&mut w, &[event("Added", &x), event("Modified", &y), event("Deleted", &gone)]).await;
    // Many objects go in one revision, as those of a lease that ends.
    for n in 0..5 {
        create(&a, r, "ns", &format!("e{n}"), "").await;
    }
    etcd.etcdctl(&["del", "--prefix", "/registry/pods/ns/e"]).unwrap();
    let all = events(&mut w, 10).await;
    let names: BTreeSet<_> = all[5..].iter().map(|e| e.object.data.name.to_string()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["e0", "e1", "e2", "e3", "e4"]);
    assert_eq!(all[5..].iter().map(|e| e.revision).collect::<BTreeSet<_>>().len(), 1, "all at once");
}

/// A value that cannot be read ends the watches that would have its event, after the events before it, and is reported
/// to readers of its object, also after a start. Everybody else goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_cannot_be_read() {
    let etcd = etcd(false, 1).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (r, q) = (pods(&a), pods(&b));
    let nodes = nodes(&b);
    let start = WatchStart::After(b.current(q));
    let all_nodes = WatchStart::After(b.current(nodes));
    let [mut w, mut same, mut other] =
        ["", "ns", "other"].map(|namespace| watch(&b, q, suite::in_namespace(namespace), start));
    let mut named = watch(&b, q, suite::named("ns", "z"), start);
    let mut of_nodes = watch(&b, nodes, Scope::default(), all_nodes);
    let x = create(&a, r, "ns", "x", "").await;
    etcd.etcdctl(&["put", "/registry/pods/ns/bad", "garbage"]).unwrap();
    let z = create(&a, r, "ns", "z", "").await;
    let y = create(&a, r, "other", "y", "").await;
    let n = create(&a, nodes, "", "n", "").await;
    for w in [&mut w, &mut same] {
        expect(w, &[event("Added", &x)]).await;
        let end = tokio::time::timeout(suite::LONG, w.next()).await.unwrap().unwrap().unwrap_err();
        let WatchEnd::Unreadable(bad) = end else { panic!("{end:?}") };
        assert_eq!(bad.key, "/registry/pods/ns/bad");
        assert!(bad.revision > x.revision && bad.revision < z.revision);
    }
    expect(&mut other, &[event("Added", &y)]).await;
    expect(&mut named, &[event("Added", &z)]).await;
    expect(&mut of_nodes, &[event("Added", &n)]).await;
    // Other objects are shown as they are, and a watch that begins after the value goes on.
    b.fresh(&[q]).await.unwrap();
    assert_eq!(suite::names(&b.snapshot(q), &Scope::default(), None), ["ns/x", "ns/z", "other/y"]);
    let mut w = watch(&b, q, Scope::default(), WatchStart::After(z.revision));
    expect(&mut w, &[event("Added", &y)]).await;
    let late = open(&etcd, "/registry").await;
    let told = |s: &Store, namespace: &str, name: &str, after: u64| {
        s.unreadable(pods(s), &suite::named(namespace, name), after).map(|bad| bad.key.clone())
    };
    for s in [&b, &late] {
        for (namespace, name) in [("", ""), ("ns", ""), ("ns", "bad")] {
            assert_eq!(told(s, namespace, name, x.revision).as_deref(), Some("/registry/pods/ns/bad"));
            assert_eq!(told(s, namespace, name, z.revision), None, "it was there before");
        }
        assert_eq!((told(s, "ns", "z", 0), told(s, "other", "", 0)), (None, None));
    }
    assert!(
        b.backup().await.err().unwrap().to_string().contains("/registry/pods/ns/bad in etcd cannot be read")
    );
    etcd.etcdctl(&["del", "/registry/pods/ns/bad"]).unwrap();
    let z = update(&a, r, &z, "", "again").await.unwrap();
    expect(&mut w, &[event("Modified", &z)]).await;
    assert_eq!(told(&b, "", "", 0), None);
    b.backup().await.unwrap();
}

/// Both stores compact, and etcd is compacted once; the compacted history is gone for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_is_agreed_on() {
    let etcd = etcd(false, 1).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (r, _) = (pods(&a), pods(&b));
    let first = create(&a, r, "ns", "first", "").await;
    let stop = Shutdown::new();
    for store in [&a, &b] {
        store.compact_every(Duration::from_millis(200), &stop);
    }
    let gone = |s: &Store| {
        s.watch(r, Scope::default(), WatchStart::After(first.revision - 1), WatchOptions::default()).is_err()
    };
    let mut n = 0;
    while !gone(&a) || !gone(&b) {
        create(&a, r, "ns", &format!("o{n}"), "").await;
        tokio::time::sleep(Duration::from_millis(20)).await; // the pace of writing
        n += 1;
    }
    let version = etcd.etcdctl(&["get", "compact_rev_key", "-w", "fields"]).unwrap();
    assert!(version.contains("\"Version\" : "), "{version}");
    let old = etcd.etcdctl(&["get", "/registry/pods/ns/first", "--rev", &(first.revision - 1).to_string()]);
    assert!(old.unwrap_err().to_string().contains("has been compacted"));
    // A third store starts at the revision to which the others compacted, and knows the changes since.
    let last = create(&a, r, "ns", "last", "").await;
    // The others would go on compacting while it starts.
    a.close().await;
    b.close().await;
    let c = open(&etcd, "/registry").await;
    let r = pods(&c);
    let mut w = watch(&c, r, Scope::default(), WatchStart::After(last.revision - 1));
    expect(&mut w, &[event("Added", &last)]).await;
}

/// etcd is set back from a backup: everything is read anew, and watchers are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_set_back() {
    let mut etcd = etcd(false, 1).await;
    let a = open(&etcd, "/registry").await;
    let r = pods(&a);
    create(&a, r, "ns", "kept", "").await;
    let backup = tempfile::tempdir().unwrap();
    etcd.kill(0).unwrap();
    etcd.save(0, backup.path()).unwrap();
    etcd.restart(0).unwrap();
    for n in 0..20 {
        create(&a, r, "ns", &format!("lost{n}"), "").await;
    }
    let mut w = watch(&a, r, Scope::default(), WatchStart::After(a.current(r)));
    etcd.kill(0).unwrap();
    etcd.load(0, backup.path()).unwrap();
    etcd.restart(0).unwrap();
    let end = tokio::time::timeout(suite::LONG, w.next()).await.unwrap().unwrap();
    assert_eq!(end.unwrap_err(), WatchEnd::Compacted);
    a.fresh(&[r]).await.unwrap();
    assert_eq!(suite::names(&a.snapshot(r), &Scope::default(), None), ["ns/kept"]);
    create(&a, r, "ns", "new", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_know_each_other() {
    let etcd = etcd(false, 1).await;
    let (a, b) = (open(&etcd, "/registry").await, open(&etcd, "/registry").await);
    let (one, two): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let (stop_one, stop_two) = (Shutdown::new(), Shutdown::new());
    a.servers().unwrap().announce(one, &stop_one).await.unwrap();
    b.servers().unwrap().announce(two, &stop_two).await.unwrap();
    let mut seen = b.servers().unwrap();
    while seen.addresses() != [one, two] {
        seen.changed().await;
    }
    let leased = etcd.etcdctl(&["get", "/registry/masterleases/192.0.2.1", "-w", "fields"]).unwrap();
    assert!(leased.contains("\"Lease\" : ") && !leased.contains("\"Lease\" : 0\n"), "{leased}");
    stop_one.finish().await;
    while seen.addresses() != [two] {
        seen.changed().await;
    }
}

/// A store that is opened sees everything, page by page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_are_loaded() {
    let etcd = etcd(false, 1).await;
    let a = open(&etcd, "/registry").await;
    let r = pods(&a);
    let all = (0..5000).map(|n| {
        let a = &a;
        async move { create(a, r, &format!("ns{}", n % 7), &format!("o{n}"), "").await.revision }
    });
    let revisions: BTreeSet<_> = futures::stream::iter(all).buffer_unordered(200).collect().await;
    assert_eq!(revisions.len(), 5000);
    let b = open(&etcd, "/registry").await;
    let q = pods(&b);
    let found: BTreeSet<_> = b.snapshot(q).scan(&Scope::default(), None).map(|o| o.revision).collect();
    assert_eq!(found, revisions);
}

/// An embedded store restores a backup of a store in etcd, with the remaining times of objects that expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_restored_locally() {
    let etcd = etcd(false, 1).await;
    let a = open(&etcd, "/registry").await;
    let r = pods(&a);
    let kept = create(&a, r, "ns", "kept", "n1").await;
    // The backup also has a resource that was not made known to the store.
    let unknown = late(&a).await;
    let other = create(&a, unknown, "ns", "other", "").await;
    let object = suite::object("ns", "short", "", "");
    a.commit(Write::Create { resource: r, object, ttl: Some(Duration::from_secs(3)) }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (file, to) = (dir.path().join("file"), dir.path().join("store"));
    let b = open(&etcd, "/registry").await;
    let bytes: Vec<u8> = b.backup().await.unwrap().flatten().collect();
    std::fs::write(&file, bytes).unwrap();
    ferrokube_storage::restore(&file, &to).unwrap();
    let local = Store::open(ferrokube_storage::StoreConfig::new(&to), &Shutdown::new()).unwrap();
    let q = pods(&local);
    let found = local.get(q, "ns", "kept").unwrap();
    assert_eq!((found.revision, &found.data.body), (kept.revision, &kept.data.body));
    let found = local.get(late(&local).await, "ns", "other").unwrap();
    assert_eq!((found.revision, &found.data.body), (other.revision, &other.data.body));
    assert!(local.current(r) > a.current(r));
    let mut w = watch(&local, q, Scope::default(), WatchStart::Now);
    loop {
        if let ferrokube_storage::Batch::Events(events) = suite::next(&mut w).await
            && events.iter().any(|e| e.cause == ferrokube_storage::Cause::Deleted)
        {
            break;
        }
    }
    assert_eq!(suite::names(&local.snapshot(q), &Scope::default(), None), ["ns/kept"]);
}

/// An embedded store moves into etcd: with everything, above its revision, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_store_moves_in() {
    let etcd = etcd(false, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let local = Store::open(ferrokube_storage::StoreConfig::new(dir.path()), &Shutdown::new()).unwrap();
    let r = pods(&local);
    let mut last = create(&local, r, "ns", "a", "n1").await;
    for n in 0..300 {
        last = update(&local, r, &last, "n2", &format!("{n}")).await.unwrap();
    }
    let object = suite::object("ns", "short", "", "");
    local.commit(Write::Create { resource: r, object, ttl: Some(Duration::from_secs(1)) }).await.unwrap();
    let before = local.current(r);
    let config = || config(EtcdServers { endpoints: etcd.urls(), ..EtcdServers::default() }, "/registry");
    let moved = local.migrate_to_etcd(config()).await.unwrap();
    assert_eq!((moved.objects, moved.from), (2, before));
    let s = open(&etcd, "/registry").await;
    let r = pods(&s);
    let found = s.get(r, "ns", "a").unwrap();
    assert_eq!(found.data.body, last.data.body);
    assert!(found.revision > before && s.current(r) >= moved.to);
    assert!(s.watch(r, Scope::default(), WatchStart::After(before), WatchOptions::default()).is_err());
    assert!(s.servers().unwrap().addresses().is_empty());
    let leased = etcd.etcdctl(&["get", "/registry/pods/ns/short", "-w", "fields"]).unwrap();
    assert!(!leased.contains("\"Lease\" : 0\n"), "{leased}");
    let again = local.migrate_to_etcd(config()).await.unwrap_err().to_string();
    assert!(again.starts_with("etcd holds 2 keys below /registry/: move into an empty one"), "{again}");
}
