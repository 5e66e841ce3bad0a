//! Upstream's expressions, with what upstream's implementation makes of them.

mod expressions;
mod rules;
