//! A sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use oci_spec::runtime::LinuxResources;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::Interest;

use crate::cgroups::Group;
use crate::container::Container;
use crate::core::{Core, HOLDER, Machine, blocking};
use crate::error::{Doing, Error, Result};
use crate::plan;
use crate::raw;
use crate::records::{Directory, SandboxRecord};
use crate::shim::link::{Answer, Ask};
use crate::shim::setup::{self, Note};
use crate::shim::socket;
use crate::shim::socket::address;
use crate::shim::wire::{request, spawn};
use crate::sources::{self, Given};
use crate::spec::{ContainerSpec, PidMode, SandboxSpec, State, Stats};
use crate::under_way;
use crate::users;

/// How long processes get to end once they are killed.
const PATIENCE: Duration = Duration::from_mins(1);

/// A sandbox. Clones are the same sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    group: Option<Group>,
    containers: Mutex<BTreeMap<String, Container>>,
    /// The names of containers that are being made.
    making: Mutex<BTreeSet<String>>,
}

/// Takes a name out of those that are being made.
struct Making<'a>(&'a Inner, String);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.making.lock().remove(&self.1);
    }
}

impl Sandbox {
    /// Makes a sandbox whose directory is there. On failure the caller removes what is left.
    pub(crate) async fn start(
        machine: &Arc<Machine>,
        directory: Directory,
        spec: SandboxSpec,
    ) -> Result<Self> {
        let record = SandboxRecord { spec: spec.clone(), created_at: Timestamp::now(), shim: None };
        directory.write(&record)?;
        let group = spec.cgroup.as_deref().map(|path| machine.cgroups.group(path)).transpose()?;
        if let Some(group) = group.clone() {
            let resources = spec.resources.clone();
            blocking(move || group.create(resources.as_ref())).await?;
        }
        let held = match &spec.user {
            Some(maps) => users::sandbox(machine, &spec, maps).await?,
            None => Vec::new(),
        };
        let child = launch(machine, &directory, &spec, group.as_ref(), held).await?;
        bury(child, machine)?;
        let (core, known) = Core::connect(Arc::clone(machine), directory, record).await?;
        let sandbox = Self::of(core, group);
        if spec.pid == PidMode::Shared {
            sandbox.hold_pids().await?;
        }
        drop(known);
        let record = SandboxRecord { shim: Some(sandbox.0.core.shim), ..sandbox.0.core.record.clone() };
        sandbox.0.core.directory.write(&record)?;
        Ok(sandbox)
    }

