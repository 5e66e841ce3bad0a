//! Errors of the store's operations. Each is one sentence for people; the cause is its source.

use std::io;
use std::path::PathBuf;

/// A store that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open, and did not end in the time that opening waits.
    #[error("another process uses the images in {0}: end it, or choose another directory")]
    InUse(PathBuf),
    /// Its directory cannot be used.
    #[error("the images in {path} cannot be used: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A pull that failed.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The reference is not well formed.
    #[error("{reference:?} names no image: {reason}")]
    Reference {
        /// The reference.
        reference: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// No registry has the image.
    #[error("{0}: not found")]
    NotFound(String),
    /// The registry wants other credentials, or refuses these.
    #[error("{reference}: {host} refuses access: {reason}")]
    Unauthorized {
        /// The reference.
        reference: String,
        /// The registry's host.
        host: String,
        /// The registry's words.
        reason: String,
    },
    /// The registry cannot be reached, or answers with errors: a later try may succeed.
    #[error("{reference}: {host} is unavailable: {reason}")]
    Unavailable {
        /// The reference.
        reference: String,
        /// The registry's host.
        host: String,
        /// The last error.
        reason: String,
    },
    /// The registry's answer is no image that this machine can run.
    #[error("{reference}: {reason}")]
    Invalid {
        /// The reference.
        reference: String,
        /// The fault.
        reason: String,
    },
    /// The image exceeds a bound of the store.
    #[error("{reference}: {reason}")]
    TooLarge {
        /// The reference.
        reference: String,
        /// The bound.
        reason: String,
    },
    /// The disk would become full.
    #[error("{reference}: no space left for its layers in {path}")]
    NoSpace {
        /// The reference.
        reference: String,
        /// The store's directory.
        path: PathBuf,
    },
    /// The settings of the registry are invalid.
    #[error("the settings of registry {host} are invalid: {reason}")]
    Settings {
        /// The registry's host.
        host: String,
        /// The fault.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An operation of the store that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such image.
    #[error("{0}: no such image")]
    NoImage(String),
    /// There is no such root.
    #[error("{0}: no such root")]
    NoRoot(String),
    /// There is a root of this key already.
    #[error("there is a root {0} already")]
    RootExists(String),
    /// The key is not usable.
    #[error(
        "{0:?} is no key of a root: it needs to be 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"
    )]
    Key(String),
    /// The name is no reference of an image.
    #[error("{name:?} names no image: {reason}")]
    Name {
        /// The name.
        name: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// The disk failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Something in the store is not what the store wrote.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
}

/// An import or export that failed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive is no archive of images, or a damaged one.
    #[error("the archive has no images that can be read: {0}")]
    Invalid(String),
    /// The archive cannot be read or written.
    #[error("the archive cannot be read or written: {0}")]
    Io(#[source] io::Error),
    /// A layer's archive is no longer there.
    #[error(
        "{image} cannot be exported: the archives of its layers are not kept (pull it again without discarding them)"
    )]
    Discarded {
        /// The image.
        image: String,
    },
    /// An image exceeds a bound of the store.
    #[error("{0}")]
    TooLarge(String),
    /// The disk would become full.
    #[error("no space left for the images in {0}")]
    NoSpace(PathBuf),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
