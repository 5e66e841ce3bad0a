//! The table's sets and maps, one of each for a family of addresses.

use std::net::IpAddr;

use netlink::nft::{Field, SetKind};

/// A family of addresses, as far as sets and rules differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ip {
    /// The end of the names of sets.
    pub(super) name: &'static str,
    pub(super) v6: bool,
}

pub(super) const IPS: [Ip; 2] = [Ip { name: "4", v6: false }, Ip { name: "6", v6: true }];

impl Ip {
    pub(super) fn field(self) -> Field {
        if self.v6 { Field::Address6 } else { Field::Address4 }
    }
    pub(super) fn has(self, address: IpAddr) -> bool {
        address.is_ipv6() == self.v6
    }
}

/// A set or map of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    /// Sources that get the node's address when they leave the cluster.
    Pods,
    /// Destinations that are not outside.
    Inside,
    /// Ports of all of the node's addresses.
    Ports,
    /// Ports of one address of the node.
    OwnPorts,
    /// Pods that may reach themselves by a port of the node.
    Hairpins,
}

pub(super) const SETS: [Set; 5] = [Set::Pods, Set::Inside, Set::Ports, Set::OwnPorts, Set::Hairpins];

impl Set {
    pub(super) fn name(self, ip: Ip) -> String {
        let name = match self {
            Self::Pods => "pods",
            Self::Inside => "inside",
            Self::Ports => "ports",
            Self::OwnPorts => "own_ports",
            Self::Hairpins => "hairpins",
        };
        format!("{name}{}", ip.name)
    }
    pub(super) fn kind(self, ip: Ip) -> SetKind {
        let address = ip.field();
        let to = [address, Field::Port];
        match self {
            Self::Pods | Self::Inside => SetKind { ranges: true, ..SetKind::set(&[address]) },
            Self::Ports => SetKind::map(&[Field::Protocol, Field::Port], &to),
            Self::OwnPorts => SetKind::map(&[address, Field::Protocol, Field::Port], &to),
            Self::Hairpins => SetKind::set(&[address, address]),
        }
    }
}
