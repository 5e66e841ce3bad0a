//! The places at which the node listens.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use component::Shutdown;
use parking_lot::RwLock;
use rustix::net::sockopt::{set_ip_freebind, set_ipv6_freebind};
use tokio::net::{TcpListener, TcpSocket};

use super::flows::Flows;
use super::limit::Limit;
use super::open::{Open, Shared};
use super::place::{Place, Protocol};
use super::targets::{Clients, Targets};
use super::{tcp, udp};

/// The most connections that are led on at once, of all clients and of one; and as many flows of datagrams.
const MOST: (usize, usize) = (16_384, 4096);
const BACKLOG: u32 = 1024;

/// All places that are open.
pub(super) struct Listeners {
    open: BTreeMap<Place, Arc<Open>>,
    /// The places that could not be opened, which was told.
    failed: BTreeSet<Place>,
    shared: Shared,
}

impl Listeners {
    pub(super) fn new(clients: Arc<RwLock<Clients>>, shutdown: &Shutdown) -> Self {
        let limit = || Limit::new(MOST.0, MOST.1);
        let (connections, datagrams) = (limit(), limit());
        let shared = Shared { clients, connections, datagrams, shutdown: shutdown.clone() };
        Self { open: BTreeMap::new(), failed: BTreeSet::new(), shared }
    }

    /// Opens and closes places, until these are open alone. One that is in use is tried again at the next call.
    pub(super) async fn set(&mut self, wanted: BTreeMap<Place, Arc<Targets>>) {
        let gone: Vec<Place> =
            self.open.keys().filter(|place| !wanted.contains_key(place)).copied().collect();
        for place in gone {
            if let Some(open) = self.open.remove(&place) {
                open.shutdown.finish().await;
                open.flows.clear();
            }
        }
        let failed = std::mem::take(&mut self.failed);
        for (place, targets) in wanted {
            if let Some(open) = self.open.get(&place) {
                open.flows.keep(&targets.serving);
                *open.targets.write() = targets;
                continue;
            }
            match self.open(place, targets) {
                Ok(open) => drop(self.open.insert(place, open)),
                Err(error) => {
                    if !failed.contains(&place) {
                        tracing::warn!(address = %place.address, port = place.port, protocol = ?place.protocol, %error,
                            "a Service cannot be reached here: its port cannot be opened; it is tried again");
                    }
                    self.failed.insert(place);
                }
            }
        }
    }

    fn open(&self, place: Place, targets: Arc<Targets>) -> io::Result<Arc<Open>> {
        let at = SocketAddr::from((place.address, place.port));
        let open = Arc::new(Open {
            at,
            targets: RwLock::new(targets),
            shared: self.shared.clone(),
            shutdown: self.shared.shutdown.child(),
            flows: Flows::default(),
        });
        match place.protocol {
            Protocol::Tcp => {
                let task = tcp::serve(listener(at)?, Arc::clone(&open));
                open.shutdown.spawn(task);
            }
            Protocol::Udp => {
                let task = udp::serve(udp::socket(at)?, Arc::clone(&open));
                open.shutdown.spawn(task);
            }
        }
        Ok(open)
    }
}

fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() {
        let socket = TcpSocket::new_v4()?;
        set_ip_freebind(&socket, true)?;
        socket
    } else {
        let socket = TcpSocket::new_v6()?;
        set_ipv6_freebind(&socket, true)?;
        socket
    };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}
