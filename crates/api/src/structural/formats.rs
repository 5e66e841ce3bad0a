//! The formats of strings that are checked, by upstream's rules (`kube-openapi/pkg/validation/strfmt`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use base64::Engine;
use regex::Regex;

use crate::names;

/// The formats that are checked, without their hyphens.
const FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether a format, written without hyphens, is checked.
pub fn is_known_format(format: &str) -> bool {
    FORMATS.contains(&format)
}

/// A compiled expression of this file.
macro_rules! pattern {
    ($text:expr) => {{
        static COMPILED: OnceLock<Option<Regex>> = OnceLock::new();
        COMPILED.get_or_init(|| Regex::new($text).ok()).as_ref()
    }};
}

fn is(pattern: Option<&Regex>, s: &str) -> bool {
    pattern.is_some_and(|p| p.is_match(s))
}

/// Whether a string has a format, which is written without hyphens. A format that is unknown fits all.
pub(super) fn has_format(format: &str, s: &str) -> bool {
    match format {
        "bsonobjectid" => s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit()),
        "byte" => is_base64(s),
        "cidr" => is_cidr(s),
        "creditcard" => is_credit_card(s),
        "date" => s.parse::<jiff::civil::Date>().is_ok() && s.len() == 10,
        "datetime" => is_date_time(s),
        "duration" => is_duration(s),
        "email" => is_email(s),
        "hexcolor" => is(pattern!("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"), s),
        "hostname" => is_hostname(s),
        "ipv4" => sloppy_v4(s).is_some(),
        "ipv6" => s.contains(':') && s.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(s) || is_isbn13(s),
        "isbn10" => is_isbn10(s),
        "isbn13" => is_isbn13(s),
        "k8slongname" => names::name_subdomain(s, false).is_empty(),
        "k8sshortname" => names::dns1123_label(s).is_empty(),
        "mac" => is_mac(s),
        "rgbcolor" => is(
            pattern!(
                r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$"
            ),
            s,
        ),
        "ssn" => s.len() == 11 && is(pattern!(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"), s),
        "uri" => is_request_uri(s),
        "uuid" => uuid(s, |_| true),
        "uuid3" => uuid(s, |d| d[12] == b'3'),
        "uuid4" => uuid(s, |d| d[12] == b'4' && is_variant(d[16])),
        "uuid5" => uuid(s, |d| d[12] == b'5' && is_variant(d[16])),
        _ => true,
    }
}

fn is_variant(b: u8) -> bool {
    matches!(b.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b')
}

/// A UUID, with or without its hyphens, and a rule on its digits.
fn uuid(s: &str, rule: impl Fn(&[u8]) -> bool) -> bool {
    is(pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"), s) && {
        let digits: Vec<u8> = s.bytes().filter(|b| *b != b'-').collect();
        digits.len() == 32 && rule(&digits)
    }
}

fn is_base64(s: &str) -> bool {
    !s.is_empty() && base64::engine::general_purpose::STANDARD.decode(s).is_ok()
}

/// An IPv4 address whose numbers may have leading zeros, as Go before 1.17 read it.
fn sloppy_v4(s: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u8> = s
        .split('.')
        .map(|p| p.parse::<u16>().ok().filter(|_| p.len() <= 10 && p.bytes().all(|b| b.is_ascii_digit())))
        .map(|n| n.and_then(|n| u8::try_from(n).ok()))
        .collect::<Option<_>>()?;
    <[u8; 4]>::try_from(parts).ok().map(Ipv4Addr::from)
}

fn is_cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else { return false };
    let address = match sloppy_v4(address) {
        Some(v4) => IpAddr::V4(v4),
        None => match address.parse::<Ipv6Addr>() {
            Ok(v6) => IpAddr::V6(v6),
            Err(_) => return false,
        },
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|n| n <= most)
}

fn is_mac(s: &str) -> bool {
    let separated = |by: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = s.split(by).collect();
        counts.contains(&parts.len())
            && parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    separated(':', 2, &[6, 8, 20]) || separated('-', 2, &[6, 8, 20]) || separated('.', 4, &[3, 4, 10])
}

fn is_date_time(s: &str) -> bool {
    let lower = s.to_lowercase();
    let Some((date, rest)) = lower.split_once('t') else { return false };
    // Upstream looks at the part between the first two `t`.
    let time = rest.split('t').next().unwrap_or_default();
    if date.len() != 10 || date.parse::<jiff::civil::Date>().is_err() {
        return false;
    }
    let pattern = pattern!("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
    let Some(found) = pattern.and_then(|p| p.captures(time)) else { return false };
    &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

fn is_duration(s: &str) -> bool {
    if crate::time::parse_duration(s).is_some() {
        return true;
    }
    let pattern = pattern!(r"((\d+)\s*([A-Za-zµ]+))");
    let units = [
        ["ns", "nano"],
        ["us", "micro"],
        ["µs", "micro"],
        ["ms", "milli"],
        ["s", "sec"],
        ["m", "min"],
        ["h", "hour"],
        ["d", "day"],
        ["w", "week"],
    ];
    pattern.is_some_and(|p| {
        p.captures_iter(s).any(|found| {
            let unit = found[3].to_lowercase();
            units.iter().any(|[short, long]| unit == *short || unit == "hr" || unit.starts_with(long))
        })
    })
}

/// An address as Go's `mail.ParseAddress` takes it, without comments and quoted parts of names.
fn is_email(s: &str) -> bool {
    let s = s.trim();
    let address = match (s.rfind('<'), s.strip_suffix('>')) {
        (Some(at), Some(open)) => &open[at + 1..],
        (None, None) => s,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |s: &str| {
        !s.is_empty()
            && s.chars().all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii())
    };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || local.split('.').all(atom)) && domain.split('.').all(atom)
}

fn is_hostname(s: &str) -> bool {
    let pattern = pattern!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
    );
    is(pattern, s) && s.len() <= 255 && s.split('.').all(|p| p.len() <= 63)
}

/// Whether Go's `url.ParseRequestURI` takes a text: an absolute URI, or an absolute path.
pub fn is_request_uri(s: &str) -> bool {
    if s.is_empty() || s.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    let escapes = |s: &str| {
        s.split('%').skip(1).all(|rest| {
            let b = rest.as_bytes();
            b.len() >= 2 && b[0].is_ascii_hexdigit() && b[1].is_ascii_hexdigit()
        })
    };
    let path = s.split(['?', '#']).next().unwrap_or_default();
    if s.starts_with('/') {
        return escapes(path);
    }
    let Some((scheme, rest)) = s.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme {
        return false;
    }
    let Some(authority) = rest.strip_prefix("//") else { return true };
    let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let port = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let port_fits =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    port_fits && !host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}']) && escapes(path)
}

