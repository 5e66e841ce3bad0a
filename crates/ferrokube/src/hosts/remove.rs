//! Removes the nodes that `up --nodes` made, whatever of them still runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::namespaces::Kept;
use super::network;
use super::plan::directory;
use crate::data_dir::DataDir;

/// The pace at which it is looked whether processes are gone, and how often at most.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 600;

/// Removes the cluster's nodes with their processes, namespaces, links and cgroups. Their files are in the data directory.
/// Neither a runtime nor an agent is asked: whatever runs in the namespaces or cgroups is killed, and mounts go with the
/// namespaces.
pub(crate) async fn remove(dir: &DataDir) -> Result<()> {
    let nodes = directory(dir.path());
    if !nodes.exists() {
        return Ok(());
    }
    let roots: Vec<String> =
        fs::read_dir(&nodes)?.flatten().map(|e| cgroup_root(&e.path().join("data"))).collect();
    let kept = Kept::of(&dir.id());
    let own = Own { namespaces: kept.identities(), cgroups: roots.clone() };
    let mut looks = 0;
    while own.kill()? > 0 {
        looks += 1;
        if looks > LOOKS {
            bail!("processes of the nodes can't be killed; is a file system that they use out of reach?");
        }
        tokio::time::sleep(LOOK).await;
    }
    kept.remove().context("the nodes' namespaces can't be removed")?;
    network::remove(&dir.id()).context("the nodes' network can't be removed")?;
    // The nodes' own directories were mounted there. It goes if it is empty; what is mounted there in the namespaces of
    // another cluster's nodes would go with it.
    let root = dir.footprint()?.kubelet_root;
    if !is_mounted_anywhere(&root)? {
        let _ = fs::remove_dir(root);
    }
    for root in roots {
        kubelet::teardown::remove_root_cgroup(&root).await;
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
    crate::node::cgroup_root(&crate::data_dir::id_of(data))
}

/// The marks of the nodes' processes.
struct Own {
    namespaces: Vec<String>,
    cgroups: Vec<String>,
}

impl Own {
    /// Kills the nodes' processes; returns how many there were.
    fn kill(&self) -> Result<usize> {
        let mut found = 0;
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw)
            else {
                continue;
            };
            // Opened first: the number may be another process's a moment later.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if self.has(&entry.path()) {
                found += 1;
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        }
        Ok(found)
    }

    /// Whether a process is a node's; one that has ended and waits for its parent is nobody's.
    fn has(&self, proc: &Path) -> bool {
        let within = ["mnt", "net", "uts"].iter().any(|kind| {
            let namespace = fs::read_link(proc.join("ns").join(kind));
            namespace.is_ok_and(|at| self.namespaces.iter().any(|own| at.as_os_str() == own.as_str()))
        });
        let below = || {
            let text = fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
            let alive = fs::read_link(proc.join("exe")).is_ok();
            alive && self.cgroups.iter().any(|own| is_below(&text, own))
        };
        within || below()
    }
}

/// Whether `/proc/PID/cgroup` tells of a cgroup below this one.
fn is_below(text: &str, root: &str) -> bool {
    text.lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .any(|path| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_a_process() {
        let check =
            |text: &str, expected: bool| assert_eq!(is_below(text, "/ferrokube-1"), expected, "{text}");
        check("12:cpu:/\n0::/ferrokube-1/kubepods/pod1\n", true);
        check("3:memory:/ferrokube-1\n", true);
        check("3:memory:/ferrokube-12/kubepods\n", false);
        check("3:memory:/other/ferrokube-1\n", false);
        check("", false);
    }

    #[test]
    fn only_what_bears_a_mark_is_killed() {
        let own = Own { namespaces: vec!["net:[1]".into()], cgroups: vec!["/ferrokube-none".into()] };
        assert_eq!(own.kill().unwrap(), 0);
        let here = fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned();
        let own = Own { namespaces: vec![here], cgroups: Vec::new() };
        assert!(own.has(Path::new("/proc/self")));
    }
}
