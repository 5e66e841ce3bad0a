//! The runtime's side of a process's set-up: it sends the plan, does what the process asks for, and learns how it went.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::socket::{self, Socket};
use super::wire::{self, note};
use super::{launch, socket::Received};
use crate::error::{Doing, Error, Result};
use crate::plan::Plan;

/// News of a process that is set up.
#[derive(Debug)]
pub(crate) enum Note {
    /// It asks for something, and waits.
    Sync(u32),
    /// It is there.
    Ready,
    /// A terminal's master.
    Console(OwnedFd),
    /// It let go of the socket: it executed its program, or ended.
    Gone,
}

/// Sends a plan and its descriptors.
pub(crate) async fn send(socket: &Socket, plan: &Plan, fds: &[BorrowedFd<'_>]) -> Result<()> {
    if plan.bytes.len() > wire::MAX_PLAN || fds.len() > wire::MAX_FDS {
        return Err(Error::Invalid(format!(
            "the process has too much: {} bytes of arguments, environment and mounts, and {} mounts",
            plan.bytes.len(),
            fds.len()
        )));
    }
    let file = launch::sealed(c"plan", &plan.bytes).doing(|| "make a memory file")?;
    let head = socket::message(&[plan.bytes.len() as u32, fds.len() as u32]);
    let sent = async {
        socket.send(&head, &[file.as_fd()]).await?;
        for part in fds.chunks(wire::FDS_A_MESSAGE) {
            socket.send(&[0; 4], part).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    match sent.await {
        // It has ended already, which is heard next.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent.doing(|| "send its plan to a new process"),
    }
}

/// Waits for news. A failed step is an error in the plan's words.
pub(crate) async fn next(socket: &Socket, plan: &Plan) -> Result<Note> {
    let Received { bytes, fds } = match socket.receive().await {
        Ok(received) => received,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => Received::default(),
        Err(e) => return Err(Error::io("hear of a new process", e)),
    };
    match socket::words::<4>(&bytes) {
        None if bytes.is_empty() => Ok(Note::Gone),
        Some([note::SYNC, code, ..]) => Ok(Note::Sync(code)),
        Some([note::READY, ..]) => Ok(Note::Ready),
        Some([note::FAILED, place, errno, _]) => Err(plan.failure(place, errno as i32)),
        Some([note::CONSOLE, ..]) => match fds.into_iter().next() {
            Some(master) => Ok(Note::Console(master)),
            None => Err(Error::Invalid("a new process sent no terminal".to_owned())),
        },
        _ => Err(Error::Invalid("a new process said something unknown".to_owned())),
    }
}

/// Tells a process that waits that it may go on.
pub(crate) async fn go_on(socket: &Socket, code: u32) -> Result<()> {
    socket.send(&code.to_le_bytes(), &[]).await.doing(|| "let a new process go on")
}
