//! The phrases of which rules are made.

use std::borrow::Cow;

use netlink::nft::{Base, Compare, Expression, Meta, Register, Verdict};
use objects::Cidr;
use objects::backends::Family;

use crate::settings::Settings;

/// `RTN_LOCAL`: an address of this machine.
const LOCAL_ADDRESS: u32 = 2;

/// The registers of a destination, as keys of the maps have its fields, and of what belongs to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots {
    /// The number of registers of an address.
    pub(super) width: u8,
    pub(super) address: Register,
    pub(super) protocol: Register,
    pub(super) port: Register,
    pub(super) number: Register,
    /// The first register behind the number: the endpoint's address, and then its port.
    pub(super) behind: Register,
    /// The client's address.
    pub(super) client: Register,
}

impl Slots {
    pub(super) fn of(family: Family) -> Self {
        let width = match family {
            Family::V4 => 1,
            Family::V6 => 4,
        };
        Self {
            width,
            address: Register(0),
            protocol: Register(width),
            port: Register(width + 1),
            number: Register(width + 2),
            behind: Register(width + 3),
            client: Register(12),
        }
    }
}

/// The packet's source address.
pub(super) fn source(family: Family, to: Register) -> Expression<'static> {
    match family {
        Family::V4 => Expression::Payload { base: Base::Network, offset: 12, length: 4, to },
        Family::V6 => Expression::Payload { base: Base::Network, offset: 8, length: 16, to },
    }
}

/// The packet's destination address.
pub(super) fn destination(family: Family, to: Register) -> Expression<'static> {
    match family {
        Family::V4 => Expression::Payload { base: Base::Network, offset: 16, length: 4, to },
        Family::V6 => Expression::Payload { base: Base::Network, offset: 24, length: 16, to },
    }
}

/// The packet's destination as a key: address, or zero for a node port, protocol, port.
pub(super) fn key(family: Family, node_port: bool) -> Vec<Expression<'static>> {
    let at = Slots::of(family);
    let address = if node_port {
        Expression::Set(at.address, vec![0; usize::from(at.width) * 4].into())
    } else {
        destination(family, at.address)
    };
    vec![
        address,
        Expression::Meta(Meta::Transport, at.protocol),
        Expression::Payload { base: Base::Transport, offset: 2, length: 2, to: at.port },
    ]
}

/// Goes on for packets of a family.
pub(super) fn is_of(family: Family) -> [Expression<'static>; 2] {
    let number: &'static [u8] = match family {
        Family::V4 => &[2],
        Family::V6 => &[10],
    };
    [
        Expression::Meta(Meta::Network, Register(0)),
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(number)),
    ]
}

fn masked(block: Cidr, register: Register) -> (Expression<'static>, Vec<u8>) {
    let bits = |number: u128| {
        let bytes = number.to_be_bytes();
        if block.is_v6() { bytes.to_vec() } else { bytes[12..].to_vec() }
    };
    let mask = !(block.last() ^ block.first());
    let xor = bits(0);
    let and = Expression::Bits { from: register, to: register, mask: bits(mask).into(), xor: xor.into() };
    (and, bits(block.first()))
}

/// Goes on if the address in a register lies in a block; the register is changed.
pub(super) fn in_block(block: Cidr, register: Register) -> [Expression<'static>; 2] {
    let (and, first) = masked(block, register);
    [and, Expression::Compare(Compare::Equal, register, first.into())]
}

/// Goes on if the address in a register does not lie in a block; the register is changed.
pub(super) fn not_in_block(block: Cidr, register: Register) -> [Expression<'static>; 2] {
    let (and, first) = masked(block, register);
    [and, Expression::Compare(Compare::NotEqual, register, first.into())]
}

/// The bytes of an interface's name: all 16, or those that a prefix has.
fn name_bytes(name: &str, whole: bool) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(15);
    if whole {
        bytes.resize(16, 0);
    }
    bytes
}

/// Goes on for packets that came by an interface with this name, or one that begins so.
pub(super) fn from_interface(name: &str, whole: bool) -> [Expression<'static>; 2] {
    [
        Expression::Meta(Meta::InName, Register(8)),
        Expression::Compare(Compare::Equal, Register(8), name_bytes(name, whole).into()),
    ]
}

/// Goes on for packets that did not come by such an interface.
pub(super) fn not_from_interface(name: &str, whole: bool) -> [Expression<'static>; 2] {
    [
        Expression::Meta(Meta::InName, Register(8)),
        Expression::Compare(Compare::NotEqual, Register(8), name_bytes(name, whole).into()),
    ]
}

/// Goes on if the source is an address of this machine.
pub(super) fn source_is_here() -> [Expression<'static>; 2] {
    [
        Expression::SourceKind(Register(0)),
        Expression::Compare(Compare::Equal, Register(0), LOCAL_ADDRESS.to_ne_bytes().to_vec().into()),
    ]
}

/// Goes on if the destination is an address of this machine.
pub(super) fn destination_is_here() -> [Expression<'static>; 2] {
    destination_kind(Compare::Equal)
}

/// Goes on if the destination is no address of this machine.
pub(super) fn destination_is_elsewhere() -> [Expression<'static>; 2] {
    destination_kind(Compare::NotEqual)
}

fn destination_kind(compare: Compare) -> [Expression<'static>; 2] {
    [
        Expression::DestinationKind(Register(0)),
        Expression::Compare(compare, Register(0), LOCAL_ADDRESS.to_ne_bytes().to_vec().into()),
    ]
}

/// Sets the mark that asks for another source address.
pub(super) fn mark(settings: &Settings) -> [Expression<'static>; 3] {
    change_mark(settings, settings.mark())
}

/// Takes that mark away.
pub(super) fn unmark(settings: &Settings) -> [Expression<'static>; 3] {
    change_mark(settings, 0)
}

fn change_mark(settings: &Settings, xor: u32) -> [Expression<'static>; 3] {
    let bytes = |number: u32| Cow::Owned(number.to_ne_bytes().to_vec());
    let register = Register(0);
    [
        Expression::Meta(Meta::Mark, register),
        Expression::Bits { from: register, to: register, mask: bytes(!settings.mark()), xor: bytes(xor) },
        Expression::SetMark(register),
    ]
}

/// Goes on in a chain, and not here.
pub(super) fn go(chain: &str) -> Expression<'static> {
    Expression::Verdict(Verdict::Goto(chain.to_owned().into()))
}

/// Goes on in a chain, and then here.
pub(super) fn jump(chain: &'static str) -> Expression<'static> {
    Expression::Verdict(Verdict::Jump(chain.into()))
}

/// The block of the machine's own addresses that never leave it.
pub(super) fn loopback(family: Family) -> Cidr {
    match family {
        Family::V4 => Cidr::part(Cidr::from(address_of([127, 0, 0, 0])), 0x7f00_0000, 8),
        Family::V6 => Cidr::from(std::net::IpAddr::from(std::net::Ipv6Addr::LOCALHOST)),
    }
}

fn address_of(octets: [u8; 4]) -> std::net::IpAddr {
    std::net::Ipv4Addr::from(octets).into()
}
