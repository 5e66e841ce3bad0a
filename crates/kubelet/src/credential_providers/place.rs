//! Places that credentials count for: registries with `*` and `[…]` in the parts of their hosts, a port and the
//! beginning of a path. Upstream reads them as Go reads URLs without a scheme.

/// Why a text is no place; Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {why}", api::go::quote(.url))]
pub(crate) struct PlaceError {
    url: String,
    why: String,
}

/// A registry, or a repository of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The host with its port, as it was written.
    pub(crate) host: String,
    /// The path, "" for none.
    pub(crate) path: String,
}

/// The scheme that Go needs.
const SCHEME: &str = "https://";

impl Place {
    /// Reads a place without a scheme.
    ///
    /// # Errors
    /// Go would not read it as a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, PlaceError> {
        Self::of_url(&format!("{SCHEME}{text}"))
    }

    /// Reads a URL with the scheme `https` or `http`.
    ///
    /// # Errors
    /// Go would not read it as a URL.
    pub(crate) fn of_url(url: &str) -> Result<Self, PlaceError> {
        let wrong = |why: String| PlaceError { url: url.to_owned(), why };
        let (whole, fragment) = url.split_once('#').unwrap_or((url, ""));
        if whole.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(wrong("net/url: invalid control character in URL".into()));
        }
        let rest = whole.strip_prefix(SCHEME).or_else(|| whole.strip_prefix("http://")).unwrap_or(whole);
        let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = host_of(host).map_err(wrong)?;
        let path = unescaped(path).map_err(wrong)?;
        unescaped(fragment).map_err(wrong)?;
        Ok(Self { host, path })
    }

    /// The parts of the host between its dots, and the port, "" for none.
    fn parts(&self) -> (Vec<&str>, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            // An address of IPv6 has more than one colon, and a port only behind its brackets.
            Some((host, port)) if host.starts_with('[') && host.ends_with(']') => {
                (&host[1..host.len() - 1], port)
            }
            Some((host, port)) if !host.contains([':', '[', ']']) && !port.contains([']']) => (host, port),
            _ => (self.host.as_str(), ""),
        };
        (host.split('.').collect(), port)
    }

    /// Whether a target is at this place, part by part.
    pub(crate) fn covers(&self, target: &Self) -> bool {
        let ((globs, port), (parts, target_port)) = (self.parts(), target.parts());
        port == target_port
            && globs.len() == parts.len()
            && target.path.starts_with(&self.path)
            && globs.iter().zip(&parts).all(|(glob, part)| fits(glob, part))
    }
}

/// Reads a host with its port.
fn host_of(host: &str) -> Result<String, String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !(port.is_empty() || port.starts_with(':') && digits.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", api::go::quote(port)));
    }
    for (at, b) in host.bytes().enumerate() {
        match b {
            b'%' => {
                let escape = escape(host, at)?;
                // A host has escapes of letters beyond ASCII, and of the sign itself.
                if escape < 0x80 && escape != b'%' {
                    return Err(format!("invalid URL escape {}", api::go::quote(&host[at..at + 3])));
                }
            }
            b if b >= 0x80 || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&b) => {}
            b => {
                return Err(format!(
                    "invalid character {} in host name",
                    api::go::quote(&char::from(b).to_string())
                ));
            }
        }
    }
    unescaped(host)
}

/// The byte that an escape at a place of a text stands for.
fn escape(text: &str, at: usize) -> Result<u8, String> {
    let digits = text.as_bytes().get(at + 1..at + 3).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
    let byte = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok());
    byte.ok_or_else(|| {
        let shown: String = text.get(at..).unwrap_or_default().chars().take(3).collect();
        format!("invalid URL escape {}", api::go::quote(&shown))
    })
}

