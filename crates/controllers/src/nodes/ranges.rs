//! The ranges of addresses of which nodes get blocks: pure.

use std::collections::HashMap;

use component::metrics::Page;

use super::cidr_set::{CidrSet, RangeError};
use objects::Cidr;

/// Upstream's prefix of a node's block of IPv4 addresses.
pub(crate) const NODE_PREFIX_V4: u32 = 24;

/// Upstream's prefix of a node's block of IPv6 addresses.
pub(crate) const NODE_PREFIX_V6: u32 = 64;

/// The sizes of a node's blocks as the flags of upstream's name them; zero where nobody named one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaskSizes {
    /// Of the one block of a node (`--node-cidr-mask-size`).
    pub only: i32,
    /// Of the block of IPv4 addresses (`--node-cidr-mask-size-ipv4`).
    pub v4: i32,
    /// Of the block of IPv6 addresses (`--node-cidr-mask-size-ipv6`).
    pub v6: i32,
}

/// The prefixes of a node's blocks of IPv4 and of IPv6 addresses, out of a list as `--cluster-cidr` has it (upstream's
/// `setNodeCIDRMaskSizes`).
///
/// # Errors
/// The list cannot be used, or a size is named that it has no place for.
pub fn node_prefixes(list: &str, sizes: MaskSizes) -> Result<(u32, u32), RangeError> {
    let texts: Vec<&str> = list.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
    let ranges: Vec<Cidr> = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let refused = |why: &str| Err(RangeError::Unusable(why.to_owned()));
    let only_v6 = matches!(ranges.as_slice(), [only] if only.is_v6());
    let (dual, MaskSizes { only, v4, v6 }) = (ranges.len() > 1, sizes);
    if dual && only != 0 {
        return refused("usage of --node-cidr-mask-size is not allowed with dual-stack clusters");
    }
    if !dual && only != 0 && (v4 != 0 || v6 != 0) {
        return refused(
            "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
        );
    }
    if !dual && only_v6 && v4 != 0 {
        return refused("usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster");
    }
    if !dual && !only_v6 && v6 != 0 {
        return refused("usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster");
    }
    let size = |named: i32, usual: u32| match (named, only) {
        (0, 0) => Ok(usual),
        (0, only) | (only, _) => u32::try_from(only)
            .map_err(|_| RangeError::Unusable(format!("a node's block cannot have a prefix of /{only}"))),
    };
    Ok((size(v4, NODE_PREFIX_V4)?, size(v6, NODE_PREFIX_V6)?))
}

/// The ranges from which nodes get blocks, one of each family, and the nodes' blocks.
#[derive(Debug, Clone)]
pub(crate) struct Ranges {
    sets: Vec<CidrSet>,
    /// The present or planned blocks of each node, by its name.
    nodes: HashMap<String, Vec<Cidr>>,
}

impl Ranges {
    /// Parses a list as `--cluster-cidr` has it, with the sizes of a node's block for IPv4 and IPv6, and the ranges of
    /// the Services' addresses, which are kept out.
    pub(crate) fn parse(
        list: &str,
        prefix_v4: u32,
        prefix_v6: u32,
        services: &[String],
    ) -> Result<Self, RangeError> {
        let mut sets: Vec<CidrSet> = Vec::new();
        let texts: Vec<&str> = list.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
        if texts.len() > 2 {
            let why = format!("len of clusters is:{} > more than max allowed of 2", texts.len());
            return Err(RangeError::Unusable(why));
        }
        for text in texts {
            let whole: Cidr = text.parse()?;
            if sets.iter().any(|s| s.whole().is_v6() == whole.is_v6()) {
                let why = "len of ClusterCIDRs==2 and they are not configured as dual stack (at least one from each IPFamily";
                return Err(RangeError::Unusable(why.to_owned()));
            }
            sets.push(CidrSet::new(whole, if whole.is_v6() { prefix_v6 } else { prefix_v4 })?);
        }
        for service in services {
            let service: Cidr = service.parse()?;
            for set in &mut sets {
                set.occupy(service);
                if set.is_full() {
                    let why = format!("the service network {service} leaves nothing of {}", set.whole());
                    return Err(RangeError::Unusable(why));
                }
            }
        }
        Ok(Self { sets, nodes: HashMap::new() })
    }

    /// Whether there are none: another component gives the nodes their blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Writes the metrics of the ranges.
    pub(super) fn report(&self, page: &mut Page) {
        super::cidr_set::report(&self.sets, page);
    }

