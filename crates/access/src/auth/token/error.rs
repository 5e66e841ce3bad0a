//! Why a token is refused.

/// Why a token of ours is not good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(pub String);

impl TokenError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}
