//! The part of the table that a Service asks for: elements of maps, and the chains to which they lead. Pure.

use std::net::IpAddr;

use client::Key;
use compact_str::{CompactString as Text, ToCompactString};
use objects::backends::{Backend, Choice, Family, Viewpoint};

use crate::chain::{Chain, Fixed};
use crate::known::{Counts, Planned};
use crate::layout::{Destination, LOCAL, Set, What, address, endpoint, hash, zero};
use crate::service::{Port, UDP};

/// The value of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// It is an element of a set.
    Nothing,
    /// Bytes of a map.
    Bytes(Box<[u8]>),
    /// The chain that goes on.
    Goto(Text),
    /// Packets go nowhere.
    Drop,
}

/// An element of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) set: Set,
    pub(crate) key: Box<[u8]>,
    pub(crate) held: Held,
}

/// The endpoints to which a destination may have been led before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// The destination; a node port has the address zero.
    pub(crate) to: Destination,
    /// The endpoints that serve, in order.
    pub(crate) serving: Vec<(IpAddr, u16)>,
}

/// All that a Service asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) items: Vec<Item>,
    /// The chains to which items lead, and those behind them.
    pub(crate) chains: Vec<Chain>,
    /// The destinations of protocols whose connections have no end that the kernel would see.
    pub(crate) routes: Vec<Route>,
}

/// Plans a Service's part.
pub(crate) fn plan(service: &Planned<'_>) -> (Part, Counts) {
    let mut part = Part::default();
    let counts = service.ports(|port, all, choice| {
        if port.protocol == UDP {
            part.route(port, all);
        }
        Planner { part: &mut part, key: service.key, port, from: service.from }.port(choice);
    });
    // Ports of one Service share addresses and chains.
    part.items.sort_by(|a, b| (a.set, &a.key).cmp(&(b.set, &b.key)));
    part.items.dedup_by(|b, a| (a.set, &a.key) == (b.set, &b.key));
    (part, counts)
}

impl Part {
    fn route(&mut self, port: &Port, all: &[Backend]) {
        let mut serving: Vec<_> = all.iter().filter(|b| b.serving).map(|b| (b.address, b.port)).collect();
        serving.sort_unstable();
        let addresses = port.external.iter().chain(&port.balancers).chain([&port.cluster]);
        for at in addresses {
            let to = Destination { address: *at, protocol: port.protocol, port: port.port };
            self.routes.push(Route { to, serving: serving.clone() });
        }
        if port.node_port != 0 {
            let to = node_port(port);
            self.routes.push(Route { to, serving });
        }
    }

    fn put(&mut self, family: Family, what: What, key: Vec<u8>, held: Held) {
        self.items.push(Item { set: Set { family, what }, key: key.into(), held });
    }

    /// Leads packets to a chain.
    fn lead(&mut self, family: Family, what: What, to: Destination, chain: &Chain) {
        self.put(family, what, to.key(), Held::Goto(chain.to_compact_string()));
        self.need(chain);
    }

    fn need(&mut self, chain: &Chain) {
        if !matches!(chain, Chain::Fixed(_)) && !self.chains.contains(chain) {
            for next in chain.next() {
                self.need(next);
            }
            self.chains.push(chain.clone());
        }
    }
}

fn node_port(port: &Port) -> Destination {
    Destination { address: zero(port.family), protocol: port.protocol, port: port.node_port }
}

/// The hash of a Service's port, by which names of its own chains and sets tell it.
fn port_hash(key: &Key, port: &Port) -> u64 {
    hash(&[
        key.namespace.as_bytes(),
        key.name.as_bytes(),
        port.name.name.as_bytes(),
        port.name.protocol.as_bytes(),
    ])
}

struct Planner<'a> {
    part: &'a mut Part,
    key: &'a Key,
    port: &'a Port,
    from: Viewpoint<'a>,
}

