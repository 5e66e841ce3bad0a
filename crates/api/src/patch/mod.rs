//! Patches: RFC 6902 (JSON patch), RFC 7386 (merge patch) and upstream's strategic merge patch.
//!
//! All work on values without a schema (what the object's JSON says), as clients wrote them against
//! that form; the strategic one asks the schema how a list merges.

mod depth;
mod document;
mod json_patch;
mod merge;
mod strategic;

pub use json_patch::{JsonPatch, Operation};
pub use merge::merge;
pub use strategic::strategic;

/// The reason for which a patch was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: upstream answers 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not apply to this object: upstream answers 422.
    #[error("{0}")]
    NotApplicable(String),
    /// The object would nest deeper than [`crate::depth::MAX_DEPTH`] after the patch, or after one of its operations.
    #[error("{}", crate::depth::TOO_DEEP)]
    TooDeep,
    /// The patch has too many operations: upstream answers 413.
    #[error("{0}")]
    TooLarge(String),
}

#[cfg(test)]
mod tests;
