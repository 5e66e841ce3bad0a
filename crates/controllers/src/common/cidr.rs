//! Blocks of addresses, and a set that gives them out.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses, IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cidr {
    first: u128,
    prefix: u32,
    v6: bool,
}

/// Why a text is no block.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid CIDR address: {0}")]
pub struct CidrError(pub(crate) String);

impl Cidr {
    fn width(self) -> u32 {
        if self.v6 { 128 } else { 32 }
    }
    /// The addresses of a block as a power of two.
    fn bits(self) -> u32 {
        self.width() - self.prefix
    }
    fn mask(bits: u32) -> u128 {
        1u128.checked_shl(bits).map_or(u128::MAX, |n| n - 1)
    }
    /// Whether another lies in it, or is the same.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.v6 == other.v6
            && self.prefix <= other.prefix
            && (other.first & !Self::mask(self.bits())) == self.first
    }
}

impl From<IpAddr> for Cidr {
    /// The block of one address.
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self { first: u128::from(u32::from(a)), prefix: 32, v6: false },
            IpAddr::V6(a) => Self { first: u128::from(a), prefix: 128, v6: true },
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let bad = || CidrError(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let prefix: u32 = prefix.parse().map_err(|_| bad())?;
        let (first, v6) = match address.parse().map_err(|_| bad())? {
            IpAddr::V4(a) => (u128::from(u32::from(a)), false),
            IpAddr::V6(a) => (u128::from(a), true),
        };
        let block = Self { first, prefix, v6 };
        if prefix > block.width() {
            return Err(bad());
        }
        Ok(Self { first: first & !Self::mask(block.bits()), ..block })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.v6 {
            write!(f, "{}/{}", Ipv6Addr::from(self.first), self.prefix)
        } else {
            let address = Ipv4Addr::from(u32::try_from(self.first).unwrap_or_default());
            write!(f, "{address}/{}", self.prefix)
        }
    }
}

/// Gives out equal blocks of a larger one, those that were never used first.
#[derive(Debug)]
pub(crate) struct CidrSet {
    whole: Cidr,
    prefix: u32,
    used: HashSet<u128>,
    next: u128,
}

impl CidrSet {
    /// Blocks with `prefix` bits of network out of `whole`; `None` if `whole` is smaller than one.
    pub(crate) fn new(whole: Cidr, prefix: u32) -> Option<Self> {
        (prefix >= whole.prefix && prefix <= whole.width()).then(|| Self {
            whole,
            prefix,
            used: HashSet::new(),
            next: 0,
        })
    }

    fn count(&self) -> u128 {
        1u128.checked_shl(self.prefix - self.whole.prefix).unwrap_or(u128::MAX)
    }

    fn block(&self, index: u128) -> Cidr {
        let shift = self.whole.width() - self.prefix;
        let offset = index.checked_shl(shift).unwrap_or(0);
        Cidr { first: self.whole.first | offset, prefix: self.prefix, v6: self.whole.v6 }
    }

    fn index(&self, block: Cidr) -> Option<u128> {
        if !self.whole.contains(block) {
            return None;
        }
        (block.first - self.whole.first).checked_shr(self.whole.width() - self.prefix)
    }

    /// Gives out a block; `None` if all are used.
    pub(crate) fn allocate(&mut self) -> Option<Cidr> {
        if self.used.len() as u128 >= self.count() {
            return None;
        }
        while self.used.contains(&self.next) {
            self.next = (self.next + 1) % self.count();
        }
        let index = self.next;
        self.used.insert(index);
        self.next = (index + 1) % self.count();
        Some(self.block(index))
    }

    /// Notes that a block is used. One that is larger than those given out, or elsewhere, is ignored.
    pub(crate) fn occupy(&mut self, block: Cidr) {
        if let Some(index) = self.index(block) {
            self.used.insert(index);
        }
    }

    /// Takes a block back.
    pub(crate) fn release(&mut self, block: Cidr) {
        if let Some(index) = self.index(block) {
            self.used.remove(&index);
        }
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
        for good in ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "fd00:10::/64", "::/0"] {
            assert_eq!(cidr(good).to_string(), good);
        }
        assert_eq!(cidr("10.1.2.3/16").to_string(), "10.1.0.0/16");
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "x/8", "10.0.0.0/-1"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn blocks_come_in_order_and_come_back_last() {
        let mut set = CidrSet::new(cidr("10.244.0.0/22"), 24).unwrap();
        set.occupy(cidr("10.244.1.0/24"));
        set.occupy(cidr("192.168.0.0/24"));
        let mut next = || set.allocate().map(|c| c.to_string());
        assert_eq!(next().as_deref(), Some("10.244.0.0/24"));
        assert_eq!(next().as_deref(), Some("10.244.2.0/24"));
        set.release(cidr("10.244.0.0/24"));
        let mut next = || set.allocate().map(|c| c.to_string());
        assert_eq!(next().as_deref(), Some("10.244.3.0/24"));
        assert_eq!(next().as_deref(), Some("10.244.0.0/24"));
        assert_eq!(next(), None);
        assert!(CidrSet::new(cidr("10.0.0.0/24"), 16).is_none());
        let mut six = CidrSet::new(cidr("fd00::/48"), 64).unwrap();
        assert_eq!(six.allocate().unwrap().to_string(), "fd00::/64");
        assert_eq!(six.allocate().unwrap().to_string(), "fd00:0:0:1::/64");
    }
}
