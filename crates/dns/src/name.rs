//! Domain names as they stand on the wire: labels with their lengths, and the root's empty one at the end.

use std::fmt;
use std::str::FromStr;

/// The most bytes that a name takes on the wire.
pub const MAX_NAME: usize = 255;
/// The most bytes of a label.
pub const MAX_LABEL: usize = 63;

/// A name in lower case, which configuration or an object gave.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<[u8]>);

/// A text that is no domain name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no domain name")]
pub struct NameError(String);

impl Name {
    /// The bytes on the wire, the root's label among them.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }
    /// How many labels there are, without the root's.
    pub fn labels(&self) -> usize {
        Labels(&self.0).count()
    }
}

impl FromStr for Name {
    type Err = NameError;
    /// Reads a name; a dot at its end is optional, and `.` is the root.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || NameError(text.to_owned());
        let mut wire = Vec::with_capacity(text.len() + 2);
        let labels = text.strip_suffix('.').unwrap_or(text);
        for label in labels.split('.').filter(|_| !labels.is_empty()) {
            push_label(&mut wire, label.as_bytes()).ok_or_else(bad)?;
        }
        wire.push(0);
        if text.is_empty() || wire.len() > MAX_NAME {
            return Err(bad());
        }
        Ok(Self(wire.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Adds a label in lower case; `None` for one that is empty or too long.
pub(crate) fn push_label(wire: &mut Vec<u8>, label: &[u8]) -> Option<()> {
    let length = u8::try_from(label.len()).ok().filter(|n| (1..=MAX_LABEL).contains(&usize::from(*n)))?;
    wire.push(length);
    wire.extend(label.iter().map(u8::to_ascii_lowercase));
    Some(())
}

/// The labels of a name that is whole, without the root's.
struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first().filter(|(n, _)| **n > 0)?;
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        self.0 = rest;
        Some(label)
    }
}

/// Writes a name as text, with RFC 4343's escapes.
fn write_text(f: &mut fmt::Formatter<'_>, wire: &[u8]) -> fmt::Result {
    let mut any = false;
    for label in Labels(wire) {
        any = true;
        for byte in label {
            match byte {
                b'.' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                0x21..=0x7e => write!(f, "{}", char::from(*byte))?,
                _ => write!(f, "\\{byte:03}")?,
            }
        }
        f.write_str(".")?;
    }
    if any { Ok(()) } else { f.write_str(".") }
}

/// A question's name: as it was asked, in lower case, and where its labels begin.
#[derive(Clone)]
pub struct QName {
    asked: [u8; MAX_NAME],
    lower: [u8; MAX_NAME],
    /// Where each label begins; the last is the root's.
    starts: [u8; MAX_NAME / 2 + 1],
    labels: u8,
}

impl QName {
    const ROOT: Self =
        Self { asked: [0; MAX_NAME], lower: [0; MAX_NAME], starts: [0; MAX_NAME / 2 + 1], labels: 0 };

    /// Reads the name at the begin of `bytes`, which may not be compressed.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut name = Self::ROOT;
        let mut at = 0;
        loop {
            let length = usize::from(*bytes.get(at)?);
            // The root's label must have room after this one.
            if length > MAX_LABEL || at + length + 1 > MAX_NAME - usize::from(length > 0) {
                return None;
            }
            name.starts[usize::from(name.labels)] = u8::try_from(at).ok()?;
            let end = at + length + 1;
            name.asked[at..end].copy_from_slice(bytes.get(at..end)?);
            if length == 0 {
                break;
            }
            name.labels += 1;
            at = end;
        }
        // A length is no letter: the largest one is 63.
        name.lower = name.asked;
        name.lower[..=at].make_ascii_lowercase();
        Some(name)
    }
    /// The name as it was asked.
    pub fn asked(&self) -> &[u8] {
        &self.asked[..self.end()]
    }
    /// The name in lower case.
    pub fn lower(&self) -> &[u8] {
        &self.lower[..self.end()]
    }
    /// How many labels there are, without the root's.
    pub fn labels(&self) -> usize {
        usize::from(self.labels)
    }
    /// Where a label begins, or the root's.
    pub fn start(&self, label: usize) -> usize {
        usize::from(self.starts[label.min(self.labels())])
    }
    /// A label in lower case, counted from the left.
    pub fn label(&self, label: usize) -> &[u8] {
        let (start, end) = (self.start(label), self.start(label + 1));
        self.lower.get(start + 1..end).unwrap_or_default()
    }
    /// The labels from one to before another, with their lengths, in lower case.
    pub fn range(&self, from: usize, to: usize) -> &[u8] {
        self.lower.get(self.start(from)..self.start(to)).unwrap_or_default()
    }
    /// How many labels stand before `zone`, if the name is that or lies below.
    pub fn below(&self, zone: &[u8], zone_labels: usize) -> Option<usize> {
        let before = self.labels().checked_sub(zone_labels)?;
        (&self.lower()[self.start(before)..] == zone).then_some(before)
    }

    fn end(&self) -> usize {
        usize::from(self.starts[self.labels()]) + 1
    }
}

impl From<&Name> for QName {
    fn from(name: &Name) -> Self {
        // A `Name` is whole, so it can be read.
        Self::read(&name.0).unwrap_or(Self::ROOT)
    }
}

impl fmt::Debug for QName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, self.asked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(text.parse::<Name>().ok().map(|n| n.to_string()).as_deref(), want, "{text:?}");
        };
        check("cluster.local", Some("cluster.local."));
        check("Cluster.Local.", Some("cluster.local."));
        check(".", Some("."));
        check("", None);
        check("a..b", None);
        check(&"a".repeat(63), Some(&format!("{}.", "a".repeat(63))));
        check(&"a".repeat(64), None);
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(61));
        check(&longest, Some(&format!("{longest}.")));
        check(&format!("{longest}a"), None);
    }

    #[test]
    fn names_on_the_wire() {
        let name = QName::read(b"\x04SvC1\x03Ns1\x00rest").unwrap();
        assert_eq!((name.asked(), name.lower()), (&b"\x04SvC1\x03Ns1\0"[..], &b"\x04svc1\x03ns1\0"[..]));
        assert_eq!(
            (name.labels(), name.label(0), name.label(1), name.label(2)),
            (2, &b"svc1"[..], &b"ns1"[..], &b""[..])
        );
        assert_eq!(name.range(1, 2), b"\x03ns1");
        let zone: Name = "NS1".parse().unwrap();
        assert_eq!(name.below(zone.wire(), 1), Some(1));
        assert_eq!(name.below(b"\x02s1\0", 1), None);
        assert_eq!(name.below(b"\0", 0), Some(2));
        for bad in [&b""[..], b"\x01", b"\x01a", b"\xc0\x0c", b"\x40a", &[1; 300]] {
            assert!(QName::read(bad).is_none(), "{bad:?}");
        }
        let mut longest = [[1, b'a']; 127].concat();
        longest.push(0);
        assert_eq!(QName::read(&longest).unwrap().labels(), 127);
        assert_eq!(QName::read(&longest).unwrap().asked().len(), 255);
    }
}
