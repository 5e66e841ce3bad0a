//! A set of blocks of addresses, which gives out free ones.

use std::collections::HashMap;

use component::metrics::{Histogram, Page};

use objects::{Cidr, CidrError};

/// The reason for which the Pod network cannot be divided among the nodes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RangeError {
    /// A text is no block.
    #[error(transparent)]
    Invalid(#[from] CidrError),
    /// Blocks do not fit together.
    #[error("{0}")]
    Unusable(String),
}

/// The greatest number of bits by which a block of IPv6 is smaller than the whole network.
const MOST_BITS_V6: u32 = 16;

/// Gives out equal blocks of a larger one, blocks that were never used first. Uses are counted: a block is free when
/// all users of a part of it have given that back.
#[derive(Debug, Clone)]
pub(crate) struct CidrSet {
    whole: Cidr,
    prefix: u32,
    used: HashMap<u128, u32>,
    /// Used ranges that cover several blocks, as the first and the last of them.
    wide: Vec<(u128, u128)>,
    next: u128,
    figures: Figures,
}

/// The numbers of a set, for its metrics.
#[derive(Debug, Clone)]
struct Figures {
    /// The blocks that were given out or noted.
    allocations: u64,
    /// The blocks that came back.
    releases: u64,
    /// The blocks that were looked at for each that was given out.
    tries: Histogram,
}

/// Upstream's metrics of a set: their names, types and helps.
const METRICS: [(&str, &str, &str); 5] = [
    (
        "node_ipam_controller_cidrset_cidrs_allocations_total",
        "counter",
        "[ALPHA] Counter measuring total number of CIDR allocations.",
    ),
    (
        "node_ipam_controller_cidrset_cidrs_releases_total",
        "counter",
        "[ALPHA] Counter measuring total number of CIDR releases.",
    ),
    (
        "node_ipam_controller_cirdset_max_cidrs",
        "gauge",
        "[ALPHA] Maximum number of CIDRs that can be allocated.",
    ),
    (
        "node_ipam_controller_cidrset_usage_cidrs",
        "gauge",
        "[ALPHA] Gauge measuring percentage of allocated CIDRs.",
    ),
    (
        "node_ipam_controller_cidrset_allocation_tries_per_request",
        "histogram",
        "[ALPHA] Number of CIDRs that were looked at for each allocation",
    ),
];

/// Writes the metrics of sets.
pub(super) fn report(sets: &[CidrSet], page: &mut Page) {
    for (name, kind, help) in METRICS {
        page.metric(name, kind, help);
        for set in sets {
            let whole = set.whole.to_string();
            let labels = [("clusterCIDR", whole.as_str())];
            let value = match name {
                "node_ipam_controller_cidrset_cidrs_allocations_total" => set.figures.allocations as f64,
                "node_ipam_controller_cidrset_cidrs_releases_total" => set.figures.releases as f64,
                "node_ipam_controller_cirdset_max_cidrs" => set.count() as f64,
                "node_ipam_controller_cidrset_usage_cidrs" => set.allocated() as f64 / set.count() as f64,
                _ => {
                    page.histogram(name, &labels, &set.figures.tries);
                    continue;
                }
            };
            page.value(name, &labels, value);
        }
    }
}

/// The number of blocks of a used range.
fn size((first, last): (u128, u128)) -> u64 {
    u64::try_from(last - first + 1).unwrap_or(u64::MAX)
}

impl CidrSet {
    /// Makes the set of the blocks with `prefix` bits of network out of `whole`.
    pub(crate) fn new(whole: Cidr, prefix: u32) -> Result<Self, RangeError> {
        if prefix < whole.prefix() || prefix > whole.width() {
            return Err(RangeError::Unusable(format!("{whole} is smaller than a node's /{prefix}")));
        }
        if whole.is_v6() && prefix - whole.prefix() > MOST_BITS_V6 {
            return Err(RangeError::Unusable(
                "New CIDR set failed; the node CIDR size is too big".to_owned(),
            ));
        }
        let tries = Histogram::new(&[1.0, 5.0, 25.0, 125.0, 625.0]);
        let figures = Figures { allocations: 0, releases: 0, tries };
        Ok(Self { whole, prefix, used: HashMap::new(), wide: Vec::new(), next: 0, figures })
    }

