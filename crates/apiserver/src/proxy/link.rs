//! URLs as Go's `net/url` reads and writes them, as far as links of proxied pages need it.

/// The bytes that Go writes plainly in a path.
const IN_PATH: &[u8] = b"-_.~$&+,/:;=@";
/// The bytes that a path may have if it came so.
const VALID_IN_PATH: &[u8] = b"-_.~$&+,/:;=@!'()*[]%";

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Link {
    scheme: String,
    /// Everything behind the scheme of one that has no path, as in `mailto:`.
    opaque: String,
    /// A scheme is followed by a path at once.
    without_host: bool,
    /// User, password and `@`, as they came.
    login: String,
    pub(super) host: String,
    /// The path, not escaped.
    pub(super) path: Vec<u8>,
    /// The path as it came.
    raw_path: String,
    /// Query and fragment with their signs, as they came.
    rest: String,
}

impl Link {
    /// Reads a link.
    ///
    /// # Errors
    /// Go's text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("parse {}: {why}", api::go::quote(text));
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(wrong("net/url: invalid control character in URL"));
        }
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let (main, rest) = text.split_at(end);
        let mut link = Self { rest: rest.to_owned(), ..Self::default() };
        let mut main = main;
        match scheme(main) {
            Scheme::Of(scheme, behind) => {
                link.scheme = scheme.to_ascii_lowercase();
                main = behind;
            }
            Scheme::None => {}
            Scheme::Missing => return Err(wrong("missing protocol scheme")),
        }
        if !main.starts_with('/') {
            if !link.scheme.is_empty() {
                main.clone_into(&mut link.opaque);
                return Ok(link);
            }
            if main.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err(wrong("first path segment in URL cannot contain colon"));
            }
        }
        if let Some(behind) = main.strip_prefix("//")
            && (!link.scheme.is_empty() || !main.starts_with("///"))
        {
            let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
            let at = authority.rfind('@').map_or(0, |at| at + 1);
            authority[..at].clone_into(&mut link.login);
            authority[at..].clone_into(&mut link.host);
            check_host(&link.host).map_err(|why| wrong(&why))?;
            main = path;
        } else {
            link.without_host = !link.scheme.is_empty();
        }
        link.path =
            unescape(main).map_err(|bad| wrong(&format!("invalid URL escape {}", api::go::quote(bad))))?;
        main.clone_into(&mut link.raw_path);
        Ok(link)
    }

    /// With another scheme and host.
    pub(super) fn at(mut self, scheme: &str, host: &str) -> Self {
        scheme.clone_into(&mut self.scheme);
        host.clone_into(&mut self.host);
        self
    }

    /// The link as text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if !self.opaque.is_empty() {
            return out + &self.opaque + &self.rest;
        }
        let path = self.escaped_path();
        let with_host = !self.scheme.is_empty() || !self.host.is_empty() || !self.login.is_empty();
        let omitted = self.without_host && self.host.is_empty();
        if with_host && !omitted && !(self.host.is_empty() && self.login.is_empty() && path.is_empty()) {
            out.push_str("//");
            out.push_str(&self.login);
            out.push_str(&self.host);
        }
        if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
            out.push('/');
        }
        if out.is_empty() && path.split('/').next().is_some_and(|first| first.contains(':')) {
            out.push_str("./");
        }
        out + &path + &self.rest
    }

    fn escaped_path(&self) -> String {
        let valid = |b: u8| b.is_ascii_alphanumeric() || VALID_IN_PATH.contains(&b);
        let same = unescape(&self.raw_path).is_ok_and(|path| path == self.path);
        if same && self.raw_path.bytes().all(valid) { self.raw_path.clone() } else { escape(&self.path) }
    }
}

enum Scheme<'a> {
    Of(&'a str, &'a str),
    None,
    Missing,
}

fn scheme(text: &str) -> Scheme<'_> {
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Scheme::Missing,
            b':' => return Scheme::Of(&text[..i], &text[i + 1..]),
            _ => return Scheme::None,
        }
    }
    Scheme::None
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if let Some(end) = host.rfind(']') {
        &host[end + 1..]
    } else if host.starts_with('[') {
        return Err("missing ']' in host".to_owned());
    } else {
        host.find(':').map_or("", |at| &host[at..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && (!port.starts_with(':') || !digits.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", api::go::quote(port)));
    }
    let odd = host.chars().find(|c| matches!(c, ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'));
    match odd {
        Some(c) => Err(format!("invalid character {} in host name", api::go::quote(&c.to_string()))),
        None => Ok(()),
    }
}

/// A path without its percents; an error is the escape that is none.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, &str> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digit = |i: usize| bytes.get(at + i).and_then(|b| char::from(*b).to_digit(16));
            let (Some(high), Some(low)) = (digit(1), digit(2)) else {
                let end =
                    (at + 1..=at + 3).rev().find(|end| text.is_char_boundary(*end) && *end <= text.len());
                return Err(&text[at..end.unwrap_or(text.len())]);
            };
            out.push(u8::try_from(high * 16 + low).unwrap_or_default());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    Ok(out)
}

/// A path as Go escapes one that did not come escaped.
pub(super) fn escape(path: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || IN_PATH.contains(byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Two paths joined as Go's `path.Join` does, but a slash at the end stays.
pub(super) fn join(before: &[u8], path: &[u8]) -> Vec<u8> {
    let whole = [before, b"/", path].concat();
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in whole.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut joined = vec![b'/'];
    joined.extend_from_slice(&parts.join(&b'/'));
    if path.ends_with(b"/") && joined.len() > 1 {
        joined.push(b'/');
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let got = Link::parse(text).map(|l| l.text());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{text}");
        };
        for same in [
            "",
            "/x/y?q=1#f",
            "x/y",
            "?q",
            "#top",
            "mailto:someone@example.com",
            "//host/x",
            "http://u:p@host:80/x%2Fy/(a)?b=<c>",
            "http://[fd00::1]:80",
            "/a:b",
            "x%2Fy",
            "http:///x",
            "http:/x",
            "///x",
            "http://host:",
        ] {
            check(same, Ok(same));
        }
        check(
            "HTTP://host/%00<script>alert(1)</script>",
            Ok("http://host/%00%3Cscript%3Ealert%281%29%3C/script%3E"),
        );
        check("/ü b", Ok("/%C3%BC%20b"));
        check("a:b/c", Ok("a:b/c"));
        check("1:b", Err("parse \"1:b\": first path segment in URL cannot contain colon"));
        check(":x", Err("parse \":x\": missing protocol scheme"));
        check("/%zz", Err("parse \"/%zz\": invalid URL escape \"%zz\""));
        check("/%ü", Err("parse \"/%ü\": invalid URL escape \"%ü\""));
        check("/%", Err("parse \"/%\": invalid URL escape \"%\""));
        check("/a\nb", Err("parse \"/a\\nb\": net/url: invalid control character in URL"));
        check("http://host:x/", Err("parse \"http://host:x/\": invalid port \":x\" after host"));
        check("http://[::1/", Err("parse \"http://[::1/\": missing ']' in host"));
        check("http://a b/", Err("parse \"http://a b/\": invalid character \" \" in host name"));
    }

    #[test]
    fn joined() {
        let check = |before: &str, path: &str, expected: &str| {
            assert_eq!(String::from_utf8(join(before.as_bytes(), path.as_bytes())).unwrap(), expected);
        };
        check("/p", "/x/", "/p/x/");
        check("/p", "/a/../b//c", "/p/b/c");
        check("/p", "/", "/p/");
        check("", "/", "/");
        check("/p/q", "/../../../x", "/x");
    }
}
