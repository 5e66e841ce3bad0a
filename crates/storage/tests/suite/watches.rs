//! Watches.

use std::collections::BTreeMap;

use futures::FutureExt;
use storage::{Compacted, WatchEnd};

use super::*;

pub(crate) async fn from_now<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let a = create(s, r, "ns", "a", "").await;
    create(s, r, "other", "b", "").await;
    let mut w = watch(s, r, in_namespace("ns"), WatchStart::Now);
    assert_eq!(w.progress(), 0, "not even the initial state was taken");
    let Batch::Events(initial) = next(&mut w).await else { panic!("events first") };
    assert_eq!(initial.iter().map(|e| shown(e)).collect::<Vec<_>>(), [event("Added", &a)]);
    let Batch::Synced(at) = next(&mut w).await else { panic!("then its end") };
    assert!(at >= a.revision && w.progress() >= at);
    let a = update(s, r, &a, "", "2").await.unwrap();
    create(s, r, "other", "c", "").await;
    let gone = delete(s, r, &a).await.unwrap();
    expect(&mut w, &[event("Modified", &a), event("Deleted", &gone)]).await;
    let mut empty = watch(s, r, in_namespace("none"), WatchStart::Now);
    assert!(matches!(next(&mut empty).await, Batch::Synced(at) if at >= gone.revision));
}

pub(crate) async fn from_every_revision<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let start = s.current(r);
    let mut all = Vec::new();
    let a = create(s, r, "ns", "a", "").await;
    all.push(("Added", a.clone()));
    all.push(("Added", create(s, r, "other", "b", "").await));
    let a = update(s, r, &a, "", "2").await.unwrap();
    all.push(("Modified", a.clone()));
    all.push(("Added", create(s, r, "other", "c", "").await));
    all.push(("Deleted", delete(s, r, &a).await.unwrap()));
    all.push(("Added", create(s, r, "ns", "a", "").await));
    let since = |from: u64, namespace: &str| {
        let of = |o: &Object| o.revision > from && (namespace.is_empty() || o.data.namespace == namespace);
        all.iter().filter(|(_, o)| of(o)).map(|(cause, o)| event(cause, o)).collect::<Vec<_>>()
    };
    for from in [start].into_iter().chain(all.iter().map(|(_, o)| o.revision)) {
        for namespace in ["", "ns", "other"] {
            let mut w = watch(s, r, in_namespace(namespace), WatchStart::After(from));
            expect(&mut w, &since(from, namespace)).await;
            assert!(w.next().now_or_never().is_none());
        }
    }
}

pub(crate) async fn of_a_scope<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let scopes = [
        Scope::default(),
        in_namespace("x"),
        named("x", "p"),
        named("", "p"),
        on_node("", "n1"),
        on_node("y", "n2"),
    ];
    let start = WatchStart::After(s.current(r));
    let mut watchers: Vec<_> = scopes.iter().map(|c| watch(s, r, c.clone(), start)).collect();
    let p = create(s, r, "x", "p", "n1").await;
    let q = create(s, r, "x", "q", "").await;
    let yp = create(s, r, "y", "p", "n2").await;
    let moved = update(s, r, &p, "n2", "").await.unwrap();
    let gone = delete(s, r, &yp).await.unwrap();
    let all = [
        event("Added", &p),
        event("Added", &q),
        event("Added", &yp),
        event("Modified", &moved),
        event("Deleted", &gone),
    ];
    let of = |at: &[usize]| at.iter().map(|&i| all[i].clone()).collect::<Vec<_>>();
    expect(&mut watchers[0], &all).await;
    expect(&mut watchers[1], &of(&[0, 1, 3])).await;
    expect(&mut watchers[2], &of(&[0, 3])).await;
    expect(&mut watchers[3], &of(&[0, 2, 3, 4])).await;
    // The watcher also gets the event with which the object leaves its scope.
    expect(&mut watchers[4], &of(&[0, 3])).await;
    expect(&mut watchers[5], &of(&[2, 4])).await;
    for w in &watchers {
        assert!(w.progress() >= gone.revision);
    }
    // The history gives the same events.
    for (scope, at) in
        scopes.into_iter().zip([&[0, 1, 2, 3, 4][..], &[0, 1, 3], &[0, 3], &[0, 2, 3, 4], &[0, 3], &[2, 4]])
    {
        expect(&mut watch(s, r, scope, start), &of(at)).await;
    }
}

