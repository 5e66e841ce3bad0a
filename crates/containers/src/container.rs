//! A container.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use oci_spec::runtime::{LinuxResources, Spec};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::sync::watch;

use crate::cgroups::Group;
use crate::clean::{PATIENCE, clean_up, is_started, outer_of};
use crate::core::{Core, Ended, blocking};
use crate::error::{Doing, Error, Result};
use crate::exec::Exec;
use crate::hooks::{self, Moment, Of};
use crate::make::{self, New, PidPlace};
use crate::oci::{self, Bundle, Outer};
use crate::oom;
use crate::records::{ContainerRecord, check_name};
use crate::shim::link::{Answer, Ask};
use crate::shim::wire::{request, spawn, state};
use crate::sources;
use crate::spec::{ContainerSpec, Event, ExecSpec, Exit, PidMode, Root, State, Stats};
use crate::stream::{Stream, pipe};

/// A container. Clones are the same container.
#[derive(Debug, Clone)]
pub struct Container(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    record: Mutex<ContainerRecord>,
    /// The description, which never changes.
    spec: Spec,
    group: Option<Group>,
    /// The container as another OCI runtime knows it.
    outer: Option<Outer>,
    pidfd: Mutex<Option<OwnedFd>>,
    state: watch::Sender<State>,
    /// Whether the kernel was seen to kill something because memory was out. systemd removes the cgroup of a scope as soon
    /// as its last process has ended, with the count in it.
    oom_seen: AtomicBool,
    /// One start at a time.
    starting: tokio::sync::Mutex<()>,
}

/// The streams of one who is attached to a container.
#[derive(Debug)]
pub struct Attached {
    /// Standard input, or the terminal; none if it was not asked for, or is closed.
    pub stdin: Option<Stream>,
    /// Standard output, or the terminal's.
    pub stdout: Option<Stream>,
    /// Standard error; a terminal has none.
    pub stderr: Option<Stream>,
    /// Whether the container has a terminal.
    pub terminal: bool,
}

impl Container {
    /// Makes a container. On failure nothing is left of it.
    pub(crate) async fn create(core: &Arc<Core>, spec: ContainerSpec, target: Option<Self>) -> Result<Self> {
        check_name("container", &spec.id)?;
        let from_spec = || {
            let path = spec.spec.linux().as_ref()?.cgroups_path().as_ref()?;
            path.to_str().filter(|p| !p.is_empty()).map(str::to_owned)
        };
        let cgroup = spec.cgroup.clone().or_else(from_spec);
        let group = cgroup.as_deref().map(|path| core.machine.cgroups.group(path)).transpose()?;
        let slot = core.slot();
        let record = ContainerRecord {
            id: spec.id.clone(),
            slot,
            pid: None,
            created_at: Timestamp::now(),
            started_at: None,
            exit: None,
            spec: spec.spec.clone(),
            io: spec.io.clone(),
            cgroup,
            pid_target: spec.pid_target.clone(),
            labels: spec.labels.clone(),
            runtime: spec.runtime.clone(),
        };
        core.directory.write_container(&record)?;
        let ended = core.follow(slot, None);
        match Self::make(core, &spec.spec, (spec.root, spec.mounts), &record, group.as_ref(), target).await {
            Ok((pid, pidfd)) => {
                let made = ContainerRecord { pid: Some(pid), ..record };
                core.directory.write_container(&made)?;
                Ok(Self::watched(core, made, group, pidfd, State::Created, ended))
            }
            Err(e) => {
                core.discard(slot).await;
                clean_up(core, &record, group.as_ref()).await;
                Err(e)
            }
        }
    }

