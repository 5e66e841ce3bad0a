//! Files in which managers of resources keep what they must know after a restart.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::work::Interrupted;

/// The largest file that is written and read, in bytes.
const MOST: u64 = 64 << 20;

/// FNV-1a of 32 bits, as upstream's checksums are: of the text in which a library of Go's shows what is kept.
pub(crate) struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(2_166_136_261)
    }
}

impl Fnv {
    /// The sum of all that was written.
    pub(crate) fn sum(&self) -> u64 {
        u64::from(self.0)
    }

    /// The sum of a text.
    pub(crate) fn of(text: &str) -> u64 {
        let mut hash = Self::default();
        // Writing to a hash cannot fail.
        let _ = fmt::Write::write_str(&mut hash, text);
        hash.sum()
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(16_777_619);
        }
        Ok(())
    }
}

/// A map in Go's words for hashes: `map[k:v l:w]`.
pub(crate) fn go_map<K: fmt::Display, V>(
    all: impl IntoIterator<Item = (K, V)>,
    mut value: impl FnMut(V) -> String,
) -> String {
    let all: Vec<String> = all.into_iter().map(|(k, v)| format!("{k}:{}", value(v))).collect();
    format!("map[{}]", all.join(" "))
}

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// It is not what was written.
    #[error("checkpoint is corrupted")]
    Corrupt,
    /// It cannot be understood.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Why a file does not make a manager's state; upstream's texts. `E` is what else its content may lack.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError<E: std::error::Error + 'static = Infallible> {
    /// It is that of another policy.
    #[error(
        "{manager}configured policy {} differs from state checkpoint policy {}",
        api::go::quote(.configured),
        api::go::quote(.found)
    )]
    OtherPolicy {
        /// The beginning of the words of upstream's manager.
        manager: &'static str,
        /// The policy of the settings.
        configured: &'static str,
        /// That of the file.
        found: String,
    },
    /// It is not what was written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its content is of no use.
    #[error(transparent)]
    Content(E),
}

/// Whether a file is of the policy that is configured; `manager` is the beginning of the words of upstream's manager.
///
/// # Errors
/// It is another's.
pub(crate) fn same_policy<E: std::error::Error>(
    manager: &'static str,
    configured: &'static str,
    found: String,
) -> Result<(), RestoreError<E>> {
    if configured == found { Ok(()) } else { Err(RestoreError::OtherPolicy { manager, configured, found }) }
}

impl From<Interrupted> for RecordError {
    fn from(error: Interrupted) -> Self {
        Self::Io(error.into())
    }
}

/// Reads a file; none if there is none.
///
/// # Errors
/// It cannot be read, or is larger than any that is written.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(Some(bytes)) }
}

/// Writes a file, whole or not at all, and waits for the disk.
///
/// # Errors
/// It cannot be written, or would be too large to be read.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, fs::File::sync_all)
}

/// Writes a file, whole or not at all. The end of this process loses nothing of it, that of the machine may.
///
/// # Errors
/// It cannot be written, or would be too large to be read.
pub(crate) fn write_soon(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, |_| Ok(()))
}

fn replace(path: &Path, bytes: &[u8], wait: impl FnOnce(&fs::File) -> io::Result<()>) -> io::Result<()> {
    if bytes.len() as u64 > MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let new = beside(path);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| wait(&file));
    let renamed = written.and_then(|()| fs::rename(&new, path));
    renamed.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// The name of a file that is being written; as upstream's, it begins with a point.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert_eq!(read(&path).unwrap(), None);
        write(&path, b"one").unwrap();
        // One that was cut short by the end of an earlier process is in nobody's way.
        fs::write(beside(&path), "half of some").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(b"two".as_slice()));
        fs::File::create(&path).unwrap().set_len(MOST + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(write(&dir.path().join("no/such/dir"), b"").is_err());
    }
}
