//! The chains that are always there.

use std::borrow::Cow;

use netlink::nft::{Compare, Expression, Hook, Kind, Meta, Register, Tracked, Verdict, state, status};
use objects::backends::Family;

use super::words::{
    Slots, destination, destination_is_elsewhere, destination_is_here, go, in_block, is_of, jump, key,
    loopback, mark, not_from_interface, not_in_block, source, unmark,
};
use crate::layout::{Set, What};
use crate::settings::{LocalTraffic, Settings};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A chain that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// A base chain.
    Base(BaseChain),
    /// Leads destinations to the chains that pick.
    Services,
    /// Leads node ports to them.
    NodePorts,
    /// Refuses ports without endpoints.
    Refuse,
    /// Refuses node ports without endpoints.
    RefuseNodePorts,
    /// Refuses all other ports of cluster addresses, and drops what goes to cluster addresses that no Service has.
    ClusterAddresses,
    /// Answers that nobody listens.
    Reject,
}

/// A chain at a hook of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BaseChain {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) hook: Hook,
    pub(crate) priority: i32,
}

const fn base(name: &'static str, kind: Kind, hook: Hook, priority: i32) -> BaseChain {
    BaseChain { name, kind, hook, priority }
}

/// The base chains.
pub(crate) const BASES: [BaseChain; 7] = [
    base("localhost", Kind::Filter, Hook::Prerouting, -300),
    base("prerouting", Kind::Nat, Hook::Prerouting, -100),
    base("output", Kind::Nat, Hook::Output, -100),
    base("postrouting", Kind::Nat, Hook::Postrouting, 100),
    base("filter-input", Kind::Filter, Hook::Input, 0),
    base("filter-forward", Kind::Filter, Hook::Forward, 0),
    base("filter-output", Kind::Filter, Hook::Output, 0),
];

impl Fixed {
    /// All of them, each behind those to which it leads.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Reject,
            Self::Refuse,
            Self::RefuseNodePorts,
            Self::ClusterAddresses,
            Self::NodePorts,
            Self::Services,
        ];
        all.extend(BASES.map(Self::Base));
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Base(base) => base.name,
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::Refuse => "refuse",
            Self::RefuseNodePorts => "refuse-node-ports",
            Self::ClusterAddresses => "cluster-addresses",
            Self::Reject => "reject",
        }
    }

    pub(crate) fn rules(self, settings: &Settings, emit: &mut dyn FnMut(&[Expression<'_>])) {
        match self {
            Self::Base(base) => base.rules(settings, emit),
            Self::Services => services(settings, emit),
            Self::NodePorts => node_ports(settings, What::Services, emit),
            Self::RefuseNodePorts => node_ports(settings, What::Refused, emit),
            Self::Refuse => {
                for family in FAMILIES {
                    let refused = Set { family, what: What::Refused }.to_string();
                    let mut rule = is_of(family).to_vec();
                    rule.extend(key(family, false));
                    rule.push(Expression::VerdictMap(&refused, Register(0)));
                    emit(&rule);
                }
            }
            Self::ClusterAddresses => cluster_addresses(settings, emit),
            // DIFFERENCE: TCP gets a reset instead of upstream's ICMP message, which some clients wait out.
            Self::Reject => {
                emit(&[
                    Expression::Meta(Meta::Transport, Register(0)),
                    Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(&[6])),
                    Expression::Reject { tcp: true },
                ]);
                emit(&[Expression::Reject { tcp: false }]);
            }
        }
    }
}

