//! Processes that are killed, and stores that two want.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use component::Shutdown;
use images::{Credentials, Images, OpenError, Prepare};
use tar::EntryType;
use testkit::registry::Registry;

use super::{Mounted, Tar, Test, noise, push, settings};

/// The work of a child: it pulls, makes roots and removes, until it is killed. Without its variable it is no child.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Some(root) = std::env::var_os("FERROKUBE_TEST_IMAGES") else { return };
    let names = std::env::var("FERROKUBE_TEST_NAMES").unwrap();
    let names: Vec<&str> = names.split(' ').collect();
    let images = Images::open(settings(root.into()), &Shutdown::new()).await.unwrap();
    for round in 0.. {
        for name in &names {
            let pulled = images.pull(name, &Credentials::default()).await.unwrap();
            let key = format!("k{}-{round}", std::process::id());
            if images.prepare(&key, &pulled.id, &Prepare::default()).is_ok() && round % 2 == 0 {
                images.release(&key).unwrap();
            }
        }
        for name in &names {
            images.remove(name).await.unwrap();
        }
    }
}

fn spawn(test: &Test, names: &[String]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "it::crashes::child", "--nocapture"])
        .env("FERROKUBE_TEST_IMAGES", test.path(""))
        .env("FERROKUBE_TEST_NAMES", names.join(" "))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_survives_kills_at_any_instant() {
    let registry = Registry::start().unwrap();
    let big = |seed| Tar::new().entry(EntryType::Regular, "big", "", 0o644, &noise(1_500_000, seed)).gzip();
    let implicit = Tar::new().file("dir/file", "x").layer();
    let names = [
        push(&registry, "one", &[big(1), Tar::new().dir("dir", 0o700).layer(), implicit.clone()]),
        push(&registry, "two", &[big(1), big(2), implicit]),
    ];
    let mut test = Test::new().await;
    for kill in 0..12_u64 {
        let Test { images, shutdown, directory } = test;
        shutdown.stop();
        shutdown.finish().await;
        drop(images);
        test = Test {
            images: Images::open(settings(directory.path().join("other")), &Shutdown::new()).await.unwrap(),
            shutdown,
            directory,
        };
        let mut running = spawn(&test, &names);
        // Later and later in what it does.
        tokio::time::sleep(Duration::from_millis(40 + kill * 37)).await;
        running.kill().unwrap();
        running.wait().unwrap();

        let Test { shutdown, directory, .. } = test;
        let images = Images::open(settings(directory.path().join("store")), &shutdown).await.unwrap();
        test = Test { images, shutdown: Shutdown::new(), directory };
        for image in test.images.list() {
            // All that is listed is whole.
            let root = test.images.prepare("check", &image.id, &Prepare::default()).unwrap();
            let mount = Mounted(root.mount().unwrap());
            assert_eq!(std::fs::metadata(mount.path("big")).unwrap().len(), 1_500_000);
            assert_eq!(mount.text("dir/file"), "x");
            drop(mount);
            test.images.release("check").unwrap();
            test.images.export(&[image.id.to_string()], std::io::sink()).await.unwrap();
        }
        for entry in test.names("ingest") {
            assert!(Path::new(&entry).extension().is_some_and(|e| e == "part"), "{entry}");
        }
    }
    for name in &names {
        test.images.pull(name, &Credentials::default()).await.unwrap();
    }
    for key in test.images.snapshots() {
        test.images.release(&key).unwrap();
    }
    for image in test.images.list() {
        test.images.remove(&image.id.to_string()).await.unwrap();
    }
    assert!(test.names("images").is_empty() && test.names("roots").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_has_one_user_and_waits_for_one_that_ends() {
    let test = Test::new().await;
    let path = test.path("");
    let second = tokio::spawn(Images::open(settings(path.clone()), leak()));
    // A child that was started while the store was open does not hold it.
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    tokio::task::yield_now().await;
    test.shutdown.stop();
    test.shutdown.finish().await;
    drop(test.images);
    let second = second.await.unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let second = second.unwrap();
    let third = Images::open(settings(path), &Shutdown::new()).await;
    assert!(matches!(third, Err(OpenError::InUse(_))), "{third:?}");
    drop(second);
}

fn leak() -> &'static Shutdown {
    Box::leak(Box::new(Shutdown::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_is_left_out() {
    let registry = Registry::start().unwrap();
    let names = ["one", "two", "three"].map(|n| push(&registry, n, &[Tar::new().file("a", n).layer()]));
    let test = Test::new().await;
    let mut ids = Vec::new();
    for name in &names {
        ids.push(test.images.pull(name, &Credentials::default()).await.unwrap().id);
    }
    test.images.prepare("root", &ids[2], &Prepare::default()).unwrap();
    let record = format!("images/sha256-{}", ids[0].hex());
    let configuration = format!("blobs/sha256/{}", ids[1].hex());
    let test = test.reopen_after(|root| {
        std::fs::write(root.join(record), "nonsense").unwrap();
        std::fs::remove_file(root.join(configuration)).unwrap();
        std::fs::write(root.join("roots/root/root"), "").unwrap();
        std::fs::write(root.join("blobs/sha256/odd"), "").unwrap();
        std::fs::create_dir(root.join("layers/odd")).unwrap();
        std::fs::write(root.join("ingest/tmp-1"), "").unwrap();
    });
    let test = test.await;
    assert_eq!(test.images.list().len(), 1);
    assert!(test.images.find(&names[2]).is_some());
    assert_eq!(test.images.snapshots(), ["root"]);
    assert!(test.images.root("root").is_err());
    assert!(test.images.release("root").unwrap());
    for name in &names {
        test.images.pull(name, &Credentials::default()).await.unwrap();
    }
    assert_eq!(test.images.list().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_power_cut_only_what_was_synced_counts() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let names = ["one", "two"].map(|n| push(&registry, n, &[Tar::new().file("a", n).layer()]));
    let mut ids = Vec::new();
    for name in &names {
        ids.push(test.images.pull(name, &Credentials::default()).await.unwrap().id);
    }
    let path = |id: &images::Digest| test.path("images").join(id.to_string().replace(':', "-"));
    let read = |id: &images::Digest| std::fs::read_to_string(path(id)).unwrap();
    // The upkeep takes the marks off.
    while ids.iter().any(|id| read(id).contains("\"boot\"")) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (place, marked) = (path(&ids[0]), read(&ids[0]).replacen('{', "{\"boot\":\"another boot\",", 1));
    let test = test.reopen_after(|root| {
        std::fs::write(place, marked).unwrap();
        std::fs::write(root.join("boot"), "another boot").unwrap();
    });
    let test = test.await;
    assert_eq!(test.images.list().len(), 1);
    assert!(test.images.find(&names[1]).is_some());
    assert_eq!(test.names("layers").len(), 1);
    test.images.pull(&names[0], &Credentials::default()).await.unwrap();
    assert_eq!(test.mounted("c", &names[0]).text("a"), "one");
}