impl Planner<'_> {
    fn port(mut self, choice: &Choice<'_>) {
        let port = self.port;
        let (family, policies) = (port.family, port.policies);
        self.part.put(family, What::ClusterAddresses, address(port.cluster), Held::Nothing);
        let at = |address| Destination { address, protocol: port.protocol, port: port.port };
        let outside: Vec<Destination> =
            port.external.iter().chain(&port.balancers).copied().map(at).collect();
        let node = (port.node_port != 0).then(|| node_port(port));
        if !choice.any {
            let reject = Chain::Fixed(Fixed::Reject);
            for to in outside.into_iter().chain(node).chain([at(port.cluster)]) {
                self.part.lead(family, What::Refused, to, &reject);
            }
            return;
        }
        let cluster = choice.cluster.as_deref().unwrap_or_default();
        let local = choice.local.as_deref().unwrap_or_default();
        self.hairpins(&choice.reachable);
        self.members(cluster, local);

        let to = at(port.cluster);
        let inside = if policies.internal_local { local } else { cluster };
        match self.pick(false, policies.internal_local, inside.len()) {
            Some(chain) => self.part.lead(family, What::Services, to, &chain),
            None => self.part.put(family, What::Services, to.key(), Held::Drop),
        }
        // With affinity all addresses lead to the endpoints of the cluster address.
        let shared = port.affinity.is_some();
        let mut counted = vec![to];
        if !shared {
            counted.extend(outside.iter().copied().chain(node));
        }
        for to in counted {
            self.endpoints(to, 0, cluster);
            self.endpoints(to, LOCAL, local);
        }
        for at in &port.external {
            if let Some(chain) = self.external(false, cluster.len(), local.len()) {
                let to = Destination { address: *at, ..to };
                self.part.lead(family, What::Services, to, &chain);
            }
        }
        for at in &port.balancers {
            if let Some(mut chain) = self.external(false, cluster.len(), local.len()) {
                if !port.sources.is_empty() {
                    let (blocks, next) = (port.sources.clone(), Box::new(chain));
                    chain = Chain::Sources { family, address: *at, blocks, next };
                }
                let to = Destination { address: *at, ..to };
                self.part.lead(family, What::Services, to, &chain);
            }
        }
        if let Some(to) = node
            && let Some(chain) = self.external(true, cluster.len(), local.len())
        {
            self.part.lead(family, What::Services, to, &chain);
        }
    }

    /// The chain that picks one of so many endpoints, if there are any.
    fn pick(&self, node_port: bool, local: bool, count: usize) -> Option<Chain> {
        let (family, count) = (self.port.family, u32::try_from(count).unwrap_or(LOCAL - 1));
        (count > 0).then(|| match self.port.affinity {
            None => Chain::Pick { family, node_port, local, count },
            Some(seconds) => Chain::Affine {
                family,
                of: Destination {
                    address: self.port.cluster,
                    protocol: self.port.protocol,
                    port: self.port.port,
                },
                port: port_hash(self.key, self.port),
                seconds,
                local,
                count,
            },
        })
    }

    /// The chain for traffic from outside.
    fn external(&self, node_port: bool, cluster: usize, local: usize) -> Option<Chain> {
        let cluster = Box::new(self.pick(node_port, false, cluster)?);
        Some(if self.port.policies.external_local {
            let local = self.pick(node_port, true, local).map(Box::new);
            Chain::External { family: self.port.family, cluster, local }
        } else {
            Chain::Masquerade(cluster)
        })
    }

    fn endpoints(&mut self, of: Destination, first: u32, backends: &[&Backend]) {
        for (number, backend) in (first..).zip(backends) {
            let at = endpoint(backend.address, backend.port);
            self.part.put(self.port.family, What::Endpoints, of.numbered(number), Held::Bytes(at.into()));
        }
    }

    /// Endpoints that may send to themselves: those of this node, and those of which nobody knows the node.
    fn hairpins(&mut self, reachable: &[&Backend]) {
        for backend in reachable.iter().filter(|b| b.node.is_empty() || b.node == self.from.node) {
            let at = address(backend.address);
            self.part.put(self.port.family, What::Hairpins, [&at[..], &at[..]].concat(), Held::Nothing);
        }
    }

    fn members(&mut self, cluster: &[&Backend], local: &[&Backend]) {
        let port = self.port;
        if port.affinity.is_none() {
            return;
        }
        let of = Destination { address: port.cluster, protocol: port.protocol, port: port.port };
        for (first, backends) in [(0, cluster), (LOCAL, local)] {
            for backend in backends {
                let key = of.member(first, backend.address, backend.port);
                self.part.put(port.family, What::Members, key, Held::Nothing);
            }
        }
    }
}
