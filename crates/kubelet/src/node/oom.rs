//! The processes that the kernel ends since the whole machine has no memory left, as its log tells them (upstream:
//! `pkg/kubelet/oom`).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use client::Recorder;
use client::events::EventType;
use rustix::fs::OFlags;
use tokio::io::unix::AsyncFd;

use crate::recorder;

/// The kernel's log.
pub(super) const LOG: &str = "/dev/kmsg";
/// No record of the log is longer; the kernel's bound.
const LONGEST: usize = 8192;

/// A process that the kernel ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kill {
    /// The cgroup that had no memory left; none if it was the machine.
    cgroup: Option<String>,
    pid: u32,
    process: String,
}

impl Kill {
    /// The message of an Event about it; none if a cgroup alone was short of memory.
    fn message(&self) -> Option<String> {
        if self.cgroup.as_deref().is_some_and(|cgroup| cgroup != "/") {
            return None;
        }
        Some(if self.process.is_empty() || self.pid == 0 {
            "System OOM encountered".to_owned()
        } else {
            format!("System OOM encountered, victim process: {}, pid: {}", self.process, self.pid)
        })
    }
}

/// Puts together what the kernel tells of a kill in several records.
#[derive(Debug, Default)]
struct Kills(Option<Kill>);

impl Kills {
    /// Takes the next record of the log; answers with a kill that is told in full.
    fn take(&mut self, record: &str) -> Option<Kill> {
        // The record begins with its level, number and time; its other lines are of other use.
        let (_, message) = record.split_once(';')?;
        let message = message.lines().next()?;
        let Some(kill) = &mut self.0 else {
            if message.contains("invoked oom-killer:") {
                self.0 = Some(Kill::default());
            }
            return None;
        };
        if let Some(full) = of_cgroup(message) {
            self.0 = None;
            return Some(full);
        }
        if let Some(limited) = of_old_kernel(message) {
            kill.cgroup = Some(limited.to_owned());
        }
        let (pid, process) = killed(message)?;
        self.0.take().map(|kill| Kill { pid, process: process.to_owned(), ..kill })
    }
}

/// The kill that kernels since 5.0 tell in one record, if a cgroup was short of memory.
fn of_cgroup(message: &str) -> Option<Kill> {
    let (_, rest) = message.split_once("oom-kill:constraint=")?;
    let (_, rest) = rest.split_once(",oom_memcg=")?;
    let (cgroup, rest) = rest.split_once(",task_memcg=")?;
    let (_, rest) = rest.split_once(",task=")?;
    // A process may have this in its name, too.
    let (process, rest) = rest.rsplit_once(",pid=")?;
    let (pid, _) = rest.split_once(",uid=")?;
    Some(Kill { cgroup: Some(cgroup.to_owned()), pid: pid.parse().ok()?, process: process.to_owned() })
}

/// The cgroup that older kernels tell to be short of memory.
fn of_old_kernel(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Task in ")?;
    Some(rest.split_once(" killed as a result of limit of ")?.1)
}

