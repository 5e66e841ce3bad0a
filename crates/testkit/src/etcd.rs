//! Starts real etcd, one member or several.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{eventually, free_port, tool};

/// An etcd for one test, on loopback. Dropping it, or the death of the test, ends it.
pub struct Etcd {
    program: PathBuf,
    members: Vec<Member>,
    dir: TempDir,
    flags: Vec<String>,
    scheme: &'static str,
}

struct Member {
    name: String,
    client: u16,
    peer: u16,
    running: Option<Running>,
}

struct Running {
    pid: Pid,
    /// The thread that ends with the process.
    keeper: JoinHandle<()>,
}

impl Member {
    fn runs(&self) -> bool {
        self.running.as_ref().is_some_and(|r| !r.keeper.is_finished())
    }
}

impl Etcd {
    /// Starts the newer of the tested versions (3.5), with so many members.
    pub fn start(members: usize) -> Result<Self> {
        // The tests do not need durability, so etcd does not wait for the disk.
        Self::new("etcd", members, &["--unsafe-no-fsync"], "http")
    }

    /// Starts the version of Debian 12 (3.4).
    pub fn start_old(members: usize) -> Result<Self> {
        Self::new("etcd-3.4", members, &[], "http")
    }

    /// Starts one member of the newer version with more flags; `https` if they are about TLS.
    pub fn start_with(flags: &[&str], scheme: &'static str) -> Result<Self> {
        Self::new("etcd", 1, flags, scheme)
    }

    fn new(program: &str, members: usize, flags: &[&str], scheme: &'static str) -> Result<Self> {
        let program = tool(program);
        ensure!(program.exists(), "{} is missing: run `cargo xtask setup`", program.display());
        let member = |(n, (client, peer))| Member { name: format!("m{n}"), client, peer, running: None };
        let pairs = (0..members).map(|_| Ok((free_port()?, free_port()?))).collect::<Result<Vec<_>>>()?;
        let mut etcd = Self {
            program,
            members: pairs.into_iter().enumerate().map(member).collect(),
            dir: tempfile::Builder::new().prefix("ferrokube-etcd-").tempdir()?,
            flags: flags.iter().map(|f| (*f).to_owned()).collect(),
            scheme,
        };
        for at in 0..members {
            etcd.restart(at)?;
        }
        if scheme == "http" {
            eventually("etcd", || {
                ensure!(etcd.members.iter().all(Member::runs), "etcd ended: {}", etcd.last_words());
                Ok(etcd.etcdctl(&["endpoint", "health"]).ok().map(drop))
            })?;
        }
        Ok(etcd)
    }

    /// The members' client URLs.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|m| format!("{}://127.0.0.1:{}", self.scheme, m.client)).collect()
    }

    /// Starts a member that was killed, with the data it had.
    pub fn restart(&mut self, at: usize) -> Result<()> {
        let cluster: Vec<_> =
            self.members.iter().map(|m| format!("{}=http://127.0.0.1:{}", m.name, m.peer)).collect();
        let dir = self.dir.path().to_owned();
        let member = self.members.get_mut(at).context("no such member")?;
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join(format!("{}.log", member.name)))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(["--name", &member.name, "--logger=zap", "--log-level=error"])
            .args(["--heartbeat-interval=50", "--election-timeout=500"])
            .arg(format!("--data-dir={}", dir.join(&member.name).display()))
            .args([&format!("--listen-client-urls={client}"), &format!("--advertise-client-urls={client}")])
            .args([&format!("--listen-peer-urls={peer}"), &format!("--initial-advertise-peer-urls={peer}")])
            .arg(format!("--initial-cluster={}", cluster.join(",")))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let (tell, started) = mpsc::channel();
        // The kernel takes this thread for the parent, so it lives until the process ends.
        let keeper = std::thread::spawn(move || match command.spawn() {
            Ok(mut child) => {
                // If the caller is gone, the process ends with the test.
                let _ = tell.send(Ok(child.id()));
                let _ = child.wait();
            }
            Err(e) => {
                let _ = tell.send(Err(e));
            }
        });
        let pid = started.recv()?.context("starting etcd")?;
        let pid = Pid::from_raw(pid.cast_signed()).context("a process without a number")?;
        member.running = Some(Running { pid, keeper });
        Ok(())
    }

    /// Ends a member as a crash of its machine would.
    pub fn kill(&mut self, at: usize) -> Result<()> {
        let running = self.members.get_mut(at).and_then(|m| m.running.take()).context("it does not run")?;
        kill_process(running.pid, Signal::KILL)?;
        running.keeper.join().map_err(|_| anyhow!("waiting for it failed"))
    }

    /// The last line in the log of a member that ended.
    fn last_words(&self) -> String {
        let ended = self.members.iter().find(|m| !m.runs());
        let log = ended.map(|m| std::fs::read_to_string(self.dir.path().join(format!("{}.log", m.name))));
        log.and_then(Result::ok).unwrap_or_default().lines().last().unwrap_or_default().to_owned()
    }

    /// Copies the data of a member that does not run.
    pub fn save(&self, at: usize, to: &Path) -> Result<()> {
        copy(&self.data(at)?, to)
    }

    /// Puts a copy in place of the data of a member that does not run.
    pub fn load(&self, at: usize, from: &Path) -> Result<()> {
        let data = self.data(at)?;
        std::fs::remove_dir_all(&data)?;
        copy(from, &data)
    }

    fn data(&self, at: usize) -> Result<PathBuf> {
        Ok(self.dir.path().join(&self.members.get(at).context("no such member")?.name))
    }

    /// Freezes a member, or lets it go on.
    pub fn freeze(&self, at: usize, still: bool) -> Result<()> {
        let running = self.members.get(at).and_then(|m| m.running.as_ref()).context("it does not run")?;
        Ok(kill_process(running.pid, if still { Signal::STOP } else { Signal::CONT })?)
    }

    /// The number of the member that leads.
    pub fn leader(&self) -> Result<usize> {
        eventually("a leader", || {
            // Members that do not run make the command fail, but it prints the others.
            let out = self.ctl(&["endpoint", "status"]).output()?;
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let urls = self.urls();
            Ok(text.lines().find_map(|line| {
                let fields: Vec<_> = line.split(", ").collect();
                let leads = fields.get(4) == Some(&"true");
                urls.iter().position(|u| leads && fields.first() == Some(&u.as_str()))
            }))
        })
    }

    /// Runs etcdctl against all members; returns its output.
    pub fn etcdctl(&self, args: &[&str]) -> Result<String> {
        let out = self.ctl(args).output().context("running etcdctl")?;
        ensure!(out.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8(out.stdout)?)
    }

    fn ctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(tool("etcdctl"));
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.urls().join(","), "--command-timeout=5s"])
            .args(args);
        command
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let out = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).output()?;
    ensure!(out.status.success(), "copying {}: {}", from.display(), String::from_utf8_lossy(&out.stderr));
    Ok(())
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for running in self.members.iter().filter_map(|m| m.running.as_ref()) {
            // The process may have ended already.
            let _ = kill_process(running.pid, Signal::KILL);
        }
    }
}