    async fn make(
        core: &Arc<Core>,
        spec: &Spec,
        (root, mounts): (Root, Vec<(PathBuf, OwnedFd)>),
        record: &ContainerRecord,
        group: Option<&Group>,
        target: Option<Self>,
    ) -> Result<(i32, Option<OwnedFd>)> {
        let outer = outer_of(core, record);
        if let Some(group) = group.cloned().filter(|_| outer.is_none()) {
            let resources = spec.linux().as_ref().and_then(|l| l.resources().clone());
            blocking(move || group.create(resources.as_ref())).await?;
        }
        let target_pid = target.as_ref().map(Self::pid);
        let pid = match (target, core.record.spec.pid) {
            (Some(target), _) => PidPlace::Of(core.pidfd(target.slot()).await?),
            (None, PidMode::Host) => PidPlace::Host,
            (None, PidMode::PerContainer) => PidPlace::Own,
            (None, PidMode::Shared) => PidPlace::Of(core.pidfd(crate::core::HOLDER).await?),
        };
        let bundle = Bundle::of(&core.directory, &record.id);
        let mut root = root;
        let mut of = None;
        if outer.is_none() && hooks::any(spec) {
            hooks::check(spec)?;
            let (bundle, made) = (bundle.clone(), bundle.of_hooks(spec));
            let path = bundle.rootfs();
            blocking(move || {
                let root = match root {
                    Root::Mount(mount) => mount,
                    Root::Path(path) => sources::whole_tree(&path)?,
                };
                bundle.create(&made, root, &[])
            })
            .await?;
            root = Root::Path(path.clone());
            of = Some(path);
        }
        let hooks = of.map(|path| (Of { id: &record.id, spec, bundle: &bundle.0 }, path));
        let new = New { slot: record.slot, spec, root, mounts, io: &record.io, group, pid, hooks };
        match outer {
            Some(outer) => {
                oci::check(spec)?;
                Box::pin(oci::create(core, &outer, new, target_pid, record.cgroup.as_deref())).await
            }
            None => make::container(core, new).await.map(|(pid, pidfd)| (pid, Some(pidfd))),
        }
    }

    /// Takes over a container that another runtime made; none if it was not made whole.
    pub(crate) async fn adopt(
        core: &Arc<Core>,
        record: ContainerRecord,
        known: Option<&Answer>,
    ) -> Result<Option<Self>> {
        let group = record.cgroup.as_deref().map(|path| core.machine.cgroups.group(path)).transpose()?;
        let slot = record.slot;
        core.skip_to(slot + 1);
        if let Some(group) = &group {
            group.thaw();
        }
        if record.pid.is_none() {
            if known.is_some() {
                core.discard(slot).await;
            }
            clean_up(core, &record, group.as_ref()).await;
            return Ok(None);
        }
        let recorded = core.directory.exit(slot).map(Ended::recorded);
        let lost = Ended { status: None, failed: false, at: Timestamp::now() };
        let (state, ended) = match (&record.exit, known) {
            (Some(exit), _) => (State::Exited(exit.clone()), None),
            (None, Some(a)) if a.ended() => (State::Running, Some(recorded.unwrap_or(lost))),
            (None, Some(a)) if a.state & 15 == state::SPAWNED => {
                (if is_started(core, &record).await { State::Running } else { State::Created }, None)
            }
            (None, Some(_)) => (State::Running, None),
            (None, None) => (State::Running, Some(recorded.unwrap_or(lost))),
        };
        let pidfd = match ended {
            None if !matches!(state, State::Exited(_)) => core.pidfd(slot).await.ok(),
            _ => None,
        };
        let follow = core.follow(slot, ended);
        Ok(Some(Self::watched(core, record, group, pidfd, state, follow)))
    }

