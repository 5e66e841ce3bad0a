//! Digests of content.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use serde::{Deserialize, Serialize};

/// An algorithm of digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The algorithm's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// The digest of content: `sha256:` or `sha512:` and lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    hex: Box<str>,
}

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest: it needs to be sha256: or sha512: and lower-case hexadecimal digits")]
pub struct InvalidDigest(pub String);

/// The digest of content in the making.
pub(crate) struct Hasher {
    algorithm: Algorithm,
    context: Context,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl Hasher {
    /// Begins with no content.
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let context = Context::new(match algorithm {
            Algorithm::Sha256 => &SHA256,
            Algorithm::Sha512 => &SHA512,
        });
        Self { algorithm, context }
    }

    /// Adds content.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// The digest.
    pub(crate) fn finish(self) -> Digest {
        let mut hex = String::with_capacity(self.algorithm.hex_length());
        for byte in self.context.finish().as_ref() {
            for nibble in [byte >> 4, byte & 15] {
                hex.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
        }
        Digest { algorithm: self.algorithm, hex: hex.into() }
    }
}

impl Digest {
    /// The SHA-256 digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.chars().take(160).collect());
        let (name, hex) = text.split_once(':').ok_or_else(invalid)?;
        let algorithm = match name {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return Err(invalid()),
        };
        let digits = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !digits || hex.len() != algorithm.hex_length() {
            return Err(invalid());
        }
        Ok(Self { algorithm, hex: hex.into() })
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_and_made() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), Digest::of(b""));
        let mut hasher = Hasher::new(Algorithm::Sha512);
        hasher.update(b"a");
        hasher.update(b"bc");
        let digest = hasher.finish();
        assert!(digest.hex().starts_with("ddaf35a193617aba"));
        assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
        let upper = empty.to_uppercase();
        for bad in [
            "",
            "sha256",
            "sha256:",
            &empty[..70],
            &upper,
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            "sha256:../x",
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
