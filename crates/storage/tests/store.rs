//! What every store must do, modelled on upstream's store and watcher tests.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Object, Text};
use component::Shutdown;
use ferrokube_storage as storage;
use futures::{FutureExt, StreamExt};
use storage::{
    Batch, Compacted, OpenError, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchEnd, WatchOptions,
    WatchStart, Watcher, Write, WriteError,
};

const NODE: usize = 0;

fn pods(store: &Store) -> ResourceId {
    store.register(ResourceSpec { group: "".into(), plural: "pods".into(), indexed: vec![NODE] })
}

fn object(namespace: &str, name: &str, node: &str, text: &str) -> NewObject {
    let head = r#"{"metadata":{"resourceVersion":""#;
    NewObject {
        name: name.into(),
        namespace: namespace.into(),
        uid: format!("{namespace}-{name}").into(),
        labels: Box::new([("app".into(), "x".into())]),
        owners: Box::new([]),
        fields: Box::new([Text::from(node)]),
        deleting: false,
        finalizers: false,
        stamp: 1,
        body: format!(r#"{head}"}},"node":"{node}","text":"{text}"}}"#).into(),
        rv_at: head.len() as u32,
    }
}

async fn create(s: &Store, r: ResourceId, namespace: &str, name: &str, node: &str) -> Arc<Object> {
    let object = object(namespace, name, node, "");
    s.commit(Write::Create { resource: r, object, ttl: None }).await.unwrap()
}

async fn update(
    s: &Store,
    r: ResourceId,
    old: &Object,
    node: &str,
    text: &str,
) -> Result<Arc<Object>, WriteError> {
    let object = object(&old.data.namespace, &old.data.name, node, text);
    s.commit(Write::Update { resource: r, object, expect: old.revision, ttl: None }).await
}

async fn delete(s: &Store, r: ResourceId, old: &Object) -> Result<Arc<Object>, WriteError> {
    let (namespace, name) = (old.data.namespace.clone(), old.data.name.clone());
    s.commit(Write::Delete { resource: r, namespace, name, expect: old.revision }).await
}

fn watch(s: &Store, r: ResourceId, scope: Scope, start: WatchStart) -> Watcher {
    s.watch(r, scope, start, WatchOptions::default()).unwrap()
}

fn in_namespace(namespace: &str) -> Scope {
    Scope { namespace: namespace.into(), ..Scope::default() }
}

/// What has been delivered by now, as `cause name revision`.
fn delivered(w: &mut Watcher) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(Some(batch)) = w.next().now_or_never() {
        match batch {
            Ok(Batch::Events(events)) => out.extend(
                events.iter().map(|e| format!("{:?} {} {}", e.cause, e.object.data.name, e.revision)),
            ),
            other => out.push(format!("{other:?}")),
        }
    }
    out
}

/// A watcher of nothing, by whose progress [`settle`] sees that watchers have been served.
fn sentinel(s: &Store, r: ResourceId) -> Watcher {
    watch(s, r, in_namespace("nothing"), WatchStart::After(s.current()))
}

/// Waits until watchers have been served: acknowledgements come before.
async fn settle(s: &Store, sentinel: &Watcher) {
    while sentinel.progress() < s.current() {
        tokio::task::yield_now().await;
    }
}

fn names(s: &storage::Snapshot, scope: &Scope, after: Option<(&str, &str)>) -> Vec<String> {
    assert_eq!(s.scan(scope, after).count(), s.count(scope, after));
    s.scan(scope, after).map(|o| format!("{}/{}", o.data.namespace, o.data.name)).collect()
}

#[tokio::test]
async fn create_get_and_exists() {
    let s = Store::in_memory();
    let r = pods(&s);
    assert_eq!((s.current(), s.snapshot(r).revision()), (0, 0));
    let a = create(&s, r, "ns", "a", "").await;
    assert_eq!((a.revision, s.current()), (1, 1));
    assert_eq!(s.get(r, "ns", "a").unwrap().revision, 1);
    assert!(s.get(r, "", "a").is_none());
    let again =
        s.commit(Write::Create { resource: r, object: object("ns", "a", "", "other"), ttl: None }).await;
    assert!(matches!(again, Err(WriteError::Exists(o)) if o.data.body == a.data.body));
    assert_eq!(s.current(), 1, "a refused write has no revision");
    let stranger =
        s.commit(Write::Create { resource: ResourceId(77), object: object("", "a", "", ""), ttl: None });
    assert!(matches!(stranger.await, Err(WriteError::NotFound)));
}

