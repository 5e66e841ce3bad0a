//! Pulls that succeed, each in its own way, and what is kept of them.

use images::{Credentials, PullError};
use serde_json::json;
use tar::EntryType;
use testkit::registry::{Fault, Layer, Registry, digest};

use super::{Tar, Test, noise, nothing, push};

fn nobody() -> Credentials {
    Credentials::default()
}

/// How many requests for content there were.
fn downloads(registry: &Registry) -> usize {
    registry.asked().iter().filter(|a| a.path.contains("/blobs/")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_found_and_mounted() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let base = Tar::new().dir("etc", 0o755).file("etc/a", "below").file("etc/b", "below").gzip();
    let top = Tar::new().dir("etc", 0o750).file("etc/a", "above").file("etc/.wh.b", "").layer();
    let name = push(&registry, "app", &[base, top]);
    let pulled = test.images.pull(&name, &nobody()).await.unwrap();
    assert_eq!(pulled.name, name);

    let image = test.images.find(&name).unwrap();
    assert_eq!(image.id, pulled.id);
    assert_eq!(image.tags, std::slice::from_ref(&name));
    let by_digest = format!("{}@{}", name.strip_suffix(":1").unwrap(), pulled.digest);
    assert_eq!(image.digests, std::slice::from_ref(&by_digest));
    assert_eq!(image.user, "7:8");
    assert!(image.size > 1000 && !image.pinned && !image.artifact);
    for other in [&by_digest, image.id.hex(), &image.id.to_string(), &image.id.hex()[..12]] {
        assert_eq!(test.images.find(other).as_ref(), Some(&image), "{other}");
    }
    for other in ["", "nothing", "sha256:", &image.id.hex()[..3], &format!("{name}2")] {
        assert_eq!(test.images.find(other), None, "{other}");
    }
    let configuration = test.images.configuration(&image.id).await.unwrap().unwrap();
    assert_eq!(configuration.config().as_ref().unwrap().cmd().as_deref(), Some(&["sh".to_owned()][..]));

    let root = test.mounted("c1", &name);
    assert_eq!(root.text("etc/a"), "above");
    assert_eq!(root.list("etc"), ["a"]);

    // Once more: only the name is asked for.
    let before = downloads(&registry);
    let again = test.images.pull(&name, &nobody()).await.unwrap();
    assert_eq!(again, pulled);
    let again = test.images.pull(&by_digest, &nobody()).await.unwrap();
    assert_eq!(again.id, pulled.id);
    assert_eq!(downloads(&registry), before);
    assert_eq!(test.images.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moves_leaves_the_other_image_its_digest() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let name = push(&registry, "app", &[Tar::new().file("a", "1").layer()]);
    let first = test.images.pull(&name, &nobody()).await.unwrap();
    push(&registry, "app", &[Tar::new().file("a", "2").layer()]);
    let second = test.images.pull(&name, &nobody()).await.unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(test.images.find(&name).unwrap().id, second.id);
    let old = test.images.find(&first.id.to_string()).unwrap();
    assert!(old.tags.is_empty() && old.digests.len() == 1);

    // Names are kept, given and taken; all of it survives.
    test.images.tag(&name, "other/name:2").await.unwrap();
    test.images.pin("other/name:2", true).await.unwrap();
    let test = test.reopen().await;
    let image = test.images.find("other/name:2").unwrap();
    assert_eq!(image.id, second.id);
    assert!(image.pinned);
    assert_eq!(image.tags, [name.clone(), "docker.io/other/name:2".to_owned()]);
    assert!(test.images.remove("other/name:2").await.unwrap());
    assert!(test.images.find("other/name:2").is_none());
    assert!(test.images.remove(&name).await.unwrap(), "the last tag takes the image with it");
    assert!(!test.images.remove(&name).await.unwrap());
    assert!(test.images.find(&second.id.to_string()).is_none());
    assert!(test.images.remove(&first.id.to_string()).await.unwrap());
    assert!(test.images.list().is_empty());
    for empty in ["blobs/sha256", "layers", "images"] {
        assert!(test.names(empty).is_empty(), "{empty}: {:?}", test.names(empty));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_shared_and_downloaded_once() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let base = Tar::new().entry(EntryType::Regular, "big", "", 0o644, &noise(3_000_000, 1)).gzip();
    let one = push(&registry, "one", &[base.clone(), Tar::new().file("a", "one").gzip()]);
    let two = push(&registry, "two", &[base.clone(), Tar::new().file("a", "two").gzip(), base.clone()]);
    let nobody = nobody();
    let (first, second) = (test.images.pull(&one, &nobody), test.images.pull(&two, &nobody));
    let third = test.images.pull(&two, &nobody);
    let (first, second, third) = tokio::join!(first, second, third);
    first.unwrap();
    assert_eq!(second.unwrap().id, third.unwrap().id);
    let name = digest(&base.bytes);
    let times = registry.asked().iter().filter(|a| a.path.contains(&name)).count();
    assert_eq!(times, 1);
    assert_eq!(test.names("layers").len(), 3);
    assert_eq!(test.mounted("c1", &one).text("a"), "one");
    assert_eq!(test.mounted("c2", &two).text("a"), "two");

    // The things that an image alone has go with it, the rest stays; a root keeps its layers.
    test.images.remove(&two).await.unwrap();
    assert_eq!(test.names("layers").len(), 3);
    assert!(test.images.release("c2").unwrap());
    assert!(!test.images.release("c2").unwrap());
    assert_eq!(test.names("layers").len(), 2);
    test.images.remove(&one).await.unwrap();
    assert_eq!(test.images.snapshots(), ["c1"]);
    assert_eq!(test.names("layers").len(), 2);
    let root = test.images.root("c1").unwrap();
    assert!(super::Mounted(root.mount().unwrap()).has("big"));
    test.images.release("c1").unwrap();
    assert!(test.names("layers").is_empty());
    assert!(test.names("blobs/sha256").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_gives_the_machines_platform() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let mine = images::Platform::host().architecture;
    let mut entries = Vec::new();
    for architecture in ["s390x", &*mine, "riscv64"] {
        let layer = Tar::new().file("arch", architecture).layer();
        let pushed = registry.push_for(architecture, "test/multi", "x", &nothing(), &[layer]);
        let size = 400;
        entries.push(json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": pushed.manifest, "size": size,
            "platform": {"os": "linux", "architecture": architecture},
        }));
    }
    let media_type = "application/vnd.oci.image.index.v1+json";
    let index = |entries: &[serde_json::Value]| {
        json!({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}).to_string().into_bytes()
    };
    let whole = index(&entries);
    registry.put_manifest("test/multi", "1", media_type, whole.clone());
    let name = format!("{}/test/multi:1", registry.host());
    let pulled = test.images.pull(&name, &nobody()).await.unwrap();
    assert_eq!(pulled.digest.to_string(), digest(&whole));
    assert_eq!(test.mounted("c1", &name).text("arch"), mine);
    assert!(test.images.find(&name).unwrap().digests[0].ends_with(&digest(&whole)));

    // Entries that name no platform are told by their configuration.
    for entry in &mut entries {
        entry.as_object_mut().unwrap().remove("platform");
    }
    registry.put_manifest("test/multi", "2", media_type, index(&entries));
    let name = format!("{}/test/multi:2", registry.host());
    assert_eq!(test.images.pull(&name, &nobody()).await.unwrap().id, pulled.id);

    registry.put_manifest("test/multi", "3", media_type, index(&entries[..1]));
    let error = test.images.pull(&format!("{}/test/multi:3", registry.host()), &nobody()).await.unwrap_err();
    assert!(matches!(error, PullError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains(&mine), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_mounted_as_files() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let empty = registry.put_blob(b"{}".to_vec());
    let model = registry.put_blob(b"weights".to_vec());
    let packed = Layer::gzip(&Tar::new().dir("docs", 0o755).file("docs/read", "me").bytes()).unwrap();
    let docs = registry.put_blob(packed.bytes.clone());
    let plain = registry.put_blob(b"no title".to_vec());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/x-model",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2},
        "layers": [
            {"mediaType": "application/octet-stream", "digest": model, "size": 7,
             "annotations": {"org.opencontainers.image.title": "../../models/model.bin"}},
            {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": docs, "size": packed.bytes.len()},
            {"mediaType": "text/plain", "digest": plain, "size": 8},
        ],
        "annotations": {"kind": "test"},
    });
    let bytes = manifest.to_string().into_bytes();
    let id = registry.put_manifest("test/model", "1", "application/vnd.oci.image.manifest.v1+json", bytes);
    let name = format!("{}/test/model:1", registry.host());
    let pulled = test.images.pull(&name, &nobody()).await.unwrap();
    assert_eq!(pulled.id.to_string(), id);
    let image = test.images.find(&name).unwrap();
    assert!(image.artifact && image.annotations["kind"] == "test");
    assert!(test.images.configuration(&image.id).await.unwrap().is_none());
    let view = test.images.view("v1", &image.id, None).unwrap();
    let view = super::Mounted(view.mount().unwrap());
    assert_eq!(view.text("models/model.bin"), "weights");
    assert_eq!(view.text("docs/read"), "me");
    assert_eq!(view.text(plain.strip_prefix("sha256:").unwrap()), "no title");
    assert!(std::fs::write(view.path("new"), "x").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_pull_is_gone_on_with() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let data = noise(2_000_000, 2);
    let layer = Tar::new().entry(EntryType::Regular, "big", "", 0o644, &data).layer();
    let blob = digest(&layer.bytes);
    let name = push(&registry, "app", std::slice::from_ref(&layer));
    registry.fault(&blob, None, Fault::Stall(1_200_000));
    let part = test.path(&format!("ingest/{}.part", blob.replace(':', "-")));
    let pull = tokio::spawn({
        let (images, name) = (test.images.clone(), name.clone());
        async move { images.pull(&name, &nobody()).await }
    });
    let arrived = || std::fs::metadata(&part).is_ok_and(|f| f.len() == 1_200_000);
    while !arrived() {
        tokio::task::yield_now().await;
    }
    pull.abort();
    assert!(pull.await.unwrap_err().is_cancelled());
    registry.heal();
    // The store's users are gone when the threads of the pull have ended.
    let test = test.reopen().await;
    assert!(arrived());
    test.images.pull(&name, &nobody()).await.unwrap();
    let asked = registry.asked();
    let last = asked.iter().rfind(|a| a.path.contains(&blob)).unwrap();
    assert_eq!(last.header("range"), Some("bytes=1200000-"));
    assert_eq!(std::fs::read(test.mounted("c1", &name).path("big")).unwrap(), data);
    assert!(!part.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_of_layers_may_be_discarded() {
    let registry = Registry::start().unwrap();
    let test = Test::with(|s| s.discard_archives = true).await;
    let layer = Tar::new().file("a", "1").layer();
    let name = push(&registry, "app", std::slice::from_ref(&layer));
    test.images.pull(&name, &nobody()).await.unwrap();
    while test.names("blobs/sha256").contains(&digest(&layer.bytes)[7..].to_owned()) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let error = test.images.export(std::slice::from_ref(&name), std::io::sink()).await;
    assert!(matches!(error, Err(images::ArchiveError::Discarded { .. })), "{error:?}");
    // The next image that has the layer does not need its archive.
    let other = push(&registry, "other", &[layer.clone(), Tar::new().file("b", "2").layer()]);
    let asked = registry.asked().len();
    test.images.pull(&other, &nobody()).await.unwrap();
    assert!(!registry.asked()[asked..].iter().any(|a| a.path.contains(&digest(&layer.bytes))));
    assert_eq!(test.mounted("c1", &name).text("a"), "1");
}
