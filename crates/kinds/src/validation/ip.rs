//! Addresses and networks.

use std::collections::HashSet;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::go::quote;

use api::field::{Errors, Path};

/// Reads an address as old fields take it: IPv4 parts may have leading zeros.
pub fn parse_sloppy(s: &str) -> Option<IpAddr> {
    if s.contains(':') {
        return s.parse::<Ipv6Addr>().ok().map(IpAddr::V6).map(unmap);
    }
    let mut parts = [0u8; 4];
    let mut n = 0;
    for p in s.split('.') {
        if n == 4 || p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = p.trim_start_matches('0');
        parts[n] = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        n += 1;
    }
    (n == 4).then(|| IpAddr::V4(Ipv4Addr::from(parts)))
}

fn unmap(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

fn is_mapped(s: &str) -> bool {
    s.parse::<Ipv6Addr>().is_ok_and(|v| v.to_ipv4_mapped().is_some())
}

/// Reads a network as old fields take it: its address, its masked address and its prefix length.
pub fn parse_cidr_sloppy(s: &str) -> Option<(IpAddr, IpAddr, u8)> {
    let (addr, len) = s.split_once('/')?;
    let v6 = addr.contains(':');
    let ip = if v6 { IpAddr::V6(addr.parse().ok()?) } else { parse_sloppy(addr)? };
    if len.is_empty() || !len.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = len.trim_start_matches('0');
    let len: u8 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    if len > if v6 { 128 } else { 32 } {
        return None;
    }
    Some((ip, mask(ip, len), len))
}

/// Whether an address is in a network of a masked address and a prefix length.
pub fn contains(net: IpAddr, len: u8, ip: IpAddr) -> bool {
    net.is_ipv6() == ip.is_ipv6() && mask(ip, len) == net
}

fn mask(ip: IpAddr, len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v) => {
            let m = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v) & m))
        }
        IpAddr::V6(v) => {
            let m = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v) & m))
        }
    }
}

/// Values of a stored object that an update may keep.
pub type Kept<'a> = HashSet<&'a str>;

/// Checks an address of a field that predates strict checks; values that the stored object has are kept.
pub fn check_legacy(errs: &mut Errors, at: &Path<'_>, value: &str, strict: bool, old: &Kept<'_>) {
    if !old.contains(value) {
        parse(errs, at, value, strict);
    }
}

