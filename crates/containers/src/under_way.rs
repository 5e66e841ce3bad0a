//! Processes that are set up: the shim makes one, and it is seen through its plan.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use oci_spec::runtime::LinuxResources;

use crate::cgroups::Group;
use crate::core::{Core, blocking};
use crate::error::{Doing, Result};
use crate::plan::Plan;
use crate::shim::setup::{self, Note};
use crate::shim::socket::{self, Socket};
use crate::sources::{self, Given};

/// A process that was made.
pub(crate) struct Made {
    pub(crate) pid: i32,
    /// None if it ended before it was known.
    pub(crate) pidfd: Option<OwnedFd>,
    /// Our ends of its streams.
    pub(crate) streams: [Option<OwnedFd>; 3],
    /// The master of its terminal.
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) end: Note,
}

impl Made {
    /// A process that another runtime made.
    pub(crate) fn taken(
        pid: i32,
        pidfd: Option<OwnedFd>,
        streams: [Option<OwnedFd>; 3],
        terminal: Option<OwnedFd>,
    ) -> Self {
        Self { pid, pidfd, streams, terminal, end: Note::Gone }
    }
}

/// A process that is set up.
pub(crate) struct UnderWay {
    pub(crate) socket: Socket,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    terminal: Option<OwnedFd>,
}

impl UnderWay {
    /// Takes note of what the process said; the end of its set-up.
    pub(crate) async fn hear(&mut self, note: Note) -> Result<Option<Note>> {
        match note {
            Note::Console(master) => self.terminal = Some(master),
            Note::Sync(code) => setup::go_on(&self.socket, code).await?,
            end => return Ok(Some(end)),
        }
        Ok(None)
    }
    pub(crate) fn made(self, end: Note) -> Made {
        let streams = [None, None, None];
        Made { pid: self.pid, pidfd: Some(self.pidfd), streams, terminal: self.terminal, end }
    }
}

/// Has the shim make a process, and gives it its plan.
pub(crate) async fn begin(
    core: &Arc<Core>,
    slot: u32,
    flags: u32,
    fds: Vec<OwnedFd>,
    plan: &Plan,
    given: Given,
) -> Result<UnderWay> {
    let mut given = given;
    let (ours, theirs) = socket::pair().doing(|| "make a socket")?;
    let scope = given.scope.take();
    let open = |given: Given| {
        let sources = plan.sources.clone();
        blocking(move || sources::open(&sources, given))
    };
    // Without a scope the files are opened while the process is made.
    let (opened, given) = if scope.is_none() { (Some(open(given)), None) } else { (None, Some(given)) };
    let mut all: Vec<BorrowedFd<'_>> = vec![theirs.as_fd()];
    all.extend(fds.iter().map(AsFd::as_fd));
    let (pid, pidfd) = core.spawn(slot, flags, &all).await?;
    drop(all);
    drop((theirs, fds));
    let opened = match (opened, given) {
        (Some(opened), _) => opened.await?,
        (None, given) => {
            let mut given = given.unwrap_or_default();
            if let Some(scope) = scope {
                let (group, resources) = *scope;
                given.cgroup = in_scope(group, resources, pid).await?;
            }
            open(given).await?
        }
    };
    let borrowed: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
    setup::send(&ours, plan, &borrowed).await?;
    drop(borrowed);
    drop(opened);
    Ok(UnderWay { socket: ours, pid, pidfd, terminal: None })
}

/// Makes a scope around its first process, which waits for its plan: the files by which it joins the rest.
pub(crate) async fn in_scope(
    group: Group,
    resources: Option<LinuxResources>,
    first: i32,
) -> Result<Vec<OwnedFd>> {
    blocking(move || {
        group.start(first, resources.as_ref())?;
        group.join_files_of_first()
    })
    .await
}

/// Has the shim make a process, and sees it through its plan: up to the word that it waits, or until it executes.
pub(crate) async fn run(
    core: &Arc<Core>,
    slot: u32,
    flags: u32,
    fds: Vec<OwnedFd>,
    plan: &Plan,
    given: Given,
) -> Result<Made> {
    let mut under_way = begin(core, slot, flags, fds, plan, given).await?;
    loop {
        let note = setup::next(&under_way.socket, plan).await?;
        if let Some(end) = under_way.hear(note).await? {
            return Ok(under_way.made(end));
        }
    }
}
