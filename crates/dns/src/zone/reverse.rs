//! Names of addresses, below `in-addr.arpa` and `ip6.arpa`.

use std::net::IpAddr;

use objects::Cidr;

use super::authority;
use super::index::Index;
use super::records::hostname;
use super::views::Reach;
use super::{Lookup, Zone};
use crate::name::{QName, push_label};
use crate::packet::{ASKED, HEADER, Rcode, Section, Writer, kind, pointer};

/// A part of the addresses of a family, as a reverse name tells it: the first address, and how many bits are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first: u128,
    bits: u32,
    is_v6: bool,
}

impl Block {
    /// The block that a name stands for; `None` if it is none of an address.
    fn of(name: &QName) -> Option<Self> {
        let parts = name.labels().checked_sub(2)?;
        let (is_v6, each) = match (name.label(parts), name.label(parts + 1)) {
            (b"in-addr", b"arpa") => (false, 8),
            (b"ip6", b"arpa") => (true, 4),
            _ => return None,
        };
        let width = if is_v6 { 128 } else { 32 };
        let bits = u32::try_from(parts).ok().and_then(|p| p.checked_mul(each)).filter(|b| *b <= width)?;
        let mut first = 0u128;
        // The last label is the first part of the address.
        for label in (0..parts).rev() {
            let number = if is_v6 { nibble(name.label(label)) } else { octet(name.label(label)) }?;
            first = first << each | u128::from(number);
        }
        Some(Self { first: first.checked_shl(width - bits).unwrap_or(0), bits, is_v6 })
    }

    fn width(self) -> u32 {
        if self.is_v6 { 128 } else { 32 }
    }

    fn last(self) -> u128 {
        self.first | 1u128.checked_shl(self.width() - self.bits).map_or(u128::MAX, |n| n - 1)
    }

    /// The address, if all of it is told.
    fn address(self) -> Option<IpAddr> {
        match (self.is_v6, self.bits) {
            (false, 32) => u32::try_from(self.first).ok().map(|a| IpAddr::V4(a.into())),
            (true, 128) => Some(IpAddr::V6(self.first.into())),
            _ => None,
        }
    }

    /// How many bits the zone of one of the blocks has in which this one lies: those of its prefix, and the rest of the
    /// last label.
    fn zone_bits(self, blocks: &[Cidr]) -> Option<u32> {
        let each = if self.is_v6 { 4 } else { 8 };
        let zones = blocks.iter().filter(|b| b.is_v6() == self.is_v6).filter_map(|block| {
            let bits = block.prefix().next_multiple_of(each);
            let inside = self.bits >= bits && (block.first()..=block.last()).contains(&self.first);
            inside.then_some(bits)
        });
        zones.min()
    }
}

fn octet(label: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(label).ok()?;
    // `01` and `+1` are other names than `1`.
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| digits)
}

