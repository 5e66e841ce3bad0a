//! The network of the nodes on this machine: a bridge with a link to each, the ways to their Pods, and the address of
//! this machine for what leaves it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::{Client, Informer, Selection};
use component::Shutdown;
use k8s_openapi::api::core::v1::Node;
use netlink::nft::{Base, Batch, Compare, Expression, Family, Filter, Hook, Kind, Meta, Register, Table};
use netlink::{Address, LinkChange, Route, Routing, namespace};
use objects::Cidr;

use super::namespaces::Kept;
use super::plan::{Host, Plan, bridge};

/// The number by which the routes to Pods are known.
const PROTOCOL: u8 = 71;
/// The node's end of its link.
const INSIDE: &str = "eth0";
/// `NF_IP_PRI_NAT_SRC`.
const SOURCE: i32 = 100;
/// The time after which the routes are looked at again though no Node has changed.
const AGAIN: Duration = Duration::from_secs(30);

fn table(id: &str) -> Table {
    Table { family: Family::Inet, name: format!("ferrokube-{id}-nodes") }
}

/// Refuses networks that this machine has elsewhere.
pub(super) fn check(plan: &Plan, others: &[Cidr]) -> Result<()> {
    let mut routing = Routing::open()?;
    let links = routing.links()?;
    let routes = routing.routes()?;
    for network in &plan.networks {
        for route in routes.iter().filter(|route| route.prefix > 0) {
            let link = links.iter().find(|l| l.index == route.link).map_or("", |l| l.name.as_str());
            let to: Option<Cidr> = format!("{}/{}", route.destination, route.prefix).parse().ok();
            if link != plan.bridge() && to.is_some_and(|to| network.overlaps(to)) {
                bail!(
                    "{network}, the network of the nodes, overlaps {}/{} behind {link}: choose another with --nodes-cidr",
                    route.destination,
                    route.prefix
                );
            }
        }
        if let Some(other) = others.iter().find(|other| other.overlaps(*network)) {
            bail!("{network}, the network of the nodes, overlaps {other}: choose another with --nodes-cidr");
        }
    }
    Ok(())
}

/// Makes the bridge, with this machine's addresses, and the rule by which it lends its own to what leaves it.
pub(super) fn ensure_bridge(plan: &Plan) -> Result<()> {
    let mut routing = Routing::open()?;
    let name = plan.bridge();
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    if routing.link(&name)?.is_none() {
        routing.add_bridge(&name, &up)?;
    }
    let link = routing.link(&name)?.context("the bridge is gone")?.index;
    routing.change_link(link, &up)?;
    for (network, address) in plan.networks.iter().zip(plan.gateways()) {
        routing.add_address(&Address { link, address, prefix: network.prefix() as u8 })?;
    }
    for sentence in network::allow_forwarding(plan.networks.iter().any(|network| network.is_v6())) {
        eprintln!("ferrokube: {sentence}");
    }
    for sentence in network::firewalls()? {
        eprintln!("ferrokube: {sentence}");
    }
    let table = table(&plan.id);
    let mut batch = Batch::new(&table);
    // A table that is not there cannot be removed.
    batch.add_table();
    batch.delete_table();
    batch.add_table();
    batch.add_base_chain("masquerade", Kind::Nat, Hook::Postrouting, SOURCE);
    for network in &plan.networks {
        batch.add_rule("masquerade", &masquerade(*network, &name), b"what leaves the machine");
    }
    Ok(Filter::open()?.commit(batch)?)
}

/// Packets of nodes to others than nodes get this machine's address.
fn masquerade(network: Cidr, bridge: &str) -> Vec<Expression<'_>> {
    let (family, offset, length): (&[u8], u32, usize) =
        if network.is_v6() { (&[10], 8, 16) } else { (&[2], 12, 4) };
    let end = |number: u128| Cow::Owned(number.to_be_bytes()[16 - length..].to_vec());
    vec![
        Expression::Meta(Meta::Network, Register(0)),
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(family)),
        Expression::Payload { base: Base::Network, offset, length: length as u32, to: Register(0) },
        Expression::Range(Register(0), end(network.first()), end(network.last())),
        Expression::Meta(Meta::OutName, Register(0)),
        Expression::Compare(Compare::NotEqual, Register(0), Cow::Borrowed(bridge.as_bytes())),
        Expression::Counter,
        Expression::Masquerade,
    ]
}

/// Makes a node's link, with its addresses and its way out.
pub(super) fn ensure_link(plan: &Plan, host: &Host, kept: &Kept) -> Result<()> {
    let inside = namespace::open(&kept.network(&host.name))?;
    let mut routing = Routing::open()?;
    let bridge = routing.link(&plan.bridge())?.context("the bridge is gone")?.index;
    let name = plan.link(host);
    let outside = LinkChange { up: Some(true), master: Some(bridge), ..LinkChange::default() };
    let has_end = namespace::within(inside.as_fd(), || Routing::open()?.link(INSIDE))??.is_some();
    match routing.link(&name)? {
        Some(link) if has_end => routing.change_link(link.index, &outside)?,
        other => {
            if let Some(link) = other {
                routing.delete_link(link.index)?;
            }
            let far = LinkChange { namespace: Some(inside.as_fd()), ..LinkChange::default() };
            routing.add_veth(&name, &outside, INSIDE, &far)?;
        }
    }
    namespace::within(inside.as_fd(), || connect(plan, host))??;
    Ok(())
}

