//! Layers that cannot be applied.

use std::io;

use rustix::io::Errno;

/// A layer that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive cannot be read, or is not well formed.
    #[error("{0}")]
    Archive(#[source] io::Error),
    /// An entry asks for what cannot be.
    #[error("{name}: {reason}")]
    Entry {
        /// The entry's name.
        name: String,
        /// The fault.
        reason: String,
    },
    /// The reserve of free space is reached.
    #[error("no space left")]
    NoSpace,
    /// The disk failed.
    #[error("{name}: {source}")]
    Disk {
        /// The entry's name.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// The faults of an entry that the kernel finds.
pub(super) fn fault(name: &[u8], errno: Errno) -> LayerError {
    let shown = String::from_utf8_lossy(name).chars().take(200).collect();
    match errno {
        Errno::NOSPC | Errno::DQUOT => LayerError::NoSpace,
        Errno::NAMETOOLONG
        | Errno::LOOP
        | Errno::NOTDIR
        | Errno::INVAL
        | Errno::NOENT
        | Errno::PERM
        | Errno::ISDIR
        | Errno::EXIST
        | Errno::FBIG
        | Errno::MLINK
        | Errno::XDEV => LayerError::Entry { name: shown, reason: io::Error::from(errno).to_string() },
        other => LayerError::Disk { name: shown, source: other.into() },
    }
}

pub(super) fn invalid(name: &[u8], reason: &str) -> LayerError {
    LayerError::Entry {
        name: String::from_utf8_lossy(name).chars().take(200).collect(),
        reason: reason.to_owned(),
    }
}
