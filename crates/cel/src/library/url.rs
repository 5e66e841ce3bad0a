//! URLs, taken apart as Go's `net/url` does.

use std::fmt;
use std::sync::Arc;

use api::go::quote;

use crate::error::EvalError;
use crate::value::{MapValue, Opaque, Url, Value};

use super::{Outcome, lists};

fn refused(s: &str, why: &str) -> String {
    format!("parse {}: {why}", quote(s))
}

/// Reads an absolute URL or an absolute path.
pub(super) fn request_uri(s: &str) -> Result<Url, String> {
    if s.chars().any(|c| c.is_ascii_control()) {
        return Err(refused(s, "net/url: invalid control character in URL"));
    }
    if s.is_empty() {
        return Err(refused(s, "empty url"));
    }
    let mut url = Url::default();
    if s == "*" {
        url.path = "*".into();
        return Ok(url);
    }
    let (scheme, rest) = scheme(s).map_err(|e| refused(s, e))?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
    url.empty_query = query == Some("");
    url.query = query.unwrap_or_default().to_owned();
    if !rest.starts_with('/') {
        if url.scheme.is_empty() {
            return Err(refused(s, "invalid URI for request"));
        }
        // What has no slash behind its scheme has no parts.
        url.path = rest.to_owned();
        url.raw_path = OPAQUE.to_owned();
        return Ok(url);
    }
    if !url.scheme.is_empty()
        && let Some(authority) = rest.strip_prefix("//")
    {
        let end = authority.find('/').unwrap_or(authority.len());
        read_authority(&mut url, &authority[..end]).map_err(|e| refused(s, &e))?;
        rest = &authority[end..];
    }
    url.path = unescape(rest, false).map_err(|e| refused(s, &e))?;
    if escape_path(&url.path) != rest {
        url.raw_path = rest.to_owned();
    }
    Ok(url)
}

/// Marks a URL such as `mailto:x`, whose path is no path.
const OPAQUE: &str = "\0";

fn scheme(s: &str) -> Result<(&str, &str), &'static str> {
    for (i, c) in s.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i == 0 => return Ok(("", s)),
            '0'..='9' | '+' | '-' | '.' => {}
            ':' if i == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((&s[..i], &s[i + 1..])),
            _ => return Ok(("", s)),
        }
    }
    Ok(("", s))
}

fn read_authority(url: &mut Url, authority: &str) -> Result<(), String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    if let Some(user) = user {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return Err("net/url: invalid userinfo".into());
        }
        unescape(user, false)?;
        url.user = Some(user.to_owned());
    }
    let port = if let Some(literal) = host.strip_prefix('[') {
        let end = literal.rfind(']').ok_or("missing ']' in host")?;
        literal[end + 1..].to_owned()
    } else {
        host.rfind(':').map_or(String::new(), |i| host[i..].to_owned())
    };
    let digits = port.strip_prefix(':').is_none_or(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if !port.is_empty() && (!port.starts_with(':') || !digits) {
        return Err(format!("invalid port {} after host", quote(&port)));
    }
    if let Some(bad) = host.chars().find(|c| !host_char(*c)) {
        return Err(format!("invalid character {} in host name", quote(&bad.to_string())));
    }
    url.host = unescape(host, true)?;
    Ok(())
}

fn host_char(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c)
}

/// Takes escapes back; in a host only those of characters that are not ASCII's, and those of a zone.
fn unescape(s: &str, host: bool) -> Result<String, String> {
    let bytes = s.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] != b'%' {
            out.push(bytes[i]);
            i += 1;
            continue;
        }
        let digits = s.get(i + 1..i + 3).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let bad = || {
            let end = (i + 3).min(bytes.len());
            format!("invalid URL escape {}", quote(&String::from_utf8_lossy(&bytes[i..end])))
        };
        let code = digits.and_then(|d| u8::from_str_radix(d, 16).ok()).ok_or_else(bad)?;
        if host && code < 0x80 && digits != Some("25") {
            return Err(bad());
        }
        out.push(code);
        i += 3;
    }
    String::from_utf8(out).map_err(|_| "invalid URL escape".to_owned())
}

