//! Backups: taken while writers write, restored, refused.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use api::NewObject;
use component::Shutdown;
use ferrokube_storage as storage;
use storage::{
    BackupError, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchOptions, WatchStart, Write,
};

fn object(name: &str, text: &str) -> NewObject {
    NewObject {
        name: name.into(),
        namespace: "ns".into(),
        uid: name.into(),
        labels: Box::new([("app".into(), "x".into())]),
        owners: Box::new([]),
        fields: Box::new([]),
        deleting: false,
        finalizers: false,
        stamp: 1,
        body: format!("{{{text}").into(),
        rv_at: 1,
    }
}

fn resources(s: &Store) -> [ResourceId; 2] {
    ["pods", "events"]
        .map(|plural| s.register(ResourceSpec { group: "".into(), plural: plural.into(), indexed: vec![] }))
}

fn open(dir: &Path) -> Store {
    Store::open(StoreConfig::new(dir), &Shutdown::new()).unwrap()
}

async fn create(s: &Store, resource: ResourceId, name: &str, ttl: Option<Duration>) -> u64 {
    let object = object(name, name);
    s.commit(Write::Create { resource, object, ttl }).await.unwrap().revision
}

/// The objects: name to revision and body.
fn state(s: &Store, resource: ResourceId) -> BTreeMap<String, (u64, bytes::Bytes)> {
    let snapshot = s.snapshot(resource);
    let all = Scope::default();
    snapshot.scan(&all, None).map(|o| (o.data.name.to_string(), (o.revision, o.data.body.clone()))).collect()
}

async fn save(s: &Store, to: &Path) {
    let bytes: Vec<u8> = s.backup().await.unwrap().flatten().collect();
    std::fs::write(to, bytes).unwrap();
}

#[tokio::test]
async fn a_restored_store_has_everything_and_goes_on_far_above() {
    let dir = tempfile::tempdir().unwrap();
    let (old, file) = (open(&dir.path().join("old")), dir.path().join("file"));
    let [pods, events] = resources(&old);
    let names: Vec<_> = (0..3000).map(|n| format!("p{n:04}")).collect();
    futures::future::join_all(names.iter().map(|name| create(&old, pods, name, None))).await;
    create(&old, events, "e", Some(Duration::from_hours(1))).await;
    save(&old, &file).await;
    let before = [state(&old, pods), state(&old, events)];
    let lost = create(&old, pods, "after", None).await;

    let info = storage::inspect(&file).unwrap();
    assert_eq!((info.revision, info.objects, info.format), (3001, 3001, 2));
    let taken = Duration::from_millis(info.taken.unwrap());
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH + taken).unwrap();
    assert!(age < Duration::from_hours(1), "{age:?}");
    assert_eq!(info.bytes, std::fs::metadata(&file).unwrap().len());
    let to = dir.path().join("new");
    assert_eq!(storage::restore(&file, &to).unwrap(), info);
    let again = storage::restore(&file, &to);
    assert!(matches!(again, Err(BackupError::Exists(at)) if at == to));

    for _restart in 0..2 {
        let new = open(&to);
        let [pods, events] = resources(&new);
        assert_eq!([state(&new, pods), state(&new, events)], before);
        let restored = new.newest();
        assert!(restored > lost + 1_000_000, "no revision comes again: {restored}");
        for old in [0, 1, 3001, lost, restored - 1] {
            let watch = new.watch(pods, Scope::default(), WatchStart::After(old), WatchOptions::default());
            assert_eq!(watch.err().map(|gone| gone.oldest), Some(restored), "a watch from {old}");
            assert!(new.snapshot_at(pods, old).is_none(), "a list at {old}");
        }
        let watch = new.watch(pods, Scope::default(), WatchStart::After(restored), WatchOptions::default());
        assert!(watch.is_ok());
        new.close().await;
    }
    let new = open(&to);
    assert!(create(&new, resources(&new)[0], "next", None).await > lost + 1_000_000);
}

#[tokio::test]
async fn a_backup_under_load_is_one_state() {
    let dir = tempfile::tempdir().unwrap();
    let s = open(&dir.path().join("store"));
    let all = resources(&s);
    let writer = {
        let s = s.clone();
        tokio::spawn(async move {
            // Writes go to the two resources in turn: at every revision they differ by one at most.
            for n in 0..200 {
                create(&s, all[n % 2], &format!("o{:04}", n / 2), None).await;
            }
        })
    };
    for taken in 0..10 {
        assert!(s.wait_for(all[0], taken * 20, Duration::from_mins(1)).await);
        let file = dir.path().join("file");
        save(&s, &file).await;
        let to = dir.path().join(format!("restored-{taken}"));
        let info = storage::restore(&file, &to).unwrap();
        let restored = open(&to);
        let [a, b] = resources(&restored).map(|r| state(&restored, r));
        assert_eq!((a.len() + b.len()) as u64, info.revision);
        assert_eq!(a.len() as u64, info.revision.div_ceil(2));
        let revisions = a.values().chain(b.values()).map(|(revision, _)| *revision);
        assert!(revisions.into_iter().all(|revision| revision <= info.revision));
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn what_is_damaged_or_foreign_is_refused_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let s = open(&dir.path().join("store"));
    let [pods, _] = resources(&s);
    for n in 0..5 {
        create(&s, pods, &format!("p{n}"), None).await;
    }
    let file = dir.path().join("file");
    save(&s, &file).await;
    let good = std::fs::read(&file).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let to = dir.path().join("to");
        let error = storage::restore(&file, &to).unwrap_err();
        assert!(!to.exists() && !to.with_extension("restoring").exists());
        error.to_string()
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        let error = refused(&bad);
        let expected = if at < 88 { "is not a snapshot of FerroKube" } else { "is damaged at byte" };
        assert!(error.contains(expected), "byte {at}: {error}");
        refused(&good[..at]);
    }
    refused(&[&good[..], b"x"].concat());
    refused(&[&good[..], &good[..]].concat());
    assert!(refused(b"apiVersion: v1\n").contains("choose a file that `ferrokube snapshot save` wrote"));
    let gone = storage::inspect(&dir.path().join("none")).unwrap_err().to_string();
    assert!(gone.starts_with("cannot read "), "{gone}");
    assert!(storage::inspect(dir.path()).unwrap_err().to_string().starts_with("cannot read "));
    let to = dir.path().join("old");
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("anything"), "").unwrap();
    std::fs::write(&file, &good).unwrap();
    let error = storage::restore(&file, &to).unwrap_err().to_string();
    assert!(error.ends_with("old holds a store: restore into a fresh data directory"), "{error}");
    std::fs::remove_file(to.join("anything")).unwrap();
    storage::restore(&file, &to).unwrap();
}
