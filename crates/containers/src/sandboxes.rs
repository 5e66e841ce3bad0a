//! All sandboxes below one directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component::Shutdown;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::cgroups::Cgroups;
use crate::clean::remove_outside;
use crate::core::Machine;
use crate::error::{Doing, Error, Result};
use crate::records::{Directory, check_name};
use crate::sandbox::Sandbox;
use crate::shim::launch::Program;
use crate::shim::link::{Ask, Link};
use crate::shim::wire::request;
use crate::spec::{Event, SandboxSpec};

/// How long the processes of a lost sandbox get to end once they are killed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where sandboxes are, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory of records and sockets, this runtime's alone. Its path has at most 80 bytes or so: a socket's name
    /// below it has 108 at most.
    pub state: PathBuf,
    /// The cgroups.
    pub cgroups: Cgroups,
}

/// All sandboxes. Clones are the same.
#[derive(Debug, Clone)]
pub struct Sandboxes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    machine: Arc<Machine>,
    sandboxes: Mutex<BTreeMap<String, Option<Sandbox>>>,
}

impl Sandboxes {
    /// Opens the directory, which is made if it is not there. Sandboxes in it come back by [`Sandboxes::adopt`] or
    /// [`Sandboxes::adopt_all`]. Must be called in a tokio runtime.
    pub fn open(settings: Settings, shutdown: &Shutdown) -> Result<Self> {
        let state = &settings.state;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
        made.doing(|| format!("make {}", state.display()))?;
        let machine = Machine {
            cgroups: settings.cgroups.clone(),
            program: Program::new().doing(|| "make a memory file for the shim")?,
            shutdown: shutdown.child(),
            events: broadcast::channel(1024).0,
        };
        Ok(Self(Arc::new(Inner { settings, machine: Arc::new(machine), sandboxes: Mutex::default() })))
    }

