//! The expressions of rules.

use std::borrow::Cow;

use netlink_bindings::nftables::{
    BitwiseOps, CmpOps, CtKeys, FibFlags, LookupFlags, MetaKeys, NumgenTypes, PayloadBase, RangeOps,
    Registers, RejectInetCode, RejectTypes,
};

use super::Verdict;
use crate::attributes::{nest, put, put_be32, put_text};

/// `NFTA_LIST_ELEM`, `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`.
const ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
/// `NFTA_DATA_VALUE`, `NFTA_DATA_VERDICT`, `NFTA_VERDICT_CODE`, `NFTA_VERDICT_CHAIN`.
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// `NFT_NAT_DNAT`; `NF_NAT_RANGE_PROTO_RANDOM_FULLY`; `NFT_DYNSET_OP_UPDATE`, `NFT_DYNSET_OP_DELETE`.
const DESTINATION: u32 = 1;
const RANDOM_PORTS: u32 = 1 << 4;
const UPDATE: u32 = 1;
const DELETE: u32 = 2;
/// `NFT_FIB_RESULT_OIF`, `NFT_FIB_RESULT_ADDRTYPE`; the bindings (0.3.5) count from 0.
const FIB_LINK: u32 = 1;
const FIB_ADDRESS_KIND: u32 = 3;

/// A register of four bytes: 0 to 15. Longer values take the ones after it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Register(pub u8);

impl Register {
    fn number(self) -> u32 {
        Registers::Reg3200 as u32 + u32::from(self.0)
    }
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Less, as bytes.
    Less,
    /// Not greater, as bytes.
    NotGreater,
    /// Greater, as bytes.
    Greater,
    /// Not less, as bytes.
    NotLess,
}

impl Compare {
    fn number(self) -> u32 {
        (match self {
            Self::Equal => CmpOps::Eq,
            Self::NotEqual => CmpOps::Neq,
            Self::Less => CmpOps::Lt,
            Self::NotGreater => CmpOps::Lte,
            Self::Greater => CmpOps::Gt,
            Self::NotLess => CmpOps::Gte,
        }) as u32
    }
}

/// Something about a packet that is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meta {
    /// Its mark: four bytes of this machine's order.
    Mark,
    /// The number of the interface by which it came: four bytes of this machine's order.
    InLink,
    /// The number of the interface by which it leaves: four bytes of this machine's order.
    OutLink,
    /// The name of the interface by which it came, filled up to 16 bytes.
    InName,
    /// The name of the interface by which it leaves, filled up to 16 bytes.
    OutName,
    /// 2 for IPv4, 10 for IPv6: one byte.
    Network,
    /// The number of the protocol (6 for TCP): one byte.
    Transport,
}

impl Meta {
    fn number(self) -> u32 {
        (match self {
            Self::Mark => MetaKeys::Mark,
            Self::InLink => MetaKeys::Iif,
            Self::OutLink => MetaKeys::Oif,
            Self::InName => MetaKeys::Iifname,
            Self::OutName => MetaKeys::Oifname,
            Self::Network => MetaKeys::Nfproto,
            Self::Transport => MetaKeys::L4Proto,
        }) as u32
    }
}

/// Something about a packet's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tracked {
    /// Bits of [`state`]: four bytes of this machine's order.
    State,
    /// Bits of [`status`]: four bytes of this machine's order.
    Status,
    /// Its mark: four bytes of this machine's order.
    Mark,
    /// The direction of the packet: 0 for that of who began it, 1 for answers; one byte.
    Direction,
    /// The IPv4 address to which the one who began it sends.
    Destination4,
    /// The IPv6 address to which the one who began it sends.
    Destination6,
    /// The port to which the one who began it sends.
    DestinationPort,
}