fn unescaped(text: &str) -> Result<String, String> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        if *byte == b'%' {
            out.push(escape(text, at)?);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Whether a pattern fits the whole of a part, as in Go's `filepath.Match`. A pattern that is none fits nothing. The work
/// is at most the product of both lengths: only the last `*` is tried again.
fn fits(pattern: &str, part: &str) -> bool {
    let (pattern, part): (Vec<char>, Vec<char>) = (pattern.chars().collect(), part.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut retry = None;
    while n < part.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p, n));
            p += 1;
        } else if let Some(next) = one(&pattern, p, part[n]) {
            (p, n) = (next, n + 1);
        } else {
            let Some((star, from)) = retry else { return false };
            retry = Some((star, from + 1));
            (p, n) = (star + 1, from + 1);
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Where the pattern goes on behind its sign at `p`, if that fits a character.
fn one(pattern: &[char], p: usize, c: char) -> Option<usize> {
    let literal = |at: usize| match pattern.get(at)? {
        '\\' => pattern.get(at + 1).map(|c| (*c, at + 2)),
        other => Some((*other, at + 1)),
    };
    match pattern.get(p)? {
        '?' => Some(p + 1),
        '[' => {
            let negated = pattern.get(p + 1) == Some(&'^');
            let mut at = p + 1 + usize::from(negated);
            let (first, mut inside) = (at, false);
            while at == first || pattern.get(at)? != &']' {
                let (low, next) = literal(at)?;
                let (high, next) =
                    if pattern.get(next) == Some(&'-') { literal(next + 1)? } else { (low, next) };
                inside |= (low..=high).contains(&c);
                at = next;
            }
            (inside != negated).then_some(at + 1)
        }
        _ => literal(p).and_then(|(wanted, next)| (wanted == c).then_some(next)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases, and what Go's patterns have besides.
    #[test]
    fn places_cover_targets() {
        for (glob, target, want) in [
            ("*.kubernetes.io", "prefix.kubernetes.io", true),
            ("prefix.*.io", "prefix.kubernetes.io", true),
            ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
            ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
            ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
            ("prefix.*.io/foo", "prefix.kubernetes.io/foobar", true),
            ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", true),
            ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", true),
            ("*.kubernetes.io", "kubernetes.io", false),
            ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
            ("*.*.kubernetes.io", "kubernetes.io", false),
            ("*kubernetes.io", "a.kubernetes.io", false),
            ("*kubernetes.io", "kubernetes.io", true),
            ("*.*.*.kubernetes.io", "a.b.c.kubernetes.io", true),
            ("kubernetes.io", "kubernetes.com", false),
            ("k*.io", "quay.io", false),
            ("*.kubernetes.io:1234/blah", "prefix.kubernetes.io:1111/blah", false),
            ("prefix.*.io/foo", "prefix.kubernetes.io:1111/foo/bar", false),
            ("r[0-9].test", "r7.test/a", true),
            ("r[^0-9].test", "r7.test/a", false),
            ("r?.test", "r7.test/a", false),
            ("r[.test", "r[.test", false),
            ("[::1]:5000", "[::1]:5000/a", true),
            ("[::1]", "[::1]:5000/a", false),
            ("[::1", "[::1", false),
        ] {
            let covers = Place::parse(glob)
                .and_then(|glob| Ok(glob.covers(&Place::parse(target)?)))
                .unwrap_or_default();
            assert_eq!(covers, want, "{glob} {target}");
        }
    }

    #[test]
    fn texts_that_are_no_places() {
        let check = |text: &str, want: Option<&str>| {
            let error = Place::parse(text).err().map(|e| e.to_string());
            let want = want.map(|why| format!("parse {}: {why}", api::go::quote(&format!("https://{text}"))));
            assert_eq!(error, want, "{text}");
        };
        check("%invalid%", Some("invalid URL escape \"%in\""));
        check("a b", Some("invalid character \" \" in host name"));
        check("a:b", Some("invalid port \":b\" after host"));
        check("a/%zz", Some("invalid URL escape \"%zz\""));
        check("a%41", Some("invalid URL escape \"%41\""));
        check("[::1", Some("missing ']' in host"));
        check("a\u{7f}", Some("net/url: invalid control character in URL"));
        check("a.test:5000/x?y#z", None);
        check("*.test", None);
        assert_eq!(
            Place::parse("u@a.test:1/b%2fc?d").unwrap(),
            Place { host: "a.test:1".into(), path: "/b/c".into() }
        );
    }
}
