//! A real disk that is full.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use api::{NewObject, Object};
use component::Shutdown;
use ferrokube_storage as storage;
use storage::{
    Batch, OpenError, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchOptions, WatchStart, Write,
    WriteError,
};

/// A file system of its own, in memory.
struct Mount(tempfile::TempDir);

impl Mount {
    /// `None` where the test may not mount.
    fn new(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir.path());
        mount.output().is_ok_and(|o| o.status.success()).then_some(Self(dir))
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(self.path()).status().ok();
    }
}

async fn create(s: &Store, resource: ResourceId, name: &str) -> Result<Arc<Object>, WriteError> {
    let object = NewObject {
        name: name.into(),
        namespace: "ns".into(),
        uid: name.into(),
        labels: Box::new([]),
        owners: Box::new([]),
        fields: Box::new([]),
        deleting: false,
        finalizers: false,
        stamp: 1,
        body: format!("{{{}", "x".repeat(32 << 10)).into(),
        rv_at: 1,
    };
    s.commit(Write::Create { resource, object, ttl: None }).await
}

#[tokio::test]
async fn writes_fail_while_the_disk_is_full_and_work_again_once_there_is_space() {
    let Some(disk) = Mount::new("4m") else {
        eprintln!("not allowed to mount; nothing was tested");
        return;
    };
    let (dir, ballast) = (disk.path().join("store"), disk.path().join("ballast"));
    let open = || {
        let s = Store::open(StoreConfig::new(&dir), &Shutdown::new()).unwrap();
        let r = s.register(ResourceSpec { group: "".into(), plural: "pods".into(), indexed: vec![] });
        (s, r)
    };
    let (s, r) = open();
    let mut there = Vec::new();
    for n in 0..10 {
        there.push(create(&s, r, &format!("early-{n}")).await.unwrap());
    }
    let start = WatchStart::After(s.current());
    let mut watcher = s.watch(r, Scope::default(), start, WatchOptions::default()).unwrap();
    for round in 0..3 {
        let full = std::fs::write(&ballast, vec![0; 8 << 20]);
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        for n in 0..20 {
            let error = create(&s, r, &format!("late-{round}-{n}")).await.unwrap_err().to_string();
            assert!(
                error.starts_with("the store cannot write: the disk of the data directory is full; free"),
                "{error}"
            );
        }
        assert!(there.iter().all(|o| s.get(r, "ns", &o.data.name).is_some_and(|n| n.revision == o.revision)));
        assert_eq!(s.snapshot(r).count(&Scope::default(), None), there.len());
        std::fs::remove_file(&ballast).unwrap();
        there.push(create(&s, r, &format!("again-{round}")).await.unwrap());
    }
    s.close().await;
    let mut seen = Vec::new();
    while let Some(Ok(Batch::Events(events))) = futures::StreamExt::next(&mut watcher).await {
        seen.extend(events.iter().map(|e| e.object.data.name.to_string()));
    }
    assert_eq!(seen, ["again-0", "again-1", "again-2"]);
    drop(s);

    std::fs::write(&ballast, vec![0; 8 << 20]).unwrap_err();
    let (s, r) = open();
    assert_eq!(s.snapshot(r).count(&Scope::default(), None), there.len(), "a full disk can be read");
    assert!(there.windows(2).all(|pair| pair[0].revision < pair[1].revision));
    s.close().await;
    let error = Store::open(StoreConfig::new(disk.path().join("new")), &Shutdown::new()).unwrap_err();
    assert!(matches!(error, OpenError::Full(_)), "{error}");
}

#[test]
fn a_read_only_disk_is_named() {
    let Some(disk) = Mount::new("4m") else {
        eprintln!("not allowed to mount; nothing was tested");
        return;
    };
    let dir = disk.path().join("store");
    drop(Store::open(StoreConfig::new(&dir), &Shutdown::new()).unwrap());
    let status = Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status().unwrap();
    assert!(status.success());
    for dir in [dir, disk.path().join("new")] {
        let error = Store::open(StoreConfig::new(&dir), &Shutdown::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the store in {} is on a read-only file system: remount it, or choose another data directory",
                dir.display()
            )
        );
    }
}