#[tokio::test]
async fn update_and_delete_at_a_revision_only() {
    let s = Store::in_memory();
    let r = pods(&s);
    let first = create(&s, r, "ns", "a", "").await;
    let second = update(&s, r, &first, "", "2").await.unwrap();
    assert_eq!(second.revision, 2);
    assert!(matches!(update(&s, r, &first, "", "3").await, Err(WriteError::Changed(o)) if o.revision == 2));
    assert!(matches!(delete(&s, r, &first).await, Err(WriteError::Changed(o)) if o.revision == 2));
    let same = update(&s, r, &second, "", "2").await.unwrap();
    assert_eq!((same.revision, s.current()), (2, 2), "nothing changed, nothing written");
    let gone = delete(&s, r, &second).await.unwrap();
    assert_eq!((gone.revision, s.get(r, "ns", "a").is_none()), (3, true));
    assert_eq!(gone.data.body, second.data.body);
    assert!(matches!(update(&s, r, &second, "", "4").await, Err(WriteError::NotFound)));
    assert!(matches!(delete(&s, r, &second).await, Err(WriteError::NotFound)));
    assert_eq!(create(&s, r, "ns", "a", "").await.revision, 4);
}

#[tokio::test]
async fn lists_by_scope_in_the_order_of_keys() {
    let s = Store::in_memory();
    let r = pods(&s);
    for (namespace, name, node) in [
        ("b", "1", "n1"),
        ("a", "2", "n2"),
        ("a", "10", "n1"),
        ("a-b", "3", ""),
        ("a", "1", "n1"),
        ("c", "1", ""),
    ] {
        create(&s, r, namespace, name, node).await;
    }
    let list = s.snapshot(r);
    let by_node = |ns: &str, node: &str| Scope { field: Some((NODE, node.into())), ..in_namespace(ns) };
    let named = |ns: &str, name: &str| Scope { name: name.into(), ..in_namespace(ns) };
    let check = |scope: &Scope, after, expected: &[&str]| {
        assert_eq!(names(&list, scope, after), expected, "{scope:?}");
    };
    let all = Scope::default();
    check(&all, None, &["a-b/3", "a/1", "a/10", "a/2", "b/1", "c/1"]);
    check(&all, Some(("a", "10")), &["a/2", "b/1", "c/1"]);
    check(&all, Some(("a", "100")), &["a/2", "b/1", "c/1"]);
    check(&all, Some(("c", "1")), &[]);
    check(&in_namespace("a"), None, &["a/1", "a/10", "a/2"]);
    check(&in_namespace("a"), Some(("a", "1")), &["a/10", "a/2"]);
    check(&in_namespace("b"), Some(("a", "1")), &["b/1"]);
    check(&in_namespace("a"), Some(("b", "1")), &[]);
    check(&in_namespace("none"), None, &[]);
    check(&named("", "1"), None, &["a/1", "b/1", "c/1"]);
    check(&named("a", "1"), None, &["a/1"]);
    check(&named("a", "1"), Some(("a", "1")), &[]);
    check(&named("a", "3"), None, &[]);
    check(&by_node("", "n1"), None, &["a/1", "a/10", "b/1"]);
    check(&by_node("", "n1"), Some(("a", "1")), &["a/10", "b/1"]);
    check(&by_node("a", "n1"), None, &["a/1", "a/10"]);
    check(&by_node("", ""), None, &["a-b/3", "c/1"]);
    check(&by_node("", "none"), None, &[]);
    let unindexed = s.register(ResourceSpec { group: "".into(), plural: "pods".into(), indexed: vec![] });
    assert_eq!(unindexed, r);
    assert_eq!(names(&s.snapshot(r), &by_node("a", "n1"), None), ["a/1", "a/10"]);
    let nodes = s.register(ResourceSpec { group: "".into(), plural: "nodes".into(), indexed: vec![] });
    create(&s, nodes, "", "x", "").await;
    create(&s, nodes, "", "y", "").await;
    assert_eq!(names(&s.snapshot(nodes), &named("", "y"), None), ["/y"]);
    assert_eq!(names(&s.snapshot(nodes), &all, Some(("", "x"))), ["/y"]);
}

