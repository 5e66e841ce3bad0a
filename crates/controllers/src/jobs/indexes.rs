//! Sets of completion indexes, as intervals.

use std::fmt;

/// A set of completion indexes: intervals in order, which do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads the form of a status, `1,3-5,7`. Parts that cannot be read are left out, and so are indexes that are not below
    /// `completions`.
    pub(super) fn parse(text: &str, completions: i64) -> Self {
        let mut all: Vec<(i64, i64)> = Vec::new();
        for part in text.split(',') {
            let mut ends = part.split('-');
            let (first, last) = (ends.next().unwrap_or_default(), ends.next());
            let Ok(first) = first.parse::<i64>() else { continue };
            if first >= completions {
                break;
            }
            let last = match last.map(str::parse::<i64>) {
                None => first,
                Some(Ok(last)) => last.min(completions - 1),
                Some(Err(_)) => continue,
            };
            match all.last_mut() {
                Some(before) if before.1 == first - 1 => before.1 = last,
                _ => all.push((first, last)),
            }
        }
        Self(all)
    }

    /// The indexes of an iterator.
    pub(super) fn of(indexes: impl IntoIterator<Item = i64>) -> Self {
        let mut all: Vec<i64> = indexes.into_iter().collect();
        all.sort_unstable();
        Self::default().merge(&Self(all.into_iter().map(|i| (i, i)).collect()))
    }

    /// The indexes of both sets.
    pub(super) fn merge(&self, other: &Self) -> Self {
        let mut out: Vec<(i64, i64)> = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 < y.0 => a.next(),
                (_, Some(_)) => b.next(),
                (_, None) => a.next(),
            };
            let Some(&(first, last)) = next else { return Self(out) };
            match out.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => out.push((first, last)),
            }
        }
    }

    /// The number of indexes.
    pub(super) fn total(&self) -> i64 {
        self.0.iter().fold(0, |sum, (first, last)| sum + (last - first + 1))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an index is among them.
    pub(super) fn contains(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// The number of indexes that both sets have.
    pub(super) fn overlap(&self, other: &Self) -> i64 {
        let (mut a, mut b, mut common) = (0, 0, 0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            common += (x.1.min(y.1) - x.0.max(y.0) + 1).max(0);
            if x.1 <= y.1 {
                a += 1;
            }
            if y.1 <= x.1 {
                b += 1;
            }
        }
        common
    }

    /// The first `count` indexes below `completions` that are not among them.
    pub(super) fn first_free(&self, count: usize, completions: i64) -> Vec<i64> {
        let mut out = Vec::with_capacity(count);
        let mut candidate = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            while candidate < first.min(completions) && out.len() < count {
                out.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last.saturating_add(1));
        }
        out
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{first}")?;
            match last - first {
                ..=0 => {}
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestParseIndexesFromString`, and what becomes of them when they are written.
    #[test]
    fn reading() {
        let check = |text: &str, completions: i64, want: &[(i64, i64)], total: i64| {
            let got = Indexes::parse(text, completions);
            assert_eq!((got.0.as_slice(), got.total()), (want, total), "{text}");
        };
        check("", 3, &[], 0);
        check("-9", 5, &[], 0);
        check("5", 6, &[(5, 5)], 1);
        check("1,x,2-5,12,13,14-16,y-7", 18, &[(1, 5), (12, 16)], 10);
        check("0-1,3-5", 5, &[(0, 1), (3, 4)], 4);
        check("1,3-4,6,8-9", 8, &[(1, 1), (3, 4), (6, 6)], 4);
        check("1,2-5,12-20,50", 18, &[(1, 5), (12, 17)], 11);
        check("2,4-5,12", 14, &[(2, 2), (4, 5), (12, 12)], 4);
        check("0-99999999999999999999,1", 3, &[(1, 1)], 1);
    }

    #[test]
    fn writing() {
        let check = |all: &[(i64, i64)], want: &str| assert_eq!(Indexes(all.to_vec()).to_string(), want);
        check(&[], "");
        check(&[(2, 5)], "2-5");
        check(&[(3, 3)], "3");
        check(&[(3, 4)], "3,4");
        check(&[(0, 0), (2, 3), (5, 9)], "0,2,3,5-9");
    }

    /// Upstream's cases of `TestIntervalsHaveIndex`.
    #[test]
    fn members() {
        let all = Indexes(vec![(0, 3), (5, 6), (9, 9)]);
        for (index, want) in
            [(-1, false), (0, true), (3, true), (4, false), (5, true), (9, true), (10, false)]
        {
            assert_eq!(all.contains(index), want, "{index}");
        }
        assert!(!Indexes::default().contains(0));
    }

    /// Upstream's cases of `withOrderedIndexes` in `TestCalculateSucceededIndexes`.
    #[test]
    fn more() {
        let check = |old: &str, more: &[i64], want: &str| {
            let old = Indexes::parse(old, 100);
            assert_eq!(old.merge(&Indexes::of(more.iter().copied())).to_string(), want, "{old} {more:?}");
        };
        check("", &[], "");
        check("", &[0, 3], "0,3");
        check("", &[2, 3, 1, 2], "1-3");
        check("3-5,9", &[0, 2, 6, 7, 8], "0,2-9");
        check("2-7,9", &[0, 1, 3, 8], "0-9");
        check("0,2-4", &[1], "0-4");
        check("0-5", &[2, 10], "0-5,10");
    }

    #[test]
    fn free_ones() {
        let check = |taken: &str, count: usize, completions: i64, want: &[i64]| {
            assert_eq!(Indexes::parse(taken, 100).first_free(count, completions), want, "{taken}");
        };
        check("", 3, 5, &[0, 1, 2]);
        check("0-2,4", 2, 6, &[3, 5]);
        check("0-2,4", 9, 6, &[3, 5]);
        check("0-9", 2, 5, &[]);
        check("1", 0, 5, &[]);
        check("7", 9, 3, &[0, 1, 2]);
    }

    #[test]
    fn common_ones() {
        let check = |a: &str, b: &str, want: i64| {
            let (a, b) = (Indexes::parse(a, 100), Indexes::parse(b, 100));
            assert_eq!((a.overlap(&b), b.overlap(&a)), (want, want), "{a} {b}");
        };
        check("", "0-9", 0);
        check("0-2,7-9", "1-8", 4);
        check("0,2,4", "1,3,5", 0);
        check("0-9", "0,2-4,9", 5);
    }
}