    /// The network that is divided into blocks.
    pub(crate) fn whole(&self) -> Cidr {
        self.whole
    }

    fn count(&self) -> u128 {
        1u128.checked_shl(self.prefix - self.whole.prefix()).unwrap_or(u128::MAX)
    }

    fn block(&self, index: u128) -> Cidr {
        let shift = self.whole.width() - self.prefix;
        let offset = index.checked_shl(shift).unwrap_or(0);
        Cidr::part(self.whole, self.whole.first() | offset, self.prefix)
    }

    /// Returns the first and the last block that have addresses of another block; `None` if there are none.
    fn indexes(&self, other: Cidr) -> Option<(u128, u128)> {
        if other.contains(self.whole) {
            return Some((0, self.count() - 1));
        }
        if !self.whole.contains(other) {
            return None;
        }
        let shift = self.whole.width() - self.prefix;
        let index = |address: u128| (address - self.whole.first()).checked_shr(shift).unwrap_or(0);
        Some((index(other.first()), index(other.last())))
    }

    /// Returns the block after the used range with this block; `None` if the block is free.
    fn behind(&self, index: u128) -> Option<u128> {
        if self.used.contains_key(&index) {
            return Some(index + 1);
        }
        self.wide
            .iter()
            .filter(|(first, last)| (*first..=*last).contains(&index))
            .map(|(_, last)| last + 1)
            .max()
    }

    /// The number of blocks that are used.
    fn allocated(&self) -> u128 {
        let wide = self.wide.iter().map(|(first, last)| last - first + 1);
        wide.fold(self.used.len() as u128, u128::saturating_add).min(self.count())
    }

    /// Returns a free block, and the number of used ones that were looked at before.
    fn free(&self) -> Option<(u128, usize)> {
        let mut index = self.next;
        // Each used block is passed once, and each range across the beginning twice.
        for tries in 0..=self.used.len() + 2 * self.wide.len() + 1 {
            match self.behind(index) {
                None => return Some((index, tries)),
                Some(behind) => index = behind % self.count(),
            }
        }
        None
    }

    /// Whether all blocks are used.
    pub(crate) fn is_full(&self) -> bool {
        self.free().is_none()
    }

    /// Gives out a block; `None` if all are used.
    pub(crate) fn allocate(&mut self) -> Option<Cidr> {
        let (index, tries) = self.free()?;
        self.used.insert(index, 1);
        self.figures.allocations += 1;
        self.figures.tries.observe(tries as f64);
        self.next = (index + 1) % self.count();
        Some(self.block(index))
    }

    /// Notes that a block is used, and so all blocks of the set that have a part of it. A block outside the network is
    /// ignored.
    pub(crate) fn occupy(&mut self, block: Cidr) {
        match self.indexes(block) {
            Some((first, last)) if first == last => {
                let uses = self.used.entry(first).or_default();
                *uses += 1;
                self.figures.allocations += u64::from(*uses == 1);
            }
            Some(several) => {
                self.figures.allocations += size(several);
                self.wide.push(several);
            }
            None => {}
        }
    }