impl Tracked {
    fn number(self) -> u32 {
        (match self {
            Self::State => CtKeys::State,
            Self::Status => CtKeys::Status,
            Self::Mark => CtKeys::Mark,
            Self::Direction => CtKeys::Direction,
            Self::Destination4 => CtKeys::DstIp,
            Self::Destination6 => CtKeys::DstIp6,
            Self::DestinationPort => CtKeys::ProtoDst,
        }) as u32
    }
    fn is_of_a_direction(self) -> bool {
        matches!(self, Self::Destination4 | Self::Destination6 | Self::DestinationPort)
    }
}

/// The bits of [`Tracked::State`].
pub mod state {
    /// The packet belongs to no connection.
    pub const INVALID: u32 = 1;
    /// The packet belongs to a connection of both directions.
    pub const ESTABLISHED: u32 = 2;
    /// The packet is about another connection.
    pub const RELATED: u32 = 4;
    /// The packet begins a connection.
    pub const NEW: u32 = 8;
}

/// The bits of [`Tracked::Status`].
pub mod status {
    /// The source is rewritten.
    pub const SOURCE_NAT: u32 = 1 << 4;
    /// The destination is rewritten.
    pub const DESTINATION_NAT: u32 = 1 << 5;
}

/// The header of a packet from which bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    /// That of the link (Ethernet).
    Link,
    /// That of IP.
    Network,
    /// That of TCP, UDP and the like.
    Transport,
}

impl Base {
    fn number(self) -> u32 {
        (match self {
            Self::Link => PayloadBase::LinkLayerHeader,
            Self::Network => PayloadBase::NetworkHeader,
            Self::Transport => PayloadBase::TransportHeader,
        }) as u32
    }
}

