//! The thread that changes the kernel's table: commits block, and one follows the other.

use std::collections::BTreeMap;
use std::time::Instant;

use client::Key;
use component::{Shutdown, Worker};
use netlink::conntrack::Connections;
use netlink::nft::Filter;

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

/// Gives work to the thread.
pub(crate) type Committer = Worker<Work, Result<Done, netlink::Error>>;

/// Starts the thread for the network namespace of the caller's thread.
pub(crate) fn start(
    proxier: Proxier,
    metrics: Metrics,
    shutdown: &Shutdown,
) -> Result<Committer, netlink::Error> {
    let (filter, connections) = (Filter::open()?, Connections::open()?);
    let mut thread = Thread { proxier, filter, connections, metrics };
    Ok(Worker::start(shutdown, move |work| thread.commit(work)))
}

struct Thread {
    proxier: Proxier,
    filter: Filter,
    connections: Connections,
    metrics: Metrics,
}

impl Thread {
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
