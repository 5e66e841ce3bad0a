//! The chains, their rules and the sets that these look into.

use std::borrow::Cow;

use netlink::nft::{Base, Batch, Compare, Expression, Hook, Kind, Meta, Register, Verdict};

use super::sets::{IPS, Ip, SETS, Set};

/// `RTN_LOCAL`: the kind of the node's own addresses.
const LOCAL: u32 = 2;
/// The usual places of chains among those of others (`NF_IP_PRI_…`).
const RAW: i32 = -300;
const DESTINATION: i32 = -100;
const SOURCE: i32 = 100;

/// Adds sets, chains and rules to an empty table. `links` is the beginning of the names of the Pods' links.
pub(super) fn add(batch: &mut Batch<'_>, links: &str) {
    for set in SETS {
        for ip in IPS {
            batch.add_set(&set.name(ip), &set.kind(ip), &[]);
        }
    }
    guard(batch, links);
    ports(batch);
    masquerade(batch, links);
}

fn family(ip: Ip) -> [Expression<'static>; 2] {
    let number: &[u8] = if ip.v6 { &[10] } else { &[2] };
    [
        Expression::Meta(Meta::Network, Register(0)),
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(number)),
    ]
}

/// The packet came from a Pod, or goes to one.
fn by_link(which: Meta, links: &str) -> [Expression<'_>; 2] {
    [
        Expression::Meta(which, Register(0)),
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(links.as_bytes())),
    ]
}

/// Reads an IPv4 address and compares its first byte with that of 127.0.0.0/8.
fn loopback(offset: u32) -> [Expression<'static>; 2] {
    [
        Expression::Payload { base: Base::Network, offset, length: 1, to: Register(0) },
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(&[127])),
    ]
}

/// The place of the source's and of the destination's address in a packet.
fn source(ip: Ip) -> u32 {
    if ip.v6 { 8 } else { 12 }
}
fn destination(ip: Ip) -> u32 {
    if ip.v6 { 24 } else { 16 }
}
fn length(ip: Ip) -> u32 {
    if ip.v6 { 16 } else { 4 }
}

fn address(ip: Ip, offset: u32, to: u8) -> Expression<'static> {
    Expression::Payload { base: Base::Network, offset, length: length(ip), to: Register(to) }
}

/// Drops what a Pod sends in another one's name, and what it sends to the node's loopback.
fn guard(batch: &mut Batch<'_>, links: &str) {
    const CHAIN: &str = "guard";
    batch.add_base_chain(CHAIN, Kind::Filter, Hook::Prerouting, RAW);
    let mut spoofed = by_link(Meta::InName, links).to_vec();
    spoofed.push(Expression::SourceRoute(Register(0)));
    spoofed.push(Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(&[0; 4])));
    spoofed.push(Expression::Counter);
    spoofed.push(Expression::Verdict(Verdict::Drop));
    batch.add_rule(CHAIN, &spoofed, b"a Pod has its own address only");
    let mut to_loopback = by_link(Meta::InName, links).to_vec();
    to_loopback.extend(family(IPS[0]));
    to_loopback.extend(loopback(destination(IPS[0])));
    to_loopback.push(Expression::Counter);
    to_loopback.push(Expression::Verdict(Verdict::Drop));
    batch.add_rule(CHAIN, &to_loopback, b"the node's loopback is its own");
}

/// Leads ports of the node to Pods, for others and for the node itself.
fn ports(batch: &mut Batch<'_>) {
    for (chain, hook) in [("ports", Hook::Prerouting), ("own_ports", Hook::Output)] {
        batch.add_base_chain(chain, Kind::Nat, hook, DESTINATION);
        for ip in IPS {
            for set in [Set::OwnPorts, Set::Ports] {
                batch.add_rule(chain, &to_pod(ip, set), &[]);
            }
        }
    }
}

fn to_pod(ip: Ip, set: Set) -> Vec<Expression<'static>> {
    /// Where the Pod's address and port are written.
    const RESULT: u8 = 8;
    let name: &'static str = match (set, ip.v6) {
        (Set::OwnPorts, false) => "own_ports4",
        (Set::OwnPorts, true) => "own_ports6",
        (_, false) => "ports4",
        (_, true) => "ports6",
    };
    let words = (length(ip) / 4) as u8;
    let mut rule = family(ip).to_vec();
    rule.push(Expression::DestinationKind(Register(0)));
    rule.push(Expression::Compare(Compare::Equal, Register(0), Cow::Owned(LOCAL.to_ne_bytes().to_vec())));
    let mut next = 0;
    if set == Set::OwnPorts {
        rule.push(address(ip, destination(ip), 0));
        next = words;
    }
    rule.push(Expression::Meta(Meta::Transport, Register(next)));
    rule.push(Expression::Payload { base: Base::Transport, offset: 2, length: 2, to: Register(next + 1) });
    rule.push(Expression::Map { map: name, key: Register(0), to: Register(RESULT) });
    rule.push(Expression::DestinationNat {
        ipv6: ip.v6,
        address: Register(RESULT),
        port: Some(Register(RESULT + words)),
    });
    rule
}

/// Gives packets the node's address where nobody would know their own.
fn masquerade(batch: &mut Batch<'_>, links: &str) {
    const CHAIN: &str = "masquerade";
    batch.add_base_chain(CHAIN, Kind::Nat, Hook::Postrouting, SOURCE);
    for ip in IPS {
        let (hairpins, pods, inside) = (Set::Hairpins.name(ip), Set::Pods.name(ip), Set::Inside.name(ip));
        let mut to_itself = family(ip).to_vec();
        to_itself.push(address(ip, source(ip), 0));
        to_itself.push(address(ip, destination(ip), (length(ip) / 4) as u8));
        to_itself.push(Expression::InSet(&hairpins, Register(0)));
        to_itself.push(Expression::Masquerade);
        batch.add_rule(CHAIN, &to_itself, b"a Pod that reaches itself by a port of the node");
        let mut out = family(ip).to_vec();
        out.push(address(ip, source(ip), 0));
        out.push(Expression::InSet(&pods, Register(0)));
        out.push(address(ip, destination(ip), 4));
        out.push(Expression::NotInSet(&inside, Register(4)));
        out.push(Expression::Counter);
        out.push(Expression::Masquerade);
        batch.add_rule(CHAIN, &out, b"what leaves the cluster");
    }
    let mut from_loopback = by_link(Meta::OutName, links).to_vec();
    from_loopback.extend(family(IPS[0]));
    from_loopback.extend(loopback(source(IPS[0])));
    from_loopback.push(Expression::Masquerade);
    batch.add_rule(CHAIN, &from_loopback, b"the node's loopback to a port of its own");
}
