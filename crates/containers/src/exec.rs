//! Further processes of containers.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use oci_spec::runtime::Spec;
use tokio::sync::watch;

use crate::cgroups::Group;
use crate::core::{Core, Ended};
use crate::error::{Doing, Error, Result};
use crate::make;
use crate::oci::{self, Outer};
use crate::spec::{ExecSpec, Exit};
use crate::stream::Stream;
use crate::under_way::Made;

/// A further process. It does not end when this is dropped.
#[derive(Debug)]
pub struct Exec {
    /// Standard input, or the terminal.
    pub stdin: Option<Stream>,
    /// Standard output, or the terminal.
    pub stdout: Option<Stream>,
    /// Standard error; a terminal has none.
    pub stderr: Option<Stream>,
    control: ExecControl,
}

/// A hold on a further process while others have its streams. Clones are the same process.
#[derive(Debug, Clone)]
pub struct ExecControl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    slot: u32,
    pid: i32,
    /// None if it ended before it was known.
    pidfd: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    ended: watch::Receiver<Option<Ended>>,
}

impl Exec {
    pub(crate) async fn start(
        core: &Arc<Core>,
        container: &Spec,
        spec: ExecSpec,
        of: OwnedFd,
        group: Option<&Group>,
    ) -> Result<Self> {
        let slot = core.slot();
        let ended = core.follow(slot, None);
        let wanted = (spec.terminal, [spec.stdin, spec.stdout, spec.stderr]);
        let made = make::exec(core, slot, container, &spec.process, wanted, (of, group)).await;
        Self::made(core, slot, ended, made, spec.stdin).await
    }

    /// Starts a process of a container that another runtime made.
    pub(crate) async fn start_by(core: &Arc<Core>, outer: &Outer, spec: ExecSpec) -> Result<Self> {
        let slot = core.slot();
        let ended = core.follow(slot, None);
        let wanted = (spec.terminal, [spec.stdin, spec.stdout, spec.stderr]);
        let made = oci::exec(core, outer, slot, &spec.process, wanted).await;
        Self::made(core, slot, ended, made, spec.stdin).await
    }

    async fn made(
        core: &Arc<Core>,
        slot: u32,
        ended: watch::Receiver<Option<Ended>>,
        made: Result<Made>,
        input: bool,
    ) -> Result<Self> {
        let made = match made {
            Ok(made) => made,
            Err(e) => {
                core.discard(slot).await;
                return Err(e);
            }
        };
        let stream = |d: Option<OwnedFd>| d.map(Stream::new).transpose().doing(|| "read a pipe");
        let [stdin, stdout, stderr] = made.streams;
        let (mut stdin, mut stdout, stderr) = (stream(stdin)?, stream(stdout)?, stream(stderr)?);
        let again = |d: &OwnedFd| d.try_clone().doing(|| "duplicate a descriptor");
        let terminal = made.terminal.as_ref().map(again).transpose()?;
        if let Some(master) = made.terminal {
            let master = Stream::new(master).doing(|| "read a terminal")?;
            if input {
                stdin = Some(master.again().doing(|| "duplicate a descriptor")?);
            }
            stdout = Some(master);
        }
        let inner = Inner { core: Arc::clone(core), slot, pid: made.pid, pidfd: made.pidfd, terminal, ended };
        Ok(Self { stdin, stdout, stderr, control: ExecControl(Arc::new(inner)) })
    }

    /// A hold on the process while others have its streams.
    pub fn control(&self) -> ExecControl {
        self.control.clone()
    }
    /// Waits for its end. Its streams may hold more than was read.
    pub async fn wait(&self) -> Exit {
        self.control.wait().await
    }
}

impl ExecControl {
    /// The number of the process on the host.
    pub fn pid(&self) -> i32 {
        self.0.pid
    }
    /// Changes the size of its terminal.
    pub fn resize(&self, width: u16, height: u16) -> Result<()> {
        let Some(terminal) = &self.0.terminal else {
            return Err(Error::Invalid("the process has no terminal".to_owned()));
        };
        let size = rustix::termios::Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).doing(|| "resize a terminal")
    }
    /// Sends it a signal, by number.
    pub fn kill(&self, signal: i32) -> Result<()> {
        let named = rustix::process::Signal::from_named_raw(signal);
        let signal = named.ok_or_else(|| Error::Invalid(format!("there is no signal {signal}")))?;
        let Some(pidfd) = &self.0.pidfd else {
            return Err(Error::io("send a signal", std::io::Error::from(rustix::io::Errno::SRCH)));
        };
        rustix::process::pidfd_send_signal(pidfd, signal).doing(|| "send a signal")
    }
    /// Waits for its end.
    pub async fn wait(&self) -> Exit {
        let mut ended = self.0.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|e| *e);
        let Some(ended) = ended else { return std::future::pending().await };
        let (code, signal) = ended.code();
        Exit { code, signal, oom_killed: false, finished_at: ended.at }
    }
}

impl Drop for Inner {
    /// The shim keeps a process that ended until it is told to forget it.
    fn drop(&mut self) {
        let (core, slot, mut ended) = (Arc::clone(&self.core), self.slot, self.ended.clone());
        let shutdown = core.shutdown.clone();
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        shutdown.clone().spawn_one(async move {
            let forget = async {
                let _ = ended.wait_for(Option::is_some).await;
                core.forget(slot).await;
            };
            tokio::select! {
                () = forget => {}
                () = shutdown.wait() => {}
            }
        });
    }
}
