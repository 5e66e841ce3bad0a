//! The ways to the Pods of other nodes: a route to a node that shares a link, a tunnel (VXLAN) to any other.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink::{Address, Link, Neighbour, Route, Routing, Vxlan};
use objects::Cidr;

use crate::place::{Place, fnv1a};
use crate::pod_link::PROTOCOL;

/// A node's addresses and its Pods' ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The Node's name.
    pub(crate) name: String,
    /// Its internal addresses, the primary one first.
    pub(crate) addresses: Vec<IpAddr>,
    /// Its ranges of Pods' addresses.
    pub(crate) blocks: Vec<Cidr>,
}

/// The tunnel's settings, the same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// The number of the network.
    pub id: u32,
    /// The UDP port.
    pub port: u16,
}

/// The bytes that the tunnel adds to a packet, for an outer packet of each family.
fn overhead(outer: IpAddr) -> u32 {
    if outer.is_ipv4() { 50 } else { 70 }
}

/// The reason for which there are no ways to other nodes' Pods.
#[derive(Debug, thiserror::Error)]
pub enum WayError {
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    /// The routes could not be written down.
    #[error("the routes cannot be written down: {0}")]
    File(#[from] std::io::Error),
    /// A link is gone while it is used.
    #[error("link {0} is gone")]
    Gone(String),
}

/// The hardware address of a node's end of the tunnel, which others can tell from its address.
fn hardware(node: IpAddr) -> [u8; 6] {
    let hash = match node {
        IpAddr::V4(v4) => fnv1a(&v4.octets()),
        IpAddr::V6(v6) => fnv1a(&v6.octets()),
    };
    let mut hardware = [0x0e; 6];
    hardware[1..].copy_from_slice(&hash.to_be_bytes()[..5]);
    hardware
}

/// A way to a range of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By a gateway on this link.
    Link { link: u32, gateway: IpAddr },
    /// By the tunnel to this node.
    Tunnel { node: IpAddr },
}

/// The ways to all ranges, and the sentences about those to which there is none; pure. `addresses` are those of this
/// machine's links.
fn ways(own: &Machine, others: &[Machine], addresses: &[Address]) -> (Vec<(Cidr, Way)>, Vec<String>) {
    let mut ways = Vec::new();
    let mut complaints = Vec::new();
    for other in others {
        for block in &other.blocks {
            let of_family = |address: &&IpAddr| address.is_ipv6() == block.is_v6();
            let near = other.addresses.iter().find(of_family).and_then(|gateway| {
                let near = addresses.iter().find(|address| shares(address, *gateway))?;
                Some(Way::Link { link: near.link, gateway: *gateway })
            });
            let outer = own.addresses.first();
            let same = |a: &&IpAddr| outer.is_some_and(|outer| outer.is_ipv6() == a.is_ipv6());
            let far = || other.addresses.iter().find(same).map(|node| Way::Tunnel { node: *node });
            match near.or_else(far) {
                Some(way) => ways.push((*block, way)),
                None => complaints.push(format!(
                    "Pods of node {} cannot be reached: it has no address of the family of this node's",
                    other.name
                )),
            }
        }
    }
    (ways, complaints)
}

/// Whether an address lies in the network of one of this machine's.
fn shares(own: &Address, other: IpAddr) -> bool {
    let whole = if own.address.is_ipv4() { 32 } else { 128 };
    let network = format!("{}/{}", own.address, own.prefix).parse::<Cidr>();
    own.prefix < whole
        && !own.address.is_loopback()
        && own.address != other
        && network.is_ok_and(|network| network.contains(other.into()))
}

/// The result of a look for ways to other nodes.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// The bytes by which packets of Pods must be shorter than the link's.
    pub(crate) overhead: u32,
    /// The sentences about Pods that cannot be reached.
    pub(crate) complaints: Vec<String>,
}

/// Makes the ways to the Pods of all other nodes, and removes those to nodes that are gone. `mtu` is the longest packet
/// of the link by which packets leave.
pub(crate) fn reach(
    place: &Place,
    tunnel: Tunnel,
    mtu: u32,
    own: &Machine,
    others: &[Machine],
) -> Result<Reached, WayError> {
    let mut routing = Routing::open()?;
    let links = routing.links()?;
    let ours = |index: u32| links.iter().any(|l| l.index == index && l.name.starts_with(&place.links()));
    let mut addresses = routing.addresses()?;
    addresses.retain(|address| !ours(address.link));
    let (ways, complaints) = ways(own, others, &addresses);
    let mut reached = Reached { overhead: 0, complaints };
    let tunnels = ways.iter().any(|(_, way)| matches!(way, Way::Tunnel { .. }));
    let outer = own.addresses.first().filter(|_| tunnels);
    let device = if let Some(outer) = outer {
        reached.overhead = overhead(*outer);
        let inner = mtu.saturating_sub(reached.overhead);
        Some(ensure_tunnel(&mut routing, place, tunnel, (own, *outer), inner)?)
    } else {
        if let Some(old) = links.iter().find(|link| link.name == tunnel_name(place)) {
            routing.delete_link(old.index)?;
        }
        None
    };
    let mut routes = Vec::new();
    let mut neighbours = BTreeSet::new();
    for (block, way) in &ways {
        let Some(first) = block.nth(0) else { continue };
        let prefix = block.prefix() as u8;
        let route = match *way {
            Way::Link { link, gateway } => Route::via(gateway, link, first, prefix),
            Way::Tunnel { node } => {
                let Some(link) = device else { continue };
                let hardware = hardware(node);
                neighbours.insert(Neighbour::Address { link, address: first, hardware });
                neighbours.insert(Neighbour::Machine { link, hardware, machine: node });
                Route { on_link: true, ..Route::via(first, link, first, prefix) }
            }
        };
        routes.push(Route { protocol: PROTOCOL, ..route });
    }
    if let Some(device) = device {
        write_neighbours(&mut routing, device, &neighbours)?;
    }
    write_routes(&mut routing, place, &links, &routes)?;
    Ok(reached)
}

