//! Times and durations in upstream's text forms.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::tree::Text;

/// Reads RFC 3339 as Go does: a full date and time with an offset or `Z`.
pub fn parse(text: &str) -> Option<Timestamp> {
    let b = text.as_bytes();
    let shaped = b.len() >= 20
        && b[4] == b'-'
        && b[7] == b'-'
        && b[10] == b'T'
        && b[13] == b':'
        && b[16] == b':'
        && (b.ends_with(b"Z") || matches!(b[b.len() - 6], b'+' | b'-'));
    if shaped { text.parse().ok() } else { None }
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

/// A `metav1.Time` in normal form; `None` if it can't be read.
pub fn normalize(text: &str) -> Option<Text> {
    parse(text).map(format)
}

/// A `metav1.MicroTime` in normal form; `None` if it can't be read.
pub fn normalize_micro(text: &str) -> Option<Text> {
    parse(text).map(format_micro)
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
        for (text, time, micro) in [
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000000Z"),
            ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456Z"),
            ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z", "2024-01-02T01:04:05.000000Z"),
        ] {
            assert_eq!(normalize(text).unwrap(), time);
            assert_eq!(normalize_micro(text).unwrap(), micro);
        }
        for bad in ["", "2024-01-02", "2024-01-02 03:04:05Z", "2024-13-02T03:04:05Z", "x"] {
            assert_eq!(normalize(bad), None, "{bad}");
        }
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
