//! Checks of strings; see [`api::names`].

pub use api::names::*;

/// A check of an object's name; `prefix` if something will be appended to it.
pub type NameCheck = fn(name: &str, prefix: bool) -> Vec<String>;