    /// A container whose end is waited for.
    fn watched(
        core: &Arc<Core>,
        record: ContainerRecord,
        group: Option<Group>,
        pidfd: Option<OwnedFd>,
        state: State,
        mut ended: watch::Receiver<Option<Ended>>,
    ) -> Self {
        let over = matches!(state, State::Exited(_));
        let inner = Inner {
            core: Arc::clone(core),
            spec: record.spec.clone(),
            outer: outer_of(core, &record),
            record: Mutex::new(record),
            group,
            pidfd: Mutex::new(pidfd),
            state: watch::channel(state).0,
            oom_seen: AtomicBool::new(false),
            starting: tokio::sync::Mutex::new(()),
        };
        let container = Self(Arc::new(inner));
        if over {
            return container;
        }
        let shutdown = core.shutdown.clone();
        let watched = container.clone();
        shutdown.clone().spawn_one(async move {
            let end = async {
                let ended = ended.wait_for(Option::is_some).await.ok().and_then(|e| *e);
                if let Some(ended) = ended {
                    watched.end(ended).await;
                }
            };
            tokio::select! {
                () = end => {}
                () = shutdown.wait() => {}
            }
        });
        let (group, told) = (container.0.group.clone(), container.clone());
        if let Some(group) = group {
            let event = Event::Oom { sandbox: core.id().to_owned(), container: container.id() };
            let events = core.machine.events.clone();
            let shutdown = core.shutdown.clone();
            shutdown.clone().spawn_one(async move {
                let sent = &told.0.oom_seen;
                let tell = || {
                    sent.store(true, Ordering::Relaxed);
                    let _ = events.send(event.clone());
                };
                let watch = async {
                    let _ = oom::watch(&group, tell).await;
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = watch => {}
                    // The container may end before the kernel has told of it.
                    exit = told.wait() => {
                        if exit.oom_killed && !sent.load(Ordering::Relaxed) {
                            tell();
                        }
                    }
                    () = shutdown.wait() => {}
                }
            });
        }
        container
    }

