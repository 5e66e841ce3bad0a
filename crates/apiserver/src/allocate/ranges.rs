//! Which addresses and ports of a range may be given, and in which order they are tried.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// A range of addresses for Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    base: u128,
    /// The number of addresses that can be given: without the network's own and, of IPv4, the broadcast.
    usable: u128,
    v6: bool,
    bits: u8,
}

impl Cidr {
    /// Parses `10.96.0.0/12`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a valid CIDR for Services");
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let bits: u8 = bits.parse().map_err(|_| bad())?;
        let (base, width, v6) = match address {
            IpAddr::V4(a) => (u128::from(u32::from(a)), 32u8, false),
            IpAddr::V6(a) => (u128::from(a), 128, true),
        };
        if bits > width || width - bits < 2 {
            return Err(bad());
        }
        let host = u32::from(width - bits).min(64);
        let size = 1u128 << host;
        let base = base >> (width - bits) << (width - bits);
        Ok(Self { base, usable: size - if v6 { 1 } else { 2 }, v6, bits })
    }
    pub(crate) fn family(&self) -> &'static str {
        if self.v6 { "IPv6" } else { "IPv4" }
    }
    fn address(&self, offset: u128) -> IpAddr {
        let n = self.base + offset;
        if self.v6 { Ipv6Addr::from(n).into() } else { Ipv4Addr::from(n as u32).into() }
    }
    /// The first address: that of the `kubernetes` Service.
    pub(crate) fn first(&self) -> IpAddr {
        self.address(1)
    }
    /// Whether an address can be given.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.offset(address).is_some_and(|o| o >= 1 && o <= self.usable)
    }
    /// Whether an address is in the network, also one that can't be given: its own, the broadcast.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        self.offset(address).is_some_and(|o| o <= self.usable + u128::from(!self.v6))
    }
    fn offset(&self, address: IpAddr) -> Option<u128> {
        let n = match (address, self.v6) {
            (IpAddr::V4(a), false) => u128::from(u32::from(a)),
            (IpAddr::V6(a), true) => u128::from(a),
            _ => return None,
        };
        n.checked_sub(self.base)
    }
    /// Candidates: first the upper band from a random place on, then the band that is kept for
    /// those who choose their address themselves; upstream's order.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = IpAddr> + Send + use<> {
        let this = *self;
        let band = (this.usable / 16).clamp(16, 256).min(this.usable / 2);
        let upper = this.usable - band;
        let start = u128::from(fastrand::u64(..u64::try_from(upper).unwrap_or(u64::MAX).max(1)));
        let high = (0..upper).map(move |i| 1 + band + (start + i) % upper);
        let low = (0..band).map(|i| 1 + i);
        high.chain(low).map(move |offset| this.address(offset))
    }
    /// As text.
    pub(crate) fn text(&self) -> String {
        format!("{}/{}", self.address(0), self.bits)
    }
}

/// The node ports that are in use, as upstream keeps them: a number whose bit `n` stands for the range's port `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortSet {
    first: u16,
    last: u16,
    /// Eight ports each, the lowest bit of the first for the first port.
    bits: Vec<u8>,
}

/// Upstream's text for a port that cannot be had.
pub(crate) const TAKEN: &str = "provided port is already allocated";

