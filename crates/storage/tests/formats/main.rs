//! Data directories and backups that older versions wrote, byte by byte: they open and hold everything.
//!
//! `format-N/NAME` is such a directory and `format-N/NAME.txt` what it held, as the version that wrote it told.
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

/// Everything that a store tells: its revisions, every object and the history.
async fn tell(s: &Store) -> String {
    let mut out = String::new();
    let all = resources(s);
    let watch = |r, from| s.watch(r, Scope::default(), WatchStart::After(from), WatchOptions::default());
    let floor = watch(all[0], 0).map_or_else(|gone| gone.oldest, |_| 0);
    writeln!(out, "from {floor} to {}", s.current()).unwrap();
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
