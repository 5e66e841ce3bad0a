//! Volumes' files are given to a Pod's group, which may take long.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::timeout;

use super::ownership::{Ownership, group};
use crate::pods::spec;
use crate::recorder::PodRecorder;
use crate::work::try_blocking;

/// The time after which it is told that files are still being given to a group, and between two such Events; upstream's.
const SLOW: [Duration; 2] = [Duration::from_secs(30), Duration::from_mins(1)];

/// Gives files to groups.
#[derive(Clone)]
pub(crate) struct Giver {
    /// Told when it takes long.
    pub(crate) recorder: PodRecorder,
    /// The directory of all Pods' files.
    pub(crate) pods: PathBuf,
}

impl Giver {
    /// Tells that a Pod was given a device: it is in a directory of all Pods, and in one of the Pod's own. Upstream's texts.
    pub(crate) fn mapped(&self, pod: &Pod, volume: &str, directories: [&Path; 2]) {
        for (name, path) in ["globalMapPath", "volumeMapPath"].into_iter().zip(directories) {
            let path = path.display().to_string();
            let message = format!("MapVolume.MapPodDevice succeeded for volume {volume:?} {name} {path:?}");
            self.recorder.pod(pod, "Normal", "SuccessfulMountVolume", message);
        }
    }

    /// Gives a volume's files to the Pod's group, and tells when that takes long.
    pub(crate) async fn give(&self, pod: &Pod, of: Ownership, target: &Path) -> io::Result<()> {
        let done = Arc::new(AtomicU64::new(0));
        let (root, counted) = (target.to_owned(), done.clone());
        let mut work = std::pin::pin!(try_blocking(move || of.apply(&root, &counted)));
        let shown = target.strip_prefix(&self.pods).unwrap_or(target).display().to_string();
        let [mut wait, again] = SLOW;
        let mut first = true;
        loop {
            if let Ok(result) = timeout(wait, &mut work).await {
                return result;
            }
            let message = if first {
                format!(
                    "Setting volume ownership for {shown} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
                )
            } else {
                let files = done.load(Ordering::Relaxed);
                format!("Setting volume ownership for {shown}, processed {files} files.")
            };
            self.recorder.pod(pod, "Warning", "VolumePermissionChangeInProgress", message);
            (first, wait) = (false, again);
        }
    }
}

/// Returns what a Pod wants of the group of its volumes' files.
pub(crate) fn ownership(pod: &Pod) -> Option<Ownership> {
    let context = spec::spec(pod).security_context.as_ref();
    let policy = context.and_then(|c| c.fs_group_change_policy.as_deref());
    Some(Ownership { group: group(pod)?, on_root_mismatch: policy == Some("OnRootMismatch") })
}
