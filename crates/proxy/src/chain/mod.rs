//! The chains of the table. Most are shared: a chain that picks one of three endpoints serves every port that has
//! three, since it finds them by the packet's own destination. A chain's name tells all that its rules depend on but
//! for the settings.

mod fixed;
mod words;

use std::fmt;

use netlink::nft::{Expression, Register, Verdict};
use objects::Cidr;
use objects::backends::Family;

pub(crate) use fixed::{BASES, Fixed};
use words::{Slots, go, in_block, key, mark, source, source_is_here};

use crate::layout::{Destination, LOCAL, Set, What, address, digit, hash};
use crate::settings::{LocalTraffic, Settings};

/// A chain to which verdicts of maps, or other chains, lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chain {
    /// A chain that is always there.
    Fixed(Fixed),
    /// Picks one of the endpoints of the packet's destination by chance.
    Pick {
        family: Family,
        /// Whether the packet came to a node port.
        node_port: bool,
        /// Whether endpoints on this node are picked from.
        local: bool,
        count: u32,
    },
    /// As `Pick`, but a client that was led to an endpoint comes there again.
    Affine {
        family: Family,
        /// The destination whose endpoints are picked from: the cluster address of the port.
        of: Destination,
        /// The hash of the Service's port.
        port: u64,
        seconds: u32,
        local: bool,
        count: u32,
    },
    /// Asks for another source address and goes on.
    Masquerade(Box<Chain>),
    /// Traffic from outside to a port whose policy is `Local`: that of the cluster itself takes the short way to any
    /// endpoint, all other goes to those of this node, or nowhere.
    External { family: Family, cluster: Box<Chain>, local: Option<Box<Chain>> },
    /// Lets some clients alone through to a balancer's address.
    Sources { family: Family, address: std::net::IpAddr, blocks: Vec<Cidr>, next: Box<Chain> },
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(fixed) => f.write_str(fixed.name()),
            Self::Pick { family, node_port, local, count } => {
                let node = if *node_port { "node-" } else { "" };
                let local = if *local { "local" } else { "pick" };
                write!(f, "{node}{local}{}-{count}", digit(*family))
            }
            Self::Affine { family, port, local, count, seconds, .. } => {
                let local = if *local { "local-" } else { "" };
                write!(f, "{local}affine{}-{port:016x}-{seconds}-{count}", digit(*family))
            }
            Self::Masquerade(next) => write!(f, "masquerade-{next}"),
            Self::External { cluster, local: Some(local), .. } => write!(f, "external-{cluster}-{local}"),
            Self::External { cluster, local: None, .. } => write!(f, "external-{cluster}-drop"),
            Self::Sources { family, address: at, blocks, next } => {
                let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
                let hash = hash(&[&address(*at), blocks.join(",").as_bytes()]);
                write!(f, "sources{}-{hash:016x}-{next}", digit(*family))
            }
        }
    }
}

impl Chain {
    /// The chains to which this one leads.
    pub(crate) fn next(&self) -> impl Iterator<Item = &Chain> {
        let (first, second) = match self {
            Self::Fixed(_) | Self::Pick { .. } | Self::Affine { .. } => (None, None),
            Self::Masquerade(next) | Self::Sources { next, .. } => (Some(next), None),
            Self::External { cluster, local, .. } => (Some(cluster), local.as_ref()),
        };
        first.into_iter().chain(second).map(|chain| &**chain)
    }

    /// The set that the chain fills.
    pub(crate) fn affinity(&self) -> Option<Set> {
        match self {
            Self::Affine { family, port, seconds, .. } => {
                Some(Set { family: *family, what: What::Affinity { port: *port, seconds: *seconds } })
            }
            _ => None,
        }
    }

