//! Messages and services of version 2, generated from `proto/v2.proto`, and of version 1.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

tonic::include_proto!("v2");

/// Messages and services of version 1, generated from `proto/v1beta1.proto`.
pub mod v1beta1 {
    tonic::include_proto!("v1beta1");
}
