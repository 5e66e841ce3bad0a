//! All that a node has on its machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, eventually};

/// The things that are there, by kind: a text that is the same when the same is there.
pub(super) type Holdings = BTreeMap<&'static str, String>;

/// The directories of a node's cgroups in every hierarchy.
fn cgroups(cluster: &Cluster) -> Result<Vec<PathBuf>> {
    let notes = std::fs::read(cluster.data_dir().join("footprint.json"))?;
    let notes: Value = serde_json::from_slice(&notes)?;
    let root = notes["cgroupRoot"].as_str().context("no cgroup")?.trim_start_matches('/').to_owned();
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup")?.flatten().map(|entry| entry.path());
    let all = hierarchies.chain(["/sys/fs/cgroup".into()]).map(|base| base.join(&root));
    Ok(all.filter(|dir| dir.is_dir()).collect())
}

/// The things that a node has on its machine now.
pub(super) fn of(cluster: &Cluster) -> Result<Holdings> {
    let sh = |script: &str| cluster.host().run("sh", &["-c", script]);
    let (own, data) = (cluster.host().dir().display(), cluster.data_dir().display().to_string());
    let list = |dirs: &str| sh(&format!("cd {data} && ls {dirs} 2>/dev/null || true"));
    let cgroups: Vec<String> = cgroups(cluster)?.iter().map(|dir| dir.display().to_string()).collect();
    let program = "-e '^cat$' -e '^sh$' -e '^sort$' -e '^grep$' -e '^sleep$' -e '^kubectl$'";
    Ok(BTreeMap::from([
        ("mounts", sh(&format!("grep -F ' {own}/' /proc/self/mountinfo | cut -d' ' -f5 | sort"))?),
        // Those of Pods: the ones above them stay.
        ("cgroups", sh(&format!("find {} -type d -path '*/pod*' | sort", cgroups.join(" ")))?),
        ("processes", sh(&format!("cat /proc/[0-9]*/comm 2>/dev/null | grep -v {program} | sort"))?),
        (
            "namespaces",
            // Each is a link to one; those of this very command are the machine's.
            sh("for kind in net mnt uts ipc pid user; do \
                echo $kind $(readlink /proc/[0-9]*/ns/$kind | sort -u | wc -l); done")?,
        ),
        ("links", sh("ip -br link | cut -d@ -f1 | cut -d' ' -f1 | sort")?),
        ("addresses", sh(&format!("ls /run/netns {data}/network 2>/dev/null || true"))?),
        ("Pods", list("-A kubelet/pods /var/log/pods /var/log/containers")?),
        (
            "containers",
            list(
                "runtime/records/sandboxes runtime/records/containers runtime/sandboxes runtime/containers runtime/shims runtime/images/roots",
            )?,
        ),
    ]))
}

/// The open files of the cluster's process that are no connections, by what they are: those of a Pod name its uid.
pub(super) fn open_files(cluster: &Cluster) -> Result<BTreeMap<String, usize>> {
    let mut all = BTreeMap::new();
    for file in std::fs::read_dir(format!("/proc/{}/fd", cluster.pid()?))?.flatten() {
        let Ok(name) = std::fs::read_link(file.path()) else { continue };
        // The store's log and the store of images number their files.
        let name = name.to_string_lossy().replace(|c: char| c.is_ascii_digit(), "#");
        let kind = name.split_once(":[").map_or(name.as_str(), |(kind, _)| kind);
        if kind != "socket" {
            *all.entry(kind.to_owned()).or_default() += 1;
        }
    }
    Ok(all)
}

/// The things that a node has once nothing is left of its Pods.
pub(super) fn without_pods(cluster: &Cluster) -> Result<Holdings> {
    eventually("nothing is left of Pods", || {
        let now = of(cluster)?;
        let over = ["cgroups", "Pods", "containers"].iter().all(|kind| {
            // The names of directories that are listed end with a colon.
            now[kind].lines().all(|line| line.is_empty() || line.ends_with(':'))
        });
        Ok(over.then_some(now))
    })
}

/// Waits until a node has what it had before.
pub(super) fn are_again(cluster: &Cluster, before: &Holdings) -> Result<()> {
    eventually("nothing more than before is on the machine", || {
        let now = of(cluster)?;
        for (kind, had) in before {
            let has = &now[kind];
            let more: Vec<&str> = has.lines().filter(|line| !had.lines().any(|old| old == *line)).collect();
            let gone: Vec<&str> = had.lines().filter(|line| !has.lines().any(|new| new == *line)).collect();
            let counts = (had.lines().count(), has.lines().count());
            ensure!(
                has == had,
                "{kind}, {} before and {} now: more {more:?}, gone {gone:?}",
                counts.0,
                counts.1
            );
        }
        Ok(Some(()))
    })
}
