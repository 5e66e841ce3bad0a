//! Times and durations in upstream's text forms.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::tree::Text;

/// Go's layout of a `metav1.Time`.
pub const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
/// Go's layout of a `metav1.MicroTime`.
pub const LAYOUT_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Whether a time in normal form is Go's zero time.
pub(crate) fn is_zero(text: &str) -> bool {
    text.starts_with("0001-") && matches!(text, "0001-01-01T00:00:00Z" | "0001-01-01T00:00:00.000000Z")
}

/// Reads RFC 3339 as Go does: a full date and time with an offset or `Z`.
pub fn parse(text: &str) -> Option<Timestamp> {
    read(text, false).ok()
}

/// Reads a `metav1.Time`; the error is Go's.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    read(text, false).map_err(|why| explain(text, LAYOUT, &why))
}

/// Reads a `metav1.MicroTime`, which has six digits of a second; the error is Go's.
pub fn parse_micro(text: &str) -> Result<Timestamp, String> {
    read(text, true).map_err(|why| explain(text, LAYOUT_MICRO, &why))
}

/// The reason for which a text is no time.
enum Unreadable<'t> {
    /// This text stood where this part of the layout was wanted.
    At(&'t [u8], &'static str),
    /// A part is out of its range.
    Range(&'static str),
    /// This text follows the time.
    More(&'t [u8]),
}

fn explain(text: &str, layout: &str, why: &Unreadable<'_>) -> String {
    let value = quote(text.as_bytes());
    match why {
        Unreadable::At(rest, part) => {
            format!("parsing time {value} as \"{layout}\": cannot parse {} as \"{part}\"", quote(rest))
        }
        Unreadable::Range(what) => format!("parsing time {value}: {what} out of range"),
        Unreadable::More(rest) => format!("parsing time {value}: extra text: {}", quote(rest)),
    }
}

/// Quotes a text as Go's time package does, which has a way of its own.
fn quote(text: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::from('"');
    for b in text {
        match b {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*b));
            }
            b' '..=b'~' | 0x7f => out.push(char::from(*b)),
            // Writing to a string can't fail.
            _ => drop(write!(out, "\\x{b:02x}")),
        }
    }
    out.push('"');
    out
}

