//! The error of a refused token.

/// The reason for which a token of this server's is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(pub String);

impl TokenError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}
