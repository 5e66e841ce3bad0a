//! Addresses for load balancers: which Service has which.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

use client::Key;
use objects::Cidr;

/// A row of addresses of one family, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: u128,
    last: u128,
    v6: bool,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

impl FromStr for Range {
    type Err = String;

    /// Reads `192.0.2.0/24`, `192.0.2.10-192.0.2.20` or one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no range of addresses such as 192.0.2.0/28 or 192.0.2.10-192.0.2.20");
        let text = text.trim();
        if text.contains('/') {
            let block: Cidr = text.parse().map_err(|_| wrong())?;
            return Ok(Self { first: block.first(), last: block.last(), v6: block.is_v6() });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let read = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        let (first, last) = (read(first)?, read(last)?);
        let range = Self { first: number(first), last: number(last), v6: first.is_ipv6() };
        if first.is_ipv6() == last.is_ipv6() && range.first <= range.last { Ok(range) } else { Err(wrong()) }
    }
}

impl Range {
    /// The range of one address.
    pub(super) fn from_address(address: IpAddr) -> Self {
        Self { first: number(address), last: number(address), v6: address.is_ipv6() }
    }
    fn contains(self, address: IpAddr) -> bool {
        self.v6 == address.is_ipv6() && (self.first..=self.last).contains(&number(address))
    }
    fn addresses(self) -> impl Iterator<Item = IpAddr> {
        (self.first..=self.last).map(move |n| {
            if self.v6 { IpAddr::from(n.to_be_bytes()) } else { IpAddr::from((n as u32).to_be_bytes()) }
        })
    }
}

/// The needs of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// The families, by whether they are IPv6.
    pub(super) families: Vec<bool>,
    /// Whether it needs an address of each of its families.
    pub(super) all: bool,
    /// The addresses that it asks for.
    pub(super) asked: Vec<IpAddr>,
    /// The word that Services say that would share an address.
    pub(super) sharing: Option<String>,
    /// Its ports, with their protocols.
    pub(super) ports: BTreeSet<(String, i32)>,
    /// The Pods that must be on the node that announces the address, if that matters.
    pub(super) local: Option<BTreeMap<String, String>>,
}

impl Claim {
    /// Whether two Services may have one address.
    fn goes_with(&self, other: &Self) -> bool {
        self.sharing.is_some()
            && self.sharing == other.sharing
            && self.ports.is_disjoint(&other.ports)
            && self.local == other.local
    }
}

/// The addresses that Services have.
#[derive(Debug, Default)]
pub(super) struct Given {
    services: BTreeMap<Key, (Claim, Vec<IpAddr>)>,
    addresses: BTreeMap<IpAddr, BTreeSet<Key>>,
}

impl Given {
    /// The addresses of a Service.
    pub(super) fn of(&self, key: &Key) -> Option<&[IpAddr]> {
        self.services.get(key).map(|(_, addresses)| &addresses[..])
    }

    /// Takes the addresses of a Service back; whether it had one.
    pub(super) fn release(&mut self, key: &Key) -> bool {
        let Some((_, addresses)) = self.services.remove(key) else { return false };
        for address in &addresses {
            if let Some(keys) = self.addresses.get_mut(address) {
                keys.remove(key);
                if keys.is_empty() {
                    self.addresses.remove(address);
                }
            }
        }
        !addresses.is_empty()
    }

    /// Whether a Service may have an address, beside those that have it.
    fn fits(&self, claim: &Claim, address: IpAddr) -> Result<(), &Key> {
        let others = self.addresses.get(&address).into_iter().flatten();
        let goes = |key: &&Key| self.services.get(key).is_none_or(|(other, _)| claim.goes_with(other));
        others.into_iter().find(|key| !goes(key)).map_or(Ok(()), Err)
    }