impl BaseChain {
    fn rules(self, settings: &Settings, emit: &mut dyn FnMut(&[Expression<'_>])) {
        match (self.kind, self.hook) {
            (Kind::Nat, Hook::Postrouting) => masquerade(settings, emit),
            (Kind::Nat, _) => emit(&[jump("services")]),
            // Nobody outside may send to 127.0.0.1, which `route_localnet` would allow.
            (_, Hook::Prerouting) if settings.localhost_node_ports => {
                let mut rule = is_of(Family::V4).to_vec();
                rule.push(destination(Family::V4, Register(0)));
                rule.extend(in_block(loopback(Family::V4), Register(0)));
                rule.extend(not_from_interface("lo", true));
                rule.push(Expression::Verdict(Verdict::Drop));
                emit(&rule);
            }
            (_, Hook::Prerouting) => {}
            (_, hook) => {
                let after: &[&'static str] = match hook {
                    Hook::Input => &["refuse-node-ports", "refuse"],
                    _ => &["refuse", "cluster-addresses"],
                };
                for chain in after {
                    let mut rule = begins().to_vec();
                    rule.push(jump(chain));
                    emit(&rule);
                }
            }
        }
    }
}

/// Goes on for packets that begin a connection.
fn begins() -> [Expression<'static>; 3] {
    let register = Register(0);
    [
        Expression::Tracked(Tracked::State, register),
        has_bits(register, state::NEW),
        Expression::Compare(Compare::NotEqual, register, Cow::Borrowed(&[0; 4])),
    ]
}

fn has_bits(register: Register, bits: u32) -> Expression<'static> {
    let mask = Cow::Owned(bits.to_ne_bytes().to_vec());
    Expression::Bits { from: register, to: register, mask, xor: Cow::Borrowed(&[0; 4]) }
}

fn services(settings: &Settings, emit: &mut dyn FnMut(&[Expression<'_>])) {
    for family in FAMILIES {
        let known = Set { family, what: What::ClusterAddresses }.to_string();
        let from_elsewhere = if settings.masquerade_all {
            Some(Vec::new())
        } else {
            not_local(family, &settings.local_traffic)
        };
        if let Some(from_elsewhere) = from_elsewhere {
            let mut rule = is_of(family).to_vec();
            rule.push(destination(family, Register(0)));
            rule.push(Expression::InSet(&known, Register(0)));
            rule.extend(from_elsewhere);
            rule.extend(mark(settings));
            emit(&rule);
        }
        let services = Set { family, what: What::Services }.to_string();
        let mut rule = is_of(family).to_vec();
        rule.extend(key(family, false));
        rule.push(Expression::VerdictMap(&services, Register(0)));
        emit(&rule);
    }
    emit(&[go("node-ports")]);
}

/// Goes on for traffic that is not of this node's Pods; `None` if that cannot be told.
fn not_local(family: Family, local: &LocalTraffic) -> Option<Vec<Expression<'static>>> {
    match local {
        LocalTraffic::Unknown => None,
        LocalTraffic::Blocks(blocks) => {
            let of: Vec<_> = blocks.iter().filter(|b| b.is_v6() == (family == Family::V6)).collect();
            if of.is_empty() {
                return None;
            }
            let each = |block: &objects::Cidr| {
                let [and, compare] = not_in_block(*block, Register(8));
                [source(family, Register(8)), and, compare]
            };
            Some(of.into_iter().flat_map(each).collect())
        }
        LocalTraffic::Interface(name) => Some(not_from_interface(name, true).to_vec()),
        LocalTraffic::InterfacePrefix(name) => Some(not_from_interface(name, false).to_vec()),
    }
}

/// Looks ports of this node's addresses up in a map.
fn node_ports(settings: &Settings, what: What, emit: &mut dyn FnMut(&[Expression<'_>])) {
    for family in FAMILIES {
        let map = Set { family, what }.to_string();
        let own = |emit: &mut dyn FnMut(&[Expression<'_>]), block: Option<&objects::Cidr>| {
            let mut rule = is_of(family).to_vec();
            rule.extend(destination_is_here());
            if let Some(block) = block {
                rule.push(destination(family, Register(8)));
                rule.extend(in_block(*block, Register(8)));
            }
            // ::1 never leaves the machine, and nothing can make the kernel route an answer to it.
            if family == Family::V6 || !settings.localhost_node_ports {
                rule.push(destination(family, Register(8)));
                rule.extend(not_in_block(loopback(family), Register(8)));
            }
            rule.extend(key(family, true));
            rule.push(Expression::VerdictMap(&map, Slots::of(family).address));
            emit(&rule);
        };
        match &settings.node_port_addresses {
            None => own(emit, None),
            Some(blocks) => {
                for block in blocks.iter().filter(|b| b.is_v6() == (family == Family::V6)) {
                    own(emit, Some(block));
                }
            }
        }
    }
}

fn cluster_addresses(settings: &Settings, emit: &mut dyn FnMut(&[Expression<'_>])) {
    for family in FAMILIES {
        let known = Set { family, what: What::ClusterAddresses }.to_string();
        let mut rule = is_of(family).to_vec();
        rule.extend([destination(family, Register(0)), Expression::InSet(&known, Register(0)), go("reject")]);
        emit(&rule);
        for block in settings.service_ranges.iter().filter(|b| b.is_v6() == (family == Family::V6)) {
            let mut rule = is_of(family).to_vec();
            rule.push(destination(family, Register(0)));
            rule.extend(in_block(*block, Register(0)));
            // The node may have such an address itself: that of the cluster's DNS.
            rule.extend(destination_is_elsewhere());
            rule.push(Expression::Verdict(Verdict::Drop));
            emit(&rule);
        }
    }
}

/// Gives packets that ask for it another source address, and those from an endpoint to itself.
fn masquerade(settings: &Settings, emit: &mut dyn FnMut(&[Expression<'_>])) {
    let register = Register(0);
    let mut rule = vec![
        Expression::Meta(Meta::Mark, register),
        has_bits(register, settings.mark()),
        Expression::Compare(Compare::NotEqual, register, Cow::Borrowed(&[0; 4])),
    ];
    rule.extend(unmark(settings));
    rule.push(Expression::Masquerade);
    emit(&rule);
    for family in FAMILIES {
        let hairpins = Set { family, what: What::Hairpins }.to_string();
        let mut rule = is_of(family).to_vec();
        rule.extend([
            Expression::Tracked(Tracked::Status, register),
            has_bits(register, status::DESTINATION_NAT),
            Expression::Compare(Compare::NotEqual, register, Cow::Borrowed(&[0; 4])),
            source(family, register),
            destination(family, Register(Slots::of(family).width)),
            Expression::InSet(&hairpins, register),
            Expression::Masquerade,
        ]);
        emit(&rule);
    }
}
