//! Directories that cannot be a store: one sentence each, and nothing in them is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use component::Shutdown;
use ferrokube_storage::{OpenError, Store, StoreConfig};

use crate::suite::{create, pods, update};

fn open(dir: &Path) -> Result<Store, OpenError> {
    Store::open(StoreConfig::new(dir), &Shutdown::new())
}

/// The files of a directory, but for the lock.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeMap::new() };
    let of = |e: fs::DirEntry| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap_or_default());
    entries.map(|e| of(e.unwrap())).filter(|(name, _)| name != "lock").collect()
}

/// Checks that opening fails with this sentence, after the words "the store in DIR" where it has `{}`.
fn refused(dir: &Path, sentence: &str) {
    let before = content(dir);
    let error = open(dir).unwrap_err().to_string();
    assert_eq!(error, sentence.replace("{}", &dir.display().to_string()));
    assert_eq!(content(dir), before, "{sentence}");
}

#[test]
fn what_is_not_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let with = |name: &str, files: &[(&str, &str)]| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        for (name, text) in files {
            fs::write(path.join(name), text).unwrap();
        }
        path
    };
    let foreign = "{} is not empty and not a FerroKube store: choose another data directory";
    refused(&with("other", &[("notes.txt", "x")]), foreign);
    refused(&with("odd", &[("format", "postgres 15\n")]), foreign);
    refused(&with("empty format", &[("format", "")]), foreign);
    refused(&with("no number", &[("format", "ferrokube-store x\n")]), foreign);
    fs::write(dir.path().join("binary"), "").unwrap();
    let binary = with("bytes", &[]);
    fs::write(binary.join("format"), [0xff, 0xfe, 0]).unwrap();
    refused(&binary, foreign);
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    refused(&file, foreign);
    refused(
        &with("newer", &[("format", "ferrokube-store 9\n")]),
        "the store in {} has format 9, this version reads up to 2: use a newer version",
    );
    refused(
        &with("older", &[("format", "ferrokube-store 0\n")]),
        "the store in {} has format 0, this version reads 1 to 2: open it with an older version first, which rewrites it",
    );
    assert!(open(&with("empty", &[])).is_ok());
    assert!(open(&dir.path().join("a/new/one")).is_ok());
    // An interrupted first start leaves these files.
    assert!(open(&with("begun", &[("lock", ""), ("format.tmp", "ferro")])).is_ok());
}

#[test]
fn what_another_process_has_open() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    refused(
        dir.path(),
        "the store in {} is in use by another process: stop that one, or choose another data directory",
    );
    drop(first);
}

/// A store whose log has two segments, the second of them not empty.
async fn two_segments(dir: &Path) {
    for round in 0..2 {
        let s = open(dir).unwrap();
        let r = pods(&s);
        for n in 0..5 {
            let object = create(&s, r, "ns", &format!("o{round}-{n}"), "").await;
            update(&s, r, &object, "", "new").await.unwrap();
        }
        s.close().await;
    }
}

#[tokio::test]
async fn what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let log = |n: u64| format!("log-{n:016}.2");
    let fresh = async |name: &str| {
        let path = dir.path().join(name);
        two_segments(&path).await;
        path
    };
    let damaged =
        |what: &str| format!("the store in {{}} is damaged: {what}: restore a backup, and check the disk");

    let missing = fresh("missing").await;
    fs::remove_file(missing.join(log(0))).unwrap();
    refused(&missing, &damaged(&format!("{} is missing", log(0))));

    let cut = fresh("cut").await;
    let bytes = fs::read(cut.join(log(0))).unwrap();
    fs::write(cut.join(log(0)), &bytes[..bytes.len() / 2]).unwrap();
    let error = open(&cut).unwrap_err().to_string();
    assert!(error.contains(&format!("{} is damaged at byte", log(0))), "{error}");
    assert!(error.ends_with(": a checksum is wrong: restore a backup, and check the disk"), "{error}");

    let flipped = fresh("flipped").await;
    let mut bytes = fs::read(flipped.join(log(1))).unwrap();
    bytes[120] ^= 1;
    fs::write(flipped.join(log(1)), &bytes).unwrap();
    refused(&flipped, &damaged(&format!("{} is damaged at byte 88: a checksum is wrong", log(1))));

    let snapshot = fresh("snapshot").await;
    fs::write(snapshot.join("snapshot-00000000000000000007.2"), "short").unwrap();
    refused(
        &snapshot,
        &damaged("snapshot-00000000000000000007.2 is damaged at byte 0: its header is broken"),
    );
}