    /// Gives a Service its addresses: those that it has (or had, `before`) if they still fit, else those that it asks
    /// for, else one of the sharers', else the first ones that are free. A Service that cannot have what it needs has
    /// nothing.
    ///
    /// # Errors
    /// The reason, in words.
    pub(super) fn assign(
        &mut self,
        key: &Key,
        claim: Claim,
        before: &[IpAddr],
        pool: &[Range],
    ) -> Result<Vec<IpAddr>, String> {
        let had = self.of(key).unwrap_or(before).to_vec();
        self.release(key);
        let mut addresses = Vec::with_capacity(claim.families.len());
        let mut failed = None;
        for v6 in &claim.families {
            match self.choose(&claim, *v6, &had, pool) {
                Ok(address) => addresses.push(address),
                Err(why) => failed = Some(why),
            }
        }
        let enough = failed.is_none() || (!claim.all && !addresses.is_empty());
        let unmet = claim.asked.iter().find(|a| !addresses.contains(a));
        if let Some(why) = failed.filter(|_| !enough || unmet.is_some()) {
            return Err(why);
        }
        if let Some(address) = unmet {
            return Err(format!("{address} is of no family of the Service"));
        }
        for address in &addresses {
            self.addresses.entry(*address).or_default().insert(key.clone());
        }
        self.services.insert(key.clone(), (claim, addresses.clone()));
        Ok(addresses)
    }

