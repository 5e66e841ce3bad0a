//! Reads and writes.

use super::*;

pub(crate) async fn create_and_get<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let before = s.current(r);
    assert_eq!(s.snapshot(r).count(&Scope::default(), None), 0);
    assert!(s.snapshot(r).revision() >= before, "an empty list has the store's revision");
    let a = create(s, r, "ns", "a", "n1").await;
    assert!(a.revision > before && s.current(r) >= a.revision);
    let found = s.get(r, "ns", "a").unwrap();
    assert_eq!((found.revision, &found.data.body, &found.data.uid), (a.revision, &a.data.body, &a.data.uid));
    assert_eq!((found.label("app"), &found.data.fields[NODE]), (Some("x"), &Text::from("n1")));
    for (namespace, name) in [("", "a"), ("ns", ""), ("n", "sa"), ("ns", "aa"), ("other", "a")] {
        assert!(s.get(r, namespace, name).is_none(), "{namespace}/{name}");
    }
    let stranger = Write::Create { resource: ResourceId(77), object: object("", "a", "", ""), ttl: None };
    assert!(matches!(s.commit(stranger).await, Err(WriteError::NotFound)));
}

pub(crate) async fn names_are_taken_once<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let a = create(s, r, "ns", "a", "").await;
    let other = object("ns", "a", "", "other");
    let again = s.commit(Write::Create { resource: r, object: other, ttl: None }).await;
    assert!(
        matches!(again, Err(WriteError::Exists(o)) if (o.revision, &o.data.body) == (a.revision, &a.data.body))
    );
    let gone = delete(s, r, &a).await.unwrap();
    let new = create(s, r, "ns", "a", "").await;
    assert!(new.revision > gone.revision, "a name that is free again");
    let all = (0..20).map(|_| try_create(s, r, "ns", "race", ""));
    let outcomes = futures::future::join_all(all).await;
    let winner: Vec<_> = outcomes.iter().filter_map(|o| o.as_ref().ok()).collect();
    assert_eq!(winner.len(), 1);
    for lost in outcomes.iter().filter_map(|o| o.as_ref().err()) {
        assert!(matches!(lost, WriteError::Exists(o) if o.revision == winner[0].revision), "{lost}");
    }
}

pub(crate) async fn an_update_is_of_one_revision<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let first = create(s, r, "ns", "a", "").await;
    let second = update(s, r, &first, "", "2").await.unwrap();
    assert!(second.revision > first.revision);
    assert_eq!(s.get(r, "ns", "a").unwrap().data.body, second.data.body);
    let stale = update(s, r, &first, "", "3").await;
    assert!(
        matches!(stale, Err(WriteError::Changed(o)) if (o.revision, &o.data.body) == (second.revision, &second.data.body))
    );
    let missing = Object { data: object("ns", "none", "", ""), revision: second.revision };
    assert!(matches!(update(s, r, &missing, "", "").await, Err(WriteError::NotFound)));
    let racers = (0..20).map(|n| {
        let second = second.clone();
        async move { update(s, r, &second, "", &format!("race {n}")).await }
    });
    let won = futures::future::join_all(racers).await.into_iter().flatten().count();
    assert_eq!(won, 1);
}

pub(crate) async fn a_deletion_is_of_one_revision<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let first = create(s, r, "ns", "a", "").await;
    let second = update(s, r, &first, "", "2").await.unwrap();
    let stale = delete(s, r, &first).await;
    assert!(matches!(stale, Err(WriteError::Changed(o)) if o.revision == second.revision));
    let gone = delete(s, r, &second).await.unwrap();
    assert!(gone.revision > second.revision, "a deletion has a revision");
    assert_eq!(gone.data.body, second.data.body, "its object is the last state");
    assert!(s.get(r, "ns", "a").is_none());
    assert!(matches!(delete(s, r, &second).await, Err(WriteError::NotFound)));
    assert!(matches!(update(s, r, &second, "", "").await, Err(WriteError::NotFound)));
}

pub(crate) async fn what_changes_nothing_is_not_written<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let a = create(s, r, "ns", "a", "").await;
    let mut w = watch(s, r, Scope::default(), WatchStart::After(a.revision));
    assert_eq!(update(s, r, &a, "", "").await.unwrap().revision, a.revision);
    assert_eq!(s.get(r, "ns", "a").unwrap().revision, a.revision);
    let b = update(s, r, &a, "", "new").await.unwrap();
    expect(&mut w, &[event("Modified", &b)]).await;
    assert!(
        matches!(update(s, r, &a, "", "").await, Err(WriteError::Changed(_))),
        "nor over another's change"
    );
}

