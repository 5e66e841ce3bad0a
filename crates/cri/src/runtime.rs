//! Messages and services of `runtime.v1`, generated from `proto/runtime.proto` by `cargo xtask protocols`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

include!("../generated/runtime.rs");
