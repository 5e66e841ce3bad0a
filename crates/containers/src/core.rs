//! A sandbox's shim and processes: the part that sandboxes, containers and further processes share.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use component::Shutdown;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, watch};

use crate::cgroups::Cgroups;
use crate::error::{Doing, Error, Result};
use crate::records::{Directory, Process, SandboxRecord};
use crate::shim::launch::Program;
use crate::shim::link::{Answer, Ask, Link};
use crate::shim::wire::{request, spawn, state};
use crate::spec::Event;

/// The slot of the first process of a shared process namespace.
pub(crate) const HOLDER: u32 = 1;
/// The first slot of a container.
const FIRST: u32 = 2;

/// The end of a process, as the shim saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The status of wait(2); none if nobody saw it.
    pub(crate) status: Option<i32>,
    /// Whether the program was never executed.
    pub(crate) failed: bool,
    pub(crate) at: Timestamp,
}

impl Ended {
    fn told(answer: &Answer) -> Self {
        Self {
            status: Some(answer.error),
            failed: answer.state & state::FAILED != 0,
            at: time(answer.seconds, answer.nanos),
        }
    }
    /// Reads a record of the shim.
    pub(crate) fn recorded([status, seconds, nanos, _, error]: [i64; 5]) -> Self {
        Self { status: Some(status as i32), failed: error != 0, at: time(seconds, nanos) }
    }
    /// The exit code and the signal. Codes are those of containerd: 128 for a program that did not begin.
    pub(crate) fn code(&self) -> (i32, Option<i32>) {
        match self.status {
            None => (255, None),
            Some(_) if self.failed => (128, None),
            Some(status) => match status & 0x7f {
                0 => (status >> 8 & 0xff, None),
                signal => (128 + signal, Some(signal)),
            },
        }
    }
}

fn time(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp::new(seconds, nanos as i32).unwrap_or_else(|_| Timestamp::now())
}

type Watch = watch::Sender<Option<Ended>>;

/// The things that all sandboxes share.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cgroups: Cgroups,
    pub(crate) program: Program,
    pub(crate) shutdown: Shutdown,
    pub(crate) events: broadcast::Sender<Event>,
}

/// A sandbox's shim and processes.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) machine: Arc<Machine>,
    pub(crate) directory: Directory,
    pub(crate) record: SandboxRecord,
    pub(crate) shim: Process,
    link: Mutex<Arc<Link>>,
    slots: Mutex<HashMap<u32, Watch>>,
    next: AtomicU32,
    /// Whether the shim is gone.
    gone: watch::Sender<bool>,
    /// Ends what watches this sandbox when it is removed.
    pub(crate) shutdown: Shutdown,
    /// The process that holds a shared process namespace.
    pub(crate) holder: Mutex<Option<OwnedFd>>,
}

impl Core {
    pub(crate) fn id(&self) -> &str {
        &self.record.spec.id
    }

    /// Connects to a shim. With it come the processes that it knows.
    pub(crate) async fn connect(
        machine: Arc<Machine>,
        directory: Directory,
        record: SandboxRecord,
    ) -> Result<(Arc<Self>, BTreeMap<u32, Answer>)> {
        let shutdown = machine.shutdown.child();
        let (tell, news) = mpsc::channel(64);
        let socket = directory.socket();
        let id = record.spec.id.clone();
        let lost = || Error::Lost(id.clone());
        let link = Link::connect(&socket, tell, &shutdown).map_err(|_| lost())?;
        let hello = link.ask(Ask { op: request::HELLO, ..Ask::default() }).await.ok_or_else(lost)?;
        let shim = Process::running(hello.pid).ok_or_else(lost)?;
        let known = list(&link).await.ok_or_else(lost)?;
        let core = Arc::new(Self {
            machine,
            record,
            shim,
            link: Mutex::new(Arc::new(link)),
            slots: Mutex::new(HashMap::new()),
            next: AtomicU32::new(FIRST),
            gone: watch::channel(false).0,
            shutdown: shutdown.clone(),
            holder: Mutex::new(None),
            directory,
        });
        let highest = known.keys().copied().chain(core.directory.exit_slots()).max().unwrap_or(0);
        core.skip_to(highest + 1);
        let supervised = Arc::clone(&core);
        shutdown.clone().spawn_one(async move {
            tokio::select! {
                () = supervise(&supervised, news) => {}
                () = shutdown.wait() => {}
            }
        });
        Ok((core, known))
    }