#[tokio::test]
async fn an_index_follows_updates() {
    let s = Store::in_memory();
    let r = pods(&s);
    let on = |node: &str| Scope { field: Some((NODE, node.into())), ..Scope::default() };
    let a = create(&s, r, "ns", "a", "").await;
    let a = update(&s, r, &a, "n1", "").await.unwrap();
    assert_eq!((s.snapshot(r).count(&on(""), None), s.snapshot(r).count(&on("n1"), None)), (0, 1));
    assert_eq!(s.snapshot(r).scan(&on("n1"), None).next().unwrap().revision, 2);
    delete(&s, r, &a).await.unwrap();
    assert_eq!(s.snapshot(r).count(&on("n1"), None), 0);
}

#[tokio::test]
async fn snapshots_do_not_change_and_the_past_can_be_read() {
    let s = Store::in_memory();
    let r = pods(&s);
    let a = create(&s, r, "ns", "a", "n1").await;
    let b = create(&s, r, "ns", "b", "n1").await;
    let before = s.snapshot(r);
    let a = update(&s, r, &a, "n2", "new").await.unwrap();
    delete(&s, r, &b).await.unwrap();
    create(&s, r, "ns", "c", "n1").await;
    let all = Scope::default();
    let on = Scope { field: Some((NODE, "n1".into())), ..Scope::default() };
    assert_eq!((before.revision(), names(&before, &all, None)), (2, vec!["ns/a".into(), "ns/b".into()]));
    for _ in 0..2 {
        let at = s.snapshot_at(r, 2).unwrap();
        assert_eq!((at.revision(), names(&at, &all, None)), (2, names(&before, &all, None)));
        assert_eq!(names(&at, &on, None), names(&before, &on, None));
        assert_eq!(at.get("ns", "a").unwrap().revision, 1);
    }
    assert_eq!(names(&s.snapshot_at(r, 4).unwrap(), &all, None), ["ns/a"]);
    assert_eq!(names(&s.snapshot_at(r, 0).unwrap(), &all, None), [""; 0]);
    assert!(s.snapshot_at(r, 6).is_none(), "yet to come");
    s.compact(3);
    assert!(s.snapshot_at(r, 2).is_none());
    assert_eq!(s.snapshot_at(r, 3).unwrap().get("ns", "a").unwrap().revision, a.revision);
}

#[tokio::test]
async fn watch_from_now_and_from_a_revision() {
    let s = Store::in_memory();
    let r = pods(&s);
    let idle = sentinel(&s, r);
    let a = create(&s, r, "ns", "a", "").await;
    create(&s, r, "other", "b", "").await;
    let mut now = watch(&s, r, in_namespace("ns"), WatchStart::Now);
    assert_eq!(now.progress(), 0);
    assert_eq!(delivered(&mut now), ["Added a 1", "Ok(Synced(2))"]);
    assert_eq!(now.progress(), 2);
    let a = update(&s, r, &a, "", "2").await.unwrap();
    create(&s, r, "other", "c", "").await;
    delete(&s, r, &a).await.unwrap();
    settle(&s, &idle).await;
    assert_eq!(delivered(&mut now), ["Modified a 3", "Deleted a 5"]);
    let from = |revision, scope| delivered(&mut watch(&s, r, scope, WatchStart::After(revision)));
    assert_eq!(from(1, Scope::default()), ["Added b 2", "Modified a 3", "Added c 4", "Deleted a 5"]);
    assert_eq!(from(1, in_namespace("ns")), ["Modified a 3", "Deleted a 5"]);
    assert_eq!(from(5, Scope::default()), [""; 0]);
    let mut future = watch(&s, r, Scope::default(), WatchStart::After(6));
    create(&s, r, "ns", "six", "").await;
    create(&s, r, "ns", "seven", "").await;
    settle(&s, &idle).await;
    assert_eq!(delivered(&mut future), ["Added seven 7"]);
    s.compact(3);
    let old = s.watch(r, Scope::default(), WatchStart::After(2), WatchOptions::default());
    assert_eq!(old.err(), Some(Compacted { oldest: 3 }));
    assert_eq!(delivered(&mut watch(&s, r, in_namespace("ns"), WatchStart::After(3)))[0], "Deleted a 5");
}

