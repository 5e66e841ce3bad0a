//! A container's place in the network.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use netlink::namespace;
use objects::Cidr;
use serde::{Deserialize, Serialize};

use crate::cni::{Bandwidth, HostPort};
use crate::guard::PodName;

/// A container's address of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    /// The address.
    pub(crate) address: IpAddr,
    /// The node's address on the container's link.
    pub(crate) gateway: IpAddr,
}

/// A network namespace, whatever its file's name means by now: that may be of a process whose number another one has
/// since, above all after the machine was started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The machine's start, as the kernel names it.
    boot: String,
    /// The namespace's number of that time.
    number: u64,
}

impl Identity {
    /// The identity of a namespace that is there.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self { boot: boot.trim().to_owned(), number: namespace::number(file)? })
    }
}

/// A container that is joined to the network, or was to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    /// The runtime's name of the container (of a Pod's sandbox).
    pub(crate) container: String,
    /// The name of the link inside.
    pub(crate) interface: String,
    /// The container's Pod, if the runtime named one.
    #[serde(default)]
    pub(crate) pod: Option<PodName>,
    /// The file of the container's network namespace.
    pub(crate) namespace: PathBuf,
    /// The namespace that this file was when the container was joined; none in records of former versions.
    #[serde(default)]
    pub(crate) identity: Option<Identity>,
    /// The number that no other attachment of the node has: the place of the addresses in their blocks.
    pub(crate) number: u16,
    /// The addresses, one of each family at most.
    pub(crate) addresses: Vec<Own>,
    /// The longest packet, in bytes.
    pub(crate) mtu: u32,
    /// The node's ports that lead here.
    #[serde(default)]
    pub(crate) ports: Vec<HostPort>,
    /// The limits of its traffic.
    #[serde(default)]
    pub(crate) bandwidth: Bandwidth,
}

impl Attachment {
    /// The hardware address inside.
    pub(crate) fn hardware(&self) -> [u8; 6] {
        self.addresses.first().map_or([0x0a, 0x58, 0, 0, 0, 2], |own| hardware(own.address))
    }
    /// The hardware address of the node's end.
    pub(crate) fn host_hardware(&self) -> [u8; 6] {
        self.addresses.first().map_or([0x0a, 0x58, 0, 0, 0, 1], |own| hardware(own.gateway))
    }
}

/// A hardware address of the private range, made of an address as the standard plugins make it.
pub(crate) fn hardware(address: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match address {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => {
            let all = v6.octets();
            [all[12], all[13], all[14], all[15]]
        }
    };
    [0x0a, 0x58, a, b, c, d]
}

/// The greatest number whose addresses all blocks have; the network's address (0), the node's own (1) and the last are
/// left out.
pub(crate) fn last_number(blocks: &[Cidr]) -> u16 {
    let of = |block: &Cidr| u16::try_from(block.last() - block.first()).unwrap_or(u16::MAX).saturating_sub(1);
    blocks.iter().map(of).min().unwrap_or_default()
}

/// The addresses that belong to a number.
pub(crate) fn addresses(blocks: &[Cidr], number: u16) -> Vec<Own> {
    let own = |block: &Cidr| Some(Own { address: block.nth(number.into())?, gateway: block.nth(1)? });
    blocks.iter().filter_map(own).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn blocks(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// One with two families.
    pub(crate) fn example() -> Attachment {
        Attachment {
            container: "a1".into(),
            interface: "eth0".into(),
            pod: None,
            namespace: "/run/netns/x".into(),
            identity: None,
            number: 2,
            addresses: addresses(&blocks(&["10.244.0.0/24", "fd00::/64"]), 2),
            mtu: 1500,
            ports: Vec::new(),
            bandwidth: Bandwidth::default(),
        }
    }

    #[test]
    fn numbers_of_blocks() {
        let check = |texts: &[&str], expected: u16| {
            assert_eq!(last_number(&blocks(texts)), expected, "{texts:?}");
        };
        check(&["10.0.0.0/24"], 254);
        check(&["10.0.0.0/30"], 2);
        check(&["10.0.0.0/31"], 0);
        check(&["10.0.0.0/32"], 0);
        check(&["10.0.0.0/8"], 65534);
        check(&["fd00::/64"], 65534);
        check(&["10.0.0.0/24", "fd00::/64"], 254);
        check(&["10.0.0.0/24", "fd00::/126"], 2);
        check(&[], 0);
    }

    #[test]
    fn hardware_follows_the_address() {
        assert_eq!(hardware([10, 244, 0, 2].into()), [0x0a, 0x58, 10, 244, 0, 2]);
        assert_eq!(hardware("fd00::a:b".parse().unwrap()), [0x0a, 0x58, 0, 10, 0, 11]);
    }
}