pub(crate) async fn of_what_is_deleted<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let a = create(s, r, "ns", "a", "n1").await;
    let mut w = watch(s, r, Scope::default(), WatchStart::After(a.revision));
    let gone = delete(s, r, &a).await.unwrap();
    let found = events(&mut w, 1).await.remove(0);
    assert_eq!((found.revision, found.object.revision), (gone.revision, gone.revision));
    assert_eq!(found.object.data.body, a.data.body);
    let previous = found.previous.as_ref().unwrap();
    assert_eq!((previous.revision, &previous.data.body), (a.revision, &a.data.body));
}

pub(crate) async fn of_the_future<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let mut a = create(s, r, "ns", "a", "").await;
    let from = s.current(r) + 3;
    let mut w = watch(s, r, Scope::default(), WatchStart::After(from));
    while a.revision <= from {
        a = update(s, r, &a, "", &format!("{}", a.revision)).await.unwrap();
    }
    expect(&mut w, &[event("Modified", &a)]).await;
}

pub(crate) async fn of_what_is_forgotten<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let a = create(s, r, "ns", "a", "").await;
    let b = create(s, r, "ns", "b", "").await;
    let c = create(s, r, "ns", "c", "").await;
    s.compact(b.revision);
    let old = s.watch(r, Scope::default(), WatchStart::After(a.revision), WatchOptions::default());
    let Some(Compacted { oldest }) = old.err() else { panic!("a watch of what is forgotten") };
    assert_eq!(oldest, b.revision);
    expect(&mut watch(s, r, Scope::default(), WatchStart::After(oldest)), &[event("Added", &c)]).await;
    let fresh = late(s).await;
    let old = s.watch(fresh, Scope::default(), WatchStart::After(a.revision), WatchOptions::default());
    assert!(old.is_err(), "also of a resource that nobody knew");
}

pub(crate) async fn nothing_is_missed_or_doubled_at_the_start<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store().clone(), pods(f.store()));
    let writer = {
        let s = s.clone();
        tokio::spawn(async move {
            for n in 0..300 {
                let name = format!("o{}", n % 7);
                match s.get(r, "ns", &name) {
                    Some(old) if n % 5 == 0 => delete(&s, r, &old).await.unwrap(),
                    Some(old) => update(&s, r, &old, "", &format!("{n}")).await.unwrap(),
                    None => create(&s, r, "ns", &name, "").await,
                };
            }
            create(&s, r, "ns", "the end", "").await.revision
        })
    };
    let mut watchers = Vec::new();
    while !writer.is_finished() {
        let now = s.current(r);
        watchers.push(watch(&s, r, Scope::default(), WatchStart::Now));
        watchers.push(watch(&s, r, Scope::default(), WatchStart::After(now)));
        tokio::task::yield_now().await;
        if watchers.len() > 200 {
            break;
        }
    }
    let end = writer.await.unwrap();
    let expected: BTreeMap<_, _> =
        s.snapshot(r).scan(&Scope::default(), None).map(|o| (o.data.name.clone(), o.revision)).collect();
    for (n, mut w) in watchers.into_iter().enumerate() {
        let mut state = BTreeMap::new();
        let mut last = 0;
        let mut initial = n % 2 == 0;
        while last < end {
            match next(&mut w).await {
                Batch::Events(events) => {
                    for e in events {
                        assert!(initial || e.revision > last, "{} after {last}", e.revision);
                        last = e.revision.max(last);
                        let name = e.object.data.name.clone();
                        match e.cause {
                            storage::Cause::Deleted => {
                                state.remove(&name);
                            }
                            _ => drop(state.insert(name, e.revision)),
                        }
                    }
                }
                Batch::Synced(at) => {
                    assert!(initial && at >= last);
                    (initial, last) = (false, at);
                }
                Batch::Progress(_) => {}
            }
        }
        if n % 2 == 0 {
            assert_eq!(state, expected);
        }
    }
}