#[tokio::test]
async fn events_wake_only_those_that_want_them() {
    let s = Store::in_memory();
    let r = pods(&s);
    let idle = sentinel(&s, r);
    let scopes = [
        Scope::default(),
        in_namespace("x"),
        Scope { name: "p".into(), ..in_namespace("x") },
        Scope { name: "p".into(), ..Scope::default() },
        Scope { field: Some((NODE, "n1".into())), ..Scope::default() },
        Scope { field: Some((NODE, "n2".into())), ..in_namespace("y") },
    ];
    let mut watchers: Vec<_> = scopes.iter().map(|c| watch(&s, r, c.clone(), WatchStart::After(0))).collect();
    let p = create(&s, r, "x", "p", "n1").await;
    create(&s, r, "x", "q", "").await;
    let yp = create(&s, r, "y", "p", "n2").await;
    update(&s, r, &p, "n2", "").await.unwrap();
    delete(&s, r, &yp).await.unwrap();
    settle(&s, &idle).await;
    let got: Vec<_> = watchers.iter_mut().map(delivered).collect();
    assert_eq!(got[0], ["Added p 1", "Added q 2", "Added p 3", "Modified p 4", "Deleted p 5"]);
    assert_eq!(got[1], ["Added p 1", "Added q 2", "Modified p 4"]);
    assert_eq!(got[2], ["Added p 1", "Modified p 4"]);
    assert_eq!(got[3], ["Added p 1", "Added p 3", "Modified p 4", "Deleted p 5"]);
    assert_eq!(got[4], ["Added p 1", "Modified p 4"], "the event by which it leaves, too");
    assert_eq!(got[5], ["Added p 3", "Deleted p 5"]);
    for w in &watchers {
        assert_eq!(w.progress(), 5);
    }
}

#[tokio::test]
async fn a_slow_watcher_ends_and_an_event_is_shared() {
    let s = Store::in_memory();
    let r = pods(&s);
    let idle = sentinel(&s, r);
    let options = WatchOptions { buffer: 2, ..WatchOptions::default() };
    let mut slow = s.watch(r, Scope::default(), WatchStart::After(0), options).unwrap();
    let mut other = watch(&s, r, Scope::default(), WatchStart::After(0));
    for name in ["a", "b", "c", "d"] {
        create(&s, r, "ns", name, "").await;
    }
    settle(&s, &idle).await;
    let Some(Ok(Batch::Events(mine))) = slow.next().await else { panic!("events") };
    let Some(Ok(Batch::Events(theirs))) = other.next().await else { panic!("events") };
    assert_eq!((mine.len(), theirs.len()), (2, 4));
    assert!(Arc::ptr_eq(&mine[0], &theirs[0]));
    assert_eq!(mine[0].encoded(1, || "once".into()), theirs[0].encoded(1, || unreachable!()));
    assert_eq!(slow.next().await.unwrap().unwrap_err(), WatchEnd::Behind);
    assert!(slow.next().await.is_none());
}

#[tokio::test]
async fn close_ends_watchers_and_refuses_writes() {
    let s = Store::in_memory();
    let r = pods(&s);
    let mut w = watch(&s, r, Scope::default(), WatchStart::Now);
    create(&s, r, "ns", "a", "").await;
    s.close().await;
    assert_eq!(delivered(&mut w), ["Ok(Synced(0))", "Added a 1", "Err(Closed)"]);
    let late = s.commit(Write::Create { resource: r, object: object("", "b", "", ""), ttl: None }).await;
    assert!(matches!(late, Err(WriteError::Closed)));
    assert!(s.get(r, "ns", "a").is_some());
    assert_eq!(delivered(&mut watch(&s, r, Scope::default(), WatchStart::After(1))), ["Err(Closed)"]);
}

