//! Semantic versions (semver.org, version 2), as far as they are compared.

use std::cmp::Ordering;

/// A version; the text after `+` does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    /// The identifiers of a prerelease, such as `alpha.1`.
    before: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.before.is_empty(), other.before.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.before.cmp(&other.before),
            }
        })
    }
}
impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

fn word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Reads a version such as `1.2.3-beta.1+build`; `None` if the text is no version.
pub fn semver(text: &str) -> Option<Semver> {
    let (text, build) = text.split_once('+').map_or((text, None), |(t, b)| (t, Some(b)));
    if build.is_some_and(|b| !b.split('.').all(word)) {
        return None;
    }
    let (text, before) = text.split_once('-').map_or((text, None), |(t, b)| (t, Some(b)));
    let mut parts = text.split('.').map(number);
    let mut next = || parts.next().flatten();
    let numbers = [next()?, next()?, next()?];
    if text.split('.').count() != 3 {
        return None;
    }
    let part = |p: &str| match p.bytes().all(|b| b.is_ascii_digit()) {
        _ if !word(p) => None,
        true => number(p).map(Part::Number),
        false => Some(Part::Word(p.into())),
    };
    let before = before.map_or(Some(Vec::new()), |b| b.split('.').map(part).collect())?;
    Some(Semver { numbers, before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let all = [
            "0.0.0",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.2.0+x",
            "1.10.0",
        ];
        for pair in all.windows(2) {
            assert!(semver(pair[0]).unwrap() < semver(pair[1]).unwrap(), "{pair:?}");
        }
    }

    #[test]
    fn no_versions() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "01.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "1.2.3-a..b",
            "1.-2.3",
        ] {
            assert_eq!(semver(text), None, "{text}");
        }
    }
}
