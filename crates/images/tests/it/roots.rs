//! Roots of containers on the kernel that runs.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use images::{Credentials, IdMap, Prepare, StoreError};
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder};
use testkit::registry::{Layer, Registry};

use super::{Mounted, Tar, Test, push};

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().matches("overlay").count()
}

async fn pulled(test: &Test, layers: &[Layer]) -> images::Image {
    let registry = Registry::start().unwrap();
    let name = push(&registry, "app", layers);
    test.images.pull(&name, &Credentials::default()).await.unwrap();
    test.images.find(&name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_write_into_their_own_layer() {
    let test = Test::new().await;
    let image = pulled(&test, &[Tar::new().dir("etc", 0o755).file("etc/a", "image").layer()]).await;
    let before = mounts();
    let how = Prepare::default();
    let one = test.images.prepare("one", &image.id, &how).unwrap();
    let two = test.images.prepare("two", &image.id, &how).unwrap();
    let (first, second) = (Mounted(one.mount().unwrap()), Mounted(two.mount().unwrap()));
    fs::write(first.path("etc/a"), "changed").unwrap();
    fs::write(first.path("new"), vec![1; 100_000]).unwrap();
    fs::remove_dir_all(second.path("etc")).unwrap();
    assert_eq!(first.text("etc/a"), "changed");
    assert!(!second.has("etc") && !second.has("new"));
    assert_eq!(mounts(), before, "a root is in this machine's mount table");
    let usage = test.images.usage_of("one").await.unwrap();
    assert!(usage.bytes >= 100_000 && usage.inodes >= 4, "{usage:?}");
    let all = test.images.usage().await.unwrap();
    assert!(all.roots.bytes >= usage.bytes && all.images.bytes > 0 && all.path == test.path(""), "{all:?}");

    // It is there again after the store was closed, with what was written.
    drop((first, second));
    let test = test.reopen().await;
    assert_eq!(test.images.snapshots(), ["one", "two"]);
    let root = Mounted(test.images.root("one").unwrap().mount().unwrap());
    assert_eq!(root.text("etc/a"), "changed");
    drop(root);
    let exists = test.images.prepare("one", &image.id, &how);
    assert!(matches!(exists, Err(StoreError::RootExists(_))));
    assert!(matches!(test.images.prepare("../x", &image.id, &how), Err(StoreError::Key(_))));
    assert!(matches!(test.images.root("three"), Err(StoreError::NoRoot(_))));
    let none = images_id("sha256:0000000000000000000000000000000000000000000000000000000000000000");
    assert!(matches!(test.images.prepare("three", &none, &how), Err(StoreError::NoImage(_))));
    for key in ["one", "two"] {
        assert!(test.images.release(key).unwrap());
    }
    assert!(test.images.snapshots().is_empty() && test.names("roots").is_empty());
}

fn images_id(text: &str) -> images::Digest {
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_layers() {
    let test = Test::new().await;
    let layers: Vec<Layer> = (0..128)
        .map(|i| Tar::new().file(&format!("f{i}"), "x").file("last", &i.to_string()).layer())
        .collect();
    let image = pulled(&test, &layers).await;
    let root = test.images.prepare("c", &image.id, &Prepare::default()).unwrap();
    let root = Mounted(root.mount().unwrap());
    assert_eq!(root.list("").len(), 129);
    assert_eq!(root.text("last"), "127");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_can_only_be_read() {
    let test = Test::new().await;
    let image = pulled(&test, &[Tar::new().file("a", "1").layer()]).await;
    let view = test.images.view("v", &image.id, None).unwrap();
    let mount = Mounted(view.mount().unwrap());
    assert_eq!(mount.text("a"), "1");
    assert!(fs::write(mount.path("b"), "").is_err());
    let flags = rustix::fs::fstatvfs(&mount.0).unwrap().f_flag;
    use rustix::fs::StatVfsMountFlags as Flags;
    assert!(flags.contains(Flags::RDONLY | Flags::NOEXEC | Flags::NOSUID | Flags::NODEV), "{flags:?}");
    // Several mounts of a view at once are fine.
    assert_eq!(Mounted(view.mount().unwrap()).text("a"), "1");
    assert!(test.images.release("v").unwrap());
}

fn part(inside: u32, outside: u32, size: u32) -> LinuxIdMapping {
    LinuxIdMappingBuilder::default().container_id(inside).host_id(outside).size(size).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_belong_to_the_user_namespace() {
    let test = Test::new().await;
    let layer = Tar::new()
        .dir("./", 0o755)
        .file("roots", "x")
        .records(&[("uid", b"1000"), ("gid", b"1001")])
        .file("users", "x")
        .layer();
    let image = pulled(&test, &[layer, Tar::new().file("b", "2").layer()]).await;
    let map = vec![part(0, 1_000_000, 65_536)];
    let ids = IdMap { uids: map.clone(), gids: map };
    let root = test.images.prepare("c", &image.id, &Prepare { id_map: Some(ids.clone()) }).unwrap();
    let root = Mounted(root.mount().unwrap());
    let owner = |root: &Mounted, name: &str| {
        let facts = fs::metadata(root.path(name)).unwrap();
        (facts.uid(), facts.gid())
    };
    assert_eq!(owner(&root, "."), (1_000_000, 1_000_000));
    assert_eq!(owner(&root, "roots"), (1_000_000, 1_000_000));
    assert_eq!(owner(&root, "users"), (1_001_000, 1_001_001));
    // A copy keeps its owner, and the layer does not change.
    let mut file = fs::OpenOptions::new().append(true).open(root.path("users")).unwrap();
    std::io::Write::write_all(&mut file, b"y").unwrap();
    drop(file);
    assert_eq!(owner(&root, "users"), (1_001_000, 1_001_001));
    assert_eq!(root.text("users"), "xy");
    let plain = test.images.prepare("plain", &image.id, &Prepare::default()).unwrap();
    let plain = Mounted(plain.mount().unwrap());
    assert_eq!(owner(&plain, "users"), (1000, 1001));
    assert_eq!(plain.text("users"), "x");

    let view = test.images.view("v", &image.id, Some(&ids)).unwrap();
    let view = Mounted(view.mount().unwrap());
    assert_eq!(owner(&view, "users"), (1_001_000, 1_001_001));
    assert!(view.0.as_fd().try_clone_to_owned().is_ok());
}