    /// Events from now on. Someone who falls behind by 1024 is told so, and looks at the states anew.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.machine.events.subscribe()
    }

    /// Every sandbox that was started or adopted.
    pub fn list(&self) -> Vec<Sandbox> {
        self.0.sandboxes.lock().values().flatten().cloned().collect()
    }

    /// A sandbox.
    pub fn get(&self, id: &str) -> Option<Sandbox> {
        self.0.sandboxes.lock().get(id).cloned().flatten()
    }

    /// Starts a sandbox. On failure nothing is left of it. The work goes on to its end if the caller waits no longer.
    pub async fn start(&self, spec: SandboxSpec) -> Result<Sandbox> {
        check_name("sandbox", &spec.id)?;
        let this = self.clone();
        let task = self.0.machine.shutdown.spawn_one(async move { this.start_now(spec).await });
        task.await.map_err(io::Error::other).doing(|| "wait for a task")?
    }

    async fn start_now(&self, spec: SandboxSpec) -> Result<Sandbox> {
        let id = spec.id.clone();
        let directory = Directory::new(&self.0.settings.state, &id);
        {
            let mut all = self.0.sandboxes.lock();
            if all.contains_key(&id) {
                return Err(Error::Exists { kind: "sandbox", id });
            }
            match directory.create() {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(Error::Exists { kind: "sandbox", id });
                }
                Err(e) => return Err(Error::io(format!("make {}", directory.0.display()), e)),
            }
            all.insert(id.clone(), None);
        }
        let started = Sandbox::start(&self.0.machine, directory.clone(), spec).await;
        match started {
            Ok(sandbox) => {
                self.0.sandboxes.lock().insert(id, Some(sandbox.clone()));
                Ok(sandbox)
            }
            Err(e) => {
                let cleaned = self.discard(&directory).await;
                self.0.sandboxes.lock().remove(&id);
                if let Err(e) = cleaned {
                    tracing::warn!(sandbox = id, "a sandbox that did not start is not gone: {e}");
                }
                Err(e)
            }
        }
    }

    /// Comes back to a sandbox after a restart: its shim and containers are as they were, exits are known, and
    /// containers that were not made whole are gone. [`Error::Lost`]: the shim is gone, or the sandbox was not made
    /// whole; [`Sandboxes::remove`] removes what is left.
    pub async fn adopt(&self, id: &str) -> Result<Sandbox> {
        check_name("sandbox", id)?;
        if let Some(sandbox) = self.get(id) {
            return Ok(sandbox);
        }
        let directory = Directory::new(&self.0.settings.state, id);
        if !directory.0.is_dir() {
            return Err(Error::NotFound { kind: "sandbox", id: id.to_owned() });
        }
        let sandbox = Sandbox::adopt(&self.0.machine, directory).await?;
        self.0.sandboxes.lock().insert(id.to_owned(), Some(sandbox.clone()));
        Ok(sandbox)
    }

    /// The names of all sandboxes that have records, adopted or not.
    pub fn recorded(&self) -> Result<Vec<String>> {
        let state = &self.0.settings.state;
        let entries = fs::read_dir(state).doing(|| format!("read {}", state.display()))?;
        let mut out: Vec<String> = entries
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|name| check_name("sandbox", name).is_ok())
            .collect();
        out.sort();
        Ok(out)
    }

    /// Comes back to all sandboxes.
    pub async fn adopt_all(&self) -> Result<Vec<(String, Result<Sandbox>)>> {
        let mut out = Vec::new();
        for id in self.recorded()? {
            let adopted = self.adopt(&id).await;
            out.push((id, adopted));
        }
        Ok(out)
    }

    /// Stops a sandbox and removes it with its containers, cgroups and records, adopted or not. One that is not there is
    /// removed.
    pub async fn remove(&self, id: &str) -> Result<()> {
        check_name("sandbox", id)?;
        let this = self.clone();
        let id = id.to_owned();
        let task = self.0.machine.shutdown.spawn_one(async move { this.remove_now(&id).await });
        task.await.map_err(io::Error::other).doing(|| "wait for a task")?
    }

    async fn remove_now(&self, id: &str) -> Result<()> {
        let directory = Directory::new(&self.0.settings.state, id);
        let adopted = match self.get(id) {
            Some(sandbox) => Some(sandbox),
            None => self.adopt(id).await.ok(),
        };
        match adopted {
            Some(sandbox) => sandbox.remove().await?,
            None => self.discard(&directory).await?,
        }
        self.0.sandboxes.lock().remove(id);
        Ok(())
    }

    /// Removes a sandbox without a shim, or with one that nobody talks to.
    async fn discard(&self, directory: &Directory) -> Result<()> {
        if !directory.0.is_dir() {
            return Ok(());
        }
        let (tell, _news) = tokio::sync::mpsc::channel(64);
        let shutdown = self.0.machine.shutdown.child();
        if let Ok(link) = Link::connect(&directory.socket(), tell, &shutdown) {
            let hello = link.ask(Ask { op: request::HELLO, ..Ask::default() }).await;
            let list = link.ask(Ask { op: request::LIST, ..Ask::default() }).await;
            for item in list.iter().flat_map(|l| &l.items).filter(|i| !i.ended()) {
                let kill = Ask { op: request::SIGNAL, slot: item.slot, figures: [9, 0], ..Ask::default() };
                let _ = link.ask(kill).await;
            }
            let _ = link.ask(Ask { op: request::QUIT, ..Ask::default() }).await;
            if let Some(shim) = hello.and_then(|h| crate::records::Process::running(h.pid)) {
                while shim.runs() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        shutdown.stop();
        let mut cgroups: Vec<String> =
            directory.containers().into_iter().flatten().filter_map(|c| c.cgroup).collect();
        cgroups.extend(directory.read().ok().and_then(|r| r.spec.cgroup));
        for path in cgroups {
            // One that cannot be was never made.
            let Ok(group) = self.0.settings.cgroups.group(&path) else { continue };
            group.thaw();
            group.kill(PATIENCE).await;
            group.remove(PATIENCE).await?;
        }
        for record in directory.containers().into_iter().flatten() {
            Box::pin(remove_outside(directory, &record)).await;
        }
        fs::remove_dir_all(&directory.0).doing(|| format!("remove {}", directory.0.display()))
    }
}
