//! The container network interface: what a runtime asks, and how it is answered.

mod request;
mod result;

pub(crate) use request::{Bandwidth, Call, Command, HostPort, Protocol, Request, VERSIONS};
pub(crate) use result::{Outcome, add_result, same_addresses, version_result};

use serde::{Deserialize, Serialize};

/// The codes of errors, by the specification's numbers.
pub(crate) mod code {
    /// The configuration's version is not supported, or has not the command.
    pub(crate) const INCOMPATIBLE: u32 = 1;
    /// The container is unknown.
    pub(crate) const UNKNOWN_CONTAINER: u32 = 3;
    /// An environment variable is missing or malformed.
    pub(crate) const ENVIRONMENT: u32 = 4;
    /// Something could not be read or written.
    pub(crate) const IO: u32 = 5;
    /// The configuration is no JSON of the right form.
    pub(crate) const DECODING: u32 = 6;
    /// The configuration makes no sense.
    pub(crate) const CONFIGURATION: u32 = 7;
    /// The same call may succeed later.
    pub(crate) const LATER: u32 = 11;
    /// The plugin cannot take an ADD now.
    pub(crate) const UNAVAILABLE: u32 = 50;
}

/// An error as a runtime gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{msg}{}{details}", if details.is_empty() { "" } else { "; " })]
pub(crate) struct CniError {
    /// A number of [`code`].
    pub(crate) code: u32,
    /// The fault.
    pub(crate) msg: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) details: String,
}

impl CniError {
    pub(crate) fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }
    /// An error with its reasons.
    pub(crate) fn because(code: u32, msg: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self { details: reason.to_string(), ..Self::new(code, msg) }
    }
}
