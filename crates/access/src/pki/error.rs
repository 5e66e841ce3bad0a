//! Why the keys and certificates cannot be had.

use std::path::PathBuf;

/// Why the keys and certificates cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is not usable: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        why: String,
    },
    /// A key or certificate cannot be made.
    #[error("cannot make the certificate {what}")]
    Issue {
        /// File stem of the certificate.
        what: String,
        /// Why it failed.
        #[source]
        source: rcgen::Error,
    },
}