/// One or two digits; two if `fixed`.
fn number(rest: &[u8], fixed: bool) -> Option<(i64, &[u8])> {
    match rest {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', rest @ ..] => {
            Some((i64::from(a - b'0') * 10 + i64::from(b - b'0'), rest))
        }
        [a @ b'0'..=b'9', rest @ ..] if !fixed => Some((i64::from(a - b'0'), rest)),
        _ => None,
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    let all = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    all.then(|| text.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
}

fn read(text: &str, micro: bool) -> Result<Timestamp, Unreadable<'_>> {
    use Unreadable::{At, More, Range};
    let mut rest = text.as_bytes();
    let year = rest.get(..4).and_then(digits).ok_or(At(rest, "2006"))?;
    rest = &rest[4..];
    let mut parts = [0i64; 5];
    let wanted: [(&'static str, &'static str, i64, i64, &'static str); 5] = [
        ("-", "01", 1, 12, "month"),
        ("-", "02", 0, 99, "day"),
        ("T", "15", 0, 23, "hour"),
        (":", "04", 0, 59, "minute"),
        (":", "05", 0, 59, "second"),
    ];
    for (part, (sep, layout, least, most, what)) in parts.iter_mut().zip(wanted) {
        rest = rest.strip_prefix(sep.as_bytes()).ok_or(At(rest, sep))?;
        let (value, tail) = number(rest, layout != "15").ok_or(At(rest, layout))?;
        if !(least..=most).contains(&value) {
            return Err(Range(what));
        }
        (*part, rest) = (value, tail);
    }
    let [month, day, hour, minute, second] = parts;
    let mut nanos = 0;
    if micro {
        let fraction = rest.get(..7).filter(|f| matches!(f[0], b'.' | b','));
        nanos = fraction.and_then(|f| digits(&f[1..])).ok_or(At(rest, ".000000"))? * 1000;
        rest = &rest[7..];
    } else if let [b'.' | b',', tail @ ..] = rest
        && tail.first().is_some_and(u8::is_ascii_digit)
    {
        let length = tail.iter().take_while(|b| b.is_ascii_digit()).count();
        let kept = &tail[..length.min(9)];
        nanos = digits(kept).unwrap_or_default() * 10i64.pow(9 - kept.len() as u32);
        rest = &tail[length..];
    }
    let mut offset = 0;
    if let [b'Z', tail @ ..] = rest {
        rest = tail;
    } else {
        let zone = rest.get(..6).filter(|z| z[3] == b':').ok_or(At(rest, "Z07:00"))?;
        let at = |z: &[u8]| number(z, true).map(|n| n.0);
        let (hours, minutes) = at(&zone[1..3]).zip(at(&zone[4..6])).ok_or(At(&rest[6..], "Z07:00"))?;
        rest = &rest[6..];
        if hours > 24 {
            return Err(Range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(Range("time zone offset minute"));
        }
        offset = (hours * 60 + minutes) * 60;
        match zone[0] {
            b'+' => {}
            b'-' => offset = -offset,
            _ => return Err(At(rest, "Z07:00")),
        }
    }
    if !rest.is_empty() {
        return Err(More(rest));
    }
    let civil = |n: i64| i8::try_from(n).unwrap_or_default();
    let date = jiff::civil::Date::new(i16::try_from(year).unwrap_or_default(), civil(month), civil(day))
        .map_err(|_| Range("day"))?;
    let local = date.at(civil(hour), civil(minute), civil(second), i32::try_from(nanos).unwrap_or_default());
    local
        .to_zoned(TimeZone::UTC)
        .ok()
        .and_then(|t| t.timestamp().checked_sub(SignedDuration::from_secs(offset)).ok())
        .ok_or(Range("year"))
}

/// `metav1.Time`: UTC, whole seconds (the fraction is cut off).
pub fn format(t: Timestamp) -> Text {
    let d = t.to_zoned(TimeZone::UTC).datetime();
    compact_str::format_compact!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        d.year(),
        d.month(),
        d.day(),
        d.hour(),
        d.minute(),
        d.second()
    )
}

/// `metav1.MicroTime`: UTC, six digits after the point.
pub fn format_micro(t: Timestamp) -> Text {
    let mut s = format(t);
    s.pop();
    let micros = t.to_zoned(TimeZone::UTC).subsec_nanosecond() / 1000;
    s.push_str(&compact_str::format_compact!(".{micros:06}Z"));
    s
}

/// Reads Go's duration text (`1h2m3.5s`, `-5ms`, `0`).
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let number = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (digits, tail) = rest.split_at(number);
        let unit = tail.bytes().take_while(|b| !b.is_ascii_digit() && *b != b'.').count();
        let (unit, tail) = tail.split_at(unit);
        let factor: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        if !whole.is_empty() {
            nanos = nanos.checked_add(whole.parse::<i128>().ok()?.checked_mul(factor)?)?;
        }
        let mut scale = factor;
        for d in fraction.bytes() {
            scale /= 10;
            nanos += i128::from(d - b'0') * scale;
        }
        rest = tail;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

/// Writes a duration as Go does (`1h0m0s`, `1.5s`, `100ms`).
pub fn format_duration(d: SignedDuration) -> Text {
    let nanos = d.as_nanos();
    if nanos == 0 {
        return "0s".into();
    }
    let mut out = Text::default();
    if nanos < 0 {
        out.push('-');
    }
    let n = nanos.unsigned_abs();
    let with_fraction = |value: u128, per: u128| {
        let mut s = compact_str::format_compact!("{}", value / per);
        let rest = value % per;
        if rest != 0 {
            let width = per.ilog10() as usize;
            let digits = std::format!("{rest:0width$}");
            s.push('.');
            s.push_str(digits.trim_end_matches('0'));
        }
        s
    };
    if n < 1_000_000_000 {
        let (per, unit) = match n {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        out.push_str(&with_fraction(n, per));
        out.push_str(unit);
        return out;
    }
    let minutes = n / 60_000_000_000;
    if minutes >= 60 {
        out.push_str(&compact_str::format_compact!("{}h", minutes / 60));
    }
    if minutes > 0 {
        out.push_str(&compact_str::format_compact!("{}m", minutes % 60));
    }
    out.push_str(&with_fraction(n % 60_000_000_000, 1_000_000_000));
    out.push('s');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, time) in [
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T3:04:05Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(format(parse_time(text).unwrap()), time);
        }
        for (text, micro) in [
            ("2024-01-02T03:04:05.123456Z", "2024-01-02T03:04:05.123456Z"),
            ("2024-01-02T03:04:05.000001+02:00", "2024-01-02T01:04:05.000001Z"),
        ] {
            assert_eq!(format_micro(parse_micro(text).unwrap()), micro);
        }
        for (text, why) in [
            ("", "\"\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"2006\""),
            ("2024-01-02", "\"2024-01-02\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\""),
            ("a\tb", "\"a\\x09b\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"a\\x09b\" as \"2006\""),
            ("2024-13-02T03:04:05Z", "\"2024-13-02T03:04:05Z\": month out of range"),
            ("2024-02-30T03:04:05Z", "\"2024-02-30T03:04:05Z\": day out of range"),
            ("2024-02-03T03:04:05Zx", "\"2024-02-03T03:04:05Zx\": extra text: \"x\""),
        ] {
            assert_eq!(parse_time(text).unwrap_err(), format!("parsing time {why}"), "{text}");
        }
        assert_eq!(
            parse_micro("2024-01-02T03:04:05Z").unwrap_err(),
            "parsing time \"2024-01-02T03:04:05Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\""
        );
    }

    #[test]
    fn durations() {
        for (text, canonical) in [
            ("0", "0s"),
            ("5s", "5s"),
            ("1h", "1h0m0s"),
            ("90m", "1h30m0s"),
            ("1.5s", "1.5s"),
            ("100ms", "100ms"),
            ("1500us", "1.5ms"),
            ("-2m3s", "-2m3s"),
            (".5s", "500ms"),
        ] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), canonical, "{text}");
        }
        for bad in ["", "5", "-", "1x", "s", "1.2.3s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