    /// Slots below this one are taken.
    pub(crate) fn skip_to(&self, slot: u32) {
        self.next.fetch_max(slot, Ordering::Relaxed);
    }

    /// A new slot, and the end of the process that will have it.
    pub(crate) fn slot(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Follows the end of a process. One that ended already is given.
    pub(crate) fn follow(&self, slot: u32, ended: Option<Ended>) -> watch::Receiver<Option<Ended>> {
        let mut slots = self.slots.lock();
        let watch = slots.entry(slot).or_insert_with(|| watch::channel(None).0);
        if ended.is_some() {
            watch.send_replace(ended);
        } else if *self.gone.borrow() {
            watch.send_replace(Some(Ended { status: None, failed: false, at: Timestamp::now() }));
        }
        watch.subscribe()
    }

    /// Follows it no more.
    pub(crate) fn unfollow(&self, slot: u32) {
        self.slots.lock().remove(&slot);
    }

    /// Asks the shim. Its refusal is an error with the deed.
    pub(crate) async fn ask(&self, ask: Ask<'_>, deed: impl FnOnce() -> String) -> Result<Answer> {
        let link = Arc::clone(&self.link.lock());
        let answer = link.ask(ask).await.ok_or_else(|| Error::Lost(self.id().to_owned()))?;
        if answer.error != 0
            && !(ask.op == request::PIDFD && answer.fd.is_some())
            && !(ask.op == request::START && answer.state & state::FAILED != 0)
        {
            return Err(Error::io(deed(), std::io::Error::from_raw_os_error(answer.error)));
        }
        Ok(answer)
    }

    /// Makes a process: it, and a descriptor of it.
    pub(crate) async fn spawn(
        &self,
        slot: u32,
        flags: u32,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(i32, OwnedFd)> {
        let ask = Ask { op: request::SPAWN, slot, flags: flags | spawn::SETUP, figures: [0; 2], fds };
        let answer = self.ask(ask, || "make a process".to_owned()).await?;
        let pidfd = answer.fd.ok_or_else(|| Error::Lost(self.id().to_owned()))?;
        Ok((answer.pid, pidfd))
    }

    /// Ends a process that was not made whole, and forgets it.
    pub(crate) async fn discard(&self, slot: u32) {
        let kill = Ask { op: request::SIGNAL, slot, figures: [9, 0], ..Ask::default() };
        let mut ended = self.follow(slot, None);
        match self.ask(kill, || "kill a process".to_owned()).await {
            // The shim does not know it: it was never made.
            Err(e) if e.errno() == Some(2) => {}
            _ => {
                let _ = tokio::time::timeout(Duration::from_secs(30), ended.wait_for(Option::is_some)).await;
                self.forget(slot).await;
            }
        }
        self.unfollow(slot);
    }

    /// Forgets a process that ended.
    pub(crate) async fn forget(&self, slot: u32) {
        let ask = Ask { op: request::FORGET, slot, ..Ask::default() };
        let _ = self.ask(ask, || "forget a process".to_owned()).await;
        self.unfollow(slot);
    }

    /// A descriptor of a process that runs.
    pub(crate) async fn pidfd(&self, slot: u32) -> Result<OwnedFd> {
        let ask = Ask { op: request::PIDFD, slot, ..Ask::default() };
        let answer = self.ask(ask, || "find a process".to_owned()).await?;
        answer.fd.ok_or_else(|| Error::Lost(self.id().to_owned()))
    }

    /// Whether the shim is there.
    pub(crate) fn alive(&self) -> bool {
        !*self.gone.borrow()
    }

    /// Resolves once the shim is gone.
    pub(crate) async fn gone(&self) {
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Takes the shim for gone, because it was told to go.
    pub(crate) fn let_go(&self) {
        self.gone.send_replace(true);
    }

    /// A file of the shim's, such as a namespace's.
    pub(crate) fn open_shim(&self, file: &str) -> Result<OwnedFd> {
        let path = format!("/proc/{}/{file}", self.shim.pid);
        let opened = crate::sources::file(path.as_ref())?;
        // The number may be another process's by now: the file is the shim's if the shim runs still.
        if self.shim.runs() { Ok(opened) } else { Err(Error::Lost(self.id().to_owned())) }
    }

    /// The user namespace of the sandbox, if it has one.
    pub(crate) fn open_user(&self) -> Result<Option<OwnedFd>> {
        let spec = &self.record.spec;
        if spec.user.is_none() {
            return Ok(None);
        }
        use crate::spec::{Network, Private};
        let name = if spec.uts == Private::New {
            "ns/uts"
        } else if spec.ipc == Private::New {
            "ns/ipc"
        } else if spec.network == Network::New {
            "ns/net"
        } else {
            return Err(Error::Invalid("a user namespace needs a namespace that belongs to it".to_owned()));
        };
        crate::sources::owner(self.open_shim(name)?.as_fd()).map(Some)
    }
}

/// The processes that a shim knows.
async fn list(link: &Link) -> Option<BTreeMap<u32, Answer>> {
    let answer = link.ask(Ask { op: request::LIST, ..Ask::default() }).await?;
    Some(answer.items.into_iter().map(|i| (i.slot, i)).collect())
}

/// Passes on the ends of processes, and holds the connection. A shim that hung up is asked anew; one that is gone ends
/// everything.
async fn supervise(core: &Arc<Core>, mut news: mpsc::Receiver<Answer>) {
    loop {
        let link = Arc::clone(&core.link.lock());
        loop {
            tokio::select! {
                biased;
                told = news.recv() => match told {
                    Some(answer) => end(core, &answer),
                    None => break,
                },
                () = link.over() => break,
            }
        }
        while let Ok(answer) = news.try_recv() {
            end(core, &answer);
        }
        if !core.shim.runs() {
            break;
        }
        let (tell, next) = mpsc::channel(64);
        news = next;
        let Ok(link) = Link::connect(&core.directory.socket(), tell, &core.shutdown) else {
            // It does not listen: it is about to end, or its place is full.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Some(known) = list(&link).await {
            known.values().filter(|a| a.ended()).for_each(|a| end(core, a));
        }
        *core.link.lock() = Arc::new(link);
    }
    core.gone.send_replace(true);
    for (slot, watch) in core.slots.lock().iter() {
        if watch.borrow().is_none() {
            let seen = core.directory.exit(*slot).map(Ended::recorded);
            let unseen = Ended { status: None, failed: false, at: Timestamp::now() };
            watch.send_replace(Some(seen.unwrap_or(unseen)));
        }
    }
    if let Some(holder) = core.holder.lock().take() {
        let _ = rustix::process::pidfd_send_signal(&holder, rustix::process::Signal::KILL);
    }
    let _ = core.machine.events.send(Event::Lost { sandbox: core.id().to_owned() });
}

fn end(core: &Core, answer: &Answer) {
    // One that nobody follows yet is being adopted.
    let mut slots = core.slots.lock();
    let watch = slots.entry(answer.slot).or_insert_with(|| watch::channel(None).0);
    watch.send_if_modified(|ended| {
        let news = ended.is_none();
        if news {
            *ended = Some(Ended::told(answer));
        }
        news
    });
}

/// Does work that blocks off the async threads.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> impl Future<Output = Result<T>> {
    let done = component::blocking(work);
    async move { done.await.map_err(std::io::Error::other).doing(|| "wait for a thread")? }
}