    /// Gives away the rules, one after the other.
    pub(crate) fn rules(&self, settings: &Settings, emit: &mut dyn FnMut(&[Expression<'_>])) {
        match self {
            Self::Fixed(fixed) => fixed.rules(settings, emit),
            Self::Pick { family, node_port, local, count } => {
                pick(*family, *node_port, *local, *count, emit);
            }
            Self::Affine { .. } => self.affine(emit),
            Self::Masquerade(next) => {
                emit(&mark(settings));
                emit(&[go(&next.to_string())]);
            }
            Self::External { family, cluster, local } => {
                let cluster = cluster.to_string();
                short_way(*family, settings, &cluster, emit);
                let mut own = source_is_here().to_vec();
                own.extend(mark(settings));
                emit(&own);
                let mut own = source_is_here().to_vec();
                own.push(go(&cluster));
                emit(&own);
                match local {
                    Some(local) => emit(&[go(&local.to_string())]),
                    None => emit(&[Expression::Verdict(Verdict::Drop)]),
                }
            }
            Self::Sources { family, address: at, blocks, next } => {
                let next = next.to_string();
                // A balancer's address may be the node's own as well: then the node's packets to it come from it.
                let node_too = settings
                    .node_addresses
                    .iter()
                    .any(|node| blocks.iter().any(|block| block.contains(Cidr::from(*node))));
                let own = node_too.then(|| Cidr::from(*at));
                for block in blocks.iter().copied().chain(own) {
                    let mut rule = vec![source(*family, Register(0))];
                    rule.extend(in_block(block, Register(0)));
                    rule.push(go(&next));
                    emit(&rule);
                }
                emit(&[Expression::Verdict(Verdict::Drop)]);
            }
        }
    }

    /// A client that is remembered goes where it went if that endpoint is there still; another one is led anew.
    fn affine(&self, emit: &mut dyn FnMut(&[Expression<'_>])) {
        let Self::Affine { family, of, port: hash, seconds, local, count } = self else { return };
        let at = Slots::of(*family);
        let set = |what| Set { family: *family, what }.to_string();
        let affinity = set(What::Affinity { port: *hash, seconds: *seconds });
        let (members, endpoints) = (set(What::Members), set(What::Endpoints));
        let first = if *local { LOCAL } else { 0 };
        // The endpoint lies behind the number in the key of members.
        let (endpoint, endpoint_port) = (at.behind, Register(at.behind.0 + at.width));
        let client = source(*family, at.client);
        let port_key = || {
            let [high, low] = of.port.to_be_bytes();
            [
                Expression::Set(at.address, address(of.address).into()),
                Expression::Set(at.protocol, vec![of.protocol, 0, 0, 0].into()),
                Expression::Set(at.port, vec![high, low, 0, 0].into()),
            ]
        };
        let lead = Expression::DestinationNat {
            ipv6: *family == Family::V6,
            address: endpoint,
            port: Some(endpoint_port),
        };
        let remember =
            Expression::Update { set: &affinity, key: at.client, value: Some(endpoint), timeout: 0 };
        let mut again =
            vec![client.clone(), Expression::Map { map: &affinity, key: at.client, to: endpoint }];
        again.extend(port_key());
        again.push(Expression::Set(at.number, first.to_ne_bytes().to_vec().into()));
        again.extend([Expression::InSet(&members, at.address), remember.clone(), lead.clone()]);
        emit(&again);
        let nothing = vec![0; usize::from(at.width) * 4 + 4];
        emit(&[
            client.clone(),
            Expression::Set(endpoint, nothing[..usize::from(at.width) * 4].to_vec().into()),
            Expression::Set(endpoint_port, vec![0; 4].into()),
            Expression::Remove { set: &affinity, key: at.client, value: Some(endpoint) },
        ]);
        // The second rule is for a set that is full.
        for kept in [Some(remember), None] {
            let mut anew = vec![client.clone()];
            anew.extend(port_key());
            anew.push(Expression::Random { modulus: (*count).max(1), offset: first, to: at.number });
            anew.push(Expression::Map { map: &endpoints, key: at.address, to: endpoint });
            anew.extend(kept);
            anew.push(lead.clone());
            emit(&anew);
        }
    }
}

fn pick(family: Family, node_port: bool, local: bool, count: u32, emit: &mut dyn FnMut(&[Expression<'_>])) {
    let at = Slots::of(family);
    let endpoints = Set { family, what: What::Endpoints }.to_string();
    let mut rule = key(family, node_port);
    let offset = if local { LOCAL } else { 0 };
    rule.push(Expression::Random { modulus: count.max(1), offset, to: at.number });
    rule.push(Expression::Map { map: &endpoints, key: at.address, to: at.behind });
    rule.push(Expression::DestinationNat {
        ipv6: family == Family::V6,
        address: at.behind,
        port: Some(Register(at.behind.0 + at.width)),
    });
    emit(&rule);
}

/// Traffic of this node's Pods goes to a chain.
fn short_way(family: Family, settings: &Settings, to: &str, emit: &mut dyn FnMut(&[Expression<'_>])) {
    match &settings.local_traffic {
        LocalTraffic::Unknown => {}
        LocalTraffic::Blocks(blocks) => {
            for block in blocks.iter().filter(|block| block.is_v6() == (family == Family::V6)) {
                let mut rule = vec![source(family, Register(0))];
                rule.extend(in_block(*block, Register(0)));
                rule.push(go(to));
                emit(&rule);
            }
        }
        LocalTraffic::Interface(name) => {
            let mut rule = words::from_interface(name, true).to_vec();
            rule.push(go(to));
            emit(&rule);
        }
        LocalTraffic::InterfacePrefix(name) => {
            let mut rule = words::from_interface(name, false).to_vec();
            rule.push(go(to));
            emit(&rule);
        }
    }
}
