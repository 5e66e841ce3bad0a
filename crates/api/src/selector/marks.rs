//! Marks of labels: a Bloom filter of one word. A search over many objects uses it to pass over nearly all objects that
//! a selector excludes, without a look at their labels.

use super::labels::{Operator, Selector};
use crate::tree::Text;

/// The marks of an object's labels. An object without a wanted label mostly lacks one of that label's marks; an object
/// with the label never does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks(u64);

impl Marks {
    /// The marks of these labels.
    pub fn of(labels: &[(Text, Text)]) -> Self {
        Self(labels.iter().fold(0, |marks, (key, value)| marks | pair(key, value)))
    }
}

/// Three of the 64 marks.
fn pair(key: &str, value: &str) -> u64 {
    // FNV-1a, its high half mixed into the low one. The zero byte separates the key from the value.
    let bytes = key.bytes().chain([0]).chain(value.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [hash >> 58, hash >> 52, hash >> 46].into_iter().fold(0, |marks, at| marks | 1 << (at & 63))
}

/// The marks that a selector asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The marks that an object must have, all of them.
    all: u64,
    /// Sets of marks; an object must have at least one mark of each.
    any: Vec<Vec<u64>>,
}

impl Wanted {
    /// The marks without which no object matches.
    pub fn by(selector: &Selector) -> Self {
        let mut wanted = Self::default();
        for r in &selector.requirements {
            if !matches!(r.operator, Operator::Equals | Operator::DoubleEquals | Operator::In) {
                continue;
            }
            match r.values.as_slice() {
                [value] => wanted.all |= pair(&r.key, value),
                values => wanted.any.push(values.iter().map(|v| pair(&r.key, v)).collect()),
            }
        }
        wanted
    }

    /// Whether an object with these marks can match.
    #[inline]
    pub fn admits(&self, marks: Marks) -> bool {
        let has = |wanted: u64| marks.0 & wanted == wanted;
        has(self.all) && self.any.iter().all(|any| any.iter().any(|&wanted| has(wanted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(n: usize) -> Vec<(Text, Text)> {
        let pair =
            |i: usize| (Text::from(format!("example.com/key-{i}")), Text::from(format!("v{}", n * 31 + i)));
        (0..4).map(pair).collect()
    }

    #[test]
    fn what_matches_is_admitted_and_little_else() {
        for (text, few) in [
            ("example.com/key-1=v3101", true),
            ("example.com/key-1 in (v3101)", true),
            ("example.com/key-1 in (v3101,v1),example.com/key-2==v3102", true),
            ("example.com/key-1", false),
            ("example.com/key-1!=v3101", false),
            ("example.com/key-9 notin (a),!b", false),
            ("", false),
        ] {
            let selector = Selector::parse(text).unwrap();
            let wanted = Wanted::by(&selector);
            let mut admitted = 0;
            for n in 0..10_000 {
                let labels = labels(n);
                let get = |k: &str| labels.iter().find(|l| l.0 == k).map(|l| l.1.as_str());
                let admits = wanted.admits(Marks::of(&labels));
                assert!(admits || !selector.matches(get), "{text}: {labels:?}");
                admitted += usize::from(admits);
            }
            assert_eq!(admitted < 200, few, "{text}: {admitted} of 10000");
        }
    }
}
