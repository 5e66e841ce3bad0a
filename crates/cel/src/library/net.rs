//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::go::quote;

use crate::error::EvalError;
use crate::value::{Cidr, Opaque, Value};

use super::outcome::Outcome;

/// Go's complaint about a text that is no address.
fn complaint(s: &str) -> String {
    let q = quote(s);
    if s.is_empty() {
        return format!("ParseAddr({q}): unable to parse IP");
    }
    let Some(sign) = s.find(['.', ':', '%']) else { return format!("ParseAddr({q}): unable to parse IP") };
    match s.as_bytes()[sign] {
        b'.' => format!("ParseAddr({q}): {}", v4_complaint(s)),
        b'%' => format!("ParseAddr({q}): missing IPv6 address"),
        _ => format!("ParseAddr({q}): {}", v6_complaint(s)),
    }
}

fn v4_complaint(s: &str) -> String {
    let mut fields = 0;
    let (mut value, mut digits) = (0u32, 0);
    for (i, b) in s.bytes().enumerate() {
        match b {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return "IPv4 field has octet with leading zero".into();
                }
                value = value * 10 + u32::from(b - b'0');
                digits += 1;
                if value > 255 {
                    return "IPv4 field has value >255".into();
                }
            }
            b'.' => {
                if i == 0 || i == s.len() - 1 || s.as_bytes()[i - 1] == b'.' {
                    return format!("IPv4 field must have at least one digit (at {})", quote(&s[i..]));
                }
                if fields == 3 {
                    return "IPv4 address too long".into();
                }
                fields += 1;
                (value, digits) = (0, 0);
            }
            _ => return format!("unexpected character (at {})", quote(s.get(i..).unwrap_or_default())),
        }
    }
    "IPv4 address too short".into()
}

fn v6_complaint(s: &str) -> String {
    let (address, zone) = s.split_once('%').map_or((s, None), |(a, z)| (a, Some(z)));
    if zone == Some("") {
        return "zone must be a non-empty string".into();
    }
    let at = |why: &str, rest: &str| format!("{why} (at {})", quote(rest));
    let mut rest = address;
    let (mut ellipsis, mut groups) = (false, 0);
    if let Some(tail) = rest.strip_prefix("::") {
        (ellipsis, rest) = (true, tail);
    }
    while groups < 8 && !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return at("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return at("each colon-separated field must have at least one digit", rest);
        }
        if rest[digits..].starts_with('.') {
            return at("embedded IPv4 address must replace the final 2 fields of the address", rest);
        }
        groups += 1;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        if !rest.starts_with(':') {
            return at("unexpected character, want colon", rest);
        }
        if rest.len() == 1 {
            return at("colon must be followed by more characters", rest);
        }
        rest = &rest[1..];
        if let Some(tail) = rest.strip_prefix(':') {
            if ellipsis {
                return at("multiple :: in address", rest);
            }
            (ellipsis, rest) = (true, tail);
        }
    }
    if !rest.is_empty() {
        return at("trailing garbage after address", rest);
    }
    if ellipsis { "the :: must expand to at least one field of zeros" } else { "address string too short" }
        .into()
}

fn parse(s: &str) -> Result<IpAddr, String> {
    let Ok(ip) = s.parse::<IpAddr>() else {
        let zoned = s
            .split_once('%')
            .filter(|(a, zone)| !zone.is_empty() && matches!(a.parse::<IpAddr>(), Ok(IpAddr::V6(_))));
        return Err(match zoned {
            Some(_) => format!("IP address {} with zone value is not allowed", quote(s)),
            None => {
                format!("IP Address {} parse error during conversion from string: {}", quote(s), complaint(s))
            }
        });
    };
    if matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(s)));
    }
    Ok(ip)
}