fn digits_of(s: &str) -> String {
    s.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(s: &str) -> bool {
    let s = digits_of(s);
    let b = s.as_bytes();
    if b.len() != 10 || !b[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match b[9] {
        b'X' => 10,
        d if d.is_ascii_digit() => u32::from(d - b'0'),
        _ => return false,
    };
    let sum: u32 = b[..9].iter().zip(1u32..).map(|(d, i)| i * u32::from(d - b'0')).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(s: &str) -> bool {
    let s = digits_of(s);
    let b = s.as_bytes();
    if b.len() != 13 || !b.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 =
        b.iter().zip([1u32, 3].iter().cycle()).map(|(d, weight)| weight * u32::from(d - b'0')).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(s: &str) -> bool {
    let digits: String = s.chars().filter(char::is_ascii_digit).collect();
    let pattern = pattern!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}|6[27][0-9]{14})$"
    );
    if !is(pattern, &digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, d)| {
            let d = u32::from(d - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if d > 9 { d - 9 } else { d }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_upstreams() {
        let check = |format: &str, good: &[&str], bad: &[&str]| {
            assert!(is_known_format(format), "{format}");
            for s in good {
                assert!(has_format(format, s), "{format}: {s}");
            }
            for s in bad {
                assert!(!has_format(format, s), "{format}: {s}");
            }
        };
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f", ""]);
        check("byte", &["SGVsbG8="], &["SGVsbG8", "", "!"]);
        check("cidr", &["10.0.0.0/8", "fd00::/64", "010.0.0.1/32"], &["10.0.0.0", "10.0.0.0/33", "x/8"]);
        check("creditcard", &["4111 1111 1111 1111", "4111-1111-1111-1111"], &["4111111111111112", "x"]);
        check("date", &["2006-01-02"], &["2006-1-2", "2006-02-30", "20060102"]);
        check(
            "datetime",
            &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+02:00"],
            &["2014-12-15", "2014-12-15T24:30:20Z", "2014-12-15T19:30:20"],
        );
        check("duration", &["1h30m", "22 ns", "3 weeks", "5 minutes"], &["", "x", "5"]);
        check("email", &["a@b.c", "Joe <joe@example.com>"], &["a", "@b", "a@", "a b@c"]);
        check("hexcolor", &["#FFF", "a0b0c0"], &["#FF", "#GGG"]);
        check("hostname", &["a.example.com", "a", "bücher.example"], &["-a-", "a..b.com", ""]);
        check("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "10.0.0.256", "::1"]);
        check("ipv6", &["::1", "fd00::1:2"], &["1", "10.0.0.1"]);
        check("isbn10", &["0321751043"], &["0321751044", "978-0321751041"]);
        check("isbn13", &["978-0321751041"], &["978-0321751042", "0321751043"]);
        check("isbn", &["978-0321751041", "0321751043"], &["x"]);
        check("k8sshortname", &["a-1"], &["A", "a.b", "-a"]);
        check("k8slongname", &["a.b-1"], &["A.b", "a..b"]);
        check("mac", &["01:02:03:04:05:ab", "0102.0304.05ab"], &["01:02", "0g:02:03:04:05:06"]);
        check("rgbcolor", &["rgb(255,255,25)"], &["rgb(256,0,0)", "255,0,0"]);
        check("ssn", &["111-22-3333"], &["111223333", "x"]);
        check("uri", &["https://a.b/c?d", "/a/b", "mailto:x"], &["a.b", "", "http://a:b/", "http://[::1"]);
        check("uuid", &["C2D29867-3D0B-D497-9191-18A9D8EE7830", "c2d298673d0bd497919118a9d8ee7830"], &["x"]);
        check("uuid4", &["57b73598-8764-4ad0-a76a-679bb6640eb1"], &["57b73598-8764-3ad0-a76a-679bb6640eb1"]);
        check("uuid3", &["57b73598-8764-3ad0-a76a-679bb6640eb1"], &["57b73598-8764-4ad0-a76a-679bb6640eb1"]);
        check("uuid5", &["57b73598-8764-5ad0-a76a-679bb6640eb1"], &["57b73598-8764-5ad0-c76a-679bb6640eb1"]);
        check("password", &["", "x"], &[]);
    }
}
