//! Upstream's expressions, with what upstream's implementation makes of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

mod bounds;
mod expressions;
#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
#[allow(clippy::panic, reason = "a test fails where it can't go on")]
mod properties;
mod rules;
mod seeds;
