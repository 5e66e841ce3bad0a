//! The ranges of addresses of which nodes get blocks: pure.

use std::collections::HashMap;

use super::cidr_set::{CidrSet, RangeError};
use objects::Cidr;

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
}