fn parse(errs: &mut Errors, at: &Path<'_>, value: &str, strict: bool) -> Option<IpAddr> {
    let Some(ip) = parse_sloppy(value) else {
        errs.invalid(at, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        return None;
    };
    if strict {
        let before = errs.len();
        if value.parse::<IpAddr>().is_err() {
            errs.invalid(at, value, "must not have leading 0s");
        }
        if is_mapped(value) {
            errs.invalid(at, value, "must not be an IPv4-mapped IPv6 address");
        }
        if errs.len() > before {
            return None;
        }
    }
    Some(ip)
}

/// Checks that an address is in its canonical form.
pub fn check(errs: &mut Errors, at: &Path<'_>, value: &str) {
    if let Some(ip) = parse(errs, at, value, true) {
        let canonical = ip.to_string();
        if canonical != value {
            errs.invalid(at, value, format!("must be in canonical form ({})", quote(&canonical)));
        }
    }
}

/// Checks a network of a field that predates strict checks.
pub fn check_cidr_legacy(errs: &mut Errors, at: &Path<'_>, value: &str, strict: bool, old: &Kept<'_>) {
    if !old.contains(value) {
        parse_cidr(errs, at, value, strict);
    }
}

fn parse_cidr(errs: &mut Errors, at: &Path<'_>, value: &str, strict: bool) -> Option<(IpAddr, u8)> {
    let Some((ip, net, len)) = parse_cidr_sloppy(value) else {
        errs.invalid(at, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return None;
    };
    if strict {
        let (addr, digits) = value.split_once('/').unwrap_or((value, ""));
        let why = if addr.parse::<IpAddr>().is_err() || digits.len() > 1 && digits.starts_with('0') {
            "must not have leading 0s in IP or prefix length"
        } else if is_mapped(addr) {
            "must not have an IPv4-mapped IPv6 address"
        } else if ip != net {
            "must not have bits set beyond the prefix length"
        } else {
            return Some((net, len));
        };
        errs.invalid(at, value, why);
        return None;
    }
    Some((net, len))
}

/// Checks that a network is in its canonical form.
pub fn check_cidr(errs: &mut Errors, at: &Path<'_>, value: &str) {
    if let Some((net, len)) = parse_cidr(errs, at, value, true) {
        let canonical = format!("{net}/{len}");
        if canonical != value {
            errs.invalid(at, value, format!("must be in canonical form ({})", quote(&canonical)));
        }
    }
}

/// Checks that an address with the length of its network's prefix is in its canonical form.
pub fn check_interface(errs: &mut Errors, at: &Path<'_>, value: &str) {
    let Some((ip, _, len)) = parse_cidr_sloppy(value) else {
        errs.invalid(at, value, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
        return;
    };
    let canonical = format!("{ip}/{len}");
    if canonical != value {
        errs.invalid(at, value, format!("must be in canonical form ({})", quote(&canonical)));
    }
}

/// The Warning about an address that later versions will refuse.
pub fn warning(at: &Path<'_>, value: &str) -> Option<String> {
    let ip = parse_sloppy(value)?;
    match value.parse::<IpAddr>() {
        Ok(addr) if !is_mapped(value) => {
            let canonical = addr.to_string();
            (addr.is_ipv6() && canonical != value).then(|| {
                format!(
                    "{at}: IPv6 address {} should be in RFC 5952 canonical format ({})",
                    quote(value),
                    quote(&canonical)
                )
            })
        }
        _ => Some(format!(
            "{at}: non-standard IP address {} is invalid: use {}",
            quote(value),
            quote(&ip.to_string())
        )),
    }
}

/// The Warnings about a network that later versions will refuse.
pub fn cidr_warnings(at: &Path<'_>, value: &str) -> Vec<String> {
    let Some((ip, net, len)) = parse_cidr_sloppy(value) else { return Vec::new() };
    let mut out = Vec::new();
    let canonical = format!("{net}/{len}");
    if ip != net {
        let single = format!("{ip}/{}", if net.is_ipv4() { 32 } else { 128 });
        out.push(format!(
            "{at}: CIDR value {} is ambiguous in this context (should be {} or {}?)",
            quote(value),
            quote(&canonical),
            quote(&single)
        ));
    }
    let (addr, digits) = value.split_once('/').unwrap_or((value, ""));
    let parsed = addr.parse::<IpAddr>();
    if parsed.is_err() || is_mapped(addr) || digits.len() > 1 && digits.starts_with('0') {
        out.push(format!(
            "{at}: non-standard CIDR value {} is invalid: use {}",
            quote(value),
            quote(&canonical)
        ));
    } else if out.is_empty() && net.is_ipv6() && canonical != value {
        out.push(format!(
            "{at}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(value),
            quote(&canonical)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (s, good) in [
            ("1.2.3.4", true),
            ("010.1.1.1", true),
            ("::1", true),
            ("1.2.3", false),
            ("1.2.3.256", false),
            ("fe80::1%eth0", false),
            ("", false),
            ("10.0.0.1/8", false),
        ] {
            assert_eq!(parse_sloppy(s).is_some(), good, "{s}");
        }
        assert_eq!(parse_sloppy("::ffff:1.2.3.4").map(|i| i.to_string()), Some("1.2.3.4".into()));
        for (s, good) in [
            ("10.0.0.0/8", true),
            ("10.0.0.0/33", false),
            ("::/0", true),
            ("10.0.0.0", false),
            ("0.0.0.0/0", true),
        ] {
            assert_eq!(parse_cidr_sloppy(s).is_some(), good, "{s}");
        }
    }
}
