//! Messages and services of version 2, generated from `proto/api.proto`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

tonic::include_proto!("v2");