    fn of(core: Arc<Core>, group: Option<Group>) -> Self {
        let (containers, making) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeSet::new()));
        Self(Arc::new(Inner { core, group, containers, making }))
    }

    /// Makes the first process of the shared process namespace.
    async fn hold_pids(&self) -> Result<()> {
        let core = &self.0.core;
        let mut flags = spawn::HOLDER | spawn::NEW_PID;
        let mut fds = Vec::new();
        if let Some(user) = core.open_user()? {
            flags |= spawn::IN_USER;
            fds.push(user);
        }
        let mut given = Given::default();
        if let Some(group) = &self.0.group {
            match group.born_in()? {
                Some(directory) => {
                    flags |= spawn::IN_CGROUP;
                    fds.push(directory);
                }
                None => given.cgroup = group.join_files()?,
            }
        }
        core.follow(HOLDER, None);
        let plan = plan::holder(&core.record.spec, given.cgroup.len());
        let made = under_way::run(core, HOLDER, flags, fds, &plan, given).await?;
        *core.holder.lock() = made.pidfd;
        Ok(())
    }

    /// Comes back to a sandbox; one that was not made whole is an error, and so is one whose shim is gone.
    pub(crate) async fn adopt(machine: &Arc<Machine>, directory: Directory) -> Result<Self> {
        let record = directory.read()?;
        let id = record.spec.id.clone();
        let Some(shim) = record.shim else { return Err(Error::Lost(id)) };
        let group = record.spec.cgroup.as_deref().map(|path| machine.cgroups.group(path)).transpose()?;
        let shared = record.spec.pid == PidMode::Shared;
        let (core, known) = Core::connect(Arc::clone(machine), directory, record).await?;
        if core.shim != shim {
            return Err(Error::Lost(id));
        }
        if shared {
            core.follow(HOLDER, None);
            *core.holder.lock() = core.pidfd(HOLDER).await.ok();
        }
        let sandbox = Self::of(core, group);
        sandbox.adopt_containers(known).await?;
        Ok(sandbox)
    }

    async fn adopt_containers(&self, known: BTreeMap<u32, Answer>) -> Result<()> {
        let core = &self.0.core;
        let mut owned = BTreeSet::from([HOLDER]);
        for record in core.directory.containers() {
            let record = record?;
            owned.insert(record.slot);
            let answer = known.get(&record.slot);
            if let Some(container) = Container::adopt(core, record, answer).await? {
                self.0.containers.lock().insert(container.id(), container);
            }
        }
        // Further processes had streams of the runtime that is gone; nobody can have them back.
        for (slot, answer) in known.iter().filter(|(slot, _)| !owned.contains(slot)) {
            if answer.ended() {
                // Nobody tells of its end again.
                core.forget(*slot).await;
            } else {
                core.discard(*slot).await;
            }
        }
        Ok(())
    }

    /// Its name.
    pub fn id(&self) -> &str {
        self.0.core.id()
    }
    /// Its description.
    pub fn spec(&self) -> &SandboxSpec {
        &self.0.core.record.spec
    }
    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.0.core.record.created_at
    }
    /// Whether its shim, and with it its namespaces, are there.
    pub fn alive(&self) -> bool {
        self.0.core.alive()
    }
    /// Resolves once it is not.
    pub async fn gone(&self) {
        self.0.core.gone().await;
    }
    /// The process of its shim.
    pub fn shim_pid(&self) -> i32 {
        self.0.core.shim.pid
    }
    /// A path of its network namespace, which is there as long as the sandbox is.
    pub fn netns(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.shim_pid()))
    }
    /// A descriptor of its network namespace.
    pub fn open_netns(&self) -> Result<OwnedFd> {
        self.0.core.open_shim("ns/net")
    }
    /// A descriptor of its user namespace, if it has one: roots of its containers are mapped by it.
    pub fn open_userns(&self) -> Result<Option<OwnedFd>> {
        self.0.core.open_user()
    }
    /// Its containers.
    pub fn containers(&self) -> Vec<Container> {
        self.0.containers.lock().values().cloned().collect()
    }
    /// A container.
    pub fn container(&self, id: &str) -> Option<Container> {
        self.0.containers.lock().get(id).cloned()
    }
    /// The use of the sandbox's own cgroup (shim and first process). Containers have theirs; the Pod's is the caller's.
    pub fn stats(&self) -> Stats {
        self.0.group.as_ref().map_or_else(Stats::default, Group::stats)
    }
    /// Changes the limits of the sandbox's own cgroup.
    pub async fn update(&self, resources: &LinuxResources) -> Result<()> {
        let Some(group) = self.0.group.clone() else { return Ok(()) };
        let resources = resources.clone();
        blocking(move || group.apply(&resources, false)).await
    }

    /// Makes a container, whose process waits to be started. On failure nothing is left of it. The work goes on to its
    /// end if the caller waits no longer.
    pub async fn create(&self, spec: ContainerSpec) -> Result<Container> {
        let this = self.clone();
        let task = self.0.core.shutdown.spawn_one(async move { Box::pin(this.create_now(spec)).await });
        task.await.map_err(std::io::Error::other).doing(|| "wait for a task")?
    }

    async fn create_now(&self, spec: ContainerSpec) -> Result<Container> {
        let inner = &*self.0;
        let id = spec.id.clone();
        let making = {
            let mut making = inner.making.lock();
            if inner.containers.lock().contains_key(&id) || !making.insert(id.clone()) {
                return Err(Error::Exists { kind: "container", id });
            }
            Making(inner, id)
        };
        let target = match &spec.pid_target {
            None => None,
            Some(target) => Some(
                self.container(target)
                    .ok_or_else(|| Error::NotFound { kind: "container", id: target.clone() })?,
            ),
        };
        let container = Container::create(&inner.core, spec, target).await?;
        inner.containers.lock().insert(making.1.clone(), container.clone());
        Ok(container)
    }

    /// Removes a container that has ended or was never started.
    pub async fn delete(&self, id: &str) -> Result<()> {
        let Some(container) = self.container(id) else {
            return Err(Error::NotFound { kind: "container", id: id.to_owned() });
        };
        container.delete().await?;
        self.0.containers.lock().remove(id);
        Ok(())
    }

    /// Kills its containers and ends its shim, and with it the namespaces. Containers keep their states.
    pub async fn stop(&self) -> Result<()> {
        let core = &self.0.core;
        let containers = self.containers();
        for container in &containers {
            if !matches!(container.state(), State::Exited(_)) {
                let _ = container.kill(9).await;
            }
        }
        for container in &containers {
            if tokio::time::timeout(PATIENCE, container.wait()).await.is_err() {
                return Err(Error::State {
                    call: "stop",
                    kind: "container",
                    id: container.id(),
                    state: "does not end",
                });
            }
        }
        if core.alive() {
            let kill = Ask { op: request::SIGNAL, slot: HOLDER, figures: [9, 0], ..Ask::default() };
            if self.spec().pid == PidMode::Shared
                && core.ask(kill, || "end the first process".to_owned()).await.is_ok()
            {
                let mut ended = core.follow(HOLDER, None);
                let _ = tokio::time::timeout(PATIENCE, ended.wait_for(Option::is_some)).await;
            }
            let quit = Ask { op: request::QUIT, ..Ask::default() };
            let _ = core.ask(quit, || "end the shim".to_owned()).await;
            let gone = async {
                while core.shim.runs() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            if tokio::time::timeout(PATIENCE, gone).await.is_err() {
                return Err(Error::State {
                    call: "stop",
                    kind: "sandbox",
                    id: self.id().to_owned(),
                    state: "does not end",
                });
            }
            core.let_go();
        }
        Ok(())
    }

    /// Stops it, and removes its containers, cgroups and records.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.stop().await?;
        for container in self.containers() {
            container.delete().await?;
        }
        self.0.containers.lock().clear();
        if let Some(group) = &self.0.group {
            group.kill(PATIENCE).await;
            group.remove(PATIENCE).await?;
        }
        self.0.core.shutdown.stop();
        let path = &self.0.core.directory.0;
        fs::remove_dir_all(path).doing(|| format!("remove {}", path.display()))
    }
}