/// The process that was ended.
fn killed(message: &str) -> Option<(u32, &str)> {
    let (_, rest) = message.split_once("Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    Some((pid.parse().ok()?, rest.rsplit_once(')')?.0))
}

/// Tells of the machine's kills in Events about the Node of this name, for as long as `log` can be read.
// DIFFERENCE: upstream tells again of what the log has from before its start, and it does not start where the log cannot
// be read.
pub(super) async fn watch(log: &Path, recorder: &Recorder, node: &str) {
    let tell = |message: String| {
        recorder.event_about(recorder::node(node), EventType::Warning, "SystemOOM", message);
    };
    let error = match open(log) {
        Ok(log) => follow(log, tell).await,
        Err(error) => error,
    };
    tracing::warn!(%error, log = %log.display(), "processes that the kernel ends for lack of memory are not told of");
}

/// Opens a log at its end.
fn open(log: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut log = File::options().read(true).custom_flags(flags).open(log)?;
    log.seek(SeekFrom::End(0))?;
    #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
    AsyncFd::new(OwnedFd::from(log))
}

/// Tells of the machine's kills until the log cannot be read any longer.
async fn follow(log: AsyncFd<OwnedFd>, tell: impl Fn(String)) -> io::Error {
    let mut kills = Kills::default();
    let mut record = vec![0; LONGEST];
    loop {
        let mut ready = match log.readable().await {
            Ok(ready) => ready,
            Err(error) => return error,
        };
        match ready.try_io(|log| Ok(rustix::io::read(log.get_ref(), &mut record)?)) {
            Ok(Ok(0)) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(Ok(length)) => {
                let text = String::from_utf8_lossy(&record[..length]);
                if let Some(message) = kills.take(&text).and_then(|kill| kill.message()) {
                    tell(message);
                }
            }
            // Records went before they were read.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => kills = Kills::default(),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return error,
            Err(_would_block) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn kill(cgroup: &str) -> Kill {
        Kill { cgroup: Some(cgroup.into()), pid: 1000, process: "fakeProcess".into() }
    }

    /// Upstream's cases (`TestWatcherRecordsEventsForOomEvents` and both that follow it).
    #[test]
    fn only_the_machines_kills_are_told_of() {
        let told = "System OOM encountered, victim process: fakeProcess, pid: 1000";
        assert_eq!(kill("/").message().as_deref(), Some(told));
        assert_eq!(kill("/kubepods").message(), None);
        assert_eq!(Kill::default().message().as_deref(), Some("System OOM encountered"));
    }

    fn kills(records: &[&str]) -> Vec<Kill> {
        let mut all = Kills::default();
        records.iter().filter_map(|record| all.take(&format!("6,7,8,-;{record}\n SUBSYSTEM=x\n"))).collect()
    }

    #[test]
    fn the_log_tells_kills_in_several_records() {
        let start = "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985";
        let of = |pid, process: &str, cgroup: Option<&str>| Kill {
            cgroup: cgroup.map(str::to_owned),
            pid,
            process: process.into(),
        };
        let cgroup = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/a,task_memcg=/kubepods/a/b,task=str,pid=ess,pid=42,uid=0";
        let global = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user,task=hog,pid=7,uid=0";
        let end = "Out of memory: Killed process 7 (hog (big)) total-vm:9kB, anon-rss:8kB";
        assert_eq!(
            kills(&[start, "Tasks state (memory values in pages):", cgroup, end]),
            [of(42, "str,pid=ess", Some("/kubepods/a"))]
        );
        assert_eq!(kills(&[start, global, end, end]), [of(7, "hog (big)", None)]);
        let old = "Task in /docker/a killed as a result of limit of /docker";
        assert_eq!(kills(&[start, old, end]), [of(7, "hog (big)", Some("/docker"))]);
        assert!(kills(&[cgroup, end, "some other thing"]).is_empty(), "without a start");
    }

    #[tokio::test]
    async fn the_log_is_read_record_by_record() {
        let (records, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
        let (log, kernel) = socketpair(AddressFamily::UNIX, records, flags, None).unwrap();
        #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
        let log = AsyncFd::new(log).unwrap();
        for record in [
            "4,1,1,-;hog invoked oom-killer: x",
            "3,2,2,-;Out of memory: Killed process 7 (hog) x",
            "4,3,3,-;it invoked oom-killer: x",
            "4,4,4,-;Memory cgroup out of memory: Killed process 8 (it) x",
        ] {
            rustix::io::write(&kernel, record.as_bytes()).unwrap();
        }
        drop(kernel);
        let told = Mutex::new(Vec::new());
        let follow = follow(log, |message| told.lock().push(message));
        assert_eq!(follow.await.kind(), io::ErrorKind::UnexpectedEof);
        let of = |pid, process| format!("System OOM encountered, victim process: {process}, pid: {pid}");
        assert_eq!(*told.lock(), [of(7, "hog"), of(8, "it")]);
    }

    #[test]
    fn a_log_is_opened_at_its_end() {
        assert!(open(Path::new("/nowhere/kmsg")).is_err());
    }
}
