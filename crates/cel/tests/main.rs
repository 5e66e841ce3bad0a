//! Upstream's expressions, with what upstream's implementation makes of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

mod bounds;
mod expressions;
mod rules;
