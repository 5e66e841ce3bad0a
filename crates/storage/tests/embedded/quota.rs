//! A store with a quota.

use std::path::Path;
use std::sync::Arc;

use api::Object;
use component::Shutdown;
use ferrokube_storage::{ResourceId, Scope, Store, StoreConfig, Write, WriteError};

use crate::suite::{delete, object, pods, try_create, update};

const QUOTA: u64 = 64 << 10;

fn open(dir: &Path) -> (Store, ResourceId) {
    let config = StoreConfig { quota: Some(QUOTA), ..StoreConfig::new(dir.join("store")) };
    let store = Store::open(config, &Shutdown::new()).unwrap();
    let pods = pods(&store);
    (store, pods)
}

fn live(store: &Store) -> u64 {
    store.usage().unwrap().live
}

fn full<T: std::fmt::Debug>(result: Result<T, WriteError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, WriteError::NoSpace), "{error:?}");
    assert_eq!(error.to_string(), "etcdserver: mvcc: database space exceeded");
}

async fn fill(store: &Store, pods: ResourceId) -> Vec<Arc<Object>> {
    let mut all = Vec::new();
    loop {
        match try_create(store, pods, "ns", &format!("p{}", all.len()), "").await {
            Ok(object) => all.push(object),
            Err(error) => {
                full(Err::<(), _>(error));
                return all;
            }
        }
    }
}

#[tokio::test]
async fn nothing_new_comes_in_until_something_went() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pods) = open(dir.path());
    assert_eq!((live(&store), store.usage().unwrap().quota), (0, Some(QUOTA)));
    let mut all = fill(&store, pods).await;
    let held = live(&store);
    assert!(held <= QUOTA && held > QUOTA - 1024, "{held}");
    let before = store.newest();
    full(try_create(&store, pods, "ns", "one-more", "").await);
    assert_eq!(store.newest(), before, "a refused write takes no revision");
    assert!(store.get(pods, "ns", "p3").is_some());

    // Changes have a little more room, which ends as well.
    let text = "x".repeat(1000);
    let mut changed = 0;
    let refused = loop {
        match update(&store, pods, &all[changed], "", &text).await {
            Ok(object) => all[changed] = object,
            Err(error) => break error,
        }
        changed += 1;
    };
    full(Err::<(), _>(refused));
    assert!((1..=5).contains(&changed), "{changed}");
    let held = live(&store);
    assert!(held > QUOTA && held <= QUOTA + QUOTA / 16, "{held}");
    // Writes that add nothing go on, and so does the beginning of a deletion.
    all[0] = update(&store, pods, &all[0], "", &"y".repeat(1000)).await.unwrap();
    assert_eq!(live(&store), held);
    all[1] = update(&store, pods, &all[1], "n", "").await.unwrap();
    let last = all.pop().unwrap();
    let mut going = object("ns", &last.data.name, "", &text);
    going.deleting = true;
    let write = Write::Update { resource: pods, object: going.clone(), expect: last.revision, ttl: None };
    let last = store.commit(write).await.unwrap();
    going.body = object("ns", &last.data.name, "", &"z".repeat(9000)).body;
    let write = Write::Update { resource: pods, object: going, expect: last.revision, ttl: None };
    full(store.commit(write).await);
    all.push(last);

    // Another start counts the same size.
    let held = live(&store);
    store.close().await;
    drop(store);
    let (store, pods) = open(dir.path());
    assert_eq!(live(&store), held);
    full(try_create(&store, pods, "ns", "one-more", "").await);
    for object in &all[..10] {
        let object = store.get(pods, "ns", &object.data.name).unwrap();
        delete(&store, pods, &object).await.unwrap();
    }
    try_create(&store, pods, "ns", "one-more", "").await.unwrap();
    while let Some(object) = store.snapshot(pods).scan(&Scope::default(), None).next().cloned() {
        delete(&store, pods, &object).await.unwrap();
    }
    assert_eq!(live(&store), 0);
    store.close().await;
}

#[tokio::test]
async fn many_at_once_do_not_exceed_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pods) = open(dir.path());
    let names: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
    let all = names.iter().map(|name| try_create(&store, pods, "ns", name, ""));
    let done = futures::future::join_all(all).await;
    let made = done.iter().filter(|r| r.is_ok()).count();
    assert!(made > 80 && made < 128, "{made}");
    assert!(live(&store) <= QUOTA);
    store.close().await;
}

#[tokio::test]
async fn without_a_quota_everything_comes_in() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { quota: None, ..StoreConfig::new(dir.path().join("store")) };
    let store = Store::open(config, &Shutdown::new()).unwrap();
    let pods = pods(&store);
    for n in 0..200 {
        try_create(&store, pods, "ns", &format!("p{n}"), "").await.unwrap();
    }
    assert!(live(&store) > QUOTA);
    store.close().await;
}
