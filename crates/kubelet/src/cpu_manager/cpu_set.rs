//! Sets of processors, as the kernel and upstream write them: `0-3,8`. Pure.

use std::collections::BTreeSet;
use std::collections::btree_set::Iter;
use std::fmt;
use std::iter::Copied;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// No machine has processors beyond this number; it bounds what a file can make of a short text.
const MOST: usize = 1 << 16;

/// A set of logical processors by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<usize>);

/// A text that is no set; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// A part is no number.
    #[error("strconv.Atoi: parsing {}: invalid syntax", api::go::quote(.0))]
    NoNumber(String),
    /// A range ends before it begins.
    #[error("invalid range {} ({from} > {to})", api::go::quote(.range))]
    Backwards {
        /// The range.
        range: String,
        /// Its first number.
        from: usize,
        /// Its last one.
        to: usize,
    },
    /// A number is larger than that of any processor.
    #[error("there is no processor {0}")]
    TooLarge(usize),
}

impl CpuSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether a processor is among them.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }
    /// Whether all are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
    /// Those of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }
    /// Those that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }
    /// Those that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }
    /// Their numbers, the least one first.
    pub fn iter(&self) -> Copied<Iter<'_, usize>> {
        self.0.iter().copied()
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = usize;
    type IntoIter = Copied<Iter<'a, usize>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = all.next() {
            let mut last = first;
            while let Some(next) = all.next_if(|next| *next == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let number = |text: &str| {
            let read: usize = text.parse().map_err(|_| CpuSetError::NoNumber(text.to_owned()))?;
            if read < MOST { Ok(read) } else { Err(CpuSetError::TooLarge(read)) }
        };
        let mut all = BTreeSet::new();
        for range in text.split(',').filter(|_| !text.is_empty()) {
            let Some((from, to)) = range.split_once('-') else {
                all.insert(number(range)?);
                continue;
            };
            let (from, to) = (number(from)?, number(to)?);
            if from > to {
                return Err(CpuSetError::Backwards { range: range.to_owned(), from, to });
            }
            all.extend(from..=to);
        }
        Ok(Self(all))
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_upstream_does() {
        let check = |text: &str, expected: &[usize], written: &str| {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(set.iter().collect::<Vec<_>>(), expected, "{text}");
            assert_eq!(set.to_string(), written);
        };
        check("", &[], "");
        check("5", &[5], "5");
        check("1,2,3,4,5", &[1, 2, 3, 4, 5], "1-5");
        check("1-5", &[1, 2, 3, 4, 5], "1-5");
        check("1-2,3-5", &[1, 2, 3, 4, 5], "1-5");
        check("5,4,3,2,1", &[1, 2, 3, 4, 5], "1-5");
        check("3-6,1-5", &[1, 2, 3, 4, 5, 6], "1-6");
        check("3-3,5-5", &[3, 5], "3,5");
        check("1,3,5,7-8", &[1, 3, 5, 7, 8], "1,3,5,7-8");
    }

    #[test]
    fn texts_that_are_no_sets() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<CpuSet>().unwrap_err().to_string(), expected);
        };
        check("0-a", "strconv.Atoi: parsing \"a\": invalid syntax");
        check(",", "strconv.Atoi: parsing \"\": invalid syntax");
        check("-1", "strconv.Atoi: parsing \"\": invalid syntax");
        check("1-3-5", "strconv.Atoi: parsing \"3-5\": invalid syntax");
        check("3-0", "invalid range \"3-0\" (3 > 0)");
        check("0-4000000000", "there is no processor 4000000000");
    }
}
