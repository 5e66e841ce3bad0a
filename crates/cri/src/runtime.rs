//! Messages and services of `runtime.v1`, generated from `proto/runtime.proto`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

tonic::include_proto!("runtime.v1");
