//! The container runtime of a node on a shared machine: a containerd in the node's namespaces, which this process
//! starts, starts again when it ends, and ends last. One that outlived an earlier process is taken over.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::Backoff;
use component::Shutdown;
use kubelet::Runtime;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use crate::say::say;

/// The time within which containerd answers.
const START: Duration = Duration::from_mins(1);
/// The time within which it ends.
const END: Duration = Duration::from_secs(10);
/// The pace of the questions whether it answers yet.
const ASK: Duration = Duration::from_millis(50);
/// The directory with its state, in the node's own `/run`.
const STATE: &str = "/run/containerd";
/// The size above which the log of an earlier containerd is put aside.
const LOG: u64 = 1 << 20;

/// The places of a node's containerd.
#[derive(Debug, Clone)]
pub(super) struct Containerd {
    /// The program.
    program: PathBuf,
    /// The node's directory.
    dir: PathBuf,
}

/// A containerd that runs.
struct Process(AsyncFd<OwnedFd>);

impl Containerd {
    pub(super) fn new(program: &Path, dir: &Path) -> Self {
        Self { program: program.to_owned(), dir: dir.to_owned() }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }
    fn pid_file(&self) -> PathBuf {
        self.dir.join("containerd.pid")
    }
    fn log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// The program that imports images, which comes with containerd.
    pub(super) fn ctr(&self) -> Command {
        let mut command = Command::new(self.program.with_file_name("ctr"));
        command.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io"]);
        command
    }

    /// Starts containerd, or finds it running, and keeps it running until `shutdown`. Returns once it answers.
    pub(super) async fn start(self, shutdown: &Shutdown) -> Result<()> {
        let mut process = self.running().await?;
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
            loop {
                tokio::select! {
                    () = stop.wait() => break,
                    () = process.ended() => {}
                }
                say("containerd has ended; it is started again");
                loop {
                    if stop.run(tokio::time::sleep(backoff.delay())).await.is_none() {
                        return;
                    }
                    match self.running().await {
                        Ok(started) => break process = started,
                        Err(error) => eprintln!("ferrokube: {error:#}"),
                    }
                }
            }
            process.end().await;
            let _ = fs::remove_file(self.pid_file());
        });
        Ok(())
    }

    /// A containerd that answers: the one of an earlier process, or a new one.
    async fn running(&self) -> Result<Process> {
        let process = match self.found() {
            Some(found) => found,
            None => self.spawn()?,
        };
        let endpoint = self.socket().to_string_lossy().into_owned();
        let answers = async {
            while Runtime::connect(&endpoint).await.is_err() {
                tokio::time::sleep(ASK).await;
            }
        };
        tokio::select! {
            answered = timeout(START, answers) => {
                answered.ok().with_context(|| format!("containerd does not answer; see {}", self.log().display()))?;
            }
            () = process.ended() => {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
                bail!("containerd does not start: {last} (see {})", self.log().display());
            }
        }
        Ok(process)
    }

    /// The process of the file, if it is still a containerd of this node.
    fn found(&self) -> Option<Process> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let pid = text.trim().parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)?;
        let process = Process::of(pid).ok()?;
        // Looked at after it was opened: the number may be another process's by now.
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
        let own = of("self");
        (own.is_some() && of(&pid.as_raw_nonzero().to_string()) == own && name.trim() == "containerd")
            .then_some(process)
    }

    fn spawn(&self) -> Result<Process> {
        let log = self.log();
        if fs::metadata(&log).is_ok_and(|meta| meta.len() > LOG) {
            fs::rename(&log, self.dir.join("containerd.log.1"))?;
        }
        let log = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(&self.program)
            .arg("--config")
            .arg(self.dir.join("containerd.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} can't be started", self.program.display()))?;
        fs::write(self.pid_file(), child.id().to_string())?;
        let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process has this id")?;
        let process = Process::of(pid)?;
        // A thread waits for its end, so that nothing of it is left.
        std::thread::Builder::new().name("containerd".into()).spawn(move || {
            let mut child = child;
            child.wait()
        })?;
        Ok(process)
    }
}

