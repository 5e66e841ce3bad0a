//! Values of flags.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::SignedDuration;

/// Reads a range of ports as upstream takes it: `30000-32767`, or the first and how many follow: `30000+2767`.
pub(super) fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let read = || {
        let (first, last) = if let Some((first, last)) = text.split_once('-') {
            (first.trim().parse().ok()?, last.trim().parse().ok()?)
        } else {
            let (first, more) = text.split_once('+')?;
            let (first, more): (u16, u16) = (first.trim().parse().ok()?, more.trim().parse().ok()?);
            (first, first.checked_add(more)?)
        };
        (first > 0 && first <= last).then_some(first..=last)
    };
    read().ok_or_else(|| "not a range of ports such as 30000-32767".to_owned())
}

/// Reads a duration that is not zero.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    duration(text)
        .and_then(|time| if time.is_zero() { Err("must be greater than zero".into()) } else { Ok(time) })
}

/// Reads a duration as Go writes it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    api::time::parse_duration(text)
        .and_then(|d| Duration::try_from(d).ok())
        .ok_or_else(|| "not a duration such as 5m0s".to_owned())
}

/// Reads a duration as Go writes it, which may be negative.
pub(super) fn signed_duration(text: &str) -> Result<SignedDuration, String> {
    api::time::parse_duration(text).ok_or_else(|| "not a duration such as 5m0s".to_owned())
}

/// The values of a list: an empty text is none, as for upstream.
pub(super) fn list(values: &[String]) -> &[String] {
    if values == [""] { &[] } else { values }
}
