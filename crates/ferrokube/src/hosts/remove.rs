//! Removes the nodes that `up --nodes` made, whatever of them still runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cri::runtime::CgroupDriver;

use super::namespaces::Kept;
use super::network;
use super::plan::directory;
use crate::footprint::{self, Footprint, id_of};
use crate::marks::Marks;

/// Removes the cluster's nodes with their processes, namespaces, links and cgroups. Their files are in the data directory.
/// Neither a runtime nor an agent is asked: whatever runs in the namespaces or cgroups is killed, and mounts go with the
/// namespaces.
pub(crate) async fn remove(data_dir: &Path, id: &str, made: &Footprint) -> Result<()> {
    let (nodes, kept) = (directory(data_dir), Kept::of(id));
    let mut names: BTreeSet<_> = kept.names().collect();
    names.extend(fs::read_dir(&nodes).into_iter().flatten().flatten().map(|entry| entry.file_name()));
    if names.is_empty() && !nodes.exists() {
        return Ok(());
    }
    let roots: Vec<String> = names.iter().map(|name| cgroup_root(&nodes.join(name).join("data"))).collect();
    Marks { namespaces: kept.identities(), cgroups: roots.clone() }.end().await?;
    kept.remove().context("the nodes' namespaces can't be removed")?;
    network::remove(id).context("the nodes' network can't be removed")?;
    // The nodes' own directories were mounted there. It goes if it is empty; what is mounted there in the namespaces of
    // another cluster's nodes, or will be in a moment, would go with it.
    let root = &made.kubelet_root;
    if !is_mounted_anywhere(root)? && !footprint::is_root_of_another(id, root) {
        let _ = fs::remove_dir(root);
    }
    for root in roots {
        kubelet::teardown::remove_root_cgroup(&root, CgroupDriver::Cgroupfs).await;
    }
    Ok(())
}

/// Whether some process sees a mount at a path.
fn is_mounted_anywhere(path: &Path) -> Result<bool> {
    let path = path.to_string_lossy();
    let sees = |mounts: String| mounts.lines().any(|line| line.split(' ').nth(4) == Some(&*path));
    let mut all = fs::read_dir("/proc")?.flatten().map(|entry| entry.path().join("mountinfo"));
    Ok(all.any(|file| fs::read_to_string(file).is_ok_and(sees)))
}

/// The cgroup of a node whose own data are in this directory.
fn cgroup_root(data: &Path) -> String {
    crate::node::cgroup_root(&id_of(data))
}
