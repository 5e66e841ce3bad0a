//! References of images, by the grammar and the defaults of distribution/reference. Pure.

use std::fmt;

use crate::digest::Digest;

/// The domain of a name without one.
const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DOMAIN: &str = "index.docker.io";
/// The longest path of a repository.
const MAX_PATH: usize = 255;
const MAX_TAG: usize = 128;
/// The longest reference that is looked at: domain, path, tag and digest with room to spare.
const MAX_REFERENCE: usize = 1024;

/// A name in full: domain, path, and a tag or a digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// The registry: a host, with a port or without.
    pub domain: String,
    /// The repository in the registry.
    pub path: String,
    /// The version: a digest where the text has one, since a digest says more than the tag beside it.
    pub version: Version,
}

/// The version that a reference names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// A tag, `latest` by default.
    Tag(String),
    /// A digest of a manifest or index.
    Digest(Digest),
}

/// The rule that a text breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// Nothing of the grammar.
    #[error("invalid reference format")]
    Format,
    /// A repository with capital letters.
    #[error("invalid reference format: the repository's name must be lowercase")]
    Uppercase,
    /// A repository's name that is too long.
    #[error("the repository's name must not be more than 255 characters")]
    TooLong,
    /// A digest of another length or algorithm.
    #[error("the digest is not supported: it must be sha256 or sha512")]
    Digest,
    /// 64 hexadecimal digits, which are an image's id.
    #[error("64 hexadecimal digits are an id, not a name")]
    Identifier,
}

impl Reference {
    /// Reads a name in any form: `busybox`, `busybox:1.36`, `registry:5000/a/b@sha256:…`.
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        if text.len() > MAX_REFERENCE {
            return Err(InvalidReference::TooLong);
        }
        if is_identifier(text) {
            return Err(InvalidReference::Identifier);
        }
        let (domain, remainder) = split_domain(text);
        let (rest, digest) = match remainder.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (&*remainder, None),
        };
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        if path.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(InvalidReference::Uppercase);
        }
        if !is_domain(domain) || !is_path(path) || tag.is_some_and(|t| !is_tag(t)) {
            return Err(InvalidReference::Format);
        }
        if path.len() > MAX_PATH {
            return Err(InvalidReference::TooLong);
        }
        let version = match (tag, digest) {
            (_, Some(digest)) => {
                if !looks_like_digest(digest) {
                    return Err(InvalidReference::Format);
                }
                Version::Digest(digest.parse().map_err(|_| InvalidReference::Digest)?)
            }
            (Some(tag), None) => Version::Tag(tag.to_owned()),
            (None, None) => Version::Tag("latest".to_owned()),
        };
        Ok(Self { domain: domain.to_owned(), path: path.to_owned(), version })
    }

    /// The name without a version, e.g. `docker.io/library/busybox`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// The name with a digest.
    pub fn with_digest(&self, digest: &Digest) -> String {
        format!("{}/{}@{digest}", self.domain, self.path)
    }

    /// The digest, if the reference has one.
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}/{}:{tag}", self.domain, self.path),
            Version::Digest(digest) => write!(f, "{}/{}@{digest}", self.domain, self.path),
        }
    }
}

/// Whether a text is the hexadecimal digits of an id.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The domain and the rest: the first component is a domain if nothing else can look like it.
fn split_domain(text: &str) -> (&str, String) {
    let (domain, remainder) = match text.split_once('/') {
        None => (DEFAULT_DOMAIN, text),
        Some((LEGACY_DOMAIN, rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        Some(_) => (DEFAULT_DOMAIN, text),
    };
    if domain == DEFAULT_DOMAIN && !remainder.contains('/') {
        return (domain, format!("library/{remainder}"));
    }
    (domain, remainder.to_owned())
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(at) if !text[at..].contains(']') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    if port.is_some_and(|p| p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit())) {
        return false;
    }
    if let Some(inner) = host.strip_prefix('[') {
        return inner.strip_suffix(']').is_some_and(|address| {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        });
    }
    host.split('.').all(|part| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

fn is_path(text: &str) -> bool {
    text.split('/').all(is_component)
}

/// `[a-z0-9]+` joined by `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let mut rest = text.as_bytes();
    loop {
        let word = rest.iter().take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit()).count();
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        let separator = match rest {
            [] => return true,
            [b'_', b'_', ..] => 2,
            [b'.' | b'_', ..] => 1,
            [b'-', ..] => rest.iter().take_while(|b| **b == b'-').count(),
            _ => return false,
        };
        rest = &rest[separator..];
    }
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

/// The grammar of digests of any algorithm.
fn looks_like_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let named = algorithm.split(['-', '_', '+', '.']).all(|part| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    named && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
