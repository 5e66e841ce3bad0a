//! Values of properties.

/// No limit, as properties have it.
pub const INFINITY: u64 = u64::MAX;
/// The most processors or NUMA nodes that a list names; the kernel has fewer.
const MOST: u32 = 1 << 16;

/// A list of processors or NUMA nodes that is none; the words are runc's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
    /// It names nothing.
    #[error("empty value")]
    Empty,
    /// A part of it is no range.
    #[error("invalid range: {0}")]
    Range(String),
}

/// A quota as microseconds a second: systemd takes whole hundredths, and what is over counts as one more, as in runc.
/// None that limits is [`INFINITY`].
pub fn quota_per_second(quota: i64, period: i64) -> u64 {
    let (Ok(quota), Ok(period)) = (u64::try_from(quota), u64::try_from(period)) else { return INFINITY };
    if quota == 0 || period == 0 {
        return INFINITY;
    }
    let per_second = quota.saturating_mul(1_000_000) / period;
    per_second.checked_next_multiple_of(10_000).unwrap_or(INFINITY)
}

/// A list as the kernel writes it, `0-2,7`, as a mask whose lowest bits come first, as `AllowedCPUs` and
/// `AllowedMemoryNodes` have it.
///
/// # Errors
/// It is no such list.
pub fn bits(list: &str) -> Result<Vec<u8>, InvalidRange> {
    let mut mask: Vec<u8> = Vec::new();
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let invalid = || InvalidRange::Range(range.to_owned());
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n < MOST).ok_or_else(invalid);
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(invalid());
        }
        for bit in first as usize..=last as usize {
            if mask.len() <= bit / 8 {
                mask.resize(bit / 8 + 1, 0);
            }
            mask[bit / 8] |= 1 << (bit % 8);
        }
    }
    if mask.is_empty() { Err(InvalidRange::Empty) } else { Ok(mask) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// runc's own cases of its `addCPUQuota`.
    #[test]
    fn quotas_are_rounded_up() {
        let check = |quota: i64, period: i64, expected: u64| {
            assert_eq!(quota_per_second(quota, period), expected, "{quota} {period}");
        };
        check(500_000, 50_000, 10_000_000);
        check(499_000, 50_000, 9_980_000);
        check(300_000, 150_000, 2_000_000);
        check(25_000, 100_000, 250_000);
        check(12_345, 100_000, 130_000);
        check(-1, 100_000, INFINITY);
        check(0, 100_000, INFINITY);
        check(i64::MAX, 1, INFINITY);
    }

    /// runc's own cases of its `RangeToBits`.
    #[test]
    fn lists_are_masks() {
        let check = |list: &str, expected: Option<&[u8]>| {
            assert_eq!(bits(list).ok().as_deref(), expected, "{list}");
        };
        check("", None);
        check("0", Some(&[1]));
        check("1", Some(&[2]));
        check("0-1", Some(&[3]));
        check("0,1", Some(&[3]));
        check(",0,1,", Some(&[3]));
        check("0-3", Some(&[0x0f]));
        check("0,1,2-3", Some(&[0x0f]));
        check("4-7", Some(&[0xf0]));
        check("0-7", Some(&[0xff]));
        check("0-15", Some(&[0xff, 0xff]));
        check("16", Some(&[0, 0, 1]));
        check("0-3,32-33", Some(&[0x0f, 0, 0, 0, 3]));
        check("extra-spaces", None);
        check(" 1, 2, 1-2", Some(&[6]));
        check("    , 1   , 3  ,  5-7,    ", Some(&[0xea]));
        check("1-", None);
        check("-3", None);
        check("12-0", None);
        check("-42", None);
        check("0-4294967295", None);
    }
}
