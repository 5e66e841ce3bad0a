//! The sets and maps of the table: their names, their kinds, and the bytes of their keys.
//!
//! One table of the family `inet` holds both families of addresses, since a Service of both changes with one commit.
//! Sets whose keys have an address are there twice, with `4` or `6` in their names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink::nft::{Field, SetKind};
use objects::backends::Family;

/// The first number of endpoints on this node, in the map of endpoints: those of all nodes begin at 0.
pub(crate) const LOCAL: u32 = 1 << 31;
/// The most clients that an affinity remembers for a Service's port.
const MOST_CLIENTS: u32 = 65_536;

/// A set or map of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Set {
    pub(crate) family: Family,
    pub(crate) what: What,
}

/// The contents of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    /// address . protocol . port → the chain that picks an endpoint. A node port has the address zero.
    Services,
    /// address . protocol . port . number → address . port of an endpoint.
    Endpoints,
    /// address . protocol . port → the chain that refuses: ports without endpoints. A node port has the address zero.
    Refused,
    /// The cluster addresses of Services.
    ClusterAddresses,
    /// source . destination of connections from an endpoint to itself.
    Hairpins,
    /// address . protocol . port . first number . address . port: the endpoints of ports with affinity.
    Members,
    /// client → address . port of the endpoint that it was led to; the packet filter fills it.
    ///
    /// DIFFERENCE: the kernel fixes a set's time when it makes it, so another time forgets the clients. Upstream's keep
    /// the old time until they come again.
    Affinity {
        /// The hash of the Service's port.
        port: u64,
        /// The time for which a client is remembered, in seconds.
        seconds: u32,
    },
}

/// The sets that are always there.
pub(crate) const FIXED: [What; 6] =
    [What::Services, What::Endpoints, What::Refused, What::ClusterAddresses, What::Hairpins, What::Members];

impl Set {
    /// The fields of the set.
    pub(crate) fn kind(self) -> SetKind {
        let address = match self.family {
            Family::V4 => Field::Address4,
            Family::V6 => Field::Address6,
        };
        let endpoint = [address, Field::Port];
        match self.what {
            What::Services | What::Refused => SetKind::verdicts(&[address, Field::Protocol, Field::Port]),
            What::Endpoints => {
                SetKind::map(&[address, Field::Protocol, Field::Port, Field::Number], &endpoint)
            }
            What::ClusterAddresses => SetKind::set(&[address]),
            What::Hairpins => SetKind::set(&[address, address]),
            What::Members => {
                SetKind::set(&[address, Field::Protocol, Field::Port, Field::Number, address, Field::Port])
            }
            What::Affinity { seconds, .. } => SetKind {
                timeout: u64::from(seconds.max(1)) * 1000,
                dynamic: true,
                size: MOST_CLIENTS,
                ..SetKind::map(&[address], &endpoint)
            },
        }
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = digit(self.family);
        match self.what {
            What::Services => write!(f, "services-{family}"),
            What::Endpoints => write!(f, "endpoints-{family}"),
            What::Refused => write!(f, "refused-{family}"),
            What::ClusterAddresses => write!(f, "cluster-addresses-{family}"),
            What::Hairpins => write!(f, "hairpins-{family}"),
            What::Members => write!(f, "members-{family}"),
            What::Affinity { port, seconds } => write!(f, "affinity-{family}-{port:016x}-{seconds}"),
        }
    }
}

/// The digit by which names tell the families apart.
pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

/// The address zero of a family, which stands for all addresses of the node.
pub(crate) fn zero(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// An address, protocol and port that packets are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Destination {
    pub(crate) address: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

/// The bytes of an address, as packets have them.
pub(crate) fn address(of: IpAddr) -> Vec<u8> {
    match of {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn port(of: u16) -> [u8; 4] {
    let [high, low] = of.to_be_bytes();
    [high, low, 0, 0]
}

/// address . port
pub(crate) fn endpoint(at: IpAddr, number: u16) -> Vec<u8> {
    [&address(at)[..], &port(number)].concat()
}

impl Destination {
    /// address . protocol . port
    pub(crate) fn key(&self) -> Vec<u8> {
        [&address(self.address)[..], &[self.protocol, 0, 0, 0], &port(self.port)].concat()
    }

    /// address . protocol . port . number
    pub(crate) fn numbered(&self, number: u32) -> Vec<u8> {
        [&self.key()[..], &number.to_ne_bytes()].concat()
    }

    /// address . protocol . port . first number . address . port
    pub(crate) fn member(&self, first: u32, at: IpAddr, number: u16) -> Vec<u8> {
        [&self.numbered(first)[..], &endpoint(at, number)].concat()
    }
}

/// FNV-1a: short, and the same in every build, since names and notes in the table depend on it.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        // The length keeps parts apart.
        for byte in part.len().to_le_bytes().iter().chain(*part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}
