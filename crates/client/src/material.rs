//! The material of a configuration: certificates, tokens and files, and why they cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Status;
use futures::future::BoxFuture;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("unable to read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A kubeconfig that is no valid YAML of its kind.
    #[error("{path}: {reason}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A kubeconfig that says too little or contradicts itself, in client-go's words.
    #[error("{0}")]
    Unusable(String),
    /// Credentials that cannot be used, in client-go's words.
    #[error("{0}")]
    Credentials(String),
    /// A server that is no `https://host[:port]`.
    #[error("\"{0}\" is not the address of an API server: want https://HOST[:PORT]")]
    Server(String),
    /// A certificate or key that cannot be used.
    #[error("{what}: {reason}")]
    Pem {
        /// Its use.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// TLS refuses the certificate, the key or the roots.
    #[error("TLS configuration")]
    Tls(#[from] rustls::Error),
}

impl ConfigError {
    /// The error with its reason, as Go prints it.
    pub fn told(&self) -> String {
        match self {
            Self::Read { path, source } => file_error(path, source),
            other => other.to_string(),
        }
    }
}

/// Gives bearer tokens, and keeps them for as long as they are good.
pub trait TokenSource: Send + Sync + 'static {
    /// A token that is good now.
    fn token(&self) -> BoxFuture<'_, Result<String, Status>>;
}

/// Where a bearer token comes from.
#[derive(Clone)]
pub enum Token {
    /// Fixed.
    Value(String),
    /// A file that is read again as it is renewed.
    File(PathBuf),
    /// A file that is read again as it is renewed, and the token that counts as long as it cannot be read.
    FileOr(PathBuf, String),
    /// Something that renews it.
    Source(Arc<dyn TokenSource>),
}

impl fmt::Debug for Token {
    /// Without the token itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value"),
            Self::File(path) | Self::FileOr(path, _) => f.debug_tuple("File").field(path).finish(),
            Self::Source(_) => f.write_str("Source"),
        }
    }
}

/// The certificates of a PEM text, one at least.
pub(crate) fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let bad = |reason: String| ConfigError::Pem { what, reason };
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| bad(e.to_string()))?;
    if found.is_empty() { Err(bad("no certificate found".into())) } else { Ok(found) }
}

/// The content of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Bytes that a kubeconfig holds itself, or names as a file; nothing if it does neither.
pub(crate) fn material(data: &[u8], file: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    if !data.is_empty() {
        return Ok(Some(data.to_vec()));
    }
    if file.as_os_str().is_empty() { Ok(None) } else { read(file).map(Some) }
}

/// An error of the system, as Go prints it.
pub(crate) fn errno(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// The error of a file that cannot be opened, as Go prints it.
pub(crate) fn file_error(file: &Path, error: &io::Error) -> String {
    format!("open {}: {}", file.display(), errno(error))
}