impl Process {
    fn of(pid: Pid) -> Result<Self> {
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Self(fd))
    }

    /// Resolves when it has ended.
    async fn ended(&self) {
        // The descriptor is readable once the process has ended.
        let _ = self.0.readable().await;
    }

    /// Ends it; its containers go on.
    async fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            let _ = pidfd_send_signal(self.0.get_ref(), signal);
            if timeout(END, self.ended()).await.is_ok() {
                return;
            }
        }
    }
}

/// Whether this process may make others likelier to survive when memory runs out (CAP_SYS_RESOURCE). In a container it
/// mostly may not, and then no Pod would start unless the runtime knows.
pub(super) fn may_lower_oom_scores() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    has_capability(&status, SYS_RESOURCE)
}

/// The number of CAP_SYS_RESOURCE.
const SYS_RESOURCE: u32 = 24;

/// Whether the text of `/proc/PID/status` names a capability among the effective ones.
fn has_capability(status: &str, number: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    // A system that does not tell is asked for nothing special.
    set.is_none_or(|set| set & (1 << number) != 0)
}

/// The configuration of a node's containerd in `dir`; a file of somebody else's counts more.
pub(super) fn config(dir: &Path, more: Option<&Path>, may_lower_oom_scores: bool) -> String {
    let text = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    let imports = more.map(|path| format!("imports = [{}]\n", text(path))).unwrap_or_default();
    let (root, socket) = (text(&dir.join("containerd")), text(&dir.join("containerd.sock")));
    let (conf, bin) = (text(&dir.join("cni")), text(&dir.join("cni-bin")));
    let restrict = !may_lower_oom_scores;
    format!(
        r#"version = 3
{imports}root = {root}
state = "{STATE}"
[grpc]
  address = {socket}
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {restrict}
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [{bin}, "/opt/cni/bin", "/usr/lib/cni"]
  conf_dir = {conf}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_containerd() {
        let text = config(Path::new("/d/no\"de"), Some(Path::new("/etc/more.toml")), false);
        for line in [
            "  restrict_oom_score_adj = true",
            r#"imports = ["/etc/more.toml"]"#,
            r#"root = "/d/no\"de/containerd""#,
            r#"  conf_dir = "/d/no\"de/cni""#,
        ] {
            assert!(text.lines().any(|l| l == line), "{text}");
        }
        let plain = config(Path::new("/d"), None, true);
        assert!(!plain.contains("imports") && plain.contains("restrict_oom_score_adj = false"));
        for (status, expected) in [
            ("CapEff:\t000001ffffffffff\n", true),
            ("CapEff:\t000001fffeffffff\n", false),
            ("Name: x\n", true),
        ] {
            assert_eq!(has_capability(status, SYS_RESOURCE), expected, "{status}");
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_at_once_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("containerd");
        fs::write(&program, "#!/bin/sh\necho 'no such plugin'\nexit 1\n").unwrap();
        rustix::fs::chmod(&program, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        let shutdown = Shutdown::new();
        let said = Containerd::new(&program, dir.path()).start(&shutdown).await.unwrap_err().to_string();
        assert!(said.starts_with("containerd does not start: no such plugin (see "), "{said}");
        let said = Containerd::new(Path::new("/none"), dir.path()).start(&shutdown).await.unwrap_err();
        assert_eq!(said.to_string(), "/none can't be started");
    }

    #[tokio::test]
    async fn another_process_is_not_taken_for_containerd() {
        let dir = tempfile::tempdir().unwrap();
        let containerd = Containerd::new(Path::new("/none"), dir.path());
        assert!(containerd.found().is_none());
        for text in ["", "x", "0", "-1"] {
            fs::write(containerd.pid_file(), text).unwrap();
            assert!(containerd.found().is_none(), "{text}");
        }
        fs::write(containerd.pid_file(), std::process::id().to_string()).unwrap();
        assert!(containerd.found().is_none(), "it has another name");
    }
}
