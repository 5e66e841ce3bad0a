//! Label and field selectors: parsing, matching, and errors in upstream's words.

pub mod fields;
pub mod labels;
pub mod marks;

/// The reason for which a selector can't be read, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
