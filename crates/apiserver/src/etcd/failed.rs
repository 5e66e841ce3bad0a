//! The error of values that cannot be read or written.

use storage::CodecError;

/// An error with the text of another.
pub(super) fn failed(e: impl std::fmt::Display) -> CodecError {
    CodecError::new(e.to_string())
}