/// Gives the node's end its addresses, in the node's namespace.
fn connect(plan: &Plan, host: &Host) -> Result<(), netlink::Error> {
    let mut routing = Routing::open()?;
    let Some(link) = routing.link(INSIDE)? else { return Ok(()) };
    let link = link.index;
    routing.change_link(link, &LinkChange { up: Some(true), ..LinkChange::default() })?;
    for ((network, address), gateway) in plan.networks.iter().zip(&host.addresses).zip(plan.gateways()) {
        routing.add_address(&Address { link, address: *address, prefix: network.prefix() as u8 })?;
        routing.replace_route(&Route::via(gateway, link, any(gateway), 0))?;
    }
    Ok(())
}

fn any(like: IpAddr) -> IpAddr {
    if like.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Keeps this machine's routes to the nodes' Pods, which the API server reaches by them.
pub(super) async fn follow_pods(bridge: String, admin: Client, shutdown: Shutdown) {
    let nodes: Informer<Node> = Informer::new(&admin, Selection::default());
    let changed = std::sync::Arc::new(tokio::sync::Notify::new());
    let notify = changed.clone();
    nodes.handle(move |_| notify.notify_one());
    nodes.start(&shutdown);
    let follow = async {
        // Before all Nodes are known, those that are not look as if they were gone.
        nodes.synced().await;
        loop {
            let wanted = nodes.list().iter().flat_map(|node| ways(node)).collect::<Vec<_>>();
            let name = bridge.clone();
            let written = tokio::task::spawn_blocking(move || write_routes(&name, &wanted)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!("the API server does not reach all Pods: {error:#}");
            }
            let _ = tokio::time::timeout(AGAIN, changed.notified()).await;
        }
    };
    let _ = shutdown.run(follow).await;
}

/// The ranges of a Node's Pods, each with the Node's address of its family; pure.
fn ways(node: &Node) -> Vec<(Cidr, IpAddr)> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let addresses: Vec<IpAddr> = addresses
        .iter()
        .filter(|address| address.type_ == "InternalIP")
        .filter_map(|address| address.address.parse().ok())
        .collect();
    let ranges = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
    let ranges = ranges.iter().filter_map(|range| range.parse::<Cidr>().ok());
    ranges
        .filter_map(|range| Some((range, *addresses.iter().find(|a| a.is_ipv6() == range.is_v6())?)))
        .collect()
}

fn write_routes(bridge: &str, wanted: &[(Cidr, IpAddr)]) -> Result<()> {
    let mut routing = Routing::open()?;
    let link = routing.link(bridge)?.context("the bridge is gone")?.index;
    let route = |(range, gateway): &(Cidr, IpAddr)| {
        let way = Route::via(*gateway, link, range.nth(0)?, range.prefix() as u8);
        Some(Route { protocol: PROTOCOL, ..way })
    };
    let wanted: Vec<Route> = wanted.iter().filter_map(route).collect();
    let same =
        |a: &Route, b: &Route| (a.destination, a.prefix, a.gateway) == (b.destination, b.prefix, b.gateway);
    let mut present = routing.routes()?;
    present.retain(|route| route.protocol == PROTOCOL && route.link == link);
    for old in present.iter().filter(|old| !wanted.iter().any(|new| same(old, new))) {
        routing.delete_route(old)?;
    }
    for new in wanted.iter().filter(|new| !present.iter().any(|old| same(old, new))) {
        routing.replace_route(new)?;
    }
    Ok(())
}

/// Removes the links, with them their routes, and the rule.
pub(super) fn remove(id: &str) -> Result<()> {
    let table = table(id);
    let mut batch = Batch::new(&table);
    batch.add_table();
    batch.delete_table();
    Filter::open()?.commit(batch)?;
    let mut routing = Routing::open()?;
    let prefix = bridge(id);
    for link in routing.links()?.into_iter().filter(|link| link.name.starts_with(&prefix)) {
        routing.delete_link(link.index)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ways_to_a_nodes_pods() {
        let check = |node: serde_json::Value, expected: &[&str]| {
            let node: Node = serde_json::from_value(node).unwrap();
            let found: Vec<String> = ways(&node).iter().map(|(to, by)| format!("{to} by {by}")).collect();
            assert_eq!(found, expected);
        };
        let addresses = json!([
            {"type": "Hostname", "address": "n"},
            {"type": "InternalIP", "address": "10.242.0.2"},
            {"type": "InternalIP", "address": "fd42::2"},
        ]);
        let spec = json!({"podCIDRs": ["10.244.0.0/24", "fd00::/64", "x"]});
        check(
            json!({"spec": spec, "status": {"addresses": addresses}}),
            &["10.244.0.0/24 by 10.242.0.2", "fd00::/64 by fd42::2"],
        );
        check(json!({"spec": spec}), &[]);
        check(json!({"status": {"addresses": addresses}}), &[]);
    }
}
