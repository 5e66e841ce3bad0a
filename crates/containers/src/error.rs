//! Errors of sandboxes and containers.

use std::io;

/// An error. Its text is one clear sentence; where runc says something that people know, it is runc's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The name is taken.
    #[error("{kind} {id:?} exists already")]
    Exists {
        /// `sandbox` or `container`.
        kind: &'static str,
        /// Its name.
        id: String,
    },
    /// There is nothing of that name.
    #[error("there is no {kind} {id:?}")]
    NotFound {
        /// `sandbox` or `container`.
        kind: &'static str,
        /// Its name.
        id: String,
    },
    /// The call does not fit the state.
    #[error("cannot {call} {kind} {id:?}: it {state}")]
    State {
        /// The call.
        call: &'static str,
        /// `sandbox`, `container` or `process`.
        kind: &'static str,
        /// Its name.
        id: String,
        /// The state, as `is running`.
        state: &'static str,
    },
    /// A step of a process's set-up failed, in words like runc's.
    #[error("{text}")]
    Step {
        /// The sentence.
        text: String,
        /// The error's number.
        errno: i32,
    },
    /// The shim of a sandbox is gone.
    #[error("the shim of sandbox {0:?} is gone")]
    Lost(String),
    /// Something of the machine failed.
    #[error("cannot {what}: {}", reason(.source))]
    Io {
        /// The deed that failed, as `write "/sys/…"`.
        what: String,
        /// The error.
        #[source]
        source: io::Error,
    },
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a deed.
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }
    /// The system's number of the error, if it has one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Step { errno, .. } => Some(*errno),
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
    /// Whether it says that something is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// An error of the system in the words that Go programs use: lower case, without a number.
pub(crate) fn reason(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(errno) => words(errno),
        None => e.to_string(),
    }
}

/// The words for an error's number.
pub(crate) fn words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |c| c.to_lowercase().chain(letters).collect())
}

/// Gives an error the deed that failed.
pub(crate) trait Doing<T> {
    /// The deed is worked out only if it is needed.
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| Error::io(what(), e))
    }
}
