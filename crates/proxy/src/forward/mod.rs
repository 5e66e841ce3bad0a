//! Services without a packet filter: the node takes connections itself, and leads them on.
//!
//! Addresses of Services are made the node's own by routes of the kind `local`, so that their packets reach its
//! sockets, and those that nobody listens for are refused. An endpoint sees the node's address instead of the client's,
//! and a Service that has endpoints, but none that a client may use, refuses it instead of being silent: both are
//! differences to the packet filter. SCTP is not forwarded.

mod flows;
mod limit;
mod listen;
mod open;
mod place;
mod routes;
mod targets;
mod tcp;
mod udp;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use client::Key;
use component::Shutdown;
use netlink::{Error, Routing};
use objects::Cidr;
use parking_lot::RwLock;

use self::listen::Listeners;
use self::place::Place as At;
use self::routes::Routes;
use self::targets::{Clients, Made, Targets, targets};
use crate::known::{Event, Known, Place};
use crate::settings::{LocalTraffic, Settings};

/// Leads connections to Services on.
pub struct Forwarder {
    known: Known<Made>,
    settings: Settings,
    routing: Routing,
    routes: Routes,
    listeners: Listeners,
    clients: Arc<RwLock<Clients>>,
}

impl Forwarder {
    /// A forwarder without Services. `owner` tells its routes from those of others.
    ///
    /// # Errors
    /// If the kernel does not let itself be asked.
    pub fn new(owner: &str, settings: Settings, place: Place, shutdown: &Shutdown) -> Result<Self, Error> {
        let clients = Arc::default();
        Ok(Self {
            known: Known::new(place),
            settings,
            routing: Routing::open()?,
            routes: Routes::new(owner),
            listeners: Listeners::new(Arc::clone(&clients), shutdown),
            clients,
        })
    }

    /// Takes a change. It works at the next [`Self::sync`].
    pub fn apply(&mut self, event: Event) {
        self.known.apply(event);
    }

    /// Changes the settings or the node's zone.
    pub fn set(&mut self, settings: Settings, place: Place) {
        self.known.set_place(place);
        self.settings = settings;
    }

    /// Makes the node listen for what Services ask for now.
    ///
    /// # Errors
    /// If the kernel refuses. The next call tries again.
    pub async fn sync(&mut self) -> Result<(), Error> {
        self.known.plan(targets);
        let own: BTreeSet<IpAddr> =
            self.routing.addresses()?.into_iter().map(|a| a.address).filter(is_reachable).collect();
        let wanted = self.wanted(&own);
        let blocks = self.blocks(&own);
        self.routes.write(&mut self.routing, blocks)?;
        *self.clients.write() = Clients {
            pods: match &self.settings.local_traffic {
                LocalTraffic::Blocks(blocks) => blocks.clone(),
                // The way by which a connection came is not known here.
                _ => Vec::new(),
            },
            node: self.settings.node_addresses.clone(),
            own,
        };
        self.listeners.set(wanted).await;
        Ok(())
    }

    /// The health-check ports of Services, with the number of endpoints on this node that take new
    /// connections.
    pub fn health_ports(&self) -> BTreeMap<Key, (u16, usize)> {
        self.known.health_ports()
    }

    /// How many ports that are to lead to endpoints of this node alone have none: by the internal and the external
    /// policy.
    pub fn without_local(&self) -> [usize; 2] {
        self.known.without_local()
    }

    /// The places at which the node listens. A node port is open at each of the node's own addresses that may have it.
    fn wanted(&self, own: &BTreeSet<IpAddr>) -> BTreeMap<At, Arc<Targets>> {
        let mut wanted = BTreeMap::new();
        for (at, targets) in self.known.made().flat_map(|made| &made.places) {
            if !at.address.is_unspecified() {
                wanted.insert(*at, Arc::clone(targets));
                continue;
            }
            for address in own.iter().filter(|a| a.is_ipv4() == at.address.is_ipv4() && self.has_ports(**a)) {
                wanted.insert(At { address: *address, ..*at }, Arc::clone(targets));
            }
        }
        wanted
    }

    /// Whether node ports are open at an address of this node.
    fn has_ports(&self, address: IpAddr) -> bool {
        if address.is_loopback() && !self.settings.localhost_node_ports {
            return false;
        }
        let blocks = self.settings.node_port_addresses.as_ref();
        blocks.is_none_or(|all| all.iter().any(|block| block.contains(Cidr::from(address))))
    }

    /// The blocks that are to be the node's own: the ranges of Services, and the addresses outside of these.
    fn blocks(&self, own: &BTreeSet<IpAddr>) -> BTreeSet<Cidr> {
        let ranges = &self.settings.service_ranges;
        let mut blocks: BTreeSet<Cidr> = ranges.iter().copied().collect();
        let addresses = self.known.made().flat_map(|made| &made.addresses);
        let others = addresses.filter(|a| !own.contains(a)).map(|a| Cidr::from(*a));
        blocks.extend(others.filter(|one| !ranges.iter().any(|range| range.contains(*one))));
        blocks
    }
}

/// Whether a connection to an address of this node says by it which link is meant.
fn is_reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(a) => !a.is_unicast_link_local(),
    }
}

/// Removes the routes of a forwarder; none is no error.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn remove(owner: &str) -> Result<(), Error> {
    Routes::new(owner).write(&mut Routing::open()?, BTreeSet::new())
}