#[tokio::test]
async fn waits_for_a_revision() {
    let s = Store::in_memory();
    let r = pods(&s);
    assert!(s.wait_for(0, Duration::ZERO).await);
    assert!(!s.wait_for(1, Duration::from_millis(1)).await);
    let (reached, _) = tokio::join!(s.wait_for(1, Duration::from_mins(1)), create(&s, r, "ns", "a", ""));
    assert!(reached);
}

#[tokio::test]
async fn progress_is_reported_to_those_that_ask() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = Shutdown::new();
    let config = StoreConfig { progress_interval: Duration::from_millis(5), ..StoreConfig::new(dir.path()) };
    let s = Store::open(config, &shutdown).unwrap();
    let r = pods(&s);
    let options = WatchOptions { progress: true, ..WatchOptions::default() };
    let mut w = s.watch(r, in_namespace("none"), WatchStart::After(0), options).unwrap();
    create(&s, r, "ns", "a", "").await;
    loop {
        match w.next().await {
            Some(Ok(Batch::Progress(0))) => {}
            Some(Ok(Batch::Progress(1))) => break,
            other => panic!("{other:?}"),
        }
    }
    shutdown.finish().await;
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = Shutdown::new();
    let s = Store::open(StoreConfig::new(dir.path().join("new")), &shutdown).unwrap();
    let r = pods(&s);
    let nodes = s.register(ResourceSpec { group: "g".into(), plural: "nodes".into(), indexed: vec![] });
    let a = create(&s, r, "ns", "a", "n1").await;
    create(&s, nodes, "", "n", "").await;
    let b = create(&s, r, "ns", "b", "n1").await;
    update(&s, r, &a, "n2", "é").await.unwrap();
    delete(&s, r, &b).await.unwrap();
    let locked = Store::open(StoreConfig::new(dir.path().join("new")), &shutdown);
    assert!(matches!(locked, Err(OpenError::Locked(_))));
    shutdown.finish().await;
    drop(s);

    let s = Store::open(StoreConfig::new(dir.path().join("new")), &Shutdown::new()).unwrap();
    let nodes = s.register(ResourceSpec { group: "g".into(), plural: "nodes".into(), indexed: vec![] });
    let r = pods(&s);
    assert_eq!(s.current(), 5);
    assert!(s.get(nodes, "", "n").is_some());
    let again = s.get(r, "ns", "a").unwrap();
    assert_eq!((again.revision, &again.data.fields[0]), (4, &Text::from("n2")));
    assert_eq!(
        (&again.data.uid, again.label("app"), again.data_body()),
        (&a.data.uid, Some("x"), "é".into())
    );
    assert_eq!(
        delivered(&mut watch(&s, r, Scope::default(), WatchStart::After(1))),
        ["Added b 3", "Modified a 4", "Deleted b 5"],
        "watches resume"
    );
    assert_eq!(create(&s, r, "ns", "c", "").await.revision, 6);
}

trait Body {
    fn data_body(&self) -> String;
}
impl Body for Object {
    /// The text that [`object`] put into the body.
    fn data_body(&self) -> String {
        let body = String::from_utf8(self.data.body.to_vec()).unwrap();
        body.split(r#""text":""#).nth(1).unwrap().trim_end_matches(r#""}"#).to_owned()
    }
}

#[test]
fn directories_that_are_not_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let check = |name: &str, make: &dyn Fn(&std::path::Path), expected: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        make(&path);
        let error = Store::open(StoreConfig::new(&path), &Shutdown::new()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let write =
        |path: &std::path::Path, name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    check("other", &|p| write(p, "notes.txt", "x"), "not a FerroKube store: choose another");
    check("odd", &|p| write(p, "format", "postgres 15\n"), "not a FerroKube store");
    check(
        "newer",
        &|p| write(p, "format", "ferrokube-store 9\n"),
        "has format 9, this version reads up to 1",
    );
    check(
        "damaged",
        &|p| {
            write(p, "format", "ferrokube-store 1\n");
            write(p, "snapshot-00000000000000000007", "short");
        },
        "is damaged: snapshot-00000000000000000007 is damaged at byte 0",
    );
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Store::open(StoreConfig::new(&file), &Shutdown::new()).unwrap_err();
    assert!(matches!(error, OpenError::NotOurs(_)), "{error}");
}
