//! Blocks of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses, IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    first: u128,
    prefix: u32,
    v6: bool,
}

/// A text that is no block; Go's words.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("invalid CIDR address: {0}")]
pub struct CidrError(pub String);

impl Cidr {
    /// The block that begins at `first` and has this many bits of network, of the same family and within the same
    /// numbers as `whole`. The bits of `first` behind the prefix must be zero.
    pub fn part(whole: Self, first: u128, prefix: u32) -> Self {
        Self { first, prefix, v6: whole.v6 }
    }
    /// Whether the block is of IPv6.
    pub fn is_v6(self) -> bool {
        self.v6
    }
    /// The number of bits of an address of the block's family.
    pub fn width(self) -> u32 {
        if self.v6 { 128 } else { 32 }
    }
    /// The number of bits of the network.
    pub fn prefix(self) -> u32 {
        self.prefix
    }
    /// The block's first address as a number.
    pub fn first(self) -> u128 {
        self.first
    }
    /// The block's last address as a number.
    pub fn last(self) -> u128 {
        self.first | mask(self.width() - self.prefix)
    }
    /// Whether another block lies in this one, or is the same.
    pub fn contains(self, other: Self) -> bool {
        self.v6 == other.v6
            && self.prefix <= other.prefix
            && (self.first..=self.last()).contains(&other.first)
    }
    /// Whether two blocks have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other) || other.contains(self)
    }
    /// The n-th address after the first; `None` if the block is not that large.
    pub fn nth(self, n: u32) -> Option<IpAddr> {
        let address = self.first.checked_add(u128::from(n)).filter(|a| *a <= self.last())?;
        Some(self.address(address))
    }

    fn address(self, number: u128) -> IpAddr {
        match u32::try_from(number) {
            Ok(number) if !self.v6 => Ipv4Addr::from(number).into(),
            _ => Ipv6Addr::from(number).into(),
        }
    }
}

/// The largest number of this many bits.
fn mask(bits: u32) -> u128 {
    1u128.checked_shl(bits).map_or(u128::MAX, |n| n - 1)
}

impl From<IpAddr> for Cidr {
    /// Makes the block of one address.
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self { first: u128::from(u32::from(a)), prefix: 32, v6: false },
            IpAddr::V6(a) => Self { first: u128::from(a), prefix: 128, v6: true },
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;
    /// Reads a block. Bits of the address behind the prefix are dropped.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let bad = || CidrError(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        // Rust's parser would accept a sign.
        if !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let prefix: u32 = prefix.parse().map_err(|_| bad())?;
        let block = Self::from(address.parse::<IpAddr>().map_err(|_| bad())?);
        if prefix > block.width() {
            return Err(bad());
        }
        Ok(Self { first: block.first & !mask(block.width() - prefix), prefix, ..block })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(self.first), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn texts() {
        for good in ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "fd00:10::/64", "::/0", "::/8"] {
            assert_eq!(cidr(good).to_string(), good);
        }
        assert_eq!(cidr("10.1.2.3/16").to_string(), "10.1.0.0/16");
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "x/8", "10.0.0.0/-1", "10.0.0.0/+8"]
        {
            assert_eq!(bad.parse::<Cidr>(), Err(CidrError(bad.to_owned())));
        }
        assert_eq!("x/8".parse::<Cidr>().unwrap_err().to_string(), "invalid CIDR address: x/8");
    }

    #[test]
    fn what_lies_in_another() {
        let check = |a: &str, b: &str, contains: bool, overlaps: bool| {
            let (a, b) = (cidr(a), cidr(b));
            assert_eq!(
                (a.contains(b), a.overlaps(b), b.overlaps(a)),
                (contains, overlaps, overlaps),
                "{a} {b}"
            );
        };
        check("10.0.0.0/8", "10.1.0.0/16", true, true);
        check("10.1.0.0/16", "10.0.0.0/8", false, true);
        check("10.0.0.0/8", "10.0.0.0/8", true, true);
        check("10.0.0.0/16", "10.1.0.0/16", false, false);
        check("0.0.0.0/0", "255.255.255.255/32", true, true);
        check("::/0", "ffff::/16", true, true);
        check("::/0", "10.0.0.0/8", false, false);
        check("0.0.0.0/0", "::/128", false, false);
    }

    #[test]
    fn addresses() {
        let check = |block: &str, n: u32, want: Option<&str>| {
            assert_eq!(cidr(block).nth(n).map(|a| a.to_string()).as_deref(), want, "{block} {n}");
        };
        check("10.96.0.0/16", 1, Some("10.96.0.1"));
        check("10.96.3.7/16", 10, Some("10.96.0.10"));
        check("10.96.0.0/30", 4, None);
        check("255.255.255.255/32", 1, None);
        check("fd00::/108", 1, Some("fd00::1"));
        check("::/120", 1, Some("::1"));
        assert_eq!(Cidr::from("10.0.0.1".parse::<IpAddr>().unwrap()).to_string(), "10.0.0.1/32");
    }
}
