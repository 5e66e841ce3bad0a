//! Messages and services of version 2, generated from `proto/v2.proto` by `cargo xtask protocols`, and of version 1.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

include!("../generated/v2.rs");

/// Messages and services of version 1, generated from `proto/v1beta1.proto`.
pub mod v1beta1 {
    include!("../generated/v1beta1.rs");
}
