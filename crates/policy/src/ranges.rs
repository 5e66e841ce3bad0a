//! Ranges of numbers, ends included.

/// Sorts ranges and joins those that touch or overlap; empty ones are left out.
pub(crate) fn join<T>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)>
where
    T: Copy + Ord + Into<u128>,
{
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first.into() <= (*end).into().saturating_add(1) => *end = (*end).max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// A range without others.
pub(crate) fn without((first, last): (u128, u128), others: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    let mut left = Vec::new();
    let mut from = Some(first);
    for (low, high) in join(others) {
        let Some(begin) = from.filter(|begin| *begin <= last) else { break };
        if high < begin {
            continue;
        }
        if low > begin {
            left.push((begin, (low - 1).min(last)));
        }
        from = high.checked_add(1);
    }
    left.extend(from.filter(|begin| *begin <= last).map(|begin| (begin, last)));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined() {
        let check = |ranges: &[(u16, u16)], expected: &[(u16, u16)]| {
            assert_eq!(join(ranges.to_vec()), expected, "{ranges:?}");
        };
        check(&[], &[]);
        check(&[(5, 6), (1, 2)], &[(1, 2), (5, 6)]);
        check(&[(1, 2), (3, 4)], &[(1, 4)]);
        check(&[(1, 9), (3, 4), (9, 12)], &[(1, 12)]);
        check(&[(0, 65535), (80, 80)], &[(0, 65535)]);
        check(&[(9, 1)], &[]);
    }

    #[test]
    fn exceptions() {
        let check = |range, others: &[(u128, u128)], expected: &[(u128, u128)]| {
            assert_eq!(without(range, others.to_vec()), expected, "{range:?} {others:?}");
        };
        check((10, 20), &[], &[(10, 20)]);
        check((10, 20), &[(12, 13)], &[(10, 11), (14, 20)]);
        check((10, 20), &[(10, 13)], &[(14, 20)]);
        check((10, 20), &[(15, 20)], &[(10, 14)]);
        check((10, 20), &[(0, 30)], &[]);
        check((10, 20), &[(0, 5), (25, 30)], &[(10, 20)]);
        check((10, 20), &[(0, 10), (20, 30)], &[(11, 19)]);
        check((10, 20), &[(12, 12), (18, 18), (12, 14)], &[(10, 11), (15, 17), (19, 20)]);
        check((0, u128::MAX), &[(1, u128::MAX)], &[(0, 0)]);
        check((0, u128::MAX), &[(0, u128::MAX)], &[]);
    }
}
