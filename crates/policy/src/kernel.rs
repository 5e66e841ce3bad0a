//! The thread that changes the kernel's table: commits block, and one follows the other.

use std::sync::mpsc::SyncSender;
use std::time::Instant;

use component::{Shutdown, Worker};
use netlink::conntrack::Connections;
use netlink::nft::Filter;

use crate::contents::Size;
use crate::enforcer::{Enforcer, Event};
use crate::gate::{Admission, Call};

/// How closely the table is looked at before a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is as it was left.
    Not,
    /// Whether it is there.
    There,
    /// At every element.
    Whole,
}

/// Work for the thread.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) events: Vec<Event>,
    pub(crate) calls: Vec<Call>,
    pub(crate) look: Look,
}

/// The outcome of a commit.
#[derive(Debug)]
pub(crate) struct Done {
    /// Containers whose Pods or policies are not known yet.
    pub(crate) unready: Vec<Admission>,
    /// The seconds for which each container that was let in had waited.
    pub(crate) admitted: Vec<f64>,
    pub(crate) size: Size,
    pub(crate) policies: usize,
    /// The seconds that it took.
    pub(crate) seconds: f64,
}

/// Gives work to the thread.
pub(crate) type Committer = Worker<Work, Result<Done, netlink::Error>>;

/// Starts the thread for the network namespace of the caller's thread.
pub(crate) fn start(enforcer: Enforcer, shutdown: &Shutdown) -> Result<Committer, netlink::Error> {
    let (mut filter, connections) = (Filter::open()?, Connections::open()?);
    // A kernel without nftables tells here.
    filter.tables(enforcer.table.family)?;
    let mut thread = Thread { enforcer, filter, connections };
    Ok(Worker::start(shutdown, move |work| thread.commit(work)))
}

struct Thread {
    enforcer: Enforcer,
    filter: Filter,
    connections: Connections,
}

impl Thread {
    fn commit(&mut self, work: Work) -> Result<Done, netlink::Error> {
        let began = Instant::now();
        for event in work.events {
            self.enforcer.apply(event);
        }
        let (unready, ready) = self.take(work.calls);
        match work.look {
            Look::Not => {}
            Look::There => {
                if !self.enforcer.is_there(&mut self.filter)? {
                    tracing::warn!("somebody changed the table of network policies: it is written again");
                    self.enforcer.doubt();
                }
            }
            Look::Whole => self.enforcer.doubt(),
        }
        let changes = self.enforcer.sync(&mut self.filter)?;
        if !changes.is_empty() {
            tracing::debug!(?changes, "network policies are in force");
        }
        if self.enforcer.take_stricter(changes)
            && let Err(error) = self.enforcer.forget_forbidden(&mut self.connections)
        {
            tracing::warn!(%error, "cannot forget flows that policies forbid");
        }
        let mut admitted = Vec::new();
        for (since, reply) in ready {
            admitted.push(since.elapsed().as_secs_f64());
            // One who gave up has told that the container is gone.
            let _ = reply.try_send(());
        }
        Ok(Done {
            unready,
            admitted,
            size: self.enforcer.size(),
            policies: self.enforcer.policies(),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// Takes calls; returns those that must wait, and those to answer after the commit.
    fn take(&mut self, calls: Vec<Call>) -> (Vec<Admission>, Vec<(Instant, SyncSender<()>)>) {
        let (mut unready, mut ready) = (Vec::new(), Vec::new());
        for call in calls {
            match call {
                Call::Adopt(one) => self.enforcer.apply(Event::Attached(one)),
                Call::Release(container) => self.enforcer.apply(Event::Released(container)),
                Call::Admit(one) if one.is_over() => {}
                Call::Admit(one) => {
                    let listed = one.listed.as_ref().map(|(_, listed)| listed.as_slice());
                    if listed.is_some_and(|listed| self.enforcer.knows(&one.attached, listed)) {
                        self.enforcer.apply(Event::Attached(one.attached));
                        ready.push((one.began, one.reply));
                    } else {
                        unready.push(one);
                    }
                }
            }
        }
        (unready, ready)
    }
}
