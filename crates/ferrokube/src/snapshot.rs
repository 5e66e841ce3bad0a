//! Saves the store of a running cluster, restores it, and prints a summary of such a file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use apiserver::snapshot::PATH;
use client::Remote;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use storage::BackupInfo;
use tokio::fs;
use tokio::io::AsyncWriteExt;

use crate::cli::{Snapshot, SnapshotRestore, SnapshotSave};
use crate::data_dir::DataDir;
use crate::private;

/// Runs `ferrokube snapshot`.
pub(crate) async fn run(command: &Snapshot) -> Result<()> {
    match command {
        Snapshot::Save(flags) => save(flags).await,
        Snapshot::Restore(flags) => {
            let flags = flags.clone();
            tokio::task::spawn_blocking(move || restore(&flags)).await?
        }
        Snapshot::Status(flags) => {
            print!("{}", status(&inspect(&flags.file).await?));
            Ok(())
        }
    }
}

async fn inspect(file: &Path) -> Result<BackupInfo> {
    let file = file.to_owned();
    Ok(tokio::task::spawn_blocking(move || storage::inspect(&file)).await??)
}

/// The content of a snapshot, as a table.
fn status(info: &BackupInfo) -> String {
    let BackupInfo { format, taken, revision, objects, bytes } = info;
    let taken = taken.and_then(|ms| jiff::Timestamp::from_millisecond(ms.try_into().ok()?).ok());
    let taken = taken.map_or("unknown".to_owned(), |at| format!("{at:.0}"));
    format!(
        "taken:     {taken}\nrevision:  {revision}\nobjects:   {objects}\nbytes:     {bytes}\nformat:    {format}\nchecksums: ok\n"
    )
}

async fn save(flags: &SnapshotSave) -> Result<()> {
    private::ensure_free(&flags.file)?;
    let kubeconfig = flags.kubeconfig.clone().unwrap_or_else(|| flags.data_dir.join("admin.kubeconfig"));
    if !kubeconfig.exists() {
        bail!(
            "{} does not exist; name the cluster's kubeconfig with --kubeconfig, or its --data-dir",
            kubeconfig.display()
        );
    }
    let remote = Remote::new(client::Config::from_kubeconfig(&kubeconfig, None)?)?;
    let answer = remote
        .send(Method::GET, PATH, None, bytes::Bytes::new())
        .await
        .context("cannot reach the cluster; a snapshot is taken while it runs")?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => bail!("the server is not FerroKube, or an older one: it has no {PATH}"),
        code => bail!("the server refused ({code}): {}", refusal(answer.into_body()).await),
    }
    // The name is random, so that nobody who may write to the directory can guess it.
    let part = beside(&flags.file, &format!(".{}.part", uuid::Uuid::new_v4().simple()));
    let saved = async {
        receive(answer.into_body(), &part).await?;
        let info = inspect(&part).await.context("the server did not send a whole snapshot")?;
        private::publish(&part, &flags.file)?;
        sync_directory(&flags.file).await?;
        anyhow::Ok(info)
    }
    .await;
    match saved {
        Ok(info) => {
            let BackupInfo { revision, objects, bytes, .. } = info;
            let file = flags.file.display();
            println!("saved {objects} objects as of revision {revision} to {file} ({bytes} bytes)");
            Ok(())
        }
        Err(e) => {
            // The rest of the file is of no use; the failure tells more than an error of its removal.
            let _ = fs::remove_file(&part).await;
            Err(e)
        }
    }
}

/// The message of an error's answer.
async fn refusal(body: Incoming) -> String {
    let Ok(body) = Limited::new(body, 64 << 10).collect().await else { return String::new() };
    let body = body.to_bytes();
    serde_json::from_slice::<api::Status>(&body)
        .map_or_else(|_| String::from_utf8_lossy(&body).into_owned(), |s| s.message)
}

/// Writes the body to a file, durably.
async fn receive(mut body: Incoming, part: &Path) -> Result<()> {
    let failed = || format!("cannot write {}", part.display());
    let mut file = fs::File::from_std(private::create(part).with_context(failed)?);
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the server ended before the snapshot did")?;
        if let Some(data) = frame.data_ref() {
            file.write_all(data).await.with_context(failed)?;
        }
    }
    file.flush().await.with_context(failed)?;
    file.sync_all().await.with_context(failed)
}

async fn sync_directory(file: &Path) -> Result<()> {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(fs::File::open(parent).await?.sync_all().await?)
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn restore(flags: &SnapshotRestore) -> Result<()> {
    // The file is checked before a directory is made for it.
    storage::inspect(&flags.file)?;
    let dir = DataDir::open(&flags.data_dir)?;
    let info = storage::restore(&flags.file, &dir.store())?;
    println!(
        "restored {} objects as of revision {} to {}",
        info.objects,
        info.revision,
        dir.path().display()
    );
    let keys = dir.path().join("pki");
    if !keys.exists() {
        let keys = keys.display();
        println!(
            "no keys in {keys}: copy the old cluster's there, or new ones are made and old tokens and kubeconfigs end"
        );
    }
    Ok(())
}