fn tunnel_name(place: &Place) -> String {
    format!("{}vx", place.links())
}

/// Makes this node's end of the tunnel unless it is as it should be.
fn ensure_tunnel(
    routing: &mut Routing,
    place: &Place,
    tunnel: Tunnel,
    (own, local): (&Machine, IpAddr),
    mtu: u32,
) -> Result<u32, WayError> {
    let name = tunnel_name(place);
    // The kernel does not tell all of a device; the rest is written beside it.
    let alias = format!("{} {local} {} {}", place.name(), tunnel.id, tunnel.port);
    let old = routing.link(&name)?;
    if let Some(old) = &old
        && (old.alias != alias || old.mtu != mtu)
    {
        routing.delete_link(old.index)?;
    }
    let whole = old.filter(|old| old.alias == alias && old.mtu == mtu);
    let link = if let Some(Link { index, .. }) = whole {
        index
    } else {
        let address = hardware(local);
        let Tunnel { id, port } = tunnel;
        routing.add_vxlan(&Vxlan { name: &name, id, port, local, link: 0, address, mtu })?;
        let made = routing.link(&name)?.ok_or_else(|| WayError::Gone(name.clone()))?.index;
        routing.change_link(
            made,
            &netlink::LinkChange { alias: Some(&alias), up: Some(true), ..netlink::LinkChange::default() },
        )?;
        made
    };
    // The node's own packets through the tunnel have an address that leads back through it.
    for block in &own.blocks {
        if let Some(address) = block.nth(0) {
            routing.add_address(&Address { link, address, prefix: block.width() as u8 })?;
        }
    }
    Ok(link)
}

fn write_neighbours(
    routing: &mut Routing,
    device: u32,
    wanted: &BTreeSet<Neighbour>,
) -> Result<(), netlink::Error> {
    let present: BTreeSet<Neighbour> = routing.neighbours(device)?.into_iter().collect();
    for neighbour in present.difference(wanted) {
        routing.delete_neighbour(neighbour)?;
    }
    for neighbour in wanted.difference(&present) {
        routing.replace_neighbour(neighbour)?;
    }
    Ok(())
}

/// Writes the routes that are missing and removes those that nobody wants. A node's own Pods are not among them, and
/// another cluster's routes lead by addresses that this one does not know.
fn write_routes(
    routing: &mut Routing,
    place: &Place,
    links: &[Link],
    wanted: &[Route],
) -> Result<(), WayError> {
    let same = |a: &Route, b: &Route| {
        (a.destination, a.prefix, a.link, a.gateway) == (b.destination, b.prefix, b.link, b.gateway)
    };
    let made = place.routes();
    let present = routing.routes()?;
    let tunnel = links.iter().find(|link| link.name == tunnel_name(place)).map(|link| link.index);
    let known = |route: &Route| made.contains(&network(route)) || Some(route.link) == tunnel;
    let old: Vec<&Route> = present.iter().filter(|r| r.protocol == PROTOCOL && known(r)).collect();
    // Written down before they are made, so that a process that dies leaves none that the next does not know.
    let mut names: BTreeSet<String> = wanted.iter().map(network).collect();
    names.extend(old.iter().map(|route| network(route)));
    place.write_routes(&names)?;
    for route in old.iter().filter(|old| !wanted.iter().any(|new| same(old, new))) {
        routing.delete_route(route)?;
    }
    for route in wanted {
        let is_there = |old: &&Route| old.protocol == PROTOCOL && same(old, route);
        if !present.iter().any(|old| is_there(&old)) {
            routing.replace_route(route)?;
        }
    }
    Ok(place.write_routes(&wanted.iter().map(network).collect())?)
}

fn network(route: &Route) -> String {
    format!("{}/{}", route.destination, route.prefix)
}

/// Removes the routes by links that are not the cluster's own; those by its own go with them.
pub(crate) fn leave(place: &Place) -> Result<(), WayError> {
    let mut routing = Routing::open()?;
    write_routes(&mut routing, place, &[], &[])
}

/// The sentences about routes of this machine that others made, to addresses that Pods have.
pub(crate) fn overlaps(place: &Place, cluster: &[Cidr]) -> Result<Vec<String>, netlink::Error> {
    let mut routing = Routing::open()?;
    let links = routing.links()?;
    let name = |index: u32| links.iter().find(|l| l.index == index).map_or("", |l| l.name.as_str());
    let mut sentences = Vec::new();
    for route in routing.routes()? {
        let link = name(route.link);
        if route.prefix == 0 || route.protocol == PROTOCOL || link.starts_with(&place.links()) {
            continue;
        }
        let Ok(to) = network(&route).parse::<Cidr>() else { continue };
        if let Some(range) = cluster.iter().find(|range| range.overlaps(to)) {
            sentences.push(format!(
                "Pods may have addresses of the network {to} behind {link}, which they then cannot reach: {range} is for Pods; choose another range with --cluster-cidr"
            ));
        }
    }
    Ok(sentences)
}

#[cfg(test)]
mod tests;
