//! Imports and exports.

use std::fs::File;
use std::io::{Cursor, Write};

use images::{ArchiveError, Credentials};
use serde_json::{Value, json};
use tar::EntryType;
use testkit::Image;
use testkit::registry::{Registry, digest};

use super::{Tar, Test, noise, push};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A docker-archive as old versions of `docker save` wrote it: a layer twice by a link.
fn docker_archive(tags: Value) -> Vec<u8> {
    let layer = Tar::new().file("a", "docker").bytes();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["x"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer), digest(&layer)]},
    });
    let manifest = json!([{"Config": "c.json", "RepoTags": tags, "Layers": ["1/layer.tar", "2/layer.tar"]}]);
    Tar::new()
        .symlink("2/layer.tar", "../1/layer.tar")
        .entry(EntryType::Regular, "1/layer.tar", "", 0o644, &layer)
        .file("c.json", &config.to_string())
        .file("manifest.json", &manifest.to_string())
        .file("repositories", "{}")
        .bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_of_every_form() {
    let test = Test::new().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("busybox.tar");
    Image::busybox("test.local/busybox:1").unwrap().write(&path).unwrap();
    let images = test.images.import(File::open(&path).unwrap(), false).await.unwrap();
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].tags, ["test.local/busybox:1"]);
    assert!(test.mounted("c1", "test.local/busybox:1").has("bin/busybox"));

    let images =
        test.images.import(Cursor::new(docker_archive(json!(["app:1", "other/app"]))), false).await.unwrap();
    assert_eq!(images[0].tags, ["docker.io/library/app:1", "docker.io/other/app:latest"]);
    assert_eq!(test.mounted("c2", "app:1").text("a"), "docker");
    // Compressed, and without a name: the image has only its id.
    let test = Test::new().await;
    let images = test.images.import(Cursor::new(gzip(&docker_archive(json!(null)))), false).await.unwrap();
    assert!(images[0].tags.is_empty());
    assert_eq!(test.mounted("c3", &images[0].id.to_string()).text("a"), "docker");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_imported_elsewhere() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let one = push(
        &registry,
        "one",
        &[Tar::new().entry(EntryType::Regular, "big", "", 0o644, &noise(500_000, 1)).gzip()],
    );
    let two = push(&registry, "two", &[Tar::new().file("a", "2").layer()]);
    for name in [&one, &two] {
        test.images.pull(name, &Credentials::default()).await.unwrap();
    }
    test.images.tag(&two, "app:2").await.unwrap();
    let file = test.directory.path().join("export.tar");
    let names = [one.clone(), "app:2".to_owned()];
    test.images.export(&names, File::create(&file).unwrap()).await.unwrap();
    let missing = test.images.export(&["nothing:1".to_owned()], std::io::sink()).await;
    assert!(matches!(missing, Err(ArchiveError::Store(_))), "{missing:?}");

    let other = Test::new().await;
    let images = other.images.import(File::open(&file).unwrap(), false).await.unwrap();
    assert_eq!(images.len(), 2);
    for (name, original) in [(&*one, &one), ("app:2", &two)] {
        let (here, there) = (other.images.find(name).unwrap(), test.images.find(original).unwrap());
        assert_eq!((here.id, here.size), (there.id, there.size));
    }
    assert_eq!(other.images.find("app:2").unwrap().tags, ["docker.io/library/app:2"]);
    assert_eq!(other.mounted("c", &one).list(""), ["big"]);

    // Other tools read it: its two forms name the same content.
    let mut archive = tar::Archive::new(File::open(&file).unwrap());
    let names: Vec<String> =
        archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().to_str().unwrap().to_owned()).collect();
    for name in ["oci-layout", "index.json", "manifest.json"] {
        assert!(names.iter().any(|n| n == name), "{names:?}");
    }
    assert_eq!(names.len(), 3 + 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_tells_its_names_and_keeps_what_is_pinned() {
    let test = Test::new().await;
    let import = async |names: Value, pin| {
        let images = test.images.import(Cursor::new(docker_archive(names)), pin).await.unwrap();
        images.into_iter().next().unwrap()
    };
    assert_eq!(import(json!(["app:1"]), true).await.tags, ["docker.io/library/app:1"]);
    // The same image by another name: that one alone is told, and the image stays pinned.
    let image = import(json!(["app:2"]), false).await;
    assert_eq!(image.tags, ["docker.io/library/app:2"]);
    let kept = test.images.find("app:1").unwrap();
    assert_eq!(kept.id, image.id);
    assert!(kept.pinned);
    assert_eq!(kept.tags.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_archives_are_refused_and_leave_nothing() {
    let test = Test::new().await;
    let good = docker_archive(json!(["app:1"]));
    let lacks = Tar::new().file("manifest.json", r#"[{"Config": "c.json", "Layers": []}]"#).bytes();
    let wrong = "sha256/0000000000000000000000000000000000000000000000000000000000000000";
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("text", b"hello".repeat(200)),
        ("cut", good[..good.len() / 2].to_vec()),
        ("cut gzip", gzip(&good)[..300].to_vec()),
        ("no index", Tar::new().file("a", "b").bytes()),
        ("lacks", lacks),
        ("links", Tar::new().link("manifest.json", "x").link("x", "manifest.json").bytes()),
        ("digest", Tar::new().file(&format!("blobs/{wrong}"), "x").bytes()),
        ("index", Tar::new().file("index.json", "[").bytes()),
        ("manifest", Tar::new().file("manifest.json", "{}").bytes()),
    ];
    for (what, bytes) in cases {
        let result = test.images.import(Cursor::new(bytes), false).await;
        assert!(matches!(result, Err(ArchiveError::Invalid(_) | ArchiveError::Io(_))), "{what}: {result:?}");
    }
    assert!(test.images.list().is_empty());
    let rest = test.names("ingest");
    assert!(test.names("layers").is_empty() && rest.is_empty(), "{rest:?}");
}