fn parse_cidr(s: &str) -> Result<Cidr, String> {
    const WHY: &str = "network address parse error during conversion from string: ";
    let refused = |what: String| format!("{WHY}netip.ParsePrefix({}): {what}", quote(s));
    let Some((address, bits)) = s.rsplit_once('/') else { return Err(refused("no '/'".into())) };
    let ip: IpAddr = match address.parse() {
        Ok(ip) => ip,
        Err(_) => {
            if address.split_once('%').is_some_and(|(a, _)| a.parse::<Ipv6Addr>().is_ok()) {
                return Err(refused("IPv6 zones cannot be present in a prefix".into()));
            }
            return Err(refused(complaint(address)));
        }
    };
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let bits: u8 = match bits.parse() {
        Ok(n) if plain => n,
        _ if plain && bits.len() > 2 => return Err(refused("prefix length out of range".into())),
        _ => return Err(refused(format!("bad bits after slash: {}", quote(bits)))),
    };
    if bits > if ip.is_ipv4() { 32 } else { 128 } {
        return Err(refused("prefix length out of range".into()));
    }
    if matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(s)));
    }
    Ok(Cidr { address: ip, bits })
}

impl Cidr {
    fn contains(&self, ip: &IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let free = width - u32::from(self.bits);
            a.checked_shr(free).unwrap_or(0) == b.checked_shr(free).unwrap_or(0)
        };
        match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(*b).into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), (*b).into(), 128),
            _ => false,
        }
    }
    fn masked(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(a) & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(a) & mask))
            }
        };
        Self { address, bits: self.bits }
    }
}

fn address(v: &Value<'_>) -> Option<IpAddr> {
    match v {
        Value::Opaque(o) => match &**o {
            Opaque::Ip(ip) => Some(*ip),
            _ => None,
        },
        _ => None,
    }
}

fn network(v: &Value<'_>) -> Option<Cidr> {
    match v {
        Value::Opaque(o) => match &**o {
            Opaque::Cidr(c) => Some(*c),
            _ => None,
        },
        _ => None,
    }
}

fn some_ip<'a>(ip: IpAddr) -> Outcome<'a> {
    Some(Ok(Value::opaque(Opaque::Ip(ip))))
}

pub(super) fn ip<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(s)] => match parse(s) {
            Ok(ip) => some_ip(ip),
            Err(e) => Some(Err(EvalError::new(e))),
        },
        [v] => some_ip(network(v)?.address),
        _ => None,
    }
}

pub(super) fn is_ip<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(Ok(Value::Bool(parse(s).is_ok())))
}

pub(super) fn is_canonical<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(match parse(s) {
        Ok(ip) => Ok(Value::Bool(ip.to_string() == **s)),
        Err(e) => Err(EvalError::new(e)),
    })
}

pub(super) fn family<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let ip = address(args.first()?)?;
    Some(Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })))
}

pub(super) fn is<'a>(args: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> Outcome<'a> {
    Some(Ok(Value::Bool(holds(&address(args.first()?)?))))
}

pub(super) fn link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.octets()[..3] == [224, 0, 0],
        IpAddr::V6(a) => a.segments()[0] & 0xff0f == 0xff02,
    }
}

pub(super) fn link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.segments()[0] & 0xffc0 == 0xfe80,
    }
}

pub(super) fn global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(a) if a.is_broadcast());
    !broadcast && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !link_local_unicast(ip)
}

fn read_cidr(s: &str) -> Result<Cidr, EvalError> {
    parse_cidr(s).map_err(|e| {
        EvalError::new(format!("network address parse error during conversion from string: {e}"))
    })
}

pub(super) fn cidr<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(read_cidr(s).map(|c| Value::opaque(Opaque::Cidr(c))))
}

pub(super) fn is_cidr<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(Ok(Value::Bool(parse_cidr(s).is_ok())))
}

/// A text that is no address is a failure without a reason here.
pub(super) fn contains_ip<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [net, of] = args else { return None };
    let net = network(net)?;
    let ip = match of {
        Value::String(s) => match parse(s) {
            Ok(ip) => ip,
            Err(_) => return Some(Err(EvalError::no_overload())),
        },
        other => address(other)?,
    };
    Some(Ok(Value::Bool(net.contains(&ip))))
}

pub(super) fn contains_cidr<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [net, of] = args else { return None };
    let net = network(net)?;
    let other = match of {
        Value::String(s) => match read_cidr(s) {
            Ok(other) => other,
            Err(e) => return Some(Err(e)),
        },
        other => network(other)?,
    };
    Some(Ok(Value::Bool(net.bits <= other.bits && net.contains(&other.address))))
}

pub(super) fn prefix_length<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::Int(network(args.first()?)?.bits.into())))
}

pub(super) fn masked<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::opaque(Opaque::Cidr(network(args.first()?)?.masked()))))
}
