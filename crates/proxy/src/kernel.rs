//! The thread that changes the kernel's table: commits block, and one follows the other.

use std::collections::BTreeMap;
use std::time::Instant;

use client::Key;
use component::Shutdown;
use netlink::conntrack::Connections;
use netlink::nft::Filter;
use tokio::sync::{mpsc, oneshot};

use crate::metrics::Metrics;
use crate::proxier::{Event, Place, Proxier};
use crate::settings::Settings;

/// How closely the table is looked at before a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Settings and place, if they changed.
    pub(crate) settings: Option<(Settings, Place)>,
    pub(crate) look: Look,
}

/// The outcome of a commit.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) health_ports: BTreeMap<Key, (u16, usize)>,
    pub(crate) without_local: [usize; 2],
    /// The seconds that it took.
    pub(crate) seconds: f64,
}

type Reply = oneshot::Sender<Result<Done, netlink::Error>>;

/// Gives work to the thread.
pub(crate) struct Committer(mpsc::Sender<(Work, Reply)>);

impl Committer {
    /// Starts the thread in the network namespace of the caller's thread. It ends with the committer.
    pub(crate) fn start(
        proxier: Proxier,
        metrics: Metrics,
        shutdown: &Shutdown,
    ) -> Result<Self, netlink::Error> {
        let (filter, connections) = (Filter::open()?, Connections::open()?);
        let (sender, receiver) = mpsc::channel(1);
        let guard = shutdown.clone();
        let thread = Thread { proxier, filter, connections, metrics };
        shutdown.spawn(async move {
            let _ = tokio::task::spawn_blocking(move || guard.guard(|| thread.run(receiver))).await;
        });
        Ok(Self(sender))
    }

    /// Does work; `None` if the thread has ended.
    pub(crate) async fn work(&self, work: Work) -> Option<Result<Done, netlink::Error>> {
        let (reply, done) = oneshot::channel();
        self.0.send((work, reply)).await.ok()?;
        done.await.ok()
    }
}

struct Thread {
    proxier: Proxier,
    filter: Filter,
    connections: Connections,
    metrics: Metrics,
}

impl Thread {
    fn run(mut self, mut works: mpsc::Receiver<(Work, Reply)>) {
        while let Some((work, reply)) = works.blocking_recv() {
            let _ = reply.send(self.commit(work));
        }
    }

    fn commit(&mut self, work: Work) -> Result<Done, netlink::Error> {
        let began = Instant::now();
        if let Some((settings, place)) = work.settings {
            self.proxier.set(settings, place);
        }
        for event in work.events {
            self.proxier.apply(event);
        }
        match work.look {
            Look::Not => {}
            Look::There => {
                if !self.proxier.is_there(&mut self.filter)? {
                    tracing::warn!("somebody changed the table of Services: it is written again");
                    self.proxier.doubt();
                }
            }
            Look::Whole => self.proxier.doubt(),
        }
        let changes = self.proxier.sync(&mut self.filter)?;
        if !changes.is_empty() {
            tracing::debug!(?changes, "Services are in force");
        }
        let seconds = began.elapsed().as_secs_f64();
        let began = Instant::now();
        match self.proxier.forget_stale(&mut self.connections) {
            Ok(None) => {}
            Ok(Some(count)) => self.metrics.forgot(count, began.elapsed().as_secs_f64()),
            Err(error) => tracing::warn!(%error, "cannot forget connections to endpoints that are gone"),
        }
        Ok(Done {
            health_ports: self.proxier.health_ports(),
            without_local: self.proxier.without_local(),
            seconds,
        })
    }
}
