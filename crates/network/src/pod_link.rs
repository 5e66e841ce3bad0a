//! The link between a container's network namespace and the node's, with what belongs to it on both sides.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use netlink::{Address, Limit, Link, LinkChange, Neighbour, Route, Routing, namespace};

use crate::attachment::{Attachment, Identity, Own};
use crate::cni::Bandwidth;
use crate::steps::Steps;
use crate::sysctl;

/// The number that this program's routes carry (`RTPROT_…`).
pub(crate) const PROTOCOL: u8 = 70;

/// The reason for which a link is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The container's network namespace is gone, or is none.
    #[error("the network namespace {path}: {source}")]
    Namespace {
        /// Its file.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The container has a link of this name already.
    #[error("the container has a link {0} already")]
    Taken(String),
    /// Something of the link is missing.
    #[error("{0} is missing")]
    Missing(String),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The length of the prefix of one address.
fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The network namespace that a path names, with its identity.
pub(crate) fn identify(path: &Path) -> Result<Identity, LinkError> {
    let failed = |source| LinkError::Namespace { path: path.display().to_string(), source };
    namespace::open(path).and_then(|file| Identity::of(&file)).map_err(failed)
}

/// Opens a container's network namespace; fails if its path names another one by now.
pub(crate) fn open(one: &Attachment) -> Result<File, LinkError> {
    let opened = || {
        let file = namespace::open(&one.namespace)?;
        let same = match &one.identity {
            Some(identity) => *identity == Identity::of(&file)?,
            // Of most processes that may have the number by now, it would be the node's own.
            None => namespace::number(&file)? != namespace::number(&namespace::own()?)?,
        };
        if same { Ok(file) } else { Err(io::Error::other("it is not the container's any more")) }
    };
    opened().map_err(|source| LinkError::Namespace { path: one.namespace.display().to_string(), source })
}

/// Makes the link `name` to a container, or what of it is missing.
pub(crate) fn ensure(name: &str, one: &Attachment, alias: &str, steps: &Steps) -> Result<(), LinkError> {
    let inside = open(one)?;
    let mut routing = Routing::open()?;
    let there = within(&inside, || Ok(Routing::open()?.link(&one.interface)?))?;
    let here = routing.link(name)?;
    if !are_ends(there.as_ref(), here.as_ref(), one) {
        if let Some(link) = here {
            // Its other end is elsewhere: the container that it was made for is gone.
            steps.next()?;
            routing.delete_link(link.index)?;
        } else if there.is_some() {
            return Err(LinkError::Taken(one.interface.clone()));
        }
        steps.next()?;
        let outside = LinkChange {
            mtu: Some(one.mtu),
            address: Some(one.host_hardware()),
            alias: Some(alias),
            ..LinkChange::default()
        };
        let within = LinkChange {
            mtu: Some(one.mtu),
            address: Some(one.hardware()),
            namespace: Some(inside.as_fd()),
            ..LinkChange::default()
        };
        routing.add_veth(name, &outside, &one.interface, &within)?;
    }
    within(&inside, || configure_inside(one, steps))?;
    configure_outside(&mut routing, name, one, steps)
}

/// Whether two links are the two ends of the pair that an attachment has.
fn are_ends(there: Option<&Link>, here: Option<&Link>, one: &Attachment) -> bool {
    match (there, here) {
        (Some(there), Some(here)) => {
            there.below == Some(here.index)
                && here.below == Some(there.index)
                && there.address == one.hardware()
        }
        _ => false,
    }
}

/// Does work in a container's network namespace.
fn within<T: Send>(
    namespace: &File,
    work: impl FnOnce() -> Result<T, LinkError> + Send,
) -> Result<T, LinkError> {
    namespace::within(namespace.as_fd(), work)?
}

fn configure_inside(one: &Attachment, steps: &Steps) -> Result<(), LinkError> {
    let mut routing = Routing::open()?;
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    if let Some(loopback) = routing.link("lo")? {
        steps.next()?;
        routing.change_link(loopback.index, &up)?;
    }
    let missing = || LinkError::Missing(format!("the container's link {}", one.interface));
    let link = routing.link(&one.interface)?.ok_or_else(missing)?.index;
    if one.addresses.iter().any(|own| own.address.is_ipv6()) {
        // Runtimes turn it off where they know of no address.
        sysctl::set_link(&one.interface, 6, "disable_ipv6", "0");
        sysctl::set_link(&one.interface, 6, "accept_ra", "0");
    }
    steps.next()?;
    routing.change_link(link, &up)?;
    let Bandwidth { egress_rate, egress_burst, .. } = one.bandwidth;
    limit(&mut routing, link, one, (egress_rate, egress_burst))?;
    for own in &one.addresses {
        let Own { address, gateway } = *own;
        steps.next()?;
        routing.add_address(&Address { link, address, prefix: whole(address) })?;
        steps.next()?;
        // Nobody is asked for a hardware address: a container cannot answer for another one.
        let hardware = one.host_hardware();
        routing.replace_neighbour(&Neighbour::Address { link, address: gateway, hardware })?;
        steps.next()?;
        routing.replace_route(&Route {
            source: Some(address),
            protocol: PROTOCOL,
            ..Route::on(link, gateway, whole(gateway))
        })?;
        steps.next()?;
        let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        routing.replace_route(&Route { protocol: PROTOCOL, ..Route::via(gateway, link, any, 0) })?;
    }
    Ok(())
}

fn configure_outside(
    routing: &mut Routing,
    name: &str,
    one: &Attachment,
    steps: &Steps,
) -> Result<(), LinkError> {
    let missing = || LinkError::Missing(format!("the node's link {name}"));
    let link = routing.link(name)?.ok_or_else(missing)?.index;
    // A Pod that asks for a port of the node may be asked by the node itself, from 127.0.0.1; the guard's rules see to
    // it that this opens nothing of the node to the Pod.
    if !one.ports.is_empty() {
        sysctl::set_link(name, 4, "route_localnet", "1");
    }
    steps.next()?;
    routing.change_link(link, &LinkChange { up: Some(true), ..LinkChange::default() })?;
    let Bandwidth { ingress_rate, ingress_burst, .. } = one.bandwidth;
    limit(routing, link, one, (ingress_rate, ingress_burst))?;
    for own in &one.addresses {
        let Own { address, gateway } = *own;
        steps.next()?;
        routing.add_address(&Address { link, address: gateway, prefix: whole(gateway) })?;
        steps.next()?;
        routing.replace_neighbour(&Neighbour::Address { link, address, hardware: one.hardware() })?;
        steps.next()?;
        routing.replace_route(&pod_route(link, *own))?;
    }
    Ok(())
}

/// Limits what an end of the link sends: bits a second, and bits at once.
///
/// DIFFERENCE: upstream's plugin limits what a container sends at the node's end, by a device between; here its own end
/// is limited, which a container that may administer its network can undo.
fn limit(
    routing: &mut Routing,
    link: u32,
    one: &Attachment,
    (rate, burst): (u64, u64),
) -> Result<(), LinkError> {
    /// The longest packet that the kernel cuts into smaller ones later.
    const LARGEST: u64 = 64 << 10;
    if rate == 0 {
        return Ok(());
    }
    let (rate, burst) = ((rate / 8).max(1), (burst / 8).max(LARGEST).max(one.mtu.into()));
    // As upstream's plugin: what is sent within 25 ms waits.
    let queue = burst.saturating_add(rate / 40);
    let within = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Ok(routing.limit_link(link, &Limit { rate, burst: within(burst), queue: within(queue) })?)
}

/// The node's route to a container.
fn pod_route(link: u32, own: Own) -> Route {
    Route {
        source: Some(own.gateway),
        protocol: PROTOCOL,
        ..Route::on(link, own.address, whole(own.address))
    }
}

/// Removes links, and with them all that belongs to them on both sides; one that is not there is no error.
pub(crate) fn remove(names: impl Iterator<Item = String>, steps: &Steps) -> Result<(), LinkError> {
    let mut routing = Routing::open()?;
    let mut there = Vec::new();
    for name in names {
        there.extend(routing.link(&name)?.map(|link| link.index));
    }
    if !there.is_empty() {
        steps.next()?;
        routing.delete_links(&there)?;
    }
    Ok(())
}

/// Tells what is missing of a link.
pub(crate) fn check(name: &str, one: &Attachment) -> Result<(), LinkError> {
    let inside = open(one)?;
    let mut routing = Routing::open()?;
    let here = routing.link(name)?;
    let seen = within(&inside, || {
        let mut routing = Routing::open()?;
        Ok((routing.link(&one.interface)?, routing.addresses()?, routing.routes()?))
    })?;
    let (there, addresses, routes) = seen;
    let missing = |what: String| Err(LinkError::Missing(what));
    if !are_ends(there.as_ref(), here.as_ref(), one) {
        return missing(format!("the pair {name} and {}", one.interface));
    }
    let (Some(there), Some(here)) = (there, here) else { return Ok(()) };
    for end in [&there, &here] {
        if !end.up {
            return missing(format!("carrier: link {}", end.name));
        }
    }
    let host_routes = routing.routes()?;
    for own in &one.addresses {
        if !addresses.iter().any(|a| a.link == there.index && a.address == own.address) {
            return missing(format!("the container's address {}", own.address));
        }
        if !routes.iter().any(|r| r.prefix == 0 && r.gateway == Some(own.gateway)) {
            return missing(format!("the container's default route via {}", own.gateway));
        }
        let to_pod = |r: &Route| {
            r.destination == own.address && r.prefix == whole(own.address) && r.link == here.index
        };
        if !host_routes.iter().any(to_pod) {
            return missing(format!("the node's route to {}", own.address));
        }
    }
    Ok(())
}
