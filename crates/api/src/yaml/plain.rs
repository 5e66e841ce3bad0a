//! How plain scalars are read, by the rules of YAML 1.1 as upstream's library has them.

/// Whether a text without quotes is read as a string, also by other readers.
pub(super) fn is_string(s: &str) -> bool {
    let Some(first) = s.bytes().next() else { return false };
    match first {
        b'+' | b'-' | b'0'..=b'9' => {
            !(is_infinity(s) || is_timestamp(s) || is_number(&s.replace('_', "")) || is_base_60(s))
        }
        b'.' => {
            !matches!(s, ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF") && s.parse::<f64>().is_err()
        }
        _ => !matches!(
            s,
            "y" | "Y"
                | "yes"
                | "Yes"
                | "YES"
                | "true"
                | "True"
                | "TRUE"
                | "on"
                | "On"
                | "ON"
                | "n"
                | "N"
                | "no"
                | "No"
                | "NO"
                | "false"
                | "False"
                | "FALSE"
                | "off"
                | "Off"
                | "OFF"
                | "~"
                | "null"
                | "Null"
                | "NULL"
        ),
    }
}

fn is_infinity(s: &str) -> bool {
    matches!(s.trim_start_matches(['+', '-']), ".inf" | ".Inf" | ".INF") && s.len() == 5
}

/// Whether a text is an integer in any of Go's bases, or a float.
fn is_number(s: &str) -> bool {
    let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
    let (radix, rest) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let unsigned = digits.len() == s.len();
    let integer = !rest.starts_with(['+', '-'])
        && match u64::from_str_radix(rest, radix) {
            Ok(n) => unsigned || n <= i64::MAX as u64 + u64::from(s.starts_with('-')),
            Err(_) => false,
        };
    integer || is_float(digits)
}

/// Whether a text is digits with a point and an exponent, as YAML has them.
fn is_float(s: &str) -> bool {
    let (mantissa, exponent) = s.split_once(['e', 'E']).map_or((s, None), |(m, e)| (m, Some(e)));
    let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    all_digits(whole)
        && all_digits(fraction)
        && (!whole.is_empty() || !fraction.is_empty())
        && exponent.is_none_or(|e| {
            let e = e.strip_prefix(['+', '-']).unwrap_or(e);
            !e.is_empty() && all_digits(e)
        })
}

/// Whether a text is a number such as `12:30:45`, which old readers take for base 60.
fn is_base_60(s: &str) -> bool {
    let mut parts = s.strip_prefix(['+', '-']).unwrap_or(s).split(':');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else { return false };
    let minutes = |p: &str| match p.as_bytes() {
        [d] => d.is_ascii_digit(),
        [t, d] => (b'0'..=b'5').contains(t) && d.is_ascii_digit(),
        _ => false,
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let number = |b: u8| b.is_ascii_digit() || b == b'_';
    first.as_bytes().first().is_some_and(u8::is_ascii_digit)
        && first.bytes().all(number)
        && middle.iter().all(|p| minutes(p))
        && minutes(last)
        && fraction.bytes().all(number)
}

/// Whether a text is a date, or a date and a time in one of the forms that the library reads.
fn is_timestamp(s: &str) -> bool {
    let Some((date, time)) =
        s.split_once(['T', 't', ' ']).map_or(Some((s, None)), |(d, t)| Some((d, Some(t))))
    else {
        return false;
    };
    let short = |t: &str| match t.len() {
        1 | 2 if t.bytes().all(|b| b.is_ascii_digit()) => t.parse::<i16>().ok(),
        _ => None,
    };
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let (Ok(year), Some(month), Some(day)) = (year.parse::<i16>(), short(month), short(day)) else {
        return false;
    };
    let in_month = |n: i16| i8::try_from(n).ok();
    let is_date = parts[0].len() == 4
        && parts[0].bytes().all(|b| b.is_ascii_digit())
        && matches!((in_month(month), in_month(day)), (Some(m), Some(d)) if jiff::civil::Date::new(year, m, d).is_ok());
    let Some(time) = time.filter(|_| is_date) else { return is_date && time.is_none() };
    let clock = |t: &str| {
        let parts: Vec<&str> = t.split(':').collect();
        let [h, m, sec] = parts[..] else { return false };
        let (sec, fraction) = sec.split_once('.').map_or((sec, None), |(s, f)| (s, Some(f)));
        short(h).is_some_and(|h| h < 24)
            && short(m).is_some_and(|m| m < 60)
            && short(sec).is_some_and(|s| s < 60)
            && fraction.is_none_or(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()))
    };
    if s.as_bytes()[date.len()] == b' ' {
        return clock(time);
    }
    if let Some(t) = time.strip_suffix('Z') {
        return clock(t);
    }
    time.rsplit_once(['+', '-']).is_some_and(|(t, zone)| {
        let zone_ok = zone.split_once(':').is_some_and(|(h, m)| {
            h.len() == 2
                && m.len() == 2
                && short(h).is_some_and(|h| h <= 24)
                && short(m).is_some_and(|m| m < 60)
        });
        zone_ok && clock(t)
    })
}
