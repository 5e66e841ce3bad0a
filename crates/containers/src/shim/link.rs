//! A connection to a shim: requests with their answers, and news of ended processes.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use component::Shutdown;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::socket::{self, Received, Socket};
use super::wire::{answer, request, state};

/// An answer, or news of a process.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) slot: u32,
    /// The error's number of an answer, or an ended process's status as wait(2) has it.
    pub(crate) error: i32,
    pub(crate) pid: i32,
    pub(crate) state: u32,
    /// The step of a plan that failed after the start.
    pub(crate) place: u32,
    pub(crate) seconds: i64,
    pub(crate) nanos: i64,
    pub(crate) fd: Option<OwnedFd>,
    /// The processes of a list.
    pub(crate) items: Vec<Answer>,
}

impl Answer {
    /// Reads a message: its kind, tag and content.
    fn read(received: Received) -> Option<(u32, u32, Self)> {
        let [kind, tag, slot, error, pid, state, place] = socket::words::<7>(&received.bytes)?;
        let figure = |at: usize| Some(i64::from_le_bytes(received.bytes.get(at..at + 8)?.try_into().ok()?));
        let read = Self {
            slot,
            error: error as i32,
            pid: pid as i32,
            state,
            place,
            seconds: figure(32)?,
            nanos: figure(40)?,
            fd: received.fds.into_iter().next(),
            items: Vec::new(),
        };
        (received.bytes.len() == answer::LEN).then_some((kind, tag, read))
    }
    /// Whether the process ended.
    pub(crate) fn ended(&self) -> bool {
        self.state & 15 == state::EXITED
    }
}

/// Those who wait for answers.
#[derive(Debug, Default)]
struct Waiting {
    next: u32,
    answers: HashMap<u32, (oneshot::Sender<Answer>, Vec<Answer>)>,
    /// Whether the connection is over.
    over: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Arc<Socket>,
    waiting: Arc<Mutex<Waiting>>,
    over: watch::Receiver<bool>,
}

/// A request; fields that an operation does not have are 0.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) op: u32,
    pub(crate) slot: u32,
    pub(crate) flags: u32,
    pub(crate) figures: [u32; 2],
    pub(crate) fds: &'a [BorrowedFd<'a>],
}

impl Link {
    /// Connects to the shim that listens at a path. News of ended processes go into `news`.
    pub(crate) fn connect(path: &Path, news: mpsc::Sender<Answer>, shutdown: &Shutdown) -> io::Result<Self> {
        let socket = Arc::new(Socket::connect(path)?);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (tell, over) = watch::channel(false);
        let reader = (Arc::clone(&socket), Arc::clone(&waiting), shutdown.clone());
        shutdown.spawn_one(async move {
            let (socket, waiting, shutdown) = reader;
            tokio::select! {
                () = read(&socket, &waiting, &news) => {}
                () = shutdown.wait() => {}
            }
            let mut waiting = waiting.lock();
            waiting.over = true;
            waiting.answers.clear();
            let _ = tell.send(true);
        });
        Ok(Self { socket, waiting, over })
    }

    /// Asks, and waits for the answer; none if the shim is gone.
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Option<Answer> {
        let (tell, answered) = oneshot::channel();
        let tag = {
            let mut waiting = self.waiting.lock();
            if waiting.over {
                return None;
            }
            waiting.next = waiting.next.wrapping_add(1);
            let tag = waiting.next;
            waiting.answers.insert(tag, (tell, Vec::new()));
            tag
        };
        let bytes = socket::message(&[ask.op, tag, ask.slot, ask.flags, ask.figures[0], ask.figures[1]]);
        debug_assert_eq!(bytes.len(), request::LEN);
        if self.socket.send(&bytes, ask.fds).await.is_err() {
            self.waiting.lock().answers.remove(&tag);
            return None;
        }
        answered.await.ok()
    }

    /// Resolves once the connection is over.
    pub(crate) async fn over(&self) {
        let _ = self.over.clone().wait_for(|over| *over).await;
    }
}

/// Reads until the connection is over.
async fn read(socket: &Socket, waiting: &Mutex<Waiting>, news: &mpsc::Sender<Answer>) {
    while let Ok(received) = socket.receive().await {
        if received.bytes.is_empty() {
            return;
        }
        let Some((kind, tag, read)) = Answer::read(received) else { return };
        match kind {
            // Its reader never waits for this connection.
            answer::EXITED => {
                let _ = news.send(read).await;
            }
            answer::ITEM => {
                if let Some((_, items)) = waiting.lock().answers.get_mut(&tag) {
                    items.push(read);
                }
            }
            _ => {
                if let Some((tell, items)) = waiting.lock().answers.remove(&tag) {
                    let _ = tell.send(Answer { items, ..read });
                }
            }
        }
    }
}