pub(crate) async fn one_that_is_slow<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let options = WatchOptions { buffer: 2, ..WatchOptions::default() };
    let mut slow = s.watch(r, Scope::default(), WatchStart::After(s.current(r)), options).unwrap();
    let mut other = watch(s, r, Scope::default(), WatchStart::After(s.current(r)));
    for name in ["a", "b", "c", "d"] {
        create(s, r, "ns", name, "").await;
    }
    assert_eq!(events(&mut other, 4).await.len(), 4, "others are not held up");
    // The waiting events went with the watcher: it goes on from those that it took.
    assert!(slow.progress() < s.get(r, "ns", "a").unwrap().revision);
    assert_eq!(slow.next().await.unwrap().unwrap_err(), WatchEnd::Behind);
    assert!(slow.next().await.is_none());
}

pub(crate) async fn one_that_takes_its_time<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let mut w = watch(s, r, Scope::default(), WatchStart::After(s.current(r)));
    let mut expected = Vec::new();
    for n in 0..500 {
        let made = create(s, r, "ns", &format!("o{n}"), "").await;
        expected.push(event("Added", &made));
    }
    expect(&mut w, &expected).await;
}

pub(crate) async fn events_are_shared<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let start = WatchStart::After(s.current(r));
    let (mut one, mut two) = (watch(s, r, Scope::default(), start), watch(s, r, in_namespace("ns"), start));
    create(s, r, "ns", "a", "").await;
    let (mine, theirs) = (events(&mut one, 1).await.remove(0), events(&mut two, 1).await.remove(0));
    assert!(Arc::ptr_eq(&mine, &theirs));
    assert_eq!(mine.encoded(1, || "once".into()), theirs.encoded(1, || unreachable!()));
}

pub(crate) async fn progress<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store(), pods(f.store()));
    let options = WatchOptions { progress: true, ..WatchOptions::default() };
    let mut w = s.watch(r, in_namespace("none"), WatchStart::After(s.current(r)), options).unwrap();
    let a = create(s, r, "ns", "a", "").await;
    let mut last = 0;
    while last < a.revision {
        let Batch::Progress(at) = next(&mut w).await else { panic!("nothing happens in its namespace") };
        assert!(at >= last && at <= s.current(r));
        last = at;
    }
}

pub(crate) async fn resumed_after_a_restart<F: Fixture>() {
    let f = F::fresh().await;
    let (s, r) = (f.store().clone(), pods(f.store()));
    let a = create(&s, r, "ns", "a", "n1").await;
    let b = create(&s, r, "ns", "b", "n1").await;
    let new = update(&s, r, &a, "n2", "é").await.unwrap();
    let gone = delete(&s, r, &b).await.unwrap();
    let last = s.current(r);
    drop(s);
    let f = f.reopen().await;
    let (s, r) = (f.store(), pods(f.store()));
    assert!(s.current(r) >= last, "revisions do not go back");
    let found = s.get(r, "ns", "a").unwrap();
    assert_eq!((found.revision, &found.data.body), (new.revision, &new.data.body));
    assert_eq!((&found.data.uid, found.label("app")), (&a.data.uid, Some("x")));
    assert_eq!(names(&s.snapshot(r), &on_node("", "n2"), None), ["ns/a"]);
    match s.watch(r, Scope::default(), WatchStart::After(a.revision), WatchOptions::default()) {
        Ok(mut w) => {
            expect(&mut w, &[event("Added", &b), event("Modified", &new), event("Deleted", &gone)]).await;
        }
        Err(Compacted { oldest }) => assert!(oldest >= gone.revision, "all of it or nothing"),
    }
    let c = create(s, r, "ns", "c", "").await;
    assert!(c.revision > last);
}
