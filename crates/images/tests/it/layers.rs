//! Layers as archives have them, honest and evil ones, as they are seen in a root.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use images::Credentials;
use rustix::fs::{XattrFlags, getxattr};
use tar::EntryType;
use testkit::registry::{Layer, Registry, digest};

use super::{Mounted, Tar, Test, noise, push};

/// Pulls an image of these layers and mounts it.
async fn root(registry: &Registry, test: &Test, name: &str, layers: &[Layer]) -> Mounted {
    let reference = push(registry, name, layers);
    test.images.pull(&reference, &Credentials::default()).await.unwrap();
    test.mounted(name, &reference)
}

#[tokio::test(flavor = "multi_thread")]
async fn whiteouts_hide_what_is_below() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let base = Tar::new()
        .dir("d", 0o755)
        .file("d/one", "1")
        .file("d/two", "2")
        .dir("o", 0o755)
        .file("o/old", "x")
        .dir("r", 0o755)
        .file("r/old", "x")
        .dir("s", 0o755)
        .file("s/old", "x")
        .symlink("link", "d")
        .layer();
    let top = Tar::new()
        .file("d/.wh.one", "")
        .dir("o", 0o700)
        .file("o/new", "y")
        .file("o/.wh..wh..opq", "")
        // A name that is gone and comes again, in both orders.
        .file(".wh.r", "")
        .dir("r", 0o755)
        .file("r/new", "y")
        .dir("s", 0o755)
        .file("s/new", "y")
        .file(".wh.s", "")
        .file(".wh.link", "")
        .file("d/.wh..wh.plnk", "")
        .layer();
    let root = root(&registry, &test, "app", &[base, top]).await;
    assert_eq!(root.list("d"), ["two"]);
    for hidden in ["o", "r", "s"] {
        assert_eq!(root.list(hidden), ["new"], "{hidden}");
    }
    assert!(!root.has("link"));
    assert_eq!(root.list(""), ["d", "o", "r", "s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_a_layer_may_have() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let capability = [1, 0, 0, 2, b'\n', 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    let layer = Tar::new()
        .dir("./", 0o711)
        .records(&[("uid", b"1000"), ("gid", b"2000"), ("mtime", b"1234567890.5")])
        .entry(EntryType::Regular, "owned", "", 0o6755, b"x")
        .records(&[("SCHILY.xattr.security.capability", &capability), ("SCHILY.xattr.user.note", b"a=b\nc")])
        .file("capable", "x")
        .records(&[("SCHILY.xattr.trusted.overlay.redirect", b"/etc"), ("SCHILY.xattr.user.ok", b"1")])
        .dir("plain", 0o755)
        .records(&[("path", long.as_bytes())])
        .file("short", "long name")
        .entry(EntryType::Fifo, "fifo", "", 0o600, b"")
        .entry(EntryType::Char, "null", "", 0o666, b"")
        .dir("sticky", 0o1777)
        .file("hard1", "same")
        .link("hard2", "hard1")
        .link("hard3", "/hard2")
        .symlink("soft", "hard1")
        .link("softlink", "soft")
        .file("twice", "first")
        .file("twice", "second")
        .file("was-file", "x")
        .dir("was-file", 0o755)
        .dir("was-dir", 0o755)
        .file("was-dir/x", "x")
        .file("was-dir", "now a file")
        .gzip();
    let root = root(&registry, &test, "app", &[layer]).await;
    let facts = |name: &str| fs::symlink_metadata(root.path(name)).unwrap();
    assert_eq!(facts(".").mode() & 0o7777, 0o711);
    let owned = facts("owned");
    assert_eq!((owned.uid(), owned.gid(), owned.mode() & 0o7777), (1000, 2000, 0o6755));
    assert_eq!((owned.mtime(), owned.mtime_nsec()), (1_234_567_890, 500_000_000));
    let mut value = [0; 64];
    let length = getxattr(root.path("capable"), "security.capability", &mut value[..]).unwrap();
    assert_eq!(value[..length], capability);
    let length = getxattr(root.path("capable"), "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"a=b\nc");
    assert!(getxattr(root.path("plain"), "user.ok", &mut value[..]).is_ok());
    assert_eq!(root.text(&long), "long name");
    assert!(facts("fifo").file_type().is_fifo());
    assert_eq!(facts("sticky").mode() & 0o7777, 0o1777);
    assert_eq!(facts("sticky").mtime(), 1_000_000_000);
    for other in ["hard2", "hard3"] {
        assert_eq!(facts(other).ino(), facts("hard1").ino());
    }
    assert!(facts("softlink").is_symlink());
    assert_eq!(root.text("twice"), "second");
    assert!(facts("was-file").is_dir());
    assert_eq!(root.text("was-dir"), "now a file");
    // The char device 0, 0 is overlayfs's whiteout: a layer that has one hides the name.
    assert!(!root.has("null"));
}

/// Writes a sparse file's header in GNU's old form: 8 MiB with `data` at 1 MiB.
fn gnu_sparse(data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    header.set_path("sparse-gnu").unwrap();
    let gnu = header.as_gnu_mut().unwrap();
    gnu.set_real_size(8 << 20);
    gnu.sparse[0].set_offset(1 << 20);
    gnu.sparse[0].set_length(data.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn sparse_files_of_every_form() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let data = noise(5000, 1);
    let mut whole = vec![0_u8; 8 << 20];
    whole[1 << 20..][..5000].copy_from_slice(&data);
    let size = (8 << 20).to_string();
    let map = format!("{},5000", 1 << 20);
    let mut version_1 = format!("1\n{}\n5000\n", 1 << 20).into_bytes();
    version_1.resize(512, 0);
    version_1.extend_from_slice(&data);
    let rest = Tar::new()
        .entry(EntryType::Regular, "zeros", "", 0o644, &whole)
        .records(&[
            ("GNU.sparse.size", size.as_bytes()),
            ("GNU.sparse.numblocks", b"1"),
            ("GNU.sparse.map", map.as_bytes()),
        ])
        .entry(EntryType::Regular, "sparse-01", "", 0o644, &data)
        .records(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"sparse-10"),
            ("GNU.sparse.realsize", size.as_bytes()),
        ])
        .entry(EntryType::Regular, "GNUSparseFile.1/sparse-10", "", 0o644, &version_1)
        .file("after", "it")
        .bytes();
    let layer = Layer::plain([gnu_sparse(&data), rest].concat());
    let root = root(&registry, &test, "app", &[layer]).await;
    for name in ["sparse-gnu", "zeros", "sparse-01", "sparse-10"] {
        assert!(fs::read(root.path(name)).unwrap() == whole, "{name}");
        let facts = fs::metadata(root.path(name)).unwrap();
        assert!(facts.blocks() * 512 < 1 << 20, "{name} has {} blocks", facts.blocks());
    }
    assert_eq!(root.text("after"), "it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_takes_over_what_its_archive_leaves_out() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let base = Tar::new()
        .dir("tmp", 0o1777)
        .dir("srv", 0o700)
        .dir("srv/deep", 0o750)
        .file("srv/file", "below")
        .symlink("var-run", "run")
        .dir("run", 0o711)
        .layer();
    // No archive of these has the directories that it writes into, or the file that it links to.
    let middle = Tar::new().file("tmp/a", "1").file("srv/deep/b", "2").file("var-run/pid", "3").layer();
    let top = Tar::new().link("linked", "srv/file").file("fresh/x", "4").file("tmp/c", "5").layer();
    let root = root(&registry, &test, "app", &[base.clone(), middle.clone(), top]).await;
    let mode = |name: &str| fs::symlink_metadata(root.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("tmp"), 0o1777);
    assert_eq!(mode("srv"), 0o700);
    assert_eq!(mode("srv/deep"), 0o750);
    assert_eq!(mode("fresh"), 0o755);
    assert_eq!(root.list("tmp"), ["a", "c"]);
    assert_eq!(root.text("linked"), "below");
    let inode = |name: &str| fs::metadata(root.path(name)).unwrap().ino();
    assert_eq!(inode("linked"), inode("srv/file"));

    // On another base the same layer takes over other attributes.
    let other = Tar::new().dir("tmp", 0o700).dir("srv", 0o711).layer();
    let layers = [other, middle];
    let root = self::root(&registry, &test, "other", &layers).await;
    assert_eq!(fs::metadata(root.path("tmp")).unwrap().mode() & 0o7777, 0o700);

    // A link to what nobody has.
    let name = push(&registry, "bad", &[base, Tar::new().link("a", "no/where").layer()]);
    let error = test.images.pull(&name, &Credentials::default()).await.unwrap_err();
    assert!(error.to_string().contains("no layer has"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn evil_layers_stay_inside() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap().to_owned();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    let up = "../../../../../../../../../../../..";
    let into = |link: &str| Tar::new().symlink("link", link);
    let layers = [
        Tar::new().file(&format!("{up}{target}/new"), "x"),
        Tar::new().file(&format!("{target}/new"), "x"),
        into(&target).file("link/new", "x"),
        into(&format!("{up}{target}")).file("link/new", "x"),
        into(&target).dir("link/sub", 0o777).file("link/sub/new", "x"),
        into(&target).file("link/.wh.victim", ""),
        into(&target).file("link/.wh..wh..opq", ""),
        into(&target).link("hard", "link/victim"),
        into(&target).link("link/hard", "link"),
        Tar::new().link("hard", &format!("{up}{target}/victim")),
        Tar::new().symlink("a", "b").symlink("b", "a").file("a/new", "x"),
        Tar::new().dir("d", 0o755).file("d/x", "x").symlink("d", &target).file("d/victim", "x"),
        Tar::new().symlink("d", &target).dir("d", 0o700).file("d/victim", "x"),
        Tar::new().symlink("self", "/proc/self/root").file(&format!("self{target}/new"), "x"),
        Tar::new().symlink("cwd", "/proc/self/cwd").file("cwd/new", "x"),
        Tar::new().symlink("victim", &format!("{target}/victim")).file("victim", "x"),
        into(&format!("{target}/victim")).entry(EntryType::Regular, "link", "", 0o4777, b"x"),
    ];
    let registry = Registry::start().unwrap();
    let before = facts(outside.path());
    for (number, layer) in layers.into_iter().enumerate() {
        let test = Test::new().await;
        let name =
            push(&registry, &format!("evil{number}"), &[Tar::new().dir("d", 0o755).layer(), layer.layer()]);
        let pulled = test.images.pull(&name, &Credentials::default()).await;
        if let Ok(pulled) = &pulled {
            let root = test.images.view("v", &pulled.id, None).unwrap();
            drop(Mounted(root.mount().unwrap()));
        }
        assert_eq!(facts(outside.path()), before, "layer {number}: {pulled:?}");
    }
}

/// The files of a directory, and how they are.
fn facts(directory: &std::path::Path) -> Vec<(String, u32, u32, u64, i64, Vec<u8>)> {
    let mut list = Vec::new();
    for entry in fs::read_dir(directory).unwrap().chain(fs::read_dir(directory.parent().unwrap()).unwrap()) {
        let entry = entry.unwrap();
        if entry.path().parent() != Some(directory) && entry.path() != directory {
            continue;
        }
        let facts = fs::symlink_metadata(entry.path()).unwrap();
        let content = if facts.is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
        let name = entry.file_name().into_string().unwrap();
        list.push((name, facts.mode(), facts.uid(), facts.nlink(), facts.mtime(), content));
    }
    list.sort();
    list
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_archives_are_errors() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let good = Tar::new().file("a", "1").bytes();
    let mut checksum = good.clone();
    checksum[148] ^= 1;
    let long = |kind: u8| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::new(kind));
        header.set_size(1 << 40);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("cut", good[..600].to_vec()),
        ("checksum", checksum),
        ("long name", long(b'L')),
        ("long link", long(b'K')),
        ("records", long(b'x')),
        ("global records", long(b'g')),
        ("type", Tar::new().entry(EntryType::new(b'Z'), "a", "", 0o644, b"").bytes()),
        ("whiteout of nothing", Tar::new().file(".wh.", "").bytes()),
        ("whiteout of the parent", Tar::new().file("d/.wh...", "").bytes()),
        ("link to itself", Tar::new().link("a", "a").bytes()),
        ("link to a directory", Tar::new().dir("d", 0o755).link("a", "d").bytes()),
        ("below a file", Tar::new().file("f", "").file("f/x", "").bytes()),
        ("name too long", Tar::new().records(&[("path", "x".repeat(300).as_bytes())]).file("a", "").bytes()),
        ("owner", Tar::new().records(&[("uid", b"4294967295")]).file("a", "").bytes()),
        ("record", Tar::new().records(&[("path", b"\xff\0")]).file("a", "").bytes()),
    ];
    for (what, bytes) in cases {
        let name = push(&registry, "bad", &[Layer::plain(bytes)]);
        let error = test.images.pull(&name, &Credentials::default()).await.unwrap_err();
        assert!(matches!(error, images::PullError::Invalid { .. }), "{what}: {error}");
    }
    // Nothing, and only zeros, are archives.
    for bytes in [Vec::new(), vec![0; 1024]] {
        let reference = push(&registry, "empty", &[Layer::plain(bytes.clone())]);
        test.images.pull(&reference, &Credentials::default()).await.unwrap();
        assert!(digest(&bytes).len() > 64);
    }
    assert_eq!(XattrFlags::empty().bits(), 0);
}
