//! Label and field selectors: parsing, matching, and upstream's words for what is wrong.

pub mod fields;
pub mod labels;
pub mod marks;

/// Why a selector can't be read, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
