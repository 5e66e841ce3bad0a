//! The processes of a cluster on this machine, known by their namespaces or cgroups: neither a runtime nor an agent is
//! asked, which may be gone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The pace at which it is looked whether processes are gone, and how often at most.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 600;

/// The marks of a cluster's processes.
pub(crate) struct Marks {
    /// Namespaces, as `/proc/PID/ns` shows them.
    pub(crate) namespaces: Vec<String>,
    /// Paths of cgroups; those below them count.
    pub(crate) cgroups: Vec<String>,
}

impl Marks {
    /// Kills all processes with these marks.
    ///
    /// # Errors
    /// Some do not end.
    pub(crate) async fn end(&self) -> Result<()> {
        let mut looks = 0;
        while self.kill()? > 0 {
            looks += 1;
            if looks > LOOKS {
                bail!("processes of the nodes can't be killed; is a file system that they use out of reach?");
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Whether a process has one of these marks.
    pub(crate) fn any(&self) -> bool {
        let mut all = fs::read_dir("/proc").into_iter().flatten().flatten();
        all.any(|entry| self.has(&entry.path()))
    }

    /// Kills the processes; returns how many there were.
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
        let marks = Marks { namespaces: vec!["net:[1]".into()], cgroups: vec!["/ferrokube-none".into()] };
        assert_eq!(marks.kill().unwrap(), 0);
        let here = fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned();
        let marks = Marks { namespaces: vec![here], cgroups: Vec::new() };
        assert!(marks.has(Path::new("/proc/self")));
    }
}