    /// Takes back a block that was given out or noted.
    pub(crate) fn release(&mut self, block: Cidr) {
        match self.indexes(block) {
            Some((first, last)) if first == last => {
                if let Some(count) = self.used.get_mut(&first) {
                    *count -= 1;
                    if *count == 0 {
                        self.used.remove(&first);
                        self.figures.releases += 1;
                    }
                }
            }
            Some(several) => {
                if let Some(i) = self.wide.iter().position(|w| *w == several) {
                    self.wide.swap_remove(i);
                    self.figures.releases += size(several);
                }
            }
            None => {}
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
        assert!(CidrSet::new(cidr("10.0.0.0/24"), 16).is_err());
        assert!(CidrSet::new(cidr("fd00::/47"), 64).is_err(), "too many blocks");
        let mut six = CidrSet::new(cidr("fd00::/48"), 64).unwrap();
        assert_eq!(six.allocate().unwrap().to_string(), "fd00::/64");
        assert_eq!(six.allocate().unwrap().to_string(), "fd00:0:0:1::/64");
    }

    /// Upstream's cases of `TestCIDRSet_RandomishAllocation` and `TestDoubleOccupyRelease`, and used ranges that are
    /// larger or smaller than a block.
    #[test]
    fn what_is_occupied_is_not_given() {
        // The whole, the blocks' prefix, the occupied blocks, the released blocks, and all blocks that are given then.
        let check = |whole: &str, prefix: u32, occupied: &[&str], released: &[&str], want: &[&str]| {
            let mut set = CidrSet::new(cidr(whole), prefix).unwrap();
            for c in occupied {
                set.occupy(cidr(c));
            }
            for c in released {
                set.release(cidr(c));
            }
            let given: Vec<String> = std::iter::from_fn(|| set.allocate()).map(|c| c.to_string()).collect();
            assert_eq!(given, want, "{whole} {prefix} {occupied:?} {released:?}");
            assert_eq!(set.allocate(), None);
        };
        let (a, b) = ("10.42.0.0/24", "10.42.1.0/24");
        let (c, d) = ("10.42.2.0/24", "10.42.3.0/24");
        check("10.42.0.0/22", 24, &[], &[], &[a, b, c, d]);
        check("10.42.0.0/22", 24, &["10.42.0.0/23"], &[], &[c, d]);
        check("10.42.0.0/22", 24, &["10.42.2.0/23"], &[], &[a, b]);
        check("10.42.0.0/22", 24, &["10.0.0.0/8"], &[], &[]);
        check("10.42.0.0/22", 24, &["10.42.0.0/22"], &["10.42.0.0/22"], &[a, b, c, d]);
        check("10.42.0.0/22", 24, &["10.42.1.128/25", "10.42.3.7/32"], &[], &[a, c]);
        check("10.42.0.0/22", 24, &["10.42.0.0/16", a], &["10.42.0.0/16"], &[b, c, d]);
        check("10.42.0.0/22", 24, &[a, a], &[a], &[b, c, d]);
        check("10.42.0.0/22", 24, &["10.42.1.0/25", "10.42.1.128/25"], &["10.42.1.0/25"], &[a, c, d]);
        check("10.42.0.0/22", 24, &[a], &[a, a, b], &[a, b, c, d]);
        check("10.42.0.0/24", 24, &[], &[], &[a]);
        check("0.0.0.0/0", 1, &["128.0.0.0/1"], &[], &["0.0.0.0/1"]);
        check("fd00::/62", 64, &["fd00:0:0:1::/64", "fd00:0:0:2::/63"], &[], &["fd00::/64"]);
        check("fd00::/127", 128, &["fd00::1/128", "10.0.0.0/8"], &[], &["fd00::/128"]);
    }

    /// Upstream's 15 cases of `TestIndexToCIDRBlock`: the block of a number.
    #[test]
    fn blocks_by_number() {
        for (whole, prefix, index, want) in [
            ("127.123.0.0/16", 24, 0, "127.123.0.0/24"),
            ("127.123.0.0/16", 24, 15, "127.123.15.0/24"),
            ("192.168.5.208/28", 32, 5, "192.168.5.213/32"),
            ("2001:db8:1234::/48", 64, 0, "2001:db8:1234::/64"),
            ("2001:db8:1234::/48", 64, 15, "2001:db8:1234:f::/64"),
            ("2001:db8:85a3::/50", 63, 6425, "2001:db8:85a3:3232::/63"),
            ("2001:db8::/32", 48, 0, "2001:db8::/48"),
            ("2001:db8::/32", 48, 15, "2001:db8:f::/48"),
            ("2001:db8::/32", 48, 6425, "2001:db8:1919::/48"),
            ("2001:db8:1234:ff00::/56", 72, 0, "2001:db8:1234:ff00::/72"),
            ("2001:db8:1234:ff00::/56", 72, 15, "2001:db8:1234:ff00:f00::/72"),
            ("2001:db8:1234:ff00::/56", 72, 6425, "2001:db8:1234:ff19:1900::/72"),
            ("2001:db8:1234:0:1234::/80", 96, 0, "2001:db8:1234:0:1234::/96"),
            ("2001:db8:1234:0:1234::/80", 96, 15, "2001:db8:1234:0:1234:f::/96"),
            ("2001:db8:1234:ff00::/80", 96, 6425, "2001:db8:1234:ff00:0:1919::/96"),
        ] {
            let set = CidrSet::new(cidr(whole), prefix).unwrap();
            assert_eq!(set.block(index), cidr(want), "{whole} {prefix} {index}");
        }
    }

    /// Upstream's 14 cases of `TestGetBitforCIDR`: the number of a block.
    #[test]
    fn numbers_of_blocks() {
        for (whole, prefix, block, want) in [
            ("127.0.0.0/8", 16, "127.0.0.0/16", Some(0)),
            ("be00::/8", 16, "be00::/16", Some(0)),
            ("127.0.0.0/8", 16, "127.123.0.0/16", Some(123)),
            ("be00::/8", 16, "beef::/16", Some(0xef)),
            ("127.0.0.0/8", 16, "127.168.0.0/16", Some(168)),
            ("be00::/8", 16, "be68::/16", Some(0x68)),
            ("127.0.0.0/8", 16, "127.224.0.0/16", Some(224)),
            ("be00::/8", 16, "be24::/16", Some(0x24)),
            ("192.168.0.0/16", 24, "192.168.12.0/24", Some(12)),
            ("beef::/16", 24, "beef:1200::/24", Some(0x12)),
            ("192.168.0.0/16", 24, "192.168.151.0/24", Some(151)),
            ("beef::/16", 24, "beef:9700::/24", Some(0x97)),
            ("192.168.0.0/16", 24, "127.168.224.0/24", None),
            ("beef::/16", 24, "2001:db00::/24", None),
        ] {
            let set = CidrSet::new(cidr(whole), prefix).unwrap();
            let got = set.indexes(cidr(block));
            assert_eq!(got, want.map(|at: u128| (at, at)), "{whole} {prefix} {block}");
        }
    }

    /// Upstream's 14 cases of `TestOccupy`: the blocks of a used range, and that each is used, and no other.
    #[test]
    fn blocks_of_used_ranges() {
        for (whole, prefix, used, first, last) in [
            ("127.0.0.0/8", 16, "127.0.0.0/8", 0, 255),
            ("2001:beef:1200::/40", 48, "2001:beef:1200::/40", 0, 255),
            ("127.0.0.0/8", 16, "64.0.0.0/2", 0, 255),
            ("2001:beef:1200::/40", 48, "2001:beef::/34", 0, 255),
            ("127.0.0.0/8", 16, "127.0.0.0/16", 0, 0),
            ("2001:beef:1200::/40", 48, "2001:beef:1200::/48", 0, 0),
            ("127.0.0.0/8", 32, "127.0.0.0/16", 0, 65535),
            ("2001:beef:1200::/48", 64, "2001:beef:1200::/48", 0, 65535),
            ("126.0.0.0/7", 16, "127.0.0.0/15", 256, 257),
            ("2001:beef:7e00::/39", 48, "2001:beef:7f00::/47", 256, 257),
            ("126.0.0.0/7", 15, "127.0.0.0/15", 128, 128),
            ("2001:beef:7e00::/39", 47, "2001:beef:7f00::/47", 128, 128),
            ("126.0.0.0/7", 18, "127.0.0.0/15", 1024, 1031),
            ("2001:beef:7e00::/39", 50, "2001:beef:7f00::/47", 1024, 1031),
        ] {
            let mut set = CidrSet::new(cidr(whole), prefix).unwrap();
            assert_eq!(set.indexes(cidr(used)), Some((first, last)), "{whole} {prefix} {used}");
            set.occupy(cidr(used));
            for at in [first, last] {
                assert!(set.behind(at).is_some(), "{whole} {prefix} {used} {at}");
            }
            for at in first.checked_sub(1).into_iter().chain(Some(last + 1).filter(|at| *at < set.count())) {
                assert_eq!(set.behind(at), None, "{whole} {prefix} {used} {at}");
            }
            assert_eq!(set.allocated(), last - first + 1, "{whole} {prefix} {used}");
        }
    }

    /// Upstream's cases of `TestCIDRSetFullyAllocated`, `TestCIDRSetv6` and `Test_getMaxCIDRs`.
    #[test]
    fn whole_sets() {
        for one in ["127.123.234.0/30", "beef:1234::/30"] {
            let mut set = CidrSet::new(cidr(one), 30).unwrap();
            assert_eq!((set.allocate(), set.allocate()), (Some(cidr(one)), None));
            set.release(cidr(one));
            assert_eq!((set.allocate(), set.allocate()), (Some(cidr(one)), None));
        }
        for (whole, prefix, want) in [
            ("127.0.0.0/8", 32, Some(["127.0.0.0/32", "127.0.0.1/32"])),
            ("beef:1234::/32", 49, None),
            ("2001:beef:1234:3690::/60", 64, Some(["2001:beef:1234:3690::/64", "2001:beef:1234:3691::/64"])),
        ] {
            let mut set = CidrSet::new(cidr(whole), prefix).ok();
            let mut next = || set.as_mut().and_then(CidrSet::allocate);
            assert_eq!(
                [next(), next()],
                want.map_or([None, None], |two| two.map(|c| Some(cidr(c)))),
                "{whole}"
            );
        }
        for (whole, prefix, want) in [("10.0.0.0/16", 24, 256), ("2001:db8::/48", 64, 65_536)] {
            assert_eq!(CidrSet::new(cidr(whole), prefix).unwrap().count(), want);
        }
    }

    /// Upstream's cases of `TestCIDRSet_AllocationOccupied`: half of the blocks are used again, one of them twice.
    #[test]
    fn the_other_half_is_given_anew() {
        for whole in ["127.123.0.0/16", "beef::/16"] {
            let mut set = CidrSet::new(cidr(whole), 24).unwrap();
            let all: Vec<Cidr> = std::iter::from_fn(|| set.allocate()).collect();
            assert_eq!(all.len(), 256);
            for block in &all {
                set.release(*block);
            }
            all[128..].iter().for_each(|block| set.occupy(*block));
            set.occupy(all[128]);
            let given: Vec<Cidr> = std::iter::from_fn(|| set.allocate()).collect();
            assert_eq!(given, all[..128], "{whole}");
        }
    }

    /// Upstream's cases of `TestCidrSetMetrics` and `TestCidrSetMetricsDual`: the figures after each step.
    #[test]
    fn figures() {
        let mut set = CidrSet::new(cidr("10.0.0.0/16"), 24).unwrap();
        let check = |set: &CidrSet, want: [f64; 4]| {
            let mut page = Page::default();
            report(std::slice::from_ref(set), &mut page);
            let text = page.text();
            for ((name, ..), want) in METRICS.iter().zip(want) {
                let line = format!("{name}{{clusterCIDR=\"10.0.0.0/16\"}} {want}\n");
                assert!(text.contains(&line), "{line} is not in\n{text}");
            }
        };
        check(&set, [0.0, 0.0, 256.0, 0.0]);
        for n in 1..=256 {
            set.allocate().unwrap();
            check(&set, [f64::from(n), 0.0, 256.0, f64::from(n) / 256.0]);
        }
        assert_eq!(set.figures.tries.count(), 256);
        set.release(cidr("10.0.0.0/16"));
        check(&set, [256.0, 0.0, 256.0, 1.0]);
        for n in 0..64 {
            set.release(cidr(&format!("10.0.{n}.0/24")));
        }
        check(&set, [256.0, 64.0, 256.0, 0.75]);
        set.occupy(cidr("10.0.0.0/18"));
        check(&set, [320.0, 64.0, 256.0, 1.0]);
    }
}