fn nibble(label: &[u8]) -> Option<u8> {
    let [digit] = label else { return None };
    char::from(*digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

impl Zone {
    /// Answers a question for the name of an address: with the Service that has it, else with the endpoints that do.
    /// An address that nobody has, and that is not the cluster's, is somebody else's matter.
    pub(super) fn answer_reverse(&self, index: &Index, writer: &mut Writer<'_>) -> Lookup {
        let query = writer.query();
        let Some(block) = Block::of(&query.name) else { return Lookup::Outside };
        let names = block.address().map(|a| self.names(index, a)).unwrap_or_default();
        if query.kind == kind::PTR && !names.is_empty() {
            for name in &names {
                writer.record(Section::Answer, ASKED, kind::PTR, self.config.ttl, |data| data.extend(name));
            }
            return Lookup::Answered(Rcode::NoError);
        }
        let Some(zone_bits) = block.zone_bits(&self.config.reverse) else {
            // DIFFERENCE: an address of ours has no records of other types elsewhere either.
            return if names.is_empty() { Lookup::Outside } else { Lookup::Answered(Rcode::NoError) };
        };
        let each = if block.is_v6 { 4 } else { 8 };
        let before = ((block.bits - zone_bits) / each) as usize;
        let zone_at = HEADER + query.name.start(before);
        let exists =
            before == 0 || !names.is_empty() || index.any_within(block.first, block.last(), block.is_v6);
        if !exists && !self.is_synced() {
            return Lookup::Unknown;
        }
        match query.kind {
            kind::SOA if before == 0 => {
                authority::start(&self.config, index.serial, writer, (zone_at, Section::Answer));
            }
            kind::NS if before == 0 => {
                writer.record(Section::Answer, ASKED, kind::NS, self.config.ttl, |data| {
                    data.extend(b"\x02ns\x03dns");
                    data.extend(pointer(zone_at));
                });
            }
            _ => authority::start(&self.config, index.serial, writer, (zone_at, Section::Authority)),
        }
        Lookup::Answered(if exists { Rcode::NoError } else { Rcode::NxDomain })
    }

    /// The names of an address.
    fn names(&self, index: &Index, address: IpAddr) -> Vec<Vec<u8>> {
        let name = |labels: &[&str]| {
            let mut wire = Vec::new();
            for label in labels {
                push_label(&mut wire, label.as_bytes())?;
            }
            wire.extend(self.config.domain.wire());
            (wire.len() <= crate::name::MAX_NAME).then_some(wire)
        };
        let mut own = index.having(address).filter_map(|e| e.service.as_deref()).filter_map(|s| {
            let has = matches!(&s.reach, Reach::Cluster(all) if all.contains(&address));
            has.then(|| name(&[&s.id.name, &s.id.namespace, "svc"])).flatten()
        });
        if let Some(service) = own.next() {
            return vec![service];
        }
        let mut names: Vec<Vec<u8>> = Vec::new();
        for slice in index.having(address).flat_map(|e| &e.slices) {
            let ours = slice.addresses.iter().enumerate().filter(|(_, a)| *a == address);
            for (at, _) in ours {
                let host = slice.hostname(at).map_or_else(|| hostname(address), str::to_owned);
                let found = name(&[&host, &slice.service, &slice.id.namespace, "svc"]);
                names.extend(found.filter(|n| !names.contains(n)));
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn block(text: &str) -> Option<Block> {
        Block::of(&QName::from(&text.parse::<Name>().unwrap()))
    }

    #[test]
    fn names_of_addresses() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(
                block(text).and_then(Block::address).map(|a| a.to_string()).as_deref(),
                want,
                "{text}"
            );
        };
        check("4.3.2.1.in-addr.arpa", Some("1.2.3.4"));
        check("04.3.2.1.in-addr.arpa", None);
        check("256.3.2.1.in-addr.arpa", None);
        check("3.2.1.in-addr.arpa", None);
        check("5.4.3.2.1.in-addr.arpa", None);
        check("4.3.2.1.ip6.arpa", None);
        let v6 = format!("1.{}8.b.d.0.1.0.0.2.ip6.arpa", "0.".repeat(23));
        check(&v6, Some("2001:db8::1"));
        check(&format!("g{}", &v6[1..]), None);
        check("in-addr.arpa", None);
        check("1.2.3.4.example", None);
    }

    #[test]
    fn zones_of_blocks() {
        let blocks: Vec<Cidr> =
            ["10.96.0.0/12", "10.0.0.0/24", "fd00:10::/64"].map(|c| c.parse().unwrap()).into();
        let check = |text: &str, want: Option<u32>| {
            assert_eq!(block(text).unwrap().zone_bits(&blocks), want, "{text}");
        };
        check("1.0.96.10.in-addr.arpa", Some(16));
        check("1.0.111.10.in-addr.arpa", Some(16));
        check("1.0.112.10.in-addr.arpa", None);
        check("96.10.in-addr.arpa", Some(16));
        check("10.in-addr.arpa", None);
        check("7.0.0.10.in-addr.arpa", Some(24));
        check("0.10.in-addr.arpa", None);
    }
}