    fn choose(&self, claim: &Claim, v6: bool, had: &[IpAddr], pool: &[Range]) -> Result<IpAddr, String> {
        let in_pool = |address: IpAddr| pool.iter().any(|range| range.contains(address));
        if let Some(asked) = claim.asked.iter().find(|a| a.is_ipv6() == v6) {
            if !in_pool(*asked) {
                return Err(format!("{asked} is not in --load-balancer-pool"));
            }
            return match self.fits(claim, *asked) {
                Ok(()) => Ok(*asked),
                Err(other) => Err(format!("{asked} belongs to Service {other}")),
            };
        }
        let fits = |address: &IpAddr| {
            address.is_ipv6() == v6 && in_pool(*address) && self.fits(claim, *address).is_ok()
        };
        if let Some(address) = had.iter().find(|a| fits(a)) {
            return Ok(*address);
        }
        let sharers = self.addresses.keys().filter(|_| claim.sharing.is_some());
        if let Some(address) = sharers.filter(|a| fits(a)).min() {
            return Ok(*address);
        }
        let mut all = pool.iter().filter(|range| range.v6 == v6).flat_map(|range| range.addresses());
        all.find(|address| !self.addresses.contains_key(address)).ok_or_else(|| {
            format!("no {} address of --load-balancer-pool is free", if v6 { "IPv6" } else { "IPv4" })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> Vec<Range> {
        text.split(',').map(|range| range.parse().unwrap()).collect()
    }

    #[test]
    fn ranges() {
        let check = |text: &str, expected: Option<(&str, &str, usize)>| {
            let range: Result<Range, _> = text.parse();
            let ends = |r: Range| {
                let all: Vec<IpAddr> = r.addresses().collect();
                (all[0].to_string(), all[all.len() - 1].to_string(), all.len())
            };
            let expected = expected.map(|(first, last, n)| (first.to_owned(), last.to_owned(), n));
            assert_eq!(range.ok().map(ends), expected, "{text}");
        };
        check("192.0.2.240/28", Some(("192.0.2.240", "192.0.2.255", 16)));
        check("192.0.2.10-192.0.2.12", Some(("192.0.2.10", "192.0.2.12", 3)));
        check(" 192.0.2.10 ", Some(("192.0.2.10", "192.0.2.10", 1)));
        check("2001:db8::10-2001:db8::1f", Some(("2001:db8::10", "2001:db8::1f", 16)));
        check("255.255.255.255", Some(("255.255.255.255", "255.255.255.255", 1)));
        for wrong in ["", "a", "192.0.2.0/33", "192.0.2.9-192.0.2.8", "192.0.2.1-2001:db8::1", "1-2-3"] {
            check(wrong, None);
        }
    }

    fn claim(ports: &[i32]) -> Claim {
        Claim {
            families: vec![false],
            all: true,
            ports: ports.iter().map(|p| ("TCP".to_owned(), *p)).collect(),
            ..Claim::default()
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Services in their order: their claims, the addresses that they had, and what they get.
    #[test]
    fn assignments() {
        type Case<'a> = (Claim, &'a [&'a str], Result<&'a str, &'a str>);
        let check = |range: &str, cases: &[Case<'_>]| {
            let (mut given, pool) = (Given::default(), pool(range));
            for (n, (claim, before, expected)) in cases.iter().enumerate() {
                let before: Vec<IpAddr> = before.iter().map(|a| ip(a)).collect();
                let got = given.assign(&Key::new("ns", n.to_string()), claim.clone(), &before, &pool);
                let got = got.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
                assert_eq!(got.as_deref().map_err(String::as_str), *expected, "{n} of {range}");
            }
        };
        let asks = |address: &str| Claim { asked: vec![ip(address)], ..claim(&[80]) };
        let shares = |word: &str, ports: &[i32]| Claim { sharing: Some(word.to_owned()), ..claim(ports) };
        let dual = |all: bool| Claim { families: vec![true, false], all, ..claim(&[80]) };
        let full = "no IPv4 address of --load-balancer-pool is free";
        check(
            "192.0.2.1-192.0.2.2",
            &[
                (claim(&[80]), &[], Ok("192.0.2.1")),
                (claim(&[80]), &[], Ok("192.0.2.2")),
                (claim(&[81]), &[], Err(full)),
            ],
        );
        // An address that it had is kept, unless it is out of the pool or another's.
        check(
            "192.0.2.1-192.0.2.9",
            &[
                (claim(&[80]), &["192.0.2.5"], Ok("192.0.2.5")),
                (claim(&[80]), &["192.0.2.5"], Ok("192.0.2.1")),
                (claim(&[80]), &["198.51.100.1"], Ok("192.0.2.2")),
            ],
        );
        check(
            "192.0.2.1-192.0.2.9",
            &[
                (asks("192.0.2.7"), &["192.0.2.5"], Ok("192.0.2.7")),
                (asks("192.0.2.7"), &[], Err("192.0.2.7 belongs to Service ns/0")),
                (asks("192.0.2.70"), &[], Err("192.0.2.70 is not in --load-balancer-pool")),
                (asks("2001:db8::1"), &[], Err("2001:db8::1 is of no family of the Service")),
            ],
        );
        check(
            "192.0.2.1-192.0.2.9",
            &[
                (shares("w", &[80]), &[], Ok("192.0.2.1")),
                (shares("w", &[443]), &[], Ok("192.0.2.1")),
                (shares("w", &[80]), &[], Ok("192.0.2.2")),
                (shares("v", &[81]), &[], Ok("192.0.2.3")),
                (claim(&[81]), &[], Ok("192.0.2.4")),
            ],
        );
        check(
            "192.0.2.1,2001:db8::1",
            &[(dual(true), &[], Ok("2001:db8::1 192.0.2.1")), (dual(false), &[], Err(full))],
        );
        check("192.0.2.1", &[(dual(false), &[], Ok("192.0.2.1"))]);
        check("192.0.2.1", &[(dual(true), &[], Err("no IPv6 address of --load-balancer-pool is free"))]);
    }

    /// Whatever comes and goes, no two Services have an address that may not share it, and all is in the pool.
    #[test]
    fn no_address_twice() {
        let mut random = Random(7);
        let pool = pool("192.0.2.1-192.0.2.6,2001:db8::1-2001:db8::3");
        let mut given = Given::default();
        let mut failures = 0;
        for _ in 0..20_000 {
            let key = Key::new("ns", random.below(12).to_string());
            if random.below(4) == 0 {
                given.release(&key);
                assert_eq!(given.of(&key), None);
                continue;
            }
            let mut claim = claim(&[random.below(3) as i32]);
            claim.families = [vec![false], vec![true], vec![false, true]][random.below(3)].clone();
            claim.all = random.below(2) == 0;
            claim.sharing = (random.below(2) == 0).then(|| "w".to_owned());
            if random.below(5) == 0 {
                claim.asked = vec![IpAddr::from([192, 0, 2, random.below(9) as u8])];
            }
            failures += usize::from(given.assign(&key, claim, &[], &pool).is_err());
            for (address, keys) in &given.addresses {
                assert!(pool.iter().any(|range| range.contains(*address)));
                for (one, other) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
                    assert!(one == other || given.services[one].0.goes_with(&given.services[other].0));
                }
            }
            let all: usize = given.services.values().map(|(_, addresses)| addresses.len()).sum();
            assert_eq!(all, given.addresses.values().map(BTreeSet::len).sum::<usize>());
        }
        assert!(failures > 100, "the pool was never full: {failures}");
    }

    /// A small generator, the same in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }
}
