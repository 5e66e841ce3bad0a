//! Addresses on real links.

#![expect(clippy::unwrap_used, reason = "tests")]

mod links;
