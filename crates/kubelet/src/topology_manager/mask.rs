//! Sets of NUMA nodes. Pure.

use std::fmt;

/// The most NUMA nodes whose sets are all looked at; there are two to this power of them.
///
/// DIFFERENCE: upstream looks at all sets of any number of nodes, and does not come to an end with many.
pub(crate) const MOST_NODES: usize = 12;

/// A set of NUMA nodes with numbers below 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(u64);

impl NumaMask {
    /// Nodes by their numbers; those that no machine has are left out.
    pub fn of(nodes: impl IntoIterator<Item = usize>) -> Self {
        Self(nodes.into_iter().filter(|n| *n < 64).fold(0, |mask, n| mask | 1 << n))
    }
    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// How many there are.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether a node is among them.
    pub fn contains(self, node: usize) -> bool {
        node < 64 && self.0 >> node & 1 == 1
    }
    /// Whether any of some nodes is among them.
    pub fn contains_any(self, nodes: &[usize]) -> bool {
        nodes.iter().any(|n| self.contains(*n))
    }
    /// Their numbers, the least one first.
    pub fn nodes(self) -> Vec<usize> {
        (0..64).filter(|n| self.contains(*n)).collect()
    }
    /// Whether the numbers are lower: that with the lower highest number that the other has not.
    pub fn is_less(self, other: Self) -> bool {
        self.0 < other.0
    }
    /// Whether it is better to be near to these alone: they are fewer, or their numbers are lower.
    pub fn is_narrower(self, other: Self) -> bool {
        (self.count(), self.0) < (other.count(), other.0)
    }
    /// The narrower of two.
    #[must_use]
    pub fn narrowest(self, other: Self) -> Self {
        if self.is_narrower(other) { self } else { other }
    }
}

impl fmt::Display for NumaMask {
    /// In binary digits, an even number of them, as upstream writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = (64 - self.0.leading_zeros() as usize).max(1).next_multiple_of(2);
        write!(f, "{:0digits$b}", self.0)
    }
}

/// Every set of some nodes that is not empty: those of one first, then those of two, and so on.
pub(crate) fn all_masks(nodes: &[usize]) -> Vec<NumaMask> {
    let count = nodes.len().min(MOST_NODES);
    let of = |bits: u64| NumaMask::of((0..count).filter(|i| bits >> i & 1 == 1).map(|i| nodes[i]));
    let mut all: Vec<NumaMask> = (1..1_u64 << count).map(of).collect();
    // In the order in which nested loops over the nodes find them.
    all.sort_by_key(|mask| {
        let nodes = mask.nodes();
        (nodes.len(), nodes)
    });
    all
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::cases::{cases, mask, usizes};
    use super::*;

    /// Upstream's tables of sets: the file has those that are about what is here.
    #[test]
    fn upstreams_cases() {
        let all = cases(include_str!("cases/masks.jsonl"), 35);
        for case in &all {
            let two = || (mask(&case["firstMask"]), mask(&case["secondMask"]));
            let text = |field: &str| case[field].as_str().unwrap().to_owned();
            match case["table"].as_str().unwrap() {
                "TestNewBitMask" => assert_eq!(mask(&case["bits"]).to_string(), text("expectedMask")),
                "TestAnd" => {
                    let all = case["masks"].as_array().unwrap().iter().map(mask);
                    assert_eq!(all.reduce(NumaMask::and).unwrap().to_string(), text("andMask"), "{case}");
                }
                "TestAnySet" => {
                    let any = mask(&case["mask"]).contains_any(&usizes(&case["checkBits"]));
                    assert_eq!(Value::from(any), case["expectedSet"], "{case}");
                }
                "TestCount" => assert_eq!(Value::from(mask(&case["bits"]).count()), case["expectedCount"]),
                "TestGetBits" => assert_eq!(mask(&case["bits"]).nodes(), usizes(&case["expectedBits"])),
                "TestIsEmpty" => {
                    assert_eq!(Value::from(mask(&case["mask"]).is_empty()), case["expectedEmpty"]);
                }
                "TestIsLessThan" => {
                    assert_eq!(Value::from(two().0.is_less(two().1)), case["expectedFirstLower"], "{case}");
                }
                "TestIsNarrowerThan" => {
                    let narrower = two().0.is_narrower(two().1);
                    assert_eq!(Value::from(narrower), case["expectedFirstNarrower"], "{case}");
                }
                "TestIterateBitMasks" => {
                    let bits = usize::try_from(case["numbits"].as_u64().unwrap()).unwrap();
                    let nodes: Vec<usize> = (0..bits).collect();
                    assert_eq!(all_masks(&nodes).len(), (1 << bits.min(MOST_NODES)) - 1);
                }
                other => panic!("{other}"),
            }
        }
        let order: Vec<String> = all_masks(&[0, 2, 3]).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["01", "0100", "1000", "0101", "1001", "1100", "1101"]);
    }
}
