//! Only the owner can read secret files from the start, and they are written only to their own names.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use testkit::Server;

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.mode() & 0o777)
}

/// Runs `ferrokube snapshot save` with a umask of 0; returns its error if it fails.
fn save(server: &Server, to: &Path) -> Result<Result<(), String>> {
    let out = Command::new("sh")
        .args(["-c", "umask 0; exec \"$0\" snapshot save --kubeconfig \"$1\" \"$2\""])
        .arg(testkit::binary())
        .args([&server.path("kubeconfig"), to])
        .output()?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Ok(if out.status.success() { Ok(()) } else { Err(said) })
}

#[test]
fn a_snapshot_goes_into_a_new_file() -> Result<()> {
    let server = Server::start(&[])?;
    let dir = server.path("open");
    fs::create_dir(&dir)?;
    let file = dir.join("snapshot");
    save(&server, &file)?.map_err(anyhow::Error::msg)?;
    ensure!(mode(&file)? == 0o600, "{:o}", mode(&file)?);
    let first = fs::read(&file)?;
    let victim = dir.join("victim");
    let link = dir.join("link");
    symlink(&victim, &link)?;
    for taken in [&file, &link] {
        let said = save(&server, taken)?.err().context("it was written over")?;
        ensure!(said.contains("exists and is not overwritten; remove it, or choose another name"), "{said}");
    }
    // This would be the name of the unfinished file, if it could be guessed.
    let part = dir.join("other.part");
    symlink(&victim, &part)?;
    save(&server, &dir.join("other"))?.map_err(anyhow::Error::msg)?;
    ensure!(!victim.exists(), "the target of a link was written");
    ensure!(fs::read(&file)? == first, "the first snapshot changed");
    let mut left: Vec<String> = Vec::new();
    for entry in fs::read_dir(&dir)? {
        left.push(entry?.file_name().to_string_lossy().into_owned());
    }
    left.sort();
    ensure!(left == ["link", "other", "other.part", "snapshot"], "{left:?}");
    Ok(())
}

#[test]
fn keys_are_private_and_replace_links() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
    let victim = dir.path().join("victim");
    fs::write(&victim, "mine")?;
    symlink(&victim, dir.path().join("kubeconfig"))?;
    let server = Server::start_in(dir, "kube-apiserver", &[])?;
    ensure!(fs::read_to_string(server.path("victim"))? == "mine", "the target of a link was written");
    ensure!(!fs::symlink_metadata(server.path("kubeconfig"))?.is_symlink(), "the link is there");
    ensure!(mode(&server.path("kubeconfig"))? == 0o600, "the kubeconfig can be read by others");
    let data = server.path("data");
    ensure!(mode(&data)? == 0o700, "{:o}", mode(&data)?);
    let mut pending = vec![data.join("pki"), data.join("store")];
    while let Some(dir) = pending.pop() {
        ensure!(mode(&dir)? == 0o700, "{} {:o}", dir.display(), mode(&dir)?);
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let others = mode(&path)? & 0o077;
                ensure!(others == 0, "{} {:o}", path.display(), mode(&path)?);
            }
        }
    }
    Ok(())
}