/// A step of a rule. A rule ends at the first comparison or look-up that fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression<'a> {
    /// Reads something about the packet that is not in it.
    Meta(Meta, Register),
    /// Sets the packet's mark.
    SetMark(Register),
    /// Reads bytes of the packet.
    Payload {
        /// Where `offset` counts from.
        base: Base,
        /// The first byte.
        offset: u32,
        /// The number of bytes.
        length: u32,
        /// The first register.
        to: Register,
    },
    /// Reads something about the packet's connection.
    Tracked(Tracked, Register),
    /// Sets the mark of the packet's connection.
    SetTrackedMark(Register),
    /// Reads the kind of the destination's address (`RTN_LOCAL` is 2).
    DestinationKind(Register),
    /// Reads the kind of the source's address (`RTN_LOCAL` is 2).
    SourceKind(Register),
    /// Reads whether an answer would leave by the interface by which the packet came: 0 if not.
    SourceRoute(Register),
    /// Goes on if the bytes compare so.
    Compare(Compare, Register, Cow<'a, [u8]>),
    /// Goes on if the bytes are in a range, with its ends.
    Range(Register, Cow<'a, [u8]>, Cow<'a, [u8]>),
    /// (from & mask) ^ xor.
    Bits {
        /// The value.
        from: Register,
        /// The result.
        to: Register,
        /// The bits that stay.
        mask: Cow<'a, [u8]>,
        /// The bits that are turned around.
        xor: Cow<'a, [u8]>,
    },
    /// Goes on if a set has the key.
    InSet(&'a str, Register),
    /// Goes on if a set does not have the key.
    NotInSet(&'a str, Register),
    /// Goes on with a map's value for the key, if it has one.
    Map {
        /// The map's name.
        map: &'a str,
        /// The key.
        key: Register,
        /// The value.
        to: Register,
    },
    /// Does what a map says for the key, if it has one.
    VerdictMap(&'a str, Register),
    /// Writes bytes.
    Set(Register, Cow<'a, [u8]>),
    /// Ends the rule.
    Verdict(Verdict<'a>),
    /// Writes a number below `modulus` by chance, as four bytes of this machine's order.
    Random {
        /// The number of values.
        modulus: u32,
        /// The least value.
        offset: u32,
        /// The register.
        to: Register,
    },
    /// Adds an element to a set or map. One that is there gets its time-out anew and keeps its value.
    Update {
        /// The name of the set or map.
        set: &'a str,
        /// The key.
        key: Register,
        /// The value.
        value: Option<Register>,
        /// The time-out in milliseconds; 0 for the set's own.
        timeout: u64,
    },
    /// Removes an element from a set or map; none is no failure.
    Remove {
        /// The name of the set or map.
        set: &'a str,
        /// The key.
        key: Register,
        /// Any register that was written, for a map: the kernel asks for one and does not read it.
        value: Option<Register>,
    },
    /// Rewrites the destination of the connection.
    DestinationNat {
        /// Whether the address is an IPv6 one.
        ipv6: bool,
        /// The address.
        address: Register,
        /// The port.
        port: Option<Register>,
    },
    /// Rewrites the source of the connection to the address of the interface by which packets leave, with ports by
    /// chance.
    Masquerade,
    /// Answers that the port cannot be reached (a TCP connection is reset).
    Reject {
        /// Whether the packet belongs to a TCP connection.
        tcp: bool,
    },
    /// Counts.
    Counter,
    /// The packet's connection is not tracked.
    NoTrack,
}

/// Writes bytes as the data of an attribute.
pub(super) fn put_value(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nest(to, kind, |to| put(to, DATA_VALUE, value));
}

/// Writes a verdict as the data of an attribute.
pub(super) fn put_verdict(to: &mut Vec<u8>, kind: u16, verdict: &Verdict<'_>) {
    nest(to, kind, |to| {
        nest(to, DATA_VERDICT, |to| {
            put_be32(to, VERDICT_CODE, verdict.code() as u32);
            if let Some(chain) = verdict.chain() {
                put_text(to, VERDICT_CHAIN, chain);
            }
        });
    });
}

impl Expression<'_> {
    /// The kernel's name of the expression.
    fn name(&self) -> &'static str {
        match self {
            Self::Meta(..) | Self::SetMark(_) => "meta",
            Self::Payload { .. } => "payload",
            Self::Tracked(..) | Self::SetTrackedMark(_) => "ct",
            Self::DestinationKind(_) | Self::SourceKind(_) | Self::SourceRoute(_) => "fib",
            Self::Compare(..) => "cmp",
            Self::Range(..) => "range",
            Self::Bits { .. } => "bitwise",
            Self::InSet(..) | Self::NotInSet(..) | Self::Map { .. } | Self::VerdictMap(..) => "lookup",
            Self::Set(..) | Self::Verdict(_) => "immediate",
            Self::Random { .. } => "numgen",
            Self::Update { .. } | Self::Remove { .. } => "dynset",
            Self::DestinationNat { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Reject { .. } => "reject",
            Self::Counter => "counter",
            Self::NoTrack => "notrack",
        }
    }

    /// Writes the expression as an element of a list.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        nest(to, ELEMENT, |to| {
            put_text(to, NAME, self.name());
            nest(to, DATA, |to| self.write_data(to));
        });
    }

    /// Writes the expression's attributes, whose numbers are those of `linux/netfilter/nf_tables.h`.
    fn write_data(&self, to: &mut Vec<u8>) {
        match self {
            Self::Meta(key, register) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, key.number());
            }
            Self::SetMark(register) => {
                put_be32(to, 2, Meta::Mark.number());
                put_be32(to, 3, register.number());
            }
            Self::Payload { base, offset, length, to: register } => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, base.number());
                put_be32(to, 3, *offset);
                put_be32(to, 4, *length);
            }
            Self::Tracked(key, register) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, key.number());
                if key.is_of_a_direction() {
                    put(to, 3, &[0]);
                }
            }
            Self::SetTrackedMark(register) => {
                put_be32(to, 2, Tracked::Mark.number());
                put_be32(to, 4, register.number());
            }
            Self::DestinationKind(register) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, FIB_ADDRESS_KIND);
                put_be32(to, 3, FibFlags::Daddr as u32);
            }
            Self::SourceKind(register) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, FIB_ADDRESS_KIND);
                put_be32(to, 3, FibFlags::Saddr as u32);
            }
            Self::SourceRoute(register) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, FIB_LINK);
                put_be32(to, 3, FibFlags::Saddr as u32 | FibFlags::Iif as u32);
            }
            Self::Compare(how, register, value) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, how.number());
                put_value(to, 3, value);
            }
            Self::Range(register, low, high) => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, RangeOps::Eq as u32);
                put_value(to, 3, low);
                put_value(to, 4, high);
            }
            Self::Bits { from, to: result, mask, xor } => {
                put_be32(to, 1, from.number());
                put_be32(to, 2, result.number());
                put_be32(to, 3, mask.len() as u32);
                put_value(to, 4, mask);
                put_value(to, 5, xor);
                put_be32(to, 6, BitwiseOps::MaskXor as u32);
            }
            Self::Set(register, value) => {
                put_be32(to, 1, register.number());
                put_value(to, 2, value);
            }
            Self::Verdict(verdict) => {
                put_be32(to, 1, Registers::RegVerdict as u32);
                put_verdict(to, 2, verdict);
            }
            Self::Random { modulus, offset, to: register } => {
                put_be32(to, 1, register.number());
                put_be32(to, 2, *modulus);
                put_be32(to, 3, NumgenTypes::Random as u32);
                put_be32(to, 4, *offset);
            }
            Self::DestinationNat { .. } | Self::Masquerade | Self::Reject { .. } => self.write_rewrite(to),
            Self::InSet(..) | Self::NotInSet(..) | Self::Map { .. } | Self::VerdictMap(..) => {
                self.write_look_up(to);
            }
            Self::Update { set, key, value, timeout } => {
                put_text(to, 1, set);
                put_be32(to, 3, UPDATE);
                put_be32(to, 4, key.number());
                if let Some(value) = value {
                    put_be32(to, 5, value.number());
                }
                if *timeout != 0 {
                    put(to, 6, &timeout.to_be_bytes());
                }
            }
            Self::Remove { set, key, value } => {
                put_text(to, 1, set);
                put_be32(to, 3, DELETE);
                put_be32(to, 4, key.number());
                if let Some(value) = value {
                    put_be32(to, 5, value.number());
                }
            }
            Self::Counter | Self::NoTrack => {}
        }
    }

    fn write_rewrite(&self, to: &mut Vec<u8>) {
        match self {
            Self::DestinationNat { ipv6, address, port } => {
                put_be32(to, 1, DESTINATION);
                put_be32(to, 2, if *ipv6 { 10 } else { 2 });
                put_be32(to, 3, address.number());
                if let Some(port) = port {
                    put_be32(to, 5, port.number());
                }
            }
            Self::Masquerade => put_be32(to, 1, RANDOM_PORTS),
            Self::Reject { tcp: true } => {
                put_be32(to, 1, RejectTypes::TcpRst as u32);
                put(to, 2, &[0]);
            }
            Self::Reject { tcp: false } => {
                put_be32(to, 1, RejectTypes::IcmpxUnreach as u32);
                put(to, 2, &[RejectInetCode::IcmpxPortUnreach as u8]);
            }
            _ => {}
        }
    }

    fn write_look_up(&self, to: &mut Vec<u8>) {
        let (set, key, result) = match self {
            Self::InSet(set, key) | Self::NotInSet(set, key) => (set, key, None),
            Self::Map { map, key, to } => (map, key, Some(to.number())),
            Self::VerdictMap(map, key) => (map, key, Some(Registers::RegVerdict as u32)),
            _ => return,
        };
        put_text(to, 1, set);
        put_be32(to, 2, key.number());
        if let Some(result) = result {
            put_be32(to, 3, result);
        }
        if matches!(self, Self::NotInSet(..)) {
            put_be32(to, 5, LookupFlags::Invert as u32);
        }
    }
}