pub(crate) async fn what_lives_for_a_time_goes<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let ttl = Some(Duration::from_secs(1));
    let stays = create(s, r, "ns", "stays", "").await;
    let mut w = watch(s, r, Scope::default(), WatchStart::After(stays.revision));
    let new = object("ns", "goes", "n1", "");
    let goes = s.commit(Write::Create { resource: r, object: new, ttl }).await.unwrap();
    expect(&mut w, &[event("Added", &goes)]).await;
    let gone = events(&mut w, 1).await.remove(0);
    assert_eq!((gone.cause, gone.object.data.name.as_str()), (storage::Cause::Deleted, "goes"));
    assert!(gone.revision > goes.revision && gone.object.data.body == goes.data.body);
    assert!(s.get(r, "ns", "goes").is_none() && s.get(r, "ns", "stays").is_some());
    assert_eq!(s.snapshot(r).count(&on_node("", "n1"), None), 0);
}

pub(crate) async fn resources_are_apart<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let spec = |group: &str, plural: &str| ResourceSpec {
        group: group.into(),
        plural: plural.into(),
        indexed: vec![],
    };
    let others =
        [("g", "pods"), ("g", "podsets"), ("", "pod"), ("", "pods2")].map(|(g, p)| s.register(spec(g, p)));
    let mut w = watch(s, r, Scope::default(), WatchStart::After(s.current(r)));
    for (n, other) in others.into_iter().enumerate() {
        assert_ne!(other, r);
        create(s, other, "ns", "a", "").await;
        assert_eq!(s.snapshot(r).count(&Scope::default(), None), 0, "{n}");
    }
    let a = create(s, r, "ns", "a", "").await;
    expect(&mut w, &[event("Added", &a)]).await;
    let gone = delete(s, r, &a).await.unwrap();
    expect(&mut w, &[event("Deleted", &gone)]).await;
    for other in others {
        assert_eq!(names(&s.snapshot(other), &Scope::default(), None), ["ns/a"]);
    }
}

pub(crate) async fn lists_are_in_order_and_of_a_scope<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    for (namespace, name, node) in [
        ("b", "1", "n1"),
        ("a", "2", "n2"),
        ("a", "10", "n1"),
        ("a-b", "3", ""),
        ("a", "1", "n1"),
        ("c", "1", ""),
    ] {
        create(s, r, namespace, name, node).await;
    }
    let list = s.snapshot(r);
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
    check(&in_namespace("a-"), None, &[]);
    check(&named("", "1"), None, &["a/1", "b/1", "c/1"]);
    check(&named("a", "1"), None, &["a/1"]);
    check(&named("a", "1"), Some(("a", "1")), &[]);
    check(&named("a", "3"), None, &[]);
    check(&on_node("", "n1"), None, &["a/1", "a/10", "b/1"]);
    check(&on_node("", "n1"), Some(("a", "1")), &["a/10", "b/1"]);
    check(&on_node("a", "n1"), None, &["a/1", "a/10"]);
    check(&on_node("", ""), None, &["a-b/3", "c/1"]);
    check(&on_node("", "none"), None, &[]);
    let unindexed = s.register(ResourceSpec { group: "".into(), plural: "pods".into(), indexed: vec![] });
    assert_eq!(unindexed, r);
    assert_eq!(names(&s.snapshot(r), &on_node("a", "n1"), None), ["a/1", "a/10"]);
    let nodes = s.register(ResourceSpec { group: "".into(), plural: "nodes".into(), indexed: vec![] });
    create(s, nodes, "", "x", "").await;
    create(s, nodes, "", "y", "").await;
    assert_eq!(names(&s.snapshot(nodes), &named("", "y"), None), ["/y"]);
    assert_eq!(names(&s.snapshot(nodes), &all, Some(("", "x"))), ["/y"]);
}

pub(crate) async fn an_index_follows<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let count = |node: &str| s.snapshot(r).count(&on_node("", node), None);
    let a = create(s, r, "ns", "a", "").await;
    let a = update(s, r, &a, "n1", "").await.unwrap();
    assert_eq!((count(""), count("n1")), (0, 1));
    assert_eq!(s.snapshot(r).scan(&on_node("", "n1"), None).next().unwrap().revision, a.revision);
    delete(s, r, &a).await.unwrap();
    assert_eq!(count("n1"), 0);
}

