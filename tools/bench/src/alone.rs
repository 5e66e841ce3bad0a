//! Measures API servers alone, FerroKube's and upstream's one after the other.

use std::path::Path;

use anyhow::Result;

use super::requests::Scope;
use super::server::Server;
use super::table::{Table, figure};
use super::{Load, Programs, baseline, requests};

/// Measures FerroKube's API server, and upstream's if one was given.
pub(crate) async fn compare(bin: &Path, programs: &Programs, load: Load, scope: Scope) -> Result<String> {
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let server = Server::ferrokube(bin, dir.path()).await?;
    let mut starts = Table::new(&["API server alone, start to /readyz", "s"]);
    starts.row(["ferrokube".to_owned(), figure(server.start)]);
    let ours = requests::measure("ferrokube", server.config()?, &server.pids(), load, scope).await?;
    drop(server);
    let theirs = if let Some((apiserver, etcd)) = programs.reference() {
        let server = Server::upstream(apiserver, etcd, dir.path()).await?;
        starts.row(["kube-apiserver, fresh etcd".to_owned(), figure(server.start)]);
        Some(requests::measure("kube-apiserver", server.config()?, &server.pids(), load, scope).await?)
    } else {
        starts.row(["recorded".to_owned(), figure(baseline::START)]);
        None
    };
    let Load { objects, watchers } = load;
    let head = format!("API server alone: {objects} objects, {watchers} watchers");
    Ok(format!("{starts}\n{head}\n{}", requests::table(&ours, theirs.as_ref())))
}
