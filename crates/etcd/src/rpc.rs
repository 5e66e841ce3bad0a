//! Messages and services of `etcdserverpb`, generated from `proto/rpc.proto` by `cargo xtask protocols`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

include!("../generated/rpc.rs");