    /// The process ended: what is left of the container ends, too, and the end is written down before it is told.
    async fn end(&self, ended: Ended) {
        let inner = &self.0;
        let counted = inner.group.as_ref().is_some_and(|g| g.oom_kills() > 0);
        let oom_killed = counted || inner.oom_seen.load(Ordering::Relaxed);
        if let Some(pidfd) = inner.pidfd.lock().take()
            && ended.status.is_none()
        {
            // The shim is gone, and the process may run.
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
        if let Some(group) = &inner.group {
            group.kill(PATIENCE).await;
        }
        let (code, signal) = ended.code();
        let exit = Exit { code, signal, oom_killed, finished_at: ended.at };
        let record = {
            let mut record = inner.record.lock();
            record.exit = Some(exit.clone());
            record.clone()
        };
        // The shim's own record is there in any case.
        if let Err(e) = inner.core.directory.write_container(&record) {
            tracing::warn!(container = record.id, "the end of a container cannot be recorded: {e}");
        }
        inner.state.send_replace(State::Exited(exit.clone()));
        let event = Event::Exited { sandbox: inner.core.id().to_owned(), container: record.id, exit };
        let _ = inner.core.machine.events.send(event);
    }

    /// Its name.
    pub fn id(&self) -> String {
        self.0.record.lock().id.clone()
    }
    /// Words that its maker wanted to find again.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.0.record.lock().labels.clone()
    }
    /// Its description.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }
    /// The path of its log.
    pub fn log_path(&self) -> Option<PathBuf> {
        self.0.record.lock().io.log_path.clone()
    }
    /// Its streams.
    pub fn io(&self) -> crate::spec::Io {
        self.0.record.lock().io.clone()
    }
    /// The path of its cgroup.
    pub fn cgroup(&self) -> Option<String> {
        self.0.record.lock().cgroup.clone()
    }
    /// The number of its first process on the host.
    pub fn pid(&self) -> i32 {
        self.0.record.lock().pid.unwrap_or(0)
    }
    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.0.record.lock().created_at
    }
    /// When it was started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.0.record.lock().started_at.filter(|_| self.state() != State::Created)
    }
    /// Its state.
    pub fn state(&self) -> State {
        self.0.state.borrow().clone()
    }
    fn slot(&self) -> u32 {
        self.0.record.lock().slot
    }
    fn error(&self, call: &'static str) -> Error {
        let state = match self.state() {
            State::Created => "is not started",
            State::Running => "is running",
            State::Exited(_) => "has ended",
        };
        Error::State { call, kind: "container", id: self.id(), state }
    }

    /// Lets its process execute the program. An error that the program cannot be executed is also its end. The work goes
    /// on to its end if the caller waits no longer.
    pub async fn start(&self) -> Result<()> {
        let this = self.clone();
        let task = self.0.core.shutdown.spawn_one(async move { this.start_now().await });
        task.await.map_err(std::io::Error::other).doing(|| "wait for a task")?
    }

    async fn start_now(&self) -> Result<()> {
        let _one = self.0.starting.lock().await;
        if self.state() != State::Created {
            return Err(self.error("start"));
        }
        let record = {
            let mut record = self.0.record.lock();
            record.started_at = Some(Timestamp::now());
            record.clone()
        };
        self.0.core.directory.write_container(&record)?;
        if let Some(outer) = &self.0.outer {
            Box::pin(outer.start()).await?;
        }
        let ask = Ask { op: request::START, slot: record.slot, ..Ask::default() };
        let program = self.0.spec.process().as_ref().and_then(|p| p.args().as_ref()?.first().cloned());
        let deed = || format!("exec {}", program.unwrap_or_default());
        let started = self.0.core.ask(ask, deed).await;
        match started {
            // One that another runtime started may have ended already.
            Err(Error::Io { .. }) if self.0.outer.is_some() => Ok(()),
            Ok(answer) if answer.error != 0 => {
                let said = hooks::at_start(answer.place, answer.error as u32);
                let text = || format!("start the container: {}", crate::error::words(answer.error));
                Err(said.unwrap_or_else(|| Error::Step { text: text(), errno: answer.error }))
            }
            Ok(_) => {
                self.0.state.send_if_modified(|state| {
                    let created = *state == State::Created;
                    if created {
                        *state = State::Running;
                    }
                    created
                });
                self.after_start().await
            }
            Err(Error::Io { what, source }) => {
                let errno = source.raw_os_error().unwrap_or(0);
                Err(Error::Step { text: format!("{what}: {}", crate::error::words(errno)), errno })
            }
            Err(e) => Err(e),
        }
    }

    /// Runs the hooks that follow the start. One that fails ends the container.
    async fn after_start(&self) -> Result<()> {
        let inner = &self.0;
        if inner.outer.is_some() || hooks::of(&inner.spec, Moment::Poststart).is_empty() {
            return Ok(());
        }
        let (id, bundle) = (self.id(), Bundle::of(&inner.core.directory, &self.id()));
        let of = Of { id: &id, spec: &inner.spec, bundle: &bundle.0 };
        let done = Box::pin(of.run(Moment::Poststart, Some(self.pid()))).await;
        if done.is_err() {
            let _ = self.kill(9).await;
        }
        done
    }

    /// Sends a signal to its first process, by number.
    pub async fn kill(&self, signal: i32) -> Result<()> {
        if matches!(self.state(), State::Exited(_)) {
            return Err(self.error("kill"));
        }
        if let Some(outer) = &self.0.outer {
            return Box::pin(outer.kill(signal)).await;
        }
        let ask =
            Ask { op: request::SIGNAL, slot: self.slot(), figures: [signal as u32, 0], ..Ask::default() };
        let id = self.id();
        self.0.core.ask(ask, || format!("send the signal {signal} to container {id:?}")).await.map(|_| ())
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Exit {
        let mut state = self.0.state.subscribe();
        let ended = state.wait_for(|s| matches!(s, State::Exited(_))).await.map(|s| s.clone());
        match ended {
            Ok(State::Exited(exit)) => exit,
            _ => std::future::pending().await,
        }
    }

    /// Removes it: its process must have ended, or never have been started. Its log stays.
    pub async fn delete(&self) -> Result<()> {
        match self.state() {
            State::Running => return Err(self.error("delete")),
            State::Created if self.0.core.alive() => {
                self.kill(9)
                    .await
                    .or_else(|e| if self.state() == State::Created { Err(e) } else { Ok(()) })?;
                self.wait().await;
            }
            _ => {}
        }
        let record = self.0.record.lock().clone();
        self.0.core.forget(record.slot).await;
        clean_up(&self.0.core, &record, self.0.group.as_ref()).await;
        Ok(())
    }

    /// Changes its limits.
    pub async fn update(&self, resources: &LinuxResources) -> Result<()> {
        let Some(group) = self.0.group.clone() else {
            return Err(Error::Invalid(format!("container {:?} has no cgroup to set limits of", self.id())));
        };
        if matches!(self.state(), State::Exited(_)) {
            return Err(self.error("update"));
        }
        if let Some(outer) = &self.0.outer {
            return Box::pin(outer.update(resources)).await;
        }
        let resources = resources.clone();
        blocking(move || group.apply(&resources, false)).await
    }

    /// The resources that it has used.
    pub fn stats(&self) -> Stats {
        self.0.group.as_ref().map_or_else(Stats::default, Group::stats)
    }

    /// Runs a further process in it. One whose caller waits no longer is made all the same, and forgotten at its end.
    pub async fn exec(&self, spec: ExecSpec) -> Result<Exec> {
        let this = self.clone();
        let task = self.0.core.shutdown.spawn_one(async move { Box::pin(this.exec_now(spec)).await });
        task.await.map_err(std::io::Error::other).doing(|| "wait for a task")?
    }

    async fn exec_now(&self, spec: ExecSpec) -> Result<Exec> {
        if self.state() != State::Running {
            return Err(self.error("exec in"));
        }
        let core = &self.0.core;
        if let Some(outer) = &self.0.outer {
            return Exec::start_by(core, outer, spec).await;
        }
        let of = core
            .pidfd(self.slot())
            .await
            .map_err(|e| if e.errno().is_some() { self.error("exec in") } else { e })?;
        let group = self.0.group.as_ref().map(|group| group.beside(self.pid()));
        Exec::start(core, &self.0.spec, spec, of, group.as_ref()).await
    }

    /// Follows its output from now on, and shares its input if that is wanted.
    pub async fn attach(&self, stdin: bool) -> Result<Attached> {
        if matches!(self.state(), State::Exited(_)) {
            return Err(self.error("attach to"));
        }
        let terminal = self.0.record.lock().io.terminal;
        let out = pipe().doing(|| "make a pipe")?;
        let err = if terminal { None } else { Some(pipe().doing(|| "make a pipe")?) };
        let mut fds: Vec<BorrowedFd<'_>> = vec![out.1.as_fd()];
        let mut flags = spawn::STDOUT;
        if let Some((_, write)) = &err {
            flags |= spawn::STDERR;
            fds.push(write.as_fd());
        }
        if stdin {
            flags |= spawn::STDIN;
        }
        let ask = Ask { op: request::ATTACH, slot: self.slot(), flags, fds: &fds, ..Ask::default() };
        let id = self.id();
        let answer = self.0.core.ask(ask, || format!("attach to container {id:?}")).await?;
        let stream = |d: OwnedFd| Stream::new(d).doing(|| "read a pipe");
        Ok(Attached {
            stdin: answer.fd.map(stream).transpose()?,
            stdout: Some(stream(out.0)?),
            stderr: err.map(|(read, _)| stream(read)).transpose()?,
            terminal,
        })
    }

    /// Closes its standard input: whoever is attached to a container with `stdin_once` calls this at the input's end.
    pub async fn close_stdin(&self) -> Result<()> {
        let ask = Ask { op: request::CLOSE_STDIN, slot: self.slot(), ..Ask::default() };
        let id = self.id();
        self.0.core.ask(ask, || format!("close the input of container {id:?}")).await.map(|_| ())
    }

    /// Changes the size of its terminal.
    pub async fn resize(&self, width: u16, height: u16) -> Result<()> {
        let figures = [u32::from(width), u32::from(height)];
        let ask = Ask { op: request::RESIZE, slot: self.slot(), figures, ..Ask::default() };
        let id = self.id();
        self.0.core.ask(ask, || format!("resize the terminal of container {id:?}")).await.map(|_| ())
    }

    /// Opens its log anew, after somebody has moved the file away.
    pub async fn reopen_log(&self) -> Result<()> {
        let Some(path) = self.log_path() else { return Ok(()) };
        let log = make::open_log(&path)?;
        let fds = [log.as_fd()];
        let ask = Ask { op: request::LOG, slot: self.slot(), fds: &fds, ..Ask::default() };
        let id = self.id();
        self.0.core.ask(ask, || format!("reopen the log of container {id:?}")).await.map(|_| ())
    }

    /// The processes of its cgroup.
    pub fn processes(&self) -> Vec<Pid> {
        let all = self.0.group.as_ref().map(Group::processes).unwrap_or_default();
        all.into_iter().filter_map(Pid::from_raw).collect()
    }
}
