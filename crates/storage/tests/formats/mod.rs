//! Data directories and backups that older versions wrote, byte by byte: they open and hold everything.
//!
//! `format-N/NAME` is such a directory and `format-N/NAME.txt` its content, as the version that wrote it printed it.
//! They are never written anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail so")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{NewObject, OwnerRef};
use component::{Clock, Shutdown};
use ferrokube_storage as storage;
use futures::StreamExt;
use storage::{
    Batch, Durability, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchOptions, WatchStart, Write,
};

/// The resources in the directories.
const RESOURCES: [(&str, &str); 3] = [("", "pods"), ("", "events"), ("", "nodes")];

/// The time at which the directories were written.
const TIME: &str = "2026-01-01T00:00:00Z";

fn open_at(dir: &Path, time: &str, durability: Durability) -> Store {
    let config =
        StoreConfig { clock: Clock::from(time.parse().unwrap()), durability, ..StoreConfig::new(dir) };
    Store::open(config, &Shutdown::new()).unwrap()
}

fn resources(s: &Store) -> [ResourceId; 3] {
    RESOURCES.map(|(group, plural)| {
        s.register(ResourceSpec { group: group.into(), plural: plural.into(), indexed: vec![] })
    })
}

/// Prints the whole content of a store: its revisions, every object and the history.
async fn tell(s: &Store) -> String {
    let mut out = String::new();
    let all = resources(s);
    let watch = |r, from| s.watch(r, Scope::default(), WatchStart::After(from), WatchOptions::default());
    let floor = watch(all[0], 0).map_or_else(|gone| gone.oldest, |_| 0);
    writeln!(out, "from {floor} to {}", s.newest()).unwrap();
    for ((group, plural), r) in RESOURCES.into_iter().zip(all) {
        let snapshot = s.snapshot(r);
        for object in snapshot.scan(&Scope::default(), None) {
            writeln!(out, "{group}/{plural} {} {:?}", object.revision, object.data).unwrap();
        }
        let mut watcher = watch(r, floor).unwrap();
        s.close().await;
        while let Some(Ok(Batch::Events(events))) = watcher.next().await {
            for e in events {
                let (name, previous) = (&e.object.data.name, e.previous.as_ref().map(|p| p.revision));
                writeln!(out, "{group}/{plural} {:?} {} {name} after {previous:?}", e.cause, e.revision)
                    .unwrap();
            }
        }
    }
    out
}

/// The golden directories and files.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/format-1")
}

/// A copy of a golden directory to work in.
fn copied(name: &str, to: &Path) -> PathBuf {
    let dir = to.join(name);
    fs::create_dir(&dir).unwrap();
    for entry in fs::read_dir(golden().join(name)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    dir
}

#[tokio::test]
async fn directories_of_format_1_hold_everything() {
    for name in ["fresh", "log", "snapshot", "killed", "torn", "unsynced"] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = copied(name, tmp.path());
        let expected = fs::read_to_string(golden().join(format!("{name}.txt"))).unwrap();
        // The first start rewrites the directory, and the second reads it. An unsynced store's revision was raised
        // once, and a start that finds a store in order has a history no longer than that.
        for start in 0..if name == "unsynced" { 1 } else { 2 } {
            let s = open_at(&dir, TIME, Durability::Synced);
            assert_eq!(tell(&s).await, expected, "{name}, start {start}");
            assert_eq!(fs::read_to_string(dir.join("format")).unwrap(), "ferrokube-store 2\n");
            let names = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            let old = |n: &String| (n.starts_with("log-") || n.starts_with("snap")) && !n.ends_with(".2");
            assert_eq!(names.filter(old).collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }
}

#[tokio::test]
async fn a_store_of_format_1_goes_on() {
    let tmp = tempfile::tempdir().unwrap();
    for name in ["fresh", "log", "snapshot", "killed", "torn", "unsynced"] {
        let dir = copied(name, tmp.path());
        let s = open_at(&dir, TIME, Durability::Synced);
        let (before, [pods, ..]) = (s.newest(), resources(&s));
        let object = NewObject { name: "new".into(), ..template() };
        let new = s.commit(Write::Create { resource: pods, object, ttl: None }).await.unwrap();
        assert!(new.revision > before);
        s.close().await;
        drop(s);
        // Objects that were to expire an hour after they were written (by the minute) expire, and no other does.
        let s = open_at(&dir, "2026-01-01T01:01:00Z", Durability::Synced);
        let [pods, events, nodes] = resources(&s);
        let count = |s: &Store, r| s.snapshot(r).count(&Scope::default(), None);
        let (kept, expiring) = ([count(&s, pods), count(&s, nodes)], count(&s, events));
        assert!(s.wait_for(pods, new.revision + expiring as u64, Duration::from_mins(1)).await);
        assert_eq!([count(&s, pods), count(&s, nodes), count(&s, events)], [kept[0], kept[1], 0], "{name}");
        assert_eq!(s.snapshot(pods).get("ns", "new").map(|o| o.revision), Some(new.revision));
        s.close().await;
    }
}

fn template() -> NewObject {
    let head = r#"{"metadata":{"resourceVersion":""#;
    NewObject {
        name: "".into(),
        namespace: "ns".into(),
        uid: "".into(),
        labels: Box::new([]),
        owners: Box::<[OwnerRef]>::default(),
        fields: Box::new([]),
        deleting: false,
        finalizers: false,
        stamp: 1,
        body: format!("{head}\"}}}}").into(),
        rv_at: head.len() as u32,
    }
}

#[tokio::test]
async fn a_backup_of_format_1_is_restored() {
    let file = golden().join("snapshot.save");
    let info = storage::inspect(&file).unwrap();
    assert_eq!((info.format, info.taken, info.revision, info.objects), (1, None, 46, 39));
    let tmp = tempfile::tempdir().unwrap();
    let to = tmp.path().join("store");
    assert_eq!(storage::restore(&file, &to).unwrap(), info);
    let objects = |told: String| -> Vec<String> {
        told.lines().filter(|line| line.contains("NewObject")).map(str::to_owned).collect()
    };
    let s = open_at(&to, TIME, Durability::Synced);
    let expected = fs::read_to_string(golden().join("snapshot.txt")).unwrap();
    assert_eq!(objects(tell(&s).await), objects(expected));

    // A byte is wrong, or the end is missing.
    let good = fs::read(&file).unwrap();
    let refused = |bytes: &[u8]| {
        let bad = tmp.path().join("bad");
        fs::write(&bad, bytes).unwrap();
        storage::inspect(&bad).unwrap_err().to_string()
    };
    for at in (0..50).chain((50..good.len()).step_by(89)) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        let expected = if at < 44 { "is not a snapshot of FerroKube" } else { "is damaged at byte" };
        let error = refused(&bad);
        assert!(error.contains(expected), "byte {at}: {error}");
        refused(&good[..at]);
    }
}
