//! Codecs: from the wire to trees in normal form, and back.

pub mod json;
pub(crate) mod normal;
pub mod proto;
pub(crate) mod report;

pub use report::DecodeError;

use crate::tree::{Struct, Text};

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// `apiVersion` of the body, "" if it has none.
    pub api_version: Text,
    /// `kind` of the body, "" if it has none.
    pub kind: Text,
    /// The object, without `apiVersion` and `kind`.
    pub tree: Struct,
    /// The complaints of strict field validation, in upstream's words: `unknown field "spec.foo"`, `duplicate field
    /// "spec.bar"`.
    pub strict: Vec<String>,
}