/// Starts a shim; it serves when this returns.
async fn launch(
    machine: &Machine,
    directory: &Directory,
    spec: &SandboxSpec,
    group: Option<&Group>,
    held: Vec<(&'static str, OwnedFd)>,
) -> Result<Child> {
    let plan = plan::shim(spec, group.map_or(0, Group::joins_of_first));
    let mut given = Given {
        listen: Some(listen(directory)?),
        exits: Some(sources::file(&directory.exits())?),
        held,
        ..Given::default()
    };
    let (ours, theirs) = socket::pair().doing(|| "make a socket")?;
    let mut child = machine.program.run(theirs).doing(|| "start the shim")?;
    let served = async {
        if let Some(group) = group.cloned() {
            let first = rustix::process::Pid::from_child(&child).as_raw_nonzero().get();
            given.cgroup = under_way::in_scope(group, spec.resources.clone(), first).await?;
        }
        let sources = plan.sources.clone();
        let opened = blocking(move || sources::open(&sources, given)).await?;
        let fds: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
        setup::send(&ours, &plan, &fds).await?;
        match setup::next(&ours, &plan).await? {
            Note::Ready => Ok(()),
            _ => Err(Error::Lost(spec.id.clone())),
        }
    };
    match served.await {
        Ok(()) => Ok(child),
        Err(e) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(e)
        }
    }
}

/// The shim is this process's child as long as this process lives: it must not stay a zombie.
fn bury(child: Child, machine: &Machine) -> Result<()> {
    let mut child = child;
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let pidfd = pidfd.doing(|| "find the shim")?;
    let ended = raw::registered(pidfd, Interest::READABLE).doing(|| "wait for the shim")?;
    let shutdown = machine.shutdown.clone();
    machine.shutdown.spawn_one(async move {
        tokio::select! {
            _ = ended.readable() => { let _ = child.wait(); }
            () = shutdown.wait() => {}
        }
    });
    Ok(())
}

/// The socket at which the shim will listen.
fn listen(directory: &Directory) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.doing(|| "make a socket")?;
    let made = || {
        let (_directory, address) = address(&directory.socket())?;
        rustix::net::bind(&socket, &address)?;
        std::io::Result::Ok(rustix::net::listen(&socket, 8)?)
    };
    made().doing(|| format!("listen at {}", directory.socket().display()))?;
    Ok(socket)
}