/// A path with the escapes that Go writes.
fn escape_path(path: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(b);
    escape(path, plain)
}

fn escape(s: &str, plain: impl Fn(&u8) -> bool) -> String {
    let mut out = String::new();
    for b in s.as_bytes() {
        if plain(b) {
            out.push(char::from(*b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

impl Url {
    fn opaque(&self) -> bool {
        self.raw_path == OPAQUE
    }
    fn escaped_path(&self) -> String {
        if self.opaque() {
            return String::new();
        }
        let valid = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&b);
        if !self.raw_path.is_empty() && self.raw_path.bytes().all(valid) {
            return self.raw_path.clone();
        }
        if self.path == "*" { "*".into() } else { escape_path(&self.path) }
    }
    fn hostname(&self) -> (&str, &str) {
        if let Some(literal) = self.host.strip_prefix('[') {
            let (host, rest) = literal.split_once(']').unwrap_or((literal, ""));
            return (host, rest.strip_prefix(':').unwrap_or_default());
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque() {
            f.write_str(&self.path)?;
        } else {
            let path = self.escaped_path();
            if !self.host.is_empty()
                || self.user.is_some()
                || !self.scheme.is_empty() && path.starts_with("//")
            {
                f.write_str("//")?;
                if let Some(user) = &self.user {
                    write!(f, "{user}@")?;
                }
                let plain = |b: &u8| host_char(char::from(*b)) && *b != b'%';
                f.write_str(&escape(&self.host, plain))?;
            }
            f.write_str(&path)?;
        }
        if self.empty_query || !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

pub(super) fn url<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(match request_uri(s) {
        Ok(url) => Ok(Value::opaque(Opaque::Url(with_fragment(url)))),
        Err(e) => Err(EvalError::new(format!("URL parse error during conversion from string: {e}"))),
    })
}

/// Only the second reading of upstream's knows of fragments.
fn with_fragment(mut url: Url) -> Url {
    if !url.query.is_empty() {
        if let Some((query, fragment)) = url.query.clone().split_once('#') {
            url.fragment = fragment.to_owned();
            url.query = query.to_owned();
        }
    } else if let Some((path, fragment)) = url.path.clone().split_once('#') {
        url.fragment = fragment.to_owned();
        url.path = path.to_owned();
        if let Some((raw, _)) = url.raw_path.split_once('#') {
            url.raw_path = raw.to_owned();
        }
        if !url.opaque() && escape_path(&url.path) == url.raw_path {
            url.raw_path.clear();
        }
    }
    url
}

pub(super) fn is_url<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(Ok(Value::Bool(request_uri(s).is_ok())))
}

fn part<'a>(args: &[Value<'a>], of: impl Fn(&Url) -> String) -> Outcome<'a> {
    let [Value::Opaque(o)] = args else { return None };
    match &**o {
        Opaque::Url(url) => Some(Ok(Value::text(of(url)))),
        _ => None,
    }
}

pub(super) fn scheme_name<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    part(args, |u| u.scheme.clone())
}
pub(super) fn host<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    part(args, |u| u.host.clone())
}
pub(super) fn hostname<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    part(args, |u| u.hostname().0.to_owned())
}
pub(super) fn port<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    part(args, |u| u.hostname().1.to_owned())
}
pub(super) fn escaped_path<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    part(args, Url::escaped_path)
}

pub(super) fn query<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Opaque(o)] = args else { return None };
    let Opaque::Url(url) = &**o else { return None };
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for pair in url.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let read = |s: &str| unescape(&s.replace('+', " "), false);
        let (Ok(key), Ok(value)) = (read(key), read(value)) else { continue };
        match all.iter_mut().find(|(k, _)| *k == key) {
            Some((_, values)) => values.push(value),
            None => all.push((key, vec![value])),
        }
    }
    let mut map = MapValue::default();
    for (key, values) in all {
        if let Err(e) = map.insert(Value::text(key), lists::texts(values)) {
            return Some(Err(e));
        }
    }
    Some(Ok(Value::Map(Arc::new(map))))
}
