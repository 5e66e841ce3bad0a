//! A real disk that is full, or read-only.

use std::path::Path;
use std::sync::Arc;

use api::{NewObject, Object};
use component::Shutdown;
use ferrokube_storage as storage;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use storage::{
    Batch, OpenError, ResourceId, ResourceSpec, Scope, Store, StoreConfig, WatchOptions, WatchStart, Write,
    WriteError,
};

use crate::suite::histories;

/// A file system of its own, in memory.
struct Mount(tempfile::TempDir);

impl Mount {
    /// Mounts the file system; `None` where the test may not mount.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        // It is not mounted by a program: a child would hold the other tests' locks for a moment.
        let mounted = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), c"size=4m");
        mounted.is_ok().then_some(Self(dir))
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::DETACH).ok();
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
    let Some(disk) = Mount::new() else {
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
    let start = WatchStart::After(s.newest());
    let mut watcher = s.watch(r, Scope::default(), start, WatchOptions::default()).unwrap();
    for round in 0..3 {
        let full = std::fs::write(&ballast, vec![0; 8 << 20]);
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        // The log has some room yet.
        let mut last = loop {
            match create(&s, r, &format!("room-{round}-{}", there.len())).await {
                Ok(object) => there.push(object),
                Err(error) => break error,
            }
            assert!(there.len() < 1000, "the disk is not full");
        };
        for n in 0..20 {
            let sentence = "the store cannot write: the disk of the data directory is full; free some space";
            assert!(last.to_string().starts_with(sentence), "{last}");
            last = create(&s, r, &format!("late-{round}-{n}")).await.map(|o| o.revision).unwrap_err();
        }
        assert!(there.iter().all(|o| s.get(r, "ns", &o.data.name).is_some_and(|n| n.revision == o.revision)));
        assert_eq!(s.snapshot(r).count(&Scope::default(), None), there.len());
        std::fs::remove_file(&ballast).unwrap();
        there.push(create(&s, r, &format!("again-{round}")).await.unwrap());
    }
    s.close().await;
    let mut seen = Vec::new();
    while let Some(Ok(Batch::Events(events))) = futures::StreamExt::next(&mut watcher).await {
        seen.extend(events.iter().map(|e| e.revision));
    }
    assert_eq!(seen, there[10..].iter().map(|o| o.revision).collect::<Vec<_>>());
    drop(s);

    std::fs::write(&ballast, vec![0; 8 << 20]).unwrap_err();
    let (s, r) = open();
    assert_eq!(s.snapshot(r).count(&Scope::default(), None), there.len(), "a full disk can be read");
    assert!(there.windows(2).all(|pair| pair[0].revision < pair[1].revision));
    s.close().await;
    let error = Store::open(StoreConfig::new(disk.path().join("new")), &Shutdown::new()).unwrap_err();
    assert!(matches!(error, OpenError::Full(_)), "{error}");
}

#[tokio::test]
async fn a_read_only_disk_is_named() {
    let Some(disk) = Mount::new() else {
        eprintln!("not allowed to mount; nothing was tested");
        return;
    };
    let dir = disk.path().join("store");
    Store::open(StoreConfig::new(&dir), &Shutdown::new()).unwrap().close().await;
    mount_remount(disk.path(), MountFlags::RDONLY, "").unwrap();
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

/// The answers to clients stay linearizable while the disk is full again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_a_disk_that_is_full_at_times() {
    for seed in 0..5 {
        let Some(disk) = Mount::new() else {
            eprintln!("not allowed to mount; nothing was tested");
            return;
        };
        let (dir, ballast) = (disk.path().join("store"), disk.path().join("ballast"));
        let s = Store::open(StoreConfig::new(&dir), &Shutdown::new()).unwrap();
        let fill = async {
            for _ in 0..20 {
                std::fs::write(&ballast, vec![0; 8 << 20]).unwrap_err();
                tokio::task::yield_now().await;
                std::fs::remove_file(&ballast).unwrap();
                let next = s.newest() + 20;
                s.wait_for(ResourceId(0), next, std::time::Duration::from_millis(20)).await;
            }
        };
        histories::run(&s, seed, fill).await;
        s.close().await;
        let all: Vec<_> = s.snapshot(ResourceId(0)).scan(&Scope::default(), None).cloned().collect();
        drop(s);
        let s = Store::open(StoreConfig::new(&dir), &Shutdown::new()).unwrap();
        let again = s.snapshot(ResourceId(0));
        assert_eq!(again.count(&Scope::default(), None), all.len());
        let found = |o: &Object| again.get(&o.data.namespace, &o.data.name).map(|o| o.revision);
        assert!(all.iter().all(|o| found(o) == Some(o.revision)));
        s.close().await;
    }
}
