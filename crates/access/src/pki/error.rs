//! The errors of keys and certificates.

use std::path::PathBuf;

/// The reason for which keys and certificates cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The content of a file is not usable.
    #[error("{} is not usable: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The fault of the content.
        why: String,
    },
    /// A key or certificate cannot be made.
    #[error("cannot make the certificate {what}")]
    Issue {
        /// File stem of the certificate.
        what: String,
        /// The reason.
        #[source]
        source: rcgen::Error,
    },
}
