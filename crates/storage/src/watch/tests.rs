use bytes::Bytes;
use component::Shutdown;
use futures::{FutureExt, StreamExt};

use super::*;
use crate::facade::Store;
use crate::store::{ResourceId, ResourceSpec, WatchStart, Write};

fn store() -> (Store, ResourceId) {
    let store = Store::in_memory();
    let spec = ResourceSpec { group: "".into(), plural: "pods".into(), indexed: Vec::new() };
    let pods = store.register(spec);
    (store, pods)
}

async fn create(store: &Store, resource: ResourceId, name: &str, size: usize) {
    let object = api::NewObject {
        name: name.into(),
        namespace: "ns".into(),
        uid: "".into(),
        labels: Box::default(),
        owners: Box::default(),
        fields: Box::default(),
        deleting: false,
        finalizers: false,
        stamp: 0,
        body: Bytes::from(vec![b' '; size]),
        rv_at: 0,
    };
    let made = store.commit(Write::Create { resource, object, ttl: None }).await.unwrap();
    // The writer may know the change before the watchers.
    let any = watch(store, resource, WatchStart::After(made.revision));
    while any.delivered() < made.revision {
        tokio::task::yield_now().await;
    }
}

fn watch(store: &Store, resource: ResourceId, start: WatchStart) -> Watcher {
    let options = WatchOptions { bytes: 10_000, ..WatchOptions::default() };
    store.watch(resource, Scope::default(), start, options).unwrap()
}

/// The number of events that can be taken; an error once the watcher has ended.
fn take(watcher: &mut Watcher) -> Result<usize, WatchEnd> {
    match watcher.next().now_or_never() {
        Some(Some(Ok(Batch::Events(events)))) => Ok(events.len()),
        Some(Some(Err(end))) => Err(end),
        _ => Ok(0),
    }
}

#[tokio::test]
async fn as_many_bytes_wait_as_may() {
    let (store, pods) = store();
    let start = WatchStart::After(store.current(pods));
    let (mut idle, mut slow) = (watch(&store, pods, start), watch(&store, pods, start));
    create(&store, pods, "large", 50_000).await;
    assert_eq!(take(&mut slow), Ok(1), "one may be as large as it likes");
    // The events that the watcher took last count until it comes for more.
    create(&store, pods, "small", 10).await;
    assert_eq!(take(&mut slow), Err(WatchEnd::Behind));
    assert_eq!(take(&mut idle), Err(WatchEnd::Behind));
    let mut reader = watch(&store, pods, WatchStart::After(store.current(pods)));
    for n in 0..10 {
        create(&store, pods, &n.to_string(), 5_000).await;
        assert_eq!(take(&mut reader), Ok(1));
        assert_eq!(take(&mut reader), Ok(0));
    }
    let told = Arc::new(AtomicUsize::default());
    let tell = Arc::clone(&told);
    reader.on_behind(move || _ = tell.fetch_add(1, Ordering::Relaxed));
    for n in 10..13 {
        create(&store, pods, &n.to_string(), 5_000).await;
    }
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(reader.queue.waiting.lock().events.is_empty(), "it holds nothing any more");
    assert!(reader.progress() < store.current(pods));
}

#[tokio::test]
async fn who_is_stuck_ends() {
    let (store, pods) = store();
    create(&store, pods, "a", 10).await;
    let start = WatchStart::After(store.current(pods));
    let mut all =
        [start, start, start, WatchStart::Now, WatchStart::Now].map(|start| watch(&store, pods, start));
    let [idle, waits, takes, initial, begun] = &mut all;
    assert_eq!((take(idle), take(begun)), (Ok(0), Ok(1)));
    create(&store, pods, "b", 10).await;
    assert_eq!((take(takes), take(idle), take(idle)), (Ok(1), Ok(1), Ok(0)));
    tokio::time::pause();
    let shutdown = Shutdown::new();
    store.end_stuck_watchers(&shutdown);
    let ended = |watcher: &Watcher| watcher.queue.waiting.lock().end.clone();
    tokio::time::sleep(TICK * PATIENCE as u32).await;
    let stuck = [&*waits, &*takes, &*initial, &*begun];
    assert!(stuck.iter().all(|w| ended(w).is_none()), "they have their time");
    tokio::time::sleep(TICK * 2).await;
    assert!(stuck.iter().all(|w| ended(w) == Some(WatchEnd::Behind)));
    assert_eq!(ended(idle), None, "nothing waits for it");
    for watcher in [waits, takes, initial, begun] {
        assert_eq!(take(watcher), Err(WatchEnd::Behind));
    }
    shutdown.stop();
    shutdown.finish().await;
}

#[tokio::test]
async fn nobody_sleeps_while_much_passes() {
    let (store, pods) = store();
    let mut sleeper = watch(&store, pods, WatchStart::After(store.current(pods)));
    create(&store, pods, "a", 10).await;
    let shutdown = Shutdown::new();
    store.end_stuck_watchers(&shutdown);
    // Another resource counts, too: memory is shared.
    let other = ResourceSpec { group: "".into(), plural: "secrets".into(), indexed: Vec::new() };
    let secrets = store.register(other);
    for n in 0..=(PASSING + OFTEN) >> 20 {
        create(&store, secrets, &n.to_string(), 1 << 20).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(take(&mut sleeper), Err(WatchEnd::Behind));
    shutdown.stop();
    shutdown.finish().await;
}