    /// Notes the blocks of a node.
    pub(super) fn occupy(&mut self, node: &str, blocks: Vec<Cidr>) {
        if self.nodes.get(node) == Some(&blocks) {
            return;
        }
        self.release(node);
        // Each set takes any order of the families, and blocks that are larger than its own.
        for set in &mut self.sets {
            for block in &blocks {
                set.occupy(*block);
            }
        }
        self.nodes.insert(node.to_owned(), blocks);
    }

    /// Frees the blocks of a node that is gone.
    pub(super) fn release(&mut self, node: &str) {
        for block in self.nodes.remove(node).unwrap_or_default() {
            self.sets.iter_mut().for_each(|set| set.release(block));
        }
    }

    /// Gives a node a block of each range; `None` if one range is used up. A node that was given blocks once gets the
    /// same again: the first write may have succeeded.
    pub(super) fn allocate(&mut self, node: &str) -> Option<Vec<Cidr>> {
        if let Some(known) = self.nodes.get(node) {
            return Some(known.clone());
        }
        let got: Vec<Cidr> = self.sets.iter_mut().filter_map(CidrSet::allocate).collect();
        if got.len() < self.sets.len() {
            for block in got {
                self.sets.iter_mut().for_each(|set| set.release(block));
            }
            return None;
        }
        self.nodes.insert(node.to_owned(), got.clone());
        Some(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Ranges {
        Ranges::parse(list, 24, 64, &[]).unwrap()
    }

    fn cidrs(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn both_families_or_none() {
        let mut r = parse("10.0.0.0/23,fd00::/63");
        r.occupy("n", cidrs(&["10.0.0.0/24", "fd00::/64"]));
        let got = r.allocate("a").unwrap();
        assert_eq!(got, cidrs(&["10.0.1.0/24", "fd00:0:0:1::/64"]));
        assert_eq!(r.allocate("a"), Some(got), "the blocks that it was to have");
        assert_eq!(r.allocate("b"), None);
        r.occupy("n", cidrs(&["fd00::/64"]));
        assert_eq!(r.allocate("b"), None, "the other family is used up");
        r.release("a");
        assert!(r.allocate("b").is_some());
    }

    #[test]
    fn blocks_of_nodes_that_differ_from_ours() {
        // The blocks of nodes, in order, and all blocks that other nodes get then.
        let check = |has: &[&[&str]], want: &[&str]| {
            let mut r = parse("10.0.0.0/22");
            for (i, blocks) in has.iter().enumerate() {
                r.occupy(&format!("has-{i}"), cidrs(blocks));
            }
            let mut others = 0..;
            let got = std::iter::from_fn(|| r.allocate(&format!("n{}", others.next()?)));
            assert_eq!(got.flatten().collect::<Vec<_>>(), cidrs(want), "{has:?}");
        };
        check(&[&["10.0.0.0/23"]], &["10.0.2.0/24", "10.0.3.0/24"]);
        check(&[&["10.0.1.64/26"], &["10.0.2.0/24"]], &["10.0.0.0/24", "10.0.3.0/24"]);
        check(&[&["fd00::/64", "10.0.0.0/24"]], &["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"]);
        check(&[&["10.0.0.0/8"]], &[]);
        let mut r = parse("10.0.0.0/23");
        r.occupy("a", cidrs(&["10.0.0.0/23"]));
        r.occupy("b", cidrs(&["10.0.1.0/24"]));
        r.release("a");
        assert_eq!(r.allocate("c"), Some(cidrs(&["10.0.0.0/24"])));
        assert_eq!(r.allocate("d"), None, "the other is still b's");
    }

    /// The cases of upstream's `TestSetNodeCIDRMaskSizes`.
    #[test]
    fn sizes_of_blocks() {
        let check = |list: &str, [only, v4, v6]: [i32; 3], want: Result<(u32, u32), &str>| {
            let got = node_prefixes(list, MaskSizes { only, v4, v6 }).map_err(|e| e.to_string());
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{list} {only} {v4} {v6}"),
                (Err(got), Err(want)) => assert!(got.starts_with(want), "{list} {only} {v4} {v6}: {got}"),
                (got, want) => panic!("{list} {only} {v4} {v6}: {got:?} instead of {want:?}"),
            }
        };
        let (v4, v6, both) = ("10.0.0.0/16", "fd00::/56", "10.0.0.0/16,fd00::/48");
        check(v4, [0, 0, 0], Ok((24, 64)));
        check(v4, [25, 0, 0], Ok((25, 25)));
        check(v4, [0, 26, 0], Ok((26, 64)));
        check(
            v4,
            [0, 0, 72],
            Err("usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4"),
        );
        check(v4, [0, 25, 72], Err("usage of --node-cidr-mask-size-ipv6 is not allowed"));
        check(v6, [72, 0, 0], Ok((72, 72)));
        check(v6, [0, 0, 72], Ok((24, 72)));
        check(
            v6,
            [0, 25, 0],
            Err("usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6"),
        );
        check(both, [0, 0, 0], Ok((24, 64)));
        check(both, [0, 26, 60], Ok((26, 60)));
        check(both, [0, 26, 0], Ok((26, 64)));
        check(both, [24, 0, 0], Err("usage of --node-cidr-mask-size is not allowed with dual-stack"));
        check(
            v4,
            [24, 24, 0],
            Err("usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not"),
        );
        check(
            v6,
            [24, 0, 24],
            Err("usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not"),
        );
        check(v4, [-1, 0, 0], Err("a node's block cannot have a prefix of /-1"));
        check("10.0.0.0", [0, 0, 0], Err("invalid CIDR address: 10.0.0.0"));
    }
    /// Upstream's 10 cases of `TestAllocateOrOccupyCIDRSuccess`, `TestAllocateOrOccupyCIDRFailure` and
    /// `TestReleaseCIDRSuccess`:
    /// ranges, sizes, the Services' range, blocks that nodes have, those that are given back, and what the next node gets.
    ///
    /// DIFFERENCE: more than two ranges, or two of one family, are refused at the start.
    #[test]
    fn blocks_for_nodes() {
        let check =
            |list: &str, v4: u32, v6: u32, services: &str, taken: &[&str], back: &[&str], want: &[&str]| {
                let services: Vec<String> =
                    Some(services.to_owned()).into_iter().filter(|s| !s.is_empty()).collect();
                let mut ranges = Ranges::parse(list, v4, v6, &services).unwrap();
                for block in taken {
                    ranges.occupy(block, cidrs(&[block]));
                }
                for block in back {
                    ranges.release(block);
                }
                let got = ranges.allocate("node0").unwrap_or_default();
                assert_eq!(got, cidrs(want), "{list} {services:?} {taken:?} {back:?}");
            };
        let (range, services) = ("127.123.234.0/24", "127.123.234.0/26");
        check(range, 30, 64, "", &[], &[], &["127.123.234.0/30"]);
        check(range, 30, 64, services, &[], &[], &["127.123.234.64/30"]);
        let taken = ["127.123.234.64/30", "127.123.234.68/30", "127.123.234.72/30", "127.123.234.80/30"];
        check(range, 30, 64, services, &taken, &[], &["127.123.234.76/30"]);
        let six = "ace:cab:deca::/84";
        check(
            &format!("127.0.0.0/8,{six}"),
            24,
            98,
            services,
            &[],
            &[],
            &["127.0.0.0/24", "ace:cab:deca::/98"],
        );
        check(
            &format!("{six},127.0.0.0/8"),
            24,
            98,
            services,
            &[],
            &[],
            &["ace:cab:deca::/98", "127.0.0.0/24"],
        );
        check("10.10.0.0/22", 24, 64, "", &["10.10.0.0/24", "10.10.2.0/24"], &[], &["10.10.1.0/24"]);
        let few = "127.123.234.0/28";
        let all = ["127.123.234.0/30", "127.123.234.4/30", "127.123.234.8/30", "127.123.234.12/30"];
        check(few, 30, 64, "", &all, &[], &[]);
        check(few, 30, 64, "", &all, &all[1..2], &all[1..2]);
        check(few, 30, 64, "", &all[1..], &[], &all[..1]);
        assert!(Ranges::parse("127.0.0.0/8,ace:cab:deca::/84,10.0.0.0/8", 24, 98, &[]).is_err());
    }

    #[test]
    fn bad_ranges() {
        let check = |list: &str, services: &[&str], want: Result<Option<&str>, &str>| {
            let services: Vec<String> = services.iter().map(|s| (*s).to_owned()).collect();
            let got = Ranges::parse(list, 24, 64, &services);
            match (got, want) {
                (Ok(mut r), Ok(first)) => {
                    let first = first.map(|f| cidrs(&[f])).unwrap_or_default();
                    assert_eq!(r.allocate("a"), Some(first), "{list} {services:?}");
                }
                (got, want) => {
                    let got = got.map(drop).unwrap_err().to_string();
                    assert!(got.starts_with(want.unwrap_err()), "{got}");
                }
            }
        };
        check("", &["10.96.0.0/16"], Ok(None));
        check("10.0.0.0/16", &["10.96.0.0/16", "fd00::/108"], Ok(Some("10.0.0.0/24")));
        check("10.0.0.0/16", &["10.0.0.0/20"], Ok(Some("10.0.16.0/24")));
        check("10.0.0.0/16", &["10.0.0.0/16"], Err("the service network 10.0.0.0/16 leaves nothing"));
        check("10.0.0.0/16", &["10.0.0.0/12"], Err("the service network"));
        check("10.0.0.0", &[], Err("invalid CIDR address: 10.0.0.0"));
        check("10.0.0.0/28", &[], Err("10.0.0.0/28 is smaller than a node's /24"));
        check("10.0.0.0/8,x", &[], Err("invalid CIDR address: x"));
        check("10.0.0.0/8,10.1.0.0/16", &[], Err("len of ClusterCIDRs==2 and they are not"));
        check("10.0.0.0/8,fd00::/48,11.0.0.0/8", &[], Err("len of clusters is:3"));
    }

    /// Upstream's 8 cases of `TestOccupyPreExistingCIDR`: ranges, the blocks that a node has, and those that the next one gets.
    ///
    /// DIFFERENCE: upstream's controller does not start where a node has a block of another range, and its whole process
    /// ends; here one odd node holds up no other, and keeps what it has.
    #[test]
    fn blocks_that_nodes_have() {
        let check = |list: &str, has: &[&str], want: &[&str]| {
            let mut ranges = Ranges::parse(list, 24, 24, &[]).unwrap();
            ranges.occupy("node0", cidrs(has));
            assert_eq!(ranges.allocate("node1"), Some(cidrs(want)), "{list} {has:?}");
        };
        let (v4, both) = ("10.10.0.0/16", "10.10.0.0/16,ace:cab:deca::/8");
        let (first, second) = ("10.10.0.0/24", "10.10.1.0/24");
        check(v4, &[], &[first]);
        check(both, &[], &[first, "a00::/24"]);
        check(v4, &["10.10.0.1/24"], &[second]);
        check(both, &["10.10.0.1/24", "a00::/86"], &[second, "a00:100::/24"]);
        check(v4, &["172.10.0.1/24"], &[first]);
        check(v4, &["10.10.0.1/24", "a00::/86"], &[second]);
        check(both, &["172.10.0.1/24", "a00::/86"], &[first, "a00:100::/24"]);
        check(both, &["10.10.0.1/24", "cdd::/86"], &[second, "a00::/24"]);
    }

    /// Upstream's 4 cases of `TestOccupyServiceCIDR`: the Services' range, and the number of blocks that are left.
    #[test]
    fn blocks_beside_the_services() {
        let check = |service: &str, left: usize| {
            let mut ranges = Ranges::parse("10.1.0.0/16", 24, 64, &[service.to_owned()]).unwrap();
            let service: Cidr = service.parse().unwrap();
            let blocks: Vec<Cidr> =
                (0..).map_while(|n| ranges.allocate(&format!("n{n}"))).flatten().collect();
            assert_eq!(blocks.len(), left, "{service}");
            assert!(!blocks.contains(&service));
        };
        check("10.0.255.0/24", 256);
        check("10.1.0.0/24", 255);
        check("10.1.255.0/24", 255);
        check("10.2.0.0/24", 256);
    }

    /// Upstream's 3 cases of `TestNodeDeletionReleaseCIDR`: a node's block is free when the node is gone, and not before.
    #[test]
    fn blocks_of_nodes_that_go() {
        let check = |gone: bool, want: &str| {
            let mut ranges = parse("10.10.0.0/16");
            ranges.occupy("node0", cidrs(&["10.10.0.0/24"]));
            if gone {
                ranges.release("node0");
            }
            assert_eq!(ranges.allocate("node1"), Some(cidrs(&[want])));
        };
        check(false, "10.10.1.0/24");
        check(true, "10.10.0.0/24");
    }
}
