//! The endpoints to which a client is led. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use objects::Cidr;
use objects::backends::{Backend, Choice, Family, PortName};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::place::{Place, Protocol};
use crate::known::{Counts, Planned};
use crate::service::{Port, TCP, UDP};

/// The most clients that a port remembers.
const MAX_CLIENTS: usize = 65_536;
/// How many endpoints are tried for a connection.
pub(super) const TRIES: usize = 4;

/// The machine's view of clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The addresses of Pods, as far as they are known.
    pub(super) pods: Vec<Cidr>,
    /// The Node's own addresses, by which a balancer's source ranges tell whether the node may use it.
    pub(super) node: Vec<IpAddr>,
    /// The addresses of this machine.
    pub(super) own: BTreeSet<IpAddr>,
}

/// The places of a Service, and the clients that it remembers.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The places at which it is reached; those of node ports have no address.
    pub(super) places: Vec<(Place, Arc<Targets>)>,
    /// Its addresses, also those where nobody is reached.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// The clients that each port remembers.
    affinities: BTreeMap<(Family, PortName), Arc<Affinity>>,
}

/// The endpoints behind a place.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// Those for clients that may be led to any node.
    anywhere: Arc<[SocketAddr]>,
    /// Those for clients from outside, if they are kept to this node.
    outside: Option<Arc<[SocketAddr]>>,
    /// The clients that may come; empty for all.
    sources: Vec<Cidr>,
    affinity: Option<Arc<Affinity>>,
    /// The endpoints that serve, chosen or not: datagrams that went to others are led anew.
    pub(super) serving: Arc<[SocketAddr]>,
    turn: AtomicUsize,
}

/// The clients that stay with their endpoints.
#[derive(Debug)]
struct Affinity {
    time: Duration,
    clients: Mutex<HashMap<IpAddr, (SocketAddr, Instant)>>,
}

/// Works out how a Service is forwarded.
pub(super) fn targets(service: &Planned<'_>, made: &mut Made) -> Counts {
    let mut places = Vec::new();
    let (mut addresses, mut affinities) = (BTreeSet::new(), BTreeMap::new());
    let counts = service.ports(|port, all, choice| {
        let protocol = match port.protocol {
            TCP => Protocol::Tcp,
            UDP => Protocol::Udp,
            _ => return,
        };
        addresses.extend(port.external.iter().chain(&port.balancers).chain([&port.cluster]));
        let affinity = port.affinity.map(|seconds| {
            let time = Duration::from_secs(seconds.into());
            let name = (port.family, port.name.clone());
            let known = made.affinities.get(&name).filter(|known| known.time == time).cloned();
            let affinity = known.unwrap_or_else(|| Arc::new(Affinity { time, clients: Mutex::default() }));
            affinities.insert(name, Arc::clone(&affinity));
            affinity
        });
        Of { port, protocol, choice, serving: serving(all), affinity, places: &mut places }.put();
    });
    *made = Made { places, addresses, affinities };
    counts
}

fn serving(all: &[Backend]) -> Arc<[SocketAddr]> {
    all.iter().filter(|b| b.serving).map(at).collect()
}

fn at(backend: &Backend) -> SocketAddr {
    (backend.address, backend.port).into()
}

struct Of<'a> {
    port: &'a Port,
    protocol: Protocol,
    choice: &'a Choice<'a>,
    serving: Arc<[SocketAddr]>,
    affinity: Option<Arc<Affinity>>,
    places: &'a mut Vec<(Place, Arc<Targets>)>,
}

impl Of<'_> {
    fn put(mut self) {
        let (port, policies) = (self.port, self.port.policies);
        let list = |chosen: &Option<Vec<&Backend>>| -> Arc<[SocketAddr]> {
            chosen.iter().flatten().map(|b| at(b)).collect()
        };
        let (cluster, local) = (list(&self.choice.cluster), list(&self.choice.local));
        let inside = if policies.internal_local { &local } else { &cluster };
        self.place(port.cluster, port.port, inside, None, &[]);
        let outside = policies.external_local.then_some(&local);
        for address in &port.external {
            self.place(*address, port.port, &cluster, outside, &[]);
        }
        for address in &port.balancers {
            self.place(*address, port.port, &cluster, outside, &port.sources);
        }
        if port.node_port != 0 {
            let any = match port.family {
                Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
                Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            self.place(any, port.node_port, &cluster, outside, &[]);
        }
    }

    /// A place without endpoints is none, so that clients are refused there.
    fn place(
        &mut self,
        address: IpAddr,
        port: u16,
        anywhere: &Arc<[SocketAddr]>,
        outside: Option<&Arc<[SocketAddr]>>,
        sources: &[Cidr],
    ) {
        if anywhere.is_empty() && outside.is_none_or(|all| all.is_empty()) {
            return;
        }
        let targets = Targets {
            anywhere: Arc::clone(anywhere),
            outside: outside.cloned(),
            sources: sources.to_vec(),
            affinity: self.affinity.clone(),
            serving: Arc::clone(&self.serving),
            turn: AtomicUsize::new(fastrand::usize(..)),
        };
        self.places.push((Place { address, protocol: self.protocol, port }, Arc::new(targets)));
    }
}

impl Targets {
    /// The endpoints that are tried for a client, in their order; none if it may not come, or finds none here.
    pub(super) fn order(&self, client: IpAddr, clients: &Clients) -> Vec<SocketAddr> {
        let client = client.to_canonical();
        let own = clients.own.contains(&client);
        let contains =
            |blocks: &[Cidr], address: IpAddr| blocks.iter().any(|block| block.contains(Cidr::from(address)));
        if !self.sources.is_empty() {
            // The machine speaks to itself from the very address that it speaks to.
            let may = contains(&self.sources, client)
                || own && clients.node.iter().any(|address| contains(&self.sources, *address));
            if !may {
                return Vec::new();
            }
        }
        let inside = own || contains(&clients.pods, client);
        let list = match &self.outside {
            Some(outside) if !inside => outside,
            _ => &self.anywhere,
        };
        let known = self.affinity.as_ref().and_then(|affinity| affinity.of(client));
        let known = known.filter(|target| list.contains(target));
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let others = (0..list.len()).map(|i| list[first.wrapping_add(i) % list.len()]);
        known.into_iter().chain(others.filter(|target| Some(*target) != known)).take(TRIES).collect()
    }

    /// Remembers the endpoint to which a client was led.
    pub(super) fn led(&self, client: IpAddr, to: SocketAddr) {
        if let Some(affinity) = &self.affinity {
            affinity.remember(client.to_canonical(), to);
        }
    }
}

impl Affinity {
    fn of(&self, client: IpAddr) -> Option<SocketAddr> {
        let clients = self.clients.lock();
        clients.get(&client).filter(|(_, since)| since.elapsed() < self.time).map(|(to, _)| *to)
    }

    fn remember(&self, client: IpAddr, to: SocketAddr) {
        let mut clients = self.clients.lock();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, (_, since)| since.elapsed() < self.time);
        }
        if clients.len() < MAX_CLIENTS || clients.contains_key(&client) {
            clients.insert(client, (to, Instant::now()));
        }
    }
}