pub(crate) async fn a_snapshot_stays_and_the_past_can_be_read<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let start = s.current(r);
    let a = create(s, r, "ns", "a", "n1").await;
    let b = create(s, r, "ns", "b", "n1").await;
    let before = s.snapshot(r);
    let new = update(s, r, &a, "n2", "new").await.unwrap();
    let gone = delete(s, r, &b).await.unwrap();
    let c = create(s, r, "ns", "c", "n1").await;
    let all = Scope::default();
    assert_eq!(names(&before, &all, None), ["ns/a", "ns/b"]);
    assert_eq!(before.get("ns", "a").unwrap().data.body, a.data.body);
    for _ in 0..2 {
        let at = s.snapshot_at(r, b.revision).unwrap();
        assert_eq!((at.revision(), names(&at, &all, None)), (b.revision, names(&before, &all, None)));
        assert_eq!(names(&at, &on_node("", "n1"), None), ["ns/a", "ns/b"]);
        assert_eq!(at.get("ns", "a").unwrap().revision, a.revision);
    }
    let at = |revision| names(&s.snapshot_at(r, revision).unwrap(), &all, None);
    assert_eq!(at(start), [""; 0]);
    assert_eq!(at(a.revision), ["ns/a"]);
    assert_eq!(at(new.revision), ["ns/a", "ns/b"]);
    assert_eq!(at(gone.revision), ["ns/a"]);
    assert_eq!(at(c.revision), ["ns/a", "ns/c"]);
    assert!(s.snapshot_at(r, s.current(r) + 1_000_000).is_none(), "yet to come");
}

pub(crate) async fn pages_of_one_revision<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let mut made = Vec::new();
    for n in 0..10 {
        made.push(create(s, r, "ns", &format!("p{n}"), "").await);
    }
    let at = s.current(r);
    let mut read = Vec::new();
    while read.len() < 10 {
        let page = s.snapshot_at(r, at).unwrap();
        let after = read.last().map(|o: &Arc<Object>| o.data.name.clone());
        let after = after.as_deref().map(|name| ("ns", name));
        assert_eq!(page.count(&Scope::default(), after), 10 - read.len());
        read.extend(page.scan(&Scope::default(), after).take(3).cloned());
        // The pages show none of the writes between them.
        let old = &made[(read.len() * 7) % 10];
        if let Some(old) = s.get(r, "ns", &old.data.name) {
            delete(s, r, &old).await.unwrap();
        }
        create(s, r, "ns", &format!("p{}x", read.len()), "").await;
    }
    let revisions = |objects: &[Arc<Object>]| objects.iter().map(|o| o.revision).collect::<Vec<_>>();
    assert_eq!(revisions(&read), revisions(&made));
}

pub(crate) async fn compaction<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let a = create(s, r, "ns", "a", "").await;
    let b = update(s, r, &a, "", "b").await.unwrap();
    let c = update(s, r, &b, "", "c").await.unwrap();
    s.compact(b.revision);
    assert!(s.snapshot_at(r, a.revision).is_none());
    assert_eq!(s.snapshot_at(r, b.revision).unwrap().get("ns", "a").unwrap().revision, b.revision);
    s.compact(a.revision);
    assert!(s.snapshot_at(r, b.revision).is_some(), "an older compaction is nothing new");
    s.compact(s.current(r) + 1_000_000);
    assert_eq!(s.get(r, "ns", "a").unwrap().revision, c.revision, "the present stays");
    assert!(s.snapshot_at(r, s.current(r)).is_some());
    assert!(s.snapshot_at(r, b.revision).is_none());
    let fresh = late(s).await;
    assert!(s.snapshot_at(fresh, b.revision).is_none(), "nor is a resource that nobody knew");
}

pub(crate) async fn a_revision_is_waited_for<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    assert!(s.wait_for(r, s.current(r), Duration::ZERO).await);
    assert!(!s.wait_for(r, s.current(r) + 1_000_000, Duration::from_millis(1)).await);
    let next = s.current(r) + 1;
    let (reached, made) = tokio::join!(s.wait_for(r, next, LONG), create(s, r, "ns", "a", ""));
    assert!(reached && made.revision >= next);
}

pub(crate) async fn a_closed_store_can_be_read<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let mut w = watch(s, r, Scope::default(), WatchStart::After(s.current(r)));
    let a = create(s, r, "ns", "a", "").await;
    s.close().await;
    expect(&mut w, &[event("Added", &a)]).await;
    assert!(matches!(w.next().await, Some(Err(storage::WatchEnd::Closed))));
    assert!(w.next().await.is_none());
    assert!(matches!(try_create(s, r, "ns", "b", "").await, Err(WriteError::Closed)));
    assert!(s.get(r, "ns", "a").is_some());
    let mut late = watch(s, r, Scope::default(), WatchStart::After(a.revision));
    assert!(matches!(late.next().await, Some(Err(storage::WatchEnd::Closed))));
}