impl PortSet {
    /// None is in use.
    pub(crate) fn new(range: &RangeInclusive<u16>) -> Self {
        let (first, last) = (*range.start(), *range.end());
        let size = usize::from(last.saturating_sub(first)) + 1;
        Self { first, last, bits: vec![0; size.div_ceil(8)] }
    }
    /// From the text of the range and the bytes of the number, the highest first.
    pub(crate) fn parse(range: &str, data: &[u8]) -> Option<Self> {
        let (first, last) = range.split_once('-')?;
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last {
            return None;
        }
        let mut set = Self::new(&(first..=last));
        for (place, byte) in set.bits.iter_mut().zip(data.iter().rev()) {
            *place = *byte;
        }
        Some(set)
    }
    /// The range as upstream writes it.
    pub(crate) fn range(&self) -> String {
        format!("{}-{}", self.first, self.last)
    }
    /// The bytes of the number, the highest first and without zeros before it.
    pub(crate) fn data(&self) -> Vec<u8> {
        self.bits.iter().rev().copied().skip_while(|b| *b == 0).collect()
    }
    /// The byte and the bit of a port.
    fn place(&self, port: i64) -> Option<(usize, u8)> {
        let port = u16::try_from(port).ok().filter(|p| (self.first..=self.last).contains(p))?;
        let offset = port - self.first;
        Some((usize::from(offset / 8), 1 << (offset % 8)))
    }
    /// Takes a port; upstream's text if that cannot be.
    pub(crate) fn take(&mut self, port: i64) -> Result<(), String> {
        let Some((at, bit)) = self.place(port) else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}",
                self.range()
            ));
        };
        match self.bits.get_mut(at) {
            Some(byte) if *byte & bit == 0 => {
                *byte |= bit;
                Ok(())
            }
            _ => Err(TAKEN.into()),
        }
    }
    /// Whether a port is taken.
    pub(crate) fn has(&self, port: i64) -> bool {
        self.place(port).is_some_and(|(at, bit)| self.bits.get(at).is_some_and(|byte| byte & bit != 0))
    }
    /// Takes any port: from the upper band first, upstream's order.
    pub(crate) fn take_any(&mut self) -> Option<u16> {
        let size = u32::from(self.last - self.first) + 1;
        let band = if size <= 16 { 0 } else { (size / 32).clamp(16, 128) };
        let upper = size - band;
        let start = fastrand::u32(..upper.max(1));
        let high = (0..upper).map(|i| band + (start + i) % upper);
        let first = self.first;
        let mut all = high.chain(0..band).map(|offset| first + offset as u16);
        all.find(|port| self.take(i64::from(*port)).is_ok())
    }
    /// Gives a port back.
    pub(crate) fn release(&mut self, port: i64) {
        if let Some((at, bit)) = self.place(port)
            && let Some(byte) = self.bits.get_mut(at)
        {
            *byte &= !bit;
        }
    }
    /// The ports that are taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = u16> + '_ {
        (self.first..=self.last).filter(|port| self.has(i64::from(*port)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_address_once_and_none_outside() {
        let cidr = Cidr::parse("10.0.0.0/26").unwrap();
        let all: Vec<IpAddr> = cidr.candidates().collect();
        let distinct: HashSet<_> = all.iter().copied().collect();
        assert_eq!((all.len(), distinct.len()), (62, 62));
        assert!(all.iter().all(|a| cidr.contains(*a)));
        assert!(!cidr.contains("10.0.0.0".parse().unwrap()));
        for (address, covered) in [("10.0.0.0", true), ("10.0.0.63", true), ("10.0.0.64", false)] {
            assert_eq!(cidr.covers(address.parse().unwrap()), covered, "{address}");
        }
        assert!(!cidr.contains("10.0.0.63".parse().unwrap()));
        assert!(!cidr.contains("fd00::1".parse().unwrap()));
        assert_eq!(cidr.first().to_string(), "10.0.0.1");
        assert!(all[..46].iter().all(|a| *a > "10.0.0.16".parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn bad_ranges() {
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/31", "x/8", "fd00::/128"] {
            assert!(Cidr::parse(bad).is_err(), "{bad}");
        }
        let v6 = Cidr::parse("fd00:1::/108").unwrap();
        assert_eq!((v6.family(), v6.text().as_str()), ("IPv6", "fd00:1::/108"));
    }

    #[test]
    fn ports() {
        let mut ports = PortSet::new(&(30000..=30031));
        let mut got: Vec<u16> = std::iter::from_fn(|| ports.take_any()).collect();
        assert_eq!(got.len(), 32);
        assert!(got[..16].iter().all(|p| *p >= 30016), "the lower band comes last: {got:?}");
        got.sort_unstable();
        assert_eq!(got, (30000..=30031).collect::<Vec<_>>());
        assert_eq!(ports.take(30000).unwrap_err(), "provided port is already allocated");
        ports.release(30000);
        assert!(ports.take(30000).is_ok());
        assert!(ports.take(80).unwrap_err().contains("30000-30031"));
    }

    /// Go's `big.Int.Bytes` of the bits.
    #[test]
    fn a_number_of_bits() {
        let check = |ports: &[i64], data: &[u8]| {
            let mut set = PortSet::new(&(30000..=32767));
            for port in ports {
                set.take(*port).unwrap();
            }
            assert_eq!(set.data(), data, "{ports:?}");
            assert_eq!(PortSet::parse("30000-32767", data), Some(set), "{ports:?}");
        };
        check(&[], &[]);
        check(&[30000], &[1]);
        check(&[30007], &[0x80]);
        check(&[30008, 30001], &[1, 2]);
        check(&[30024, 30025], &[3, 0, 0, 0]);
        assert!(PortSet::parse("", &[]).is_none() && PortSet::parse("9-8", &[]).is_none());
        assert_eq!(PortSet::parse("1-3", &[0xff, 0xff]).unwrap().taken().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
