//! Rotation of containers' logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::runtime as pb;

use crate::Kubelet;

/// How often sizes are looked at; upstream's `containerLogMonitorInterval`.
const PERIOD: Duration = Duration::from_secs(10);

/// Rotates logs that are too long, until the kubelet stops.
pub(crate) async fn rotate(kubelet: Arc<Kubelet>) {
    let work = async {
        loop {
            tokio::time::sleep(PERIOD).await;
            for worker in kubelet.workers() {
                let observed = worker.state.lock().observed.clone();
                for c in observed.running().filter(|c| !c.log_path.is_empty()) {
                    let path = PathBuf::from(&c.log_path);
                    let long = tokio::fs::metadata(&path)
                        .await
                        .is_ok_and(|m| m.len() > kubelet.config.container_log_max_size);
                    if long && let Err(error) = rotate_one(&kubelet, &c.id, &path).await {
                        tracing::warn!(path = c.log_path, error, "log not rotated");
                    }
                }
            }
        }
    };
    let _ = kubelet.shutdown.run(work).await;
}

async fn rotate_one(kubelet: &Kubelet, id: &str, path: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let keep = kubelet.config.container_log_max_files.saturating_sub(2) as usize;
    for old in surplus(rotated(path).await.map_err(text)?, keep) {
        tokio::fs::remove_file(old).await.map_err(text)?;
    }
    let stamp = kubelet.clock.now().strftime("%Y%m%d-%H%M%S").to_string();
    let mut aside = path.as_os_str().to_owned();
    aside.push(".");
    aside.push(&stamp);
    tokio::fs::rename(path, &aside).await.map_err(text)?;
    let request = pb::ReopenContainerLogRequest { container_id: id.to_owned() };
    if let Err(error) = kubelet.runtime.service().reopen_container_log(request).await {
        // The runtime writes on into the old file: it must keep its name.
        tokio::fs::rename(&aside, path).await.map_err(text)?;
        return Err(error.message().to_owned());
    }
    Ok(())
}

/// The logs that were rotated out of `path`, the oldest first.
async fn rotated(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{name}.");
    let mut found = Vec::new();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        if entry.file_name().to_str().is_some_and(|n| n.starts_with(&prefix)) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// All but the newest `keep`.
fn surplus(mut rotated: Vec<PathBuf>, keep: usize) -> Vec<PathBuf> {
    rotated.truncate(rotated.len().saturating_sub(keep));
    rotated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go() {
        let all: Vec<PathBuf> = ["0.log.1", "0.log.2", "0.log.3"].map(PathBuf::from).into();
        assert_eq!(surplus(all.clone(), 2), [PathBuf::from("0.log.1")]);
        assert!(surplus(all, 5).is_empty());
    }
}
